//! Events confirmed by Kinde's Management API: the token, the pace, and which answers are believed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bottle::checkpoint::{Observer, Pause, Step};
use bottle::domain::fact::LiveAgreement;
use bottle::domain::ids::{AgreementId, CustomerId, EventKey, KindeUserId};
use bottle::inbox::queue::CLAIM_LIMIT;
use bottle::providers::AskError;
use bottle::providers::script::Truth;
use bottle::worker::process::Engine;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::claims::{customer_id, customer_only, event_key, says, user_id};
use crate::support::kinde_api::{Agreement, KindeApi, Mood};
use crate::support::pipeline::{Pipeline, Row};

const PRO: &[Agreement] = &[("new", "pro", None)];
const STARTER: &[Agreement] = &[("old", "starter", None)];
const GRANTED: &str = "applied: plan set to pro, Pro allowance granted";
const NOT_LISTED: &str =
    "parked: the provider's own answer does not agree yet (it does not list plan key customer_pro_plan as live); asked again";

async fn asking() -> (Pipeline, KindeApi) {
    let api = KindeApi::start().await;
    let mut p = Pipeline::new().await;
    p.providers = api.providers();
    (p, api)
}

/// Pro from noon, the time at which a pipeline begins.
fn up(user: &str) -> Value {
    says(user, &format!("{user}up"), "10-21 12:00:00 created new pro")
}

fn uncharged(row: &Row) -> (&str, i32, i32) {
    (row.status.as_str(), row.attempts, row.claims)
}

// ---- the token -------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn one_token_serves_every_customer_and_every_claim() {
    let (p, api) = asking().await;
    let users: Vec<String> = (0..40).map(|n| format!("u{n:02}")).collect();
    for user in &users {
        api.lists(user, PRO);
        p.deliver(&up(user)).await;
    }
    p.drain().await;
    for user in &users {
        assert_eq!(p.event_of(&up(user)).await.said(), GRANTED);
    }
    let truth = api.truth();
    assert_eq!((truth.token_forms.len(), truth.asked.len()), (1, 40));
    assert!((2..=8).contains(&truth.asked_at_once_max), "{} calls at once", truth.asked_at_once_max);
    let want = [
        ("audience", format!("{}/api", api.url)),
        ("client_id", "m2m".to_owned()),
        ("client_secret", "hush".to_owned()),
        ("grant_type", "client_credentials".to_owned()),
    ];
    assert!(truth.token_forms[0].iter().map(|(k, v)| (k.as_str(), v.clone())).eq(want));
}

#[tokio::test]
async fn a_token_that_was_revoked_is_replaced_and_the_question_asked_again() {
    let (p, api) = asking().await;
    api.lists("ada", PRO);
    p.run(&says("ada", "first", "10-21 11:00:00 created new pro")).await;
    api.truth().good_token = "another".to_owned();
    assert_eq!(p.run(&says("ada", "paid", "10-21 12:00:00 paid new")).await.status, "applied");
    assert_eq!((api.tokens(), api.asked()), (2, 3));
    assert_eq!(p.value::<i64>("select count(*) from facts where kind = 'snapshot'").await, 2, "both got their answer");
}

#[tokio::test]
async fn a_token_is_not_used_until_its_very_end() {
    let (p, api) = asking().await;
    api.lists("ada", PRO);
    api.truth().token_life = json!("1");
    p.run(&up("ada")).await;
    tokio::time::sleep(Duration::from_millis(950)).await;
    p.run(&says("ada", "paid", "10-21 12:00:00 paid new")).await;
    assert_eq!((api.tokens(), api.asked()), (2, 2));
}

