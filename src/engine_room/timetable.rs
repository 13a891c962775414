//! When each delivery of a script goes out, and what goes out once more because a stop swallowed an answer.

use std::time::Duration;

use super::scenario::{ARTICLE, Event, SECOND, Script};
use super::stop::Place;
use crate::domain::instant::Instant;

/// Kinde's attempts, in seconds after the event: 5 s, 30 s, 2 min, 10 min, 1 h and 4 h apart, then every 12 h within 36 h.
const ATTEMPTS_AFTER_SECS: [u64; 9] = [0, 5, 35, 155, 755, 4_355, 18_755, 61_955, 105_155];
const LAST_WAIT_SECS: u64 = 12 * 3_600;

/// One delivery as it really goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sending {
    pub n: usize,
    pub at: Instant,
    pub event: Event,
    /// How often this event has been sent by now, this time included.
    pub copy: usize,
    /// Sent because a stop left an earlier delivery unanswered.
    pub resend: bool,
    /// Where the process stops while it handles this delivery.
    pub stop: Option<Place>,
}

impl Script {
    /// What really goes out, in order of time: the script, and one more attempt where a stop swallowed the answer.
    pub fn sends(&self) -> Vec<Sending> {
        let mut out: Vec<Sending> = Vec::with_capacity(self.deliveries().len() + 1);
        for (n, &event) in (1..).zip(self.deliveries()) {
            let stop = self.stop().filter(|stop| stop.delivery == n).map(|stop| stop.place);
            out.push(Sending { n, at: self.time_of(n), event, copy: 0, resend: false, stop });
        }
        if let Some(swallowed) = out.iter().copied().find(|sending| sending.stop.is_some_and(Place::is_unanswered)) {
            let at = self.next_try(&swallowed);
            // In the article's own times the next attempt may be one that the script holds already.
            if let Some(planned) = out.iter_mut().find(|sending| sending.event == swallowed.event && sending.at == at) {
                planned.resend = true;
            } else {
                let place = out.partition_point(|sending| sending.at <= at);
                out.insert(place, Sending { at, resend: true, stop: None, ..swallowed });
            }
        }
        let mut copies = [0; Event::ALL.len()];
        for (n, sending) in (1..).zip(&mut out) {
            copies[sending.event as usize] += 1;
            sending.n = n;
            sending.copy = copies[sending.event as usize];
        }
        out
    }

    fn time_of(&self, n: usize) -> Instant {
        if self.has_article_order() {
            let (event, after_secs) = ARTICLE[n - 1];
            event.occurred_at().plus(Duration::from_secs(after_secs))
        } else {
            let minutes = (n - 1) as u64;
            Event::Pay.occurred_at().plus(Duration::from_secs(60 * minutes))
        }
    }

    /// When the sender tries an unanswered delivery again. Where its schedule would have run out we grant it one more attempt:
    /// an event lost for good reaches neither lane, and shows nothing.
    fn next_try(&self, swallowed: &Sending) -> Instant {
        let wait_secs = if self.has_article_order() {
            let since_secs = swallowed.at.nanos().saturating_sub(swallowed.event.occurred_at().nanos()) / SECOND;
            ATTEMPTS_AFTER_SECS
                .iter()
                .map(|&after| after.cast_signed())
                .find(|&after| after > since_secs)
                .map_or(LAST_WAIT_SECS, |after| (after - since_secs).cast_unsigned())
        } else {
            let attempt = self.deliveries()[..swallowed.n].iter().filter(|&&event| event == swallowed.event).count();
            match (ATTEMPTS_AFTER_SECS.get(attempt - 1), ATTEMPTS_AFTER_SECS.get(attempt)) {
                (Some(this), Some(next)) => next - this,
                _ => LAST_WAIT_SECS,
            }
        };
        swallowed.at.plus(Duration::from_secs(wait_secs))
    }
}

#[cfg(test)]
mod tests {
    use super::super::stop::Stop;
    use super::*;

    fn times(script: &Script) -> Vec<String> {
        script.sends().iter().map(|s| format!("{} {}{} {}", s.n, s.event.name(), s.copy, s.at)).collect()
    }

    #[test]
    fn the_article_goes_out_at_the_retry_times_of_its_sender() {
        assert_eq!(
            times(&Script::article()),
            [
                "1 PAY1 2026-10-21T10:03:00Z",
                "2 UP1 2026-10-21T10:12:35Z",
                "3 UP2 2026-10-21T11:12:35Z",
                "4 PAY2 2026-10-21T11:15:35Z",
                "5 PAY3 2026-10-21T15:15:35Z",
                "6 PAY4 2026-10-22T03:15:35Z",
                "7 OLD1 2026-10-22T15:09:35Z",
                "8 UP3 2026-10-22T15:12:35Z",
                "9 PAY5 2026-10-22T15:15:35Z",
            ]
        );
    }

    #[test]
    fn an_edited_script_goes_out_a_minute_apart() {
        let script = Script::new(vec![Event::Up, Event::Pay, Event::Old], None).unwrap();
        assert_eq!(times(&script), ["1 UP1 2026-10-21T10:03:00Z", "2 PAY1 2026-10-21T10:04:00Z", "3 OLD1 2026-10-21T10:05:00Z"]);
    }

    #[test]
    fn an_unanswered_delivery_is_sent_again_at_the_next_retry_time() {
        let unanswered =
            |delivery, deliveries| Script::new(deliveries, Some(Stop { delivery, place: Place::AfterStore })).unwrap().sends();
        let sends = unanswered(1, vec![Event::Up, Event::Pay]);
        let shown: Vec<_> = sends.iter().map(|s| (s.event, s.copy, s.resend, s.at.to_string())).collect();
        assert_eq!(
            shown,
            [
                (Event::Up, 1, false, "2026-10-21T10:03:00Z".to_owned()),
                (Event::Up, 2, true, "2026-10-21T10:03:05Z".to_owned()),
                (Event::Pay, 1, false, "2026-10-21T10:04:00Z".to_owned()),
            ]
        );
        // The fourth copy waits ten minutes, so it goes out last.
        let sends = unanswered(4, vec![Event::Pay, Event::Pay, Event::Pay, Event::Pay, Event::Up]);
        assert_eq!(
            sends.last().map(|s| (s.event, s.copy, s.at.to_string())),
            Some((Event::Pay, 5, "2026-10-21T10:16:00Z".into()))
        );
    }

    #[test]
    fn in_the_article_the_next_attempt_may_be_there_already() {
        let article = Script::article().deliveries().to_vec();
        let stop = |delivery| Some(Stop { delivery, place: Place::BeforeStore });
        let sends = Script::new(article.clone(), stop(2)).unwrap().sends();
        assert_eq!(sends.len(), 9);
        assert!(sends[2].resend);
        let sends = Script::new(article, stop(9)).unwrap().sends();
        assert_eq!((sends.len(), sends[9].resend, sends[9].at.to_string()), (10, true, "2026-10-23T03:15:35Z".into()));
    }
}
