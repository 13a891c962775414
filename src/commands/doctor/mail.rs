//! The mail server: does it let us in? Nothing is sent.

use super::line::Line;
use crate::config::Config;
use crate::mail::Mail;

pub async fn look(config: &Config) -> Vec<Line> {
    let Some(server) = &config.mail else {
        return vec![Line::ok("mail", "no server is set up (SMTP_URL): reminders are shown on their pages only")];
    };
    let todo = "look at SMTP_URL: host, port, user, password, TLS; letters wait for two days meanwhile";
    let mail = match Mail::new(server.url.reveal(), &server.from) {
        Ok(mail) => mail,
        Err(error) => return vec![Line::wrong("mail", super::chain(&error), todo)],
    };
    vec![match mail.knock().await {
        Ok(()) => Line::ok("mail", "the server lets us in"),
        Err(error) => Line::wrong("mail", error.to_string(), todo),
    }]
}
