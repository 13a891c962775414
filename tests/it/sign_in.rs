//! Signing in, managing billing and signing out, as they go when all is well.

use std::time::Duration;

use bottle::oidc::discovery;
use serde_json::json;

use crate::support::app::{Answer, DOMAIN, Setup};
use crate::support::fake_kinde::{CLIENT_ID, CLIENT_SECRET, person};
use crate::support::visitor::{Visitor, with_kinde, with_kinde_and};

fn query(address: &str) -> std::collections::BTreeMap<String, String> {
    reqwest::Url::parse(address).unwrap().query_pairs().into_owned().collect()
}

#[tokio::test]
async fn a_stranger_signs_up_and_is_greeted_by_name() {
    let (app, kinde) = with_kinde().await;
    let visitor = Visitor::new(&app);
    let home = visitor.get("/").await.text;
    assert!(home.contains("href=\"/login?return_to=/reminders\"") && home.contains("href=\"/login?new=1"), "{home}");

    let there = visitor.get("/login?new=1&return_to=/account/billing").await.leads_to();
    assert!(there.starts_with(&format!("{}/oauth2/auth?", kinde.url)), "{there}");
    let asked = query(&there);
    for (name, value) in [
        ("response_type", "code"),
        ("client_id", CLIENT_ID),
        ("redirect_uri", &app.url("/callback")),
        ("scope", "openid profile email offline"),
        ("prompt", "create"),
        ("code_challenge_method", "S256"),
    ] {
        assert_eq!(asked[name], value, "{name}");
    }
    for secret in ["state", "nonce", "code_challenge"] {
        assert!(asked[secret].len() >= 22, "{secret} has 128 bits at least: {}", asked[secret]);
    }
    assert!(!asked.contains_key("plan_interest") && !there.contains(CLIENT_SECRET));

    let back = visitor.get(&there).await.leads_to();
    let arrived = visitor.get(&back).await;
    assert_eq!(arrived.leads_to(), "/account/billing");
    let sent = kinde.inside().token_requests.clone();
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0]["client_secret"].as_str(), sent[0]["grant_type"].as_str()), (CLIENT_SECRET, "authorization_code"));

    let home = visitor.get("/").await.text;
    assert!(home.contains("Good to see you, Ada Lovelace.") && home.contains("action=\"/logout\""), "{home}");
    let (id, tenant): (i64, String) =
        sqlx::query_as("select id, tenant from accounts where kinde_user_id = 'kp_ada'").fetch_one(&app.pool).await.unwrap();
    assert_eq!(tenant, DOMAIN);
    let entries: Vec<(i64, String)> =
        sqlx::query_as("select delta, entry_key from ledger where account_id = $1").bind(id).fetch_all(&app.pool).await.unwrap();
    assert!(matches!(&entries[..], [(10, key)] if key.starts_with(&format!("free:{id}:"))), "{entries:?}");

    // The second time it is the same account, and nothing is given twice.
    let other_browser = Visitor::new(&app);
    other_browser.sign_in().await;
    let counts: (i64, i64, i64) =
        sqlx::query_as("select (select count(*) from accounts), (select count(*) from ledger), (select count(*) from sessions)")
            .fetch_one(&app.pool)
            .await
            .unwrap();
    assert_eq!(counts, (1, 1, 2));
    assert_eq!(kinde.inside().discoveries, 1, "the discovery document is kept");
}

#[tokio::test]
async fn a_plan_is_named_by_our_word_and_kinde_is_told_its_key() {
    let (app, _kinde) = with_kinde().await;
    let visitor = Visitor::new(&app);
    for (wanted, told) in [
        ("/login?plan=pro", Some("customer_pro_plan")),
        ("/login?plan=free", Some("customer_free_plan")),
        ("/login?plan=customer_pro_plan", None),
        ("/login?plan=gold", None),
        ("/login?plan_interest=customer_pro_plan", None),
        ("/login", None),
    ] {
        let asked = query(&visitor.get(wanted).await.leads_to());
        assert_eq!(asked.get("plan_interest").map(String::as_str), told, "{wanted}");
        assert!(!asked.contains_key("prompt"), "{wanted}");
    }
}

