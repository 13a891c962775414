//! Words of outsiders on our pages. The template engine escapes what could be markup; here goes what could still mislead:
//! control characters, characters that turn the direction of what follows, and length.

/// At most `max` characters, each one visible. What cannot be seen, or turns the text around it, is written as its number.
pub fn shown(text: &str, max: usize) -> String {
    let mut out = String::new();
    for (n, c) in text.chars().enumerate() {
        if n == max {
            out.push('…');
            break;
        }
        if misleads(c) { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    out
}

/// The same for text of several lines.
pub fn shown_lines(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        if c != '\n' && misleads(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
        out
    })
}

fn misleads(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_written_out() {
        assert_eq!(shown("gold\u{202e}dlog\u{0}", 40), "gold\\u{202e}dlog\\u{0}");
        assert_eq!(shown("Bücher – 本", 40), "Bücher – 本");
        assert_eq!(shown("abcdef", 3), "abc…");
        assert_eq!(shown_lines("a\n\u{200b}b\r"), "a\n\\u{200b}b\\u{d}");
    }
}
