//! Replays of everything that matches a filter: asked for once, carried out a few at a time, whatever dies meanwhile.

use std::time::Instant;

use bottle::clock::Clock;
use bottle::replay::bulk_steps::{self, IN_FLIGHT, Stepped, Taken};
use bottle::replayer::{self, Replayer};
use bottle::wake::Wake;
use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use crate::support::app::{Event, Setup, eventually};
use crate::support::load::Ground;
use crate::support::ops::{Ops, PATIENCE, listed, number};
use crate::support::tokens::TENANT;

const AT_ONCE: usize = IN_FLIGHT.unsigned_abs() as usize;

fn replayer(ops: &Ops) -> Replayer {
    Replayer { pool: ops.app.pool.clone(), wake: Wake::default(), clock: Clock::Database }
}

/// What is in the queue gets its verdict, as a worker would write it.
async fn verdicts(ops: &Ops) {
    ops.sql("update inbox_events set status = 'applied', reason = 'plan is already pro', processed_at = now() where status = 'received'").await;
}

/// Steps until it is over.
async fn to_its_end(ops: &Ops, replayer: &Replayer, taken: Taken) {
    for _ in 0..1_000 {
        if replayer.step(taken).await.unwrap() == Stepped::Over {
            return;
        }
        verdicts(ops).await;
    }
    panic!("it never ends");
}

/// The events that were replayed, with how often.
async fn replayed(ops: &Ops) -> Vec<(i64, i64)> {
    let sql = "select event_id, count(*) from replays where bulk_replay_id is not null group by 1 order by 1";
    sqlx::query_as(sql).fetch_all(&ops.app.pool).await.unwrap()
}

