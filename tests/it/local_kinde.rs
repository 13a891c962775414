//! The local Kinde against a receiver that only this file knows: what arrives is what a webhook endpoint would get.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use bottle::local_kinde::app::App;
use bottle::local_kinde::cli::{self, Beside, LocalKindeArgs};
use bottle::local_kinde::key::SigningKey;
use bottle::local_kinde::order::{self, Order};
use bottle::local_kinde::sender::{Attempt, Delivery, Manner, Outcome, Sender, WAITS};
use bottle::local_kinde::server::{Running, Settings, start};
use clap::Parser as _;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::{Value, json};

pub struct Arrived {
    pub at: Instant,
    pub webhook_id: String,
    pub content_type: String,
    pub body: Bytes,
}

/// A webhook endpoint that answers what it is told to, then 200.
#[derive(Clone, Default)]
pub struct Receiver {
    arrived: Arc<Mutex<Vec<Arrived>>>,
    answers: Arc<Mutex<VecDeque<u16>>>,
    slow: Duration,
}

impl Receiver {
    pub fn answering(answers: impl IntoIterator<Item = u16>) -> Self {
        Self { answers: Arc::new(Mutex::new(answers.into_iter().collect())), ..Self::default() }
    }

    pub async fn listen(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/webhooks/kinde", listener.local_addr().unwrap());
        let routes = Router::new().route("/webhooks/kinde", post(receive)).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        url
    }

    pub fn all<T>(&self, read: impl Fn(&Arrived) -> T) -> Vec<T> {
        self.arrived.lock().unwrap().iter().map(read).collect()
    }
}

async fn receive(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> (StatusCode, &'static str) {
    let header = |name: &str| headers.get(name).unwrap().to_str().unwrap().to_owned();
    let (webhook_id, content_type) = (header("webhook-id"), header("content-type"));
    receiver.arrived.lock().unwrap().push(Arrived { at: Instant::now(), webhook_id, content_type, body });
    tokio::time::sleep(receiver.slow).await;
    let status = receiver.answers.lock().unwrap().pop_front().unwrap_or(200);
    (StatusCode::from_u16(status).unwrap(), "heard\nyou")
}

/// A folder of this test alone, gone afterwards.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        let path = std::env::temp_dir().join(format!("bottle-local-kinde-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// For tests that care about deliveries only: making a key takes longer than all the rest.
static KEY: LazyLock<SigningKey> = LazyLock::new(|| SigningKey::load_or_make(&Folder::new().0).unwrap());

fn order(fields: &Value) -> Order {
    let mut all = json!({ "event": "plan_changed" });
    all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    serde_json::from_value(all).unwrap()
}

fn signed(order: &Order, key: &SigningKey, to: &str) -> Vec<Delivery> {
    order::sign(order.events().unwrap(), key, to).unwrap()
}

/// Carries one order; its attempts in the order they ended, and whether all was delivered.
async fn carried(fields: &Value, to: &str) -> (Vec<Attempt>, bool) {
    let manner = order(fields).manner().unwrap();
    carried_in(manner, fields, to).await
}

async fn carried_in(manner: Manner, fields: &Value, to: &str) -> (Vec<Attempt>, bool) {
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&attempts);
    let deliveries = signed(&order(fields), &KEY, to);
    let delivered =
        Sender::new(4).unwrap().deliver(deliveries, manner, move |attempt| record.lock().unwrap().push(attempt)).await;
    let attempts = std::mem::take(&mut *attempts.lock().unwrap());
    (attempts, delivered)
}

async fn local_kinde(folder: &Folder, webhook_url: Option<String>) -> Running {
    start(Settings { addr: "127.0.0.1:0".into(), state: folder.0.clone(), webhook_url, app: App::default() }).await.unwrap()
}

pub async fn get(url: String) -> (u16, String) {
    let response = client().get(url).send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

pub fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap()
}

