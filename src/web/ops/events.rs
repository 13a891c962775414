//! `GET /ops/events`: events of all accounts, newest first, by the filters in the address. Pages hang on the last event shown, so
//! they stay where they are while new events arrive.

use askama::Template;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{Html, IntoResponse, Response};
use sqlx::PgConnection;
use time::OffsetDateTime;

use super::filters::{SPANS, Wanted, written};
use super::guard::Operator;
use super::said::{Notice, Said};
use super::trouble::{Trouble, answered, look};
use super::words::{ago, until};
use crate::accounts::lookup;
use crate::clock::Clock;
use crate::domain::event::{Source, Status};
use crate::domain::ids::{AccountId, EventId};
use crate::engine_room::report::thousands;
use crate::inbox::search::{self, Filter, Found, Rest, Seen, WINDOW};
use crate::web::account::zone_of;
use crate::web::error;
use crate::web::event_words::provider_name;
use crate::web::page::Frame;
use crate::web::shown::shown;
use crate::web::state::AppState;
use crate::web::status_mark::{self, StatusMark, mark};
use crate::web::when::{When, Zone};

const SHOWN: i64 = 50;

#[derive(Template)]
#[template(path = "ops_events.html")]
struct EventsPage<'a> {
    frame: Frame,
    tab: &'static str,
    notice: Option<Notice>,
    problems: &'a [String],
    zone: &'a str,
    now: When,
    views: Vec<View>,
    statuses: Vec<Choice>,
    sources: Vec<Choice>,
    spans: Vec<Choice>,
    kind: &'a str,
    owner: &'a str,
    since: String,
    until: String,
    reason: &'a str,
    id: String,
    conflicting: bool,
    filtered: bool,
    /// Accounts that `owner` may mean, where that is not one.
    owners: Option<Vec<(String, String)>>,
    rows: Vec<EventRow>,
    older: Option<String>,
    /// Where the search stopped, and how many events it went through.
    stopped_at: Option<i64>,
    looked_through: String,
    newest: Option<String>,
    replay_all: String,
}

struct View {
    title: &'static str,
    address: &'static str,
    chosen: bool,
}

struct Choice {
    value: &'static str,
    title: &'static str,
    chosen: bool,
}

/// An event in a list.
pub(super) struct EventRow {
    pub id: i64,
    pub key: String,
    pub kind: String,
    pub source: &'static str,
    pub mark: StatusMark,
    pub reason: Option<String>,
    pub owner: Option<(i64, String)>,
    pub received: When,
    pub ago: String,
    pub attempts: i32,
    pub copies: i32,
    pub next: Option<String>,
}

/// Views that people come for, as links.
const VIEWS: [(&str, &str); 6] = [
    ("Everything", ""),
    ("Dead", "?status=dead"),
    ("Parked", "?status=parked"),
    ("Failing", "?status=failed"),
    ("Conflicts", "?conflicts=1"),
    ("Last hour", "?last=1h"),
];

/// Whose events are asked for.
pub(super) enum Owner {
    Anybody,
    One,
    /// Nobody, or several, and what they are called.
    Unclear(Vec<(AccountId, String)>),
}

pub async fn show(operator: Operator, State(app): State<AppState>, uri: Uri) -> Response {
    answered(page(&app, &operator, &uri).await)
}

async fn page(app: &AppState, operator: &Operator, uri: &Uri) -> Result<Response, Trouble> {
    let wanted = Wanted::of(uri);
    let mut tx = look(&app.pool).await?;
    let now = Clock::Database.now(&mut *tx).await?;
    let zone = zone_of(&mut tx, operator.person()).await?;
    let (filter, owner) = filter(&mut tx, app, wanted.clone().fixed(now)).await?;
    let found = match owner {
        Owner::Unclear(_) => Found { events: Vec::new(), rest: Rest::Nothing },
        Owner::Anybody | Owner::One => search::newest(&mut tx, &filter, wanted.before, SHOWN).await?,
    };
    let rows = rows(&mut tx, &found.events, &zone, now).await?;
    tx.rollback().await?;
    let html = render(operator, uri, &wanted, &zone, now, owner, found.rest, rows)?;
    let status = if wanted.problems.is_empty() { StatusCode::OK } else { error::BAD_ADDRESS };
    Ok((status, Html(html)).into_response())
}

