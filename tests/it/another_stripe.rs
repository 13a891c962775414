//! PyPI's `localstripe`, written by others, in Stripe's place: it sends its own signed webhook, and our arm asks it.
//!
//! What this proves: a sender that is not ours signs what our endpoint takes, its event's id and object are found, the object is
//! fetched with our key, marks on it name the account, and its states come out as plans. What it does not: the shapes. localstripe
//! 1.15 answers in those of 2017 (an item has a `plan` and no `price`), has no checkout sessions and no `invoice.paid`. So between the
//! two stands a translator that writes each item's `price`, and nothing else; without it the answer is not guessed at, and the second
//! test holds us to that. The shapes are held to Stripe's own types in `local_stripe_peers`.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use crate::local_stripe::{KEY, PRO, SECRET, client};
use crate::local_stripe_peers::is_here;
use crate::support::app::eventually;
use crate::support::binary::{Bottle, Home};
use crate::support::db::fresh_db;
use crate::support::deliveries::count;

/// `python -m localstripe`. Dropped, it is killed.
struct Other {
    child: Child,
    url: String,
}

impl Other {
    async fn start() -> Option<Self> {
        let python = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/peers/venv/bin/python");
        let program = python.to_str().unwrap();
        if !is_here("PyPI's localstripe", "venv/bin/localstripe", program) {
            return None;
        }
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let args = ["-m", "localstripe", "--from-scratch", "--port", &port.to_string()].map(str::to_owned);
        let child = Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let other = Self { child, url: format!("http://127.0.0.1:{port}") };
        let begun = Instant::now();
        while other.get("/v1/customers").await.is_none() {
            assert!(begun.elapsed() < Duration::from_secs(30), "localstripe does not answer");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Some(other)
    }

    async fn get(&self, path: &str) -> Option<Value> {
        let answer = client().get(format!("{}{path}", self.url)).bearer_auth(KEY).send().await.ok()?;
        answer.json().await.ok()
    }

    async fn post(&self, path: &str, form: &[(&str, &str)]) -> Value {
        let answer = client().post(format!("{}{path}", self.url)).bearer_auth(KEY).form(form).send().await.unwrap();
        let (status, said) = (answer.status(), answer.text().await.unwrap());
        assert!(status.is_success(), "{path}: {status} {said}");
        serde_json::from_str(&said).unwrap_or_default()
    }

    /// A person who pays for Pro by card, as our checkout would have marked it; the subscription's id.
    async fn subscriber(&self) -> String {
        let plan = [("id", PRO), ("amount", "1200"), ("currency", "usd"), ("interval", "month"), ("product[name]", "Pro")];
        self.post("/v1/plans", &plan).await;
        let customer = self.post("/v1/customers", &[("email", "ada@example.com")]).await["id"].as_str().unwrap().to_owned();
        let card = [
            ("type", "card"),
            ("card[number]", "4242424242424242"),
            ("card[exp_month]", "12"),
            ("card[exp_year]", "2035"),
            ("card[cvc]", "123"),
        ];
        let method = self.post("/v1/payment_methods", &card).await["id"].as_str().unwrap().to_owned();
        self.post(&format!("/v1/payment_methods/{method}/attach"), &[("customer", &customer)]).await;
        self.post(&format!("/v1/customers/{customer}"), &[("invoice_settings[default_payment_method]", &method)]).await;
        let wanted = [
            ("customer", customer.as_str()),
            ("items[0][plan]", PRO),
            ("metadata[bottle_user]", "kp_ada"),
            ("metadata[bottle_tenant]", "local"),
        ];
        self.post("/v1/subscriptions", &wanted).await["id"].as_str().unwrap().to_owned()
    }

    /// Where its events go, which it signs with our secret.
    async fn sends_to(&self, bottle: &Bottle) {
        let hook = json!({ "url": format!("http://{}/webhooks/stripe", bottle.addr()), "secret": SECRET });
        let answer = client().post(format!("{}/_config/webhooks/bottle", self.url)).json(&hook).send().await.unwrap();
        assert_eq!(answer.status(), 200);
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Passes a question on and writes each item's `price` into the answer.
async fn translator(other: &Other) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new().fallback(translate).with_state(other.url.clone());
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

async fn translate(State(other): State<String>, uri: Uri, headers: HeaderMap) -> Response {
    let request = client().get(format!("{other}{uri}")).header("authorization", headers["authorization"].clone());
    let answer = request.send().await.unwrap();
    let status = StatusCode::from_u16(answer.status().as_u16()).unwrap();
    let mut said: Value = answer.json().await.unwrap_or_default();
    if let Some(items) = said["items"]["data"].as_array_mut() {
        for item in items {
            item["price"] = json!({ "id": item["plan"]["id"], "object": "price" });
        }
    }
    (status, axum::Json(said)).into_response()
}

async fn bottle(home: &Home, database: &str, api: &str) -> Bottle {
    let settings = [
        ("DATABASE_URL", database),
        ("STRIPE_SECRET_KEY", KEY),
        ("STRIPE_WEBHOOK_SECRET", SECRET),
        ("STRIPE_PRICE_PRO", PRO),
        ("STRIPE_API_BASE", api),
    ];
    home.start(&["serve"], &settings).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_localstripe_signs_makes_pro_and_its_end_ends_it_with_prices_translated() {
    let Some(other) = Other::start().await else { return };
    let (home, db) = (Home::new(), fresh_db().await);
    let bottle = bottle(&home, &db.url(), &translator(&other).await).await;
    other.sends_to(&bottle).await;
    let subscription = other.subscriber().await;
    let pool = db.pool().await;
    let plan = async |plan: &str| {
        let sql = "select plan = $1 from accounts where kinde_user_id = 'kp_ada'";
        sqlx::query_scalar(sql).bind(plan).fetch_optional(&pool).await.unwrap().unwrap_or(false)
    };
    eventually("the plan to be Pro", async || plan("pro").await).await;
    let told = "select count(*) from inbox_events where source = 'stripe' and type = 'customer.subscription.created' and status = 'applied'";
    assert_eq!(count(&pool, told).await, 1);
    assert_eq!(count(&pool, "select count(*) from customer_map where source = 'stripe'").await, 1, "and whose it is was learned");
    let others = "select count(*) from inbox_events where type not like 'customer.subscription.%' and status not in ('ignored', 'received', 'processing')";
    assert_eq!(count(&pool, others).await, 0, "what it tells besides carries no billing change here");

    let cancelled =
        client().delete(format!("{}/v1/subscriptions/{subscription}", other.url)).bearer_auth(KEY).send().await.unwrap();
    assert_eq!(cancelled.status(), 200);
    eventually("the plan to be Free", async || plan("free").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_localstripe_in_the_shapes_of_2017_is_not_guessed_at() {
    let Some(other) = Other::start().await else { return };
    let (home, db) = (Home::new(), fresh_db().await);
    let bottle = bottle(&home, &db.url(), &other.url).await;
    other.sends_to(&bottle).await;
    other.subscriber().await;
    let pool = db.pool().await;
    let failed = "select count(*) from inbox_events where type = 'customer.subscription.created' and status = 'failed' and reason like '%price%'";
    eventually("the event to fail readably", async || count(&pool, failed).await == 1).await;
    assert_eq!(count(&pool, "select count(*) from accounts where plan = 'pro'").await, 0);
}
