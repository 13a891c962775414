//! Purchases, subscriptions, refunds and disputes at a local Stripe, through the real pipeline. What is booked here is set beside
//! the books there, which were kept by somebody else.

use std::time::Duration;

use bottle::providers::Ware;
use serde_json::json;

use crate::support::claims::says;
use crate::support::till::{Till, event, text};

/// The account without the ids of its packs.
async fn account(till: &Till, user: &str) -> String {
    let shown = till.pipeline.account(user).await;
    let (standing, entries) = shown.split_once("; ").unwrap_or((&shown, ""));
    let plan = standing.split_whitespace().next().unwrap_or_default();
    let due = if standing.contains("past due") { ", past due" } else { "" };
    let mut totals: Vec<String> = entries
        .split(", ")
        .filter(|entry| !entry.is_empty())
        .map(|entry| {
            let (key, delta) = entry.split_once(' ').unwrap();
            format!("{} {delta}", key.split(':').next().unwrap())
        })
        .collect();
    totals.sort();
    format!("{plan}{due}; {}", totals.join(", "))
}

#[tokio::test]
async fn a_pack_is_granted_once_and_a_refund_stamps_it() {
    let mut till = Till::open().await;
    let session = till.buy("ada", Ware::Pack, "card").await;
    till.run().await;
    assert_eq!(account(&till, "ada").await, "free; free +10, pack +100");
    assert!(till.said_of("checkout.session.completed").await.starts_with("applied: pack of 100 bottles granted for 20"));
    till.agrees().await;

    let charge = till.charge(&session).await;
    till.stripe.turn(&format!("charges/{charge}/refund"), json!({ "amount": 120 })).await;
    till.run().await;
    assert_eq!(till.said_of("charge.refunded").await, "applied: refund of 1.20 USD recorded");
    let rest = till.stripe.turn(&format!("charges/{charge}/refund"), json!({})).await;
    till.run().await;
    till.agrees().await;
    assert_eq!(till.lines("select refunded_minor::text from purchases").await, ["500"]);
    assert_eq!(account(&till, "ada").await, "free; free +10, pack +100", "a refund moves money, not bottles");

    till.stripe.turn(&format!("refunds/{}/fail", text(&rest["id"])), json!({})).await;
    till.run().await;
    assert_eq!(till.said_of("refund.failed").await, "applied: nothing new about this money", "refund.updated told of it before");
    till.agrees().await;
    assert_eq!(till.lines("select refunded_minor::text from purchases").await, ["120"]);

    let before = (till.ledger().await, account(&till, "ada").await, till.lines("select id::text from ledger").await);
    till.replay_all().await;
    till.replay_all().await;
    assert_eq!((till.ledger().await, account(&till, "ada").await, till.lines("select id::text from ledger").await), before);
    till.agrees().await;
}

#[tokio::test]
async fn a_dispute_takes_the_money_at_once_and_gives_it_back_only_if_won() {
    let mut till = Till::open().await;
    for (won, status) in [(true, "won"), (false, "lost")] {
        let session = till.buy("ada", Ware::Pack, "card").await;
        till.run().await;
        let charge = till.charge(&session).await;
        let dispute = till.stripe.turn(&format!("charges/{charge}/dispute"), json!({})).await;
        till.run().await;
        assert_eq!(
            till.said_of("charge.dispute.created").await,
            "applied: dispute over 5.00 USD recorded (needs_response); disputed payment taken back of 5.00 USD"
        );
        till.agrees().await;
        till.stripe.turn(&format!("disputes/{}/close", text(&dispute["id"])), json!({ "won": won })).await;
        till.run().await;
        till.agrees().await;
        let stamp = format!("select disputed from purchases where purchase_id = '{}'", text(&session["id"]));
        assert_eq!(till.lines(&stamp).await, [status]);
    }
    let kinds = till.lines("select kind || ' ' || sum(amount_minor) from money_ledger group by kind").await;
    assert_eq!(kinds, ["charge 1000", "dispute -1000", "dispute_reversal 500"]);
    let session = till.buy("ada", Ware::Pack, "card").await;
    till.run().await;
    let charge = till.charge(&session).await;
    till.stripe.turn(&format!("charges/{charge}/dispute"), json!({ "inquiry": true })).await;
    till.run().await;
    assert_eq!(till.said_of("charge.dispute.created").await, "applied: dispute over 5.00 USD recorded (warning_needs_response)");
    till.agrees().await;
}

