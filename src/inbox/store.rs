//! Storing deliveries: one autocommitted statement for however many came together.

use std::collections::BTreeMap;

use sqlx::PgExecutor;
use time::OffsetDateTime;

use crate::clock::Clock;
use crate::domain::event::{Delivery, Source};
use crate::domain::ids::{EventId, EventKey};
use crate::domain::instant::Instant;

/// What became of one delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub id: EventId,
    pub copy: bool,
    /// The same id was stored before with other content; that stands, this went to `conflicts`.
    pub conflict: bool,
    /// The header of the first delivery differs from this one's.
    pub other_header: bool,
}

/// The deliveries of one event inside a batch: the first is the event, the others are copies or conflicts.
struct Group<'a> {
    first: &'a Delivery,
    all: Vec<usize>,
}

/// Stores a batch and answers in its order. Committed when this returns; whether it was committed is unknown if it fails.
///
/// Rows go in by (source, key), so two batches that share events wait for one another and never deadlock. The conflict arm
/// updates, so the existing row comes back even when another batch inserted it a moment ago.
///
/// # Errors
/// The database's. Nothing may be acknowledged then.
pub async fn store(db: impl PgExecutor<'_>, batch: &[&Delivery], clock: Clock) -> sqlx::Result<Vec<Stored>> {
    let mut groups: BTreeMap<(Source, &EventKey), Group<'_>> = BTreeMap::new();
    for (n, delivery) in batch.iter().enumerate() {
        let group = groups.entry((delivery.source, &delivery.key)).or_insert_with(|| Group { first: delivery, all: Vec::new() });
        group.all.push(n);
    }
    let rows = Rows::of(&groups, batch);
    let now = clock.param();

    let located = sqlx::query!(
        r#"with given as (
               select * from unnest($1::int[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[],
                                    $7::timestamptz[], $8::bigint[], $9::bytea[], $10::int[])
                   as g (n, source, key, webhook_id, type, digest, occurred_at, occurred_ns, body, seen)
           ), stored as (
               insert into inbox_events as e (source, dedupe_key, webhook_id, type, digest, occurred_at, occurred_ns, body,
                                              seen_count, received_at, due_at)
               select source, key, webhook_id, type, digest, occurred_at, occurred_ns, body,
                      seen, coalesce($18, now()), coalesce($18, now())
               from given order by n
               on conflict (source, dedupe_key) do update set seen_count = e.seen_count + excluded.seen_count
               returning e.id, e.source, e.dedupe_key, e.webhook_id, e.digest, e.xmax = 0 as inserted
           ), located as (
               select g.n, s.id, s.webhook_id, s.digest, s.inserted
               from given g join stored s on s.source = g.source and s.dedupe_key = g.key
           ), receipt as (
               insert into receipts (event_id, webhook_id, sent_at, received_at, copy)
               select l.id, r.webhook_id, r.sent_at, coalesce($18, now()), not (l.inserted and r.first)
               from unnest($11::int[], $12::text[], $13::bool[], $19::timestamptz[]) as r (n, webhook_id, first, sent_at) join located l using (n)
           ), conflict as (
               insert into conflicts (event_id, webhook_id, digest, body, received_at)
               select l.id, c.webhook_id, c.digest, c.body, coalesce($18, now())
               from (select n, webhook_id, digest, body from given
                     union all
                     select * from unnest($14::int[], $15::text[], $16::bytea[], $17::bytea[])) c
               join located l using (n)
               where l.digest <> c.digest and l.digest <> $20 and c.digest <> $20
               on conflict (event_id, digest) do nothing
           )
           select n as "n!", id as "id!: EventId", webhook_id, digest as "digest!", inserted as "inserted!" from located"#,
        &rows.n,
        &rows.source as &[&str],
        &rows.key as &[&str],
        &rows.webhook_id as &[Option<&str>],
        &rows.kind as &[&str],
        &rows.digest as &[&[u8]],
        &rows.occurred_at as &[Option<OffsetDateTime>],
        &rows.occurred_ns as &[Option<i64>],
        &rows.body as &[&[u8]],
        &rows.seen,
        &rows.receipt_n,
        &rows.receipt_webhook_id as &[Option<&str>],
        &rows.receipt_first,
        &rows.odd_n,
        &rows.odd_webhook_id as &[Option<&str>],
        &rows.odd_digest as &[&[u8]],
        &rows.odd_body as &[&[u8]],
        now,
        &rows.receipt_sent_at as &[Option<OffsetDateTime>],
        &Delivery::FETCHED[..]
    )
    .fetch_all(db)
    .await?;

    let mut answers: Vec<Option<Stored>> = vec![None; batch.len()];
    let order: Vec<&Group<'_>> = groups.values().collect();
    for row in &located {
        let group = order[usize::try_from(row.n).map_err(|e| sqlx::Error::Decode(e.into()))?];
        for (copy, n) in group.all.iter().enumerate() {
            let delivery = batch[*n];
            answers[*n] = Some(Stored {
                id: row.id,
                copy: copy > 0 || !row.inserted,
                conflict: contradicts(&row.digest, &delivery.digest),
                other_header: row.webhook_id != delivery.webhook_id,
            });
        }
    }
    answers.into_iter().collect::<Option<Vec<_>>>().ok_or(sqlx::Error::RowNotFound)
}

