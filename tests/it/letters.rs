//! Letters about due reminders, received by a mail server that speaks SMTP.

use std::sync::Arc;
use std::time::Duration;

use bottle::checkpoint::{Break, Checkpoints, Step};
use bottle::courier::{Courier, Outcome, wait_after};
use bottle::domain::ids::{EventKey, ReminderId};
use bottle::mail::Mail as Sender;
use bottle::reminders::row::{Mail, Status};

use crate::support::desk::Desk;
use crate::support::pipeline::At;
use crate::support::smtp::{Mood, Smtp};

/// Ada, with a proven address and one reminder that has just rung.
async fn rung(text: &str) -> (Desk, ReminderId) {
    let mut desk = Desk::new().await;
    desk.has_address("ada@example.com", true).await;
    let id = desk.plan_in(text, "2026-10-22T09:00", "Europe/Berlin", "never").await.unwrap().id;
    desk.ring("10-22 07:00:00").await;
    (desk, id)
}

async fn mail_of(desk: &Desk, id: ReminderId) -> Mail {
    desk.find(id).await.unwrap().mail
}

#[tokio::test]
async fn a_due_reminder_reaches_its_person_by_mail() {
    let smtp = Smtp::start().await;
    let (desk, id) = rung("Käse & „Brot“ 🧀, then: call mum").await;
    assert_eq!(mail_of(&desk, id).await, Mail::Waiting);
    assert_eq!(desk.courier(&smtp).turn().await.unwrap(), [Outcome::Sent]);
    let received = smtp.received();
    let [letter] = &received[..] else { panic!("{received:?}") };
    assert_eq!((letter.from.as_str(), &letter.to[..]), ("bottle@bottle.test", &["ada@example.com".to_owned()][..]));
    assert_eq!(letter.subject, "Reminder: Käse & „Brot“ 🧀, then: call mum");
    assert_eq!(
        letter.text.trim_end(),
        "Käse & „Brot“ 🧀, then: call mum\n\nThursday, 22 October 2026, 09:00 (Europe/Berlin)\n\n\
         Snooze it or mark it as done: http://localhost:3000/reminders\n\n\
         You get this letter because you asked Bottle to remind you."
    );
    assert!(letter.raw.contains("Auto-Submitted: auto-generated") && letter.id.ends_with("@bottle.test"), "{}", letter.raw);
    assert_eq!(mail_of(&desk, id).await, Mail::Sent);
    assert_eq!(desk.courier(&smtp).turn().await.unwrap(), [], "nothing is left to send");
    let words: i64 = desk.p.value("select count(*) from outbox where payload::text like '%call mum%'").await;
    assert_eq!(words, 0, "what was sent is not kept");
}

#[tokio::test]
async fn nothing_is_sent_to_an_address_that_nobody_proved_or_where_mail_is_not_set_up() {
    let mut desk = Desk::new().await;
    let ids = [
        desk.plan("no address", "2026-10-22T09:00").await.unwrap().id,
        desk.plan("unproven", "2026-10-23T09:00").await.unwrap().id,
        desk.plan("no mail", "2026-10-24T09:00").await.unwrap().id,
    ];
    desk.ring("10-22 09:00:00").await;
    desk.has_address("ada@example.com", false).await;
    desk.ring("10-23 09:00:00").await;
    desk.has_address("ada@example.com", true).await;
    desk.p.at("10-24 09:00:00");
    let silent = bottle::bell::Bell { letters: None, ..desk.bell() };
    assert_eq!(silent.turn().await.unwrap().rang, 1);
    for id in ids {
        let reminder = desk.find(id).await.unwrap();
        assert_eq!((reminder.status, reminder.mail), (Status::Due, Mail::None), "{}", reminder.text);
    }
    assert_eq!(desk.p.value::<i64>("select count(*) from outbox").await, 0);
}

#[tokio::test]
async fn a_server_that_is_away_charges_nobody_and_gets_the_letter_when_it_is_back() {
    let smtp = Smtp::start().await;
    let (mut desk, id) = rung("milk").await;
    let url = smtp.url();
    let away = smtp.away().await;
    let courier = |desk: &Desk| Courier { mail: Sender::new(&url, "bottle@bottle.test").unwrap(), ..courier_of(desk, &url) };
    for _ in 0..10 {
        assert_eq!(courier(&desk).turn().await.unwrap(), [Outcome::PutOff]);
        assert_eq!(courier(&desk).turn().await.unwrap(), [], "not before its wait is over");
        desk.p.later(Duration::from_secs(30));
    }
    assert_eq!(desk.p.value::<i32>("select attempts from outbox").await, 0, "charged");
    let smtp = away.back().await;
    assert_eq!(desk.courier(&smtp).turn().await.unwrap(), [Outcome::Sent]);
    assert_eq!((mail_of(&desk, id).await, smtp.received().len()), (Mail::Sent, 1));
}

