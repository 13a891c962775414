//! What can be bought from the account page, the way to it, and the page people come back to: the real router, and a local Stripe.

use std::collections::BTreeSet;

use bottle::checkouts;
use bottle::providers::Provider;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::local_stripe::{self, PACK, SECRET, Stripe};
use crate::support::app::{Answer, App, Event, Setup, SignedIn, answer, eventually};
use crate::support::till::{arm, now_secs, signature};

/// An application with a Stripe beside its Kinde, and its own posts not followed to where they lead.
struct Shop {
    app: App,
    stripe: Stripe,
    delivered: BTreeSet<String>,
}

impl Shop {
    async fn open() -> Self {
        let stripe = Stripe::begin(local_stripe::settings()).await;
        let setup = Setup { stripe: Some(Provider::Stripe(arm(&stripe.url()))), worker: true, ..Setup::default() };
        Self::of(setup, stripe).await
    }

    async fn of(setup: Setup, stripe: Stripe) -> Self {
        let mut app = setup.start().await;
        app.http = local_stripe::client();
        Self { app, stripe, delivered: BTreeSet::new() }
    }

    async fn buy(&self, who: &SignedIn, ware: &str, intent: Uuid) -> Answer {
        let form = [("provider", "stripe"), ("ware", ware), ("intent", &intent.to_string())];
        self.app.post_as(who, "/account/checkout", &form).await
    }

    /// On the way to Stripe: the session, and the page of ours to which it leads back.
    async fn sets_out(&self, who: &SignedIn, ware: &str) -> (Value, String) {
        let to = self.buy(who, ware, Uuid::new_v4()).await.leads_to();
        let session = self.session(&to).await;
        let done = session["success_url"].as_str().unwrap().strip_prefix(&self.app.url("")).unwrap().to_owned();
        (session, done)
    }

    async fn session(&self, address: &str) -> Value {
        assert!(address.starts_with(&self.stripe.url()), "{address}");
        self.stripe.get(&format!("/v1/checkout/sessions/{}", address.rsplit_once('/').unwrap().1), &[]).await
    }

    /// All that Stripe has to tell by now, in its order, and what comes of it.
    async fn hears(&mut self) {
        let news = self.stripe.get("/v1/events", &[("limit", "100")]).await;
        for event in news["data"].as_array().unwrap().iter().rev() {
            if self.delivered.insert(local_stripe::id(event).to_owned()) {
                let body = event.to_string();
                let post = self.app.http.post(self.app.url("/webhooks/stripe"));
                let signed = post.header("stripe-signature", signature(SECRET, now_secs(), body.as_bytes()));
                assert_eq!(answer(signed.body(body)).await.status, 200);
            }
        }
        self.app.worked_off().await;
    }

    async fn made(&self) -> i64 {
        let calls = self.stripe.look("calls").await;
        calls["paths"]["POST /v1/checkout/sessions"].as_i64().unwrap_or(0)
    }

    /// The next checkout that Stripe is asked for goes this way.
    async fn makes_slowly(&self, mut how: Value) {
        how["path"] = json!("/v1/checkout/sessions");
        how["method"] = json!("POST");
        self.stripe.turn("faults", how).await;
    }

    /// Checkouts that can be paid, as Stripe has them.
    async fn payable(&self) -> usize {
        let open = self.stripe.get("/v1/checkout/sessions", &[("status", "open"), ("limit", "100")]).await;
        open["data"].as_array().unwrap().len()
    }

    /// Checkouts that are not over, as we have them.
    async fn open_rows(&self) -> i64 {
        sqlx::query_scalar("select count(*) from checkouts where ended_at is null").fetch_one(&self.app.pool).await.unwrap()
    }

    async fn is_noted(&self) {
        eventually("the click is noted", async || self.open_rows().await == 1).await;
    }

    async fn does(&self, sql: &'static str) {
        sqlx::query(sql).execute(&self.app.pool).await.unwrap();
    }
}

#[track_caller]
fn says(page: &Answer, words: &[&str]) {
    for word in words {
        assert!(page.text.contains(word), "the page does not say `{word}`:\n{}", page.text);
    }
}

