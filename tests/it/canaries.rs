//! Canaries: every secret, token, cookie, payload and letter that the real program handles is a word that can be recognised, and
//! at the most talkative of logs none of them may be found where somebody else could read it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::redirect::Policy;
use rustix::process::Signal;
use serde_json::json;

use crate::local_stripe::{self, PACK, PRO, Stripe};
use crate::support::binary::{Bottle, Home};
use crate::support::collector::Collector;
use crate::support::db::fresh_db;
use crate::support::deliveries::{Event, count, settled};
use crate::support::exposition::{address, text_at};
use crate::support::fake_kinde::{CLIENT_ID, CLIENT_SECRET, FakeKinde, Trouble, person};
use crate::support::smtp::Smtp;
use crate::support::till::{event, now_secs, signature};
use crate::support::tokens::STRANGER;
use crate::support::writer::{Fields, between, hidden};

/// What a browser keeps and sends, and all that it was shown.
struct Visitor<'a> {
    base: &'a str,
    http: reqwest::Client,
    cookies: Mutex<BTreeMap<String, String>>,
    /// Every value that a cookie ever had.
    kept: Mutex<Vec<String>>,
}

struct Page {
    status: u16,
    location: String,
    text: String,
}

impl<'a> Visitor<'a> {
    fn new(base: &'a str) -> Self {
        let http = reqwest::Client::builder().no_proxy().redirect(Policy::none()).build().unwrap();
        Self { base, http, cookies: Mutex::default(), kept: Mutex::default() }
    }

    fn whole(&self, place: &str) -> String {
        if place.starts_with('/') { format!("{}{place}", self.base) } else { place.to_owned() }
    }

    async fn get(&self, place: &str) -> Page {
        self.send(self.http.get(self.whole(place)), place).await
    }

    async fn post(&self, place: &str, form: &[(&str, &str)]) -> Page {
        self.send(self.http.post(self.whole(place)).header("origin", self.base).form(form), place).await
    }

    async fn send(&self, request: reqwest::RequestBuilder, place: &str) -> Page {
        let ours = self.whole(place).starts_with(self.base);
        let cookies: Vec<String> = self.cookies.lock().unwrap().iter().map(|(name, value)| format!("{name}={value}")).collect();
        let request = if ours { request.header("cookie", cookies.join("; ")) } else { request };
        let response = request.send().await.unwrap();
        for set in response.headers().get_all("set-cookie").into_iter().filter(|_| ours) {
            let (name, value) = set.to_str().unwrap().split(';').next().unwrap().split_once('=').unwrap();
            self.cookies.lock().unwrap().insert(name.to_owned(), value.to_owned());
            if value.len() > 8 {
                self.kept.lock().unwrap().push(value.to_owned());
            }
        }
        let location = response.headers().get("location").map(|to| to.to_str().unwrap().to_owned()).unwrap_or_default();
        Page { status: response.status().as_u16(), location, text: response.text().await.unwrap() }
    }
}

/// Takes alerts, the first of them with an error, and keeps what came with them.
async fn hook() -> (String, Arc<Mutex<Vec<String>>>) {
    let signatures = Arc::new(Mutex::new(Vec::new()));
    let app = Router::new().route("/canary-alert-path", post(take)).with_state(Arc::clone(&signatures));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/canary-alert-path?token=canary-alert-token", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    (url, signatures)
}

async fn take(State(signatures): State<Arc<Mutex<Vec<String>>>>, headers: HeaderMap) -> StatusCode {
    let mut signatures = signatures.lock().unwrap();
    signatures.push(headers["webhook-signature"].to_str().unwrap().to_owned());
    if signatures.len() == 1 { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK }
}

/// Everything that is secret, and everything that somebody else may read.
#[derive(Default)]
struct Aviary {
    canaries: Vec<String>,
    /// By name, so that a find says where.
    air: Vec<(String, String)>,
}

impl Aviary {
    fn keep(&mut self, canary: impl Into<String>) {
        let canary = canary.into();
        assert!(canary.len() >= 12, "`{canary}` could be found by chance");
        self.canaries.push(canary);
    }

