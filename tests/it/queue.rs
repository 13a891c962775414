//! The inbox as a queue: what a claim takes, what a failure costs, and that nothing is forgotten.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant as Stopwatch};

use bottle::checkpoint::Step;
use bottle::domain::ids::EventKey;
use bottle::inbox::queue::CLAIM_LIMIT;
use bottle::wake::Wake;
use bottle::worker::process::Outcome;
use bottle::worker::{Crew, Lane, Turn};
use serde_json::Value;
use sqlx::postgres::{PgConnection, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};

use crate::support::claims::says;
use crate::support::histories::moment;
use crate::support::pipeline::{At, Pipeline, breaks, fault, panic, stop};

fn payments(users: &str, count: usize) -> Vec<Value> {
    (0..count).map(|n| says(&format!("{users}{n}"), &format!("{users}{n:04}"), "10-21 10:00:00 paid -")).collect()
}

#[tokio::test]
async fn a_claim_is_its_workers_for_thirty_seconds() {
    let mut p = Pipeline::new().await;
    p.deliver(&says("ada", "up", "10-21 10:00:00 changed - pro")).await;
    let first = p.engine().claim(CLAIM_LIMIT).await.unwrap();
    assert!(p.later(Duration::from_millis(29_900)).engine().claim(CLAIM_LIMIT).await.unwrap().is_empty());
    let second = p.later(Duration::from_millis(200)).engine().claim(CLAIM_LIMIT).await.unwrap();
    assert_eq!((second[0].id, second[0].claims), (first[0].id, 2));
    assert_ne!(second[0].token, first[0].token);
}

#[tokio::test]
async fn the_oldest_due_is_claimed_first() {
    let mut p = Pipeline::new().await;
    for (key, at) in [("b", "10-21 10:00:02"), ("c", "10-21 10:00:01"), ("d", "10-21 10:00:02"), ("a", "10-21 10:00:03")] {
        p.deliver_at(at, &says("ada", key, "10-21 10:00:00 paid -")).await;
    }
    p.at("10-21 12:00:00");
    let mut order = String::new();
    while let [one] = &p.engine().claim(1).await.unwrap()[..] {
        order.push_str(&one.key.0["event_".len()..][..1]);
    }
    assert_eq!(order, "cbda");
}

#[tokio::test]
async fn a_claim_takes_no_more_than_asked_whatever_the_plan() {
    // T24: a nested loop that runs the limited subquery again for each row claims all of them.
    let p = Pipeline::new().await;
    p.deliver_unsigned(&payments("u", 100)).await;
    // With these off, `where id in (select … limit 1 for update skip locked)` does so: it was seen to take all 100.
    let off = ["hashjoin", "mergejoin", "material", "memoize", "hashagg", "sort", "bitmapscan"];
    let off = off.map(|way| (format!("enable_{way}"), "off"));
    let pool = PgPoolOptions::new().max_connections(1).connect_with(p.db.options().options(off)).await.unwrap();
    for limit in [1, CLAIM_LIMIT] {
        let mut engine = p.engine();
        engine.pool = pool.clone();
        // Often enough that the server may keep a generic plan.
        for _ in 0..if limit == 1 { 8 } else { 2 } {
            assert_eq!(engine.claim(limit).await.unwrap().len(), usize::try_from(limit).unwrap());
        }
    }
    assert_eq!(p.value::<i64>("select count(*) from inbox_events where status = 'processing'").await, 58);
}

#[tokio::test]
async fn a_failing_event_waits_longer_each_time_and_is_dead_at_the_sixth() {
    for (how, breaking, text) in
        [("fault", fault as fn() -> _, "the handler broke"), ("panic", panic, "the handler panicked: the handler broke")]
    {
        for step in [Step::Resolved, Step::Held, Step::Locked, Step::HalfWay, Step::BeforeMark, Step::Marked] {
            let mut p = Pipeline::new().await;
            let claims = says("ada", "bad", "10-21 10:00:00 changed - pro");
            p.deliver(&claims).await;
            for wait in [5, 30, 120, 600, 3_600] {
                p.watched(breaks(step, "bad", breaking)).drain().await.unwrap();
                let row = p.event_of(&claims).await;
                let due = p.now.plus(Duration::from_secs(wait));
                assert_eq!(row.said(), format!("failed: {text}, next try at {due}"), "{how} at {step}");
                assert_eq!((row.due.unwrap(), row.claims), (due.datetime(), 0));
                p.now = due.minus(Duration::from_micros(1));
                assert!(p.drain().await.is_empty(), "not before its time");
                p.now = due;
                p.check_invariants().await;
            }
            p.watched(breaks(step, "bad", breaking)).drain().await.unwrap();
            let row = p.event_of(&claims).await;
            assert_eq!((row.said(), row.attempts, row.runs), (format!("dead after 6 attempts: {text}"), 6, 6), "{how} at {step}");
            assert!(!p.account("ada").await.contains("pro"), "a failed run leaves nothing");
            assert!(p.later(Duration::from_secs(86_400)).drain().await.is_empty());

            p.replay(&claims).await;
            p.drain().await;
            let row = p.event_of(&claims).await;
            assert_eq!((row.said().as_str(), row.attempts), ("applied: plan set to pro, Pro allowance granted", 0));
            p.check_invariants().await;
        }
    }
}

