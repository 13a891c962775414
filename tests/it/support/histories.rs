//! Histories of one account: written by hand in short lines, drawn at random around the edges where a fold goes wrong, and
//! drawn as the provider's own claims together with what they mean.
//!
//! Nothing here calls the code under test except for the nouns of `domain`: times in claims are read by hand.

use bottle::domain::event::Source;
use bottle::domain::fact::{Agreement, Dated, Fact, InvoiceState, LiveAgreement};
use bottle::domain::ids::{AgreementId, EventId, EventKey, InvoiceId};
use bottle::domain::instant::Instant;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};
use time::{Date, Month, OffsetDateTime, UtcOffset};

const SECOND: i64 = 1_000_000_000;
const DAY: i64 = 86_400 * SECOND;

pub const PRO: &str = "customer_pro_plan";
pub const STARTER: &str = "customer_starter_plan";
/// Sold at the provider, unknown to our settings.
pub const GOLD: &str = "gold";

// ---- by hand ---------------------------------------------------------------------------------------------------------

/// `10-21 10:00:00.5`, of 2026, UTC.
pub fn moment(text: &str) -> Instant {
    Instant::parse(&format!("2026-{}Z", text.replace(' ', "T"))).unwrap()
}

/// One fact a line, its event key by its place: `10-21 10:00:00 [stripe|bottle] start a pro`. The others are `change a pro`,
/// `end a [at 11-21 10:00:00]`, `paid a`, `failed a`, `overdue a`, `opened`, `snapshot a=pro b=starter`. `-` names no agreement.
/// Answers of a provider are `answer a pro from 10-21 10:00:00 [to 11-21 10:00:00]`, `over …` likewise, `bill i paid [pro from …]`,
/// `bill i owed from …` and `bill i settled`.
pub fn told(lines: &[&str]) -> Vec<Dated> {
    lines.iter().zip(1..).map(|(line, n)| one_line(line, n)).collect()
}

fn one_line(line: &str, n: i64) -> Dated {
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = moment(&words[..2].join(" "));
    let (source, words) = match words[2].parse::<Source>() {
        Ok(source) => (source, &words[3..]),
        Err(_) => (Source::Kinde, &words[2..]),
    };
    let agreement = || (words[1] != "-").then(|| AgreementId(words[1].to_owned()));
    let fact = match words[0] {
        verb @ ("start" | "change") => {
            Fact::Start { agreement: agreement(), plan_key: plan_key(words[2]), changed: verb == "change" }
        }
        "end" => Fact::End {
            agreement: agreement(),
            effective: words.get(2).map(|at| {
                assert_eq!(*at, "at", "{line}");
                moment(&words[3..].join(" "))
            }),
        },
        "paid" => Fact::Paid { agreement: agreement() },
        "failed" => Fact::PaymentFailed { agreement: agreement() },
        "overdue" => Fact::Overdue { agreement: agreement() },
        "opened" => Fact::Opened,
        "snapshot" => Fact::Snapshot {
            live: words[1..]
                .iter()
                .map(|listed| {
                    let (agreement, plan) = listed.split_once('=').unwrap();
                    LiveAgreement { agreement: AgreementId(agreement.to_owned()), plan_key: plan_key(plan) }
                })
                .collect(),
        },
        verb @ ("answer" | "over") => Fact::Agreement(Agreement {
            agreement: AgreementId(words[1].to_owned()),
            plan_key: plan_key(words[2]),
            began: moment(&words[4..6].join(" ")),
            until: words.get(7).map(|_| moment(&words[7..9].join(" "))),
            over: verb == "over",
        }),
        "bill" => Fact::Invoice {
            invoice: InvoiceId(words[1].to_owned()),
            agreement: None,
            state: match words[2] {
                "paid" => InvoiceState::Paid { opens: words.get(3).map(|key| (plan_key(key), moment(&words[5..7].join(" ")))) },
                "owed" => InvoiceState::Owed { since: moment(&words[4..6].join(" ")) },
                "settled" => InvoiceState::Settled,
                _ => panic!("`{line}` is no fact"),
            },
        },
        _ => panic!("`{line}` is no fact"),
    };
    Dated { at, source, event: EventId(n), key: EventKey(format!("event_{n:02}")), fact }
}

