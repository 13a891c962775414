//! What a person wants to see of their billing log, as it stands in the address.

use axum::extract::Query;
use axum::http::Uri;
use uuid::Uuid;

use super::checkout::checkout_id;
use crate::billing::log::Filter;
use crate::billing::words::Subject;
use crate::domain::event::Status;
use crate::domain::ids::EventId;
use crate::domain::period::Period;

/// The address of the account page, taken apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    pub log: Filter,
    /// The month whose bottles are listed; none means this one.
    pub ledger: Option<Period>,
    /// Only entries older than this one.
    pub ledger_before: Option<i64>,
    /// Only movements of money older than this one.
    pub money_before: Option<i64>,
    /// The checkout from which somebody turned back. It is said once, and no address repeats it.
    pub back: Option<Uuid>,
    /// What could not be read, in words.
    pub problems: Vec<String>,
}

const ID_MAX: usize = 100;

impl Wanted {
    pub fn of(uri: &Uri) -> Self {
        let fields = Query::<Vec<(String, String)>>::try_from_uri(uri).map(|Query(fields)| fields).unwrap_or_default();
        let mut wanted = Self::default();
        for (name, value) in fields {
            let value = value.trim();
            if !value.is_empty() {
                wanted.take(&name, value);
            }
        }
        wanted
    }

    fn take(&mut self, name: &str, value: &str) {
        let problem = match name {
            "status" => match value.parse::<Status>() {
                Ok(status) => {
                    self.log.statuses = vec![status];
                    return;
                }
                Err(_) => "That is no state an event can be in; all are shown.",
            },
            "kind" => match Subject::find(value) {
                Some(subject) => {
                    self.log.subject = Some(subject);
                    return;
                }
                None => "That is nothing an event can be about; all are shown.",
            },
            "month" => match value.parse() {
                Ok(month) => {
                    self.log.month = Some(month);
                    return;
                }
                Err(_) => "A month is written like 2026-10; all are shown.",
            },
            "id" => {
                // No id has such characters in it, and the database takes no text with some of them.
                self.log.id = Some(value.chars().filter(|c| !c.is_control()).take(ID_MAX).collect());
                return;
            }
            "before" => match value.parse() {
                Ok(id) => {
                    self.log.before = Some(EventId(id));
                    return;
                }
                Err(_) => "That page of the log is none; the newest events are shown.",
            },
            "ledger" => match value.parse() {
                Ok(month) => {
                    self.ledger = Some(month);
                    return;
                }
                Err(_) => "A month is written like 2026-10; the bottles of this month are shown.",
            },
            "ledger_before" => match value.parse() {
                Ok(id) => {
                    self.ledger_before = Some(id);
                    return;
                }
                Err(_) => "That page of the bottles is none; the newest are shown.",
            },
            "money" => match value.parse() {
                Ok(id) => {
                    self.money_before = Some(id);
                    return;
                }
                Err(_) => "That page of the money is none; the newest is shown.",
            },
            "back" => {
                self.back = checkout_id(value);
                return;
            }
            _ => return,
        };
        self.problems.push(problem.to_owned());
    }

    pub fn filters_something(&self) -> bool {
        Filter { before: None, ..self.log.clone() } != Filter::default()
    }

    /// The address that says this again.
    pub fn address(&self) -> String {
        let log = &self.log;
        let mut fields: Vec<(&str, String)> = Vec::new();
        fields.extend(log.statuses.iter().map(|s| ("status", s.to_string())));
        fields.extend(log.subject.map(|s| ("kind", s.as_str().to_owned())));
        fields.extend(log.month.map(|m| ("month", m.to_string())));
        fields.extend(log.id.clone().map(|id| ("id", id)));
        fields.extend(log.before.map(|id| ("before", id.to_string())));
        fields.extend(self.ledger.map(|m| ("ledger", m.to_string())));
        fields.extend(self.ledger_before.map(|id| ("ledger_before", id.to_string())));
        fields.extend(self.money_before.map(|id| ("money", id.to_string())));
        if fields.is_empty() {
            return "/account".to_owned();
        }
        let url = reqwest::Url::parse_with_params("http://localhost/account", fields);
        url.map_or_else(|_| "/account".to_owned(), |url| format!("/account?{}", url.query().unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(address: &str, again: &str, problems: usize) {
        let wanted = Wanted::of(&address.parse().unwrap());
        assert_eq!((wanted.address().as_str(), wanted.problems.len()), (again, problems), "{address}");
    }

    #[test]
    fn an_address_is_read_and_written_back() {
        check("/account", "/account", 0);
        check("/account?status=&kind=&month=&id=+", "/account", 0);
        let full = "/account?status=dead&kind=payment&month=2026-10&id=event_1&before=12&ledger=2026-09&ledger_before=3&money=9";
        check(full, full, 0);
        check("/account?id=%22%3E%3Cb%3E", "/account?id=%22%3E%3Cb%3E", 0);
        check("/account?status=gone&kind=x&month=13&before=x&ledger=y&ledger_before=z&money=-&owner_id=5", "/account", 7);
        check("/account?back=8f9b3a1e-0000-4000-8000-000000000001&month=2026-10", "/account?month=2026-10", 0);
        check("/account?before=99999999999999999999", "/account", 1);
        check("/account?id=ev%00ent_1%0a", "/account?id=event_1", 0);
        check("/account?%ff=%fe", "/account", 0);
    }
}