#[tokio::test]
async fn cookies_are_sealed_short_lived_and_out_of_reach_of_scripts() {
    let (app, _kinde) = with_kinde().await;
    let visitor = Visitor::new(&app);
    let login = visitor.get("/login?return_to=/account").await;
    let set = login.sets("bottle-login").unwrap();
    for part in ["HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=600"] {
        assert!(set.contains(part), "{part}: {set}");
    }
    let asked = query(&login.leads_to());
    assert!(!set.contains(&asked["state"]) && !set.contains(&asked["nonce"]) && !set.contains("account"), "it is sealed: {set}");
    let arrived = visitor.sign_in().await;
    let set = arrived.sets("bottle").unwrap();
    for part in ["HttpOnly", "SameSite=Lax", "Path=/"] {
        assert!(set.contains(part), "{part}: {set}");
    }
    assert!(visitor.cookie("bottle-login").is_some(), "the tab that began first can still finish");

    let (app, _kinde) = with_kinde_and(|setup| Setup { https: true, ..setup }).await;
    let login = Visitor::new(&app).get("/login").await;
    let set = login.sets("__Host-bottle-login").unwrap();
    assert!(set.contains("Secure") && set.contains("Path=/") && !set.contains("Domain"), "{set}");
    assert!(query(&login.leads_to())["redirect_uri"].starts_with("https://"));
    assert!(login.headers["strict-transport-security"].to_str().unwrap().contains("includeSubDomains"));
}

#[tokio::test]
async fn tabs_that_sign_in_side_by_side_all_arrive_where_they_wanted() {
    let (app, _kinde) = with_kinde().await;
    let visitor = Visitor::new(&app);
    let mut backs = Vec::new();
    for n in 0..4 {
        backs.push((n, visitor.come_back_from(&format!("/login?return_to=/account/events/{n}")).await));
    }
    for (n, back) in backs.into_iter().rev() {
        assert_eq!(visitor.get(&back).await.leads_to(), format!("/account/events/{n}"));
    }
    assert!(visitor.cookie("bottle-login").is_none(), "the last one leaves nothing behind");
    assert!(visitor.get("/").await.text.contains("Good to see you"));
    let sessions: i64 = sqlx::query_scalar("select count(*) from sessions").fetch_one(&app.pool).await.unwrap();
    assert_eq!(sessions, 1, "each sign-in ends the session before it");

    // More of them than a cookie has room for: the oldest gives way, and the cookie stays within a browser's limit.
    let long = format!("/account/{}", "a".repeat(390));
    let mut first = None;
    for _ in 0..9 {
        let back = visitor.come_back_from(&format!("/login?return_to={long}")).await;
        first.get_or_insert(back);
    }
    assert!(visitor.cookie("bottle-login").unwrap().len() < 4000, "{}", visitor.cookie("bottle-login").unwrap().len());
    let stale = visitor.get(&first.unwrap()).await;
    assert_eq!(stale.status, 400);
    assert!(stale.text.contains("You are signed in already"), "{}", stale.text);
}

#[tokio::test]
async fn a_sign_in_begun_under_another_name_moves_to_our_own_before_any_cookie() {
    let (app, _kinde) = with_kinde().await;
    let visitor = Visitor::new(&app);
    let elsewhere = format!("http://localhost:{}/login?return_to=/account&plan=pro", app.address.port());
    let moved = visitor.get(&elsewhere).await;
    assert!(moved.headers.get("set-cookie").is_none(), "{:?}", moved.headers);
    let to = moved.leads_to();
    assert_eq!(to, app.url("/login?return_to=/account&plan=pro&here=1"));
    assert_eq!(query(&visitor.get(&to).await.leads_to())["plan_interest"], "customer_pro_plan");
    // A proxy that changes the host would be sent round in a circle for ever.
    assert!(visitor.get_with("/login?here=1", ("host", "inside:8080")).await.leads_to().contains("/oauth2/auth?"));
    let lost = Visitor::new(&app).get_with("/callback?code=x&state=y", ("host", "inside:8080")).await;
    assert!(lost.status == 400 && lost.text.contains("You came back under another address"), "{}", lost.text);
}

