//! What must not pass as a delivery of Kinde, and what must.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant as Stopwatch};

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use bottle::domain::event::{Delivery, Source};
use bottle::domain::instant::Instant;
use bottle::jwks::Jwks;
use bottle::providers::VerifyError;
use bottle::providers::kinde::Kinde;
use serde_json::{Value, json};

use crate::support::tokens::{STRANGER, TENANT, b64, unsigned};

const DOMAIN: &str = "https://bottle-test.kinde.com";
const CUSTOM: &str = "https://login.bottle.test";
const HOOK: &str = "https://bottle.test/webhooks/kinde";
const NOW: &str = "2026-10-21T10:00:00Z";

fn kinde_with(jwks: Jwks) -> Kinde {
    Kinde::new(Arc::new(jwks), [format!("{DOMAIN}/"), CUSTOM.to_owned()], Some(HOOK.to_owned()))
}

async fn verify(body: impl AsRef<[u8]>) -> Result<Delivery, VerifyError> {
    let kinde = kinde_with(Jwks::held([TENANT.held()]));
    kinde.verify_at(body.as_ref(), Some("wh_1"), Instant::parse(NOW).unwrap()).await
}

#[track_caller]
fn assert_refused(result: Result<Delivery, VerifyError>, what: &str) {
    match result {
        Err(VerifyError::NotGenuine { .. }) => {}
        other => panic!("{what}: {other:?}"),
    }
}

fn event() -> Value {
    json!({
        "type": "customer.plan_changed", "event_id": "event_4c0ffee00000000000000000000000a1", "source": "user",
        "timestamp": "2026-10-21T21:00:02.5+11:00", "event_timestamp": "2026-10-21T10:00:00.000000001Z",
        "data": {"user_id": "kp_77aa", "plan": {"key": "customer_pro_plan"}},
    })
}

/// The event, with claims added or replaced.
fn event_with(changes: Value) -> String {
    changed(event(), changes).to_string()
}

fn event_without(claim: &str) -> String {
    let mut event = event();
    event.as_object_mut().unwrap().remove(claim);
    event.to_string()
}

fn header_with(changes: Value) -> Value {
    changed(TENANT.header(), changes)
}

fn changed(mut object: Value, changes: Value) -> Value {
    let Value::Object(changes) = changes else { panic!("{changes} is no object") };
    object.as_object_mut().unwrap().extend(changes);
    object
}

// S15
#[tokio::test]
async fn a_genuine_event_is_read_as_it_was_signed() {
    let body = TENANT.sign_event(event().to_string());
    let delivery = verify(&body).await.unwrap();
    assert_eq!(delivery.source, Source::Kinde);
    assert_eq!(delivery.key.as_str(), "event_4c0ffee00000000000000000000000a1");
    assert_eq!(delivery.kind, "customer.plan_changed");
    assert_eq!(delivery.webhook_id.as_deref(), Some("wh_1"));
    assert_eq!(delivery.body, body.as_bytes());
    assert_eq!(delivery.occurred, Some(Instant::parse("2026-10-21T10:00:00.000000001Z").unwrap()));
}

// T5
#[tokio::test]
async fn an_old_event_is_as_genuine_as_a_new_one() {
    let kinde = kinde_with(Jwks::held([TENANT.held()]));
    let body = TENANT.sign_event(event().to_string());
    assert!(kinde.verify_at(body.as_bytes(), None, Instant::parse("2031-01-01T00:00:00Z").unwrap()).await.is_ok());
    assert!(kinde.verify(body.as_bytes(), None).await.is_ok());
}

