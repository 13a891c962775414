//! What is done to a reminder on its pages: done, snooze, edit, resume, delete, twice and from two tabs.

use crate::support::writer::{Fields, Writer, between, hidden, list};

#[tokio::test(flavor = "multi_thread")]
async fn a_due_reminder_stands_on_top_and_is_done() {
    let ada = Writer::start().await;
    let id = ada.schedule(Fields::about("Take the cake out")).await;
    ada.ring(id).await;
    let page = ada.get("/reminders").await;
    assert!(page.text.contains("<title>(1) Reminders"));
    assert!(list(&page.text, "due").contains("Take the cake out"));
    assert!(between(&page.text, "data-live=\"due-said\"", "</p>").contains("One reminder is due: Take the cake out"));

    let version = ada.version(id).await.to_string();
    let form = [("version", version.as_str())];
    let done = ada.post(&format!("/reminders/{id}/done"), &form).await;
    assert!(between(&done.text, "id=\"said\"", "</div>").contains("Done."));
    assert!(list(&done.text, "done").contains("Take the cake out"));
    assert!(done.text.contains("Nothing is due"));
    // The button again, from the page as it was.
    assert!(ada.post(&format!("/reminders/{id}/done"), &form).await.text.contains("Done."));
    assert_eq!((ada.status(id).await.as_str(), ada.counts().await), ("done", (1, 1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_due_reminder_is_snoozed_once_however_often_the_button_is_pressed() {
    let ada = Writer::start().await;
    for (span, least, most) in [("10m", 9, 11), ("1h", 59, 61), ("1d", 0, 49 * 60)] {
        let id = ada.schedule(Fields::about("Snooze me")).await;
        ada.ring(id).await;
        let version = ada.version(id).await.to_string();
        let form = [("version", version.as_str()), ("for", span)];
        let page = ada.post(&format!("/reminders/{id}/snooze"), &form).await;
        assert!(between(&page.text, "id=\"said\"", "</div>").contains("Snoozed. It rings once more:"), "{span}");
        assert!(list(&page.text, "upcoming").contains("Snoozed"), "{span}");
        let again = ada.post(&format!("/reminders/{id}/snooze"), &form).await;
        assert!(again.text.contains("Snoozed. It rings once more:"), "{span}");
        let minutes: f64 =
            sqlx::query_scalar("select extract(epoch from due_at - now())::float8 / 60 from reminders where id = $1")
                .bind(id)
                .fetch_one(&ada.app.pool)
                .await
                .unwrap();
        assert!((f64::from(least)..f64::from(most)).contains(&minutes), "{span}: {minutes}");
    }
    let id = ada.schedule(Fields::about("Snooze me well")).await;
    ada.ring(id).await;
    for span in ["", "never", "9999999d", "-1h"] {
        assert_eq!(ada.press(id, "snooze", &[("for", span)]).await.status, 400, "{span}");
    }
    assert_eq!(ada.status(id).await, "due");
    assert_eq!(ada.counts().await, (4, 4), "snoozing takes no bottle");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reminder_is_edited_and_keeps_its_bottle() {
    let ada = Writer::start().await;
    let id = ada.schedule(Fields::about("Old words")).await;
    let page = ada.get(&format!("/reminders/{id}")).await;
    assert!(page.text.contains("value=\"Old words\"") && page.text.contains("value=\"12:00\""));
    let form = Fields::about("New words").with("version", hidden(&page.text, "version")).with("repeat", "daily");
    let saved = ada.post(&format!("/reminders/{id}"), &form.pairs()).await;
    assert!(between(&saved.text, "id=\"said\"", "</div>").contains("Saved. It rings: tomorrow 12:00"));
    assert!(list(&saved.text, "upcoming").contains("New words") && list(&saved.text, "upcoming").contains("every day"));
    // The same form again is the same edit.
    assert!(ada.post(&format!("/reminders/{id}"), &form.pairs()).await.text.contains("Saved."));
    assert_eq!((ada.version(id).await, ada.counts().await), (2, (1, 1)));

    let wrong = Fields::about("").with("version", "2");
    let back = ada.post(&format!("/reminders/{id}"), &wrong.pairs()).await;
    assert_eq!(back.status, 422);
    assert!(between(&back.text, "id=\"f-text\"", ">").contains("aria-invalid=\"true\""));
    assert_eq!(hidden(&back.text, "version"), "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_never_overwrites_another_tabs() {
    let ada = Writer::start().await;
    let id = ada.schedule(Fields::about("First")).await;
    let path = format!("/reminders/{id}");
    let (one, two) = (ada.get(&path).await, ada.get(&path).await);
    let from_one = Fields::about("From tab one").with("version", hidden(&one.text, "version"));
    assert_eq!(ada.post(&path, &from_one.pairs()).await.status, 200);
    let from_two = Fields::about("From tab two").with("version", hidden(&two.text, "version"));
    let clash = ada.post(&path, &from_two.pairs()).await;
    assert_eq!(clash.status, 409);
    assert!(clash.text.contains("<bdi>From tab one</bdi>") && clash.text.contains("value=\"From tab two\""), "both are shown");
    assert!(list(&ada.get("/reminders").await.text, "upcoming").contains("From tab one"));

    // The form that came back knows what it overwrites.
    let over = Fields::about("From tab two").with("version", hidden(&clash.text, "version"));
    assert!(ada.post(&path, &over.pairs()).await.text.contains("Saved."));
    assert!(list(&ada.get("/reminders").await.text, "upcoming").contains("From tab two"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_one_that_rang_meanwhile_can_become_a_new_one() {
    let ada = Writer::start().await;
    let id = ada.schedule(Fields::about("Rings soon")).await;
    let page = ada.get(&format!("/reminders/{id}")).await;
    ada.ring(id).await;
    let form = Fields::about("Better words").with("version", hidden(&page.text, "version"));
    let late = ada.post(&format!("/reminders/{id}"), &form.pairs()).await;
    assert_eq!(late.status, 409);
    assert!(late.text.contains("It has rung since") && late.text.contains("action=\"/reminders\""));
    let new = Fields::about("Better words").with("key", hidden(&late.text, "key"));
    assert!(ada.post("/reminders", &new.pairs()).await.text.contains("Scheduled: tomorrow 12:00."));
    assert_eq!(ada.counts().await, (2, 2));
    let details = ada.get(&format!("/reminders/{id}")).await;
    assert!(!details.text.contains("class=\"reminder-form") && details.text.contains("Rings soon"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_button_of_an_old_page_does_nothing_and_says_so() {
    let ada = Writer::start().await;
    let id = ada.schedule(Fields::about("Seen long ago")).await;
    ada.ring(id).await;
    for (what, more) in [("delete", vec![]), ("snooze", vec![("for", "1h")]), ("done", vec![]), ("resume", vec![])] {
        for version in ["1", "0", "99", "x", ""] {
            let form = [vec![("version", version)], more.clone()].concat();
            let page = ada.post(&format!("/reminders/{id}/{what}"), &form).await;
            let notice = between(&page.text, "id=\"said\"", "</div>");
            assert!(notice.contains("Nothing was done"), "{what} {version:?}: {notice}");
        }
    }
    assert_eq!(ada.status(id).await, "due");
    let early = ada.schedule(Fields::about("Not yet")).await;
    for (what, more) in [("done", vec![]), ("snooze", vec![("for", "1h")]), ("resume", vec![])] {
        let page = ada.press(early, what, &more).await;
        assert!(page.text.contains("it is scheduled now, and that cannot be done with it"), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_before_it_rang_it_gives_its_bottle_back_once() {
    let ada = Writer::start().await;
    let id = ada.schedule(Fields::about("Secret words")).await;
    let first = ada.press(id, "delete", &[]).await;
    assert!(between(&first.text, "id=\"said\"", "</div>").contains("its bottle is back"));
    assert!(!first.text.contains("Secret words") && first.text.contains("<b>10</b> of 10"));
    let again = ada.post(&format!("/reminders/{id}/delete"), &[("version", "1")]).await;
    assert_eq!(again.status, 200);
    assert_eq!(ada.counts().await, (0, 0));
    assert_eq!(ada.get(&format!("/reminders/{id}")).await.status, 404);

    let rang = ada.schedule(Fields::about("Rang")).await;
    ada.ring(rang).await;
    let page = ada.press(rang, "delete", &[]).await;
    assert!(between(&page.text, "id=\"said\"", "</div>").contains("Deleted."));
    assert_eq!(ada.counts().await, (0, 1), "its bottle was used");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_without_a_bottle_is_paused_and_goes_on_when_told_to() {
    let ada = Writer::start().await;
    let first = ada.schedule(Fields::about("Stand up").with("repeat", "daily")).await;
    ada.enter(-9, "spend", "spend:rest").await;
    ada.ring(first).await;
    let page = ada.get("/reminders").await;
    let upcoming = list(&page.text, "upcoming");
    assert!(
        upcoming.contains("Paused") && upcoming.contains("No bottle was left") && upcoming.contains(">Resume<"),
        "{upcoming}"
    );
    let paused: i64 = sqlx::query_scalar("select max(id) from reminders").fetch_one(&ada.app.pool).await.unwrap();

    let still = ada.press(paused, "resume", &[]).await;
    assert!(between(&still.text, "id=\"said\"", "</div>").contains("no bottle is left this month"));
    ada.enter(9, "return", "return:rest").await;
    let on = ada.press(paused, "resume", &[]).await;
    assert!(between(&on.text, "id=\"said\"", "</div>").contains("It goes on"));
    assert_eq!((ada.status(paused).await.as_str(), ada.counts().await), ("scheduled", (2, 2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn how_the_mail_went_is_shown_where_the_reminder_is() {
    let ada = Writer::start().await;
    let id = ada.schedule(Fields::about("By mail")).await;
    ada.ring(id).await;
    for (mail, error, words) in [
        ("waiting", None, "Mail is on its way"),
        ("sent", None, "Sent by mail"),
        ("failed", Some("550 <b>no such user</b>"), "Mail could not be sent"),
    ] {
        sqlx::query("update reminders set mail = $2, mail_error = $3 where id = $1")
            .bind(id)
            .bind(mail)
            .bind(error)
            .execute(&ada.app.pool)
            .await
            .unwrap();
        for path in ["/reminders".to_owned(), format!("/reminders/{id}")] {
            let page = ada.get(&path).await;
            assert!(page.text.contains(words), "{mail} on {path}");
            assert!(!page.text.contains("<b>no such"), "{mail}");
        }
    }
    assert!(list(&ada.get("/reminders").await.text, "due").contains("550"), "what the mail server said");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_searched_or_paged_comes_back_to_where_they_were() {
    let ada = Writer::start().await;
    let id = ada.schedule(Fields::about("Milk and honey")).await;
    ada.schedule(Fields::about("Something else")).await;
    ada.ring(id).await;
    let page = ada.get("/reminders?q=milk").await;
    let action = between(list(&page.text, "due"), "action=\"", "\"").to_owned();
    assert!(action.ends_with("/done?q=milk"), "{action}");
    let version = ada.version(id).await.to_string();
    let after = ada.post(&action, &[("version", &version)]).await;
    assert!(
        after.text.contains("Done.") && after.text.contains("Show all") && !list(&after.text, "upcoming").contains("Something")
    );
}
