//! Lists, a page at a time: newest first, from after or before an object.

use serde_json::{Value, json};

use super::form::Params;
use super::refusal::Refusal;
use super::world::{World, int, text};

const OWN: &[&str] =
    &["limit", "starting_after", "ending_before", "created", "created[gt]", "created[gte]", "created[lt]", "created[lte]"];

/// `plain` are parameters that ask for equality with the field of their name.
pub fn page(
    world: &World,
    kind: &str,
    url: &str,
    form: &Params,
    plain: &[&str],
    other: &[&str],
    fits: impl Fn(&Value) -> bool,
) -> Result<Value, Refusal> {
    form.only(&[OWN, plain, other].concat())?;
    let all = world.all(kind);
    let same = |one: &Value, field: &str| {
        form.text(field).is_none_or(|wanted| {
            one[field] == wanted || one[field].as_bool().is_some_and(|on| wanted == if on { "true" } else { "false" })
        })
    };
    let range = Range::of(form)?;
    let wanted = |one: &&Value| {
        one["deleted"] != true && range.holds(int(one, "created")) && plain.iter().all(|field| same(one, field)) && fits(one)
    };
    cut(&all, url, form, wanted)
}

/// The page that was asked for.
pub fn cut<'a>(all: &[&'a Value], url: &str, form: &Params, wanted: impl Fn(&&'a Value) -> bool) -> Result<Value, Refusal> {
    let limit = form.int("limit")?.unwrap_or(10);
    let limit = usize::try_from(limit)
        .ok()
        .filter(|n| (1..=100).contains(n))
        .ok_or_else(|| Refusal::param("limit", "This value must be between 1 and 100.").coded("parameter_invalid_integer"))?;
    let place = |param: &str| {
        let found = form.text(param).map(|id| {
            let at = all.iter().position(|one| text(one, "id") == id);
            at.ok_or_else(|| Refusal::names_nothing("object", id, param))
        });
        found.transpose()
    };
    let (page, more): (Vec<Value>, bool) = match (place("starting_after")?, place("ending_before")?) {
        (Some(_), Some(_)) => {
            return Err(Refusal::invalid("You may only specify one of these parameters: starting_after, ending_before."));
        }
        // The nearest ones before it, still newest first.
        (None, Some(at)) => {
            let mut page: Vec<Value> =
                all[..at].iter().rev().copied().filter(|one| wanted(one)).take(limit + 1).cloned().collect();
            let more = page.len() > limit;
            page.truncate(limit);
            page.reverse();
            (page, more)
        }
        (after, None) => {
            let from = after.map_or(0, |at| at + 1);
            let mut page: Vec<Value> = all[from..].iter().copied().filter(|one| wanted(one)).take(limit + 1).cloned().collect();
            let more = page.len() > limit;
            page.truncate(limit);
            (page, more)
        }
    };
    Ok(json!({ "object": "list", "data": page, "has_more": more, "url": url }))
}

struct Range {
    least: i64,
    most: i64,
}

impl Range {
    fn of(form: &Params) -> Result<Self, Refusal> {
        let exact = form.int("created")?;
        let least = [exact, form.int("created[gte]")?, form.int("created[gt]")?.map(|n| n + 1)].into_iter().flatten().max();
        let most = [exact, form.int("created[lte]")?, form.int("created[lt]")?.map(|n| n - 1)].into_iter().flatten().min();
        Ok(Self { least: least.unwrap_or(i64::MIN), most: most.unwrap_or(i64::MAX) })
    }

    fn holds(&self, at: i64) -> bool {
        (self.least..=self.most).contains(&at)
    }
}
