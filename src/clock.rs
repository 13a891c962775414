//! Whose `now` it is. Live code takes the database's clock, read inside the transaction that needs it; tests and scenarios
//! bring their own. Statements say `coalesce($n, now())`.

use sqlx::PgExecutor;
use time::OffsetDateTime;

use crate::domain::instant::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// The clock of the database that runs the statement.
    Database,
    /// This moment, whatever the time.
    At(Instant),
}

impl Clock {
    /// The bind value for `coalesce($n, now())`.
    pub fn param(self) -> Option<OffsetDateTime> {
        match self {
            Self::Database => None,
            Self::At(at) => Some(at.datetime()),
        }
    }

    /// This moment, to the microsecond: inside a transaction, when it began.
    pub async fn now(self, db: impl PgExecutor<'_>) -> sqlx::Result<OffsetDateTime> {
        sqlx::query_scalar!(r#"select coalesce($1, now()) as "now!""#, self.param()).fetch_one(db).await
    }

    /// This very moment, however long ago the transaction began: for whoever had to wait for a lock first.
    pub async fn moment(self, db: impl PgExecutor<'_>) -> sqlx::Result<OffsetDateTime> {
        sqlx::query_scalar!(r#"select coalesce($1, clock_timestamp()) as "now!""#, self.param()).fetch_one(db).await
    }
}