/// Another content under one id. Of what was fetched that cannot be said.
fn contradicts(stored: &[u8], came: &[u8]) -> bool {
    stored != came && stored != Delivery::FETCHED && came != Delivery::FETCHED
}

/// The batch as columns.
#[derive(Default)]
struct Rows<'a> {
    n: Vec<i32>,
    source: Vec<&'a str>,
    key: Vec<&'a str>,
    webhook_id: Vec<Option<&'a str>>,
    kind: Vec<&'a str>,
    digest: Vec<&'a [u8]>,
    occurred_at: Vec<Option<OffsetDateTime>>,
    occurred_ns: Vec<Option<i64>>,
    body: Vec<&'a [u8]>,
    seen: Vec<i32>,
    receipt_n: Vec<i32>,
    receipt_webhook_id: Vec<Option<&'a str>>,
    receipt_first: Vec<bool>,
    receipt_sent_at: Vec<Option<OffsetDateTime>>,
    odd_n: Vec<i32>,
    odd_webhook_id: Vec<Option<&'a str>>,
    odd_digest: Vec<&'a [u8]>,
    odd_body: Vec<&'a [u8]>,
}

impl<'a> Rows<'a> {
    fn of(groups: &BTreeMap<(Source, &EventKey), Group<'a>>, batch: &[&'a Delivery]) -> Self {
        let mut rows = Self::default();
        for (n, group) in (0_i32..).zip(groups.values()) {
            let event = group.first;
            rows.n.push(n);
            rows.source.push(event.source.as_str());
            rows.key.push(event.key.as_str());
            rows.webhook_id.push(event.webhook_id.as_deref());
            rows.kind.push(&event.kind);
            rows.digest.push(&event.digest);
            rows.occurred_at.push(event.occurred.map(Instant::datetime));
            rows.occurred_ns.push(event.occurred.map(Instant::nanos));
            rows.body.push(&event.body);
            rows.seen.push(i32::try_from(group.all.len()).unwrap_or(i32::MAX));
            for (copy, index) in group.all.iter().enumerate() {
                let delivery = batch[*index];
                rows.receipt_n.push(n);
                rows.receipt_webhook_id.push(delivery.webhook_id.as_deref());
                rows.receipt_first.push(copy == 0);
                rows.receipt_sent_at.push(delivery.sent.map(Instant::datetime));
                if contradicts(&event.digest, &delivery.digest) {
                    rows.odd_n.push(n);
                    rows.odd_webhook_id.push(delivery.webhook_id.as_deref());
                    rows.odd_digest.push(&delivery.digest);
                    rows.odd_body.push(&delivery.body);
                }
            }
        }
        rows
    }
}
