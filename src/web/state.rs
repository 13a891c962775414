//! What the handlers share.

use sqlx::PgPool;

use crate::intake::Intake;

#[derive(Clone)]
pub struct AppState {
    pub pool: PgPool,
    pub intake: Intake,
    /// Over https: browsers are told to stay there.
    pub https: bool,
}
