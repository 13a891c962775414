//! What changing a price in mid-period costs: the unused time of the old one back, the remaining time of the new one.

use serde_json::Value;

use super::lines;
use super::money;
use super::world::{World, int, text};

/// Two lines for the rest of the period both share.
pub fn lines(world: &World, before: &Value, after: &Value) -> Vec<Value> {
    let (start, end) = (int(before, "current_period_start"), int(before, "current_period_end"));
    let now = world.now().clamp(start, end);
    let part = |item: &Value| money::part(int(&item["price"], "unit_amount") * int(item, "quantity"), end - now, end - start);
    let named = |item: &Value| text(&world.copy(text(&item["price"], "product")), "name").to_owned();
    vec![
        lines::of_item(before, -part(before), (now, end), true, &format!("Unused time on {}", named(before))),
        lines::of_item(after, part(after), (now, end), true, &format!("Remaining time on {}", named(after))),
    ]
}

/// The line of a period that begins now, where the interval itself changed: the old one is given back, the new one is due whole.
pub fn lines_of_new_period(world: &World, before: &Value, after: &Value) -> Vec<Value> {
    let (start, end) = (int(before, "current_period_start"), int(before, "current_period_end"));
    let now = world.now().clamp(start, end);
    let unused = money::part(int(&before["price"], "unit_amount") * int(before, "quantity"), end - now, end - start);
    let named = |item: &Value| text(&world.copy(text(&item["price"], "product")), "name").to_owned();
    let whole = int(&after["price"], "unit_amount") * int(after, "quantity");
    let period = (int(after, "current_period_start"), int(after, "current_period_end"));
    vec![
        lines::of_item(before, -unused, (now, end), true, &format!("Unused time on {}", named(before))),
        lines::of_item(after, whole, period, false, &named(after)),
    ]
}
