//! Claims as Kinde writes them. Envelope and flat ids as in tokens seen on real tenants: `event_` and 32 hex digits that begin
//! with Unix milliseconds, a tenant's own offset, no `iss`, `aud` or `exp`, and no amount of money anywhere. What a real billing
//! payload holds beyond these fields nobody has published, so nothing is added here.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::Error;
use super::moment::At;
use super::people;
use super::switches::{PlanField, Spelling, Whose};

/// Everything that can be sent. `upgrade` is the four events that one change of plan makes Kinde emit.
pub const NAMES: [&str; 9] = [
    "plan_changed",
    "plan_assigned",
    "agreement_created",
    "agreement_cancelled",
    "payment_succeeded",
    "payment_failed",
    "invoice_overdue",
    "meter_usage_updated",
    "upgrade",
];

/// What is to have happened.
#[derive(Debug, Clone)]
pub struct Happening {
    /// One of [`NAMES`].
    pub event: String,
    /// `kp_…`
    pub user_id: String,
    /// The plan's key: the new plan, where one changes.
    pub plan: String,
    /// The plan an `upgrade` leaves.
    pub from_plan: String,
    /// Named by the event; an `upgrade` gives it to the new plan.
    pub agreement_id: String,
    /// When it happened: for `upgrade`, when it began. None: just now.
    pub at: Option<Timestamp>,
}

/// An event, ready to be signed.
#[derive(Debug, Clone)]
pub struct Event {
    pub event_type: String,
    pub event_id: String,
    /// JSON.
    pub claims: Vec<u8>,
}

/// One thing that happened, with what an event says about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// One of [`NAMES`], and not `upgrade`.
    pub name: &'static str,
    pub user_id: String,
    pub agreement_id: String,
    /// Where one begins.
    pub plan: Option<String>,
    pub invoice_due_on: Option<At>,
    /// Where usage is told.
    pub quantity: Option<u32>,
}

impl Told {
    pub fn new(name: &'static str, user_id: &str, agreement_id: &str) -> Self {
        let (user_id, agreement_id) = (user_id.to_owned(), agreement_id.to_owned());
        Self { name, user_id, agreement_id, plan: None, invoice_due_on: None, quantity: None }
    }
}

/// The events of a happening, in the order they happened.
///
/// # Errors
/// No such event, or a time past what a calendar holds.
pub fn write(what: &Happening) -> Result<Vec<Event>, Error> {
    write_as(what, None, Spelling::default())
}

/// The same in a given spelling; `old_agreement` is what an `upgrade` ends, by default one per user and plan.
///
/// # Errors
/// No such event, or a time past what a calendar holds.
pub fn write_as(what: &Happening, old_agreement: Option<&str>, spelling: Spelling) -> Result<Vec<Event>, Error> {
    let steps: &[(&str, u64)] = match what.event.as_str() {
        "upgrade" => {
            &[("agreement_cancelled", 0), ("agreement_created", 420), ("plan_changed", 910), ("payment_succeeded", 2640)]
        }
        other => match NAMES.iter().find(|name| **name == other) {
            Some(name) => &[(*name, 0)],
            None => return Err(Error::Usage(format!("no event `{other}`: send one of {}", NAMES.join(", ")))),
        },
    };
    let span = Duration::from_millis(steps.iter().map(|(_, ms)| *ms).max().unwrap_or(0));
    let began = match what.at {
        Some(at) => at,
        None => moved(Timestamp::now(), -signed(span + LONGEST_LAG))?,
    };
    let event = |(name, ms): &(&'static str, u64)| {
        let happened = moved(began, signed(Duration::from_millis(*ms)))?;
        let lag = Duration::from_nanos(rand::random_range(900_000_000..1_150_000_000));
        compose(&told(name, what, old_agreement, happened)?, happened, lag, spelling)
    };
    steps.iter().map(event).collect()
}

/// Kinde's message comes about a second after what it tells of.
const LONGEST_LAG: Duration = Duration::from_millis(1200);