#[tokio::test]
async fn signing_out_ends_the_session_here_and_goes_on_through_kinde() {
    let (app, kinde) = with_kinde().await;
    let visitor = Visitor::new(&app);
    visitor.sign_in().await;
    let before = visitor.copy();
    let out = visitor.post("/logout").await;
    assert!(out.headers["content-security-policy"].to_str().unwrap().contains(&kinde.url));
    let away = out.leads_to();
    assert_eq!(query(&away)["redirect"], app.url(""));
    assert_eq!(visitor.get(&away).await.leads_to(), app.url(""));
    assert_eq!(kinde.inside().logouts.len(), 1);
    assert!(visitor.cookie("bottle").is_none());
    for who in [&visitor, &before] {
        let home = who.get("/").await;
        assert!(!home.text.contains("Good to see you"), "the old cookie is dead");
        assert_eq!(home.headers["cache-control"], "no-store");
        assert!(who.get("/account/billing").await.leads_to().starts_with("/login?return_to=%2Faccount%2Fbilling"));
    }
    let left: i64 = sqlx::query_scalar("select count(*) from sessions").fetch_one(&app.pool).await.unwrap();
    assert_eq!(left, 0);
    // Nobody in particular may sign out as well.
    assert!(Visitor::new(&app).post("/logout").await.leads_to().starts_with(&kinde.url));
    assert_eq!(visitor.get("/logout").await.status, 405, "a link signs nobody out");
}

#[tokio::test]
async fn each_click_on_billing_has_a_link_of_its_own() {
    let (app, kinde) = with_kinde().await;
    let visitor = Visitor::new(&app);
    visitor.sign_in().await;
    assert!(visitor.get("/account/billing").await.text.contains("Go on to Kinde"));
    assert!(kinde.inside().portal_requests.is_empty(), "looking costs no link");
    for n in 1..=2 {
        let link = kinde.inside().portal.clone();
        assert_eq!(visitor.post("/account/billing").await.leads_to(), link);
        assert_eq!(kinde.inside().portal_requests.len(), n);
    }
    let asked = kinde.inside().portal_requests[0].clone();
    assert_eq!((asked["subnav"].as_str(), asked["return_url"].as_str()), ("plan_details", app.url("/account").as_str()));
    assert_eq!(kinde.inside().refreshed, 0);
}

#[tokio::test]
async fn old_tokens_are_renewed_and_the_new_refresh_token_is_kept() {
    let (app, kinde) = with_kinde().await;
    kinde.inside().expires_in = 30;
    let visitor = Visitor::new(&app);
    visitor.sign_in().await;
    // Each time they are old again: the second renewal works only with what the first one was given.
    for n in 1..=3 {
        assert!(visitor.post("/account/billing").await.leads_to().contains("/portal?"));
        assert_eq!(kinde.inside().refreshed, n);
    }
    // Refused before its time: renewed as well, once.
    kinde.inside().expires_in = 86_400;
    assert!(visitor.post("/account/billing").await.leads_to().contains("/portal?"));
    kinde.withdraw_access();
    assert!(visitor.post("/account/billing").await.leads_to().contains("/portal?"));
    assert_eq!(kinde.inside().refreshed, 5);
    // Nothing helps any more but to sign in again, and one comes back to the button.
    kinde.withdraw_access();
    kinde.withdraw_refresh();
    assert_eq!(visitor.post("/account/billing").await.leads_to(), "/login?return_to=/account/billing");
    let back = visitor.come_back_from("/login?return_to=/account/billing").await;
    assert_eq!(visitor.get(&back).await.leads_to(), "/account/billing");
    assert!(visitor.post("/account/billing").await.leads_to().contains("/portal?"));
}

