//! `GET /ops/reconcile` and `/ops/reconcile/{id}`: what was compared with the providers, and in what it differed.

use askama::Template;
use axum::extract::State;
use axum::http::Uri;
use axum::response::{Html, IntoResponse, Response};
use time::OffsetDateTime;

use super::guard::Operator;
use super::said::Notice;
use super::trouble::{Trouble, answered, look};
use super::words::span;
use crate::accounts::lookup;
use crate::clock::Clock;
use crate::domain::ids::AccountId;
use crate::domain::money::{Currency, Money};
use crate::engine_room::report::thousands;
use crate::reconcile::findings::{self, Class, Finding, FindingId};
use crate::reconcile::runs::{self, Mode, Run, RunId, State as Stage, Total};
use crate::web::account::zone_of;
use crate::web::event::{Id, event_id};
use crate::web::event_words::provider_name;
use crate::web::fields::Fields;
use crate::web::page::Frame;
use crate::web::shown::shown;
use crate::web::state::AppState;
use crate::web::when::{When, Zone};

const RUNS_SHOWN: usize = 30;
const FINDINGS_SHOWN: usize = 50;

#[derive(Template)]
#[template(path = "ops_reconciles.html")]
struct RunsPage<'a> {
    frame: Frame,
    tab: &'static str,
    notice: Option<Notice>,
    zone: &'a str,
    runs: Vec<RunView>,
    older: Option<i64>,
    paged: bool,
}

#[derive(Template)]
#[template(path = "ops_reconcile.html")]
struct RunPage<'a> {
    frame: Frame,
    tab: &'static str,
    notice: Option<Notice>,
    zone: &'a str,
    run: RunView,
    counts: Vec<CountRow>,
    totals: Vec<TotalRow>,
    findings: Vec<FindingRow>,
    more: Option<i64>,
    paged: bool,
}

struct RunView {
    id: i64,
    word: &'static str,
    tone: &'static str,
    what: String,
    begun: When,
    since: When,
    until: When,
    took: Option<String>,
    looked_at: String,
    error: Option<String>,
    /// It repairs nothing by itself.
    only_looks: bool,
}

struct CountRow {
    title: &'static str,
    all: String,
    repaired: String,
    /// What to do about those that are left.
    advice: Option<&'static str>,
}

struct TotalRow {
    source: String,
    currency: String,
    ours: String,
    theirs: String,
    agree: bool,
}

struct FindingRow {
    title: &'static str,
    source: &'static str,
    subject: String,
    state: &'static str,
    tone: &'static str,
    ours: String,
    theirs: String,
    done: String,
    owner: Option<(i64, String)>,
    customer: Option<String>,
    event: Option<i64>,
    found: When,
}

pub async fn list(operator: Operator, State(app): State<AppState>, uri: Uri) -> Response {
    answered(all(&app, &operator, &uri).await)
}

async fn all(app: &AppState, operator: &Operator, uri: &Uri) -> Result<Response, Trouble> {
    let before = Fields::of_address(uri).read("before").map(RunId);
    let mut tx = look(&app.pool).await?;
    let now = Clock::Database.now(&mut *tx).await?;
    let zone = zone_of(&mut tx, operator.person()).await?;
    let mut found = runs::page(&mut tx, before, i64::try_from(RUNS_SHOWN + 1).unwrap_or(i64::MAX)).await?;
    tx.rollback().await?;
    let has_older = found.len() > RUNS_SHOWN;
    found.truncate(RUNS_SHOWN);
    let html = RunsPage {
        frame: Frame::new("Reconcile · Operators · Bottle", "ops").of(Some(operator.person())),
        tab: "reconcile",
        notice: None,
        zone: &zone.name,
        older: found.last().filter(|_| has_older).map(|last| last.id.0),
        runs: found.iter().map(|run| RunView::new(run, &zone, now)).collect(),
        paged: before.is_some(),
    };
    Ok(Html(html.render()?).into_response())
}

pub async fn show(operator: Operator, State(app): State<AppState>, id: Id, uri: Uri) -> Response {
    answered(one(&app, &operator, id, &uri).await)
}

