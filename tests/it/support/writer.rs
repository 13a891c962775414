//! Ada, who writes reminders at her pages as a browser does.

use bottle::billing::apply::Rules;
use bottle::checkpoint::Checkpoints;
use bottle::clock::Clock;
use bottle::domain::plan::PlanKeys;
use bottle::reminders::ring::{Rung, ring};
use jiff::ToSpan;

use super::app::{Answer, App, DOMAIN, SignedIn};

pub struct Writer {
    pub app: App,
    pub who: SignedIn,
}

/// The fields a person fills in, with a good answer in each.
pub struct Fields(pub Vec<(&'static str, String)>);

impl Fields {
    /// Tomorrow at noon, in UTC.
    pub fn about(text: &str) -> Self {
        let tomorrow = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date().saturating_add(1.day());
        let fields = [("text", text), ("date", &tomorrow.to_string()), ("time", "12:00"), ("zone", "UTC"), ("repeat", "never")];
        Self(fields.map(|(name, value)| (name, value.to_owned())).into())
    }

    /// The same with another answer, in a field that there is or not.
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.0.retain(|(field, _)| *field != name);
        self.0.push((name, value.to_owned()));
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.0.retain(|(field, _)| *field != name);
        self
    }

    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(field, _)| *field == name).map_or("", |(_, value)| value)
    }

    pub fn pairs(&self) -> Vec<(&str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str())).collect()
    }
}

impl Writer {
    pub async fn start() -> Self {
        let app = App::start().await;
        let who = app.sign_in("kp_ada").await;
        Self { app, who }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.app.get_as(&self.who, path).await
    }

    /// Posts, and follows to where it leads.
    pub async fn post(&self, path: &str, form: &[(&str, &str)]) -> Answer {
        self.app.post_as(&self.who, path, form).await
    }

    /// The page's form, sent with these answers.
    pub async fn send(&self, fields: Fields) -> Answer {
        let page = self.get("/reminders").await;
        self.post("/reminders", &fields.with("key", hidden(&page.text, "key")).pairs()).await
    }

    /// Schedules one and says its id.
    pub async fn schedule(&self, fields: Fields) -> i64 {
        let answer = self.send(fields).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        sqlx::query_scalar("select max(id) from reminders").fetch_one(&self.app.pool).await.unwrap()
    }

    /// Makes a reminder's time come, and rings.
    pub async fn ring(&self, id: i64) {
        sqlx::query("update reminders set due_at = now() - interval '1 second' where id = $1")
            .bind(id)
            .execute(&self.app.pool)
            .await
            .unwrap();
        let rules = Rules { keys: PlanKeys::default(), tenant: DOMAIN.to_owned() };
        let mut tx = self.app.pool.begin().await.unwrap();
        let rung = ring(&mut tx, self.who.person.account, &rules, None, &Checkpoints::default(), Clock::Database).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(rung, Rung::Some(1));
    }

    /// Presses a button of a reminder, as the page shows it now.
    pub async fn press(&self, id: i64, what: &str, more: &[(&str, &str)]) -> Answer {
        let version = self.version(id).await.to_string();
        let form = [&[("version", version.as_str())], more].concat();
        self.post(&format!("/reminders/{id}/{what}"), &form).await
    }

    pub async fn version(&self, id: i64) -> i32 {
        sqlx::query_scalar("select version from reminders where id = $1").bind(id).fetch_one(&self.app.pool).await.unwrap()
    }

    pub async fn status(&self, id: i64) -> String {
        sqlx::query_scalar("select status from reminders where id = $1").bind(id).fetch_one(&self.app.pool).await.unwrap()
    }

    /// How many reminders there are, and how many bottles were taken and not given back.
    pub async fn counts(&self) -> (i64, i64) {
        let sql = "select (select count(*) from reminders where status <> 'deleted'), \
                   (select coalesce(-sum(delta), 0)::bigint from ledger where reason in ('spend', 'return'))";
        sqlx::query_as(sql).fetch_one(&self.app.pool).await.unwrap()
    }

    /// Writes into the ledger of this month.
    pub async fn enter(&self, delta: i64, reason: &str, key: &str) {
        let sql = "insert into ledger (account_id, period, delta, reason, entry_key, created_at) \
                   values ($1, to_char(now() at time zone 'UTC', 'YYYY-MM'), $2, $3, $4, now())";
        let query = sqlx::query(sql).bind(self.who.person.account.0).bind(delta).bind(reason).bind(key);
        query.execute(&self.app.pool).await.unwrap();
    }

    /// Nothing is left of this month's ten.
    pub async fn use_up(&self) {
        self.enter(10, "free", "free:used").await;
        self.enter(-10, "spend", "spend:used").await;
    }

    /// Writes many at once, as if they had been scheduled one by one.
    pub async fn fill(&self, status: &str, how_many: i32) {
        let sql = "insert into reminders (account_id, series, n, text, search, zone, local, month_day, repeat, due_at, status, \
                   done_at, rung, created_at, changed_at) \
                   select $1, 1000000 + g + $4, 1, 'thing number ' || g, 'thing number ' || g, 'Europe/Berlin', \
                   now()::timestamp, 1, 'never', now() + g * interval '1 hour', $2, \
                   case when $2 = 'done' then now() - g * interval '1 hour' end, case when $2 = 'scheduled' then 0 else 1 end, \
                   now(), now() from generate_series(1, $3) g";
        let salt = i64::try_from(status.len()).unwrap() * 1_000_000;
        sqlx::query(sql)
            .bind(self.who.person.account.0)
            .bind(status)
            .bind(how_many)
            .bind(salt)
            .execute(&self.app.pool)
            .await
            .unwrap();
    }
}

/// The value of the first hidden field of that name.
#[track_caller]
pub fn hidden<'a>(html: &'a str, name: &str) -> &'a str {
    between(html, &format!("<input type=\"hidden\" name=\"{name}\" value=\""), "\"")
}

#[track_caller]
pub fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let rest = text.split_once(before).unwrap_or_else(|| panic!("`{before}` is not in {text}")).1;
    rest.split_once(after).unwrap_or_else(|| panic!("`{after}` does not follow in {text}")).0
}

/// The part of the page that is one list.
#[track_caller]
pub fn list<'a>(html: &'a str, name: &str) -> &'a str {
    between(html, &format!("<section id=\"{name}\""), "</section>")
}