#[tokio::test]
async fn what_is_offered_is_what_each_provider_sells_and_pro_is_never_offered_twice() {
    // With Kinde alone there is its plan, and nothing to choose.
    let app = App::start().await;
    let ada = app.sign_in("kp_ada").await;
    let page = app.get_as(&ada, "/account").await;
    says(&page, &[">Upgrade to Pro</a>", "Manage billing at Kinde", "What Kinde tells us carries no amounts"]);
    assert!(!page.text.contains("Stripe") && !page.text.contains("/account/checkout"), "{}", page.text);

    // With Stripe alone it is Stripe's.
    let stripe = Stripe::begin(local_stripe::settings()).await;
    let alone = Setup { jwks: None, stripe: Some(Provider::Stripe(arm(&stripe.url()))), ..Setup::default() };
    let shop = Shop::of(alone, stripe).await;
    let page = shop.app.get_as(&shop.app.sign_in("kp_ada").await, "/account").await;
    says(&page, &[">Upgrade to Pro</button>", ">Buy a pack of 100 bottles</button>"]);
    assert!(!page.text.contains("Kinde"), "{}", page.text);
    assert!(!page.text.contains("Manage billing"), "there is nothing to manage yet");

    // With both there is a choice, and it says so.
    let mut shop = Shop::open().await;
    let ada = shop.app.sign_in("kp_ada").await;
    let page = shop.app.get_as(&ada, "/account").await;
    says(
        &page,
        &[
            ">Upgrade to Pro at Kinde</a>",
            ">Upgrade to Pro at Stripe</button>",
            "Pro gives you the same at Kinde and at Stripe, at the price that they ask: choose one.",
        ],
    );
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains(&format!("form-action 'self' {}", shop.stripe.url())), "{policy}");

    let (session, _) = shop.sets_out(&ada, "pro").await;
    shop.stripe.complete(&session, "card").await;
    shop.hears().await;
    let page = shop.app.get_as(&ada, "/account").await;
    says(&page, &["<h2 id=\"plan-h\">Pro</h2>", "You have Pro through Stripe.", "Manage billing at Stripe"]);
    assert!(!page.text.contains("Upgrade to Pro"), "{}", page.text);
    let again = shop.buy(&ada, "pro", Uuid::new_v4()).await;
    assert_eq!(again.status, 409);
    says(&again, &["You have Pro already", "Nothing was bought"]);
    assert_eq!(shop.made().await, 1, "Stripe was not even asked");

    // Who has it twice is told so.
    shop.app.deliver(Event::upgrade("kp_ada", "2026-10-21T10:00:00Z").token).await;
    shop.app.worked_off().await;
    says(&shop.app.get_as(&ada, "/account").await, &["You have Pro at Kinde and at Stripe, and pay for it at each."]);
}

#[tokio::test]
async fn a_double_click_is_one_checkout_and_pro_has_one_open_checkout_in_every_tab() {
    let shop = Shop::open().await;
    let ada = shop.app.sign_in("kp_ada").await;
    let click = Uuid::new_v4();
    let all = futures_util::future::join_all((0..6).map(|_| shop.buy(&ada, "pack", click))).await;
    let to: BTreeSet<String> = all.iter().map(Answer::leads_to).collect();
    assert_eq!((to.len(), shop.made().await), (1, 1), "{to:?}");
    let other_pack = shop.buy(&ada, "pack", Uuid::new_v4()).await.leads_to();
    assert!(!to.contains(&other_pack), "another click is another pack");

    let tabs = futures_util::future::join_all((0..6).map(|_| shop.buy(&ada, "pro", Uuid::new_v4()))).await;
    let to: BTreeSet<String> = tabs.iter().map(Answer::leads_to).collect();
    assert_eq!((to.len(), shop.made().await), (1, 3), "{to:?}");
    let session = shop.session(to.first().unwrap()).await;
    assert_eq!(
        (session["client_reference_id"].as_str(), session["customer_email"].as_str()),
        (Some("kp_ada"), Some("kp_ada@example.com"))
    );

    // Paid, and Stripe's word is not here yet: there is nothing to pay again, and the page to wait on is where it leads.
    shop.stripe.complete(&session, "card").await;
    let done = session["success_url"].as_str().unwrap().strip_prefix(&shop.app.url("")).unwrap();
    assert_eq!(shop.buy(&ada, "pro", Uuid::new_v4()).await.leads_to(), done);
    assert_eq!(shop.made().await, 3);

    // Another person's click is none of ours, whatever its key.
    let bob = shop.app.sign_in("kp_bob").await;
    assert_eq!(shop.buy(&bob, "pack", click).await.status, 400);
    let once = Uuid::new_v4();
    shop.buy(&bob, "pack", once).await.leads_to();
    assert_eq!(shop.buy(&bob, "pro", once).await.status, 400, "one key is for one thing");
}

