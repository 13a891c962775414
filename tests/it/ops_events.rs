//! The operators' list of all events, and the page of one.

use std::collections::BTreeSet;

use serde_json::json;

use crate::support::app::{Event, Setup};
use crate::support::ops::{Ops, link, listed};

const AT: &str = "2026-10-21T10:00:00Z";

#[tokio::test]
async fn pages_stay_where_they_are_while_events_arrive() {
    let ops = Ops::new().await;
    ops.app.fill_log(&ops.olive, "a", 120).await;
    let all: Vec<i64> =
        sqlx::query_scalar("select id from inbox_events order by id desc").fetch_all(&ops.app.pool).await.unwrap();
    let mut seen = Vec::new();
    let mut next = Some("/ops/events".to_owned());
    let mut round = 0;
    while let Some(path) = next {
        let page = ops.page(&path).await;
        seen.extend(listed(&page));
        next = link(&page, "Older events");
        // More arrive while one reads.
        round += 1;
        ops.app.fill_log(&ops.olive, &format!("b{round}"), 30).await;
    }
    assert_eq!(seen, all, "each once, in order, and none that came later");
    assert_eq!(round, 3);
}

#[tokio::test]
async fn each_filter_finds_what_it_says_and_nothing_else() {
    let ops = Ops::new().await;
    let ada = ops.app.sign_in("kp_ada").await;
    ops.app.fill_log(&ada, "a", 3).await;
    ops.app.fill_log(&ops.olive, "o", 3).await;
    sqlx::query("update accounts set email = 'Ada@Example.com' where id = $1")
        .bind(ada.person.account.0)
        .execute(&ops.app.pool)
        .await
        .unwrap();
    let keys = ["event_a000001", "event_a000002", "event_a000003", "event_o000001", "event_o000002", "event_o000003"];
    let mut ids = Vec::new();
    for key in keys {
        ids.push(ops.app.number(key).await);
    }
    ops.sql("update inbox_events set status = 'dead', reason = 'dead after 6 attempts: The Disk is full' where dedupe_key = 'event_a000001'").await;
    ops.sql(
        "update inbox_events set status = 'parked', due_at = 'infinity', reason = 'parked: x' where dedupe_key = 'event_a000002'",
    )
    .await;
    ops.sql("update inbox_events set status = 'failed', reason = 'failed: x' where dedupe_key = 'event_o000001'").await;
    ops.sql("update inbox_events set source = 'stripe', type = 'invoice.paid' where dedupe_key = 'event_o000002'").await;
    ops.sql("insert into conflicts (event_id, digest, body, received_at) select id, '\\x01', 'x', now() from inbox_events where dedupe_key in ('event_a000003', 'event_o000003')").await;
    let account = ada.person.account;
    let which = |wanted: &[usize]| wanted.iter().map(|n| ids[*n]).collect::<Vec<i64>>();
    for (query, wanted) in [
        (String::new(), &[5, 4, 3, 2, 1, 0][..]),
        ("status=dead".to_owned(), &[0]),
        ("status=parked&status=dead".to_owned(), &[1, 0]),
        ("status=failed&status=dead&status=parked".to_owned(), &[3, 1, 0]),
        ("status=dead&status=ignored".to_owned(), &[5, 4, 2, 0]),
        ("source=stripe".to_owned(), &[4]),
        ("kind=invoice.paid".to_owned(), &[4]),
        ("kind=invoice".to_owned(), &[]),
        ("kind=user.*".to_owned(), &[5, 3, 2, 1, 0]),
        ("owner=kp_ada".to_owned(), &[2, 1, 0]),
        ("owner=ada@example.com".to_owned(), &[2, 1, 0]),
        (format!("owner={account}&status=dead"), &[0]),
        ("owner=nobody@example.com".to_owned(), &[]),
        ("owner=kp_nobody".to_owned(), &[]),
        ("reason=disk+is".to_owned(), &[0]),
        ("id=event_o000002".to_owned(), &[4]),
        (format!("id={}", ids[2]), &[2]),
        (format!("id={}&status=dead", ids[2]), &[]),
        ("id=event_nowhere".to_owned(), &[]),
        ("conflicts=1".to_owned(), &[5, 2]),
        ("conflicts=1&owner=kp_ada".to_owned(), &[2]),
        ("since=2026-10-01+00:02".to_owned(), &[5, 4, 2, 1]),
        ("until=2026-10-01+00:02".to_owned(), &[3, 0]),
        ("since=2026-10-01+00:02&until=2026-10-01+00:03".to_owned(), &[4, 1]),
        ("last=1h".to_owned(), &[]),
        (format!("before={}", ids[2]), &[1, 0]),
    ] {
        assert_eq!(listed(&ops.page(&format!("/ops/events?{query}")).await), which(wanted), "{query}");
    }
    let page = ops.app.get_as(&ops.olive, "/ops/events?status=gone&since=yesterday").await;
    assert_eq!((page.status, listed(&page.text).len()), (400, 6));
    assert!(page.text.contains("That is no state an event can be in"), "{}", page.text);
    let hostile = ops.page("/ops/events?kind=%22%3E%3Cscript%3E&owner=%27;drop&reason=%25_%5c&id=%00x").await;
    assert!(!hostile.contains("<script>"));
}

