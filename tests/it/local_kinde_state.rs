//! What the local Kinde remembers over a restart, and what it does with a file it cannot read. And its keys.

use bottle::local_kinde::app::App;
use bottle::local_kinde::key::SigningKey;
use bottle::local_kinde::server::{Settings, bind, start};
use serde_json::Value;

use crate::local_kinde::{Folder, Receiver, until, verified};
use crate::support::local_kinde::{ADA, APP, BEN, Kinde};

fn settings(folder: &Folder) -> Settings {
    Settings { addr: "127.0.0.1:0".into(), state: folder.0.clone(), webhook_url: None, app: App::at(APP) }
}

#[tokio::test]
async fn a_retry_that_was_waiting_goes_on_after_a_restart() {
    let receiver = Receiver::answering([500, 500]);
    let kinde = Kinde::start(Some(receiver.listen().await)).await;
    kinde.post(&format!("/people/{BEN}"), &[("deed", "choose"), ("plan", "customer_starter_plan")]).await;
    until("two refusals noted", async || kinde.get("/").await.body.matches("500 heard you").count() == 2).await;
    let kinde = kinde.restart().await;
    assert_eq!(kinde.get("/").await.body.matches("500 heard you").count(), 2, "every attempt is still listed");
    kinde.deliveries(&[("speed", "1000000")]).await;
    until("both retried", async || receiver.all(|_| ()).len() == 4).await;
    let mut seen = receiver.all(|arrived| (arrived.webhook_id.clone(), arrived.body.clone()));
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 2, "the same bytes under the same ids as before the restart");
    until("second attempts", async || kinde.get("/").await.body.matches(">delivered</span>").count() == 2).await;
}

#[tokio::test]
async fn people_agreements_sessions_tokens_and_credentials_are_kept() {
    let mut kinde = Kinde::start(None).await;
    let path = kinde.auth(&[("prompt", "create")]);
    let signed_up = kinde.post(&path, &[("given_name", "Grace"), ("email", "grace@example.com")]).await;
    kinde.keep_cookie(&signed_up);
    let tokens = kinde.exchange(&signed_up.param("code").unwrap(), &[]).await.json();
    kinde.post(&format!("/people/{BEN}"), &[("deed", "choose"), ("plan", "customer_pro_plan")]).await;
    kinde.lifetimes(&[("id_token", "77")]).await;
    let credentials = |kinde: &Kinde| {
        let running = &kinde.running;
        [running.client_id(), running.client_secret(), running.m2m_client_id(), running.m2m_client_secret()]
    };
    let before = credentials(&kinde);
    let unused = kinde.get(&kinde.auth(&[("prompt", "none")])).await.param("code").unwrap();

    let kinde = kinde.restart().await;
    assert_eq!(credentials(&kinde), before);
    let page = kinde.get("/").await.body;
    assert!(page.contains("grace@example.com") && page.contains(r#"value="77""#), "{page}");
    assert!(kinde.get(&format!("/people/{BEN}")).await.body.contains("This is the plan now"));
    assert!(kinde.get(&kinde.auth(&[("prompt", "none")])).await.param("code").is_some(), "the session");
    assert_eq!(kinde.exchange(&unused, &[]).await.status, 200, "a code");
    assert_eq!(kinde.refresh(tokens["refresh_token"].as_str().unwrap()).await.status, 200, "a refresh token");
}

#[tokio::test]
async fn a_state_that_cannot_be_understood_stops_the_start_and_is_not_replaced() {
    let folder = Folder::new();
    start(settings(&folder)).await.unwrap().stop().await;
    let file = folder.0.join("state.json");
    let good = std::fs::read_to_string(&file).unwrap();
    let newer = good.replacen("\"form\": 1", "\"form\": 2", 1);
    assert_ne!(newer, good);
    for (damaged, why) in [(&good[..good.len() / 2], "state.json"), ("", "delete it"), (newer.as_str(), "form 2")] {
        std::fs::write(&file, damaged).unwrap();
        let refused = start(settings(&folder)).await.err().unwrap().to_string();
        assert!(refused.contains(why) && !refused.contains('\n'), "{refused}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), damaged);
    }
    std::fs::write(&file, good).unwrap();
    start(settings(&folder)).await.unwrap().stop().await;
}

#[tokio::test]
async fn a_folder_is_one_local_kindes_at_a_time() {
    let folder = Folder::new();
    let first = start(settings(&folder)).await.unwrap();
    let refused = start(settings(&folder)).await.err().unwrap().to_string();
    assert!(refused.contains("in use by another local Kinde"), "{refused}");
    first.stop().await;
    start(settings(&folder)).await.unwrap().stop().await;
}

#[tokio::test]
async fn an_address_can_be_taken_before_anything_else_is_ready() {
    let folder = Folder::new();
    let bound = bind("127.0.0.1:0").await.unwrap();
    let url = bound.url();
    let taken = bind(url.trim_start_matches("http://")).await.err().unwrap().to_string();
    assert!(taken.contains(url.trim_start_matches("http://")), "{taken}");
    let running = bound.start(settings(&folder)).unwrap();
    assert_eq!(running.url(), url);
    assert_eq!(crate::local_kinde::get(format!("{url}/.well-known/jwks")).await.0, 200);
    running.stop().await;
}

#[tokio::test]
async fn chosen_credentials_replace_those_made_by_chance() {
    let folder = Folder::new();
    let app = App { client_id: Some("chosen".into()), client_secret: Some("told".into()), ..App::at(APP) };
    let running = start(Settings { app, ..settings(&folder) }).await.unwrap();
    assert_eq!([running.client_id(), running.client_secret()], ["chosen", "told"]);
    assert!(running.m2m_client_id().len() > 20);
    running.stop().await;
    assert_eq!(start(settings(&folder)).await.unwrap().client_id(), "chosen", "and stay");
}

#[tokio::test]
async fn a_new_key_signs_and_the_old_one_is_published_until_it_is_dropped() {
    let mut kinde = Kinde::start(None).await;
    let old = kinde.tokens(ADA).await["access_token"].as_str().unwrap().to_owned();
    assert_eq!(kinde.post("/local/keys/rotate", &[]).await.status, 303);
    let new = kinde.tokens(ADA).await["access_token"].as_str().unwrap().to_owned();
    let kid = |token: &str| jsonwebtoken::decode_header(token).unwrap().kid.unwrap();
    assert_ne!(kid(&old), kid(&new));
    let published = async |kinde: &Kinde| {
        let keys: Value = kinde.get("/.well-known/jwks").await.json();
        keys["keys"].as_array().unwrap().iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(published(&kinde).await, [kid(&new), kid(&old)]);
    for token in [&old, &new] {
        verified(token, &kinde.url("")).await.unwrap();
        assert_eq!(kinde.get_as("/oauth2/v2/user_profile", token).await.status, 200);
    }
    assert_eq!(SigningKey::load_or_make(&kinde.folder.0).unwrap().kid(), kid(&new), "the command signs with it too");

    let kinde = kinde.restart().await;
    assert_eq!(published(&kinde).await, [kid(&new), kid(&old)]);
    let page = kinde.get("/").await.body;
    assert!(page.contains("still published") && page.contains(&kid(&old)));
    assert_eq!(kinde.post("/local/keys/drop-retired", &[]).await.status, 303);
    assert_eq!(published(&kinde).await, [kid(&new)]);
    assert_eq!(kinde.get_as("/oauth2/v2/user_profile", &old).await.status, 401);
}
