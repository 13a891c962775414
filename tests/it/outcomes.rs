//! What becomes of an event, in the sentence its owner reads: through the real intake, worker and database.

use serde_json::json;

use crate::support::claims::{event_key, says, user_id};
use crate::support::pipeline::Pipeline;

/// A sentence, the lines that arrive one after another, what became of the last, and the account then.
type Case = (&'static str, &'static [&'static str], &'static str, &'static str);

async fn check(cases: &[Case]) {
    let p = Pipeline::new().await;
    for (n, (sentence, lines, said, account)) in cases.iter().enumerate() {
        let user = format!("ada{n}");
        let mut last = None;
        for (place, line) in lines.iter().enumerate() {
            last = Some(p.run(&says(&user, &format!("{n:03}{place:03}"), line)).await);
        }
        assert_eq!(last.unwrap().said(), *said, "{sentence}");
        assert_eq!(p.account(&user).await, *account, "{sentence}");
    }
    p.check_invariants().await;
}

#[tokio::test]
async fn every_applied_or_ignored_event_says_what_it_did() {
    check(&[
        (
            "The first month of Pro.",
            &["10-21 10:00:00 changed - pro"],
            "applied: plan set to pro, Pro allowance granted",
            "pro since 10-21 10:00:00; free:2026-10 +10, pro:2026-10 +490",
        ),
        (
            "Pro again in a month that was granted already.",
            &["10-01 10:00:00 created a pro", "10-10 10:00:00 cancelled a", "10-20 10:00:00 created b pro"],
            "applied: plan set to pro",
            "pro since 10-20 10:00:00; free:2026-10 +10, pro:2026-10 +490",
        ),
        (
            "A change to Starter keeps what was granted.",
            &["10-20 10:00:00 changed - pro", "10-21 10:00:00 changed - starter"],
            "applied: plan set to free",
            "free since 10-21 10:00:00; free:2026-10 +10, pro:2026-10 +490",
        ),
        (
            "The cancellation of the current agreement.",
            &["10-20 10:00:00 created a pro", "10-21 10:00:00 cancelled a"],
            "applied: plan set to free",
            "free since 10-21 10:00:00; free:2026-10 +10, pro:2026-10 +490",
        ),
        (
            "Twins: two events that mean one change (T4).",
            &["10-21 10:00:00 assigned a pro", "10-21 10:00:00 created a pro"],
            "applied: plan is already pro",
            "pro since 10-21 10:00:00; free:2026-10 +10, pro:2026-10 +490",
        ),
        (
            "Pro told again in the next month carries its allowance along.",
            &["09-21 10:00:00 created a pro", "10-21 10:00:00 created a pro"],
            "applied: plan is already pro; Pro allowance of 2026-10 granted",
            "pro since 10-21 10:00:00; free:2026-09 +10, pro:2026-09 +490, free:2026-10 +10, pro:2026-10 +490",
        ),
        (
            "Starter where nothing was before.",
            &["10-21 10:00:00 assigned - starter"],
            "applied: plan is already free",
            "free since 10-21 10:00:00; free:2026-10 +10",
        ),
        (
            "A renewal.",
            &["09-21 10:00:00 created a pro", "10-21 10:00:00 paid a"],
            "applied: payment recorded, Pro allowance granted",
            "pro since 09-21 10:00:00; free:2026-09 +10, pro:2026-09 +490, free:2026-10 +10, pro:2026-10 +490",
        ),
        (
            "The payment of a month that the plan change granted.",
            &["10-21 10:00:00 created a pro", "10-21 10:03:00 paid a"],
            "applied: payment recorded, Pro allowance already granted",
            "pro since 10-21 10:00:00; free:2026-10 +10, pro:2026-10 +490",
        ),
        (
            "A payment that nothing explains.",
            &["10-21 10:03:00 paid -"],
            "applied: payment recorded; no Pro plan it belongs to",
            "free; free:2026-10 +10",
        ),
        (
            "A failed payment.",
            &["10-20 10:00:00 created a pro", "10-21 10:00:00 failed a"],
            "applied: payment failure recorded",
            "pro since 10-20 10:00:00, past due since 10-21 10:00:00; free:2026-10 +10, pro:2026-10 +490",
        ),
        (
            "An overdue invoice, and the payment that settles it.",
            &["10-20 10:00:00 created a pro", "10-21 10:00:00 overdue a", "10-21 11:00:00 paid a"],
            "applied: payment recorded, Pro allowance already granted; no longer past due",
            "pro since 10-20 10:00:00; free:2026-10 +10, pro:2026-10 +490",
        ),
        (
            "An overdue invoice.",
            &["10-21 10:00:00 overdue -"],
            "applied: invoice overdue recorded",
            "free, past due since 10-21 10:00:00; free:2026-10 +10",
        ),
        (
            "A Pro month heard of after a later change keeps its allowance (T34).",
            &["10-20 10:00:00 changed - starter", "09-10 10:00:00 changed - pro"],
            "applied: a newer plan change is already stored; Pro allowance of 2026-09 granted",
            "free since 10-20 10:00:00; free:2026-09 +10, pro:2026-09 +490, free:2026-10 +10",
        ),
        (
            "An older Start that changes nothing.",
            &["10-21 10:00:00 changed - pro", "10-21 09:57:00 changed - starter"],
            "ignored: a newer plan change is already stored",
            "pro since 10-21 10:00:00; free:2026-10 +10, pro:2026-10 +490",
        ),
        (
            "The late cancellation of the plan before.",
            &["10-21 10:00:00 changed - pro", "10-21 09:57:00 cancelled old"],
            "ignored: a newer plan change is already stored",
            "pro since 10-21 10:00:00; free:2026-10 +10, pro:2026-10 +490",
        ),
        (
            "The cancellation of another agreement.",
            &["10-20 10:00:00 created a pro", "10-21 10:00:00 cancelled b"],
            "ignored: cancels an agreement that is no longer current",
            "pro since 10-20 10:00:00; free:2026-10 +10, pro:2026-10 +490",
        ),
        (
            "A type without billing meaning makes no account.",
            &["10-21 10:00:00 registered"],
            "ignored: this event type carries no billing change (user.created)",
            "no account",
        ),
        (
            "A plan nobody configured.",
            &["10-20 10:00:00 created a pro", "10-21 10:00:00 created b gold"],
            "parked: plan key `gold` is not configured; the plan stays as it was",
            "pro since 10-20 10:00:00; free:2026-10 +10, pro:2026-10 +490",
        ),
        (
            "A cancellation to the end of the period.",
            &["10-20 10:00:00 created a pro", "10-21 10:00:00 cancelled a at 11-20 10:00:00"],
            "applied: plan set to free from 2026-11-20T10:00:00Z",
            "pro since 10-20 10:00:00; free:2026-10 +10, pro:2026-10 +490",
        ),
    ])
    .await;
}

#[tokio::test]
async fn an_organisation_is_no_person() {
    let p = Pipeline::new().await;
    let mut claims = says("ada", "org", "10-21 10:00:00 changed - pro");
    claims["data"]["customer_type"] = json!("organization");
    let ignored = "ignored: the customer is no person but `organization`";
    assert_eq!(p.run(&claims).await.said(), ignored);
    assert_eq!(p.account("ada").await, "no account");

    // Whether it can be read does not matter then.
    let mut no_plan = says("ada", "noplan", "10-21 10:00:00 changed - pro");
    no_plan["data"] = json!({"customer_id": "customer_org", "org_code": "org_1"});
    assert_eq!(p.run(&no_plan).await.said(), ignored);
    let mut no_time = says("ada", "notime", "10-21 10:00:00 changed - pro");
    no_time["data"]["org_code"] = json!("org_1");
    no_time["data"].as_object_mut().unwrap().remove("customer_type");
    no_time["event_timestamp"] = json!("yesterday");
    assert_eq!(p.run(&no_time).await.said(), ignored);
    // A type without billing meaning is ignored for that.
    let mut registered = says("ada", "registered", "10-21 10:00:00 registered");
    registered["data"]["customer_type"] = json!("organization");
    assert_eq!(p.run(&registered).await.said(), "ignored: this event type carries no billing change (user.created)");
    p.check_invariants().await;
}

#[tokio::test]
async fn an_event_without_a_readable_time_is_dead_at_once() {
    let p = Pipeline::new().await;
    let mut claims = says("ada", "when", "10-21 10:00:00 changed - pro");
    claims["event_timestamp"] = json!("yesterday");
    let row = p.run(&claims).await;
    assert_eq!((row.said().as_str(), row.attempts), ("dead after 1 attempt: it says no time that can be read", 1));
    p.check_invariants().await;
}

#[tokio::test]
async fn a_cancellation_takes_effect_though_nobody_is_there() {
    let mut p = Pipeline::new().await;
    p.run(&says("ada", "start", "10-01 10:00:00 created a pro")).await;
    p.run(&says("ada", "failed", "10-15 10:00:00 failed a")).await;
    p.run(&says("ada", "end", "10-16 10:00:00 cancelled a at 11-21 10:00:00")).await;
    let bottles = "free:2026-10 +10, pro:2026-10 +490";
    let before = format!("pro since 10-01 10:00:00, past due since 10-15 10:00:00; {bottles}");
    assert_eq!(p.at("11-21 09:59:59.999999999").account("ada").await, before);
    assert_eq!(p.at("11-21 10:00:00").account("ada").await, format!("free since 11-21 10:00:00; {bottles}"));
    assert_eq!(p.at("12-31 10:00:00").account("ada").await, format!("free since 11-21 10:00:00; {bottles}"));
    let paid = p.run(&says("ada", "paid", "12-30 10:00:00 paid -")).await;
    assert_eq!(paid.said(), "applied: payment recorded; no Pro plan it belongs to", "nothing was owed any more");
    p.check_invariants().await;
}

#[tokio::test]
async fn a_pruned_event_is_replayed_from_its_facts() {
    let p = Pipeline::new().await;
    let claims = says("ada", "up", "10-21 10:00:00 changed - pro");
    p.run(&claims).await;
    sqlx::query("update inbox_events set body = null").execute(&p.pool).await.unwrap();
    p.replay(&claims).await;
    p.drain().await;
    assert_eq!(p.event_of(&claims).await.said(), "applied: plan is already pro");
    assert_eq!(p.account("ada").await, "pro since 10-21 10:00:00; free:2026-10 +10, pro:2026-10 +490");
}

#[tokio::test]
async fn a_replay_adds_a_run_and_replaces_none() {
    let p = Pipeline::new().await;
    let starter = says("ada", "starter", "10-20 10:00:00 changed - starter");
    let pro = says("ada", "pro", "10-21 10:00:00 changed - pro");
    p.run(&starter).await;
    p.run(&pro).await;
    for _ in 0..2 {
        assert_eq!(p.replay(&starter).await.len(), 1);
        assert!(p.replay(&starter).await.is_empty(), "it waits already");
        p.drain().await;
    }
    let runs = p.runs(&starter).await;
    let newer = "ignored: a newer plan change is already stored";
    let sentences: Vec<_> = runs.iter().map(|run| (run.0.as_str(), run.2.as_deref())).collect();
    assert_eq!(sentences, [("plan is already free", None), (newer, Some("a test")), (newer, Some("a test"))]);
    assert_eq!(runs[1].1, json!({"plan": {"before": "pro", "after": "pro"}, "newer": event_key("pro")}));
    assert_eq!(
        p.runs(&pro).await[0].1["entries"][0]["key"],
        json!(format!("pro:{}:2026-10", p.account_id("ada").await.unwrap()))
    );
    assert_eq!(p.value::<i64>("select count(*) from replays where requested_by = 'a test'").await, 2);
    p.check_invariants().await;
}

#[tokio::test]
async fn the_month_is_the_facts_whatever_the_clock_says() {
    // T35: heard of in the month, in the next, and at the year's end; and run again in another month.
    for (n, now) in ["10-31 23:30:00", "11-15 00:00:00", "12-31 23:59:59"].into_iter().enumerate() {
        let mut p = Pipeline::new().await;
        let claims = says("ada", &format!("now{n}"), "10-31 23:00:00 changed - pro");
        p.at(now).run(&claims).await;
        p.at("12-31 23:59:59").replay(&claims).await;
        p.drain().await;
        let granted: String = p.value("select string_agg(entry_key, ' ') from ledger where reason = 'pro'").await;
        assert_eq!(granted, format!("pro:{}:2026-10", p.account_id("ada").await.unwrap()), "heard of at {now}");
        p.check_invariants().await;
    }
}

#[tokio::test]
async fn the_last_nanosecond_of_a_month_is_that_months_in_the_database_too() {
    let mut p = Pipeline::new().await;
    p.at("12-05 10:00:00");
    for (n, at, ns, month) in [
        (0, "2026-11-30T23:59:59.9999996Z", 1_796_083_199_999_999_600_i64, "2026-11"),
        (1, "2026-12-01T10:59:59.999999999+11", 1_796_083_199_999_999_999, "2026-11"),
        (2, "2026-12-01T00:00:00Z", 1_796_083_200_000_000_000, "2026-12"),
    ] {
        let mut claims = says(&format!("ada{n}"), &format!("end{n}"), "11-30 10:00:00 changed - pro");
        claims["event_timestamp"] = json!(at);
        let id = p.run(&claims).await.id;
        let user = user_id(&format!("ada{n}"));
        let stored: i64 = p.value(&format!("select plan_changed_ns from accounts where kinde_user_id = '{user}'")).await;
        let heard: i64 = p.value(&format!("select occurred_ns from inbox_events where id = {id}")).await;
        assert_eq!((stored, heard), (ns, ns), "{at}");
        let granted: String = p.value(&format!("select period from ledger where reason = 'pro' and event_id = {id}")).await;
        assert_eq!(granted, month, "{at}");
    }
}

#[tokio::test]
async fn a_month_is_granted_once_in_any_order_of_what_lies_in_it() {
    // T36: two Pro plans, a payment for each, a cancellation, in one month: 500 whichever came first.
    let lines = [
        "10-02 10:00:00 created a pro",
        "10-03 10:00:00 paid a",
        "10-10 10:00:00 cancelled a",
        "10-11 10:00:00 created b pro",
        "10-12 10:00:00 paid -",
    ];
    let p = Pipeline::new().await;
    for n in 0..lines.len() {
        for backwards in [false, true] {
            let mut order: Vec<usize> = (0..lines.len()).map(|place| (place + n) % lines.len()).collect();
            if backwards {
                order.reverse();
            }
            let user = format!("ada{n}{backwards}");
            for place in order {
                p.run(&says(&user, &format!("{user}{place}"), lines[place])).await;
            }
            assert_eq!(p.account(&user).await, "pro since 10-11 10:00:00; free:2026-10 +10, pro:2026-10 +490", "{n} {backwards}");
        }
    }
    p.check_invariants().await;
}

#[tokio::test]
async fn an_amount_that_was_given_stands_when_the_plan_gives_another_one() {
    let p = Pipeline::new().await;
    p.run(&says("ada", "paid", "10-20 10:00:00 paid -")).await;
    sqlx::query(
        "insert into ledger (account_id, period, delta, reason, entry_key, created_at)
         select id, '2026-10', 90, 'pro', 'pro:' || id || ':2026-10', now() from accounts",
    )
    .execute(&p.pool)
    .await
    .unwrap();
    p.run(&says("ada", "up", "10-21 10:00:00 changed - pro")).await;
    assert_eq!(p.account("ada").await, "pro since 10-21 10:00:00; free:2026-10 +10, pro:2026-10 +90", "T37");
}