#[tokio::test]
async fn an_address_of_two_accounts_asks_which_is_meant() {
    let ops = Ops::new().await;
    let (ada, ben) = (ops.app.sign_in("kp_ada").await, ops.app.sign_in("kp_ben").await);
    ops.app.fill_log(&ada, "a", 1).await;
    ops.app.fill_log(&ben, "b", 1).await;
    ops.sql("update accounts set email = 'us@example.com' where kinde_user_id in ('kp_ada', 'kp_ben')").await;
    let page = ops.page("/ops/events?owner=us@example.com").await;
    assert!(page.contains("That means more than one account.") && listed(&page).is_empty(), "{page}");
    let one = link(&page, &format!("account {}, us@example.com", ben.person.account)).unwrap();
    assert_eq!(listed(&ops.page(&one).await), [ops.app.number("event_b000001").await]);
    // Nor is a replay of half a filter to be had.
    assert!(!ops.page("/ops/replay?owner=us@example.com").await.contains("name=\"confirm\""));
}

#[tokio::test]
async fn a_search_that_no_index_serves_goes_so_far_and_says_so() {
    let ops = Ops::new().await;
    ops.app.fill_log(&ops.olive, "a", 25_000).await;
    ops.sql("update inbox_events set type = 'rare.one' where dedupe_key = 'event_a000100'").await;
    let first = ops.page("/ops/events?kind=rare.one").await;
    assert!(first.contains("Not everything was looked at.") && first.contains("10,000 events were looked through"), "{first}");
    assert!(listed(&first).is_empty());
    let second = ops.page(&link(&first, "Search older").unwrap()).await;
    let third = ops.page(&link(&second, "Search older").unwrap()).await;
    assert_eq!(listed(&third), [ops.app.number("event_a000100").await]);
    assert!(!third.contains("Not everything was looked at."), "{third}");
    assert_eq!(link(&third, "Search older"), None);
}

#[tokio::test]
async fn a_search_that_the_database_stops_is_told_as_that() {
    let ops = Ops::new().await;
    ops.app.fill_log(&ops.olive, "a", 1).await;
    let mut theirs = ops.app.pool.begin().await.unwrap();
    sqlx::query("lock table inbox_events in access exclusive mode").execute(&mut *theirs).await.unwrap();
    for path in ["/ops", "/ops/events", "/ops/events?status=dead", "/ops/dead", "/ops/replay"] {
        let page = ops.app.get_as(&ops.olive, path).await;
        assert_eq!(page.status, 503, "{path}: {}", page.text);
        assert!(page.text.contains("The database took too long over it and was stopped"), "{path}: {}", page.text);
        assert!(page.took < std::time::Duration::from_secs(4), "{path}: {:?}", page.took);
    }
    theirs.rollback().await.unwrap();
    ops.page("/ops/events").await;
}

