//! A mail server for the tests: sockets are ours, the conversation is that of an independent SMTP implementation.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use mail_parser::MessageParser;
use mailin::{Action, AuthMechanism, Handler, Response, SessionBuilder, response};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What the server does with a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    Takes,
    /// Answers the recipient with this.
    Refuses(u16),
    /// Takes the letter, and hangs up instead of saying so.
    HangsUp,
}

/// A letter that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    pub from: String,
    pub to: Vec<String>,
    pub subject: String,
    pub text: String,
    pub id: String,
    pub raw: String,
}

pub struct Smtp {
    pub addr: SocketAddr,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

struct Shared {
    /// Whoever gives another password, or none, is sent away. None: nobody is asked.
    password: Option<String>,
    mood: Mutex<Mood>,
    received: Mutex<Vec<Received>>,
}

impl Smtp {
    pub async fn start() -> Self {
        Self::asking(None).await
    }

    /// It lets in who has this password.
    pub async fn behind(password: &str) -> Self {
        Self::asking(Some(password.to_owned())).await
    }

    async fn asking(password: Option<String>) -> Self {
        let shared = Shared { password, mood: Mutex::new(Mood::Takes), received: Mutex::default() };
        Self::listen("127.0.0.1:0".parse().unwrap(), Arc::new(shared)).await
    }

    async fn listen(addr: SocketAddr, shared: Arc<Shared>) -> Self {
        let listener = TcpListener::bind(addr).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let of_all = Arc::clone(&shared);
        let serving = tokio::spawn(async move {
            let mut sessions = tokio::task::JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                sessions.spawn(converse(socket, Arc::clone(&of_all)));
            }
        });
        Self { addr, shared, serving }
    }

    /// Ends, with every connection: nobody listens there any more.
    pub async fn away(self) -> Away {
        self.serving.abort();
        let _ = self.serving.await;
        Away { addr: self.addr, shared: self.shared }
    }

    pub fn url(&self) -> String {
        format!("smtp://{}", self.addr)
    }

    pub fn now(&self, mood: Mood) {
        *self.shared.mood.lock().unwrap() = mood;
    }

    pub fn received(&self) -> Vec<Received> {
        self.shared.received.lock().unwrap().clone()
    }
}

/// The server while it is away.
pub struct Away {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

impl Away {
    pub async fn back(self) -> Smtp {
        Smtp::listen(self.addr, self.shared).await
    }
}

async fn converse(socket: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
    let mut socket = BufReader::new(socket);
    let reader = Reader { shared, from: String::new(), to: Vec::new(), data: Vec::new(), hang_up: Arc::default() };
    let hang_up = Arc::clone(&reader.hang_up);
    let mut builder = SessionBuilder::new("mail.test");
    if reader.shared.password.is_some() {
        builder.enable_auth(AuthMechanism::Plain).insecure_enable_plaintext_auth();
    }
    let mut session = builder.build(IpAddr::from([127, 0, 0, 1]), reader);
    socket.write_all(&session.greeting().buffer()?).await?;
    let mut line = Vec::new();
    while socket.read_until(b'\n', &mut line).await? > 0 {
        let answer = session.process(&line);
        line.clear();
        if *hang_up.lock().unwrap() {
            return Ok(());
        }
        if !matches!(answer.action, Action::NoReply) {
            socket.write_all(&answer.buffer()?).await?;
        }
        if matches!(answer.action, Action::Close) {
            return Ok(());
        }
    }
    Ok(())
}

struct Reader {
    shared: Arc<Shared>,
    from: String,
    to: Vec<String>,
    data: Vec<u8>,
    hang_up: Arc<Mutex<bool>>,
}

impl Handler for Reader {
    fn auth_plain(&mut self, _authorization_id: &str, _user: &str, password: &str) -> Response {
        let is_right = self.shared.password.as_deref() == Some(password);
        if is_right { response::AUTH_OK } else { response::INVALID_CREDENTIALS }
    }

    fn mail(&mut self, _ip: IpAddr, _domain: &str, from: &str) -> Response {
        (self.from, self.to, self.data) = (from.to_owned(), Vec::new(), Vec::new());
        response::OK
    }

    fn rcpt(&mut self, to: &str) -> Response {
        if let Mood::Refuses(code) = *self.shared.mood.lock().unwrap() {
            return Response::custom(code, "not here, not now".to_owned());
        }
        self.to.push(to.to_owned());
        response::OK
    }

    fn data(&mut self, line: &[u8]) -> io::Result<()> {
        self.data.extend_from_slice(line);
        Ok(())
    }

    fn data_end(&mut self) -> Response {
        let message = MessageParser::default().parse(&self.data).expect("a letter that can be read");
        self.shared.received.lock().unwrap().push(Received {
            from: self.from.clone(),
            to: self.to.clone(),
            subject: message.subject().unwrap_or_default().to_owned(),
            text: message.body_text(0).unwrap_or_default().replace("\r\n", "\n"),
            id: message.message_id().unwrap_or_default().to_owned(),
            raw: String::from_utf8_lossy(&self.data).into_owned(),
        });
        *self.hang_up.lock().unwrap() = *self.shared.mood.lock().unwrap() == Mood::HangsUp;
        response::OK
    }
}
