//! The key cache against an issuer whose answers the test decides.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use aws_lc_rs::rsa::KeySize;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use bottle::jwks::token::TokenError;
use bottle::jwks::{Jwks, KeyError};
use bottle::outbound::Client;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::support::tokens::{STRANGER, TENANT, TestKey};

/// An issuer and a cache of its keys, on a clock that only the test moves.
struct Issuer {
    jwks: Jwks,
    answer: Arc<Mutex<(StatusCode, String)>>,
    asked: Arc<AtomicUsize>,
    /// While held, the issuer keeps its callers waiting.
    gate: Arc<tokio::sync::Mutex<()>>,
    arrived: Arc<Notify>,
    later_ms: Arc<AtomicU64>,
}

impl Issuer {
    async fn start(keys: &[&TestKey]) -> Self {
        let answer = Arc::new(Mutex::new((StatusCode::OK, set(keys))));
        let (asked, arrived) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let gate = Arc::new(tokio::sync::Mutex::new(()));
        let handler = {
            let (answer, asked, arrived, gate) = (answer.clone(), asked.clone(), arrived.clone(), gate.clone());
            move || async move {
                asked.fetch_add(1, Ordering::SeqCst);
                arrived.notify_one();
                let _open = gate.lock().await;
                answer.lock().unwrap().clone().into_response()
            }
        };
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let client = Client::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let app = axum::Router::new().route("/keys", axum::routing::get(handler));
        tokio::spawn(async move { axum::serve(listener, app).await });

        let (start, later_ms) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let hand = Arc::clone(&later_ms);
        let clock = move || start + Duration::from_millis(hand.load(Ordering::SeqCst));
        Self { jwks: Jwks::with_clock("/keys", client, clock), answer, asked, gate, arrived, later_ms }
    }

    fn wait(&self, span: Duration) {
        self.later_ms.fetch_add(u64::try_from(span.as_millis()).unwrap(), Ordering::SeqCst);
    }

    fn answers(&self, status: StatusCode, body: impl Into<String>) {
        *self.answer.lock().unwrap() = (status, body.into());
    }

    fn publishes(&self, keys: &[&TestKey]) {
        self.answers(StatusCode::OK, set(keys));
    }

    fn asked(&self) -> usize {
        let asked = self.asked.load(Ordering::SeqCst);
        assert_eq!(u64::try_from(asked).unwrap(), self.jwks.fetches(), "the counter tells the truth");
        asked
    }

    async fn knows(&self, key: &TestKey) -> bool {
        self.jwks.key(&key.kid).await.is_ok()
    }

