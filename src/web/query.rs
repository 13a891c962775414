//! What stands behind the `?` of an address.

use reqwest::Url;

/// The pairs of a query, decoded.
pub fn pairs(query: &str) -> Vec<(String, String)> {
    let mut url = blank();
    url.set_query(Some(query));
    url.query_pairs().into_owned().collect()
}

/// The first value of that name.
pub fn value(query: &str, name: &str) -> Option<String> {
    pairs(query).into_iter().find(|(key, _)| key == name).map(|(_, value)| value)
}

/// `path?name=value`, encoded.
pub fn with(path: &str, name: &str, value: &str) -> String {
    let mut url = blank();
    url.query_pairs_mut().append_pair(name, value);
    format!("{path}?{}", url.query().unwrap_or_default())
}

fn blank() -> Url {
    Url::parse("http://localhost/").expect("this is an address")
}