#[tokio::test]
async fn an_event_tells_its_whole_life_to_an_operator() {
    let ops = Ops::with(Setup { worker: true, ..Setup::default() }).await;
    let said = json!({"user_id": "kp_ada", "plan": {"key": "customer_pro_plan"}, "email": "ada@example.com"});
    let event = Event::with(json!({"event_timestamp": AT, "data": said}));
    ops.app.deliver_as("webhook_1", event.token.clone()).await;
    ops.app.worked_off().await;
    ops.app.deliver_as("webhook_2", event.token.clone()).await;
    ops.app
        .deliver_as(
            "webhook_3",
            event
                .but(json!({"event_timestamp": AT, "data": {"user_id": "kp_ada", "plan": {"key": "customer_starter_plan"}}}))
                .token,
        )
        .await;
    let id = ops.app.number(&event.id).await;
    let done = ops.post(&format!("/ops/events/{id}/replay"), &[]).await;
    assert!(done.leads_to().contains("said=replayed"));
    ops.app.worked_off().await;
    let page = ops.page(&format!("/ops/events/{id}")).await;
    for words in [
        "webhook-id webhook_1",
        "webhook-id webhook_2",
        "A copy arrived",
        "It ran, and was applied.",
        "kp_olive@example.com (kp_olive) asked for a replay.",
        "as the replay asked",
        "plan set to pro, Pro allowance granted",
        "A replay would change nothing: already applied.",
        "What else came under this id",
        "data.plan.key",
        "&#34;customer_starter_plan&#34;",
        "webhook_3",
        "+490",
        "••••",
    ] {
        assert!(page.contains(words), "the page does not say `{words}`:\n{page}");
    }
    assert!(!page.contains("ada@example.com"), "an address is shown");
    let account: i64 = ops.count("select account_id from inbox_events").await;
    assert!(page.contains(&format!("/ops/events?owner={account}")));
    let file = ops.page(&format!("/ops/events/{id}/payload")).await;
    assert!(file.contains("customer_pro_plan") && !file.contains("ada@example.com"));
    // Its owner is told who runs this Bottle asked, and no name.
    let ada = ops.app.sign_in("kp_ada").await;
    let hers = ops.app.get_as(&ada, &format!("/account/events/{id}")).await.text;
    assert!(
        hers.contains("Whoever runs this Bottle asked for a replay.") && !hers.contains("olive") && !hers.contains("webhook_1")
    );
}

#[tokio::test]
async fn the_next_try_is_told_as_a_time_and_as_a_wait() {
    let ops = Ops::new().await;
    ops.app.fill_log(&ops.olive, "a", 1).await;
    ops.sql("update inbox_events set status = 'failed', reason = 'failed: it broke', last_error = 'the handler: it broke', attempts = 2, due_at = now() + interval '299.5 s'").await;
    let id = ops.app.number("event_a000001").await;
    let page = ops.page(&format!("/ops/events/{id}")).await;
    assert!(page.contains("Next try <time") && page.contains("in 4 min 5"), "{page}");
    assert!(page.contains("2 charged") && page.contains("the handler: it broke"), "{page}");
    assert!(ops.page("/ops/events").await.contains("in 4 min 5"));
}

#[tokio::test]
async fn the_overview_counts_what_there_is() {
    let ops = Ops::new().await;
    let empty = ops.page("/ops").await;
    assert!(
        empty.contains("Nothing is wrong that we look for.") && empty.contains("No event waits for longer than a minute."),
        "{empty}"
    );
    ops.app.fill_log(&ops.olive, "a", 12).await;
    let set = async |keys: &str, to: &str| ops.sql(&format!("update inbox_events set {to} where dedupe_key in ({keys})")).await;
    set("'event_a000001', 'event_a000002'", "status = 'dead'").await;
    set("'event_a000003'", "status = 'parked', due_at = 'infinity'").await;
    set("'event_a000004'", "status = 'failed', due_at = now() + interval '1 h'").await;
    set("'event_a000005', 'event_a000006'", "status = 'received', due_at = now() - interval '2 h'").await;
    set("'event_a000007'", "status = 'processing', due_at = now() - interval '5 min', claims = 2").await;
    set("'event_a000008'", "status = 'processing', due_at = now() + interval '20 s', claims = 1").await;
    ops.sql("insert into event_runs (event_id, ran_at, status, sentence, effects) select id, now(), case when id % 4 = 0 then 'failed' else 'applied' end, '', '{}' from inbox_events").await;
    ops.sql("insert into alerts (condition, sentence, event_ids, raised_at) values ('dead', '2 events did not go through', '{1,2}', now())").await;
    ops.sql("insert into worker_pauses values (gen_random_uuid(), 'relation does not exist', now(), now())").await;
    let page = ops.page("/ops").await;
    let text: String =
        page.split('<').map(|part| part.split_once('>').map_or("", |(_, text)| text)).collect::<Vec<_>>().join(" ");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "Oldest waiting 2 h 0 min late",
        "In the queue 2 fine due now; 1 in a worker's hands",
        "Failed runs 25.0 % many 3 of the last 12",
        "Will be tried again 1 some",
        "Dead 2 look at them 0 acknowledged",
        "Parked 1 waiting",
        "Leases that ended 1 some their worker died or hangs; 1 were claimed again",
        "Alerts open 1 see below",
        "Workers paused 1 see below",
        "Last reconcile never not yet",
        "2 events did not go through",
        "relation does not exist",
        "due for 2 h 0 min",
    ] {
        assert!(text.replace("&#39;", "'").contains(words), "the page does not say `{words}`:\n{text}");
    }
}

