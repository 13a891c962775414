//! `GET /ops/dead` and `/ops/parked`: what waits for a person. What somebody has acknowledged is out of its box, and still in the
//! list of all events.

use askama::Template;
use axum::extract::State;
use axum::http::Uri;
use axum::response::{Html, IntoResponse, Response};
use uuid::Uuid;

use super::event_view::micros;
use super::guard::Operator;
use super::said::{Notice, Said};
use super::trouble::{Trouble, answered, look};
use super::words::{span, until};
use crate::accounts::lookup;
use crate::clock::Clock;
use crate::domain::ids::{AccountId, EventId};
use crate::engine_room::report::thousands;
use crate::operators::boxes::{self, Boxed, LOOKED_AT, Pile, Tally};
use crate::web::account::zone_of;
use crate::web::fields::Fields;
use crate::web::page::Frame;
use crate::web::shown::shown;
use crate::web::state::AppState;
use crate::web::status_mark::{StatusMark, mark};
use crate::web::when::When;

const SHOWN: usize = 20;

#[derive(Template)]
#[template(path = "ops_box.html")]
struct BoxPage<'a> {
    frame: Frame,
    tab: &'static str,
    notice: Option<Notice>,
    zone: &'a str,
    now: When,
    dead: bool,
    waiting: String,
    acknowledged: String,
    has_acknowledged: bool,
    more: bool,
    limit: String,
    rows: Vec<BoxRow>,
    here: &'static str,
    older: Option<i64>,
    paged: bool,
}

struct BoxRow {
    id: i64,
    key: String,
    kind: String,
    mark: StatusMark,
    reason: String,
    owner: Option<(i64, String)>,
    received: When,
    like_this: String,
    next: Option<String>,
    note: Option<String>,
    verdict: i128,
    form: Uuid,
}

pub async fn dead(operator: Operator, State(app): State<AppState>, uri: Uri) -> Response {
    answered(page(&app, &operator, &uri, Pile::Dead).await)
}

pub async fn parked(operator: Operator, State(app): State<AppState>, uri: Uri) -> Response {
    answered(page(&app, &operator, &uri, Pile::Parked).await)
}

async fn page(app: &AppState, operator: &Operator, uri: &Uri, pile: Pile) -> Result<Response, Trouble> {
    let before = Fields::of_address(uri).read("before").map(EventId);
    let mut tx = look(&app.pool).await?;
    let now = Clock::Database.now(&mut *tx).await?;
    let zone = zone_of(&mut tx, operator.person()).await?;
    let Tally { waiting, acknowledged, more } = boxes::tally(&mut tx, pile).await?;
    let mut found = boxes::page(&mut tx, pile, before, i64::try_from(SHOWN + 1).unwrap_or(i64::MAX)).await?;
    let has_older = found.len() > SHOWN;
    found.truncate(SHOWN);
    let owners: Vec<AccountId> = found.iter().filter_map(|event| event.account).collect();
    let labels = lookup::labels(&mut tx, &owners).await?;
    tx.rollback().await?;
    let row = |event: &Boxed| BoxRow {
        id: event.id.0,
        key: shown(event.key.as_str(), 60),
        kind: shown(&event.kind, 60),
        mark: mark(pile.status()),
        reason: shown(event.reason.as_deref().unwrap_or("nothing stored"), 400),
        owner: event.account.map(|id| (id.0, labels.get(&id).map_or_else(|| id.to_string(), |label| shown(label, 60)))),
        received: zone.when(event.received_at),
        like_this: span(now - event.verdict_at),
        next: event.due_at.filter(|_| pile == Pile::Parked).map(|at| until(at, now)),
        note: event.note.as_deref().map(|note| shown(note, 200)),
        verdict: micros(event.verdict_at),
        form: Uuid::new_v4(),
    };
    let dead = pile == Pile::Dead;
    let (title, here) = if dead { ("Dead", "/ops/dead") } else { ("Parked", "/ops/parked") };
    let html = BoxPage {
        frame: Frame::new(format!("{title} · Operators · Bottle"), "ops").of(Some(operator.person())),
        tab: if dead { "dead" } else { "parked" },
        notice: Said::of(uri),
        zone: &zone.name,
        now: zone.when(now),
        dead,
        waiting: thousands(waiting),
        acknowledged: thousands(acknowledged),
        has_acknowledged: acknowledged > 0,
        more,
        limit: thousands(LOOKED_AT),
        older: found.last().filter(|_| has_older).map(|last| last.id.0),
        rows: found.iter().map(row).collect(),
        here,
        paged: before.is_some(),
    };
    Ok(Html(html.render()?).into_response())
}
