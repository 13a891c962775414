//! axe-core, the accessibility rules that others check pages with, run inside the page that a browser shows.

use std::path::Path;

use serde_json::Value;

use super::browser::Browser;

/// WCAG 2.2, levels A and AA, of which 2.0 and 2.1 are parts; the size of targets is AA, but has to be asked for.
const RUN: &str = "const done = arguments[arguments.length - 1]; \
    axe.run(document, { \
        runOnly: { type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'] }, \
        rules: { 'target-size': { enabled: true } }, \
        resultTypes: ['violations'] \
    }).then( \
        found => done({ \
            rules: found.passes.length + found.violations.length + found.incomplete.length, \
            violations: found.violations.flatMap(one => one.nodes.map(node => \
                one.id + ' at ' + node.target.join(' ') + ': ' + node.failureSummary.split('\\n').slice(1).join(';').trim())) \
        }), \
        why => done({ failed: String(why) }))";

pub struct Axe(String);

impl Axe {
    /// None, and loudly so, where it is not installed. With `BOTTLE_TEST_NEEDS_BROWSER` that is a failure.
    pub fn find() -> Option<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/axe");
        if let Ok(text) = std::fs::read_to_string(folder.join("node_modules/axe-core/axe.min.js")) {
            return Some(Self(text));
        }
        assert!(std::env::var_os("BOTTLE_TEST_NEEDS_BROWSER").is_none(), "axe is not installed: npm ci in {}", folder.display());
        eprintln!("\n!!! NOT TESTED: axe is not installed, so no page's accessibility was checked; `npm ci` in tests/axe !!!\n");
        None
    }

    /// Into the page that is open. The page's own policy would let no such script in; WebDriver is not held to it.
    pub async fn inject(&self, browser: &Browser) {
        browser.client.execute(&self.0, Vec::new()).await.unwrap();
    }

    /// What it objects to in the page as it looks now, a line for each element.
    pub async fn violations(browser: &Browser) -> Vec<String> {
        let found: Value = browser.client.execute_async(RUN, Vec::new()).await.unwrap();
        assert!(found["failed"].is_null(), "axe could not look at the page: {found}");
        assert!(found["rules"].as_u64().unwrap() > 10, "axe looked at next to nothing: {found}");
        let lines = found["violations"].as_array().unwrap();
        lines.iter().map(|line| line.as_str().unwrap().to_owned()).collect()
    }
}