#[tokio::test]
async fn credentials_that_are_refused_keep_nobody_waiting() {
    // Neither the token (401, 400) nor, with a token, the question (403).
    for (refuses, mood, tokens) in [(Some(401), Mood::Answers, 2), (Some(400), Mood::Answers, 2), (None, Mood::Status(403), 1)] {
        let (p, api) = asking().await;
        api.lists("ada", PRO);
        api.truth().refuses = refuses;
        api.truth().mood = mood;
        let said = p.run(&up("ada")).await.said();
        assert_eq!(said, format!("{GRANTED}; the provider could not be asked to confirm it"));
        assert_eq!(p.runs(&up("ada")).await[0].0, said.trim_start_matches("applied: "), "its run says so too");
        api.truth().refuses = None;
        api.truth().mood = Mood::Answers;
        // A failed fetch is shared for a moment, lest a burst hammers Kinde with wrong credentials.
        tokio::time::sleep(Duration::from_millis(1_050)).await;
        let paid = p.run(&says("ada", "paid", "10-21 12:00:00 paid new")).await;
        assert_eq!(paid.said(), "applied: payment recorded, Pro allowance already granted");
        assert_eq!(api.tokens(), tokens);
        p.check_invariants().await;
    }
}

#[tokio::test]
async fn a_token_refused_at_once_again_is_about_us() {
    let (p, api) = asking().await;
    api.lists("ada", PRO);
    api.truth().refuses_tokens = true;
    assert_eq!(p.run(&up("ada")).await.said(), format!("{GRANTED}; the provider could not be asked to confirm it"));
    assert_eq!((api.tokens(), api.asked()), (2, 2), "once more, and not for ever");
}

// ---- the pace --------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_rate_limit_is_respected_and_charges_nobody() {
    let (mut p, api) = asking().await;
    for user in ["ada", "ben"] {
        api.lists(user, PRO);
    }
    api.truth().mood = Mood::Limited { reset: "30" };
    p.deliver(&up("ada")).await;
    p.drain().await;
    let row = p.event_of(&up("ada")).await;
    assert_eq!(uncharged(&row), ("received", 0, 0));
    let wait = row.due.unwrap() - p.now.datetime();
    assert!(wait > time::Duration::seconds(29) && wait <= time::Duration::seconds(30), "until the limit ends: {wait}");

    // Others that need no answer go on; those that do are not asked about meanwhile.
    let registered = p.run(&says("cy", "registered", "10-21 11:00:00 registered")).await;
    assert_eq!(registered.status, "ignored");
    p.deliver(&up("ben")).await;
    p.drain().await;
    assert_eq!((uncharged(&p.event_of(&up("ben")).await), api.asked()), (("received", 0, 0), 1));

    // Were it to last, the events' own word counts after ten minutes.
    p.later(Duration::from_secs(600)).drain().await;
    assert_eq!(api.asked(), 1);
    assert_eq!(p.event_of(&up("ben")).await.said(), format!("{GRANTED}; the provider could not be asked to confirm it"));
    p.check_invariants().await;
}

#[tokio::test]
async fn after_a_rate_limit_the_question_is_asked_again() {
    let (mut p, api) = asking().await;
    api.lists("ada", PRO);
    api.truth().mood = Mood::Limited { reset: "1" };
    p.deliver(&up("ada")).await;
    p.drain().await;
    api.truth().mood = Mood::Answers;
    p.later(Duration::from_secs(5)).drain().await;
    assert_eq!((p.event_of(&up("ada")).await.status.as_str(), api.asked()), ("received", 1), "not before its second is over");
    tokio::time::sleep(Duration::from_millis(1_050)).await;
    p.later(Duration::from_secs(5)).drain().await;
    assert_eq!((p.event_of(&up("ada")).await.said().as_str(), api.asked()), (GRANTED, 2));
}

#[tokio::test]
async fn a_customer_that_cannot_be_asked_about_holds_up_no_other() {
    let (mut p, api) = asking().await;
    for user in ["ada", "ben", "cy", "dan"] {
        api.lists(user, PRO);
        p.deliver(&up(user)).await;
    }
    api.truth().failing.insert(customer_id("ada"));
    p.drain().await;
    assert_eq!(uncharged(&p.event_of(&up("ada")).await), ("received", 0, 0));
    for user in ["ben", "cy", "dan"] {
        assert_eq!(p.event_of(&up(user)).await.said(), GRANTED);
    }
    api.truth().failing.clear();
    p.later(Duration::from_secs(5)).drain().await;
    assert_eq!(p.event_of(&up("ada")).await.said(), GRANTED);
    p.check_invariants().await;
}

