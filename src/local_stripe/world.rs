//! Everything this Stripe knows: its objects as JSON in the newest shape, its clock, and what is still to happen.
//!
//! JSON and not structs, because the shape *is* the subject here: what is kept is what is sent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::calls::Calls;
use super::catalog;
use super::delivery::Mailbag;
use super::faults::Fault;
use super::idempotency::Answers;
use super::keys::Keys;
use super::refusal::Refusal;
use super::render;
use super::signature::Secrets;
use super::switches::Switches;

#[derive(Serialize, Deserialize)]
pub struct World {
    things: BTreeMap<String, Thing>,
    /// Objects so far; the later, the newer, whatever their whole seconds say.
    last: u64,
    /// How far this clock is ahead of the machine's, in seconds.
    ahead: i64,
    /// While what was due at one moment is done, it is that moment, however long it takes.
    #[serde(skip)]
    moment: Option<i64>,
    pub keys: Keys,
    pub secrets: Secrets,
    pub switches: Switches,
    pub faults: Vec<Fault>,
    /// Payments to be refused: how many more, by customer; `*` is whoever is next.
    pub declines: BTreeMap<String, u32>,
    /// Proration lines that wait for a subscription's next invoice.
    pub waiting_lines: BTreeMap<String, Vec<Value>>,
    /// What each checkout session sells, and what it passes on to what it makes.
    pub carts: BTreeMap<String, Value>,
    /// What a price costs in other currencies: shown only when it is asked for.
    pub currency_options: BTreeMap<String, Value>,
    /// Subscriptions whose trial's end was announced.
    pub announced: BTreeSet<String>,
    /// The currency the balance is kept in; none is each charge's own.
    pub settlement: Option<String>,
    pub answers: Answers,
    pub mail: Mailbag,
    #[serde(skip)]
    pub calls: Calls,
    /// The call that is being answered: its events name it.
    #[serde(skip)]
    pub caller: Option<Caller>,
    /// Events made since they were last sent out.
    #[serde(skip)]
    pub new_events: Vec<String>,
    /// Idempotency keys of calls under way.
    #[serde(skip)]
    pub busy: BTreeSet<String>,
}

#[derive(Serialize, Deserialize)]
struct Thing {
    n: u64,
    value: Value,
}

#[derive(Debug, Clone)]
pub struct Caller {
    pub request_id: String,
    pub idempotency_key: Option<String>,
}

/// Events are listed this long.
const EVENTS_KEPT: i64 = 30 * 24 * 3600;

impl World {
    /// Empty but for a catalogue.
    pub fn new(keys: Keys, secrets: Secrets, switches: Switches, ahead: i64) -> Self {
        let mut world = Self {
            things: BTreeMap::new(),
            last: 0,
            ahead,
            moment: None,
            keys,
            secrets,
            switches,
            faults: Vec::new(),
            declines: BTreeMap::new(),
            waiting_lines: BTreeMap::new(),
            carts: BTreeMap::new(),
            currency_options: BTreeMap::new(),
            announced: BTreeSet::new(),
            settlement: None,
            answers: Answers::default(),
            mail: Mailbag::default(),
            calls: Calls::default(),
            caller: None,
            new_events: Vec::new(),
            busy: BTreeSet::new(),
        };
        catalog::stock(&mut world);
        world
    }

    /// Unix seconds on this Stripe's clock.
    pub fn now(&self) -> i64 {
        self.moment.unwrap_or_else(|| machine_now().saturating_add(self.ahead))
    }

    /// Sets the clock. It goes on from there.
    pub fn set_clock(&mut self, now: i64) {
        self.ahead = now.saturating_sub(machine_now());
    }

    /// Does something at a moment, and goes on from there.
    pub fn at_moment(&mut self, moment: i64, act: impl FnOnce(&mut Self)) {
        self.moment = Some(moment);
        act(self);
        self.moment = None;
        self.set_clock(moment);
    }

    pub fn find(&self, id: &str) -> Option<&Value> {
        self.things.get(id).map(|thing| &thing.value)
    }

    /// A copy, null where there is none: for reading fields of something that may be gone.
    pub fn copy(&self, id: &str) -> Value {
        self.find(id).cloned().unwrap_or_default()
    }

    /// The object of a path: 404 where there is none of that kind.
    pub fn get(&self, kind: &str, id: &str) -> Result<&Value, Refusal> {
        self.find(id).filter(|value| value["object"] == kind).ok_or_else(|| Refusal::missing(kind, id))
    }

    /// The object that a parameter names: 400 where there is none of that kind, and for a deleted one.
    pub fn named(&self, kind: &str, id: &str, param: &str) -> Result<&Value, Refusal> {
        let found = self.find(id).filter(|value| value["object"] == kind && value["deleted"] != true);
        found.ok_or_else(|| Refusal::names_nothing(kind, id, param))
    }

