//! What a stored Kinde event is taken to say.

use std::sync::Arc;

use bottle::domain::fact::Fact;
use bottle::domain::ids::{AgreementId, CustomerId, KindeUserId};
use bottle::domain::instant::Instant;
use bottle::jwks::Jwks;
use bottle::providers::kinde::{Kinde, Reading, Said, Unreadable, read};
use serde_json::{Value, json};

use crate::support::tokens::TENANT;

const CUSTOMER: &str = "customer_0a77e1bottle00000000000000000001";
const AGREEMENT: &str = "agreement_0a77e1bottle0000000000000000002";

fn claims(kind: &str, data: Value) -> Value {
    let mut claims = json!({"type": kind, "event_id": "event_0a77e1b0771e0000000000000000000f", "source": "user",
        "timestamp": "2026-10-21T10:00:00Z"});
    claims["data"] = data;
    claims
}

fn reading(kind: &str, data: Value) -> Result<Reading, Unreadable> {
    read(TENANT.sign_event(claims(kind, data).to_string()).as_bytes(), kind)
}

/// Through both doors: intake takes it, and the worker reads it from what intake stored.
async fn through(claims: impl AsRef<[u8]>) -> Result<Reading, Unreadable> {
    let kinde = Kinde::new(Arc::new(Jwks::held([TENANT.held()])), [], None);
    let delivery = kinde.verify(TENANT.sign_event(claims).as_bytes(), None).await.unwrap();
    let reading = read(&delivery.body, &delivery.kind);
    if let Ok(reading) = &reading {
        assert_eq!(reading.at, delivery.occurred, "both doors read one time");
    }
    reading
}

fn agreement() -> Option<AgreementId> {
    Some(AgreementId(AGREEMENT.into()))
}

fn start(agreement: Option<AgreementId>, plan_key: &str, changed: bool) -> Said {
    Said::Fact(Fact::Start { agreement, plan_key: plan_key.into(), changed })
}

#[tokio::test]
async fn each_known_sample_is_read() {
    async fn check(claims: &Value, at: &str, said: Said) {
        let reading = through(claims.to_string()).await.unwrap();
        let expected = (Some(CustomerId(CUSTOMER.into())), Some(Instant::parse(at).unwrap()), said);
        assert_eq!((reading.customer, reading.at, reading.said), expected, "{claims}");
    }
    let envelope = |kind: &str, number: u32, source: &str, timestamp: &str, data: Value| {
        json!({"type": kind, "event_id": format!("event_0a77e1b0771e000000000000{number:08}"), "source": source,
            "timestamp": timestamp, "data": data})
    };
    let mut assigned = envelope(
        "customer.plan_assigned",
        1,
        "user",
        "2026-10-21T21:00:02.481320+11:00",
        json!({"customer_id": CUSTOMER, "plan": {"code": "customer_pro_plan"}}),
    );
    assigned["event_timestamp"] = json!("2026-10-21T21:00:01.902114+11:00");
    check(&assigned, "2026-10-21T10:00:01.902114Z", start(None, "customer_pro_plan", false)).await;

    let mut created = envelope(
        "customer.agreement_created",
        2,
        "user",
        "2026-10-21T10:00:02.6Z",
        json!({"customer_id": CUSTOMER, "agreement_id": AGREEMENT, "plan": {"key": "customer_pro_plan"}, "invoice_due_on": "2026-11-21T21:00:02+11"}),
    );
    created["event_timestamp"] = json!("2026-10-21T10:00:02.1Z");
    check(&created, "2026-10-21T10:00:02.1Z", start(agreement(), "customer_pro_plan", false)).await;

    let data = json!({"customer_id": CUSTOMER, "agreement_id": AGREEMENT, "plan": {"code": "customer_starter_plan"}});
    let changed = envelope("customer.plan_changed", 3, "user", "2026-10-21T21:00:00+11", data);
    check(&changed, "2026-10-21T10:00:00Z", start(agreement(), "customer_starter_plan", true)).await;

    let data = json!({"customer_id": CUSTOMER, "agreement_id": AGREEMENT});
    let cancelled = envelope("customer.agreement_cancelled", 4, "admin", "2026-10-21T10:00:01.5Z", data.clone());
    let end = Said::Fact(Fact::End { agreement: agreement(), effective: None });
    check(&cancelled, "2026-10-21T10:00:01.5Z", end).await;

    let paid = envelope("customer.payment_succeeded", 5, "api", "2026-10-21T21:03:09.000001+1100", data);
    check(&paid, "2026-10-21T10:03:09.000001Z", Said::Fact(Fact::Paid { agreement: agreement() })).await;

    let failed = envelope("customer.payment_failed", 6, "api", "2026-11-21T10:20:00Z", json!({"customer_id": CUSTOMER}));
    check(&failed, "2026-11-21T10:20:00Z", Said::Fact(Fact::PaymentFailed { agreement: None })).await;

    let data = json!({"org_code": "org_77", "customer_id": CUSTOMER, "invoice_due_on": "2026-11-01T00:00:00+00"});
    let overdue = envelope("customer.invoice_overdue", 7, "api", "2026-11-05T00:00:00Z", data);
    check(&overdue, "2026-11-05T00:00:00Z", Said::Fact(Fact::Overdue { agreement: None })).await;

    let data = json!({"customer_id": CUSTOMER, "meter_id": "bottles", "quantity": 0});
    let meter = envelope("customer.meter_usage_updated", 8, "api", "2026-10-25T11:00:00.25Z", data);
    check(&meter, "2026-10-25T11:00:00.25Z", Said::Nothing).await;

    let data = json!({"customer": {"id": CUSTOMER}, "plan": {"key": "customer_pro_plan"}});
    let nested = envelope("customer.plan_changed", 9, "user", "2026-10-21T10:00:02Z", data);
    check(&nested, "2026-10-21T10:00:02Z", start(None, "customer_pro_plan", true)).await;

    let plan_created = envelope("customer.plan_created", 10, "admin", "2026-10-21T10:00:02Z", json!({}));
    let reading = through(plan_created.to_string()).await.unwrap();
    assert_eq!((reading.said, reading.customer, reading.user), (Said::Nothing, None, None));
}

