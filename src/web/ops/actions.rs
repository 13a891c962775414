//! `GET /ops/actions`: everything operators did, newest first.

use askama::Template;
use axum::extract::State;
use axum::http::Uri;
use axum::response::{Html, IntoResponse, Response};

use super::guard::Operator;
use super::said::Notice;
use super::trouble::{Trouble, answered, look};
use crate::operators::actions::{self, Action, Done};
use crate::web::account::zone_of;
use crate::web::fields::Fields;
use crate::web::page::Frame;
use crate::web::shown::shown;
use crate::web::state::AppState;
use crate::web::when::When;

const SHOWN: usize = 50;

#[derive(Template)]
#[template(path = "ops_actions.html")]
struct ActionsPage<'a> {
    frame: Frame,
    tab: &'static str,
    notice: Option<Notice>,
    zone: &'a str,
    rows: Vec<ActionRow>,
    older: Option<i64>,
    paged: bool,
}

struct ActionRow {
    when: When,
    by: String,
    did: &'static str,
    event: Option<i64>,
    bulk: Option<i64>,
    detail: Option<String>,
}

pub async fn show(operator: Operator, State(app): State<AppState>, uri: Uri) -> Response {
    answered(page(&app, &operator, &uri).await)
}

async fn page(app: &AppState, operator: &Operator, uri: &Uri) -> Result<Response, Trouble> {
    let before = Fields::of_address(uri).read::<i64>("before");
    let mut tx = look(&app.pool).await?;
    let zone = zone_of(&mut tx, operator.person()).await?;
    let mut found = actions::page(&mut tx, before, i64::try_from(SHOWN + 1).unwrap_or(i64::MAX)).await?;
    tx.rollback().await?;
    let has_older = found.len() > SHOWN;
    found.truncate(SHOWN);
    let row = |done: &Done| ActionRow {
        when: zone.when(done.at),
        by: shown(&done.by, 100),
        did: match done.action {
            Action::Replay => "replayed an event",
            Action::BulkReplay => "asked for a replay of many",
            Action::Cancel => "called a replay of many off",
            Action::Acknowledge => "acknowledged an event",
            Action::Note => "wrote a note",
        },
        event: done.event.map(|event| event.0),
        bulk: done.bulk_replay,
        detail: done.detail.as_deref().map(|detail| shown(detail, 300)),
    };
    let html = ActionsPage {
        frame: Frame::new("What operators did · Bottle", "ops").of(Some(operator.person())),
        tab: "actions",
        notice: None,
        zone: &zone.name,
        older: found.last().filter(|_| has_older).map(|last| last.id),
        rows: found.iter().map(row).collect(),
        paged: before.is_some(),
    };
    Ok(Html(html.render()?).into_response())
}
