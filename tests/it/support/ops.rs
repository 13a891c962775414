//! An operator before the real pages, and large inboxes made by the database itself.

use std::time::Duration;

use sqlx::AssertSqlSafe;
use sqlx::Executor as _;

use super::app::{Answer, App, Event, Setup, SignedIn, answer};

pub const OLIVE: &str = "kp_olive";

pub struct Ops {
    pub app: App,
    pub olive: SignedIn,
}

impl Ops {
    pub async fn new() -> Self {
        Self::with(Setup::default()).await
    }

    /// With redirects left to the test.
    pub async fn with(setup: Setup) -> Self {
        let mut app = Setup { operators: OLIVE, ..setup }.start().await;
        app.http = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let olive = app.sign_in(OLIVE).await;
        Self { app, olive }
    }

    /// A page as its operator sees it.
    pub async fn page(&self, path: &str) -> String {
        let page = self.app.get_as(&self.olive, path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.text);
        page.text
    }

    pub async fn post(&self, path: &str, form: &[(&str, &str)]) -> Answer {
        self.app.post_as(&self.olive, path, form).await
    }

    pub async fn sql(&self, sql: &str) {
        self.app.pool.execute(AssertSqlSafe(sql.to_owned())).await.unwrap_or_else(|why| panic!("{sql}: {why}"));
    }

    pub async fn count(&self, sql: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&self.app.pool).await.unwrap()
    }

    /// Genuine events of as many people, stored as if they had died. Their numbers, oldest first.
    pub async fn dead(&self, count: usize) -> Vec<i64> {
        self.dead_under("e", count).await
    }

    pub async fn dead_under(&self, prefix: &str, count: usize) -> Vec<i64> {
        let mut bodies = Vec::with_capacity(count);
        let mut keys = Vec::with_capacity(count);
        for n in 0..count {
            let event = Event::upgrade(&format!("kp_{prefix}{n}"), "2026-10-21T10:00:00Z");
            keys.push(event.id);
            bodies.push(event.token.into_bytes());
        }
        let sql = "insert into inbox_events (source, dedupe_key, type, digest, occurred_at, occurred_ns, received_at, due_at, status, reason,
                                             attempts, processed_at, body)
                   select 'kinde', k, 'customer.plan_changed', '\\x00', '2026-10-21T10:00:00Z', 1792576800000000000, now(), now(), 'dead',
                          'dead after 6 attempts: it broke', 6, now(), b
                   from unnest($1::text[], $2::bytea[]) with ordinality as g (k, b, n) order by n returning id";
        sqlx::query_scalar(sql).bind(keys).bind(bodies).fetch_all(&self.app.pool).await.unwrap()
    }

    /// As a form of the page would carry them: the address it is sent to, its key, and the newest event that is meant.
    pub async fn bulk_form(&self, query: &str) -> BulkForm {
        let page = self.page(&format!("/ops/replay{query}")).await;
        BulkForm {
            action: between(&page, "action=\"/ops/replays", "\"").replace("&#38;", "&").replace("&amp;", "&"),
            key: between(&page, "name=\"key\" value=\"", "\"").to_owned(),
            up_to: between(&page, "name=\"up_to\" value=\"", "\"").to_owned(),
            page,
        }
    }

    pub async fn ask(&self, form: &BulkForm, cap: &str, confirm: &str) -> Answer {
        let fields = [("key", form.key.as_str()), ("up_to", form.up_to.as_str()), ("cap", cap), ("confirm", confirm)];
        self.post(&format!("/ops/replays{}", form.action), &fields).await
    }

    /// Asked for, and its number.
    pub async fn asked(&self, query: &str, cap: &str) -> i64 {
        let form = self.bulk_form(query).await;
        number(&self.ask(&form, cap, "replay").await)
    }

    /// Without following, and from another site.
    pub async fn post_from_elsewhere(&self, path: &str) -> Answer {
        let request = self.app.http.post(self.app.url(path)).header("cookie", &self.olive.cookie);
        answer(request.header("origin", "https://evil.example").header("sec-fetch-site", "cross-site")).await
    }
}

