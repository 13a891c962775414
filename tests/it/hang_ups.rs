//! People close a page while it is still on its way. What was begun for them is done to its end: broken off, it could leave a
//! connection inside a transaction that nobody ends.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::writer::{Fields, Writer, hidden};

/// Asks for something, and is gone again after so long.
async fn ask_and_leave(ada: &Writer, request: &str, after: Duration) {
    let mut socket = TcpStream::connect(ada.app.address).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    tokio::time::sleep(after).await;
    drop(socket);
}

fn post(ada: &Writer, path: &str, form: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: {0}\r\nOrigin: http://{0}\r\nCookie: {1}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {2}\r\n\r\n{form}",
        ada.app.address,
        ada.who.cookie,
        form.len()
    )
}

// T10
#[tokio::test(flavor = "multi_thread")]
async fn what_was_asked_for_is_done_even_if_nobody_waits_for_the_answer() {
    let ada = Writer::start().await;
    let page = ada.get("/reminders").await;
    let fields = Fields::about("milk").with("key", hidden(&page.text, "key"));
    let form = fields.pairs().iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&");
    // The account is in other hands, so the request waits in the middle of its transaction while its sender leaves.
    let mut other = ada.app.pool.begin().await.unwrap();
    sqlx::query("select 1 from accounts for update").execute(&mut *other).await.unwrap();
    ask_and_leave(&ada, &post(&ada, "/reminders", &form), Duration::from_millis(500)).await;
    other.rollback().await.unwrap();
    crate::support::app::eventually("it is scheduled", async || ada.counts().await == (1, 1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_signs_out_and_leaves_is_signed_out() {
    let ada = Writer::start().await;
    let mut other = ada.app.pool.begin().await.unwrap();
    sqlx::query("select 1 from sessions for update").execute(&mut *other).await.unwrap();
    ask_and_leave(&ada, &post(&ada, "/logout", ""), Duration::from_millis(500)).await;
    other.rollback().await.unwrap();
    crate::support::app::eventually("the session is gone", async || {
        sqlx::query_scalar::<_, i64>("select count(*) from sessions").fetch_one(&ada.app.pool).await.unwrap() == 0
    })
    .await;
}
