//! The text format of Prometheus, read by its description and by nothing of the program's own, and its naming conventions.

use std::collections::{BTreeMap, BTreeSet};

use super::binary::Bottle;

#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

#[derive(Debug, Default)]
pub struct Exposition {
    /// Name of a family → its type.
    pub types: BTreeMap<String, String>,
    helps: BTreeMap<String, String>,
    pub samples: Vec<Sample>,
}

impl Exposition {
    pub fn read(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line ends too");
        let mut all = Self::default();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                assert!(all.helps.insert(name.to_owned(), help.to_owned()).is_none(), "told twice: {line}");
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(all.types.insert(name.to_owned(), kind.to_owned()).is_none(), "told twice: {line}");
            } else {
                all.samples.push(sample(line));
            }
        }
        all
    }

    /// The series of this name whose labels are, or include, these: their sum.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let of = |s: &&Sample| s.name == name && labels.iter().all(|(n, v)| s.labels.get(*n).is_some_and(|is| is == v));
        let found: Vec<&Sample> = self.samples.iter().filter(of).collect();
        assert!(!found.is_empty(), "no series {name} {labels:?}");
        found.iter().map(|s| s.value).sum()
    }

    /// Each series without its value.
    pub fn series(&self) -> BTreeSet<String> {
        self.samples.iter().map(|s| format!("{} {:?}", s.name, s.labels)).collect()
    }

    pub fn keeps_the_conventions(&self) {
        assert_eq!(self.helps.keys().collect::<Vec<_>>(), self.types.keys().collect::<Vec<_>>());
        assert_eq!(self.series().len(), self.samples.len(), "a series is told twice");
        for (name, kind) in &self.types {
            let plain = name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') && !name.contains("__");
            assert!(plain && (name.starts_with("bottle_") || name.starts_with("process_")), "{name}");
            assert!(self.helps[name].ends_with('.') && self.helps[name].len() > 5, "{name}: {}", self.helps[name]);
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
            for other_unit in ["_ms", "_millis", "_milliseconds", "_minutes", "_kb", "_kilobytes", "_percent", "_count"] {
                assert!(!name.ends_with(other_unit), "{name}");
            }
            match kind.as_str() {
                "histogram" => {
                    assert!(name.ends_with("_seconds"), "{name}");
                    self.adds_up(name);
                }
                "counter" | "gauge" => {}
                other => panic!("{name} is a {other}"),
            }
        }
        for sample in &self.samples {
            assert!(sample.value >= 0.0, "{sample:?}");
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| {
                let family = sample.name.strip_suffix(end)?;
                (self.types.get(family)? == "histogram").then_some(family)
            });
            assert!(self.types.contains_key(family.unwrap_or(&sample.name)), "a series of no family: {sample:?}");
            for (name, value) in &sample.labels {
                assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{sample:?}");
                assert!(value.len() < 40, "{sample:?}");
            }
        }
    }

    /// Buckets do not fall, and the last holds all.
    fn adds_up(&self, name: &str) {
        let mut series: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for sample in self.samples.iter().filter(|s| s.name == format!("{name}_bucket")) {
            let mut labels = sample.labels.clone();
            let le = labels.remove("le").expect("a bucket has a bound");
            let le = if le == "+Inf" { f64::INFINITY } else { le.parse().unwrap() };
            series.entry(format!("{labels:?}")).or_default().push((le, sample.value));
        }
        assert!(!series.is_empty(), "{name} has no series");
        for (labels, buckets) in series {
            assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{name} {labels}: {buckets:?}");
            assert_eq!(buckets.last().unwrap().0, f64::INFINITY, "{name} {labels}");
            let count = self.samples.iter().find(|s| s.name == format!("{name}_count") && format!("{:?}", s.labels) == labels);
            assert_eq!(count.unwrap().value, buckets.last().unwrap().1, "{name} {labels}");
        }
    }
}

/// `name{label="value",…} value`
fn sample(line: &str) -> Sample {
    let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
    let value = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
    let Some((name, rest)) = series.split_once('{') else {
        return Sample { name: series.to_owned(), labels: BTreeMap::new(), value };
    };
    let inside = rest.strip_suffix('}').unwrap_or_else(|| panic!("no end of labels: {line}"));
    let mut labels = BTreeMap::new();
    for pair in inside.split(',') {
        let (name, value) = pair.split_once('=').unwrap_or_else(|| panic!("no label: {line}"));
        let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or_else(|| panic!("{line}"));
        assert!(!value.contains(['"', '\\', '\n']), "{line}");
        assert!(labels.insert(name.to_owned(), value.to_owned()).is_none(), "{line}");
    }
    Sample { name: name.to_owned(), labels, value }
}

/// Where the program says that its metrics are.
pub async fn address(bottle: &Bottle) -> String {
    let begun = std::time::Instant::now();
    loop {
        let said = bottle.said();
        if let Some((url, _)) = said.split_once("Metrics are at ").and_then(|(_, rest)| rest.split_once(".\n")) {
            return url.to_owned();
        }
        assert!(begun.elapsed().as_secs() < 10, "{said}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

pub async fn text_at(url: &str) -> String {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = http.get(url).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    answer.text().await.unwrap()
}

pub async fn scraped(bottle: &Bottle) -> Exposition {
    let metrics = Exposition::read(&text_at(&address(bottle).await).await);
    metrics.keeps_the_conventions();
    metrics
}
