//! Chosen fields of an outside JSON object; the rest is stepped over unread.
//!
//! A signed message is stored whatever its other fields hold, and some things that are valid JSON break an ordinary reader:
//! half a surrogate pair (`"\ud800"`, also in a field's name), a number beyond every float, twenty thousand nested arrays.
//! So values are taken as raw text, which serde_json finds without recursion and without decoding; only what is asked
//! for is decoded. A field that is asked for and stands there twice is an error: readers that disagree on which of two
//! counts are how a checked id becomes another one when it is used.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

/// Longer text than this is no id, name or time. It also keeps every id well below PostgreSQL's limit of an index entry.
const MAX_TEXT: usize = 200;

#[derive(Debug)]
pub(super) struct Fields<'a> {
    entries: Vec<(Vec<u8>, &'a RawValue)>,
}

/// The field stands twice in its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` stands there twice")]
pub struct Twice(pub &'static str);

impl<'a> Fields<'a> {
    /// # Errors
    /// The text is not one JSON object.
    pub(super) fn of(text: &'a str) -> Result<Self, serde_json::Error> {
        let mut json = serde_json::Deserializer::from_str(text);
        let entries = json.deserialize_map(Entries)?;
        json.end()?;
        Ok(Self { entries })
    }

    pub(super) fn get(&self, name: &'static str) -> Result<Option<&'a RawValue>, Twice> {
        let mut found = self.entries.iter().filter(|(key, _)| key == name.as_bytes());
        match (found.next(), found.next()) {
            (_, Some(_)) => Err(Twice(name)),
            (first, None) => Ok(first.map(|(_, value)| *value)),
        }
    }

    /// Text that can be kept: not empty, not overlong, no control characters (a text column takes no NUL). All else is
    /// as good as absent.
    pub(super) fn text(&self, name: &'static str) -> Result<Option<String>, Twice> {
        Ok(self.get(name)?.and_then(text))
    }

    /// The object in this field; anything else is as good as absent.
    pub(super) fn inside(&self, name: &'static str) -> Result<Option<Fields<'a>>, Twice> {
        Ok(self.get(name)?.and_then(|value| Fields::of(value.get()).ok()))
    }

    /// SHA-256 of all fields but the `volatile` ones, in order of their names.
    ///
    /// A value is taken in canonical form, so spaces and the order of fields do not matter. Where serde_json cannot build it, its
    /// own text is taken. Digests are stored to tell a copy from a conflict: another form would make copies of old events conflicts.
    pub(super) fn digest(self, volatile: &[&[u8]]) -> [u8; 32] {
        let mut entries = self.entries;
        entries.retain(|(name, _)| !volatile.contains(&name.as_slice()));
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut hash = Sha256::new();
        for (name, raw) in entries {
            let canonical = serde_json::from_str(raw.get()).map(|mut value: Value| {
                value.sort_all_objects();
                value.to_string()
            });
            for part in [name.as_slice(), canonical.as_deref().unwrap_or(raw.get()).as_bytes()] {
                hash.update((part.len() as u64).to_be_bytes());
                hash.update(part);
            }
        }
        hash.finalize().into()
    }
}

pub(super) fn text(value: &RawValue) -> Option<String> {
    let text: String = serde_json::from_str(value.get()).ok()?;
    (!text.is_empty() && text.len() <= MAX_TEXT && !text.contains(char::is_control)).then_some(text)
}

struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = Vec<(Vec<u8>, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut entries = Vec::new();
        while let Some((FieldName(name), value)) = map.next_entry()? {
            entries.push((name, value));
        }
        Ok(entries)
    }
}

/// Read as bytes, because a string must be valid Unicode and a name we do not know need not be.
struct FieldName(Vec<u8>);

impl<'de> Deserialize<'de> for FieldName {
    fn deserialize<D: Deserializer<'de>>(name: D) -> Result<Self, D::Error> {
        struct Bytes;

        impl Visitor<'_> for Bytes {
            type Value = FieldName;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a field name")
            }

            fn visit_bytes<E>(self, name: &[u8]) -> Result<FieldName, E> {
                Ok(FieldName(name.to_vec()))
            }
        }

        name.deserialize_bytes(Bytes)
    }
}
