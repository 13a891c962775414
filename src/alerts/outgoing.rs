//! Messages about alerts on their way out: taken for a minute, sent, marked. At least once: a process that dies between the
//! two sends it again under the same id.

use std::time::Duration;

use serde_json::json;
use sqlx::PgPool;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::db::interval;
use crate::telemetry::labels::{Channel, Fetch};
use crate::telemetry::metrics;

use super::Error;
use super::email::Email;
use super::webhook::Webhook;

/// Waits after each failed attempt, about three days in all.
const WAITS_SECS: &[u64] = &[10, 60, 300, 1800, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 24 * 3600];
const CLAIMED_SECS: f64 = 60.0;

/// Where alerts go besides the log.
#[derive(Debug, Default)]
pub struct Channels {
    pub webhook: Option<Webhook>,
    pub email: Option<Email>,
}

/// One message, as it is claimed.
#[derive(Debug, Clone)]
pub struct Message {
    id: i64,
    pub alert: i64,
    pub about: String,
    pub channel: String,
    pub condition: String,
    pub sentence: String,
    pub events: Vec<i64>,
    pub raised_at: OffsetDateTime,
    pub cleared_at: Option<OffsetDateTime>,
    attempts: i32,
}

/// Why a message did not go out, in words for the log and the operators' page.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotSent(pub String);

impl Channels {
    pub fn configured(&self) -> Vec<&'static str> {
        let webhook = self.webhook.iter().map(|_| "webhook");
        webhook.chain(self.email.iter().map(|_| "email")).collect()
    }

    /// # Errors
    /// Why it did not go out.
    pub async fn send(&self, message: &Message) -> Result<(), NotSent> {
        let (channel, sent) = match (message.channel.as_str(), &self.webhook, &self.email) {
            ("webhook", Some(webhook), _) => (Channel::Webhook, webhook.post(&message.id(), &message.json()).await),
            ("email", _, Some(email)) => (Channel::Email, email.post(message).await),
            (channel, ..) => return Err(NotSent(format!("no {channel} is configured any more"))),
        };
        metrics::alert_message(channel, if sent.is_ok() { Fetch::Ok } else { Fetch::Failed });
        sent
    }
}

impl Message {
    /// A message about nothing, to try the channels with.
    pub fn test(channel: &str, now: OffsetDateTime) -> Self {
        Self {
            id: 0,
            alert: 0,
            about: "raised".to_owned(),
            channel: channel.to_owned(),
            condition: "test".to_owned(),
            sentence: "this is a test; nothing is wrong".to_owned(),
            events: Vec::new(),
            raised_at: now,
            cleared_at: None,
            attempts: 0,
        }
    }

    /// The same at every attempt: whoever receives it can tell a copy.
    pub fn id(&self) -> String {
        format!("alert_{}_{}", self.alert, self.about)
    }

    pub fn json(&self) -> String {
        let time = |at: OffsetDateTime| at.format(&Rfc3339).unwrap_or_default();
        json!({
            "type": format!("alert.{}", self.about),
            "timestamp": time(self.cleared_at.unwrap_or(self.raised_at)),
            "data": {
                "condition": self.condition,
                "sentence": self.sentence,
                "event_ids": self.events,
                "raised_at": time(self.raised_at),
                "cleared_at": self.cleared_at.map(time),
            },
        })
        .to_string()
    }
}

/// Takes the oldest message that is due.
pub(super) async fn claim(pool: &PgPool) -> Result<Option<Message>, Error> {
    let row = sqlx::query!(
        r#"with next as materialized (
               select id from alert_messages where sent_at is null and due_at <= now()
               order by due_at, id limit 1 for update skip locked)
           update alert_messages m set due_at = now() + make_interval(secs => $1), attempts = m.attempts + 1
           from next, alerts a where m.id = next.id and a.id = m.alert_id
           returning m.id, m.alert_id, m.about, m.channel, m.attempts, a.condition, a.sentence, a.event_ids, a.raised_at, a.cleared_at"#,
        CLAIMED_SECS
    )
    .fetch_optional(pool)
    .await?;
    Ok(row.map(|r| Message {
        id: r.id,
        alert: r.alert_id,
        about: r.about,
        channel: r.channel,
        condition: r.condition,
        sentence: r.sentence,
        events: r.event_ids,
        raised_at: r.raised_at,
        cleared_at: r.cleared_at,
        attempts: r.attempts,
    }))
}

/// Lets go of a message that was not sent, as if it had not been taken.
pub(super) async fn give_back(pool: &PgPool, message: &Message) -> Result<(), Error> {
    sqlx::query!(
        "update alert_messages set due_at = now(), attempts = greatest(attempts - 1, 0) where id = $1 and attempts = $2 and sent_at is null",
        message.id,
        message.attempts
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// Marks a message sent, or says when it is tried again; after the last wait it is given up, and the log says so.
pub(super) async fn settle(pool: &PgPool, message: &Message, result: Result<(), NotSent>) -> Result<(), Error> {
    let Err(why) = result else {
        sqlx::query!("update alert_messages set sent_at = now(), last_error = null where id = $1", message.id)
            .execute(pool)
            .await?;
        return Ok(());
    };
    let failed = usize::try_from(message.attempts).unwrap_or_default().saturating_sub(1);
    let wait = WAITS_SECS.get(failed).map(|&secs| Duration::from_secs(secs));
    if wait.is_some() {
        tracing::warn!(alert = %message.condition, channel = %message.channel, error = %why, "an alert could not be sent; trying again");
    } else {
        tracing::error!(alert = %message.condition, channel = %message.channel, error = %why, "an alert could not be sent and is given up");
    }
    let wait = wait.map(interval);
    sqlx::query!(
        "update alert_messages set last_error = $2, due_at = coalesce(now() + $3::interval, 'infinity') where id = $1",
        message.id,
        why.to_string(),
        wait
    )
    .execute(pool)
    .await?;
    Ok(())
}