    /// Every object of a kind, newest first.
    pub fn all(&self, kind: &str) -> Vec<&Value> {
        let mut found: Vec<&Thing> = self.things.values().filter(|thing| thing.value["object"] == kind).collect();
        found.sort_by_key(|thing| std::cmp::Reverse(thing.n));
        found.into_iter().map(|thing| &thing.value).collect()
    }

    /// The ids of those that fit, newest first.
    pub fn ids_where(&self, kind: &str, fits: impl Fn(&Value) -> bool) -> Vec<String> {
        self.all(kind).into_iter().filter(|value| fits(value)).map(|value| text(value, "id").to_owned()).collect()
    }

    /// Takes an object in; gives its id back.
    pub fn add(&mut self, value: Value) -> String {
        let id = text(&value, "id").to_owned();
        self.last += 1;
        self.things.insert(id.clone(), Thing { n: self.last, value });
        id
    }

    pub fn remove(&mut self, id: &str) -> Option<Value> {
        self.things.remove(id).map(|thing| thing.value)
    }

    /// Puts another object in its place, as a deletion leaves a stub.
    pub fn replace(&mut self, id: &str, value: Value) {
        if let Some(thing) = self.things.get_mut(id) {
            thing.value = value;
        }
    }

    /// Sets fields; gives back what those that changed held before, which is what an update event tells.
    pub fn set(&mut self, id: &str, fields: Value) -> Value {
        let mut previous = Map::new();
        if let (Some(thing), Value::Object(fields)) = (self.things.get_mut(id), fields) {
            for (name, value) in fields {
                let before = thing.value[&name].take();
                if before != value {
                    previous.insert(name.clone(), before);
                }
                thing.value[&name] = value;
            }
        }
        Value::Object(previous)
    }

    /// Sets fields, and tells of it where anything changed.
    pub fn update(&mut self, id: &str, fields: Value, event: &str) {
        let previous = self.set(id, fields);
        if previous.as_object().is_some_and(|fields| !fields.is_empty()) {
            self.tell_change(event, id, previous);
        }
    }

    /// An event about an object as it is now.
    pub fn tell(&mut self, event: &str, id: &str) {
        self.tell_of(event, self.copy(id), None);
    }

    pub fn tell_change(&mut self, event: &str, id: &str, previous: Value) {
        self.tell_of(event, self.copy(id), Some(previous));
    }

    /// The payload is frozen here, in the endpoint's version of the API.
    pub fn tell_of(&mut self, event: &str, mut object: Value, previous: Option<Value>) {
        if self.switches.omit > 0 {
            self.switches.omit -= 1;
            return;
        }
        let version = self.switches.endpoint_version.clone();
        render::at(self, &version, &mut object);
        if self.switches.livemode && object.get("livemode").is_some() {
            object["livemode"] = json!(true);
        }
        let mut data = json!({});
        data["object"] = object;
        if let Some(previous) = previous {
            data["previous_attributes"] = previous;
        }
        let mail = self.mail.goes_somewhere() && self.switches.wants(event);
        let (request_id, key) = self.caller.as_ref().map_or((None, None), |c| (Some(&c.request_id), c.idempotency_key.as_ref()));
        let event = json!({
            "id": "", "object": "event", "api_version": version, "created": self.now(), "data": data,
            "livemode": self.switches.livemode, "pending_webhooks": u8::from(mail),
            "request": { "id": request_id, "idempotency_key": key }, "type": event,
        });
        for _ in 0..=u8::from(self.switches.twins) {
            let mut event = event.clone();
            event["id"] = json!(fresh("evt_1", 23));
            let id = self.add(event);
            self.new_events.push(id);
        }
    }

    /// Forgets events past their 30 days, and kept answers past their day.
    pub fn forget_old(&mut self) {
        let now = self.now();
        let old = now.saturating_sub(EVENTS_KEPT);
        self.things.retain(|_, thing| thing.value["object"] != "event" || int(&thing.value, "created") >= old);
        self.answers.forget_old(machine_now());
    }
}

/// Seconds of the machine's own clock: what a receiver compares `t` with.
pub fn machine_now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).ok().and_then(|passed| i64::try_from(passed.as_secs()).ok()).unwrap_or_default()
}

/// An id nobody has yet. Stripe's newer ones go on directly behind a digit: `evt_1…`.
pub fn fresh(prefix: &str, chars: usize) -> String {
    let underscore = if prefix.contains('_') { "" } else { "_" };
    format!("{prefix}{underscore}{}", random(chars))
}

pub fn random(chars: usize) -> String {
    const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    (0..chars).map(|_| char::from(ALPHABET[rand::random_range(0..ALPHABET.len())])).collect()
}

/// A text field; empty where it is null or not there.
pub fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// A number field; 0 where it is null or not there.
pub fn int(value: &Value, field: &str) -> i64 {
    value[field].as_i64().unwrap_or_default()
}
