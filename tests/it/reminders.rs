//! Reminders as a person meets them: asked for once however often the button is pressed, changed in one tab at a time, found again.

use std::sync::Arc;

use bottle::bell::{self, Bell};
use bottle::checkpoint::Checkpoints;
use bottle::domain::ids::EventKey;
use bottle::reminders::Error;
use bottle::reminders::change::{self, Snooze};
use bottle::reminders::draft::Draft;
use bottle::reminders::list::{self, Counts, Cursor, List};
use bottle::reminders::row::{PausedFor, Reminder, Status};
use bottle::reminders::schedule::schedule;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::support::desk::{Desk, person};
use crate::support::pipeline::At;

fn milk() -> Draft {
    Draft::new("milk", "2026-10-22T09:00", "Europe/Berlin", "never").unwrap()
}

#[tokio::test]
async fn a_form_that_is_sent_again_is_one_reminder_and_one_bottle() {
    let mut desk = Desk::new().await;
    let form = Uuid::new_v4();
    let first = desk.ask(&milk(), form).await.unwrap();
    assert!(!first.again && first.bottles.left == 9);
    // Pressed once more, after the answer was lost, also when the time has passed meanwhile.
    desk.p.at("10-23 12:00:00");
    let second = desk.ask(&milk(), form).await.unwrap();
    assert!(second.again && second.reminder == first.reminder && second.bottles.left == 9);
    assert_eq!(desk.all(List::Upcoming).await.len(), 1);
    assert_eq!(desk.ledger().await, "free:2026-10 +10, spend:1:1 of 2026-10 -1");
}

#[tokio::test]
async fn two_tabs_that_send_one_form_at_once_make_one_reminder() {
    let desk = Desk::new().await;
    for _ in 0..10 {
        let (form, draft) = (Uuid::new_v4(), milk());
        let (one, other) = tokio::join!(desk.ask(&draft, form), desk.ask(&draft, form));
        let (one, other) = (one.unwrap(), other.unwrap());
        assert!(one.reminder == other.reminder && one.again != other.again);
    }
    assert_eq!(desk.all(List::Upcoming).await.len(), 10);
    assert_eq!(desk.bottles().await.left, 0);
}

#[tokio::test]
async fn the_form_of_somebody_else_is_another_form() {
    let desk = Desk::new().await;
    let other = person(&desk.p, "bob").await;
    let form = Uuid::new_v4();
    let mine = desk.ask(&milk(), form).await.unwrap();
    let asked = desk.commit(async |conn| {
        bottle::reminders::schedule::schedule(conn, other, &milk(), form, &desk.p.rules, desk.clock()).await
    });
    let theirs = asked.await.unwrap();
    assert!(!theirs.again && theirs.reminder.id != mine.reminder.id);
    assert_eq!(desk.all(List::Upcoming).await, [mine.reminder]);
}

#[tokio::test]
async fn a_transaction_that_is_given_up_leaves_neither_reminder_nor_entry() {
    let desk = Desk::new().await;
    let mut tx = desk.p.pool.begin().await.unwrap();
    bottle::reminders::schedule::schedule(&mut tx, desk.me, &milk(), Uuid::new_v4(), &desk.p.rules, desk.clock()).await.unwrap();
    drop(tx);
    assert_eq!((desk.all(List::Upcoming).await.len(), desk.ledger().await.as_str()), (0, ""));
}

#[tokio::test]
async fn an_edit_keeps_the_bottle_and_a_stale_tab_overwrites_nothing() {
    let desk = Desk::new().await;
    let old = desk.plan("milk", "2026-10-22T09:00").await.unwrap();
    let edit = async |version: i32, draft: &Draft| {
        desk.commit(async |conn| change::edit(conn, desk.me, old.id, version, draft, desk.clock()).await).await
    };
    let oat = Draft::new("oat milk", "2026-10-23T10:00", "Europe/Berlin", "weekly").unwrap();
    let new = edit(old.version, &oat).await.unwrap();
    assert_eq!((new.text.as_str(), new.due_at.to_string().as_str()), ("oat milk", "2026-10-23 8:00:00.0 +00:00:00"));
    // The same form once more is the same edit; another form of that age is not heard.
    assert_eq!(edit(old.version, &oat).await.unwrap(), new);
    let Err(Error::Changed(now)) = edit(old.version, &milk()).await else { panic!("a stale tab was heard") };
    assert_eq!(*now, new);
    let Err(Error::Changed(_)) = desk.delete(&old).await else { panic!("what was not seen was deleted") };
    assert_eq!(desk.bottles().await.left, 9);
}

