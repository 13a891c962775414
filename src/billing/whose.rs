//! Whose an event is: the account of the user it names, or of the customer it names if that mapping is known.

use std::collections::{BTreeSet, HashMap};

use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::accounts;
use crate::domain::event::Source;
use crate::domain::ids::{AccountId, CustomerId, KindeUserId};
use crate::domain::reason::Reason;
use crate::domain::told::Said;

use super::apply::{Error, Item, Rules};

/// Whose one item is, and why it is not applied there, if so.
#[derive(Debug)]
pub struct Owner {
    pub account: Option<AccountId>,
    pub declined: Option<Reason>,
}

/// The owners of a batch, in the order of its items.
#[derive(Debug, Default)]
pub struct Owners {
    pub of_items: Vec<Owner>,
    pub created: BTreeSet<AccountId>,
    pub learned: Vec<(Source, CustomerId)>,
}

/// Finds or creates the accounts, and learns which customer is whose. Takes the customers' locks before any account's.
pub async fn find(conn: &mut PgConnection, items: &[Item], rules: &Rules, now: OffsetDateTime) -> Result<Owners, Error> {
    let declined: Vec<Option<Reason>> = items.iter().map(decline).collect();
    let wanted = || items.iter().zip(&declined).filter(|(_, d)| d.is_none()).map(|(i, _)| i);

    let users: BTreeSet<KindeUserId> = items.iter().filter_map(|i| i.told.whose.user.clone()).collect();
    let names: Vec<String> = users.iter().map(|u| u.0.clone()).collect();
    let mut accounts = if names.is_empty() { HashMap::new() } else { accounts::find(&mut *conn, &rules.tenant, &names).await? };

    let mut map = HashMap::new();
    for source in sources(items) {
        let named: BTreeSet<CustomerId> =
            wanted().filter(|i| i.source == source).filter_map(|i| i.told.whose.customer.clone()).collect();
        let mut known = known(&mut *conn, source, &named).await?;
        let open: BTreeSet<CustomerId> = named.into_iter().filter(|c| !known.contains_key(c)).collect();
        if !open.is_empty() {
            accounts::lock_customers(&mut *conn, &open).await?;
            known.extend(self::known(&mut *conn, source, &open).await?);
        }
        map.extend(known.into_iter().map(|(c, a)| ((source, c), a)));
    }

    let mut owners = Owners::default();
    let missing: BTreeSet<KindeUserId> =
        wanted().filter_map(|i| i.told.whose.user.clone()).filter(|u| !accounts.contains_key(u)).collect();
    if !missing.is_empty() {
        let created = accounts::create(&mut *conn, &rules.tenant, &missing, now).await?;
        owners.created = created.values().copied().collect();
        accounts.extend(created);
        let raced: Vec<String> = missing.iter().filter(|u| !accounts.contains_key(u)).map(|u| u.0.clone()).collect();
        if !raced.is_empty() {
            accounts.extend(accounts::find(&mut *conn, &rules.tenant, &raced).await?);
        }
    }

    for source in sources(items) {
        let mut pairs = HashMap::new();
        for item in wanted().filter(|i| i.source == source) {
            if let (Some(user), Some(customer)) = (&item.told.whose.user, &item.told.whose.customer)
                && let Some(account) = accounts.get(user)
                && !map.contains_key(&(source, customer.clone()))
            {
                pairs.entry(customer.clone()).or_insert(*account);
            }
        }
        if !pairs.is_empty() {
            let new = accounts::learn(&mut *conn, source, &pairs, now).await?;
            owners.learned.extend(new.into_iter().map(|c| (source, c)));
            map.extend(pairs.into_iter().map(|(c, a)| ((source, c), a)));
        }
    }

    for (item, declined) in items.iter().zip(declined) {
        owners.of_items.push(match declined {
            Some(reason) => Owner { account: shown_to(item, &accounts), declined: Some(reason) },
            None => match owner(item, &accounts, &map) {
                Ok(account) => Owner { account: Some(account), declined: None },
                Err(reason) => Owner { account: None, declined: Some(reason) },
            },
        });
    }
    Ok(owners)
}

/// The account that an event would create: no row has this id.
pub const NEW: AccountId = AccountId(0);

