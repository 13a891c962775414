//! Accounts and the customer map: whose an event is, and what their plan is now. The SQL of `accounts` and `customer_map`.
//!
//! Every function takes the caller's connection first; the caller begins and commits.

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;

use crate::domain::event::Source;
use crate::domain::ids::{AccountId, CustomerId, KindeUserId};
use crate::domain::instant::Instant;
use crate::domain::plan::Plan;

pub mod links;
pub mod lookup;

/// What is stored of an account's billing state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    pub plan: Plan,
    pub plan_changed: Option<Instant>,
    pub upcoming: Vec<Upcoming>,
    /// To the microsecond: for people.
    pub past_due_since: Option<OffsetDateTime>,
}

/// A change that is known to come: the standing from that moment on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upcoming {
    pub at_ns: i64,
    #[serde(with = "plan_word")]
    pub plan: Plan,
    pub changed_ns: Option<i64>,
    pub past_due_ns: Option<i64>,
}

impl Standing {
    /// The standing at a moment: what is stored, and what was already known to come by then.
    #[must_use]
    pub fn at(&self, now: Instant) -> Self {
        let passed = self.upcoming.partition_point(|u| u.at_ns <= now.nanos());
        let Some(last) = passed.checked_sub(1).and_then(|n| self.upcoming.get(n)) else { return self.clone() };
        Self {
            plan: last.plan,
            plan_changed: last.changed_ns.map(Instant::from_nanos),
            upcoming: self.upcoming[passed..].to_vec(),
            past_due_since: last.past_due_ns.map(|ns| Instant::from_nanos(ns).datetime()),
        }
    }

    pub fn plan_at(&self, now: Instant) -> Plan {
        self.at(now).plan
    }
}

/// The tenant this database belongs to: the one given, if it belonged to none.
pub async fn tenant(pool: &sqlx::PgPool, tenant: &str) -> sqlx::Result<String> {
    sqlx::query!("insert into installation (tenant) values ($1) on conflict do nothing", tenant).execute(pool).await?;
    sqlx::query_scalar!("select tenant from installation").fetch_one(pool).await
}

/// The accounts of these Kinde users in one tenant, as far as they exist.
pub async fn find(conn: &mut PgConnection, tenant: &str, users: &[String]) -> sqlx::Result<HashMap<KindeUserId, AccountId>> {
    let rows = sqlx::query!(
        r#"select id as "id: AccountId", kinde_user_id as "user: KindeUserId" from accounts
           where tenant = $1 and kinde_user_id = any($2)"#,
        tenant,
        users
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|r| (r.user, r.id)).collect())
}

/// Creates what does not exist yet, in an order that cannot deadlock. Returns only the ones created here.
pub async fn create(
    conn: &mut PgConnection,
    tenant: &str,
    users: &BTreeSet<KindeUserId>,
    now: OffsetDateTime,
) -> sqlx::Result<HashMap<KindeUserId, AccountId>> {
    let users: Vec<String> = users.iter().map(|u| u.0.clone()).collect();
    let rows = sqlx::query!(
        r#"insert into accounts (tenant, kinde_user_id, created_at)
           select $1, u, $3 from unnest($2::text[]) u order by u
           on conflict (tenant, kinde_user_id) do nothing
           returning id as "id: AccountId", kinde_user_id as "user: KindeUserId""#,
        tenant,
        &users,
        now
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|r| (r.user, r.id)).collect())
}

/// The accounts these customer ids are known to belong to.
pub async fn customers(conn: &mut PgConnection, source: Source, ids: &[String]) -> sqlx::Result<HashMap<CustomerId, AccountId>> {
    let rows = sqlx::query!(
        r#"select customer_id as "customer: CustomerId", account_id as "account: AccountId" from customer_map
           where source = $1 and customer_id = any($2)"#,
        source.as_str(),
        ids
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|r| (r.customer, r.account)).collect())
}

/// What an account is known as at each provider: the name that was learned last.
pub async fn known_as(conn: &mut PgConnection, account: AccountId) -> sqlx::Result<Vec<(Source, CustomerId)>> {
    let rows = sqlx::query!(
        r#"select distinct on (source) source, customer_id as "customer: CustomerId" from customer_map
           where account_id = $1 order by source, learned_at desc, customer_id"#,
        account.0
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|row| Ok((row.source.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))?, row.customer)))
        .collect()
}