#[tokio::test]
async fn a_dispute_is_on_the_board_while_it_is_fresh_or_open() {
    let mut till = Till::open().await;
    let open = async |till: &Till| {
        let mut conn = till.pipeline.pool.acquire().await.unwrap();
        let found = bottle::alerts::conditions::find(&mut conn, &[]).await.unwrap();
        found.into_iter().filter(|f| f.condition == "dispute").flat_map(|f| f.events).map(|e| e.0).collect::<Vec<_>>()
    };
    let session = till.buy("ada", Ware::Pack, "card").await;
    till.run().await;
    assert_eq!(open(&till).await, Vec::<i64>::new());
    let dispute = till.stripe.turn(&format!("charges/{}/dispute", till.charge(&session).await), json!({})).await;
    till.run().await;
    let newest = "select max(id) from inbox_events where type like 'charge.dispute.%'";
    assert_eq!(open(&till).await, [till.pipeline.value::<i64>(newest).await]);
    // Days go by: it is open still.
    let days = "update facts set occurred_ns = occurred_ns - 2 * 86400 * 1000000000::bigint where kind = 'dispute'";
    sqlx::query(days).execute(&till.pipeline.pool).await.unwrap();
    assert_eq!(open(&till).await.len(), 1);
    till.stripe.turn(&format!("disputes/{}/close", text(&dispute["id"])), json!({ "won": false })).await;
    till.run().await;
    assert_eq!(open(&till).await, Vec::<i64>::new(), "it is over");
    // One that is over within the day is seen all the same.
    let session = till.buy("ada", Ware::Pack, "card").await;
    let dispute = till.stripe.turn(&format!("charges/{}/dispute", till.charge(&session).await), json!({})).await;
    till.stripe.turn(&format!("disputes/{}/close", text(&dispute["id"])), json!({ "won": true })).await;
    till.run().await;
    assert_eq!(open(&till).await, [till.pipeline.value::<i64>(newest).await]);
}

#[tokio::test]
async fn what_is_paid_days_later_is_granted_then_and_not_before() {
    let mut till = Till::open().await;
    for (paid, after) in [(true, "free; free +10, pack +100"), (false, "free; free +10, pack +100")] {
        let session = till.buy("ada", Ware::Pack, "delayed").await;
        till.run().await;
        let said = till.said_of("checkout.session.completed").await;
        assert_eq!(said, "applied: purchase recorded; its bottles come when it is paid");
        till.stripe.turn(&format!("payments/{}/settle", text(&session["id"])), json!({ "paid": paid })).await;
        till.run().await;
        assert_eq!(account(&till, "ada").await, after);
        till.agrees().await;
    }
    assert_eq!(
        till.said_of("checkout.session.async_payment_failed").await,
        "applied: the purchase was not paid; no bottles are granted"
    );
}

#[tokio::test]
async fn a_subscription_whose_first_payment_is_on_its_way_gives_nothing_yet() {
    let mut till = Till::open().await;
    let good = till.buy("ada", Ware::Pro, "delayed").await;
    let bad = till.buy("bob", Ware::Pro, "delayed").await;
    till.run().await;
    assert_eq!([account(&till, "ada").await, account(&till, "bob").await], ["free; free +10", "free; free +10"]);
    till.stripe.turn(&format!("payments/{}/settle", text(&good["id"])), json!({ "paid": true })).await;
    till.stripe.turn(&format!("payments/{}/settle", text(&bad["id"])), json!({ "paid": false })).await;
    till.run().await;
    // Stripe leaves the second one active.
    assert_eq!([account(&till, "ada").await, account(&till, "bob").await], ["pro; free +10, pro +490", "free; free +10"]);
    till.agrees().await;
}

