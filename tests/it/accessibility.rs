//! Every page of the real program, and of its local Kinde, looked at by axe: in the light and the dark, wide and narrow.
//!
//! With `BOTTLE_TEST_PICTURES` set to a folder each look is kept there as a picture.

use serde_json::json;

use crate::support::axe::Axe;
use crate::support::browser::Browser;
use crate::support::local_kinde::{ADA, OLIVE};
use crate::support::newcomer::{Newcomer, Till};
use crate::support::writer::Fields;

const SCREENS: [(u32, u32); 2] = [(1280, 900), (390, 844)];
const SCHEMES: [&str; 2] = ["light", "dark"];

struct Eye {
    at: Newcomer,
    axe: Axe,
    found: Vec<String>,
}

impl Eye {
    async fn open() -> Option<Self> {
        let axe = Axe::find()?;
        let browser = Browser::open(1280, 1000).await?;
        Some(Self { at: Newcomer::start(browser, true).await, axe, found: Vec::new() })
    }

    async fn open_with_stripe() -> Option<(Self, Till)> {
        let axe = Axe::find()?;
        let browser = Browser::open(1280, 1000).await?;
        let (at, till) = Newcomer::start_with_stripe(browser, true).await;
        Some((Self { at, axe, found: Vec::new() }, till))
    }

    /// The page that is open, which goes by this name here.
    async fn looks(&mut self, name: &str) {
        let browser = &self.at.browser;
        browser.until("document.readyState === 'complete'").await;
        self.axe.inject(browser).await;
        for (width, height) in SCREENS {
            for scheme in SCHEMES {
                browser.look_as(width, height, scheme).await;
                let seen = format!("{name}, {width} wide, {scheme}");
                let mut wrong = Axe::violations(browser).await;
                let too_wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
                let too_wide = browser.ask(too_wide).await;
                if too_wide != json!(0) {
                    wrong.push(format!("it scrolls sideways by {too_wide}"));
                }
                self.found.extend(wrong.iter().map(|one| format!("{seen}: {one}")));
                if let Some(folder) = std::env::var_os("BOTTLE_TEST_PICTURES") {
                    let length = browser.ask("document.documentElement.scrollHeight").await.as_u64().unwrap();
                    browser.look_as(width, u32::try_from(length).unwrap().max(height), scheme).await;
                    let picture = browser.client.screenshot().await.unwrap();
                    std::fs::write(std::path::Path::new(&folder).join(format!("{seen}.png")), picture).unwrap();
                }
            }
        }
        let (width, height) = SCREENS[0];
        browser.look_as(width, height, SCHEMES[0]).await;
    }

    async fn goes(&mut self, path: &str, name: &str) {
        self.at.goto(path).await;
        self.looks(name).await;
    }

    async fn goes_to_kinde(&mut self, path: &str, name: &str) {
        self.at.browser.client.goto(&format!("{}{path}", self.at.kinde)).await.unwrap();
        self.looks(name).await;
    }

    /// From the account page, to the page one comes back to.
    async fn pays(&self, ware: &str, way: &str) {
        self.at.click(&format!("#manage input[value={ware}] ~ button")).await;
        self.at.browser.until("location.pathname.startsWith('/c/pay/')").await;
        self.at.click(&format!("button[value={way}]")).await;
        self.at.browser.until("location.pathname.startsWith('/account/checkout/')").await;
    }

    #[track_caller]
    fn found_nothing(&self) {
        assert!(self.found.is_empty(), "{} violations:\n{}", self.found.len(), self.found.join("\n"));
    }

    /// A form with what no field of ours would let a person send.
    async fn sends_regardless(&self, form: &str) {
        self.at.browser.ask(&format!("(document.querySelector('{form}').noValidate = true)")).await;
        self.at.click(&format!("{form} button")).await;
    }