fn plan_key(word: &str) -> String {
    match word {
        "pro" => PRO.to_owned(),
        "starter" => STARTER.to_owned(),
        other => other.to_owned(),
    }
}

// ---- at random -------------------------------------------------------------------------------------------------------

/// 0 to 14 facts of one account, crowded around a few moments of a few months so that they collide, miss each other by one
/// nanosecond, and lie exactly one change (10 s) or one invoice (45 days) apart. Event keys are unique, in no order of time.
pub fn history() -> impl Strategy<Value = Vec<Dated>> {
    let entry = (near(), fact(), source(), any::<u8>());
    (pool(), vec(entry, 0..=14)).prop_map(|(pool, entries)| {
        entries
            .into_iter()
            .zip(1..)
            .map(|((at, (mut fact, takes_effect), source, salt), n)| {
                match (&mut fact, takes_effect.map(|[first, second]| (first.in_pool(&pool), second.in_pool(&pool)))) {
                    (Fact::End { effective, .. }, Some((when, _))) => *effective = Some(when),
                    (Fact::Agreement(one), Some((began, until))) => {
                        one.began = began;
                        one.until = one.until.map(|_| until);
                    }
                    (Fact::Invoice { state: InvoiceState::Owed { since }, .. }, Some((when, _))) => *since = when,
                    (Fact::Invoice { state: InvoiceState::Paid { opens: Some((_, from)) }, .. }, Some((when, _))) => *from = when,
                    _ => {}
                }
                let source = if fact == Fact::Opened { Source::Bottle } else { source };
                let key = EventKey(format!("event_{salt:02x}{n:02}"));
                Dated { at: at.in_pool(&pool), source, event: EventId(n), key, fact }
            })
            .collect()
    })
}

/// The same facts in another order of arrival.
pub fn shuffled(history: Vec<Dated>) -> impl Strategy<Value = Vec<Dated>> {
    Just(history).prop_shuffle()
}

/// A moment to read a history at: at, or one step from, something that happens in it.
pub fn reading_of(history: &[Dated]) -> impl Strategy<Value = Instant> + use<> {
    let mut pool: Vec<i64> = history.iter().map(|dated| dated.at.nanos()).collect();
    pool.extend(history.iter().filter_map(|dated| match &dated.fact {
        Fact::End { effective, .. } => effective.map(Instant::nanos),
        Fact::Agreement(one) => one.until.map(Instant::nanos),
        _ => None,
    }));
    pool.push(moment("12-31 00:00:00").nanos());
    near().prop_map(move |near| near.in_pool(&pool))
}

/// A history, the same facts in another order, and a moment to read both at.
pub fn read_history() -> impl Strategy<Value = (Vec<Dated>, Vec<Dated>, Instant)> {
    history().prop_flat_map(|told| {
        let (again, now) = (shuffled(told.clone()), reading_of(&told));
        (Just(told), again, now)
    })
}

/// A place in time relative to a pool of moments.
#[derive(Debug, Clone)]
struct Near {
    pick: Index,
    step: i64,
}

impl Near {
    fn in_pool(&self, pool: &[i64]) -> Instant {
        Instant::from_nanos(self.pick.get(pool) + self.step)
    }
}

fn near() -> impl Strategy<Value = Near> {
    (any::<Index>(), step()).prop_map(|(pick, step)| Near { pick, step })
}

fn pool() -> impl Strategy<Value = Vec<i64>> {
    let anchors = [
        "10-31 23:59:59.999999999",
        "11-01 00:00:00",
        "10-21 10:00:00",
        "09-16 23:59:59.999999999",
        "11-30 23:59:59.999999999",
        "12-05 10:00:00",
    ]
    .map(|text| moment(text).nanos());
    vec((select(anchors.to_vec()), step()).prop_map(|(anchor, step)| anchor + step), 1..=4)
}

