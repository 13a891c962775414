//! A relying party's side of the local Kinde: plain requests, no code of the product.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bottle::local_kinde::app::App;
use bottle::local_kinde::server::{Running, Settings, start};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::local_kinde::{Folder, client};

pub const APP: &str = "http://localhost:3000";
pub const CALLBACK: &str = "http://localhost:3000/callback";
pub const VERIFIER: &str = "a-verifier-of-at-least-forty-three-characters-0123456789";
pub const ADA: &str = "kp_20a4479c1273ee4ef032a865c40235b3";
/// Olive, who operates the app.
pub const OLIVE: &str = "kp_4e4af8e6dae02e3baaa1d7cb5a191dd2";
pub const BEN: &str = "kp_bd597b41aba6ed1e6d4d1b71374ae9ef";

/// A local Kinde and a browser that keeps its cookie.
pub struct Kinde {
    pub folder: Folder,
    pub running: Running,
    pub webhook: Option<String>,
    pub cookie: Option<String>,
}

pub struct Answer {
    pub status: u16,
    pub location: String,
    pub headers: reqwest::header::HeaderMap,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{}", self.body))
    }

    /// A parameter of where it leads.
    pub fn param(&self, name: &str) -> Option<String> {
        let url = reqwest::Url::parse(&self.location).ok()?;
        url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    }
}

impl Kinde {
    pub async fn start(webhook: Option<String>) -> Self {
        let folder = Folder::new();
        let running = Self::run(&folder, webhook.clone()).await;
        Self { folder, running, webhook, cookie: None }
    }

    async fn run(folder: &Folder, webhook_url: Option<String>) -> Running {
        let settings = Settings { addr: "127.0.0.1:0".into(), state: folder.0.clone(), webhook_url, app: App::at(APP) };
        start(settings).await.unwrap()
    }

