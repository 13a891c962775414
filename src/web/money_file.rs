//! `GET /account/money.csv`: every movement of a person's money as a file for a spreadsheet, newest first. It is read and sent a
//! page at a time, so its length costs no memory, and no transaction waits for whoever reads it.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use sqlx::PgPool;

use super::account::unreadable;
use super::person::Person;
use super::state::AppState;
use crate::domain::ids::AccountId;
use crate::money::export::{self, Part};
use crate::money::{self, Line};

const LINES_AT_ONCE: i64 = 500;

/// What is still to be sent.
struct Rest {
    pool: PgPool,
    account: AccountId,
    next: Option<(Part, Vec<Line>)>,
}

pub async fn send(person: Person, State(app): State<AppState>) -> Response {
    // The first page is read before anything is answered: a database that is away is a page that says so, and no empty file.
    let first = match money::statement(&app.pool, person.account, None, LINES_AT_ONCE).await {
        Ok(first) => first,
        Err(error) => return unreadable(&error.into()),
    };
    let rest = Rest { pool: app.pool, account: person.account, next: Some((Part::First, first)) };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/csv; charset=utf-8; header=present")),
        (header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment; filename=\"bottle-money.csv\"")),
    ];
    (headers, Body::from_stream(stream::try_unfold(rest, page))).into_response()
}

/// Whoever reads it sees a file that broke off, and not one that looks whole.
async fn page(mut rest: Rest) -> Result<Option<(Vec<u8>, Rest)>, Box<dyn std::error::Error + Send + Sync>> {
    let Some((part, lines)) = rest.next.take() else { return Ok(None) };
    let mut text = Vec::new();
    export::csv(&lines, part, &mut text).map_err(broken)?;
    let is_full = i64::try_from(lines.len()).is_ok_and(|n| n == LINES_AT_ONCE);
    if let Some(last) = lines.last().filter(|_| is_full) {
        let older = money::statement(&rest.pool, rest.account, Some(last.id), LINES_AT_ONCE).await.map_err(broken)?;
        rest.next = Some((Part::Next, older));
    }
    Ok(Some((text, rest)))
}

fn broken(error: impl std::error::Error + Send + Sync + 'static) -> Box<dyn std::error::Error + Send + Sync> {
    tracing::warn!(error = &error as &dyn std::error::Error, "a statement broke off on its way");
    Box::new(error)
}
