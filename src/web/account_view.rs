//! How the account page looks: plan and bottles first, then what happened to them and why.

use std::collections::HashMap;

use askama::Template;

use super::assets;
use super::checkout_view;
use super::event_words::{EventView, name};
use super::gauge::Gauge;
use super::log_filters::Wanted;
use super::money_view::{LineView, MoneyView, PackView, TotalView};
use super::page::Frame;
use super::person::Person;
use super::shop::{Buyer, Go, Shop};
use super::shown::shown;
use super::status_mark;
use super::when::{When, Zone};
use crate::accounts::Standing;
use crate::billing::bottles::Bottles;
use crate::billing::log::{COUNTED_TO, Card, Counts, Filter};
use crate::billing::words::Subject;
use crate::checkouts::Checkout;
use crate::domain::event::{Source, Status};
use crate::domain::ids::{CustomerId, EventId};
use crate::domain::instant::Instant;
use crate::domain::period::Period;
use crate::domain::plan::Plan;
use crate::engine_room::report::thousands;
use crate::ledger::Line;
use crate::money;
use crate::providers::{Provider, Providers};
use crate::replay::Rehearsal;

/// What was read for the page, all at one moment.
pub struct Read {
    pub zone: Zone,
    pub standing: Standing,
    pub bottles: Bottles,
    pub period: Period,
    pub entries: Vec<Line>,
    pub older_entries: bool,
    pub months: Vec<Period>,
    pub counts: Counts,
    pub cards: Vec<Card>,
    pub older_events: bool,
    pub rehearsals: HashMap<EventId, Rehearsal>,
    /// By whose word the account is Pro.
    pub pro_through: Vec<Source>,
    pub known_as: Vec<(Source, CustomerId)>,
    pub movements: Vec<money::Line>,
    pub older_movements: bool,
    pub totals: Vec<money::Total>,
    pub packs: Vec<money::bills::Bill>,
    pub turned_back: Option<Checkout>,
    pub set_out: Option<Checkout>,
    pub version: String,
}