#[tokio::test]
async fn an_api_that_gives_no_usable_answer_is_waited_for_ten_minutes() {
    let broken = || Mood::Says(r#"{"has_more":false,"agreements":[{"id":"new"}]}"#.to_owned());
    let endless = || Mood::Says(r#"{"has_more":true,"agreements":[{"id":"new","plan_code":"customer_pro_plan"}]}"#.to_owned());
    for mood in [Mood::Status(500), Mood::Status(302), broken(), endless(), Mood::Says("<html>".to_owned())] {
        let (mut p, api) = asking().await;
        api.lists("ada", PRO);
        api.truth().mood = mood.clone();
        p.deliver(&up("ada")).await;
        p.drain().await;
        assert_eq!(uncharged(&p.event_of(&up("ada")).await), ("received", 0, 0), "{mood:?}");
        p.later(Duration::from_millis(599_999)).drain().await;
        assert_eq!(uncharged(&p.event_of(&up("ada")).await), ("received", 0, 0), "{mood:?}");
        p.later(Duration::from_secs(5)).drain().await;
        let said = p.event_of(&up("ada")).await.said();
        assert_eq!(said, format!("{GRANTED}; the provider could not be asked to confirm it"), "{mood:?}");
        p.check_invariants().await;
    }
}

#[tokio::test]
async fn an_api_that_falls_silent_does_not_cost_the_lease() {
    let (p, api) = asking().await;
    for n in 0..25 {
        p.deliver(&up(&format!("u{n:02}"))).await;
    }
    api.truth().mood = Mood::Silent;
    let began = std::time::Instant::now();
    let claimed = p.engine().claim(CLAIM_LIMIT).await.unwrap();
    p.engine().process(claimed, bottle::worker::process::Charge::Charged).await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let back =
        p.value::<i64>("select count(*) from inbox_events where status = 'received' and claims = 0 and attempts = 0").await;
    assert_eq!(back, 25);
}

// ---- what is asked ---------------------------------------------------------------------------------------------------

#[tokio::test]
async fn events_of_one_customer_in_one_claim_share_one_question() {
    let (p, api) = asking().await;
    api.lists("ada", PRO);
    p.deliver(&up("ada")).await;
    for n in 0..10 {
        p.deliver(&says("ada", &format!("paid{n}"), "10-21 12:00:00 paid new")).await;
    }
    p.drain().await;
    assert_eq!(api.asked(), 1);
    assert_eq!(p.value::<i64>("select count(*) from facts where kind = 'snapshot'").await, 11, "each has the answer");
    // An answer from before an event was heard says nothing about it.
    p.run(&says("ada", "later", "10-21 12:00:00 paid new")).await;
    assert_eq!(api.asked(), 2);
}

#[tokio::test]
async fn every_page_is_read() {
    let (p, api) = asking().await;
    api.truth().page_size = 2;
    let past = Some("2026-10-01T00:00:00+11");
    let all = [("a", "starter", past), ("b", "starter", past), ("c", "pro", past), ("d", "starter", past), ("new", "pro", None)];
    api.lists("ada", &all);
    assert_eq!(p.run(&up("ada")).await.said(), GRANTED);
    let pages: Vec<_> = api.truth().asked.iter().map(|(_, after)| after.clone()).collect();
    assert_eq!(pages, [None, Some("b".to_owned()), Some("d".to_owned())]);
    let listed: String = p.value("select string_agg(agreement, ' ') from facts where kind = 'snapshot'").await;
    assert_eq!(listed, "new", "what has expired is not live");
}

#[tokio::test]
async fn a_customer_who_is_gone_has_no_agreements() {
    let (mut p, api) = asking().await;
    api.lists("ada", PRO);
    p.run(&up("ada")).await;
    api.truth().agreements.clear();
    let end = says("ada", "end", "10-25 10:00:00 cancelled new");
    assert_eq!(p.at("10-25 10:00:05").run(&end).await.said(), "applied: plan set to free");
    p.check_invariants().await;
}

#[tokio::test]
async fn an_event_that_names_only_its_user_is_asked_about_by_the_users_customer_id() {
    let (p, api) = asking().await;
    let mut claims = up("ada");
    claims["data"].as_object_mut().unwrap().remove("customer_id");
    api.truth().customers.insert(user_id("ada"), json!({"customer_id": customer_id("ada")}));
    api.lists("ada", PRO);
    assert_eq!(p.run(&claims).await.said(), GRANTED);
    assert_eq!(api.asked(), 1);
    // Nobody's customer: there is nothing to ask about.
    let mut claims = up("ben");
    claims["data"].as_object_mut().unwrap().remove("customer_id");
    api.truth().customers.insert(user_id("ben"), json!({"customer_id": null}));
    assert_eq!(p.run(&claims).await.said(), GRANTED);
    assert_eq!(api.asked(), 1);
}

#[tokio::test]
async fn the_sign_in_can_ask_which_customer_a_user_is() {
    let api = KindeApi::start().await;
    let management = api.management();
    let customer = async |user: &str| management.customer_of(&KindeUserId(user.to_owned())).await;
    api.truth().customers.insert("kp_ada".to_owned(), json!({"customer_id": "customer_ada"}));
    api.truth().customers.insert("kp ben&id=kp_ada".to_owned(), Value::Null);
    assert_eq!(customer("kp_ada").await.unwrap(), Some(CustomerId("customer_ada".to_owned())));
    assert_eq!(customer("kp ben&id=kp_ada").await.unwrap(), None, "an id is a value, not a part of the address");
    assert_eq!(customer("kp_gone").await.unwrap(), None);
    assert_eq!(api.tokens(), 1);
    api.truth().good_token = "revoked".to_owned();
    api.truth().refuses = Some(401);
    assert!(matches!(customer("kp_ada").await, Err(AskError::Refused { .. })));
}

#[tokio::test]
async fn nothing_that_a_payload_names_is_called() {
    let (p, api) = asking().await;
    let elsewhere = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", elsewhere.local_addr().unwrap());
    let mut claims = up("ada");
    let id = format!("{url}/?customer_id=customer_ben&x=/../../oauth2/token#");
    claims["data"]["customer_id"] = json!(id);
    claims["data"]["domain"] = json!(url);
    claims["data"]["plan"]["url"] = json!(url);
    api.truth().agreements.insert(id.clone(), PRO.to_vec());
    assert_eq!(p.run(&claims).await.said(), GRANTED);
    assert_eq!(api.truth().asked, [(id, None)], "a customer id is a value in our own question");
    let knock = tokio::time::timeout(Duration::from_millis(100), elsewhere.accept()).await;
    assert!(knock.is_err(), "somebody called an address from a payload");
}

// ---- what is believed ------------------------------------------------------------------------------------------------

#[tokio::test]
async fn an_answer_that_lags_is_asked_for_again_and_then_believed() {
    let (mut p, api) = asking().await;
    api.lists("ada", STARTER);
    p.deliver(&up("ada")).await;
    for n in 1..=3 {
        p.drain().await;
        let row = p.event_of(&up("ada")).await;
        assert_eq!((row.said().as_str(), row.attempts, row.claims, api.asked()), (NOT_LISTED, 0, 0, n));
        p.later(Duration::from_secs(15));
    }
    api.lists("ada", PRO);
    p.drain().await;
    assert_eq!(p.event_of(&up("ada")).await.said(), GRANTED);
    assert_eq!(p.account("ada").await, "pro since 10-21 12:00:00; free:2026-10 +10, pro:2026-10 +490");
    p.check_invariants().await;
}

#[tokio::test]
async fn after_ten_minutes_the_events_own_word_counts_and_the_difference_is_flagged() {
    for (event, before, lists, sentence) in [
        (
            "created new pro",
            None,
            STARTER,
            "plan set to pro, Pro allowance granted; the provider's own answer still differs: it does not list plan key customer_pro_plan as live",
        ),
        (
            "cancelled new",
            Some("10-20 10:00:00 created new pro"),
            PRO,
            "plan set to free; the provider's own answer still differs: it still lists agreement new as live",
        ),
    ] {
        let (mut p, api) = asking().await;
        api.lists("ada", PRO);
        if let Some(before) = before {
            p.at("10-20 10:00:00").run(&says("ada", "before", before)).await;
        }
        api.lists("ada", lists);
        let claims = says("ada", "event", &format!("10-21 12:00:00 {event}"));
        p.at("10-21 12:00:00").deliver(&claims).await;
        p.later(Duration::from_millis(599_999)).drain().await;
        assert_eq!(p.event_of(&claims).await.status, "parked");
        p.later(Duration::from_secs(15)).drain().await;
        assert_eq!(p.event_of(&claims).await.said(), format!("applied: {sentence}"));
        assert_eq!(p.runs(&claims).await.last().unwrap().0, sentence, "the run says so too");
        assert!(p.account("ada").await.starts_with(if before.is_some() { "free" } else { "pro" }));
        p.check_invariants().await;
    }
}

/// Heard of a month late, and over since: what the provider says now is the newer truth, not a late one.
#[tokio::test]
async fn an_event_that_was_old_when_it_came_waits_for_no_better_answer() {
    let (p, api) = asking().await;
    api.lists("ada", PRO);
    let starter = says("ada", "starter", "09-15 12:00:00 created old starter");
    let row = p.run(&starter).await;
    assert_eq!((uncharged(&row), row.runs), (("applied", 0, 0), 1), "{row:?}");
    assert_eq!(api.asked(), 1);
    assert!(p.account("ada").await.starts_with("pro"), "{}", p.account("ada").await);
    // One that came in its ten minutes is doubted still.
    api.lists("ben", STARTER);
    let row = p.run(&says("ben", "up", "10-21 11:50:01 created new pro")).await;
    assert_eq!(row.said(), NOT_LISTED);
}

#[tokio::test]
async fn a_plan_change_may_name_the_agreement_that_it_left() {
    let (p, api) = asking().await;
    api.lists("ada", PRO);
    assert_eq!(p.run(&says("ada", "change", "10-21 12:00:00 changed old pro")).await.said(), GRANTED);
}

/// Whatever the order: a payment's question is answered from before the upgrade, or from before the cancellation.
#[tokio::test]
async fn an_answer_from_before_an_event_never_undoes_the_event() {
    let start = || says("ada", "start", "10-20 12:00:00 created old starter");
    let end = || says("ada", "end", "10-21 12:00:00 cancelled new");
    let paid = || says("ada", "paid", "10-21 12:00:30 paid -");
    // An upgrade that Kinde's read side does not know yet when the payment asks, before or after the upgrade is applied.
    for upgrade_first in [true, false] {
        let (mut p, api) = asking().await;
        api.lists("ada", STARTER);
        p.at("10-20 12:00:00").run(&start()).await;
        p.at("10-21 12:00:00").deliver(&up("ada")).await;
        if upgrade_first {
            api.lists("ada", PRO);
            p.drain().await;
            assert_eq!(p.event_of(&up("ada")).await.said(), GRANTED);
        }
        api.lists("ada", STARTER);
        p.at("10-21 12:01:00").deliver(&paid()).await;
        p.drain().await;
        assert_eq!(p.event_of(&paid()).await.status, "applied");
        // The lag lasts, so the upgrade is never confirmed.
        p.at("10-21 12:10:01").drain().await;
        let account = p.account("ada").await;
        assert!(account.starts_with("pro since 10-21 12:00:00"), "upgrade first: {upgrade_first}: {account}");
        p.check_invariants().await;
    }
    // A cancellation likewise.
    for end_first in [true, false] {
        let (mut p, api) = asking().await;
        api.lists("ada", PRO);
        p.at("10-20 12:00:00").run(&says("ada", "start", "10-20 12:00:00 created new pro")).await;
        p.at("10-21 12:00:00").deliver(&end()).await;
        if end_first {
            api.lists("ada", &[]);
            p.drain().await;
            assert_eq!(p.event_of(&end()).await.said(), "applied: plan set to free");
        }
        api.lists("ada", PRO);
        p.at("10-21 12:01:00").deliver(&paid()).await;
        p.drain().await;
        p.at("10-21 12:10:01").drain().await;
        let account = p.account("ada").await;
        assert!(account.starts_with("free since 10-21 12:00:00"), "end first: {end_first}: {account}");
        p.check_invariants().await;
    }
}

/// Another worker runs another event while this one holds its answer.
struct Overtaken {
    by: Engine,
    key: String,
    done: AtomicBool,
}

impl Observer for Overtaken {
    fn at<'a>(&'a self, step: Step, events: &'a [&'a EventKey]) -> Pause<'a> {
        Box::pin(async move {
            let now = step == Step::Resolved && events.iter().any(|key| key.0 == self.key);
            if now && !self.done.swap(true, Ordering::SeqCst) {
                self.by.drain().await.unwrap();
            }
            Ok(())
        })
    }
}

