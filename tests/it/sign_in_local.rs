//! The real program with its local Kinde, as a newcomer has it: no settings at all, and they sign in.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Mutex;

use reqwest::redirect::Policy;

use crate::support::binary::{Bottle, Home};
use crate::support::db::fresh_db;

/// A browser for both, which share a host and therefore cookies.
pub struct Browser {
    http: reqwest::Client,
    cookies: Mutex<std::collections::BTreeMap<String, String>>,
}

pub struct Page {
    pub status: u16,
    pub location: String,
    pub text: String,
}

impl Browser {
    pub fn new() -> Self {
        let http = reqwest::Client::builder().no_proxy().redirect(Policy::none()).build().unwrap();
        Self { http, cookies: Mutex::default() }
    }

    pub async fn get(&self, url: &str) -> Page {
        self.send(self.http.get(url)).await
    }

    pub async fn post(&self, url: &str, form: &[(&str, &str)]) -> Page {
        let origin = reqwest::Url::parse(url).unwrap().origin().ascii_serialization();
        self.send(self.http.post(url).header("origin", origin).form(form)).await
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Page {
        let cookies: Vec<String> = self.cookies.lock().unwrap().iter().map(|(name, value)| format!("{name}={value}")).collect();
        let response = request.header("cookie", cookies.join("; ")).send().await.unwrap();
        for set in response.headers().get_all("set-cookie") {
            let pair = set.to_str().unwrap().split(';').next().unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            self.cookies.lock().unwrap().insert(name.to_owned(), value.to_owned());
        }
        let location = response.headers().get("location").map(|to| to.to_str().unwrap().to_owned()).unwrap_or_default();
        Page { status: response.status().as_u16(), location, text: response.text().await.unwrap() }
    }

    /// Clicks somebody at the local Kinde and comes back; the address the callback leads to.
    pub async fn sign_in(&self, base: &str, person: &str) -> String {
        let there = self.get(&format!("{base}/login?return_to=/account/billing")).await.location;
        assert!(self.get(&there).await.text.contains("Sign in as"));
        let back = self.post(&there, &[("person", person)]).await.location;
        assert!(back.starts_with(&format!("{base}/callback?")), "{back}");
        let arrived = self.get(&back).await;
        assert_eq!(arrived.status, 303, "{}", arrived.text);
        arrived.location
    }
}

fn base(bottle: &Bottle) -> String {
    format!("http://localhost:{}", bottle.addr().port())
}

#[tokio::test]
async fn a_newcomer_signs_in_manages_billing_signs_out_and_is_still_known_after_a_restart() {
    let (home, db) = (Home::new(), fresh_db().await);
    let url = db.url();
    let settings = [("DATABASE_URL", url.as_str())];
    let mut bottle = home.start(&[], &settings).await;
    let browser = Browser::new();
    let ada = "kp_20a4479c1273ee4ef032a865c40235b3";
    assert_eq!(browser.sign_in(&base(&bottle), ada).await, "/account/billing");
    let greeted = |page: &Page| page.text.contains("Good to see you, Ada Lovelace.");
    assert!(greeted(&browser.get(&base(&bottle)).await));

    let portal = browser.post(&format!("{}/account/billing", base(&bottle)), &[]).await;
    assert_eq!(portal.status, 303, "{}", portal.text);
    assert!(!portal.location.starts_with(&base(&bottle)), "{}", portal.location);
    let page = browser.get(&portal.location).await;
    assert!(matches!(page.status, 200 | 303), "{}: {}", page.status, page.text);

    // By a number in place of the name one is sent to the name first.
    let by_number = browser.get(&format!("http://{}/login", bottle.addr())).await;
    assert_eq!(by_number.location, format!("{}/login?here=1", base(&bottle)));

    let (_, _) = bottle.ctrl_c().await;
    assert!(!bottle.log().contains("ERROR"), "{}", bottle.log());
    let key = std::fs::metadata(home.path().join(".bottle/session-key")).unwrap();
    assert_eq!(key.permissions().mode() & 0o777, 0o600, "nobody else reads the key");
    let bottle = home.start(&[], &settings).await;
    assert!(greeted(&browser.get(&base(&bottle)).await), "the key was kept, and so is the session");

    let out = browser.post(&format!("{}/logout", base(&bottle)), &[]).await;
    assert!(out.location.contains("/logout?redirect="), "{}", out.location);
    let home_again = browser.get(&out.location).await;
    assert_eq!(home_again.location.trim_end_matches('/'), base(&bottle), "{}", home_again.text);
    assert!(!greeted(&browser.get(&base(&bottle)).await));
    // Kinde has forgotten it too: the next sign-in asks who it is.
    let there = browser.get(&format!("{}/login", base(&bottle))).await.location;
    assert!(browser.get(&there).await.text.contains("Sign in as"));
}

#[tokio::test]
async fn in_production_there_is_no_sign_in_without_a_session_key_of_ones_own() {
    let (home, db) = (Home::new(), fresh_db().await);
    let url = db.url();
    let settings = [
        ("DATABASE_URL", url.as_str()),
        ("BOTTLE_URL", "https://bottle.example"),
        ("KINDE_DOMAIN", "https://x.kinde.com"),
        ("KINDE_CLIENT_ID", "id"),
        ("KINDE_CLIENT_SECRET", "hunter2"),
    ];
    let said = home.run(&["web"], &settings).await;
    let complaints = said.complaints();
    assert_eq!((said.code, complaints.len()), (Some(1), 1), "{said:?}");
    assert!(complaints[0].contains("BOTTLE_SESSION_KEY") && !said.err.contains("hunter2"), "{said:?}");
    assert!(!home.path().join(".bottle/session-key").exists());
    let with_key = [&settings[..], &[("BOTTLE_SESSION_KEY", "0123456789abcdefghijklmnopqrstuv")]].concat();
    // Then it goes on to the next thing a production has to have, which a test's database lacks.
    let said = home.run(&["web"], &with_key).await;
    assert!(said.err.contains("fsync") && !said.err.contains("BOTTLE_SESSION_KEY"), "{said:?}");
    assert!(!home.run(&["worker"], &settings).await.err.contains("BOTTLE_SESSION_KEY"), "a worker signs nobody in");
}
