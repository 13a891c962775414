//! The release before this one, at this one's schema: while processes are replaced one by one, both run on it (expand, then contract).
//!
//! `tests/schema/released.json` holds every query of the last release, with the types of its parameters and columns, as that
//! release's own `.sqlx` has them, and its newest migration. It is written anew at each release:
//! `cargo test --test it released::write -- --ignored`. Here each of those queries is prepared on the schema of now, and what a
//! prepared query does not show is looked for in the catalogue: a column that an old insert leaves out and that may not be left
//! out, and a rule that is stricter than before.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sqlx::migrate::Migrator;
use sqlx::{
    AssertSqlSafe, Column as _, ConnectOptions as _, Connection as _, Either, Executor as _, PgConnection, SqlSafeStr as _,
    Statement as _, TypeInfo as _,
};

use crate::support::db::fresh_db;

/// Rules about a released table's rows that came later, each with the reason why an old process never breaks it.
const RULES: [(&str, &str); 1] = [("FOREIGN KEY (bulk_replay_id)", "the release before leaves that column out")];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn released() -> Value {
    serde_json::from_str(&std::fs::read_to_string(root().join("tests/schema/released.json")).unwrap()).unwrap()
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// What a query takes and gives, as this schema has it.
async fn described(conn: &mut PgConnection, query: &str) -> Result<(Vec<String>, Vec<String>), String> {
    let statement = conn.prepare(AssertSqlSafe(query.to_owned()).into_sql_str()).await.map_err(|error| error.to_string())?;
    let parameters = match statement.parameters() {
        Some(Either::Left(types)) => types.iter().map(|one| one.name().to_owned()).collect(),
        _ => Vec::new(),
    };
    let columns = statement.columns().iter().map(|column| format!("{} {}", column.name(), column.type_info().name())).collect();
    Ok((parameters, columns))
}

#[tokio::test]
async fn each_query_of_the_release_before_can_still_be_asked() {
    let (released, db) = (released(), fresh_db().await);
    let mut conn = db.options().connect().await.unwrap();
    let queries = released["queries"].as_array().unwrap();
    assert!(queries.len() > 100, "{} queries", queries.len());
    let mut broken = Vec::new();
    for query in queries {
        let text = query["query"].as_str().unwrap();
        match described(&mut conn, text).await {
            Err(error) => broken.push(format!("{error}: {text}")),
            Ok((parameters, columns)) => {
                if parameters != texts(&query["parameters"]) || columns != texts(&query["columns"]) {
                    broken.push(format!("takes {parameters:?} and gives {columns:?}, not as before: {query}"));
                }
            }
        }
    }
    assert!(broken.is_empty(), "the release before would fail here:\n{}", broken.join("\n"));
}

/// (table, column) and what is known of it.
type Columns = BTreeMap<(String, String), (String, bool, bool)>;

async fn columns(conn: &mut PgConnection) -> Columns {
    let rows: Vec<(String, String, String, bool, bool)> = sqlx::query_as(
        "select c.table_name::text, c.column_name::text, c.data_type::text, c.is_nullable = 'YES',
                c.column_default is not null or c.is_identity = 'YES' or c.is_generated = 'ALWAYS'
         from information_schema.columns c where c.table_schema = 'public' and c.table_name not like '\\_sqlx%'",
    )
    .fetch_all(conn)
    .await
    .unwrap();
    rows.into_iter().map(|(table, column, kind, nullable, filled)| ((table, column), (kind, nullable, filled))).collect()
}

/// Checks, keys and unique indexes, as the server writes them out.
async fn rules(conn: &mut PgConnection) -> BTreeSet<(String, String)> {
    let rows: Vec<(String, String)> = sqlx::query_as(
        "select conrelid::regclass::text, pg_get_constraintdef(oid) from pg_constraint where connamespace = 'public'::regnamespace and contype <> 'n'
         union select tablename::text, regexp_replace(indexdef, 'INDEX \\S+', 'INDEX') from pg_indexes where schemaname = 'public' and indexdef like 'CREATE UNIQUE%'
         union select tgrelid::regclass::text, regexp_replace(pg_get_triggerdef(oid), 'TRIGGER \\S+', 'TRIGGER') from pg_trigger where not tgisinternal",
    )
    .fetch_all(conn)
    .await
    .unwrap();
    rows.into_iter().collect()
}

#[tokio::test]
async fn nothing_that_the_release_before_writes_is_refused_by_the_schema_of_now() {
    let (newest, db) = (released()["newest_migration"].as_i64().unwrap(), fresh_db().await);
    let mut conn = db.options().connect().await.unwrap();
    let (now, rules_now) = (columns(&mut conn).await, rules(&mut conn).await);
    conn.execute("drop schema public cascade; create schema public").await.unwrap();
    let all = sqlx::migrate!();
    let old = Migrator::with_migrations(all.iter().filter(|migration| migration.version <= newest).cloned().collect());
    old.run(&mut conn).await.unwrap();
    let (before, rules_before) = (columns(&mut conn).await, rules(&mut conn).await);
    conn.close().await.unwrap();

    let tables: BTreeSet<&String> = before.keys().map(|(table, _)| table).collect();
    assert!(tables.len() > 10, "{tables:?}");
    let mut broken = Vec::new();
    for ((table, column), (kind, nullable, filled)) in &before {
        match now.get(&(table.clone(), column.clone())) {
            None => broken.push(format!("{table}.{column} is gone")),
            Some((other, ..)) if other != kind => broken.push(format!("{table}.{column} was {kind} and is {other}")),
            Some((_, may_be_null, is_filled)) => {
                let needs_more = (*nullable && !may_be_null) || (*filled && !is_filled && !may_be_null);
                if needs_more {
                    broken.push(format!("{table}.{column} may no longer be left out"));
                }
            }
        }
    }
    for ((table, column), (_, nullable, filled)) in
        now.iter().filter(|(key, _)| tables.contains(&key.0) && !before.contains_key(*key))
    {
        if !nullable && !filled {
            broken.push(format!("{table}.{column} is new and may not be left out"));
        }
    }
    for (table, rule) in rules_now.difference(&rules_before).filter(|(table, _)| tables.contains(table)) {
        if !RULES.iter().any(|(known, _)| rule.contains(known)) {
            broken.push(format!("{table} has a new rule: {rule}"));
        }
    }
    assert!(broken.is_empty(), "the release before would fail here:\n{}", broken.join("\n"));
}

/// At a release, in its own checkout: what the next one has to bear.
#[tokio::test]
#[ignore = "writes tests/schema/released.json; for a release"]
async fn write() {
    let db = fresh_db().await;
    let mut conn = db.options().connect().await.unwrap();
    let mut queries: BTreeMap<String, Value> = BTreeMap::new();
    for entry in std::fs::read_dir(root().join(".sqlx")).unwrap() {
        let cached: Value = serde_json::from_str(&std::fs::read_to_string(entry.unwrap().path()).unwrap()).unwrap();
        let query = cached["query"].as_str().unwrap();
        let (parameters, columns) = described(&mut conn, query).await.unwrap_or_else(|error| panic!("{error}: {query}"));
        queries.insert(query.to_owned(), json!({ "query": query, "parameters": parameters, "columns": columns }));
    }
    let newest: i64 = sqlx::query_scalar("select max(version) from _sqlx_migrations").fetch_one(&mut conn).await.unwrap();
    let released = json!({
        "release": env!("CARGO_PKG_VERSION"), "newest_migration": newest, "queries": queries.into_values().collect::<Vec<_>>(),
    });
    let path = root().join("tests/schema/released.json");
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).unwrap();
    std::fs::write(&path, serde_json::to_string_pretty(&released).unwrap() + "\n").unwrap();
    eprintln!("{}: {} queries, migration {newest}", path.display(), released["queries"].as_array().unwrap().len());
}