// S1
#[tokio::test]
async fn only_rs256_is_accepted() {
    let claims = event().to_string();
    assert_refused(verify(TENANT.sign_pss(&header_with(json!({"alg": "PS256"})), &claims)).await, "PS256");
    assert_refused(verify(TENANT.sign_pss(&TENANT.header(), &claims)).await, "PS256 called RS256");
    for alg in ["RS384", "RS512", "rs256", "RS256 ", "", "none", "None", "nOnE", "HS256", "ES256", "EdDSA"] {
        assert_refused(verify(TENANT.sign(&header_with(json!({"alg": alg})), &claims)).await, alg);
    }

    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
    for alg in ["ES256", "RS256"] {
        let signed = unsigned(&header_with(json!({"alg": alg})), &claims);
        let signature = pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        assert_refused(verify(format!("{signed}.{}", b64(signature))).await, "an elliptic curve");
    }
}

// S2
#[tokio::test]
async fn the_public_key_is_no_shared_secret() {
    let jwk = TENANT.jwk();
    let secrets = [
        ("pem", TENANT.pem().into_bytes()),
        ("pem without its last newline", TENANT.pem().trim_end().as_bytes().to_vec()),
        ("der", TENANT.der()),
        ("jwk", jwk.to_string().into_bytes()),
        ("n", jwk["n"].as_str().unwrap().as_bytes().to_vec()),
        ("nothing", Vec::new()),
    ];
    for (what, secret) in secrets {
        for alg in ["HS256", "RS256"] {
            let signed = unsigned(&header_with(json!({"alg": alg})), event().to_string());
            let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), signed.as_bytes());
            assert_refused(verify(format!("{signed}.{}", b64(tag))).await, what);
        }
    }
}

// S3
#[tokio::test]
async fn a_token_without_a_signature_is_refused() {
    let genuine = TENANT.sign_event(event().to_string());
    let (signed, signature) = genuine.rsplit_once('.').unwrap();
    for alg in ["none", "None", "nOnE", "NONE", "RS256"] {
        let bare = unsigned(&header_with(json!({"alg": alg})), event().to_string());
        for body in [bare.clone(), format!("{bare}."), format!("{bare}.."), format!("{bare}.{signature}")] {
            // The last one of RS256 is the genuine token.
            if body != genuine {
                assert_refused(verify(&body).await, &body);
            }
        }
    }
    for body in [
        format!("{genuine}."),
        format!("{genuine}.AA"),
        format!(".{genuine}"),
        signature.to_owned(),
        format!("{signed}.AA"),
        format!("{signed}.{}", b64([0; 256])),
        format!("{signed}.{signature}AA"),
        format!("{signed}.{}", &signature[..signature.len() - 2]),
        String::new(),
        ".".into(),
        "..".into(),
        "...".into(),
    ] {
        assert_refused(verify(&body).await, &body);
    }
}

#[tokio::test]
async fn a_changed_byte_breaks_the_token() {
    let genuine = TENANT.sign_event(event().to_string());
    for at in (0..genuine.len()).step_by(7) {
        let mut body = genuine.clone().into_bytes();
        body[at] = if body[at] == b'A' { b'B' } else { b'A' };
        assert_refused(verify(&body).await, &format!("byte {at}"));
    }
}

