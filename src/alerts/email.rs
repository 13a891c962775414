//! Alerts by e-mail: for a person, in words.

use sha2::{Digest, Sha256};

use crate::mail::{Mail, Post};

use super::outgoing::{Message, NotSent};

/// Where alerts are mailed to, and by which server.
#[derive(Debug, Clone)]
pub struct Email {
    pub mail: Mail,
    pub to: String,
}

impl Email {
    pub(super) async fn post(&self, message: &Message) -> Result<(), NotSent> {
        // The same at every attempt, so that a mailbox shows a letter that came twice as one.
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&Sha256::digest(message.id())[..16]);
        let id = uuid::Builder::from_custom_bytes(bytes).into_uuid();
        let post = Post { to: &self.to, subject: &subject(message), text: &text(message), id };
        self.mail.send(&post).await.map_err(|error| NotSent(error.to_string()))
    }
}

fn subject(message: &Message) -> String {
    match message.cleared_at {
        None => format!("Bottle: {}", message.condition),
        Some(_) => format!("Bottle: {} is over", message.condition),
    }
}

fn text(message: &Message) -> String {
    let mut text = match message.cleared_at {
        None => format!("Since {}: {}.\n", message.raised_at, message.sentence),
        Some(at) => format!("Over since {at}. It began at {}: {}.\n", message.raised_at, message.sentence),
    };
    if !message.events.is_empty() {
        let ids: Vec<String> = message.events.iter().map(ToString::to_string).collect();
        text += &format!("\nEvents: {}\nLook at one: bottle events {}\n", ids.join(", "), ids[0]);
    }
    text
}
