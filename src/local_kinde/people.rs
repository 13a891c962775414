//! The sample users, and the ids that belong to a person. All of them are derived by hash, so a command that remembers nothing
//! still means the same customer and the same agreement as the command before it.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::Error;

/// The sample users; their ids never change.
pub const NAMES: [&str; 3] = ["ada", "ben", "olga"];

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

/// The agreement by which a user has a plan.
pub fn agreement_id(user_id: &str, plan: &str) -> String {
    derived("agreement_", &["agreement", user_id, plan])
}

/// The `webhook-id` of an event at an endpoint: one per pair, the same on every attempt, in every process.
pub fn webhook_id(endpoint: &str, event_id: &str) -> String {
    derived("webhook_", &["webhook", endpoint, event_id])
}

/// `prefix` and 32 hex digits.
fn derived(prefix: &str, parts: &[&str]) -> String {
    let digest = Sha256::digest(parts.join("\0"));
    digest.iter().take(16).fold(prefix.to_owned(), |mut id, byte| {
        write!(id, "{byte:02x}").expect("writing to a String cannot fail");
        id
    })
}

#[cfg(test)]
mod tests {
    use super::{customer_id, user_id};

    #[test]
    fn sample_users_keep_their_ids() {
        let ids = ["ada", "ben", "olga"].map(|name| user_id(name).unwrap());
        assert_eq!(ids, [ADA, BEN, OLGA]);
        assert_eq!(user_id(ADA).unwrap(), ADA);
        assert_eq!(customer_id(ADA), "customer_fe89aa93f69e9c10286e34d0e47efafd");
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
