//! Who a browser is signed in as here. The cookie is this Kinde's own; the app has another.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;

use crate::local_kinde::Error;
use crate::local_kinde::history;
use crate::local_kinde::local::Local;
use crate::local_kinde::moment::At;
use crate::local_kinde::people;
use crate::local_kinde::state::{Session, State};

const COOKIE: &str = "local_kinde_session";
const LASTS: Duration = Duration::from_hours(30 * 24);

/// The cookie's value.
pub fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|line| line.split(';')).find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

pub fn find(local: &Local, headers: &HeaderMap) -> Option<Session> {
    local.store.read(|state| state.find_session(cookie(headers), At::now()).cloned())
}

/// Signs somebody in under a new cookie; the browser's old one is worth nothing afterwards.
///
/// # Errors
/// Their past could not be signed.
pub fn begin(local: &Local, state: &mut State, old: Option<&str>, user_id: &str, now: At) -> Result<String, Error> {
    if let Some(old) = old {
        state.sessions.remove(old);
    }
    let id = people::fresh("");
    let session = Session { user_id: user_id.to_owned(), signed_in_at: now, expires: now.after(LASTS) };
    state.sessions.insert(id.clone(), session);
    if let Some(person) = state.find_person_mut(user_id) {
        let first = person.sign_ins == 0;
        person.sign_ins += 1;
        person.last_sign_in = Some(now);
        if first && user_id == history::ada() {
            local.tell_history(state, now)?;
        }
    }
    Ok(id)
}

pub fn set(response: &mut Response, id: &str) {
    put(response, &format!("{COOKIE}={id}; Path=/; HttpOnly; SameSite=Lax; Max-Age={}", LASTS.as_secs()));
}

pub fn clear(response: &mut Response) {
    put(response, &format!("{COOKIE}=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0"));
}

fn put(response: &mut Response, cookie: &str) {
    if let Ok(value) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(header::SET_COOKIE, value);
    }
}
