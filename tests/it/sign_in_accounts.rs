//! Whose account a sign-in leads to, and what an event that came before, after or at the same moment has to do with it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bottle::domain::ids::{CustomerId, KindeUserId};
use bottle::web::sign_in::CustomerOf;
use serde_json::json;

use crate::support::app::{App, Event, Setup, SignInSetup, eventually};
use crate::support::fake_kinde::{FakeKinde, person};
use crate::support::visitor::{Visitor, with_kinde, with_kinde_and};

async fn accounts(app: &App) -> Vec<(String, String)> {
    sqlx::query_as("select kinde_user_id, plan from accounts order by id").fetch_all(&app.pool).await.unwrap()
}

/// Amounts of this account's entries.
async fn entries(app: &App, user: &str) -> Vec<i64> {
    let sql = "select delta from ledger l join accounts a on a.id = l.account_id where a.kinde_user_id = $1 order by delta";
    sqlx::query_scalar(sql).bind(user).fetch_all(&app.pool).await.unwrap()
}

#[tokio::test]
async fn two_people_with_one_address_are_two_accounts_and_one_person_with_two_addresses_is_one() {
    let (app, kinde) = with_kinde().await;
    for (user, email) in [("kp_1", "same@example.com"), ("kp_2", "same@example.com"), ("kp_1", "other@example.com")] {
        kinde.inside().who = person(user, email);
        Visitor::new(&app).sign_in().await;
    }
    let users: Vec<String> = accounts(&app).await.into_iter().map(|(user, _)| user).collect();
    assert_eq!(users, ["kp_1", "kp_2"]);
}

#[tokio::test]
async fn an_event_before_the_first_sign_in_and_one_after_it_meet_in_one_account() {
    let (app, kinde) = with_kinde_and(|setup| Setup { worker: true, ..setup }).await;
    for event_first in [true, false] {
        let user = if event_first { "kp_early" } else { "kp_late" };
        let event = Event::with(json!({ "data": { "user_id": user, "plan": { "key": "customer_pro_plan" } } }));
        kinde.inside().who = person(user, "x@example.com");
        let visitor = Visitor::new(&app);
        if !event_first {
            visitor.sign_in().await;
            assert_eq!(entries(&app, user).await, [10]);
        }
        app.deliver(event.token.clone()).await.says_stored(&event.id, false);
        app.worked_off().await;
        if event_first {
            visitor.sign_in().await;
        }
        assert_eq!(entries(&app, user).await, [10, 490], "{user}");
    }
    assert_eq!(accounts(&app).await, [("kp_early".to_owned(), "pro".to_owned()), ("kp_late".to_owned(), "pro".to_owned())]);
}

#[tokio::test]
async fn sign_ins_and_events_of_one_person_at_the_same_moment_make_one_account() {
    let (app, kinde) = with_kinde_and(|setup| Setup { worker: true, ..setup }).await;
    for round in 0..12 {
        let user = format!("kp_round{round}");
        kinde.inside().who = person(&user, "x@example.com");
        let browsers: Vec<_> = (0..3).map(|_| Visitor::new(&app)).collect();
        let mut backs = Vec::new();
        for browser in &browsers {
            backs.push(browser.come_back_from("/login").await);
        }
        let events: Vec<_> =
            (0..3).map(|_| Event::with(json!({ "data": { "user_id": user, "plan": { "key": "customer_pro_plan" } } }))).collect();
        let delivered = futures_util::future::join_all(events.iter().map(|event| app.deliver(event.token.clone())));
        let arrived = futures_util::future::join_all(browsers.iter().zip(&backs).map(|(browser, back)| browser.get(back)));
        let (delivered, arrived) = tokio::join!(delivered, arrived);
        assert!(delivered.iter().all(|answer| answer.status == 200));
        for answer in arrived {
            assert_eq!(answer.status, 303, "{}", answer.text);
        }
        app.worked_off().await;
        assert_eq!(entries(&app, &user).await, [10, 490], "{user}");
    }
    let all = accounts(&app).await;
    assert!(all.len() == 12 && all.iter().all(|(_, plan)| plan == "pro"), "{all:?}");
}

/// The order that decides, held still: the other side has made the account and has not committed yet.
#[tokio::test]
async fn a_sign_in_waits_for_an_account_that_is_just_being_made_and_takes_it() {
    for committed in [true, false] {
        let (app, _kinde) = with_kinde().await;
        let mut tx = app.pool.begin().await.unwrap();
        let sql = "insert into accounts (tenant, kinde_user_id, created_at) values ($1, 'kp_ada', now()) returning id";
        let theirs: i64 = sqlx::query_scalar(sql).bind(crate::support::app::DOMAIN).fetch_one(&mut *tx).await.unwrap();
        let visitor = Visitor::new(&app);
        let back = visitor.come_back_from("/login").await;
        let (answer, ()) = tokio::join!(visitor.get(&back), async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            if committed { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
        });
        assert_eq!(answer.status, 303, "{}", answer.text);
        assert!(answer.took > Duration::from_millis(250), "it waited: {:?}", answer.took);
        let ids: Vec<i64> = sqlx::query_scalar("select id from accounts").fetch_all(&app.pool).await.unwrap();
        assert_eq!((ids.len(), ids[0] == theirs), (1, committed));
        assert_eq!(entries(&app, "kp_ada").await, [10], "the month is open, whoever made the account");
    }
}

