//! The fields of a form or an address, as they come: each may be missing, twice, or anything. Whoever asks for a field gets
//! text; fields nobody asks for change nothing.

use axum::extract::rejection::FormRejection;
use axum::extract::{Form, FromRequest, Query, Request};
use axum::http::Uri;
use axum::response::Response;

use super::error;
use super::state::AppState;

#[derive(Debug, Clone, Default)]
pub struct Fields(Vec<(String, String)>);

impl Fields {
    pub fn of_address(uri: &Uri) -> Self {
        Query::try_from_uri(uri).map_or_else(|_| Self::default(), |Query(pairs)| Self(pairs))
    }

    /// The first of that name; empty if there is none.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.as_str())
    }

    /// Something that has a written form; none if it is not one.
    pub fn read<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.get(name).parse().ok()
    }
}

/// The query of an address, with its question mark; nothing for no fields.
pub fn query(pairs: &[(&str, &str)]) -> String {
    if pairs.is_empty() {
        return String::new();
    }
    // The address before it only carries the query.
    reqwest::Url::parse_with_params("http://localhost/", pairs)
        .ok()
        .and_then(|url| url.query().map(|query| format!("?{query}")))
        .unwrap_or_default()
}

impl FromRequest<AppState> for Fields {
    type Rejection = Response;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Response> {
        match Form::from_request(request, state).await {
            Ok(Form(pairs)) => Ok(Self(pairs)),
            Err(FormRejection::BytesRejection(_)) => Err(error::too_large()),
            Err(_) => Err(error::no_form()),
        }
    }
}