/// Whoever parks an event for want of a mapping, and whoever learns one, takes this first: so neither misses the other.
pub async fn lock_customers(conn: &mut PgConnection, ids: &BTreeSet<CustomerId>) -> sqlx::Result<()> {
    let ids: Vec<String> = ids.iter().map(|c| c.0.clone()).collect();
    sqlx::query!(
        "select pg_advisory_xact_lock(hashtextextended(c, 7)) from (select c from unnest($1::text[]) c order by c) o",
        &ids
    )
    .fetch_all(conn)
    .await?;
    Ok(())
}

/// Stores whose these customer ids are; a first claim stands. Returns the ids that were new.
pub async fn learn(
    conn: &mut PgConnection,
    source: Source,
    pairs: &HashMap<CustomerId, AccountId>,
    now: OffsetDateTime,
) -> sqlx::Result<Vec<CustomerId>> {
    let (customers, accounts): (Vec<String>, Vec<i64>) = pairs.iter().map(|(c, a)| (c.0.clone(), a.0)).unzip();
    let rows = sqlx::query!(
        r#"insert into customer_map (source, customer_id, account_id, learned_at)
           select $1, c, a, $4 from unnest($2::text[], $3::bigint[]) as p (c, a) order by c
           on conflict (source, customer_id) do nothing
           returning customer_id as "customer: CustomerId""#,
        source.as_str(),
        &customers,
        &accounts,
        now
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|r| r.customer).collect())
}