// T12
#[tokio::test]
async fn what_is_not_read_cannot_fail_an_event() {
    let nested = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    let odd: [&[u8]; 9] = [
        br#""\ud800""#,
        br#""\u0000""#,
        b"1e400000",
        nested.as_bytes(),
        b"\"\xff\xfe\x80\"",
        br#"{"\udfff":1,"\udfff":2}"#,
        b"-0.00000000000000000000000000000000000000000000000000001E-400000",
        br#"{"$serde_json::private::RawValue":"["}"#,
        br#"{"a":{"a":{}},"a":[]}"#,
    ];
    for odd in odd {
        for place in [r#""z":ODD,"#, r#""source":ODD,"#, r#""\udc00":ODD,"#, r#""ip_address":ODD,"z":ODD,"#] {
            for data_place in ["", r#""z":ODD,"#, r#""invoice_due_on":ODD,"#, r#""\ud800x":ODD,"#] {
                let text = format!(
                    r#"{{{place}"type":"customer.payment_succeeded","event_id":"event_0a77e1b0771e","timestamp":"2026-10-21T10:00:00Z",
                    "data":{{{data_place}"customer_id":"{CUSTOMER}"}}}}"#
                );
                let parts: Vec<&[u8]> = text.split("ODD").map(str::as_bytes).collect();
                let reading = through(parts.join(odd)).await.unwrap();
                assert_eq!(reading.customer, Some(CustomerId(CUSTOMER.into())));
                assert_eq!(reading.said, Said::Fact(Fact::Paid { agreement: None }));
            }
        }
    }
}

#[test]
fn each_spelling_of_a_field_is_taken() {
    let check = |data: Value, user: Option<&str>, customer: Option<&str>, agreement: Option<&str>| {
        let read = reading("customer.payment_succeeded", data.clone()).unwrap();
        assert_eq!(read.user, user.map(|id| KindeUserId(id.into())), "{data}");
        assert_eq!(read.customer, customer.map(|id| CustomerId(id.into())), "{data}");
        assert_eq!(read.said, Said::Fact(Fact::Paid { agreement: agreement.map(|id| AgreementId(id.into())) }), "{data}");
    };
    check(json!({"user_id": "kp_1"}), Some("kp_1"), None, None);
    check(json!({"user": {"id": "kp_1"}}), Some("kp_1"), None, None);
    check(json!({"user_id": "kp_1", "user": {"id": "kp_2"}}), Some("kp_1"), None, None);
    check(json!({"user_id": null, "user": {"id": "kp_2"}}), Some("kp_2"), None, None);
    check(json!({"customer": {"id": "c"}, "agreement": {"id": "a"}}), None, Some("c"), Some("a"));
    check(json!({"customer_id": "c", "agreement_id": "a", "user_id": "kp_1"}), Some("kp_1"), Some("c"), Some("a"));
    // Of another type, empty, overlong or with control characters: as good as absent.
    let long = "x".repeat(201);
    for odd in [json!(5), json!(null), json!(true), json!([]), json!({}), json!(""), json!("a\u{0}b"), json!("a\nb"), json!(long)]
    {
        check(json!({"user_id": odd, "customer_id": "c", "agreement_id": odd}), None, Some("c"), None);
        check(json!({"user": odd, "customer": {"id": "c"}, "agreement": odd}), None, Some("c"), None);
        check(json!({"user": {"id": odd}, "customer_id": "c", "agreement": {"id": odd}}), None, Some("c"), None);
    }
}

