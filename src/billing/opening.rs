//! The first use of a period: its Free entry, and for a Pro account in good standing the event that grants its Pro entry.
//!
//! A renewal must not leave a Pro customer with the Free bottles until an invoice lands weeks later. So the first sign-in or
//! spend of a period stores an event of our own, and it runs through the same code as a provider's, in this transaction: fact,
//! sentence and entry are there together or not at all, the log shows them, and a replay finds what every replay finds.

use std::collections::BTreeSet;

use serde_json::json;
use sha2::{Digest, Sha256};
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::accounts;
use crate::checkpoint::Checkpoints;
use crate::clock::Clock;
use crate::domain::event::{Delivery, Source};
use crate::domain::fact::{Fact, PERIOD_OPENED};
use crate::domain::ids::{AccountId, EventKey, LeaseToken};
use crate::domain::instant::Instant;
use crate::domain::told::{Said, Told, Whose};
use crate::inbox::queue::{self, Settlement};
use crate::inbox::store;
use crate::ledger;

use super::apply::{self, Error, Item, Rules};
use super::bottles::{self, Bottles};

/// Opens the period of this moment for an account, if it is not open yet, and says what it has. Locks the account.
///
/// Call it at every sign-in and before every spend: the second call of a period writes nothing.
///
/// # Errors
/// Those of [`apply::apply`]; nothing of it may be committed then.
pub async fn open_period(
    conn: &mut PgConnection,
    account: AccountId,
    rules: &Rules,
    now: OffsetDateTime,
) -> Result<Bottles, Error> {
    accounts::lock(&mut *conn, &BTreeSet::from([account])).await?;
    let found = bottles::of(&mut *conn, account, now).await?;
    if found.to_write.free {
        ledger::append(&mut *conn, &[ledger::free_entry(account, found.period, None)], now).await?;
    }
    if found.to_write.pro {
        grant(&mut *conn, account, &found, rules, now).await?;
    }
    if !(found.to_write.free || found.to_write.pro) {
        return Ok(found);
    }
    bottles::of(conn, account, now).await
}

/// Stores the event, runs it and marks it. The row is ours before anyone else can see it, so no worker meets it open.
async fn grant(
    conn: &mut PgConnection,
    account: AccountId,
    found: &Bottles,
    rules: &Rules,
    now: OffsetDateTime,
) -> Result<(), Error> {
    let at = Instant::from_datetime(now);
    let delivery = delivery(account, found, at);
    let stored = store::store(&mut *conn, &[&delivery], Clock::At(at)).await?;
    let Some(stored) = stored.into_iter().next() else { return Ok(()) };
    if stored.copy {
        // Its event is stored and its entry is not there: something for the check of the books, not for a second grant.
        tracing::error!(alert = "books", event = %delivery.key, event_id = %stored.id, "a period was opened before and has no Pro entry");
        return Ok(());
    }
    let token = LeaseToken::fresh();
    queue::take(&mut *conn, stored.id, token).await?;
    let item = Item {
        id: stored.id,
        source: Source::Bottle,
        key: delivery.key,
        kind: delivery.kind,
        received: at,
        account: Some(account),
        requested_by: None,
        told: Told { whose: Whose::default(), said: Said::Fact { at, fact: Fact::Opened }, answer: None, doubt: None },
    };
    let applied = apply::apply(&mut *conn, &[item], rules, &Checkpoints::default(), now).await?;
    let verdict = applied.verdicts.into_iter().next().ok_or(sqlx::Error::RowNotFound)?;
    let settlement = Settlement {
        id: stored.id,
        status: verdict.reason.status(),
        reason: verdict.reason.to_string(),
        account: verdict.account,
        due: verdict.due,
        waits_for: None,
    };
    queue::settle(conn, &[settlement], token, now).await?;
    Ok(())
}

/// Keyed by account and period: opened twice it is one event.
fn delivery(account: AccountId, found: &Bottles, at: Instant) -> Delivery {
    let body = json!({"type": PERIOD_OPENED, "account": account, "period": found.period.to_string()}).to_string().into_bytes();
    Delivery {
        source: Source::Bottle,
        key: EventKey(format!("period_opened:{account}:{}", found.period)),
        kind: PERIOD_OPENED.to_owned(),
        webhook_id: None,
        digest: Sha256::digest(&body).into(),
        body,
        occurred: Some(at),
        sent: None,
    }
}
