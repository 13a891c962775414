//! The local Stripe against Stripe's own clients, for Node and for Python, and against the types the first one ships.
//!
//! They are fetched by `npm ci` and `pip install` in `tests/peers`. Without them a test says so and passes on a developer's
//! machine; with `BOTTLE_TEST_NEEDS_PEERS` set it fails.

use std::path::{Path, PathBuf};
use std::process::Command;

use axum::Router;
use axum::routing::post;
use bottle::local_stripe::server::Settings;
use serde_json::json;

use crate::local_stripe::{KEY, PACK, SECRET, Stripe, id, settings, until};

fn peers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers")
}

/// Whether a peer is here; where it has to be, its absence fails the test.
pub fn is_here(what: &str, file: &str, program: &str) -> bool {
    let here =
        peers().join(file).exists() && Command::new(program).arg("--version").output().is_ok_and(|said| said.status.success());
    if !here {
        assert!(std::env::var_os("BOTTLE_TEST_NEEDS_PEERS").is_none(), "{what} is not here: install it in tests/peers");
        eprintln!("SKIPPED: {what} is not here. CONTRIBUTING.md says how to install it in tests/peers.");
    }
    here
}

/// A local Stripe whose webhooks are all heard.
async fn begin() -> Stripe {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/", post(|| async { "" }))).await });
    Stripe::begin(Settings { webhook_url: Some(url), ..settings() }).await
}

async fn run(program: &str, script: &str, stripe: &Stripe) {
    let (program, script, url) = (program.to_owned(), peers().join(script), stripe.url());
    let said = tokio::task::spawn_blocking(move || {
        Command::new(program).arg(script).args([&url, KEY, SECRET]).env("NO_PROXY", "127.0.0.1").current_dir(peers()).output()
    });
    let said = said.await.unwrap().unwrap();
    let (out, err) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert!(said.status.success(), "{out}{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stripes_node_client_takes_it_for_the_real_one() {
    if is_here("npm's stripe", "node_modules/stripe", "node") {
        let stripe = begin().await;
        run("node", "stripe_client.mjs", &stripe).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stripes_python_client_verifies_every_delivery() {
    let python = peers().join("venv/bin/python");
    let python = python.to_str().unwrap();
    if is_here("PyPI's stripe", "venv/bin/python", python) {
        let stripe = begin().await;
        stripe.turn("webhook_secret/roll", json!({ "secret": "whsec_second" })).await;
        let sent = async || {
            stripe.subscriber().await;
            let all = stripe.look("deliveries").await;
            all["data"].as_array().unwrap().iter().all(|one| one["state"] == "delivered")
        };
        until("everything to be delivered", sent).await;
        run(python, "stripe_client.py", &stripe).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_object_reads_as_the_type_stripes_client_gives_it() {
    if is_here("npm's stripe", "node_modules/stripe", "node") && is_here("npm's typescript", "node_modules/typescript", "node") {
        let stripe = begin().await;
        let (customer, subscription) = stripe.subscriber().await;
        stripe.turn(&format!("subscriptions/{subscription}/change"), json!({ "price": "price_1LocalMaxMonthUsd" })).await;
        stripe.turn("payments/decline", json!({ "customer": customer })).await;
        stripe.turn(&format!("subscriptions/{subscription}/renew"), json!({})).await;
        let trial =
            stripe.session("subscription", crate::local_stripe::PRO, &[("subscription_data[trial_period_days]", "7")]).await;
        stripe.complete(&trial, "card").await;
        let debit = stripe.session("payment", PACK, &[("discounts[0][coupon]", "LOCALFREE")]).await;
        stripe.complete(&debit, "card").await;
        let debit = stripe.session("payment", PACK, &[("customer_creation", "always")]).await;
        stripe.complete(&debit, "delayed").await;
        stripe.turn(&format!("payments/{}/settle", id(&debit)), json!({ "paid": true })).await;
        let refunded = stripe.charge().await;
        let refund = stripe.post("/v1/refunds", &[("charge", id(&refunded)), ("amount", "200")]).await;
        stripe.turn(&format!("refunds/{}/fail", id(&refund)), json!({})).await;
        let disputed = stripe.charge().await;
        let dispute = stripe.turn(&format!("charges/{}/dispute", id(&disputed)), json!({})).await;
        stripe.turn(&format!("disputes/{}/close", id(&dispute)), json!({ "won": true })).await;
        run("node", "shapes.mjs", &stripe).await;
    }
}
