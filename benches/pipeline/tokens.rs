//! Signed deliveries, made beforehand: signing is the sender's work and costs more than all of intake's. They are kept in
//! `target/bench` for the next run.

use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, ensure};
use bottle::domain::event::Delivery;
use bottle::inbox::store;
use bottle::jwks::Jwks;
use bottle::local_kinde::events::{self, Happening};
use bottle::local_kinde::key::SigningKey;
use bottle::local_kinde::people;
use bottle::providers::kinde::Kinde;
use jiff::{SignedDuration, Timestamp};
use jsonwebtoken::DecodingKey;

use super::stand::{Database, Stand};

/// The four events of an upgrade: the old plan's end, the new plan's beginning told twice, the payment.
pub const EVENTS_OF_A_PERSON: usize = 4;
/// Within a block of this many tokens the events of different people are mixed.
pub const BLOCK: usize = 20_000;
/// Coprime to the block: position × stride mod block meets every event once.
pub const STRIDE: usize = 7_919;
/// Long past on every machine's clock: an event from the future would wait.
const BEGAN: &str = "2026-01-05T00:00:00Z";

/// A file of lines `<token> <webhook-id>`.
pub struct Tokens {
    pub path: PathBuf,
    pub count: usize,
}

/// Whose upgrades.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum People {
    /// Each upgrades once; events in a mixed order.
    Many,
    /// One person upgrades again and again.
    One,
}

/// A user id made from a number, so that a pgbench script can make it too.
fn user(n: usize) -> String {
    format!("kp_{n:032}")
}

/// `count` deliveries; signed now if they are not at hand.
pub fn signed(stand: &Stand, people: People, count: usize) -> anyhow::Result<Tokens> {
    let kid = stand.key.kid().replace(':', "");
    let kind = if people == People::Many { "many" } else { "one" };
    let path = stand.folder.join(format!("tokens-{kind}-{count}-{}.txt", kid.get(..8).unwrap_or(&kid)));
    if !path.exists() {
        eprintln!("signing {count} deliveries …");
        let draft = path.with_extension("new");
        write(&draft, &all(&stand.key, people, count)?)?;
        std::fs::rename(&draft, &path)?;
    }
    Ok(Tokens { path, count })
}

fn all(key: &SigningKey, people: People, count: usize) -> anyhow::Result<Vec<String>> {
    ensure!(count.is_multiple_of(EVENTS_OF_A_PERSON), "whole upgrades only");
    let numbers: Vec<usize> = (0..count / EVENTS_OF_A_PERSON).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let parts: Vec<anyhow::Result<Vec<String>>> = std::thread::scope(|scope| {
        let sign = |part: &[usize]| {
            part.iter().try_fold(Vec::new(), |mut lines, n| {
                lines.extend(upgrade(key, people, *n)?);
                Ok(lines)
            })
        };
        let parts: Vec<_> = numbers.chunks(numbers.len().div_ceil(threads)).map(|part| scope.spawn(move || sign(part))).collect();
        parts.into_iter().map(|part| part.join().expect("signing does not panic")).collect()
    });
    let lines = parts.into_iter().collect::<anyhow::Result<Vec<_>>>()?.concat();
    Ok(match people {
        People::One => lines,
        People::Many => lines.chunks(BLOCK).flat_map(mixed).cloned().collect(),
    })
}

fn mixed(block: &[String]) -> impl Iterator<Item = &String> {
    (0..block.len()).map(move |n| &block[n * STRIDE % block.len()])
}

fn upgrade(key: &SigningKey, people: People, n: usize) -> anyhow::Result<Vec<String>> {
    let user_id = user(if people == People::Many { n } else { 0 });
    let began: Timestamp = BEGAN.parse()?;
    let happening = Happening {
        event: "upgrade".to_owned(),
        agreement_id: format!("agreement_{n:032}"),
        plan: "customer_pro_plan".to_owned(),
        from_plan: "customer_starter_plan".to_owned(),
        user_id,
        // A minute apart: one change of plan spans ten seconds.
        at: Some(began.checked_add(SignedDuration::from_secs(60 * i64::try_from(n)?))?),
    };
    let line = |event: events::Event| {
        let webhook_id = people::webhook_id("http://localhost:3000/webhooks/kinde", &event.event_id);
        Ok(format!("{} {webhook_id}", key.sign(&event.claims)?))
    };
    events::write(&happening)?.into_iter().map(line).collect()
}

fn write(path: &std::path::Path, lines: &[String]) -> anyhow::Result<()> {
    let mut file = BufWriter::new(std::fs::File::create(path)?);
    for line in lines {
        writeln!(file, "{line}")?;
    }
    Ok(file.flush()?)
}

impl Tokens {
    /// One body, as an example of its size.
    pub fn example(&self) -> anyhow::Result<String> {
        let text = std::fs::read_to_string(&self.path)?;
        Ok(text.split(' ').next().context("a token")?.to_owned())
    }

    /// Where in the file the line with this number, from 0, begins.
    pub fn offset_of(&self, line: usize) -> anyhow::Result<usize> {
        let text = std::fs::read(&self.path)?;
        Ok(text.split_inclusive(|byte| *byte == b'\n').take(line).map(<[u8]>::len).sum())
    }

    /// Stores the first `count` as intake does.
    pub async fn store(&self, stand: &Stand, database: &Database, count: usize) -> anyhow::Result<()> {
        let jwk = stand.key.jwks().keys.into_iter().next().context("the key")?;
        let keys = Jwks::held([(jwk.kid, DecodingKey::from_rsa_components(&jwk.n, &jwk.e)?)]);
        let kinde = Kinde::new(Arc::new(keys), [stand.kinde.url()], None);
        let text = std::fs::read_to_string(&self.path)?;
        let mut deliveries: Vec<Delivery> = Vec::with_capacity(count);
        for line in text.lines().take(count) {
            let (token, webhook_id) = line.split_once(' ').context("a token and a webhook id")?;
            deliveries.push(kinde.verify(token.as_bytes(), Some(webhook_id)).await?);
        }
        ensure!(deliveries.len() == count, "{} holds fewer than {count} deliveries", self.path.display());
        let pool = database.pool().await?;
        // Events of one statement would take ids by their key; one at a time they take them in the file's order.
        let mut tx = pool.begin().await?;
        for delivery in &deliveries {
            store::store(&mut *tx, &[delivery], bottle::clock::Clock::Database).await?;
        }
        tx.commit().await?;
        pool.close().await;
        Ok(())
    }
}