/// What the address means, once it is known whose account is meant.
pub(super) async fn filter(conn: &mut PgConnection, app: &AppState, wanted: Wanted) -> Result<(Filter, Owner), Trouble> {
    let Some(text) = &wanted.owner else { return Ok((wanted.filter, Owner::Anybody)) };
    let accounts = lookup::named(&mut *conn, &app.rules.tenant, text).await?;
    if let [account] = accounts[..] {
        return Ok((Filter { account: Some(account), ..wanted.filter }, Owner::One));
    }
    let labels = lookup::labels(conn, &accounts).await?;
    let told = accounts.into_iter().map(|id| (id, labels.get(&id).cloned().unwrap_or_default())).collect();
    Ok((wanted.filter, Owner::Unclear(told)))
}

pub(super) async fn rows(
    conn: &mut PgConnection,
    events: &[Seen],
    zone: &Zone,
    now: OffsetDateTime,
) -> Result<Vec<EventRow>, Trouble> {
    let owners: Vec<AccountId> = events.iter().filter_map(|event| event.account).collect();
    let labels = lookup::labels(conn, &owners).await?;
    let row = |event: &Seen| EventRow {
        id: event.id.0,
        key: shown(event.key.as_str(), 60),
        kind: shown(&event.kind, 60),
        source: provider_name(event.source),
        mark: mark(event.status),
        reason: event.reason.as_deref().map(|reason| shown(reason, 200)),
        owner: event.account.map(|id| (id.0, labels.get(&id).map_or_else(|| id.to_string(), |label| shown(label, 60)))),
        received: zone.when(event.received_at),
        ago: ago(event.received_at, now),
        attempts: event.attempts,
        copies: event.seen_count,
        next: event.due_at.filter(|_| matches!(event.status, Status::Failed | Status::Parked)).map(|at| until(at, now)),
    };
    Ok(events.iter().map(row).collect())
}

#[expect(clippy::too_many_arguments, reason = "all that was read for one page")]
fn render(
    operator: &Operator,
    uri: &Uri,
    wanted: &Wanted,
    zone: &Zone,
    now: OffsetDateTime,
    owner: Owner,
    rest: Rest,
    rows: Vec<EventRow>,
) -> Result<String, askama::Error> {
    let filter = &wanted.filter;
    let at = |before: Option<EventId>| Wanted { before, problems: Vec::new(), ..wanted.clone() }.query();
    let (older, stopped_at) = match rest {
        Rest::Nothing => (None, None),
        Rest::More(id) => (Some(at(Some(id))), None),
        Rest::NotLookedAt(id) => (Some(at(Some(id))), Some(id.0)),
    };
    let here = at(None);
    EventsPage {
        frame: Frame::new("Events · Operators · Bottle", "ops").of(Some(operator.person())),
        tab: "events",
        notice: Said::of(uri),
        problems: &wanted.problems,
        zone: &zone.name,
        now: zone.when(now),
        views: VIEWS.iter().map(|&(title, address)| View { title, address, chosen: here == address }).collect(),
        statuses: Status::ALL
            .iter()
            .map(|s| Choice { value: s.as_str(), title: status_mark::word(*s), chosen: filter.statuses.contains(s) })
            .collect(),
        sources: Source::ALL
            .iter()
            .map(|s| Choice { value: s.as_str(), title: provider_name(*s), chosen: filter.source == Some(*s) })
            .collect(),
        spans: SPANS.iter().map(|&(value, title, _)| Choice { value, title, chosen: wanted.last == Some(value) }).collect(),
        kind: filter.kind.as_deref().unwrap_or_default(),
        owner: wanted.owner.as_deref().unwrap_or_default(),
        since: filter.since.map(written).unwrap_or_default(),
        until: filter.until.map(written).unwrap_or_default(),
        reason: filter.reason.as_deref().unwrap_or_default(),
        id: filter.id.map(|id| id.to_string()).or_else(|| filter.key.clone()).unwrap_or_default(),
        conflicting: filter.conflicting,
        filtered: wanted.filters_something(),
        owners: match owner {
            Owner::Anybody | Owner::One => None,
            Owner::Unclear(owners) => Some(
                owners
                    .into_iter()
                    .map(|(id, label)| {
                        let one = Wanted { owner: Some(id.to_string()), before: None, problems: Vec::new(), ..wanted.clone() };
                        (format!("account {id}, {}", shown(&label, 60)), one.query())
                    })
                    .collect(),
            ),
        },
        rows,
        older,
        stopped_at,
        looked_through: thousands(WINDOW),
        newest: wanted.before.map(|_| here.clone()),
        replay_all: here,
    }
    .render()
}
