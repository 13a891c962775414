//! A tenant of our own with its key published on this machine, the events of its customers, and a sender that counts a
//! delivery as taken only once the whole answer was read.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::LazyLock;
use std::time::Duration;

use bottle::domain::fact::Dated;
use bottle::domain::ids::EventId;
use bottle::domain::instant::Instant;
use bottle::domain::plan::{Plan, PlanKeys};
use serde_json::{Value, json};
use sqlx::PgPool;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::histories::{PRO, STARTER, meaning};
use super::tokens::TENANT;
use crate::oracle::oracle;

/// Its base URL. It lives on a thread of its own, since each test's runtime ends with its test.
pub static TENANT_URL: LazyLock<String> = LazyLock::new(|| {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let keys = json!({ "keys": [TENANT.jwk()] }).to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = publish(stream, &keys);
        }
    });
    url
});

fn publish(mut stream: TcpStream, keys: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut asked = Vec::new();
    while !asked.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte)? == 0 {
            return Ok(());
        }
        asked.push(byte[0]);
    }
    let length = keys.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{keys}"
    )
}

/// An event, signed once: every delivery of it is the same bytes.
#[derive(Debug, Clone)]
pub struct Event {
    pub key: String,
    pub claims: Value,
    pub token: String,
}

impl Event {
    pub fn new(kind: &str, user: &str, agreement: &str, plan: Option<&str>, at: OffsetDateTime) -> Self {
        let key = format!("event_{}", uuid::Uuid::new_v4().simple());
        let mut data = json!({ "user_id": user, "customer_id": format!("customer_{user}"), "agreement_id": agreement });
        if let Some(plan) = plan {
            data["plan"] = json!({ "key": plan });
        }
        let at = at.format(&Rfc3339).unwrap();
        let claims = json!({
            "type": format!("customer.{kind}"), "event_id": key, "source": "user", "event_timestamp": at, "timestamp": at, "data": data,
        });
        Self { token: TENANT.sign_event(claims.to_string()), key, claims }
    }
}

/// A person who went from Starter to Pro ten days ago and paid for it: what the Engine Room's customer did.
pub struct Upgrade {
    pub user: String,
    pub up: Event,
    pub pay: Event,
    pub old: Event,
}

impl Upgrade {
    pub fn new() -> Self {
        let user = format!("kp_{}", uuid::Uuid::new_v4().simple());
        let (new, before) = (format!("agreement_new_{user}"), format!("agreement_old_{user}"));
        let up = OffsetDateTime::now_utc() - time::Duration::days(10);
        let minutes = time::Duration::minutes;
        Self {
            old: Event::new("agreement_cancelled", &user, &before, None, up - minutes(3)),
            up: Event::new("plan_changed", &user, &new, Some(PRO), up),
            pay: Event::new("payment_succeeded", &user, &new, None, up + minutes(3)),
            user,
        }
    }

    pub fn events(&self) -> [&Event; 3] {
        [&self.old, &self.up, &self.pay]
    }

    /// The script of the Engine Room.
    pub fn nine(&self) -> [&Event; 9] {
        let Self { up, pay, old, .. } = self;
        [pay, up, up, pay, pay, pay, old, up, pay]
    }
}

#[derive(Clone)]
pub struct Sender(reqwest::Client);

impl Sender {
    pub fn new() -> Self {
        Self(reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10)).build().unwrap())
    }

    /// The status, if the answer came whole; then a 200 is a promise.
    pub async fn post(&self, to: SocketAddr, event: &Event) -> Option<u16> {
        let request = self.0.post(format!("http://{to}/webhooks/kinde")).header("webhook-id", format!("msg_{}", event.key));
        let answer = request.body(event.token.clone()).send().await.ok()?;
        let status = answer.status().as_u16();
        let told: Value = serde_json::from_str(&answer.text().await.ok()?).ok()?;
        assert!(status != 200 || told["event"] == event.key.as_str(), "{told}");
        Some(status)
    }
}

/// As the defaults have it.
fn keys() -> PlanKeys {
    PlanKeys { pro: [PRO.to_owned()].into(), free: [STARTER.to_owned(), "customer_free_plan".to_owned()].into() }
}

/// Compares what is stored of one person with an independent fold over the facts that were sent, and with one entry a period.
pub async fn assert_as_the_oracle_says(pool: &PgPool, user: &str, sent: &[&Event]) {
    let facts: Vec<Dated> = sent.iter().zip(1..).filter_map(|(event, n)| meaning(EventId(n), &event.claims)).collect();
    let want = oracle(&facts, &keys(), Instant::from_datetime(OffsetDateTime::now_utc()));
    let rows: Vec<(i64, String, Option<i64>, bool)> =
        sqlx::query_as("select id, plan, plan_changed_ns, past_due_since is not null from accounts where kinde_user_id = $1")
            .bind(user)
            .fetch_all(pool)
            .await
            .unwrap();
    let [(account, plan, changed, past_due)] = &rows[..] else { panic!("{user}: {rows:?}") };
    assert_eq!(plan, if want.plan == Plan::Pro { "pro" } else { "free" }, "{user}");
    assert_eq!(*changed, want.plan_changed_at.map(Instant::nanos), "{user}");
    assert_eq!(*past_due, want.past_due_since.is_some(), "{user}");

    let entries: Vec<(String, String, i64)> =
        sqlx::query_as("select reason, period, delta from ledger where account_id = $1 order by period")
            .bind(account)
            .fetch_all(pool)
            .await
            .unwrap();
    let pro: Vec<(String, i64)> =
        entries.iter().filter(|(reason, ..)| reason == "pro").map(|(_, period, delta)| (period.clone(), *delta)).collect();
    assert_eq!(pro, want.pro_periods.iter().map(|p| (p.to_string(), 490)).collect::<Vec<_>>(), "{user}");
    let mut free: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for (_, period, delta) in entries.iter().filter(|(reason, ..)| reason == "free") {
        free.entry(period).or_default().push(*delta);
    }
    assert!(free.values().all(|deltas| deltas == &[10]), "{user}: {free:?}");
    assert!(pro.iter().all(|(period, _)| free.contains_key(period.as_str())), "{user}: {entries:?}");
    assert_eq!(entries.len(), pro.len() + free.len(), "{user}: {entries:?}");
}

/// A lease outlives a killed process by up to half a minute. Nobody has to wait for that in a test.
pub async fn end_leases(pool: &PgPool) {
    sqlx::query("update inbox_events set due_at = now() where status = 'processing'").execute(pool).await.unwrap();
}

pub async fn count(pool: &PgPool, query: &'static str) -> i64 {
    sqlx::query_scalar(query).fetch_one(pool).await.unwrap()
}

/// Until every stored event has its verdict.
pub async fn settled(pool: &PgPool) {
    let began = std::time::Instant::now();
    let open = "select count(*) from inbox_events where status in ('received', 'processing', 'failed')";
    while count(pool, open).await > 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "{} events are still open", count(pool, open).await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