fn courier_of(desk: &Desk, url: &str) -> Courier {
    Courier {
        pool: desk.p.pool.clone(),
        mail: Sender::new(url, "bottle@bottle.test").unwrap(),
        checkpoints: Checkpoints::default(),
        clock: desk.clock(),
        lease_secs: bottle::courier::LEASE_SECS,
    }
}

#[tokio::test]
async fn a_server_that_stays_away_for_two_days_is_given_up_and_the_reminder_says_so() {
    let smtp = Smtp::start().await;
    let (mut desk, id) = rung("milk").await;
    let url = smtp.url();
    let _away = smtp.away().await;
    desk.p.at("10-24 06:59:59");
    assert_eq!(courier_of(&desk, &url).turn().await.unwrap(), [Outcome::PutOff]);
    desk.p.at("10-24 07:00:30");
    assert_eq!(courier_of(&desk, &url).turn().await.unwrap(), [Outcome::Dead]);
    let Mail::Failed { error } = mail_of(&desk, id).await else { panic!("it says nothing") };
    assert!(error.starts_with("the mail server is not there for us"), "{error}");
}

#[tokio::test]
async fn a_letter_that_is_put_off_waits_longer_each_time_and_the_sixth_time_is_the_last() {
    let smtp = Smtp::start().await;
    smtp.now(Mood::Refuses(451));
    let (mut desk, id) = rung("milk").await;
    for attempt in 1..=5 {
        assert_eq!(desk.courier(&smtp).turn().await.unwrap(), [Outcome::PutOff], "attempt {attempt}");
        let wait = wait_after(attempt).unwrap();
        desk.p.later((wait - time::Duration::SECOND).unsigned_abs());
        assert_eq!(desk.courier(&smtp).turn().await.unwrap(), [], "before its time, attempt {attempt}");
        desk.p.later(Duration::from_secs(1));
        assert_eq!(mail_of(&desk, id).await, Mail::Waiting);
    }
    assert_eq!(desk.courier(&smtp).turn().await.unwrap(), [Outcome::Dead]);
    let Mail::Failed { error } = mail_of(&desk, id).await else { panic!("it says nothing") };
    assert!(error.starts_with("the mail server put the letter off") && error.contains("not here, not now"), "{error}");
    smtp.now(Mood::Takes);
    desk.p.later(Duration::from_secs(86_400));
    assert_eq!(desk.courier(&smtp).turn().await.unwrap(), [], "dead is dead");
    assert_eq!(desk.p.value::<i32>("select attempts from outbox").await, 6);
    assert_eq!(smtp.received(), []);
    assert_eq!(desk.find(id).await.unwrap().status, Status::Due, "it is due on its page all the same");
}

#[tokio::test]
async fn a_mailbox_that_does_not_exist_is_not_tried_again() {
    let smtp = Smtp::start().await;
    smtp.now(Mood::Refuses(550));
    let (desk, id) = rung("milk").await;
    assert_eq!(desk.courier(&smtp).turn().await.unwrap(), [Outcome::Dead]);
    assert!(
        matches!(mail_of(&desk, id).await, Mail::Failed { error } if error.starts_with("the mail server refused the letter"))
    );
}

#[tokio::test]
async fn a_letter_whose_answer_was_lost_goes_out_again_under_the_same_id() {
    let smtp = Smtp::start().await;
    smtp.now(Mood::HangsUp);
    let (mut desk, id) = rung("milk").await;
    assert_eq!(desk.courier(&smtp).turn().await.unwrap(), [Outcome::PutOff]);
    smtp.now(Mood::Takes);
    desk.p.later(Duration::from_secs(30));
    assert_eq!(desk.courier(&smtp).turn().await.unwrap(), [Outcome::Sent]);
    let received = smtp.received();
    assert!(received.len() == 2 && received[0].id == received[1].id, "{received:?}");
    assert_eq!(mail_of(&desk, id).await, Mail::Sent);
}

