//! Sign-in at the local Kinde, as an app meets it on the wire: every step, and every refusal.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::local_kinde::{client, verified};
use crate::support::local_kinde::{ADA, APP, Answer, BEN, CALLBACK, Kinde, answer, claims};

#[tokio::test]
async fn somebody_signs_in_and_the_tokens_say_what_kindes_say() {
    let mut kinde = Kinde::start(None).await;
    let page = kinde.get(&kinde.auth(&[])).await;
    assert_eq!(page.status, 200);
    assert!(page.body.contains("Ada Lovelace") && page.body.contains("nobody is charged"), "{}", page.body);

    let code = kinde.sign_in(BEN, &[]).await;
    let answer = kinde.exchange(&code, &[]).await;
    assert_eq!((answer.status, answer.headers["cache-control"].to_str().unwrap()), (200, "no-store"));
    let tokens = answer.json();
    assert_eq!([&tokens["token_type"], &tokens["scope"]], ["bearer", "openid profile email offline"]);
    assert_eq!(tokens["expires_in"], 86400);

    let access = tokens["access_token"].as_str().unwrap();
    let id = verified(tokens["id_token"].as_str().unwrap(), &kinde.url("")).await.unwrap();
    let issuer = kinde.url("");
    assert_eq!([&id["sub"], &id["nonce"], &id["email"], &id["name"]], [BEN, "the-nonce", "ben@example.com", "Ben Bitdiddle"]);
    assert_eq!([&id["given_name"], &id["family_name"]], ["Ben", "Bitdiddle"]);
    assert_eq!((&id["iss"], &id["email_verified"]), (&json!(issuer), &json!(true)));
    assert!(!issuer.ends_with('/'));
    assert_eq!((&id["aud"], &id["azp"]), (&json!([issuer, kinde.running.client_id()]), &json!(kinde.running.client_id())));
    assert_eq!(id["at_hash"], URL_SAFE_NO_PAD.encode(&Sha256::digest(access)[..16]));
    assert_eq!(id["exp"].as_i64().unwrap() - id["iat"].as_i64().unwrap(), 3600);
    assert!(
        id["auth_time"].as_i64().unwrap() <= id["iat"].as_i64().unwrap() && id["updated_at"].is_i64() && id["jti"].is_string()
    );

    let claims = verified(access, &kinde.url("")).await.unwrap();
    assert_eq!((&claims["sub"], &claims["aud"], &claims["iss"]), (&json!(BEN), &json!([]), &json!(issuer)));
    assert_eq!(claims["scp"], json!(["openid", "profile", "email", "offline"]));
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 86400);
    assert!(claims.get("email").is_none());

    let profile = kinde.get_as("/oauth2/v2/user_profile", access).await.json();
    assert_eq!([&profile["sub"], &profile["id"], &profile["email"]], [BEN, BEN, "ben@example.com"]);
    // Neither an ID token nor a changed one opens anything.
    let changed = format!("{access}x");
    for token in [tokens["id_token"].as_str().unwrap(), &changed, ""] {
        let refused = kinde.get_as("/oauth2/v2/user_profile", token).await;
        assert_eq!(refused.status, 401, "{token}");
        assert!(refused.headers["www-authenticate"].to_str().unwrap().contains("invalid_token"));
    }
}

#[tokio::test]
async fn scopes_decide_what_is_told() {
    let mut kinde = Kinde::start(None).await;
    let code = kinde.sign_in(BEN, &[("scope", "openid offline_access")]).await;
    let tokens = kinde.exchange(&code, &[]).await.json();
    assert!(tokens.get("refresh_token").is_none(), "offline_access gives nothing, in silence");
    let id = claims(tokens["id_token"].as_str().unwrap());
    assert!(["email", "email_verified", "name", "given_name"].iter().all(|name| id.get(name).is_none()), "{id}");
    let profile = kinde.get_as("/oauth2/v2/user_profile", tokens["access_token"].as_str().unwrap()).await.json();
    assert!(profile.get("email").is_none() && profile["sub"] == BEN, "{profile}");

    let code = kinde.sign_in(BEN, &[("scope", "email"), ("nonce", "")]).await;
    let tokens = kinde.exchange(&code, &[]).await.json();
    assert!(tokens.get("id_token").is_none(), "without openid it is plain OAuth");
}

