//! What people read when there is no way to a provider's page: what happened, that nothing was bought, and what to do now.

use askama::Template;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::error;
use super::page::Frame;
use super::state::AppState;
use crate::domain::event::Source;
use crate::providers::{DoorError, Provider};

/// Why somebody is not led to a provider's page.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NoWay {
    #[error("it is not sold here")]
    NotSold,
    /// Pro is theirs already; a second subscription would be paid for nothing.
    #[error("they have Pro already")]
    HasPro,
    /// Another click of theirs for the same is not answered yet.
    #[error("it is being asked for already")]
    UnderWay,
    #[error(transparent)]
    Door(#[from] DoorError),
}

#[derive(Template)]
#[template(path = "door.html")]
struct DoorPage {
    frame: Frame,
    code: u16,
    heading: String,
    sentence: String,
}

/// The page for a provider's refusal, with the line in the log that it deserves.
pub fn refused(app: &AppState, source: Source, why: &NoWay) -> Response {
    let chain = why as &dyn std::error::Error;
    match why {
        NoWay::Door(DoorError::StrangeAddress(_) | DoorError::Refused(_)) => {
            tracing::error!(error = chain, provider = source.as_str(), "nobody gets to the provider's page");
        }
        NoWay::Door(_) => {
            tracing::warn!(error = chain, provider = source.as_str(), "somebody did not get to the provider's page");
        }
        NoWay::NotSold | NoWay::HasPro | NoWay::UnderWay => {}
    }
    answer(why, app.providers.of(source).map_or("The provider", Provider::name))
}

pub fn no_way(why: &NoWay) -> Response {
    answer(why, "The provider")
}

fn answer(why: &NoWay, provider: &str) -> Response {
    let status = status(why);
    let heading = heading(why, provider);
    let page = DoorPage {
        frame: Frame::new(format!("{heading} · Bottle"), "account"),
        code: status.as_u16(),
        sentence: sentence(why, provider),
        heading,
    };
    let mut answer = error::page(status, page.render());
    if status == StatusCode::SERVICE_UNAVAILABLE {
        answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    }
    answer.into_response()
}

const fn status(why: &NoWay) -> StatusCode {
    match why {
        NoWay::NotSold | NoWay::HasPro | NoWay::Door(DoorError::NotSold | DoorError::NoCustomer | DoorError::Closed) => {
            StatusCode::CONFLICT
        }
        NoWay::UnderWay | NoWay::Door(DoorError::Unavailable(_)) => StatusCode::SERVICE_UNAVAILABLE,
        NoWay::Door(DoorError::StrangeAddress(_) | DoorError::Refused(_)) => StatusCode::BAD_GATEWAY,
    }
}

fn heading(why: &NoWay, provider: &str) -> String {
    match why {
        NoWay::NotSold | NoWay::Door(DoorError::NotSold) => "This is not sold here".to_owned(),
        NoWay::HasPro => "You have Pro already".to_owned(),
        NoWay::UnderWay => format!("{provider} has not answered yet"),
        NoWay::Door(DoorError::NoCustomer) => format!("{provider} does not know you yet"),
        NoWay::Door(DoorError::Closed) => "That page is closed".to_owned(),
        NoWay::Door(DoorError::Unavailable(_)) => format!("{provider} cannot be reached just now"),
        NoWay::Door(DoorError::StrangeAddress(_)) => format!("What came back is no page of {provider}’s"),
        NoWay::Door(DoorError::Refused(_)) => format!("{provider} did not take this"),
    }
}

fn sentence(why: &NoWay, provider: &str) -> String {
    match why {
        NoWay::NotSold | NoWay::Door(DoorError::NotSold) => {
            "Nothing was bought and nothing was charged. What is sold here may have changed since your page was loaded: open your \
             account again and choose from what it offers."
                .to_owned()
        }
        NoWay::HasPro => "Nothing was bought and nothing was charged: a second subscription would give you nothing more. Your \
                          account says through whom you have it."
            .to_owned(),
        NoWay::UnderWay => {
            format!(
                "You clicked before, and {provider} is slow to answer that click. Nothing was bought and nothing was charged. \
                 Go back to your account and try again in a moment."
            )
        }
        NoWay::Door(DoorError::NoCustomer) => {
            format!("There is nothing to manage at {provider} before something was bought there. Nothing was changed.")
        }
        NoWay::Door(DoorError::Closed) => {
            format!("{provider} has closed it, and nothing was charged. Go back to your account and begin again; it is done in a moment.")
        }
        NoWay::Door(DoorError::Unavailable(_)) => {
            format!(
                "{provider} does not answer or is busy. Nothing was bought and nothing was charged, and what you have stays as it is. \
                 Go back to your account and try again in a moment."
            )
        }
        NoWay::Door(DoorError::StrangeAddress(_)) => {
            format!(
                "An address came that is not {provider}’s, so you were not sent there. Nothing was bought and nothing was charged. \
                 Tell whoever runs this Bottle: the log has the reason."
            )
        }
        NoWay::Door(DoorError::Refused(_)) => {
            "Nothing was bought and nothing was charged. Trying again will most likely not help: a setting needs a person. Tell \
             whoever runs this Bottle; the log has the reason."
                .to_owned()
        }
    }
}
