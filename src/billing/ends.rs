//! The Ends among one source's facts, arranged so that "what ends this Start first?" is a look-up.

use std::collections::HashMap;
use std::time::Duration;

use crate::domain::fact::{Dated, Fact};
use crate::domain::ids::{AgreementId, EventKey};
use crate::domain::instant::Instant;

use super::fold::end_of;

/// One End: when it was said, when it takes effect, which event said it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ending<'f> {
    pub said: Instant,
    pub effective: Instant,
    pub key: &'f EventKey,
}

impl Ending<'_> {
    /// Of those that take effect together the first to be said stands for all.
    fn rank(&self) -> (Instant, Instant, &EventKey) {
        (self.effective, self.said, self.key)
    }

    pub fn first(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        [one, other].into_iter().flatten().min_by(|a, b| a.rank().cmp(&b.rank()))
    }

    pub fn last(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        [one, other].into_iter().flatten().max_by(|a, b| a.rank().cmp(&b.rank()))
    }
}

/// Ends in order of when they were said; `first_from[n]` is the earliest to take effect among `said[n..]`.
#[derive(Default)]
struct Series<'f> {
    said: Vec<Ending<'f>>,
    first_from: Vec<Ending<'f>>,
}

impl<'f> Series<'f> {
    fn arrange(&mut self) {
        let mut first = None;
        self.first_from = self
            .said
            .iter()
            .rev()
            .filter_map(|end| {
                first = Ending::first(first, Some(*end));
                first
            })
            .collect();
        self.first_from.reverse();
    }

    /// The first to take effect of those said at `from` or later.
    fn from(&self, from: Instant) -> Option<Ending<'f>> {
        self.first_from.get(self.said.partition_point(|end| end.said < from)).copied()
    }

    /// The first to take effect of those said later than `after`.
    fn after(&self, after: Instant) -> Option<Ending<'f>> {
        self.first_from.get(self.said.partition_point(|end| end.said <= after)).copied()
    }

    /// Of those said by `at`, the first that takes effect later.
    fn pending(&self, at: Instant) -> Option<Ending<'f>> {
        let said = &self.said[..self.said.partition_point(|end| end.said <= at)];
        said.iter().filter(|end| end.effective > at).fold(None, |first, end| Ending::first(first, Some(*end)))
    }
}

pub struct Ends<'f> {
    by_agreement: HashMap<&'f AgreementId, Series<'f>>,
    naming_some: Series<'f>,
    naming_none: Series<'f>,
}

impl<'f> Ends<'f> {
    pub fn of(facts: &[&'f Dated]) -> Self {
        let mut ends = Self { by_agreement: HashMap::new(), naming_some: Series::default(), naming_none: Series::default() };
        for fact in facts {
            let (Fact::End { agreement, .. }, Some(effective)) = (&fact.fact, end_of(fact)) else { continue };
            let ending = Ending { said: fact.at, effective, key: &fact.key };
            match agreement {
                Some(agreement) => {
                    ends.by_agreement.entry(agreement).or_default().said.push(ending);
                    ends.naming_some.said.push(ending);
                }
                None => ends.naming_none.said.push(ending),
            }
        }
        ends.by_agreement.values_mut().for_each(Series::arrange);
        ends.naming_some.arrange();
        ends.naming_none.arrange();
        ends
    }

    /// The first End of this agreement said at `from` or later.
    pub fn naming(&self, agreement: &AgreementId, from: Instant) -> Option<Ending<'f>> {
        self.by_agreement.get(agreement)?.from(from)
    }

    /// The first End that names no agreement, said later than `after`.
    pub fn naming_none(&self, after: Instant) -> Option<Ending<'f>> {
        self.naming_none.after(after)
    }

    /// The first End said later than `after` that names an agreement while no Start of another one is live.
    pub fn naming_other<'l>(&self, after: Instant, mut live: impl Iterator<Item = &'l AgreementId>) -> Option<Ending<'f>> {
        match (live.next(), live.next()) {
            (None, _) => self.naming_some.after(after),
            (Some(only), None) => self.by_agreement.get(only)?.after(after),
            (Some(_), Some(_)) => None,
        }
    }

    /// Was this agreement said to end between two moments, both included?
    pub fn named_between(&self, agreement: &AgreementId, from: Instant, until: Instant) -> bool {
        let Some(series) = self.by_agreement.get(agreement) else { return false };
        let next = series.said.partition_point(|end| end.said < from);
        series.said.get(next).is_some_and(|end| end.said <= until)
    }

    /// The first End of an agreement that the provider listed as live when asked at `asked`: one said later, or one said
    /// before that takes effect later.
    pub fn of_listed(&self, agreement: &AgreementId, asked: Instant, span: Duration) -> Option<Ending<'f>> {
        let named = self.by_agreement.get(agreement).and_then(|s| Ending::first(s.after(asked), s.pending(asked)));
        let unnamed = Ending::first(self.naming_none.after(asked.plus(span)), self.naming_none.pending(asked));
        Ending::first(named, unnamed)
    }
}