#[tokio::test]
async fn a_second_click_on_a_slow_stripe_ends_nothing() {
    let shop = Shop::open().await;
    let ada = shop.app.sign_in("kp_ada").await;
    let click = Uuid::new_v4();
    // Longer than the second click waits, and not as long as Stripe is waited for.
    shop.makes_slowly(json!({"slow_ms": 4_500})).await;
    let second = async {
        shop.is_noted().await;
        shop.buy(&ada, "pro", click).await
    };
    let (first, second) = tokio::join!(shop.buy(&ada, "pro", click), second);
    let to = first.leads_to();
    // A machine that is busy may wake it when the first one has its way already.
    if second.status == 503 {
        assert_eq!(second.headers["retry-after"], "5");
        says(&second, &["Stripe has not answered yet", "nothing was charged"]);
    } else {
        assert_eq!(second.leads_to(), to);
    }
    for intent in [click, Uuid::new_v4()] {
        assert_eq!(shop.buy(&ada, "pro", intent).await.leads_to(), to);
    }
    assert_eq!((shop.made().await, shop.payable().await, shop.open_rows().await), (1, 1, 1));
}

#[tokio::test]
async fn clicks_beside_one_that_fails_lead_to_no_second_checkout() {
    let shop = Shop::open().await;
    let ada = shop.app.sign_in("kp_ada").await;
    // It is made, and the answer is lost.
    shop.makes_slowly(json!({"slow_ms": 1_000, "status": 503, "done": true})).await;
    let second = async {
        shop.is_noted().await;
        shop.buy(&ada, "pro", Uuid::new_v4()).await
    };
    let (first, second) = tokio::join!(shop.buy(&ada, "pro", Uuid::new_v4()), second);
    assert_eq!((first.status, second.status), (503, 503), "Stripe is away to both");
    assert_eq!(shop.open_rows().await, 0, "the next click begins anew");
    tokio::time::sleep(std::time::Duration::from_millis(5_100)).await;
    let tabs = futures_util::future::join_all((0..3).map(|_| shop.buy(&ada, "pro", Uuid::new_v4()))).await;
    let to: BTreeSet<String> = tabs.iter().map(Answer::leads_to).collect();
    assert_eq!((to.len(), shop.made().await, shop.open_rows().await), (1, 2, 1), "of two that were made one was shown");
}

#[tokio::test]
async fn a_checkout_that_is_made_after_it_was_given_up_is_shown_to_nobody() {
    let shop = Shop::open().await;
    let ada = shop.app.sign_in("kp_ada").await;
    shop.makes_slowly(json!({"slow_ms": 1_000})).await;
    let meanwhile = async {
        shop.is_noted().await;
        shop.does("update checkouts set ended_at = now()").await;
    };
    let (late, ()) = tokio::join!(shop.buy(&ada, "pro", Uuid::new_v4()), meanwhile);
    assert_eq!(late.status, 503);
    let to = shop.buy(&ada, "pro", Uuid::new_v4()).await.leads_to();
    let session = shop.session(&to).await;
    let written: String =
        sqlx::query_scalar("select reference from checkouts where ended_at is null").fetch_one(&shop.app.pool).await.unwrap();
    assert_eq!((session["status"].as_str(), session["id"].as_str()), (Some("open"), Some(written.as_str())));

    // Whoever was making one has died with it, a minute ago: nobody has to wait for that longer.
    shop.does("update checkouts set reference = null, begun_at = now() - interval '61 seconds' where ended_at is null").await;
    assert_ne!(shop.buy(&ada, "pro", Uuid::new_v4()).await.leads_to(), to);
    assert_eq!(shop.open_rows().await, 1);
}

