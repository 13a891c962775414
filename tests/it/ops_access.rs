//! That the operators' pages are there for operators alone: read off the routes themselves, so none can be forgotten.

use reqwest::Method;
use serde_json::Value;

use crate::support::app::{App, Setup, SignedIn, answer};
use crate::support::ops::{OLIVE, Ops};

const ROUTES: &str = include_str!("../../src/web/routes.rs");

/// (path, method) of every operators' route.
fn routes() -> Vec<(String, Method)> {
    let mut routes = Vec::new();
    for line in ROUTES.lines().filter(|line| line.contains("\"/ops")) {
        let path = line.split('"').nth(1).unwrap().to_owned();
        let mut found = 0;
        for (call, method) in [("get(", Method::GET), ("post(", Method::POST)] {
            if line.contains(call) {
                routes.push((path.clone(), method));
                found += 1;
            }
        }
        assert!(found > 0, "a route in words that this test cannot read: {line}");
    }
    routes
}

async fn ask(app: &App, who: Option<&SignedIn>, method: &Method, path: &str) -> (u16, String, String) {
    let mut request = app.http.request(method.clone(), app.url(path)).header("origin", app.url(""));
    if let Some(who) = who {
        request = request.header("cookie", &who.cookie);
    }
    if *method == Method::POST {
        request = request.form(&[
            ("note", "x"),
            ("key", "0b0b0b0b-0000-4000-8000-000000000001"),
            ("cap", "5"),
            ("confirm", "replay"),
            ("up_to", "9"),
        ]);
    }
    let got = answer(request).await;
    let to = got.headers.get("location").map(|to| to.to_str().unwrap().to_owned()).unwrap_or_default();
    (got.status, got.text, to)
}

/// One of everything that an address can name.
async fn one_of_each(ops: &Ops) -> i64 {
    let id = ops.dead(1).await[0];
    // The same number for each of them.
    for table in ["bulk_replays", "reconcile_runs"] {
        ops.sql(&format!("alter table {table} alter id restart with {id}")).await;
    }
    ops.sql("insert into bulk_replays (form_key, asked_by, asked_at, filter, address, up_to, cap, counted, counted_all) values (gen_random_uuid(), 'olive', now(), '{}', '', 1, 5, 1, true)").await;
    ops.sql("insert into reconcile_runs (sources, since, until, mode, begun_at, touched_at) values ('{kinde}', now(), now(), 'look', now(), now())").await;
    id
}

#[tokio::test]
async fn for_everybody_else_there_is_no_page_whatever_the_route_and_method() {
    let ops = Ops::new().await;
    let id = one_of_each(&ops).await;
    let bob = ops.app.sign_in("kp_bob").await;
    let routes = routes();
    assert!(routes.len() >= 18, "{routes:?}");
    let before = ops.app.everything().await;
    let nowhere = ask(&ops.app, Some(&bob), &Method::GET, "/nowhere").await;
    assert_eq!(nowhere.0, 404);
    for (path, _) in &routes {
        let path = path.replace("{id}", &id.to_string());
        for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
            let got = ask(&ops.app, Some(&bob), &method, &path).await;
            assert_eq!(got, nowhere, "{method} {path}: the very page of an address that is none");
            let (status, text, to) = ask(&ops.app, None, &method, &path).await;
            let expected = if method == Method::GET { 303 } else { 401 };
            assert_eq!(status, expected, "{method} {path} without a session: {text}");
            assert!(method != Method::GET || to.starts_with("/login?return_to=%2Fops"), "{to}");
        }
    }
    assert_eq!(ops.app.everything().await, before, "nothing was changed by any of it");
    // They are there: an operator finds each of them.
    for (path, method) in &routes {
        if path == "/ops/live" {
            continue; // A stream, which does not end.
        }
        let (status, text, _) = ask(&ops.app, Some(&ops.olive), method, &path.replace("{id}", &id.to_string())).await;
        let expected = if *method == Method::GET { 200 } else { 303 };
        assert_eq!(status, expected, "{method} {path}: {text}");
    }
}