    fn hear(&mut self, name: &str, text: impl Into<String>) {
        self.air.push((name.to_owned(), text.into()));
    }

    fn is_silent(&self) {
        let mut found = Vec::new();
        for (name, text) in &self.air {
            for canary in &self.canaries {
                let escaped = reqwest::Url::parse_with_params("http://x", [("x", canary)]).unwrap();
                let escaped = escaped.query().unwrap().trim_start_matches("x=").to_owned();
                for written in [canary, &escaped] {
                    if let Some(at) = text.find(written.as_str()) {
                        let from = text[..at].char_indices().rev().nth(300).map_or(0, |(n, _)| n);
                        found.push(format!("{name}: `{written}` in …{}", &text[from..at + written.len()]));
                    }
                }
            }
        }
        found.dedup();
        assert!(found.is_empty(), "{} finds:\n{}", found.len(), found.join("\n\n"));
    }
}

const DB_PASSWORD: &str = "canary-db-password";
const M2M_SECRET: &str = "canary-m2m-secret-0003";
const SESSION_KEY: &str = "canary-session-key-0123456789abcdefghij";
const STRIPE_KEY: &str = "sk_test_canarykey0004";
const STRIPE_SECRET: &str = "whsec_canarystripe0005";
const SMTP_PASSWORD: &str = "canary-smtp-password";
const OTLP_KEY: &str = "canary-otlp-key-0006";
const LETTER: &str = "canary-letter-text";
const EMAIL: &str = "canary-person@example.com";
const PAYLOAD: &str = "canary-payload-words";