pub struct BulkForm {
    pub action: String,
    pub key: String,
    pub up_to: String,
    pub page: String,
}

/// The number of the bulk replay that an answer leads to.
#[track_caller]
pub fn number(answer: &Answer) -> i64 {
    let to = answer.leads_to();
    between(&format!("{to}?"), "/ops/replays/", "?").parse().unwrap_or_else(|_| panic!("{to} is none"))
}

#[track_caller]
pub fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(start).unwrap_or_else(|| panic!("`{start}` is not in\n{text}"));
    rest.split_once(end).map_or(rest, |(within, _)| within)
}

/// The numbers of the events of a list, in its order.
pub fn listed(page: &str) -> Vec<i64> {
    page.split("id=\"event-").skip(1).map(|rest| rest.split('"').next().unwrap().parse().unwrap()).collect()
}

/// Where a link with these words leads.
pub fn link(page: &str, words: &str) -> Option<String> {
    let before = page.split(&format!("\">{words}</a>")).next().filter(|before| before.len() < page.len())?;
    Some(before.rsplit("href=\"").next()?.replace("&#38;", "&").replace("&amp;", "&"))
}

/// So many events of a year of a busy Bottle, with what goes with them. Few of them are not through: 40 dead, 200 parked, 50 to be
/// tried again, 20 waiting. Made by the database, since sending them would take a day.
pub async fn large_inbox(ops: &Ops, events: i64, body: usize) {
    let years = format!("timestamptz '2026-11-01' - ({events} - n) * (interval '365 days' / {events})");
    ops.sql(
        "insert into accounts (tenant, kinde_user_id, created_at, email)
         select 'https://bottle-test.kinde.com', 'kp_' || n, now(), 'person' || n || '@example.com' from generate_series(1, 20000) n",
    )
    .await;
    let first: i64 = ops.count("select min(id) from accounts where kinde_user_id = 'kp_1'").await;
    let step = 250_000;
    let mut from = 1;
    while from <= events {
        let to = (from + step - 1).min(events);
        ops.sql(&format!(
            "insert into inbox_events (source, dedupe_key, type, digest, occurred_at, occurred_ns, received_at, due_at, status, reason, attempts,
                                       processed_at, account_id, waits_for, body)
             select case when n % 10 = 3 then 'stripe' else 'kinde' end, 'event_' || n,
                    (array['customer.payment_succeeded', 'customer.plan_changed', 'user.updated', 'customer.invoice_overdue'])[1 + n % 4], '\\x00',
                    at, 0, at, case when status = 'parked' then 'infinity' else at end, status,
                    case status when 'applied' then 'payment recorded, Pro allowance already granted'
                                when 'ignored' then 'ignored: this event type carries no billing change (user.updated)'
                                when 'dead' then 'dead after 6 attempts: it broke' when 'failed' then 'failed: it broke, next try at 2026-11-01T00:00:00Z'
                                when 'parked' then 'parked: nobody with customer id c' || n || ' has signed in yet' end,
                    0, case when status <> 'received' then at end, case when status <> 'parked' then {first} + n % 20000 end,
                    case when status = 'parked' then 'customer:c' || n end, convert_to(repeat('x', {body}), 'UTF8')
             from generate_series({from}, {to}) n, lateral (
                 select case when n % ({events} / 40) = 7 then 'dead' when n % ({events} / 200) = 11 then 'parked'
                             when n % ({events} / 50) = 13 then 'failed' when n > {events} - 20 then 'received'
                             when n % 4 = 2 then 'ignored' else 'applied' end as status, {years} as at) s"
        ))
        .await;
        ops.sql("insert into receipts (event_id, webhook_id, received_at, copy) select id, 'w' || id, received_at, false from inbox_events where id > (select coalesce(max(event_id), 0) from receipts)").await;
        from = to + 1;
    }
    ops.sql("insert into event_runs (event_id, ran_at, status, sentence, effects) select id, received_at, status, 'plan is already pro', '{}' from inbox_events where status in ('applied', 'ignored', 'dead')").await;
    ops.sql(&format!("insert into conflicts (event_id, digest, body, received_at) select id, '\\x01', 'x', received_at from inbox_events where id % {} = 1", events / 10_000)).await;
    for n in 0..2 {
        ops.sql(&format!("insert into replays (event_id, requested_by, requested_at) select id, 'somebody', received_at from inbox_events where id % 100 = {n}")).await;
    }
    ops.sql(&format!("insert into event_notes (event_id, note, written_by, written_at, form_key) select id, 'seen', 'olive', now(), gen_random_uuid() from inbox_events where id % {} = 1", events / 10_000)).await;
    ops.sql("insert into operator_actions (done_at, done_by, action, event_id) select now(), 'olive', 'note', id from inbox_events where id % 50 = 1").await;
    ops.sql("insert into facts (event_id, n, account_id, source, event_key, kind, plan_key, occurred_ns) select id, 0, account_id, source, dedupe_key, 'paid', null, 0 from inbox_events where id % 20 = 4 and account_id is not null").await;
    ops.sql("insert into ledger (account_id, period, delta, reason, entry_key, event_id, created_at) select account_id, '2026-10', 1, 'pack', 'pack:' || id, id, now() from inbox_events where id % 20 = 4 and account_id is not null").await;
    ops.sql("insert into alerts (condition, sentence, event_ids, raised_at, cleared_at) select 'dead', 'an event', '{1}', now(), now() from generate_series(1, 5000) n").await;
    ops.sql("vacuum analyze").await;
}

