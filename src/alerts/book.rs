//! The alerts that were raised and cleared. The SQL of `alerts` and `provider_seen`, and of the messages each change writes.

use std::time::Duration;

use sqlx::PgConnection;

use crate::db::interval;
use crate::domain::event::Source;
use crate::domain::ids::EventId;
use crate::inbox::watch;

use super::conditions::Finding;
use super::{Changes, Error};

/// A database that is older than this program's first look is not read from its beginning to learn when a provider was last
/// heard of.
const LOOK_BACK: i64 = 10_000;

/// Raises what holds and was not raised, clears what was raised and holds no more, and writes a message about each to each
/// channel. An alert that goes on is brought up to date in silence.
pub(super) async fn write(conn: &mut PgConnection, findings: &[Finding], channels: &[&str]) -> Result<Changes, Error> {
    let mut changes = Changes::default();
    for finding in findings {
        let events: Vec<i64> = finding.events.iter().map(|e| e.0).collect();
        let raised = sqlx::query_scalar!(
            "insert into alerts (condition, sentence, event_ids, raised_at) values ($1, $2, $3, now())
             on conflict (condition) where cleared_at is null do nothing returning id",
            finding.condition,
            finding.sentence,
            &events
        )
        .fetch_optional(&mut *conn)
        .await?;
        if let Some(id) = raised {
            announce(conn, id, "raised", channels).await?;
            changes.raised.push(finding.condition.clone());
        } else {
            sqlx::query!(
                "update alerts set sentence = $2, event_ids = $3
                 where condition = $1 and cleared_at is null and (sentence, event_ids) is distinct from ($2, $3)",
                finding.condition,
                finding.sentence,
                &events
            )
            .execute(&mut *conn)
            .await?;
        }
    }
    let holding: Vec<String> = findings.iter().map(|f| f.condition.clone()).collect();
    let over = sqlx::query!(
        "update alerts set cleared_at = now() where cleared_at is null and not condition = any($1) returning id, condition",
        &holding
    )
    .fetch_all(&mut *conn)
    .await?;
    for alert in over {
        announce(conn, alert.id, "cleared", channels).await?;
        changes.cleared.push(alert.condition);
    }
    Ok(changes)
}

async fn announce(conn: &mut PgConnection, alert: i64, about: &str, channels: &[&str]) -> Result<(), Error> {
    let channels: Vec<String> = channels.iter().map(|&c| c.to_owned()).collect();
    sqlx::query!(
        "insert into alert_messages (alert_id, about, channel, due_at) select $1, $2, c, now() from unnest($3::text[]) c",
        alert,
        about,
        &channels
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Whether nothing came from this provider for `age`. The clock starts when the provider is first asked about, and each row
/// of the inbox is read once to know it.
pub(super) async fn silent_for(conn: &mut PgConnection, source: Source, age: Duration) -> Result<bool, Error> {
    let newest = watch::newest(conn).await?;
    let from = sqlx::query_scalar!(
        r#"insert into provider_seen (source, up_to, heard_at) values ($1, $2, now())
           on conflict (source) do update set source = excluded.source returning up_to as "up_to: EventId""#,
        source.as_str(),
        (newest.0 - LOOK_BACK).max(0)
    )
    .fetch_one(&mut *conn)
    .await?;
    let heard = watch::heard_after(conn, source, from).await?;
    let age = interval(age);
    let silent = sqlx::query_scalar!(
        r#"update provider_seen set up_to = $2, heard_at = greatest(heard_at, coalesce($3, heard_at)) where source = $1
           returning heard_at < now() - $4::interval as "silent!""#,
        source.as_str(),
        newest.0,
        heard,
        age
    )
    .fetch_one(conn)
    .await?;
    Ok(silent)
}
