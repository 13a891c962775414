//! Pages of a list, by the id of a neighbour.

use crate::local_kinde::oidc::params::Params;

const USUAL: usize = 10;
const MOST: usize = 500;

/// The part of `all` that is asked for, and whether more follows.
///
/// # Errors
/// The page's size or neighbour is none; the text says which.
pub fn page<T>(all: Vec<T>, id: impl Fn(&T) -> &str, params: &Params) -> Result<(Vec<T>, bool), String> {
    let size = size(params)?;
    let place = |name: &str, wanted: &str| {
        all.iter().position(|one| id(one) == wanted).ok_or_else(|| format!("{name}: nothing here has the id `{wanted}`"))
    };
    let (from, to) = match (params.get("starting_after"), params.get("ending_before")) {
        (Some(_), Some(_)) => return Err("starting_after and ending_before exclude each other".into()),
        (Some(after), None) => {
            let from = place("starting_after", after)? + 1;
            (from, (from + size).min(all.len()))
        }
        (None, Some(before)) => {
            let to = place("ending_before", before)?;
            (to.saturating_sub(size), to)
        }
        (None, None) => (0, size.min(all.len())),
    };
    let more = if params.get("ending_before").is_some() { from > 0 } else { to < all.len() };
    Ok((all.into_iter().skip(from).take(to - from).collect(), more))
}

/// # Errors
/// It is no size; the text says so.
pub fn size(params: &Params) -> Result<usize, String> {
    match params.get("page_size").map(str::parse) {
        None => Ok(USUAL),
        Some(Ok(size @ 1..=MOST)) => Ok(size),
        Some(_) => Err(format!("page_size: a number from 1 to {MOST}")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Params, page};

    fn ask(query: &str) -> Result<(String, bool), String> {
        let all: Vec<String> = "abcdefghijklmno".chars().map(String::from).collect();
        page(all, |one| one, &Params::of_query(Some(query))).map(|(page, more)| (page.concat(), more))
    }

    #[test]
    fn pages_follow_one_another_without_gap_or_overlap() {
        assert_eq!(ask(""), Ok(("abcdefghij".into(), true)));
        assert_eq!(ask("starting_after=j"), Ok(("klmno".into(), false)));
        assert_eq!(ask("page_size=5&starting_after=e"), Ok(("fghij".into(), true)));
        assert_eq!(ask("page_size=4&ending_before=f"), Ok(("bcde".into(), true)));
        assert_eq!(ask("page_size=4&ending_before=c"), Ok(("ab".into(), false)));
        assert_eq!(ask("starting_after=o"), Ok((String::new(), false)));
        for wrong in ["page_size=0", "page_size=501", "page_size=x", "starting_after=z", "starting_after=a&ending_before=b"] {
            assert!(ask(wrong).is_err(), "{wrong}");
        }
    }
}
