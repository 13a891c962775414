//! What every page has around it.

use super::assets;
use super::person::Person;

/// The frame of `templates/base.html`.
#[derive(Debug)]
pub struct Frame {
    pub title: String,
    pub css: String,
    pub icon: String,
    /// Which entry of the navigation this page is.
    pub here: &'static str,
    /// The name of whoever is signed in.
    pub person: Option<String>,
    /// They may see the operators' pages.
    pub operator: bool,
}

impl Frame {
    pub fn new(title: impl Into<String>, here: &'static str) -> Self {
        Self {
            title: title.into(),
            css: assets::url("app.css"),
            icon: assets::url("favicon.svg"),
            here,
            person: None,
            operator: false,
        }
    }

    /// The same frame around somebody's page.
    #[must_use]
    pub fn of(self, person: Option<&Person>) -> Self {
        Self { person: person.map(|p| p.name.clone()), operator: person.is_some_and(|p| p.operator), ..self }
    }
}
