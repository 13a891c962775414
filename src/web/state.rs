//! What the handlers share.

use std::sync::Arc;

use reqwest::Url;
use sqlx::PgPool;

use super::live::Live;
use super::sign_in::SignIn;
use crate::billing::apply::Rules;
use crate::config::Operators;
use crate::engine_room::visits::Visits;
use crate::intake::Intake;
use crate::providers::Providers;
use crate::wake::Wake;

#[derive(Clone)]
pub struct AppState {
    pub pool: PgPool,
    pub intake: Intake,
    /// What is sold, and where it is managed.
    pub providers: Arc<Providers>,
    /// Plan keys and tenant: what a dry run needs.
    pub rules: Arc<Rules>,
    /// Told when a replay was asked for.
    pub wake: Wake,
    pub live: Arc<Live>,
    pub room: Arc<Visits>,
    /// Where the local Kinde runs, if it does.
    pub local_kinde: Option<String>,
    /// The address people use.
    pub base: Url,
    /// None: nobody can sign in, for want of a client id and secret.
    pub sign_in: Option<Arc<SignIn>>,
    pub operators: Arc<Operators>,
    /// Over https: browsers are told to stay there.
    pub https: bool,
}
