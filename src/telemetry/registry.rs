//! Families of metrics: the client library of the Prometheus project counts and writes them down, and here is what we ask of it
//! beyond that.
//!
//! A family has all its series from the beginning, at zero, and never gets another: a rate over a counter that appears with its
//! first failure misses just that failure, and a family that cannot grow cannot be flooded.

use std::array;
use std::fmt::Debug;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeMetric;
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// A label's name, and the values it can have.
pub(super) type Label = (&'static str, &'static [&'static str]);

/// Names and values of one series.
type Series<const N: usize> = [(&'static str, &'static str); N];

/// Counters or histograms with `N` labels.
pub(super) struct Closed<const N: usize, M> {
    names: [&'static str; N],
    new: fn() -> M,
    series: Family<Series<N>, M, fn() -> M>,
}

impl<const N: usize, M: EncodeMetric + TypedMetric + Clone + Debug + Send + Sync + 'static> Closed<N, M> {
    /// The library puts `_total` behind a counter's name, and a full stop behind each help.
    pub(super) fn new(registry: &mut Registry, name: &str, help: &str, labels: [Label; N], new: fn() -> M) -> Self {
        let series = Family::new_with_constructor(new);
        for of in every(&labels) {
            drop(series.get_or_create(&of));
        }
        registry.register(name, help, series.clone());
        Self { names: labels.map(|(name, _)| name), new, series }
    }

    /// The series with these values, in the order of the labels. Values that are in no label's set lead to one that nobody is told of.
    pub(super) fn of(&self, values: [&'static str; N]) -> M {
        let found = self.series.get(&series(self.names, values));
        debug_assert!(found.is_some(), "there is no series {:?}", series(self.names, values));
        found.as_deref().cloned().unwrap_or_else(self.new)
    }
}

/// Adds what was read just now. Nothing read: nothing is told.
pub(super) fn read<const N: usize>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    names: [&'static str; N],
    readings: impl IntoIterator<Item = ([&'static str; N], f64)>,
) {
    let gauges = Family::<Series<N>, Gauge<f64, AtomicU64>>::default();
    for (values, reading) in readings {
        gauges.get_or_create(&series(names, values)).set(reading);
    }
    registry.register(name, help, gauges);
}

fn series<const N: usize>(names: [&'static str; N], values: [&'static str; N]) -> Series<N> {
    array::from_fn(|n| (names[n], values[n]))
}

/// Each value of each label with each of the others.
fn every<const N: usize>(labels: &[Label; N]) -> Vec<Series<N>> {
    let mut all = vec![labels.map(|(name, _)| (name, ""))];
    for (n, (name, values)) in labels.iter().enumerate() {
        let with = |of: Series<N>| {
            values.iter().map(move |value| {
                let mut of = of;
                of[n] = (*name, *value);
                of
            })
        };
        all = all.into_iter().flat_map(with).collect();
    }
    all
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::prometheus_text::encode;
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    const SIDES: [Label; 2] = [("side", &["left", "right"]), ("end", &["ok", "failed", "lost"])];

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn each_series_is_there_from_the_beginning_and_counts_for_itself() {
        let mut registry = Registry::default();
        let turns = Closed::new(&mut registry, "bottle_turns", "Turns", SIDES, <Counter>::default);
        turns.of(["right", "lost"]).inc_by(2);
        turns.of(["left", "failed"]).inc();
        let text = text(&registry);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], ["# HELP bottle_turns_total Turns.", "# TYPE bottle_turns_total counter"]);
        assert_eq!(lines[2..].len(), 6, "{text}");
        assert!(lines.contains(&"bottle_turns_total{side=\"left\",end=\"failed\"} 1"), "{text}");
        assert!(lines.contains(&"bottle_turns_total{side=\"right\",end=\"lost\"} 2"), "{text}");
        assert_eq!(lines.iter().filter(|line| line.ends_with(" 0")).count(), 4, "{text}");
    }

    #[test]
    fn a_family_without_labels_is_one_series() {
        let mut registry = Registry::default();
        Closed::new(&mut registry, "bottle_turns", "Turns", [], <Counter>::default).of([]).inc();
        read(&mut registry, "bottle_height", "Height", [], [([], 2.5)]);
        let text = text(&registry);
        assert!(text.contains("\nbottle_turns_total 1\n") && text.contains("\nbottle_height 2.5\n"), "{text}");
    }

    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "there is no series"))]
    fn no_value_from_outside_makes_a_series() {
        let mut registry = Registry::default();
        let turns = Closed::new(&mut registry, "bottle_turns", "Turns", SIDES, <Counter>::default);
        turns.of(["up", "ok\"} 1\nother 2"]).inc();
        assert_eq!(text(&registry).lines().count(), 2 + 6);
    }
}
