//! What the Management API's answers say.
//!
//! An answer is whole or none: one agreement that cannot be read makes the answer unreadable, because leaving it out would say
//! that it is not live.

use serde_json::value::RawValue;

use crate::domain::fact::LiveAgreement;
use crate::domain::ids::{AgreementId, CustomerId};
use crate::domain::instant::Instant;
use crate::providers::fields::{Fields, Twice, text};

/// One page of a customer's agreements.
pub struct Page {
    pub live: Vec<LiveAgreement>,
    /// The id to go on after, if there is more.
    pub next: Option<String>,
}

pub fn page(body: &str, asked: Instant) -> Result<Page, String> {
    let page = Fields::of(body).map_err(|error| error.to_string())?;
    let array = |value: &RawValue| serde_json::from_str::<Vec<Box<RawValue>>>(value.get()).map_err(|error| error.to_string());
    let listed = page.get("agreements").map_err(|error| error.to_string())?.ok_or("it lists no agreements")?;
    let listed = if listed.get() == "null" { Vec::new() } else { array(listed)? };
    let has_more = page.get("has_more").map_err(|error| error.to_string())?.is_some_and(|more| more.get() == "true");
    let mut live = Vec::new();
    let mut last = None;
    for one in &listed {
        let (agreement, is_live) = agreement(one, asked)?;
        last = Some(agreement.agreement.0.clone());
        if is_live {
            live.push(agreement);
        }
    }
    // More that begins after nothing cannot be asked for.
    let next = if has_more { Some(last.ok_or("a page without agreements says that there are more")?) } else { None };
    Ok(Page { live, next })
}

/// Live: it has no end, or one that is still to come.
fn agreement(value: &RawValue, asked: Instant) -> Result<(LiveAgreement, bool), String> {
    let fields = Fields::of(value.get()).map_err(|error| error.to_string())?;
    let read = || {
        let id = fields.text("id")?.or(fields.text("agreement_id")?);
        let code = fields.text("plan_code")?;
        let nested = fields.inside("plan")?;
        let nested = nested.map_or(Ok(None), |plan| Ok(plan.text("code")?.or(plan.text("key")?)))?;
        let expires = fields.get("expires_on")?.filter(|value| value.get() != "null");
        Ok::<_, Twice>((id, code.or(nested), expires))
    };
    let (id, plan_key, expires) = read().map_err(|error| error.to_string())?;
    let agreement = AgreementId(id.ok_or("an agreement without an id")?);
    let plan_key = plan_key.ok_or_else(|| format!("agreement {agreement} names no plan"))?;
    let is_live = match expires {
        None => true,
        // Empty is how some of their fields say null.
        Some(at) if at.get() == "\"\"" => true,
        Some(at) => {
            let at = text(at).ok_or_else(|| format!("agreement {agreement} ends at no time"))?;
            Instant::parse(&at).map_err(|error| error.to_string())? > asked
        }
    };
    Ok((LiveAgreement { agreement, plan_key }, is_live))
}

pub fn customer_in(body: &str) -> Result<Option<CustomerId>, String> {
    let user = Fields::of(body).map_err(|error| error.to_string())?;
    let Some(billing) = user.inside("billing").map_err(|error| error.to_string())? else { return Ok(None) };
    Ok(billing.text("customer_id").map_err(|error| error.to_string())?.map(CustomerId))
}

/// A user and the customer that they are, if they are one.
pub struct User {
    pub id: String,
    pub customer: Option<CustomerId>,
}