fn once(ids: &[i64]) -> Vec<(i64, i64)> {
    ids.iter().map(|id| (*id, 1)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_that_matches_runs_again_once_and_the_page_says_what_came_of_it() {
    let ops = Ops::with(Setup { worker: true, ..Setup::default() }).await;
    let ids = ops.dead(40).await;
    let form = ops.bulk_form("?status=dead&kind=customer.*").await;
    assert!(form.page.contains("40 events match.") && form.page.contains("customer.plan_changed"), "{}", form.page);
    let id = number(&ops.ask(&form, "1000", " Replay ").await);
    let waiting = ops.page(&format!("/ops/replays/{id}")).await;
    assert!(waiting.contains("A worker takes it up within seconds.") && waiting.contains("Call it off"), "{waiting}");

    let stop = CancellationToken::new();
    let running = tokio::spawn(replayer::run(Replayer { wake: ops.app.state.wake.clone(), ..replayer(&ops) }, stop.clone()));
    let begun = Instant::now();
    while ops.count("select count(*) from bulk_replays where status = 'done'").await == 0 {
        assert!(begun.elapsed() < PATIENCE, "{}", ops.page(&format!("/ops/replays/{id}")).await);
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    stop.cancel();
    running.await.unwrap();
    assert_eq!(replayed(&ops).await, once(&ids));
    let page = ops.page(&format!("/ops/replays/{id}")).await;
    assert!(page.contains("Everything that matched was looked at; 40 were replayed."), "{page}");
    assert!(page.contains("plan set to pro, Pro allowance granted") && page.contains("<td class=\"num\">40</td>"), "{page}");
    assert!(!page.contains("Call it off"));
    assert_eq!(ops.count("select count(*) from ledger where reason = 'pro'").await, 40);
    let by: String = sqlx::query_scalar("select distinct requested_by from event_runs").fetch_one(&ops.app.pool).await.unwrap();
    assert_eq!(by, "kp_olive@example.com (kp_olive)");
    let event = ops.page(&format!("/ops/events/{}", ids[0])).await;
    assert!(event.contains(&format!("asked for a replay, with bulk replay {id}.")), "{event}");
}

#[tokio::test]
async fn without_a_state_only_what_is_unfinished_is_meant() {
    let ops = Ops::new().await;
    let dead = ops.dead(3).await;
    ops.app.fill_log(&ops.olive, "done", 5).await;
    ops.sql(&format!("update inbox_events set status = 'parked', due_at = 'infinity' where id = {}", dead[0])).await;
    let form = ops.bulk_form("").await;
    assert!(
        form.page.contains("3 events match.") && form.page.contains("what is applied or ignored is left alone"),
        "{}",
        form.page
    );
    ops.ask(&form, "10", "replay").await;
    let replayer = replayer(&ops);
    let taken = replayer.take().await.unwrap().unwrap();
    to_its_end(&ops, &replayer, taken).await;
    assert_eq!(replayed(&ops).await, once(&dead));
}

#[tokio::test]
async fn it_needs_its_word_and_a_limit() {
    let ops = Ops::new().await;
    ops.dead(2).await;
    let form = ops.bulk_form("?status=dead").await;
    for (cap, confirm, says) in [
        ("5", "", "Type the word replay"),
        ("5", "yes", "Type the word replay"),
        ("0", "replay", "Say how many at most"),
        ("100001", "replay", "Say how many at most"),
        ("-1", "replay", "Say how many at most"),
        ("many", "replay", "Say how many at most"),
    ] {
        let back = ops.ask(&form, cap, confirm).await;
        assert_eq!(back.status, 422, "{cap} {confirm}");
        assert!(back.text.contains(says) && back.text.contains(&form.key), "{cap} {confirm}: {}", back.text);
    }
    // A filter half of which cannot be read would mean more than was asked for.
    let half =
        ops.post("/ops/replays?status=deadly", &[("key", &form.key), ("up_to", "9"), ("cap", "5"), ("confirm", "replay")]).await;
    assert_eq!(half.status, 422, "{}", half.text);
    assert_eq!(ops.count("select (select count(*) from bulk_replays) + (select count(*) from operator_actions)").await, 0);
    assert!(ops.page("/ops/replay?status=parked").await.contains("Nothing matches, so there is nothing to replay."));
}

#[tokio::test]
async fn a_form_that_is_sent_twice_asks_once() {
    let ops = Ops::new().await;
    ops.dead(2).await;
    let form = ops.bulk_form("?status=dead").await;
    let all = join_all((0..6).map(|_| ops.ask(&form, "5", "replay"))).await;
    let mut numbers: Vec<i64> = all.iter().map(number).collect();
    numbers.dedup();
    assert_eq!(numbers.len(), 1);
    assert_eq!(all.iter().filter(|answer| answer.leads_to().contains("said=asked")).count(), 1);
    assert_eq!(ops.count("select count(*) from bulk_replays").await, 1);
    assert_eq!(ops.count("select count(*) from operator_actions where action = 'bulk_replay'").await, 1);
}

#[tokio::test]
async fn what_arrives_after_the_page_was_made_is_not_meant() {
    let ops = Ops::new().await;
    let meant = ops.dead(3).await;
    let form = ops.bulk_form("?status=dead").await;
    ops.dead_under("later", 3).await;
    ops.ask(&form, "100", "replay").await;
    let replayer = replayer(&ops);
    let taken = replayer.take().await.unwrap().unwrap();
    to_its_end(&ops, &replayer, taken).await;
    assert_eq!(replayed(&ops).await, once(&meant));
    assert_eq!(listed(&ops.page("/ops/events?status=dead").await).len(), 3);
}

#[tokio::test]
async fn no_more_than_the_limit_are_replayed_and_the_oldest_first() {
    let ops = Ops::new().await;
    let ids = ops.dead(30).await;
    let id = ops.asked("?status=dead", "13").await;
    let replayer = replayer(&ops);
    let taken = replayer.take().await.unwrap().unwrap();
    to_its_end(&ops, &replayer, taken).await;
    assert_eq!(replayed(&ops).await, once(&ids[..13]));
    let page = ops.page(&format!("/ops/replays/{id}")).await;
    assert!(page.contains("13 were replayed, which is the limit it was given."), "{page}");
    let refused = sqlx::query("update bulk_replays set requeued = cap + 1").execute(&ops.app.pool).await;
    assert!(refused.is_err(), "the database itself holds the limit");
}

#[tokio::test]
async fn a_step_that_is_not_committed_has_not_happened_and_another_process_goes_on() {
    let ops = Ops::new().await;
    let ids = ops.dead(50).await;
    ops.asked("?status=dead", "1000").await;
    let first = replayer(&ops);
    let taken = first.take().await.unwrap().unwrap();
    for _ in 0..3 {
        assert_eq!(first.step(taken).await.unwrap(), Stepped::On(AT_ONCE));
        verdicts(&ops).await;
    }
    // It dies inside the fourth.
    let mut tx = ops.app.pool.begin().await.unwrap();
    assert_eq!(bulk_steps::step(&mut tx, taken, time::OffsetDateTime::now_utc()).await.unwrap(), Stepped::On(AT_ONCE));
    drop(tx);
    let second = replayer(&ops);
    eventually("the step is rolled back", async || ops.count("select count(*) from replays").await == 3 * i64::from(IN_FLIGHT))
        .await;
    assert_eq!(second.take().await.unwrap(), None, "its lease still runs");
    ops.sql("update bulk_replays set leased_until = now() - interval '1 s'").await;
    let again = second.take().await.unwrap().unwrap();
    // It was not dead after all.
    assert_eq!(first.step(taken).await.unwrap(), Stepped::Lost);
    to_its_end(&ops, &second, again).await;
    assert_eq!(replayed(&ops).await, once(&ids), "each once");
    assert_eq!(ops.count("select sum(events)::bigint from bulk_replay_results").await, 50);
    assert_eq!(first.take().await.unwrap(), None);
}

#[tokio::test]
async fn called_off_it_puts_nothing_more_back() {
    let ops = Ops::new().await;
    ops.dead(50).await;
    let id = ops.asked("?status=dead", "1000").await;
    let replayer = replayer(&ops);
    let taken = replayer.take().await.unwrap().unwrap();
    replayer.step(taken).await.unwrap();
    let done = ops.post(&format!("/ops/replays/{id}/cancel"), &[]).await;
    assert!(done.leads_to().contains("said=cancelled"));
    assert!(
        ops.page(&format!("/ops/replays/{id}"))
            .await
            .contains(&format!("{AT_ONCE} of {AT_ONCE} still have to come to their verdict."))
    );
    for _ in 0..3 {
        assert_eq!(replayer.step(taken).await.unwrap(), Stepped::Waits);
    }
    verdicts(&ops).await;
    assert_eq!(replayer.step(taken).await.unwrap(), Stepped::Over);
    assert_eq!(replayed(&ops).await.len(), AT_ONCE);
    let page = ops.page(&format!("/ops/replays/{id}")).await;
    assert!(page.contains(&format!("It was called off after {AT_ONCE}.")), "{page}");
    let again = ops.post(&format!("/ops/replays/{id}/cancel"), &[]).await;
    assert!(again.leads_to().contains("said=over"));
    assert_eq!(ops.count("select count(*) from operator_actions where action = 'cancel'").await, 1);
    // One that nobody has taken up yet is over at once.
    let id = ops.asked("?status=dead", "1000").await;
    ops.post(&format!("/ops/replays/{id}/cancel"), &[]).await;
    assert_eq!(replayer.take().await.unwrap(), None);
}

#[tokio::test]
async fn few_of_them_are_in_the_queue_at_once_however_slow_the_worker() {
    // T49: what arrives meanwhile waits for those few, and not for all there are to replay.
    let ops = Ops::new().await;
    ops.dead(200).await;
    ops.asked("?status=dead", "1000").await;
    let replayer = replayer(&ops);
    let taken = replayer.take().await.unwrap().unwrap();
    let in_the_queue = "select count(*) from inbox_events where status = 'received' and replayed_by is not null";
    for _ in 0..50 {
        replayer.step(taken).await.unwrap();
        assert_eq!(ops.count(in_the_queue).await, i64::from(IN_FLIGHT), "a worker that does nothing is given nothing more");
    }
    for _ in 0..20 {
        // It gets through with two of them.
        ops.sql("update inbox_events set status = 'applied' where id in (select id from inbox_events where status = 'received' limit 2)").await;
        replayer.step(taken).await.unwrap();
        assert!(ops.count(in_the_queue).await <= i64::from(IN_FLIGHT));
    }
    assert_eq!(ops.count("select count(*) from inbox_events where replayed_by is not null and status = 'applied'").await, 40);
}

#[tokio::test]
async fn one_at_a_time_is_carried_out() {
    let ops = Ops::new().await;
    ops.dead(10).await;
    let first = ops.asked("?status=dead", "1000").await;
    let second = ops.asked("?status=dead", "1000").await;
    let (a, b) = (replayer(&ops), replayer(&ops));
    let taken = a.take().await.unwrap().unwrap();
    assert_eq!((taken.id, b.take().await.unwrap()), (first, None));
    to_its_end(&ops, &a, taken).await;
    assert_eq!(b.take().await.unwrap().unwrap().id, second);
}

#[tokio::test]
async fn what_is_on_its_way_already_is_passed_over() {
    let ops = Ops::new().await;
    let ids = ops.dead(5).await;
    let form = ops.bulk_form("?kind=customer.*&status=dead&status=received").await;
    ops.sql(&format!("update inbox_events set status = 'received', replayed_by = 'somebody' where id = {}", ids[2])).await;
    let id = number(&ops.ask(&form, "100", "replay").await);
    let replayer = replayer(&ops);
    let taken = replayer.take().await.unwrap().unwrap();
    to_its_end(&ops, &replayer, taken).await;
    assert_eq!(replayed(&ops).await, once(&[ids[0], ids[1], ids[3], ids[4]]));
    let page = ops.page(&format!("/ops/replays/{id}")).await;
    assert!(page.contains("1, which were on their way already"), "{page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_killed_half_way_loses_none_and_repeats_none() {
    let ground = Ground::new().await;
    let (mut keys, mut bodies) = (Vec::new(), Vec::new());
    for n in 0..150 {
        let event = Event::upgrade(&format!("kp_{n}"), "2026-10-21T10:00:00Z");
        keys.push(event.id);
        bodies.push(TENANT.sign_event(event.claims.to_string()).into_bytes());
    }
    let sql = "insert into inbox_events (source, dedupe_key, type, digest, occurred_at, occurred_ns, received_at, due_at, status, reason, body)
               select 'kinde', k, 'customer.plan_changed', '\\x00', now(), 1792576800000000000, now(), now(), 'dead', 'dead', b
               from unnest($1::text[], $2::bytea[]) g (k, b)";
    sqlx::query(sql).bind(keys).bind(bodies).execute(&ground.pool).await.unwrap();
    sqlx::query(
        "insert into bulk_replays (form_key, asked_by, asked_at, filter, address, up_to, cap, counted, counted_all)
         values (gen_random_uuid(), 'olive', now(), '{\"statuses\": [\"dead\"]}', '?status=dead', 1000000, 1000, 150, true)",
    )
    .execute(&ground.pool)
    .await
    .unwrap();
    let count = async |sql: &'static str| sqlx::query_scalar::<_, i64>(sql).fetch_one(&ground.pool).await.unwrap();
    for until in [20, 80] {
        let mut worker = ground.start("worker", &[]).await;
        let begun = Instant::now();
        while count("select requeued::bigint from bulk_replays").await < until {
            assert!(begun.elapsed() < PATIENCE, "{}", worker.log());
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        worker.killed().await;
        sqlx::query("update bulk_replays set leased_until = now() - interval '1 s'").execute(&ground.pool).await.unwrap();
        sqlx::query("update inbox_events set due_at = now() where status = 'processing'").execute(&ground.pool).await.unwrap();
    }
    assert!(count("select requeued::bigint from bulk_replays").await < 150, "it was killed half-way");
    let worker = ground.start("worker", &[]).await;
    let begun = Instant::now();
    while count("select count(*) from bulk_replays where status = 'done'").await == 0 {
        assert!(begun.elapsed() < PATIENCE, "{}", worker.log());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(count("select count(*) from inbox_events where status = 'applied'").await, 150);
    assert_eq!(count("select count(*) from replays").await, 150);
    assert_eq!(count("select count(distinct event_id) from replays").await, 150);
    assert_eq!(count("select sum(events)::bigint from bulk_replay_results").await, 150);
    assert_eq!(count("select count(*) from ledger where reason = 'pro'").await, 150);
}