pub async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let patience = Instant::now();
    while !is_so().await {
        assert!(patience.elapsed() < Duration::from_secs(20), "waited in vain for: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What a relying party does: fetch the keys, take the one with this `kid`, verify, demand nothing that Kinde leaves out.
pub async fn verified(token: &str, kinde: &str) -> Result<Value, jsonwebtoken::errors::Error> {
    let keys: Value = serde_json::from_str(&get(format!("{kinde}/.well-known/jwks")).await.1).unwrap();
    let header = jsonwebtoken::decode_header(token)?;
    let kid = header.kid.unwrap();
    let key = keys["keys"].as_array().unwrap().iter().find(|key| key["kid"] == kid.as_str()).unwrap();
    let key = DecodingKey::from_rsa_components(key["n"].as_str().unwrap(), key["e"].as_str().unwrap())?;
    let mut demands = Validation::new(Algorithm::RS256);
    demands.required_spec_claims.clear();
    demands.validate_exp = false;
    demands.validate_aud = false;
    jsonwebtoken::decode::<Value>(token, &key, &demands).map(|token| token.claims)
}

#[tokio::test]
async fn a_refused_event_is_tried_nine_times_on_the_schedule_and_then_given_up() {
    let receiver = Receiver::answering([500, 503, 429, 401, 202, 204, 302, 404, 500]);
    let to = receiver.listen().await;
    let speed = 100_000.0;
    let (attempts, delivered) = carried(&json!({ "speed": speed }), &to).await;

    assert!(!delivered);
    assert_eq!(attempts.iter().map(|attempt| attempt.n).collect::<Vec<_>>(), (1..=9).collect::<Vec<_>>());
    let statuses: Vec<u16> = attempts
        .iter()
        .map(|attempt| match &attempt.outcome {
            Outcome::Answered { status, .. } => *status,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(statuses, [500, 503, 429, 401, 202, 204, 302, 404, 500]);
    assert!(attempts[..8].iter().all(|attempt| attempt.next_try.is_some()) && attempts[8].next_try.is_none());

    let times = receiver.all(|arrived| arrived.at);
    for (pair, wait) in times.windows(2).zip(WAITS) {
        let (waited, planned) = (pair[1].duration_since(pair[0]), wait.div_f64(speed));
        assert!(waited + Duration::from_millis(1) >= planned, "{wait:?}: {waited:?}");
    }
    for (attempt, pair) in attempts.iter().zip(attempts.windows(2)) {
        assert!(pair[1].at >= attempt.next_try.unwrap(), "attempt {} came early", pair[1].n);
    }
    // The schedule that the Engine Room's table is made of: an event of 10:00 is tried at 10:12:35, 11:12:35, 15:12:35, …
    let sums: Vec<u64> = WAITS
        .iter()
        .scan(0, |sum, wait| {
            *sum += wait.as_secs();
            Some(*sum)
        })
        .collect();
    assert_eq!(sums, [5, 35, 155, 755, 4355, 18755, 61955, 105_155]);
    assert!(sums[7] <= 36 * 3600 && sums[7] + 12 * 3600 > 36 * 3600);
}

#[tokio::test]
async fn a_delivery_is_the_bare_token_as_application_jwt() {
    let receiver = Receiver::default();
    let to = receiver.listen().await;
    let (attempts, delivered) = carried(&json!({}), &to).await;
    assert!(delivered);
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0].outcome, Outcome::Answered { status: 200, body: "heard\nyou".into() });
    assert_eq!(receiver.all(|arrived| arrived.content_type.clone()), ["application/jwt"]);
    let body = receiver.all(|arrived| String::from_utf8(arrived.body.to_vec()).unwrap()).remove(0);
    assert_eq!(body.split('.').count(), 3, "{body}");
    assert!(body.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)), "{body}");
}

#[tokio::test]
async fn copies_are_identical_bytes_under_one_webhook_id() {
    let receiver = Receiver::default();
    let to = receiver.listen().await;
    let (attempts, delivered) = carried(&json!({ "copies": 7 }), &to).await;
    assert!(delivered);
    let mut copies: Vec<u32> = attempts.iter().map(|attempt| attempt.copy).collect();
    copies.sort_unstable();
    assert_eq!(copies, [1, 2, 3, 4, 5, 6, 7]);
    let mut seen = receiver.all(|arrived| (arrived.webhook_id.clone(), arrived.body.clone()));
    assert_eq!(seen.len(), 7);
    seen.dedup();
    assert_eq!(seen.len(), 1);
}

