//! What must not pass as a delivery of Stripe, and what must. The vectors were made by Stripe's own clients.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant as Stopwatch};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bottle::domain::event::{Delivery, Source};
use bottle::domain::instant::Instant;
use bottle::providers::VerifyError;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

use crate::support::till::{arm_with, event, signature, signed};

const SECRET: &str = "whsec_test_secret";
const ROLLED: &str = "whsec_test_secret_rolled_key";
const T: i64 = 1_790_000_000;

fn at(secs: i64) -> Instant {
    Instant::from_nanos(secs * 1_000_000_000)
}

fn body() -> Vec<u8> {
    event("evt_1", "invoice.paid", "in_123").to_string().into_bytes()
}

fn verify_with(secrets: &[&str], headers: &HeaderMap, body: &[u8], now: i64) -> Result<Delivery, VerifyError> {
    arm_with("http://127.0.0.1:9", secrets).verify_at(headers, body, at(now))
}

fn verify(header: &str, body: &[u8]) -> Result<Delivery, VerifyError> {
    verify_with(&[SECRET], &signed(header), body, T)
}

/// The reason, of a delivery that is not genuine.
#[track_caller]
fn refused(result: Result<Delivery, VerifyError>) -> String {
    match result {
        Err(VerifyError::NotGenuine { why }) => why,
        other => panic!("{other:?}"),
    }
}

fn v1(secret: &str, at: i64, body: &[u8]) -> String {
    signature(secret, at, body).split_once("v1=").unwrap().1.to_owned()
}

#[test]
fn a_genuine_event_is_read_as_it_was_signed() {
    let body = body();
    let delivery = verify(&signature(SECRET, T, &body), &body).unwrap();
    assert_eq!((delivery.source, delivery.key.as_str(), delivery.kind.as_str()), (Source::Stripe, "evt_1", "invoice.paid"));
    assert_eq!(delivery.body, body, "the bytes are kept as they came");
    assert_eq!((delivery.sent, delivery.occurred), (Some(at(T)), Some(at(1))));
    let again = event("evt_1", "invoice.paid", "in_123");
    let fewer = Value::Object(
        again
            .as_object()
            .unwrap()
            .iter()
            .map(|(k, v)| (k.clone(), if k == "pending_webhooks" { json!(0) } else { v.clone() }))
            .collect(),
    )
    .to_string();
    let copy = verify(&signature(SECRET, T + 5, fewer.as_bytes()), fewer.as_bytes()).unwrap();
    assert_eq!(copy.digest, delivery.digest, "how many others still wait for it is nothing that was said");
    let other = event("evt_1", "invoice.paid", "in_124").to_string();
    assert_ne!(verify(&signature(SECRET, T, other.as_bytes()), other.as_bytes()).unwrap().digest, delivery.digest);
}

