//! (b) Drain: stored events applied by the worker, beside pgbench running the handler's statements, one transaction an event.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use sqlx::postgres::PgPool;

use super::Effort;
use super::bottle::{Bottle, Settings};
use super::cpu::{Used, Watch};
use super::pgbench::{self, Rate, Until};
use super::stand::{Database, Stand};
use super::table::{Table, each, middle, ms, ratio, shares, whole};
use super::tokens::{self, BLOCK, People, STRIDE};

/// What `bottle worker` runs side by side; pgbench gets as many connections.
const LANES: usize = 2;
const GIVEN_UP_AFTER: Duration = Duration::from_secs(180);

/// Where the events are stored, and copied from for each run.
const STORED: &str = "bench_stored";

struct Drained {
    per_second: f64,
    used: Option<Used>,
    granted: i64,
}

struct Round {
    ours: Drained,
    same: Run,
    many: Run,
}

struct Run {
    rate: Rate,
    used: Option<Used>,
}

pub async fn run(stand: &Stand, effort: Effort) -> anyhow::Result<()> {
    let mut table = Table::new(&[
        "accounts",
        "processes",
        "events",
        "Bottle /s",
        "CPU",
        "µs each",
        "pgbench /s, as many connections",
        "CPU",
        "µs each",
        "ratio",
        "pgbench /s, 8 connections",
        "p99 ms",
        "ratio",
    ]);
    for (people, count) in [(People::Many, BLOCK), (People::One, BLOCK / 10)] {
        let tokens = tokens::signed(stand, people, count)?;
        let stored = stand.fresh(STORED).await?;
        tokens.store(stand, &stored, count).await?;
        for processes in [1, 2] {
            let mut rounds = Vec::new();
            for n in 0..effort.rounds {
                eprintln!("(b) {}, {processes} processes, round {} of {}", name(people), n + 1, effort.rounds);
                rounds.push(round(stand, people, count, processes).await?);
            }
            let Some(r) = middle(rounds, |r| r.ours.per_second / r.same.rate.per_second) else { continue };
            table.row([
                name(people).to_owned(),
                processes.to_string(),
                whole(count as f64),
                whole(r.ours.per_second),
                shares(r.ours.used),
                each(r.ours.used, count as f64),
                whole(r.same.rate.per_second),
                shares(r.same.used),
                each(r.same.used, r.same.rate.count),
                ratio(r.ours.per_second, r.same.rate.per_second),
                whole(r.many.rate.per_second),
                ms(r.many.rate.p99_ms),
                ratio(r.ours.per_second, r.many.rate.per_second),
            ]);
        }
        stand.drop(stored).await?;
    }
    table.print("(b) Drain: stored events applied");
    println!(
        "\nGoal: at least 1. One process runs {LANES} claims side by side. pgbench runs what the handler does for one event (claim, \
         begin, hold, whose, lock, facts, allowances, then what the event changes, run, mark, commit) in single-row statements; \
         it reads no token and folds nothing. Both end with the same ledger, or the run fails."
    );
    Ok(())
}

fn name(people: People) -> &'static str {
    match people {
        People::Many => "many (4 events each)",
        People::One => "one",
    }
}

async fn round(stand: &Stand, people: People, count: usize, processes: usize) -> anyhow::Result<Round> {
    let ours = drain(stand, count, processes).await?;
    let same = image(stand, people, count, LANES * processes, ours.granted).await?;
    let many = image(stand, people, count, 8, ours.granted).await?;
    Ok(Round { ours, same, many })
}

