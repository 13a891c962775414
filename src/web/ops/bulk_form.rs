//! `GET /ops/replay` and `POST /ops/replays`: everything that matches a filter, asked to run again. The page says first how many
//! that is and what they are; the form carries the newest event that was meant, a limit, and a word that somebody has to type.

use std::collections::BTreeMap;

use askama::Template;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{Html, IntoResponse, Redirect, Response};
use sqlx::PgConnection;
use uuid::Uuid;

use super::events::{Owner, filter};
use super::filters::Wanted;
use super::guard::Operator;
use super::said::{Notice, Said};
use super::trouble::{Trouble, answered, look};
use super::words::up_to;
use crate::clock::Clock;
use crate::domain::ids::EventId;
use crate::engine_room::report::thousands;
use crate::inbox::search::{self, Filter, Rest};
use crate::inbox::watch;
use crate::operators::actions::{self, Action, Deed};
use crate::replay::bulk::{self, Asked, CAP_MAX, Wish};
use crate::web::error;
use crate::web::fields::Fields;
use crate::web::page::Frame;
use crate::web::shown::shown;
use crate::web::state::AppState;
use crate::web::status_mark::{StatusMark, mark};

/// Further than this is not counted beforehand.
const COUNTED_TO: usize = 1_000;
/// What has to be typed.
const WORD: &str = "replay";

