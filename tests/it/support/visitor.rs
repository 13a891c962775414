//! Somebody with a browser: keeps cookies as browsers do, and goes where answers send them only when told to.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::app::{Answer, App, Setup, SignInSetup, answer};
use super::fake_kinde::FakeKinde;

pub struct Visitor<'a> {
    app: &'a App,
    http: reqwest::Client,
    pub cookies: Mutex<BTreeMap<String, String>>,
}

/// Bottle and the Kinde people sign in at.
pub async fn with_kinde() -> (App, FakeKinde) {
    with_kinde_and(|setup| setup).await
}

pub async fn with_kinde_and(change: impl FnOnce(Setup) -> Setup) -> (App, FakeKinde) {
    let kinde = FakeKinde::start().await;
    let sign_in = Some(SignInSetup { kinde: kinde.settings(), customer_of: None });
    let app = change(Setup { sign_in, ..Setup::default() }).start().await;
    (app, kinde)
}

impl<'a> Visitor<'a> {
    pub fn new(app: &'a App) -> Self {
        let http = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        Self { app, http, cookies: Mutex::default() }
    }

    /// A path of ours or a whole address.
    pub async fn get(&self, place: &str) -> Answer {
        self.send(self.http.get(self.whole(place)), place).await
    }

    pub async fn head(&self, place: &str) -> Answer {
        self.send(self.http.head(self.whole(place)), place).await
    }

    pub async fn get_with(&self, place: &str, header: (&str, &str)) -> Answer {
        self.send(self.http.get(self.whole(place)).header(header.0, header.1), place).await
    }

    /// A form of our own page.
    pub async fn post(&self, path: &str) -> Answer {
        self.send(self.http.post(self.whole(path)).header("origin", self.app.url("")), path).await
    }

    pub async fn post_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let post = headers.iter().fold(self.http.post(self.whole(path)), |post, (name, value)| post.header(*name, *value));
        self.send(post, path).await
    }

    /// To Kinde and back, up to the address it sends them to.
    pub async fn come_back_from(&self, login: &str) -> String {
        let there = self.get(login).await.leads_to();
        self.get(&there).await.leads_to()
    }

    /// The whole way: signed in at the end.
    pub async fn sign_in(&self) -> Answer {
        let back = self.come_back_from("/login").await;
        let arrived = self.get(&back).await;
        assert_eq!(arrived.status, 303, "{}", arrived.text);
        arrived
    }

    pub fn cookie(&self, name: &str) -> Option<String> {
        self.cookies.lock().unwrap().get(name).cloned()
    }

    pub fn keep(&self, name: &str, value: &str) {
        self.cookies.lock().unwrap().insert(name.to_owned(), value.to_owned());
    }

    /// The same browser as it is now, as a second one.
    pub fn copy(&self) -> Self {
        let cookies = Mutex::new(self.cookies.lock().unwrap().clone());
        Self { app: self.app, http: self.http.clone(), cookies }
    }

    fn whole(&self, place: &str) -> String {
        if place.starts_with('/') { self.app.url(place) } else { place.to_owned() }
    }

    async fn send(&self, request: reqwest::RequestBuilder, place: &str) -> Answer {
        // Cookies go to us alone.
        let ours = self.whole(place).starts_with(&self.app.url(""));
        let all: Vec<String> = self.cookies.lock().unwrap().iter().map(|(name, value)| format!("{name}={value}")).collect();
        let request = if ours && !all.is_empty() { request.header("cookie", all.join("; ")) } else { request };
        let answer = answer(request).await;
        if ours {
            for set in answer.headers.get_all("set-cookie") {
                let (pair, rest) = set.to_str().unwrap().split_once(';').unwrap();
                let (name, value) = pair.split_once('=').unwrap();
                let mut cookies = self.cookies.lock().unwrap();
                if rest.contains("Max-Age=0") {
                    cookies.remove(name);
                } else {
                    cookies.insert(name.to_owned(), value.to_owned());
                }
            }
        }
        answer
    }
}

impl Answer {
    #[track_caller]
    pub fn leads_to(&self) -> String {
        assert_eq!(self.status, 303, "{}", self.text);
        self.headers["location"].to_str().unwrap().to_owned()
    }

    /// The attributes of a cookie it sets.
    pub fn sets(&self, name: &str) -> Option<String> {
        let all = self.headers.get_all("set-cookie").iter().map(|value| value.to_str().unwrap().to_owned());
        all.into_iter().find(|set| set.starts_with(&format!("{name}=")))
    }
}
