//! What an operator is told when a page could not be read. A question that takes too long is stopped by the database, so that it
//! harms nobody; the page then says so, and how to ask less.

use std::error::Error;

use axum::response::Response;
use sqlx::{PgPool, Postgres, Transaction};

use crate::billing::apply;
use crate::web::error;
use crate::{alerts, db};

/// What the pages ask for takes milliseconds; what takes this long is a fault, and is not left running.
const ASKED_WITHIN: &str = "2s";

#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error("the database could not be read or written")]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Alerts(#[from] alerts::Error),
    #[error(transparent)]
    Billing(#[from] apply::Error),
    #[error("a page could not be drawn")]
    Page(#[from] askama::Error),
    /// No such event, or no such bulk replay.
    #[error("there is no such thing")]
    Nothing,
}

/// Begins a read of one moment that the database ends by itself if it takes too long.
pub(super) async fn look(pool: &PgPool) -> sqlx::Result<Transaction<'static, Postgres>> {
    let mut tx = pool.begin_with(db::READ_ONLY).await?;
    sqlx::query!("select set_config('statement_timeout', $1, true)", ASKED_WITHIN).fetch_one(&mut *tx).await?;
    Ok(tx)
}

impl Trouble {
    /// The database gave up on a statement: it took too long, or waited too long for somebody else's lock.
    fn took_too_long(&self) -> bool {
        let mut cause: Option<&(dyn Error + 'static)> = Some(self);
        while let Some(error) = cause {
            if let Some(sqlx::Error::Database(told)) = error.downcast_ref::<sqlx::Error>() {
                return matches!(told.code().as_deref(), Some("57014" | "55P03"));
            }
            cause = error.source();
        }
        false
    }

    pub(super) fn answer(self) -> Response {
        match self {
            Self::Nothing => error::nothing_here(),
            Self::Page(failure) => error::template(&failure),
            slow if slow.took_too_long() => {
                tracing::warn!("an operators' page took too long and was stopped");
                error::unavailable(
                    "The database took too long over it and was stopped, so that nothing else suffers. Nothing was changed. Ask for \
                     less: one state, one account, or a shorter span of time; or try again in a moment.",
                )
            }
            other => {
                tracing::warn!(error = &other as &dyn Error, "an operators' page could not be made");
                error::unavailable(
                    "The database could not be read just now: it is slow or away. Nothing was changed. Try again in a moment.",
                )
            }
        }
    }
}

/// A handler's answer, or what became of it.
pub(super) fn answered(result: Result<Response, Trouble>) -> Response {
    result.unwrap_or_else(Trouble::answer)
}
