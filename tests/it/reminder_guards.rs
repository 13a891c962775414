//! Whose reminders they are: other people's ids, other sites' forms, nobody signed in, and pages that only show.

use reqwest::redirect::Policy;

use crate::support::app::{Answer, answer};
use crate::support::writer::{Fields, Writer, between, hidden};

/// Everything that can be posted about reminders; `{id}` is one of them.
const POSTS: [&str; 8] = [
    "/reminders",
    "/reminders/{id}",
    "/reminders/{id}/done",
    "/reminders/{id}/snooze",
    "/reminders/{id}/resume",
    "/reminders/{id}/delete",
    "/reminders/calendar",
    "/reminders/calendar/revoke",
];

#[tokio::test(flavor = "multi_thread")]
async fn somebody_elses_reminder_is_one_that_never_was() {
    let ada = Writer::start().await;
    let other = ada.app.sign_in("kp_ben").await;
    let (upcoming, due) = (ada.schedule(Fields::about("Mine alone")).await, ada.schedule(Fields::about("Mine, due")).await);
    ada.ring(due).await;
    let before = everything(&ada).await;
    for id in [upcoming, due] {
        let (mine, nobodys) = (format!("/reminders/{id}"), "/reminders/987654321");
        let known = ada.app.get_as(&other, &mine).await;
        same(&known, &ada.app.get_as(&other, nobodys).await);
        assert!(!known.text.contains("Mine"));
        let version = ada.version(id).await.to_string();
        for what in ["", "/done", "/snooze", "/resume", "/delete"] {
            let form = Fields::about("Yours now").with("version", &version).with("for", "1h");
            let known = ada.app.post_as(&other, &format!("{mine}{what}"), &form.pairs()).await;
            same(&known, &ada.app.post_as(&other, &format!("{nobodys}{what}"), &form.pairs()).await);
        }
    }
    for id in ["0", "-1", "x", "1.5", "99999999999999999999", "%00", "1%20or%201=1", "%2f"] {
        for what in ["done", "snooze", "resume", "delete"] {
            let form = [("version", "1"), ("for", "1h")];
            assert_eq!(ada.post(&format!("/reminders/{id}/{what}"), &form).await.status, 404, "{id} {what}");
        }
        assert_eq!(ada.get(&format!("/reminders/{id}")).await.status, 404, "{id}");
    }
    assert_eq!(everything(&ada).await, before, "nothing was changed");
    let theirs = ada.app.get_as(&other, &format!("/reminders?said=scheduled&about={upcoming}&q=Mine")).await;
    assert!(!theirs.text.contains("Mine alone"), "not even its words");
}

