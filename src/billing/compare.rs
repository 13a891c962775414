//! Is what is stored what a provider says now? Folds one source's facts as they are, and with the provider's answer among them,
//! by the same rules as everything else. So an answer that the rules would pass over (it lags behind an event) or that changes
//! nothing (it names a plan that nobody configured) is no difference. Reads only.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use sqlx::PgConnection;

use crate::domain::event::Source;
use crate::domain::fact::{Agreement, Dated, Fact};
use crate::domain::ids::{AccountId, AgreementId, EventId, EventKey};
use crate::domain::instant::Instant;
use crate::domain::plan::{Plan, PlanKeys};

use super::apply::{Error, Rules};
use super::facts;
use super::fold::{State, fold};

/// What a provider answered about somebody.
#[derive(Debug, Clone)]
pub struct Answer {
    pub source: Source,
    pub asked: Instant,
    /// None: it knows nobody of their names.
    pub facts: Option<Vec<Fact>>,
}

/// A plan, and the changes of it that are known to come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outlook {
    pub plan: Plan,
    pub to_come: Vec<(Instant, Plan)>,
}

/// Both sides, as one source has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compared {
    pub ours: Outlook,
    /// None: the provider knows nobody of their names.
    pub theirs: Option<Outlook>,
    /// Agreements that give something here and that the provider does not have at all.
    pub only_ours: Vec<AgreementId>,
    /// All agreements that either side names.
    pub named: BTreeSet<AgreementId>,
    /// The newest event that said something about it.
    pub newest: Option<EventId>,
}

impl Compared {
    pub fn is_stale(&self) -> bool {
        self.theirs.as_ref().is_some_and(|theirs| *theirs != self.ours)
    }

    /// We have something that the provider knows nothing of.
    pub fn is_unknown_there(&self) -> bool {
        match self.theirs {
            None => self.ours != Outlook::NOTHING,
            Some(_) => !self.only_ours.is_empty(),
        }
    }
}

impl Outlook {
    pub const NOTHING: Self = Self { plan: Plan::Free, to_come: Vec::new() };

    /// What only an answer about each agreement can say is left out where the answer is another.
    fn of(state: &State, with_ends: bool) -> Self {
        let mut to_come = Vec::new();
        let mut plan = state.plan;
        for change in state.upcoming.iter().filter(|_| with_ends) {
            if change.plan != plan {
                to_come.push((change.at, change.plan));
                plan = change.plan;
            }
        }
        Self { plan: state.plan, to_come }
    }
}

impl fmt::Display for Outlook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.plan)?;
        self.to_come.iter().try_for_each(|(at, plan)| write!(f, ", {plan} from {at}"))
    }
}

/// Sets an answer beside what is stored of an account; none is an account that does not exist yet.
///
/// # Errors
/// The database's, and facts that cannot be read.
pub async fn compare(
    conn: &mut PgConnection,
    account: Option<AccountId>,
    answer: &Answer,
    rules: &Rules,
    now: Instant,
) -> Result<Compared, Error> {
    let stored = match account {
        Some(account) => facts::load(conn, &BTreeSet::from([account])).await?.remove(&account).unwrap_or_default(),
        None => Vec::new(),
    };
    let ours: Vec<Dated> = stored.into_iter().filter(|fact| fact.source == answer.source).collect();
    Ok(sides(ours, answer, &rules.keys, now))
}

fn sides(ours: Vec<Dated>, answer: &Answer, keys: &PlanKeys, now: Instant) -> Compared {
    let newest = ours.iter().map(|fact| fact.event).max();
    let told = answer.facts.as_deref().unwrap_or_default();
    let with_ends = told.iter().any(|fact| matches!(fact, Fact::Agreement(_)));
    let here = Outlook::of(&fold(&ours, keys, now), with_ends);
    let listed = agreements(told);
    let only_ours = match answer.facts {
        Some(_) => live(&ours, keys, now).into_iter().filter(|one| !listed.contains(one)).collect(),
        None => Vec::new(),
    };
    let mut named = listed;
    named.extend(ours.iter().flat_map(|dated| agreements(std::slice::from_ref(&dated.fact))));

    let mut both = ours;
    for fact in told {
        // No event is so young: at its own moment the answer is the last word.
        let (event, key) = (EventId(i64::MAX), EventKey(String::from("\u{10ffff}")));
        both.push(Dated { at: answer.asked, source: answer.source, event, key, fact: fact.clone() });
    }
    both.sort_by(|a, b| a.order().cmp(&b.order()));
    let theirs = answer.facts.is_some().then(|| Outlook::of(&fold(&both, keys, now), with_ends));
    Compared { ours: here, theirs, only_ours, named, newest }
}

/// The agreements that a provider answered about and that give Pro now, by the newest answer about each.
fn live(facts: &[Dated], keys: &PlanKeys, now: Instant) -> Vec<AgreementId> {
    let mut newest: BTreeMap<&AgreementId, &Agreement> = BTreeMap::new();
    for fact in facts {
        let Fact::Agreement(one) = &fact.fact else { continue };
        if newest.get(&one.agreement).is_none_or(|other| one.over || !other.over) {
            newest.insert(&one.agreement, one);
        }
    }
    let gives = |one: &&Agreement| {
        let is_pro = keys.plan_of(&one.plan_key) == Some(Plan::Pro);
        is_pro && !one.over && !one.never_was() && one.until.is_none_or(|until| until > now)
    };
    newest.into_values().filter(gives).map(|one| one.agreement.clone()).collect()
}

fn agreements(facts: &[Fact]) -> BTreeSet<AgreementId> {
    let mut named = BTreeSet::new();
    for fact in facts {
        match fact {
            Fact::Start { agreement, .. } | Fact::End { agreement, .. } => named.extend(agreement.clone()),
            Fact::Agreement(one) => {
                named.insert(one.agreement.clone());
            }
            Fact::Snapshot { live } => named.extend(live.iter().map(|one| one.agreement.clone())),
            _ => {}
        }
    }
    named
}