/// Recomputed by npm's and PyPI's `stripe`, not by this file.
#[test]
fn signatures_of_stripes_own_clients_pass() {
    // Their bodies are no whole events, so what refuses them has to come after the signature.
    let after = |header: &str, body: &[u8], secrets: &[&str], now: i64| refused(verify_with(secrets, &signed(header), body, now));
    let a = br#"{"id":"evt_test_webhook","object":"event"}"#;
    let header = "t=1700000000,v1=d95c6b7477fbd7e9f90b1b0ef5f9c7ac25abca5382460e0d988c2b2a5b71b990";
    assert_eq!(after(header, a, &[SECRET], 1_700_000_000), "it has no `type` as an event has it");

    let b = BASE64_STANDARD.decode("ewogICJpZCI6ICJldnRfdmVjMiIsCiAgIm9iamVjdCI6ICJldmVudCIsCiAgImFwaV92ZXJzaW9uIjogIjIwMjYtMDktMzAuZW5kaXZlIiwKICAiY3JlYXRlZCI6IDE3OTAwMDAwMDAsCiAgImxpdmVtb2RlIjogZmFsc2UsCiAgInR5cGUiOiAiY2hlY2tvdXQuc2Vzc2lvbi5jb21wbGV0ZWQiLAogICJkYXRhIjogeyJvYmplY3QiOiB7ImlkIjogImNzX3Rlc3RfMSIsICJvYmplY3QiOiAiY2hlY2tvdXQuc2Vzc2lvbiIsICJjdXN0b21lcl9kZXRhaWxzIjogeyJuYW1lIjogIlpvw6sgw4VuZ3N0csO2bSDigqwifX19Cn0K").unwrap();
    let header = "t=1790000000,v1=ff483dd97f37a376272efbca7bf2db1990e4704e0d372dd101bbcc429236084b";
    assert_eq!(verify(header, &b).unwrap().key.as_str(), "evt_vec2");
    let compact = serde_json::from_slice::<Value>(&b).unwrap().to_string();
    assert!(
        refused(verify(header, compact.as_bytes())).contains("none of the configured secrets"),
        "written anew it is no longer what was signed"
    );

    let c = br#"{"id":"evt_vec3","object":"event","note":"a,b=c.d"}"#;
    let header = "t=1790000123,v1=531be04b0f0e7714c748f3ef2750ead9f813515fd44c8b439fd5cbf762d34510,\
                  v1=be6ad9112bffdbe46cbe6ca07fc5b141ed0b9912d4a97d9326c0faa5aef3616a,v0=00";
    for secrets in [&[SECRET][..], &[ROLLED], &["whsec_third", ROLLED]] {
        assert_eq!(after(header, c, secrets, 1_790_000_123), "it has no `type` as an event has it", "{secrets:?}");
    }
    assert!(after(header, c, &["whsec_third"], 1_790_000_123).contains("none of the configured secrets"));
}

#[test]
fn any_secret_in_use_passes_and_one_taken_out_does_not() {
    let body = body();
    let both = format!("t={T},v1={},v1={}", v1(SECRET, T, &body), v1(ROLLED, T, &body));
    for secrets in [&[SECRET][..], &[ROLLED], &[SECRET, ROLLED], &["whsec_x", SECRET]] {
        assert!(verify_with(secrets, &signed(&both), &body, T).is_ok(), "{secrets:?}");
    }
    assert!(verify_with(&[ROLLED], &signed(&signature(SECRET, T, &body)), &body, T).is_err());
    assert!(
        verify_with(&[&format!("{SECRET} ")], &signed(&signature(SECRET, T, &body)), &body, T).is_err(),
        "a space more is another key"
    );
    assert!(verify_with(&[], &signed(&signature("", T, &body)), &body, T).is_err(), "no secret is no key");
    let stripped = signature("test_secret", T, &body);
    assert!(verify(&stripped, &body).is_err(), "the prefix belongs to the key");
}

