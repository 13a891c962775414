//! What the local Stripe does with money and time: checkouts, subscriptions, invoices, refunds, disputes, the balance.

use bottle::local_stripe::server::Settings;
use reqwest::Method;
use serde_json::{Value, json};

use crate::local_stripe::{PACK, PRO, Stripe, id, ids, settings};

async fn begin() -> Stripe {
    Stripe::begin(settings()).await
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

impl Stripe {
    async fn subscription(&self, id: &str) -> Value {
        self.get(&format!("/v1/subscriptions/{id}"), &[]).await
    }

    async fn latest_invoice(&self, subscription: &str) -> Value {
        let subscription = self.get(&format!("/v1/subscriptions/{subscription}"), &[("expand[]", "latest_invoice")]).await;
        subscription["latest_invoice"].clone()
    }

    /// (category, amount, fee) of the balance, oldest first.
    async fn balance(&self) -> Vec<(String, i64, i64)> {
        let rows = self.get("/v1/balance_transactions", &[("limit", "100")]).await;
        let row = |row: &Value| {
            let of = |field: &str| row[field].as_i64().unwrap();
            assert_eq!(of("net"), of("amount") - of("fee"));
            (text(&row["reporting_category"]).to_owned(), of("amount"), of("fee"))
        };
        rows["data"].as_array().unwrap().iter().rev().map(row).collect()
    }
}

#[tokio::test]
async fn a_card_pays_at_once_and_the_session_says_so() {
    let stripe = begin().await;
    let session = stripe
        .session(
            "payment",
            PACK,
            &[("client_reference_id", "account-7"), ("metadata[a]", "1"), ("payment_intent_data[metadata][b]", "2")],
        )
        .await;
    assert_eq!([&session["status"], &session["payment_status"]], ["open", "unpaid"]);
    assert!(text(&session["url"]).starts_with(&stripe.url()) && session["payment_intent"].is_null());
    let done = stripe.complete(&session, "card").await;
    assert_eq!([&done["status"], &done["payment_status"]], ["complete", "paid"]);
    assert!(done["url"].is_null() && done["customer"].is_null(), "a guest paid");
    assert_eq!([&done["client_reference_id"], &done["metadata"]["a"]], ["account-7", "1"]);
    let told = [
        "payment_intent.created",
        "charge.succeeded",
        "payment_intent.succeeded",
        "charge.updated",
        "checkout.session.completed",
    ];
    assert_eq!(stripe.told().await, told);
    let intent =
        stripe.get(&format!("/v1/payment_intents/{}", text(&done["payment_intent"])), &[("expand[]", "latest_charge")]).await;
    assert_eq!((&intent["metadata"], &intent["latest_charge"]["metadata"]), (&json!({ "b": "2" }), &json!({ "b": "2" })));
    assert_eq!(stripe.balance().await, [("charge".into(), 500, 45)]);
    // The first snapshot of the charge knows nothing of the balance yet.
    let events = stripe.get("/v1/events", &[("types[0]", "charge.succeeded"), ("types[1]", "charge.updated")]).await;
    assert!(events["data"][1]["data"]["object"]["balance_transaction"].is_null());
    assert!(events["data"][0]["data"]["previous_attributes"]["balance_transaction"].is_null());
    assert!(events["data"][0]["data"]["object"]["balance_transaction"].is_string());
    assert_eq!(stripe.try_turn(&format!("checkout/{}/complete", id(&session)), json!({})).await.status, 400, "only once");
    let items = stripe.get(&format!("/v1/checkout/sessions/{}/line_items", id(&session)), &[]).await;
    assert_eq!(items["data"][0]["price"]["id"], PACK);
}

#[tokio::test]
async fn a_bank_debit_completes_unpaid_and_is_paid_or_fails_later() {
    let stripe = begin().await;
    for (paid, event, status, intent) in [
        (true, "checkout.session.async_payment_succeeded", "paid", "succeeded"),
        (false, "checkout.session.async_payment_failed", "unpaid", "requires_payment_method"),
    ] {
        let session = stripe.session("payment", PACK, &[]).await;
        let done = stripe.complete(&session, "delayed").await;
        assert_eq!([&done["status"], &done["payment_status"]], ["complete", "unpaid"]);
        let before = stripe.balance().await.len();
        let settled = stripe.turn(&format!("payments/{}/settle", id(&session)), json!({ "paid": paid })).await;
        assert_eq!(settled["status"], intent);
        assert_eq!(stripe.told().await.last().unwrap(), event);
        let after = stripe.get(&format!("/v1/checkout/sessions/{}", id(&session)), &[]).await;
        assert_eq!(after["payment_status"], status);
        assert_eq!(stripe.balance().await.len() - before, usize::from(paid));
        assert_eq!(stripe.try_turn(&format!("payments/{}/settle", id(&session)), json!({})).await.status, 400);
    }
    let types = stripe.get("/v1/balance_transactions", &[("type", "payment")]).await;
    assert_eq!(types["data"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_debit_that_comes_back_leaves_the_subscription_active_and_its_invoice_void() {
    let stripe = begin().await;
    let session = stripe.session("subscription", PRO, &[]).await;
    let done = stripe.complete(&session, "delayed").await;
    let subscription = text(&done["subscription"]).to_owned();
    assert_eq!(done["payment_status"], "unpaid");
    assert_eq!(stripe.subscription(&subscription).await["status"], "active");
    assert_eq!(stripe.latest_invoice(&subscription).await["status"], "open");
    stripe.turn(&format!("payments/{}/settle", id(&session)), json!({ "paid": false })).await;
    assert_eq!(stripe.subscription(&subscription).await["status"], "active");
    assert_eq!(stripe.latest_invoice(&subscription).await["status"], "void");
    let told = stripe.told().await;
    assert!(told.contains(&"checkout.session.async_payment_failed".into()) && !told.contains(&"invoice.paid".into()));
}

#[tokio::test]
async fn nothing_is_due_in_a_trial_or_with_everything_off() {
    let stripe = begin().await;
    let free = stripe.session("payment", PACK, &[("discounts[0][coupon]", "LOCALFREE")]).await;
    assert_eq!([&free["amount_subtotal"], &free["amount_total"]], [500, 0]);
    let done = stripe.complete(&free, "card").await;
    assert_eq!((&done["payment_status"], &done["payment_intent"]), (&json!("no_payment_required"), &Value::Null));
    let coded = stripe.session("subscription", PRO, &[("allow_promotion_codes", "true")]).await;
    let done = stripe.complete(&coded, "free").await;
    assert_eq!((&done["payment_status"], &done["amount_total"]), (&json!("no_payment_required"), &json!(0)));
    let subscription = text(&done["subscription"]).to_owned();
    assert_eq!(stripe.subscription(&subscription).await["status"], "active");
    let invoice = stripe.latest_invoice(&subscription).await;
    assert_eq!((&invoice["status"], &invoice["subtotal"], &invoice["amount_paid"]), (&json!("paid"), &json!(1200), &json!(0)));

    let trial = stripe.session("subscription", PRO, &[("subscription_data[trial_period_days]", "7")]).await;
    let done = stripe.complete(&trial, "card").await;
    assert_eq!(done["payment_status"], "no_payment_required");
    let subscription = text(&done["subscription"]).to_owned();
    assert_eq!(stripe.subscription(&subscription).await["status"], "trialing");
    stripe.turn("clock", json!({ "advance": "5d" })).await;
    assert_eq!(stripe.told().await.last().unwrap(), "customer.subscription.trial_will_end");
    stripe.turn("clock", json!({ "advance": "3d" })).await;
    assert_eq!(stripe.subscription(&subscription).await["status"], "active");
    let invoice = stripe.latest_invoice(&subscription).await;
    assert_eq!((&invoice["billing_reason"], &invoice["amount_paid"]), (&json!("subscription_cycle"), &json!(1200)));
}

#[tokio::test]
async fn a_session_ends_after_a_day_or_by_a_call() {
    let stripe = begin().await;
    let (left, called) = (stripe.session("payment", PACK, &[]).await, stripe.session("payment", PACK, &[]).await);
    let expired = stripe.post(&format!("/v1/checkout/sessions/{}/expire", id(&called)), &[]).await;
    assert_eq!((&expired["status"], &expired["url"]), (&json!("expired"), &Value::Null));
    assert_eq!(stripe.call(Method::POST, &format!("/v1/checkout/sessions/{}/expire", id(&called)), &[]).await.status, 400);
    stripe.turn("clock", json!({ "advance": "24h" })).await;
    assert_eq!(stripe.get(&format!("/v1/checkout/sessions/{}", id(&left)), &[]).await["status"], "expired");
    assert_eq!(stripe.told().await, ["checkout.session.expired"; 2]);
}

#[tokio::test]
async fn a_subscription_begins_incomplete_and_comes_round_each_month() {
    let stripe = begin().await;
    let (customer, subscription) = stripe.subscriber().await;
    let events = stripe.get("/v1/events", &[("type", "customer.subscription.*")]).await;
    let status = |n: usize| events["data"][n]["data"]["object"]["status"].clone();
    assert_eq!((status(1), status(0)), (json!("incomplete"), json!("active")));
    assert_eq!(events["data"][0]["data"]["previous_attributes"], json!({ "status": "incomplete" }));
    let first = stripe.latest_invoice(&subscription).await;
    let before = stripe.subscription(&subscription).await["items"]["data"][0].clone();
    assert_eq!(first["lines"]["data"][0]["period"]["end"], before["current_period_end"]);

    stripe.turn(&format!("subscriptions/{subscription}/renew"), json!({})).await;
    let after = stripe.subscription(&subscription).await["items"]["data"][0].clone();
    assert_eq!(after["current_period_start"], before["current_period_end"]);
    let second = stripe.latest_invoice(&subscription).await;
    assert_eq!([&second["status"], &second["billing_reason"]], ["paid", "subscription_cycle"]);
    assert_eq!(
        second["lines"]["data"][0]["period"],
        json!({ "start": after["current_period_start"], "end": after["current_period_end"] })
    );
    // Drafted at the turn of the period, and paid an hour later.
    assert_eq!(second["created"], before["current_period_end"]);
    let finalized = second["status_transitions"]["finalized_at"].as_i64().unwrap();
    assert_eq!(finalized - second["created"].as_i64().unwrap(), 3600);

    stripe.turn("clock", json!({ "advance": "100d" })).await;
    let invoices = stripe.get("/v1/invoices", &[("subscription", &subscription), ("limit", "100")]).await;
    assert_eq!(invoices["data"].as_array().unwrap().len(), 5);
    assert_eq!(ids(&stripe.get("/v1/invoices", &[("customer", &customer), ("status", "paid")]).await), ids(&invoices));
    assert_eq!(stripe.get("/v1/customers", &[]).await["data"][0]["balance"], 0);
    assert_eq!(stripe.try_turn("clock", json!({ "advance": "-1d" })).await.status, 400);
}

#[tokio::test]
async fn a_payment_that_fails_is_tried_four_times_and_then_the_subscription_ends() {
    let stripe = begin().await;
    let (customer, subscription) = stripe.subscriber().await;
    stripe.turn("payments/decline", json!({ "customer": customer, "times": 4 })).await;
    stripe.turn(&format!("subscriptions/{subscription}/renew"), json!({})).await;
    assert_eq!(stripe.subscription(&subscription).await["status"], "past_due");
    let invoice = stripe.latest_invoice(&subscription).await;
    assert_eq!([&invoice["status"], &json!(invoice["attempt_count"] == 1)], [&json!("open"), &json!(true)]);
    assert!(invoice["next_payment_attempt"].is_i64());
    stripe.turn("clock", json!({ "advance": "8d" })).await;
    assert_eq!(stripe.latest_invoice(&subscription).await["attempt_count"], 3);
    assert_eq!(stripe.subscription(&subscription).await["status"], "past_due");
    stripe.turn("clock", json!({ "advance": "7d" })).await;
    let end = stripe.subscription(&subscription).await;
    assert_eq!([&end["status"], &end["cancellation_details"]["reason"]], ["canceled", "payment_failed"]);
    let told = stripe.get("/v1/events", &[("type", "invoice.payment_failed")]).await;
    let attempts: Vec<i64> =
        told["data"].as_array().unwrap().iter().map(|event| event["data"]["object"]["attempt_count"].as_i64().unwrap()).collect();
    assert_eq!(attempts, [4, 3, 2, 1]);
    assert_eq!(stripe.told().await.last().unwrap(), "customer.subscription.deleted");
}

#[tokio::test]
async fn a_payment_in_time_brings_a_past_due_subscription_back() {
    let stripe = begin().await;
    let (customer, subscription) = stripe.subscriber().await;
    stripe.turn("payments/decline", json!({ "customer": customer, "times": 1 })).await;
    stripe.turn(&format!("subscriptions/{subscription}/renew"), json!({})).await;
    assert_eq!(stripe.subscription(&subscription).await["status"], "past_due");
    stripe.turn("clock", json!({ "advance": "3d" })).await;
    assert_eq!(stripe.subscription(&subscription).await["status"], "active");
    assert_eq!(stripe.latest_invoice(&subscription).await["status"], "paid");

    stripe.turn("switches", json!({ "after_dunning": "unpaid" })).await;
    stripe.turn("payments/decline", json!({ "times": 4 })).await;
    stripe.turn("clock", json!({ "advance": "50d" })).await;
    assert_eq!(stripe.subscription(&subscription).await["status"], "unpaid");
    let pay = format!("/v1/invoices/{}/pay", id(&stripe.latest_invoice(&subscription).await));
    assert_eq!(stripe.post(&pay, &[]).await["status"], "paid");
    assert_eq!(stripe.subscription(&subscription).await["status"], "active");
    assert_eq!(stripe.refused(&pay, &[]).await.status, 400);
}

#[tokio::test]
async fn a_first_payment_that_never_comes_expires_the_subscription() {
    let stripe = begin().await;
    let customer = stripe.customer().await;
    let form = [("customer", customer.as_str()), ("items[0][price]", PRO), ("payment_behavior", "default_incomplete")];
    let subscription = stripe.post("/v1/subscriptions", &form).await;
    assert_eq!(subscription["status"], "incomplete");
    stripe.turn("clock", json!({ "advance": "22h" })).await;
    assert_eq!(stripe.subscription(id(&subscription)).await["status"], "incomplete");
    stripe.turn("clock", json!({ "advance": "1h" })).await;
    assert_eq!(stripe.subscription(id(&subscription)).await["status"], "incomplete_expired");
    assert_eq!(stripe.latest_invoice(id(&subscription)).await["status"], "void");
}

#[tokio::test]
async fn an_end_with_the_period_can_be_taken_back_and_an_end_at_once_is_final() {
    let stripe = begin().await;
    let (_, subscription) = stripe.subscriber().await;
    let path = format!("/v1/subscriptions/{subscription}");
    let ending = stripe.post(&path, &[("cancel_at_period_end", "true")]).await;
    assert_eq!((&ending["status"], &ending["cancel_at"]), (&json!("active"), &ending["items"]["data"][0]["current_period_end"]));
    let back = stripe.post(&path, &[("cancel_at_period_end", "false")]).await;
    assert!(back["cancel_at"].is_null() && back["canceled_at"].is_null());
    stripe.post(&path, &[("cancel_at_period_end", "true")]).await;
    stripe.turn("clock", json!({ "advance": "40d" })).await;
    let ended = stripe.subscription(&subscription).await;
    assert_eq!((&ended["status"], &ended["ended_at"]), (&json!("canceled"), &ended["items"]["data"][0]["current_period_end"]));
    assert_eq!(stripe.get("/v1/invoices", &[]).await["data"].as_array().unwrap().len(), 1, "nobody who left is billed");

    let (customer, other) = stripe.subscriber().await;
    let path = format!("/v1/subscriptions/{other}");
    assert_eq!(stripe.call(Method::DELETE, &path, &[]).await.body["status"], "canceled");
    assert_eq!(stripe.call(Method::DELETE, &path, &[]).await.status, 404);
    assert_eq!(stripe.call(Method::POST, &path, &[("cancel_at_period_end", "false")]).await.status, 400);
    assert_eq!(stripe.subscription(&other).await["status"], "canceled", "it can still be looked at");
    let of = async |status: &[(&str, &str)]| {
        stripe.get("/v1/subscriptions", &[&[("customer", customer.as_str())], status].concat()).await["data"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!((of(&[]).await, of(&[("status", "all")]).await, of(&[("status", "active")]).await), (0, 1, 0));
}

#[tokio::test]
async fn another_price_in_mid_period_is_billed_by_the_day_and_grants_no_period() {
    let stripe = begin().await;
    let (customer, subscription) = stripe.subscriber().await;
    let item = stripe.subscription(&subscription).await["items"]["data"][0].clone();
    let (start, end) = (item["current_period_start"].as_i64().unwrap(), item["current_period_end"].as_i64().unwrap());
    stripe.turn("clock", json!({ "to": start + (end - start) / 2 })).await;
    let path = format!("/v1/subscriptions/{subscription}");
    let up =
        [("items[0][id]", id(&item)), ("items[0][price]", "price_1LocalMaxMonthUsd"), ("proration_behavior", "always_invoice")];
    stripe.post(&path, &up).await;
    let invoice = stripe.latest_invoice(&subscription).await;
    assert_eq!([&invoice["billing_reason"], &invoice["status"]], ["subscription_update", "paid"]);
    let lines = invoice["lines"]["data"].as_array().unwrap();
    let amounts: Vec<i64> = lines.iter().map(|line| line["amount"].as_i64().unwrap()).collect();
    assert!((-601..=-599).contains(&amounts[0]) && (1499..=1501).contains(&amounts[1]), "{amounts:?}");
    assert_eq!(invoice["amount_paid"], amounts[0] + amounts[1]);
    for line in lines {
        assert_eq!(line["parent"]["subscription_item_details"]["proration"], true);
        assert_eq!(line["period"]["end"], end);
    }
    assert_eq!(stripe.subscription(&subscription).await["items"]["data"][0]["current_period_end"], end);

    // Back down: what is left over is credit, used by the next invoice.
    let down = [("items[0][id]", id(&item)), ("items[0][price]", PRO), ("proration_behavior", "always_invoice")];
    stripe.post(&path, &down).await;
    let invoice = stripe.latest_invoice(&subscription).await;
    assert_eq!((&invoice["status"], &invoice["amount_due"]), (&json!("paid"), &json!(0)));
    let credit = stripe.get(&format!("/v1/customers/{customer}"), &[]).await["balance"].as_i64().unwrap();
    assert!((-901..=-898).contains(&credit), "{credit}");
    stripe.turn(&format!("subscriptions/{subscription}/renew"), json!({})).await;
    assert_eq!(stripe.latest_invoice(&subscription).await["amount_paid"], 1200 + credit);

    // Without a word about it, the difference waits for the next invoice.
    stripe.post(&path, &[("items[0][id]", id(&item)), ("items[0][price]", "price_1LocalMaxMonthUsd")]).await;
    assert_eq!(stripe.latest_invoice(&subscription).await["billing_reason"], "subscription_cycle");
    stripe.turn(&format!("subscriptions/{subscription}/renew"), json!({})).await;
    let reasons = stripe.latest_invoice(&subscription).await["lines"]["data"].as_array().unwrap().len();
    assert_eq!(reasons, 3);
}

#[tokio::test]
async fn refunds_add_up_and_one_that_fails_is_taken_off_again() {
    let stripe = begin().await;
    let charge = stripe.charge().await;
    let path = format!("/v1/charges/{}", id(&charge));
    let state = async || {
        let charge = stripe.get(&path, &[("expand[]", "refunds")]).await;
        (
            charge["amount_refunded"].as_i64().unwrap(),
            charge["refunded"].as_bool().unwrap(),
            charge["refunds"]["data"].as_array().unwrap().len(),
        )
    };
    let first =
        stripe.post("/v1/refunds", &[("charge", id(&charge)), ("amount", "200"), ("reason", "requested_by_customer")]).await;
    assert_eq!((&first["status"], state().await), (&json!("succeeded"), (200, false, 1)));
    let too_much = stripe.refused("/v1/refunds", &[("charge", id(&charge)), ("amount", "301")]).await;
    assert_eq!((too_much.status, too_much.error("param")), (400, "amount"));
    let rest = stripe.post("/v1/refunds", &[("payment_intent", text(&charge["payment_intent"]))]).await;
    assert_eq!((&rest["amount"], state().await), (&json!(300), (500, true, 2)));
    assert_eq!(stripe.refused("/v1/refunds", &[("charge", id(&charge))]).await.error("code"), "charge_already_refunded");

    let failed = stripe.turn(&format!("refunds/{}/fail", id(&rest)), json!({})).await;
    assert_eq!((&failed["status"], state().await), (&json!("failed"), (200, false, 2)));
    assert_eq!(stripe.try_turn(&format!("refunds/{}/fail", id(&rest)), json!({})).await.status, 400);
    let want = [("charge", 500, 45), ("refund", -200, 0), ("refund", -300, 0), ("refund_failure", 300, 0)];
    assert_eq!(stripe.balance().await, want.map(|(kind, amount, fee)| (kind.to_owned(), amount, fee)));
    let told = stripe.told().await;
    for (event, times) in [("charge.refunded", 2), ("refund.created", 2), ("refund.failed", 1)] {
        assert_eq!(told.iter().filter(|kind| *kind == event).count(), times, "{event}");
    }
    let totals = stripe.get("/v1/events", &[("type", "charge.refunded")]).await;
    assert_eq!(
        [&totals["data"][1]["data"]["object"]["amount_refunded"], &totals["data"][0]["data"]["object"]["amount_refunded"]],
        [200, 500]
    );

    let pending = stripe.turn(&format!("charges/{}/refund", id(&charge)), json!({ "amount": 100, "pending": true })).await;
    assert_eq!(pending["status"], "pending");
    assert_eq!(stripe.turn(&format!("refunds/{}/succeed", id(&pending)), json!({})).await["status"], "succeeded");
}

#[tokio::test]
async fn a_dispute_takes_the_money_when_it_opens_and_gives_it_back_when_won() {
    let stripe = begin().await;
    for (won, status, moved) in [(true, "won", 2), (false, "lost", 1)] {
        let charge = stripe.charge().await;
        let before = stripe.balance().await.len();
        let dispute = stripe.turn(&format!("charges/{}/dispute", id(&charge)), json!({})).await;
        assert_eq!(dispute["balance_transactions"][0]["net"], -500 - 1500);
        assert_eq!(stripe.get(&format!("/v1/charges/{}", id(&charge)), &[]).await["disputed"], true);
        assert_eq!(stripe.refused("/v1/refunds", &[("charge", id(&charge))]).await.error("code"), "charge_disputed");
        let closed = stripe.turn(&format!("disputes/{}/close", id(&dispute)), json!({ "won": won })).await;
        assert_eq!(closed["status"], status);
        assert_eq!(stripe.balance().await.len() - before, moved);
        assert_eq!(stripe.try_turn(&format!("disputes/{}/close", id(&dispute)), json!({})).await.status, 400);
    }
    let told: Vec<String> = stripe.told().await.into_iter().filter(|kind| kind.starts_with("charge.dispute")).collect();
    let (created, withdrawn, closed) = ("charge.dispute.created", "charge.dispute.funds_withdrawn", "charge.dispute.closed");
    assert_eq!(told, [created, withdrawn, "charge.dispute.funds_reinstated", closed, created, withdrawn, closed]);

    let charge = stripe.charge().await;
    let before = stripe.balance().await.len();
    let inquiry = stripe.turn(&format!("charges/{}/dispute", id(&charge)), json!({ "inquiry": true })).await;
    assert_eq!(inquiry["status"], "warning_needs_response");
    let closed = stripe.turn(&format!("disputes/{}/close", id(&inquiry)), json!({})).await;
    assert_eq!((closed["status"].as_str(), stripe.balance().await.len()), (Some("warning_closed"), before));
}

#[tokio::test]
async fn each_currency_is_counted_in_its_own_minor_unit_and_settled_in_one() {
    let stripe = Stripe::begin(Settings { settlement_currency: Some("usd".into()), ..settings() }).await;
    for (price, currency, total, settled) in [
        ("price_1LocalPackUsd", "usd", 500, 500),
        ("price_1LocalPackJpy", "jpy", 750, 503),
        ("price_1LocalPackKwd", "kwd", 1550, 504),
    ] {
        let session = stripe.session("payment", price, &[]).await;
        assert_eq!((&session["currency"], &session["amount_total"]), (&json!(currency), &json!(total)));
        stripe.complete(&session, "card").await;
        let row = stripe.get("/v1/balance_transactions", &[("limit", "1")]).await["data"][0].clone();
        assert_eq!((&row["currency"], &row["amount"]), (&json!("usd"), &json!(settled)));
        assert_eq!(row["exchange_rate"].is_null(), currency == "usd");
    }
    let one_price = stripe.session("subscription", PRO, &[("currency", "kwd")]).await;
    assert_eq!((&one_price["currency"], &one_price["amount_total"]), (&json!("kwd"), &json!(3720)));
    let own = begin().await;
    let session = own.session("payment", "price_1LocalPackJpy", &[]).await;
    own.complete(&session, "card").await;
    let row = own.get("/v1/balance_transactions", &[]).await["data"][0].clone();
    assert_eq!((&row["currency"], &row["amount"], &row["fee"]), (&json!("jpy"), &json!(750), &json!(62)));
}

#[tokio::test]
async fn a_deleted_customer_leaves_a_stub_and_no_subscription() {
    let stripe = begin().await;
    let (customer, subscription) = stripe.subscriber().await;
    let path = format!("/v1/customers/{customer}");
    let stub = json!({ "id": customer, "object": "customer", "deleted": true });
    assert_eq!(stripe.call(Method::DELETE, &path, &[]).await.body, stub);
    assert_eq!(stripe.get(&path, &[]).await, stub);
    assert_eq!(stripe.call(Method::DELETE, &path, &[]).await.status, 404);
    assert_eq!(stripe.get("/v1/customers", &[]).await["data"], json!([]));
    assert_eq!(stripe.subscription(&subscription).await["status"], "canceled");
    let told = stripe.told().await;
    assert_eq!(told[told.len() - 2..], ["customer.subscription.deleted", "customer.deleted"]);
    let last = stripe.get("/v1/events", &[("limit", "1")]).await;
    assert_eq!(last["data"][0]["data"]["object"]["email"], "ada@example.com");
    assert_eq!(stripe.refused("/v1/billing_portal/sessions", &[("customer", &customer)]).await.status, 400);
}

#[tokio::test]
async fn a_test_can_falsify_the_balance_and_lose_an_object() {
    let stripe = begin().await;
    let charge = stripe.charge().await;
    let row = text(&charge["balance_transaction"]).to_owned();
    let wrong = stripe.turn(&format!("balance_transactions/{row}/falsify"), json!({ "amount": 499 })).await;
    assert_eq!((&wrong["amount"], &wrong["net"]), (&json!(499), &json!(454)));
    stripe.turn(&format!("objects/{}/delete", id(&charge)), json!({})).await;
    let gone = stripe.call(Method::GET, &format!("/v1/charges/{}", id(&charge)), &[]).await;
    assert_eq!((gone.status, gone.error("code")), (404, "resource_missing"));
}

#[tokio::test]
async fn events_are_listed_for_thirty_days() {
    let stripe = Stripe::begin(Settings { begin_secs_ago: 40 * 24 * 3600, ..settings() }).await;
    stripe.customer().await;
    stripe.turn("clock", json!({ "advance": "29d" })).await;
    assert_eq!(stripe.told().await, ["customer.created"]);
    stripe.turn("clock", json!({ "advance": "2d" })).await;
    assert_eq!(stripe.told().await, Vec::<String>::new());
    assert_eq!(stripe.get("/v1/customers", &[]).await["data"].as_array().unwrap().len(), 1);
}
