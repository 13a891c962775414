//! A shop with a local Stripe: purchases are made there, its events are delivered here in whatever order a test likes, and what
//! is booked there is set beside what is booked here.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bottle::billing::apply::Rules;
use bottle::billing::check;
use bottle::checkpoint::Checkpoints;
use bottle::clock::Clock;
use bottle::domain::event::Source;
use bottle::domain::ids::{CustomerId, KindeUserId};
use bottle::domain::instant::Instant;
use bottle::domain::plan::PlanKeys;
use bottle::inbox::store::Stored;
use bottle::intake;
use bottle::outbound::Client;
use bottle::providers::stripe::{Settings, Stripe as Arm};
use bottle::providers::{Errand, Provider, Providers, Ware, Way};
use hmac::{Hmac, KeyInit as _, Mac as _};
use reqwest::header::{HeaderMap, HeaderName};
use serde_json::{Value, json};
use sha2::Sha256;

use super::pipeline::{Pipeline, Row};
use crate::local_stripe::{self, KEY, PACK, PRO, SECRET, Stripe};

pub const TENANT: &str = "test";

pub struct Till {
    pub stripe: Stripe,
    pub pipeline: Pipeline,
    delivered: BTreeSet<String>,
}

/// The Stripe arm, asking at this address.
pub fn arm(api: &str) -> Arm {
    arm_with(api, &[SECRET])
}

pub fn arm_with(api: &str, secrets: &[&str]) -> Arm {
    Arm::new(Settings {
        client: Client::new(api).unwrap(),
        key: KEY.to_owned(),
        live: false,
        webhook_secrets: secrets.iter().map(|secret| (*secret).to_owned()).collect(),
        price_pro: PRO.to_owned(),
        price_pack: Some(PACK.to_owned()),
        tenant: TENANT.to_owned(),
    })
}

/// `Stripe-Signature` over a body at a time in seconds, made apart from the program's own code.
pub fn signature(secret: &str, at: i64, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(format!("{at}.").as_bytes());
    mac.update(body);
    let hex: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={at},v1={hex}")
}

pub fn signed(header: &str) -> HeaderMap {
    HeaderMap::from_iter([(HeaderName::from_static("stripe-signature"), header.parse().unwrap())])
}

pub fn now_secs() -> i64 {
    time::OffsetDateTime::now_utc().unix_timestamp()
}

/// To the microsecond, as the database keeps it.
pub fn real_now() -> Instant {
    let now = Instant::from_datetime(time::OffsetDateTime::now_utc()).nanos();
    Instant::from_nanos(now - now % 1_000)
}

/// An event about an object, as Stripe words it; everything in it but three ids is a lie.
pub fn event(id: &str, kind: &str, object: &str) -> Value {
    json!({
        "id": id, "object": "event", "api_version": "2019-01-01", "created": 1, "livemode": false, "pending_webhooks": 1,
        "request": null, "type": kind,
        "data": {"object": {"id": object, "object": "lie", "status": "active", "amount_paid": 999_999, "url": "http://127.0.0.1:9/"}},
    })
}

pub fn rules() -> Rules {
    let mut keys = PlanKeys::default();
    keys.pro.insert(PRO.to_owned());
    Rules { keys, tenant: TENANT.to_owned() }
}

impl Till {
    pub async fn open() -> Self {
        Self::at(Stripe::begin(local_stripe::settings()).await).await
    }

    pub async fn at(stripe: Stripe) -> Self {
        let mut pipeline = Pipeline::new().await;
        let Providers { kinde, .. } = Arc::into_inner(pipeline.providers).unwrap();
        pipeline.providers = Arc::new(Providers { kinde, stripe: Some(Provider::Stripe(arm(&stripe.url()))) });
        pipeline.rules = Arc::new(rules());
        pipeline.now = real_now();
        Self { stripe, pipeline, delivered: BTreeSet::new() }
    }

    pub fn provider(&self) -> &Provider {
        self.pipeline.providers.of(Source::Stripe).unwrap()
    }