#[test]
fn a_plan_is_named_by_key_or_code_and_never_guessed() {
    let read_plan = |plan: Value| {
        reading("customer.plan_changed", json!({"user_id": "kp_1", "plan": plan})).map(|reading| match reading.said {
            Said::Fact(Fact::Start { plan_key, .. }) => plan_key,
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(read_plan(json!({"key": "k"})).unwrap(), "k");
    assert_eq!(read_plan(json!({"code": "c"})).unwrap(), "c");
    assert_eq!(read_plan(json!({"key": "k", "code": "c"})).unwrap(), "k");
    assert_eq!(read_plan(json!({"key": null, "code": "c"})).unwrap(), "c");
    for plan in [
        json!(null),
        json!("pro"),
        json!([]),
        json!({}),
        json!({"key": ""}),
        json!({"key": 7}),
        json!({"name": "Pro", "id": "plan_1"}),
    ] {
        assert_eq!(read_plan(plan.clone()), Err(Unreadable::NoPlan), "{plan}");
    }
    for kind in ["customer.plan_changed", "customer.plan_assigned", "customer.agreement_created"] {
        let flat = json!({"user_id": "kp_1", "plan_id": "p", "plan_name": "Pro", "plan_code": "p"});
        assert_eq!(reading(kind, flat), Err(Unreadable::NoPlan), "{kind}");
    }
}

#[test]
fn a_cancellation_may_name_when_it_takes_effect() {
    let effective = |at: Value| {
        let data = json!({"user_id": "kp_1", "agreement_id": AGREEMENT, "effective_at": at});
        match reading("customer.agreement_cancelled", data).unwrap().said {
            Said::Fact(Fact::End { effective, .. }) => effective,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(effective(json!("2026-11-21T11:00:00+11")), Some(Instant::parse("2026-11-21T00:00:00Z").unwrap()));
    for odd in [json!(null), json!(1_792_576_800), json!("soon"), json!("2026-11-21"), json!({})] {
        assert_eq!(effective(odd.clone()), None, "{odd}");
    }
}

#[test]
fn an_event_about_nobody_is_unreadable() {
    let plan = json!({"plan": {"key": "k"}});
    for (kind, data) in [
        ("customer.plan_changed", plan.clone()),
        ("customer.plan_assigned", plan.clone()),
        ("customer.agreement_created", plan),
        ("customer.agreement_cancelled", json!({"agreement_id": AGREEMENT})),
        ("customer.payment_succeeded", json!({"customer": {"email": "a@b.test"}})),
        ("customer.payment_failed", json!({"customer_id": 7})),
        ("customer.invoice_overdue", json!({"customer_type": "user"})),
    ] {
        assert_eq!(reading(kind, data.clone()), Err(Unreadable::Nobody), "{kind} {data}");
    }
}

#[test]
fn a_customer_who_is_no_person_is_told_apart() {
    let customer_type = |data: Value| reading("customer.payment_failed", data).unwrap().customer_type;
    assert_eq!(customer_type(json!({"customer_id": "c"})), None);
    assert_eq!(customer_type(json!({"customer_id": "c", "org_code": ""})), None);
    assert_eq!(customer_type(json!({"customer_id": "c", "org_code": null})), None);
    assert_eq!(customer_type(json!({"customer_id": "c", "org_code": "org_1"})).as_deref(), Some("organization"));
    assert_eq!(customer_type(json!({"customer_id": "c", "customer_type": "user", "org_code": "org_1"})).as_deref(), Some("user"));
    assert_eq!(customer_type(json!({"customer_id": "c", "customer_type": "team"})).as_deref(), Some("team"));
    assert_eq!(
        customer_type(json!({"customer_id": "c", "customer_type": 7, "org_code": "org_1"})).as_deref(),
        Some("organization")
    );

    // It will be ignored, so what else it lacks does not matter.
    let lacking = reading("customer.plan_changed", json!({"org_code": "org_1"})).unwrap();
    assert_eq!((lacking.said, lacking.customer_type.as_deref()), (Said::NotRead, Some("organization")));
}

#[test]
fn an_event_without_a_billing_change_cannot_fail() {
    for kind in ["user.updated", "customer.plan_created", "customer.meter_usage_updated", "customer.refund_of_2031", "a.b"] {
        for data in [json!({}), json!({"user": 5, "customer_id": [], "plan": null}), json!({"user_id": "kp_1", "user": {}})] {
            let reading = reading(kind, data.clone()).unwrap();
            assert_eq!(reading.said, Said::Nothing, "{kind} {data}");
            assert_eq!(reading.user.is_some(), data["user_id"].is_string());
        }
        let twice = claims(kind, json!({"user_id": 1})).to_string().replace(r#""user_id":1"#, r#""user_id":"a","user_id":"b""#);
        assert_eq!(read(TENANT.sign_event(twice).as_bytes(), kind).unwrap().said, Said::Nothing);
    }
}

// T13
#[tokio::test]
async fn a_field_that_stands_there_twice_is_not_chosen_from() {
    let read_with = |field: &'static str| {
        let claims = claims("customer.plan_changed", json!({"z": 1})).to_string();
        through(claims.replace(r#""z":1"#, field))
    };
    for field in [
        r#""user_id":"kp_1","user_id":"kp_2","plan":{"key":"k"}"#,
        r#""user_id":"kp_1","\u0075ser_id":"kp_2","plan":{"key":"k"}"#,
        r#""user_id":"kp_1","plan":{"key":"k"},"plan":{"key":"l"}"#,
        r#""user_id":"kp_1","plan":{"key":"k","key":"l"}"#,
        r#""user_id":"kp_1","plan":{"key":"k","code":"l","code":"m"}"#,
        r#""user":{"id":"kp_1","id":"kp_2"},"plan":{"key":"k"}"#,
        r#""user_id":"kp_1","plan":{"key":"k"},"agreement_id":"a","agreement_id":"a""#,
    ] {
        assert!(matches!(read_with(field).await, Err(Unreadable::Ambiguous(_))), "{field}");
    }
    assert!(read_with(r#""user_id":"kp_1","plan":{"key":"k","z":1,"z":2},"y":1,"y":2"#).await.is_ok());
}

// T32
#[tokio::test]
async fn the_events_own_time_decides_to_the_nanosecond() {
    async fn at(times: Value) -> Option<Instant> {
        let mut claims = claims("customer.payment_failed", json!({"user_id": "kp_1"}));
        let Value::Object(times) = times else { panic!("{times} is no object") };
        let object = claims.as_object_mut().unwrap();
        object.remove("timestamp");
        object.extend(times);
        through(claims.to_string()).await.unwrap().at
    }
    let time = |text: &str| Some(Instant::parse(text).unwrap());
    let (first, second) = ("2026-11-30T23:59:59.999999999Z", "2026-12-01T00:00:00Z");
    assert_eq!(at(json!({"event_timestamp": first, "timestamp": second})).await, time(first));
    assert_eq!(at(json!({"timestamp": second})).await, time(second));
    assert_eq!(at(json!({"event_timestamp": null, "timestamp": second})).await, time(second));
    assert_eq!(at(json!({"event_timestamp": "2026-12-01T11:00:00.5+11"})).await, time("2026-12-01T00:00:00.5Z"));
    // It says when it happened, unreadably: the time of the attempt is no substitute.
    for odd in [json!("yesterday"), json!(""), json!(1_792_576_800), json!({}), json!("2026-10-21T10:00:00")] {
        assert_eq!(at(json!({"event_timestamp": odd, "timestamp": second})).await, None, "{odd}");
        assert_eq!(at(json!({"timestamp": odd})).await, None, "{odd}");
    }
    assert_eq!(at(json!({})).await, None);
}

#[test]
fn a_stored_body_that_is_no_event_is_unreadable() {
    let kind = "customer.payment_failed";
    let good = claims(kind, json!({"user_id": "kp_1"})).to_string();
    assert!(read(TENANT.sign_event(&good).as_bytes(), kind).is_ok());
    assert!(read(format!("{}\n", TENANT.sign_event(&good)).as_bytes(), kind).is_ok());
    let other = read(TENANT.sign_event(&good).as_bytes(), "customer.payment_succeeded");
    assert!(matches!(other, Err(Unreadable::OtherKind { .. })), "{other:?}");
    for body in ["", "{}", "a.b", "a.!.c"] {
        assert!(matches!(read(body.as_bytes(), kind), Err(Unreadable::NotAToken(_))), "{body}");
    }
    assert!(matches!(read(TENANT.sign_event("{}").as_bytes(), kind), Err(Unreadable::NotAnEvent(_))));
}