#[tokio::test]
async fn tabs_that_renew_at_once_renew_once() {
    let (app, kinde) = with_kinde().await;
    kinde.inside().expires_in = 30;
    let visitor = Visitor::new(&app);
    visitor.sign_in().await;
    kinde.inside().expires_in = 86_400;
    let clicks = (0..8).map(|_| visitor.post("/account/billing"));
    for answer in futures_util::future::join_all(clicks).await {
        assert!(answer.leads_to().contains("/portal?"));
    }
    let renewals = kinde.inside().token_requests.iter().filter(|asked| asked["grant_type"] == "refresh_token").count();
    assert_eq!(renewals, 1, "a token that was used up already is not even tried");
}

#[tokio::test]
async fn of_two_processes_that_renew_at_once_the_slower_takes_what_the_faster_was_given() {
    let (app, kinde) = with_kinde().await;
    kinde.inside().expires_in = 30;
    let visitor = Visitor::new(&app);
    visitor.sign_in().await;
    let old: serde_json::Value = sqlx::query_scalar("select record from sessions").fetch_one(&app.pool).await.unwrap();
    kinde.inside().expires_in = 86_400;
    assert!(visitor.post("/account/billing").await.leads_to().contains("/portal?"));
    let new: serde_json::Value = sqlx::query_scalar("select record from sessions").fetch_one(&app.pool).await.unwrap();
    // As the slower one sees it: the old record, a refusal, and a little later the new record.
    let put = async |record: &serde_json::Value| {
        sqlx::query("update sessions set record = $1").bind(record).execute(&app.pool).await.unwrap();
    };
    put(&old).await;
    let (answer, ()) = tokio::join!(visitor.post("/account/billing"), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        put(&new).await;
    });
    assert!(answer.leads_to().contains("/portal?"));
}

#[tokio::test]
async fn the_portal_leads_to_the_tenant_or_nowhere() {
    let (app, kinde) = with_kinde().await;
    let visitor = Visitor::new(&app);
    visitor.sign_in().await;
    let port = kinde.url.rsplit(':').next().unwrap().to_owned();
    for portal in [
        "https://evil.example/portal".to_owned(),
        format!("{}@evil.example/", kinde.url),
        format!("http://localhost:{port}/portal"),
        "javascript:alert(1)".to_owned(),
        "/portal".to_owned(),
    ] {
        kinde.inside().portal.clone_from(&portal);
        let answer = visitor.post("/account/billing").await;
        assert_eq!(answer.status, 502, "{portal}");
        assert!(answer.text.contains("What came back is not from Kinde") && !answer.text.contains("evil"), "{}", answer.text);
    }
}

#[tokio::test]
async fn operators_are_those_the_settings_name_at_this_moment() {
    let operators = "olga@example.com, kp_ben";
    let (app, kinde) = with_kinde_and(|setup| Setup { operators, ..setup }).await;
    let verified = |user, email, verified: bool| {
        let mut who = person(user, email);
        who["email_verified"] = verified.into();
        who
    };
    for (who, is_one) in [
        (verified("kp_olga", "Olga@Example.com", true), true),
        (verified("kp_mallory", "olga@example.com", false), false),
        (json!({ "sub": "kp_eve", "email": "olga@example.com", "email_verified": "true" }), false),
        (json!({ "sub": "kp_eve2", "email": "olga@example.com" }), false),
        (json!({ "sub": "kp_ben" }), true),
        (verified("kp_ada", "kp_ben", true), false),
    ] {
        kinde.inside().who = who.clone();
        let visitor = Visitor::new(&app);
        visitor.sign_in().await;
        let person = app.person_of(&visitor.cookie("bottle").unwrap()).await;
        assert_eq!(person.operator, is_one, "{who}");
    }
    let kept: Vec<serde_json::Value> = sqlx::query_scalar("select record from sessions").fetch_all(&app.pool).await.unwrap();
    assert!(kept.iter().all(|record| !record.to_string().contains("operator")), "{kept:?}");
}