#[tokio::test]
async fn of_packs_that_nobody_paid_there_are_five_and_a_sixth_click_leads_to_the_newest() {
    let mut shop = Shop::open().await;
    let ada = shop.app.sign_in("kp_ada").await;
    let clicks: Vec<Uuid> = (0..5).map(|_| Uuid::new_v4()).collect();
    let mut to = Vec::new();
    for click in &clicks {
        to.push(shop.buy(&ada, "pack", *click).await.leads_to());
    }
    assert_eq!(to.iter().collect::<BTreeSet<_>>().len(), 5);
    for _ in 0..3 {
        assert_eq!(shop.buy(&ada, "pack", Uuid::new_v4()).await.leads_to(), to[4]);
    }
    assert_eq!(shop.buy(&ada, "pack", clicks[1]).await.leads_to(), to[1], "a click that had its own has it still");
    assert_eq!((shop.made().await, shop.payable().await), (5, 5));
    let bob = shop.app.sign_in("kp_bob").await;
    assert!(!to.contains(&shop.buy(&bob, "pack", Uuid::new_v4()).await.leads_to()), "Bob's packs are his own affair");

    // Whoever pays can buy as many as they like.
    let session = shop.session(&to[4]).await;
    shop.stripe.complete(&session, "card").await;
    shop.hears().await;
    let next = shop.buy(&ada, "pack", Uuid::new_v4()).await.leads_to();
    assert!(!to.contains(&next), "{next}");
    assert_eq!(shop.buy(&ada, "pack", Uuid::new_v4()).await.leads_to(), next);
}

#[tokio::test]
async fn checkouts_that_came_to_nothing_are_forgotten_and_a_pack_that_was_bought_keeps_its_page() {
    let mut shop = Shop::open().await;
    let ada = shop.app.sign_in("kp_ada").await;
    let (session, bought) = shop.sets_out(&ada, "pack").await;
    shop.stripe.complete(&session, "card").await;
    shop.hears().await;
    let (_, wished) = shop.sets_out(&ada, "pack").await;
    let mut conn = shop.app.pool.acquire().await.unwrap();
    shop.does("update checkouts set begun_at = now() - interval '89 days'").await;
    assert_eq!(checkouts::prune(&mut conn).await.unwrap(), 0);
    shop.does("update checkouts set begun_at = now() - interval '91 days'").await;
    assert_eq!(checkouts::prune(&mut conn).await.unwrap(), 1);
    assert_eq!(shop.app.get_as(&ada, &wished).await.status, 404);
    says(&shop.app.get_as(&ada, &bought).await, &["100 bottles were added"]);

    let (_, ended) = shop.sets_out(&ada, "pro").await;
    shop.does("update checkouts set ended_at = now() - interval '6 days' where ware = 'pro'").await;
    assert_eq!(checkouts::prune(&mut conn).await.unwrap(), 0);
    assert_eq!(shop.app.get_as(&ada, &ended).await.status, 200);
    shop.does("update checkouts set ended_at = now() - interval '8 days' where ware = 'pro'").await;
    assert_eq!(checkouts::prune(&mut conn).await.unwrap(), 1);
    assert_eq!(checkouts::prune(&mut conn).await.unwrap(), 0);
}

#[tokio::test]
async fn a_checkout_that_nobody_paid_in_its_day_is_followed_by_another() {
    let shop = Shop::open().await;
    let ada = shop.app.sign_in("kp_ada").await;
    let click = Uuid::new_v4();
    let first = shop.buy(&ada, "pro", click).await.leads_to();
    let session = shop.session(&first).await;
    shop.stripe.post(&format!("/v1/checkout/sessions/{}/expire", local_stripe::id(&session)), &[]).await;
    let second = shop.buy(&ada, "pro", click).await.leads_to();
    assert_ne!(first, second, "also by the very form that led to the first");
    assert_eq!(shop.session(&second).await["status"], "open");
    assert_eq!(shop.buy(&ada, "pro", Uuid::new_v4()).await.leads_to(), second);
}

