//! A real Chromium, driven over WebDriver.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fantoccini::{Client, ClientBuilder};
use serde_json::{Map, Value, json};

use super::Scratch;
use super::app::{App, SignedIn};

pub struct Browser {
    pub client: Client,
    driver: Child,
    /// Where chromedriver has what WebDriver itself does not: the browser's log, and its own protocol.
    session: String,
    /// Its profile; goes with it.
    _profile: Scratch,
}

impl Browser {
    /// None, and loudly so, where there is no browser. With `BOTTLE_TEST_NEEDS_BROWSER` that is a failure.
    pub async fn open(width: u32, height: u32) -> Option<Self> {
        Self::with(width, height, json!({})).await
    }

    /// One whose owner has switched JavaScript off.
    pub async fn without_javascript(width: u32, height: u32) -> Option<Self> {
        Self::with(width, height, json!({ "profile.managed_default_content_settings.javascript": 2 })).await
    }

    async fn with(width: u32, height: u32, preferences: Value) -> Option<Self> {
        let Some((driver, port)) = driver() else {
            assert!(std::env::var_os("BOTTLE_TEST_NEEDS_BROWSER").is_none(), "chromedriver is not installed");
            eprintln!("\n!!! NOT TESTED: no chromedriver here, so no page was looked at in a browser !!!\n");
            return None;
        };
        let profile = Scratch::new();
        let options = json!({
            "args": [
                "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic",
                format!("--user-data-dir={}", profile.path().display()),
                format!("--window-size={width},{height}"),
            ],
            "prefs": preferences,
        });
        let mut wishes = Map::new();
        wishes.insert("goog:chromeOptions".to_owned(), options);
        wishes.insert("goog:loggingPrefs".to_owned(), json!({ "browser": "ALL" }));
        let client = ClientBuilder::rustls().unwrap().capabilities(wishes).connect(&format!("http://127.0.0.1:{port}")).await;
        let client = client.expect("Chromium starts");
        let session = format!("http://127.0.0.1:{port}/session/{}", client.session_id().await.unwrap().unwrap());
        Some(Self { client, driver, session, _profile: profile })
    }

    /// What the browser itself complained of since it was last asked, on all pages, scripts or none: every breach of a content
    /// policy is among it.
    pub async fn complaints(&self) -> Vec<String> {
        let log = self.driver("se/log", json!({ "type": "browser" })).await;
        log.as_array().unwrap().iter().map(|entry| entry["message"].as_str().unwrap().to_owned()).collect()
    }

    /// Lays pages out as on a screen of this width, in the light or the dark. It stays so from page to page.
    pub async fn look_as(&self, width: u32, height: u32, scheme: &str) {
        let screen = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", screen).await;
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.devtools("Emulation.setEmulatedMedia", media).await;
    }

    /// As most systems show pages until they are scrolled.
    pub async fn hide_scrollbars(&self) {
        self.devtools("Emulation.setScrollbarsHidden", json!({ "hidden": true })).await;
    }

    async fn devtools(&self, command: &str, params: Value) {
        self.driver("goog/cdp/execute", json!({ "cmd": command, "params": params })).await;
    }

    async fn driver(&self, path: &str, body: Value) -> Value {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let answer = http.post(format!("{}/{path}", self.session)).json(&body).send().await.unwrap();
        let mut said: Value = answer.json().await.unwrap();
        assert!(said["value"]["error"].is_null(), "{path}: {said}");
        said["value"].take()
    }

    /// Gives it the session of this person.
    pub async fn sign_in(&self, app: &App, who: &SignedIn) {
        self.client.goto(&app.url("/health/live")).await.unwrap();
        self.client.execute(&format!("document.cookie = '{}; path=/'", who.cookie), Vec::new()).await.unwrap();
    }

    /// Runs JavaScript in the page and returns what it returns.
    pub async fn ask(&self, script: &str) -> Value {
        self.client.execute(&format!("return {script}"), Vec::new()).await.unwrap()
    }

    /// Waits until an expression holds in the page.
    pub async fn until(&self, script: &str) {
        let begun = Instant::now();
        while self.ask(script).await != json!(true) {
            assert!(begun.elapsed() < Duration::from_secs(20), "never came true in the page: {script}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// From now on the page notes every breach of its own content policy, and every script error.
    pub async fn watch(&self) {
        let watch = "window.__troubles = []; \
             addEventListener('securitypolicyviolation', e => __troubles.push('policy: ' + e.violatedDirective + ' ' + e.blockedURI)); \
             addEventListener('error', e => __troubles.push('error: ' + e.message))";
        self.client.execute(watch, Vec::new()).await.unwrap();
    }

    pub async fn troubles(&self) -> Value {
        self.ask("window.__troubles").await
    }

    pub async fn close(self) {
        self.client.clone().close().await.unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// A driver and its port; none where there is no driver. It takes a free port of one address family and gives up where another
/// program has that port in the other: then it is started again.
fn driver() -> Option<(Child, u16)> {
    for _ in 0..10 {
        let mut driver =
            Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
        let lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines
            .map_while(Result::ok)
            .find_map(|line| line.split("successfully on port ").nth(1)?.trim_end_matches('.').parse::<u16>().ok());
        if let Some(port) = port {
            return Some((driver, port));
        }
        driver.wait().unwrap();
    }
    panic!("chromedriver found no port in ten starts");
}
