//! Ada's past: Starter first, Pro for the last forty days, renewed once. Its events wait until she first signs in, and come then as
//! if the endpoint had been away all the while: with old times, all at once.

use std::time::Duration;

use super::events::Told;
use super::moment::At;
use super::people;
use super::plans::{self, AgreementEnd, PRO, STARTER};
use super::state::State;

/// How long the sample people have been here.
pub const AGE: Duration = Duration::from_hours(75 * 24);
const PRO_FOR: Duration = Duration::from_hours(40 * 24);

/// Writes the agreements of the past, as they stand now.
pub fn write(state: &mut State, now: At) {
    let ada = ada();
    let (joined, upgraded) = (now.before(AGE), now.before(PRO_FOR));
    plans::begin(state, people::agreement_id(&ada, STARTER), &ada, STARTER, joined, joined);
    let end = AgreementEnd { at: upgraded, recorded_at: upgraded, told: true };
    for agreement in &mut state.agreements {
        agreement.end = Some(end.clone());
    }
    plans::begin(state, people::agreement_id(&ada, PRO), &ada, PRO, upgraded, upgraded);
    for agreement in state.agreements.iter_mut().filter(|agreement| agreement.end.is_none()) {
        agreement.invoice.due_on = upgraded.month_around(now).1;
    }
}

/// What happened in it, and when.
pub fn told(made_at: At) -> Vec<(Told, At)> {
    let ada = ada();
    let (starter, pro) = (people::agreement_id(&ada, STARTER), people::agreement_id(&ada, PRO));
    let (joined, upgraded) = (made_at.before(AGE), made_at.before(PRO_FOR));
    let (renewed, _) = upgraded.month_around(made_at);
    let ms = Duration::from_millis;
    let about = |name, agreement: &str, plan: &str| Told { plan: Some(plan.to_owned()), ..Told::new(name, &ada, agreement) };
    vec![
        (about("plan_assigned", &starter, STARTER), joined),
        (
            Told { invoice_due_on: Some(joined.month_around(joined).1), ..about("agreement_created", &starter, STARTER) },
            joined.after(ms(310)),
        ),
        (Told::new("agreement_cancelled", &ada, &starter), upgraded),
        (Told { invoice_due_on: Some(renewed), ..about("agreement_created", &pro, PRO) }, upgraded.after(ms(420))),
        (about("plan_assigned", &pro, PRO), upgraded.after(ms(640))),
        (about("plan_changed", &pro, PRO), upgraded.after(ms(910))),
        (Told::new("payment_succeeded", &ada, &pro), upgraded.after(ms(2640))),
        (Told::new("payment_succeeded", &ada, &pro), renewed.after(ms(5200))),
    ]
}

pub fn ada() -> String {
    people::user_id("ada").expect("ada is a sample user")
}
