//! The local Kinde's Account and Management APIs: who may ask, what is answered, and their bad days.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::local_kinde::{Receiver, until};
use crate::support::local_kinde::{ADA, APP, BEN, Kinde};

const AGREEMENTS: &str = "/api/v1/billing/agreements?customer_id=customer_fe89aa93f69e9c10286e34d0e47efafd";

#[tokio::test]
async fn the_management_api_opens_to_a_machine_with_the_right_audience_and_scope_only() {
    let mut kinde = Kinde::start(None).await;
    let token = kinde.machine_token().await;
    assert_eq!(kinde.get_as(AGREEMENTS, &token).await.status, 200);

    let of = async |changes: &[(&str, &str)]| kinde.machine(changes).await.json()["access_token"].as_str().unwrap().to_owned();
    let without_audience = of(&[("audience", "")]).await;
    assert_eq!(kinde.get_as(AGREEMENTS, &without_audience).await.status, 401);
    let narrow = of(&[("scope", "read:users")]).await;
    let refused = kinde.get_as(AGREEMENTS, &narrow).await;
    assert!(
        refused.status == 403 && refused.json()["errors"][0]["message"].as_str().unwrap().contains("read:billing_agreements")
    );
    assert_eq!(kinde.get_as("/api/v1/users", &narrow).await.status, 200);

    for (changes, status, error) in [
        (("audience", "https://other.kinde.com/api"), 400, "invalid_request"),
        (("scope", "read:users delete:everything"), 400, "invalid_scope"),
        (("client_secret", "guessed"), 401, "invalid_client"),
        (("grant_type", "authorization_code"), 400, "unauthorized_client"),
    ] {
        let refused = kinde.machine(&[changes]).await;
        assert_eq!((refused.status, refused.json()["error"].as_str().unwrap()), (status, error), "{changes:?}");
    }
    let person = kinde.tokens(BEN).await;
    for token in [person["access_token"].as_str().unwrap(), person["id_token"].as_str().unwrap(), "", "a.b.c"] {
        assert_eq!(kinde.get_as(AGREEMENTS, token).await.status, 401, "{token}");
    }
    assert_eq!(kinde.get_as("/oauth2/v2/user_profile", &token).await.status, 403, "a machine is nobody");
    kinde.lifetimes(&[("access_token", "1")]).await;
    let short = kinde.machine_token().await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(kinde.get_as(AGREEMENTS, &short).await.status, 401, "expired");
}

#[tokio::test]
async fn agreements_come_in_kindes_shape_and_in_pages() {
    let kinde = Kinde::start(None).await;
    let token = kinde.machine_token().await;
    let all = kinde.get_as(AGREEMENTS, &token).await.json();
    assert_eq!((&all["code"], &all["has_more"]), (&json!("OK"), &json!(false)));
    let [starter, pro] = &all["agreements"].as_array().unwrap()[..] else { panic!("{all}") };
    assert_eq!([&starter["plan_code"], &pro["plan_code"]], ["customer_starter_plan", "customer_pro_plan"]);
    assert!(starter["expires_on"].as_str().unwrap().ends_with("+11") && pro["expires_on"].is_null(), "{all}");
    let end = pro["current_period_end"].as_str().unwrap();
    assert!(end.ends_with('Z') && end.parse::<jiff::Timestamp>().unwrap() > jiff::Timestamp::now());
    assert!(starter["current_period_end"].is_null() && pro["entitlements"][0]["feature_code"].is_string());

    for _ in 0..6 {
        for plan in ["customer_starter_plan", "customer_pro_plan"] {
            assert_eq!(kinde.post(&format!("/people/{ADA}"), &[("deed", "choose"), ("plan", plan)]).await.status, 303);
        }
    }
    let (mut seen, mut after) = (Vec::new(), String::new());
    for page in 0.. {
        let answer = kinde.get_as(&format!("{AGREEMENTS}&page_size=5{after}"), &token).await.json();
        let ids = answer["agreements"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned());
        seen.extend(ids);
        assert_eq!(answer["has_more"], page < 2, "{answer}");
        if page == 2 {
            break;
        }
        after = format!("&starting_after={}", seen.last().unwrap());
    }
    let mut distinct = seen.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!((seen.len(), distinct.len()), (14, 14));
    assert_eq!(kinde.get_as(AGREEMENTS, &token).await.json()["agreements"].as_array().unwrap().len(), 10, "ten without a word");
    for (path, status) in [
        (format!("{AGREEMENTS}&page_size=501"), 400),
        (format!("{AGREEMENTS}&starting_after=agreement_of_nobody"), 400),
        ("/api/v1/billing/agreements".into(), 400),
        ("/api/v1/billing/agreements?customer_id=customer_of_nobody".into(), 404),
    ] {
        let refused = kinde.get_as(&path, &token).await;
        assert!(refused.status == status && refused.json()["errors"][0]["code"].is_string(), "{path}: {}", refused.body);
    }
}