#[tokio::test]
async fn nothing_to_pay_is_granted_like_a_payment() {
    let mut till = Till::open().await;
    till.buy("ada", Ware::Pack, "free").await;
    till.run().await;
    assert_eq!(account(&till, "ada").await, "free; free +10, pack +100");
    assert_eq!(till.ledger().await, Vec::<String>::new());
    till.agrees().await;
}

#[tokio::test]
async fn a_subscription_is_pro_and_each_renewal_grants_its_own_month_once() {
    let mut till = Till::open().await;
    let (_, subscription) = till.subscriber("ada").await;
    assert_eq!(account(&till, "ada").await, "pro; free +10, pro +490");
    assert_eq!(till.said_of("invoice.paid").await, "applied: payment recorded, Pro allowance granted");
    let period = till.period_end(&subscription).await;
    till.renew(&subscription).await;
    till.run().await;
    assert_eq!(account(&till, "ada").await, "pro; free +10, free +10, pro +490, pro +490");
    let month = time::OffsetDateTime::from_unix_timestamp(period).unwrap();
    let month = format!("{:04}-{:02}", month.year(), u8::from(month.month()));
    let granted = till.lines("select period from ledger where reason = 'pro'").await;
    assert_eq!(granted.last(), Some(&month), "the month the invoice opened");
    till.agrees().await;
    let before = till.lines("select id || entry_key from ledger").await;
    till.replay_all().await;
    assert_eq!(till.lines("select id || entry_key from ledger").await, before);
    till.agrees().await;
}

#[tokio::test]
async fn a_payment_that_fails_leaves_pro_until_the_end_and_says_so() {
    let mut till = Till::open().await;
    let (customer, subscription) = till.subscriber("ada").await;
    till.stripe.turn("payments/decline", json!({ "customer": customer })).await;
    till.renew(&subscription).await;
    till.run().await;
    assert_eq!(account(&till, "ada").await, "pro, past due; free +10, pro +490");
    assert_eq!(till.said_of("invoice.payment_failed").await, "applied: payment failure recorded");
    // An old bill that was paid, asked about again, is no payment of this one.
    till.replay_all().await;
    assert_eq!(account(&till, "ada").await, "pro, past due; free +10, pro +490");
    till.agrees().await;

    till.stripe.turn(&format!("subscriptions/{subscription}/cancel"), json!({})).await;
    till.run().await;
    let shown = account(&till, "ada").await;
    assert!(shown.starts_with("free; ") || shown.starts_with("pro; ") || shown.starts_with("pro, past due; "), "{shown}");
    till.agrees().await;
}

#[tokio::test]
async fn a_cancellation_for_later_is_known_and_can_be_taken_back() {
    let mut till = Till::open().await;
    let (_, subscription) = till.subscriber("ada").await;
    let end = till.period_end(&subscription).await;
    let path = format!("/v1/subscriptions/{subscription}");
    till.stripe.post(&path, &[("cancel_at_period_end", "true")]).await;
    till.run().await;
    let said = till.said_of("customer.subscription.updated").await;
    assert!(said.starts_with("applied: plan set to free from "), "{said}");
    assert!(account(&till, "ada").await.starts_with("pro; "));
    let now = till.pipeline.now;
    till.pipeline.now = bottle::domain::instant::Instant::from_nanos(end * 1_000_000_000);
    assert!(account(&till, "ada").await.starts_with("free; "), "nobody has to be there when it ends");
    till.pipeline.now = now;
    till.stripe.post(&path, &[("cancel_at_period_end", "false")]).await;
    till.run().await;
    till.pipeline.now = bottle::domain::instant::Instant::from_nanos(end * 1_000_000_000);
    assert!(account(&till, "ada").await.starts_with("pro; "));
    till.agrees().await;
}

