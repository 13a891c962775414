//! What every page has around it.

use super::assets;

/// The frame of `templates/base.html`.
#[derive(Debug)]
pub struct Frame {
    pub title: String,
    pub css: String,
    pub icon: String,
    /// Which entry of the navigation this page is.
    pub here: &'static str,
}

impl Frame {
    pub fn new(title: impl Into<String>, here: &'static str) -> Self {
        Self { title: title.into(), css: assets::url("app.css"), icon: assets::url("favicon.svg"), here }
    }
}