#[tokio::test]
async fn whoever_is_struck_off_the_list_is_off_at_once() {
    let ops = Ops::new().await;
    ops.page("/ops").await;
    // The same session at a process whose settings name somebody else.
    let record: Value = sqlx::query_scalar("select record from sessions").fetch_one(&ops.app.pool).await.unwrap();
    let other = Setup { operators: "kp_other", ..Setup::default() }.start().await;
    let olive = other.sign_in(OLIVE).await;
    sqlx::query("update sessions set record = $1").bind(record).execute(&other.pool).await.unwrap();
    assert_eq!(other.get_as(&olive, "/account").await.status, 200, "the session is good");
    assert_eq!(other.get_as(&olive, "/ops").await.status, 404);
}

#[tokio::test]
async fn an_address_that_nobody_has_verified_makes_no_operator() {
    let app = Setup { operators: "mallory@example.com,kp_mallory@example.com", ..Setup::default() }.start().await;
    let mallory = app.sign_in("kp_mallory").await; // Has a verified address of another name.
    assert_eq!(app.get_as(&mallory, "/ops").await.status, 200, "kp_mallory@example.com is theirs, verified");
    sqlx::query("update sessions set record = jsonb_set(record, '{person,email_verified}', 'false')")
        .execute(&app.pool)
        .await
        .unwrap();
    assert_eq!(app.get_as(&mallory, "/ops").await.status, 404);
}

#[tokio::test]
async fn forms_of_other_sites_move_nothing() {
    let ops = Ops::new().await;
    let id = one_of_each(&ops).await;
    let before = ops.app.everything().await;
    for (path, _) in routes().into_iter().filter(|(_, method)| *method == Method::POST) {
        let got = ops.post_from_elsewhere(&path.replace("{id}", &id.to_string())).await;
        assert_eq!(got.status, 403, "{path}");
    }
    assert_eq!(ops.app.everything().await, before);
}

#[tokio::test]
async fn the_link_in_the_header_is_for_operators_only() {
    let ops = Ops::new().await;
    let bob = ops.app.sign_in("kp_bob").await;
    assert!(ops.page("/account").await.contains("<a href=\"/ops\">Operators</a>"));
    assert!(!ops.app.get_as(&bob, "/account").await.text.contains("/ops"));
    assert!(!ops.app.get("/").await.text.contains("/ops"));
}

#[tokio::test]
async fn an_error_page_shows_who_is_signed_in() {
    let ops = Ops::new().await;
    let signed_in = |text: &str| text.contains("<span class=\"who-name\">kp_olive</span>") && text.contains("Sign out");
    for path in ["/nowhere", "/ops/events/999999", "/account/events/x", "/ops/nowhere"] {
        let page = ops.app.get_as(&ops.olive, path).await;
        assert_eq!(page.status, 404, "{path}");
        assert!(signed_in(&page.text), "{path}: {}", page.text);
        assert!(page.headers.contains_key("content-security-policy"));
    }
    let refused = ops.post_from_elsewhere("/logout").await;
    assert!(refused.status == 403 && signed_in(&refused.text), "{}", refused.text);
    let nobody = ops.app.get("/nowhere").await;
    assert!(nobody.status == 404 && nobody.text.contains("href=\"/login\"") && !nobody.text.contains("Sign out"));
}

#[tokio::test]
async fn an_error_page_does_not_wait_for_a_database_that_is_away() {
    let ops = Ops::new().await;
    let all: Vec<_> = futures_util::future::join_all((0..8).map(|_| ops.app.web_pool.acquire())).await;
    let page = ops.app.get_as(&ops.olive, "/nowhere").await;
    assert_eq!(page.status, 404);
    assert!(page.took < std::time::Duration::from_millis(1_500), "{:?}", page.took);
    assert!(page.text.contains("There is no page at this address"));
    drop(all);
}
