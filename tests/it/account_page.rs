//! The account page: what it says, whose it shows, and that it stays what it is while events arrive.

use bottle::billing::log::{self, Filter};
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

use crate::support::app::{App, Event, Setup, SignedIn};
use crate::support::claims::customer_id;
use crate::support::kinde_api::KindeApi;

const AT: &str = "2026-10-21T10:00:00Z";

async fn working() -> App {
    Setup { worker: true, ..Setup::default() }.start().await
}

#[track_caller]
fn says(page: &str, words: &[&str]) {
    for word in words {
        assert!(page.contains(word), "the page does not say `{word}`:\n{page}");
    }
}

#[tokio::test]
async fn a_new_account_is_told_what_will_show_here() {
    let app = App::start().await;
    let ada = app.sign_in("kp_ada").await;
    let page = app.get_as(&ada, "/account").await;
    assert_eq!(page.status, 200);
    says(
        &page.text,
        &["<h2 id=\"plan-h\">Free</h2>", "Nothing has happened to your billing yet", "<b class=\"bottles-left\">10</b>"],
    );
    says(
        &page.text,
        &[
            "href=\"/login?plan=pro&amp;return_to=/account\"",
            "action=\"/account/billing\"",
            "carries no amounts",
            "href=\"/account\">Reload</a>",
        ],
    );
}

#[tokio::test]
async fn an_upgrade_is_told_as_its_customer_would_tell_it() {
    let app = working().await;
    let ada = app.sign_in("kp_ada").await;
    let event = Event::upgrade("kp_ada", AT);
    for _ in 0..3 {
        app.deliver(event.token.clone()).await;
    }
    app.worked_off().await;
    let page = app.get_as(&ada, "/account").await.text;
    says(&page, &["Your plan changed to Pro, and the bottles of Pro were added.", "Plan changed", "Applied</span>"]);
    says(&page, &["Free → Pro · 10 → 500 bottles for October 2026", ", 3 copies", "<h2 id=\"plan-h\">Pro</h2>"]);
    says(&page, &["<code>plan set to pro, Pro allowance granted</code>", "A replay would change nothing: already applied."]);
    says(&page, &["<time datetime=\"2026-10-21T10:00:00Z\" title=\"2026-10-21 10:00:00 UTC\">21 Oct 2026, 10:00:00 UTC</time>"]);
    let october = app.get_as(&ada, "/account?ledger=2026-10").await.text;
    says(&october, &["Bottles of October 2026", "Bottles of Pro", "+490", "Free bottles of the month"]);
}

#[tokio::test]
async fn past_due_dead_and_parked_are_said_first() {
    let app = working().await;
    let ada = app.sign_in("kp_ada").await;
    for event in [
        Event::upgrade("kp_ada", AT),
        Event::of("kp_ada", "invoice_overdue", "2026-10-22T10:00:00Z", None),
        Event::of("kp_ada", "plan_changed", "2026-10-23T10:00:00Z", Some("gold")),
    ] {
        app.deliver(event.token).await;
    }
    app.worked_off().await;
    let dead = "update inbox_events set status = 'dead', attempts = 6, reason = 'dead after 6 attempts: it broke' \
                where type = 'customer.invoice_overdue'";
    app.pool.execute(dead).await.unwrap();
    let page = app.get_as(&ada, "/account").await.text;
    says(&page, &["A payment is past due since", "1 event could not be worked through", "/account?status=dead#log"]);
    says(&page, &["1 on hold", "1 set aside", "This names a plan that this Bottle does not know yet.", "On hold</span>"]);
    says(&page, &["it would wait again, for the same reason", "Set aside</span>", "Failed 6 times."]);
    let dead = app.get_as(&ada, "/account?status=dead").await.text;
    assert_eq!(dead.matches("<li class=\"card event\"").count(), 1);
    says(&dead, &["Invoice overdue", "A replay would be applied, and would change neither your plan nor your bottles."]);
}

