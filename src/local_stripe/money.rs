//! Amounts: integers in the minor unit of a lowercase currency, as Stripe counts them. Nothing here passes through a float.

use super::refusal::Refusal;

/// What the balance may be kept in besides each charge's own currency, and what one minor unit is worth there, in millionths of a
/// US cent. The rates are ours and stand still.
const RATES: &[(&str, i64)] = &[
    ("usd", 1_000_000),
    ("eur", 1_090_000),
    ("gbp", 1_270_000),
    ("chf", 1_130_000),
    ("jpy", 670_000),
    ("kwd", 325_000),
    ("aud", 660_000),
];

/// Digits behind the point.
pub fn exponent(currency: &str) -> u32 {
    match currency {
        "bif" | "clp" | "djf" | "gnf" | "jpy" | "kmf" | "krw" | "mga" | "pyg" | "rwf" | "vnd" | "vuv" | "xaf" | "xof" | "xpf" => {
            0
        }
        "bhd" | "jod" | "kwd" | "omr" | "tnd" => 3,
        // Also ISK and UGX, which have no such units any more but are counted with two digits that must be 00.
        _ => 2,
    }
}

/// An amount that this currency can be charged.
pub fn check(amount: i64, currency: &str, param: &str) -> Result<(), Refusal> {
    let step = match currency {
        "isk" | "ugx" => 100,
        _ if exponent(currency) == 3 => 10,
        _ => 1,
    };
    if amount < 0 {
        return Err(Refusal::param(param, "This value must be greater than or equal to 0.").coded("parameter_invalid_integer"));
    }
    if amount % step != 0 {
        let message = format!("Invalid amount for {currency}: it must be a multiple of {step}.");
        return Err(Refusal::param(param, message).coded("invalid_charge_amount"));
    }
    Ok(())
}

pub fn check_currency(currency: &str, param: &str) -> Result<(), Refusal> {
    let fits = currency.len() == 3 && currency.bytes().all(|b| b.is_ascii_lowercase());
    fits.then_some(()).ok_or_else(|| Refusal::param(param, format!("Invalid currency: {currency}.")))
}

/// Stripe's cut: 2.9 % and 30 cents, where the currency has cents.
pub fn fee(amount: i64, currency: &str) -> i64 {
    let fixed = match exponent(currency) {
        0 => 40,
        3 => 90,
        _ => 30,
    };
    if amount == 0 { 0 } else { part(amount, 29, 1000) + fixed }
}

/// `amount * of / in_all`, rounded half away from nothing.
pub fn part(amount: i64, of: i64, in_all: i64) -> i64 {
    let (product, in_all) = (i128::from(amount) * i128::from(of), i128::from(in_all.max(1)));
    let half = if product < 0 { -in_all / 2 } else { in_all / 2 };
    i64::try_from((product + half) / in_all).unwrap_or(i64::MAX)
}

pub fn can_settle_in(currency: &str) -> bool {
    RATES.iter().any(|(known, _)| *known == currency)
}

/// What a minor unit of one is in the other, as (numerator, denominator). Nothing where either has no rate.
pub fn rate(from: &str, to: &str) -> Option<(i64, i64)> {
    let of = |currency| RATES.iter().find(|(known, _)| *known == currency).map(|(_, worth)| *worth);
    Some((of(from)?, of(to)?))
}

/// For a person: `12.00 USD`, `1800 JPY`, `3.750 KWD`.
pub fn in_words(amount: i64, currency: &str) -> String {
    let digits = exponent(currency);
    let unit = 10_i64.pow(digits);
    let (sign, size) = (if amount < 0 { "−" } else { "" }, amount.unsigned_abs());
    let unit = unit.unsigned_abs();
    let name = currency.to_uppercase();
    match digits {
        0 => format!("{sign}{size} {name}"),
        _ => format!("{sign}{}.{:0width$} {name}", size / unit, size % unit, width = digits as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_with_the_digits_of_their_currency() {
        assert_eq!(in_words(1200, "usd"), "12.00 USD");
        assert_eq!(in_words(1800, "jpy"), "1800 JPY");
        assert_eq!(in_words(3750, "kwd"), "3.750 KWD");
        assert_eq!(in_words(-5, "eur"), "−0.05 EUR");
    }

    #[test]
    fn parts_round_half_away_from_nothing() {
        assert_eq!([part(5, 1, 2), part(-5, 1, 2), part(4, 1, 3), part(1200, 29, 1000)], [3, -3, 1, 35]);
    }

    #[test]
    fn a_currency_of_three_digits_ends_in_0_and_isk_in_00() {
        assert!(check(3755, "kwd", "unit_amount").is_err() && check(3750, "kwd", "unit_amount").is_ok());
        assert!(check(150, "isk", "unit_amount").is_err() && check(200, "isk", "unit_amount").is_ok());
        assert!(check(1, "jpy", "unit_amount").is_ok() && check(-1, "usd", "unit_amount").is_err());
    }
}