#[tokio::test]
async fn a_customer_who_was_deleted_at_stripe_buys_as_somebody_new() {
    let mut shop = Shop::open().await;
    let ada = shop.app.sign_in("kp_ada").await;
    let (session, _) = shop.sets_out(&ada, "pack").await;
    let paid = shop.stripe.complete(&session, "card").await;
    shop.hears().await;
    let (session, _) = shop.sets_out(&ada, "pack").await;
    assert_eq!(session["customer"], paid["customer"], "known by now");
    shop.stripe.turn(&format!("customers/{}/delete", paid["customer"].as_str().unwrap()), json!({})).await;
    let (session, _) = shop.sets_out(&ada, "pack").await;
    assert!(session["customer"].is_null(), "{session}");
    assert_eq!(session["customer_email"], "kp_ada@example.com");
}

#[tokio::test]
async fn every_way_that_is_closed_has_its_page_and_loses_nothing() {
    let shop = Shop::open().await;
    let ada = shop.app.sign_in("kp_ada").await;
    let portal = async |who: &SignedIn, provider: &str| {
        let intent = Uuid::new_v4().to_string();
        shop.app.post_as(who, "/account/portal", &[("provider", provider), ("intent", &intent)]).await
    };
    let unknown = portal(&ada, "stripe").await;
    assert_eq!(unknown.status, 409);
    says(&unknown, &["Stripe does not know you yet", "Back to your account"]);
    assert_eq!(portal(&ada, "kinde").await.leads_to(), "/account/billing", "its door is its own");

    let click = Uuid::new_v4();
    shop.stripe.turn("faults", json!({"path": "/v1/checkout/sessions", "status": 503, "times": 1})).await;
    let away = shop.buy(&ada, "pack", click).await;
    assert_eq!((away.status, away.headers["retry-after"].to_str().unwrap()), (503, "5"));
    says(&away, &["Stripe cannot be reached just now", "nothing was charged"]);
    let resting = shop.buy(&ada, "pack", click).await;
    assert_eq!(resting.status, 503, "it is left in peace for some seconds");
    tokio::time::sleep(std::time::Duration::from_millis(5_100)).await;
    assert!(shop.buy(&ada, "pack", click).await.leads_to().starts_with(&shop.stripe.url()), "the same form works once it can");

    // Kinde sells no packs, and Stripe's page is not Kinde's.
    let fields = |provider: &'static str, ware: &'static str| {
        [("provider", provider), ("ware", ware), ("intent", "6f1c0000-0000-4000-8000-000000000001")]
    };
    let pack_at_kinde = shop.app.post_as(&ada, "/account/checkout", &fields("kinde", "pack")).await;
    assert_eq!(pack_at_kinde.status, 409);
    says(&pack_at_kinde, &["This is not sold here"]);
    let pro_at_kinde = shop.app.post_as(&ada, "/account/checkout", &fields("kinde", "pro")).await;
    assert_eq!(pro_at_kinde.leads_to(), "/login?plan=pro&return_to=/account");
    for odd in [fields("paddle", "pro"), fields("stripe", "gold"), fields("", "")] {
        assert_eq!(shop.app.post_as(&ada, "/account/checkout", &odd).await.status, 400, "{odd:?}");
    }
    let no_key = [("provider", "stripe"), ("ware", "pro"), ("intent", "1")];
    assert_eq!(shop.app.post_as(&ada, "/account/checkout", &no_key).await.status, 400);
    let foreign = shop
        .app
        .http
        .post(shop.app.url("/account/checkout"))
        .header("cookie", &ada.cookie)
        .header("origin", "https://evil.example");
    assert_eq!(answer(foreign.form(&fields("stripe", "pack"))).await.status, 403, "no other site buys in their name");
    let nobody = shop.app.http.post(shop.app.url("/account/checkout")).header("origin", shop.app.url(""));
    assert_eq!(answer(nobody.form(&fields("stripe", "pack"))).await.status, 401);
    assert_eq!(shop.open_rows().await, 1, "what led nowhere is over");
}