// T50: asked at t1, an event at t2, written at t3.
#[tokio::test]
async fn an_answer_that_is_written_late_undoes_nothing_that_happened_since() {
    let (mut p, api) = asking().await;
    api.lists("ada", STARTER);
    p.at("10-20 12:00:00").run(&says("ada", "start", "10-20 12:00:00 created old starter")).await;
    let paid = says("ada", "paid", "10-21 11:59:00 paid -");
    p.at("10-21 11:59:50").deliver(&paid).await;
    let asks_now = p.engine();
    let overtaken = {
        p.at("10-21 12:00:05");
        Overtaken { by: p.engine(), key: event_key("paid"), done: AtomicBool::new(false) }
    };
    // The payment is claimed and answered first; then the upgrade happens, is told, asked about and applied.
    let claimed = asks_now.claim(CLAIM_LIMIT).await.unwrap();
    p.deliver(&up("ada")).await;
    let truth = api.clone();
    let asks_now = Engine {
        checkpoints: bottle::checkpoint::Checkpoints::observed_by(Arc::new(Switching { api: truth, overtaken })),
        ..asks_now
    };
    asks_now.process(claimed, bottle::worker::process::Charge::Charged).await;
    assert_eq!(p.event_of(&up("ada")).await.said(), GRANTED);
    assert_eq!(p.event_of(&paid).await.status, "applied");
    let account = p.account("ada").await;
    assert!(account.starts_with("pro since 10-21 12:00:00"), "{account}");
    p.check_invariants().await;
}

