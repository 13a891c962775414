//! What became of what was bought once: how much of a charge was given back, and how the dispute about it stands.
//!
//! A purchase, its refunds and its dispute are told by events of their own, and each can turn out to be somebody else's. So a stamp is
//! read off by the charge, whoever's account each of them is at: the refunds from the ledger, where each stands once, the dispute
//! from the newest answer about it.

use std::collections::{BTreeSet, HashMap};

use sqlx::PgConnection;

use crate::domain::ids::ChargeId;
use crate::money::{self, Purchase, bills};

use super::facts;

/// By charge.
#[derive(Debug, Default)]
pub struct Stamps {
    refunded: HashMap<ChargeId, i64>,
    disputed: HashMap<ChargeId, String>,
}

/// What these charges have come to by now.
pub async fn of(conn: &mut PgConnection, charges: &BTreeSet<ChargeId>) -> sqlx::Result<Stamps> {
    if charges.is_empty() {
        return Ok(Stamps::default());
    }
    let charges: Vec<&str> = charges.iter().map(ChargeId::as_str).collect();
    let refunded = money::refunded(&mut *conn, &charges).await?;
    Ok(Stamps { refunded, disputed: facts::disputes(conn, &charges).await? })
}

/// Stamps the purchases that these charges paid, as their movements and facts stand in this transaction.
pub async fn renew(conn: &mut PgConnection, charges: &BTreeSet<ChargeId>) -> sqlx::Result<()> {
    if charges.is_empty() {
        return Ok(());
    }
    // Locked first and summed then: of two that run at once for two accounts the later one sees what the earlier one wrote.
    let purchases = bills::lock(&mut *conn, charges).await?;
    if purchases.is_empty() {
        return Ok(());
    }
    let stamps = of(&mut *conn, charges).await?;
    let renewed: Vec<Purchase> = purchases.into_iter().map(|purchase| stamps.on(purchase)).collect();
    bills::renew(conn, &renewed).await
}

impl Stamps {
    #[must_use]
    pub fn on(&self, purchase: Purchase) -> Purchase {
        let Some(charge) = &purchase.charge else { return purchase };
        let refunded_minor = self.refunded.get(charge).copied().unwrap_or_default();
        Purchase { refunded_minor, disputed: self.disputed.get(charge).cloned(), ..purchase }
    }
}
