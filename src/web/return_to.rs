//! Where somebody goes after signing in: a page of ours, as they asked for it, or the front page.
//!
//! The address bar is anybody's to fill, so a link to our sign-in could lead to a page of theirs that looks like ours. Only
//! what is plainly a path here is taken: browsers repair what is not (`\` becomes `/`, tabs vanish), and two readers that
//! repair differently are how such checks are got round.

/// What the sealed cookie has room for, several times.
const BYTES_MAX: usize = 400;
/// They would lead round in a circle, or are no pages.
const NOT_THERE: [&str; 3] = ["/login", "/callback", "/logout"];

/// The path and query given, if they are plainly ours; else `/`.
pub fn return_to(wanted: &str) -> &str {
    if is_ours(wanted) { wanted } else { "/" }
}

fn is_ours(wanted: &str) -> bool {
    let (path, query) = wanted.split_once('?').unwrap_or((wanted, ""));
    wanted.len() <= BYTES_MAX
        && path.starts_with('/')
        && path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-_.~".contains(&b))
        && path.split('/').skip(1).all(|part| part != "." && part != "..")
        && !path.contains("//")
        && !NOT_THERE.contains(&path.trim_end_matches('/'))
        && is_plain_query(query)
}

/// Encoded bytes are left alone, except those that a careless reader would take for the end of a line or of the text.
fn is_plain_query(query: &str) -> bool {
    let mut bytes = query.bytes();
    while let Some(byte) = bytes.next() {
        let fine = match byte {
            b'%' => match (bytes.next().map(hex), bytes.next().map(hex)) {
                (Some(Some(high)), Some(Some(low))) => high * 16 + low >= 0x20 && high * 16 + low != 0x7f,
                _ => false,
            },
            _ => byte.is_ascii_alphanumeric() || b"-_.~=&+:,/!*;@".contains(&byte),
        };
        if !fine {
            return false;
        }
    }
    true
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_ours_is_where_one_goes() {
        for ours in [
            "/",
            "/account",
            "/account/",
            "/account/events/12",
            "/account?status=dead&kind=customer.plan_changed",
            "/reminders?q=milk%20and%20%C3%A9clairs&page=2",
            "/account?since=2026-10-01T00:00:00%2B11:00",
            "/engine-room?script=PAY,UP,up2@10:12:35",
            "/a?next=/b",
            "/login-help",
        ] {
            assert_eq!(return_to(ours), ours);
        }
        let longest = format!("/{}", "a".repeat(BYTES_MAX - 1));
        assert_eq!(return_to(&longest), longest);
    }

    #[test]
    fn whatever_might_lead_elsewhere_leads_to_the_front_page() {
        let corpus = [
            "",
            " ",
            "x",
            "account",
            "?x",
            "#x",
            ".",
            "..",
            "//",
            "///",
            "//x",
            "//x/y",
            "///x",
            "////x",
            "/\\x",
            "\\x",
            "\\\\x",
            "\\/x",
            "/\\/x",
            "//\\x",
            "/x\\y",
            "/%09/x",
            "/%0a/x",
            "/%0d%0a/x",
            "/%2f/x",
            "/%2fx",
            "/%2F%2Fx",
            "/%5cx",
            "/%5C%5Cx",
            "/\t/x",
            "\t//x",
            " //x",
            "/ /x",
            "/\n/x",
            "\n//x",
            "/\r\nLocation: https://x",
            "/x\r\nSet-Cookie: a=b",
            "/\u{0}x",
            "/x\u{7f}",
            "https:x",
            "https:/x",
            "https://x",
            "https:\\\\x",
            "HTTPS://x",
            "http://x",
            "ftp://x",
            "//x@localhost",
            "//localhost@x",
            "/@x",
            "@x",
            "https://localhost:3000@x",
            "javascript:alert(1)",
            "JaVaScRiPt:alert(1)",
            "data:text/html,x",
            "vbscript:x",
            "file:///etc/passwd",
            "mailto:a@x",
            "blob:x",
            "//[::1]",
            "//0x7f.1",
            "//1.1",
            "/.//x",
            "/./x",
            "/..//x",
            "/../x",
            "/a/../../x",
            "/a//x",
            "/a/./b",
            "/a/..",
            "/;//x",
            "/:80//x",
            "/\u{2215}x",
            "/\u{ff0f}x",
            "\u{ff0f}\u{ff0f}x",
            "/é",
            "/x#y",
            "/#",
            "/a b",
            "/<script>",
            "/\"x",
            "/'x",
            "/`x",
            "/{x}",
            "/|x",
            "/^x",
            "/a%",
            "/a?%",
            "/a?%4",
            "/a?%zz",
            "/a?x=%0d%0ay",
            "/a?x=%00",
            "/a?x=%09",
            "/a?x=%7f",
            "/a?x=\\",
            "/a?x=<y>",
            "/a?x y",
            "/a?x#y",
            "/a?x?y",
            "/login",
            "/login/",
            "/login?return_to=/",
            "/callback?code=x",
            "/logout",
            "/Login\\..",
        ];
        assert!(corpus.len() >= 50, "{}", corpus.len());
        for wanted in corpus {
            assert_eq!(return_to(wanted), "/", "{wanted:?}");
        }
        assert_eq!(return_to(&format!("/{}", "a".repeat(BYTES_MAX))), "/");
        assert_eq!(return_to(&format!("/{}", "a/".repeat(2048))), "/");
    }

    /// The rule above, seen the way a browser sees it.
    #[test]
    fn what_is_taken_stays_on_our_origin() {
        let base = reqwest::Url::parse("https://bottle.example/login").unwrap();
        proptest::proptest!(|(wanted in "[/\\\\.:@%0-9a-fx?&= \t]{0,24}")| {
            let url = base.join(return_to(&wanted)).unwrap();
            proptest::prop_assert_eq!(url.origin(), base.origin());
            proptest::prop_assert!(url.as_str().starts_with("https://bottle.example/"));
        });
    }
}
