//! The dashboard and the alert rules that come with the program: they load, and they ask only for what it tells.

use std::collections::BTreeSet;

use bottle::reconcile::findings::Class;
use bottle::telemetry::labels::Pool;
use bottle::telemetry::metrics::{self, PoolUse, Process, Stored};
use serde_json::Value;

use crate::support::exposition::Exposition;

fn docs(name: &str) -> String {
    std::fs::read_to_string(format!("{}/docs/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// All that a process can tell.
fn told() -> Exposition {
    let pools = [Pool::Intake, Pool::Worker, Pool::Reminders, Pool::Web];
    let pools = pools.map(|pool| PoolUse { pool, max: 4, open: 2, idle: 1 });
    let process = Process { started_secs: Some(1.0), memory_bytes: Some(1.0), open_files: Some(1.0) };
    let stored = Stored { drift: Class::ALL.map(|class| (class.as_str(), 0)).to_vec(), ..Stored::default() };
    let told = Exposition::read(&metrics::write(&pools, Some(&stored), process));
    told.keeps_the_conventions();
    told
}

/// A label, how it is compared, and with what.
type Matcher = (String, String, String);

/// The metrics that a query names, each with its selector's labels and values.
fn asked(query: &str) -> Vec<(String, Vec<Matcher>)> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = query;
    while let Some(start) = ["bottle_", "process_"].iter().filter_map(|prefix| rest.find(prefix)).min() {
        let name: String = rest[start..].chars().take_while(|c| is_of_name(*c)).collect();
        rest = &rest[start + name.len()..];
        let mut labels = Vec::new();
        if let Some(inside) = rest.strip_prefix('{') {
            let (inside, after) = inside.split_once('}').expect("a selector ends");
            for matcher in inside.split(',').filter(|m| !m.is_empty()) {
                let op = ["=~", "!~", "!=", "="].into_iter().find(|op| matcher.contains(op)).expect("a matcher compares");
                let (label, value) = matcher.split_once(op).unwrap();
                labels.push((label.trim().to_owned(), op.to_owned(), value.trim().trim_matches('"').to_owned()));
            }
            rest = after;
        }
        found.push((name, labels));
    }
    found
}

/// The labels that a query groups by.
fn grouped(query: &str) -> Vec<String> {
    let groups = query.split(" by (").skip(1).map(|rest| rest.split_once(')').unwrap().0);
    groups.flat_map(|group| group.split(',').map(|label| label.trim().to_owned()).collect::<Vec<_>>()).collect()
}

fn asks_for_what_is_told(query: &str, told: &Exposition) {
    assert_eq!(query.matches('(').count(), query.matches(')').count(), "{query}");
    let metrics = asked(query);
    assert!(!metrics.is_empty(), "asks for nothing: {query}");
    let mut labels: BTreeSet<String> = ["job", "instance"].map(str::to_owned).into();
    for (name, matchers) in &metrics {
        let series: Vec<_> = told.samples.iter().filter(|sample| sample.name == *name).collect();
        assert!(!series.is_empty(), "{name} is never told: {query}");
        labels.extend(series[0].labels.keys().cloned());
        for (label, _, value) in matchers.iter().filter(|(label, ..)| label != "job") {
            for value in value.split('|') {
                let is_there = series.iter().any(|sample| sample.labels.get(label).is_some_and(|is| is == value));
                assert!(is_there, "{name} has no {label}=\"{value}\": {query}");
            }
        }
        if told.types.get(name).is_some_and(|kind| kind == "counter") {
            let watched = query.contains(&format!("rate({name}")) || query.contains(&format!("increase({name}"));
            assert!(watched, "a counter is looked at by its rate: {query}");
        }
    }
    for label in grouped(query) {
        assert!(labels.contains(&label), "grouped by {label}, which nothing has: {query}");
    }
}

#[test]
fn the_dashboard_loads_and_each_panel_asks_for_what_the_program_tells() {
    let (board, told): (Value, _) = (serde_json::from_str(&docs("grafana.json")).unwrap(), told());
    assert_eq!((&board["uid"], &board["title"]), (&"bottle".into(), &"Bottle".into()));
    assert!(board["schemaVersion"].as_u64().is_some_and(|version| version >= 36));
    assert!(board.get("id").is_none(), "an id is given by the Grafana that imports it");
    let variables: Vec<&str> =
        board["templating"]["list"].as_array().unwrap().iter().map(|v| v["name"].as_str().unwrap()).collect();
    assert_eq!(variables, ["datasource", "job"]);
    assert_eq!(board["templating"]["list"][0]["type"], "datasource");

    let (mut ids, mut places, mut asked_for) = (BTreeSet::new(), Vec::<[u64; 4]>::new(), BTreeSet::new());
    for panel in board["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().filter(|title| !title.is_empty()).unwrap_or_else(|| panic!("{panel}"));
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: its id is taken");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
        assert!(w > 0 && h > 0 && x + w <= 24, "{title}: outside the grid");
        for [ox, oy, ow, oh] in &places {
            assert!(x >= ox + ow || *ox >= x + w || y >= oy + oh || *oy >= y + h, "{title} lies over another panel");
        }
        places.push([x, y, w, h]);
        if panel["type"] == "row" {
            continue;
        }
        assert!(["timeseries", "stat"].contains(&panel["type"].as_str().unwrap()), "{title}");
        let unit = panel["fieldConfig"]["defaults"]["unit"].as_str().unwrap_or_default();
        assert!(["short", "s", "ops", "reqps", "bytes", "percentunit"].contains(&unit), "{title}: unit `{unit}`");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title}");
        let mut refs = BTreeSet::new();
        for target in targets {
            assert!(refs.insert(target["refId"].as_str().unwrap()), "{title}");
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
            let query = target["expr"].as_str().unwrap();
            asks_for_what_is_told(query, &told);
            asked_for.extend(asked(query).into_iter().map(|(name, _)| name));
            if query.contains("_seconds") && unit == "ops" {
                panic!("{title}: seconds shown as a rate");
            }
        }
    }
    let shown = |name: &str| asked_for.iter().any(|asked| asked == name || asked.strip_suffix("_bucket") == Some(name));
    let unseen: Vec<_> = told.types.keys().filter(|name| !shown(name)).collect();
    assert!(unseen.is_empty(), "told and never shown: {unseen:?}");
}

#[test]
fn each_alert_rule_asks_for_what_the_program_tells_and_says_what_to_do() {
    let (text, told) = (docs("prometheus-rules.yml"), told());
    assert!(!text.contains('\t'), "YAML has no tabs");
    let rules: Vec<&str> = text.split("\n      - alert: ").skip(1).collect();
    assert!(rules.len() >= 10);
    let mut names = BTreeSet::new();
    for rule in rules {
        let name = rule.lines().next().unwrap();
        assert!(name.starts_with("Bottle") && names.insert(name), "{name}");
        let field = |field: &str| {
            let begin = rule.find(&format!(" {field}: ")).unwrap_or_else(|| panic!("{name} has no {field}"));
            &rule[begin + field.len() + 3..]
        };
        let expr = field("expr");
        let expr = match expr.strip_prefix(">-") {
            // Folded: as far as it is indented.
            Some(folded) => {
                folded.lines().skip(1).take_while(|line| line.starts_with("          ")).collect::<Vec<_>>().join(" ")
            }
            None => expr.lines().next().unwrap().to_owned(),
        };
        asks_for_what_is_told(&expr, &told);
        let severity = field("severity").lines().next().unwrap();
        assert!(["page", "ticket"].contains(&severity), "{name}: {severity}");
        for words in ["summary", "description"] {
            let words = field(words).lines().next().unwrap();
            assert!(words.len() > 15, "{name}");
            let is_quoted = words.starts_with('"') && words.ends_with('"');
            assert!(
                is_quoted || !(words.starts_with(['{', '*', '&', '"']) || words.contains(": ") || words.contains(" #")),
                "{words}"
            );
        }
    }
}
