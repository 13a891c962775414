//! Drills: what an operator wants to have seen once before it happens. Small ones run with every test; the others are asked for
//! by name, with `-- --ignored`.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bottle::alerts::Alerts;
use bottle::alerts::outgoing::Channels;
use bottle::checkpoint::Step;
use bottle::clock::Clock;
use bottle::domain::event::Source;
use bottle::domain::ids::EventKey;
use bottle::wake::Wake;
use bottle::worker::{Crew, Lane};
use rustix::process::Signal;
use tokio::time::Instant;

use crate::support::app::{App, Event, Setup, eventually};
use crate::support::binary::{Bottle, Home};
use crate::support::claims::says;
use crate::support::deliveries::{Sender, TENANT_URL, Upgrade, assert_as_the_oracle_says, count, settled};
use crate::support::load::Ground;
use crate::support::pipeline::{At, Pipeline, fault};

/// All handlers fail for two hours, which are passed and not waited for; then the release is mended.
#[tokio::test]
async fn a_release_that_fails_every_event_for_two_hours_kills_none_alerts_once_and_is_made_good() {
    let mut p = Pipeline::new().await;
    p.deliver_unsigned(&[says("before", "before", "10-21 09:00:00 paid -")]).await;
    p.drain().await;
    let bad = Arc::new(AtomicBool::new(true));
    let watch = {
        let bad = Arc::clone(&bad);
        Arc::new(At(
            move |step, _: &[&EventKey]| if step == Step::Locked && bad.load(Ordering::SeqCst) { Err(fault()) } else { Ok(()) },
        ))
    };
    let mut crew = Crew::new(p.watched(watch), Wake::default());
    let alerts = Alerts { pool: p.pool.clone(), providers: vec![Source::Kinde], nightly: false, channels: Channels::default() };
    let mut breaker = Instant::now();
    let (mut raised, mut stored) = (Vec::new(), 1);
    for minute in 0..125_u32 {
        // Every minute something comes; the last five minutes are after the fix.
        if minute == 120 {
            bad.store(false, Ordering::SeqCst);
        }
        let name = format!("m{minute:03}");
        p.deliver_unsigned(&[says(&name, &name, "10-21 10:00:00 changed - pro")]).await;
        stored += 1;
        crew.engine.clock = Clock::At(p.now);
        for lane in [Lane::Probing, Lane::Other] {
            for _ in 0..60 {
                if crew.turn(lane, breaker).await.unwrap() != bottle::worker::Turn::Worked {
                    break;
                }
            }
        }
        // What is old by the drill's clock is not by the database's, so of the alerts only the breaker's can be raised.
        raised.extend(alerts.look().await.unwrap().raised);
        p.later(Duration::from_secs(60));
        breaker += Duration::from_secs(60);
    }
    let raised: Vec<&String> = raised.iter().filter(|condition| *condition == "breaker").collect();
    assert_eq!((raised.len(), crew.alarms().await), (1, 1), "somebody is told, once");
    assert_eq!(p.value::<i64>("select count(*) from inbox_events where status = 'dead'").await, 0);
    assert_eq!(p.value::<i64>("select count(*) from inbox_events where status = 'applied'").await, stored, "all is made good");
    assert_eq!(
        p.value::<i64>("select count(*) from alerts where condition = 'breaker' and cleared_at is null").await,
        0,
        "and it is over"
    );
    p.check_invariants().await;
}

/// What one process does is seen on pages that another serves: no process keeps anything that the other needs.
#[tokio::test]
async fn a_page_that_one_process_serves_learns_of_what_another_received() {
    let one = Setup { worker: true, ..Setup::default() }.start().await;
    let other = Setup::default().start_on(one.db.second()).await;
    // Signed in at the first, served by the second.
    let ada = one.sign_in("kp_ada").await;
    let mut stream = other.http.get(other.url("/live")).header("cookie", &ada.cookie).send().await.unwrap();
    assert_eq!(stream.status(), 200);
    let first = told(&mut stream).await;
    let event = Event::upgrade("kp_ada", "2026-10-21T10:00:00Z");
    one.deliver(event.token.clone()).await;
    one.worked_off().await;
    let began = std::time::Instant::now();
    let second = tokio::time::timeout(Duration::from_secs(5), told(&mut stream)).await.unwrap();
    assert!(first != second && began.elapsed() < Duration::from_secs(2), "{first} {second} {:?}", began.elapsed());
    let page = other.get_as(&ada, "/account").await.text;
    assert!(page.contains(&format!("data-version=\"{second}\"")), "{page}");
    assert!(page.contains("plan set to pro"), "it shows what came: {page}");
    // And a sign-out at one is a sign-out at the other.
    one.post_as(&ada, "/logout", &[]).await;
    eventually("the other forgets them too", async || other.get_as(&ada, "/account").await.status != 200).await;
}