#[derive(Template)]
#[template(path = "ops_replay.html")]
struct ReplayPage {
    frame: Frame,
    tab: &'static str,
    notice: Option<Notice>,
    problem: Option<String>,
    problems: Vec<String>,
    owner_unclear: bool,
    /// The address's query, which the form is sent to as well.
    query: String,
    filter: Vec<(&'static str, String)>,
    only_unfinished: bool,
    nothing: bool,
    counted: String,
    /// The count is all there is, and not only as far as was looked.
    counted_all: bool,
    kinds: Vec<KindRow>,
    key: Uuid,
    up_to: i64,
    cap: String,
    cap_max: String,
    word: &'static str,
}

struct KindRow {
    mark: StatusMark,
    kind: String,
    events: String,
}

/// What matches now.
struct Counted {
    events: usize,
    all: bool,
    kinds: Vec<KindRow>,
}

/// What was typed into the form that could not be taken.
struct Typed {
    key: Uuid,
    up_to: EventId,
    cap: String,
    problem: String,
}

pub async fn show(operator: Operator, State(app): State<AppState>, uri: Uri) -> Response {
    answered(page(&app, &operator, &uri, None).await)
}

async fn page(app: &AppState, operator: &Operator, uri: &Uri, typed: Option<Typed>) -> Result<Response, Trouble> {
    let mut tx = look(&app.pool).await?;
    let now = Clock::Database.now(&mut *tx).await?;
    let wanted = Wanted { before: None, ..Wanted::of(uri) }.fixed(now);
    let (filter, owner) = filter(&mut tx, app, wanted.clone()).await?;
    let only_unfinished = filter.statuses.is_empty();
    let filter = bulk::meant(filter);
    let newest = match &typed {
        Some(typed) => typed.up_to,
        None => watch::newest(&mut tx).await?,
    };
    let owner_unclear = matches!(owner, Owner::Unclear(_));
    let counted = if owner_unclear { Counted::nothing() } else { count(&mut tx, &filter, newest).await? };
    tx.rollback().await?;

    let bad = typed.is_some() || !wanted.problems.is_empty();
    let (key, cap, problem) = match typed {
        Some(typed) => (typed.key, typed.cap, Some(typed.problem)),
        None => (Uuid::new_v4(), counted.events.clamp(1, COUNTED_TO).to_string(), None),
    };
    let html = ReplayPage {
        frame: Frame::new("Replay what matches · Operators · Bottle", "ops").of(Some(operator.person())),
        tab: "replays",
        notice: Said::of(uri),
        problem,
        owner_unclear,
        filter: in_words(&wanted),
        query: Wanted { problems: Vec::new(), ..wanted.clone() }.query(),
        problems: wanted.problems,
        only_unfinished,
        nothing: counted.all && counted.events == 0,
        counted: up_to(i64::try_from(counted.events).unwrap_or(i64::MAX), i64::try_from(COUNTED_TO + 1).unwrap_or(i64::MAX)),
        counted_all: counted.all,
        kinds: counted.kinds,
        key,
        up_to: newest.0,
        cap,
        cap_max: most(),
        word: WORD,
    }
    .render()?;
    Ok((if bad { error::BAD_FORM } else { StatusCode::OK }, Html(html)).into_response())
}

/// Takes the form. The same form makes one bulk replay, however often it is sent.
pub async fn ask(operator: Operator, State(app): State<AppState>, uri: Uri, fields: Fields) -> Response {
    answered(asked(&app, &operator, &uri, &fields).await)
}

async fn asked(app: &AppState, operator: &Operator, uri: &Uri, fields: &Fields) -> Result<Response, Trouble> {
    let (key, up_to) = (fields.read::<Uuid>("key").filter(|key| !key.is_nil()), fields.read("up_to").map(EventId));
    let cap = fields.read::<i32>("cap").filter(|cap| (1..=CAP_MAX).contains(cap));
    let confirmed = fields.get("confirm").trim().eq_ignore_ascii_case(WORD);
    let (key, up_to, cap) = match (key, up_to, cap) {
        (Some(key), Some(up_to), Some(cap)) if confirmed => (key, up_to, cap),
        (Some(key), Some(up_to), cap) => {
            let problem = match cap {
                None => format!("Say how many at most: a number from 1 to {}. Nothing was asked for.", most()),
                Some(_) => format!("Type the word {WORD} to say that you mean it. Nothing was asked for."),
            };
            let typed = Typed { key, up_to, cap: shown(fields.get("cap"), 10), problem };
            return page(app, operator, uri, Some(typed)).await;
        }
        _ => return page(app, operator, uri, None).await,
    };

    let by = operator.by();
    let mut tx = app.pool.begin().await?;
    let now = Clock::Database.now(&mut *tx).await?;
    let wanted = Wanted { before: None, ..Wanted::of(uri) }.fixed(now);
    let (filter, owner) = filter(&mut tx, app, wanted.clone()).await?;
    // Half of a filter means more than was asked for.
    if matches!(owner, Owner::Unclear(_)) || !wanted.problems.is_empty() {
        tx.rollback().await?;
        return page(app, operator, uri, None).await;
    }
    let filter = bulk::meant(filter);
    let up_to = up_to.min(watch::newest(&mut tx).await?);
    let counted = count(&mut tx, &filter, up_to).await?;
    let address = Wanted { problems: Vec::new(), ..wanted }.query();
    let wish = Wish {
        form: key,
        by: &by,
        filter: &filter,
        address: &address,
        up_to,
        cap,
        counted: i32::try_from(counted.events).unwrap_or(i32::MAX),
        counted_all: counted.all,
    };
    let (id, said) = match bulk::ask(&mut tx, &wish, now).await? {
        Asked::Before(id) => (id, Said::Again),
        Asked::Now(id) => {
            let detail = format!("{}, at most {cap}", if address.is_empty() { "everything unfinished" } else { &address });
            let deed = Deed { by: &by, action: Action::BulkReplay, event: None, bulk_replay: Some(id), detail: Some(&detail) };
            actions::record(&mut tx, deed, now).await?;
            tracing::info!(bulk_replay = id, by, cap, filter = address, "bulk replay asked for");
            (id, Said::Asked)
        }
    };
    tx.commit().await?;
    Ok(Redirect::to(&format!("/ops/replays/{id}?said={}", said.as_str())).into_response())
}

async fn count(conn: &mut PgConnection, filter: &Filter, newest: EventId) -> Result<Counted, Trouble> {
    let limit = i64::try_from(COUNTED_TO + 1).unwrap_or(i64::MAX);
    let found = search::oldest(conn, filter, EventId(0), newest, limit).await?;
    let mut kinds: BTreeMap<(&str, &str), (StatusMark, usize)> = BTreeMap::new();
    for event in &found.events {
        kinds.entry((event.status.as_str(), &event.kind)).or_insert((mark(event.status), 0)).1 += 1;
    }
    let kinds = kinds
        .into_iter()
        .map(|((_, kind), (mark, events))| KindRow { mark, kind: shown(kind, 60), events: events.to_string() })
        .collect();
    Ok(Counted { events: found.events.len(), all: found.rest == Rest::Nothing, kinds })
}

fn most() -> String {
    thousands(i64::from(CAP_MAX))
}

impl Counted {
    const fn nothing() -> Self {
        Self { events: 0, all: true, kinds: Vec::new() }
    }
}

/// The filter, as people read it.
fn in_words(wanted: &Wanted) -> Vec<(&'static str, String)> {
    let filter = &wanted.filter;
    let states: Vec<&str> = filter.statuses.iter().map(|status| status.as_str()).collect();
    let mut words = Vec::new();
    words.extend((!states.is_empty()).then(|| ("State", states.join(" or "))));
    words.extend(filter.kind.as_deref().map(|kind| ("Type", shown(kind, 60))));
    words.extend(filter.source.map(|source| ("Provider", source.to_string())));
    words.extend(wanted.owner.as_deref().map(|owner| ("Owner", shown(owner, 60))));
    words.extend(filter.since.map(|at| ("Heard since", super::filters::written(at))));
    words.extend(filter.until.map(|at| ("Heard before", super::filters::written(at))));
    words.extend(filter.reason.as_deref().map(|reason| ("Reason has", shown(reason, 100))));
    words.extend(filter.id.map(|id| ("Event", thousands(id.0))));
    words.extend(filter.key.as_deref().map(|key| ("Event", shown(key, 60))));
    words.extend(filter.conflicting.then(|| ("Only", "those with a conflict".to_owned())));
    words
}
