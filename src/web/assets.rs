//! The files a page loads. They are part of the program; a debug build reads them from the checkout instead, so that a change
//! shows at the next reload.
//!
//! Each address carries a hash of the content (`/static/app.css?v=…`), so a browser may keep a file for good and still never
//! shows a page with the style of an older one.

use std::borrow::Cow;

use axum::extract::{Path, RawQuery};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

struct Asset {
    name: &'static str,
    content_type: &'static str,
    #[cfg_attr(debug_assertions, expect(dead_code, reason = "a debug build reads the file instead"))]
    embedded: &'static [u8],
}

macro_rules! asset {
    ($name:literal, $content_type:literal) => {
        Asset {
            name: $name,
            content_type: $content_type,
            embedded: include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/static/", $name)),
        }
    };
}

const ASSETS: [Asset; 5] = [
    asset!("app.css", "text/css; charset=utf-8"),
    asset!("engine_room.js", "text/javascript; charset=utf-8"),
    asset!("live.js", "text/javascript; charset=utf-8"),
    asset!("reminders.js", "text/javascript; charset=utf-8"),
    asset!("favicon.svg", "image/svg+xml"),
];

impl Asset {
    fn find(name: &str) -> Option<&'static Self> {
        ASSETS.iter().find(|asset| asset.name == name)
    }

    #[cfg(not(debug_assertions))]
    fn content(&self) -> Cow<'static, [u8]> {
        Cow::Borrowed(self.embedded)
    }

    #[cfg(debug_assertions)]
    fn content(&self) -> Cow<'static, [u8]> {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/static/");
        Cow::Owned(std::fs::read(format!("{file}{}", self.name)).unwrap_or_default())
    }

    fn version(&self) -> String {
        let hash = Sha256::digest(self.content());
        hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Where a page finds a file, its version included.
pub fn url(name: &str) -> String {
    let version = Asset::find(name).map(Asset::version).unwrap_or_default();
    format!("/static/{name}?v={version}")
}

/// `GET /static/{name}`. Under its own version a file is kept for a year; under any other it is asked for again.
pub async fn serve(Path(name): Path<String>, RawQuery(query): RawQuery) -> Response {
    let Some(asset) = Asset::find(&name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let current = query.as_deref().and_then(|query| query.strip_prefix("v=")) == Some(asset.version().as_str());
    let keep = if current { "public, max-age=31536000, immutable" } else { "no-cache" };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(asset.content_type)),
        (header::CACHE_CONTROL, HeaderValue::from_static(keep)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (headers, asset.content()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_is_kept_for_good_under_its_own_version_only() {
        for asset in &ASSETS {
            let (path, query) = url(asset.name).split_once('?').map(|(p, q)| (p.to_owned(), q.to_owned())).unwrap();
            let name = path.trim_start_matches("/static/").to_owned();
            let kept = serve(Path(name.clone()), RawQuery(Some(query))).await;
            assert_eq!(kept.status(), StatusCode::OK);
            assert!(kept.headers()[header::CACHE_CONTROL].to_str().unwrap().contains("immutable"));
            let asked_again = serve(Path(name), RawQuery(Some("v=0".into()))).await;
            assert_eq!(asked_again.headers()[header::CACHE_CONTROL], "no-cache");
        }
        assert_eq!(serve(Path("../Cargo.toml".into()), RawQuery(None)).await.status(), StatusCode::NOT_FOUND);
    }
}