#[tokio::test]
async fn a_courier_that_dies_between_sending_and_marking_is_followed_by_one_that_sends_again() {
    let smtp = Smtp::start().await;
    let (mut desk, _) = rung("milk").await;
    let stop_at = |step: Step| {
        Checkpoints::observed_by(Arc::new(At(move |at, _: &[&EventKey]| if at == step { Err(Break::Stop) } else { Ok(()) })))
    };
    let doomed = Courier { checkpoints: stop_at(Step::Taken), ..desk.courier(&smtp) };
    assert_eq!(doomed.turn().await.unwrap(), [Outcome::Stopped]);
    assert_eq!(desk.courier(&smtp).turn().await.unwrap(), [], "its lease has not ended");
    desk.p.later(Duration::from_secs(60));
    let doomed = Courier { checkpoints: stop_at(Step::Sent), ..desk.courier(&smtp) };
    assert_eq!(doomed.turn().await.unwrap(), [Outcome::Stopped]);
    desk.p.later(Duration::from_secs(60));
    assert_eq!(desk.courier(&smtp).turn().await.unwrap(), [Outcome::Sent]);
    let received = smtp.received();
    assert!(received.len() == 2 && received[0].id == received[1].id, "{received:?}");
}

#[tokio::test]
async fn a_courier_that_slept_past_its_lease_notes_nothing() {
    let smtp = Smtp::start().await;
    let (desk, id) = rung("milk").await;
    let pool = desk.p.pool.clone();
    // While the letter is on its way, its lease ends and another courier claims it.
    let robbed = Arc::new(RobbedAtSent(pool));
    let slow = Courier { checkpoints: Checkpoints::observed_by(robbed), ..desk.courier(&smtp) };
    assert_eq!(slow.turn().await.unwrap(), [Outcome::LeaseLost]);
    assert_eq!(mail_of(&desk, id).await, Mail::Waiting, "the other one will say");
}

struct RobbedAtSent(sqlx::PgPool);