#[tokio::test]
async fn a_change_within_a_period_moves_money_and_grants_nothing() {
    let mut till = Till::open().await;
    let max = "price_1LocalMaxMonthUsd";
    let mut rules = (*till.pipeline.rules).clone();
    rules.keys.pro.insert(max.to_owned());
    till.pipeline.rules = std::sync::Arc::new(rules);
    // Begun late in a month and changed early in the next, which has no entry of its own that would hide a second one.
    let today = time::OffsetDateTime::now_utc().date();
    let next = today.replace_day(28).unwrap() + time::Duration::days(10);
    let begun = next.replace_day(20).unwrap().midnight().assume_utc();
    till.goes_to(begun).await;
    let (_, subscription) = till.subscriber("ada").await;
    till.renew(&subscription).await;
    till.run().await;
    let renewed = begun + time::Duration::days(31);
    let granted = || async { till.lines("select period from ledger where reason = 'pro'").await };
    let month = |at: time::OffsetDateTime| format!("{:04}-{:02}", at.year(), u8::from(at.month()));
    assert_eq!(granted().await, [month(begun), month(renewed)]);
    let changed = renewed.replace_day(28).unwrap() + time::Duration::days(10);
    till.goes_to(changed).await;
    assert!(till.period_end(&subscription).await > changed.unix_timestamp() && month(changed) != month(renewed));
    let item = till.stripe.get(&format!("/v1/subscriptions/{subscription}"), &[]).await["items"]["data"][0]["id"].clone();
    let up = [("items[0][id]", item.as_str().unwrap()), ("items[0][price]", max), ("proration_behavior", "always_invoice")];
    till.stripe.post(&format!("/v1/subscriptions/{subscription}"), &up).await;
    till.run().await;
    assert_eq!(till.said_of("invoice.paid").await, "applied: payment recorded; it opens no new period");
    let granted = till.lines("select period from ledger where reason = 'pro'").await;
    assert_eq!(granted, [month(begun), month(renewed)], "the difference opens no month");
    assert_eq!(till.lines("select kind from money_ledger").await, ["charge", "charge", "charge"]);
    till.agrees().await;
}

#[tokio::test]
async fn what_was_booked_stays_booked_once_when_its_event_turns_out_to_be_somebody_elses() {
    let mut till = Till::open().await;
    let (customer, _) = till.subscriber("ada").await;
    till.subscriber("ben").await;
    // Made past our checkout, so only the customer says whose it is.
    let session = till.stripe.session("payment", crate::local_stripe::PACK, &[("customer", &customer)]).await;
    let done = till.stripe.complete(&session, "card").await;
    till.run().await;
    let ada = "pro; free +10, pack +100, pro +490";
    assert_eq!(account(&till, "ada").await, ada);
    let ben = till.pipeline.account_id("ben").await.unwrap();
    let move_over = format!("update customer_map set account_id = {} where customer_id = '{customer}'", ben.0);
    sqlx::raw_sql(sqlx::AssertSqlSafe(move_over)).execute(&till.pipeline.pool).await.unwrap();
    let books = till.ledger().await;
    for _ in 0..2 {
        till.replay_all().await;
        assert_eq!(till.said_of("checkout.session.completed").await, "applied: the pack's bottles are already granted");
        assert_eq!([account(&till, "ada").await, account(&till, "ben").await], [ada, "pro; free +10, pro +490"]);
        assert_eq!(till.ledger().await, books);
        till.agrees().await;
    }
    let home = "select distinct a.kinde_user_id from facts f join accounts a on a.id = f.account_id where f.kind = 'pack_paid'";
    assert_eq!(till.lines(home).await, ["kp_ben"]);

    let charge = till.charge(&done).await;
    till.stripe.turn(&format!("charges/{charge}/refund"), json!({})).await;
    till.run().await;
    assert_eq!(till.lines("select refunded_minor::text from purchases").await, ["500"], "its row is stamped where it is");
    till.agrees().await;

    // What nobody's facts tell of is found all the same.
    sqlx::query("delete from facts where kind = 'pack_paid'").execute(&till.pipeline.pool).await.unwrap();
    assert!(till.differences().await[0].contains("bottle ledger entry pack:cs_"), "{:?}", till.differences().await);
}