    async fn mark_reminder(&self, text: &str, set: &str) {
        let sql = format!("update reminders set {set} where text = $1");
        let marked = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(text).execute(&self.at.pool).await.unwrap();
        assert_eq!(marked.rows_affected(), 1, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_that_anyone_sees_have_no_barriers() {
    let Some(mut eye) = Eye::open().await else { return };
    eye.goes("/", "home, signed out").await;
    eye.goes("/nowhere", "no such page").await;
    eye.goes("/callback?code=x&state=y", "a sign-in that is stale").await;
    eye.at.goto("/login").await;
    eye.at.click("button[name=refuse]").await;
    eye.looks("a sign-in that was called off").await;
    // A form of another site.
    let foreign = format!("data:text/html,<form method=post action='{}/logout'><button>go</button></form>", eye.at.base);
    eye.at.browser.client.goto(&foreign).await.unwrap();
    eye.at.click("button").await;
    eye.at.browser.until("document.querySelector('.eyebrow')?.textContent === '403'").await;
    eye.looks("a form from elsewhere").await;
    for (path, name) in [
        ("/engine-room", "engine room"),
        ("/engine-room?step=0", "engine room at its beginning"),
        ("/engine-room?script=UP.PAY.UP&stop=1-before-mark", "engine room with another script"),
        ("/engine-room?script=NONSENSE", "engine room with a script that is none"),
    ] {
        eye.goes(path, name).await;
    }
    eye.found_nothing();

    // It would have found a field that has lost its label, and text that can hardly be read.
    eye.at.goto("/login").await;
    eye.axe.inject(&eye.at.browser).await;
    assert_eq!(Axe::violations(&eye.at.browser).await, [] as [String; 0]);
    eye.at.browser.ask("document.querySelector('label').replaceWith(document.querySelector('input[name=given_name]'))").await;
    eye.at.browser.ask("(document.querySelector('h1').style.color = '#bbb', document.body.style.background = '#ddd')").await;
    let found = Axe::violations(&eye.at.browser).await;
    for rule in ["label at ", "color-contrast at "] {
        assert!(found.iter().any(|one| one.starts_with(rule)), "{rule} is not among {found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_whoever_is_signed_in_have_no_barriers() {
    let Some(mut eye) = Eye::open().await else { return };
    eye.at.sign_up("Grace", "Hopper", "grace@example.com").await;
    eye.looks("reminders, none yet").await;
    eye.goes("/", "home, signed in").await;
    eye.goes("/account", "account, nothing yet").await;
    eye.goes("/account/billing", "manage billing").await;
    eye.goes("/reminders/calendar", "calendar, no link").await;
    eye.at.click("form[action='/reminders/calendar'] button").await;
    eye.at.browser.until("document.getElementById('link') !== null").await;
    eye.looks("calendar, a fresh link").await;
    eye.goes("/reminders/calendar", "calendar, a link made before").await;

    eye.at.goto("/reminders").await;
    eye.at.fill("#f-text", "Yesterday's news").await;
    eye.at.set("#f-when", "2020-02-30").await;
    eye.at.set("#f-zone", "Europe/Berlin").await;
    eye.sends_regardless(".reminder-form").await;
    eye.at.browser.until("document.getElementById('problem') !== null").await;
    eye.looks("reminders, one that cannot be made").await;

    let texts = ["Ring the dentist", "Pay the rent", "Water the ficus", "Call home", "Back up the photos"].map(str::to_owned);
    eye.at.schedules(texts.iter().map(|text| Fields::about(text)).collect()).await;
    eye.mark_reminder(&texts[1], "status = 'paused', paused_for = 'bottles', repeat = 'monthly'").await;
    eye.mark_reminder(&texts[2], "status = 'done', done_at = now()").await;
    eye.at.time_comes(&texts[0]).await;
    eye.at.goto("/reminders").await;
    eye.at.comes("document.querySelector('#due .reminder') !== null").await;
    eye.at.browser.ask("(document.getElementById('done-all').open = true)").await;
    eye.looks("reminders, due, upcoming, paused and done").await;
    eye.goes("/reminders?q=home", "reminders, searched").await;
    for (text, name) in [(&texts[3], "edit"), (&texts[0], "one that is due"), (&texts[1], "one that is paused")] {
        let id: i64 =
            sqlx::query_scalar("select id from reminders where text = $1").bind(text).fetch_one(&eye.at.pool).await.unwrap();
        eye.goes(&format!("/reminders/{id}"), &format!("a reminder, {name}")).await;
    }
    eye.at.schedules((6..=10).map(|n| Fields::about(&format!("Reminder {n}"))).collect()).await;
    eye.at.goto("/reminders").await;
    assert_eq!(eye.at.text(".bottles-here b").await, "0");
    eye.looks("reminders, no bottle left").await;
    eye.found_nothing();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_account_and_its_events_have_no_barriers() {
    let Some(mut eye) = Eye::open().await else { return };
    eye.at.learns_adas_past().await;
    eye.looks("account, Pro").await;
    eye.goes("/account?status=dead", "account, a filter that finds nothing").await;
    eye.at.goto("/account").await;
    eye.at.click(".events > li:first-child .event-more").await;
    eye.at.browser.until("document.querySelector('.steps-list') !== null").await;
    eye.looks("event, applied").await;
    eye.at.goto("/account").await;
    eye.at.click(".events > li:last-child form button").await;
    eye.at.browser.until("document.querySelector('.steps-list') !== null").await;
    eye.looks("event, replayed").await;

    // An invoice that is overdue.
    eye.at.browser.client.goto(&format!("{}/people/{ADA}", eye.at.kinde)).await.unwrap();
    eye.at.click("button[value=mark_overdue]").await;
    eye.at.goto("/account").await;
    eye.at.comes("document.querySelector('.notice.wait') !== null").await;
    eye.looks("account, past due").await;
    eye.found_nothing();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_local_kindes_own_pages_have_no_barriers() {
    let Some(mut eye) = Eye::open().await else { return };
    eye.goes_to_kinde("/", "kinde, operator page, nothing sent").await;
    eye.goes_to_kinde("/nowhere", "kinde, no such page").await;
    eye.at.goto("/login").await;
    eye.looks("kinde, sign in").await;
    eye.at.goto("/login?new=1").await;
    eye.looks("kinde, sign up").await;
    eye.sends_regardless(".fields").await;
    eye.at.browser.until("document.querySelector('.wrong') !== null").await;
    eye.looks("kinde, a sign-up that is not taken").await;
    eye.at.sign_up("Grace", "Hopper", "grace@example.com").await;
    eye.at.goto("/login?plan=pro").await;
    eye.at.arrives_at_kinde("/local/checkout").await;
    eye.looks("kinde, choose a plan").await;
    eye.at.goto("/account/billing").await;
    eye.at.click("form[action='/account/billing'] button").await;
    eye.at.browser.until("location.pathname.startsWith('/plans/')").await;
    eye.looks("kinde, plan page, no plan").await;
    eye.at.click("button[value=customer_pro_plan]").await;
    eye.at.browser.until("document.querySelector('.done') !== null").await;
    eye.looks("kinde, plan page, done").await;
    eye.goes_to_kinde(&format!("/people/{ADA}"), "kinde, plan page of Ada").await;
    eye.at.goto("/account").await;
    eye.at.comes("document.querySelectorAll('.event').length === 3").await;
    eye.goes_to_kinde("/", "kinde, operator page, events sent").await;
    eye.at.hold_deliveries(true).await;
    eye.goes_to_kinde("/", "kinde, operator page, held").await;
    eye.found_nothing();
}

#[tokio::test(flavor = "multi_thread")]
async fn buying_and_what_was_paid_have_no_barriers() {
    let Some((mut eye, till)) = Eye::open_with_stripe().await else { return };
    eye.at.sign_up("Grace", "Hopper", "grace@example.com").await;
    eye.goes("/account", "account, a choice of where to buy").await;
    till.turn("switches", json!({ "hold": true })).await;
    eye.pays("pro", "card").await;
    eye.looks("checkout, waiting").await;
    let waiting = eye.at.browser.ask("location.pathname").await;
    till.turn("switches", json!({ "hold": false })).await;
    eye.at.comes("document.querySelector('h1').textContent === 'You are on Pro'").await;
    eye.goes(waiting.as_str().unwrap(), "checkout, Pro bought").await;
    eye.at.goto("/account").await;
    eye.pays("pack", "delayed").await;
    eye.at.comes("document.getElementById('progress').textContent === 'On its way'").await;
    eye.looks("checkout, the bank takes days").await;
    eye.at.goto("/account").await;
    eye.pays("pack", "card").await;
    eye.at.comes("document.getElementById('progress').textContent === 'Bought'").await;
    let charge: String = sqlx::query_scalar("select charge from purchases").fetch_one(&eye.at.pool).await.unwrap();
    till.turn(&format!("charges/{charge}/refund"), json!({ "amount": 120 })).await;
    eye.at.goto("/account").await;
    eye.at.comes("document.querySelector('#money .status') !== null").await;
    eye.looks("account, money and a refund").await;
    eye.at.click("#money .ledger:last-of-type a").await;
    eye.at.browser.until("document.querySelector('.steps-list') !== null").await;
    eye.looks("event, with money").await;

    // Turned back, and turned away.
    eye.at.goto("/account").await;
    eye.at.click("#manage input[value=pack] ~ button").await;
    eye.at.browser.until("location.pathname.startsWith('/c/pay/')").await;
    eye.at.click("main a[href*='/account?back=']").await;
    eye.at.arrives("/account").await;
    eye.looks("account, turned back").await;
    till.turn("faults", json!({ "path": "/v1/checkout/sessions", "status": 503, "times": 1 })).await;
    eye.at.click("#manage input[value=pack] ~ button").await;
    eye.at.browser.until("document.querySelector('.eyebrow')?.textContent.includes('503') ?? false").await;
    eye.looks("no way to the checkout").await;
    eye.found_nothing();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operators_pages_have_no_barriers() {
    let Some(mut eye) = Eye::open().await else { return };
    eye.at.learns_adas_past().await;
    eye.at.sign_out().await;
    eye.at.sign_in_as(OLIVE).await;
    eye.goes("/ops", "operators, nothing wrong").await;
    eye.goes("/ops/dead", "operators, no dead").await;
    eye.goes("/ops/actions", "operators, no actions").await;
    eye.goes("/ops/replays", "operators, no replays").await;
    eye.goes("/ops/reconcile", "operators, nothing compared").await;
    eye.goes("/ops/events", "operators, events").await;
    eye.goes("/ops/events?status=gone&owner=nobody@example.com", "operators, a filter that finds nobody").await;

    let pool = eye.at.pool.clone();
    let sql = async |sql: &'static str| sqlx::query(sql).execute(&pool).await.unwrap();
    sql("update inbox_events set status = 'dead', reason = 'dead after 6 attempts: it broke', last_error = 'it broke', attempts = 6 where id % 2 = 0").await;
    sql("update inbox_events set status = 'parked', due_at = 'infinity', reason = 'parked: x' where id = 1").await;
    sql("insert into conflicts (event_id, webhook_id, digest, body, received_at)
         select a.id, 'webhook_1', '\\x0102', b.body, now() from inbox_events a, inbox_events b where a.id = 2 and b.id = 3")
    .await;
    sql("insert into alerts (condition, sentence, event_ids, raised_at) values ('dead', 'some did not go through', '{2,4}', now())
         on conflict do nothing").await;
    sql("insert into worker_pauses values (gen_random_uuid(), 'relation does not exist', now(), now())").await;
    sql("insert into reconcile_runs (night, sources, since, until, mode, state, totals, begun_at, touched_at, finished_at)
         values ('2026-10-21', '{kinde}', now(), now(), 'look', 'finished',
                 '[{\"source\": \"stripe\", \"currency\": \"eur\", \"ours_minor\": 1, \"theirs_minor\": 2}]', now(), now(), now())").await;
    sql("insert into reconcile_findings (run_id, class, source, subject, ours, theirs, done, state, event_id, found_at)
         select 1, 'plan_stale', 'kinde', 'customer_1', 'free', 'pro', 'asked again', 'open', 2, now()")
    .await;
    eye.goes("/ops", "operators, much wrong").await;
    eye.goes("/ops/dead", "operators, dead").await;
    eye.goes("/ops/parked", "operators, parked").await;
    eye.goes("/ops/events/2", "operators, an event with a conflict").await;
    eye.goes("/ops/reconcile", "operators, compared").await;
    eye.goes("/ops/reconcile/1", "operators, what differs").await;
    eye.at.goto("/ops/events/2").await;
    eye.at.fill("#f-ack", "Seen, and it may rest").await;
    eye.at.click("form[action$='/acknowledge'] button").await;
    eye.at.browser.until("document.getElementById('said') !== null").await;
    eye.looks("operators, acknowledged").await;

    eye.goes("/ops/replay?status=dead", "operators, replay what matches").await;
    eye.at.goto("/ops/replay?status=dead").await;
    eye.at.fill("#f-confirm", "yes").await;
    eye.at.click("form[action^='/ops/replays'] button").await;
    eye.at.browser.until("document.getElementById('problem') !== null").await;
    eye.looks("operators, a replay that was not confirmed").await;
    eye.at.fill("#f-confirm", "replay").await;
    eye.at.click("form[action^='/ops/replays'] button").await;
    // The page that is open tells by itself how it gets on.
    eye.at.comes("document.querySelector('[data-live=bulk]')?.textContent.includes('Done')").await;
    eye.looks("operators, a replay that is done").await;
    eye.goes("/ops/replays", "operators, replays").await;
    eye.goes("/ops/actions", "operators, actions").await;
    eye.goes("/nowhere", "no such page, signed in").await;
    eye.found_nothing();
}
