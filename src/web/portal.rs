//! `POST /account/portal`: the way to a provider's own page, where people manage what they pay. One that is reached with the
//! person's own token has its door in `manage_billing`.

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use uuid::Uuid;

use super::account::unreadable;
use super::door_page;
use super::error;
use super::fields::Fields;
use super::person::Person;
use super::set_out::{self, Refused};
use super::state::AppState;
use crate::domain::event::Source;
use crate::providers::Way;

pub async fn go(person: Person, State(app): State<AppState>, fields: Fields) -> Response {
    let (Some(source), Some(intent)) = (fields.read::<Source>("provider"), fields.read::<Uuid>("intent")) else {
        return error::no_form();
    };
    match set_out::to_portal(&app, &person, source, intent).await {
        Ok(Way::To(url) | Way::Checkout { url, .. }) => Redirect::to(&url).into_response(),
        Ok(Way::OwnToken) => Redirect::to("/account/billing").into_response(),
        Ok(Way::SignIn { .. } | Way::Complete) => Redirect::to("/account").into_response(),
        Err(Refused::NoWay(why)) => door_page::refused(&app, source, &why),
        Err(Refused::Foreign) => error::no_form(),
        Err(Refused::Unreadable(why)) => unreadable(&why),
    }
}
