//! `bottle test-alert`: does an alert reach anybody?

use std::process::ExitCode;

use time::OffsetDateTime;

use super::parts;
use crate::alerts::outgoing::Message;
use crate::config::Config;

/// Sends a message about nothing over each channel that is set up.
pub async fn run(config: &Config) -> anyhow::Result<ExitCode> {
    let channels = parts::channels(config)?;
    let configured = channels.configured();
    if configured.is_empty() {
        say!(
            "Alerts go to the log only. Set ALERT_WEBHOOK_URL and ALERT_WEBHOOK_SECRET, or ALERT_EMAIL with SMTP_URL and MAIL_FROM."
        );
        return Ok(ExitCode::FAILURE);
    }
    let mut code = ExitCode::SUCCESS;
    for channel in configured {
        match channels.send(&Message::test(channel, OffsetDateTime::now_utc())).await {
            Ok(()) => say!("{channel}: taken"),
            Err(why) => {
                say!("{channel}: not sent: {why}");
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}
