//! Replay by the owner of an event: through the queue and the worker, once for each time it was asked for.

use futures_util::future::join_all;
use sqlx::Executor as _;

use crate::support::app::{App, Event, Setup};

const AT: &str = "2026-10-21T10:00:00Z";

async fn runs(app: &App, key: &str) -> Vec<(String, Option<String>)> {
    let sql = "select r.sentence, r.requested_by from event_runs r join inbox_events e on e.id = r.event_id where e.dedupe_key = $1 order by r.id";
    sqlx::query_as(sql).bind(key).fetch_all(&app.pool).await.unwrap()
}

async fn asked(app: &App) -> i64 {
    sqlx::query_scalar("select count(*) from replays").fetch_one(&app.pool).await.unwrap()
}

#[tokio::test]
async fn a_replay_of_an_older_starter_change_says_that_a_newer_one_is_stored() {
    let app = Setup { worker: true, ..Setup::default() }.start().await;
    let ada = app.sign_in("kp_ada").await;
    let (starter, pro) = (Event::starter("kp_ada", "2026-10-20T10:00:00Z"), Event::upgrade("kp_ada", AT));
    for event in [&starter, &pro] {
        app.deliver(event.token.clone()).await;
        app.worked_off().await;
    }
    let id = app.number(&starter.id).await;
    let page = app.post_as(&ada, &format!("/account/events/{id}/replay"), &[]).await;
    assert_eq!(page.status, 200, "sent on to the event's own page");
    app.worked_off().await;
    let page = app.get_as(&ada, &format!("/account/events/{id}")).await.text;
    for words in [
        "<code>ignored: a newer plan change is already stored</code>",
        "You asked for a replay.",
        "as the replay asked",
        "Run twice.",
    ] {
        assert!(page.contains(words), "the page does not say `{words}`:\n{page}");
    }
    let runs = runs(&app, &starter.id).await;
    assert_eq!(runs.len(), 2, "{runs:?}");
    assert_eq!(runs[1], ("ignored: a newer plan change is already stored".to_owned(), Some("kp_ada".to_owned())));
    let account = app.get_as(&ada, "/account").await.text;
    assert!(account.contains("<h2 id=\"plan-h\">Pro</h2>"), "the plan stays");
}

#[tokio::test]
async fn a_second_click_runs_nothing_more_and_is_no_error() {
    // Without a worker: the first click waits, so the second finds it waiting.
    let app = App::start().await;
    let ada = app.sign_in("kp_ada").await;
    app.fill_log(&ada, "a", 1).await;
    let path = format!("/account/events/{}/replay", app.number("event_a000001").await);
    let clicks =
        join_all((0..8).map(|_| app.post_as(&ada, &path, &[("owner_id", "1"), ("status", "applied"), ("attempts", "99")]))).await;
    let mut statuses: Vec<u16> = clicks.iter().map(|click| click.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [vec![200], vec![409; 7]].concat());
    for click in clicks.iter().filter(|click| click.status == 409) {
        assert!(click.text.contains("<b>In progress.</b>") && click.text.contains("Other message"), "{}", click.text);
    }
    assert_eq!(asked(&app).await, 1);
    let row: (String, i32, Option<String>) =
        sqlx::query_as("select status, attempts, replayed_by from inbox_events").fetch_one(&app.pool).await.unwrap();
    assert_eq!(row, ("received".to_owned(), 0, Some("kp_ada".to_owned())), "no field of the form was read");
}

#[tokio::test]
async fn one_that_is_being_processed_is_left_to_its_worker() {
    let app = App::start().await;
    let ada = app.sign_in("kp_ada").await;
    app.fill_log(&ada, "a", 1).await;
    let take = "update inbox_events set status = 'processing', lease_token = gen_random_uuid(), due_at = now() + interval '30 s'";
    app.pool.execute(take).await.unwrap();
    let before = app.everything().await;
    let page = app.post_as(&ada, &format!("/account/events/{}/replay", app.number("event_a000001").await), &[]).await;
    assert_eq!(page.status, 409);
    assert!(page.text.contains("In progress"), "{}", page.text);
    assert_eq!(app.everything().await, before);
}

#[tokio::test]
async fn once_it_has_run_it_can_be_asked_for_again_in_ten_seconds() {
    let app = Setup { worker: true, ..Setup::default() }.start().await;
    let ada = app.sign_in("kp_ada").await;
    let event = Event::upgrade("kp_ada", AT);
    app.deliver(event.token.clone()).await;
    app.worked_off().await;
    let path = format!("/account/events/{}/replay", app.number(&event.id).await);
    assert_eq!(app.post_as(&ada, &path, &[]).await.status, 200);
    app.worked_off().await;
    let again = app.post_as(&ada, &path, &[]).await;
    assert_eq!(again.status, 409);
    assert!(again.text.contains("only a moment ago"), "{}", again.text);
    app.pool.execute("update replays set requested_at = requested_at - interval '11 s'").await.unwrap();
    assert_eq!(app.post_as(&ada, &path, &[]).await.status, 200);
    app.worked_off().await;
    assert_eq!((asked(&app).await, runs(&app, &event.id).await.len()), (2, 3), "each that was asked for ran, and no other");
}

#[tokio::test]
async fn a_form_of_another_site_moves_nothing() {
    let app = App::start().await;
    let ada = app.sign_in("kp_ada").await;
    app.fill_log(&ada, "a", 1).await;
    let path = format!("/account/events/{}/replay", app.number("event_a000001").await);
    let request = app.http.post(app.url(&path)).header("cookie", &ada.cookie).header("origin", "https://evil.example");
    let refused = crate::support::app::answer(request.header("sec-fetch-site", "cross-site")).await;
    assert_eq!((refused.status, asked(&app).await), (403, 0));
}