#[tokio::test]
async fn the_webhook_id_is_the_same_on_every_attempt_and_differs_by_event_and_by_endpoint() {
    let receiver = Receiver::answering([500, 500, 500]);
    let to = receiver.listen().await;
    let (_, delivered) = carried(&json!({ "speed": 1e6 }), &to).await;
    assert!(delivered);
    let mut seen = receiver.all(|arrived| (arrived.webhook_id.clone(), arrived.body.clone()));
    assert_eq!(seen.len(), 4);
    seen.dedup();
    assert_eq!(seen.len(), 1);

    let events = order(&json!({ "event": "upgrade" })).events().unwrap();
    let mut ids: Vec<String> = ["http://a/", "http://b/"]
        .iter()
        .flat_map(|to| order::sign(events.clone(), &KEY, to).unwrap())
        .map(|delivery| delivery.webhook_id)
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 8);
}

#[tokio::test]
async fn an_answer_lost_on_purpose_brings_the_event_again() {
    let receiver = Receiver::default();
    let to = receiver.listen().await;
    let (attempts, delivered) = carried(&json!({ "drop_answers": 2, "speed": 1e6 }), &to).await;
    assert!(delivered);
    assert_eq!(receiver.all(|_| ()).len(), 3);
    let lost = Outcome::AnswerDropped { status: 200, body: "heard\nyou".into() };
    assert_eq!(attempts.iter().filter(|attempt| attempt.outcome == lost).count(), 2);
}

#[tokio::test]
async fn no_answer_in_time_is_a_failure_and_so_is_nobody_there() {
    let receiver = Receiver { slow: Duration::from_millis(300), ..Receiver::default() };
    let to = receiver.listen().await;
    let hasty =
        Manner { answer_within: Duration::from_millis(50), ..order(&json!({ "attempts": 2, "speed": 1e6 })).manner().unwrap() };
    let (attempts, delivered) = carried_in(hasty, &json!({}), &to).await;
    assert!(!delivered);
    assert_eq!(attempts[0].outcome, Outcome::Failed { why: "no answer within 50ms".into() });
    assert_eq!(attempts.len(), 2);
    assert!(attempts[1].next_try.is_none());

    let (attempts, delivered) = carried(&json!({ "attempts": 1 }), "http://127.0.0.1:1/").await;
    assert!(!delivered && matches!(&attempts[0].outcome, Outcome::Failed { why } if why.contains("refused")), "{attempts:?}");
}

#[tokio::test]
async fn a_late_event_waits_before_its_first_attempt() {
    let receiver = Receiver::default();
    let to = receiver.listen().await;
    let began = Instant::now();
    carried(&json!({ "late": "10m", "speed": 3000.0 }), &to).await;
    assert!(began.elapsed() >= Duration::from_millis(200));
}

#[tokio::test]
async fn a_token_verifies_against_the_published_keys_and_a_changed_one_does_not() {
    let folder = Folder::new();
    let kinde = local_kinde(&folder, None).await;
    let key = SigningKey::load_or_make(&folder.0).unwrap();
    let token = signed(&order(&json!({ "user": "ben" })), &key, "http://a/").remove(0).token;
    let claims = verified(&token, &kinde.url()).await.unwrap();
    assert_eq!(claims["type"], "customer.plan_changed");
    assert!(claims["data"]["user_id"].as_str().unwrap().starts_with("kp_"));

    let (header, rest) = token.split_once('.').unwrap();
    let (_, signature) = rest.split_once('.').unwrap();
    let other = signed(&order(&json!({ "user": "olga" })), &key, "http://a/").remove(0).token;
    let forged = format!("{header}.{}.{signature}", other.split('.').nth(1).unwrap());
    assert!(verified(&forged, &kinde.url()).await.is_err());

    let head = jsonwebtoken::decode_header(&token).unwrap();
    assert_eq!((head.alg, head.typ.as_deref()), (Algorithm::RS256, Some("JWT")));
    let kid = head.kid.unwrap();
    assert!(
        kid.split(':').count() == 16 && kid.split(':').all(|byte| u8::from_str_radix(byte, 16).is_ok() && byte.len() == 2),
        "{kid}"
    );

    let (_, jwks) = get(format!("{}/.well-known/jwks", kinde.url())).await;
    assert_eq!(get(format!("{}/.well-known/jwks.json", kinde.url())).await, (200, jwks.clone()));
    let jwk = &serde_json::from_str::<Value>(&jwks).unwrap()["keys"][0];
    assert_eq!([&jwk["kty"], &jwk["use"], &jwk["alg"], &jwk["e"]], ["RSA", "sig", "RS256", "AQAB"]);
    assert_eq!(jwk["n"].as_str().unwrap().len(), 342);
    assert_eq!(jwk.as_object().unwrap().len(), 6, "no private part is published: {jwk}");
    kinde.stop().await;
}

