//! `/reminders`: the lists and the form of a new one.

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{Html, IntoResponse, Redirect, Response};
use uuid::Uuid;

use super::error;
use super::fields::Fields;
use super::person::Person;
use super::reminder_form::{Problem, Typed};
use super::reminder_notice::{self, Said};
use super::reminders_view::{Place, Returned, find, render};
use super::state::AppState;
use crate::clock::Clock;
use crate::domain::ids::ReminderId;
use crate::reminders::Error;
use crate::reminders::schedule::{Scheduled, schedule};

pub async fn show(person: Person, State(app): State<AppState>, uri: Uri) -> Response {
    let fields = Fields::of_address(&uri);
    page(&app, &person, &Place::of(&fields), reminder_notice::asked(&fields), None, StatusCode::OK).await
}

/// Schedules what the form asks for. Whatever stops it, the form comes back as it was sent, under the same key.
pub async fn create(person: Person, State(app): State<AppState>, uri: Uri, fields: Fields) -> Response {
    let place = Place::of(&Fields::of_address(&uri));
    let typed = Typed::of(&fields);
    let again = |key, problem| Returned { typed: typed.clone(), key, problem };
    let Some(key) = fields.read::<Uuid>("key").filter(|key| !key.is_nil()) else {
        let sentence = "The form came without its key, which keeps one reminder from becoming two. Send it once more.";
        let problem = Problem { field: "form", sentence: sentence.to_owned() };
        return page(&app, &person, &place, None, Some(again(Uuid::new_v4(), Some(problem))), error::BAD_FORM).await;
    };
    match take(&app, &person, &typed, key).await {
        Ok(Scheduled { reminder, again: copy, .. }) => {
            let said = if copy { Said::Again } else { Said::Scheduled };
            see(&place, said, Some(reminder.id))
        }
        Err(Error::Invalid(invalid)) => {
            let returned = again(key, Some(Problem::from(&invalid)));
            page(&app, &person, &place, None, Some(returned), error::BAD_FORM).await
        }
        // The page says so by itself, above the form.
        Err(Error::NoBottles(_)) => page(&app, &person, &place, None, Some(again(key, None)), error::BAD_FORM).await,
        Err(other) => error::reminders(&other),
    }
}

async fn take(app: &AppState, person: &Person, typed: &Typed, key: Uuid) -> Result<Scheduled, Error> {
    let draft = typed.draft()?;
    let mut tx = app.pool.begin().await?;
    let scheduled = schedule(&mut tx, person.account, &draft, key, &app.rules, Clock::Database).await?;
    tx.commit().await?;
    Ok(scheduled)
}

/// Back to the lists, with word of what happened.
pub fn see(place: &Place, said: Said, about: Option<ReminderId>) -> Response {
    Redirect::to(&format!("/reminders{}", place.saying(said, about))).into_response()
}

async fn page(
    app: &AppState,
    person: &Person,
    place: &Place,
    said: Option<(Said, Option<ReminderId>)>,
    returned: Option<Returned>,
    status: StatusCode,
) -> Response {
    let found = match find(&app.pool, person.account, place, said.and_then(|(_, about)| about)).await {
        Ok(found) => found,
        Err(error) => return error::reminders(&error),
    };
    match render(person, &found, place, said.map(|(said, _)| said), returned) {
        Ok(html) => (status, Html(html)).into_response(),
        Err(error) => error::template(&error),
    }
}
