//! The reminder page: its form and its lists, by the doors a browser uses.

use jiff::ToSpan;
use jiff::civil::Weekday;

use crate::support::writer::{Fields, Writer, between, hidden, list};

#[tokio::test(flavor = "multi_thread")]
async fn a_person_writes_down_what_they_must_not_forget() {
    let ada = Writer::start().await;
    let empty = ada.get("/reminders").await;
    assert_eq!(empty.status, 200);
    assert!(empty.text.contains("Nothing to remember yet") && empty.text.contains("<b>10</b> of 10 bottles left"));

    let page = ada.send(Fields::about("Water the plants")).await;
    assert_eq!(page.status, 200);
    let notice = between(&page.text, "id=\"said\"", "</div>");
    assert!(notice.contains("Scheduled: tomorrow 12:00.") && notice.contains("Water the plants"), "{notice}");
    assert!(list(&page.text, "upcoming").contains("Water the plants"));
    assert!(page.text.contains("<b>9</b> of 10 bottles left"), "it took one");
    let machine = between(list(&page.text, "upcoming"), "<time datetime=\"", "\"");
    assert!(machine.ends_with("T12:00:00Z"), "{machine}");
    assert_eq!(ada.counts().await, (1, 1));
    assert_eq!(page.headers["cache-control"], "no-store");
    assert_eq!(page.headers["x-content-type-options"], "nosniff");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_sent_twice_is_one_reminder_and_one_bottle() {
    let ada = Writer::start().await;
    let page = ada.get("/reminders").await;
    let form = Fields::about("Only once").with("key", hidden(&page.text, "key"));
    let form = form.pairs();
    let answers = futures_util::future::join_all((0..6).map(|_| ada.post("/reminders", &form))).await;
    assert!(answers.iter().all(|a| a.status == 200));
    let again = ada.post("/reminders", &form).await;
    assert!(again.text.contains("had been sent before") && again.text.contains("Only once"), "the person learns of it");
    assert_eq!(ada.counts().await, (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_tabs_are_two_forms() {
    let ada = Writer::start().await;
    let (one, two) = (ada.get("/reminders").await, ada.get("/reminders").await);
    for page in [&one, &two] {
        let form = Fields::about("The same words").with("key", hidden(&page.text, "key"));
        assert_eq!(ada.post("/reminders", &form.pairs()).await.status, 200);
    }
    assert_eq!(ada.counts().await, (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_that_cannot_be_taken_comes_back_with_everything_that_was_typed() {
    let ada = Writer::start().await;
    let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
    let (yesterday, in_eleven_years) = (today.saturating_sub(1.day()).to_string(), today.saturating_add(11.years()).to_string());
    let good = || Fields::about("Feed <the> \"cat\" & dog");
    let cases = [
        ("text", good().with("text", "")),
        ("text", good().with("text", "   ")),
        ("text", good().without("text")),
        ("text", good().with("text", &"x".repeat(501))),
        ("text", good().with("text", &"🐈".repeat(600))),
        ("text", good().with("text", "two\nlines")),
        ("text", good().with("text", "a bell \u{7}")),
        ("when", good().with("date", "")),
        ("when", good().without("date")),
        ("when", good().with("date", "2027-02-30")),
        ("when", good().with("date", "tomorrow")),
        ("when", good().with("time", "25:00")),
        ("when", good().without("time")),
        ("when", good().with("time", "12:00Z")),
        ("when", good().with("date", &yesterday)),
        ("when", good().with("date", &in_eleven_years)),
        ("when", good().with("date", "9999-12-31")),
        ("when", good().with("date", "275760-09-13")),
        ("zone", good().with("zone", "")),
        ("zone", good().without("zone")),
        ("zone", good().with("zone", "Mars/Olympus")),
        ("zone", good().with("zone", "\"><script>alert(1)</script>")),
        ("repeat", good().without("repeat")),
        ("repeat", good().with("repeat", "hourly")),
    ];
    for (field, fields) in cases {
        let key = hidden(&ada.get("/reminders").await.text, "key").to_owned();
        let fields = fields.with("key", &key);
        let said = format!("{:?}", fields.pairs());
        let page = ada.post("/reminders", &fields.pairs()).await;
        assert_eq!(page.status, 422, "{said}");
        assert_eq!(hidden(&page.text, "key"), key, "the same form: sent again it is still one reminder; {said}");
        let input = between(&page.text, &format!("id=\"f-{field}\""), ">");
        assert!(
            input.contains("aria-invalid=\"true\"") && input.contains(&format!("aria-describedby=\"{field}-wrong\"")),
            "{said}: {input}"
        );
        assert!(!between(&page.text, &format!("id=\"{field}-wrong\">"), "<").is_empty(), "{said}");
        let html = page.text.replace("&#60;", "<").replace("&#62;", ">").replace("&#34;", "\"").replace("&#38;", "&");
        for name in ["text", "date", "time", "zone"] {
            let typed = fields.get(name);
            assert!(typed.trim().is_empty() || html.contains(typed), "{name} is kept; {said}");
        }
        assert!(!page.text.contains("<script>"), "{said}");
    }
    assert_eq!(ada.counts().await, (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_without_its_key_is_asked_for_once_more() {
    let ada = Writer::start().await;
    for key in ["", "7", "00000000-0000-0000-0000-000000000000", "' or 1=1"] {
        let page = ada.post("/reminders", &Fields::about("Keyless").with("key", key).pairs()).await;
        assert_eq!(page.status, 422, "{key}");
        assert!(page.text.contains("without its key") && page.text.contains("value=\"Keyless\""), "{key}");
        let fresh = hidden(&page.text, "key").to_owned();
        assert_ne!(fresh, key);
    }
    assert_eq!(ada.counts().await, (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_form_of_ours_is_refused_in_words() {
    let ada = Writer::start().await;
    let huge = ada.post("/reminders", &Fields::about(&"x".repeat(70_000)).pairs()).await;
    assert_eq!(huge.status, 413);
    assert!(huge.text.contains("That is more than this form can take"));
    let json = ada.app.http.post(ada.app.url("/reminders")).header("cookie", &ada.who.cookie);
    let json = crate::support::app::answer(json.header("origin", ada.app.url("")).json(&serde_json::json!({"text": "x"}))).await;
    assert_eq!(json.status, 400);
    assert!(json.text.contains("not a form of ours"));
    assert_eq!(ada.counts().await, (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_no_form_change_nothing() {
    let ada = Writer::start().await;
    let other = ada.app.sign_in("kp_ben").await;
    let fields = Fields::about("Mine")
        .with("account_id", &other.person.account.to_string())
        .with("id", "1")
        .with("status", "done")
        .with("n", "9")
        .with("period", "2020-01")
        .with("due_at", "2020-01-01T00:00:00Z")
        .with("version", "7");
    let id = ada.schedule(fields).await;
    let row: (i64, String, i32, i32, bool) =
        sqlx::query_as("select account_id, status, n, version, due_at > now() from reminders where id = $1")
            .bind(id)
            .fetch_one(&ada.app.pool)
            .await
            .unwrap();
    assert_eq!(row, (ada.who.person.account.0, "scheduled".to_owned(), 1, 1, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn with_no_bottle_left_the_page_explains_and_offers_pro() {
    let ada = Writer::start().await;
    let early = ada.get("/reminders").await;
    ada.use_up().await;
    let page = ada.get("/reminders").await;
    assert!(
        page.text.contains("All 10 bottles of") && page.text.contains("href=\"/login?plan=pro&amp;return_to=/reminders\""),
        "{}",
        page.text
    );
    assert!(!page.text.contains("<form class=\"reminder-form"), "there is nothing to fill in");

    // A form made before, sent after: the words are not lost, and nothing is taken.
    let form = Fields::about("Too late").with("key", hidden(&early.text, "key"));
    let late = ada.post("/reminders", &form.pairs()).await;
    assert_eq!(late.status, 422);
    assert!(late.text.contains("All 10 bottles of") && late.text.contains("value=\"Too late\""));
    assert_eq!(ada.counts().await, (0, 10));

    sqlx::query("update accounts set plan = 'pro' where id = $1")
        .bind(ada.who.person.account.0)
        .execute(&ada.app.pool)
        .await
        .unwrap();
    let pro = ada.get("/reminders").await;
    assert!(pro.text.contains("<b>490</b> of 500 bottles left") && pro.text.contains("class=\"reminder-form"));
    assert!(!pro.text.contains("plan=pro"), "whoever has Pro is not asked to buy it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_that_clocks_skip_or_show_twice_is_explained() {
    let ada = Writer::start().await;
    let year = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).year() + 1;
    let last_sunday = |month| {
        let first = jiff::civil::date(year, month, 1);
        first.nth_weekday_of_month(-1, Weekday::Sunday).unwrap().to_string()
    };
    let night = |date: &str| Fields::about("Night").with("date", date).with("time", "02:30").with("zone", "Europe/Berlin");
    let skipped = ada.send(night(&last_sunday(3))).await;
    let notice = between(&skipped.text, "id=\"said\"", "</div>");
    assert!(notice.contains("03:30") && notice.contains("never show 02:30; it rings at 03:30 instead"), "{notice}");
    let twice = ada.send(night(&last_sunday(10))).await;
    let notice = between(&twice.text, "id=\"said\"", "</div>");
    assert!(notice.contains("show 02:30 twice; it rings the first time"), "{notice}");
    assert!(list(&twice.text, "upcoming").contains("(before clocks are set back)"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_zone_last_used_is_offered_next_time() {
    let ada = Writer::start().await;
    assert!(ada.get("/reminders").await.text.contains("<option value=\"\">Choose yours</option>"));
    ada.send(Fields::about("Sushi").with("zone", "Asia/Tokyo")).await;
    let page = ada.get("/reminders").await;
    assert!(page.text.contains("<option selected>Asia/Tokyo</option>"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_means_what_it_says() {
    let ada = Writer::start().await;
    for text in ["100% cotton", "1000 cottons", "snake_case", "snakes case", "back\\slash", "ÜBER alles"] {
        ada.schedule(Fields::about(text)).await;
    }
    for (query, expected) in [
        ("100%25", vec!["100% cotton"]),
        ("_", vec!["snake_case"]),
        ("%5C", vec!["back\\slash"]),
        ("%C3%BCber", vec!["ÜBER alles"]),
        ("COTTON", vec!["100% cotton", "1000 cottons"]),
        ("nothing+like+it", vec![]),
        ("%00", vec!["100% cotton", "1000 cottons", "back\\slash", "snake_case", "snakes case", "ÜBER alles"]),
    ] {
        let page = ada.get(&format!("/reminders?q={query}")).await;
        assert_eq!(page.status, 200, "{query}");
        let mut found: Vec<&str> = texts(list(&page.text, "upcoming"));
        found.sort_unstable();
        assert_eq!(found, expected, "{query}");
    }
    let hostile = ada.get("/reminders?q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E").await;
    assert!(!hostile.text.contains("<script>alert"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_list_is_read_page_by_page_and_none_is_missed() {
    let ada = Writer::start().await;
    ada.fill("scheduled", 60).await;
    ada.fill("done", 25).await;
    for (name, expected) in [("upcoming", 60), ("done", 25)] {
        let mut seen = Vec::new();
        let mut path = "/reminders".to_owned();
        loop {
            let page = ada.get(&path).await;
            let here = list(&page.text, name);
            seen.extend(texts(here).into_iter().map(str::to_owned));
            let Some((before, _)) = here.split_once("\">Show more") else { break };
            path = before.rsplit_once("href=\"").unwrap().1.replace("&#38;", "&").replace("&amp;", "&");
        }
        let expected: Vec<String> = (1..=expected).map(|n| format!("thing number {n}")).collect();
        assert_eq!(seen, expected, "{name}: each once, in order");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_reminders_fit_on_a_small_page() {
    let ada = Writer::start().await;
    for status in ["scheduled", "due", "done"] {
        ada.fill(status, 700).await;
    }
    let page = ada.get("/reminders").await;
    assert!(page.text.len() < 60 * 1024, "{} bytes", page.text.len());
    assert!(page.text.contains("<title>(700) Reminders"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_made_up_shows_the_lists_and_nothing_else() {
    let ada = Writer::start().await;
    let id = ada.schedule(Fields::about("Real")).await;
    for query in [
        "upcoming=x",
        "upcoming=1.2.3",
        "due=9999999999999999999.1",
        "done=-1.-1",
        "said=nonsense",
        "said=scheduled",
        "about=1",
        "said=scheduled&about=-9",
        "said=done&about=99999999999999999999",
        "q=%FF%FE",
        "%",
        "&&&=",
        "q=a&q=b",
    ] {
        let page = ada.get(&format!("/reminders?{query}")).await;
        assert_eq!(page.status, 200, "{query}");
        assert!(!page.text.contains("id=\"said\""), "nothing happened: {query}");
    }
    let told = ada.get(&format!("/reminders?said=done&about={id}")).await;
    assert!(!told.text.contains("id=\"said\""), "it is not done");
}

fn texts(html: &str) -> Vec<&str> {
    html.split("<bdi>").skip(1).map(|part| part.split_once("</bdi>").unwrap().0).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_in_a_list_that_no_calendar_has_is_its_beginning() {
    let ada = Writer::start().await;
    ada.schedule(Fields::about("Water the plants")).await;
    for place in
        ["-300000000000000000.1", "-62167219200000001.1", "9223372036854775807.1", "x", "1", "%00.%00", "1.99999999999999999999"]
    {
        let page = ada.get(&format!("/reminders?upcoming={place}&due={place}&done={place}")).await;
        assert_eq!(page.status, 200, "{place}");
        assert!(list(&page.text, "upcoming").contains("Water the plants"), "{place}");
    }
}
