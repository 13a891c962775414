//! What the program seals, opened and sealed again by a test that has its key.

use axum::http::{HeaderMap, HeaderValue};
use axum::response::IntoResponse;
use axum_extra::extract::cookie::{Cookie, Key, PrivateCookieJar};
use bottle::config::Secret;
use bottle::seal;
use serde_json::Value;

use super::app::SESSION_KEY;

/// The cookie of a sign-in under way, as if it had begun that much earlier.
pub fn aged(sealed: &str, secs: i64) -> String {
    let key = Key::from(&seal::derive::<64>(&Secret::new(SESSION_KEY), "the cookie of a sign-in under way"));
    let mut headers = HeaderMap::new();
    headers.insert("cookie", HeaderValue::from_str(&format!("bottle-login={sealed}")).unwrap());
    let jar = PrivateCookieJar::from_headers(&headers, key);
    let mut tabs: Value = serde_json::from_str(jar.get("bottle-login").unwrap().value()).unwrap();
    for tab in tabs.as_array_mut().unwrap() {
        tab["began_at"] = (tab["began_at"].as_i64().unwrap() - secs).into();
    }
    let jar = jar.add(Cookie::new("bottle-login", tabs.to_string()));
    let answer = (jar, "").into_response();
    let set = answer.headers()["set-cookie"].to_str().unwrap();
    set.split(';').next().unwrap().strip_prefix("bottle-login=").unwrap().to_owned()
}
