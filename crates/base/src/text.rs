//! Sanitizing untrusted text: output of a model, a dataset or a log must not control the terminal. Wraps and cuts text.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Most combining marks kept per base character; a cell with a thousand of them slows any terminal.
const MAX_COMBINING: usize = 8;

/// Wraps text to lines of at most `columns` terminal columns, only at spaces: a path or a flag stays whole and may exceed
/// them. The first line begins with `first`, the others with `rest`.
pub fn wrap(words: &str, columns: usize, first: &str, rest: &str) -> Vec<String> {
    let options = textwrap::Options::new(columns)
        .initial_indent(first)
        .subsequent_indent(rest)
        .break_words(false)
        .word_separator(textwrap::WordSeparator::AsciiSpace)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    let lines = textwrap::wrap(words, options);
    lines.into_iter().map(String::from).collect()
}

/// The text in at most `width` columns, with `ellipsis` where it was cut.
pub fn cut(text: &str, width: usize, ellipsis: &str) -> String {
    if text.width() <= width {
        return text.to_string();
    }
    let room = width.saturating_sub(ellipsis.width());
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > room {
            break;
        }
        out.push(c);
    }
    if width > 0 {
        out.push_str(ellipsis);
    }
    out
}

/// The text in at most `width` columns, cut in the middle: both ends help to identify it.
pub fn cut_middle(text: &str, width: usize, ellipsis: &str) -> String {
    if text.width() <= width {
        return text.to_string();
    }
    let room = width.saturating_sub(ellipsis.width());
    let start = cut(text, room.div_ceil(2), "");
    let mut end = text.len();
    let mut left = room / 2;
    for (at, c) in text.char_indices().rev() {
        match left.checked_sub(c.width().unwrap_or(0)) {
            Some(rest) => (left, end) = (rest, at),
            None => break,
        }
    }
    format!("{start}{}{}", cut(ellipsis, width, ""), &text[end..])
}

/// Replaces control sequences, C0 and C1 controls (except newline and tab), bidi controls, tag characters and line
/// separators by a visible `·`, and limits combining marks. Idempotent.
pub fn sanitize(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut combining = 0;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' | '\t' => out.push(c),
            '\r' if chars.peek() == Some(&'\n') => {}
            c if controls_terminal(c) => out.push('·'),
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

/// A message without the operating system's error numbers (` (os error 13)`): they do not help a reader who has the text before
/// them.
pub fn without_error_numbers(text: &str) -> String {
    const MARK: &str = " (os error ";
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(MARK) {
        let behind = &rest[at + MARK.len()..];
        let digits = behind.bytes().take_while(u8::is_ascii_digit).count();
        match digits > 0 && behind[digits..].starts_with(')') {
            true => {
                out.push_str(&rest[..at]);
                rest = &behind[digits + 1..];
            }
            false => {
                out.push_str(&rest[..at + MARK.len()]);
                rest = behind;
            }
        }
    }
    out + rest
}

/// A path for display: file names may contain any character.
pub fn shown(path: &std::path::Path) -> String {
    one_line(&path.display().to_string())
}

/// JSON with every character that could control a terminal escaped; JSON itself escapes only the C0 controls.
pub fn quiet_json(json: String) -> String {
    // Plain ASCII, the usual case, contains at most DEL.
    if json.bytes().all(|byte| byte < 0x7f) || !json.chars().any(is_hidden) {
        return json;
    }
    let mut out = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        if is_hidden(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// Controls a terminal, and is not white space between JSON's values.
fn is_hidden(c: char) -> bool {
    c != '\n' && controls_terminal(c)
}

fn controls_terminal(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{ad}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn is_combining(c: char) -> bool {
    c.width() == Some(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_error_numbers_are_removed() {
        let said = "/x: Permission denied (os error 13); y: No such file (os error 2)";
        let plain = "/x: Permission denied; y: No such file";
        assert_eq!(without_error_numbers(said), plain);
        for other in ["", "(os error)", "a (os error x)", "a (os error 1"] {
            assert_eq!(without_error_numbers(other), other);
        }
    }

    #[test]
    fn text_is_cut_by_columns_at_the_end_or_in_the_middle() {
        assert_eq!(cut("shakespeare", 6, "…"), "shake…");
        assert_eq!(cut("日本語", 5, "…"), "日本…");
        assert_eq!(cut_middle("shakespeare-k3qf", 9, "…"), "shak…k3qf");
        assert_eq!(cut_middle("shakespeare-k3qf", 16, "…"), "shakespeare-k3qf");
        assert_eq!(cut_middle("日本語日本語", 8, "…"), "日本…語");
        assert_eq!(cut_middle("abc", 0, "…"), "");
        assert_eq!(cut_middle("shakespeare-k3qf", 9, ".."), "shak..3qf");
    }

    #[test]
    fn words_are_wrapped_by_columns_and_stay_whole() {
        let lines = wrap("one two a/path/of/some/length 三四", 9, "- ", "  ");
        assert_eq!(lines, ["- one two", "  a/path/of/some/length", "  三四"]);
    }

    #[test]
    fn escapes_bidi_controls_and_tags_are_neutralized() {
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
    fn quiet_json_is_equal_without_terminal_controls() {
        let value = serde_json::json!({"a\u{9b}": "x\u{7f}\u{202e}\u{e0041}ü\n漢"});
        for text in [value.to_string(), format!("{value:#}")] {
            let quiet = quiet_json(text.clone());
            assert!(!quiet.chars().any(is_hidden), "{quiet}");
            assert!(quiet.contains('ü') && quiet.contains('漢'));
            let back: serde_json::Value = serde_json::from_str(&quiet).unwrap();
            assert_eq!(back, value);
        }
        assert_eq!(quiet_json("{\n}".into()), "{\n}");
    }

    #[test]
    fn sanitize_is_idempotent() {
        let nasty = "\x1b]0;title\x07\u{feff}ok\u{7f}\r";
        assert_eq!(sanitize(&sanitize(nasty)), sanitize(nasty));
    }
}