#[tokio::test]
async fn a_monthly_one_that_is_reworded_in_a_short_month_keeps_its_day() {
    let mut desk = Desk::new().await;
    desk.plan_in("rent", "2026-10-31T09:00", "UTC", "monthly").await.unwrap();
    desk.ring("10-31 09:00:00").await;
    let next = desk.all(List::Upcoming).await.remove(0);
    assert_eq!((next.local.to_string().as_str(), next.month_day), ("2026-11-30T09:00:00", 31));
    let draft = Draft::new("the rent", "2026-11-30T09:00", "UTC", "monthly").unwrap();
    let edited = desk.commit(async |conn| change::edit(conn, desk.me, next.id, next.version, &draft, desk.clock()).await).await;
    assert_eq!(edited.unwrap().month_day, 31);
}

#[tokio::test]
async fn a_snooze_rings_once_more_and_takes_no_bottle_however_often_it_is_pressed() {
    let mut desk = Desk::new().await;
    let milk = desk.plan_in("milk", "2026-10-22T09:00", "Europe/Berlin", "never").await.unwrap();
    let early = desk.commit(async |conn| change::snooze(conn, desk.me, milk.id, 1, Snooze::Hour, desk.clock()).await).await;
    assert!(matches!(early, Err(Error::NotNow(_))), "it has not rung: {early:?}");
    desk.ring("10-22 07:00:00").await;
    let due = desk.find(milk.id).await.unwrap();
    assert_eq!((due.status, due.rung), (Status::Due, 1));
    let snooze = async |version: i32, span: Snooze| {
        desk.commit(async |conn| change::snooze(conn, desk.me, milk.id, version, span, desk.clock()).await).await
    };
    let put_off = snooze(due.version, Snooze::Hour).await.unwrap();
    assert_eq!(snooze(due.version, Snooze::Hour).await.unwrap(), put_off, "pressed twice");
    assert!(matches!(snooze(due.version, Snooze::TenMinutes).await, Err(Error::Changed(_))));
    assert!(put_off.is_snoozed() && put_off.due_at.to_string() == "2026-10-22 8:00:00.0 +00:00:00");
    // Over the night in which clocks go back: at its own time of day.
    desk.p.at("10-24 20:00:00");
    let tomorrow = snooze_of(&desk, &put_off, Snooze::Tomorrow).await;
    assert_eq!(
        (tomorrow.shown().to_string().as_str(), tomorrow.due_at.to_string().as_str()),
        ("2026-10-25T09:00:00", "2026-10-25 8:00:00.0 +00:00:00")
    );
    desk.ring("10-25 08:00:00").await;
    assert_eq!(desk.find(milk.id).await.unwrap().rung, 2);
    assert_eq!(desk.ledger().await, "free:2026-10 +10, spend:1:1 of 2026-10 -1");
    let late = desk.find(milk.id).await.unwrap();
    assert_eq!(desk.delete(&late).await.unwrap().returned_to, None, "it was sent");
}

async fn snooze_of(desk: &Desk, reminder: &Reminder, span: Snooze) -> Reminder {
    desk.commit(async |conn| change::snooze(conn, desk.me, reminder.id, reminder.version, span, desk.clock()).await)
        .await
        .unwrap()
}

#[tokio::test]
async fn done_twice_is_done_and_only_what_rang_can_be() {
    let mut desk = Desk::new().await;
    let milk = desk.plan("milk", "2026-10-22T09:00").await.unwrap();
    let done = async |desk: &Desk, version: i32| {
        desk.commit(async |conn| change::done(conn, desk.me, milk.id, version, desk.clock()).await).await
    };
    assert!(matches!(done(&desk, 1).await, Err(Error::NotNow(_))));
    desk.ring("10-22 09:00:30").await;
    assert!(matches!(done(&desk, 1).await, Err(Error::Changed(_))), "it rang since that page was loaded");
    let first = done(&desk, 2).await.unwrap();
    assert_eq!((first.status, first.done_at), (Status::Done, Some(desk.p.now.datetime())));
    assert_eq!(done(&desk, 2).await.unwrap(), first);
    assert_eq!(done(&desk, 1).await.unwrap(), first, "another tab: it is what they wanted");
    assert_eq!(list::counts(&desk.p.pool, desk.me).await.unwrap(), Counts { upcoming: 0, due: 0, done: 1 });
}

#[tokio::test]
async fn what_is_deleted_is_gone_with_its_words() {
    let desk = Desk::new().await;
    let secret = desk.plan("a secret", "2026-10-22T09:00").await.unwrap();
    desk.delete(&secret).await.unwrap();
    assert_eq!(desk.find(secret.id).await, None);
    let kept: i64 = desk.p.value("select count(*) from reminders where text || search like '%secret%'").await;
    assert_eq!(kept, 0);
    assert_eq!(desk.ledger().await, "free:2026-10 +10, spend:1:1 of 2026-10 -1, return:1:1 of 2026-10 +1");
}