#[tokio::test]
async fn twenty_claims_without_a_verdict_end_an_event_uncharged() {
    let mut p = Pipeline::new().await;
    let claims = says("ada", "up", "10-21 10:00:00 changed - pro");
    p.deliver(&claims).await;
    for _ in 0..20 {
        assert_eq!(p.engine().claim(CLAIM_LIMIT).await.unwrap().len(), 1, "T22: due again when the lease ends");
        p.later(Duration::from_secs(31));
    }
    p.drain().await;
    let row = p.event_of(&claims).await;
    assert_eq!((row.said().as_str(), row.attempts), ("dead after 20 claims: no worker lived to say why", 0));
    p.check_invariants().await;
}

#[tokio::test]
async fn an_event_that_kills_its_workers_takes_none_of_its_neighbours_along() {
    // T21: the first by id, so that it always dies before the others have their turn.
    for step in [Step::Resolved, Step::Held] {
        let mut p = Pipeline::new().await;
        let killer = says("ada", "killer", "10-21 10:00:00 changed - pro");
        p.deliver(&killer).await;
        p.deliver_unsigned(&payments("u", 24)).await;
        let mut deaths = 0;
        while p.value::<i64>("select count(*) from inbox_events where status in ('received', 'processing')").await > 0 {
            let outcomes = p.watched(breaks(step, "killer", stop)).drain().await.unwrap();
            deaths += usize::from(outcomes.contains(&Outcome::Stopped));
            p.later(Duration::from_secs(31));
        }
        assert_eq!(p.value::<i64>("select count(*) from inbox_events where status = 'applied'").await, 24, "at {step}");
        assert_eq!(p.event_of(&killer).await.said(), "dead after 20 claims: no worker lived to say why");
        assert_eq!(deaths, 20);
        p.check_invariants().await;
    }
}

#[tokio::test]
async fn a_suspect_shares_no_transaction() {
    let mut p = Pipeline::new().await;
    p.deliver_unsigned(&payments("old", 3)).await;
    for _ in 0..3 {
        p.engine().claim(CLAIM_LIMIT).await.unwrap();
        p.later(Duration::from_secs(31));
    }
    p.deliver_unsigned(&payments("new", 3)).await;
    let (sizes, held) = std::sync::mpsc::channel();
    let watch = At(move |step, events: &[&EventKey]| {
        if step == Step::Held {
            sizes.send(events.len()).unwrap();
        }
        Ok(())
    });
    p.watched(Arc::new(watch)).drain().await.unwrap();
    assert_eq!(held.try_iter().collect::<Vec<_>>(), [3, 1, 1, 1]);
    p.check_invariants().await;
}

#[tokio::test]
async fn poison_costs_its_neighbours_nothing() {
    let mut p = Pipeline::new().await;
    let mut all = payments("good", 570);
    for (n, poison) in payments("poison", 30).into_iter().enumerate() {
        all.insert(n * 19, poison);
    }
    p.deliver_unsigned(&all).await;
    let broken = |n: usize| if n.is_multiple_of(2) { fault() } else { panic() };
    let watch = Arc::new(At(move |step, events: &[&EventKey]| {
        let poison = events.iter().find(|key| key.0.starts_with("event_poison"));
        match poison.filter(|_| step == Step::HalfWay) {
            Some(key) => Err(broken(key.0.trim_end_matches('x')["event_poison".len()..].parse().unwrap())),
            None => Ok(()),
        }
    }));
    let mut crew = Crew::new(p.watched(watch), Wake::default());
    let breaker_now = tokio::time::Instant::now();
    let mut left = 0;
    for wait in [0, 5, 30, 120, 600, 3_600] {
        crew.engine.clock = bottle::clock::Clock::At(p.later(Duration::from_secs(wait)).now);
        loop {
            match crew.turn(Lane::Probing, breaker_now).await.unwrap() {
                Turn::Worked => {}
                Turn::NothingDue => break,
                Turn::Paused(_) => panic!("the breaker takes the poison's side"),
            }
        }
        let applied: i64 = p.value("select count(*) from inbox_events where status = 'applied'").await;
        assert_eq!(applied, 570, "the good ones are through at once, after {left} s");
        p.check_invariants().await;
        left += wait;
    }
    assert_eq!(p.value::<i64>("select count(*) from inbox_events where status = 'dead' and attempts = 6").await, 30);
    assert_eq!(crew.alarms().await, 0);
}

