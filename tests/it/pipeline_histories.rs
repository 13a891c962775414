//! Histories as the provider writes them, through the real pipeline: in any order, copied, under false headers, cut short at
//! any checkpoint. What is stored in the end is what the independent fold says.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bottle::accounts;
use bottle::checkpoint::{Break, Step};
use bottle::domain::event::Source;
use bottle::domain::fact::{Dated, Fact, LiveAgreement};
use bottle::domain::ids::{AgreementId, CustomerId, EventId, EventKey};
use bottle::domain::instant::Instant;
use bottle::domain::plan::PlanKeys;
use bottle::providers::script::Truth;
use bottle::worker::process::{Charge, Engine};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::oracle::{OracleState, oracle};
use crate::support::cases;
use crate::support::claims::{customer_id, says};
use crate::support::histories::{meanings, moment, wire_history};
use crate::support::pipeline::{At, Pipeline};

#[derive(Debug, Clone)]
enum Happens {
    /// This event, or a copy of it, arrives; under the header of that one.
    Arrives {
        event: Index,
        header: Index,
    },
    /// A worker claims so many and runs them; with a stop it dies at that step.
    Works {
        claims: i64,
        stop: Option<Step>,
    },
    Passes {
        secs: u64,
    },
}

fn happens() -> impl Strategy<Value = Happens> {
    let steps =
        [Step::Claimed, Step::Resolved, Step::Held, Step::Locked, Step::HalfWay, Step::BeforeMark, Step::Marked, Step::Committed];
    prop_oneof![
        4 => (any::<Index>(), any::<Index>()).prop_map(|(event, header)| Happens::Arrives { event, header }),
        3 => (1..=25_i64, proptest::option::of(select(steps.to_vec()))).prop_map(|(claims, stop)| Happens::Works { claims, stop }),
        1 => (1..=40_u64).prop_map(|secs| Happens::Passes { secs }),
    ]
}

/// The history, the order in which its events arrive for the first time at the latest, and what happens before that.
fn course() -> impl Strategy<Value = (Vec<Value>, Vec<Happens>, bool)> {
    (wire_history(), vec(happens(), 0..=14), any::<bool>())
}

