//! A person with reminders, at a time that the test chooses.

use std::collections::BTreeSet;

use bottle::accounts;
use bottle::bell::{Bell, Turn};
use bottle::billing::bottles::{self, Bottles};
use bottle::billing::opening;
use bottle::checkpoint::Checkpoints;
use bottle::clock::Clock;
use bottle::courier::{Courier, LEASE_SECS};
use bottle::domain::ids::{AccountId, KindeUserId, ReminderId};
use bottle::mail::Mail;
use bottle::reminders::Error;
use bottle::reminders::change::{self, Deleted};
use bottle::reminders::draft::Draft;
use bottle::reminders::list::{self, List};
use bottle::reminders::ring::Letters;
use bottle::reminders::row::Reminder;
use bottle::reminders::schedule::{Scheduled, schedule};
use sqlx::PgConnection;
use uuid::Uuid;

use super::claims::{says, user_id};
use super::pipeline::Pipeline;
use super::smtp::Smtp;

pub struct Desk {
    pub p: Pipeline,
    pub me: AccountId,
}

impl Desk {
    /// At noon of 2026-10-21, on Free, with no entry in the ledger yet.
    pub async fn new() -> Self {
        let p = Pipeline::new().await;
        let me = person(&p, "ada").await;
        Self { p, me }
    }

    /// The plan is Pro since then: the event has come and has been applied.
    pub async fn pro_since(&mut self, at: &str) {
        self.p.run(&says("ada", "up", &format!("{at} changed - pro"))).await;
    }

    pub fn clock(&self) -> Clock {
        Clock::At(self.p.now)
    }

    /// In a transaction of its own, which is given up after an error.
    pub async fn commit<T>(&self, act: impl AsyncFnOnce(&mut PgConnection) -> Result<T, Error>) -> Result<T, Error> {
        let mut tx = self.p.pool.begin().await?;
        let done = act(&mut tx).await?;
        tx.commit().await?;
        Ok(done)
    }

    pub async fn ask(&self, draft: &Draft, form: Uuid) -> Result<Scheduled, Error> {
        self.commit(async |conn| schedule(conn, self.me, draft, form, &self.p.rules, self.clock()).await).await
    }

    /// `2026-10-22T09:00`, UTC, once.
    pub async fn plan(&self, text: &str, local: &str) -> Result<Reminder, Error> {
        self.plan_in(text, local, "UTC", "never").await
    }

    pub async fn plan_in(&self, text: &str, local: &str, zone: &str, repeat: &str) -> Result<Reminder, Error> {
        let draft = Draft::new(text, local, zone, repeat)?;
        Ok(self.ask(&draft, Uuid::new_v4()).await?.reminder)
    }

    pub async fn delete(&self, reminder: &Reminder) -> Result<Deleted, Error> {
        self.commit(async |conn| change::delete(conn, self.me, reminder.id, reminder.version, self.clock()).await).await
    }

    pub async fn bottles(&self) -> Bottles {
        let mut conn = self.p.pool.acquire().await.unwrap();
        bottles::of(&mut conn, self.me, self.p.now.datetime()).await.unwrap()
    }

    pub async fn sign_in(&self) -> Bottles {
        let now = self.p.now.datetime();
        let opened = self.commit(async |conn| Ok(opening::open_period(conn, self.me, &self.p.rules, now).await?)).await;
        opened.unwrap()
    }

    pub async fn has_address(&self, address: &str, verified: bool) {
        let mut conn = self.p.pool.acquire().await.unwrap();
        accounts::greet(&mut conn, self.me, Some(address), verified, Some("Ada")).await.unwrap();
    }

    pub fn bell(&self) -> Bell {
        Bell {
            pool: self.p.pool.clone(),
            rules: self.p.rules.clone(),
            letters: Some(Letters { page: "http://localhost:3000/reminders".to_owned() }),
            checkpoints: Checkpoints::default(),
            clock: self.clock(),
        }
    }

    /// Rings what is due at this time.
    pub async fn ring(&mut self, at: &str) -> Turn {
        self.p.at(at);
        self.bell().turn().await.unwrap()
    }

    pub fn courier(&self, smtp: &Smtp) -> Courier {
        Courier {
            pool: self.p.pool.clone(),
            mail: Mail::new(&smtp.url(), "Bottle <bottle@bottle.test>").unwrap(),
            checkpoints: Checkpoints::default(),
            clock: self.clock(),
            lease_secs: LEASE_SECS,
        }
    }

    pub async fn find(&self, id: ReminderId) -> Option<Reminder> {
        list::find(&self.p.pool, self.me, id).await.unwrap()
    }

    pub async fn all(&self, of: List) -> Vec<Reminder> {
        list::page(&self.p.pool, self.me, of, "", None, 250).await.unwrap().reminders
    }

    /// `free:2026-10 +10, spend:1:1 -1`, in the order they were written, reminders by the order they were made.
    pub async fn ledger(&self) -> String {
        let entries: Vec<(String, String, i64)> =
            sqlx::query_as("select entry_key, period, delta from ledger where account_id = $1 order by id")
                .bind(self.me.0)
                .fetch_all(&self.p.pool)
                .await
                .unwrap();
        let said = entries.iter().map(|(key, period, delta)| {
            let key = key.replace(&format!("free:{}:", self.me), "free:").replace(&format!("pro:{}:", self.me), "pro:");
            let of = if key.contains(period.as_str()) { String::new() } else { format!(" of {period}") };
            format!("{key}{of} {delta:+}")
        });
        said.collect::<Vec<_>>().join(", ")
    }
}

/// An account that exists and has nothing.
pub async fn person(p: &Pipeline, user: &str) -> AccountId {
    let mut conn = p.pool.acquire().await.unwrap();
    let user = KindeUserId(user_id(user));
    let made = accounts::create(&mut conn, &p.rules.tenant, &BTreeSet::from([user.clone()]), p.now.datetime()).await.unwrap();
    made[&user]
}