#[tokio::test]
async fn the_key_survives_a_restart_and_is_nobody_elses_to_read() {
    let folder = Folder::new();
    let first = local_kinde(&folder, None).await;
    let (_, before) = get(format!("{}/.well-known/jwks", first.url())).await;
    let old = first.url();
    first.stop().await;
    assert!(client().get(&old).send().await.is_err(), "a stopped local Kinde still answers");
    let again = local_kinde(&folder, None).await;
    assert_eq!(get(format!("{}/.well-known/jwks", again.url())).await.1, before);

    again.stop().await;
    let mut names = Vec::new();
    for file in std::fs::read_dir(&folder.0).unwrap().map(|file| file.unwrap()) {
        let name = file.file_name().into_string().unwrap();
        #[cfg(unix)]
        if name != "lock" {
            let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions());
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        names.push(name);
    }
    names.sort();
    assert_eq!(names, ["lock", "signing-key.pkcs8", "state.json"], "and no draft is left behind");
}

#[tokio::test]
async fn two_that_start_at_once_in_one_folder_share_one_key() {
    let folder = Folder::new();
    let makers: Vec<_> = (0..4)
        .map(|_| folder.0.clone())
        .map(|path| std::thread::spawn(move || SigningKey::load_or_make(&path).unwrap().kid().to_owned()))
        .collect();
    let mut kids: Vec<String> = makers.into_iter().map(|maker| maker.join().unwrap()).collect();
    kids.dedup();
    assert_eq!(kids.len(), 1, "{kids:?}");
}

#[tokio::test]
async fn a_damaged_key_file_stops_the_start_and_is_not_replaced() {
    let folder = Folder::new();
    SigningKey::load_or_make(&folder.0).unwrap();
    let file = std::fs::read_dir(&folder.0).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&file, b"not a key").unwrap();
    let refused =
        start(Settings { addr: "127.0.0.1:0".into(), state: folder.0.clone(), webhook_url: None, app: App::default() }).await;
    assert!(refused.err().unwrap().to_string().contains("delete it"));
    assert_eq!(std::fs::read(&file).unwrap(), b"not a key");
}

#[tokio::test]
async fn an_address_beyond_loopback_is_refused() {
    let folder = Folder::new();
    for (addr, complaint) in [
        ("0.0.0.0:0", "loopback only"),
        ("[::]:0", "loopback only"),
        ("192.0.2.1:0", "loopback only"),
        ("127.0.0.1", "host:port"),
        ("", "host:port"),
    ] {
        let refused =
            start(Settings { addr: addr.into(), state: folder.0.clone(), webhook_url: None, app: App::default() }).await;
        let said = refused.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(said.contains(complaint), "{addr}: {said}");
    }
    let named = start(Settings { addr: "localhost:0".into(), state: folder.0.clone(), webhook_url: None, app: App::default() })
        .await
        .unwrap();
    assert!(named.url().starts_with("http://127.0.0.1:") || named.url().starts_with("http://[::1]:"), "{}", named.url());
    let taken = named.url().trim_start_matches("http://").to_owned();
    let refused = start(Settings { addr: taken.clone(), state: folder.0.clone(), webhook_url: None, app: App::default() }).await;
    assert!(refused.err().unwrap().to_string().contains(&taken));
}