#[tokio::test]
async fn a_dry_run_says_what_an_event_that_was_never_applied_would_change() {
    let app = working().await;
    let ada = app.sign_in("kp_ada").await;
    let upgrade = Event::upgrade("kp_ada", AT);
    app.deliver(upgrade.token.clone()).await;
    app.worked_off().await;
    // As if this release could not apply them: nothing of theirs is stored.
    let undo = "delete from facts; update accounts set plan = 'free', plan_changed_at = null, plan_changed_ns = null; \
                alter table ledger disable trigger user; delete from ledger; delete from event_runs; \
                update inbox_events set status = 'dead', reason = 'dead after 6 attempts: it broke'";
    app.pool.execute(sqlx::raw_sql(undo)).await.unwrap();
    let owed = Event::of("kp_ada", "payment_failed", "2026-10-22T10:00:00Z", None);
    app.deliver(owed.token.clone()).await;
    app.worked_off().await;
    let forget = "delete from facts; update accounts set past_due_since = null; update inbox_events set status = 'dead'";
    app.pool.execute(sqlx::raw_sql(forget)).await.unwrap();
    let page = app.get_as(&ada, "/account").await.text;
    says(&page, &["A replay would change this: Free → Pro · 10 → 500 bottles for October 2026."]);
    says(&page, &["A replay would change this: a payment would be past due."]);
    let one = app.get_as(&ada, &format!("/account/events/{}", app.number(&upgrade.id).await)).await.text;
    says(&one, &["A replay would change this: Free → Pro · 10 → 500 bottles for October 2026."]);
}

#[tokio::test]
async fn a_newer_change_is_named_and_linked() {
    let app = working().await;
    let ada = app.sign_in("kp_ada").await;
    let (newer, older) = (Event::upgrade("kp_ada", AT), Event::starter("kp_ada", "2026-10-21T09:57:00Z"));
    app.deliver(newer.token.clone()).await;
    app.worked_off().await;
    app.deliver(older.token.clone()).await;
    app.worked_off().await;
    let page = app.get_as(&ada, "/account").await.text;
    let link = format!("<a href=\"/account/events/{}\">Plan changed, ", app.number(&newer.id).await);
    says(&page, &["Nothing changed: a newer change to your plan was already known.", &link]);
    says(&page, &["A replay would change nothing: a newer plan change is already stored."]);
}

/// Kinde tells of one change by several messages; what the second one has left to do is nothing, and that is no fault.
#[tokio::test]
async fn the_other_message_of_one_upgrade_is_told_to_belong_to_it() {
    let app = working().await;
    let ada = app.sign_in("kp_ada").await;
    app.deliver(Event::upgrade("kp_ada", AT).token).await;
    app.worked_off().await;
    app.deliver(Event::of("kp_ada", "agreement_created", "2026-10-21T09:59:58Z", Some("customer_pro_plan")).token).await;
    app.worked_off().await;
    let page = app.get_as(&ada, "/account").await.text;
    says(&page, &["This belongs to a change of your plan that another message had already told us of", "Plan begun"]);
    says(&page, &["Newest first, by when we heard of it"]);
    // One of a week before is about something else.
    app.deliver(Event::of("kp_ada", "agreement_created", "2026-10-14T10:00:00Z", Some("customer_starter_plan")).token).await;
    app.worked_off().await;
    says(&app.get_as(&ada, "/account").await.text, &["Nothing changed: a newer change to your plan was already known."]);
}

