//! The guarded HTTP client: one per outside party, tied to the origin in our settings.
//!
//! Every call that leaves this program goes through it, so what a call may not do is decided here once: reach another host,
//! follow a redirect, end up inside our own network, last longer than five seconds, or fill the memory. What is asked of
//! the other side, and what an answer means, belongs to the callers.
//!
//! Proxies from the environment are not used: a proxy would resolve names itself, behind the guard's back.

mod address;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::HeaderMap;
use reqwest::{Method, Request, StatusCode, Url};

use crate::telemetry::calls;
use crate::telemetry::labels::{Call, CallEnd};

use address::Reach;

const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// From the first byte sent to the last byte read.
const TOTAL_LIMIT: Duration = Duration::from_secs(5);

/// A client for one origin. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    reach: Reach,
}

/// An answer that was read in full. Its status is for the caller to judge.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub enum OutboundError {
    /// We would not make this call. Trying again changes nothing until the settings or the other side's DNS change.
    #[error("refused to call: {0}")]
    Refused(String),
    /// No answer, or half of one. Worth another try.
    #[error("no answer")]
    Unavailable(#[source] reqwest::Error),
    #[error("the answer is longer than {cap} bytes")]
    TooLarge { cap: usize },
    #[error("answered with status {0}")]
    Status(StatusCode),
}

impl Client {
    /// `base` is an https address, or an http address of this machine (for the local stand-ins). Only its origin counts.
    ///
    /// # Errors
    /// `Refused` when `base` is neither; `Unavailable` when TLS cannot be set up on this machine.
    pub fn new(base: &str) -> Result<Self, OutboundError> {
        Self::looking_up(base, |host| Box::pin(async move { Ok(tokio::net::lookup_host((host, 0)).await?.collect()) }))
    }

    /// For a party of our own that may be in our own network, such as a collector beside us. By https it may be anywhere, in plain
    /// http only on this machine or in its private network; what a name leads to is looked at when it is connected to.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn near(base: &str) -> Result<Self, OutboundError> {
        Self::judged(base, address::reach_of_ours, |host| {
            Box::pin(async move { Ok(tokio::net::lookup_host((host, 0)).await?.collect()) })
        })
    }

    fn looking_up(base: &str, lookup: Lookup) -> Result<Self, OutboundError> {
        Self::judged(base, address::reach, lookup)
    }

    fn judged(base: &str, reach: fn(&Url) -> Result<Reach, &'static str>, lookup: Lookup) -> Result<Self, OutboundError> {
        let base = Url::parse(base).map_err(|e| OutboundError::Refused(format!("`{base}` is no address ({e})")))?;
        let reach = reach(&base).map_err(|why| OutboundError::Refused(format!("{}: {why}", origin(&base))))?;
        let http = reqwest::Client::builder()
            .user_agent(concat!("bottle/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_LIMIT)
            .timeout(TOTAL_LIMIT)
            .dns_resolver(Arc::new(Guard { reach, lookup }))
            .build()
            .map_err(OutboundError::Unavailable)?;
        Ok(Self { http, base, reach })
    }

    /// A request to `path` (or a full address of the same origin) to be filled in and handed to [`Client::send`].
    ///
    /// # Errors
    /// `Refused` when the address leads to another origin.
    pub fn request(&self, method: Method, path: &str) -> Result<reqwest::RequestBuilder, OutboundError> {
        let url = self.base.join(path).map_err(|e| OutboundError::Refused(format!("`{path}` is no address ({e})")))?;
        self.stays_home(&url)?;
        Ok(self.http.request(method, url))
    }

    /// Sends a request and reads at most `cap` bytes of the answer, whatever its status.
    ///
    /// # Errors
    /// `Refused` for another origin or an address inside our network, `Unavailable`, `TooLarge`.
    pub async fn send(&self, request: Request, cap: usize) -> Result<Answer, OutboundError> {
        self.stays_home(request.url())?;
        let mut response = self.http.execute(request).await.map_err(sorted)?;
        if response.content_length().is_some_and(|announced| announced > cap as u64) {
            return Err(OutboundError::TooLarge { cap });
        }
        let mut body = Vec::new();
        // A chunked answer announces nothing, so what counts is what came.
        while let Some(chunk) = response.chunk().await.map_err(sorted)? {
            if body.len() + chunk.len() > cap {
                return Err(OutboundError::TooLarge { cap });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Answer { status: response.status(), headers: std::mem::take(response.headers_mut()), body })
    }

    /// As [`Client::send`], watched: how long it took and how it ended is told to whoever looks at metrics or traces.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn call(&self, call: Call, request: Request, cap: usize) -> Result<Answer, OutboundError> {
        calls::watch(call, self.send(request, cap), |result| match result {
            Ok(answer) => CallEnd::of_status(answer.status.as_u16()),
            Err(error) => error.as_end(),
        })
        .await
    }

    /// The body of a GET that was answered with 200.
    ///
    /// # Errors
    /// As [`Client::send`], and `Status` for any other status, redirects included.
    pub async fn get(&self, path: &str, cap: usize) -> Result<Vec<u8>, OutboundError> {
        let request = self.request(Method::GET, path)?.build().map_err(sorted)?;
        let answer = self.send(request, cap).await?;
        if answer.status == StatusCode::OK { Ok(answer.body) } else { Err(OutboundError::Status(answer.status)) }
    }

    /// It is tied to this machine.
    pub fn is_local(&self) -> bool {
        self.reach == Reach::Loopback
    }

    /// Whose origin it is tied to.
    pub fn home(&self) -> &Url {
        &self.base
    }

    /// The address is of that origin.
    pub fn is_home(&self, url: &Url) -> bool {
        url.origin() == self.base.origin()
    }

    fn stays_home(&self, url: &Url) -> Result<(), OutboundError> {
        if self.is_home(url) {
            Ok(())
        } else {
            Err(OutboundError::Refused(format!("{} is not {}", origin(url), origin(&self.base))))
        }
    }
}

impl OutboundError {
    /// How the call ended, as a call.
    pub fn as_end(&self) -> CallEnd {
        match self {
            Self::Refused(_) | Self::TooLarge { .. } => CallEnd::Stopped,
            Self::Unavailable(_) => CallEnd::Unreachable,
            Self::Status(status) => CallEnd::of_status(status.as_u16()),
        }
    }
}

/// Without path, query and credentials: those may hold secrets, and this goes into logs.
fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// The guard's refusal travels inside reqwest's error, so that it is taken out again here.
fn sorted(error: reqwest::Error) -> OutboundError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(this) = cause {
        if let Some(refusal) = this.downcast_ref::<NoAddressAllowed>() {
            return OutboundError::Refused(refusal.to_string());
        }
        cause = this.source();
    }
    OutboundError::Unavailable(error.without_url())
}

