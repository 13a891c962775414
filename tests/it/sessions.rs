//! Sessions: what the database holds of them, how long they last, and that they are cleared away.

use bottle::sessions::{self, Sessions};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;
use tower_sessions::ExpiredDeletion;
use tower_sessions::session::Id;

use crate::support::app::{App, eventually};
use crate::support::visitor::{Visitor, with_kinde};

async fn count(app: &App) -> i64 {
    sqlx::query_scalar("select count(*) from sessions").fetch_one(&app.pool).await.unwrap()
}

async fn set(app: &App, sql: &'static str) {
    assert_eq!(sqlx::query(sql).execute(&app.pool).await.unwrap().rows_affected(), 1, "{sql}");
}

async fn is_in(visitor: &Visitor<'_>) -> bool {
    visitor.get("/").await.text.contains("Good to see you")
}

#[tokio::test]
async fn the_database_holds_a_hash_of_the_cookie_and_sealed_tokens() {
    let (app, _kinde) = with_kinde().await;
    let visitor = Visitor::new(&app);
    visitor.sign_in().await;
    let cookie = visitor.cookie("bottle").unwrap();
    let (hash, record): (Vec<u8>, serde_json::Value) =
        sqlx::query_as("select key_hash, record from sessions").fetch_one(&app.pool).await.unwrap();
    assert_eq!(hash, Sha256::digest(cookie.parse::<Id>().unwrap().0.to_le_bytes()).to_vec());
    let mut keys: Vec<&String> = record.as_object().unwrap().keys().collect();
    keys.sort();
    assert_eq!(keys, ["account", "person", "tokens"]);
    assert!(!record.to_string().contains(&cookie));
    // What was read there opens no door.
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    for stolen in [hex.as_str(), record["tokens"].as_str().unwrap()] {
        let thief = Visitor::new(&app);
        thief.keep("bottle", stolen);
        assert!(!is_in(&thief).await);
    }
}

#[tokio::test]
async fn tokens_moved_into_another_row_do_not_open_there() {
    let (app, kinde) = with_kinde().await;
    let (ada, mallory) = (Visitor::new(&app), Visitor::new(&app));
    ada.sign_in().await;
    kinde.inside().who = crate::support::fake_kinde::person("kp_mallory", "m@example.com");
    mallory.sign_in().await;
    let sql = "update sessions set record = jsonb_set(record, '{tokens}',
                   (select record->'tokens' from sessions s join accounts a on a.id = s.account_id where kinde_user_id = 'kp_ada'))
               where account_id = (select id from accounts where kinde_user_id = 'kp_mallory')";
    set(&app, sql).await;
    assert_eq!(mallory.post("/account/billing").await.leads_to(), "/login?return_to=/account/billing");
    assert!(ada.post("/account/billing").await.leads_to().contains("/portal?"));
}

#[tokio::test]
async fn a_session_ends_when_it_lies_idle_and_some_time_after_the_sign_in_in_any_case() {
    let (app, _kinde) = with_kinde().await;
    let visitor = Visitor::new(&app);
    visitor.sign_in().await;
    let days: i32 = sqlx::query_scalar("select round(extract(epoch from expires_at - created_at) / 86400)::int from sessions")
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(days, 60);
    set(&app, "update sessions set seen_at = now() - interval '14 days' + interval '1 minute'").await;
    assert!(is_in(&visitor).await, "just in time");
    let fresh: bool =
        sqlx::query_scalar("select seen_at > now() - interval '1 minute' from sessions").fetch_one(&app.pool).await.unwrap();
    assert!(fresh, "and that counts as use");
    set(&app, "update sessions set expires_at = now() + interval '1 minute'").await;
    assert!(is_in(&visitor).await);

    let copy = visitor.copy();
    set(&app, "update sessions set seen_at = now() - interval '14 days'").await;
    assert!(!is_in(&copy).await, "idle for too long");
    set(&app, "update sessions set seen_at = now(), expires_at = now()").await;
    assert!(!is_in(&visitor).await, "however busy it is");
}

#[tokio::test]
async fn use_is_noted_every_five_minutes_and_prolongs_no_absolute_limit() {
    let (app, kinde) = with_kinde().await;
    kinde.inside().expires_in = 30;
    let visitor = Visitor::new(&app);
    visitor.sign_in().await;
    set(&app, "update sessions set seen_at = now() - interval '4 minutes', expires_at = now() + interval '1 hour'").await;
    let stand = async || {
        let sql = "select seen_at, expires_at from sessions";
        sqlx::query_as::<_, (time::OffsetDateTime, time::OffsetDateTime)>(sql).fetch_one(&app.pool).await.unwrap()
    };
    let before = stand().await;
    assert!(is_in(&visitor).await);
    assert_eq!(stand().await, before, "a look writes nothing");
    // What is saved in it anew is saved under the old limit.
    assert!(visitor.post("/account/billing").await.leads_to().contains("/portal?"));
    assert_eq!(kinde.inside().refreshed, 1);
    assert_eq!(stand().await.1, before.1);
}

#[tokio::test]
async fn ended_sessions_are_deleted_a_thousand_at_a_time_and_no_living_one() {
    let app = App::start().await;
    let living = app.sign_in("kp_living").await;
    let sql = "insert into sessions (key_hash, account_id, record, created_at, seen_at, expires_at)
               select sha256(n::text::bytea), (select id from accounts), '{}', now(),
                      case when n % 2 = 0 then now() else now() - interval '15 days' end,
                      case when n % 2 = 0 then now() - interval '1 second' else now() + interval '1 day' end
               from generate_series(1, 2500) n";
    sqlx::query(sql).execute(&app.pool).await.unwrap();
    let sessions = Sessions::new(app.pool.clone());
    for left in [1501, 501, 1, 1] {
        sessions.delete_expired().await.unwrap();
        assert_eq!(count(&app).await, left);
    }
    assert!(app.get_as(&living, "/").await.text.contains("Good to see you"));

    sqlx::query("update sessions set expires_at = now()").execute(&app.pool).await.unwrap();
    let stop = CancellationToken::new();
    let cleaner = tokio::spawn(sessions::clean(sessions, stop.clone()));
    eventually("the cleaner deletes it", async || count(&app).await == 0).await;
    stop.cancel();
    cleaner.await.unwrap();
}