#[tokio::test]
async fn nobody_reaches_the_reminder_of_somebody_else() {
    let mut desk = Desk::new().await;
    let mine = desk.plan("milk", "2026-10-22T09:00").await.unwrap();
    desk.ring("10-22 09:00:00").await;
    let mine = desk.find(mine.id).await.unwrap();
    let eve = person(&desk.p, "eve").await;
    let (id, version, clock) = (mine.id, mine.version, desk.clock());
    assert_eq!(list::find(&desk.p.pool, eve, id).await.unwrap(), None);
    let draft = Draft::new("mine", "2026-11-22T09:00", "UTC", "never").unwrap();
    let tries = [
        desk.commit(async |conn| change::edit(conn, eve, id, version, &draft, clock).await.map(drop)).await,
        desk.commit(async |conn| change::snooze(conn, eve, id, version, Snooze::Hour, clock).await.map(drop)).await,
        desk.commit(async |conn| change::done(conn, eve, id, version, clock).await.map(drop)).await,
        desk.commit(async |conn| change::resume(conn, eve, id, version, &desk.p.rules, clock).await.map(drop)).await,
        desk.commit(async |conn| change::delete(conn, eve, id, version, clock).await.map(drop)).await,
    ];
    assert!(tries.iter().all(|tried| matches!(tried, Err(Error::NotFound))), "{tries:?}");
    assert_eq!(desk.find(id).await.unwrap(), mine);
}

#[tokio::test]
async fn a_search_takes_every_character_at_its_word_in_any_case() {
    let mut desk = Desk::new().await;
    desk.pro_since("10-21 10:00:00").await;
    for text in ["50% off", "500 off", "snake_case", "snakeXcase", r"back\slash", "ÄRZTE anrufen", "straße"] {
        desk.plan(text, "2026-10-22T09:00").await.unwrap();
    }
    let found = async |search: &str| {
        let page = list::page(&desk.p.pool, desk.me, List::Upcoming, search, None, 50).await.unwrap();
        page.reminders.into_iter().map(|r| r.text).collect::<Vec<_>>().join("|")
    };
    assert_eq!(found("50%").await, "50% off");
    assert_eq!(found("E_C").await, "snake_case");
    assert_eq!(found(r"k\S").await, r"back\slash");
    assert_eq!(found(" ärzte ").await, "ÄRZTE anrufen");
    assert_eq!(found("STRAßE").await, "straße");
    assert_eq!(found("'; drop table reminders; --").await, "");
    assert_eq!(found("").await.split('|').count(), 7);
}

#[tokio::test]
async fn pages_of_a_list_leave_nothing_out_and_show_nothing_twice() {
    let mut desk = Desk::new().await;
    desk.pro_since("10-21 10:00:00").await;
    // Several at one moment, so that the moment alone is no place to go on from.
    for n in 0..23 {
        desk.plan(&format!("number {n:02}"), &format!("2026-10-2{}T09:00", 2 + n % 3)).await.unwrap();
    }
    desk.ring("10-23 10:00:00").await;
    for (of, expected) in [(List::Upcoming, 7), (List::Due, 16)] {
        let (mut seen, mut after) = (Vec::new(), None::<Cursor>);
        loop {
            let page = list::page(&desk.p.pool, desk.me, of, "number", after, 5).await.unwrap();
            seen.extend(page.reminders.into_iter().map(|r| (r.due_at, r.id)));
            // As it comes back from an address.
            match page.next {
                Some(next) => after = Some(next.to_string().parse().unwrap()),
                None => break,
            }
        }
        assert_eq!(seen.len(), expected);
        let sorted = seen.is_sorted_by(|a, b| if of == List::Upcoming { a < b } else { a > b });
        assert!(sorted, "{seen:?}");
    }
    for nonsense in ["", "1", "x.1", "9223372036854775807.1", "1.x"] {
        assert!(nonsense.parse::<Cursor>().is_err(), "{nonsense}");
    }
}