impl bottle::checkpoint::Observer for RobbedAtSent {
    fn at<'a>(&'a self, step: Step, _: &'a [&'a EventKey]) -> bottle::checkpoint::Pause<'a> {
        Box::pin(async move {
            if step == Step::Sent {
                sqlx::query("update outbox set lease_token = gen_random_uuid()").execute(&self.0).await.unwrap();
            }
            Ok(())
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_couriers_send_each_letter_once() {
    let smtp = Smtp::start().await;
    let mut desk = Desk::new().await;
    desk.pro_since("10-21 10:00:00").await;
    desk.has_address("ada@example.com", true).await;
    for n in 0..40 {
        desk.plan(&format!("number {n:02}"), "2026-10-22T09:00").await.unwrap();
    }
    desk.ring("10-22 09:00:00").await;
    let deliver = async || {
        let courier = desk.courier(&smtp);
        let mut sent = 0;
        loop {
            let outcomes = courier.turn().await.unwrap();
            if outcomes.is_empty() {
                return sent;
            }
            assert!(outcomes.iter().all(|o| *o == Outcome::Sent), "{outcomes:?}");
            sent += outcomes.len();
        }
    };
    let (one, other) = tokio::join!(deliver(), deliver());
    let mut subjects: Vec<String> = smtp.received().into_iter().map(|letter| letter.subject).collect();
    subjects.sort_unstable();
    let expected: Vec<String> = (0..40).map(|n| format!("Reminder: number {n:02}")).collect();
    assert_eq!((one + other, subjects), (40, expected));
}

#[tokio::test]
async fn a_letter_about_a_reminder_that_was_deleted_stays_here() {
    let smtp = Smtp::start().await;
    let (desk, id) = rung("a secret").await;
    let due = desk.find(id).await.unwrap();
    desk.delete(&due).await.unwrap();
    assert_eq!(desk.courier(&smtp).turn().await.unwrap(), []);
    assert_eq!(desk.p.value::<i64>("select count(*) from outbox where payload::text like '%secret%'").await, 0);
}

#[tokio::test]
async fn a_reminder_that_rang_twice_while_no_mail_went_out_takes_all_its_letters_along_when_it_is_deleted() {
    use bottle::reminders::change::{self, Snooze};
    let smtp = Smtp::start().await;
    smtp.now(Mood::Refuses(451));
    let (mut desk, id) = rung("a secret").await;
    // The first letter is put off, the second is given up, the third has not been tried.
    assert_eq!(desk.courier(&smtp).turn().await.unwrap(), [Outcome::PutOff]);
    for (at, mood) in [("10-22 08:00:00", Some(Mood::Refuses(550))), ("10-22 09:00:00", None)] {
        let due = desk.find(id).await.unwrap();
        desk.commit(async |conn| change::snooze(conn, desk.me, id, due.version, Snooze::Hour, desk.clock()).await).await.unwrap();
        sqlx::query("update outbox set due_at = 'infinity' where dead_at is null").execute(&desk.p.pool).await.unwrap();
        desk.ring(at).await;
        if let Some(mood) = mood {
            smtp.now(mood);
            assert_eq!(desk.courier(&smtp).turn().await.unwrap(), [Outcome::Dead]);
        }
    }
    sqlx::query("update outbox set due_at = $1").bind(desk.p.now.datetime()).execute(&desk.p.pool).await.unwrap();
    assert_eq!(desk.p.value::<i64>("select count(*) from outbox where payload::text like '%secret%'").await, 3);
    // Another one of the same person stays.
    let other = desk.plan("no secret of mine", "2026-10-22T10:00").await.unwrap();
    desk.ring("10-22 10:00:00").await;
    desk.delete(&desk.find(id).await.unwrap()).await.unwrap();
    assert_eq!(desk.p.value::<i64>("select count(*) from outbox where payload::text like '%a secret%'").await, 0);
    smtp.now(Mood::Takes);
    assert_eq!(desk.courier(&smtp).turn().await.unwrap(), [Outcome::Sent]);
    let received = smtp.received();
    assert!(received.len() == 1 && received[0].subject.contains("no secret of mine"), "{received:?}");
    assert_eq!(mail_of(&desk, other.id).await, Mail::Sent);
}

#[tokio::test]
async fn a_snoozed_reminder_is_written_about_each_time_it_rings() {
    use bottle::reminders::change::{self, Snooze};
    let smtp = Smtp::start().await;
    let (mut desk, id) = rung("milk").await;
    desk.courier(&smtp).turn().await.unwrap();
    let due = desk.find(id).await.unwrap();
    desk.commit(async |conn| change::snooze(conn, desk.me, id, due.version, Snooze::Hour, desk.clock()).await).await.unwrap();
    desk.ring("10-22 08:00:00").await;
    desk.courier(&smtp).turn().await.unwrap();
    let received = smtp.received();
    assert!(received.len() == 2 && received[0].id != received[1].id, "{received:?}");
    assert!(received[1].text.contains("Thursday, 22 October 2026, 10:00 (Europe/Berlin)"), "{}", received[1].text);
}

#[tokio::test]
async fn a_reminder_that_is_done_gets_no_letter_that_was_put_off() {
    use bottle::reminders::change;
    let smtp = Smtp::start().await;
    smtp.now(Mood::Refuses(451));
    let (mut desk, id) = rung("a secret").await;
    assert_eq!(desk.courier(&smtp).turn().await.unwrap(), [Outcome::PutOff]);
    let due = desk.find(id).await.unwrap();
    desk.commit(async |conn| change::done(conn, desk.me, id, due.version, desk.clock()).await).await.unwrap();
    smtp.now(Mood::Takes);
    desk.p.later(Duration::from_secs(86_400));
    assert_eq!(desk.courier(&smtp).turn().await.unwrap(), [], "it would remind of what is done");
    assert_eq!((smtp.received(), mail_of(&desk, id).await), (Vec::new(), Mail::None), "and its page waits for none");
    assert_eq!(desk.p.value::<i64>("select count(*) from outbox where payload::text like '%secret%'").await, 0);
    // One whose letter went out keeps saying so.
    let other = desk.plan("milk", "2026-10-24T09:00").await.unwrap();
    desk.ring("10-24 09:00:00").await;
    assert_eq!(desk.courier(&smtp).turn().await.unwrap(), [Outcome::Sent]);
    let due = desk.find(other.id).await.unwrap();
    desk.commit(async |conn| change::done(conn, desk.me, other.id, due.version, desk.clock()).await).await.unwrap();
    assert_eq!(mail_of(&desk, other.id).await, Mail::Sent);
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_mail_server_that_fell_silent_and_gives_its_letter_back() {
    let (desk, _) = rung("milk").await;
    let silent = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let courier = courier_of(&desk, &format!("smtp://{}", silent.local_addr().unwrap()));
    let stop = tokio_util::sync::CancellationToken::new();
    let running = tokio::spawn(bottle::courier::run(courier, stop.clone()));
    let _taken = silent.accept().await.unwrap();
    assert_eq!(desk.p.value::<i64>("select count(*) from outbox where lease_token is not null").await, 1);
    let began = std::time::Instant::now();
    stop.cancel();
    running.await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let due = "select count(*) from outbox where lease_token is null and attempts = 0 and sent_at is null and dead_at is null";
    assert_eq!(desk.p.value::<i64>(due).await, 1);
    // The next courier need not wait for a lease to end.
    let smtp = Smtp::start().await;
    assert_eq!(desk.courier(&smtp).turn().await.unwrap(), [Outcome::Sent]);
}