#[derive(Template)]
#[template(path = "account.html")]
struct AccountPage<'a> {
    frame: Frame,
    js: String,
    version: &'a str,
    here: String,
    zone: &'a str,
    problems: &'a [String],
    /// What somebody turned back from buying, and where.
    turned_back: Option<(String, &'static str)>,
    /// What they set out to buy and may have paid, where, and the page that waits for word of it.
    set_out: Option<(String, &'static str, String)>,
    plan: String,
    shop: Shop,
    tellers: String,
    /// Free, with bottles of Pro that stay for the month.
    keeps_pro_bottles: bool,
    since: Option<When>,
    past_due: Option<When>,
    upcoming: Vec<(String, When)>,
    gauge: Gauge,
    left: String,
    used: String,
    allowance: String,
    month: String,
    renews: When,
    ledger: LedgerView,
    money: MoneyView,
    counted: String,
    counts: Counts,
    events: Vec<EventView>,
    filtered: bool,
    statuses: Vec<Choice>,
    subjects: Vec<Choice>,
    wanted_month: String,
    wanted_id: String,
    keeps_ledger: Option<String>,
    older: Option<String>,
    newest: Option<String>,
}

struct Choice {
    value: &'static str,
    title: &'static str,
    chosen: bool,
}

struct LedgerView {
    month: String,
    /// The free bottles of this month count although no entry is written yet.
    free_to_come: bool,
    lines: Vec<EntryView>,
    older: Option<String>,
    newest: Option<String>,
    months: Vec<MonthLink>,
}

struct EntryView {
    when: When,
    what: String,
    delta: String,
    key: String,
    event: Option<i64>,
}

struct MonthLink {
    title: String,
    address: String,
    is_shown: bool,
}

pub(super) fn render(person: &Person, providers: &Providers, wanted: &Wanted, read: &Read) -> Result<String, askama::Error> {
    let (zone, bottles) = (&read.zone, &read.bottles);
    let seller = |checkout: &Checkout| providers.of(checkout.source).map_or("the provider", Provider::name);
    let events = read.cards.iter().map(|card| EventView::new(card, zone, read.rehearsals.get(&card.id))).collect();
    let again = |log: Filter| Wanted { log, problems: Vec::new(), ..wanted.clone() }.address();
    let older = read.cards.last().filter(|_| read.older_events).map(|last| last.id);
    let counted = read.counts.all;
    AccountPage {
        frame: Frame::new("Your account · Bottle", "account").of(Some(person)),
        js: assets::url("live.js"),
        version: &read.version,
        here: Wanted { problems: Vec::new(), ..wanted.clone() }.address(),
        zone: &zone.name,
        problems: &wanted.problems,
        turned_back: read.turned_back.as_ref().map(|checkout| (checkout_view::what(checkout.ware), seller(checkout))),
        set_out: read
            .set_out
            .as_ref()
            .map(|checkout| (checkout_view::what(checkout.ware), seller(checkout), format!("/account/checkout/{}", checkout.id))),
        plan: name(read.standing.plan.as_str()),
        shop: Shop::new(providers, &Buyer { plan: read.standing.plan, pro_through: &read.pro_through, known_as: &read.known_as }),
        tellers: either(&providers.all().map(|(_, provider)| provider.name()).collect::<Vec<_>>()),
        keeps_pro_bottles: read.standing.plan == Plan::Free && bottles.has_pro,
        since: read.standing.plan_changed.map(|at| zone.when(at.datetime())),
        past_due: read.standing.past_due_since.map(|at| zone.when(at)),
        upcoming: upcoming(&read.standing, zone),
        gauge: Gauge::share("bottles", bottles.left, bottles.allowance),
        left: thousands(bottles.left),
        used: thousands(bottles.used),
        allowance: thousands(bottles.allowance),
        month: bottles.period.in_words(),
        renews: zone.when(bottles.renews_at),
        ledger: ledger(wanted, read),
        money: money_view(providers, wanted, read),
        counted: if counted < COUNTED_TO { thousands(counted) } else { format!("{} or more", thousands(COUNTED_TO)) },
        counts: read.counts,
        events,
        filtered: wanted.filters_something(),
        statuses: Status::ALL
            .iter()
            .map(|s| Choice { value: s.as_str(), title: status_mark::word(*s), chosen: wanted.log.statuses.contains(s) })
            .collect(),
        subjects: Subject::ALL
            .iter()
            .map(|s| Choice { value: s.as_str(), title: s.title(), chosen: wanted.log.subject == Some(*s) })
            .collect(),
        wanted_month: wanted.log.month.map(|m| m.to_string()).unwrap_or_default(),
        wanted_id: wanted.log.id.clone().unwrap_or_default(),
        keeps_ledger: wanted.ledger.map(|m| m.to_string()),
        older: older.map(|id| format!("{}#log", again(Filter { before: Some(id), ..wanted.log.clone() }))),
        newest: wanted.log.before.map(|_| format!("{}#log", again(Filter { before: None, ..wanted.log.clone() }))),
    }
    .render()
}

/// The changes of plan that are known to come.
fn upcoming(standing: &Standing, zone: &Zone) -> Vec<(String, When)> {
    let plans = std::iter::once(standing.plan).chain(standing.upcoming.iter().map(|u| u.plan));
    plans
        .zip(&standing.upcoming)
        .filter(|(before, next)| next.plan != *before)
        .map(|(_, next)| (name(next.plan.as_str()), zone.when(Instant::from_nanos(next.at_ns).datetime())))
        .collect()
}

fn ledger(wanted: &Wanted, read: &Read) -> LedgerView {
    let this_month = read.bottles.period;
    let address = |ledger: Period, before: Option<i64>| {
        let ledger = (ledger != this_month || before.is_some()).then_some(ledger);
        format!("{}#bottles-list", Wanted { ledger, ledger_before: before, problems: Vec::new(), ..wanted.clone() }.address())
    };
    let mut months: Vec<Period> = read.months.clone();
    if !months.contains(&this_month) {
        months.insert(0, this_month);
    }
    let has_free = read.older_entries || wanted.ledger_before.is_some() || read.entries.iter().any(|e| e.reason == "free");
    LedgerView {
        month: read.period.in_words(),
        free_to_come: read.period == this_month && !has_free,
        lines: read.entries.iter().map(|line| EntryView::new(line, &read.zone)).collect(),
        older: read.entries.last().filter(|_| read.older_entries).map(|last| address(read.period, Some(last.id))),
        newest: wanted.ledger_before.map(|_| address(read.period, None)),
        months: months
            .into_iter()
            .map(|m| MonthLink { title: m.in_words(), address: address(m, None), is_shown: m == read.period })
            .collect(),
    }
}

fn money_view(providers: &Providers, wanted: &Wanted, read: &Read) -> MoneyView {
    let address = |money_before: Option<i64>| {
        format!("{}#money", Wanted { money_before, problems: Vec::new(), ..wanted.clone() }.address())
    };
    MoneyView {
        lines: read.movements.iter().map(|line| LineView::new(line, &read.zone)).collect(),
        totals: read.totals.iter().map(TotalView::new).collect(),
        packs: read.packs.iter().map(|bill| PackView::new(bill, &read.zone)).collect(),
        silent: providers.all().filter(|(_, provider)| !provider.tells_amounts()).map(|(_, provider)| provider.name()).collect(),
        older: read.movements.last().filter(|_| read.older_movements).map(|last| address(Some(last.id))),
        newest: wanted.money_before.map(|_| address(None)),
    }
}

/// `Kinde or Stripe`.
fn either(names: &[&str]) -> String {
    if names.is_empty() { "the billing provider".to_owned() } else { names.join(" or ") }
}

impl EntryView {
    fn new(line: &Line, zone: &Zone) -> Self {
        let what = match line.reason.as_str() {
            "free" => "Free bottles of the month".to_owned(),
            "pro" => "Bottles of Pro".to_owned(),
            "spend" => "A reminder".to_owned(),
            "return" => "Given back by a reminder that was not sent".to_owned(),
            "pack" => "A pack of bottles".to_owned(),
            other => shown(other, 40),
        };
        let sign = if line.delta < 0 { "" } else { "+" };
        Self {
            when: zone.when(line.created_at),
            what,
            delta: format!("{sign}{}", thousands(line.delta)),
            key: shown(&line.key, 100),
            event: line.event.map(|event| event.0),
        }
    }
}