/// Locks accounts, lowest id first, until the transaction ends, and reads what is stored of them.
///
/// `for no key update`: the foreign keys of unrelated inserts are not kept waiting.
pub async fn lock(conn: &mut PgConnection, ids: &BTreeSet<AccountId>) -> Result<HashMap<AccountId, Standing>, Error> {
    let ids: Vec<i64> = ids.iter().map(|a| a.0).collect();
    let rows = sqlx::query!(
        r#"select id as "id: AccountId", plan, plan_changed_ns, upcoming, past_due_since from accounts
           where id = any($1) order by id for no key update"#,
        &ids
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(|r| Ok((r.id, standing(&r.plan, r.plan_changed_ns, r.upcoming, r.past_due_since)?))).collect()
}

/// What is stored of one account, without locking it.
pub async fn standing_of(conn: &mut PgConnection, id: AccountId) -> Result<Option<Standing>, Error> {
    let row = sqlx::query!("select plan, plan_changed_ns, upcoming, past_due_since from accounts where id = $1", id.0)
        .fetch_optional(conn)
        .await?;
    row.map(|r| standing(&r.plan, r.plan_changed_ns, r.upcoming, r.past_due_since)).transpose()
}

/// Who an account belongs to and what is stored of it, without locking it.
pub async fn overview(conn: &mut PgConnection, id: AccountId) -> Result<Option<(KindeUserId, Standing)>, Error> {
    let row = sqlx::query!(
        r#"select kinde_user_id as "user: KindeUserId", plan, plan_changed_ns, upcoming, past_due_since from accounts where id = $1"#,
        id.0
    )
    .fetch_optional(conn)
    .await?;
    row.map(|r| Ok((r.user, standing(&r.plan, r.plan_changed_ns, r.upcoming, r.past_due_since)?))).transpose()
}

/// All account ids above `after`, for a check of everything, a page at a time.
pub async fn page_of_ids(conn: &mut PgConnection, after: AccountId, limit: i64) -> sqlx::Result<Vec<AccountId>> {
    sqlx::query_scalar!(r#"select id as "id: AccountId" from accounts where id > $1 order by id limit $2"#, after.0, limit)
        .fetch_all(conn)
        .await
}

/// What sign-in learned of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    pub user: KindeUserId,
    pub email: Option<String>,
    pub email_verified: bool,
    pub name: Option<String>,
    /// The IANA name of the zone they last chose.
    pub zone: Option<String>,
}

impl Profile {
    /// Where mail may go: nothing is sent to an address that nobody proved to be theirs.
    pub fn mail_address(&self) -> Option<&str> {
        self.email.as_deref().filter(|_| self.email_verified)
    }
}

/// Keeps what a sign-in says about a person. A sign-in that says nothing about mail leaves no older address behind.
pub async fn greet(
    conn: &mut PgConnection,
    id: AccountId,
    email: Option<&str>,
    verified: bool,
    name: Option<&str>,
) -> sqlx::Result<()> {
    sqlx::query!(
        "update accounts set email = $2, email_verified = $3 and $2::text is not null, name = $4, version = version + 1
         where id = $1 and (email, email_verified, name) is distinct from ($2, $3 and $2::text is not null, $4)",
        id.0,
        email,
        verified,
        name
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn profile(db: impl PgExecutor<'_>, id: AccountId) -> sqlx::Result<Option<Profile>> {
    sqlx::query_as!(
        Profile,
        r#"select kinde_user_id as "user: KindeUserId", email, email_verified, name, zone from accounts where id = $1"#,
        id.0
    )
    .fetch_optional(db)
    .await
}

/// Remembers the zone a person chose.
pub async fn choose_zone(conn: &mut PgConnection, id: AccountId, zone: &str) -> sqlx::Result<()> {
    sqlx::query!("update accounts set zone = $2 where id = $1 and zone is distinct from $2", id.0, zone).execute(conn).await?;
    Ok(())
}

/// Tells open pages that something of these accounts changed. The accounts are locked by the caller's transaction.
pub async fn touch(conn: &mut PgConnection, ids: &[AccountId]) -> sqlx::Result<()> {
    let ids: Vec<i64> = ids.iter().map(|a| a.0).collect();
    sqlx::query!("update accounts set version = version + 1 where id = any($1)", &ids).execute(conn).await?;
    Ok(())
}

/// A number for each account that grows with everything its pages may show. Cheap: for open pages, once a second.
pub async fn versions(db: impl PgExecutor<'_>, ids: &[AccountId]) -> sqlx::Result<HashMap<AccountId, i64>> {
    let ids: Vec<i64> = ids.iter().map(|a| a.0).collect();
    let rows =
        sqlx::query!(r#"select id as "id: AccountId", version from accounts where id = any($1)"#, &ids).fetch_all(db).await?;
    Ok(rows.into_iter().map(|r| (r.id, r.version)).collect())
}

/// Locks one account if nobody has it; false leaves it to whoever does.
pub async fn try_lock(conn: &mut PgConnection, id: AccountId) -> sqlx::Result<bool> {
    let row = sqlx::query_scalar!("select id from accounts where id = $1 for no key update skip locked", id.0)
        .fetch_optional(conn)
        .await?;
    Ok(row.is_some())
}

/// How many accounts there are.
pub async fn count(db: impl sqlx::PgExecutor<'_>) -> sqlx::Result<i64> {
    sqlx::query_scalar!(r#"select count(*) as "count!" from accounts"#).fetch_one(db).await
}

/// Writes the states that differ. The accounts are locked by the caller's transaction.
pub async fn write(conn: &mut PgConnection, changes: &[(AccountId, Standing)]) -> Result<(), Error> {
    let mut ids = Vec::new();
    let mut plans = Vec::new();
    let mut changed_at = Vec::new();
    let mut changed_ns = Vec::new();
    let mut upcoming = Vec::new();
    let mut past_due = Vec::new();
    for (id, standing) in changes {
        ids.push(id.0);
        plans.push(standing.plan.as_str().to_owned());
        changed_at.push(standing.plan_changed.map(Instant::datetime));
        changed_ns.push(standing.plan_changed.map(Instant::nanos));
        upcoming.push(serde_json::to_value(&standing.upcoming)?);
        past_due.push(standing.past_due_since);
    }
    sqlx::query!(
        r#"update accounts a
           set plan = c.plan, plan_changed_at = c.changed_at, plan_changed_ns = c.changed_ns, upcoming = c.upcoming,
               past_due_since = c.past_due, version = a.version + 1
           from unnest($1::bigint[], $2::text[], $3::timestamptz[], $4::bigint[], $5::jsonb[], $6::timestamptz[])
                as c (id, plan, changed_at, changed_ns, upcoming, past_due)
           where a.id = c.id"#,
        &ids,
        &plans,
        &changed_at as &[Option<OffsetDateTime>],
        &changed_ns as &[Option<i64>],
        &upcoming,
        &past_due as &[Option<OffsetDateTime>]
    )
    .execute(conn)
    .await?;
    Ok(())
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the accounts table could not be read or written")]
    Database(#[from] sqlx::Error),
    #[error("an account's stored plan cannot be read")]
    Plan(#[from] crate::domain::plan::NotAPlan),
    #[error("an account's coming plan changes cannot be read or written")]
    Upcoming(#[from] serde_json::Error),
}

fn standing(
    plan: &str,
    changed_ns: Option<i64>,
    upcoming: serde_json::Value,
    past_due_since: Option<OffsetDateTime>,
) -> Result<Standing, Error> {
    Ok(Standing {
        plan: plan.parse()?,
        plan_changed: changed_ns.map(Instant::from_nanos),
        upcoming: serde_json::from_value(upcoming)?,
        past_due_since,
    })
}

mod plan_word {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::domain::plan::Plan;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
    pub fn serialize<S: Serializer>(plan: &Plan, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(plan.as_str())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Plan, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}