    /// On another port: the issuer changes, what it remembers does not.
    pub async fn restart(self) -> Self {
        let Self { folder, running, webhook, cookie } = self;
        running.stop().await;
        let running = Self::run(&folder, webhook.clone()).await;
        Self { folder, running, webhook, cookie }
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.running.url())
    }

    pub async fn get(&self, path: &str) -> Answer {
        let request = client().get(self.url(path));
        answer(self.with_cookie(request)).await
    }

    pub async fn get_as(&self, path: &str, token: &str) -> Answer {
        answer(client().get(self.url(path)).bearer_auth(token)).await
    }

    pub async fn post(&self, path: &str, form: &[(&str, &str)]) -> Answer {
        let request = client().post(self.url(path)).form(form);
        answer(self.with_cookie(request)).await
    }

    fn with_cookie(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        match &self.cookie {
            Some(cookie) => request.header("cookie", cookie),
            None => request,
        }
    }

    pub fn keep_cookie(&mut self, answer: &Answer) {
        let set = answer.headers.get("set-cookie").unwrap().to_str().unwrap();
        self.cookie = Some(set.split(';').next().unwrap().to_owned());
    }

    /// The path of a right request, but for these parameters; an empty one is left out.
    pub fn auth(&self, changes: &[(&str, &str)]) -> String {
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(VERIFIER));
        let client_id = self.running.client_id();
        let mut params = vec![
            ("client_id", client_id.as_str()),
            ("redirect_uri", CALLBACK),
            ("response_type", "code"),
            ("scope", "openid profile email offline"),
            ("state", "the-state"),
            ("nonce", "the-nonce"),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ];
        params.retain(|(name, _)| changes.iter().all(|(changed, _)| changed != name));
        params.extend(changes.iter().filter(|(_, value)| !value.is_empty()));
        let url = reqwest::Url::parse_with_params("http://x/oauth2/auth", params).unwrap();
        format!("{}?{}", url.path(), url.query().unwrap())
    }

    /// Clicks somebody on the sign-in page, and brings back the code.
    pub async fn sign_in(&mut self, person: &str, changes: &[(&str, &str)]) -> String {
        let answer = self.post(&self.auth(changes), &[("person", person)]).await;
        assert_eq!(answer.status, 303, "{}", answer.body);
        self.keep_cookie(&answer);
        answer.param("code").unwrap_or_else(|| panic!("{}", answer.location))
    }

    /// A right exchange of a code, but for these fields.
    pub async fn exchange(&self, code: &str, changes: &[(&str, &str)]) -> Answer {
        let fields =
            [("grant_type", "authorization_code"), ("code", code), ("redirect_uri", CALLBACK), ("code_verifier", VERIFIER)];
        self.token(&fields, changes).await
    }

    pub async fn refresh(&self, token: &str) -> Answer {
        self.token(&[("grant_type", "refresh_token"), ("refresh_token", token)], &[]).await
    }

    pub async fn token(&self, fields: &[(&str, &str)], changes: &[(&str, &str)]) -> Answer {
        let (id, secret) = (self.running.client_id(), self.running.client_secret());
        let mut all = vec![("client_id", id.as_str()), ("client_secret", secret.as_str())];
        all.extend(fields);
        all.retain(|(name, _)| changes.iter().all(|(changed, _)| changed != name));
        all.extend(changes.iter().filter(|(_, value)| !value.is_empty()));
        answer(client().post(self.url("/oauth2/token")).form(&all)).await
    }

    /// A machine's token, but for these fields.
    pub async fn machine(&self, changes: &[(&str, &str)]) -> Answer {
        let (id, secret) = (self.running.m2m_client_id(), self.running.m2m_client_secret());
        let audience = self.url("/api");
        let fields = [
            ("client_id", id.as_str()),
            ("client_secret", &secret),
            ("grant_type", "client_credentials"),
            ("audience", &audience),
        ];
        let fields = fields.iter().chain(changes).copied();
        let mut last: Vec<(&str, &str)> = Vec::new();
        for (name, value) in fields {
            last.retain(|(known, _)| *known != name);
            last.push((name, value));
        }
        last.retain(|(_, value)| !value.is_empty());
        answer(client().post(self.url("/oauth2/token")).form(&last)).await
    }

    pub async fn machine_token(&self) -> String {
        self.machine(&[]).await.json()["access_token"].as_str().unwrap().to_owned()
    }

    /// Tokens of somebody, by the whole way.
    pub async fn tokens(&mut self, person: &str) -> Value {
        let code = self.sign_in(person, &[]).await;
        self.exchange(&code, &[]).await.json()
    }

    pub async fn lifetimes(&self, changes: &[(&str, &str)]) {
        let all = [("code", "60"), ("id_token", "3600"), ("access_token", "86400"), ("refresh_token", "9999"), ("overlap", "10")];
        self.set("lifetimes", &all, changes).await;
    }

    pub async fn apis(&self, changes: &[(&str, &str)]) {
        self.set("apis", &[("trouble", "none"), ("requests", "0"), ("secs", "0"), ("lag_secs", "0")], changes).await;
    }

    pub async fn deliveries(&self, changes: &[(&str, &str)]) {
        let all =
            [("copies", "1"), ("late_secs", "0"), ("drop_answers", "0"), ("speed", "1"), ("plan", "key"), ("whose", "both")];
        self.set("deliveries", &all, changes).await;
    }

    async fn set(&self, which: &str, all: &[(&str, &str)], changes: &[(&str, &str)]) {
        let mut fields = all.to_vec();
        fields.retain(|(name, _)| changes.iter().all(|(changed, _)| changed != name));
        fields.extend(changes);
        let answer = self.post(&format!("/local/switches/{which}"), &fields).await;
        assert_eq!(answer.status, 303, "{}", answer.body);
    }
}

pub async fn answer(request: reqwest::RequestBuilder) -> Answer {
    let response = request.send().await.unwrap();
    let headers = response.headers().clone();
    let location = headers.get("location").map_or("", |value| value.to_str().unwrap()).to_owned();
    Answer { status: response.status().as_u16(), location, headers, body: response.text().await.unwrap() }
}

/// Unverified: for tests that verify elsewhere.
pub fn claims(token: &str) -> Value {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap()).unwrap()
}