async fn told(stream: &mut reqwest::Response) -> String {
    let mut text = String::new();
    loop {
        text += str::from_utf8(&stream.chunk().await.unwrap().expect("the stream goes on")).unwrap();
        if let Some(data) = text.split("data: ").nth(1).filter(|_| text.contains("\n\n")) {
            return data.lines().next().unwrap().to_owned();
        }
    }
}

/// What is to be done once is done by one of many.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_due_once_is_done_once_however_many_processes_look() {
    let app = App::start().await;
    sqlx::query(
        "insert into inbox_events (source, dedupe_key, type, digest, received_at, status, due_at)
         values ('kinde', 'e', 'x', '', now(), 'dead', now())",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    let looks = (0..8).map(|_| async {
        let alerts =
            Alerts { pool: app.db.pool().await, providers: vec![Source::Kinde], nightly: false, channels: Channels::default() };
        alerts.look().await.unwrap().raised
    });
    let raised: Vec<String> = futures_util::future::join_all(looks).await.into_iter().flatten().collect();
    assert_eq!(raised, ["dead"], "told once");
}

/// The program of the release before, at this one's schema, while this one runs beside it. Give the program, built from that
/// release's checkout, by `BOTTLE_PREVIOUS_BIN`, or its commit by `BOTTLE_PREVIOUS`, and it is built in a work tree.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the program of the release before; building it takes minutes"]
async fn a_drill_of_the_release_before_beside_this_one_on_this_ones_schema() {
    let (program, home, ground, sender) = (previous(), Home::new(), Ground::new_without_migrations().await, Sender::new());
    let url = ground.url();
    let settings = [("DATABASE_URL", url.as_str()), ("KINDE_DOMAIN", TENANT_URL.as_str())];
    let old = async |command: &str| {
        let mut all = home.command(&[command], &settings);
        let mut this = Command::new(&program);
        this.args(all.get_args()).current_dir(home.path()).stdin(std::process::Stdio::null()).env_clear();
        this.envs(all.get_envs().filter_map(|(name, value)| Some((name, value?))));
        all.stdin(std::process::Stdio::null());
        Bottle::spawn_until_ready(this).await
    };
    // It makes its own schema and works on it, then this release's processes come, migrate, and work beside it.
    let (mut old_web, mut old_worker) = (old("serve").await, old("worker").await);
    let before: Vec<Upgrade> = (0..5).map(|_| Upgrade::new()).collect();
    for event in before.iter().flat_map(Upgrade::nine) {
        assert_eq!(sender.post(old_web.addr(), event).await, Some(200));
    }
    let said = ground.run(&["migrate"]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    eprintln!("{}", said.out.trim());
    let mut new_web = ground.start("serve", &[]).await;
    let people: Vec<Upgrade> = (0..40).map(|_| Upgrade::new()).collect();
    for (n, event) in people.iter().flat_map(Upgrade::nine).enumerate() {
        let to = if n % 2 == 0 { old_web.addr() } else { new_web.addr() };
        assert_eq!(sender.post(to, event).await, Some(200));
    }
    settled(&ground.pool).await;
    for person in before.iter().chain(&people) {
        assert_as_the_oracle_says(&ground.pool, &person.user, &person.events()).await;
    }
    assert_eq!(count(&ground.pool, "select count(*) from inbox_events where attempts > 0").await, 0, "nobody failed");
    let settled_by = |bottle: &Bottle| bottle.log().lines().filter(|line| line.contains("event settled")).count();
    let shares = [settled_by(&old_web) + settled_by(&old_worker), settled_by(&new_web)];
    assert!(shares.iter().all(|n| *n > 0), "both work: {shares:?}");
    for one in [&mut old_web, &mut old_worker, &mut new_web] {
        assert!(!one.log().lines().any(|line| line.contains("ERROR")), "{}", one.log());
        assert_eq!(one.told(Signal::TERM).await.0.code(), Some(0));
    }
    assert_eq!(ground.run(&["check"]).await.code, Some(0));
    eprintln!("settled by the release before and by this one: {shares:?}");
}

fn previous() -> PathBuf {
    if let Some(program) = std::env::var_os("BOTTLE_PREVIOUS_BIN") {
        return program.into();
    }
    let commit = std::env::var("BOTTLE_PREVIOUS").expect("BOTTLE_PREVIOUS_BIN or BOTTLE_PREVIOUS says which release is meant");
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let tree = root.join("target/previous");
    let run = |command: &mut Command| assert!(command.status().unwrap().success(), "{command:?}");
    if !tree.exists() {
        run(Command::new("git").current_dir(&root).args(["worktree", "add", "--detach", "target/previous"]).arg(&commit));
    }
    run(Command::new("git").current_dir(&tree).args(["checkout", "--detach"]).arg(&commit));
    run(Command::new("cargo").current_dir(&tree).args(["build", "--locked", "--target-dir", "target"]));
    tree.join("target/debug/bottle")
}