async fn with_customers(customer_of: CustomerOf) -> (App, FakeKinde) {
    let kinde = FakeKinde::start().await;
    let sign_in = Some(SignInSetup { kinde: kinde.settings(), customer_of: Some(customer_of) });
    (Setup { sign_in, worker: true, ..Setup::default() }.start().await, kinde)
}

fn of_customer(customer: &str) -> Event {
    Event::with(json!({ "data": { "customer_id": customer, "plan": { "key": "customer_pro_plan" } } }))
}

#[tokio::test]
async fn a_sign_in_learns_the_customer_and_the_events_that_waited_for_it_run() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&asked);
    let (app, _kinde) = with_customers(Arc::new(move |user: KindeUserId| {
        note.lock().unwrap().push(user.0);
        Box::pin(async { Ok(Some(CustomerId("customer_1".to_owned()))) })
    }))
    .await;
    let event = of_customer("customer_1");
    app.deliver(event.token.clone()).await.says_stored(&event.id, false);
    app.worked_off().await;
    assert_eq!(app.row(&event.id).await.unwrap().0, "parked");

    let visitor = Visitor::new(&app);
    visitor.sign_in().await;
    eventually("the parked event runs", async || app.row(&event.id).await.unwrap().0 == "applied").await;
    assert_eq!(accounts(&app).await, [("kp_ada".to_owned(), "pro".to_owned())]);
    assert_eq!(entries(&app, "kp_ada").await, [10, 490]);
    // An event of the same customer needs nobody any more, and a second sign-in changes nothing.
    visitor.sign_in().await;
    let later = of_customer("customer_1");
    app.deliver(later.token.clone()).await.says_stored(&later.id, false);
    app.worked_off().await;
    assert_eq!(app.row(&later.id).await.unwrap().0, "applied");
    assert_eq!(*asked.lock().unwrap(), ["kp_ada", "kp_ada"]);
}

#[tokio::test]
async fn an_event_parked_at_the_very_moment_of_the_sign_in_is_not_forgotten() {
    let n = Arc::new(AtomicUsize::new(0));
    let number = Arc::clone(&n);
    let (app, kinde) = with_customers(Arc::new(move |_| {
        let customer = format!("customer_{}", number.load(Ordering::SeqCst));
        Box::pin(async move { Ok(Some(CustomerId(customer))) })
    }))
    .await;
    for round in 0..15 {
        n.store(round, Ordering::SeqCst);
        kinde.inside().who = person(&format!("kp_{round}"), "x@example.com");
        let event = of_customer(&format!("customer_{round}"));
        let visitor = Visitor::new(&app);
        let back = visitor.come_back_from("/login").await;
        let (stored, arrived) = tokio::join!(app.deliver(event.token.clone()), visitor.get(&back));
        assert_eq!((stored.status, arrived.status), (200, 303));
        eventually("the event runs", async || app.row(&event.id).await.unwrap().0 == "applied").await;
    }
}

#[tokio::test]
async fn a_provider_that_fails_or_sleeps_keeps_nobody_out() {
    let (app, kinde) = with_customers(Arc::new(|user: KindeUserId| {
        Box::pin(async move {
            match user.as_str() {
                "kp_fails" => Err("canary-why".to_owned()),
                "kp_sleeps" => std::future::pending().await,
                _ => Ok(None),
            }
        })
    }))
    .await;
    for user in ["kp_fails", "kp_sleeps", "kp_nobody"] {
        kinde.inside().who = person(user, "x@example.com");
        let visitor = Visitor::new(&app);
        let began = Instant::now();
        visitor.sign_in().await;
        assert!(began.elapsed() < Duration::from_secs(3), "{user}: {:?}", began.elapsed());
        assert!(visitor.get("/").await.text.contains("Good to see you"), "{user}");
    }
    let learned: i64 = sqlx::query_scalar("select count(*) from customer_map").fetch_one(&app.pool).await.unwrap();
    assert_eq!(learned, 0);
}

#[tokio::test]
async fn a_customer_claimed_by_a_second_person_stays_the_firsts() {
    let (app, kinde) = with_customers(Arc::new(|_| Box::pin(async { Ok(Some(CustomerId("customer_1".to_owned()))) }))).await;
    for user in ["kp_first", "kp_second"] {
        kinde.inside().who = person(user, "x@example.com");
        Visitor::new(&app).sign_in().await;
    }
    let sql = "select a.kinde_user_id from customer_map m join accounts a on a.id = m.account_id";
    let owners: Vec<String> = sqlx::query_scalar(sql).fetch_all(&app.pool).await.unwrap();
    assert_eq!(owners, ["kp_first"]);
}