fn step() -> impl Strategy<Value = i64> {
    let around = |spans: &[i64]| -> Vec<i64> { spans.iter().flat_map(|span| [span - 1, *span, span + 1]).collect() };
    prop_oneof![
        5 => Just(0),
        5 => select(around(&[-20 * SECOND, -10 * SECOND, 10 * SECOND, 20 * SECOND])),
        2 => -2..=2_i64,
        2 => -15 * SECOND..=15 * SECOND,
        1 => select(around(&[-45 * DAY, -30 * DAY, 30 * DAY, 45 * DAY])),
        1 => (-20..=20_i64).prop_map(|days| days * DAY),
    ]
}

fn agreement() -> impl Strategy<Value = Option<AgreementId>> {
    select(vec![None, Some("a"), Some("b"), Some("c")]).prop_map(|name| name.map(|name| AgreementId(name.to_owned())))
}

fn plan_key_sold() -> impl Strategy<Value = String> {
    prop_oneof![4 => Just(PRO), 2 => Just(STARTER), 1 => Just(GOLD)].prop_map(str::to_owned)
}

fn source() -> impl Strategy<Value = Source> {
    prop_oneof![5 => Just(Source::Kinde), 1 => Just(Source::Stripe)]
}

/// A fact, and for some the moments it names: when an End takes effect, what an agreement's time or a bill's is.
fn fact() -> impl Strategy<Value = (Fact, Option<[Near; 2]>)> {
    let bare = |fact: BoxedStrategy<Fact>| fact.prop_map(|fact| (fact, None));
    let start = (agreement(), plan_key_sold(), any::<bool>()).prop_map(|(agreement, plan_key, changed)| Fact::Start {
        agreement,
        plan_key,
        changed,
    });
    let end = (agreement(), option::of([near(), near()]))
        .prop_map(|(agreement, takes_effect)| (Fact::End { agreement, effective: None }, takes_effect));
    let live = (agreement().prop_filter_map("a live agreement has a name", |a| a), plan_key_sold())
        .prop_map(|(agreement, plan_key)| LiveAgreement { agreement, plan_key });
    // An agreement is listed once.
    let live = vec(live, 0..=2).prop_map(|mut live| {
        live.sort();
        live.dedup_by(|one, other| one.agreement == other.agreement);
        live
    });
    let named = || agreement().prop_filter_map("an agreement that is shown has a name", |a| a);
    let shown = (named(), plan_key_sold(), any::<bool>(), prop_oneof![3 => Just(false), 1 => Just(true)], [near(), near()])
        .prop_map(|(agreement, plan_key, ends, over, moments)| {
            let nothing = Instant::from_nanos(0);
            let until = (ends || over).then_some(nothing);
            (Fact::Agreement(Agreement { agreement, plan_key, began: nothing, until, over }), Some(moments))
        });
    let state = prop_oneof![
        3 => plan_key_sold().prop_map(|key| InvoiceState::Paid { opens: Some((key, Instant::from_nanos(0))) }),
        1 => Just(InvoiceState::Paid { opens: None }),
        3 => Just(InvoiceState::Owed { since: Instant::from_nanos(0) }),
        1 => Just(InvoiceState::Settled),
    ];
    let bill = (select(vec!["i", "j"]), state, [near(), near()]).prop_map(|(id, state, moments)| {
        (Fact::Invoice { invoice: InvoiceId(id.to_owned()), agreement: None, state }, Some(moments))
    });
    prop_oneof![
        2 => shown,
        2 => bill,
        6 => bare(start.boxed()),
        5 => end,
        4 => bare(agreement().prop_map(|agreement| Fact::Paid { agreement }).boxed()),
        1 => bare(agreement().prop_map(|agreement| Fact::PaymentFailed { agreement }).boxed()),
        1 => bare(agreement().prop_map(|agreement| Fact::Overdue { agreement }).boxed()),
        1 => bare(Just(Fact::Opened).boxed()),
        1 => bare(live.prop_map(|live| Fact::Snapshot { live }).boxed()),
    ]
}

// ---- as the provider writes them -------------------------------------------------------------------------------------