#[tokio::test]
async fn a_wrong_client_or_callback_shows_a_page_and_sends_nobody_anywhere() {
    let kinde = Kinde::start(None).await;
    for changes in [
        [("client_id", "nobody")],
        [("client_id", "")],
        [("client_id", &*kinde.running.m2m_client_id())],
        [("redirect_uri", "")],
        [("redirect_uri", "http://localhost:3000/callback/")],
        [("redirect_uri", "http://localhost:3000/Callback")],
        [("redirect_uri", "http://localhost:3000/callback?x=1")],
        [("redirect_uri", "https://localhost:3000/callback")],
        [("redirect_uri", "http://elsewhere.example/callback")],
    ] {
        for refused in [kinde.get(&kinde.auth(&changes)).await, kinde.post(&kinde.auth(&changes), &[("person", BEN)]).await] {
            assert_eq!((refused.status, refused.location.as_str()), (400, ""), "{changes:?}");
            assert!(refused.body.contains("request is not right") && !refused.headers.contains_key("set-cookie"), "{changes:?}");
        }
    }
}

#[tokio::test]
async fn every_other_fault_is_told_to_the_app_with_its_state() {
    let kinde = Kinde::start(None).await;
    for (changes, error, why) in [
        (("response_type", "token"), "unsupported_response_type", "code"),
        (("response_type", ""), "unsupported_response_type", "code"),
        (("scope", "openid admin"), "invalid_scope", "admin"),
        (("code_challenge", ""), "invalid_request", "PKCE"),
        (("code_challenge", "short"), "invalid_request", "43"),
        (("code_challenge_method", "plain"), "invalid_request", "S256"),
        (("code_challenge_method", ""), "invalid_request", "S256"),
        (("prompt", "consent"), "invalid_request", "consent"),
        (("prompt", "none"), "login_required", "signed in"),
    ] {
        let refused = kinde.get(&kinde.auth(&[changes])).await;
        assert!(refused.status == 303 && refused.location.starts_with(CALLBACK), "{changes:?}: {}", refused.location);
        assert_eq!(
            (refused.param("error").as_deref(), refused.param("state").as_deref()),
            (Some(error), Some("the-state")),
            "{changes:?}"
        );
        assert!(refused.param("error_description").unwrap().contains(why) && refused.param("code").is_none(), "{changes:?}");
    }
    let twice = kinde.get(&format!("{}&state=other", kinde.auth(&[]))).await;
    assert_eq!(twice.param("error").as_deref(), Some("invalid_request"));
    let without_state = kinde.get(&kinde.auth(&[("scope", "x"), ("state", "")])).await;
    assert_eq!(without_state.param("state"), None);
    let refused = kinde.post(&kinde.auth(&[]), &[("refuse", "yes")]).await;
    assert_eq!(
        (refused.param("error").as_deref(), refused.param("state").as_deref()),
        (Some("access_denied"), Some("the-state"))
    );
}