#[tokio::test]
async fn a_plan_that_kindes_answer_set_says_that_kinde_was_asked() {
    let api = KindeApi::start().await;
    api.lists("ada", &[("agreement_new", "pro", None)]);
    let app = Setup { worker: true, management: Some(api.management()), ..Setup::default() }.start().await;
    let ada = app.sign_in("kp_ada").await;
    let data = json!({"user_id": "kp_ada", "customer_id": customer_id("ada"), "agreement_id": "agreement_old"});
    let ended = Event::with(json!({"type": "customer.agreement_cancelled", "event_timestamp": AT, "data": data}));
    app.deliver(ended.token.clone()).await;
    app.worked_off().await;
    let asked = "When this came, Kinde was asked which plan is yours, and answered Pro.";
    let page = app.get_as(&ada, "/account").await.text;
    says(&page, &["Plan cancelled", "Free → Pro", asked]);
    says(&app.get_as(&ada, &format!("/account/events/{}", app.number(&ended.id).await)).await.text, &[asked]);
    // Where the message itself says so, the answer only confirms it.
    api.lists("bob", &[("agreement_new", "pro", None)]);
    let bob = app.sign_in("kp_bob").await;
    let data = json!({"user_id": "kp_bob", "customer_id": customer_id("bob"), "agreement_id": "agreement_new", "plan": {"key": "customer_pro_plan"}});
    app.deliver(Event::with(json!({"event_timestamp": AT, "data": data})).token).await;
    app.worked_off().await;
    let page = app.get_as(&bob, "/account").await.text;
    says(&page, &["Free → Pro"]);
    assert!(!page.contains("was asked which plan"), "{page}");
}

#[tokio::test]
async fn who_leaves_pro_is_told_why_the_bottles_stay() {
    let app = working().await;
    let ada = app.sign_in("kp_ada").await;
    let ago = |secs: i64| (jiff::Timestamp::now() - jiff::SignedDuration::from_secs(secs)).to_string();
    app.deliver(Event::upgrade("kp_ada", &ago(2)).token).await;
    app.deliver(Event::starter("kp_ada", &ago(1)).token).await;
    app.worked_off().await;
    let page = app.get_as(&ada, "/account").await.text;
    says(
        &page,
        &[
            "<h2 id=\"plan-h\">Free</h2>",
            "<b class=\"bottles-left\">500</b>",
            "The bottles of Pro that this month was given stay yours until it ends",
        ],
    );
}

fn shown(page: &str) -> Vec<i64> {
    let cards = page.split("<li class=\"card event\" id=\"event-").skip(1);
    cards.map(|card| card.split('"').next().unwrap().parse().unwrap()).collect()
}

fn older(page: &str) -> Option<String> {
    let before = page.split("\">Older events</a>").next().filter(|before| before.len() < page.len())?;
    let link = &before[before.rfind("href=\"").unwrap() + 6..];
    Some(link.replace("&#38;", "&").replace("&amp;", "&"))
}

#[tokio::test]
async fn pages_stay_where_they_are_while_events_arrive() {
    let app = App::start().await;
    let ada = app.sign_in("kp_ada").await;
    app.fill_log(&ada, "old", 45).await;
    let mut seen = Vec::new();
    let mut next = Some("/account".to_owned());
    while let Some(address) = next {
        let page = app.get_as(&ada, &address).await.text;
        seen.extend(shown(&page));
        assert!(seen.len() <= 45, "some are shown twice: {seen:?}");
        next = older(&page);
        app.fill_log(&ada, &format!("new{}x", seen.len()), 7).await;
    }
    let all: Vec<i64> = sqlx::query_scalar("select id from inbox_events where dedupe_key like 'event_old%' order by id desc")
        .fetch_all(&app.pool)
        .await
        .unwrap();
    assert_eq!(seen, all, "each of the 45 once, newest first, none twice");
}

