//! Who may see the operators' pages. For everybody else there is no page at these addresses; whoever is not signed in may do so
//! first. One layer around all of them, so that no page can be added without it.

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;

use crate::web::error;
use crate::web::person::Person;
use crate::web::state::AppState;

/// A signed-in operator. Only the layer makes one.
#[derive(Debug, Clone)]
pub struct Operator(Person);

impl Operator {
    pub const fn person(&self) -> &Person {
        &self.0
    }

    /// Who did it, as it is recorded: to be read by people, and told from another of the same name.
    pub fn by(&self) -> String {
        let verified = self.0.email.as_deref().filter(|_| self.0.email_verified);
        format!("{} ({})", verified.unwrap_or(&self.0.name), self.0.user)
    }
}

pub async fn operators_only(State(app): State<AppState>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    match Person::from_request_parts(&mut parts, &app).await {
        Ok(person) if person.operator => {
            parts.extensions.insert(Operator(person));
            next.run(Request::from_parts(parts, body)).await
        }
        Ok(_) => error::nothing_here(),
        Err(sign_in_first) => sign_in_first,
    }
}

impl FromRequestParts<AppState> for Operator {
    type Rejection = Response;

    /// A page that stands outside the layer is nobody's.
    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, Response> {
        parts.extensions.get::<Self>().cloned().ok_or_else(error::nothing_here)
    }
}