/// Kinde's truth changes after the first question.
struct Switching {
    api: KindeApi,
    overtaken: Overtaken,
}

impl Observer for Switching {
    fn at<'a>(&'a self, step: Step, events: &'a [&'a EventKey]) -> Pause<'a> {
        if step == Step::Resolved {
            self.api.lists("ada", PRO);
        }
        self.overtaken.at(step, events)
    }
}

#[tokio::test]
async fn a_run_without_an_answer_does_not_unsay_an_earlier_one() {
    // The answer to the cancellation of an old agreement is all we know of the new one.
    let (mut p, api) = asking().await;
    api.lists("ada", PRO);
    let old = says("ada", "old", "10-21 11:59:00 cancelled old");
    p.run(&old).await;
    assert!(p.account("ada").await.starts_with("pro since 10-21 12:00:00"));
    api.truth().mood = Mood::Status(500);
    p.later(Duration::from_secs(3_600)).replay(&old).await;
    p.drain().await;
    assert!(p.event_of(&old).await.said().ends_with("the provider could not be asked to confirm it"));
    assert!(p.account("ada").await.starts_with("pro since 10-21 12:00:00"), "{}", p.account("ada").await);
    p.check_invariants().await;
}

#[tokio::test]
async fn an_answer_never_grants() {
    let (p, api) = asking().await;
    api.lists("ada", PRO);
    let row = p.run(&says("ada", "old", "10-21 11:59:00 cancelled old")).await;
    assert_eq!(row.said(), "applied: plan set to pro");
    assert_eq!(p.account("ada").await, "pro since 10-21 12:00:00; free:2026-10 +10");
}

