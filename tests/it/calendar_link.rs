//! The calendar link: made, shown once, read by a program that knows nothing else, revoked.

use crate::support::app::{Answer, answer};
use crate::support::binary::Home;
use crate::support::db::fresh_db;
use crate::support::writer::{Fields, Writer, between};

async fn make(ada: &Writer) -> String {
    let page = ada.post("/reminders/calendar", &[]).await;
    assert_eq!(page.status, 200);
    let link = between(&page.text, "id=\"link\" type=\"text\" value=\"", "\"");
    assert!(link.starts_with(&ada.app.url("/calendar/")) && link.ends_with(".ics"), "{link}");
    link.to_owned()
}

/// As a calendar program asks: no cookie, nothing but the address.
async fn read(ada: &Writer, link: &str) -> Answer {
    answer(ada.app.http.get(link)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_is_shown_once_and_opens_the_feed() {
    let ada = Writer::start().await;
    ada.schedule(Fields::about("Dentist, at last; bring card")).await;
    assert!(ada.get("/reminders/calendar").await.text.contains("Make a link"));
    let link = make(&ada).await;
    let secret = between(&link, "/calendar/", ".ics");
    assert!(secret.len() >= 32, "{secret}");
    for path in ["/reminders/calendar", "/reminders"] {
        assert!(!ada.get(path).await.text.contains(secret), "{path} shows it again");
    }
    let stored: Vec<String> = sqlx::query_scalar("select t::text from calendar_feeds t union all select t::text from sessions t")
        .fetch_all(&ada.app.pool)
        .await
        .unwrap();
    assert!(!stored.concat().contains(secret), "it is not kept");

    let feed = read(&ada, &link).await;
    assert_eq!((feed.status, feed.headers["content-type"].to_str().unwrap()), (200, "text/calendar; charset=utf-8"));
    assert_eq!(feed.headers["cache-control"], "private, no-cache");
    assert!(feed.headers.get("set-cookie").is_none());
    assert!(feed.text.starts_with("BEGIN:VCALENDAR\r\n") && feed.text.ends_with("END:VCALENDAR\r\n"));
    assert!(feed.text.contains("SUMMARY:Dentist\\, at last\\; bring card"));
    let head = answer(ada.app.http.head(&link)).await;
    assert_eq!((head.status, &head.headers["etag"], head.text.as_str()), (200, &feed.headers["etag"], ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_feed_is_not_sent_again() {
    let ada = Writer::start().await;
    ada.schedule(Fields::about("First")).await;
    let link = make(&ada).await;
    let tag = read(&ada, &link).await.headers["etag"].to_str().unwrap().to_owned();
    let strong = tag.trim_start_matches("W/");
    for known in [tag.as_str(), strong, "*", &format!("\"x\", {tag}")] {
        let same = answer(ada.app.http.get(&link).header("if-none-match", known)).await;
        assert_eq!((same.status, same.text.as_str()), (304, ""), "{known}");
        assert_eq!(same.headers["etag"], tag.as_str());
    }
    ada.schedule(Fields::about("Second")).await;
    let other = answer(ada.app.http.get(&link).header("if-none-match", &tag)).await;
    assert_eq!(other.status, 200);
    assert!(other.text.contains("SUMMARY:Second") && other.headers["etag"] != tag.as_str());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_link_and_one_that_never_was_are_the_same() {
    let ada = Writer::start().await;
    let never = read(&ada, &ada.app.url("/calendar/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA.ics")).await;
    assert_eq!(never.status, 404);
    let first = make(&ada).await;
    let second = make(&ada).await;
    assert_ne!(first, second);
    assert_eq!(read(&ada, &first).await.text, never.text, "another link ends the one before");
    assert_eq!(read(&ada, &second).await.status, 200);

    let revoked = ada.post("/reminders/calendar/revoke", &[]).await;
    assert!(between(&revoked.text, "id=\"said\"", "</div>").contains("is revoked"));
    assert!(revoked.text.contains("Make a link"));
    let after = read(&ada, &second).await;
    assert_eq!((after.status, &after.text), (404, &never.text));
    assert_eq!(ada.post("/reminders/calendar/revoke", &[]).await.status, 200, "once more changes nothing");
    assert_eq!(read(&ada, &make(&ada).await).await.status, 200, "and a new one can be made");

    let secret = between(&second, "/calendar/", ".ics");
    for odd in ["", ".ics", "x", secret, &format!("{secret}.ics.ics"), &"A".repeat(5000), "%00.ics", "..%2f.ics"] {
        let answer = read(&ada, &ada.app.url(&format!("/calendar/{odd}"))).await;
        assert_eq!(answer.status, 404, "{odd}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_opens_one_persons_feed() {
    let ada = Writer::start().await;
    ada.schedule(Fields::about("Mine")).await;
    let other = ada.app.sign_in("kp_ben").await;
    let page = ada.app.post_as(&other, "/reminders/calendar", &[]).await;
    let theirs = between(&page.text, "id=\"link\" type=\"text\" value=\"", "\"").to_owned();
    assert!(!read(&ada, &theirs).await.text.contains("Mine"));
    let mine = make(&ada).await;
    assert!(read(&ada, &mine).await.text.contains("SUMMARY:Mine"));
    assert_eq!(read(&ada, &theirs).await.status, 200, "making one ends only one's own");
    ada.app.post_as(&other, "/reminders/calendar/revoke", &[]).await;
    assert_eq!(read(&ada, &mine).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_link_is_in_no_log() {
    let (home, db) = (Home::new(), fresh_db().await);
    let settings = [("DATABASE_URL", db.url()), ("BOTTLE_LOG", "debug,bottle=trace".to_owned())];
    let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut bottle = home.start(&["web"], &settings).await;
    let secret = "ThisIsTheSecretOfSomebodysFeed00";
    let (status, _) = bottle.get(&format!("/calendar/{secret}.ics")).await;
    assert_eq!(status, 404);
    bottle.ctrl_c().await;
    let log = bottle.log();
    assert!(log.contains("\"level\":\"DEBUG\""), "it was told to say much: {log}");
    assert!(!log.contains(secret), "{log}");
}

#[tokio::test]
async fn the_most_talkative_log_does_not_have_it() {
    let (home, db) = (Home::new(), fresh_db().await);
    let url = db.url();
    let mut bottle = home.start(&["web"], &[("DATABASE_URL", url.as_str()), ("BOTTLE_LOG", "trace")]).await;
    let (status, _) = bottle.get("/calendar/canary-of-a-calendar-link.ics").await;
    assert_eq!(status, 404);
    bottle.told(rustix::process::Signal::TERM).await;
    let log = bottle.log();
    assert!(log.contains("TRACE"), "it is talkative");
    assert!(!log.contains("canary-of-a-calendar-link"), "{log}");
}
