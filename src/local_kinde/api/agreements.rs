//! Agreements and what they entitle to, in the shapes of the APIs, as they are or as they were a while ago.

use serde_json::{Value, json};

use crate::local_kinde::moment::At;
use crate::local_kinde::people;
use crate::local_kinde::plans::{self, Agreement};
use crate::local_kinde::state::State;

/// The one metered feature.
pub const FEATURE: &str = "bottles";

/// What was known of somebody's agreements at `seen`: later ones are not there yet, and later cancellations have not happened.
pub fn known(state: &State, user_id: &str, seen: At) -> Vec<Agreement> {
    let of_them = state.agreements.iter().filter(|agreement| agreement.user_id == user_id && agreement.recorded_at <= seen);
    of_them
        .cloned()
        .map(|mut agreement| {
            agreement.end = agreement.end.filter(|end| end.recorded_at <= seen);
            agreement
        })
        .collect()
}

/// In the shape of `GET /api/v1/billing/agreements`.
pub fn shape(agreement: &Agreement, now: At) -> Value {
    // What has ended has no current period.
    let period = agreement.is_live(now).then(|| agreement.starts_at.month_around(now));
    json!({
        "id": agreement.id,
        "plan_code": agreement.plan_code,
        "expires_on": agreement.end.as_ref().map(|end| end.at.short_offset()),
        "billing_group_id": Value::Null,
        "current_period_start": period.map(|(start, _)| start.utc()),
        "current_period_end": period.map(|(_, end)| end.utc()),
        "entitlements": [{ "feature_code": FEATURE, "entitlement_id": entitlement_id(agreement) }],
    })
}

/// Of each live agreement; the Account API says `feature_key` where the Management API says `feature_code`.
pub fn entitlements(agreements: &[Agreement], now: At, feature: &str) -> Vec<Value> {
    let one = |agreement: &Agreement| {
        let plan = plans::find(&agreement.plan_code);
        json!({
            "id": entitlement_id(agreement),
            "fixed_charge": plan.map(|plan| plan.price),
            "price_name": plan.map_or(agreement.plan_code.as_str(), |plan| plan.name),
            "unit_amount": plan.map(|plan| plan.price),
            feature: FEATURE,
            "feature_name": "Bottles",
            // No limit is told as the largest number.
            "entitlement_limit_max": plan.map_or(i32::MAX.unsigned_abs(), |plan| plan.limit),
            "entitlement_limit_min": 0,
        })
    };
    agreements.iter().filter(|agreement| agreement.is_live(now)).map(one).collect()
}

/// The live plans; `key` or `code`, by the API.
pub fn subscribed(agreements: &[Agreement], now: At, field: &str) -> Vec<Value> {
    let live = agreements.iter().filter(|agreement| agreement.is_live(now));
    live.map(|agreement| {
        let name = plans::find(&agreement.plan_code).map_or(agreement.plan_code.as_str(), |plan| plan.name);
        json!({ field: agreement.plan_code, "name": name, "subscribed_on": agreement.starts_at.short_offset() })
    })
    .collect()
}

fn entitlement_id(agreement: &Agreement) -> String {
    people::derived("entitlement_", &["entitlement", &agreement.id])
}
