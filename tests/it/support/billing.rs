//! A person's billing log, filled quickly.

use serde_json::json;

use super::app::{App, Event, SignedIn};

impl App {
    /// Rows as the worker leaves them: `count` events of a person, the oldest first, every one ignored.
    pub async fn fill_log(&self, who: &SignedIn, prefix: &str, count: i32) {
        let sql = "insert into inbox_events (source, dedupe_key, type, digest, occurred_at, occurred_ns, received_at, due_at, status,
                                             reason, account_id, processed_at, body)
                   select 'kinde', 'event_' || $2 || lpad(n::text, 6, '0'), 'user.created', '', at, (extract(epoch from at) * 1e9)::bigint,
                          at, at, 'ignored', 'ignored: this event type carries no billing change (user.created)', $1, at, 'x'
                   from generate_series(1, $3) n, lateral (select timestamptz '2026-10-01' + n * interval '1 min' as at) a";
        sqlx::query(sql).bind(who.person.account.0).bind(prefix).bind(count).execute(&self.pool).await.unwrap();
    }

    /// Our number of an event.
    pub async fn number(&self, key: &str) -> i64 {
        sqlx::query_scalar("select id from inbox_events where dedupe_key = $1").bind(key).fetch_one(&self.pool).await.unwrap()
    }

    /// Everything in the database, table by table, as one text.
    pub async fn everything(&self) -> Vec<(String, String)> {
        let tables: Vec<String> = sqlx::query_scalar(
            "select table_name::text from information_schema.tables
             where table_schema = 'public' and table_type = 'BASE TABLE' order by 1",
        )
        .fetch_all(&self.pool)
        .await
        .unwrap();
        let mut all = Vec::new();
        for table in tables {
            let rows = format!("select coalesce(string_agg(t::text, E'\\n' order by t::text), '') from {table} t");
            let rows: String = sqlx::query_scalar(sqlx::AssertSqlSafe(rows)).fetch_one(&self.pool).await.unwrap();
            all.push((table, rows));
        }
        all
    }
}

impl Event {
    /// Of this person: `customer.…`, when it happened, and the plan it names.
    pub fn of(user: &str, kind: &str, at: &str, plan: Option<&str>) -> Self {
        let mut data = json!({"user_id": user});
        if let Some(plan) = plan {
            data["plan"] = json!({"key": plan});
        }
        Self::with(json!({"type": format!("customer.{kind}"), "event_timestamp": at, "data": data}))
    }

    pub fn upgrade(user: &str, at: &str) -> Self {
        Self::of(user, "plan_changed", at, Some("customer_pro_plan"))
    }

    pub fn starter(user: &str, at: &str) -> Self {
        Self::of(user, "plan_changed", at, Some("customer_starter_plan"))
    }
}
