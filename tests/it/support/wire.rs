//! A wire between the program and its database that a test can cut, or make fall silent, at a chosen moment.
//!
//! It stands in for the socket of the server, so the program's own pool and driver are what is tested.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::{Notify, watch};

use super::Scratch;
use super::db::TestDb;

/// What the wire does with whatever comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mood {
    Passing,
    /// Nothing goes through in either direction, and nobody is told: a host that dropped off the net.
    Silent,
    /// Cut as soon as the program sends this text, before the server sees it.
    CutRequest(String),
    /// Cut when the server is done with a request that has this text in it: committed, and the answer never comes.
    CutAnswer(String),
    /// The same answer, but for its last message, which is the one that says that it is committed.
    CutLastWord(String),
}

pub struct Wire {
    folder: Scratch,
    mood: watch::Sender<Mood>,
    pub cuts: Arc<Notify>,
}

trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Socket for S {}

impl Wire {
    pub fn to(db: &TestDb) -> Self {
        let (folder, mood, cuts) = (Scratch::new(), watch::Sender::new(Mood::Passing), Arc::new(Notify::new()));
        let server = db.options();
        let listener = UnixListener::bind(folder.path().join(format!(".s.PGSQL.{}", server.get_port()))).unwrap();
        let (moods, told) = (mood.subscribe(), Arc::clone(&cuts));
        tokio::spawn(async move {
            while let Ok((program, _)) = listener.accept().await {
                let (server, mood, cuts) = (server.clone(), moods.clone(), Arc::clone(&told));
                tokio::spawn(async move {
                    let server = connect(&server).await.unwrap();
                    if carry(program, server, mood).await == Ended::Cut {
                        cuts.notify_one();
                    }
                });
            }
        });
        Self { folder, mood, cuts }
    }

    /// The database, by way of this wire.
    pub fn options(&self, db: &TestDb) -> PgConnectOptions {
        db.options().socket(self.folder.path()).ssl_mode(PgSslMode::Disable)
    }

    pub fn now(&self, mood: Mood) {
        self.mood.send_replace(mood);
    }
}

async fn connect(options: &PgConnectOptions) -> io::Result<Box<dyn Socket>> {
    match options.get_socket() {
        Some(folder) => {
            let socket = folder.join(format!(".s.PGSQL.{}", options.get_port()));
            Ok(Box::new(UnixStream::connect(socket).await?))
        }
        None => Ok(Box::new(TcpStream::connect((options.get_host(), options.get_port())).await?)),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Ended {
    ByThem,
    Cut,
}

/// A silent wire stays silent for the connections it had: they are never heard of again.
async fn carry(mut program: UnixStream, mut server: Box<dyn Socket>, mood: watch::Receiver<Mood>) -> Ended {
    let (mut from_program, mut from_server) = (vec![0; 256 * 1024], vec![0; 64 * 1024]);
    let mut asked = false;
    let mut answers = Answers::default();
    loop {
        tokio::select! {
            read = program.read(&mut from_program) => {
                let Ok(len @ 1..) = read else { return Ended::ByThem };
                let bytes = &from_program[..len];
                let now = mood.borrow().clone();
                match now {
                    Mood::Silent => silence().await,
                    Mood::CutRequest(text) if holds(bytes, &text) => return Ended::Cut,
                    Mood::CutAnswer(text) | Mood::CutLastWord(text) if holds(bytes, &text) => asked = true,
                    _ => {}
                }
                if server.write_all(bytes).await.is_err() { return Ended::ByThem }
            }
            read = server.read(&mut from_server) => {
                let Ok(len @ 1..) = read else { return Ended::ByThem };
                let bytes = &from_server[..len];
                let done = answers.end_in(bytes);
                let now = mood.borrow().clone();
                match (now, done) {
                    (Mood::Silent, _) => silence().await,
                    (Mood::CutAnswer(_), done) if asked => {
                        if done.is_some() { return Ended::Cut }
                        continue;
                    }
                    (Mood::CutLastWord(_), Some(at)) if asked => {
                        let _ = program.write_all(&bytes[..at]).await;
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        return Ended::Cut;
                    }
                    _ => {}
                }
                if program.write_all(bytes).await.is_err() { return Ended::ByThem }
            }
        }
    }
}

async fn silence() {
    std::future::pending::<()>().await;
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Follows the server's messages: a byte of kind, four of length, the rest.
#[derive(Default)]
struct Answers {
    head: Vec<u8>,
    left: usize,
}

impl Answers {
    /// Where the message "ready for the next query" begins, if it is among these bytes.
    fn end_in(&mut self, bytes: &[u8]) -> Option<usize> {
        let (mut at, mut found) = (0, None);
        while at < bytes.len() {
            if self.left > 0 {
                let step = self.left.min(bytes.len() - at);
                self.left -= step;
                at += step;
                continue;
            }
            if self.head.is_empty() && bytes[at] == b'Z' {
                found = Some(at);
            }
            self.head.push(bytes[at]);
            at += 1;
            if self.head.len() == 5 {
                let len = u32::from_be_bytes(self.head[1..].try_into().unwrap());
                self.left = usize::try_from(len).unwrap() - 4;
                self.head.clear();
            }
        }
        found
    }
}
