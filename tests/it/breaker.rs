//! A bad release kills no event, and bad events stop no worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bottle::checkpoint::{Break, Step};
use bottle::clock::Clock;
use bottle::domain::ids::EventKey;
use bottle::wake::Wake;
use bottle::worker::{Crew, Lane, Turn};
use serde_json::Value;
use tokio::time::Instant;

use crate::support::claims::says;
use crate::support::pipeline::{At, Pipeline, fault, panic};

/// A crew whose handler is at fault while `bad` is set, on a clock that a test moves.
struct Drill {
    p: Pipeline,
    crew: Crew,
    bad: Arc<AtomicBool>,
    breaker_now: Instant,
    paused: usize,
}

impl Drill {
    /// `known_good` events were applied by the release before. `breaks` names the keys that fail while the release is bad.
    async fn new(known_good: usize, breaks: fn(&EventKey) -> bool, how: fn() -> Break) -> Self {
        let p = Pipeline::new().await;
        p.deliver_unsigned(&payments("before", known_good)).await;
        p.drain().await;
        let bad = Arc::new(AtomicBool::new(true));
        let watch = {
            let bad = Arc::clone(&bad);
            Arc::new(At(move |step, events: &[&EventKey]| {
                let fails = step == Step::Locked && bad.load(Ordering::SeqCst) && events.iter().any(|key| breaks(key));
                if fails { Err(how()) } else { Ok(()) }
            }))
        };
        let crew = Crew::new(p.watched(watch), Wake::default());
        Self { p, crew, bad, breaker_now: Instant::now(), paused: 0 }
    }

    /// Both lanes take turns until nothing is due or the crew pauses; then the clocks move on by `step`.
    async fn pass(&mut self, span: Duration, step: Duration) {
        let mut passed = Duration::ZERO;
        while passed < span {
            self.crew.engine.clock = Clock::At(self.p.now);
            'lanes: for lane in [Lane::Probing, Lane::Other] {
                for _ in 0..200 {
                    match self.crew.turn(lane, self.breaker_now).await.unwrap() {
                        Turn::Worked => {}
                        Turn::NothingDue => continue 'lanes,
                        Turn::Paused(_) => {
                            self.paused += 1;
                            continue 'lanes;
                        }
                    }
                }
                panic!("a lane never comes to rest");
            }
            self.p.later(step);
            self.breaker_now += step;
            passed += step;
        }
        self.p.check_invariants().await;
    }

    async fn count(&self, status: &str) -> i64 {
        self.p.value(&format!("select count(*) from inbox_events where status = '{status}'")).await
    }

    async fn most_attempts(&self) -> i32 {
        self.p.value("select max(attempts) from inbox_events").await
    }
}

fn payments(users: &str, count: usize) -> Vec<Value> {
    (0..count).map(|n| says(&format!("{users}{n}"), &format!("{users}{n:03}"), "10-21 10:00:00 paid -")).collect()
}

const SECONDS: fn(u64) -> Duration = Duration::from_secs;

#[tokio::test]
async fn two_hours_of_a_bad_release_kill_no_event() {
    for how in [fault as fn() -> Break, panic] {
        let mut drill = Drill::new(1, |_| true, how).await;
        drill.p.deliver_unsigned(&payments("new", 60)).await;
        drill.pass(SECONDS(2 * 3_600), SECONDS(60)).await;
        assert_eq!((drill.count("dead").await, drill.count("applied").await), (0, 1));
        assert!(drill.paused > 0, "the worker pauses");
        assert_eq!(drill.crew.alarms().await, 1, "one person is told, once");
        assert!(drill.most_attempts().await <= 2, "while it is open nobody is charged");

        drill.bad.store(false, Ordering::SeqCst);
        drill.pass(SECONDS(120), SECONDS(20)).await;
        assert_eq!(drill.count("applied").await, 61, "two minutes after the fix all is well");
    }
}

#[tokio::test]
async fn what_keeps_coming_during_a_bad_release_is_not_charged_either() {
    let mut drill = Drill::new(1, |_| true, fault).await;
    for n in 0..60 {
        drill.p.deliver_unsigned(&payments(&format!("n{n}x"), 1)).await;
        drill.pass(SECONDS(120), SECONDS(60)).await;
    }
    assert_eq!((drill.count("dead").await, drill.crew.alarms().await), (0, 1));
    assert!(drill.most_attempts().await < 6);
    drill.bad.store(false, Ordering::SeqCst);
    drill.pass(SECONDS(120), SECONDS(20)).await;
    assert_eq!(drill.count("applied").await, 61);
}