#[tokio::test]
async fn discovery_names_kindes_endpoints_under_its_own_url() {
    let folder = Folder::new();
    let kinde = local_kinde(&folder, None).await;
    let url = kinde.url();
    let (status, body) = get(format!("{url}/.well-known/openid-configuration")).await;
    let document: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status, 200);
    assert_eq!(document["issuer"], url.as_str());
    assert_eq!(document["jwks_uri"], format!("{url}/.well-known/jwks"));
    assert_eq!(document["authorization_endpoint"], format!("{url}/oauth2/auth"));
    assert_eq!(document["token_endpoint"], format!("{url}/oauth2/token"));
    assert_eq!(get(format!("{url}/elsewhere")).await.0, 404);
}

#[tokio::test]
async fn an_order_by_form_or_json_is_sent_and_every_attempt_is_on_the_page() {
    let receiver = Receiver::answering([503, 503]);
    let folder = Folder::new();
    let kinde = local_kinde(&folder, Some(receiver.listen().await)).await;
    let send = format!("{}/local/send", kinde.url());

    let form = [("event", "plan_changed"), ("user", "ben"), ("copies", "2"), ("speed", "1000000"), ("late", ""), ("at", "")];
    let response = client().post(&send).form(&form).send().await.unwrap();
    assert_eq!((response.status().as_u16(), response.headers()["location"].to_str().unwrap()), (303, "/"));
    until("both copies twice", async || receiver.all(|_| ()).len() == 4).await;

    let response = client().post(&send).json(&json!({ "event": "upgrade" })).send().await.unwrap();
    assert_eq!(response.status().as_u16(), 202);
    let queued: Value = response.json().await.unwrap();
    until("the four events of an upgrade", async || receiver.all(|_| ()).len() == 8).await;

    let all_listed = async || get(kinde.url()).await.1.matches("<li class=\"try\">").count() == 8;
    until("the page to list all eight attempts", all_listed).await;
    let (_, page) = get(kinde.url()).await;
    for event in queued["queued"].as_array().unwrap() {
        for field in ["event_id", "webhook_id", "type"] {
            assert!(page.contains(event[field].as_str().unwrap()), "{event}");
        }
    }
    assert_eq!(page.matches("503 heard you").count(), 2);
    assert_eq!(page.matches("200 heard you").count(), 6);
    assert_eq!(page.matches(">delivered</span>").count(), 6);
    assert!(!page.contains("<script"));
    for arrived in receiver.all(|arrived| String::from_utf8(arrived.body.to_vec()).unwrap()) {
        verified(&arrived, &kinde.url()).await.unwrap();
    }
}

#[tokio::test]
async fn an_order_that_makes_no_sense_is_answered_400_with_its_reason() {
    let folder = Folder::new();
    let kinde = local_kinde(&folder, Some("http://127.0.0.1:1/".into())).await;
    let send = format!("{}/local/send", kinde.url());
    let response = client().post(&send).json(&json!({ "event": "plan_changed", "user": "nobody" })).send().await.unwrap();
    assert_eq!(response.status().as_u16(), 400);
    assert!(response.text().await.unwrap().contains("nobody"));

    let other_folder = Folder::new();
    let silent = local_kinde(&other_folder, None).await;
    let response =
        client().post(format!("{}/local/send", silent.url())).json(&json!({ "event": "upgrade" })).send().await.unwrap();
    assert!(response.status().as_u16() == 400 && response.text().await.unwrap().contains("without a webhook URL"));
    let refused = start(Settings {
        addr: "127.0.0.1:0".into(),
        state: folder.0.clone(),
        webhook_url: Some("ftp://a/".into()),
        app: App::default(),
    })
    .await;
    assert!(refused.err().unwrap().to_string().contains("ftp://a/"));
}

#[tokio::test]
async fn a_page_from_elsewhere_cannot_order_events() {
    let receiver = Receiver::default();
    let folder = Folder::new();
    let kinde = local_kinde(&folder, Some(receiver.listen().await)).await;
    let order = || client().post(format!("{}/local/send", kinde.url())).form(&[("event", "upgrade")]);
    assert_eq!(order().header("origin", "https://elsewhere.example").send().await.unwrap().status().as_u16(), 403);
    // A name made to point at this machine: same origin to the browser, but not a name of ours.
    let rebound = order().header("host", "elsewhere.example").header("origin", "http://elsewhere.example");
    assert_eq!(rebound.send().await.unwrap().status().as_u16(), 421);
    assert_eq!(receiver.all(|_| ()).len(), 0);
}