/// Every page there is, with every filter, on such an inbox.
pub async fn pages(ops: &Ops) -> Vec<String> {
    let owner = ops.count("select account_id from inbox_events where account_id is not null order by id desc limit 1").await;
    let dead = ops.count("select id from inbox_events where status = 'dead' order by id limit 1").await;
    let conflict = ops.count("select max(event_id) from conflicts").await;
    let middle = ops.count("select max(id) / 2 from inbox_events").await;
    let mut pages: Vec<String> = [
        "/ops",
        "/ops/events",
        "/ops/events?status=dead",
        "/ops/events?status=parked",
        "/ops/events?status=failed",
        "/ops/events?status=dead&status=failed&status=parked",
        "/ops/events?status=applied",
        "/ops/events?status=ignored&source=stripe",
        "/ops/events?status=received&status=processing",
        "/ops/events?conflicts=1",
        "/ops/events?last=1h",
        "/ops/events?since=2026-03-01&until=2026-03-02",
        "/ops/events?until=2026-01-01&kind=user.*",
        "/ops/events?kind=customer.plan_changed",
        "/ops/events?kind=no.such.type",
        "/ops/events?reason=nothing+has+this",
        "/ops/events?source=bottle",
        "/ops/events?id=event_777",
        "/ops/events?owner=kp_77",
        "/ops/events?owner=person77@example.com&kind=no.such",
        "/ops/events?owner=nobody@example.com",
        "/ops/events?status=dead&reason=broke&since=2026-02-01&kind=customer.*",
        "/ops/dead",
        "/ops/parked",
        "/ops/actions",
        "/ops/replays",
        "/ops/replay",
        "/ops/replay?status=applied&kind=no.such.type",
        "/ops/replay?status=applied&since=2026-05-01",
        "/ops/replay?owner=kp_77&status=ignored",
        "/ops/replay?conflicts=1&status=applied",
        "/ops/reconcile",
    ]
    .map(str::to_owned)
    .to_vec();
    pages.extend([
        format!("/ops/events?before={middle}&kind=no.such.type"),
        format!("/ops/events?id={middle}"),
        format!("/ops/events?owner={owner}&status=applied"),
        format!("/ops/events/{dead}"),
        format!("/ops/events/{conflict}"),
        format!("/ops/dead?before={dead}"),
        format!("/ops/actions?before={middle}"),
    ]);
    pages
}

/// For what a worker of the test has to finish.
pub const PATIENCE: Duration = Duration::from_secs(60);
