//! Mail leaves by SMTP here. What is sent, to whom and when is decided elsewhere.
//!
//! Header fields are built from parsed values by the mail library, which encodes what does not fit one line, so nothing that a
//! person wrote can begin a header of its own. The server's address holds a password: it is never shown.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use lettre::message::Mailbox;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::transport::smtp;
use lettre::{Address, AsyncSmtpTransport, AsyncTransport as _, Message, Tokio1Executor};
use uuid::Uuid;

use crate::telemetry::calls;
use crate::telemetry::labels::{Call, CallEnd};

/// For one command of the conversation with the server.
const COMMAND_WITHIN: Duration = Duration::from_secs(10);
/// For all of it: below the lease of a letter.
const SEND_WITHIN: Duration = Duration::from_secs(25);

/// One server, and whom its mail is from.
#[derive(Clone)]
pub struct Mail {
    server: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
}

/// A letter as it goes out.
#[derive(Clone, Copy)]
pub struct Post<'a> {
    pub to: &'a str,
    pub subject: &'a str,
    pub text: &'a str,
    /// The same with every attempt, so that whoever gets the letter twice can tell.
    pub id: Uuid,
}

/// Why a letter was not taken by the server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The server cannot be reached, or refuses us and not this letter: no letter is at fault.
    #[error("the mail server is not there for us: {0}")]
    Away(String),
    /// Not this time; another attempt may go through.
    #[error("the mail server put the letter off: {0}")]
    Later(String),
    /// Not ever.
    #[error("the mail server refused the letter: {0}")]
    Never(String),
}

#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("SMTP_URL cannot be used")]
    Server(#[source] smtp::Error),
    #[error("MAIL_FROM is no mail address")]
    From(#[source] lettre::address::AddressError),
}

impl Mail {
    /// `url` like `smtps://user:password@host` or `smtp://host:587?tls=required`, `from` like `Bottle <bottle@host>`.
    ///
    /// # Errors
    /// See [`SetupError`]; neither text is repeated.
    pub fn new(url: &str, from: &str) -> Result<Self, SetupError> {
        let builder = AsyncSmtpTransport::<Tokio1Executor>::from_url(url).map_err(SetupError::Server)?;
        Ok(Self { server: builder.timeout(Some(COMMAND_WITHIN)).build(), from: from.parse().map_err(SetupError::From)? })
    }

    /// Hands a letter to the server. When this returns, the server has it.
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn send(&self, post: &Post<'_>) -> Result<(), SendError> {
        let message = self.message(post)?;
        let sending = async {
            match tokio::time::timeout(SEND_WITHIN, self.server.send(message)).await {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) => Err(classed(&error)),
                Err(_) => Err(SendError::Away("it fell silent".to_owned())),
            }
        };
        calls::watch(Call::Mail, sending, |sent| match sent {
            Ok(()) => CallEnd::Ok,
            Err(SendError::Away(_)) => CallEnd::Unreachable,
            Err(SendError::Later(_)) => CallEnd::Limited,
            Err(SendError::Never(_)) => CallEnd::Refused,
        })
        .await
    }

    /// Whether the server lets us in. Nothing is sent.
    ///
    /// # Errors
    /// [`SendError::Away`], with what it said.
    pub async fn knock(&self) -> Result<(), SendError> {
        match tokio::time::timeout(COMMAND_WITHIN, self.server.test_connection()).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(SendError::Away("it hung up".to_owned())),
            Ok(Err(error)) => Err(SendError::Away(told(&error))),
            Err(_) => Err(SendError::Away("it fell silent".to_owned())),
        }
    }

    fn message(&self, post: &Post<'_>) -> Result<Message, SendError> {
        let to: Address = post.to.parse().map_err(|_| SendError::Never("the address cannot be read".to_owned()))?;
        let auto = HeaderName::new_from_ascii_str("Auto-Submitted");
        Message::builder()
            .from(self.from.clone())
            .to(Mailbox::new(None, to))
            .subject(post.subject)
            .message_id(Some(format!("<{}@{}>", post.id, self.from.email.domain())))
            .date_now()
            // So that no holiday notice answers it.
            .raw_header(HeaderValue::new(auto, "auto-generated".to_owned()))
            .header(ContentType::TEXT_PLAIN)
            .body(post.text.to_owned())
            .map_err(|error| SendError::Never(error.to_string()))
    }
}

impl fmt::Debug for Mail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mail(from {})", self.from.email)
    }
}

fn classed(error: &smtp::Error) -> SendError {
    let text = told(error);
    match error.status().map(u16::from) {
        // Closing down; or it wants another login, or refuses ours.
        Some(421 | 530 | 534 | 535 | 538) | None => SendError::Away(text),
        // No such mailbox here, nor a way to it.
        Some(550 | 551 | 553 | 556) => SendError::Never(text),
        Some(_) => SendError::Later(text),
    }
}

/// The chain in one line. A server's answer is an outsider's text.
fn told(error: &smtp::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        cause = error.source();
    }
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post<'a>(to: &'a str, subject: &'a str) -> Post<'a> {
        Post { to, subject, text: "Buy milk\n.\nBcc: x@example.com\n", id: Uuid::nil() }
    }

    #[tokio::test]
    async fn nothing_that_a_person_wrote_begins_a_header() {
        let mail = Mail::new("smtp://127.0.0.1:1", "Bottle <bottle@bottle.example>").unwrap();
        let message = mail.message(&post("me@example.com", "Milk\r\nBcc: all@example.com")).unwrap();
        let text = String::from_utf8(message.formatted()).unwrap();
        let (head, _) = text.split_once("\r\n\r\n").unwrap();
        assert!(!head.lines().any(|line| line.starts_with("Bcc")), "{head}");
        assert!(head.contains("Message-ID: <00000000-0000-0000-0000-000000000000@bottle.example>"), "{head}");
        for to in ["me@example.com\r\nBcc: all@example.com", "me", "a@b, c@d", ""] {
            assert!(matches!(mail.message(&post(to, "Milk")), Err(SendError::Never(_))), "{to}");
        }
    }

    #[tokio::test]
    async fn neither_the_password_nor_the_address_of_a_server_is_shown() {
        let mail = Mail::new("smtps://me:hunter2@mail.example", "bottle@bottle.example").unwrap();
        assert!(!format!("{mail:?}").contains("hunter2"));
        let error = Mail::new("smtp://me:hunter2@mail.example?tls=maybe", "bottle@bottle.example").unwrap_err();
        assert!(!format!("{error} {:?}", error.source().map(ToString::to_string)).contains("hunter2"));
    }
}
