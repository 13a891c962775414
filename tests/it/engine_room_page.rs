//! The Engine Room's page, drawn from a run told by hand.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use bottle::domain::plan::Plan;
use bottle::engine_room::address::{Address, BadAddress};
use bottle::engine_room::scenario::Script;
use bottle::engine_room::{Account, EveryOrder, EveryOrderResult};
use bottle::web::engine_room_view::{View, render};
use bottle::web::{error_page, home};

use crate::support::sample_run::sample_run;

fn page(query: &str) -> String {
    page_with(query, &EveryOrder::NotRun)
}

fn page_with(query: &str, every_order: &EveryOrder) -> String {
    let asked = Address::parse(query);
    let address = asked.clone().unwrap_or_default();
    let problem: Option<&BadAddress> = asked.as_ref().err();
    render(&View { person: None, run: &sample_run(&address.script), address: &address, problem, every_order }).unwrap()
}

fn done() -> EveryOrder {
    let spread = [((Plan::Pro, 500), 1_310), ((Plan::Free, 10), 504), ((Plan::Pro, 2_950), 2_040), ((Plan::Free, 1_970), 3_100)];
    EveryOrder::Done(EveryOrderResult {
        schedules: 12_600,
        ended_right: 12_600,
        one_grant: 12_600,
        took: Duration::from_secs(41),
        naive_spread: spread.map(|((plan, balance), count)| (Account { plan, balance }, count)).into(),
    })
}

const TWENTY: &str = "script=PAY.UP.UP.PAY.PAY.PAY.OLD.UP.PAY.PAY.PAY.UP.UP.PAY.PAY.OLD.OLD.UP.PAY.PAY&stop=2-after-store";

fn everything() -> BTreeMap<String, String> {
    let mut pages: BTreeMap<String, String> = (0..=9).map(|n| (format!("step-{n}"), page(&format!("step={n}")))).collect();
    pages.insert("end".into(), page_with("", &done()));
    pages.insert("dedupe".into(), page_with("repair=dedupe", &EveryOrder::Running { done: 4_410, total: 12_600 }));
    pages.insert("repaired".into(), page("repair=dedupe.transaction.guard.key"));
    pages.insert("twenty".into(), page(TWENTY));
    pages.insert("late-stop".into(), page("script=OLD.UP.PAY.UP.PAY.PAY.PAY&stop=7-halfway"));
    pages.insert("problem".into(), page("script=UP.DOWN"));
    pages.insert("playing".into(), page("step=4&play=1"));
    pages.insert("failed".into(), page_with("", &EveryOrder::Failed { why: "the database went away".into() }));
    pages.insert("home".into(), home::render(None, Some("http://127.0.0.1:3001"), true).unwrap());
    pages.insert("not-found".into(), error_page::not_found().render(None).unwrap());
    pages.insert("error".into(), error_page::failed(Some("0199f3c2")).render(None).unwrap());
    pages
}

/// For looking at: open `target/preview/end.html` in a browser.
#[test]
fn every_page_is_written_for_looking_at() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/preview");
    fs::create_dir_all(&folder).unwrap();
    for (name, html) in everything() {
        fs::write(folder.join(format!("{name}.html")), html.replace("=\"/static/", "=\"../../static/")).unwrap();
    }
}

#[test]
fn no_page_carries_style_or_script_of_its_own() {
    for (name, html) in everything() {
        assert!(!html.contains("style="), "{name}");
        assert!(!html.contains("<style"), "{name}");
        for script in html.split("<script").skip(1) {
            assert!(script.starts_with(" src=\"/static/") && script.contains("></script>"), "{name}: {script:.80}");
        }
        let handlers = ["onclick", "onload", "onchange", "onsubmit", "javascript:"];
        assert!(handlers.iter().all(|handler| !html.contains(handler)), "{name}");
    }
}

#[test]
fn no_page_is_heavier_than_60_kb() {
    for (name, html) in everything() {
        assert!(html.len() < 60_000, "{name}: {} bytes", html.len());
    }
}