    /// The checkout of a person, begun through the seam; the session's id.
    pub async fn checkout(&self, user: &str, ware: Ware, customer: Option<&str>) -> String {
        checkout_of(self.provider(), &KindeUserId(format!("kp_{user}")), ware, customer).await
    }

    /// Bought and paid this way: `card`, `delayed` or `free`. The session as it is then.
    pub async fn buy(&self, user: &str, ware: Ware, way: &str) -> Value {
        let session = self.checkout(user, ware, None).await;
        self.stripe.turn(&format!("checkout/{session}/complete"), json!({ "way": way })).await
    }

    /// A subscriber who paid by card, with everything delivered: (customer, subscription).
    pub async fn subscriber(&mut self, user: &str) -> (String, String) {
        let session = self.buy(user, Ware::Pro, "card").await;
        self.run().await;
        (text(&session["customer"]), text(&session["subscription"]))
    }

    /// The charge that paid for a session.
    pub async fn charge(&self, session: &Value) -> String {
        let intent = self.stripe.get(&format!("/v1/payment_intents/{}", session["payment_intent"].as_str().unwrap()), &[]).await;
        text(&intent["latest_charge"])
    }

    /// Events of Stripe's that were not delivered yet, oldest first.
    pub async fn news(&self) -> Vec<Value> {
        let mut all = Vec::new();
        loop {
            let after = all.last().map(|event: &Value| text(&event["id"]));
            let mut form = vec![("limit", "100")];
            if let Some(after) = &after {
                form.push(("starting_after", after));
            }
            let page = self.stripe.get("/v1/events", &form).await;
            all.extend(page["data"].as_array().unwrap().iter().cloned());
            if page["has_more"] != true {
                break;
            }
        }
        all.retain(|event| !self.delivered.contains(event["id"].as_str().unwrap()));
        all.reverse();
        all
    }

    pub async fn deliver(&mut self, event: &Value) -> Stored {
        self.delivered.insert(text(&event["id"]));
        let body = event.to_string().into_bytes();
        let headers = signed(&signature(SECRET, now_secs(), &body));
        let delivery = self.pipeline.providers.verify(Source::Stripe, &headers, &body).await.unwrap().unwrap();
        let clock = Clock::At(self.pipeline.now);
        intake::accept(&self.pipeline.pool, &[&delivery], clock, &Checkpoints::default()).await.unwrap().remove(0)
    }

    /// Everything that is new, in the order in which it came to be.
    pub async fn run(&mut self) {
        let news = self.news().await;
        self.run_all(&news).await;
    }

    /// These events one by one, each run before the next comes.
    pub async fn run_all(&mut self, events: &[Value]) {
        for event in events {
            // Never behind the clock by which Stripe says when something ended.
            self.pipeline.now = self.pipeline.now.plus(Duration::from_millis(10)).max(real_now());
            self.deliver(event).await;
            self.pipeline.drain().await;
        }
        self.pipeline.check_invariants().await;
    }

    /// Time passes at Stripe, and as much of it here.
    pub async fn renew(&mut self, subscription: &str) {
        let before = self.period_end(subscription).await;
        self.stripe.turn(&format!("subscriptions/{subscription}/renew"), json!({})).await;
        self.pipeline.now = Instant::from_nanos(before * 1_000_000_000).plus(Duration::from_secs(7_200));
    }

    /// The clock there and here is put forward to a moment.
    pub async fn goes_to(&mut self, at: time::OffsetDateTime) {
        self.stripe.turn("clock", json!({ "to": at.unix_timestamp() })).await;
        self.pipeline.now = Instant::from_datetime(at);
    }

    pub async fn period_end(&self, subscription: &str) -> i64 {
        let subscription = self.stripe.get(&format!("/v1/subscriptions/{subscription}"), &[]).await;
        subscription["items"]["data"][0]["current_period_end"].as_i64().unwrap()
    }

    /// Every stored event runs once more.
    pub async fn replay_all(&mut self) {
        self.replay_where("true").await;
    }

    /// The events of one type run once more.
    pub async fn replay_of(&mut self, kind: &str) {
        self.replay_where(&format!("type = '{kind}'")).await;
    }