#[tokio::test]
async fn people_without_a_name_or_address_are_called_something() {
    let (app, kinde) = with_kinde().await;
    for (who, name) in [
        (json!({ "sub": "kp_1", "name": "  Grace\u{7} Hopper " }), "Grace Hopper"),
        (json!({ "sub": "kp_2", "given_name": "Ada", "family_name": "Lovelace", "name": 7 }), "Ada Lovelace"),
        (json!({ "sub": "kp_3", "email": "c@example.com" }), "c@example.com"),
        (json!({ "sub": "kp_4", "email": null, "name": null }), "kp_4"),
        (json!({ "sub": "kp_5", "name": "<b>x</b>" }), "&#60;b&#62;x&#60;/b&#62;"),
        (json!({ "sub": "kp_6", "name": "n".repeat(5000) }), &"n".repeat(100)),
    ] {
        kinde.inside().who = who.clone();
        let visitor = Visitor::new(&app);
        visitor.sign_in().await;
        let home = visitor.get("/").await.text;
        assert!(home.contains(&format!("Good to see you, {name}.")), "{who}: {home}");
    }
}

#[tokio::test]
async fn where_kinde_is_not_fully_set_up_people_are_told_what_is_missing() {
    let app = Setup::default().start().await;
    let visitor = Visitor::new(&app);
    for path in ["/login", "/callback?code=x&state=y"] {
        let answer: Answer = visitor.get(path).await;
        assert_eq!(answer.status, 501, "{path}");
        for word in ["KINDE_CLIENT_ID", "KINDE_CLIENT_SECRET"] {
            assert!(answer.text.contains(word), "{}", answer.text);
        }
    }
    let home = visitor.get("/").await.text;
    assert!(!home.contains("/login?new=1") && home.contains("KINDE_CLIENT_ID"), "{home}");
    assert_eq!(visitor.post("/logout").await.leads_to(), "/");
}

#[test]
fn a_discovery_document_speaks_for_its_tenant_alone() {
    let issuer = "https://x.kinde.com";
    let document = |changes: serde_json::Value| {
        let mut all = json!({
            "issuer": issuer, "authorization_endpoint": "https://x.kinde.com/oauth2/auth",
            "token_endpoint": "https://x.kinde.com/oauth2/token",
        });
        all.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        discovery::read(all.to_string().as_bytes(), issuer)
    };
    assert_eq!(document(json!({})).unwrap().token.as_str(), "https://x.kinde.com/oauth2/token");
    for changes in [
        json!({ "issuer": "https://y.kinde.com" }),
        json!({ "issuer": "https://x.kinde.com/" }),
        json!({ "issuer": null }),
        json!({ "token_endpoint": "https://evil.example/oauth2/token" }),
        json!({ "token_endpoint": "http://x.kinde.com/oauth2/token" }),
        json!({ "token_endpoint": "https://x.kinde.com:444/oauth2/token" }),
        json!({ "token_endpoint": "https://me@x.kinde.com/oauth2/token" }),
        json!({ "authorization_endpoint": "https://x.kinde.com.evil.example/" }),
        json!({ "authorization_endpoint": "/oauth2/auth" }),
        json!({ "authorization_endpoint": ["https://x.kinde.com/oauth2/auth"] }),
    ] {
        assert!(document(changes.clone()).is_err(), "{changes}");
    }
    assert!(discovery::read(b"[]", issuer).is_err() && discovery::read(b"", issuer).is_err());
}
