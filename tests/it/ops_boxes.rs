//! Dead and parked events wait in a box until somebody decides; what was decided, and everything else an operator did, is kept.

use futures_util::future::join_all;

use crate::support::app::Answer;
use crate::support::ops::{Ops, between, listed};

async fn acknowledge(ops: &Ops, id: i64, form: (&str, &str), note: &str) -> Answer {
    let fields = [("key", form.0), ("verdict", form.1), ("note", note)];
    ops.post(&format!("/ops/events/{id}/acknowledge"), &fields).await
}

/// The key and verdict of the form on an event's page.
async fn form(ops: &Ops, id: i64) -> (String, String) {
    let page = ops.page(&format!("/ops/events/{id}")).await;
    let form = between(&page, "/acknowledge\"", "</form>");
    (between(form, "name=\"key\" value=\"", "\"").to_owned(), between(form, "name=\"verdict\" value=\"", "\"").to_owned())
}

#[tokio::test]
async fn an_acknowledged_event_leaves_its_box_and_not_the_list() {
    for (status, path) in [("dead", "/ops/dead"), ("parked", "/ops/parked")] {
        let ops = Ops::new().await;
        let ids = ops.dead(3).await;
        ops.sql(&format!("update inbox_events set status = '{status}', due_at = 'infinity'")).await;
        assert_eq!(listed(&ops.page(path).await), [ids[2], ids[1], ids[0]]);
        let (key, verdict) = form(&ops, ids[1]).await;
        let done = acknowledge(&ops, ids[1], (&key, &verdict), "A test customer, see ticket 12").await;
        assert!(done.leads_to().contains("said=acknowledged"), "{}", done.leads_to());
        let page = ops.page(path).await;
        assert_eq!(listed(&page), [ids[2], ids[0]], "{status}");
        assert!(page.contains("2 wait for somebody, 1 was acknowledged"), "{page}");
        assert_eq!(listed(&ops.page(&format!("/ops/events?status={status}")).await).len(), 3);
        let page = ops.page(&format!("/ops/events/{}", ids[1])).await;
        for words in
            ["A test customer, see ticket 12", "kp_olive@example.com (kp_olive)", "Acknowledged.", "it is out of its box"]
        {
            assert!(page.contains(words), "the page does not say `{words}`:\n{page}");
        }
        assert!(!page.contains("/acknowledge\""), "there is nothing more to acknowledge");
    }
}

#[tokio::test]
async fn a_new_verdict_puts_it_back() {
    let ops = Ops::new().await;
    let id = ops.dead(1).await[0];
    let (key, verdict) = form(&ops, id).await;
    acknowledge(&ops, id, (&key, &verdict), "may rest").await;
    assert!(listed(&ops.page("/ops/dead").await).is_empty());
    // Replayed, and dead once more.
    ops.post(&format!("/ops/events/{id}/replay"), &[]).await;
    assert!(listed(&ops.page("/ops/dead").await).is_empty(), "it is on its way");
    ops.sql("update inbox_events set status = 'dead', processed_at = now()").await;
    assert_eq!(listed(&ops.page("/ops/dead").await), [id]);
    let page = ops.page(&format!("/ops/events/{id}")).await;
    assert!(page.contains("Acknowledged how it had ended then.") && page.contains("/acknowledge\""), "{page}");
}

#[tokio::test]
async fn only_the_verdict_that_was_seen_is_acknowledged() {
    let ops = Ops::new().await;
    let id = ops.dead(1).await[0];
    let (key, verdict) = form(&ops, id).await;
    ops.sql("update inbox_events set processed_at = processed_at + interval '1 microsecond'").await;
    let late = acknowledge(&ops, id, (&key, &verdict), "may rest").await;
    assert!(late.leads_to().contains("said=changed"), "{}", late.leads_to());
    let (key, verdict) = form(&ops, id).await;
    ops.sql("update inbox_events set status = 'received'").await;
    let late = acknowledge(&ops, id, (&key, &verdict), "may rest").await;
    assert!(late.leads_to().contains("said=changed"), "{}", late.leads_to());
    for wrong in
        [("nonsense", verdict.as_str()), (key.as_str(), "nonsense"), (key.as_str(), "99999999999999999999999999999999999999")]
    {
        let done = acknowledge(&ops, id, wrong, "may rest").await;
        assert_eq!(done.status, 303, "{wrong:?}: {}", done.text);
    }
    assert_eq!(ops.count("select (select count(*) from event_notes) + (select count(*) from operator_actions)").await, 0);
}

