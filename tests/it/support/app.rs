//! The program inside a test: the real router and pools, on a port and a database of its own.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request};
use axum::routing::get;
use bottle::accounts;
use bottle::billing::apply::Rules;
use bottle::checkpoint::Checkpoints;
use bottle::clock::Clock;
use bottle::config::{Operators, Secret};
use bottle::db;
use bottle::domain::ids::KindeUserId;
use bottle::domain::plan::PlanKeys;
use bottle::engine_room::visits::Visits;
use bottle::inbox::queue;
use bottle::intake::Intake;
use bottle::jwks::Jwks;
use bottle::oidc::Oidc;
use bottle::outbound;
use bottle::providers::kinde::Kinde;
use bottle::providers::kinde::management::Management;
use bottle::providers::{Provider, Providers};
use bottle::sessions::Sessions;
use bottle::wake::Wake;
use bottle::web::live::Live;
use bottle::web::person::Person;
use bottle::web::sign_in::{CustomerOf, Parts, SignIn};
use bottle::web::{routes, server, state::AppState};
use bottle::worker::{self, process::Engine};
use serde_json::{Value, json};
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tower_sessions::Session;

use super::db::{TestDb, fresh_db};
use super::tokens::TENANT;

/// Seals the sign-ins of a test.
pub const SESSION_KEY: &str = "canary-session-key-of-the-tests-0123456789";
pub const DOMAIN: &str = "https://bottle-test.kinde.com";

/// What differs between tests; [`Setup::default`] is a Kinde whose keys are held, and no worker.
pub struct Setup {
    /// None: Kinde is not configured.
    pub jwks: Option<Jwks>,
    /// With it Kinde is asked to confirm events.
    pub management: Option<Management>,
    pub stripe: Option<Provider>,
    pub checkpoints: Checkpoints,
    pub worker: bool,
    /// Claims side by side, if it has one.
    pub lanes: usize,
    pub https: bool,
    /// How people sign in; none: they cannot.
    pub sign_in: Option<SignInSetup>,
    pub operators: &'static str,
    /// Where intake finds the database, if not where the test does.
    pub intake_options: Option<PgConnectOptions>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            jwks: Some(Jwks::held([TENANT.held()])),
            management: None,
            stripe: None,
            checkpoints: Checkpoints::default(),
            worker: false,
            lanes: 1,
            https: false,
            sign_in: None,
            operators: "",
            intake_options: None,
        }
    }
}

/// A Kinde to sign in at.
pub struct SignInSetup {
    pub kinde: bottle::config::Kinde,
    pub customer_of: Option<CustomerOf>,
}

impl SignInSetup {
    fn make(self, base: &str, https: bool, wake: Wake) -> SignIn {
        let keys = outbound::Client::new(&self.kinde.domain).unwrap();
        let jwks = Jwks::new("/.well-known/jwks", keys);
        let client = self.kinde.client.clone().unwrap();
        SignIn::new(Parts {
            oidc: Oidc::new(&self.kinde, client, base, jwks).unwrap(),
            session_key: Secret::new(SESSION_KEY),
            https,
            tenant: DOMAIN.to_owned(),
            plans: PlanKeys::default(),
            customer_of: self.customer_of,
            wake,
        })
    }
}

pub struct App {
    pub address: SocketAddr,
    /// The test's own view of the database.
    pub pool: PgPool,
    pub intake_pool: PgPool,
    pub web_pool: PgPool,
    pub worker_pool: PgPool,
    pub db: TestDb,
    pub http: reqwest::Client,
    pub state: AppState,
    stop: CancellationToken,
    running: Vec<JoinHandle<()>>,
}

/// As its client sees it.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
    pub took: Duration,
}

impl Setup {
    pub async fn start(self) -> App {
        self.start_on(fresh_db().await).await
    }