    /// A refresh in the background has no caller to wait for it.
    async fn settled(&self, asked: usize) {
        for _ in 0..500 {
            if self.asked.load(Ordering::SeqCst) >= asked {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(self.asked(), asked);
        // The answer is on its way; asking for an unknown key waits for the fetch that carries it.
        let _ = self.jwks.key("no such key").await;
        assert_eq!(self.asked(), asked);
    }
}

fn set(keys: &[&TestKey]) -> String {
    json!({"keys": keys.iter().map(|key| key.jwk()).collect::<Vec<_>>()}).to_string()
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

// S7
#[tokio::test]
async fn a_thousand_invented_ids_cost_two_fetches_a_minute() {
    let issuer = Issuer::start(&[&TENANT]).await;
    assert!(issuer.knows(&TENANT).await);
    for n in 0..1000 {
        issuer.wait(Duration::from_millis(60));
        assert_eq!(issuer.jwks.key(&format!("kid-{n}")).await.unwrap_err(), KeyError::Unknown);
        assert!(issuer.knows(&TENANT).await);
    }
    assert_eq!(issuer.asked(), 2);
}

// S7
#[tokio::test]
async fn a_bad_signature_by_a_known_id_costs_nothing() {
    let issuer = Issuer::start(&[&TENANT]).await;
    assert!(issuer.jwks.verify(TENANT.sign_event("{}").as_bytes()).await.is_ok());
    issuer.wait(secs(300));
    for _ in 0..50 {
        let forged = STRANGER.sign(&TENANT.header(), "{}");
        assert!(matches!(issuer.jwks.verify(forged.as_bytes()).await, Err(TokenError::NotGenuine(_))));
    }
    assert_eq!(issuer.asked(), 1);
}

// S8
#[tokio::test]
async fn no_bad_answer_drops_a_good_key_or_lifts_the_cool_down() {
    let issuer = Issuer::start(&[&TENANT]).await;
    assert!(issuer.knows(&TENANT).await);
    let mut asked = 1;
    let bad = [
        (StatusCode::INTERNAL_SERVER_ERROR, set(&[&STRANGER])),
        (StatusCode::NOT_FOUND, String::new()),
        (StatusCode::NO_CONTENT, String::new()),
        (StatusCode::OK, String::new()),
        (StatusCode::OK, "<html>".into()),
        (StatusCode::OK, "[]".into()),
        (StatusCode::OK, "{}".into()),
        (StatusCode::OK, json!({"keys": []}).to_string()),
        (StatusCode::OK, json!({"keys": [{}, 1, null]}).to_string()),
        (StatusCode::OK, json!({"keys": {"kid": "x"}}).to_string()),
        (StatusCode::OK, set(&[&STRANGER]).replace("]}", "")),
        (StatusCode::OK, format!("{}{}", set(&[&STRANGER]), " ".repeat(256 * 1024))),
    ];
    for (status, body) in bad {
        let shown = format!("{status} {}", &body[..body.len().min(40)]);
        issuer.answers(status, body);
        issuer.wait(secs(60));
        asked += 1;
        assert_eq!(issuer.jwks.key(&STRANGER.kid).await.unwrap_err(), KeyError::Unknown, "{shown}");
        for _ in 0..5 {
            issuer.wait(secs(11));
            assert_eq!(issuer.jwks.key(&STRANGER.kid).await.unwrap_err(), KeyError::Unknown, "{shown}");
            assert!(issuer.knows(&TENANT).await, "{shown}");
        }
        assert_eq!(issuer.asked(), asked, "{shown}");
    }
    issuer.publishes(&[&STRANGER, &TENANT]);
    issuer.wait(secs(60));
    assert!(issuer.knows(&STRANGER).await);
}

// S8
#[tokio::test]
async fn without_any_key_the_cool_down_is_ten_seconds_and_the_answer_is_come_again() {
    let issuer = Issuer::start(&[]).await;
    for round in 1..=3 {
        let error = issuer.jwks.key(&TENANT.kid).await.unwrap_err();
        assert!(matches!(&error, KeyError::Unavailable { why } if why.contains("none of its 0 keys")), "{error:?}");
        issuer.wait(Duration::from_millis(9_999));
        assert!(matches!(issuer.jwks.key(&TENANT.kid).await, Err(KeyError::Unavailable { .. })));
        assert_eq!(issuer.asked(), round);
        issuer.wait(Duration::from_millis(1));
    }
    issuer.publishes(&[&TENANT]);
    assert!(issuer.knows(&TENANT).await);
    // From now on it is a minute, counted from the attempt that succeeded.
    issuer.wait(secs(59));
    assert_eq!(issuer.jwks.key("x").await.unwrap_err(), KeyError::Unknown);
    assert_eq!(issuer.asked(), 4);
}

// S8
#[tokio::test]
async fn an_issuer_that_hangs_is_asked_once_and_keeps_its_good_keys() {
    let issuer = Issuer::start(&[&TENANT]).await;
    assert!(issuer.knows(&TENANT).await);
    issuer.wait(secs(60));
    let closed = issuer.gate.lock().await;
    // It gives up after the outbound client's five seconds; meanwhile known keys are answered at once.
    let stuck = issuer.jwks.key("unknown");
    tokio::pin!(stuck);
    tokio::select! {
        _ = &mut stuck => panic!("it cannot know yet"),
        () = issuer.arrived.notified() => {}
    }
    assert!(issuer.knows(&TENANT).await);
    assert_eq!(stuck.await.unwrap_err(), KeyError::Unknown);
    assert!(issuer.knows(&TENANT).await);
    assert_eq!(issuer.jwks.key("another").await.unwrap_err(), KeyError::Unknown);
    assert_eq!(issuer.asked(), 2);
    drop(closed);
}

// S9
#[tokio::test]
async fn a_rotated_key_is_accepted_within_one_fetch_and_the_old_one_leaves_after_two_absences() {
    let issuer = Issuer::start(&[&TENANT]).await;
    assert!(issuer.knows(&TENANT).await);
    issuer.publishes(&[&STRANGER]);
    issuer.wait(secs(60));
    assert!(issuer.knows(&STRANGER).await, "one fetch brings the new key");
    assert!(issuer.knows(&TENANT).await, "absent once");
    assert_eq!(issuer.asked(), 2);

    issuer.publishes(&[&STRANGER, &TENANT]);
    issuer.wait(secs(60));
    assert!(issuer.jwks.key("x").await.is_err());
    issuer.publishes(&[&STRANGER]);
    issuer.wait(secs(60));
    assert!(issuer.jwks.key("x").await.is_err());
    assert!(issuer.knows(&TENANT).await, "absent once again: two absences, but not in a row");

    // A failure in between is neither an absence nor a presence.
    issuer.answers(StatusCode::BAD_GATEWAY, "");
    issuer.wait(secs(60));
    assert!(issuer.jwks.key("x").await.is_err());
    assert!(issuer.knows(&TENANT).await);

    issuer.publishes(&[&STRANGER]);
    issuer.wait(secs(60));
    assert!(issuer.jwks.key("x").await.is_err());
    assert_eq!(issuer.jwks.key(&TENANT.kid).await.unwrap_err(), KeyError::Unknown, "absent twice in a row");
    assert!(issuer.knows(&STRANGER).await);
}

#[tokio::test]
async fn many_callers_wait_for_one_fetch() {
    let issuer = Issuer::start(&[&TENANT]).await;
    let closed = issuer.gate.lock().await;
    let callers: Vec<_> = (0..200)
        .map(|n| {
            let (jwks, kid) = (issuer.jwks.clone(), if n % 2 == 0 { TENANT.kid.clone() } else { format!("kid-{n}") });
            tokio::spawn(async move { (n % 2 == 0, jwks.key(&kid).await) })
        })
        .collect();
    issuer.arrived.notified().await;
    tokio::task::yield_now().await;
    drop(closed);
    for caller in callers {
        let (genuine, result) = caller.await.unwrap();
        assert_eq!(result.map(|_| ()), if genuine { Ok(()) } else { Err(KeyError::Unknown) });
    }
    assert_eq!(issuer.asked(), 1);
}

#[tokio::test]
async fn a_caller_who_gives_up_does_not_stop_the_fetch() {
    let issuer = Issuer::start(&[&TENANT]).await;
    let closed = issuer.gate.lock().await;
    {
        let impatient = issuer.jwks.key(&TENANT.kid);
        tokio::pin!(impatient);
        tokio::select! {
            _ = &mut impatient => panic!("the issuer has not answered"),
            () = issuer.arrived.notified() => {}
        }
    }
    drop(closed);
    assert!(issuer.knows(&TENANT).await);
    assert_eq!(issuer.asked(), 1);
}

#[tokio::test]
async fn old_keys_are_refreshed_behind_the_callers_back() {
    let issuer = Issuer::start(&[&TENANT]).await;
    assert!(issuer.knows(&TENANT).await);
    issuer.wait(secs(3600));
    assert!(issuer.knows(&TENANT).await);
    assert_eq!(issuer.asked(), 1, "an hour is not more than an hour");

    issuer.publishes(&[&TENANT, &STRANGER]);
    issuer.wait(Duration::from_millis(1));
    let closed = issuer.gate.lock().await;
    for _ in 0..20 {
        assert!(issuer.knows(&TENANT).await, "nobody waits for the refresh");
    }
    issuer.arrived.notified().await;
    drop(closed);
    issuer.settled(2).await;
    assert!(issuer.knows(&STRANGER).await);

    // A refresh that fails is tried again after the cool-down, not at each call.
    issuer.answers(StatusCode::SERVICE_UNAVAILABLE, "");
    issuer.wait(secs(3601));
    assert!(issuer.knows(&TENANT).await);
    issuer.settled(3).await;
    for _ in 0..10 {
        issuer.wait(secs(5));
        assert!(issuer.knows(&TENANT).await);
    }
    issuer.settled(3).await;
    issuer.wait(secs(10));
    assert!(issuer.knows(&TENANT).await);
    issuer.settled(4).await;
}

#[tokio::test]
async fn warming_up_fetches_before_anybody_asks() {
    let issuer = Issuer::start(&[&TENANT]).await;
    issuer.jwks.warm();
    issuer.jwks.warm();
    issuer.settled(1).await;
    issuer.wait(secs(600));
    issuer.jwks.warm();
    assert!(issuer.knows(&TENANT).await);
    assert_eq!(issuer.asked(), 1);
}

// S10
#[tokio::test]
async fn only_rs256_signing_keys_of_2048_bits_are_taken() {
    let big = TestKey::generate_of(KeySize::Rsa3072);
    let change = |key: &TestKey, name: &str, value: Value| {
        let mut jwk = key.jwk();
        jwk[name] = value;
        jwk
    };
    let without = |name: &str| {
        let mut jwk = TENANT.jwk();
        jwk.as_object_mut().unwrap().remove(name);
        jwk
    };
    // Half the modulus: no key, but of a size that must not even be tried.
    let n = TENANT.jwk()["n"].as_str().unwrap()[..171].to_owned();
    let small = change(&TENANT, "n", n.into());
    let mut zeros = TENANT.jwk();
    zeros["n"] = format!("AAAA{}", small["n"].as_str().unwrap()).into();

    let refused = [
        small,
        zeros,
        change(&TENANT, "kty", json!("EC")),
        change(&TENANT, "use", json!("enc")),
        change(&TENANT, "alg", json!("RS512")),
        change(&TENANT, "alg", json!("HS256")),
        change(&TENANT, "n", json!("!")),
        change(&TENANT, "n", json!("")),
        change(&TENANT, "kid", json!(5)),
        without("kty"),
        without("n"),
        without("e"),
        without("kid"),
        json!({"kty": "oct", "kid": TENANT.kid, "k": "c2VjcmV0"}),
        json!({"kty": "EC", "crv": "P-256", "kid": TENANT.kid, "x": "AA", "y": "AA"}),
    ];
    for jwk in refused {
        let issuer = Issuer::start(&[]).await;
        issuer.answers(StatusCode::OK, json!({"keys": [jwk, big.jwk()]}).to_string());
        assert!(issuer.knows(&big).await, "a key of another kind spoils no set: {jwk}");
        assert_eq!(issuer.jwks.key(&TENANT.kid).await.unwrap_err(), KeyError::Unknown, "{jwk}");
    }
    for jwk in [TENANT.jwk(), without("use"), without("alg"), change(&TENANT, "x5c", json!(["zzz"]))] {
        let issuer = Issuer::start(&[]).await;
        issuer.answers(StatusCode::OK, json!({"keys": [jwk]}).to_string());
        assert!(issuer.jwks.verify(TENANT.sign_event("{}").as_bytes()).await.is_ok(), "{jwk}");
    }
}

// S10
#[tokio::test]
async fn a_set_of_more_than_32_keys_is_no_answer() {
    for (others, taken) in [(31, true), (32, false)] {
        let issuer = Issuer::start(&[]).await;
        let mut keys = vec![json!({"kty": "EC"}); others];
        keys.push(TENANT.jwk());
        issuer.answers(StatusCode::OK, json!({"keys": keys}).to_string());
        assert_eq!(issuer.knows(&TENANT).await, taken, "{others} others");
    }
}

// S10
#[tokio::test]
async fn a_redirect_is_no_answer() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let app = axum::Router::new()
        .route("/keys", axum::routing::get(|| async { axum::response::Redirect::temporary("/moved") }))
        .route("/moved", axum::routing::get(|| async { set(&[&TENANT]) }));
    tokio::spawn(async move { axum::serve(listener, app).await });
    let jwks = Jwks::new("/keys", Client::new(&base).unwrap());
    assert!(matches!(jwks.key(&TENANT.kid).await, Err(KeyError::Unavailable { why }) if why.contains("307")));
}

#[tokio::test]
async fn held_keys_are_all_there_is() {
    let jwks = Jwks::held([TENANT.held()]);
    assert!(jwks.key(&TENANT.kid).await.is_ok());
    assert_eq!(jwks.key(&STRANGER.kid).await.unwrap_err(), KeyError::Unknown);
    jwks.warm();
    assert_eq!(jwks.fetches(), 0);
    assert_eq!(Jwks::held([]).key("x").await.unwrap_err(), KeyError::Unknown);
}
