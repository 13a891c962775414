//! The pages of the local Stripe, pressed as a browser without JavaScript presses them.

use bottle::local_stripe::server::Settings;
use serde_json::json;

use crate::local_stripe::{PACK, PRO, Stripe, client, id, settings};

struct Seen {
    status: u16,
    location: String,
    text: String,
}

async fn seen(request: reqwest::RequestBuilder) -> Seen {
    let response = request.send().await.unwrap();
    let location = response.headers().get("location").map(|to| to.to_str().unwrap().to_owned()).unwrap_or_default();
    let policy = response.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    Seen { status: response.status().as_u16(), location, text: response.text().await.unwrap() }
}

async fn press(url: &str, form: &[(&str, &str)]) -> Seen {
    seen(client().post(url).form(form)).await
}

async fn open(url: &str) -> Seen {
    seen(client().get(url)).await
}

#[tokio::test]
async fn a_buyer_pays_and_is_sent_back_with_the_sessions_id() {
    let stripe = Stripe::begin(settings()).await;
    let session =
        stripe.session("payment", PACK, &[("customer_email", "ada@example.com"), ("cancel_url", "javascript:alert(1)")]).await;
    let url = session["url"].as_str().unwrap();
    let page = open(url).await;
    assert!(page.status == 200 && page.text.contains("Pay 5.00 USD by card") && page.text.contains("ada@example.com"));
    assert!(!page.text.contains("<script") && !page.text.contains("javascript:"));

    stripe.turn("payments/decline", json!({})).await;
    let declined = press(url, &[("way", "card")]).await;
    assert_eq!((declined.status, declined.location.as_str()), (303, format!("/c/pay/{}?declined=true", id(&session)).as_str()));
    assert!(open(&format!("{}{}", stripe.url(), declined.location)).await.text.contains("Declined."));
    assert!(stripe.told().await.contains(&"payment_intent.payment_failed".into()));

    let paid = press(url, &[("way", "card")]).await;
    assert_eq!((paid.status, paid.location), (303, format!("http://localhost:3000/done?s={}", id(&session))));
    let intents = stripe.get("/v1/payment_intents", &[]).await;
    assert_eq!(intents["data"].as_array().unwrap().len(), 1, "the same payment, tried twice");
    assert!(open(url).await.text.contains("This checkout is complete."));
    assert_eq!(press(url, &[("way", "card")]).await.status, 400);
    assert_eq!(press(url, &[("way", "gold")]).await.status, 400);
    assert_eq!(open(&format!("{}/c/pay/cs_test_x", stripe.url())).await.status, 404);
}

#[tokio::test]
async fn a_refused_card_makes_no_subscription() {
    let stripe = Stripe::begin(settings()).await;
    let session = stripe.session("subscription", PRO, &[]).await;
    let url = session["url"].as_str().unwrap();
    stripe.turn("payments/decline", json!({})).await;
    assert!(press(url, &[("way", "card")]).await.location.ends_with("declined=true"));
    assert_eq!(stripe.get("/v1/subscriptions", &[("status", "all")]).await["data"], json!([]));
    assert!(press(url, &[("way", "card")]).await.location.starts_with("http://localhost:3000/done"));
}

