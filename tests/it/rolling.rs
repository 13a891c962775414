//! Processes restarted one after another under load: two with web pages and two workers, on one database. Nothing that was
//! acknowledged is lost, nobody is charged, no lease stays; and no sender whose connection was taken is left without an answer.

use std::collections::{BTreeSet, VecDeque};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::Signal;
use tokio::task::JoinSet;

use crate::support::app::{App, eventually};
use crate::support::binary::Bottle;
use crate::support::deliveries::{Event, Upgrade, assert_as_the_oracle_says, count, settled};
use crate::support::load::Ground;

const SENDERS: usize = 6;

/// A provider whose load balancer knows both processes. It sends each delivery over a connection of its own, as one that comes
/// from anywhere does, and tries again only if there was no answer.
#[derive(Default)]
struct Provider {
    people: Mutex<Vec<Upgrade>>,
    to_send: Mutex<VecDeque<Event>>,
    acked: Mutex<BTreeSet<String>>,
    answers: AtomicUsize,
    /// The connection was not taken.
    refused: AtomicUsize,
    /// It was taken, and then there was no answer.
    cut: Mutex<Vec<String>>,
    stopped: AtomicBool,
}

impl Provider {
    fn next(&self) -> Event {
        let mut to_send = self.to_send.lock().unwrap();
        if to_send.is_empty() {
            let person = Upgrade::new();
            to_send.extend(person.nine().into_iter().cloned());
            self.people.lock().unwrap().push(person);
        }
        to_send.pop_front().unwrap()
    }

    async fn send(&self, http: &reqwest::Client, at: &[SocketAddr; 2], event: &Event) {
        for attempt in rand::random_range(0..2).. {
            let to = at[attempt % 2];
            let request = http.post(format!("http://{to}/webhooks/kinde")).header("webhook-id", format!("msg_{}", event.key));
            let answer = async {
                let answer = request.body(event.token.clone()).send().await?;
                Ok::<_, reqwest::Error>((answer.status().as_u16(), answer.text().await?))
            };
            match answer.await {
                Ok((200, _)) => {
                    self.acked.lock().unwrap().insert(event.key.clone());
                    self.answers.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Ok((status, text)) => panic!("answered with {status}: {text}"),
                Err(error) if error.is_connect() => {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => self.cut.lock().unwrap().push(crate::support::chain(&error)),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn sends(self: &Arc<Self>, at: [SocketAddr; 2]) -> JoinSet<()> {
        let mut senders = JoinSet::new();
        for _ in 0..SENDERS {
            let provider = Arc::clone(self);
            let http =
                reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).timeout(Duration::from_secs(15)).build().unwrap();
            senders.spawn(async move {
                while !provider.stopped.load(Ordering::SeqCst) {
                    let event = provider.next();
                    provider.send(&http, &at, &event).await;
                }
            });
        }
        senders
    }
}

async fn drill(restarts: usize) -> String {
    let ground = Ground::new().await;
    let mut webs = [ground.start("serve", &[]).await, ground.start("serve", &[]).await];
    let at = [webs[0].addr(), webs[1].addr()];
    let mut workers = [ground.start("worker", &[]).await, ground.start("worker", &[]).await];
    let provider = Arc::new(Provider::default());
    let senders = provider.sends(at);
    let mut longest = Duration::ZERO;
    for n in 0..restarts {
        let before = provider.answers.load(Ordering::Relaxed);
        while provider.answers.load(Ordering::Relaxed) < before + 20 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let place = n / 2 % 2;
        let (command, one): (_, &mut Bottle) =
            if n % 2 == 0 { ("serve", &mut webs[place]) } else { ("worker", &mut workers[place]) };
        let (status, took) = one.told(Signal::TERM).await;
        assert_eq!(status.code(), Some(0), "{}", one.log());
        longest = longest.max(took);
        let addr = at[place].to_string();
        *one = ground.start(command, &[("BOTTLE_ADDR", if n % 2 == 0 { &addr } else { "127.0.0.1:0" })]).await;
    }
    provider.stopped.store(true, Ordering::SeqCst);
    senders.join_all().await;
    // What was begun for somebody is sent to its end, so that each account can be held against what it was told.
    let http = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap();
    let rest: Vec<Event> = provider.to_send.lock().unwrap().drain(..).collect();
    for event in &rest {
        provider.send(&http, &at, event).await;
    }
    settled(&ground.pool).await;
    for one in webs.iter_mut().chain(&mut workers) {
        assert_eq!(one.told(Signal::TERM).await.0.code(), Some(0));
    }
    let acked = provider.acked.lock().unwrap().clone();
    ground.assert_whole(&acked).await;
    assert_eq!(ground.in_processing().await, 0, "leases left");
    assert_eq!(count(&ground.pool, "select count(*) from inbox_events where claims > 0").await, 0, "claims left");
    let people = provider.people.lock().unwrap();
    for person in people.iter() {
        assert_as_the_oracle_says(&ground.pool, &person.user, &person.events()).await;
    }
    let cut = provider.cut.lock().unwrap();
    assert!(cut.is_empty(), "{} connections were taken and then cut: {:?}", cut.len(), &cut[..cut.len().min(5)]);
    format!(
        "{restarts} restarts, the longest stop took {longest:?}; {} people, {} deliveries answered, {} connections refused while a process was away, 0 taken and cut",
        people.len(),
        provider.answers.load(Ordering::Relaxed),
        provider.refused.load(Ordering::Relaxed),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_restarts_under_load_lose_nothing_charge_nobody_and_cut_no_one_off() {
    eprintln!("{}", drill(4).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a drill of a few minutes"]
async fn a_drill_of_twenty_restarts_under_load() {
    eprintln!("{}", drill(20).await);
}

/// The system takes connections on for a program that has not looked yet; a client cannot tell, and sends.
#[tokio::test]
async fn whoever_was_taken_on_before_a_stop_is_answered_after_it() {
    let app = App::start().await;
    // Nothing of ours runs between these lines: they all wait where the program has not looked, or have just been let in.
    let mut clients: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(app.address).unwrap()).collect();
    app.stop();
    tokio::time::sleep(Duration::from_millis(60)).await;
    for client in &mut clients {
        let request = "GET /health/live HTTP/1.1\r\nHost: bottle.test\r\nConnection: close\r\n\r\n";
        client.write_all(request.as_bytes()).unwrap();
    }
    let answers = tokio::task::spawn_blocking(move || {
        let read = |mut client: TcpStream| {
            client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).map_or_else(|error| error.to_string(), |_| answer)
        };
        clients.into_iter().map(read).collect::<Vec<_>>()
    });
    for answer in answers.await.unwrap() {
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("alive\n"), "{answer:?}");
    }
    eventually("it stops", async || app.has_stopped()).await;
    assert!(TcpStream::connect(app.address).is_err(), "and nobody else is let in");
}
