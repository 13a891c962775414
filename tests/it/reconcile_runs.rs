//! Runs of reconcile as such: the command and its answers, a run that is killed, the night, the alert.

use std::sync::Arc;
use std::time::Duration;

use bottle::alerts::conditions;
use bottle::domain::event::Source;
use bottle::providers::Providers;
use bottle::reconcile::runs::{self, Mode, State};
use bottle::reconcile::{Error, Wish};
use serde_json::{Value, json};

use crate::local_stripe::{self, KEY, PACK, PRO, SECRET, Stripe};
use crate::support::binary::{Bottle, Home};
use crate::support::comparing::Comparing;
use crate::support::db::{TestDb, fresh_db};
use crate::support::till::{self, TENANT, now_secs};

const DAY: i64 = 24 * 3600;

struct Shop {
    stripe: Stripe,
    db: TestDb,
    home: Home,
}

impl Shop {
    /// So many packs were sold yesterday, and nobody told us.
    async fn selling(packs: usize) -> Self {
        Self::selling_to("local", packs).await
    }

    async fn selling_to(tenant: &str, packs: usize) -> Self {
        let stripe = Stripe::begin(local_stripe::settings()).await;
        stripe.turn("clock", json!({ "to": now_secs() - DAY })).await;
        for n in 0..packs {
            let user = format!("kp_{n}");
            let marks = [
                ("client_reference_id", user.as_str()),
                ("metadata[bottle_user]", user.as_str()),
                ("metadata[bottle_tenant]", tenant),
                ("payment_intent_data[metadata][bottle_user]", user.as_str()),
                ("payment_intent_data[metadata][bottle_tenant]", tenant),
                ("customer_creation", "always"),
            ];
            let session = stripe.session("payment", PACK, &marks).await;
            stripe.complete(&session, "card").await;
        }
        Self { stripe, db: fresh_db().await, home: Home::new() }
    }