#[tokio::test]
async fn a_stripe_that_refuses_or_leads_elsewhere_is_said_to_whoever_runs_this() {
    for (answers, heading) in [
        (
            json!({"id": "cs_test_evil", "mode": "payment", "payment_status": "unpaid", "created": 1, "status": "open", "url": "https://stripe.com.evil.example/pay"}),
            "What came back is no page of Stripe’s",
        ),
        (
            json!({"error": {"type": "invalid_request_error", "code": "resource_missing", "param": "line_items[0][price]", "message": "No such price"}}),
            "Stripe did not take this",
        ),
    ] {
        let status = if answers["error"].is_null() { 200_u16 } else { 400 };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let said = answers.clone();
        let fake = axum::Router::new()
            .fallback(move || std::future::ready((axum::http::StatusCode::from_u16(status).unwrap(), axum::Json(said.clone()))));
        tokio::spawn(async move { axum::serve(listener, fake).await });
        let app = Setup { stripe: Some(Provider::Stripe(arm(&url))), ..Setup::default() }.start().await;
        let ada = app.sign_in("kp_ada").await;
        let form = [("provider", "stripe"), ("ware", "pack"), ("intent", "6f1c0000-0000-4000-8000-000000000001")];
        let page = app.post_as(&ada, "/account/checkout", &form).await;
        assert_eq!(page.status, 502, "{answers}");
        says(&page, &[heading, "Nothing was bought and nothing was charged"]);
        assert!(!page.text.contains("evil.example"), "{}", page.text);
    }
}

#[tokio::test]
async fn the_page_one_comes_back_to_waits_for_stripes_word_and_believes_nothing_else() {
    let mut shop = Shop::open().await;
    let (ada, bob) = (shop.app.sign_in("kp_ada").await, shop.app.sign_in("kp_bob").await);
    let (session, done) = shop.sets_out(&ada, "pro").await;
    let before = shop.app.everything().await;
    for address in [done.clone(), format!("{done}?paid=true&status=complete&session_id={}", local_stripe::id(&session))] {
        let page = shop.app.get_as(&ada, &address).await;
        says(
            &page,
            &[
                "We are waiting for Stripe’s word",
                "You set out to buy Pro",
                "<noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript>",
            ],
        );
    }
    assert_eq!(shop.app.everything().await, before, "looking at it writes nothing");
    assert_eq!(shop.app.get_as(&bob, &done).await.status, 404, "it is Ada's");
    let upper = done.rsplit_once('/').unwrap();
    for nothing in [
        format!("{}/{}", upper.0, upper.1.to_uppercase()),
        "/account/checkout/x".to_owned(),
        format!("/account/checkout/{}", Uuid::new_v4()),
    ] {
        assert_eq!(shop.app.get_as(&ada, &nothing).await.status, 404, "{nothing}");
    }
    // The plan is had otherwise meanwhile: that is no word about this checkout.
    shop.app.deliver(Event::upgrade("kp_ada", "2026-10-21T10:00:00Z").token).await;
    shop.app.worked_off().await;
    says(&shop.app.get_as(&ada, &done).await, &["We are waiting for Stripe’s word"]);

    shop.stripe.complete(&session, "card").await;
    shop.hears().await;
    let page = shop.app.get_as(&ada, &done).await;
    says(&page, &["You are on Pro", "Bought"]);
    assert!(!page.text.contains("http-equiv"), "there is nothing to wait for any more");
    says(&shop.app.get_as(&bob, "/account").await, &["<h2 id=\"plan-h\">Free</h2>"]);
}