/// The claims of 0 to 10 Kinde events of one person, unsigned, in every form in which Kinde may write a time, a plan key and a
/// customer. `meanings` says what they mean.
pub fn wire_history() -> impl Strategy<Value = Vec<Value>> {
    let ids = (any::<u128>(), any::<u128>())
        .prop_map(|(user, customer)| (format!("kp_{user:032x}"), format!("customer_{customer:032x}")));
    (ids, pool(), vec(wire_event(), 0..=10)).prop_map(|((user, customer), pool, events)| {
        events.into_iter().enumerate().map(|(n, event)| event.claims(&user, &customer, &pool, n)).collect()
    })
}

#[derive(Debug, Clone)]
struct WireEvent {
    kind: &'static str,
    at: Near,
    written: Written,
    made: Option<(u32, Written)>,
    agreement: Option<&'static str>,
    plan: (String, &'static str),
    nested: bool,
    salt: u64,
}

/// How a time is written: its offset from UTC in minutes, the form of that offset, and the digits of its fraction.
#[derive(Debug, Clone, Copy)]
struct Written {
    zone: Zone,
    digits: u32,
}

#[derive(Debug, Clone, Copy)]
enum Zone {
    Z,
    Colon(i16),
    Compact(i16),
    Hours(i8),
}

fn wire_event() -> impl Strategy<Value = WireEvent> {
    let kinds = select(vec![
        "customer.plan_assigned",
        "customer.agreement_created",
        "customer.plan_changed",
        "customer.agreement_cancelled",
        "customer.payment_succeeded",
        "customer.payment_failed",
        "customer.invoice_overdue",
    ]);
    let agreements = option::of(select(vec![
        "agreement_01990000000011112222333344445555",
        "agreement_01990000000066667777888899990000",
        "agreement_019900000000aaaabbbbccccddddeeee",
    ]));
    // The message is made a little after what it tells of; where it says only one time, that is the message's.
    let made = option::weighted(0.7, (0..5_000_u32, written()));
    (kinds, near(), written(), made, agreements, (plan_key_sold(), select(vec!["key", "code"])), any::<bool>(), any::<u64>())
        .prop_map(|(kind, at, written, made, agreement, plan, nested, salt)| WireEvent {
            kind,
            at,
            written,
            made,
            agreement,
            plan,
            nested,
            salt,
        })
}

fn written() -> impl Strategy<Value = Written> {
    let minutes = || select(vec![0_i16, 60, 330, 600, 660, -210, -300]);
    let zone = prop_oneof![
        Just(Zone::Z),
        minutes().prop_map(Zone::Colon),
        minutes().prop_map(Zone::Compact),
        select(vec![0_i8, 10, 11, -5]).prop_map(Zone::Hours),
    ];
    (zone, prop_oneof![3 => Just(9_u32), 2 => 0..=9_u32]).prop_map(|(zone, digits)| Written { zone, digits })
}

impl WireEvent {
    fn claims(&self, user: &str, customer: &str, pool: &[i64], n: usize) -> Value {
        let at = self.at.in_pool(pool).nanos();
        let mut claims = json!({
            "type": self.kind,
            "event_id": format!("event_{:016x}{n:016x}", self.salt),
            "source": "user",
            "data": { "user_id": user },
        });
        match self.made {
            Some((later_ms, made)) => {
                claims["event_timestamp"] = json!(self.written.text(at));
                claims["timestamp"] = json!(made.text(at + i64::from(later_ms) * 1_000_000));
            }
            None => claims["timestamp"] = json!(self.written.text(at)),
        }
        let data = &mut claims["data"];
        if self.nested {
            data["customer"] = json!({ "id": customer });
        } else {
            data["customer_id"] = json!(customer);
        }
        if let Some(agreement) = self.agreement {
            data["agreement_id"] = json!(agreement);
        }
        if ["customer.plan_assigned", "customer.agreement_created", "customer.plan_changed"].contains(&self.kind) {
            let (plan, field) = &self.plan;
            data["plan"] = json!({ *field: plan });
        }
        claims
    }
}

impl Written {
    fn text(self, ns: i64) -> String {
        let minutes = match self.zone {
            Zone::Z => 0,
            Zone::Colon(minutes) | Zone::Compact(minutes) => minutes,
            Zone::Hours(hours) => i16::from(hours) * 60,
        };
        let offset = UtcOffset::from_whole_seconds(i32::from(minutes) * 60).unwrap();
        let at = OffsetDateTime::from_unix_timestamp_nanos(ns.into()).unwrap().to_offset(offset);
        let fraction = match self.digits {
            0 => String::new(),
            digits => format!(".{}", &format!("{:09}", at.nanosecond())[..digits as usize]),
        };
        let (sign, hours, rest) = (if minutes < 0 { '-' } else { '+' }, minutes.abs() / 60, minutes.abs() % 60);
        let zone = match self.zone {
            Zone::Z => "Z".to_owned(),
            Zone::Colon(_) => format!("{sign}{hours:02}:{rest:02}"),
            Zone::Compact(_) => format!("{sign}{hours:02}{rest:02}"),
            Zone::Hours(_) => format!("{sign}{hours:02}"),
        };
        let (year, month, day) = (at.year(), u8::from(at.month()), at.day());
        format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}{fraction}{zone}", at.hour(), at.minute(), at.second())
    }
}