/// A purchase, its refund and its dispute are told by events of their own. When they turn out to be somebody else's, they get there
/// one by one; meanwhile one half is here and the other there.
#[tokio::test]
async fn a_purchase_keeps_its_stamps_whichever_half_of_it_turns_out_to_be_somebody_elses_first() {
    for first in ["checkout.session.completed", "charge.refunded", "charge.dispute.created"] {
        let mut till = Till::open().await;
        let (customer, _) = till.subscriber("ada").await;
        till.subscriber("ben").await;
        let session = till.stripe.session("payment", crate::local_stripe::PACK, &[("customer", &customer)]).await;
        let done = till.stripe.complete(&session, "card").await;
        let charge = till.charge(&done).await;
        till.stripe.turn(&format!("charges/{charge}/refund"), json!({ "amount": 120 })).await;
        let dispute = till.stripe.turn(&format!("charges/{charge}/dispute"), json!({})).await;
        till.run().await;
        let stamp = "select refunded_minor || ' ' || disputed from purchases";
        assert_eq!(till.lines(stamp).await, ["120 needs_response"]);
        let ben = till.pipeline.account_id("ben").await.unwrap();
        let move_over = format!("update customer_map set account_id = {} where customer_id = '{customer}'", ben.0);
        sqlx::raw_sql(sqlx::AssertSqlSafe(move_over)).execute(&till.pipeline.pool).await.unwrap();

        // Only this half runs again.
        till.replay_of(first).await;
        assert_eq!(till.lines(stamp).await, ["120 needs_response"], "{first}");
        till.agrees().await;
        // What is told from now on is Ben's, and the purchase is stamped with it wherever it is.
        till.stripe.turn(&format!("disputes/{}/close", text(&dispute["id"])), json!({ "won": true })).await;
        let refund = till.stripe.get("/v1/refunds", &[]).await["data"][0]["id"].clone();
        till.stripe.turn(&format!("refunds/{}/fail", text(&refund)), json!({})).await;
        till.run().await;
        assert_eq!(till.lines(stamp).await, ["0 won"], "{first}");
        till.agrees().await;
        till.replay_all().await;
        assert_eq!(till.lines(stamp).await, ["0 won"], "{first}");
        till.agrees().await;
    }
}

#[tokio::test]
async fn a_plan_nobody_configured_takes_nothing_from_a_payer_and_waits() {
    let mut till = Till::open().await;
    let (_, subscription) = till.subscriber("ada").await;
    till.stripe.turn(&format!("subscriptions/{subscription}/change"), json!({ "price": "price_1LocalMaxMonthUsd" })).await;
    till.run().await;
    assert!(account(&till, "ada").await.starts_with("pro; "));
    let said = till.said_of("customer.subscription.updated").await;
    assert_eq!(said, "parked: parked: plan key `price_1LocalMaxMonthUsd` is not configured; the plan stays as it was");
}

#[tokio::test]
async fn a_customer_or_object_that_is_gone_is_a_state_and_no_error() {
    let mut till = Till::open().await;
    let (customer, subscription) = till.subscriber("ada").await;
    till.stripe.turn(&format!("customers/{customer}/delete"), json!({})).await;
    till.run().await;
    assert!(account(&till, "ada").await.starts_with("free; "));
    let open: i64 = till.pipeline.value("select count(*) from inbox_events where status not in ('applied', 'ignored')").await;
    assert_eq!(open, 0);
    till.agrees().await;

    let before = account(&till, "ada").await;
    till.stripe.turn(&format!("objects/{subscription}/delete"), json!({})).await;
    let ghost = event("evt_ghost", "customer.subscription.updated", &subscription);
    till.run_all(std::slice::from_ref(&ghost)).await;
    assert_eq!(till.said(&ghost).await, format!("ignored: the provider has no {subscription}, or no longer"));
    till.replay_all().await;
    assert_eq!(account(&till, "ada").await, before, "what was known stays known");
}

