//! In what a provider's answer contradicts the event that asked for it. Pure.

use crate::domain::fact::Fact;
use crate::domain::told::{Answer, Said, Told};

/// It lacks what began, or still lists what ended: it was read from before the event, so it is no news.
pub fn contradiction(told: &Told, answer: &Answer) -> Option<String> {
    let Said::Fact { at, fact } = &told.said else { return None };
    match fact {
        Fact::Start { agreement, plan_key, changed } => {
            // A plan change may name the agreement that it left.
            let agreement = agreement.as_ref().filter(|_| !changed);
            let listed = answer.live.iter().any(|l| agreement.is_none_or(|a| *a == l.agreement) && l.plan_key == *plan_key);
            (!listed).then(|| format!("it does not list plan key {plan_key} as live"))
        }
        Fact::End { agreement: Some(agreement), effective } => {
            let ended = effective.unwrap_or(*at) <= answer.asked;
            let listed = answer.live.iter().any(|l| l.agreement == *agreement);
            (ended && listed).then(|| format!("it still lists agreement {agreement} as live"))
        }
        _ => None,
    }
}