#[test]
fn a_header_that_stripe_does_not_write_is_refused() {
    let body = body();
    let good = v1(SECRET, T, &body);
    let many = vec!["v1=00"; 5_000].join(",");
    let cases: Vec<(String, &str)> = vec![
        (String::new(), "cannot be read"),
        ("junk".into(), "cannot be read"),
        ("bad_header".into(), "cannot be read"),
        ("v1,t=1".into(), "cannot be read"),
        (format!("t=,v1={good}"), "cannot be read"),
        (format!("v1={good}"), "cannot be read"),
        (format!("t={T}"), "scheme v1"),
        (format!("t={T},v0={good}"), "scheme v1"),
        (format!("t={T},v2={good}"), "scheme v1"),
        (format!("t={T},v1="), "scheme v1"),
        (format!("t={T},v1=bad_signature"), "scheme v1"),
        (format!("t={T},v1=deadbeef"), "scheme v1"),
        (format!("t={T},v1={}", good.to_uppercase()), "scheme v1"),
        (format!("t={T},v1={good}0"), "scheme v1"),
        (format!("t={T},v1={}", "0".repeat(64)), "none of the configured"),
        (format!("t={T}, v1={good}"), "scheme v1"),
        (format!("t={T},t={T},v1={good}"), "cannot be read"),
        (format!("t=0{T},v1={good}"), "cannot be read"),
        (format!("t=+{T},v1={good}"), "cannot be read"),
        (format!("t=-{T},v1={good}"), "cannot be read"),
        (format!("t={T}.0,v1={good}"), "cannot be read"),
        (format!("t=99999999999999999999,v1={good}"), "cannot be read"),
        (format!("t=9223372036854775807,v1={good}"), "cannot be read"),
        (format!("t={},v1={good}", T + 1), "none of the configured"),
        (format!("t={T},v1={good},what"), "cannot be read"),
        (format!("t={T},{many},v1={good}"), "cannot be read"),
    ];
    for (header, why) in cases {
        let said = refused(verify(&header, &body));
        assert!(said.contains(why), "{}: {said}", &header[..header.len().min(100)]);
    }
    // Beside a good one, other schemes and signatures that cannot be read do no harm, in any place.
    for header in [
        format!("v1={good},t={T}"),
        format!("t={T},v1=potato,v1={good}"),
        format!("t={T},v1={good},v1=bad_signature"),
        format!("t={T},v0={good},v1={},v1={good},v9=x", "0".repeat(64)),
    ] {
        assert!(verify(&header, &body).is_ok(), "{header}");
    }
}

#[test]
fn there_is_just_one_signature_header() {
    let (body, none) = (body(), HeaderMap::new());
    assert!(refused(verify_with(&[SECRET], &none, &body, T)).contains("just one"));
    let mut twice = signed(&signature(SECRET, T, &body));
    twice.append("stripe-signature", signature(SECRET, T, &body).parse().unwrap());
    assert!(refused(verify_with(&[SECRET], &twice, &body, T)).contains("just one"));
    let raw =
        HeaderMap::from_iter([(HeaderName::from_static("stripe-signature"), HeaderValue::from_bytes(b"t=1,v1=\xff").unwrap())]);
    assert!(refused(verify_with(&[SECRET], &raw, &body, T)).contains("cannot be read"));
}

#[test]
fn five_minutes_either_way_are_passed_and_not_a_second_more() {
    let body = body();
    for (off, passes) in [(-301, false), (-300, true), (-299, true), (0, true), (299, true), (300, true), (301, false)] {
        assert_eq!(verify(&signature(SECRET, T + off, &body), &body).is_ok(), passes, "{off}");
    }
    let millisecond_late = at(T + 300).plus(Duration::from_millis(1));
    let late =
        arm_with("http://127.0.0.1:9", &[SECRET]).verify_at(&signed(&signature(SECRET, T, &body)), &body, millisecond_late);
    assert!(refused(late).contains("five minutes"));
    // A forged one that is also old is told nothing about its age.
    assert!(refused(verify(&signature("whsec_other", T - 400, &body), &body)).contains("none of the configured"));
}

#[test]
fn the_signature_is_over_these_very_bytes() {
    let body = body();
    let header = signature(SECRET, T, &body);
    let mut variants =
        vec![[b"\xef\xbb\xbf".as_slice(), &body].concat(), [&body[..], b" "].concat(), [&body[..], b"\r\n"].concat()];
    for n in 0..body.len() {
        let mut other = body.clone();
        other[n] ^= 1;
        variants.push(other);
    }
    for other in variants {
        assert!(verify(&header, &other).is_err());
    }
    assert!(refused(verify(&signature(SECRET, T, b""), b"")).contains("empty"));
}

