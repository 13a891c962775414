//! Our own settings: unsafe ones, and what is not set up at all.

use super::line::Line;
use crate::commands::parts;
use crate::config::Config;

pub fn look(config: &Config) -> Vec<Line> {
    let (refusals, doubts) = (config.refusals(), config.doubts());
    let mut lines: Vec<Line> = refusals
        .iter()
        .map(|refusal| Line::wrong("settings", refusal.to_string(), "a start refuses this; mend it"))
        .chain(
            doubts
                .iter()
                .map(|doubt| Line::warning("settings", doubt.to_string(), "a start warns of this; mend it if it is not meant")),
        )
        .collect();
    let signs_in = config.kinde.as_ref().is_some_and(|kinde| kinde.client.is_some());
    if config.is_production() && signs_in && config.people.session_key.is_none() {
        lines.push(Line::wrong(
            "settings",
            "BOTTLE_SESSION_KEY: is missing; a process with web pages does not start in production without it",
            "make one with `openssl rand -base64 48`, the same for every process",
        ));
    }
    if lines.is_empty() {
        let kind = if config.is_production() { "a production" } else { "not a production" };
        lines.push(Line::ok(
            "settings",
            format!("all can be read and none is unsafe ({kind}: BOTTLE_URL is {})", config.base_url()),
        ));
    }
    lines.push(match parts::channels(config).map(|channels| channels.configured()) {
        Err(error) => Line::wrong("alerts", format!("{error:#}"), "mend that setting; a worker does not start with it"),
        Ok(channels) if channels.is_empty() => Line::warning(
            "alerts",
            "go to the log only: nobody is called when an event dies",
            "set ALERT_WEBHOOK_URL and ALERT_WEBHOOK_SECRET, or ALERT_EMAIL with SMTP_URL and MAIL_FROM; then run `bottle test-alert`",
        ),
        Ok(channels) => Line::ok("alerts", format!("go out by {}; `bottle test-alert` sends one", channels.join(" and "))),
    });
    lines
}
