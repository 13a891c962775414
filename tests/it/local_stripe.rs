//! The local Stripe's API as a program meets it that knows only Stripe's documentation: keys, versions, repeated calls, errors,
//! lists. The other files about it are named after theirs.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bottle::local_stripe::server::{Running, Settings, start};
use reqwest::Method;
use serde_json::{Value, json};

pub const KEY: &str = "sk_test_key";
pub const SECRET: &str = "whsec_first";
pub const PRO: &str = "price_1LocalProMonthUsd";
pub const PACK: &str = "price_1LocalPackUsd";

/// A local Stripe, and a client of it.
pub struct Stripe {
    pub running: Running,
    http: reqwest::Client,
}

pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: Value,
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    pub fn error(&self, field: &str) -> &str {
        self.body["error"][field].as_str().unwrap_or_default()
    }
}

pub fn settings() -> Settings {
    Settings {
        addr: "127.0.0.1:0".into(),
        secret_keys: vec![KEY.into()],
        webhook_secrets: vec![SECRET.into()],
        ..Settings::default()
    }
}

pub fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap()
}

impl Stripe {
    pub async fn begin(settings: Settings) -> Self {
        Self { running: start(settings).await.unwrap(), http: client() }
    }

    pub fn url(&self) -> String {
        self.running.url()
    }