// S4, S5
#[tokio::test]
async fn a_header_names_a_key_and_nothing_else() {
    let asked = Arc::new(AtomicUsize::new(0));
    let strays = Arc::new(AtomicUsize::new(0));
    let (counted, strayed) = (Arc::clone(&asked), Arc::clone(&strays));
    let keys = json!({"keys": [TENANT.jwk()]}).to_string();
    let app = axum::Router::new()
        .route(
            "/.well-known/jwks",
            axum::routing::get(move || {
                counted.fetch_add(1, Ordering::SeqCst);
                async move { keys }
            }),
        )
        .fallback(move || {
            strayed.fetch_add(1, Ordering::SeqCst);
            async { json!({"keys": [STRANGER.jwk()]}).to_string() }
        });
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });

    let kinde = kinde_with(Jwks::new("/.well-known/jwks", bottle::outbound::Client::new(&base).unwrap()));
    let now = Instant::parse(NOW).unwrap();
    kinde.verify_at(TENANT.sign_event(event().to_string()).as_bytes(), None, now).await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 1);

    let long = "k".repeat(10 * 1024);
    let mut headers: Vec<Value> = ["../../etc/passwd", "' OR 1=1--", "\u{0}", "", "%00", &base, "{}", &long]
        .iter()
        .map(|kid| json!({"alg": "RS256", "kid": kid}))
        .collect();
    headers.extend([json!(7), json!(null), json!(["a"]), json!({"a": 1})].map(|kid| json!({"alg": "RS256", "kid": kid})));
    headers.push(json!({"alg": "RS256"}));
    for kid in [&TENANT.kid, &STRANGER.kid] {
        headers.push(json!({"alg": "RS256", "kid": kid, "jku": format!("{base}/evil")}));
        headers.push(json!({"alg": "RS256", "kid": kid, "x5u": format!("{base}/evil")}));
        headers.push(json!({"alg": "RS256", "kid": kid, "jwk": STRANGER.jwk()}));
        headers.push(json!({"alg": "RS256", "kid": kid, "x5c": [b64(STRANGER.der())]}));
    }
    for header in headers {
        let body = STRANGER.sign(&header, event().to_string());
        assert_refused(kinde.verify_at(body.as_bytes(), None, now).await, &header.to_string());
    }
    assert_eq!((asked.load(Ordering::SeqCst), strays.load(Ordering::SeqCst)), (1, 0));

    // And they do not spoil a token that is signed by a key we hold.
    let ignored = header_with(json!({"jku": format!("{base}/evil"), "x5u": 5, "jwk": STRANGER.jwk(), "x5c": []}));
    assert!(kinde.verify_at(TENANT.sign(&ignored, event().to_string()).as_bytes(), None, now).await.is_ok());
    assert_eq!(strays.load(Ordering::SeqCst), 0);
}

// S6
#[tokio::test]
async fn a_header_that_demands_an_extension_is_refused() {
    for extra in
        [json!({"crit": ["exp"]}), json!({"crit": []}), json!({"crit": null}), json!({"b64": false}), json!({"b64": true})]
    {
        assert_refused(verify(TENANT.sign(&header_with(extra.clone()), event().to_string())).await, &extra.to_string());
    }
}