/// A page of users, and the token that the next page begins with.
pub fn users(body: &str) -> Result<(Vec<User>, Option<String>), String> {
    let page = Fields::of(body).map_err(|error| error.to_string())?;
    let listed = page.get("users").map_err(|error| error.to_string())?.ok_or("it lists no users")?;
    let listed: Option<Vec<Box<RawValue>>> = serde_json::from_str(listed.get()).map_err(|error| error.to_string())?;
    let users = listed.unwrap_or_default().into_iter().map(|one| {
        let fields = Fields::of(one.get()).map_err(|error| error.to_string())?;
        let id = fields.text("id").map_err(|error| error.to_string())?.ok_or("a user without an id")?;
        Ok(User { id, customer: customer_in(one.get())? })
    });
    let users = users.collect::<Result<Vec<_>, String>>()?;
    let next = page.text("next_token").map_err(|error| error.to_string())?.filter(|next| !next.is_empty());
    Ok((users, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<(Vec<String>, Option<String>), String> {
        let page = page(body, Instant::parse("2026-10-21T10:00:00Z").unwrap())?;
        Ok((page.live.into_iter().map(|l| format!("{}={}", l.agreement, l.plan_key)).collect(), page.next))
    }

    #[test]
    fn an_agreement_is_live_until_it_expires() {
        let listed = r#"{"code":"OK","has_more":false,"agreements":[
            {"id":"a","plan_code":"pro","expires_on":null,"entitlements":[{"feature_code":"x"}]},
            {"id":"b","plan_code":"starter"},
            {"id":"c","plan_code":"pro","expires_on":"2026-10-21T10:00:00Z"},
            {"id":"d","plan_code":"pro","expires_on":"2026-10-21T20:00:00.000001+10"},
            {"agreement_id":"e","plan":{"key":"pro"},"expires_on":""}]}"#;
        assert_eq!(read(listed), Ok((["a=pro", "b=starter", "d=pro", "e=pro"].map(str::to_owned).to_vec(), None)));
        assert_eq!(read(r#"{"agreements":[]}"#), Ok((Vec::new(), None)));
        assert_eq!(read(r#"{"agreements":null,"has_more":false}"#), Ok((Vec::new(), None)));
    }

    #[test]
    fn one_agreement_that_cannot_be_read_makes_the_answer_unreadable() {
        for body in [
            "",
            "[]",
            r#"{"has_more":false}"#,
            r#"{"agreements":{}}"#,
            r#"{"agreements":[{"id":"a","plan_code":"pro"},{"id":"b"}]}"#,
            r#"{"agreements":[{"plan_code":"pro"}]}"#,
            r#"{"agreements":[{"id":"a","plan_code":"pro","expires_on":"soon"}]}"#,
            r#"{"agreements":[{"id":"a","plan_code":"pro","expires_on":7}]}"#,
            r#"{"agreements":[{"id":"a","id":"b","plan_code":"pro"}]}"#,
            r#"{"agreements":[],"has_more":true}"#,
        ] {
            assert!(read(body).is_err(), "{body}");
        }
    }

    #[test]
    fn the_next_page_begins_after_the_last_agreement_live_or_not() {
        let body = r#"{"has_more":true,"agreements":[{"id":"a","plan_code":"p"},{"id":"b","plan_code":"p","expires_on":"2020-01-01T00:00:00Z"}]}"#;
        assert_eq!(read(body), Ok((vec!["a=p".to_owned()], Some("b".to_owned()))));
    }

    #[test]
    fn a_page_of_users_ends_where_no_token_follows() {
        let read = |body: &str| {
            let (users, next) = users(body)?;
            Ok::<_, String>((users.into_iter().map(|u| (u.id, u.customer.map(|c| c.0))).collect::<Vec<_>>(), next))
        };
        let body =
            r#"{"code":"OK","users":[{"id":"kp_1","billing":{"customer_id":"customer_1"}},{"id":"kp_2"}],"next_token":"MTo="}"#;
        let (one, two) = (("kp_1".to_owned(), Some("customer_1".to_owned())), ("kp_2".to_owned(), None));
        assert_eq!(read(body), Ok((vec![one, two], Some("MTo=".to_owned()))));
        for (end, is_one) in
            [(r#","next_token":null}"#, true), (r#","next_token":""}"#, true), ("}", true), (r#","users":[]}"#, false)]
        {
            let body = format!(r#"{{"users":null{end}"#);
            assert_eq!(read(&body) == Ok((Vec::new(), None)), is_one, "{body}");
        }
        assert!(read(r#"{"users":[{"preferred_email":"a@example.com"}]}"#).is_err());
    }

    #[test]
    fn a_user_who_is_no_customer_is_none() {
        let customer = |body| customer_in(body).unwrap().map(|customer| customer.0);
        assert_eq!(customer(r#"{"id":"kp_1","billing":{"customer_id":"customer_1"}}"#).as_deref(), Some("customer_1"));
        for body in [r#"{"id":"kp_1"}"#, r#"{"billing":null}"#, r#"{"billing":{"customer_id":null}}"#, r#"{"billing":{}}"#] {
            assert_eq!(customer(body), None, "{body}");
        }
        assert!(customer_in("gone").is_err());
    }
}