    async fn replay_where(&mut self, what: &str) {
        self.pipeline.later(Duration::from_secs(60));
        let sql = format!("select id from inbox_events where {what} order by id");
        let ids: Vec<i64> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_all(&self.pipeline.pool).await.unwrap();
        let ids: Vec<_> = ids.into_iter().map(bottle::domain::ids::EventId).collect();
        let mut tx = self.pipeline.pool.begin().await.unwrap();
        bottle::replay::request(&mut tx, &ids, "a test", self.pipeline.now.datetime()).await.unwrap();
        tx.commit().await.unwrap();
        self.pipeline.later(Duration::from_secs(60));
        self.pipeline.drain().await;
    }

    pub async fn said(&self, event: &Value) -> String {
        self.row(event).await.said()
    }

    pub async fn row(&self, event: &Value) -> Row {
        self.pipeline.event(event["id"].as_str().unwrap()).await
    }

    /// What the last event of this type came to.
    pub async fn said_of(&self, kind: &str) -> String {
        self.pipeline
            .value(&format!("select status || ': ' || reason from inbox_events where type = '{kind}' order by id desc limit 1"))
            .await
    }

    /// `charge 500 usd ch_…`, sorted, as our ledger has it.
    pub async fn ledger(&self) -> Vec<String> {
        self.lines("select kind || ' ' || amount_minor || ' ' || currency || ' ' || provider_reference from money_ledger where kind <> 'credit'").await
    }

    pub async fn lines(&self, sql: &str) -> Vec<String> {
        let mut lines: Vec<String> =
            sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned())).fetch_all(&self.pipeline.pool).await.unwrap();
        lines.sort();
        lines
    }

    /// The same from the provider's own books.
    pub async fn books(&self) -> Vec<String> {
        let rows = self.stripe.get("/v1/balance_transactions", &[("limit", "100")]).await;
        assert_eq!(rows["has_more"], false, "more than a page");
        let line = |row: &Value| {
            let kind = match row["reporting_category"].as_str().unwrap() {
                "refund_failure" => "refund_failed",
                other => other,
            };
            format!("{kind} {} {} {}", row["amount"], text(&row["currency"]), text(&row["source"]))
        };
        let mut lines: Vec<String> = rows["data"].as_array().unwrap().iter().map(line).collect();
        lines.sort();
        lines
    }

    /// Our ledger is the provider's, to the minor unit, and everything stored is what the facts give.
    #[track_caller]
    pub fn agrees(&self) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            assert_eq!(self.ledger().await, self.books().await, "{caller}");
            assert_eq!(self.differences().await, Vec::<String>::new(), "{caller}");
        }
    }

    pub async fn differences(&self) -> Vec<String> {
        let mut conn = self.pipeline.pool.acquire().await.unwrap();
        let ids = bottle::accounts::page_of_ids(&mut conn, bottle::domain::ids::AccountId(0), 1_000).await.unwrap();
        let found =
            check::accounts(&mut conn, &ids.into_iter().collect(), &self.pipeline.rules, self.pipeline.now).await.unwrap();
        found.iter().map(ToString::to_string).collect()
    }

    /// How often Stripe was called since the last count.
    pub async fn calls(&self) -> Value {
        let calls = self.stripe.look("calls").await;
        self.stripe.turn("calls/reset", json!({})).await;
        calls["paths"].clone()
    }
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// The checkout of a person, begun through the seam; the session's id.
pub async fn checkout_of(provider: &Provider, user: &KindeUserId, ware: Ware, customer: Option<&str>) -> String {
    let customer = customer.map(|id| CustomerId(id.to_owned()));
    let intent = uuid::Uuid::new_v4().to_string();
    let errand = Errand {
        user,
        email: Some("ada@example.com"),
        customer: customer.as_ref(),
        done: "http://localhost:3000/account?done={CHECKOUT_SESSION_ID}",
        back: "http://localhost:3000/account",
        intent: &intent,
        earlier: None,
    };
    let Way::Checkout { reference, .. } = provider.checkout(&errand, ware).await.unwrap() else { panic!("Stripe has pages") };
    reference
}