#[tokio::test]
async fn one_busy_account_starves_nobody() {
    // T26: five thousand events of one account are waiting; a hundred of others come meanwhile.
    let mut p = Pipeline::new().await;
    let hot: Vec<Value> = (0..5_000)
        .map(|n| {
            says("hot", &format!("hot{n:05}"), if n % 5 == 0 { "10-21 10:00:00 paid -" } else { "10-21 10:00:00 registered" })
        })
        .collect();
    p.deliver_unsigned(&hot).await;
    p.later(Duration::from_millis(1)).deliver_unsigned(&payments("single", 100)).await;
    p.later(Duration::from_millis(1)).deliver_unsigned(&payments("hotlate", 200)).await;
    let mut claims = 0;
    while p.value::<i64>("select count(*) from inbox_events where dedupe_key like 'event_single%' and status <> 'applied'").await
        > 0
    {
        let claimed = p.engine().claim(CLAIM_LIMIT).await.unwrap();
        p.engine().process(claimed, bottle::worker::process::Charge::Charged).await;
        claims += 1;
    }
    assert_eq!(claims, 5_100 / 25, "whoever was due first is first, and nobody comes twice");
}

#[tokio::test]
async fn replays_fall_due_two_hundred_a_second() {
    let p = Pipeline::new().await;
    p.deliver_unsigned(&payments("u", 450)).await;
    p.drain().await;
    let ids: Vec<i64> = sqlx::query_scalar("select id from inbox_events order by id").fetch_all(&p.pool).await.unwrap();
    let ids: Vec<_> = ids.into_iter().map(bottle::domain::ids::EventId).collect();
    let mut conn = p.pool.acquire().await.unwrap();
    bottle::replay::request(&mut conn, &ids, "a test", p.now.datetime()).await.unwrap();
    let in_second = async |n: i64| {
        let after = |n: i64| p.now.plus(Duration::from_secs(n.try_into().unwrap())).to_string();
        p.value::<i64>(&format!(
            "select count(*) from inbox_events where due_at >= '{}' and due_at < '{}'",
            after(n),
            after(n + 1)
        ))
        .await
    };
    assert_eq!([in_second(0).await, in_second(1).await, in_second(2).await], [200, 200, 50]);
}

