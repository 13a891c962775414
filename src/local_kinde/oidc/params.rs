//! The parameters of a request, each at most once, as OAuth demands.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// What was given; an empty value counts as none.
#[derive(Debug, Clone, Default)]
pub struct Params {
    given: BTreeMap<String, String>,
    twice: Option<String>,
}

impl Params {
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut params = Self::default();
        for (name, value) in pairs {
            match params.given.entry(name) {
                Entry::Occupied(there) => params.twice = Some(there.key().clone()),
                Entry::Vacant(free) => _ = free.insert(value),
            }
        }
        params
    }

    /// Of a query string, undecoded.
    pub fn of_query(query: Option<&str>) -> Self {
        let mut url = reqwest::Url::parse("http://query/").expect("a constant URL parses");
        url.set_query(query);
        Self::new(url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())))
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.given.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// A parameter that was given twice.
    pub fn twice(&self) -> Option<&str> {
        self.twice.as_deref()
    }
}