#[tokio::test]
async fn a_payment_that_takes_days_says_so_and_then_what_came_of_it() {
    let mut shop = Shop::open().await;
    let ada = shop.app.sign_in("kp_ada").await;
    for (ware, paid, heading) in [
        ("pack", true, "100 bottles were added"),
        ("pack", false, "The payment did not come"),
        ("pro", false, "The payment did not come"),
        ("pro", true, "You are on Pro"),
    ] {
        let (session, done) = shop.sets_out(&ada, ware).await;
        shop.stripe.complete(&session, "delayed").await;
        shop.hears().await;
        let page = shop.app.get_as(&ada, &done).await;
        says(&page, &["Stripe waits for your bank", "takes the bank some days"]);
        assert!(!page.text.contains("http-equiv"), "nobody reloads a page for days");
        shop.stripe.turn(&format!("payments/{}/settle", local_stripe::id(&session)), json!({ "paid": paid })).await;
        shop.hears().await;
        says(&shop.app.get_as(&ada, &done).await, &[heading]);
    }
    // Who ends Pro on the day they bought it, and wants it again, buys it anew.
    let (first, _) = shop.sets_out(&shop.app.sign_in("kp_bob").await, "pro").await;
    let bob = shop.app.sign_in("kp_bob").await;
    let paid = shop.stripe.complete(&first, "card").await;
    shop.hears().await;
    shop.stripe
        .call(reqwest::Method::DELETE, &format!("/v1/subscriptions/{}", paid["subscription"].as_str().unwrap()), &[])
        .await;
    shop.hears().await;
    let (second, _) = shop.sets_out(&bob, "pro").await;
    assert_ne!(first["id"], second["id"]);
}

#[tokio::test]
async fn an_account_says_that_something_may_be_paid_until_word_of_it_comes() {
    let mut shop = Shop::open().await;
    let (ada, bob) = (shop.app.sign_in("kp_ada").await, shop.app.sign_in("kp_bob").await);
    let (session, done) = shop.sets_out(&ada, "pro").await;
    let told = "You set out to buy Pro at Stripe.";
    says(&shop.app.get_as(&ada, "/account").await, &[told, &format!("href=\"{done}\"")]);
    assert!(!shop.app.get_as(&bob, "/account").await.text.contains("You set out"), "it is Ada's");
    shop.stripe.complete(&session, "card").await;
    says(&shop.app.get_as(&ada, "/account").await, &[told]);
    shop.hears().await;
    assert!(!shop.app.get_as(&ada, "/account").await.text.contains("You set out"), "it came");
}

#[tokio::test]
async fn who_turns_back_is_told_that_nothing_was_bought_and_only_while_that_is_so() {
    let mut shop = Shop::open().await;
    let (ada, bob) = (shop.app.sign_in("kp_ada").await, shop.app.sign_in("kp_bob").await);
    let (session, _) = shop.sets_out(&ada, "pack").await;
    let back = session["cancel_url"].as_str().unwrap().strip_prefix(&shop.app.url("")).unwrap().to_owned();
    says(
        &shop.app.get_as(&ada, &back).await,
        &["You came back from Stripe without paying.", "choose a pack of 100 bottles again"],
    );
    assert!(!shop.app.get_as(&bob, &back).await.text.contains("without paying"), "it is Ada's");
    shop.stripe.complete(&session, "card").await;
    shop.hears().await;
    assert!(!shop.app.get_as(&ada, &back).await.text.contains("without paying"));
}

/// The portal's own buttons are the local Stripe's tests' affair.
#[tokio::test]
async fn who_bought_something_gets_to_stripes_portal_and_back() {
    let mut shop = Shop::open().await;
    let ada = shop.app.sign_in("kp_ada").await;
    let session = shop.stripe.session("payment", PACK, &[]).await;
    assert!(session["id"].is_string());
    let (session, _) = shop.sets_out(&ada, "pack").await;
    shop.stripe.complete(&session, "card").await;
    shop.hears().await;
    let intent = Uuid::new_v4().to_string();
    let to = shop.app.post_as(&ada, "/account/portal", &[("provider", "stripe"), ("intent", &intent)]).await.leads_to();
    assert!(to.starts_with(&shop.stripe.url()), "{to}");
    let page = answer(shop.app.http.get(&to)).await;
    assert!(page.text.contains(&shop.app.url("/account")), "{}", page.text);
    // Stripe's address is good for minutes, and a page of ours may be open for longer.
    let again = shop.app.post_as(&ada, "/account/portal", &[("provider", "stripe"), ("intent", &intent)]).await.leads_to();
    assert_ne!(to, again);
}