#[tokio::test]
async fn events_of_a_customer_nobody_knows_wait_until_a_checkout_tells() {
    let mut till = Till::open().await;
    // Made past our checkout: no mark of ours on it.
    let session = till.stripe.session("subscription", crate::local_stripe::PRO, &[]).await;
    let done = till.stripe.complete(&session, "card").await;
    till.run().await;
    assert!(till.said_of("customer.subscription.created").await.contains("parked: nobody with customer id cus_"));
    // The reference alone is no proof: a buyer can set it.
    let customer = text(&done["customer"]);
    let forged = till
        .stripe
        .session("payment", crate::local_stripe::PACK, &[("client_reference_id", "kp_ada"), ("customer", &customer)])
        .await;
    till.stripe.complete(&forged, "card").await;
    till.run().await;
    assert_eq!(till.pipeline.account("ada").await, "no account");

    let ours = till.checkout("ada", Ware::Pack, Some(&customer)).await;
    till.stripe.turn(&format!("checkout/{ours}/complete"), json!({ "way": "card" })).await;
    till.run().await;
    till.pipeline.later(Duration::from_secs(1));
    till.pipeline.drain().await;
    assert_eq!(account(&till, "ada").await, "pro; free +10, pack +100, pack +100, pro +490");
    till.agrees().await;
}

#[tokio::test]
async fn a_rehearsal_asks_nobody_and_says_what_an_earlier_answer_came_to() {
    let mut till = Till::open().await;
    till.subscriber("ada").await;
    let known: i64 = till.pipeline.value("select max(id) from inbox_events where type = 'invoice.paid'").await;
    let fresh = till.deliver(&event("evt_fresh", "invoice.paid", "in_1234")).await;
    till.calls().await;
    let engine = till.pipeline.engine();
    let ids = [bottle::domain::ids::EventId(known), fresh.id];
    let mut said = Vec::new();
    for event in bottle::inbox::history::as_claimed(&till.pipeline.pool, &ids).await.unwrap() {
        let verdict = engine.rehearse(&event).await.unwrap();
        assert!(verdict.effects.is_nothing());
        said.push(verdict.reason.to_string());
    }
    assert_eq!(said, ["payment recorded, Pro allowance already granted", "parked: the provider has to be asked about it first"]);
    assert_eq!(till.calls().await, json!({}));
}

#[tokio::test]
async fn another_modes_event_is_kept_and_counts_for_nothing() {
    let mut till = Till::open().await;
    let mut live = event("evt_live", "invoice.paid", "in_1234");
    live["livemode"] = json!(true);
    let unknown = event("evt_new", "invoice.something_new", "in_1234");
    let twin = event("evt_twin", "invoice.payment_succeeded", "in_1234");
    till.run_all(&[live.clone(), unknown.clone(), twin.clone()]).await;
    assert_eq!(till.said(&live).await, "ignored: it is from the provider's live mode, and this is a test");
    assert_eq!(till.said(&unknown).await, "ignored: this event type carries no billing change (invoice.something_new)");
    assert_eq!(till.said(&twin).await, "ignored: this event type carries no billing change (invoice.payment_succeeded)");
    assert_eq!(till.calls().await, json!({}), "nobody was asked");
}

#[tokio::test]
async fn a_busy_or_broken_stripe_charges_no_event_and_holds_up_no_other() {
    let mut till = Till::open().await;
    till.buy("ada", Ware::Pack, "card").await;
    let news = till.news().await;
    let paid = news.iter().find(|event| event["type"] == "checkout.session.completed").unwrap().clone();
    let faults = [
        json!({"status": 429, "retry_after": 7}),
        json!({"status": 429, "code": "lock_timeout"}),
        json!({"status": 500}),
        json!({"status": 503}),
    ];
    till.deliver(&paid).await;
    for (fault, wait) in faults.into_iter().zip([7, 2, 5, 5]) {
        let mut fault = fault;
        fault["path"] = json!("/v1/checkout/sessions");
        till.stripe.turn("faults", fault.clone()).await;
        let kinde = says("bob", &format!("k{wait}{}", fault["status"]), "10-21 10:00:00 registered");
        till.pipeline.deliver(&kinde).await;
        till.calls().await;
        till.pipeline.drain().await;
        let row = till.row(&paid).await;
        assert_eq!((row.status.as_str(), row.attempts, row.claims), ("received", 0, 0), "{fault}");
        assert_eq!(row.due, Some(till.pipeline.now.plus(Duration::from_secs(wait)).datetime()), "{fault}");
        assert_eq!(till.pipeline.event_of(&kinde).await.status, "ignored", "others go on");
        // Until then it is not even asked: two more drains cost no call.
        assert_eq!(till.calls().await, json!({"GET /v1/checkout/sessions/{id}": 1}), "{fault}");
        till.pipeline.later(Duration::from_secs(wait));
        tokio::time::sleep(Duration::from_millis(50)).await;
        if wait == 7 {
            till.pipeline.drain().await;
            assert_eq!(till.calls().await, json!({}), "not before the seven seconds are over by our own watch too");
        }
        tokio::time::sleep(Duration::from_secs(wait)).await;
        till.pipeline.later(Duration::from_secs(wait));
    }
    till.pipeline.drain().await;
    assert_eq!(account(&till, "ada").await, "free; free +10, pack +100");
    till.agrees().await;
}

