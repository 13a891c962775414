//! An authorization request: read, and refused where it is wrong. A request whose client or redirect is wrong must not be answered
//! by a redirect, or anyone could send people anywhere; the rest is told to the app.

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect, Response};

use super::params::Params;
use crate::local_kinde::local::Local;
use crate::local_kinde::pages::page;

/// One that makes sense.
#[derive(Debug, Clone)]
pub struct AuthRequest {
    pub client_id: String,
    pub redirect_uri: String,
    pub scopes: Vec<String>,
    pub state: Option<String>,
    pub nonce: Option<String>,
    pub challenge: String,
    pub prompt: Prompt,
    pub login_hint: Option<String>,
    pub plan_interest: Option<String>,
    /// Whether a plan is to be chosen on the way.
    pub with_plans: bool,
    /// As it came: forms carry it on, and every step reads it anew.
    pub query: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prompt {
    /// Ask only if nobody is signed in.
    Usual,
    Login,
    Create,
    None,
}

#[derive(Debug)]
pub enum Refusal {
    /// Told to the person.
    Page(String),
    /// Told to the app.
    Back { redirect_uri: String, state: Option<String>, error: &'static str, why: String },
}

pub const SCOPES: [&str; 5] = ["openid", "profile", "email", "offline", "offline_access"];

impl AuthRequest {
    /// # Errors
    /// See [`Refusal`].
    pub fn read(local: &Local, query: Option<&str>) -> Result<Self, Refusal> {
        let params = Params::of_query(query);
        let page = |why: String| Err(Refusal::Page(why));
        match params.get("client_id") {
            Some(id) if id == local.credentials.client_id => {}
            Some(id) if id == local.credentials.m2m_client_id => {
                return page("The client_id is that of the machine-to-machine application, which signs nobody in.".into());
            }
            Some(id) => return page(format!("No application here has the client_id `{id}`.")),
            None => return page("The request names no client_id.".into()),
        }
        let redirect_uri = match params.get("redirect_uri") {
            Some(uri) if local.app.redirect_uris.iter().any(|allowed| allowed == uri) => uri.to_owned(),
            Some(uri) => {
                let allowed = local.app.redirect_uris.join(", ");
                return page(format!(
                    "`{uri}` is not among the allowed callback URLs, which are matched to the letter: {allowed}"
                ));
            }
            None => return page("The request names no redirect_uri.".into()),
        };
        let text = |name: &str| params.get(name).map(str::to_owned);
        let state = text("state");
        let back = |error: &'static str, why: String| {
            Err(Refusal::Back { redirect_uri: redirect_uri.clone(), state: state.clone(), error, why })
        };
        if let Some(name) = params.twice() {
            return back("invalid_request", format!("the parameter {name} was given twice"));
        }
        if params.get("response_type") != Some("code") {
            return back("unsupported_response_type", "response_type: only `code` is supported".into());
        }
        let scopes: Vec<String> = params.get("scope").unwrap_or_default().split_whitespace().map(str::to_owned).collect();
        if let Some(scope) = scopes.iter().find(|scope| !SCOPES.contains(&scope.as_str())) {
            return back("invalid_scope", format!("the application may not ask for the scope `{scope}`"));
        }
        let challenge = match (params.get("code_challenge"), params.get("code_challenge_method")) {
            (Some(challenge), Some("S256")) if is_sha256_in_base64url(challenge) => challenge.to_owned(),
            (Some(_), Some("S256")) => return back("invalid_request", "code_challenge: 43 characters of base64url".into()),
            (Some(_), _) => return back("invalid_request", "code_challenge_method: only S256 is supported".into()),
            (None, _) => return back("invalid_request", "code_challenge: this Kinde demands PKCE".into()),
        };
        let prompt = match (params.get("prompt"), params.get("start_page")) {
            (None, Some("registration")) | (Some("create"), _) => Prompt::Create,
            (None, _) => Prompt::Usual,
            (Some("login"), _) => Prompt::Login,
            (Some("none"), _) => Prompt::None,
            (Some(other), _) => return back("invalid_request", format!("prompt: login, create or none, not `{other}`")),
        };
        let plan_interest = text("plan_interest");
        Ok(Self {
            client_id: local.credentials.client_id.clone(),
            scopes,
            nonce: text("nonce"),
            challenge,
            prompt,
            login_hint: text("login_hint"),
            with_plans: plan_interest.is_some() || params.get("pricing_table_key").is_some(),
            plan_interest,
            query: query.unwrap_or_default().to_owned(),
            state,
            redirect_uri,
        })
    }

    /// To the app, with an error.
    pub fn error(&self, error: &str, why: &str) -> Response {
        back(&self.redirect_uri, self.state.as_deref(), &[("error", error), ("error_description", why)])
    }

    /// To the app, with a code.
    pub fn code(&self, code: &str) -> Response {
        let scope = self.scopes.join(" ");
        back(&self.redirect_uri, self.state.as_deref(), &[("code", code), ("scope", &scope)])
    }
}

impl Refusal {
    pub fn answer(&self, local: &Local) -> Response {
        match self {
            Self::Page(why) => page::notice(local, StatusCode::BAD_REQUEST, "This sign-in request is not right", why),
            Self::Back { redirect_uri, state, error, why } => {
                back(redirect_uri, state.as_deref(), &[("error", error), ("error_description", why)])
            }
        }
    }
}

fn back(redirect_uri: &str, state: Option<&str>, answer: &[(&str, &str)]) -> Response {
    let Ok(mut url) = reqwest::Url::parse(redirect_uri) else {
        return (StatusCode::INTERNAL_SERVER_ERROR, "an allowed callback URL is no URL\n").into_response();
    };
    url.query_pairs_mut().extend_pairs(answer).extend_pairs(state.map(|state| ("state", state)));
    Redirect::to(url.as_str()).into_response()
}

fn is_sha256_in_base64url(text: &str) -> bool {
    text.len() == 43 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}