#[tokio::test]
async fn users_entitlements_events_and_webhooks_can_be_read() {
    let receiver = Receiver::default();
    let to = receiver.listen().await;
    let kinde = Kinde::start(Some(to.clone())).await;
    let token = kinde.machine_token().await;
    let read = async |path: &str| kinde.get_as(path, &token).await;

    let ada = read(&format!("/api/v1/user?id={ADA}&expand=billing")).await.json();
    assert_eq!(
        [&ada["preferred_email"], &ada["billing"]["customer_id"]],
        ["ada@example.com", "customer_fe89aa93f69e9c10286e34d0e47efafd"]
    );
    assert!(read(&format!("/api/v1/user?id={ADA}")).await.json().get("billing").is_none());
    assert_eq!(read("/api/v1/user?id=kp_0").await.status, 404);

    let first = read("/api/v1/users?page_size=3&expand=billing").await.json();
    let next = first["next_token"].as_str().unwrap();
    let second = read(&format!("/api/v1/users?page_size=3&next_token={next}")).await.json();
    assert_eq!((first["users"].as_array().unwrap().len(), second["users"].as_array().unwrap().len()), (3, 1));
    assert!(second["next_token"].is_null() && second["users"][0].get("billing").is_none());
    assert_eq!(read("/api/v1/users?email=BEN@example.com").await.json()["users"][0]["id"], BEN);

    let customer = "customer_id=customer_fe89aa93f69e9c10286e34d0e47efafd";
    let has = read(&format!("/api/v1/billing/entitlements?{customer}&expand=plans")).await.json();
    assert_eq!(
        (&has["plans"][0]["code"], &has["entitlements"][0]["entitlement_limit_max"]),
        (&json!("customer_pro_plan"), &json!(500))
    );
    assert!(has["plans"][0]["subscribed_on"].as_str().unwrap().ends_with("+11"));

    kinde.post(&format!("/people/{BEN}"), &[("deed", "choose"), ("plan", "customer_starter_plan")]).await;
    until("two events", async || receiver.all(|_| ()).len() == 2).await;
    let sent = receiver.all(|arrived| crate::support::local_kinde::claims(std::str::from_utf8(&arrived.body).unwrap())).remove(0);
    let known = read(&format!("/api/v1/events/{}", sent["event_id"].as_str().unwrap())).await.json();
    for field in ["type", "source", "event_id", "timestamp", "data"] {
        assert_eq!(known["event"][field], sent[field], "{field}");
    }
    assert_eq!(read("/api/v1/events/event_0").await.status, 404);

    let types = read("/api/v1/event_types").await.json();
    let codes: Vec<&Value> = types["event_types"].as_array().unwrap().iter().map(|one| &one["code"]).collect();
    assert!(codes.len() == 8 && codes.contains(&&json!("customer.plan_changed")), "{types}");
    let webhooks = read("/api/v1/webhooks").await.json();
    assert_eq!(webhooks["webhooks"][0]["endpoint"], to.as_str());
    assert_eq!(webhooks["webhooks"][0]["event_types"].as_array().unwrap().len(), 8);
}

