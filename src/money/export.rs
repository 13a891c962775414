//! An account's statement as a file for a spreadsheet.

use std::io::Write;

use crate::domain::instant::Instant;

use super::Line;

const COLUMNS: [&str; 8] = ["occurred", "kind", "amount", "currency", "amount_minor", "reference", "charge", "event"];

/// Whether what is written begins the file, or goes on with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    First,
    Next,
}

/// Writes the lines as CSV, oldest last as they come. Amounts are numbers in the currency's own notation.
///
/// # Errors
/// What `to` gives.
pub fn csv(lines: &[Line], part: Part, to: impl Write) -> csv::Result<()> {
    let mut out = csv::Writer::from_writer(to);
    if part == Part::First {
        out.write_record(COLUMNS)?;
    }
    for line in lines {
        let money = &line.money;
        out.write_record([
            Instant::from_datetime(line.occurred_at).to_string(),
            line.kind.to_string(),
            money.currency.amount(money.minor.into()),
            money.currency.to_string(),
            money.minor.to_string(),
            harmless(&line.reference),
            harmless(line.charge.as_ref().map_or("", |charge| charge.as_str())),
            line.event.to_string(),
        ])?;
    }
    out.flush()?;
    Ok(())
}

/// A spreadsheet takes a field that begins so for a formula, and runs it. Numbers of ours are no text of others, and stay as they
/// are.
fn harmless(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}']);
    if is_formula { format!("'{text}") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{ChargeId, EventId};
    use crate::domain::money::{Money, MoneyKind};

    #[test]
    fn what_others_wrote_is_no_formula_and_numbers_stay_numbers() {
        let line = |minor, currency: &str, reference: &str| Line {
            id: 1,
            kind: MoneyKind::Refund,
            money: Money { minor, currency: currency.parse().unwrap() },
            reference: reference.to_owned(),
            charge: Some(ChargeId("@SUM(A1)".to_owned())),
            event: EventId(7),
            occurred_at: time::OffsetDateTime::UNIX_EPOCH,
        };
        let mut text = Vec::new();
        csv(&[line(-450, "eur", "=HYPERLINK(\"x\")"), line(-450, "jpy", "re_1, \"quoted\"\nline")], Part::First, &mut text)
            .unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "occurred,kind,amount,currency,amount_minor,reference,charge,event\n\
             1970-01-01T00:00:00Z,refund,-4.50,EUR,-450,\"'=HYPERLINK(\"\"x\"\")\",'@SUM(A1),7\n\
             1970-01-01T00:00:00Z,refund,-450,JPY,-450,\"re_1, \"\"quoted\"\"\nline\",'@SUM(A1),7\n"
        );
        for begins in ["=", "+", "-", "@", "\t", "\r"] {
            assert!(harmless(&format!("{begins}1+1")).starts_with('\''));
        }
        assert_eq!(harmless("ch_3-x=1"), "ch_3-x=1");
    }
}
