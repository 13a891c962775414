//! What people see when there is nothing to see: what happened, and what to do now. Never anything from inside.

use askama::Template;

use super::page::Frame;

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage<'a> {
    frame: Frame,
    code: u16,
    heading: &'a str,
    sentence: &'a str,
    /// Finds the log line; only where there is one worth finding.
    request: Option<&'a str>,
}

/// No page at this address.
///
/// # Errors
/// Only if the template itself fails.
pub fn not_found() -> Result<String, askama::Error> {
    ErrorPage {
        frame: Frame::new("Nothing here · Bottle", ""),
        code: 404,
        heading: "There is no page at this address",
        sentence: "It may have been mistyped, or it was never there. Nothing is broken, and nothing was changed.",
        request: None,
    }
    .render()
}

/// Something failed on our side. `request` is the id under which the log has the reason.
///
/// # Errors
/// Only if the template itself fails.
pub fn failed(request: Option<&str>) -> Result<String, askama::Error> {
    ErrorPage {
        frame: Frame::new("Something failed · Bottle", ""),
        code: 500,
        heading: "Something failed on our side",
        sentence: "What billing events have told us is stored and is not lost by this; what could not be shown now can be shown later. \
                   Reload the page in a moment.",
        request,
    }
    .render()
}

/// The page cannot be made just now: a part it needs is away or busy.
///
/// # Errors
/// Only if the template itself fails.
pub fn unavailable(sentence: &str) -> Result<String, askama::Error> {
    ErrorPage {
        frame: Frame::new("Not just now · Bottle", ""),
        code: 503,
        heading: "This page cannot be made just now",
        sentence,
        request: None,
    }
    .render()
}

/// A form that was not sent from a page of ours.
///
/// # Errors
/// Only if the template itself fails.
pub fn not_from_here() -> Result<String, askama::Error> {
    ErrorPage {
        frame: Frame::new("Refused · Bottle", ""),
        code: 403,
        heading: "This did not come from a page of Bottle",
        sentence: "Nothing was changed. Changes are taken only from our own pages, so that no other site can make them in your name. \
                   If you did press a button of ours, reload its page and press it again.",
        request: None,
    }
    .render()
}

/// A form was sent by nobody who is signed in (any more).
///
/// # Errors
/// Only if the template itself fails.
pub fn signed_out() -> Result<String, askama::Error> {
    ErrorPage {
        frame: Frame::new("Signed out · Bottle", ""),
        code: 401,
        heading: "You are signed out",
        sentence: "Nothing was changed. Sign in again, go back to the page you came from, and send it once more: what you typed is still there.",
        request: None,
    }
    .render()
}

/// More was sent than a form of ours holds.
///
/// # Errors
/// Only if the template itself fails.
pub fn too_large() -> Result<String, askama::Error> {
    ErrorPage {
        frame: Frame::new("Too much at once · Bottle", ""),
        code: 413,
        heading: "That is more than this form can take",
        sentence: "Nothing was changed. Go back, where what you typed still is, shorten it, and send it once more.",
        request: None,
    }
    .render()
}

/// What was sent is not a form.
///
/// # Errors
/// Only if the template itself fails.
pub fn no_form() -> Result<String, askama::Error> {
    ErrorPage {
        frame: Frame::new("Not a form · Bottle", ""),
        code: 400,
        heading: "What was sent is not a form of ours",
        sentence: "Nothing was changed. Go back to the page, reload it, and send its form once more.",
        request: None,
    }
    .render()
}
