//! What is booked already of the money and the packs that some facts tell of.
//!
//! Movements and purchases go by the provider's ids, so they are looked for by these and not by account: an event can turn out to
//! be somebody else's, and its facts go there, but both ledgers are append-only. What was booked before stays where it was, is
//! not booked again, and a purchase's row is still stamped with what becomes of it, whoever is told (`stamps`).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use sqlx::PgConnection;

use crate::domain::fact::Fact;
use crate::domain::ids::PurchaseId;
use crate::domain::money::{Money, MoneyKind, Movement};
use crate::ledger::{self, Entry};
use crate::money::{self, Known, Purchase};

/// What is stored, shared by the accounts of a batch, and what this one adds.
#[derive(Debug, Clone, Default)]
pub struct Booked {
    stored: Arc<Rows>,
    added: Rows,
}

#[derive(Debug, Clone, Default)]
struct Rows {
    money: Known,
    purchases: HashMap<PurchaseId, Purchase>,
    /// Entries of packs: key → bottles.
    packs: HashMap<String, i64>,
}

/// Asks only where there is something to ask for: most accounts have facts of one provider, which says nothing of money.
pub async fn of(conn: &mut PgConnection, facts: impl Iterator<Item = &Fact>) -> sqlx::Result<Booked> {
    let (mut movements, mut purchases) = (BTreeSet::new(), BTreeSet::new());
    for fact in facts {
        match fact {
            Fact::Moved(movement) => {
                movements.insert(movement.key.as_str());
            }
            Fact::Pack { purchase, .. } => {
                purchases.insert(purchase);
            }
            _ => {}
        }
    }
    let mut rows = Rows::default();
    if !movements.is_empty() {
        rows.money = money::with_keys(&mut *conn, &movements.into_iter().collect::<Vec<_>>()).await?;
    }
    if !purchases.is_empty() {
        let ids: Vec<&str> = purchases.iter().map(|id| id.as_str()).collect();
        rows.purchases = money::purchases_with_ids(&mut *conn, &ids).await?;
        let keys: Vec<String> = purchases.iter().map(|id| ledger::pack_key(id)).collect();
        rows.packs = ledger::with_keys(conn, &keys).await?;
    }
    Ok(Booked { stored: Arc::new(rows), added: Rows::default() })
}

impl Booked {
    pub fn movement(&self, key: &str) -> Option<&(MoneyKind, Money)> {
        self.added.money.get(key).or_else(|| self.stored.money.get(key))
    }

    pub fn purchase(&self, id: &PurchaseId) -> Option<&Purchase> {
        self.added.purchases.get(id).or_else(|| self.stored.purchases.get(id))
    }

    pub fn pack(&self, key: &str) -> Option<i64> {
        self.added.packs.get(key).or_else(|| self.stored.packs.get(key)).copied()
    }

    pub fn add_movement(&mut self, movement: &Movement) {
        self.added.money.insert(movement.key.clone(), (movement.kind, movement.money.clone()));
    }

    pub fn add_purchase(&mut self, purchase: &Purchase) {
        self.added.purchases.insert(purchase.id.clone(), purchase.clone());
    }

    pub fn add_pack(&mut self, entry: &Entry) {
        self.added.packs.insert(entry.key.clone(), entry.delta);
    }
}
