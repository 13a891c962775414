//! In what two messages under one id differ, value by value, so that a person can judge without reading both.

use serde_json::Value;

use crate::web::shown::shown;

/// More places than this are not listed.
pub(super) const SHOWN: usize = 40;
const VALUE_MAX: usize = 120;

/// One place in which they differ; none where one of them has nothing there.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Difference {
    pub place: String,
    pub first: Option<String>,
    pub other: Option<String>,
}

/// Every place, in the order of names.
pub(super) fn differences(first: &Value, other: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    compare(String::new(), Some(first), Some(other), &mut found);
    found
}

fn compare(place: String, first: Option<&Value>, other: Option<&Value>, found: &mut Vec<Difference>) {
    match (first, other) {
        (Some(Value::Object(one)), Some(Value::Object(two))) => {
            let mut names: Vec<&String> = one.keys().chain(two.keys()).collect();
            names.sort();
            names.dedup();
            for name in names {
                let within = if place.is_empty() { shown(name, 60) } else { format!("{place}.{}", shown(name, 60)) };
                compare(within, one.get(name), two.get(name), found);
            }
        }
        (Some(Value::Array(one)), Some(Value::Array(two))) => {
            for n in 0..one.len().max(two.len()) {
                compare(format!("{place}[{n}]"), one.get(n), two.get(n), found);
            }
        }
        (first, other) if first == other => {}
        (first, other) => found.push(Difference { place, first: first.map(told), other: other.map(told) }),
    }
}

fn told(value: &Value) -> String {
    shown(&value.to_string(), VALUE_MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_place_is_named() {
        let one = json!({"a": 1, "data": {"plan": {"key": "pro"}, "items": [1, 2]}, "gone": null});
        let two = json!({"a": 1, "data": {"plan": {"key": "free"}, "items": [1]}, "new": "x"});
        let found = differences(&one, &two);
        let told: Vec<String> = found.iter().map(|d| format!("{} {:?} {:?}", d.place, d.first, d.other)).collect();
        assert_eq!(
            told,
            [
                "data.items[1] Some(\"2\") None",
                "data.plan.key Some(\"\\\"pro\\\"\") Some(\"\\\"free\\\"\")",
                "gone Some(\"null\") None",
                "new None Some(\"\\\"x\\\"\")"
            ]
        );
        assert_eq!(differences(&one, &one), []);
    }
}
