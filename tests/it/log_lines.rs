//! The log of the real program: JSON lines, each of which can be searched for by the event it is about.

use std::collections::BTreeSet;

use rustix::process::Signal;
use serde_json::{Map, Value, json};

use crate::support::binary::Bottle;
use crate::support::deliveries::{Event, Sender, Upgrade, count, settled};
use crate::support::load::Ground;
use crate::support::tokens::TENANT;

/// The lines of our own rooms. Whatever is no JSON fails the test.
fn ours(bottle: &Bottle) -> Vec<Map<String, Value>> {
    let lines =
        bottle.log().lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"))).collect();
    let lines: Vec<Map<String, Value>> = lines;
    lines.into_iter().filter(|line| line["target"].as_str().unwrap().starts_with("bottle")).collect()
}

fn text<'l>(line: &'l Map<String, Value>, field: &str) -> &'l str {
    line.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[tokio::test]
async fn each_line_about_an_event_bears_the_providers_id_and_the_rows() {
    let (ground, sender) = (Ground::new().await, Sender::new());
    let mut bottle = ground.start("serve", &[("BOTTLE_LOG", "trace")]).await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let people: Vec<Upgrade> = (0..3).map(|_| Upgrade::new()).collect();
    for event in people.iter().flat_map(Upgrade::nine) {
        assert_eq!(sender.post(bottle.addr(), event).await, Some(200));
    }
    // A conflict, an event without a time, one that is not read at all, and one whose handler breaks on what it finds.
    let mut other = people[0].up.claims.clone();
    other["data"]["plan"]["key"] = json!("customer_starter_plan");
    let timeless =
        Event::new("plan_changed", "kp_timeless", "agreement_1", Some("customer_pro_plan"), time::OffsetDateTime::now_utc());
    let mut claims = timeless.claims.clone();
    claims["event_timestamp"] = json!("never\u{1b}[31m\r\n{\"level\":\"ERROR\"}");
    let strange = Event::new("moon_phase", "kp_moon", "agreement_2", None, time::OffsetDateTime::now_utc());
    for token in [TENANT.sign_event(other.to_string()), TENANT.sign_event(claims.to_string()), strange.token.clone()] {
        let answer = http.post(bottle.webhooks()).header("webhook-id", "msg_odd").body(token).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{}", answer.text().await.unwrap());
    }
    settled(&ground.pool).await;
    bottle.told(Signal::TERM).await;

    let rows: Vec<(String, i64)> =
        sqlx::query_as("select dedupe_key, id from inbox_events").fetch_all(&ground.pool).await.unwrap();
    let (mut about, mut seen) = (0, BTreeSet::new());
    for line in ours(&bottle) {
        assert!(!text(&line, "message").is_empty() && !text(&line, "timestamp").is_empty(), "{line:?}");
        let whole = Value::Object(line.clone()).to_string();
        for (key, id) in rows.iter().filter(|(key, _)| whole.contains(key.as_str())) {
            about += 1;
            seen.insert(key.clone());
            let of_many = text(&line, "events").split(' ').any(|event| event == key);
            if !of_many {
                assert_eq!((text(&line, "event"), text(&line, "event_id")), (key.as_str(), id.to_string().as_str()), "{whole}");
            }
        }
        for wrong in ["key", "event_key", "id", "dedupe_key", "eventId"] {
            assert!(!line.contains_key(wrong), "another name for the same: {whole}");
        }
    }
    let provider_events = rows.iter().filter(|(key, _)| key.starts_with("event_")).count();
    assert_eq!(seen.iter().filter(|key| key.starts_with("event_")).count(), provider_events, "no event without a line");
    assert!(about >= 2 * provider_events, "stored and settled, each: {about}");

    let lines = ours(&bottle);
    let said =
        |message: &str, key: &str| lines.iter().any(|line| text(line, "message").contains(message) && text(line, "event") == key);
    assert!(said("something else under a known event id", &people[0].up.key));
    assert!(said("event is dead", &timeless.key), "an event that says no time needs a person");
    assert!(said("event settled", &strange.key));
    assert_eq!(count(&ground.pool, "select count(*) from inbox_events where status = 'dead'").await, 1);
}

#[tokio::test]
async fn what_fails_says_of_which_event_and_a_batch_names_them_all() {
    let (ground, sender) = (Ground::new().await, Sender::new());
    let bottle = ground.start("web", &[("BOTTLE_LOG", "trace")]).await;
    let (good, bad) = (Upgrade::new(), Upgrade::new());
    for event in good.events().into_iter().chain(bad.events()) {
        assert_eq!(sender.post(bottle.addr(), event).await, Some(200));
    }
    // A handler that fails each time, as a bad release would for this one person.
    let trap = format!(
        "create function trap() returns trigger language plpgsql as $$ begin
             if new.kinde_user_id = '{}' then raise exception 'trap'; end if; return new; end $$",
        bad.user
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(trap)).execute(&ground.pool).await.unwrap();
    let arm = "create trigger trap before insert on accounts for each row execute function trap()";
    sqlx::raw_sql(arm).execute(&ground.pool).await.unwrap();
    let mut worker = ground.start("worker", &[("BOTTLE_LOG", "trace")]).await;
    let failed = "select count(*) from inbox_events where attempts > 0";
    let begun = std::time::Instant::now();
    while count(&ground.pool, failed).await < 3 {
        assert!(begun.elapsed().as_secs() < 20, "{}", worker.log());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    worker.told(Signal::TERM).await;
    let lines = ours(&worker);
    for event in bad.events() {
        let line = lines.iter().find(|line| text(line, "message") == "event failed" && text(line, "event") == event.key);
        let line = line.unwrap_or_else(|| panic!("no line about the failure of {}", event.key));
        assert!(text(line, "error").contains("trap") && !text(line, "event_id").is_empty(), "{line:?}");
        assert!(!text(line, "error").contains(&bad.user), "whose it is is found by the event: {line:?}");
    }
    for event in good.events() {
        assert!(lines.iter().any(|line| text(line, "message") == "event settled" && text(line, "event") == event.key));
    }
}