#[test]
fn a_signed_body_that_is_no_event_of_this_endpoint_is_refused() {
    let refuse = |body: &[u8]| refused(verify(&signature(SECRET, T, body), body));
    assert!(refuse(b"not json").contains("no JSON object"));
    assert!(refuse(b"[]").contains("no JSON object"));
    assert!(refuse(b"\xff\xfe{}").contains("UTF-8"));
    let thin = json!({"id": "evt_1", "object": "v2.core.event", "type": "v1.invoice.paid", "created": "2026-01-01T00:00:00Z", "livemode": false});
    assert!(refuse(thin.to_string().as_bytes()).contains("thin"));
    for (field, value) in [
        ("id", json!(null)),
        ("id", json!("evt_1/../../x")),
        ("id", json!("in_1234")),
        ("type", json!("Invoice Paid")),
        ("livemode", json!("false")),
        ("object", json!("charge")),
    ] {
        let mut claims = event("evt_1", "invoice.paid", "in_123");
        claims[field] = value;
        assert!(refuse(claims.to_string().as_bytes()).contains(field), "{claims}");
    }
    let twice = String::from_utf8(body()).unwrap().replacen('{', r#"{"id":"evt_2","#, 1);
    assert!(refuse(twice.as_bytes()).contains("twice"));
}

#[test]
fn a_hostile_header_costs_no_time() {
    let body = body();
    let header = format!("t={T},{}", vec!["v1=00".to_owned(); 100_000].join(","));
    let (arm, headers) = (arm_with("http://127.0.0.1:9", &[SECRET]), signed(&header));
    let began = Stopwatch::now();
    assert!(arm.verify_at(&headers, &body, at(T)).is_err());
    assert!(began.elapsed() < Duration::from_millis(200), "{:?}", began.elapsed());
}

/// Stripe's own libraries sign, we verify; and what they refuse of our signatures would be a misreading of ours.
#[test]
fn what_stripes_libraries_sign_passes_and_what_we_sign_passes_them() {
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers");
    let body = BASE64_STANDARD.encode(body());
    let node = r"
        import Stripe from 'stripe';
        const [secret, at, body] = process.argv.slice(1);
        const payload = Buffer.from(body, 'base64').toString();
        const stripe = new Stripe('sk_test_x');
        process.stdout.write(stripe.webhooks.generateTestHeaderString({ payload, secret, timestamp: Number(at) }));
    ";
    let python = r"
import base64, sys
from stripe import WebhookSignature
secret, at, body = sys.argv[1:]
sys.stdout.write(WebhookSignature.generate_signature_header(base64.b64decode(body).decode(), secret, int(at)))
";
    let venv = peers.join("venv/bin/python");
    let runs: [(&str, &str, &Path, &[&str]); 2] = [
        ("npm's stripe", "node_modules/stripe", Path::new("node"), &["--input-type=module", "-e", node]),
        ("PyPI's stripe", "venv/bin/python", &venv, &["-c", python]),
    ];
    for (what, file, program, args) in runs {
        if !peers.join(file).exists() {
            assert!(std::env::var_os("BOTTLE_TEST_NEEDS_PEERS").is_none(), "{what} is not here: install it in tests/peers");
            eprintln!("SKIPPED: {what} is not here. CONTRIBUTING.md says how to install it in tests/peers.");
            continue;
        }
        for secret in [SECRET, ROLLED] {
            let mut command = Command::new(program);
            command.args(args);
            if what.starts_with("npm") {
                command.arg("--");
            }
            let said = command.args([secret, &T.to_string(), &body]).current_dir(&peers).output().unwrap();
            assert!(said.status.success(), "{what}: {}", String::from_utf8_lossy(&said.stderr));
            let header = String::from_utf8(said.stdout).unwrap();
            let bytes = BASE64_STANDARD.decode(&body).unwrap();
            assert!(verify_with(&[secret], &signed(&header), &bytes, T).is_ok(), "{what}: {header}");
            assert!(verify_with(&["whsec_third"], &signed(&header), &bytes, T).is_err(), "{what}: {header}");
            assert!(header.starts_with(&signature(secret, T, &bytes)), "{what} signs as we do: {header}");
        }
    }
}