fn told(name: &'static str, what: &Happening, old_agreement: Option<&str>, happened: Timestamp) -> Result<Told, Error> {
    let mut told = Told::new(name, &what.user_id, &what.agreement_id);
    if what.event == "upgrade" && name == "agreement_cancelled" {
        told.agreement_id = old_agreement.map_or_else(|| people::agreement_id(&what.user_id, &what.from_plan), str::to_owned);
    }
    let days = |n: i64| moved(happened, SignedDuration::from_hours(24 * n)).map(|at| Some(At(at)));
    match name {
        "plan_changed" | "plan_assigned" => told.plan = Some(what.plan.clone()),
        "agreement_created" => {
            told.plan = Some(what.plan.clone());
            told.invoice_due_on = days(30)?;
        }
        "invoice_overdue" => told.invoice_due_on = days(-4)?,
        "meter_usage_updated" => told.quantity = Some(1),
        _ => {}
    }
    Ok(told)
}

/// The claims of one event: what it tells, when that happened, and how much later the message was made.
///
/// # Errors
/// A time past what a calendar holds.
pub fn compose(told: &Told, happened: Timestamp, lag: Duration, spelling: Spelling) -> Result<Event, Error> {
    let message = moved(happened, signed(lag))?;
    let id_made = moved(message, SignedDuration::from_millis(rand::random_range(1..50)))?;
    let event_id = event_id(id_made);
    let event_type = format!("customer.{}", told.name);
    let by_itself = ["payment_succeeded", "payment_failed", "invoice_overdue", "meter_usage_updated"].contains(&told.name);
    let claims = json!({
        "type": event_type,
        "event_id": event_id,
        "source": if by_itself { "api" } else { "user" },
        "timestamp": At(message).in_the_tenants_zone("%Y-%m-%dT%H:%M:%S%.9f%:z"),
        "event_timestamp": At(happened).in_the_tenants_zone("%Y-%m-%dT%H:%M:%S%.6f%:z"),
        "data": data(told, spelling),
    });
    Ok(Event { event_type, event_id, claims: claims.to_string().into_bytes() })
}

fn data(told: &Told, spelling: Spelling) -> Value {
    let customer_id = people::customer_id(&told.user_id);
    let mut data = match spelling.whose {
        Whose::Both => json!({ "user_id": told.user_id, "customer_id": customer_id, "customer_type": "user" }),
        Whose::Customer => json!({ "customer_id": customer_id }),
        Whose::Nested => json!({ "customer": { "id": customer_id } }),
    };
    data["agreement_id"] = json!(told.agreement_id);
    if let Some(plan) = &told.plan {
        let field = match spelling.plan {
            PlanField::Key => "key",
            PlanField::Code => "code",
        };
        data["plan"] = json!({ field: plan });
    }
    if let Some(due) = told.invoice_due_on {
        data["invoice_due_on"] = json!(due.short_offset());
    }
    if let Some(quantity) = told.quantity {
        data["meter_id"] = json!("bottles");
        data["quantity"] = json!(quantity);
    }
    data
}

/// `event_` and 32 hex digits: 12 of Unix milliseconds, 20 of chance.
fn event_id(at: Timestamp) -> String {
    let ms = at.as_millisecond().max(0);
    let chance = rand::random::<u128>() >> 48;
    format!("event_{ms:012x}{chance:020x}")
}

fn signed(span: Duration) -> SignedDuration {
    SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX)
}