#[test]
fn every_id_stands_once() {
    for (name, html) in everything() {
        let mut seen = std::collections::BTreeSet::new();
        for id in html.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(seen.insert(id), "{name}: {id}");
        }
    }
}

/// The script in the page moves attributes of elements with equal ids; an element that is not there cannot move.
#[test]
fn every_step_has_the_elements_of_every_other() {
    let ids =
        |html: &str| html.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next().map(String::from)).collect::<Vec<_>>();
    let first = ids(&page("step=0"));
    for n in 1..=9 {
        assert_eq!(ids(&page(&format!("step={n}"))), first, "step {n}");
    }
}

#[test]
fn the_page_says_how_the_article_ends() {
    let html = page("");
    for said in [
        "Three billing events arrive as nine deliveries",
        "2,950 bottles, that is 2,450 too many; Bottle ends at 500 bottles, which is right.",
        "9 deliveries arrived, 3 events stored, 6 copies counted and dropped; 1 stopped on the way",
        "granted once",
        "src/inbox/queue.rs",
        "SIGKILL",
    ] {
        assert!(html.contains(said), "{said}");
    }
}

#[test]
fn a_bad_address_is_explained_and_leads_back() {
    let html = page("script=UP.DOWN");
    assert!(html.contains("no event called “DOWN”") && html.contains("href=\"/engine-room\""));
    assert!(page("script=<b>.UP").contains("“&#60;b&#62;”"));
}

#[test]
fn the_run_is_printed_for_programs_under_promised_names() {
    let json = serde_json::to_string(&sample_run(&Script::article()).json()).unwrap();
    let (first, summary) = (json.find("},{").unwrap(), json.find("\"summary\"").unwrap());
    insta::assert_snapshot!(&json[..first], @r#"{"deliveries":[{"n":1,"event":"PAY","naive":{"plan":"free","balance":10},"pipeline":{"plan":"free","balance":10,"outcome":"stored; payment recorded; no Pro plan it belongs to"}"#);
    insta::assert_snapshot!(&json[summary..], @r#""summary":{"copies_arrived":9,"events_stored":3,"copies_dropped":6,"interrupted":1,"naive":{"plan":"pro","balance":2950},"pipeline":{"plan":"pro","balance":500,"grants":1}}}"#);
    assert_eq!(json.matches("\"outcome\"").count(), 9);
}

#[test]
fn the_run_is_printed_for_a_terminal() {
    insta::assert_snapshot!(sample_run(&Script::article()).table(), @r"
     #  at (UTC)         delivery          naive handler  Bottle      what Bottle did
     1  21 Oct 10:03:00  PAY               free  10       free  10    stored; payment recorded; no Pro plan it belongs to
     2  21 Oct 10:12:35  UP, stop          pro   10       free  10    stored; rolled back whole; its lease ends in 30 s
     3  21 Oct 11:12:35  UP, copy 2        pro   500      pro   500   copy counted; the stored event runs to the end: plan set to pro, Pro allowance granted
     4  21 Oct 11:15:35  PAY, copy 2       pro   990      pro   500   copy counted, nothing runs
     5  21 Oct 15:15:35  PAY, copy 3       pro   1,480    pro   500   copy counted, nothing runs
     6  22 Oct 03:15:35  PAY, copy 4       pro   1,970    pro   500   copy counted, nothing runs
     7  22 Oct 15:09:35  OLD               free  1,970    pro   500   stored; ignored: a newer plan change is already stored
     8  22 Oct 15:12:35  UP, copy 3        pro   2,460    pro   500   copy counted, nothing runs
     9  22 Oct 15:15:35  PAY, copy 5       pro   2,950    pro   500   copy counted, nothing runs

    9 deliveries arrived, 3 events stored, 6 copies counted and dropped, 1 stopped on the way.
    Bottle: pro, 500; the Pro allowance was granted once. Naive handler: pro, 2,950; that is 2,450 too many.
    ");
}
