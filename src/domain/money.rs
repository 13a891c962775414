//! Sums of money: whole minor units and a currency. Nothing here knows a fraction or a rate.

use std::fmt;
use std::str::FromStr;

use super::ids::ChargeId;
use super::instant::Instant;

/// A currency's code, in lower case as the provider writes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Currency(String);

#[derive(Debug, Clone, thiserror::Error)]
#[error("`{0}` is no currency code of three small letters")]
pub struct NotACurrency(String);

/// One minor unit is the whole thing. Two more, `isk` and `ugx`, have no minor unit either, but are sent in hundredths.
const WHOLE: &str = "bif clp djf gnf jpy kmf krw mga pyg rwf vnd vuv xaf xof xpf";
/// One minor unit is a thousandth.
const THOUSANDTHS: &str = "bhd jod kwd omr tnd";

impl Currency {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Digits behind the point. For showing a sum only.
    pub fn decimals(&self) -> usize {
        if WHOLE.split(' ').any(|code| code == self.0) {
            0
        } else if THOUSANDTHS.split(' ').any(|code| code == self.0) {
            3
        } else {
            2
        }
    }

    /// So many minor units in the currency's own notation: `-0.05`. Sums of many may be larger than one movement can be.
    pub fn amount(&self, minor: i128) -> String {
        let decimals = self.decimals();
        let digits = format!("{:0>width$}", minor.unsigned_abs(), width = decimals + 1);
        let (whole, fraction) = digits.split_at(digits.len() - decimals);
        let sign = if minor < 0 { "-" } else { "" };
        if decimals == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
    }
}

impl FromStr for Currency {
    type Err = NotACurrency;

    fn from_str(text: &str) -> Result<Self, NotACurrency> {
        let is_code = text.len() == 3 && text.bytes().all(|b| b.is_ascii_lowercase());
        if is_code { Ok(Self(text.to_owned())) } else { Err(NotACurrency(text.chars().take(12).collect())) }
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_ascii_uppercase())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Money {
    pub minor: i64,
    pub currency: Currency,
}

impl Money {
    /// None: the currencies differ, or the sum is larger than any sum of money.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Option<Self> {
        let minor = self.minor.checked_add(other.minor).filter(|_| self.currency == other.currency)?;
        Some(Self { minor, currency: self.currency.clone() })
    }

    /// None: it has no opposite.
    #[must_use]
    pub fn negated(&self) -> Option<Self> {
        Some(Self { minor: self.minor.checked_neg()?, currency: self.currency.clone() })
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.currency.amount(self.minor.into()), self.currency)
    }
}

/// What moved money, seen from us: what comes in is positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MoneyKind {
    Charge,
    Refund,
    /// A refund that did not arrive came back to us.
    RefundFailed,
    /// No cash: what an invoice took from the customer's credit (positive), or gave to it (negative).
    Credit,
    /// Taken by the customer's bank, the moment a dispute is opened.
    Dispute,
    /// Given back, because the dispute was won.
    DisputeReversal,
}

impl MoneyKind {
    pub const ALL: [Self; 6] =
        [Self::Charge, Self::Refund, Self::RefundFailed, Self::Credit, Self::Dispute, Self::DisputeReversal];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Charge => "charge",
            Self::Refund => "refund",
            Self::RefundFailed => "refund_failed",
            Self::Credit => "credit",
            Self::Dispute => "dispute",
            Self::DisputeReversal => "dispute_reversal",
        }
    }

    pub const fn is_cash(self) -> bool {
        !matches!(self, Self::Credit)
    }
}

#[derive(Debug, Clone, thiserror::Error)]
#[error("`{0}` is no kind of money movement")]
pub struct NotAKind(String);

impl FromStr for MoneyKind {
    type Err = NotAKind;

    fn from_str(text: &str) -> Result<Self, NotAKind> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| NotAKind(text.to_owned()))
    }
}

impl fmt::Display for MoneyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One movement of money. The key says which one it is, whoever tells of it: told twice, it is one movement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Movement {
    pub key: String,
    pub kind: MoneyKind,
    pub money: Money,
    /// The provider's id of the charge, refund, dispute or invoice.
    pub reference: String,
    pub charge: Option<ChargeId>,
    pub occurred: Instant,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn money(minor: i64, currency: &str) -> Money {
        Money { minor, currency: currency.parse().unwrap() }
    }

    #[test]
    fn a_sum_is_shown_with_the_digits_its_currency_has() {
        for (minor, currency, shown) in [
            (1_200, "usd", "12.00 USD"),
            (-5, "eur", "-0.05 EUR"),
            (0, "eur", "0.00 EUR"),
            (1_200, "jpy", "1200 JPY"),
            (-1, "krw", "-1 KRW"),
            (3_100, "kwd", "3.100 KWD"),
            (7, "bhd", "0.007 BHD"),
            (500, "isk", "5.00 ISK"),
            (500, "ugx", "5.00 UGX"),
            (i64::MAX, "usd", "92233720368547758.07 USD"),
            (i64::MIN, "jpy", "-9223372036854775808 JPY"),
        ] {
            assert_eq!(money(minor, currency).to_string(), shown);
        }
    }

    #[test]
    fn sums_are_checked() {
        assert_eq!(money(1, "eur").plus(&money(2, "eur")), Some(money(3, "eur")));
        assert_eq!(money(1, "eur").plus(&money(2, "usd")), None);
        assert_eq!(money(i64::MAX, "eur").plus(&money(1, "eur")), None);
        assert_eq!(money(i64::MIN, "eur").negated(), None);
        assert_eq!(money(5, "eur").negated(), Some(money(-5, "eur")));
    }

    #[test]
    fn a_currency_is_three_small_letters() {
        for text in ["", "EUR", "eu", "euro", "e r", "€€€", "eu1"] {
            assert!(text.parse::<Currency>().is_err(), "{text}");
        }
    }
}