#[tokio::test]
async fn each_event_costs_one_call_and_none_leaves_for_an_address_in_a_payload() {
    let mut till = Till::open().await;
    // The lies in these payloads name this listener.
    let trap = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/", trap.local_addr().unwrap());
    let (_, _) = till.subscriber("ada").await;
    let session = till.buy("ada", Ware::Pack, "card").await;
    let charge = till.charge(&session).await;
    let refund = till.stripe.turn(&format!("charges/{charge}/refund"), json!({ "amount": 100 })).await;
    let other = till.buy("ada", Ware::Pack, "card").await;
    let dispute = till.stripe.turn(&format!("charges/{}/dispute", till.charge(&other).await), json!({})).await;
    till.run().await;
    let invoice = till.stripe.get("/v1/invoices", &[]).await["data"][0]["id"].clone();
    let subscription = till.stripe.get("/v1/subscriptions", &[]).await["data"][0]["id"].clone();
    let about = [
        ("checkout.session.completed", &session["id"], "checkout/sessions"),
        ("checkout.session.async_payment_succeeded", &session["id"], "checkout/sessions"),
        ("checkout.session.async_payment_failed", &session["id"], "checkout/sessions"),
        ("customer.subscription.created", &subscription, "subscriptions"),
        ("customer.subscription.updated", &subscription, "subscriptions"),
        ("customer.subscription.deleted", &subscription, "subscriptions"),
        ("invoice.paid", &invoice, "invoices"),
        ("invoice.payment_failed", &invoice, "invoices"),
        ("charge.refunded", &json!(charge), "charges"),
        ("refund.failed", &refund["id"], "refunds"),
        ("charge.dispute.created", &dispute["id"], "disputes"),
        ("charge.dispute.closed", &dispute["id"], "disputes"),
    ];
    let before = till.ledger().await;
    for (n, (kind, object, path)) in about.into_iter().enumerate() {
        let mut lie = event(&format!("evt_lie{n}"), kind, object.as_str().unwrap());
        lie["data"]["object"]["url"] = json!(address);
        lie["data"]["object"]["refunds"] = json!({"url": address, "has_more": true, "data": []});
        lie["data"]["object"]["hosted_invoice_url"] = json!(address);
        till.calls().await;
        till.run_all(std::slice::from_ref(&lie)).await;
        assert_eq!(till.calls().await, json!({format!("GET /v1/{path}/{{id}}"): 1}), "{kind}");
        println!("{kind}: 1 call");
    }
    assert_eq!(till.ledger().await, before, "events that tell of the same things again move nothing");
    till.agrees().await;
    let knock = tokio::time::timeout(Duration::from_millis(50), trap.accept()).await;
    assert!(knock.is_err(), "somebody followed an address in a payload");
    till.calls().await;
    for bad in ["in_1/../../v1/customers", "in_1?x", "in_1#", "http://127.0.0.1/", "../x"] {
        let strange = event(&format!("evt_bad{}", bad.len()), "invoice.paid", bad);
        till.run_all(std::slice::from_ref(&strange)).await;
        assert_eq!(till.calls().await, json!({}), "{bad}");
        assert!(till.said(&strange).await.contains("it names no object"));
    }
}

