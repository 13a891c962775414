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
    /// Its profile; goes with it.
    _profile: Scratch,
}

impl Browser {
    /// None, and loudly so, where there is no browser. With `BOTTLE_TEST_NEEDS_BROWSER` that is a failure.
    pub async fn open(width: u32, height: u32) -> Option<Self> {
        let started = Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let Ok(mut driver) = started else {
            assert!(std::env::var_os("BOTTLE_TEST_NEEDS_BROWSER").is_none(), "chromedriver is not installed");
            eprintln!("\n!!! NOT TESTED: no chromedriver here, so no page was looked at in a browser !!!\n");
            return None;
        };
        let lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines
            .map_while(Result::ok)
            .find_map(|line| line.split("successfully on port ").nth(1)?.trim_end_matches('.').parse::<u16>().ok())
            .expect("chromedriver says its port");
        let profile = Scratch::new();
        let options = json!({
            "args": [
                "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic",
                format!("--user-data-dir={}", profile.path().display()),
                format!("--window-size={width},{height}"),
            ]
        });
        let mut wishes = Map::new();
        wishes.insert("goog:chromeOptions".to_owned(), options);
        wishes.insert("goog:loggingPrefs".to_owned(), json!({ "browser": "ALL" }));
        let client = ClientBuilder::rustls().unwrap().capabilities(wishes).connect(&format!("http://127.0.0.1:{port}")).await;
        Some(Self { client: client.expect("Chromium starts"), driver, _profile: profile })
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