#[tokio::test]
async fn a_header_is_one_object_with_each_name_once() {
    let kid = &TENANT.kid;
    for header in [
        format!(r#"["RS256","{kid}",null]"#),
        format!(r#"{{"alg":"none","alg":"RS256","kid":"{kid}"}}"#),
        format!(r#"{{"alg":"RS256","kid":"{kid}","kid":"{kid}"}}"#),
        format!(r#"{{"alg":"RS256","kid":"{kid}"}} {{}}"#),
        format!(r#"{{"alg":["RS256"],"kid":"{kid}"}}"#),
        "{".to_owned(),
        "null".to_owned(),
    ] {
        // Signed over exactly this header.
        assert_refused(verify(TENANT.sign_raw(&header, event().to_string())).await, &header);
    }
}

// S11
#[tokio::test]
async fn tokens_about_users_are_refused_though_the_same_key_signs_them() {
    let id_token = json!({
        "iss": DOMAIN, "aud": [DOMAIN, "c11e97"], "azp": "c11e97", "sub": "kp_77aa", "exp": 1_792_600_000, "iat": 1_792_500_000,
        "auth_time": 1_792_500_000, "at_hash": "aa", "nonce": "n", "jti": "j", "email": "a@b.test", "name": "A",
    });
    let access_token = json!({
        "iss": DOMAIN, "aud": [], "azp": "c11e97", "sub": "kp_77aa", "scp": ["openid"], "exp": 1_792_600_000,
        "iat": 1_792_500_000, "jti": "j", "org_code": "org_1", "permissions": [],
    });
    let machine_token =
        json!({"iss": DOMAIN, "aud": [HOOK], "azp": "c11e97", "gty": ["client_credentials"], "exp": 1_792_600_000});
    for token in [id_token, access_token, machine_token] {
        assert_refused(verify(TENANT.sign_event(token.to_string())).await, "as issued");
        // With custom claims that make it look like an event.
        assert_refused(verify(TENANT.sign_event(event_with(token))).await, "dressed as an event");
    }
    for mark in ["sub", "azp", "scp", "nonce", "at_hash", "auth_time", "gty"] {
        for value in [json!("x"), json!(null), json!([])] {
            assert_refused(verify(TENANT.sign_event(event_with(json!({mark: value})))).await, mark);
        }
    }
}

// S11
#[tokio::test]
async fn an_event_has_a_type_an_id_and_data() {
    for claim in ["type", "event_id", "data"] {
        assert_refused(verify(TENANT.sign_event(event_without(claim))).await, claim);
    }
    let long = format!("a.{}", "b".repeat(99));
    for kind in
        ["", "a", ".", "a.", ".a", "a..b", "customer", "Customer.plan", "customer.plan changed", "customer/plan.x", "ü.a", &long]
    {
        assert_refused(verify(TENANT.sign_event(event_with(json!({"type": kind})))).await, kind);
    }
    let (short, long) = (format!("event_{}", "a".repeat(7)), format!("event_{}", "a".repeat(65)));
    for id in [
        "",
        "event_",
        "evt_1234567890",
        "event_1234567/",
        "event_123456789'",
        "Event_123456789",
        "event_123456789\n",
        &short,
        &long,
    ] {
        assert_refused(verify(TENANT.sign_event(event_with(json!({"event_id": id})))).await, id);
    }
    let longest = format!("a.{}", "b".repeat(98));
    for kind in ["a.b", "customer.a_type_of_2031", "one.two.three", &longest] {
        assert!(verify(TENANT.sign_event(event_with(json!({"type": kind})))).await.is_ok(), "{kind}");
    }
    for id in [format!("event_{}", "a".repeat(8)), format!("event_{}", "Z9".repeat(32))] {
        assert!(verify(TENANT.sign_event(event_with(json!({"event_id": id})))).await.is_ok(), "{id}");
    }
}

// S14
#[tokio::test]
async fn claims_of_another_json_type_are_refused() {
    let wrong = [
        ("type", json!(1)),
        ("type", json!(null)),
        ("type", json!(["customer.plan_changed"])),
        ("event_id", json!(12_345_678)),
        ("event_id", json!(null)),
        ("event_id", json!({})),
        ("data", json!([])),
        ("data", json!("{}")),
        ("data", json!(null)),
        ("data", json!(true)),
        ("exp", json!("never")),
        ("exp", json!(null)),
        ("exp", json!([1_792_600_000])),
        ("exp", json!("1792600000")),
        ("nbf", json!("soon")),
        ("nbf", json!({})),
        ("iss", json!(1)),
        ("iss", json!(null)),
        ("iss", json!([DOMAIN])),
        ("iss", json!("")),
        ("aud", json!(1)),
        ("aud", json!(null)),
        ("aud", json!({"a": DOMAIN})),
        ("aud", json!([DOMAIN, 1])),
        ("aud", json!([[DOMAIN]])),
    ];
    for (claim, value) in wrong {
        assert_refused(verify(TENANT.sign_event(event_with(json!({claim: value})))).await, &format!("{claim}: {value}"));
    }
    let huge = event_with(json!({"exp": 1})).replace(r#""exp":1"#, r#""exp":1e400000"#);
    assert_refused(verify(TENANT.sign_event(huge)).await, "exp beyond every float");
    for claims in ["", "null", "[]", "7", "\"x\"", "{", "{}{}", "{} x", "\u{feff}{}"] {
        assert_refused(verify(TENANT.sign_event(claims)).await, claims);
    }
}

// S11: checked if present
#[tokio::test]
async fn claims_kinde_may_add_one_day_are_checked() {
    let now = 1_792_576_800; // NOW
    let right = [
        json!({"iss": DOMAIN}),
        json!({"iss": CUSTOM}),
        json!({"iss": format!("{DOMAIN}/")}),
        json!({"aud": DOMAIN}),
        json!({"aud": [CUSTOM]}),
        json!({"aud": ["x", HOOK]}),
        json!({"aud": HOOK}),
        json!({"exp": now + 1}),
        json!({"exp": now - 59}),
        json!({"exp": 1_792_576_800.5}),
        json!({"nbf": now}),
        json!({"nbf": now + 59}),
        json!({"iat": "never read"}),
        json!({"jti": 5}),
    ];
    for claims in right {
        assert!(verify(TENANT.sign_event(event_with(claims.clone()))).await.is_ok(), "{claims}");
    }
    let wrong = [
        json!({"iss": "https://other.kinde.com"}),
        json!({"iss": format!("{DOMAIN}.evil.test")}),
        json!({"iss": format!("{DOMAIN}//")}),
        json!({"iss": HOOK}),
        json!({"aud": "x"}),
        json!({"aud": []}),
        json!({"aud": ["https://other.kinde.com"]}),
        json!({"exp": now - 61}),
        json!({"exp": 0}),
        json!({"exp": -1}),
        json!({"nbf": now + 61}),
    ];
    for claims in wrong {
        assert_refused(verify(TENANT.sign_event(event_with(claims.clone()))).await, &claims.to_string());
    }
}

// S13
#[tokio::test]
async fn another_tenants_token_is_refused() {
    assert_refused(verify(STRANGER.sign_event(event().to_string())).await, "their key and their id");
    assert_refused(verify(STRANGER.sign(&TENANT.header(), event().to_string())).await, "their key under our id");
}

// T13
#[tokio::test]
async fn a_claim_that_stands_there_twice_is_refused() {
    let plain = event().to_string();
    for claim in ["type", "event_id", "data", "timestamp", "event_timestamp"] {
        let value = &event()[claim];
        let twice = plain.replacen('{', &format!("{{\"{claim}\":{value},"), 1);
        assert_refused(verify(TENANT.sign_event(twice)).await, claim);
    }
    for claim in ["iss", "aud", "exp", "nbf"] {
        let value = if claim == "exp" { json!(9_999_999_999_u64) } else { json!(DOMAIN) };
        let value = if claim == "nbf" { json!(1) } else { value };
        let twice = plain.replacen('{', &format!("{{\"{claim}\":{value},\"{claim}\":{value},"), 1);
        assert_refused(verify(TENANT.sign_event(twice)).await, claim);
    }
    let disguised = plain.replacen('{', r#"{"\u0065vent_id":"event_other000","#, 1);
    assert_refused(verify(TENANT.sign_event(disguised)).await, "a name in escapes");
}

// S16, T14
#[tokio::test]
async fn sizes_and_junk_are_refused_quickly() {
    let padded = |total: usize| {
        // Four characters carry three bytes, so grow the claims until the token has the size.
        let build = |fill: usize| TENANT.sign_event(event_with(json!({"z": "x".repeat(fill)})));
        let mut fill = (total - build(0).len()) / 4 * 3;
        while build(fill).len() < total {
            fill += 1;
        }
        build(fill)
    };
    let cap = 256 * 1024;
    let body = padded(cap - 1);
    assert!(body.len() <= cap && verify(&body).await.is_ok(), "{}", body.len());
    let body = padded(cap + 1);
    assert_refused(verify(&body).await, "over the cap");

    let genuine = TENANT.sign_event(event().to_string());
    let (signed, signature) = genuine.rsplit_once('.').unwrap();
    let junk: Vec<Vec<u8>> = vec![
        ".".repeat(10_000).into_bytes(),
        format!("{genuine}{}", ".".repeat(10_000)).into_bytes(),
        vec![0; 100_000],
        vec![0xff; 100_000],
        format!("{signed}=.{signature}").into_bytes(),
        format!("{signed}.{signature}==").into_bytes(),
        genuine.replace(['-', '_'], "+").into_bytes(),
        genuine.replacen('.', ". ", 1).into_bytes(),
        genuine.replacen('.', "\n.", 1).into_bytes(),
        format!("{genuine}\u{a0}").into_bytes(),
        format!("\"{genuine}\"").into_bytes(),
        format!("token={genuine}").into_bytes(),
        json!({"token": genuine}).to_string().into_bytes(),
        "x".repeat(cap + 1).into_bytes(),
    ];
    for body in junk {
        let mut fastest = Duration::MAX;
        // The best of three: a busy machine may stop us in the middle of one.
        for _ in 0..3 {
            let watch = Stopwatch::now();
            let result = verify(&body).await;
            fastest = fastest.min(watch.elapsed());
            assert_refused(result, &String::from_utf8_lossy(&body[..body.len().min(60)]));
        }
        assert!(fastest < Duration::from_millis(5), "{fastest:?}");
    }
    for around in [format!("{genuine}\n"), format!("{genuine}\r\n"), format!(" \t{genuine} \n\n")] {
        let delivery = verify(&around).await.unwrap();
        assert_eq!(delivery.body, around.as_bytes());
    }
}

// S23
#[tokio::test]
async fn a_stripe_event_is_no_kinde_event() {
    let stripe = json!({"id": "evt_1", "object": "event", "type": "invoice.paid", "data": {"object": {}}, "livemode": false});
    assert_refused(verify(stripe.to_string()).await, "as Stripe sends it");
    assert_refused(verify(TENANT.sign_event(stripe.to_string())).await, "even signed");
}

#[tokio::test]
async fn without_keys_nobody_can_tell() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let kinde = kinde_with(Jwks::new("/keys", bottle::outbound::Client::new(&base).unwrap()));
    let genuine = TENANT.sign_event(event().to_string());
    let result = kinde.verify(genuine.as_bytes(), None).await;
    assert!(matches!(result, Err(VerifyError::CannotTell { .. })), "{result:?}");
    assert_refused(kinde.verify(b"junk", None).await, "junk needs no key to be junk");
}

// T3
#[tokio::test]
async fn the_digest_is_of_what_was_said_not_of_the_attempt() {
    async fn digest(claims: impl AsRef<[u8]>) -> [u8; 32] {
        verify(TENANT.sign_event(claims)).await.unwrap().digest
    }
    let first = digest(event().to_string()).await;
    let attempt = json!({"timestamp": "2026-10-22T00:00:00Z", "iat": 1, "exp": 1_792_600_000, "nbf": 2, "jti": "again"});
    assert_eq!(first, digest(event_with(attempt)).await);
    assert_eq!(first, digest(serde_json::to_string_pretty(&event()).unwrap()).await);
    let turned = r#"{"data":{"plan":{"key":"customer_pro_plan"},"user_id":"kp_77aa"},"source":"user","type":"customer.plan_changed",
        "event_timestamp":"2026-10-21T10:00:00.000000001Z","event_id":"event_4c0ffee00000000000000000000000a1"}"#;
    assert_eq!(first, digest(turned).await);

    for other in [
        json!({"event_timestamp": "2026-10-21T10:00:00.000000002Z"}),
        json!({"type": "customer.plan_assigned"}),
        json!({"source": "api"}),
        json!({"data": {"user_id": "kp_77aa", "plan": {"key": "customer_starter_plan"}}}),
        json!({"new": 1}),
    ] {
        assert_ne!(first, digest(event_with(other.clone())).await, "{other}");
    }
    let odd = |number: &str, sent: &str| {
        event_with(json!({"z": 1, "timestamp": sent})).replace(r#""z":1"#, &format!(r#""z":{number}"#))
    };
    assert_eq!(digest(odd("1e400000", "a")).await, digest(odd("1e400000", "b")).await);
    assert_ne!(digest(odd("1e400000", "a")).await, digest(odd("1e400001", "a")).await);
}
