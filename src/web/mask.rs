//! What an event said, without what nobody needs to see of a person: addresses, names, secrets. Masked by the name a value
//! stands under, and by what it looks like wherever it stands.

use serde_json::{Map, Value};

const HIDDEN: &str = "••••";

/// The same JSON with personal values masked.
pub fn masked(value: Value) -> Value {
    inside(value, None)
}

fn inside(value: Value, of: Option<&str>) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .map(|(name, value)| {
                    let value = if is_personal(&name, of) { hidden(value) } else { inside(value, Some(&name)) };
                    (text(&name), value)
                })
                .collect::<Map<_, _>>(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(|item| inside(item, of)).collect()),
        Value::String(words) => Value::String(text(&words)),
        other => other,
    }
}

/// Of a person, or a secret, by its name. The name of a plan is no person's.
fn is_personal(name: &str, of: Option<&str>) -> bool {
    let name: String = name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    let of = of.unwrap_or_default();
    let names_a_thing = ["plan", "price", "product", "feature", "organization"].iter().any(|thing| of.contains(thing));
    let parts = [
        "email",
        "phone",
        "password",
        "secret",
        "token",
        "apikey",
        "authorization",
        "cookie",
        "address",
        "birth",
        "firstname",
        "lastname",
        "givenname",
        "familyname",
        "fullname",
        "nickname",
        "username",
        "displayname",
        "picture",
        "card",
        "iban",
        "postal",
        "zipcode",
        "street",
        "city",
        "signature",
    ];
    parts.iter().any(|part| name.contains(part))
        || name == "ip"
        || name.starts_with("ipaddr")
        || (name == "name" && !names_a_thing)
}

fn hidden(value: Value) -> Value {
    match value {
        Value::Null | Value::Bool(_) => value,
        Value::Object(fields) => Value::Object(fields.into_iter().map(|(name, value)| (text(&name), hidden(value))).collect()),
        Value::Array(items) => Value::Array(items.into_iter().map(hidden).collect()),
        Value::String(words) if words.is_empty() => Value::String(words),
        Value::String(_) | Value::Number(_) => Value::String(HIDDEN.to_owned()),
    }
}

/// Words that are an address or a token, or hold one.
fn text(words: &str) -> String {
    words.split_inclusive(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | '<' | '>' | '"' | '\'' | '(' | ')')).fold(
        String::with_capacity(words.len()),
        |mut out, word| {
            let bare =
                word.trim_end_matches(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | '<' | '>' | '"' | '\'' | '(' | ')'));
            if is_address(bare) || is_token(bare) {
                out.push_str(HIDDEN);
                out.push_str(&word[bare.len()..]);
            } else {
                out.push_str(word);
            }
            out
        },
    )
}

fn is_address(word: &str) -> bool {
    word.split_once('@').is_some_and(|(who, host)| !who.is_empty() && host.contains('.'))
}

/// Three parts of base64url, or a key as providers write their secrets.
fn is_token(word: &str) -> bool {
    let encoded = |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    let parts: Vec<&str> = word.split('.').collect();
    (word.starts_with("eyJ") && parts.len() == 3 && parts.iter().all(|part| encoded(part)))
        || ["sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_", "Bearer"].iter().any(|start| word.starts_with(start))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn persons_and_secrets_are_masked_and_the_rest_is_whole() {
        let said = json!({
            "type": "customer.plan_changed", "event_id": "event_1", "amount": 123_456_789_012_u64,
            "data": {
                "user": {"id": "kp_1", "first_name": "Ada", "email": "ada@example.com", "phones": ["+49", "+44"], "name": "Ada L."},
                "plan": {"key": "customer_pro_plan", "name": "Pro"},
                "note": "ask ada@example.com, or use eyJhbGciOiJ.eyJzdWI.c2ln now",
                "access_token": "abc", "email_verified": true, "ip": "10.0.0.1", "key": "whsec_abc",
            }
        });
        let expected = json!({
            "type": "customer.plan_changed", "event_id": "event_1", "amount": 123_456_789_012_u64,
            "data": {
                "user": {"id": "kp_1", "first_name": HIDDEN, "email": HIDDEN, "phones": [HIDDEN, HIDDEN], "name": HIDDEN},
                "plan": {"key": "customer_pro_plan", "name": "Pro"},
                "note": format!("ask {HIDDEN}, or use {HIDDEN} now"),
                "access_token": HIDDEN, "email_verified": true, "ip": HIDDEN, "key": HIDDEN,
            }
        });
        assert_eq!(masked(said), expected);
    }
}
