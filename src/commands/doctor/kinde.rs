//! Kinde: its keys, its sign-in, its Management API, and whether it posts to us what we read.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::header::HeaderMap;
use reqwest::{Method, StatusCode};
use serde_json::Value;
use time::OffsetDateTime;

use super::line::Line;
use super::{chain, database};
use crate::config::{Config, Kinde, M2m};
use crate::outbound::{Answer, Client, OutboundError};
use crate::providers::kinde::READ;

const ANSWER_MAX: usize = 1024 * 1024;
/// What is asked of the Management API, and what only the doctor asks.
const SCOPES: [&str; 2] = ["read:billing_agreements", "read:users"];
const SCOPE_OF_WEBHOOKS: &str = "read:webhooks";

pub async fn look(config: &Config) -> Vec<Line> {
    let Some(kinde) = &config.kinde else {
        let words = if config.wants_local_kinde() {
            "none is configured; a local one runs beside Bottle"
        } else {
            "none is configured: nobody can sign in, and /webhooks/kinde answers 501"
        };
        return vec![if config.wants_local_kinde() || config.stripe.is_some() {
            Line::ok("kinde", words)
        } else {
            Line::warning("kinde", words, "set KINDE_DOMAIN")
        }];
    };
    let client = match Client::new(&kinde.domain) {
        Ok(client) => client,
        Err(error) => return vec![Line::wrong("kinde", format!("KINDE_DOMAIN: {error}"), "mend KINDE_DOMAIN")],
    };
    let ours = config.webhook_url("kinde");
    let (keys, sign_in, management) = tokio::join!(keys(&client), sign_in(kinde), management(&client, kinde, &ours));
    keys.into_iter().chain(sign_in).chain(management).collect()
}

/// Without them no delivery can be told from a forged one.
async fn keys(client: &Client) -> Vec<Line> {
    let todo = "look at KINDE_DOMAIN; until it answers, deliveries are answered with 503 and come again";
    let answer = match get(client, "/.well-known/jwks", None).await {
        Ok(answer) => answer,
        Err(error) => return vec![Line::wrong("kinde", format!("its public keys: {}", chain(&error)), todo)],
    };
    let mut lines = vec![match (answer.status, read(&answer.body)["keys"].as_array().map(Vec::len)) {
        (StatusCode::OK, Some(n)) if n > 0 => Line::ok("kinde", format!("it answers and publishes {n} key(s)")),
        (StatusCode::OK, _) => Line::wrong("kinde", "it answers, and publishes no key", todo),
        (status, _) => Line::wrong("kinde", format!("its public keys: it answered with status {status}"), todo),
    }];
    lines.extend(clock("Kinde's", &answer.headers));
    lines
}

async fn sign_in(kinde: &Kinde) -> Vec<Line> {
    if kinde.client.is_none() {
        let todo = "set KINDE_CLIENT_ID and KINDE_CLIENT_SECRET";
        return vec![Line::warning("sign-in", "is not set up: nobody can sign in", todo)];
    }
    let issuer = kinde.issuer.as_ref().unwrap_or(&kinde.domain);
    let setting = if kinde.issuer.is_some() { "KINDE_ISSUER" } else { "KINDE_DOMAIN" };
    let todo = format!("look at {setting}; nobody can sign in until it answers");
    let asked = async {
        let client = Client::new(issuer)?;
        get(&client, "/.well-known/openid-configuration", None).await
    };
    vec![match asked.await {
        Err(error) => Line::wrong("sign-in", format!("its discovery document: {}", chain(&error)), todo),
        Ok(answer) if answer.status != StatusCode::OK => {
            Line::wrong("sign-in", format!("its discovery document: it answered with status {}", answer.status), todo)
        }
        Ok(answer) => match read(&answer.body)["issuer"].as_str() {
            Some(named) if named.trim_end_matches('/') == issuer => Line::ok("sign-in", format!("{issuer} says how")),
            Some(_) => Line::wrong("sign-in", format!("{issuer} says that it is somebody else"), todo),
            None => Line::wrong("sign-in", format!("{issuer} has no discovery document"), todo),
        },
    }]
}

async fn management(client: &Client, kinde: &Kinde, ours: &str) -> Vec<Line> {
    let Some(m2m) = &kinde.m2m else {
        let words = "its Management API is not asked: each event counts by its own word";
        return vec![Line::warning("management", words, "set KINDE_M2M_CLIENT_ID and KINDE_M2M_CLIENT_SECRET")];
    };
    let todo = "look at KINDE_M2M_CLIENT_ID, KINDE_M2M_CLIENT_SECRET, and whether that application is authorised for the Kinde Management API";
    let token = match token(client, &kinde.domain, m2m).await {
        Ok(token) => token,
        Err(words) => return vec![Line::wrong("management", words, todo)],
    };
    let granted = scopes(&token);
    let lacking: Vec<&str> = SCOPES.into_iter().filter(|scope| !granted.iter().any(|has| has == scope)).collect();
    let first = if lacking.is_empty() {
        Line::ok("management", "our application is let in, with the scopes it needs")
    } else {
        let words = format!("our application lacks the scope(s) {}", lacking.join(", "));
        Line::wrong("management", words, "give them to the machine-to-machine application at Kinde")
    };
    vec![first, webhook(client, &token, ours).await]
}

