//! The two APIs: Account, for the signed-in person's own access token, and Management, for a machine's.

pub mod account;
pub mod agreements;
pub mod bearer;
pub mod management;
pub mod paging;
pub mod trouble;

/// What the machine-to-machine application may ask for.
pub const SCOPES: [&str; 6] =
    ["read:billing_agreements", "read:billing_entitlements", "read:events", "read:event_types", "read:users", "read:webhooks"];
