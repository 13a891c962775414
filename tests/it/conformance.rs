//! What every provider has to be, held to each arm in turn. A third one joins by a line in `ARMS`.

use std::sync::Arc;
use std::time::Duration;

use bottle::checkpoint::Checkpoints;
use bottle::clock::Clock;
use bottle::domain::event::{Delivery, Source};
use bottle::domain::ids::KindeUserId;
use bottle::domain::instant::Instant;
use bottle::intake;
use bottle::providers::script::Truth;
use bottle::providers::{Errand, Provider, Providers, VerifyError, Ware, Way};
use reqwest::header::{HeaderMap, HeaderName};
use serde_json::{Value, json};

use crate::local_stripe::SECRET;
use crate::support::claims::says;
use crate::support::kinde_api::{KindeApi, Mood};
use crate::support::till::{Till, event, now_secs, real_now, signature, signed};
use crate::support::tokens::{STRANGER, TENANT};

const ARMS: [Source; 2] = [Source::Kinde, Source::Stripe];

/// One arm with something to tell: a change to Pro.
struct Arm {
    source: Source,
    till: Till,
    object: String,
}

/// A delivery as its provider posts it.
struct Post {
    key: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Arm {
    async fn of(source: Source) -> Self {
        let till = Till::open().await;
        let object = match source {
            Source::Stripe => till.buy("ada", Ware::Pro, "card").await["subscription"].as_str().unwrap().to_owned(),
            _ => String::new(),
        };
        Self { source, till, object }
    }

    fn post(&self, key: &str, kind: Option<&str>, genuine: bool) -> Post {
        match self.source {
            Source::Stripe => {
                let key = format!("evt_{key}");
                let body = event(&key, kind.unwrap_or("customer.subscription.updated"), &self.object).to_string().into_bytes();
                let headers = signed(&signature(if genuine { SECRET } else { "whsec_stranger" }, now_secs(), &body));
                Post { key, headers, body }
            }
            _ => {
                let at = self.till.pipeline.now.datetime();
                let at = format!("{:02}-{:02} 10:00:00", u8::from(at.month()), at.day());
                let mut claims = says("ada", key, &format!("{at} changed a pro"));
                if let Some(kind) = kind {
                    claims["type"] = json!(kind);
                }
                let signer = if genuine { &TENANT } else { &STRANGER };
                let key = claims["event_id"].as_str().unwrap().to_owned();
                let headers = HeaderMap::from_iter([(HeaderName::from_static("webhook-id"), key.parse().unwrap())]);
                Post { key, headers, body: signer.sign_event(claims.to_string()).into_bytes() }
            }
        }
    }

    fn provider(&self) -> &Provider {
        self.till.pipeline.providers.of(self.source).unwrap()
    }

    async fn verify(&self, post: &Post) -> Result<Delivery, VerifyError> {
        self.provider().verify(&post.headers, &post.body).await
    }

    async fn deliver(&mut self, post: &Post) -> bool {
        self.till.pipeline.later(Duration::from_millis(10));
        if self.source == Source::Stripe {
            // Never behind the clock by which Stripe says when something ended.
            self.till.pipeline.now = self.till.pipeline.now.max(real_now());
        }
        let delivery = self.verify(post).await.unwrap();
        let pipeline = &self.till.pipeline;
        let stored =
            intake::accept(&pipeline.pool, &[&delivery], Clock::At(pipeline.now), &Checkpoints::default()).await.unwrap();
        pipeline.drain().await;
        stored[0].copy
    }

    async fn said(&self, post: &Post) -> String {
        self.till.pipeline.event(&post.key).await.said()
    }

    async fn away(&self, away: bool) {
        match self.source {
            Source::Stripe if away => {
                self.till.stripe.turn("faults", json!({"times": 1000, "status": 503})).await;
            }
            Source::Stripe => {
                self.till.stripe.turn("faults/clear", json!({})).await;
                // What did not answer is not asked for five seconds.
                tokio::time::sleep(Duration::from_millis(5_100)).await;
            }
            _ => self.till.pipeline.provider_says(if away { Truth::Away } else { Truth::NotAsked }),
        }
    }

    async fn plan(&self) -> String {
        self.till.pipeline.account("ada").await.split(' ').next().unwrap().trim_end_matches(';').to_owned()
    }
}

#[tokio::test]
async fn it_takes_what_is_genuine_and_nothing_else() {
    for source in ARMS {
        let arm = Arm::of(source).await;
        assert!(!arm.provider().name().is_empty());
        let delivery = arm.verify(&arm.post("a1", None, true)).await.unwrap();
        assert_eq!((delivery.source, delivery.key.as_str()), (source, arm.post("a1", None, true).key.as_str()));
        assert!(arm.verify(&arm.post("a1", None, false)).await.is_err(), "{source}: forged");
        let mut changed = arm.post("a1", None, true);
        let middle = changed.body.len() / 2;
        changed.body[middle] ^= 1;
        assert!(arm.verify(&changed).await.is_err(), "{source}: changed on its way");
        for body in [&b""[..], b"{}", b"[]", b"\0", b"\xff"] {
            let post = Post { body: body.to_owned(), ..arm.post("a1", None, true) };
            assert!(arm.verify(&post).await.is_err(), "{source}: {body:?}");
        }
    }
}

#[tokio::test]
async fn the_same_event_again_is_a_copy_and_changes_nothing() {
    for source in ARMS {
        let mut arm = Arm::of(source).await;
        let post = arm.post("a1", None, true);
        assert!(!arm.deliver(&post).await);
        assert_eq!(arm.plan().await, "pro", "{source}");
        let before = arm.till.pipeline.account("ada").await;
        tokio::time::sleep(Duration::from_millis(1_050)).await;
        // Another attempt is signed anew where that is how it is done.
        assert!(arm.deliver(&arm.post("a1", None, true)).await, "{source}");
        assert_eq!(arm.till.pipeline.account("ada").await, before, "{source}");
    }
}

#[tokio::test]
async fn resolved_twice_it_says_the_same() {
    for source in ARMS {
        let mut arm = Arm::of(source).await;
        let post = arm.post("a1", None, true);
        arm.deliver(&post).await;
        let before = arm.till.pipeline.account("ada").await;
        arm.till.replay_all().await;
        assert_eq!(arm.till.pipeline.account("ada").await, before, "{source}");
        assert_eq!(arm.till.differences().await, Vec::<String>::new(), "{source}");
    }
}

#[tokio::test]
async fn a_type_nobody_knows_is_kept_and_ignored() {
    for (source, kind) in [(Source::Kinde, "customer.unheard_of"), (Source::Stripe, "customer.unheard_of")] {
        let mut arm = Arm::of(source).await;
        let post = arm.post("a2", Some(kind), true);
        arm.deliver(&post).await;
        assert_eq!(arm.said(&post).await, "ignored: this event type carries no billing change (customer.unheard_of)", "{source}");
    }
}

#[tokio::test]
async fn while_the_provider_is_away_an_event_waits_uncharged() {
    for source in ARMS {
        let mut arm = Arm::of(source).await;
        arm.away(true).await;
        let post = arm.post("a3", None, true);
        arm.deliver(&post).await;
        let row = arm.till.pipeline.event(&post.key).await;
        assert_eq!((row.status.as_str(), row.attempts, row.claims, row.runs), ("received", 0, 0, 0), "{source}");
        assert!(row.due.unwrap() > arm.till.pipeline.now.datetime(), "{source}");
        arm.away(false).await;
        arm.till.pipeline.later(Duration::from_secs(60));
        arm.till.pipeline.drain().await;
        assert_eq!(arm.plan().await, "pro", "{source}");
    }
}

#[tokio::test]
async fn an_event_that_comes_late_undoes_nothing_newer() {
    for source in ARMS {
        let mut arm = Arm::of(source).await;
        let late = arm.post("a4", None, true);
        match source {
            Source::Stripe => {
                let path = format!("/v1/subscriptions/{}", arm.object);
                arm.till.stripe.call(reqwest::Method::DELETE, &path, &[]).await;
                arm.deliver(&arm.post("a5", Some("customer.subscription.deleted"), true)).await;
            }
            _ => {
                let claims = says("ada", "a5", "12-31 10:00:00 cancelled a");
                arm.till.pipeline.now = crate::support::histories::moment("12-31 11:00:00");
                arm.till.pipeline.run(&claims).await;
            }
        }
        arm.deliver(&late).await;
        assert_eq!(arm.plan().await, "free", "{source}");
    }
}

/// An arm whose provider is asked over HTTP: Stripe always is, Kinde where its Management API is set up.
async fn asking(source: Source) -> (Arm, KindeApi) {
    let (mut arm, api) = (Arm::of(source).await, KindeApi::start().await);
    if source == Source::Kinde {
        let kinde = Arc::into_inner(api.providers()).unwrap().kinde;
        let Providers { stripe, .. } = Arc::into_inner(std::mem::take(&mut arm.till.pipeline.providers)).unwrap();
        arm.till.pipeline.providers = Arc::new(Providers { kinde, stripe });
        // Its events are of ten o'clock, and are heard at once: an old one's answer would be believed whatever it is.
        let ten = time::Time::from_hms(10, 0, 1).unwrap();
        arm.till.pipeline.now = Instant::from_datetime(arm.till.pipeline.now.datetime().replace_time(ten));
    }
    (arm, api)
}

#[tokio::test]
async fn an_object_that_is_gone_ends_the_event_and_not_the_worker() {
    for source in ARMS {
        let (mut arm, api) = asking(source).await;
        // Nobody is a customer at that Kinde, and no agreement of theirs is known.
        arm.object = "sub_gone".to_owned();
        let post = arm.post("a6", None, true);
        arm.deliver(&post).await;
        let first = arm.till.pipeline.event(&post.key).await;
        assert_eq!(first.attempts, 0, "{source}: nobody's fault is charged");
        match source {
            Source::Stripe => assert_eq!(first.said(), "ignored: the provider has no sub_gone, or no longer"),
            _ => {
                // An answer may be behind its own event, so it is asked for again; then the event counts by its own word.
                assert_eq!(first.status, "parked", "{}", first.said());
                assert!(api.asked() > 0);
                for _ in 0..40 {
                    arm.till.pipeline.later(Duration::from_secs(60));
                    arm.till.pipeline.drain().await;
                }
                let said = arm.said(&post).await;
                assert!(
                    said.starts_with("applied: plan set to pro") && said.contains("the provider's own answer still differs"),
                    "{said}"
                );
            }
        }
        // The next one runs as ever.
        let unknown = arm.post("a7", Some("customer.unheard_of"), true);
        arm.deliver(&unknown).await;
        assert!(arm.said(&unknown).await.starts_with("ignored: this event type"), "{source}");
        assert_eq!(arm.till.differences().await, Vec::<String>::new(), "{source}");
    }
}

#[tokio::test]
async fn a_provider_that_is_asked_too_much_is_left_in_peace_and_charges_no_event() {
    for source in ARMS {
        let (mut arm, api) = asking(source).await;
        api.lists("ada", &[("a", "pro", None)]);
        api.truth().mood = Mood::Limited { reset: "3" };
        arm.till.stripe.turn("faults", json!({"status": 429, "retry_after": 3, "times": 1})).await;
        arm.till.calls().await;
        let asked = async |arm: &Arm| match source {
            Source::Stripe => arm.till.calls().await.as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum::<u64>(),
            _ => u64::try_from(std::mem::take(&mut api.truth().asked).len()).unwrap(),
        };
        let post = arm.post("a8", None, true);
        arm.deliver(&post).await;
        let row = arm.till.pipeline.event(&post.key).await;
        assert_eq!((row.status.as_str(), row.attempts, row.claims, row.runs), ("received", 0, 0, 0), "{source}");
        assert_eq!(row.due, Some(arm.till.pipeline.now.plus(Duration::from_secs(3)).datetime()), "{source}: as long as it said");
        assert_eq!(asked(&arm).await, 1, "{source}");
        api.truth().mood = Mood::Answers;
        // Another event meanwhile costs it no call.
        arm.till.pipeline.later(Duration::from_secs(1));
        let other = arm.post("a9", None, true);
        arm.deliver(&other).await;
        assert_eq!(asked(&arm).await, 0, "{source}");
        tokio::time::sleep(Duration::from_millis(3_100)).await;
        arm.till.pipeline.later(Duration::from_secs(60));
        arm.till.pipeline.drain().await;
        assert_eq!(arm.plan().await, "pro", "{source}");
        assert!(asked(&arm).await > 0, "{source}");
    }
}

#[tokio::test]
async fn it_says_where_to_pay_and_leads_nowhere_strange() {
    let user = KindeUserId("kp_ada".to_owned());
    let errand = Errand {
        user: &user,
        email: None,
        customer: None,
        done: "http://localhost:3000/account",
        back: "http://localhost:3000/account",
        intent: "one",
        earlier: None,
    };
    let arm = Arm::of(Source::Stripe).await;
    let first = arm.provider().checkout(&errand, Ware::Pro).await.unwrap();
    assert_eq!(arm.provider().checkout(&errand, Ware::Pro).await.unwrap(), first, "one click is one checkout");
    assert!(matches!(&first, Way::Checkout { url, .. } if url.starts_with(&arm.till.stripe.url())));
    assert!(arm.provider().portal(&errand).await.is_err(), "nobody is known there yet");
    let customer = bottle::domain::ids::CustomerId(arm.till.stripe.customer().await);
    let known = Errand { customer: Some(&customer), ..errand };
    assert!(matches!(arm.provider().portal(&known).await.unwrap(), Way::To(url) if url.starts_with(&arm.till.stripe.url())));
    // A Stripe that leads elsewhere is not followed.
    let session = json!({"id": "cs_test_evil", "mode": "payment", "payment_status": "unpaid", "created": 1, "url": "https://stripe.com.evil.example/pay"});
    let evil = serving(&session).await;
    let strange = Provider::Stripe(crate::support::till::arm(&evil)).checkout(&errand, Ware::Pack).await;
    assert!(strange.unwrap_err().to_string().contains("no page of theirs"));

    let kinde = bottle::providers::kinde::Kinde::new(
        Arc::new(bottle::jwks::Jwks::held([TENANT.held()])),
        ["https://x.kinde.com".to_owned()],
        None,
    );
    let kinde = Provider::Kinde(kinde.selling(Some("customer_pro_plan".to_owned())));
    let way = kinde.checkout(&errand, Ware::Pro).await.unwrap();
    assert_eq!(way, Way::SignIn { plan_interest: "customer_pro_plan".to_owned() });
    assert!(kinde.checkout(&errand, Ware::Pack).await.is_err());
    assert_eq!(kinde.portal(&errand).await.unwrap(), Way::OwnToken);
}

/// A server that answers everything with this.
async fn serving(answer: &Value) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = answer.clone();
    let app = axum::Router::new().fallback(move || std::future::ready(axum::Json(answer.clone())));
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}