#[tokio::test]
async fn the_portal_cancels_resumes_and_changes_for_its_own_customer_only() {
    let stripe = Stripe::begin(settings()).await;
    let (customer, subscription) = stripe.subscriber().await;
    let (_, other) = stripe.subscriber().await;
    let session = stripe
        .post("/v1/billing_portal/sessions", &[("customer", &customer), ("return_url", "http://localhost:3000/account")])
        .await;
    let url = session["url"].as_str().unwrap();
    let page = open(url).await.text;
    assert!(page.contains("Pro, 12.00 USD a month") && page.contains("http://localhost:3000/account") && !page.contains(&other));
    let state = async || stripe.get(&format!("/v1/subscriptions/{subscription}"), &[]).await;
    let act = async |action: &str, of: &str, price: &str| {
        press(url, &[("action", action), ("subscription", of), ("price", price)]).await.status
    };

    assert_eq!(act("cancel_at_period_end", &subscription, "").await, 303);
    let ending = state().await;
    // Flexible billing says it by the date alone.
    assert_eq!(
        (&ending["cancel_at_period_end"], &ending["cancel_at"]),
        (&json!(false), &ending["items"]["data"][0]["current_period_end"])
    );
    assert!(open(url).await.text.contains("Do not cancel"));
    assert_eq!(act("resume", &subscription, "").await, 303);
    assert!(state().await["cancel_at"].is_null());
    assert_eq!(act("change", &subscription, "price_1LocalMaxMonthUsd").await, 303);
    assert_eq!(state().await["items"]["data"][0]["price"]["id"], "price_1LocalMaxMonthUsd");
    assert_eq!(act("cancel", &other, "").await, 400, "not this customer's");
    assert_eq!(act("explode", &subscription, "").await, 400);
    assert_eq!(act("cancel", &subscription, "").await, 303);
    assert_eq!(state().await["status"], "canceled");
    stripe.turn("clock", json!({ "advance": "61m" })).await;
    assert_eq!(open(url).await.status, 404, "the link is over");
}

#[tokio::test]
async fn the_operators_page_shows_everything_and_its_buttons_work() {
    let stripe = Stripe::begin(Settings { webhook_url: Some("http://127.0.0.1:1/".into()), ..settings() }).await;
    let home = stripe.url();
    assert!(open(&home).await.text.contains("Nobody has come yet"));
    let (customer, subscription) = stripe.subscriber().await;
    let debit = stripe.session("payment", PACK, &[]).await;
    stripe.complete(&debit, "delayed").await;
    let page = open(&home).await.text;
    for shown in
        [&customer, &subscription, "checkout.session.completed", "The debit arrives", "Cancel at period end", "12.00 USD"]
    {
        assert!(page.contains(shown), "{shown}");
    }
    assert!(!page.contains("<script") && !page.contains("style="));
    let button = async |path: &str, form: &[(&str, &str)]| {
        let done = press(&format!("{home}/local/{path}"), form).await;
        assert_eq!((done.status, done.location.as_str()), (303, "/"), "{path}: {}", done.text);
    };
    button(&format!("payments/{}/settle", id(&debit)), &[("paid", "true")]).await;
    button("clock", &[("advance", "1d")]).await;
    button("payments/decline", &[("times", "2"), ("customer", "*")]).await;
    let switches = [
        ("copies", "2"),
        ("order", "reversed"),
        ("late_ms", "0"),
        ("drop_answers", "0"),
        ("speed", "60"),
        ("age_secs", "0"),
        ("lose", "0"),
        ("omit", "0"),
        ("hold", "true"),
        ("tamper", "false"),
        ("livemode", "false"),
        ("twins", "false"),
    ];
    button("switches", &switches).await;
    let set = stripe.look("switches").await;
    assert_eq!(
        (&set["copies"], &set["order"], &set["hold"], &set["speed"]),
        (&json!(2), &json!("reversed"), &json!(true), &json!(60.0))
    );
    let fault = [("times", "3"), ("path", ""), ("status", "429"), ("slow_ms", "0"), ("retry_after", ""), ("done", "false")];
    button("faults", &fault).await;
    assert_eq!(stripe.look("faults").await[0]["times"], 3);
    button("faults/clear", &[]).await;
    button("webhook_secret/roll", &[]).await;
    assert_eq!(stripe.running.webhook_secrets().len(), 2);
    button(&format!("subscriptions/{subscription}/cancel"), &[]).await;
    button(&format!("customers/{customer}/delete"), &[]).await;
    button("switches/reset", &[]).await;
    let page = open(&home).await.text;
    assert!(page.contains("To be refused: 2") && page.contains("deleted") && page.contains("canceled"));
    let refused = press(&format!("{home}/local/switches"), &[("speed", "fast")]).await;
    assert!(refused.status == 400 && refused.text.contains("error"));
    let css = client().get(format!("{home}/local_stripe.css")).send().await.unwrap();
    assert_eq!(css.headers()["content-type"], "text/css; charset=utf-8");
}