#[tokio::test]
async fn a_page_that_watches_sees_a_number_grow_with_everything_that_happens() {
    let mut desk = Desk::new().await;
    let mut last = -1;
    let mut grows = async |desk: &Desk, what: &str| {
        let now = bottle::accounts::versions(&desk.p.pool, &[desk.me]).await.unwrap()[&desk.me];
        assert!(now > last, "{what}");
        last = now;
    };
    grows(&desk, "it is there").await;
    let milk = desk.plan_in("milk", "2026-10-22T09:00", "UTC", "never").await.unwrap();
    grows(&desk, "scheduled").await;
    desk.ring("10-22 09:00:00").await;
    grows(&desk, "rang").await;
    let due = desk.find(milk.id).await.unwrap();
    let put_off = snooze_of(&desk, &due, Snooze::TenMinutes).await;
    grows(&desk, "snoozed").await;
    desk.delete(&put_off).await.unwrap();
    grows(&desk, "deleted").await;
    desk.pro_since("10-21 10:00:00").await;
    grows(&desk, "the plan changed").await;
    desk.p.run(&crate::support::claims::says("ada", "new", "10-21 11:00:00 registered")).await;
    grows(&desk, "an event that changes nothing is in the log").await;
}

#[tokio::test]
async fn a_repeat_takes_a_bottle_each_time_and_pauses_when_none_is_left() {
    let mut desk = Desk::new().await;
    let daily = desk.plan_in("pill", "2026-10-22T09:00", "Europe/Berlin", "daily").await.unwrap();
    for n in 0..8 {
        desk.plan(&format!("other {n}"), "2026-12-22T09:00").await.unwrap();
    }
    assert_eq!(desk.ring("10-22 07:00:00").await.rang, 1);
    assert_eq!(desk.bottles().await.left, 0, "the next one has the last");
    assert_eq!(desk.ring("10-23 07:00:00").await.rang, 1);
    let upcoming = desk.all(List::Upcoming).await;
    let paused = &upcoming[0];
    assert_eq!((paused.series, paused.n, paused.status, paused.period), (daily.id, 3, Status::Paused(PausedFor::Bottles), None));
    assert_eq!(desk.ring("10-24 07:00:00").await.rang, 0, "it is paused");
    let resume = async |desk: &Desk, version: i32| {
        desk.commit(async |conn| change::resume(conn, desk.me, paused.id, version, &desk.p.rules, desk.clock()).await).await
    };
    let Err(Error::NoBottles(none)) = resume(&desk, 1).await else { panic!("there was none") };
    assert_eq!(none.left, 0);
    // A new month, after clocks went back: it goes on at nine.
    desk.p.at("11-01 12:00:00");
    let going = resume(&desk, 1).await.unwrap();
    assert_eq!(resume(&desk, 1).await.unwrap(), going, "pressed twice");
    assert_eq!((going.status, going.due_at.to_string().as_str()), (Status::Scheduled, "2026-11-02 8:00:00.0 +00:00:00"));
    assert!(desk.ledger().await.ends_with("free:2026-11 +10, spend:1:3 of 2026-11 -1"), "{}", desk.ledger().await);
    assert_eq!(desk.ring("11-02 08:00:00").await.rang, 1);
    assert_eq!(desk.bottles().await.used, 2);
}

#[tokio::test]
async fn after_a_week_without_a_process_a_daily_one_rings_once_and_goes_on() {
    let mut desk = Desk::new().await;
    desk.plan_in("pill", "2026-10-22T09:00", "Europe/Berlin", "daily").await.unwrap();
    assert_eq!(desk.ring("10-29 12:00:00").await.rang, 1);
    assert_eq!(desk.ring("10-29 12:00:01").await.rang, 0);
    let next = desk.all(List::Upcoming).await.remove(0);
    assert_eq!((next.n, next.due_at.to_string().as_str()), (2, "2026-10-30 8:00:00.0 +00:00:00"));
    assert_eq!(desk.bottles().await.used, 2);
}

#[tokio::test]
async fn a_repeat_that_is_snoozed_rings_again_and_goes_on_only_once() {
    let mut desk = Desk::new().await;
    let pill = desk.plan_in("pill", "2026-10-22T09:00", "UTC", "daily").await.unwrap();
    desk.ring("10-22 09:00:00").await;
    let due = desk.find(pill.id).await.unwrap();
    let next = desk.all(List::Upcoming).await.remove(0);
    desk.delete(&next).await.unwrap();
    // The repeat was ended; that this occurrence is put off does not begin it again.
    snooze_of(&desk, &due, Snooze::Hour).await;
    assert_eq!(desk.ring("10-22 10:00:00").await.rang, 1);
    assert_eq!(desk.all(List::Upcoming).await, []);
    assert_eq!(desk.bottles().await.used, 1);
}