    pub async fn start_on(self, db: TestDb) -> App {
        let options = db.options();
        let intake_pool = db::pool(self.intake_options.as_ref().unwrap_or(&options), db::Use::Intake);
        let (web_pool, worker_pool) = (db::pool(&options, db::Use::Web), db::pool(&options, db::Use::Worker));
        let kinde = self.jwks.map(|jwks| {
            let kinde = Kinde::new(Arc::new(jwks), [DOMAIN.to_owned()], None).selling(Some("customer_pro_plan".to_owned()));
            Provider::Kinde(match self.management {
                Some(management) => kinde.with_management(management),
                None => kinde,
            })
        });
        let mut keys = PlanKeys::default();
        keys.pro.extend(self.stripe.is_some().then(|| crate::local_stripe::PRO.to_owned()));
        let rules = Arc::new(Rules { keys, tenant: DOMAIN.to_owned() });
        let providers = Arc::new(Providers { kinde, stripe: self.stripe });
        let (wake, stop) = (Wake::default(), CancellationToken::new());
        let mut running = Vec::new();

        if self.worker {
            let engine = Engine {
                pool: worker_pool.clone(),
                providers: Arc::clone(&providers),
                rules: Arc::clone(&rules),
                checkpoints: Checkpoints::default(),
                clock: Clock::Database,
                lease_secs: queue::LEASE_SECS,
            };
            running.push(tokio::spawn(worker::run(engine, self.lanes, wake.clone(), stop.clone())));
        }
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let base = format!("{}://{address}", if self.https { "https" } else { "http" });
        let state = AppState {
            pool: web_pool.clone(),
            intake: Intake::start(intake_pool.clone(), Arc::clone(&providers), wake.clone(), self.checkpoints),
            providers,
            rules,
            wake: wake.clone(),
            live: Live::new(web_pool.clone(), stop.clone()),
            room: Arc::new(Visits::new(options)),
            local_kinde: None,
            base: base.parse().unwrap(),
            sign_in: self.sign_in.map(|setup| Arc::new(setup.make(&base, self.https, wake))),
            operators: Arc::new(Operators::read(self.operators)),
            https: self.https,
        };
        running.push(tokio::spawn(server::serve(listener, routes::app(state.clone()), stop.clone())));

        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        App { address, pool: db.pool().await, intake_pool, web_pool, worker_pool, db, http, state, stop, running }
    }
}

impl App {
    pub async fn start() -> Self {
        Setup::default().start().await
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Posts a body as Kinde does, without the header that names the attempt.
    pub async fn deliver(&self, body: impl Into<reqwest::Body>) -> Answer {
        answer(self.http.post(self.url("/webhooks/kinde")).body(body)).await
    }

    pub async fn deliver_as(&self, webhook_id: &str, body: impl Into<reqwest::Body>) -> Answer {
        answer(self.http.post(self.url("/webhooks/kinde")).header("webhook-id", webhook_id).body(body)).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        answer(self.http.get(self.url(path))).await
    }

    /// Asks it to stop, as a signal does.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    pub fn has_stopped(&self) -> bool {
        self.running.iter().all(JoinHandle::is_finished)
    }

    /// Events, receipts and conflicts.
    pub async fn counts(&self) -> (i64, i64, i64) {
        let sql = "select (select count(*) from inbox_events), (select count(*) from receipts), (select count(*) from conflicts)";
        sqlx::query_as(sql).fetch_one(&self.pool).await.unwrap()
    }

    /// Status, `seen_count` and body of one event.
    pub async fn row(&self, id: &str) -> Option<(String, i32, Vec<u8>)> {
        let sql = "select status, seen_count, body from inbox_events where source = 'kinde' and dedupe_key = $1";
        sqlx::query_as(sql).bind(id).fetch_optional(&self.pool).await.unwrap()
    }

    /// The header and whether it was a copy, in the order of arrival.
    pub async fn receipts(&self, id: &str) -> Vec<(Option<String>, bool)> {
        let sql = "select r.webhook_id, r.copy from receipts r join inbox_events e on e.id = r.event_id \
                   where e.dedupe_key = $1 order by r.id";
        sqlx::query_as(sql).bind(id).fetch_all(&self.pool).await.unwrap()
    }

    /// Every event was seen as often as it has receipts, and just one of those is not a copy's.
    #[track_caller]
    pub fn assert_receipts_agree(&self) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let sql = "select dedupe_key, seen_count, count(r.id), count(r.id) filter (where not r.copy) \
                       from inbox_events e left join receipts r on r.event_id = e.id group by e.id \
                       having e.seen_count <> count(r.id) or count(r.id) filter (where not r.copy) <> 1";
            let odd: Vec<(String, i32, i64, i64)> = sqlx::query_as(sql).fetch_all(&self.pool).await.unwrap();
            assert!(odd.is_empty(), "{caller}: (event, seen, receipts, receipts of firsts) {odd:?}");
        }
    }

    /// Waits for the worker to come to a verdict about every event.
    pub async fn worked_off(&self) {
        let open = "select count(*) from inbox_events where status in ('received', 'processing', 'failed')";
        eventually("the worker comes to a verdict", async || {
            sqlx::query_scalar::<_, i64>(open).fetch_one(&self.pool).await.unwrap() == 0
        })
        .await;
    }
}

/// # Panics
/// The server hangs up without an answer.
pub async fn answer(request: reqwest::RequestBuilder) -> Answer {
    try_answer(request).await.unwrap()
}