#[tokio::test]
async fn a_replay_of_many_goes_chunk_by_chunk_at_the_same_pace() {
    let p = Pipeline::new().await;
    p.deliver_unsigned(&payments("u", 1_100)).await;
    sqlx::query("update inbox_events set status = 'dead', reason = 'dead'").execute(&p.pool).await.unwrap();
    let ids: Vec<i64> = sqlx::query_scalar("select id from inbox_events order by id").fetch_all(&p.pool).await.unwrap();
    let ids: Vec<_> = ids.into_iter().map(bottle::domain::ids::EventId).collect();
    let clock = bottle::clock::Clock::At(p.now);
    assert_eq!(bottle::replay::request_many(&p.pool, &ids, "a test", clock).await.unwrap().len(), 1_100);
    let in_order = "select count(*) from (select due_at - lag(due_at) over (order by id) as gap from inbox_events) g \
                    where gap <> interval '5 ms'";
    assert_eq!(p.value::<i64>(in_order).await, 0, "200 a second, in the order of their arrival");
    assert_eq!(p.value::<i64>("select count(*) from replays").await, 1_100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replays_of_many_at_once_do_not_deadlock() {
    let p = Pipeline::new().await;
    // One chunk: both lock the same rows, from both ends.
    p.deliver_unsigned(&payments("u", 500)).await;
    let mut ids: Vec<i64> = sqlx::query_scalar("select id from inbox_events order by id").fetch_all(&p.pool).await.unwrap();
    let clock = bottle::clock::Clock::At(p.now);
    for round in 0..20 {
        sqlx::query("update inbox_events set status = 'dead', reason = 'dead'").execute(&p.pool).await.unwrap();
        let forward: Vec<_> = ids.iter().copied().map(bottle::domain::ids::EventId).collect();
        ids.reverse();
        let backward: Vec<_> = ids.iter().copied().map(bottle::domain::ids::EventId).collect();
        let (one, other) = tokio::join!(
            tokio::spawn({
                let pool = p.pool.clone();
                async move { bottle::replay::request_many(&pool, &forward, "one", clock).await }
            }),
            tokio::spawn({
                let pool = p.pool.clone();
                async move { bottle::replay::request_many(&pool, &backward, "other", clock).await }
            })
        );
        let (one, other) = (one.unwrap().unwrap().len(), other.unwrap().unwrap().len());
        assert_eq!(one + other, 500, "round {round}: each event once");
    }
}

#[tokio::test]
async fn somebody_is_told_of_an_event_that_the_database_never_lets_through() {
    let mut p = Pipeline::new().await;
    p.run(&says("ada", "before", "10-20 10:00:00 paid -")).await;
    let claims = says("ada", "up", "10-21 10:00:00 changed - pro");
    p.deliver(&claims).await;
    let mut theirs = p.pool.begin().await.unwrap();
    sqlx::query("select 1 from accounts for update").execute(&mut *theirs).await.unwrap();
    let impatient = p.db.options().options([("lock_timeout", "10ms")]);
    let pool = PgPoolOptions::new().max_connections(2).connect_with(impatient).await.unwrap();
    let mut crew = Crew::new(bottle::worker::process::Engine { pool, ..p.engine() }, Wake::default());
    for times in 1..=45 {
        crew.engine.clock = bottle::clock::Clock::At(p.later(Duration::from_secs(5)).now);
        assert_eq!(crew.turn(Lane::Probing, tokio::time::Instant::now()).await.unwrap(), Turn::Worked);
        assert_eq!(crew.alarms_of_stuck().await, times / 20, "after {times} times");
    }
    assert_eq!(p.event_of(&claims).await.attempts, 0, "it is still not the event's fault");
    theirs.rollback().await.unwrap();
    crew.engine.clock = bottle::clock::Clock::At(p.later(Duration::from_secs(5)).now);
    crew.turn(Lane::Probing, tokio::time::Instant::now()).await.unwrap();
    assert_eq!(p.event_of(&claims).await.said(), "applied: plan set to pro, Pro allowance granted");
    p.check_invariants().await;
}

#[tokio::test]
async fn the_claim_reads_its_index_and_nothing_else_in_an_inbox_of_a_million() {
    let p = Pipeline::new().await;
    let began = Stopwatch::now();
    let mut conn = PgConnection::connect_with(&p.db.options()).await.unwrap();
    let fill = |n: i32| {
        sqlx::query(
            "insert into inbox_events (source, dedupe_key, type, digest, received_at, due_at, status)
             select 'kinde', 'event_' || n, 'customer.payment_succeeded', '', '2026-10-01',
                    timestamptz '2026-10-01' + n * interval '5 s',
                    case when n % 10 > 0 then 'applied' when n % 70 = 0 then 'parked' when n % 110 = 0 then 'failed'
                         else 'received' end
             from generate_series($1 * 250000 + 1, ($1 + 1) * 250000) n",
        )
        .bind(n)
        .execute(&p.pool)
    };
    tokio::try_join!(fill(0), fill(1), fill(2), fill(3)).unwrap();
    conn.execute("analyze inbox_events").await.unwrap();
    let source = include_str!("../../src/inbox/queue.rs");
    let claim = &source[source.find("with due as materialized").unwrap()..];
    let claim = &claim[..claim.find("\"#").unwrap()];
    conn.execute(AssertSqlSafe(format!("prepare claim (timestamptz, bigint, uuid, float8) as {claim}"))).await.unwrap();
    for mode in ["force_custom_plan", "force_generic_plan"] {
        for limit in [1, CLAIM_LIMIT] {
            conn.execute(AssertSqlSafe(format!("set plan_cache_mode = {mode}"))).await.unwrap();
            let explain = format!("explain execute claim ('2026-11-01', {limit}, gen_random_uuid(), 30)");
            let plan: Vec<String> = sqlx::query_scalar(AssertSqlSafe(explain)).fetch_all(&mut conn).await.unwrap();
            let plan = plan.join("\n");
            assert!(plan.contains("Index Scan using inbox_events_due"), "{mode}, limit {limit}:\n{plan}");
            for bad in ["Seq Scan", "Sort", "Hash"] {
                assert!(!plan.contains(bad), "{mode}, limit {limit}:\n{plan}");
            }
        }
    }
    let mut engine = p.engine();
    engine.clock = bottle::clock::Clock::At(moment("11-01 00:00:00"));
    let keys: BTreeSet<String> = engine.claim(CLAIM_LIMIT).await.unwrap().into_iter().map(|c| c.key.0).collect();
    let oldest: BTreeSet<String> = (1..=25).map(|n| format!("event_{}", n * 10)).collect();
    assert_eq!(keys, oldest);
    println!("a million rows, four plans and one claim took {:?}", began.elapsed());
}