/// # Errors
/// In words, without the secret.
async fn token(client: &Client, domain: &str, m2m: &M2m) -> Result<String, String> {
    let form = [
        ("grant_type", "client_credentials"),
        ("client_id", m2m.client_id.as_str()),
        ("client_secret", m2m.client_secret.reveal()),
        ("audience", &format!("{domain}/api")),
    ];
    let request = client.request(Method::POST, "/oauth2/token").map_err(|error| chain(&error))?.form(&form);
    let request = request.build().map_err(|error| error.without_url().to_string())?;
    let answer = client.send(request, ANSWER_MAX).await.map_err(|error| format!("no token: {}", chain(&error)))?;
    if answer.status != StatusCode::OK {
        return Err(format!("Kinde gives our application no token (status {})", answer.status));
    }
    let token = read(&answer.body)["access_token"].as_str().map(str::to_owned);
    token.ok_or_else(|| "Kinde's answer holds no token".to_owned())
}

/// From the token's own claims. It came straight from Kinde, so its signature need not be looked at.
fn scopes(token: &str) -> Vec<String> {
    let claims = token.split('.').nth(1).and_then(|claims| URL_SAFE_NO_PAD.decode(claims).ok()).unwrap_or_default();
    let claims = read(&claims);
    let listed = claims["scp"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
    let spoken = claims["scope"].as_str().unwrap_or_default().split_whitespace().map(str::to_owned);
    listed.chain(spoken).collect()
}

/// Kinde switches an endpoint off that failed for three days, and tells by mail alone.
async fn webhook(client: &Client, token: &str, ours: &str) -> Line {
    let answer = match get(client, "/api/v1/webhooks", Some(token)).await {
        Ok(answer) => answer,
        Err(error) => {
            return Line::wrong("webhook", format!("Kinde's list of webhooks: {}", chain(&error)), "ask again in a moment");
        }
    };
    match answer.status {
        StatusCode::OK => {}
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            let words =
                format!("whether Kinde posts to {ours} is not known: our application lacks the scope {SCOPE_OF_WEBHOOKS}");
            return Line::warning("webhook", words, format!("give it {SCOPE_OF_WEBHOOKS}, or look at Kinde's own page"));
        }
        status => return Line::warning("webhook", format!("Kinde's list of webhooks: status {status}"), "ask again in a moment"),
    }
    let list = read(&answer.body);
    let same = |webhook: &&Value| webhook["endpoint"].as_str().is_some_and(|url| url.trim_end_matches('/') == ours);
    let Some(found) = list["webhooks"].as_array().into_iter().flatten().find(same) else {
        let words = format!("Kinde does not post to {ours}");
        return Line::wrong("webhook", words, "add that webhook at Kinde, with the customer.* events; or mend BOTTLE_URL");
    };
    let subscribed: Vec<&str> = found["event_types"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let missing: Vec<&str> = READ.into_iter().filter(|kind| !subscribed.contains(kind)).collect();
    if missing.is_empty() {
        Line::ok("webhook", format!("Kinde posts to {ours} what is read here"))
    } else {
        let words = format!("Kinde does not tell {ours} of {}", missing.join(", "));
        Line::wrong("webhook", words, "subscribe that webhook to them at Kinde")
    }
}

pub(super) async fn get(client: &Client, path: &str, bearer: Option<&str>) -> Result<Answer, OutboundError> {
    let mut request = client.request(Method::GET, path)?.header("accept", "application/json");
    if let Some(token) = bearer {
        request = request.bearer_auth(token);
    }
    let request = request.build().map_err(|error| OutboundError::Unavailable(error.without_url()))?;
    client.send(request, ANSWER_MAX).await
}

pub(super) fn read(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or_default()
}

/// By the header that every answer has. It counts whole seconds, and has been on its way.
pub(super) fn clock(whose: &str, headers: &HeaderMap) -> Option<Line> {
    let text = headers.get("date")?.to_str().ok()?;
    let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    let now = OffsetDateTime::now_utc();
    let apart = now.unix_timestamp() - at.as_second();
    // Only a broken clock is further away than a float counts seconds exactly.
    Some(database::clock(whose, f64::from(i32::try_from(apart).unwrap_or(i32::MAX)), 1.0))
}

#[cfg(test)]
mod tests {
    use super::super::line::State;
    use super::*;

    #[test]
    fn a_clock_is_held_against_the_time_an_answer_was_made() {
        let at = |ago: i64| {
            let made = jiff::Timestamp::now().checked_sub(jiff::SignedDuration::from_secs(ago)).unwrap();
            let text = made.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
            let headers = HeaderMap::from_iter([(reqwest::header::DATE, text.parse().unwrap())]);
            clock("theirs", &headers).unwrap().state
        };
        assert_eq!(
            [at(0), at(-20), at(20), at(120), at(-120)],
            [State::Ok, State::Warning, State::Warning, State::Wrong, State::Wrong]
        );
        assert!(clock("theirs", &HeaderMap::new()).is_none());
    }
}