    fn settings(&self) -> [(&'static str, String); 6] {
        [
            ("DATABASE_URL", self.db.url()),
            ("STRIPE_SECRET_KEY", KEY.to_owned()),
            ("STRIPE_WEBHOOK_SECRET", SECRET.to_owned()),
            ("STRIPE_PRICE_PRO", PRO.to_owned()),
            ("STRIPE_PRICE_PACK", PACK.to_owned()),
            ("STRIPE_API_BASE", self.stripe.url()),
        ]
    }

    async fn reconcile(&self, args: &[&str]) -> crate::support::binary::Said {
        let settings = self.settings();
        let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.home.run(&[&["reconcile", "--settle", "0"], args].concat(), &settings).await
    }

    async fn count(&self, sql: &'static str) -> i64 {
        crate::support::deliveries::count(&self.db.pool().await, sql).await
    }
}

#[tokio::test]
async fn the_command_says_what_differs_and_its_exit_code_and_json_say_so_too() {
    let shop = Shop::selling(2).await;
    let said = shop.reconcile(&["--check"]).await;
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(
        said.out.contains("Events that never came (event_missing): 2, 0 of them repaired.") && said.out.contains("What to do: "),
        "{}",
        said.out
    );
    assert_eq!(shop.count("select count(*) from inbox_events").await, 0, "it only looked");

    let said = shop.reconcile(&["--provider", "stripe", "--apply", "--json"]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let mut told: Value = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {}", said.out));
    for time in ["since", "until"] {
        assert!(told[time].as_str().unwrap().ends_with('Z'), "{told}");
        told[time] = json!("…Z");
    }
    for finding in told["findings"].as_array_mut().unwrap() {
        assert!(finding["subject"].as_str().unwrap().starts_with("evt_"));
        assert!(finding["theirs"].as_str().unwrap().starts_with("checkout.session.completed of 20"));
        let event = finding["event"].as_i64().unwrap();
        assert_eq!(finding["done"], format!("fetched and stored; event {event} is applied"));
        (finding["subject"], finding["theirs"]) = (json!("evt_…"), json!("checkout.session.completed of …"));
        (finding["event"], finding["done"]) = (json!(1), json!("fetched and stored; event 1 is applied"));
    }
    insta::assert_json_snapshot!(told, @r#"
    {
      "findings": [
        {
          "account": null,
          "class": "event_missing",
          "customer": null,
          "done": "fetched and stored; event 1 is applied",
          "event": 1,
          "ours": "no such event",
          "provider": "stripe",
          "state": "repaired",
          "subject": "evt_…",
          "theirs": "checkout.session.completed of …"
        },
        {
          "account": null,
          "class": "event_missing",
          "customer": null,
          "done": "fetched and stored; event 1 is applied",
          "event": 1,
          "ours": "no such event",
          "provider": "stripe",
          "state": "repaired",
          "subject": "evt_…",
          "theirs": "checkout.session.completed of …"
        }
      ],
      "found": {
        "event_missing": {
          "all": 2,
          "repaired": 2
        }
      },
      "looked_at": {
        "accounts": 2,
        "bookings": 2,
        "events": 2,
        "movements": 2
      },
      "mode": "apply",
      "run": 2,
      "since": "…Z",
      "sources": [
        "stripe"
      ],
      "state": "finished",
      "totals": [
        {
          "currency": "usd",
          "ours_minor": 1000,
          "source": "stripe",
          "theirs_minor": 1000
        }
      ],
      "until": "…Z"
    }
    "#);

    let said = shop.reconcile(&["--check"]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(
        said.out.contains("Nothing differs.") && said.out.contains("stripe in USD: we have 10.00, they say 10.00: the same."),
        "{}",
        said.out
    );
}

#[tokio::test]
async fn a_provider_that_cannot_be_asked_is_told_with_what_to_set() {
    let (home, db) = (Home::new(), fresh_db().await);
    let url = db.url();
    for (args, why) in [
        (
            &["reconcile"][..],
            "bottle reconcile: no provider can be asked: Kinde is asked through its Management API: set KINDE_DOMAIN",
        ),
        (&["reconcile", "--provider", "stripe"], "bottle reconcile: Stripe is asked through its API: set STRIPE_SECRET_KEY"),
        (&["reconcile", "--provider", "kinde"], "bottle reconcile: Kinde is asked through its Management API: "),
    ] {
        let said = home.run(args, &[("DATABASE_URL", url.as_str())]).await;
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.complaints().iter().any(|line| line.starts_with(why)), "{said:?}");
    }
    for args in
        [&["reconcile", "--since", "soon"][..], &["reconcile", "--provider", "bottle"], &["reconcile", "--provider", "paypal"]]
    {
        assert_eq!(home.run(args, &[("DATABASE_URL", url.as_str())]).await.code, Some(2), "{args:?}");
    }
}

#[tokio::test]
async fn a_run_that_is_killed_half_way_goes_on_where_it_was() {
    let shop = Shop::selling(105).await;
    let sold = shop.stripe.get("/v1/events", &[("limit", "100"), ("type", "checkout.session.completed")]).await;
    assert_eq!(sold["has_more"], true, "more than a page of events that are read");
    // The first page is answered, the second is not.
    shop.stripe.turn("faults", json!({ "path": "/v1/events", "slow_ms": 1 })).await;
    shop.stripe.turn("faults", json!({ "path": "/v1/events", "slow_ms": 600_000 })).await;
    let settings = shop.settings();
    let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut killed = Bottle::spawn(shop.home.command(&["reconcile", "--apply", "--settle", "0"], &settings));
    let noted = "select count(*) from reconcile_runs where cursor is not null and state = 'running'";
    for tenths in 0.. {
        assert!(tenths < 600, "no page was noted: {}", killed.log());
        let is_there = shop.db.pool().await;
        let made = sqlx::query_scalar::<_, bool>("select to_regclass('reconcile_runs') is not null").fetch_one(&is_there).await;
        if made.unwrap() && shop.count(noted).await == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    killed.killed().await;
    shop.stripe.turn("calls/reset", json!({})).await;
    let said = shop.reconcile(&["--apply"]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(shop.count("select count(*) from reconcile_runs").await, 1, "the same run");
    assert_eq!(shop.count("select count(*) from reconcile_runs where state = 'finished'").await, 1);
    assert!(said.out.contains("Events that never came (event_missing): 105, 105 of them repaired."), "{}", said.out);
    assert_eq!(shop.count("select count(*) from money_ledger").await, 105);
    assert_eq!(shop.count("select count(*) from reconcile_books").await, 0, "the copy of their books is gone");
    let events = shop.stripe.look("calls").await["latest"].as_array().unwrap().clone();
    let first = events.iter().find(|call| call["path"] == "/v1/events").unwrap();
    assert!(first["query"].as_str().unwrap().contains("starting_after=evt_"), "the first page is not read again: {first}");
}

/// A shop that a test compares by itself.
async fn comparing(packs: usize) -> (Shop, Comparing) {
    let shop = Shop::selling_to(TENANT, packs).await;
    let stripe = Some(bottle::providers::Provider::Stripe(till::arm(&shop.stripe.url())));
    let pool = shop.db.pool().await;
    let providers = Arc::new(Providers { kinde: None, stripe });
    let comparing = Comparing { pool, providers, rules: Arc::new(till::rules()) };
    (shop, comparing)
}

fn minute_now() -> u16 {
    let now = time::OffsetDateTime::now_utc();
    u16::from(now.hour()) * 60 + u16::from(now.minute())
}

#[tokio::test]
async fn two_processes_do_a_night_once_and_one_that_died_is_taken_up() {
    let (shop, comparing) = comparing(3).await;
    // The first dies on its first page.
    shop.stripe.turn("faults", json!({ "path": "/v1/events", "slow_ms": 600_000 })).await;
    let dying = comparing.reconciler();
    let minute = minute_now();
    let begun = tokio::spawn(async move { dying.tonight(minute).await });
    for _ in 0..200 {
        if comparing.value::<i64>("select count(*) from reconcile_runs").await == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let other = comparing.reconciler();
    assert!(matches!(other.tonight(minute).await, Err(Error::Busy)), "one works on it");
    begun.abort();
    let _ = begun.await;
    eventually_free(&comparing).await;

    let two = [comparing.reconciler(), comparing.reconciler()].map(|mut reconciler| {
        reconciler.wait = Duration::ZERO;
        tokio::spawn(async move { reconciler.tonight(minute).await })
    });
    let mut done = 0;
    for one in two {
        match one.await.unwrap() {
            Ok(Some(run)) => {
                assert_eq!((run.state, run.mode, run.id.0), (State::Finished, Mode::Apply, 1));
                done += 1;
            }
            Ok(None) | Err(Error::Busy) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(done, 1);
    assert!(comparing.reconciler().tonight(minute).await.unwrap().is_none(), "the night is done");
    assert_eq!(comparing.value::<i64>("select count(*) from reconcile_runs").await, 1);
    assert_eq!(comparing.value::<i64>("select count(*) from inbox_events where source = 'stripe'").await, 3);
}

/// The connection of a run that was dropped ends a moment later, and its lock with it.
async fn eventually_free(comparing: &Comparing) {
    for _ in 0..200 {
        let free = "select not exists (select 1 from pg_locks where locktype = 'advisory' and objid = 1953260803 and database = (select oid from pg_database where datname = current_database()))";
        if comparing.value::<bool>(free).await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the lock is still held");
}

#[tokio::test]
async fn a_difference_that_stays_is_an_alert_until_a_run_finds_none_and_so_is_a_night_without_one() {
    let (shop, comparing) = comparing(2).await;
    let raised = async || {
        let mut conn = comparing.pool.acquire().await.unwrap();
        let mut found = conditions::find(&mut conn, &[]).await.unwrap();
        found.extend(conditions::late(&mut conn).await.unwrap());
        found.retain(|f| f.condition.starts_with("reconcile"));
        found.iter().map(|f| (f.condition.clone(), f.sentence.clone())).collect::<Vec<_>>()
    };
    let run = comparing.run(&[Source::Stripe], Mode::Apply).await;
    assert!(comparing.counts(&run).await.contains(&"event_missing: 2/2".to_owned()));
    assert_eq!(raised().await, [], "what was repaired is no alert");
    let mut conn = comparing.pool.acquire().await.unwrap();
    let heard = bottle::inbox::watch::heard_after(&mut conn, Source::Stripe, bottle::domain::ids::EventId(0)).await.unwrap();
    assert_eq!(heard, None, "what was fetched is no sign that the webhook works");
    drop(conn);
    let rows = shop.stripe.get("/v1/balance_transactions", &[]).await;
    let row = rows["data"][0]["id"].as_str().unwrap();
    shop.stripe.turn(&format!("balance_transactions/{row}/falsify"), json!({ "amount": 1 })).await;
    comparing.run(&[Source::Stripe], Mode::Look).await;
    let now = raised().await;
    assert_eq!(now.len(), 1);
    assert!(now[0].0 == "reconcile drift" && now[0].1.contains("Amounts that differ: 1"), "{now:?}");
    // A look at an hour sees nothing of it, and proves nothing.
    let since = Some(time::OffsetDateTime::now_utc() - time::Duration::hours(1));
    let wish = Wish { sources: vec![Source::Stripe], since, mode: Mode::Look, night: None };
    let narrow = comparing.reconciler().run(&wish).await.unwrap();
    assert_eq!((comparing.counts(&narrow).await, raised().await.len()), (vec![], 1));
    shop.stripe.turn(&format!("balance_transactions/{row}/falsify"), json!({ "amount": 500 })).await;
    comparing.run(&[Source::Stripe], Mode::Look).await;
    assert_eq!(raised().await, []);

    shop.stripe.turn("faults", json!({ "path": "/v1/events", "status": 500, "slow_ms": 1 })).await;
    let failing = comparing.reconciler();
    failing.stop.cancel();
    assert!(failing.tonight(minute_now()).await.is_err());
    assert_eq!(raised().await, []);
    sqlx::query("update reconcile_runs set begun_at = now() - interval '49 hours' where night is not null")
        .execute(&comparing.pool)
        .await
        .unwrap();
    assert_eq!(raised().await[0].0, "reconcile late");
    let mut conn = comparing.pool.acquire().await.unwrap();
    let (latest, page) = (runs::latest(&mut conn).await.unwrap().unwrap(), runs::page(&mut conn, None, 2).await.unwrap());
    assert_eq!((latest.state, page.len(), page[0].state), (State::Finished, 2, State::Running));
    assert_eq!(runs::page(&mut conn, Some(page[1].id), 10).await.unwrap().last().unwrap().id.0, 1);
}

#[tokio::test]
async fn what_is_left_of_runs_that_nobody_takes_up_goes_when_the_next_one_begins() {
    let (_shop, comparing) = comparing(1).await;
    sqlx::query(
        "with r as (
             insert into reconcile_runs (sources, since, until, mode, state, begun_at, touched_at, finished_at)
             select '{stripe}'::text[], at, at, 'look', state, at, at, case state when 'finished' then at end
             from (values ('running', now() - interval '25 hours'), ('running', now() - interval '1 hour'),
                          ('finished', now() - interval '2 hours'), ('failed', now() - interval '401 days')) as v (state, at)
             returning id),
         b as (
             insert into reconcile_books (run_id, source, entry, movement_key, kind, amount_minor, currency, marked)
             select r.id, 'stripe', 'txn_' || n, 'charge:' || n, 'charge', 1, 'usd', false from r, generate_series(1, 10001) n)
         insert into reconcile_findings (run_id, class, source, subject, ours, theirs, done, state, found_at)
         select id, 'amount_differs', 'stripe', 'charge:1', '', '', '', 'open', now() from r",
    )
    .execute(&comparing.pool)
    .await
    .unwrap();
    let run = comparing.run(&[Source::Stripe], Mode::Apply).await;
    assert_eq!((run.id.0, run.state), (5, State::Finished));
    let states =
        "select string_agg(concat_ws(' ', id, state, left(error, 8)), ', ' order by id) from reconcile_runs where id < 5";
    let states: String = comparing.value(states).await;
    assert_eq!(states, "1 failed given up, 2 running, 3 finished, 4 failed given up");
    // Whoever wishes for the second within a day goes on with it, and needs its copy whole.
    let books =
        "select string_agg(concat_ws(' ', run_id, n), ', ') from (select run_id, count(*) n from reconcile_books group by 1) b";
    assert_eq!(comparing.value::<String>(books).await, "2 10001");
    let findings = "select string_agg(run_id::text, ', ' order by run_id) from reconcile_findings where run_id < 5";
    assert_eq!(comparing.value::<String>(findings).await, "1, 2, 3", "a year of findings is kept");
}
