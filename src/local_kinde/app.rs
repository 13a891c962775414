//! The app that people sign in to: where it is, where it may be returned to, and what it calls itself. Plain strings.

use reqwest::Url;

/// As it would be entered at Kinde.
#[derive(Debug, Clone, Default)]
pub struct App {
    /// For a link back.
    pub url: Option<String>,
    /// Matched to the letter.
    pub redirect_uris: Vec<String>,
    /// Matched to the letter.
    pub logout_redirects: Vec<String>,
    /// The plan page may return to any address under these.
    pub return_bases: Vec<String>,
    /// Of these four, what is not chosen is made by chance, once per state folder.
    pub client_id: Option<String>,
    pub client_secret: Option<String>,
    pub m2m_client_id: Option<String>,
    pub m2m_client_secret: Option<String>,
}

impl App {
    /// An app whose callback is `/callback`, and which may be returned to anywhere.
    pub fn at(base: &str) -> Self {
        let base = base.trim_end_matches('/').to_owned();
        Self {
            redirect_uris: vec![format!("{base}/callback")],
            logout_redirects: vec![format!("{base}/"), base.clone()],
            return_bases: vec![base.clone()],
            url: Some(base),
            ..Self::default()
        }
    }

    /// Whether the plan page may send somebody there.
    pub fn may_return_to(&self, url: &str) -> bool {
        let Ok(url) = Url::parse(url) else { return false };
        let plain = matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none();
        let under = |base: &Url| {
            let folder = base.path().trim_end_matches('/');
            base.origin() == url.origin()
                && url.path().strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        plain && self.return_bases.iter().filter_map(|base| Url::parse(base).ok()).any(|base| under(&base))
    }

    /// `http://localhost:3000` and the like: where forms may end up.
    pub fn origins(&self) -> Vec<String> {
        let all = self.redirect_uris.iter().chain(&self.logout_redirects).chain(&self.return_bases);
        let mut origins: Vec<String> =
            all.filter_map(|url| Url::parse(url).ok()).map(|url| url.origin().ascii_serialization()).collect();
        origins.sort();
        origins.dedup();
        origins.retain(|origin| origin != "null");
        origins
    }
}

#[cfg(test)]
mod tests {
    use super::App;

    #[test]
    fn returning_is_allowed_under_the_apps_own_address_only() {
        let app = App::at("http://localhost:3000/bottle/");
        for fine in ["http://localhost:3000/bottle", "http://localhost:3000/bottle/account?x=1#y"] {
            assert!(app.may_return_to(fine), "{fine}");
        }
        for foreign in [
            "http://localhost:3000/bottles",
            "http://localhost:3000/bottle/../other",
            "http://localhost:3001/bottle",
            "https://localhost:3000/bottle",
            "http://localhost:3000@elsewhere.example/bottle",
            "http://me@localhost:3000/bottle",
            "//localhost:3000/bottle",
            "javascript:alert(1)",
            "/bottle",
            "",
        ] {
            assert!(!app.may_return_to(foreign), "{foreign}");
        }
        assert_eq!(app.origins(), ["http://localhost:3000"]);
    }
}