#[tokio::test]
async fn a_few_events_that_all_fail_twice_say_enough() {
    let mut drill = Drill::new(1, |_| true, fault).await;
    drill.p.deliver_unsigned(&payments("new", 3)).await;
    drill.pass(SECONDS(60), SECONDS(5)).await;
    drill.pass(SECONDS(2 * 3_600), SECONDS(60)).await;
    assert_eq!((drill.count("dead").await, drill.most_attempts().await, drill.crew.alarms().await), (0, 2, 1));
    drill.bad.store(false, Ordering::SeqCst);
    drill.pass(SECONDS(120), SECONDS(5)).await;
    assert_eq!(drill.count("applied").await, 4);
}

#[tokio::test]
async fn a_release_that_never_applied_an_event_of_this_type_is_not_trusted() {
    let mut drill = Drill::new(0, |_| true, fault).await;
    drill.p.deliver_unsigned(&payments("new", 3)).await;
    drill.pass(SECONDS(2 * 3_600), SECONDS(60)).await;
    assert_eq!((drill.count("dead").await, drill.crew.alarms().await), (0, 1));
}

#[tokio::test]
async fn events_that_need_no_handler_do_not_hide_a_bad_release() {
    let mut drill = Drill::new(1, |key| !key.0.contains("idle"), fault).await;
    drill.p.deliver_unsigned(&payments("new", 12)).await;
    // Something that is ignored settles in every claim, for longer than six attempts last.
    for n in 0..90 {
        let idle = (0..3).map(|m| says("idle", &format!("idle{n:03}{m}"), "10-21 10:00:00 registered"));
        drill.p.deliver_unsigned(&idle.collect::<Vec<_>>()).await;
        drill.pass(SECONDS(60), SECONDS(60)).await;
    }
    assert_eq!((drill.count("dead").await, drill.crew.alarms().await), (0, 1));
    assert!(drill.count("ignored").await > 200, "they settle between the probes, in their turn");
}

#[tokio::test]
async fn one_bad_event_alone_dies_at_its_sixth_failure() {
    let mut drill = Drill::new(1, |key| key.0.starts_with("event_poison"), fault).await;
    drill.p.deliver_unsigned(&payments("poison", 1)).await;
    drill.pass(SECONDS(2 * 3_600), SECONDS(60)).await;
    assert_eq!((drill.count("dead").await, drill.most_attempts().await, drill.paused), (1, 6, 0));
}

#[tokio::test]
async fn bad_events_among_good_ones_die_and_stop_nobody() {
    let mut drill = Drill::new(1, |key| key.0.starts_with("event_poison"), fault).await;
    drill.p.deliver_unsigned(&payments("poison", 30)).await;
    for n in 0..6 {
        drill.p.deliver_unsigned(&payments(&format!("good{n}x"), 10)).await;
        drill.pass(SECONDS(1_200), SECONDS(30)).await;
    }
    assert_eq!((drill.count("dead").await, drill.count("applied").await), (30, 61));
    assert_eq!((drill.paused, drill.crew.alarms().await), (0, 0), "an event applied before can still be applied");
}

#[tokio::test]
async fn trouble_in_the_database_opens_nothing() {
    // Three events fail twice, so the release is doubted; the event that could clear it waits for a locked account.
    let mut drill = Drill::new(1, |key| key.0.starts_with("event_poison"), fault).await;
    drill.p.deliver_unsigned(&payments("poison", 3)).await;
    let options = drill.p.db.options().options([("lock_timeout", "50ms")]);
    drill.crew.engine.pool = sqlx::postgres::PgPoolOptions::new().max_connections(2).connect_with(options).await.unwrap();
    let mut theirs = drill.p.pool.begin().await.unwrap();
    sqlx::query("select 1 from accounts where kinde_user_id = 'kp_before0' for update").execute(&mut *theirs).await.unwrap();
    drill.pass(SECONDS(10), SECONDS(5)).await;
    assert_eq!((drill.most_attempts().await, drill.paused, drill.crew.alarms().await), (2, 0, 0));
}