#[tokio::test]
async fn the_runs_of_reconcile_and_what_they_found_are_shown() {
    let ops = Ops::new().await;
    ops.app.fill_log(&ops.olive, "a", 1).await;
    ops.sql(
        "insert into reconcile_runs (night, sources, since, until, mode, state, tallies, totals, begun_at, touched_at, finished_at)
         values ('2026-10-21', '{kinde,stripe}', '2026-10-01', '2026-10-21', 'apply', 'finished', '{\"customers\": 1200}',
                 '[{\"source\": \"stripe\", \"currency\": \"eur\", \"ours_minor\": 1000, \"theirs_minor\": 1200}]', now(), now(), now())",
    )
    .await;
    for n in 0..60 {
        ops.sql(&format!(
            "insert into reconcile_findings (run_id, class, source, subject, ours, theirs, done, state, event_id, found_at)
             select 1, 'plan_stale', 'kinde', 'customer_{n}', 'free', 'pro', 'asked again', 'open', min(id), now() from inbox_events"
        ))
        .await;
    }
    assert!(ops.page("/ops").await.contains("60 differ and are not repaired"));
    let runs = ops.page("/ops/reconcile").await;
    assert!(
        runs.contains("/ops/reconcile/1")
            && runs.contains("Kinde and Stripe, of the night of 2026-10-21")
            && runs.contains("1,200 customers"),
        "{runs}"
    );
    let run = ops.page("/ops/reconcile/1").await;
    assert!(
        run.contains("Plans that are out of date") && run.contains("they differ") && run.contains("<code>customer_0</code>"),
        "{run}"
    );
    let more = ops.page(&link(&run, "More of them").unwrap()).await;
    let subjects: BTreeSet<&str> = [run.as_str(), more.as_str()]
        .iter()
        .flat_map(|page| page.split("<code>customer_").skip(1).map(|rest| rest.split('<').next().unwrap()))
        .collect();
    assert_eq!(subjects.len(), 60);
    assert_eq!(ops.app.get_as(&ops.olive, "/ops/reconcile/2").await.status, 404);
}

#[tokio::test]
async fn open_operators_pages_are_told_of_changes() {
    let ops = Ops::new().await;
    let request = ops.app.http.get(ops.app.url("/ops/live")).header("cookie", &ops.olive.cookie);
    let mut stream = request.send().await.unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let told = async |stream: &mut reqwest::Response| {
        let mut text = String::new();
        while !text.contains("\n\n") || !text.contains("data: ") {
            text += str::from_utf8(&stream.chunk().await.unwrap().unwrap()).unwrap();
        }
        text.split("data: ").nth(1).unwrap().lines().next().unwrap().to_owned()
    };
    let first = told(&mut stream).await;
    assert!(ops.page("/ops").await.contains(&format!("data-version=\"{first}\"")), "a page is of the version that is told");
    ops.dead(1).await;
    let second = tokio::time::timeout(std::time::Duration::from_secs(5), told(&mut stream)).await.unwrap();
    assert_ne!(first, second);
    let bob = ops.app.sign_in("kp_bob").await;
    assert_eq!(ops.app.get_as(&bob, "/ops/live").await.status, 404);
}