#[tokio::test]
async fn a_session_lets_in_without_asking_until_it_ends() {
    let mut kinde = Kinde::start(None).await;
    kinde.sign_in(BEN, &[]).await;
    let code = kinde.get(&kinde.auth(&[("prompt", "none")])).await.param("code").unwrap();
    assert_eq!(claims(kinde.exchange(&code, &[]).await.json()["id_token"].as_str().unwrap())["sub"], BEN);
    assert!(kinde.get(&kinde.auth(&[])).await.param("code").is_some());
    for prompt in ["login", "create"] {
        assert_eq!(kinde.get(&kinde.auth(&[("prompt", prompt)])).await.status, 200, "{prompt} asks all the same");
    }
    // Another sign-in in the same browser: the cookie before it is worth nothing.
    let old = kinde.cookie.clone();
    kinde.sign_in(ADA, &[]).await;
    let new = std::mem::replace(&mut kinde.cookie, old);
    assert_eq!(kinde.get(&kinde.auth(&[("prompt", "none")])).await.param("error").as_deref(), Some("login_required"));

    for (redirect, status, location) in [
        ("http://localhost:3000/", 303, "http://localhost:3000/"),
        ("http://localhost:3000", 303, "http://localhost:3000"),
        ("http://localhost:3000/other", 400, ""),
        ("https://elsewhere.example/", 400, ""),
    ] {
        kinde.cookie.clone_from(&new);
        kinde.sign_in(ADA, &[]).await;
        let out = kinde.get(&format!("/logout?redirect={redirect}")).await;
        assert_eq!((out.status, out.location.as_str()), (status, location));
        assert!(out.headers["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
        assert_eq!(
            kinde.get(&kinde.auth(&[("prompt", "none")])).await.param("error").as_deref(),
            Some("login_required"),
            "{redirect}"
        );
    }
    assert_eq!(kinde.get("/logout").await.status, 200);
}

#[tokio::test]
async fn all_sessions_of_somebody_can_be_ended_together() {
    let mut kinde = Kinde::start(None).await;
    kinde.sign_in(BEN, &[]).await;
    let first = kinde.cookie.take();
    kinde.sign_in(ADA, &[]).await;
    let ada = kinde.cookie.take();
    kinde.sign_in(BEN, &[]).await;
    kinde.get("/logout?all_sessions=true").await;
    kinde.cookie = first;
    assert_eq!(kinde.get(&kinde.auth(&[("prompt", "none")])).await.param("error").as_deref(), Some("login_required"));
    kinde.cookie = ada;
    assert!(kinde.get(&kinde.auth(&[("prompt", "none")])).await.param("code").is_some());
}

#[track_caller]
fn refused(answer: &Answer, status: u16, error: &str) {
    assert_eq!((answer.status, answer.json()["error"].as_str().unwrap()), (status, error), "{}", answer.body);
    assert!(answer.json().get("access_token").is_none());
}

#[tokio::test]
async fn a_code_is_good_once_for_who_it_was_made_for_and_not_for_long() {
    let mut kinde = Kinde::start(None).await;
    for (changes, status, error) in [
        (("code_verifier", "another-verifier-of-at-least-forty-three-characters"), 400, "invalid_grant"),
        (("code_verifier", ""), 400, "invalid_grant"),
        (("redirect_uri", "http://localhost:3000/other"), 400, "invalid_grant"),
        (("redirect_uri", ""), 400, "invalid_grant"),
        (("code", "code_of_nobody"), 400, "invalid_grant"),
        (("code", ""), 400, "invalid_request"),
        (("client_id", "nobody"), 401, "invalid_client"),
        (("client_id", ""), 401, "invalid_client"),
        (("client_secret", "guessed"), 401, "invalid_client"),
        (("client_secret", ""), 401, "invalid_client"),
        (("grant_type", "password"), 400, "unsupported_grant_type"),
        (("grant_type", ""), 400, "invalid_request"),
        (("grant_type", "client_credentials"), 400, "unauthorized_client"),
    ] {
        let code = kinde.sign_in(BEN, &[]).await;
        refused(&kinde.exchange(&code, &[changes]).await, status, error);
        if error == "invalid_grant" && changes.0 != "code" {
            refused(&kinde.exchange(&code, &[]).await, 400, "invalid_grant");
        }
    }
    // The machine's client may not have a person's code, and Basic is not heard.
    let code = kinde.sign_in(BEN, &[]).await;
    let (id, secret) = (kinde.running.m2m_client_id(), kinde.running.m2m_client_secret());
    refused(&kinde.exchange(&code, &[("client_id", &id), ("client_secret", &secret)]).await, 400, "unauthorized_client");
    let basic =
        client().post(kinde.url("/oauth2/token")).basic_auth(kinde.running.client_id(), Some(kinde.running.client_secret()));
    refused(&answer(basic.form(&[("grant_type", "authorization_code"), ("code", &*code)])).await, 401, "invalid_client");
    refused(&answer(client().post(kinde.url("/oauth2/token")).body("{}")).await, 400, "invalid_request");

    // A second use is refused, and takes back what the first one brought.
    let tokens = kinde.exchange(&code, &[]).await.json();
    refused(&kinde.exchange(&code, &[]).await, 400, "invalid_grant");
    refused(&kinde.refresh(tokens["refresh_token"].as_str().unwrap()).await, 400, "invalid_grant");

    kinde.lifetimes(&[("code", "1")]).await;
    let code = kinde.sign_in(BEN, &[]).await;
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let late = kinde.exchange(&code, &[]).await;
    refused(&late, 400, "invalid_grant");
    assert!(late.body.contains("expired"));
}

#[tokio::test]
async fn a_refresh_token_is_replaced_at_each_use_and_dies_a_little_later() {
    let mut kinde = Kinde::start(None).await;
    kinde.lifetimes(&[("overlap", "1")]).await;
    let tokens = kinde.tokens(BEN).await;
    let first = tokens["refresh_token"].as_str().unwrap().to_owned();
    let second = kinde.refresh(&first).await.json();
    let id = claims(second["id_token"].as_str().unwrap());
    assert!(id["sub"] == BEN && id.get("nonce").is_none(), "{id}");
    let second = second["refresh_token"].as_str().unwrap().to_owned();
    assert_ne!(first, second);
    assert_eq!(kinde.refresh(&first).await.status, 200, "two requests at once are no theft");
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    refused(&kinde.refresh(&first).await, 400, "invalid_grant");

    let wider = [("grant_type", "refresh_token"), ("refresh_token", &*second), ("scope", "openid admin")];
    refused(&kinde.token(&wider, &[]).await, 400, "invalid_scope");
    let narrower = [("grant_type", "refresh_token"), ("refresh_token", &*second), ("scope", "openid offline")];
    let third = kinde.token(&narrower, &[]).await.json();
    assert!(claims(third["id_token"].as_str().unwrap()).get("email").is_none());

    let third = third["refresh_token"].as_str().unwrap();
    let (id, secret) = (kinde.running.client_id(), kinde.running.client_secret());
    let about = |token| [("client_id", &*id), ("client_secret", &*secret), ("token", token)];
    assert_eq!(kinde.post("/oauth2/introspect", &about(third)).await.json()["active"], true);
    assert_eq!(kinde.post("/oauth2/revoke", &about(third)).await.status, 200);
    assert_eq!(kinde.post("/oauth2/introspect", &about(third)).await.json(), json!({ "active": false }));
    refused(&kinde.refresh(third).await, 400, "invalid_grant");
    assert_eq!(kinde.post("/oauth2/revoke", &[("token", third)]).await.status, 401);

    kinde.lifetimes(&[("refresh_token", "1")]).await;
    let tokens = kinde.tokens(BEN).await;
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    refused(&kinde.refresh(tokens["refresh_token"].as_str().unwrap()).await, 400, "invalid_grant");
}

#[tokio::test]
async fn somebody_new_signs_up_and_a_taken_address_is_refused() {
    let mut kinde = Kinde::start(None).await;
    let path = kinde.auth(&[("prompt", "create"), ("login_hint", "grace@example.com")]);
    assert!(kinde.get(&path).await.body.contains(r#"value="grace@example.com""#));
    for (form, why) in [
        ([("given_name", ""), ("email", "grace@example.com")], "first name"),
        ([("given_name", "Grace"), ("email", "grace")], "not an e-mail"),
        ([("given_name", "Grace"), ("email", "OLIVE@example.com")], "has an account already"),
        ([("person", "kp_0"), ("email", "")], "Nobody here"),
    ] {
        let refused = kinde.post(&path, &form).await;
        assert!(refused.status == 400 && refused.body.contains(why), "{why}: {}", refused.body);
        assert!(!refused.headers.contains_key("set-cookie"));
    }
    let form = [("given_name", "Grace"), ("family_name", "<b>Hopper"), ("email", "grace@example.com"), ("unverified", "yes")];
    let answer = kinde.post(&path, &form).await;
    kinde.keep_cookie(&answer);
    let tokens = kinde.exchange(&answer.param("code").unwrap(), &[]).await.json();
    let id = claims(tokens["id_token"].as_str().unwrap());
    assert_eq!((&id["email_verified"], &id["family_name"]), (&json!(false), &json!("<b>Hopper")));
    assert!(id["sub"].as_str().unwrap().starts_with("kp_"));
    assert!(!kinde.get("/").await.body.contains("<b>Hopper"));
}

#[tokio::test]
async fn no_page_from_elsewhere_signs_somebody_in_and_no_page_holds_script_or_style() {
    let kinde = Kinde::start(Some("http://127.0.0.1:1/".into())).await;
    for path in [kinde.auth(&[]), "/local/keys/rotate".into(), format!("/people/{BEN}"), "/local/hold".into()] {
        let foreign = client().post(kinde.url(&path)).header("origin", "https://elsewhere.example");
        let form = [("person", BEN), ("deed", "cancel_now"), ("hold", "true")];
        let refused = answer(foreign.form(&form)).await;
        assert!(refused.status == 403 && !refused.headers.contains_key("set-cookie"), "{path}: {}", refused.status);
    }
    for path in ["/".into(), kinde.auth(&[]), format!("/people/{ADA}"), "/logout".into(), "/nowhere".into()] {
        let page = kinde.get(&path).await;
        let policy = page.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert!(policy.contains(&format!("form-action 'self' {APP};")), "{policy}");
        assert!(!page.body.contains("<script") && !page.body.contains("style=") && !page.body.contains("<style"), "{path}");
        assert!(page.body.contains("Stands in for Kinde on this machine; nobody is charged."), "{path}");
        assert!(page.body.contains(&format!(r#"href="{APP}""#)), "{path} leads back to the app");
    }
    assert_eq!(kinde.get("/local/style.css").await.headers["content-type"], "text/css; charset=utf-8");
    assert_eq!(kinde.get("/local/icon.svg").await.headers["content-type"], "image/svg+xml");
}
