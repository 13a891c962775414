//! The real process, killed at every step that a due reminder takes, and the next one, which has to make everything right.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use bottle::accounts;
use bottle::billing::apply::Rules;
use bottle::checkpoint::Step;
use bottle::clock::Clock;
use bottle::domain::ids::{AccountId, KindeUserId};
use bottle::domain::instant::Instant as Moment;
use bottle::domain::plan::PlanKeys;
use bottle::domain::zone::Zone;
use bottle::reminders::draft::Draft;
use bottle::reminders::schedule::schedule;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::support::load::Ground;
use crate::support::smtp::Smtp;

#[tokio::test]
#[cfg_attr(not(debug_assertions), ignore = "a release cannot be told to die")]
async fn killed_at_each_step_of_a_due_reminder_it_delivers_it_and_takes_each_bottle_once() {
    let (ground, smtp) = (Ground::new().await, Smtp::start().await);
    let url = smtp.url();
    let mail = [("SMTP_URL", url.as_str()), ("MAIL_FROM", "Bottle <bottle@bottle.test>")];
    for (n, step) in Step::OF_REMINDERS.into_iter().enumerate() {
        let wish = format!("{step}:1");
        let mut doomed = ground.start("worker", &[&mail[..], &[("BOTTLE_DIE_AT", &wish)]].concat()).await;
        let me = due_daily(&ground, &step.to_string()).await;
        let status = doomed.ended().await;
        assert_eq!(status.signal(), Some(9), "{wish} was not met: {status}\n{}", doomed.log());

        let rung: i64 = scalar(&ground, me, "select count(*) from reminders where account_id = $1 and status = 'due'").await;
        let expected = i64::from(!matches!(step, Step::Ringing | Step::Rung));
        assert_eq!(rung, expected, "{wish}: all of a ringing, or nothing");
        sqlx::query("update outbox set due_at = now() where lease_token is not null").execute(&ground.pool).await.unwrap();

        let alive = ground.start("worker", &mail).await;
        let began = Instant::now();
        while scalar(&ground, me, "select count(*) from outbox where account_id = $1 and sent_at is not null").await == 0 {
            assert!(began.elapsed() < Duration::from_secs(30), "{wish}: not delivered\n{}", alive.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        drop(alive);
        let entries: Vec<(String, i64)> =
            sqlx::query_as("select regexp_replace(entry_key, ':.*:', ':'), delta from ledger where account_id = $1 order by id")
                .bind(me.0)
                .fetch_all(&ground.pool)
                .await
                .unwrap();
        let said: Vec<String> = entries.iter().map(|(key, delta)| format!("{key} {delta:+}")).collect();
        let spends: Vec<&String> = said.iter().filter(|entry| entry.starts_with("spend")).collect();
        assert_eq!(spends, ["spend:1 -1", "spend:2 -1"], "{wish}: {said:?}");
        let rows: Vec<(i32, String, i32, String)> =
            sqlx::query_as("select n, status, rung, mail from reminders where account_id = $1 order by n")
                .bind(me.0)
                .fetch_all(&ground.pool)
                .await
                .unwrap();
        let row = |n, status: &str, rung, mail: &str| (n, status.to_owned(), rung, mail.to_owned());
        assert_eq!(rows, [row(1, "due", 1, "sent"), row(2, "scheduled", 0, "none")], "{wish}");

        // Killed after the server had it, it comes a second time, and can be told by its id.
        let letters: Vec<_> = smtp.received().into_iter().filter(|l| l.to == [address(&step.to_string())]).collect();
        assert_eq!(letters.len(), if step == Step::Sent { 2 } else { 1 }, "{wish}, the {n}th: {letters:?}");
        let ids: BTreeSet<&str> = letters.iter().map(|letter| letter.id.as_str()).collect();
        assert_eq!(ids.len(), 1, "{wish}: {letters:?}");
    }
}

#[tokio::test]
async fn a_reminder_that_fell_due_while_no_process_ran_is_delivered_by_the_next_and_a_stop_is_orderly() {
    let (ground, smtp) = (Ground::new().await, Smtp::start().await);
    let me = due_daily(&ground, "sleeper").await;
    let url = smtp.url();
    let mut worker = ground.start("worker", &[("SMTP_URL", &url), ("MAIL_FROM", "bottle@bottle.test")]).await;
    let began = Instant::now();
    while smtp.received().is_empty() {
        assert!(began.elapsed() < Duration::from_secs(30), "not delivered\n{}", worker.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (status, took) = worker.told(rustix::process::Signal::TERM).await;
    assert!(status.code() == Some(0) && took < Duration::from_secs(15), "{status} after {took:?}\n{}", worker.log());
    assert_eq!(scalar(&ground, me, "select count(*) from reminders where account_id = $1 and mail = 'sent'").await, 1);
    assert!(!worker.log().contains("a reminder of"), "what people write does not go to the log:\n{}", worker.log());
}

fn address(user: &str) -> String {
    format!("{user}@example.com")
}

/// A daily reminder that was asked for an hour ago and fell due a minute after that.
async fn due_daily(ground: &Ground, user: &str) -> AccountId {
    let then = OffsetDateTime::now_utc() - time::Duration::HOUR;
    let local = Zone::utc().local(then + time::Duration::MINUTE).strftime("%Y-%m-%dT%H:%M:%S").to_string();
    let draft = Draft::new(&format!("a reminder of {user}"), &local, "UTC", "daily").unwrap();
    let rules = Rules { keys: PlanKeys::default(), tenant: "test".to_owned() };
    let mut tx = ground.pool.begin().await.unwrap();
    let user = KindeUserId(user.to_owned());
    let made = accounts::create(&mut tx, "test", &BTreeSet::from([user.clone()]), then).await.unwrap();
    let me = made[&user];
    accounts::greet(&mut tx, me, Some(&address(user.as_str())), true, None).await.unwrap();
    schedule(&mut tx, me, &draft, Uuid::new_v4(), &rules, Clock::At(Moment::from_datetime(then))).await.unwrap();
    tx.commit().await.unwrap();
    me
}

async fn scalar(ground: &Ground, me: AccountId, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).bind(me.0).fetch_one(&ground.pool).await.unwrap()
}
