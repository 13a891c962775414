//! The event around an object: who it is, what happened, which object it is about. The object itself stays unread.

use crate::domain::ids::EventKey;
use crate::domain::instant::Instant;
use crate::providers::fields::{Fields, Twice};

/// How many deliveries are still awaited may differ between two attempts; nothing else does.
const VOLATILE: [&[u8]; 1] = [b"pending_webhooks"];

#[derive(Debug)]
pub(super) struct Envelope<'a> {
    pub(super) id: EventKey,
    pub(super) kind: String,
    pub(super) live: bool,
    /// For people; it decides nothing.
    pub(super) created: Option<Instant>,
    /// The id of the object.
    pub(super) object: Option<String>,
    fields: Fields<'a>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum NotAnEvent {
    #[error("its body is no UTF-8")]
    NotText,
    #[error("its body is no JSON object ({0})")]
    NotAnObject(#[from] serde_json::Error),
    #[error("{0}")]
    Ambiguous(#[from] Twice),
    #[error("it is a thin event; the endpoint has to be one for snapshot events")]
    Thin,
    #[error("it has no `{0}` as an event has it")]
    Lacks(&'static str),
}

impl<'a> Envelope<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, NotAnEvent> {
        let fields = Fields::of(str::from_utf8(body).map_err(|_| NotAnEvent::NotText)?)?;
        match fields.text("object")?.as_deref() {
            Some("event") => {}
            Some("v2.core.event") => return Err(NotAnEvent::Thin),
            _ => return Err(NotAnEvent::Lacks("object")),
        }
        let id = fields.text("id")?.filter(|id| is_id(id) && id.starts_with("evt_")).ok_or(NotAnEvent::Lacks("id"))?;
        let kind = fields.text("type")?.filter(|kind| is_kind(kind)).ok_or(NotAnEvent::Lacks("type"))?;
        let live = match fields.get("livemode")?.map(serde_json::value::RawValue::get) {
            Some("true") => true,
            Some("false") => false,
            _ => return Err(NotAnEvent::Lacks("livemode")),
        };
        let created = fields.get("created")?.and_then(|value| value.get().parse::<i64>().ok());
        let created = created.and_then(|secs| secs.checked_mul(1_000_000_000)).map(Instant::from_nanos);
        let object = match fields.inside("data")? {
            Some(data) => data.inside("object")?.map_or(Ok(None), |object| object.text("id"))?,
            None => None,
        };
        Ok(Self { id: EventKey(id), kind, live, created, object: object.filter(|id| is_id(id)), fields })
    }

    /// SHA-256 of what was said, without what may differ between attempts.
    pub(super) fn digest(self) -> [u8; 32] {
        self.fields.digest(&VOLATILE)
    }
}

/// It becomes a part of a path, so nothing but letters, digits and `_`.
pub(super) fn is_id(text: &str) -> bool {
    (4..=200).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn is_kind(text: &str) -> bool {
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'));
    text.len() <= 100 && text.split('.').all(is_word)
}