// ---- conformance -----------------------------------------------------------------------------------------------------

/// A moment, what Kinde lists from then on, and the event that arrives then; or none, and time passes.
type Course = &'static [(&'static str, &'static [Agreement], Option<&'static str>)];

const COURSES: &[(&str, Course)] = &[
    (
        "an upgrade, a renewal and a cancellation",
        &[
            ("10-21 12:00:05", PRO, Some("10-21 12:00:00 created new pro")),
            ("11-21 12:00:05", PRO, Some("11-21 12:00:00 paid new")),
            ("11-25 12:00:05", &[], Some("11-25 12:00:00 cancelled new")),
        ],
    ),
    (
        "an upgrade that Kinde lists late",
        &[
            ("10-20 12:00:05", STARTER, Some("10-20 12:00:00 created old starter")),
            ("10-21 12:00:05", STARTER, Some("10-21 12:00:00 created new pro")),
            ("10-21 12:00:30", PRO, None),
        ],
    ),
    (
        "one that it never lists",
        &[
            ("10-21 12:00:05", STARTER, Some("10-21 12:00:00 changed new pro")),
            ("10-21 12:06:00", STARTER, None),
            ("10-21 12:11:00", STARTER, None),
        ],
    ),
    (
        "a cancellation of something else",
        &[
            ("10-21 12:00:05", PRO, Some("10-21 12:00:00 created new pro")),
            ("10-22 12:00:05", PRO, Some("10-22 12:00:00 cancelled old")),
        ],
    ),
    (
        "a late cancellation, and a bill that is not paid",
        &[
            ("10-21 12:00:05", PRO, Some("10-21 12:00:00 changed - pro")),
            ("10-21 12:00:06", PRO, Some("10-21 11:57:00 cancelled old")),
            ("10-22 12:00:05", PRO, Some("10-22 12:00:00 failed new")),
            ("10-29 12:00:05", &[], Some("10-29 12:00:00 cancelled new")),
        ],
    ),
];

