//! A stored event: where it came from and how far it has come.

use std::fmt;
use std::str::FromStr;

use super::ids::EventKey;
use super::instant::Instant;

/// Who said it. `bottle` marks what we store ourselves (a period opened, "ask again").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    Kinde,
    Stripe,
    Bottle,
}

/// How far an event has come. `received`, `processing`, `failed` and `parked` are open; the others are final until replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    Received,
    Processing,
    Applied,
    Ignored,
    Failed,
    Parked,
    Dead,
}

/// What intake read in a delivery whose signature is genuine. `body` holds the exact bytes that came.
#[derive(Clone)]
pub struct Delivery {
    pub source: Source,
    pub key: EventKey,
    pub kind: String,
    /// The header outside the signature. Kept and compared, never trusted.
    pub webhook_id: Option<String>,
    pub body: Vec<u8>,
    /// When it happened, if the event says so readably.
    pub occurred: Option<Instant>,
    /// When it says it was sent. No delivery is too old: it is only noted on the receipt.
    pub sent: Option<Instant>,
    /// SHA-256 of what was said, without what may differ between attempts.
    pub digest: [u8; 32],
}

/// Without what was said: that is for nobody but whom it is about.
impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, key, kind, .. } = self;
        f.debug_struct("Delivery").field("source", source).field("key", key).field("kind", kind).finish_non_exhaustive()
    }
}

impl Delivery {
    /// The digest of an event that was fetched from its provider's list and never delivered: its wording there may be of another
    /// version than a delivery's, so whatever a delivery of it says is no contradiction.
    pub const FETCHED: [u8; 32] = [0; 32];
}

macro_rules! text_enum {
    ($name:ident, $what:literal, $($variant:ident = $text:literal),+) => {
        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(from)?.parse().map_err(serde::de::Error::custom)
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;

            fn from_str(text: &str) -> Result<Self, UnknownWord> {
                match text {
                    $($text => Ok(Self::$variant),)+
                    other => Err(UnknownWord { word: other.to_owned(), what: $what, known: &[$($text),+] }),
                }
            }
        }
    };
}

#[derive(Debug, thiserror::Error)]
#[error("`{word}` is no {what}; known are {}", known.join(", "))]
pub struct UnknownWord {
    word: String,
    what: &'static str,
    known: &'static [&'static str],
}

text_enum!(Source, "event source", Kinde = "kinde", Stripe = "stripe", Bottle = "bottle");
text_enum!(
    Status,
    "event status",
    Received = "received",
    Processing = "processing",
    Applied = "applied",
    Ignored = "ignored",
    Failed = "failed",
    Parked = "parked",
    Dead = "dead"
);