#[tokio::test]
async fn filters_stand_in_the_address() {
    let app = App::start().await;
    let ada = app.sign_in("kp_ada").await;
    app.fill_log(&ada, "a", 3).await;
    let change = "update inbox_events set type = 'customer.payment_failed', status = 'parked', occurred_at = '2026-09-30T23:59:59.9Z', \
                  due_at = 'infinity' where dedupe_key = 'event_a000002'";
    app.pool.execute(change).await.unwrap();
    let count = async |query: &str| {
        let page = app.get_as(&ada, &format!("/account{query}")).await;
        (page.status, shown(&page.text).len())
    };
    let check = async |query: &str, is: (u16, usize)| assert_eq!(count(query).await, is, "{query}");
    check("", (200, 3)).await;
    check("?status=parked", (200, 1)).await;
    check("?status=ignored", (200, 2)).await;
    check("?kind=payment", (200, 1)).await;
    check("?kind=other", (200, 2)).await;
    check("?kind=plan", (200, 0)).await;
    check("?month=2026-09", (200, 1)).await;
    check("?month=2026-10", (200, 2)).await;
    check("?id=event_a00000", (200, 3)).await;
    check("?id=event_a000003", (200, 1)).await;
    check(&format!("?id={}", app.number("event_a000001").await), (200, 1)).await;
    check("?id=%25", (200, 0)).await;
    check("?status=parked&kind=payment&month=2026-09&id=event_a", (200, 1)).await;
    check("?status=gone", (400, 3)).await;
    check("?month=99999-01&ledger=-1-1", (400, 3)).await;
    check("?month=9999-12&ledger=9999-12", (400, 3)).await;
    check("?before=0", (200, 0)).await;
    check("?owner_id=1&account=2", (200, 3)).await;
    let page = app.get_as(&ada, "/account?status=parked&month=2026-09").await.text;
    says(&page, &["<option value=\"parked\" selected>On hold</option>", "name=\"month\" value=\"2026-09\""]);
}

/// What outsiders may try to put on the page, each somewhere it could be taken for markup or turn what is around it.
fn hostile() -> Vec<String> {
    let mut all: Vec<String> = [
        "<script>alert(1)</script>",
        "\"><img src=x onerror=alert(1)>",
        "'><svg onload=alert(1)>",
        "javascript:alert(1)",
        "</code><b>x</b>",
        "</title><script>x</script>",
        "<!--",
        "-->",
        "<![CDATA[x]]>",
        "<iframe src=//evil.example>",
        "{{7*7}}",
        "{% raw %}",
        "${7*7}",
        "&lt;script&gt;",
        "&#x3c;script&#x3e;",
        "\\u003cscript\\u003e",
        "%3Cscript%3E",
        "<a href=javascript:x>y</a>",
        "<style>*{}</style>",
        "<meta http-equiv=refresh content=0>",
        "<base href=//evil.example>",
        "<form action=//evil.example>",
        "<input autofocus onfocus=x>",
        "<details open ontoggle=x>",
        "<math><mi//xlink:href=x>",
        "<object data=x>",
        "<embed src=x>",
        "<link rel=stylesheet href=x>",
        "<body onload=x>",
        "<table background=x>",
        "<button formaction=javascript:x>",
        "<video><source onerror=x>",
        "<marquee onstart=x>",
        "\" onmouseover=\"x",
        "' onmouseover='x",
        "` onmouseover=`x",
        "x\" data-live=\"log",
        "data:text/html,<script>x</script>",
        "<scr<script>ipt>",
        "<SCRIPT SRC=//evil.example/x.js>",
        "<img src=`x`onerror=x>",
        "<x onclick=x>",
        "<textarea>",
        "</textarea><b>",
        "<select>",
        "<template><script>x",
        "<noscript><p title=\"</noscript><img onerror=x>\">",
        "<svg><script>x</script>",
        "<p id=live-said>",
        "<p id=main>",
        "\u{202e}gnp.exe",
        "\u{2066}x\u{2069}",
        "\u{200b}zero",
        "a\u{0301}\u{0301}\u{0301}",
        "😀<b>",
        "\u{feff}bom",
        "\u{2028}line",
        "\u{85}next",
        "\u{7f}del",
        "\u{1}control",
    ]
    .map(str::to_owned)
    .to_vec();
    all.push("<b>".repeat(600));
    all
}

