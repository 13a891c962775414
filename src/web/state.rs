//! What the handlers share.

use std::sync::Arc;

use sqlx::PgPool;

use crate::engine_room::visits::Visits;
use crate::intake::Intake;

#[derive(Clone)]
pub struct AppState {
    pub pool: PgPool,
    pub intake: Intake,
    pub room: Arc<Visits>,
    /// Where the local Kinde runs, if it does.
    pub local_kinde: Option<String>,
    /// Over https: browsers are told to stay there.
    pub https: bool,
}
