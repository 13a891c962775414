//! Buying at Stripe, by clicks, at the real programs: Bottle with its local Kinde, and `bottle local-stripe` beside it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::local_stripe::client;
use crate::support::browser::Browser;
use crate::support::newcomer::{Newcomer, Till};

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_buys_pro_and_a_pack_while_pages_change_by_themselves_and_sees_a_refund() {
    let Some(browser) = Browser::open(1280, 1000).await else { return };
    let (grace, till) = Newcomer::start_with_stripe(browser, true).await;
    whole_journey(&grace, &till).await;
    grace.browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_is_bought_without_javascript() {
    let Some(browser) = Browser::without_javascript(390, 844).await else { return };
    let (grace, till) = Newcomer::start_with_stripe(browser, false).await;
    whole_journey(&grace, &till).await;
    grace.browser.close().await;
}

async fn whole_journey(grace: &Newcomer, till: &Till) {
    grace.sign_up("Grace", "Hopper", "grace@example.com").await;
    grace.click(".top nav a[href='/account']").await;
    grace.arrives("/account").await;
    turns_back(grace).await;
    buys_pro(grace, till).await;
    buys_a_pack(grace).await;
    is_refunded(grace, till).await;
    a_signed_duplicate_changes_nothing(grace, till).await;
    assert_eq!(grace.browser.complaints().await, [] as [String; 0], "what the browser complained of on the way");
}

async fn turns_back(grace: &Newcomer) {
    grace.click("#manage input[value=pro] ~ button").await;
    grace.browser.until("location.pathname.startsWith('/c/pay/')").await;
    grace.click("main a[href*='/account?back=']").await;
    grace.arrives("/account").await;
    assert!(grace.text(".notice[role=status]").await.contains("You came back from Stripe without paying."));
    assert_eq!(grace.text("#plan-h").await, "Free");
}

/// Stripe keeps its events back meanwhile, so that the page is sure to be open before the first one comes.
async fn buys_pro(grace: &Newcomer, till: &Till) {
    till.turn("switches", json!({ "hold": true })).await;
    grace.click("#manage input[value=pro] ~ button").await;
    grace.browser.until("location.pathname.startsWith('/c/pay/')").await;
    grace.click("button[value=card]").await;
    grace.browser.until("location.pathname.startsWith('/account/checkout/')").await;
    assert_eq!(grace.text("h1").await, "We are waiting for Stripe’s word");
    if grace.scripted {
        grace.browser.until("document.querySelector('[data-live-word]').textContent.includes('keeps itself up to date')").await;
    }
    till.turn("switches", json!({ "hold": false })).await;
    if grace.scripted {
        grace.comes("document.querySelector('h1').textContent === 'You are on Pro'").await;
    } else {
        // Nobody reloads it: it does so by itself.
        grace.browser.until("document.querySelector('h1')?.textContent === 'You are on Pro'").await;
    }
    grace.click("main a.button").await;
    grace.arrives("/account").await;
    assert_eq!(grace.text("#plan-h").await, "Pro");
    assert!(grace.text("[data-live=standing]").await.contains("You have Pro through Stripe."));
    grace.comes("document.querySelector('.bottles-left').textContent === '500'").await;
}

async fn buys_a_pack(grace: &Newcomer) {
    grace.click("#manage input[value=pack] ~ button").await;
    grace.browser.until("location.pathname.startsWith('/c/pay/')").await;
    grace.click("button[value=card]").await;
    grace.browser.until("location.pathname.startsWith('/account/checkout/')").await;
    grace.comes("document.querySelector('h1').textContent === '100 bottles were added'").await;
    grace.click("main a.button").await;
    grace.arrives("/account").await;
    grace.comes("document.querySelector('.bottles-left').textContent === '600'").await;
    assert!(grace.text(".totals").await.contains("17.00 USD"));
}

async fn is_refunded(grace: &Newcomer, till: &Till) {
    let charge: String = sqlx::query_scalar("select charge from purchases").fetch_one(&grace.pool).await.unwrap();
    till.turn(&format!("charges/{charge}/refund"), json!({})).await;
    grace.comes("document.querySelector('#money .status')?.textContent === 'Refunded'").await;
    grace.comes("document.querySelector('.totals').textContent.includes('12.00 USD')").await;
    assert_eq!(grace.text(".bottles-left").await, "600", "a refund moves money and no bottles");
}

/// As somebody does who has caught a message on its way, and whose secret is right: the same bytes, signed anew.
async fn a_signed_duplicate_changes_nothing(grace: &Newcomer, till: &Till) {
    let stored = "select (select count(*) from ledger), (select count(*) from money_ledger), (select count(*) from event_runs), (select count(*) from receipts)";
    grace.comes("!document.querySelector('[data-live=log]').textContent.includes('under way')").await;
    let before: (i64, i64, i64, i64) = sqlx::query_as(stored).fetch_one(&grace.pool).await.unwrap();
    let caught: (String, Vec<u8>) = sqlx::query_as(
        "select dedupe_key, body from inbox_events where type = 'checkout.session.completed' order by id desc limit 1",
    )
    .fetch_one(&grace.pool)
    .await
    .unwrap();
    let post = client().post(format!("http://{}/webhooks/stripe", grace.bottle.addr()));
    let answer = post.header("stripe-signature", till.signature(&caught.1)).body(caught.1).send().await.unwrap();
    let answer: Value = answer.json().await.unwrap();
    assert_eq!(answer, json!({ "event": caught.0, "copy": true }));
    grace.comes("[...document.querySelectorAll('.event-when')].some(e => e.textContent.includes('2 copies'))").await;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1_500) {
        let after: (i64, i64, i64, i64) = sqlx::query_as(stored).fetch_one(&grace.pool).await.unwrap();
        assert_eq!(after, (before.0, before.1, before.2, before.3 + 1), "a copy is counted, and nothing runs");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
