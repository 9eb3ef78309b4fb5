//! Sanitizing untrusted text: output of a model, a dataset or a log must not control the terminal.

/// Most combining marks kept per base character; a cell with a thousand of them slows any terminal.
const MAX_COMBINING: usize = 8;

/// Replaces control sequences, C0 and C1 controls (newline and tab stay), bidi controls, tag characters and line
/// separators by a visible `·`, and bounds combining marks. Idempotent.
pub fn sanitize(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut combining = 0;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' | '\t' => out.push(c),
            '\r' if chars.peek() == Some(&'\n') => {}
            c if is_steering(c) => out.push('·'),
            c if is_combining(c) => {
                combining += 1;
                if combining <= MAX_COMBINING {
                    out.push(c);
                }
                continue;
            }
            c => out.push(c),
        }
        combining = 0;
    }
    out
}

/// [`sanitize`] on one line: newlines and tabs become spaces.
pub fn one_line(text: &str) -> String {
    sanitize(text).replace(['\n', '\t'], " ")
}

fn is_steering(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{ad}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn is_combining(c: char) -> bool {
    unicode_width::UnicodeWidthChar::width(c) == Some(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_bidi_and_tags_lose_their_power() {
        assert_eq!(
            sanitize("a\x1b[2Jb\u{9b}c\u{202e}d\u{e0041}e\u{2028}"),
            "a·[2Jb·c·d·e·"
        );
        assert_eq!(sanitize("line\r\nnext\ttab"), "line\nnext\ttab");
        assert_eq!(one_line("a\nb\tc"), "a b c");
        let zalgo = format!("e{}", "\u{301}".repeat(1000));
        assert_eq!(sanitize(&zalgo).chars().count(), 1 + MAX_COMBINING);
    }

    #[test]
    fn sanitize_is_idempotent() {
        let nasty = "\x1b]0;title\x07\u{feff}ok\u{7f}\r";
        assert_eq!(sanitize(&sanitize(nasty)), sanitize(nasty));
    }
}