async fn one(app: &AppState, operator: &Operator, id: Id, uri: &Uri) -> Result<Response, Trouble> {
    let id = RunId(event_id(id).ok_or(Trouble::Nothing)?.0);
    let after = Fields::of_address(uri).read("after").map(FindingId);
    let mut tx = look(&app.pool).await?;
    let run = runs::find(&mut tx, id).await?.ok_or(Trouble::Nothing)?;
    let counts = findings::counts(&mut tx, id).await?;
    let mut found = findings::page(&mut tx, id, after, i64::try_from(FINDINGS_SHOWN + 1).unwrap_or(i64::MAX)).await?;
    let owners: Vec<AccountId> = found.iter().filter_map(|finding| finding.account).collect();
    let labels = lookup::labels(&mut tx, &owners).await?;
    let now = Clock::Database.now(&mut *tx).await?;
    let zone = zone_of(&mut tx, operator.person()).await?;
    tx.rollback().await?;
    let has_more = found.len() > FINDINGS_SHOWN;
    found.truncate(FINDINGS_SHOWN);
    let owner = |id: AccountId| (id.0, labels.get(&id).map_or_else(|| id.to_string(), |label| shown(label, 60)));
    let html = RunPage {
        frame: Frame::new(format!("Reconcile {id} · Operators · Bottle"), "ops").of(Some(operator.person())),
        tab: "reconcile",
        notice: None,
        zone: &zone.name,
        run: RunView::new(&run, &zone, now),
        counts: counts.iter().map(|(class, all, repaired)| CountRow::new(*class, *all, *repaired)).collect(),
        totals: run.totals.iter().map(TotalRow::new).collect(),
        more: found.last().filter(|_| has_more).map(|last| last.id.0),
        findings: found.iter().map(|finding| FindingRow::new(finding, finding.account.map(owner), &zone)).collect(),
        paged: after.is_some(),
    };
    Ok(Html(html.render()?).into_response())
}

impl RunView {
    fn new(run: &Run, zone: &Zone, now: OffsetDateTime) -> Self {
        let (word, tone) = match run.state {
            Stage::Running => ("Running", "wait"),
            Stage::Finished => ("Finished", "good"),
            Stage::Failed => ("Stopped, to be taken up again", "bad"),
        };
        let sources: Vec<&str> = run.sources.iter().map(|source| provider_name(*source)).collect();
        let of = run.night.map_or_else(|| "asked for by somebody".to_owned(), |night| format!("of the night of {night}"));
        let looked_at: Vec<String> = ["customers", "events", "movements"]
            .iter()
            .filter_map(|name| run.tallies.get(*name).map(|count| format!("{} {name}", thousands(*count))))
            .collect();
        Self {
            id: run.id.0,
            word,
            tone,
            what: format!("{}, {of}", sources.join(" and ")),
            begun: zone.when(run.begun_at),
            since: zone.when(run.since),
            until: zone.when(run.until),
            took: run.finished_at.map(|at| span(at - run.begun_at)),
            looked_at: if looked_at.is_empty() {
                format!("nothing yet; it got on last {} ago", span(now - run.touched_at))
            } else {
                looked_at.join(", ")
            },
            error: run.error.as_deref().map(|error| shown(error, 400)),
            only_looks: run.mode == Mode::Look,
        }
    }
}

impl CountRow {
    fn new(class: Class, all: i64, repaired: i64) -> Self {
        Self {
            title: class.title(),
            all: thousands(all),
            repaired: thousands(repaired),
            advice: (all > repaired).then(|| class.advice()),
        }
    }
}

impl TotalRow {
    fn new(total: &Total) -> Self {
        let currency = total.currency.parse::<Currency>().ok();
        let money = |minor| match &currency {
            Some(currency) => Money { minor, currency: currency.clone() }.to_string(),
            None => format!("{minor} minor units"),
        };
        Self {
            source: shown(&total.source, 20),
            currency: shown(&total.currency, 10),
            ours: money(total.ours_minor),
            theirs: money(total.theirs_minor),
            agree: total.ours_minor == total.theirs_minor,
        }
    }
}

impl FindingRow {
    fn new(finding: &Finding, owner: Option<(i64, String)>, zone: &Zone) -> Self {
        let (state, tone) = match finding.state {
            findings::State::Suspected => ("Suspected", ""),
            findings::State::Open => ("Open", "bad"),
            findings::State::Asked => ("Asked again", "wait"),
            findings::State::Repaired => ("Repaired", "good"),
        };
        Self {
            title: finding.class.title(),
            source: provider_name(finding.source),
            subject: shown(&finding.subject, 100),
            state,
            tone,
            ours: shown(&finding.ours, 300),
            theirs: shown(&finding.theirs, 300),
            done: shown(&finding.done, 300),
            owner,
            customer: finding.customer.as_deref().map(|customer| shown(customer, 80)),
            event: finding.event.map(|event| event.0),
            found: zone.when(finding.found_at),
        }
    }
}
