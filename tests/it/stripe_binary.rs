//! Stripe's webhooks at the real program, and `bottle check` on what came of them.

use serde_json::{Value, json};

use crate::local_stripe::{self, KEY, PACK, PRO, SECRET, Stripe};
use crate::support::binary::{Bottle, Home};
use crate::support::db::{TestDb, fresh_db};
use crate::support::deliveries::{count, settled};
use crate::support::till::{event, now_secs, signature};

async fn post(bottle: &Bottle, header: &str, body: &Value) -> (u16, String) {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("http://{}/webhooks/stripe", bottle.addr());
    let answer = http.post(url).header("stripe-signature", header).body(body.to_string()).send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

async fn deliver(bottle: &Bottle, event: &Value) -> (u16, String) {
    post(bottle, &signature(SECRET, now_secs(), event.to_string().as_bytes()), event).await
}

async fn stored(db: &TestDb) -> i64 {
    count(&db.pool().await, "select (select count(*) from inbox_events) + (select count(*) from receipts)").await
}

#[tokio::test]
async fn a_bad_signature_is_400_and_nothing_a_copy_one_write_an_unknown_type_200() {
    let (home, db, stripe) = (Home::new(), fresh_db().await, Stripe::begin(local_stripe::settings()).await);
    let (url, api) = (db.url(), stripe.url());
    let settings = [
        ("DATABASE_URL", url.as_str()),
        ("STRIPE_SECRET_KEY", KEY),
        ("STRIPE_WEBHOOK_SECRET", SECRET),
        ("STRIPE_PRICE_PRO", PRO),
        ("STRIPE_PRICE_PACK", PACK),
        ("STRIPE_API_BASE", api.as_str()),
    ];
    let bottle = home.start(&["serve"], &settings).await;

    let marks = [("client_reference_id", "kp_ada"), ("metadata[bottle_user]", "kp_ada"), ("metadata[bottle_tenant]", "local")];
    let session = stripe.session("payment", PACK, &[&marks[..], &[("customer_creation", "always")]].concat()).await;
    stripe.complete(&session, "card").await;
    let paid = event("evt_paid", "checkout.session.completed", session["id"].as_str().unwrap());

    for header in ["", "t=1,v1=00", &signature("whsec_other", now_secs(), paid.to_string().as_bytes())] {
        let (status, answer) = post(&bottle, header, &paid).await;
        assert_eq!((status, answer.as_str()), (400, r#"{"error":"not genuine; nothing was stored"}"#));
    }
    let old = signature(SECRET, now_secs() - 301, paid.to_string().as_bytes());
    assert_eq!(post(&bottle, &old, &paid).await.0, 400);
    assert_eq!(stored(&db).await, 0);

    assert_eq!(deliver(&bottle, &paid).await, (200, r#"{"event":"evt_paid","copy":false}"#.to_owned()));
    settled(&db.pool().await).await;
    assert_eq!(deliver(&bottle, &paid).await, (200, r#"{"event":"evt_paid","copy":true}"#.to_owned()));
    settled(&db.pool().await).await;
    let pool = db.pool().await;
    assert_eq!(count(&pool, "select count(*) from money_ledger").await, 1);
    assert_eq!(count(&pool, "select count(*) from ledger where reason = 'pack'").await, 1);
    assert_eq!(count(&pool, "select count(*) from event_runs").await, 1, "the copy ran nothing");

    let unknown = event("evt_unknown", "treasury.unheard_of", "trs_1234");
    assert_eq!(deliver(&bottle, &unknown).await.0, 200);
    settled(&pool).await;
    assert_eq!(count(&pool, "select count(*) from inbox_events where status = 'ignored'").await, 1);

    let said = home.run(&["check"], &settings).await;
    assert_eq!(
        (said.code, said.out.as_str()),
        (Some(0), "1 account checked.\nPlans, bottles and money are what the facts give.\n")
    );
    sqlx::query("update accounts set plan = 'pro'").execute(&pool).await.unwrap();
    let said = home.run(&["check"], &settings).await;
    assert_eq!(said.code, Some(1));
    assert!(
        said.out.contains("The first: account ") && said.out.contains("plan: stored is pro, the facts give free"),
        "{said:?}"
    );
}

#[tokio::test]
async fn without_stripes_settings_its_endpoint_says_501_and_with_half_of_them_nothing_starts() {
    let (home, db) = (Home::new(), fresh_db().await);
    let url = db.url();
    let bottle = home.start(&["serve"], &[("DATABASE_URL", &url)]).await;
    let paid = event("evt_paid", "checkout.session.completed", "cs_test_1");
    assert_eq!(deliver(&bottle, &paid).await.0, 501);
    assert_eq!(stored(&db).await, 0);
    let said = home.run(&["serve"], &[("DATABASE_URL", &url), ("STRIPE_SECRET_KEY", KEY)]).await;
    assert_eq!(said.code, Some(1));
    assert!(said.complaints().iter().any(|line| line.contains("STRIPE_WEBHOOK_SECRET: is missing")), "{said:?}");
    assert!(!said.err.contains(KEY));
}

/// A Kinde body at Stripe's door and the reverse.
#[tokio::test]
async fn neither_provider_takes_the_others_deliveries() {
    let (home, db, stripe) = (Home::new(), fresh_db().await, Stripe::begin(local_stripe::settings()).await);
    let (url, api) = (db.url(), stripe.url());
    let settings = [
        ("DATABASE_URL", url.as_str()),
        ("STRIPE_SECRET_KEY", KEY),
        ("STRIPE_WEBHOOK_SECRET", SECRET),
        ("STRIPE_PRICE_PRO", PRO),
        ("STRIPE_API_BASE", api.as_str()),
    ];
    let bottle = home.start(&["serve"], &settings).await;
    let body = event("evt_paid", "invoice.paid", "in_1234");
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let header = signature(SECRET, now_secs(), body.to_string().as_bytes());
    let at_kinde = http.post(bottle.webhooks()).header("stripe-signature", &header).body(body.to_string()).send().await.unwrap();
    assert_eq!(at_kinde.status().as_u16(), 401);
    let token = json!("eyJhbGciOiJSUzI1NiJ9.e30.c2ln");
    assert_eq!(deliver(&bottle, &token).await.0, 400, "signed, and still no event");
    assert_eq!(stored(&db).await, 0);
}

#[tokio::test]
async fn the_local_stripe_keeps_its_state_where_this_machines_data_is() {
    let home = Home::new();
    let args = ["local-stripe", "--addr", "127.0.0.1:0"];
    let mut running = Bottle::spawn(home.command(&args, &[("BOTTLE_DATA", "elsewhere")]));
    while !running.said().contains("STRIPE_PRICE_PACK=") {
        assert!(running.is_running(), "{}", running.log());
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(home.path().join("elsewhere/local-stripe/local-stripe.json").is_file());
    assert!(!home.path().join(".bottle").exists());
    running.killed().await;
}