#[test]
fn any_history_is_stored_as_the_independent_fold_says() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut p = runtime.block_on(Pipeline::new());
    let started = moment("10-01 00:00:00");
    p.now = started;
    let case = AtomicU32::new(0);
    let p = std::cell::RefCell::new(p);
    let config = ProptestConfig { cases: cases(100), failure_persistence: None, ..ProptestConfig::default() };
    let result = TestRunner::new(config).run(&course(), |(history, course, early)| {
        let mut p = p.borrow_mut();
        runtime.block_on(one(&mut p, history, course, early, case.fetch_add(1, Ordering::SeqCst)))
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    runtime.block_on(p.borrow().check_invariants());
}

async fn one(p: &mut Pipeline, history: Vec<Value>, course: Vec<Happens>, early: bool, case: u32) -> Result<(), TestCaseError> {
    // One database for all: the ids of a case are its own, in the order that they had.
    let history: Vec<Value> = history.into_iter().map(|claims| of_case(claims, case)).collect();
    // Early: some of it is still to come, and waits until it happens. Late: all of it has happened.
    p.now = moment(if early { "10-21 09:59:55" } else { "12-31 23:00:00" });
    for happens in course {
        match happens {
            Happens::Arrives { event, header } if !history.is_empty() => {
                let header = event_id(header.get(&history));
                p.deliver_under(event.get(&history), header).await;
            }
            Happens::Arrives { .. } => {}
            Happens::Works { claims, stop } => {
                let engine = match stop {
                    Some(stop) => {
                        p.watched(Arc::new(At(move |step, _: &[&EventKey]| if step == stop { Err(Break::Stop) } else { Ok(()) })))
                    }
                    None => p.engine(),
                };
                work(&engine, claims).await;
            }
            Happens::Passes { secs } => {
                p.later(Duration::from_secs(secs));
            }
        }
    }
    for claims in &history {
        p.deliver(claims).await;
    }
    p.drain().await;
    // A year later all that was to come has come, and every lease has ended.
    p.now = Instant::parse("2027-10-01T00:00:00Z").unwrap();
    p.drain().await;
    let facts = meanings(&history);
    let mut want = oracle(&facts, &PlanKeys::default(), p.now);
    // Since when a payment is owed is for people: it is kept in microseconds.
    want.past_due_since = want.past_due_since.map(|at| Instant::from_nanos(at.nanos().div_euclid(1_000) * 1_000));
    prop_assert_eq!(stored(p, &history).await, (!history.is_empty()).then_some(want));
    Ok(())
}

async fn work(engine: &Engine, claims: i64) {
    let claimed = engine.claim(claims).await.unwrap();
    engine.process(claimed, Charge::Charged).await;
}

fn of_case(mut claims: Value, case: u32) -> Value {
    let tagged = |text: &Value, prefix: &str| json!(text.as_str().unwrap().replacen(prefix, &format!("{prefix}{case:08x}"), 1));
    claims["event_id"] = tagged(&claims["event_id"], "event_");
    let data = &mut claims["data"];
    data["user_id"] = tagged(&data["user_id"], "kp_");
    for customer in ["/customer_id", "/customer/id"] {
        if let Some(id) = data.pointer_mut(customer) {
            *id = tagged(id, "customer_");
        }
    }
    claims
}

fn event_id(claims: &Value) -> &str {
    claims["event_id"].as_str().unwrap()
}

/// What is stored of the person of this history, read now.
async fn stored(p: &Pipeline, history: &[Value]) -> Option<OracleState> {
    let user = history.first()?["data"]["user_id"].as_str()?.strip_prefix("kp_")?;
    let id = p.account_id(user).await?;
    let mut conn = p.pool.acquire().await.unwrap();
    let standing = accounts::standing_of(&mut conn, id).await.unwrap().unwrap().at(p.now);
    let periods: Vec<String> =
        sqlx::query_scalar("select period from ledger where account_id = $1 and entry_key = 'pro:' || $1 || ':' || period")
            .bind(id.0)
            .fetch_all(&p.pool)
            .await
            .unwrap();
    Some(OracleState {
        plan: standing.plan,
        plan_changed_at: standing.plan_changed,
        past_due_since: standing.past_due_since.map(Instant::from_datetime),
        pro_periods: periods.iter().map(|period| period.parse().unwrap()).collect(),
    })
}

// ---- with the provider's own answers ---------------------------------------------------------------------------------

fn live(user: &str, agreements: &[(&str, &str)]) -> Truth {
    let live = agreements
        .iter()
        .map(|(agreement, plan)| LiveAgreement {
            agreement: AgreementId((*agreement).into()),
            plan_key: format!("customer_{plan}_plan"),
        })
        .collect();
    Truth::Live(HashMap::from([(CustomerId(customer_id(user)), live)]))
}

/// The facts of a history with the answers its events were given, folded by the other fold.
fn with_answers(p: &Pipeline, told: &[Value], answers: &[(&str, &[(&str, &str)])]) -> OracleState {
    let mut facts = meanings(told);
    for ((at, live), n) in answers.iter().zip(1..) {
        let Truth::Live(live) = self::live("ada", live) else { unreachable!() };
        let key = EventKey(event_id(&told[usize::try_from(n).unwrap() - 1]).to_owned());
        let live = live.into_values().next().unwrap();
        facts.push(Dated { at: moment(at), source: Source::Kinde, event: EventId(n), key, fact: Fact::Snapshot { live } });
    }
    oracle(&facts, &PlanKeys::default(), p.now)
}

#[tokio::test]
async fn an_upgrade_and_a_cancellation_that_the_provider_confirms() {
    let mut p = Pipeline::new().await;
    let up = says("ada", "up", "10-21 10:00:00 created new pro");
    let end = says("ada", "end", "10-25 10:00:00 cancelled new");
    p.provider_says(live("ada", &[("new", "pro")]));
    assert_eq!(p.at("10-21 10:00:05").run(&up).await.said(), "applied: plan set to pro, Pro allowance granted");
    p.provider_says(live("ada", &[]));
    assert_eq!(p.at("10-25 10:00:05").run(&end).await.said(), "applied: plan set to free");
    let answers: [(&str, &[(&str, &str)]); 2] = [("10-21 10:00:05", &[("new", "pro")]), ("10-25 10:00:05", &[])];
    let told = [up, end];
    assert_eq!(stored(&p, &told).await.unwrap(), with_answers(&p, &told, &answers));
    p.check_invariants().await;
}

#[tokio::test]
async fn an_answer_changes_the_plan_and_grants_nothing() {
    // The cancellation of the old agreement is heard; the new one's events are not, but the provider lists it.
    let mut p = Pipeline::new().await;
    p.provider_says(live("ada", &[("new", "pro")]));
    let row = p.at("10-21 10:00:05").run(&says("ada", "old", "10-21 10:00:00 cancelled old")).await;
    assert_eq!(row.said(), "applied: plan set to pro");
    assert_eq!(p.account("ada").await, "pro since 10-21 10:00:05; free:2026-10 +10");
    p.check_invariants().await;
}

#[tokio::test]
async fn a_provider_that_is_away_is_waited_for_uncharged() {
    let mut p = Pipeline::new().await;
    p.provider_says(Truth::Away);
    let up = says("ada", "up", "10-21 10:00:00 created new pro");
    p.deliver(&up).await;
    for _ in 0..50 {
        p.drain().await;
        let row = p.event_of(&up).await;
        assert_eq!((row.status.as_str(), row.attempts, row.claims), ("received", 0, 0));
        p.later(Duration::from_secs(5));
    }
    p.provider_says(live("ada", &[("new", "pro")]));
    p.drain().await;
    assert_eq!(p.event_of(&up).await.said(), "applied: plan set to pro, Pro allowance granted");
    p.check_invariants().await;
}

#[tokio::test]
async fn a_provider_that_lags_is_asked_again_for_ten_minutes() {
    let asked_again =
        "parked: the provider's own answer does not agree yet (it does not list plan key customer_pro_plan as live); asked again";
    for catches_up in [true, false] {
        let mut p = Pipeline::new().await;
        p.provider_says(live("ada", &[("old", "starter")]));
        let up = says("ada", "up", "10-21 12:00:00 created new pro");
        p.deliver(&up).await;
        for n in 0..40 {
            if catches_up && n == 20 {
                p.provider_says(live("ada", &[("new", "pro")]));
                break;
            }
            p.drain().await;
            let row = p.event_of(&up).await;
            assert_eq!((row.said().as_str(), row.attempts, row.claims), (asked_again, 0, 0), "after {} s", n * 15);
            assert_eq!(row.due.unwrap(), p.now.plus(Duration::from_secs(15)).datetime());
            p.check_invariants().await;
            p.later(Duration::from_secs(15));
        }
        p.drain().await;
        let flagged = "; the provider's own answer still differs: it does not list plan key customer_pro_plan as live";
        let flagged = if catches_up { "" } else { flagged };
        assert_eq!(p.event_of(&up).await.said(), format!("applied: plan set to pro, Pro allowance granted{flagged}"));
        let snapshots: i64 = p.value("select count(*) from facts where kind = 'snapshot'").await;
        assert_eq!(snapshots, i64::from(catches_up), "after ten minutes the event's own facts rule");
        p.check_invariants().await;
    }
}

#[tokio::test]
async fn a_replay_that_waits_for_the_provider_is_still_the_one_that_was_asked_for() {
    let mut p = Pipeline::new().await;
    let up = says("ada", "up", "10-21 12:00:00 created new pro");
    p.run(&up).await;
    p.provider_says(live("ada", &[]));
    p.replay(&up).await;
    p.later(Duration::from_secs(15)).drain().await;
    assert_eq!(p.event_of(&up).await.status, "parked");
    p.provider_says(live("ada", &[("new", "pro")]));
    p.later(Duration::from_secs(15)).drain().await;
    assert_eq!(p.runs(&up).await.last().unwrap().2.as_deref(), Some("a test"));
    p.check_invariants().await;
}
