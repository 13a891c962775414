//! What people read when a sign-in does not come about: what happened, and what to do now. Never anything from inside.

use askama::Template;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::page::Frame;
use super::{error, query};
use crate::oidc::OidcError;

/// Why somebody is not signed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// There is no client id and secret.
    NotSetUp,
    /// They, or Kinde for them, said no.
    Denied,
    /// The way back does not belong to a way there that began in this browser, is too late, or was gone before.
    Stale,
    /// As above, and another tab was faster.
    StaleButSignedIn,
    /// They came back under another name than our own, where their cookie is not.
    OtherHost(String),
    Away,
    NotGenuine,
    /// Kinde refuses us.
    Refused,
    /// Kinde ended it for a reason of its own.
    Ended,
}

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage {
    frame: Frame,
    code: u16,
    heading: &'static str,
    sentence: String,
    again: Option<String>,
    again_words: &'static str,
}

impl Failure {
    /// What an error of the flow means for the person, with the log line it deserves.
    pub fn of(error: &OidcError) -> Self {
        let chain = error as &dyn std::error::Error;
        match error {
            OidcError::Away { .. } => {
                tracing::warn!(error = chain, "a sign-in could not go on");
                Self::Away
            }
            OidcError::CodeRefused | OidcError::SignInAgain => {
                tracing::info!(error = chain, "a sign-in has to begin again");
                Self::Stale
            }
            OidcError::NotSetUp(_) => {
                tracing::error!(error = chain, "nobody can sign in");
                Self::Refused
            }
            OidcError::NotGenuine(_) => {
                tracing::error!(error = chain, "a sign-in was refused");
                Self::NotGenuine
            }
        }
    }

    /// What Kinde wrote into the address in place of a code (OAuth 2.0 §4.1.2.1, OpenID Connect §3.1.2.6, and its own).
    pub fn told(error: &str) -> Self {
        let failure = match error {
            "access_denied" | "login_required" | "consent_required" | "interaction_required" => Self::Denied,
            "login_link_expired" => Self::Stale,
            "server_error" | "temporarily_unavailable" => Self::Away,
            "invalid_request" | "unauthorized_client" | "unsupported_response_type" | "invalid_scope" | "invalid_client" => {
                Self::Refused
            }
            _ => Self::Ended,
        };
        if failure == Self::Refused {
            tracing::error!(error, "nobody can sign in: Kinde refuses this application");
        } else {
            // A word of somebody's choice: only known ones are repeated.
            let known = if failure == Self::Ended { "another" } else { error };
            tracing::info!(error = known, "Kinde ended a sign-in");
        }
        failure
    }

    const fn status(&self) -> StatusCode {
        match self {
            Self::NotSetUp => StatusCode::NOT_IMPLEMENTED,
            Self::Denied => StatusCode::FORBIDDEN,
            Self::Stale | Self::StaleButSignedIn | Self::OtherHost(_) | Self::Ended => StatusCode::BAD_REQUEST,
            Self::Away => StatusCode::SERVICE_UNAVAILABLE,
            Self::NotGenuine | Self::Refused => StatusCode::BAD_GATEWAY,
        }
    }

    const fn heading(&self) -> &'static str {
        match self {
            Self::NotSetUp => "Nobody can sign in here yet",
            Self::Denied => "You did not sign in",
            Self::Stale => "This sign-in cannot be finished",
            Self::StaleButSignedIn => "You are signed in already",
            Self::OtherHost(_) => "You came back under another address",
            Self::Away => "Kinde cannot be reached just now",
            Self::NotGenuine => "What came back is not from Kinde",
            Self::Refused => "Kinde does not let this Bottle sign people in",
            Self::Ended => "Kinde ended the sign-in",
        }
    }

    fn sentence(&self) -> String {
        match self {
            Self::NotSetUp => "Signing in needs this application’s client id and secret at Kinde. Whoever runs this Bottle sets \
                               KINDE_DOMAIN, KINDE_CLIENT_ID and KINDE_CLIENT_SECRET, and starts it again. The Engine Room \
                               is open to anyone meanwhile.",
            Self::Denied => "The sign-in was called off at Kinde. Nothing was changed, and you can begin again whenever you like.",
            Self::Stale => "It began more than ten minutes ago, in another browser, or was finished before; or this browser keeps \
                            no cookies. Nothing was changed. Begin again, and it is done in a moment.",
            Self::StaleButSignedIn => "The sign-in of this tab is over, but you are signed in, most likely through another tab.",
            Self::OtherHost(base) => return format!(
                "A sign-in works under one address only, and this Bottle’s is {base}: under any other your browser keeps what \
                 began there to itself. Begin again from there."
            ),
            Self::Away => "Signing in happens at Kinde, and Kinde does not answer at the moment. Whoever is signed in already stays \
                           signed in, and billing messages still get in. Try again in a moment.",
            Self::NotGenuine => "The answer could not be shown to be Kinde’s answer to you, so nobody was signed in. Begin again; if \
                                 it stays like this, tell whoever runs this Bottle: the log has the reason.",
            Self::Refused => "The two are not set up to match, so trying again will not help. Tell whoever runs this Bottle: the log \
                              has the reason.",
            Self::Ended => "It gave a reason that we do not know. Nothing was changed. Begin again, and if it stays like this, tell \
                            whoever runs this Bottle.",
        }
        .to_owned()
    }

    /// Where the button leads, and what it says.
    fn way_on(&self, return_to: Option<&str>) -> (Option<String>, &'static str) {
        match self {
            Self::NotSetUp | Self::Refused => (None, ""),
            Self::StaleButSignedIn => (Some("/account".to_owned()), "Go to your account"),
            Self::OtherHost(base) => (Some(format!("{base}login")), "Sign in there"),
            Self::Away => (Some(login(return_to)), "Try again"),
            Self::Denied | Self::Stale | Self::NotGenuine | Self::Ended => (Some(login(return_to)), "Sign in again"),
        }
    }
}

/// The page. `return_to` is where the person wanted to go, already checked.
pub fn failed(failure: &Failure, return_to: Option<&str>) -> Response {
    let (again, again_words) = failure.way_on(return_to);
    let status = failure.status();
    let page = SignInPage {
        frame: Frame::new(format!("{} · Bottle", failure.heading()), "sign-in"),
        code: status.as_u16(),
        heading: failure.heading(),
        sentence: failure.sentence(),
        again,
        again_words,
    };
    let mut answer = error::page(status, page.render());
    if *failure == Failure::Away {
        answer.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("5"));
    }
    answer.into_response()
}

fn login(return_to: Option<&str>) -> String {
    match return_to {
        Some(path) if path != "/" => query::with("/login", "return_to", path),
        _ => "/login".to_owned(),
    }
}