#[track_caller]
fn is_harmless(page: &str, payload: &str) {
    assert!(!payload.contains('<') || !page.contains(payload), "`{payload}` stands on the page as it is");
    for c in ['\u{202e}', '\u{2066}', '\u{200b}', '\u{feff}', '\u{2028}', '\u{85}', '\u{7f}', '\u{1}'] {
        assert!(!page.contains(c), "{} stands on the page", c.escape_unicode());
    }
    let lower = page.to_lowercase();
    assert_eq!(lower.matches("<script").count(), 1, "live.js alone, with {payload}");
    for tag in ["<img", "<iframe", "<style", "<base", "<object", "<embed", "<textarea", "<template", "<math", "<x "] {
        assert!(!lower.contains(tag), "{tag} with {payload}");
    }
    assert_eq!(page.matches("id=\"main\"").count() + page.matches("id=\"live-said\"").count(), 2);
    assert_eq!(page.matches("data-live=\"log\"").count(), usize::from(page.contains("id=\"log-h\"")), "{payload}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_hostile_strings_are_shown_and_do_nothing() {
    let app = working().await;
    let ada = app.sign_in("kp_ada").await;
    let payloads = hostile();
    assert!(payloads.len() > 60);
    for (n, payload) in payloads.iter().enumerate() {
        let at = format!("2026-10-{:02}T10:00:00Z", n % 28 + 1);
        // No plan's key has control characters in it or is that long, and such a one is not read as one.
        let key = if payload.chars().any(char::is_control) || payload.len() > 1_000 { "gold" } else { payload };
        let data = json!({"user_id": "kp_ada", "plan": {"key": key, "name": payload}, "agreement_id": key, payload: [payload]});
        let event = Event::with(json!({"event_timestamp": at, "data": data}));
        app.deliver(event.token).await.says_stored(&event.id, false);
    }
    app.worked_off().await;
    let mut next = Some("/account".to_owned());
    let mut cards = 0;
    while let Some(address) = next {
        let page = app.get_as(&ada, &address).await.text;
        cards += shown(&page).len();
        payloads.iter().for_each(|payload| is_harmless(&page, payload));
        next = older(&page);
    }
    assert_eq!(cards, payloads.len(), "all of them are shown");
    let ids: Vec<i64> = sqlx::query_scalar("select id from inbox_events order by id").fetch_all(&app.pool).await.unwrap();
    for (id, payload) in ids.iter().zip(&payloads) {
        let page = app.get_as(&ada, &format!("/account/events/{id}")).await;
        assert_eq!(page.status, 200);
        is_harmless(&page.text, payload);
        let file = app.get_as(&ada, &format!("/account/events/{id}/payload")).await;
        assert_eq!(file.headers["content-type"], "text/plain; charset=utf-8");
        assert_eq!(file.headers["x-content-type-options"], "nosniff");
        assert!(file.headers["content-disposition"].to_str().unwrap().starts_with("attachment"));
    }
    // What intake would not let through, as if an older release had: in every text of the row and of its run.
    for (id, payload) in ids.iter().zip(&payloads) {
        let payload = payload.replace('\0', "");
        let key = format!("{payload}{id}");
        sqlx::query(
            "update inbox_events set type = $2, dedupe_key = $3, reason = $2, last_error = $2, status = 'applied' where id = $1",
        )
        .bind(id)
        .bind(&payload)
        .bind(&key)
        .execute(&app.pool)
        .await
        .unwrap();
        sqlx::query("update event_runs set sentence = $2, effects = jsonb_build_object('newer', $2, 'plan', jsonb_build_object('before', $2, 'after', 'x'),
                            'entries', jsonb_build_array(jsonb_build_object('key', $2, 'period', $2, 'delta', 5))) where event_id = $1")
            .bind(id).bind(&payload).execute(&app.pool).await.unwrap();
        let page = app.get_as(&ada, &format!("/account/events/{id}")).await;
        assert_eq!(page.status, 200);
        is_harmless(&page.text, &payload);
    }
    let page = app.get_as(&ada, "/account").await.text;
    payloads.iter().for_each(|payload| is_harmless(&page, payload));
    for payload in &payloads {
        let query =
            reqwest::Url::parse_with_params("http://x/account", [("id", payload), ("month", payload), ("status", payload)])
                .unwrap();
        let address = format!("/account?{}", query.query().unwrap());
        if address.len() < 8_000 {
            is_harmless(&app.get_as(&ada, &address).await.text.replace(&payload.chars().take(100).collect::<String>(), ""), "");
        }
    }
}

#[tokio::test]
async fn no_page_writes_anything() {
    let app = working().await;
    let ada = app.sign_in("kp_ada").await;
    let (up, other) = (Event::upgrade("kp_ada", AT), Event::of("kp_ada", "plan_changed", "2026-10-23T10:00:00Z", Some("gold")));
    for event in [&up, &other] {
        app.deliver(event.token.clone()).await;
    }
    app.worked_off().await;
    let before = app.everything().await;
    let id = app.number(&up.id).await;
    for path in [
        "/account".to_owned(),
        "/account?status=applied".to_owned(),
        format!("/account/events/{id}"),
        format!("/account/events/{id}/payload"),
    ] {
        assert_eq!(app.get_as(&ada, &path).await.status, 200, "{path}");
    }
    // Only a form asks for a replay; whoever goes to its address is on the event's own page.
    let page = app.get_as(&ada, &format!("/account/events/{id}/replay")).await;
    assert_eq!(page.status, 200);
    assert!(
        page.text.contains("<b>In progress.</b>") && page.text.contains(&format!("/account/events/{id}/replay")),
        "{}",
        page.text
    );
    let after = app.everything().await;
    assert!(before.iter().any(|(table, rows)| table == "facts" && !rows.is_empty()), "there is something to change");
    assert_eq!(before, after);
}

#[tokio::test]
async fn the_log_is_read_by_its_index_however_many_others_there_are() {
    let app = App::start().await;
    let (ada, bob) = (app.sign_in("kp_ada").await, app.sign_in("kp_bob").await);
    app.fill_log(&bob, "b", 30_000).await;
    app.fill_log(&ada, "a", 200).await;
    let mut conn = PgConnection::connect_with(&app.db.options()).await.unwrap();
    conn.execute("analyze inbox_events").await.unwrap();
    let source = include_str!("../../src/billing/log.rs");
    let page = &source[source.find("with shown as materialized").unwrap()..];
    let page = &page[..page.find("\"#").unwrap()]
        .replace(" as \"id: EventId\"", "")
        .replace(" as \"key: EventKey\"", "")
        .replace("\"runs!\"", "runs");
    let types = "bigint, bigint, text[], text[], bool, timestamptz, timestamptz, text, bigint, bigint, bigint, bigint";
    conn.execute(AssertSqlSafe(format!("prepare page ({types}) as {page}"))).await.unwrap();
    for account in [&ada, &bob].map(|who: &SignedIn| who.person.account.0) {
        for mode in ["force_custom_plan", "force_generic_plan"] {
            conn.execute(AssertSqlSafe(format!("set plan_cache_mode = {mode}"))).await.unwrap();
            let explain = format!(
                "explain execute page ({account}, 9223372036854775807, '{{}}', '{{}}', false, null, null, null, null, 21, 100, 5)"
            );
            let plan: Vec<String> = sqlx::query_scalar(AssertSqlSafe(explain)).fetch_all(&mut conn).await.unwrap();
            let plan = plan.join("\n");
            assert!(plan.contains("Index Scan using inbox_events_account"), "{mode}:\n{plan}");
            assert!(!plan.contains("Seq Scan on inbox_events"), "{mode}:\n{plan}");
        }
    }
    let cards = log::page(&mut conn, ada.person.account, &Filter::default(), 21).await.unwrap();
    assert_eq!(cards.len(), 21);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_no_database_takes_is_looked_for_without_what_is_not_taken() {
    let app = App::start().await;
    let ada = app.sign_in("kp_ada").await;
    for id in ["%00", "event_%00", "%00%0a%1b[2J", "%f0%9f%90%88", "%ff"] {
        assert_eq!(app.get_as(&ada, &format!("/account?id={id}")).await.status, 200, "{id}");
    }
}