#[tokio::test]
async fn a_lagging_api_answers_as_it_was() {
    let kinde = Kinde::start(None).await;
    let token = kinde.machine_token().await;
    let live = async || {
        let answer = kinde.get_as(AGREEMENTS, &token).await.json();
        let live = answer["agreements"].as_array().unwrap().iter().filter(|one| one["expires_on"].is_null());
        live.map(|one| one["plan_code"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    kinde.post(&format!("/people/{ADA}"), &[("deed", "choose"), ("plan", "customer_starter_plan")]).await;
    assert_eq!(live().await, ["customer_starter_plan"]);
    kinde.apis(&[("lag_secs", "60")]).await;
    assert_eq!(live().await, ["customer_pro_plan"], "neither the new agreement nor the end of the old one is known yet");
    kinde.apis(&[]).await;
    assert_eq!(live().await, ["customer_starter_plan"]);
    kinde.apis(&[("lag_secs", "1")]).await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(live().await, ["customer_starter_plan"], "it catches up");
}

#[tokio::test]
async fn an_api_can_have_a_bad_day() {
    let mut kinde = Kinde::start(None).await;
    let token = kinde.machine_token().await;
    let person = kinde.tokens(BEN).await;
    kinde.apis(&[("trouble", "too_many"), ("requests", "2"), ("secs", "7")]).await;
    for path in [AGREEMENTS, "/account_api/v1/entitlements"] {
        let refused = kinde.get_as(path, person["access_token"].as_str().unwrap()).await;
        assert_eq!((refused.status, refused.headers["ratelimit-reset"].to_str().unwrap()), (429, "7"), "{path}");
    }
    assert_eq!(kinde.get_as(AGREEMENTS, &token).await.status, 200, "two requests, and no more");
    for (trouble, status) in [("server_error", 500), ("unavailable", 503)] {
        kinde.apis(&[("trouble", trouble)]).await;
        for _ in 0..2 {
            assert_eq!(kinde.get_as(AGREEMENTS, &token).await.status, status);
        }
    }
    kinde.apis(&[("trouble", "slow"), ("secs", "1")]).await;
    let began = Instant::now();
    assert_eq!(kinde.get_as(AGREEMENTS, &token).await.status, 200);
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert_eq!(kinde.get("/.well-known/jwks").await.status, 200, "sign-in and keys go on");
    let refused =
        kinde.post("/local/switches/apis", &[("trouble", "none"), ("requests", "0"), ("secs", "99999"), ("lag_secs", "0")]).await;
    assert_eq!(refused.status, 400);
}

#[tokio::test]
async fn a_portal_link_works_once_and_returns_to_the_app_only() {
    let mut kinde = Kinde::start(None).await;
    let tokens = kinde.tokens(BEN).await;
    let access = tokens["access_token"].as_str().unwrap();
    for query in [
        "return_url=http://elsewhere.example/account",
        "return_url=/account",
        "return_url=javascript:alert(1)",
        "subnav=everything",
    ] {
        let refused = kinde.get_as(&format!("/account_api/v1/portal_link?{query}"), access).await;
        assert!(refused.status == 400 && refused.json().get("url").is_none(), "{query}");
    }
    let machine = kinde.machine_token().await;
    assert_eq!(kinde.get_as("/account_api/v1/portal_link", &machine).await.status, 403);
    assert_eq!(kinde.get_as("/account_api/v1/portal_link", tokens["id_token"].as_str().unwrap()).await.status, 401);

    let path = format!("/account_api/v1/portal_link?subnav=plan_selection&return_url={APP}/account");
    let link = kinde.get_as(&path, access).await.json()["url"].as_str().unwrap().to_owned();
    let link = link.strip_prefix(&kinde.url("")).unwrap();
    // Nobody is signed in in this browser: the link itself is the proof.
    kinde.cookie = None;
    let opened = kinde.get(link).await;
    assert_eq!(opened.status, 303);
    assert_eq!(kinde.get(link).await.status, 410, "a second time");
    let page = kinde.get(&opened.location).await;
    assert!(page.body.contains("The plan of Ben Bitdiddle") && page.body.contains(&format!(r#"href="{APP}/account""#)));
    let done = kinde.post(&opened.location, &[("deed", "choose"), ("plan", "customer_pro_plan")]).await;
    assert_eq!(done.status, 303);
    assert!(kinde.get(&done.location).await.body.contains(r#"<a class="button" href="http://localhost:3000/account">"#));
    assert_eq!(kinde.get("/plans/guessed").await.status, 410);

    let has = kinde.get_as("/account_api/v1/entitlements", access).await.json();
    assert_eq!(
        [&has["data"]["plans"][0]["key"], &has["data"]["entitlements"][0]["feature_key"]],
        ["customer_pro_plan", "bottles"]
    );
    assert_eq!(has["metadata"]["has_more"], false);
    assert_eq!(kinde.get_as("/account_api/v1/entitlement?key=bottles", access).await.status, 200);
    assert_eq!(kinde.get_as("/account_api/v1/entitlement?key=kegs", access).await.status, 404);
}