/// Status, headers that matter, and body.
#[track_caller]
fn same(a: &Answer, b: &Answer) {
    assert_eq!((a.status, &a.text), (404, &b.text));
    assert_eq!((a.status, &a.headers["content-type"]), (b.status, &b.headers["content-type"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_from_elsewhere_changes_nothing() {
    let ada = Writer::start().await;
    let id = ada.schedule(Fields::about("Only mine to change")).await;
    ada.ring(id).await;
    let before = everything(&ada).await;
    let foreign: [&[(&str, &str)]; 6] = [
        &[],
        &[("origin", "https://evil.example")],
        &[("origin", "null")],
        &[("origin", "http://localhost:1")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site"), ("origin", "http://sub.localhost")],
    ];
    for path in POSTS {
        let path = path.replace("{id}", &id.to_string());
        let version = ada.version(id).await.to_string();
        let key = uuid::Uuid::new_v4().to_string();
        let form = Fields::about("Not from here").with("version", &version).with("for", "1h").with("key", &key);
        for headers in foreign {
            let request = ada.app.http.post(ada.app.url(&path)).header("cookie", &ada.who.cookie).form(&form.pairs());
            let refused = answer(headers.iter().fold(request, |r, (name, value)| r.header(*name, *value))).await;
            assert_eq!(refused.status, 403, "{path} {headers:?}");
            assert!(refused.text.contains("did not come from a page of Bottle"), "{path}");
            assert_eq!(refused.headers["cache-control"], "no-store");
        }
    }
    assert_eq!(everything(&ada).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_signed_in_sees_and_changes_nothing() {
    let ada = Writer::start().await;
    let id = ada.schedule(Fields::about("Private")).await;
    let before = everything(&ada).await;
    let http = reqwest::Client::builder().no_proxy().redirect(Policy::none()).build().unwrap();
    for path in ["/reminders", "/reminders?q=Private", &format!("/reminders/{id}"), "/reminders/calendar"] {
        let sent = answer(http.get(ada.app.url(path))).await;
        assert_eq!(sent.status, 303, "{path}");
        let to = sent.headers["location"].to_str().unwrap();
        assert!(to.starts_with("/login?return_to=%2Freminders"), "{path}: {to}");
    }
    for path in POSTS {
        let path = path.replace("{id}", &id.to_string());
        let form = Fields::about("From nobody").with("version", "1").with("for", "1h");
        for cookie in ["", "bottle=AAAAAAAAAAAAAAAAAAAAAA", "bottle=x"] {
            let request = http.post(ada.app.url(&path)).header("origin", ada.app.url("")).header("cookie", cookie);
            assert_eq!(answer(request.form(&form.pairs())).await.status, 401, "{path} {cookie}");
        }
    }
    assert_eq!(everything(&ada).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn looking_at_pages_writes_nothing() {
    let ada = Writer::start().await;
    let new = ada.app.sign_in("kp_new").await;
    let id = ada.schedule(Fields::about("Looked at")).await;
    let due = ada.schedule(Fields::about("Due").with("repeat", "monthly")).await;
    ada.ring(due).await;
    ada.post("/reminders/calendar", &[]).await;
    let before = everything(&ada).await;
    for path in [
        "/reminders",
        "/reminders?q=x&said=deleted&about=1",
        "/reminders/calendar",
        "/reminders/calendar?said=link-revoked",
        &format!("/reminders/{id}"),
        &format!("/reminders/{due}"),
        &format!("/reminders/{id}/done"),
        &format!("/reminders/{id}/delete"),
        "/reminders/calendar/revoke",
        "/calendar/x.ics",
    ] {
        ada.get(path).await;
        ada.app.get_as(&new, path).await;
        let head = ada.app.http.head(ada.app.url(path)).header("cookie", &ada.who.cookie);
        answer(head).await;
    }
    assert_eq!(everything(&ada).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_words_are_words() {
    let ada = Writer::start().await;
    let payloads = hostile();
    ada.enter(490, "pro", "pro:test").await;
    for payload in &payloads {
        let page = ada.send(Fields::about(payload)).await;
        assert_eq!(page.status, 200, "{payload}");
        let notice = between(&page.text, "id=\"said\"", "</div>");
        let shown = between(notice, "<bdi>", "</bdi>");
        assert!(!shown.contains(['<', '>', '"', '\'']), "{payload}: {shown}");
        let id: i64 = sqlx::query_scalar("select max(id) from reminders").fetch_one(&ada.app.pool).await.unwrap();
        let own = ada.get(&format!("/reminders/{id}")).await;
        let value = between(&own.text, "id=\"f-text\" type=\"text\" name=\"text\" value=\"", "\"");
        assert!(!value.contains(['<', '>', '\'']), "{payload}: {value}");
        // What the form shows is what was meant, to the character.
        let form = Fields::about(payload).with("version", hidden(&own.text, "version"));
        assert_eq!(ada.post(&format!("/reminders/{id}"), &form.pairs()).await.status, 200);
        let stored: String =
            sqlx::query_scalar("select text from reminders where id = $1").bind(id).fetch_one(&ada.app.pool).await.unwrap();
        assert_eq!(&stored, payload);
        ada.press(id, "delete", &[]).await;
    }
}

pub fn hostile() -> Vec<String> {
    let mut payloads: Vec<String> = [
        "<script>alert(1)</script>",
        "\"><img src=x onerror=alert(1)>",
        "'><svg/onload=alert(1)>",
        "javascript:alert(1)",
        "</title><script>alert(1)</script>",
        "</textarea><script>alert(1)</script>",
        "<!--<script>alert(1)</script>-->",
        "<style>*{display:none}</style>",
        "<a href=\"javascript:alert(1)\">x</a>",
        "<meta http-equiv=refresh content=0;url=//evil.example>",
        "<base href=//evil.example>",
        "<iframe src=//evil.example>",
        "<form action=//evil.example><button>Done</button>",
        "{{ 7 * 7 }} ${7*7} <%= 7 %>",
        "&lt;script&gt;alert(1)&lt;/script&gt;",
        "\u{202e}txt.exe \u{2066}x\u{2069}",
        "Robert'); drop table reminders;--",
        "%00%0d%0aSet-Cookie: a=b",
        "=cmd|' /C calc'!A0",
    ]
    .map(str::to_owned)
    .into();
    payloads.push("🐈".repeat(500));
    payloads
}

/// All that pages could have written.
async fn everything(ada: &Writer) -> Vec<Option<String>> {
    let mut found = Vec::new();
    for table in ["reminders", "ledger", "accounts", "calendar_feeds", "outbox", "inbox_events", "facts", "sessions"] {
        let sql = format!("select md5(string_agg(t::text, '|' order by t::text)) from {table} t");
        found.push(sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&ada.app.pool).await.unwrap());
    }
    found
}
