//! What people see when there is nothing to see: what happened, and what to do now. Never anything from inside.

use askama::Template;

use super::page::Frame;
use super::person::Person;

/// What an error page says. It goes along with the answer, so that who is signed in can still be put around it
/// (`error::around_whoever_is_signed_in`).
#[derive(Debug, Clone)]
pub struct Words {
    title: &'static str,
    code: u16,
    heading: &'static str,
    sentence: String,
    /// Finds the log line; only where there is one worth finding.
    request: Option<String>,
}

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage<'a> {
    frame: Frame,
    code: u16,
    heading: &'a str,
    sentence: &'a str,
    request: Option<&'a str>,
}

impl Words {
    /// # Errors
    /// Only if the template itself fails.
    pub fn render(&self, person: Option<&Person>) -> Result<String, askama::Error> {
        ErrorPage {
            frame: Frame::new(format!("{} · Bottle", self.title), "").of(person),
            code: self.code,
            heading: self.heading,
            sentence: &self.sentence,
            request: self.request.as_deref(),
        }
        .render()
    }
}

/// No page at this address.
pub fn not_found() -> Words {
    Words {
        title: "Nothing here",
        code: 404,
        heading: "There is no page at this address",
        sentence: "It may have been mistyped, or it was never there. Nothing is broken, and nothing was changed.".to_owned(),
        request: None,
    }
}

/// Something failed on our side. `request` is the id under which the log has the reason.
pub fn failed(request: Option<&str>) -> Words {
    Words {
        title: "Something failed",
        code: 500,
        heading: "Something failed on our side",
        sentence:
            "What billing events have told us is stored and is not lost by this; what could not be shown now can be shown later. \
                   Reload the page in a moment."
                .to_owned(),
        request: request.map(str::to_owned),
    }
}

/// The page cannot be made just now: a part it needs is away or busy.
pub fn unavailable(sentence: &str) -> Words {
    Words {
        title: "Not just now",
        code: 503,
        heading: "This page cannot be made just now",
        sentence: sentence.to_owned(),
        request: None,
    }
}

/// A form that was not sent from a page of ours.
pub fn not_from_here() -> Words {
    Words {
        title: "Refused",
        code: 403,
        heading: "This did not come from a page of Bottle",
        sentence:
            "Nothing was changed. Changes are taken only from our own pages, so that no other site can make them in your name. \
                   If you did press a button of ours, reload its page and press it again."
                .to_owned(),
        request: None,
    }
}

/// A form was sent by nobody who is signed in (any more).
pub fn signed_out() -> Words {
    Words {
        title: "Signed out",
        code: 401,
        heading: "You are signed out",
        sentence: "Nothing was changed. Sign in again, go back to the page you came from, and send it once more: what you typed is still there.".to_owned(),
        request: None,
    }
}

/// More was sent than a form of ours holds.
pub fn too_large() -> Words {
    Words {
        title: "Too much at once",
        code: 413,
        heading: "That is more than this form can take",
        sentence: "Nothing was changed. Go back, where what you typed still is, shorten it, and send it once more.".to_owned(),
        request: None,
    }
}

/// What was sent is not a form.
pub fn no_form() -> Words {
    Words {
        title: "Not a form",
        code: 400,
        heading: "What was sent is not a form of ours",
        sentence: "Nothing was changed. Go back to the page, reload it, and send its form once more.".to_owned(),
        request: None,
    }
}
