//! Somebody new at the real program: it runs with its local Kinde beside it and no setting but a database of the test's own,
//! and they have a browser.

use std::time::{Duration, Instant};

use fantoccini::Locator;
use serde_json::{Value, json};
use sqlx::PgPool;

use super::binary::{Bottle, Home};
use super::browser::Browser;
use super::db::{TestDb, fresh_db};
use super::local_kinde::ADA;
use super::till::{now_secs, signature};
use super::writer::Fields;

/// Longer than events take to come, and a page to learn of them, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Newcomer {
    pub browser: Browser,
    pub bottle: Bottle,
    pub pool: PgPool,
    home: Home,
    _db: TestDb,
    /// `http://localhost:…`
    pub base: String,
    /// `http://127.0.0.1:…`
    pub kinde: String,
    /// Pages change by themselves; without JavaScript one reloads them.
    pub scripted: bool,
}

/// What the local Kinde signed, and the name of its delivery.
pub struct Captured {
    pub token: String,
    pub webhook_id: String,
}

/// `bottle local-stripe`, as it runs beside Bottle.
pub struct Till {
    running: Bottle,
    url: String,
    /// It signs with this.
    secret: String,
}

impl Till {
    /// Sends to Bottle at this address; the settings that it says Bottle needs.
    async fn start(home: &Home, bottle: &str) -> (Self, Vec<(String, String)>) {
        let webhooks = format!("http://{bottle}/webhooks/stripe");
        let args = ["local-stripe", "--addr", "127.0.0.1:0", "--webhook-url", &webhooks];
        let running = Bottle::spawn(home.command(&args, &[]));
        let begun = Instant::now();
        while !running.said().contains("STRIPE_PRICE_PACK=") {
            assert!(begun.elapsed() < PATIENCE, "no local Stripe:\n{}\n{}", running.said(), running.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let said = running.said();
        let settings = said.lines().filter_map(|line| line.split_once('=')).filter(|(name, _)| name.starts_with("STRIPE_"));
        let settings: Vec<_> = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let of = |wanted: &str| settings.iter().find(|(name, _)| name == wanted).unwrap().1.clone();
        (Self { running, url: of("STRIPE_API_BASE"), secret: of("STRIPE_WEBHOOK_SECRET") }, settings)
    }

    /// A switch or a button of its operator's page.
    pub async fn turn(&self, what: &str, how: Value) {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let answer = http.post(format!("{}/local/{what}", self.url)).json(&how).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{what}: {}", self.running.log());
    }

    pub fn signature(&self, body: &[u8]) -> String {
        signature(&self.secret, now_secs(), body)
    }
}

impl Newcomer {
    pub async fn start(browser: Browser, scripted: bool) -> Self {
        let (home, db) = (Home::new(), fresh_db().await);
        let bottle = home.start(&[], &[("DATABASE_URL", &db.url())]).await;
        Self::at(browser, scripted, home, db, bottle).await
    }

    /// The same with a local Stripe, which has to know beforehand where Bottle will be.
    pub async fn start_with_stripe(browser: Browser, scripted: bool) -> (Self, Till) {
        let (home, db) = (Home::new(), fresh_db().await);
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let (till, settings) = Till::start(&home, &free).await;
        let url = db.url();
        let mut all = vec![("DATABASE_URL", url.as_str()), ("BOTTLE_ADDR", free.as_str())];
        all.extend(settings.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let bottle = home.start(&[], &all).await;
        (Self::at(browser, scripted, home, db, bottle).await, till)
    }

    async fn at(browser: Browser, scripted: bool, home: Home, db: TestDb, bottle: Bottle) -> Self {
        let base = format!("http://localhost:{}", bottle.addr().port());
        let kinde = kinde_of(&bottle).await;
        let pool = db.pool().await;
        Self { browser, bottle, pool, home, _db: db, base, kinde, scripted }
    }

    pub async fn goto(&self, path: &str) {
        self.browser.client.goto(&format!("{}{path}", self.base)).await.unwrap();
    }

    pub async fn click(&self, css: &str) {
        let found = self.browser.client.find(Locator::Css(css)).await;
        let found = found.unwrap_or_else(|why| panic!("nothing to click at {css}: {why}"));
        found.click().await.unwrap_or_else(|why| panic!("{css} cannot be clicked: {why}"));
    }

    pub async fn fill(&self, css: &str, text: &str) {
        let field = self.browser.client.find(Locator::Css(css)).await.unwrap();
        field.clear().await.unwrap();
        field.send_keys(text).await.unwrap();
    }

    /// Fields whose keys depend on the browser's language, such as dates.
    pub async fn set(&self, css: &str, value: &str) {
        self.browser.ask(&format!("(document.querySelector({}).value = {})", json!(css), json!(value))).await;
    }

    pub async fn text(&self, css: &str) -> String {
        let text = self.browser.ask(&format!("document.querySelector({})?.textContent ?? ''", json!(css))).await;
        text.as_str().unwrap().to_owned()
    }

    pub async fn is(&self, what: &str) -> bool {
        self.browser.ask(what).await == json!(true)
    }

    /// At that page of Bottle.
    pub async fn arrives(&self, path: &str) {
        self.browser.until(&format!("location.href.split(/[?#]/)[0] === '{}{path}'", self.base)).await;
    }

    /// At that page of the local Kinde.
    pub async fn arrives_at_kinde(&self, path: &str) {
        self.browser.until(&format!("location.href.split(/[?#]/)[0] === '{}{path}'", self.kinde)).await;
    }

    /// Waits until it is to be seen: in the very page that is open, by itself; without JavaScript, by reloading it.
    pub async fn comes(&self, what: &str) {
        let begun = Instant::now();
        if self.scripted {
            self.browser.ask("(window.openedOnce = true)").await;
        }
        while !self.is(what).await {
            assert!(begun.elapsed() < PATIENCE, "never came: {what}\n{}", self.text("main").await);
            if self.scripted {
                tokio::time::sleep(Duration::from_millis(50)).await;
            } else {
                tokio::time::sleep(Duration::from_millis(300)).await;
                self.browser.client.refresh().await.unwrap();
            }
        }
        if self.scripted {
            assert!(self.is("window.openedOnce === true").await, "the page was loaded anew before it showed: {what}");
        }
    }

    /// From Bottle's front page, by way of the local Kinde.
    pub async fn sign_up(&self, given: &str, family: &str, email: &str) {
        self.goto("/").await;
        self.click(".doors a[href*='new=1']").await;
        self.arrives_at_kinde("/oauth2/auth").await;
        self.fill("input[name=given_name]", given).await;
        self.fill("input[name=family_name]", family).await;
        self.fill("input[name=email]", email).await;
        self.click(".fields button.main").await;
        self.arrives("/reminders").await;
    }

    pub async fn sign_in_as_ada(&self) {
        self.sign_in_as(ADA).await;
    }

    /// One of the local Kinde's sample people.
    pub async fn sign_in_as(&self, person: &str) {
        self.goto("/").await;
        self.click(".doors a.strong").await;
        self.arrives_at_kinde("/oauth2/auth").await;
        self.click(&format!("button[value='{person}']")).await;
        self.arrives("/reminders").await;
    }

    /// Ada's account with all that was ever told about her.
    pub async fn learns_adas_past(&self) {
        self.sign_in_as_ada().await;
        self.click(".top nav a[href='/account']").await;
        self.arrives("/account").await;
        self.comes("document.getElementById('plan-h').textContent === 'Pro'").await;
        // Eight of the provider's, and the opening of this month if she came before its payment was told.
        self.comes("document.querySelectorAll('.event').length >= 8").await;
        self.comes("!document.querySelector('[data-live=log]').textContent.includes('under way')").await;
    }

    pub async fn sign_out(&self) {
        self.click("form[action='/logout'] button").await;
        self.arrives("/").await;
        self.browser.until("document.querySelector('.who a[href=\"/login\"]') !== null").await;
    }

    /// The local Kinde keeps its deliveries back, or lets them go: a button of its page, pressed in another browser.
    pub async fn hold_deliveries(&self, hold: bool) {
        let http = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let pressed = http.post(format!("{}/local/hold", self.kinde)).form(&[("hold", hold.to_string())]).send().await.unwrap();
        assert_eq!(pressed.status(), 303);
    }

    /// The first event of this type that was sent: read where the local Kinde keeps what it signed.
    pub fn captured(&self, event_type: &str) -> Captured {
        let state = std::fs::read_to_string(self.home.path().join(".bottle/local-kinde/state.json")).unwrap();
        let state: Value = serde_json::from_str(&state).unwrap();
        let sent = state["events"].as_array().unwrap().iter().find(|event| event["event_type"] == event_type).unwrap();
        let text = |name: &str| sent[name].as_str().unwrap().to_owned();
        Captured { token: text("token"), webhook_id: text("webhook_id") }
    }

    /// Makes the time of the reminder with this text come.
    pub async fn time_comes(&self, text: &str) {
        let moved = sqlx::query("update reminders set due_at = now() where text = $1 and status = 'scheduled'").bind(text);
        assert_eq!(moved.execute(&self.pool).await.unwrap().rows_affected(), 1);
    }

    /// Schedules reminders as a program would that has the browser's cookie.
    pub async fn schedules(&self, all: Vec<Fields>) {
        let cookie = self.browser.client.get_named_cookie("bottle").await.unwrap();
        let http = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        for fields in all {
            let fields = fields.with("key", &uuid::Uuid::new_v4().to_string());
            let post = http.post(format!("{}/reminders", self.base)).form(&fields.pairs());
            let post = post.header("origin", &self.base).header("cookie", format!("bottle={}", cookie.value()));
            let answer = post.send().await.unwrap();
            assert_eq!(answer.status(), 303, "{}: {}", fields.get("text"), answer.text().await.unwrap());
        }
    }
}

/// Said together with being ready, but in a line of its own.
async fn kinde_of(bottle: &Bottle) -> String {
    loop {
        let said = bottle.said();
        let address = said.split("a local one runs at ").nth(1).filter(|rest| rest.contains('\n'));
        if let Some(address) = address.and_then(|rest| rest.split_whitespace().next()) {
            return address.trim_end_matches(['.', ',', '/']).to_owned();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