/// The clock runs from the first handler transaction to the last, so starting the processes is not counted.
async fn drain(stand: &Stand, count: usize, processes: usize) -> anyhow::Result<Drained> {
    let database = stand.copy(STORED, "bench_drain").await?;
    let pool = database.pool().await?;
    let watch = Watch::new(&stand.folder, Vec::new());
    let before = watch.look();
    let settings = Settings { command: "worker", database: Ok(&database), log: None };
    let workers = (0..processes).map(|_| Bottle::start(stand, &settings)).collect::<anyhow::Result<Vec<_>>>()?;
    until_nothing_is_open(&pool).await?;
    // What the processes had used when they began is next to nothing.
    let watch = Watch::new(&stand.folder, workers.iter().map(Bottle::pid).collect());
    let used = watch.since(before);
    for worker in workers {
        worker.stop()?;
    }
    let took: f64 =
        sqlx::query_scalar("select extract(epoch from max(processed_at) - min(processed_at))::float8 from inbox_events")
            .fetch_one(&pool)
            .await?;
    pool.close().await;
    let granted = check(&database, count).await?;
    stand.drop(database).await?;
    Ok(Drained { per_second: count as f64 / took, used, granted })
}

async fn until_nothing_is_open(pool: &PgPool) -> anyhow::Result<()> {
    let began = Instant::now();
    while began.elapsed() < GIVEN_UP_AFTER {
        let open: bool = sqlx::query_scalar(
            "select exists (select from inbox_events where status in ('received', 'processing', 'failed', 'parked'))",
        )
        .fetch_one(pool)
        .await?;
        if !open {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!("events are still open after {} s", GIVEN_UP_AFTER.as_secs())
}

async fn image(stand: &Stand, people: People, count: usize, clients: usize, granted: i64) -> anyhow::Result<Run> {
    let database = stand.copy(STORED, "bench_drain").await?;
    let (all, tenant) = (count.to_string(), stand.kinde.url());
    let stride = if people == People::Many { STRIDE } else { 1 }.to_string();
    let one = if people == People::One { "1" } else { "0" };
    let values = [("tenant", tenant.as_str()), ("events", &all), ("stride", &stride), ("one", one)];
    let watch = Watch::new(&stand.folder, Vec::new());
    let before = watch.look();
    let rate = pgbench::run(stand, &database, HANDLER, &values, clients, &Until::Transactions(count))?;
    let used = watch.since(before);
    let theirs = check(&database, count).await?;
    ensure!(theirs == granted, "pgbench's ledger sums to {theirs}, Bottle's to {granted}: it is no fair image");
    stand.drop(database).await?;
    Ok(Run { rate, used })
}

/// All ran to their verdict, which for some is that a newer plan change is stored. Returns the sum of the ledger.
async fn check(database: &Database, count: usize) -> anyhow::Result<i64> {
    let count = i64::try_from(count)?;
    let settled = database.count("select count(*) from inbox_events where status in ('applied', 'ignored')").await?;
    ensure!(settled == count, "{settled} of {count} events are settled");
    let runs = database.count("select count(distinct event_id) from event_runs").await?;
    let facts = database.count("select count(*) from facts").await?;
    ensure!((runs, facts) == (count, count), "{count} events left {runs} runs and {facts} facts");
    database.count("select coalesce(sum(delta), 0)::bigint from ledger").await
}

/// One event. What an event says is worked out from its id (see `tokens`), where the handler reads its body.
const HANDLER: &str = r#"
\set token random(1, 9000000000000000000)
with due as materialized (
    select id from inbox_events
    where status in ('received', 'processing', 'failed', 'parked') and due_at <= now()
    order by due_at, id limit 1 for update skip locked)
update inbox_events e
set status = 'processing', claims = e.claims + 1, lease_token = lpad(to_hex(:token::bigint), 32, '0')::uuid,
    due_at = now() + interval '30 seconds'
from due where e.id = due.id
returning e.id as id, e.source, e.dedupe_key as key, e.type, e.body, e.occurred_ns as ns, e.received_at, e.attempts, e.claims,
          e.account_id, e.replayed_by \gset
\set j (:id - 1) * :stride % :events
\set step :j % 4
\set n :j / 4
\if :one = 1
\set person 0
\else
\set person :n
\endif
\set created 0
\set learned 0
begin;
select id as held, now() as moment from inbox_events
where id = :id and lease_token = lpad(to_hex(:token::bigint), 32, '0')::uuid and status = 'processing' for update \gset
select coalesce(max(id), 0) as account from accounts
where tenant = :tenant and kinde_user_id = 'kp_' || lpad(:person::text, 32, '0') \gset
select coalesce(max(account_id), 0) as owner from customer_map
where source = 'kinde' and customer_id = 'customer_' || lpad(:person::text, 32, '0') \gset
\if :owner = 0
select pg_advisory_xact_lock(hashtextextended('customer_' || lpad(:person::text, 32, '0'), 7));
select coalesce(max(account_id), 0) as owner from customer_map
where source = 'kinde' and customer_id = 'customer_' || lpad(:person::text, 32, '0') \gset
\endif
\if :account = 0
with new as (
    insert into accounts (tenant, kinde_user_id, created_at) values (:tenant, 'kp_' || lpad(:person::text, 32, '0'), now())
    on conflict (tenant, kinde_user_id) do nothing returning id)
select coalesce((select id from new), 0) as account \gset
\if :account > 0
\set created 1
\else
select id as account from accounts where tenant = :tenant and kinde_user_id = 'kp_' || lpad(:person::text, 32, '0') \gset
\endif
\endif
\if :owner = 0
insert into customer_map (source, customer_id, account_id, learned_at)
values ('kinde', 'customer_' || lpad(:person::text, 32, '0'), :account, now()) on conflict (source, customer_id) do nothing;
\set learned 1
\endif
select id, plan, coalesce(plan_changed_ns, 0) as changed_ns, upcoming, past_due_since from accounts
where id = :account for no key update \gset locked_
select event_id, account_id, source, event_key, kind, agreement, plan_key, occurred_ns, effective_ns
from facts where account_id = :account order by event_id, n;
select count(*) filter (where entry_key = 'pro:' || :account::text || ':2026-01') as granted from ledger
where account_id = :account and reason in ('free', 'pro') \gset
insert into facts (event_id, n, account_id, source, event_key, kind, agreement, plan_key, occurred_ns)
values (:id, 1, :account, 'kinde', :key, (array['end', 'start', 'change', 'paid'])[:step::int + 1],
        'agreement_' || lpad(:n::text, 32, '0'), case when :step::int in (1, 2) then 'customer_pro_plan' end, :ns::bigint);
\if (:step = 1 or :step = 2) and :ns > :locked_changed_ns
update accounts set plan = 'pro', plan_changed_at = to_timestamp(:ns::bigint / 1e9), plan_changed_ns = :ns::bigint,
    upcoming = '[]', past_due_since = null
where id = :account;
\endif
\if (:step = 1 or :step = 2) and :granted = 0
insert into ledger (account_id, period, delta, reason, entry_key, event_id, created_at)
select :account, p, d, r, r || ':' || :account::text || ':' || p, :id, now()
from (values ('2026-01', 10, 'free'), ('2026-01', 490, 'pro'), (to_char(now(), 'YYYY-MM'), 10, 'free')) as v (p, d, r)
where p = '2026-01' or :created::int = 1
on conflict (entry_key) do nothing;
\elif :created = 1
insert into ledger (account_id, period, delta, reason, entry_key, event_id, created_at)
values (:account, to_char(now(), 'YYYY-MM'), 10, 'free', 'free:' || :account::text || ':' || to_char(now(), 'YYYY-MM'), null, now())
on conflict (entry_key) do nothing;
\endif
insert into event_runs (event_id, ran_at, status, sentence, effects)
values (:id, now(), 'applied', 'plan set to pro, Pro allowance granted', '{"plan": {"before": "free", "after": "pro"}}');
\if :learned = 1
update inbox_events set due_at = now()
where status = 'parked' and waits_for = any(array['customer:' || lpad(:person::text, 32, '0')]) and due_at > now();
\endif
update inbox_events
set status = 'applied', reason = 'plan set to pro, Pro allowance granted', account_id = :account, waits_for = null,
    lease_token = null, claims = 0, processed_at = now(), replayed_by = null
where id = :id and lease_token = lpad(to_hex(:token::bigint), 32, '0')::uuid and status = 'processing';
commit;
"#;