#[tokio::test]
async fn at_the_most_talkative_of_logs_no_secret_is_found_where_somebody_else_may_read() {
    let (home, db, kinde) = (Home::new(), fresh_db().await, FakeKinde::start().await);
    let stripe = Stripe::begin(bottle::local_stripe::server::Settings {
        secret_keys: vec![STRIPE_KEY.to_owned(), local_stripe::KEY.to_owned()],
        webhook_secrets: vec![STRIPE_SECRET.to_owned()],
        ..local_stripe::settings()
    })
    .await;
    let (smtp, collector, (alert_url, alert_signatures)) =
        (Smtp::behind(SMTP_PASSWORD).await, Collector::start().await, hook().await);
    let alert_secret = format!("whsec_{}", BASE64_STANDARD.encode("canary-alert-secret-0123456789ab"));
    let database = db.url().replacen('@', &format!(":{DB_PASSWORD}@"), 1);
    let smtp_url = format!("smtp://canary-smtp-user:{SMTP_PASSWORD}@{}", smtp.addr);
    let (stripe_api, otlp) = (stripe.url(), format!("{}/canary-otlp-path", collector.url()));
    let otlp_headers = format!("authorization=Bearer%20{OTLP_KEY}");
    kinde.inside().who = person("kp_canary", EMAIL);

    let settings = [
        ("BOTTLE_LOG", "trace"),
        ("BOTTLE_METRICS_ADDR", "127.0.0.1:0"),
        ("DATABASE_URL", database.as_str()),
        ("BOTTLE_SESSION_KEY", SESSION_KEY),
        ("KINDE_DOMAIN", kinde.url.as_str()),
        ("KINDE_CLIENT_ID", CLIENT_ID),
        ("KINDE_CLIENT_SECRET", CLIENT_SECRET),
        ("KINDE_M2M_CLIENT_ID", "canary-m2m-id"),
        ("KINDE_M2M_CLIENT_SECRET", M2M_SECRET),
        ("STRIPE_SECRET_KEY", STRIPE_KEY),
        ("STRIPE_WEBHOOK_SECRET", STRIPE_SECRET),
        ("STRIPE_PRICE_PRO", PRO),
        ("STRIPE_PRICE_PACK", PACK),
        ("STRIPE_API_BASE", stripe_api.as_str()),
        ("SMTP_URL", smtp_url.as_str()),
        ("MAIL_FROM", "Bottle <bottle@bottle.example>"),
        ("ALERT_WEBHOOK_URL", alert_url.as_str()),
        ("ALERT_WEBHOOK_SECRET", alert_secret.as_str()),
        ("ALERT_EMAIL", "canary-oncall@example.com"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", otlp.as_str()),
        ("OTEL_EXPORTER_OTLP_HEADERS", otlp_headers.as_str()),
    ];
    let mut aviary = Aviary::default();
    for canary in [DB_PASSWORD, CLIENT_SECRET, M2M_SECRET, SESSION_KEY, STRIPE_KEY, STRIPE_SECRET, SMTP_PASSWORD, OTLP_KEY] {
        aviary.keep(canary);
    }
    for canary in [
        LETTER,
        EMAIL,
        PAYLOAD,
        "canary-alert-token",
        "canary-alert-path",
        "canary-otlp-path",
        "canary-smtp-user",
        "canary-description",
    ] {
        aviary.keep(canary);
    }
    aviary.keep(&alert_secret);
    aviary.keep("canary-alert-secret-0123456789ab");
    aviary.keep(BASE64_STANDARD.encode(format!("\0canary-smtp-user\0{SMTP_PASSWORD}")));
    // Something dead, so that an alert goes out.
    let pool = db.pool().await;
    let dead = "insert into inbox_events (source, dedupe_key, type, digest, received_at, status, due_at)
                values ('bottle', 'dead', 'nothing.known', '', now(), 'dead', now())";
    sqlx::query(dead).execute(&pool).await.unwrap();

    let mut bottle = home.start(&["serve"], &settings).await;
    let base = format!("http://localhost:{}", bottle.addr().port());
    let ada = Visitor::new(&base);
    signs_in_well_and_badly(&ada, &kinde, &mut aviary).await;
    let link = writes_and_subscribes(&ada, &pool).await;
    aviary.keep(between(&link, "/calendar/", ".ics"));
    manages_billing(&ada, &kinde, &mut aviary).await;
    posts_webhooks(&bottle, &stripe, &mut aviary).await;
    settled(&pool).await;
    aviary.keep(letter_went(&pool, &smtp).await);
    for attempt in 0.. {
        // The first was answered with an error and is tried again after ten seconds.
        if alert_signatures.lock().unwrap().len() >= 2 {
            break;
        }
        assert!(attempt < 900, "no alert went out:\n{}", bottle.log());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    for signature in alert_signatures.lock().unwrap().iter() {
        aviary.keep(signature.as_str());
    }
    collector.has("apply", 1).await;

    aviary.hear("metrics", text_at(&address(&bottle).await).await);
    for path in ["/canary-path?canary=1", "/account/events/1", "/account/events/1/payload", "/reminders/1", "/callback?state=x"] {
        let stranger = Visitor::new(&base);
        aviary.hear(path, stranger.get(path).await.text);
    }
    bottle.told(Signal::TERM).await;
    aviary.hear("log", bottle.log());
    aviary.hear("said", bottle.said());
    aviary.hear("spans", String::from_utf8_lossy(&collector.raw()).into_owned());
    assert_eq!(collector.headers()["authorization"], format!("Bearer {OTLP_KEY}"));
    let lines = |level: &str| bottle.log().lines().filter(|line| line.contains(&format!("\"level\":\"{level}\""))).count();
    assert!(lines("TRACE") > 100 && lines("DEBUG") > 100, "it was not talkative: {} {}", lines("TRACE"), lines("DEBUG"));
    aviary.canaries.extend(ada.kept.lock().unwrap().iter().cloned());
    aviary.canaries.extend(kinde.inside().secrets.iter().cloned());
    assert!(aviary.canaries.len() > 30, "{:?}", aviary.canaries);

    what_commands_say(&home, &settings, &mut aviary).await;
    aviary.is_silent();
}

async fn signs_in_well_and_badly(ada: &Visitor<'_>, kinde: &FakeKinde, aviary: &mut Aviary) {
    let come_back = async || {
        let there = ada.get("/login").await.location;
        ada.get(&there).await.location
    };
    // Kinde in trouble, saying what was sent to it; a forged answer; an error with a description; then as it should be.
    let back = come_back().await;
    kinde.inside().trouble = Trouble::Answers(500, "canary-description".to_owned());
    aviary.hear("sign-in, Kinde away", ada.get(&back).await.text);
    kinde.inside().trouble = Trouble::Answers(400, json!({ "error": "canary-description" }).to_string());
    let back = come_back().await;
    aviary.hear("sign-in, odd refusal", ada.get(&back).await.text);
    kinde.inside().trouble = Trouble::None;
    kinde.inside().sign = Box::new(|claims| STRANGER.sign_event(claims));
    let back = come_back().await;
    aviary.hear("sign-in, forged", ada.get(&back).await.text);
    kinde.inside().sign = Box::new(|claims| crate::support::tokens::TENANT.sign_event(claims));
    kinde.inside().error = Some("access_denied");
    let back = come_back().await;
    aviary.hear("sign-in, denied", ada.get(&back).await.text);
    kinde.inside().error = None;

    let back = come_back().await;
    for (name, value) in reqwest::Url::parse(&back).unwrap().query_pairs() {
        if ["code", "state"].contains(&&*name) {
            aviary.keep(value.into_owned());
        }
    }
    let arrived = ada.get(&back).await;
    assert_eq!(arrived.status, 303, "{}", arrived.text);
    aviary.hear("the code once more", ada.get(&back).await.text);
    for asked in &kinde.inside().authorized {
        aviary.keep(asked["nonce"].as_str());
        aviary.keep(asked["code_challenge"].as_str());
    }
    for asked in &kinde.inside().token_requests {
        // Our own program as a customer of the Management API has none.
        asked.get("code_verifier").into_iter().for_each(|verifier| aviary.keep(verifier.as_str()));
    }
}

async fn writes_and_subscribes(ada: &Visitor<'_>, pool: &sqlx::PgPool) -> String {
    let page = ada.get("/reminders").await;
    assert_eq!(page.status, 200, "{}", page.text);
    let fields = Fields::about(LETTER).with("key", hidden(&page.text, "key"));
    let made = ada.post("/reminders", &fields.pairs()).await;
    assert_eq!(made.status, 303, "{}", made.text);
    // One that is refused is shown again, to its writer alone.
    ada.post("/reminders", &Fields::about(LETTER).with("date", "never").pairs()).await;
    sqlx::query("update reminders set due_at = now()").execute(pool).await.unwrap();
    let page = ada.post("/reminders/calendar", &[]).await;
    let link = between(&page.text, "id=\"link\" type=\"text\" value=\"", "\"").to_owned();
    for known in ["", "\"canary-etag-000\""] {
        let feed = ada.http.get(&link).header("if-none-match", known).send().await.unwrap();
        assert_eq!(feed.status(), 200);
    }
    assert_eq!(ada.get(&link.replace(".ics", "x.ics")).await.status, 404);
    link
}

async fn manages_billing(ada: &Visitor<'_>, kinde: &FakeKinde, aviary: &mut Aviary) {
    let page = ada.post("/account/billing", &[]).await;
    assert_eq!(page.status, 303, "{}", page.text);
    aviary.keep("portal?key=one-time");
    kinde.withdraw_access();
    ada.post("/account/billing", &[]).await;
    kinde.withdraw_access();
    kinde.withdraw_refresh();
    aviary.hear("billing, no token", ada.post("/account/billing", &[]).await.text);
}

async fn posts_webhooks(bottle: &Bottle, stripe: &Stripe, aviary: &mut Aviary) {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let moment = time::OffsetDateTime::now_utc() - time::Duration::minutes(5);
    let real = Event::new("plan_changed", "kp_canary", "agreement_1", Some("customer_pro_plan"), moment);
    let with_payload = |claims: &serde_json::Value| {
        let mut claims = claims.clone();
        claims["data"]["note"] = json!(PAYLOAD);
        claims
    };
    let sign = |claims: serde_json::Value| crate::support::tokens::TENANT.sign_event(claims.to_string());
    let good = sign(with_payload(&real.claims));
    good.split('.').skip(1).for_each(|part| aviary.keep(part));
    let mut say = async |path: &str, headers: &[(&str, &str)], body: String| {
        let request = http.post(format!("http://{}{path}", bottle.addr()));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let answer = request.body(body.clone()).send().await.unwrap();
        let status = answer.status().as_u16();
        aviary.hear(&format!("{path}: {status}"), answer.text().await.unwrap());
        if body.len() < 100_000 {
            aviary.keep(body);
        }
        status
    };
    assert_eq!(say("/webhooks/kinde", &[], good.clone()).await, 200);
    assert_eq!(say("/webhooks/kinde", &[], good.clone()).await, 200);
    let mut conflict = with_payload(&real.claims);
    conflict["data"]["plan"]["key"] = json!(PAYLOAD);
    assert_eq!(say("/webhooks/kinde", &[], sign(conflict)).await, 200);
    let mut unreadable = with_payload(&Event::new("plan_changed", "kp_x", "a", None, moment).claims);
    unreadable["data"] = json!([PAYLOAD]);
    say("/webhooks/kinde", &[], sign(unreadable)).await;
    let mut timeless = with_payload(&Event::new("payment_succeeded", "kp_y", "a", None, moment).claims);
    timeless["event_timestamp"] = json!(PAYLOAD);
    assert_eq!(say("/webhooks/kinde", &[], sign(timeless)).await, 200);
    assert_eq!(say("/webhooks/kinde", &[], STRANGER.sign_event(with_payload(&real.claims).to_string())).await, 401);
    assert_eq!(say("/webhooks/kinde", &[], format!("{good}x")).await, 401);
    assert_eq!(say("/webhooks/kinde", &[], json!({ "note": PAYLOAD }).to_string()).await, 401);
    assert_eq!(say("/webhooks/kinde", &[], PAYLOAD.repeat(20_000)).await, 413);

    let marks =
        [("client_reference_id", "kp_canary"), ("metadata[bottle_user]", "kp_canary"), ("metadata[bottle_tenant]", "local")];
    let session = stripe.session("payment", PACK, &[&marks[..], &[("customer_creation", "always")]].concat()).await;
    stripe.complete(&session, "card").await;
    let mut paid = event("evt_paid", "checkout.session.completed", session["id"].as_str().unwrap());
    paid["data"]["object"]["description"] = json!(PAYLOAD);
    let paid = paid.to_string();
    let header = signature(STRIPE_SECRET, now_secs(), paid.as_bytes());
    assert_eq!(say("/webhooks/stripe", &[("stripe-signature", &header)], paid.clone()).await, 200);
    assert_eq!(say("/webhooks/stripe", &[("stripe-signature", "t=1,v1=canary-signature")], paid.clone()).await, 400);
    let gone = event("evt_gone", "invoice.paid", "in_1NoSuchInvoice").to_string();
    let of_gone = signature(STRIPE_SECRET, now_secs(), gone.as_bytes());
    assert_eq!(say("/webhooks/stripe", &[("stripe-signature", &of_gone)], gone).await, 200);
    let broken = format!("{{\"note\": \"{PAYLOAD}\"");
    let of_broken = signature(STRIPE_SECRET, now_secs(), broken.as_bytes());
    say("/webhooks/stripe", &[("stripe-signature", &of_broken)], broken).await;
    let marks: Vec<String> = [&header, &of_gone, &of_broken].map(|header| header.split_once("v1=").unwrap().1.to_owned()).into();
    marks.into_iter().for_each(|mark| aviary.keep(mark));
    aviary.keep("canary-signature");
}

/// Until the letter about the reminder was sent; its words as they went over the wire.
async fn letter_went(pool: &sqlx::PgPool, smtp: &Smtp) -> String {
    for attempt in 0.. {
        if let Some(letter) = smtp.received().into_iter().find(|letter| letter.raw.contains(LETTER)) {
            assert_eq!(letter.to, [EMAIL]);
            return letter.subject;
        }
        assert!(attempt < 600, "no letter; {} in the outbox", count(pool, "select count(*) from outbox").await);
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    unreachable!("it went or it did not")
}

/// Commands with the same settings, and starts that fail on each of the secrets in turn.
async fn what_commands_say(home: &Home, settings: &[(&str, &str)], aviary: &mut Aviary) {
    for args in
        [&["check"][..], &["events"], &["test-alert"], &["replay", "--dry-run", "--since", "2020-01-01T00:00:00Z"], &["--help"]]
    {
        let said = home.run(args, settings).await;
        aviary.hear(&args.join(" "), format!("{}{}", said.out, said.err));
    }
    for (name, value) in [
        ("DATABASE_URL", "postgres://me:canary-db-password@127.0.0.1:1/nowhere"),
        ("DATABASE_URL", "mysql://me:canary-db-password@x/y"),
        ("SMTP_URL", "http://me:canary-smtp-password@x"),
        ("ALERT_WEBHOOK_URL", "http://x/canary-alert-path?token=canary-alert-token"),
        ("ALERT_WEBHOOK_SECRET", "canary-alert-secret-0123456789ab"),
        ("STRIPE_SECRET_KEY", "canary-stripe-key-of-no-kind"),
        ("STRIPE_WEBHOOK_SECRET", "whsec_ok,canary-stripe-secret"),
        ("BOTTLE_SESSION_KEY", "canary-session-short"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "canary-otlp-key-0006"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://me:canary-otlp-key-0006@x"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://8.8.8.8/canary-otlp-path"),
        ("KINDE_DOMAIN", "https://me:canary-m2m-secret-0003@x"),
    ] {
        let wrong: Vec<(&str, &str)> = settings.iter().filter(|(of, _)| *of != name).copied().chain([(name, value)]).collect();
        let said = home.run(&["serve"], &wrong).await;
        assert_eq!(said.code, Some(1), "{name} {value}: {said:?}");
        aviary.hear(&format!("{name}={value}"), format!("{}{}", said.out, said.err));
    }
    for canary in ["canary-stripe-key-of-no-kind", "canary-stripe-secret", "canary-session-short"] {
        aviary.keep(canary);
    }
}

#[test]
fn what_holds_a_secret_does_not_show_it_to_whoever_prints_it() {
    use bottle::config::{Client, M2m, Secret};
    let secret = || Secret::new("canary-shown-to-nobody");
    let jwks = bottle::jwks::Jwks::new("http://localhost:1/keys", bottle::outbound::Client::new("http://localhost:1").unwrap());
    let m2m = M2m { client_id: "id".to_owned(), client_secret: secret() };
    let client = bottle::outbound::Client::new("http://localhost:1").unwrap();
    let management =
        bottle::providers::kinde::management::Management::new(client.clone(), "http://localhost:1", m2m.clone()).unwrap();
    let stripe = bottle::providers::stripe::Stripe::new(bottle::providers::stripe::Settings {
        client,
        key: "canary-shown-to-nobody".to_owned(),
        live: false,
        webhook_secrets: vec!["canary-shown-to-nobody".to_owned()],
        price_pro: "price_1".to_owned(),
        price_pack: None,
        tenant: "local".to_owned(),
    });
    let key = format!("whsec_{}", BASE64_STANDARD.encode("canary-shown-to-nobody-1"));
    let webhook =
        bottle::alerts::webhook::Webhook::new(&"http://localhost:1/canary-shown-to-nobody".parse().unwrap(), &key).unwrap();
    let shown = [
        format!("{:?} {:#?}", secret(), Client { id: "id".to_owned(), secret: secret() }),
        format!("{m2m:?} {management:?} {jwks:?}"),
        format!("{stripe:?}"),
        format!("{:?}", bottle::providers::Provider::Stripe(stripe)),
        format!("{webhook:?}"),
    ];
    for shown in shown {
        assert!(!shown.contains("canary") && !shown.contains(&key[6..]), "{shown}");
        // As bytes: c, a, n, a, r, y.
        assert!(!shown.contains("99, 97, 110, 97, 114, 121"), "{shown}");
    }
}