fn moved(at: Timestamp, by: SignedDuration) -> Result<Timestamp, Error> {
    at.checked_add(by).map_err(|_| Error::Usage(format!("{at} is too near the end of the calendar")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn happening(event: &str, at: &str) -> Happening {
        Happening {
            event: event.into(),
            user_id: "kp_1".into(),
            plan: "customer_pro_plan".into(),
            from_plan: "customer_starter_plan".into(),
            agreement_id: "agreement_new".into(),
            at: Some(at.parse().unwrap()),
        }
    }

    fn claims(event: &Event) -> Value {
        serde_json::from_slice(&event.claims).unwrap()
    }

    #[test]
    fn a_plan_change_reads_as_kinde_writes_it() {
        let events = write(&happening("plan_changed", "2026-10-20T15:29:23.403633Z")).unwrap();
        let claims = claims(&events[0]);
        assert_eq!(claims["type"], "customer.plan_changed");
        assert_eq!(claims["event_timestamp"], "2026-10-21T02:29:23.403633+11:00");
        let told = claims["timestamp"].as_str().unwrap();
        assert_eq!((told.len(), &told[29..]), (35, "+11:00"), "{told}");
        let lag = told.parse::<Timestamp>().unwrap().duration_since("2026-10-20T15:29:23.403633Z".parse().unwrap());
        assert!((900..1200).contains(&lag.as_millis()), "{lag:?}");
        assert_eq!(claims["data"]["plan"]["key"], "customer_pro_plan");
        assert_eq!(claims["data"]["agreement_id"], "agreement_new");
        assert_eq!(claims["data"]["customer_type"], "user");
        assert!(["iss", "aud", "exp", "sub", "iat"].iter().all(|name| claims.get(name).is_none()));
        let id = events[0].event_id.strip_prefix("event_").unwrap();
        let ms = i64::from_str_radix(&id[..12], 16).unwrap() - told.parse::<Timestamp>().unwrap().as_millisecond();
        assert!(id.len() == 32 && (0..60).contains(&ms), "{id} {ms}");
    }

    #[test]
    fn dates_of_invoices_have_an_offset_without_minutes() {
        let events = write(&happening("agreement_created", "2026-10-20T15:00:00Z")).unwrap();
        assert_eq!(claims(&events[0])["data"]["invoice_due_on"], "2026-11-20T02:00:00+11");
    }

    #[test]
    fn an_upgrade_is_four_events_within_seconds_and_only_the_cancellation_names_the_old_agreement() {
        let events = write(&happening("upgrade", "2026-10-21T10:00:00Z")).unwrap();
        let seen: Vec<(String, Value)> =
            events.iter().map(|event| (event.event_type.clone(), claims(event)["data"]["agreement_id"].clone())).collect();
        let old = people::agreement_id("kp_1", "customer_starter_plan");
        assert_eq!(
            seen,
            [
                ("customer.agreement_cancelled".into(), json!(old)),
                ("customer.agreement_created".into(), json!("agreement_new")),
                ("customer.plan_changed".into(), json!("agreement_new")),
                ("customer.payment_succeeded".into(), json!("agreement_new")),
            ]
        );
        let mut ids: Vec<&String> = events.iter().map(|event| &event.event_id).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 4);
    }

    #[test]
    fn the_other_spellings_seen_in_integrations_can_be_chosen() {
        let at = "2026-10-21T10:00:00Z".parse().unwrap();
        let told = Told { plan: Some("customer_pro_plan".into()), ..Told::new("plan_changed", "kp_1", "agreement_1") };
        let read = |plan, whose| {
            let event = compose(&told, at, Duration::from_secs(1), Spelling { plan, whose }).unwrap();
            claims(&event)["data"].clone()
        };
        let customer = people::customer_id("kp_1");
        assert_eq!(
            read(PlanField::Code, Whose::Customer),
            json!({ "customer_id": customer, "agreement_id": "agreement_1", "plan": { "code": "customer_pro_plan" } })
        );
        assert_eq!(
            read(PlanField::Key, Whose::Nested),
            json!({ "customer": { "id": customer }, "agreement_id": "agreement_1", "plan": { "key": "customer_pro_plan" } })
        );
    }

    #[test]
    fn nothing_that_happens_just_now_lies_in_the_future() {
        let happened = Happening { at: None, ..happening("upgrade", "2026-10-21T10:00:00Z") };
        for event in write(&happened).unwrap() {
            let told: Timestamp = claims(&event)["timestamp"].as_str().unwrap().parse().unwrap();
            assert!(told <= Timestamp::now(), "{told}");
        }
    }

    #[test]
    fn a_time_at_the_end_of_the_calendar_is_refused() {
        assert!(write(&happening("upgrade", "9999-12-30T22:00:00Z")).is_err());
    }
}