#[derive(clap::Parser)]
struct CommandLine {
    #[command(flatten)]
    local_kinde: LocalKindeArgs,
}

/// Beside a Bottle and a local Kinde that are not there.
fn beside() -> Beside {
    Beside {
        addr: "127.0.0.1:1".into(),
        app_url: "http://localhost:1".into(),
        webhook_url: "http://localhost:1/webhooks/kinde".into(),
        state: "/nowhere".into(),
    }
}

fn parsed(words: &[&str]) -> LocalKindeArgs {
    CommandLine::try_parse_from([&["local-kinde"], words].concat()).unwrap().local_kinde
}

async fn exit_of(words: &[&str]) -> ExitCode {
    cli::run(parsed(words), beside()).await.unwrap()
}

#[tokio::test]
async fn the_command_exits_0_when_every_event_got_its_200_and_1_when_not() {
    let receiver = Receiver::answering([500, 200, 200, 200, 200, 500]);
    let to = receiver.listen().await;
    let folder = Folder::new();
    let state = folder.0.to_str().unwrap();
    let upgrade = ["send", "upgrade", "--user", "olga", "--to", &to, "--state", state, "--speed", "1e6"];
    assert_eq!(exit_of(&upgrade).await, ExitCode::SUCCESS);
    assert_eq!(receiver.all(|_| ()).len(), 5);
    assert_eq!(exit_of(&["send", "payment_failed", "--to", &to, "--state", state, "--attempts", "1"]).await, ExitCode::FAILURE);
    assert_eq!(exit_of(&["send", "payment_failed", "--to", &to, "--state", state, "--print"]).await, ExitCode::SUCCESS);
    assert_eq!(receiver.all(|_| ()).len(), 6, "printing posts nothing");
}

#[tokio::test]
async fn the_command_exits_2_on_bad_usage() {
    let folder = Folder::new();
    let state = folder.0.to_str().unwrap();
    for words in [["--user", "adda"], ["--late", "soon"], ["--at", "yesterday"], ["--copies", "0"], ["--to", "nowhere"]] {
        assert_eq!(
            exit_of(&[&["send", "plan_changed", "--state", state], &words[..]].concat()).await,
            ExitCode::from(2),
            "{words:?}"
        );
    }
    let everywhere = Beside { addr: "0.0.0.0:0".into(), ..beside() };
    assert_eq!(cli::run(parsed(&["--state", state]), everywhere).await.unwrap(), ExitCode::from(2));
    let unknown = CommandLine::try_parse_from(["local-kinde", "send", "plan_exploded"]);
    assert_eq!(unknown.err().unwrap().exit_code(), 2);
}

#[tokio::test]
async fn the_command_can_order_through_a_running_local_kinde() {
    let receiver = Receiver::default();
    let folder = Folder::new();
    let kinde = local_kinde(&folder, Some(receiver.listen().await)).await;
    assert_eq!(exit_of(&["send", "meter_usage_updated", "--copies", "2", "--via", &kinde.url()]).await, ExitCode::SUCCESS);
    until("two copies", async || receiver.all(|_| ()).len() == 2).await;
    // Without a word about where: through the one that the settings name.
    let running = Beside { addr: kinde.url().trim_start_matches("http://").into(), ..beside() };
    assert_eq!(cli::run(parsed(&["send", "upgrade", "--user", "ben"]), running).await.unwrap(), ExitCode::SUCCESS);
    until("four events", async || receiver.all(|_| ()).len() == 6).await;
    let nobody = cli::run(parsed(&["send", "upgrade"]), beside()).await.unwrap_err().to_string();
    assert!(nobody.contains("http://127.0.0.1:1") && nobody.contains("BOTTLE_LOCAL_KINDE_ADDR"), "{nobody}");
}