pub async fn try_answer(request: reqwest::RequestBuilder) -> reqwest::Result<Answer> {
    let began = Instant::now();
    let response = request.send().await?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let text = response.text().await?;
    Ok(Answer { status, headers, text, took: began.elapsed() })
}

/// For what comes about by itself a little later.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < Duration::from_secs(20), "not within 20 s: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

impl Answer {
    #[track_caller]
    pub fn says_stored(&self, id: &str, copy: bool) {
        assert_eq!((self.status, self.text.as_str()), (200, format!(r#"{{"event":"{id}","copy":{copy}}}"#).as_str()));
        assert_eq!(self.headers["content-type"], "application/json");
    }

    /// 503, in time, with word of when to come again.
    #[track_caller]
    pub fn says_come_again(&self) {
        assert_eq!((self.status, self.text.as_str()), (503, r#"{"error":"try again"}"#));
        let secs: u32 = self.headers["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=60).contains(&secs), "{secs}");
        assert!(self.took < Duration::from_millis(2500), "{:?}", self.took);
    }
}

/// A genuine event and its token.
pub struct Event {
    pub id: String,
    pub claims: Value,
    pub token: String,
}

impl Event {
    /// A change to Pro, just now.
    pub fn new() -> Self {
        Self::with(json!({}))
    }

    /// With claims added or replaced.
    pub fn with(changes: Value) -> Self {
        let id = format!("event_{}", uuid::Uuid::new_v4().simple());
        let now = jiff::Timestamp::now().to_string();
        let mut claims = json!({
            "type": "customer.plan_changed", "event_id": id, "source": "user", "timestamp": now, "event_timestamp": now,
            "data": {"user_id": format!("kp_{}", &id[6..]), "plan": {"key": "customer_pro_plan"}},
        });
        let Value::Object(changes) = changes else { panic!("{changes} is no object") };
        claims.as_object_mut().unwrap().extend(changes);
        let token = TENANT.sign_event(claims.to_string());
        Self { id, claims, token }
    }

    /// The same id over other claims.
    pub fn but(&self, changes: Value) -> Self {
        let Value::Object(mut all) = self.claims.clone() else { panic!("{} is no object", self.claims) };
        let Value::Object(changes) = changes else { panic!("{changes} is no object") };
        all.extend(changes);
        let event = Self::with(Value::Object(all));
        Self { id: self.id.clone(), ..event }
    }
}

/// A person with a session, made without a sign-in.
pub struct SignedIn {
    pub person: Person,
    /// The value of a `Cookie` header.
    pub cookie: String,
}

impl App {
    /// Creates the person's account if need be and begins a session for them.
    pub async fn sign_in(&self, user: &str) -> SignedIn {
        let user = KindeUserId(user.to_owned());
        let mut conn = self.pool.acquire().await.unwrap();
        let users = BTreeSet::from([user.clone()]);
        accounts::create(&mut conn, DOMAIN, &users, time::OffsetDateTime::now_utc()).await.unwrap();
        let account = accounts::find(&mut conn, DOMAIN, std::slice::from_ref(&user.0)).await.unwrap()[&user];
        let person = Person {
            account,
            name: user.0.clone(),
            email: Some(format!("{user}@example.com")),
            email_verified: true,
            operator: false,
            user,
        };
        let session = Session::new(None, Arc::new(Sessions::new(self.pool.clone())), None);
        person.begin(&session).await.unwrap();
        session.save().await.unwrap();
        SignedIn { person, cookie: format!("bottle={}", session.id().unwrap()) }
    }

    pub async fn get_as(&self, who: &SignedIn, path: &str) -> Answer {
        answer(self.http.get(self.url(path)).header("cookie", &who.cookie)).await
    }

    /// Whom a handler sees behind a session cookie.
    ///
    /// # Panics
    /// Nobody.
    pub async fn person_of(&self, session: &str) -> Person {
        let seen = Arc::new(Mutex::new(None));
        let handler = {
            let seen = Arc::clone(&seen);
            async move |person: Person| *seen.lock().unwrap() = Some(person)
        };
        let app = Router::new().route("/", get(handler)).layer(routes::sessions(&self.state)).with_state(self.state.clone());
        let request = Request::get("/").header("cookie", format!("bottle={session}")).body(Body::empty()).unwrap();
        app.oneshot(request).await.unwrap();
        seen.lock().unwrap().take().expect("somebody is signed in")
    }

    /// Posts a form from our own page.
    pub async fn post_as(&self, who: &SignedIn, path: &str, form: &[(&str, &str)]) -> Answer {
        let origin = self.url("");
        answer(self.http.post(self.url(path)).header("cookie", &who.cookie).header("origin", origin).form(form)).await
    }
}