#[tokio::test]
async fn events_of_one_second_end_the_same_in_every_order() {
    let mut ends = std::collections::BTreeSet::new();
    for seed in 0..6_u64 {
        let mut till = Till::open().await;
        let (_, subscription) = till.subscriber("ada").await;
        let path = format!("/v1/subscriptions/{subscription}");
        for change in ["true", "false", "true", "false"] {
            till.stripe.post(&path, &[("cancel_at_period_end", change)]).await;
        }
        till.stripe.call(reqwest::Method::DELETE, &path, &[]).await;
        let mut news = till.news().await;
        news.retain(|event| event["type"].as_str().unwrap().starts_with("customer.subscription."));
        assert!(news.len() >= 5, "{news:?}");
        // Half are told in a row of their own making, half come after all of it is over.
        let turn = usize::try_from(seed).unwrap() % news.len();
        news.rotate_left(turn);
        if seed % 2 == 1 {
            news.reverse();
        }
        let twice = [news.clone(), news.iter().rev().cloned().collect()].concat();
        till.run_all(&twice).await;
        till.run().await;
        till.agrees().await;
        ends.insert(account(&till, "ada").await);
    }
    assert_eq!(ends.into_iter().collect::<Vec<_>>(), ["free; free +10, pro +490"]);
}

#[tokio::test]
async fn currencies_without_and_with_three_decimals_are_booked_as_they_come() {
    let mut till = Till::open().await;
    let (customer, _) = till.subscriber("ada").await;
    for (price, shown) in [("price_1LocalPackJpy", "JPY"), ("price_1LocalPackKwd", "KWD")] {
        // Not the pack that is configured, so it moves no bottles; its refund is money all the same.
        let session = till.stripe.session("payment", price, &[("customer", &customer)]).await;
        let done = till.stripe.complete(&session, "card").await;
        let charge = till.charge(&done).await;
        till.stripe.turn(&format!("charges/{charge}/refund"), json!({})).await;
        till.run().await;
        let said = till.said_of("charge.refunded").await;
        assert!(said.ends_with(&format!("{shown} recorded")), "{said}");
        let amount = done["amount_total"].as_i64().unwrap();
        let want = if shown == "JPY" { format!("{amount} JPY") } else { format!("{}.{:03} KWD", amount / 1000, amount % 1000) };
        assert!(said.contains(&want), "{said} is not {want}");
    }
    let mut conn = till.pipeline.pool.acquire().await.unwrap();
    let account = till.pipeline.account_id("ada").await.unwrap();
    let totals = bottle::money::totals(&mut *conn, account).await.unwrap();
    let shown: Vec<String> = totals.iter().map(|t| format!("{} {}", t.currency.amount(t.paid()), t.currency)).collect();
    assert_eq!(shown, ["-750 JPY", "-1.550 KWD", "12.00 USD"]);
    let lines = bottle::money::statement(&mut *conn, account, None, 2).await.unwrap();
    let older = bottle::money::statement(&mut *conn, account, Some(lines[1].id), 10).await.unwrap();
    assert_eq!((lines.len(), older.len()), (2, 1));
}

#[tokio::test]
async fn the_money_ledger_is_append_only_and_a_changed_row_is_found() {
    let mut till = Till::open().await;
    till.buy("ada", Ware::Pack, "card").await;
    till.run().await;
    for sql in ["update money_ledger set amount_minor = 1", "delete from money_ledger", "truncate money_ledger"] {
        let error = sqlx::query(sqlx::AssertSqlSafe(sql.to_owned())).execute(&till.pipeline.pool).await.unwrap_err();
        assert!(error.to_string().contains("append-only"), "{sql}: {error}");
    }
    till.agrees().await;
    let spoil = "alter table money_ledger disable trigger user; update money_ledger set amount_minor = amount_minor + 1";
    sqlx::raw_sql(spoil).execute(&till.pipeline.pool).await.unwrap();
    let found = till.differences().await;
    assert!(
        found[0].contains("money ledger row charge:ch_")
            && found[0].contains("stored is charge 5.01 USD, the facts give charge 5.00 USD"),
        "{found:?}"
    );
}