#[tokio::test]
async fn a_form_that_is_sent_twice_writes_once() {
    let ops = Ops::new().await;
    let id = ops.dead(1).await[0];
    let (key, verdict) = form(&ops, id).await;
    let all = join_all((0..6).map(|_| acknowledge(&ops, id, (&key, &verdict), "may rest"))).await;
    let said: Vec<String> = all.iter().map(Answer::leads_to).collect();
    assert_eq!(said.iter().filter(|to| to.contains("said=acknowledged")).count(), 1, "{said:?}");
    assert_eq!(said.iter().filter(|to| to.contains("said=again")).count(), 5, "{said:?}");
    let page = ops.page(&format!("/ops/events/{id}")).await;
    let key = between(between(&page, "/note\"", "</form>"), "name=\"key\" value=\"", "\"");
    for (words, said) in [("  ", "empty"), ("Seen before: <b>x</b>", "noted"), ("Seen before: <b>x</b>", "again")] {
        let to = told(&ops.post(&format!("/ops/events/{id}/note"), &[("key", key), ("note", words)]).await);
        assert_eq!(to, said, "{words}");
    }
    assert_eq!(ops.count("select count(*) from event_notes").await, 2);
    assert_eq!(ops.count("select count(*) from operator_actions").await, 2);
    let page = ops.page(&format!("/ops/events/{id}")).await;
    assert!(page.contains("Seen before: &#60;b&#62;x&#60;/b&#62;"), "{page}");
}

fn told(answer: &Answer) -> String {
    let to = answer.leads_to();
    between(&to, "said=", "#").to_owned()
}

#[tokio::test]
async fn everything_an_operator_did_is_shown_and_cannot_be_undone() {
    let ops = Ops::new().await;
    let ids = ops.dead(2).await;
    let (key, verdict) = form(&ops, ids[0]).await;
    acknowledge(&ops, ids[0], (&key, &verdict), "may rest").await;
    ops.post(&format!("/ops/events/{}/replay", ids[1]), &[]).await;
    let again = ops.post(&format!("/ops/events/{}/replay", ids[1]), &[]).await;
    assert!(again.leads_to().contains("said=in-progress"), "what was not done is no action");
    let bulk = ops.asked("?status=dead&reason=broke", "7").await;
    ops.post(&format!("/ops/replays/{bulk}/cancel"), &[]).await;
    let page = ops.page("/ops/actions").await;
    let did: Vec<&str> =
        ["called a replay of many off", "asked for a replay of many", "replayed an event", "acknowledged an event"].to_vec();
    let found: Vec<usize> = did.iter().map(|did| page.find(did).unwrap_or_else(|| panic!("`{did}` is not in\n{page}"))).collect();
    assert!(found.is_sorted(), "newest first: {found:?}");
    for words in ["kp_olive@example.com (kp_olive)", "?status=dead&#38;reason=broke, at most 7", "<q>may rest</q>"] {
        assert!(page.contains(words), "the page does not say `{words}`:\n{page}");
    }
    assert_eq!(ops.count("select count(*) from operator_actions").await, 4);
    for sql in [
        "update operator_actions set done_by = 'nobody'",
        "delete from operator_actions",
        "truncate operator_actions",
        "update event_notes set note = ''",
        "delete from event_notes",
    ] {
        let refused = sqlx::query(sql).execute(&ops.app.pool).await.unwrap_err();
        assert!(refused.to_string().contains("append-only"), "{sql}: {refused}");
    }
}