#[tokio::test]
async fn kinde_itself_and_the_script_end_every_history_alike() {
    for (what, course) in COURSES {
        let mut ends = Vec::new();
        for by_script in [true, false] {
            let api = KindeApi::start().await;
            let mut p = Pipeline::new().await;
            if !by_script {
                p.providers = api.providers();
            }
            for (n, (at, lists, event)) in course.iter().enumerate() {
                if by_script {
                    p.provider_says(script(lists));
                } else {
                    api.lists("ada", lists);
                }
                p.at(at);
                if let Some(line) = event {
                    p.deliver(&says("ada", &format!("{n}"), line)).await;
                }
                p.drain().await;
            }
            let sentences: Vec<String> =
                sqlx::query_scalar("select sentence from event_runs order by id").fetch_all(&p.pool).await.unwrap();
            ends.push((p.account("ada").await, sentences));
            assert_eq!(api.asked() == 0, by_script, "{what}");
            p.check_invariants().await;
        }
        assert_eq!(ends[0], ends[1], "{what}");
    }
}

fn script(lists: &[Agreement]) -> Truth {
    let live = lists
        .iter()
        .map(|(agreement, plan, _)| LiveAgreement {
            agreement: AgreementId((*agreement).to_owned()),
            plan_key: format!("customer_{plan}_plan"),
        })
        .collect();
    Truth::Live(HashMap::from([(CustomerId(customer_id("ada")), live)]))
}

#[tokio::test]
async fn an_event_whose_customer_nobody_knows_yet_waits_for_them_and_then_has_its_answer() {
    let (p, api) = asking().await;
    api.lists("ada", PRO);
    let waits = customer_only(up("ada"));
    assert!(p.run(&waits).await.said().starts_with("parked: nobody with customer id"));
    p.run(&says("ada", "both", "10-21 12:00:00 paid new")).await;
    // The payment's answer told of the plan; what it is worth is told by the event alone.
    assert_eq!(p.event_of(&waits).await.said(), "applied: plan is already pro; Pro allowance of 2026-10 granted");
    p.check_invariants().await;
}