/// As [`find`] would find them, each item by itself. Creates, learns and locks nothing.
pub async fn look(conn: &mut PgConnection, items: &[Item], rules: &Rules) -> Result<Vec<Owner>, Error> {
    let users: BTreeSet<&KindeUserId> = items.iter().filter_map(|i| i.told.whose.user.as_ref()).collect();
    let names: Vec<String> = users.iter().map(|u| u.0.clone()).collect();
    let accounts = if names.is_empty() { HashMap::new() } else { accounts::find(&mut *conn, &rules.tenant, &names).await? };
    let mut map = HashMap::new();
    for source in sources(items) {
        let named: BTreeSet<CustomerId> =
            items.iter().filter(|i| i.source == source).filter_map(|i| i.told.whose.customer.clone()).collect();
        map.extend(known(&mut *conn, source, &named).await?.into_iter().map(|(c, a)| ((source, c), a)));
    }
    let mut with_new = accounts.clone();
    with_new.extend(users.into_iter().filter(|u| !accounts.contains_key(u)).map(|u| (u.clone(), NEW)));
    Ok(items
        .iter()
        .map(|item| match decline(item) {
            Some(reason) => Owner { account: shown_to(item, &accounts), declined: Some(reason) },
            None => match owner(item, &with_new, &map) {
                Ok(account) => Owner { account: Some(account), declined: None },
                Err(reason) => Owner { account: None, declined: Some(reason) },
            },
        })
        .collect())
}

/// An event that changes nothing is still shown to the person it names, if we know them.
fn shown_to(item: &Item, accounts: &HashMap<KindeUserId, AccountId>) -> Option<AccountId> {
    item.told.whose.user.as_ref().and_then(|u| accounts.get(u)).copied().or(item.account)
}

/// What can be said without asking whose it is.
fn decline(item: &Item) -> Option<Reason> {
    match (&item.told.said, &item.told.whose.customer_type) {
        (Said::NotRead, customer_type) => {
            Some(Reason::NotAPerson { customer_type: customer_type.clone().unwrap_or_else(|| "unknown".to_owned()) })
        }
        (Said::Nothing, _) => Some(Reason::NoBillingChange { kind: item.kind.clone() }),
        (Said::Gone { object }, _) => Some(Reason::Gone { object: object.clone() }),
        (Said::OtherMode { live }, _) => Some(Reason::OtherMode { live: *live }),
        (Said::Answered { facts, .. }, _) if facts.is_empty() => Some(Reason::NothingOfOurs),
        (_, Some(customer_type)) if customer_type != "user" => Some(Reason::NotAPerson { customer_type: customer_type.clone() }),
        _ => None,
    }
}

fn owner(
    item: &Item,
    accounts: &HashMap<KindeUserId, AccountId>,
    map: &HashMap<(Source, CustomerId), AccountId>,
) -> Result<AccountId, Reason> {
    let whose = &item.told.whose;
    let mapped = whose.customer.as_ref().map(|c| (c, map.get(&(item.source, c.clone())).copied()));
    let user = whose.user.as_ref().and_then(|u| accounts.get(u)).copied();
    match (user, mapped) {
        (Some(user), Some((customer, Some(other)))) if user != other => {
            tracing::error!(event = %item.key, event_id = %item.id, alert = "claimed-by-two", %customer, "a customer id is claimed by two people");
            Err(Reason::ClaimedByTwo { customer: customer.0.clone() })
        }
        (Some(user), _) => Ok(user),
        (None, Some((_, Some(account)))) => Ok(account),
        (None, Some((customer, None))) => Err(Reason::WaitsForPerson { customer: customer.0.clone() }),
        // A pruned body names nobody; its account is on the row.
        (None, None) => item.account.ok_or_else(|| match item.told.said {
            Said::Answered { .. } => Reason::NothingOfOurs,
            Said::Unasked => Reason::Unasked,
            _ => Reason::NoBillingChange { kind: item.kind.clone() },
        }),
    }
}

fn sources(items: &[Item]) -> BTreeSet<Source> {
    items.iter().map(|i| i.source).collect()
}

async fn known(
    conn: &mut PgConnection,
    source: Source,
    customers: &BTreeSet<CustomerId>,
) -> Result<HashMap<CustomerId, AccountId>, Error> {
    if customers.is_empty() {
        return Ok(HashMap::new());
    }
    let ids: Vec<String> = customers.iter().map(|c| c.0.clone()).collect();
    Ok(accounts::customers(conn, source, &ids).await?)
}