/// The facts of a wire history, its events numbered from 1 by their place.
pub fn meanings(history: &[Value]) -> Vec<Dated> {
    history.iter().zip(1..).filter_map(|(claims, n)| meaning(EventId(n), claims)).collect()
}

/// What one event means by its payload alone; none for a type that carries no fact or claims that are not readable.
pub fn meaning(event: EventId, claims: &Value) -> Option<Dated> {
    let text = |pointer: &str| claims.pointer(pointer).and_then(Value::as_str);
    let agreement = text("/data/agreement_id").map(|id| AgreementId(id.to_owned()));
    let kind = text("/type")?;
    let fact = match kind.strip_prefix("customer.")? {
        "plan_assigned" | "agreement_created" | "plan_changed" => Fact::Start {
            agreement,
            plan_key: text("/data/plan/key").or_else(|| text("/data/plan/code"))?.to_owned(),
            changed: kind.ends_with("plan_changed"),
        },
        "agreement_cancelled" => Fact::End { agreement, effective: None },
        "payment_succeeded" => Fact::Paid { agreement },
        "payment_failed" => Fact::PaymentFailed { agreement },
        "invoice_overdue" => Fact::Overdue { agreement },
        _ => return None,
    };
    let at = text("/event_timestamp").and_then(time_in).or_else(|| text("/timestamp").and_then(time_in))?;
    Some(Dated { at, source: Source::Kinde, event, key: EventKey(text("/event_id")?.to_owned()), fact })
}

/// Reads `2026-10-21T10:00:00[.fraction](Z|±hh|±hhmm|±hh:mm)` by hand.
fn time_in(text: &str) -> Option<Instant> {
    let (date, rest) = text.split_once('T')?;
    let (clock, zone) = rest.split_at(rest.find(['Z', '+', '-'])?);
    let numbers = |text: &str, between: char| -> Option<Vec<i64>> { text.split(between).map(|n| n.parse().ok()).collect() };

    let [year, month, day] = numbers(date, '-')?.try_into().ok()?;
    let month = Month::try_from(u8::try_from(month).ok()?).ok()?;
    let date = Date::from_calendar_date(year.try_into().ok()?, month, day.try_into().ok()?).ok()?;
    let epoch = Date::from_calendar_date(1970, Month::January, 1).ok()?;
    let days = i64::from(date.to_julian_day() - epoch.to_julian_day());

    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let [hour, minute, second] = numbers(clock, ':')?.try_into().ok()?;
    let fraction: i64 = format!("{fraction:0<9}").parse().ok()?;

    let ahead = match zone.split_at(1) {
        ("Z", "") => 0,
        (sign, digits) => {
            let digits = format!("{:0<4}", digits.replace(':', ""));
            let minutes = digits[..2].parse::<i64>().ok()? * 60 + digits[2..].parse::<i64>().ok()?;
            if sign == "-" { -minutes } else { minutes }
        }
    };
    let seconds = days * 86_400 + hour * 3_600 + (minute - ahead) * 60 + second;
    Some(Instant::from_nanos(seconds * SECOND + fraction))
}