type Lookup = fn(String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>;

/// Asked at each new connection, so a name that changes its address later is judged again.
struct Guard {
    reach: Reach,
    lookup: Lookup,
}

#[derive(Debug, thiserror::Error)]
#[error("`{host}` resolves to no address that may be called")]
struct NoAddressAllowed {
    host: String,
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let (reach, host) = (self.reach, name.as_str().to_owned());
        let found = (self.lookup)(host.clone());
        Box::pin(async move {
            let mut found = found.await?;
            found.retain(|address| reach.allows(address.ip()));
            if found.is_empty() {
                return Err(NoAddressAllowed { host }.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::*;

    static LISTENER: OnceLock<SocketAddr> = OnceLock::new();

    #[tokio::test]
    async fn a_public_name_that_resolves_into_our_network_is_never_connected_to() {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        LISTENER.set(listener.local_addr().unwrap()).unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = Client::looking_up(&format!("https://tenant.example:{port}"), |_| {
            Box::pin(async { Ok(LISTENER.get().copied().into_iter().collect()) })
        })
        .unwrap();

        let error = client.get("/keys", 10).await.unwrap_err();
        assert!(matches!(&error, OutboundError::Refused(why) if why.contains("tenant.example")), "{error:?}");
        let knock = tokio::time::timeout(Duration::from_millis(100), listener.accept()).await;
        assert!(knock.is_err(), "somebody connected");
    }

    #[tokio::test]
    async fn a_party_of_ours_is_reached_in_plain_http_only_where_it_is_near() {
        for base in
            ["http://127.0.0.1:4318", "http://10.1.2.3:4318", "http://[fd00::1]:4318", "http://collector:4318", "https://8.8.8.8"]
        {
            assert!(Client::near(base).is_ok(), "{base}");
        }
        for base in ["http://8.8.8.8", "http://169.254.169.254", "https://169.254.169.254", "http://0.0.0.0", "ftp://collector"] {
            assert!(matches!(Client::near(base), Err(OutboundError::Refused(_))), "{base}");
        }
        let outside: Lookup = |_| Box::pin(async { Ok(vec![SocketAddr::from(([93, 184, 215, 14], 0))]) });
        let client = Client::judged("http://collector:1", address::reach_of_ours, outside).unwrap();
        assert!(matches!(client.get("/", 10).await, Err(OutboundError::Refused(_))), "a name that leads outside");
    }

    #[tokio::test]
    async fn a_local_name_that_resolves_outside_is_never_connected_to() {
        let client = Client::looking_up("http://stand-in.localhost:1", |_| {
            Box::pin(async { Ok(vec![SocketAddr::from(([93, 184, 215, 14], 0))]) })
        })
        .unwrap();
        assert!(matches!(client.get("/", 10).await, Err(OutboundError::Refused(_))));
    }
}
