//! The people who can sign in, and the ids that belong to a person. Ids of the samples, of customers and of webhooks are derived
//! by hash, so a command that remembers nothing still means the same customer and the same agreement as the command before it.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Error;
use super::moment::At;

/// Who is meant to operate the app, by e-mail.
pub const OPERATOR: &str = "olive@example.com";

/// The sample users; their ids never change.
pub const NAMES: [&str; 4] = ["ada", "ben", "olga", "olive"];

/// Somebody with an account at this Kinde.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Person {
    /// `kp_…`
    pub id: String,
    pub given_name: String,
    pub family_name: String,
    /// None: known only because an event was sent about them.
    pub email: Option<String>,
    pub email_verified: bool,
    pub made_at: At,
    pub sign_ins: u32,
    pub last_sign_in: Option<At>,
}

impl Person {
    pub fn new(id: String, given_name: &str, family_name: &str, email: Option<String>, made_at: At) -> Self {
        let (given_name, family_name) = (given_name.to_owned(), family_name.to_owned());
        let email_verified = email.is_some();
        Self { id, given_name, family_name, email, email_verified, made_at, sign_ins: 0, last_sign_in: None }
    }

    pub fn name(&self) -> String {
        format!("{} {}", self.given_name, self.family_name).trim().to_owned()
    }

    pub fn customer_id(&self) -> String {
        customer_id(&self.id)
    }
}

/// The sample people as they are before anything happens. Their past, where they have one, is written by `history`.
pub fn samples(made_at: At) -> Vec<Person> {
    let families = ["Lovelace", "Bitdiddle", "Ladyzhenskaya", "Operator"];
    let sample = |(name, family): (&&str, &str)| {
        let mut given = (*name).to_owned();
        given[..1].make_ascii_uppercase();
        Person::new(derived("kp_", &["user", name]), &given, family, Some(format!("{name}@example.com")), made_at)
    };
    NAMES.iter().zip(families).map(sample).collect()
}

/// The user id of a sample user's name; a `kp_…` id stands for itself.
///
/// # Errors
/// It is neither.
pub fn user_id(who: &str) -> Result<String, Error> {
    if NAMES.contains(&who) {
        return Ok(derived("kp_", &["user", who]));
    }
    match who.strip_prefix("kp_") {
        Some(rest) if !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphanumeric()) => Ok(who.to_owned()),
        _ => Err(Error::Usage(format!("`{who}` is neither a user id (kp_…) nor one of {}", NAMES.join(", ")))),
    }
}

/// The billing customer of a user: another id, as at Kinde.
pub fn customer_id(user_id: &str) -> String {
    derived("customer_", &["customer", user_id])
}

/// The agreement by which a user has a plan, where nobody says which.
pub fn agreement_id(user_id: &str, plan: &str) -> String {
    derived("agreement_", &["agreement", user_id, plan])
}

/// The `webhook-id` of an event at an endpoint: one per pair, the same on every attempt, in every process.
pub fn webhook_id(endpoint: &str, event_id: &str) -> String {
    derived("webhook_", &["webhook", endpoint, event_id])
}

/// `prefix` and 32 hex digits of chance.
pub fn fresh(prefix: &str) -> String {
    format!("{prefix}{:032x}", rand::random::<u128>())
}

/// `prefix` and 32 hex digits.
pub fn derived(prefix: &str, parts: &[&str]) -> String {
    let digest = Sha256::digest(parts.join("\0"));
    digest.iter().take(16).fold(prefix.to_owned(), |mut id, byte| {
        write!(id, "{byte:02x}").expect("writing to a String cannot fail");
        id
    })
}

#[cfg(test)]
mod tests {
    use super::{At, NAMES, customer_id, samples, user_id};

    #[test]
    fn sample_users_keep_their_ids() {
        let ids = ["ada", "ben", "olga"].map(|name| user_id(name).unwrap());
        assert_eq!(ids, [ADA, BEN, OLGA]);
        assert_eq!(user_id(ADA).unwrap(), ADA);
        assert_eq!(customer_id(ADA), "customer_fe89aa93f69e9c10286e34d0e47efafd");
        let people = samples(At::now());
        assert_eq!(people.iter().map(|person| person.id.clone()).collect::<Vec<_>>(), NAMES.map(|name| user_id(name).unwrap()));
        assert_eq!((people[3].name(), people[3].email.as_deref()), ("Olive Operator".into(), Some(super::OPERATOR)));
    }

    const ADA: &str = "kp_20a4479c1273ee4ef032a865c40235b3";
    const BEN: &str = "kp_bd597b41aba6ed1e6d4d1b71374ae9ef";
    const OLGA: &str = "kp_79ec78cc290a75786263af9608529249";

    #[test]
    fn a_mistyped_name_is_refused_and_not_given_an_account() {
        for who in ["adda", "", "kp_", "kp_a b", "KP_1", "customer_1"] {
            assert!(user_id(who).is_err(), "{who}");
        }
    }
}
