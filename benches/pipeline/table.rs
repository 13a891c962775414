//! Markdown tables, and how figures are written.

use super::cpu::Used;

pub struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(heads: &[&'static str]) -> Self {
        Self { heads: heads.to_vec(), rows: Vec::new() }
    }

    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    pub fn print(&self, title: &str) {
        println!("\n## {title}\n");
        println!("| {} |", self.heads.join(" | "));
        println!("|{}", " --- |".repeat(self.heads.len()));
        for row in &self.rows {
            println!("| {} |", row.join(" | "));
        }
    }
}

/// `12,345`.
pub fn whole(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub fn ratio(ours: f64, theirs: f64) -> String {
    format!("**{:.2}**", ours / theirs)
}

pub fn ms(value: f64) -> String {
    match value {
        v if v < 10.0 => format!("{v:.2}"),
        v => format!("{v:.0}"),
    }
}

/// Shares of the whole machine: `client / Bottle / PostgreSQL / others`.
pub fn shares(used: Option<Used>) -> String {
    used.map_or_else(dash, |u| {
        let share = |part: f64| format!("{:.0}", 100.0 * part / u.machine);
        format!("{} / {} / {} / {} %", share(u.client), share(u.bottle), share(u.postgres), share(u.others))
    })
}

/// What one of `count` cost without the client: `Bottle + PostgreSQL`, in microseconds of one core.
pub fn each(used: Option<Used>, count: f64) -> String {
    used.map_or_else(dash, |u| format!("{:.0} + {:.0}", u.bottle * 1e6 / count, u.postgres * 1e6 / count))
}

fn dash() -> String {
    "–".to_owned()
}

/// The middle one by `key`; of an even number the lower of the two.
pub fn middle<T>(mut items: Vec<T>, key: impl Fn(&T) -> f64) -> Option<T> {
    items.sort_by(|a, b| key(a).total_cmp(&key(b)));
    let middle = items.len().checked_sub(1)? / 2;
    Some(items.swap_remove(middle))
}

/// Of sorted values.
pub fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let place = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(place).copied().unwrap_or(f64::NAN)
}