#[tokio::test]
async fn a_repeat_whose_zone_is_no_longer_known_rings_and_then_says_so() {
    let mut desk = Desk::new().await;
    let milk = desk.plan_in("milk", "2026-10-22T09:00", "UTC", "daily").await.unwrap();
    sqlx::query("update reminders set zone = 'Europe/Atlantis'").execute(&desk.p.pool).await.unwrap();
    assert_eq!(desk.ring("10-22 09:00:00").await.rang, 1);
    assert_eq!(desk.find(milk.id).await.unwrap().status, Status::Due);
    let paused = desk.all(List::Upcoming).await.remove(0);
    assert_eq!(paused.status, Status::Paused(PausedFor::Zone));
    let resumed = desk.commit(async |conn| change::resume(conn, desk.me, paused.id, 1, &desk.p.rules, desk.clock()).await).await;
    assert!(matches!(resumed, Err(Error::Invalid(_))), "{resumed:?}");
    // Edited to a zone that is known, it can go on.
    let draft = Draft::new("milk", "2026-10-23T09:00", "UTC", "daily").unwrap();
    let edited = desk.commit(async |conn| change::edit(conn, desk.me, paused.id, 1, &draft, desk.clock()).await).await.unwrap();
    let resumed = desk
        .commit(async |conn| change::resume(conn, desk.me, edited.id, edited.version, &desk.p.rules, desk.clock()).await)
        .await;
    assert_eq!(resumed.unwrap().status, Status::Scheduled);
}

#[tokio::test]
async fn two_bells_at_once_ring_each_reminder_once() {
    let mut desk = Desk::new().await;
    desk.pro_since("10-21 10:00:00").await;
    for n in 0..20 {
        desk.plan_in(&format!("number {n}"), "2026-10-22T09:00", "UTC", "daily").await.unwrap();
    }
    desk.p.at("10-22 09:00:00");
    let (one, other) = (desk.bell(), desk.bell());
    let (one, other) = tokio::join!(one.turn(), other.turn());
    assert_eq!(one.unwrap().rang + other.unwrap().rang, 20);
    let rung: i64 = desk.p.value("select count(*) from reminders where rung = 1 and status = 'due'").await;
    let next: i64 = desk.p.value("select count(*) from reminders where n = 2 and status = 'scheduled'").await;
    assert_eq!((rung, next, desk.bottles().await.used), (20, 20, 40));
}

#[tokio::test]
async fn a_stop_is_heeded_between_two_accounts_however_many_wait() {
    let mut desk = Desk::new().await;
    desk.plan("mine", "2026-10-22T09:00").await.unwrap();
    for n in 0..5 {
        let me = person(&desk.p, &format!("other{n}")).await;
        let draft = Draft::new("theirs", "2026-10-22T09:00", "UTC", "never").unwrap();
        desk.commit(async |conn| schedule(conn, me, &draft, Uuid::new_v4(), &desk.p.rules, desk.clock()).await).await.unwrap();
    }
    desk.p.at("10-22 09:00:00");
    let stop = CancellationToken::new();
    let told = stop.clone();
    let observer = At(move |_, _: &[&EventKey]| {
        told.cancel();
        Ok(())
    });
    bell::run(Bell { checkpoints: Checkpoints::observed_by(Arc::new(observer)), ..desk.bell() }, stop).await;
    assert_eq!(desk.p.value::<i64>("select count(*) from reminders where status = 'due'").await, 1);
    assert_eq!(desk.bell().turn().await.unwrap().rang, 5, "the rest is there for the next process");
}

#[tokio::test]
async fn accounts_that_give_trouble_each_time_keep_nobody_behind_them_from_ringing() {
    let mut desk = Desk::new().await;
    desk.plan("milk", "2026-10-22T09:00").await.unwrap();
    // More than are looked for at once, all of them overdue for longer, none of which can ever ring.
    let troubled = "
        insert into accounts (tenant, kinde_user_id, created_at) select 'test', 'kp_troubled_' || n, now() from generate_series(1, 230) n;
        insert into reminders (account_id, series, n, text, search, zone, local, month_day, repeat, due_at, status, created_at, changed_at)
            select id, 1000 + id, 1, 'x', 'x', 'UTC', '2026-10-22', 22, 'never', '2026-10-22T00:00:00Z', 'scheduled', now(), now()
            from accounts where kinde_user_id like 'kp_troubled_%';
        create function trouble() returns trigger language plpgsql as 'begin raise exception ''trouble''; end';
        create trigger trouble before update on reminders for each row when (old.text = 'x') execute function trouble()";
    sqlx::raw_sql(troubled).execute(&desk.p.pool).await.unwrap();
    let turn = desk.ring("10-22 09:00:00").await;
    assert_eq!((turn.rang, turn.left), (1, 230), "{turn:?}");
}