    /// A call with headers of one's own; the key is not among them.
    pub async fn raw(&self, method: Method, path: &str, form: &[(&str, &str)], headers: &[(&str, &str)]) -> Answer {
        let mut url = reqwest::Url::parse(&format!("{}{path}", self.url())).unwrap();
        if method == Method::GET {
            url.query_pairs_mut().extend_pairs(form);
        }
        let mut request = self.http.request(method.clone(), url);
        if method != Method::GET {
            request = request.form(form);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Answer { status, headers, body: response.json().await.unwrap() }
    }

    pub async fn call(&self, method: Method, path: &str, form: &[(&str, &str)]) -> Answer {
        self.raw(method, path, form, &[("authorization", &format!("Bearer {KEY}"))]).await
    }

    pub async fn keyed(&self, path: &str, form: &[(&str, &str)], key: &str) -> Answer {
        self.raw(Method::POST, path, form, &[("authorization", &format!("Bearer {KEY}")), ("idempotency-key", key)]).await
    }

    pub async fn get(&self, path: &str, form: &[(&str, &str)]) -> Value {
        good(path, self.call(Method::GET, path, form).await)
    }

    pub async fn post(&self, path: &str, form: &[(&str, &str)]) -> Value {
        good(path, self.call(Method::POST, path, form).await)
    }

    /// A refused call: its status, and what it says.
    pub async fn refused(&self, path: &str, form: &[(&str, &str)]) -> Answer {
        let answer = self.call(Method::POST, path, form).await;
        assert!(answer.status >= 400, "{path}: {}", answer.body);
        answer
    }

    pub async fn turn(&self, what: &str, how: Value) -> Value {
        let answer = self.try_turn(what, how).await;
        good(what, answer)
    }

    pub async fn try_turn(&self, what: &str, how: Value) -> Answer {
        let response = self.http.post(format!("{}/local/{what}", self.url())).json(&how).send().await.unwrap();
        Answer { status: response.status().as_u16(), headers: response.headers().clone(), body: response.json().await.unwrap() }
    }

    pub async fn look(&self, what: &str) -> Value {
        self.http.get(format!("{}/local/{what}", self.url())).send().await.unwrap().json().await.unwrap()
    }

    /// Types of every event so far, oldest first.
    pub async fn told(&self) -> Vec<String> {
        let events = self.get("/v1/events", &[("limit", "100")]).await;
        assert_eq!(events["has_more"], false, "more than a page");
        events["data"].as_array().unwrap().iter().rev().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
    }

    pub async fn customer(&self) -> String {
        let customer = self.post("/v1/customers", &[("email", "ada@example.com")]).await;
        customer["id"].as_str().unwrap().to_owned()
    }

    /// A checkout session of one thing, open.
    pub async fn session(&self, mode: &str, price: &str, more: &[(&str, &str)]) -> Value {
        let mut form = vec![
            ("mode", mode),
            ("line_items[0][price]", price),
            ("line_items[0][quantity]", "1"),
            ("success_url", "http://localhost:3000/done?s={CHECKOUT_SESSION_ID}"),
        ];
        form.extend_from_slice(more);
        self.post("/v1/checkout/sessions", &form).await
    }

    pub async fn complete(&self, session: &Value, way: &str) -> Value {
        self.turn(&format!("checkout/{}/complete", id(session)), json!({ "way": way })).await
    }

    /// A customer with an active Pro: (customer, subscription).
    pub async fn subscriber(&self) -> (String, String) {
        let customer = self.customer().await;
        let session = self.session("subscription", PRO, &[("customer", &customer)]).await;
        let done = self.complete(&session, "card").await;
        (customer, done["subscription"].as_str().unwrap().to_owned())
    }

    /// A paid pack: its charge.
    pub async fn charge(&self) -> Value {
        let session = self.session("payment", PACK, &[]).await;
        let done = self.complete(&session, "card").await;
        let intent = self.get(&format!("/v1/payment_intents/{}", done["payment_intent"].as_str().unwrap()), &[]).await;
        self.get(&format!("/v1/charges/{}", intent["latest_charge"].as_str().unwrap()), &[]).await
    }
}

#[track_caller]
fn good(what: &str, answer: Answer) -> Value {
    assert_eq!(answer.status, 200, "{what}: {}", answer.body);
    answer.body
}

pub fn id(object: &Value) -> &str {
    object["id"].as_str().unwrap()
}

pub fn ids(list: &Value) -> Vec<String> {
    list["data"].as_array().unwrap().iter().map(|one| id(one).to_owned()).collect()
}

pub async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let patience = Instant::now();
    while !is_so().await {
        assert!(patience.elapsed() < Duration::from_secs(20), "waited in vain for: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A folder of this test alone, gone afterwards.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        let path = std::env::temp_dir().join(format!("bottle-local-stripe-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn an_address_beyond_loopback_and_a_key_that_is_none_are_refused() {
    let refused = async |settings: Settings, complaint: &str| {
        let said = start(settings).await.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(said.contains(complaint), "{complaint}: {said}");
    };
    refused(Settings { addr: "0.0.0.0:0".into(), ..settings() }, "loopback only").await;
    refused(Settings { addr: "[::]:0".into(), ..settings() }, "loopback only").await;
    refused(Settings { addr: "127.0.0.1".into(), ..settings() }, "host:port").await;
    refused(Settings { webhook_url: Some("ftp://a/".into()), ..settings() }, "ftp://a/").await;
    refused(Settings { secret_keys: vec!["pk_test_1".into()], ..settings() }, "sk_").await;
    refused(Settings { webhook_secrets: vec!["secret".into()], ..settings() }, "whsec_").await;
    refused(Settings { restricted_keys: vec!["rk_test_1=charges:rite".into()], ..settings() }, "resource:read").await;
    refused(Settings { endpoint_version: Some("2019-01-01".into()), ..settings() }, "2019-01-01").await;
    refused(Settings { settlement_currency: Some("xxx".into()), ..settings() }, "xxx").await;
    let named = start(Settings { addr: "localhost:0".into(), ..settings() }).await.unwrap();
    let taken = named.url().trim_start_matches("http://").to_owned();
    refused(Settings { addr: taken.clone(), ..settings() }, &taken).await;
    let url = named.url();
    named.stop().await;
    assert!(client().get(&url).send().await.is_err(), "a stopped local Stripe still answers");
}

#[tokio::test]
async fn a_page_from_elsewhere_cannot_turn_anything() {
    let stripe = Stripe::begin(settings()).await;
    let turn = || client().post(format!("{}/local/faults", stripe.url())).form(&[("status", "500")]);
    assert_eq!(turn().header("origin", "https://elsewhere.example").send().await.unwrap().status().as_u16(), 403);
    let rebound = turn().header("host", "elsewhere.example").header("origin", "http://elsewhere.example");
    assert_eq!(rebound.send().await.unwrap().status().as_u16(), 421);
    assert_eq!(stripe.look("faults").await, json!([]));
}

#[tokio::test]
async fn only_a_right_key_gets_in_by_bearer_or_basic() {
    let limited = vec!["rk_test_shop=customers:read,checkout_sessions".to_owned()];
    let stripe = Stripe::begin(Settings { restricted_keys: limited, ..settings() }).await;
    let status = async |method: Method, path: &str, authorization: &str| {
        let answer = stripe.raw(method, path, &[], &[("authorization", authorization)]).await;
        assert_eq!(answer.header("request-id").get(..4), Some("req_"));
        (answer.status, answer.error("type").to_owned())
    };
    let get = Method::GET;
    assert_eq!(status(get.clone(), "/v1/customers", "Bearer sk_test_key").await, (200, String::new()));
    assert_eq!(status(get.clone(), "/v1/customers", "Basic c2tfdGVzdF9rZXk6").await, (200, String::new()));
    for wrong in ["Bearer sk_test_other_key_of_some_length", "Bearer ", "Basic c2s6", "Digest x", "Bearer whsec_first"] {
        assert_eq!(status(get.clone(), "/v1/customers", wrong).await, (401, "invalid_request_error".into()), "{wrong}");
    }
    assert_eq!(stripe.raw(get.clone(), "/v1/customers", &[], &[]).await.status, 401);
    let shop = "Bearer rk_test_shop";
    assert_eq!(status(get.clone(), "/v1/customers", shop).await.0, 200);
    assert_eq!(status(Method::POST, "/v1/customers", shop).await.0, 403);
    assert_eq!(status(Method::POST, "/v1/checkout/sessions", shop).await.0, 400, "it may, and says what is missing");
    assert_eq!(status(get, "/v1/charges", shop).await.0, 403);
    let secret =
        stripe.raw(Method::GET, "/v1/charges", &[], &[("authorization", "Bearer sk_test_other_key_of_some_length")]).await;
    assert!(!secret.error("message").contains("other_key"), "{}", secret.body);
}

#[tokio::test]
async fn a_version_is_known_or_refused_and_old_ones_have_the_old_shapes() {
    let stripe = Stripe::begin(settings()).await;
    let (_, subscription) = stripe.subscriber().await;
    let bearer = format!("Bearer {KEY}");
    let read = async |path: &str, version: &str| {
        let headers = [("authorization", bearer.as_str()), ("stripe-version", version)];
        stripe.raw(Method::GET, path, &[], &headers).await
    };
    let path = format!("/v1/subscriptions/{subscription}");
    let unknown = read(&path, "2031-01-01.zinnia").await;
    assert_eq!((unknown.status, unknown.error("type")), (400, "invalid_request_error"));

    let new = read(&path, "2026-09-30.endive").await;
    assert_eq!(new.header("stripe-version"), "2026-09-30.endive");
    assert!(new.body.get("current_period_end").is_none());
    let end = new.body["items"]["data"][0]["current_period_end"].as_i64().unwrap();
    let old = read(&path, "2025-02-24.acacia").await.body;
    assert_eq!(old["current_period_end"], end);
    assert!(old["items"]["data"][0].get("current_period_end").is_none());

    let path = format!("/v1/invoices/{}", new.body["latest_invoice"].as_str().unwrap());
    let (new, old) = (read(&path, "2025-03-31.basil").await.body, read(&path, "2024-06-20").await.body);
    assert_eq!(new["parent"]["subscription_details"]["subscription"], subscription);
    for gone in ["subscription", "paid", "charge", "payment_intent"] {
        assert!(new.get(gone).is_none() && !old[gone].is_null(), "{gone}");
    }
    assert_eq!((&old["subscription"], &old["paid"]), (&json!(subscription), &json!(true)));
    assert!(old.get("parent").is_none());
    assert_eq!(old["lines"]["data"][0]["price"]["id"], PRO);
    assert_eq!(new["lines"]["data"][0]["pricing"]["price_details"]["price"], PRO);
}

#[tokio::test]
async fn a_repeated_call_gets_its_first_answer_a_500_included() {
    let stripe = Stripe::begin(settings()).await;
    let (ada, ben) = ([("email", "ada@example.com"), ("metadata[b]", "2")], [("email", "ben@example.com")]);
    let first = stripe.keyed("/v1/customers", &ada, "k1").await;
    let again = stripe.keyed("/v1/customers", &[ada[1], ada[0]], "k1").await;
    assert_eq!((again.status, &again.body), (200, &first.body));
    assert_eq!((first.header("idempotent-replayed"), again.header("idempotent-replayed")), ("", "true"));
    assert_eq!(again.header("original-request"), first.header("request-id"));
    assert_ne!(again.header("request-id"), first.header("request-id"));
    let other = stripe.keyed("/v1/customers", &ben, "k1").await;
    assert_eq!((other.status, other.error("type")), (400, "idempotency_error"));
    let elsewhere = stripe.keyed("/v1/products", &ada, "k1").await;
    assert_eq!((elsewhere.status, elsewhere.error("type")), (400, "idempotency_error"));
    assert_eq!(stripe.keyed("/v1/customers", &ben, &"k".repeat(256)).await.status, 400);

    stripe.turn("faults", json!({ "status": 500 })).await;
    let broken = stripe.keyed("/v1/customers", &ben, "k2").await;
    assert_eq!((broken.status, broken.error("type")), (500, "api_error"));
    let still = stripe.keyed("/v1/customers", &ben, "k2").await;
    assert_eq!((still.status, still.header("idempotent-replayed")), (500, "true"));
    assert_eq!(ids(&stripe.get("/v1/customers", &[]).await).len(), 1, "what was never done");

    stripe.turn("faults", json!({ "status": 500, "done": true })).await;
    assert_eq!(stripe.keyed("/v1/customers", &ben, "k3").await.status, 500);
    assert_eq!(ids(&stripe.get("/v1/customers", &[]).await).len(), 2, "done, and answered 500");

    // What was wrong with the call, or came at a bad moment, can be asked again under the same key.
    assert_eq!(stripe.keyed("/v1/customers", &[("emial", "x")], "k4").await.status, 400);
    stripe.turn("faults", json!({ "status": 429 })).await;
    assert_eq!(stripe.keyed("/v1/customers", &ben, "k4").await.status, 429);
    assert_eq!(stripe.keyed("/v1/customers", &ben, "k4").await.status, 200);
}

#[tokio::test]
async fn a_call_that_is_still_being_made_is_not_made_beside_itself() {
    let stripe = Stripe::begin(settings()).await;
    stripe.turn("faults", json!({ "slow_ms": 600 })).await;
    let form = [("email", "ada@example.com")];
    let late = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        stripe.keyed("/v1/customers", &form, "k1").await
    };
    let (slow, busy) = tokio::join!(stripe.keyed("/v1/customers", &form, "k1"), late);
    assert_eq!((slow.status, busy.status), (200, 409));
    assert_eq!((busy.error("type"), busy.error("code")), ("idempotency_error", "idempotency_key_in_use"));
    assert_eq!(stripe.keyed("/v1/customers", &form, "k1").await.body, slow.body);
}

#[tokio::test]
async fn a_caller_who_hangs_up_has_its_call_made_all_the_same() {
    let stripe = Stripe::begin(settings()).await;
    stripe.turn("faults", json!({ "slow_ms": 300 })).await;
    let form = [("email", "ada@example.com")];
    let hasty = tokio::time::timeout(Duration::from_millis(100), stripe.keyed("/v1/customers", &form, "k1")).await;
    assert!(hasty.is_err());
    until("the customer", async || ids(&stripe.get("/v1/customers", &[]).await).len() == 1).await;
    until("its kept answer", async || stripe.keyed("/v1/customers", &form, "k1").await.header("idempotent-replayed") == "true")
        .await;
}

#[tokio::test]
async fn the_next_calls_go_wrong_as_ordered_and_no_more() {
    let stripe = Stripe::begin(settings()).await;
    stripe.turn("faults", json!({ "times": 2, "status": 429, "retry_after": 7, "path": "/v1/charges", "method": "get" })).await;
    assert_eq!(stripe.call(Method::GET, "/v1/customers", &[]).await.status, 200);
    for _ in 0..2 {
        let answer = stripe.call(Method::GET, "/v1/charges", &[]).await;
        assert_eq!((answer.status, answer.header("retry-after"), answer.error("code")), (429, "7", "rate_limit"));
        assert_eq!(answer.header("stripe-rate-limited-reason"), "global-rate");
    }
    assert_eq!(stripe.call(Method::GET, "/v1/charges", &[]).await.status, 200);
    stripe.turn("faults", json!({ "status": 429, "code": "lock_timeout" })).await;
    let locked = stripe.call(Method::GET, "/v1/charges", &[]).await;
    assert_eq!((locked.status, locked.error("code"), locked.header("retry-after")), (429, "lock_timeout", ""));

    let before = Instant::now();
    stripe.turn("faults", json!({ "slow_ms": 200 })).await;
    stripe.get("/v1/charges", &[]).await;
    assert!(before.elapsed() >= Duration::from_millis(200));
    assert_eq!(stripe.try_turn("faults", json!({ "status": 404 })).await.status, 400);
    assert_eq!(stripe.try_turn("faults", json!({ "stauts": 500 })).await.status, 400);

    let calls = stripe.look("calls").await;
    assert_eq!(calls["paths"]["GET /v1/charges"], 5);
    assert_eq!(calls["total"], 6);
    stripe.turn("calls/reset", json!({})).await;
    stripe.call(Method::GET, "/v1/customers/cus_Nobody1", &[]).await;
    let calls = stripe.look("calls").await;
    assert_eq!(calls["paths"], json!({ "GET /v1/customers/{id}": 1 }));
    assert_eq!((&calls["latest"][0]["status"], &calls["latest"][0]["path"]), (&json!(404), &json!("/v1/customers/cus_Nobody1")));
}

#[tokio::test]
async fn a_refusal_says_what_is_wrong_as_stripe_says_it() {
    let stripe = Stripe::begin(settings()).await;
    let check = async |path: &str, form: &[(&str, &str)], status: u16, code: &str, param: &str| {
        let answer = stripe.refused(path, form).await;
        let said = (answer.status, answer.error("type"), answer.error("code"), answer.error("param"));
        assert_eq!(said, (status, "invalid_request_error", code, param), "{path} {form:?}: {}", answer.body);
    };
    let item = [("mode", "payment"), ("success_url", "http://a/"), ("line_items[0][quantity]", "1")];
    let with = |more: &[(&'static str, &'static str)]| [&item[..], more].concat();
    let pack = ("line_items[0][price]", PACK);
    check("/v1/checkout/sessions", &[], 400, "parameter_missing", "mode").await;
    check("/v1/checkout/sessions", &with(&[]), 400, "parameter_missing", "line_items[0][price]").await;
    check(
        "/v1/checkout/sessions",
        &with(&[("line_items[0][price]", "price_x")]),
        400,
        "resource_missing",
        "line_items[0][price]",
    )
    .await;
    check("/v1/checkout/sessions", &with(&[("line_items[0][price]", PRO)]), 400, "", "mode").await;
    check("/v1/checkout/sessions", &with(&[pack, ("sucess_url", "x")]), 400, "parameter_unknown", "sucess_url").await;
    check("/v1/checkout/sessions", &with(&[pack, ("customer", "cus_x")]), 400, "resource_missing", "customer").await;
    check("/v1/checkout/sessions", &with(&[pack, ("subscription_data[metadata][a]", "1")]), 400, "", "subscription_data").await;
    check("/v1/checkout/sessions", &with(&[pack, ("expires_at", "1")]), 400, "", "expires_at").await;
    check("/v1/checkout/sessions", &with(&[pack, ("currency", "chf")]), 400, "", "currency").await;
    check("/v1/billing_portal/sessions", &[("customer", "cus_x")], 400, "resource_missing", "customer").await;
    check("/v1/refunds", &[("charge", "ch_x")], 400, "resource_missing", "charge").await;
    check("/v1/customers/cus_x", &[], 404, "resource_missing", "id").await;
    check(
        "/v1/prices",
        &[("currency", "kwd"), ("product", "prod_LocalPack"), ("unit_amount", "3755")],
        400,
        "invalid_charge_amount",
        "unit_amount",
    )
    .await;
    check("/v1/nothing", &[], 404, "", "").await;
    let as_json = client().post(format!("{}/v1/customers", stripe.url())).bearer_auth(KEY).json(&json!({})).send().await.unwrap();
    assert_eq!(as_json.status().as_u16(), 400);
    assert_eq!(stripe.call(Method::GET, "/v1/customers/cus_x", &[]).await.status, 404);
    assert_eq!(stripe.call(Method::GET, "/v1/charges", &[("limit", "101")]).await.status, 400);
    let events = [("type", "a"), ("types[0]", "b")];
    assert_eq!(stripe.call(Method::GET, "/v1/events", &events).await.status, 400);
    let many: Vec<(String, &str)> = (0..21).map(|n| (format!("types[{n}]"), "a")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    assert_eq!(stripe.call(Method::GET, "/v1/events", &many).await.status, 400);
    assert_eq!(stripe.call(Method::GET, "/v1/events", &many[..20]).await.status, 200);
}

#[tokio::test]
async fn lists_are_newest_first_in_pages_from_either_side() {
    let stripe = Stripe::begin(settings()).await;
    let mut all = Vec::new();
    for _ in 0..5 {
        all.insert(0, stripe.customer().await);
    }
    let page = async |form: &[(&str, &str)]| {
        let page = stripe.get("/v1/customers", form).await;
        (ids(&page), page["has_more"].as_bool().unwrap())
    };
    assert_eq!(page(&[]).await, (all.clone(), false));
    assert_eq!(page(&[("limit", "2")]).await, (all[..2].to_vec(), true));
    assert_eq!(page(&[("limit", "2"), ("starting_after", &all[1])]).await, (all[2..4].to_vec(), true));
    assert_eq!(page(&[("limit", "2"), ("starting_after", &all[3])]).await, (all[4..].to_vec(), false));
    assert_eq!(page(&[("limit", "2"), ("ending_before", &all[4])]).await, (all[2..4].to_vec(), true));
    assert_eq!(page(&[("limit", "3"), ("ending_before", &all[2])]).await, (all[..2].to_vec(), false));
    assert_eq!(stripe.call(Method::GET, "/v1/customers", &[("starting_after", "cus_x")]).await.status, 400);

    let now = stripe.look("clock").await["now"].as_i64().unwrap();
    stripe.turn("clock", json!({ "advance": "1d" })).await;
    let later = stripe.customer().await;
    let (noon, evening) = ((now + 3600).to_string(), (now + 2 * 24 * 3600).to_string());
    assert_eq!(page(&[("created[gte]", &noon)]).await.0, std::slice::from_ref(&later));
    assert_eq!(page(&[("created[lt]", &noon)]).await.0, all);
    assert_eq!(page(&[("created[gt]", &noon), ("created[lte]", &evening)]).await.0, [later]);
}

#[tokio::test]
async fn an_expanded_field_is_its_object_and_lists_come_when_asked_for() {
    let stripe = Stripe::begin(settings()).await;
    let (customer, subscription) = stripe.subscriber().await;
    let path = format!("/v1/subscriptions/{subscription}");
    let form = [("expand[0]", "latest_invoice.payments"), ("expand[1]", "customer")];
    let deep = stripe.get(&path, &form).await;
    assert_eq!(deep["customer"]["id"], customer);
    let payment = &deep["latest_invoice"]["payments"]["data"][0]["payment"];
    let intent = stripe
        .get(
            &format!("/v1/payment_intents/{}", payment["payment_intent"].as_str().unwrap()),
            &[("expand[]", "latest_charge.balance_transaction")],
        )
        .await;
    assert_eq!(intent["latest_charge"]["balance_transaction"]["fee"], 65);
    let plain = stripe.get(&format!("/v1/charges/{}", id(&intent["latest_charge"])), &[]).await;
    assert!(plain.get("refunds").is_none());
    let rows = stripe.get("/v1/balance_transactions", &[("expand[0]", "data.source")]).await;
    assert_eq!(rows["data"][0]["source"]["object"], "charge");
    assert_eq!(stripe.call(Method::GET, &path, &[("expand[0]", "nonsense")]).await.status, 400);
    let price = stripe.get(&format!("/v1/prices/{PRO}"), &[]).await;
    assert!(price.get("currency_options").is_none());
    let price = stripe.get(&format!("/v1/prices/{PRO}"), &[("expand[]", "currency_options")]).await;
    assert_eq!(price["currency_options"]["jpy"]["unit_amount"], 1800);
}

#[tokio::test]
async fn a_restart_goes_on_where_it_ended() {
    let folder = Folder::new();
    let kept = || Settings { addr: "127.0.0.1:0".into(), state: Some(folder.0.clone()), ..Settings::default() };
    let stripe = start(kept()).await.unwrap();
    let (key, secrets, url) = (stripe.secret_key(), stripe.webhook_secrets(), stripe.url());
    let call = |url: &str| client().post(format!("{url}/v1/customers")).bearer_auth(&key).header("idempotency-key", "k");
    let made: Value = call(&url).form(&[("email", "ada@example.com")]).send().await.unwrap().json().await.unwrap();
    let clock = client().post(format!("{url}/local/clock")).json(&json!({ "advance": "40d" })).send().await.unwrap();
    let then = clock.json::<Value>().await.unwrap()["now"].as_i64().unwrap();
    // It may be killed at any moment: what was answered is in the file already.
    let file = folder.0.join("local-stripe.json");
    assert!(std::fs::read_to_string(&file).unwrap().contains(id(&made)));
    #[cfg(unix)]
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions()) & 0o777, 0o600);
    stripe.stop().await;

    let again = start(kept()).await.unwrap();
    assert_eq!((again.secret_key(), again.webhook_secrets()), (key.clone(), secrets));
    let replayed = call(&again.url()).form(&[("email", "ada@example.com")]).send().await.unwrap();
    assert_eq!(replayed.headers()["idempotent-replayed"], "true");
    assert_eq!(replayed.json::<Value>().await.unwrap()["id"], made["id"]);
    let now: Value = client().get(format!("{}/local/clock", again.url())).send().await.unwrap().json().await.unwrap();
    assert!((0..60).contains(&(now["now"].as_i64().unwrap() - then)));
    again.stop().await;

    std::fs::write(&file, b"{}").unwrap();
    assert!(start(kept()).await.err().unwrap().to_string().contains("delete it"));
    assert_eq!(std::fs::read(&file).unwrap(), b"{}");
}
