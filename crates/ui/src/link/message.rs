//! The error message of a process of this program: how it is written, and found again in what the process said.

use crate::base::text::one_line;

/// What an error message begins with, at the beginning of a line.
pub const BEGIN: &str = "llmtui: ";
/// What its fix begins with, on a line of its own.
const TRY: &str = "  try: ";
/// Bytes of a process's last words in which the message is looked for.
pub const KEPT: usize = 8 << 10;

/// An error message with its fix, if it has one; with its newline.
pub fn written(what: &str, fix: &str) -> String {
    match fix {
        "" => format!("{BEGIN}{what}\n"),
        fix => format!("{BEGIN}{what}\n{TRY}{fix}\n"),
    }
}

/// An error with its fix, if it has one, on one line of a screen.
pub fn line(what: &str, fix: &str) -> String {
    match fix {
        "" => what.into(),
        fix => format!("{what}; try: {fix}"),
    }
}

/// The last error message in what a process wrote, on one line.
pub fn found(text: &str) -> Option<String> {
    parts(text).map(|(what, fix)| line(&what, &fix))
}

/// What the last error message in what a process wrote says, and its fix, which may be empty; each on one line.
pub fn parts(text: &str) -> Option<(String, String)> {
    let at = match text.rfind(&format!("\n{BEGIN}")) {
        Some(at) => at + 1,
        None => text.starts_with(BEGIN).then_some(0)?,
    };
    let (mut what, mut fix): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    let lines = text[at + BEGIN.len()..].lines().map(str::trim);
    for line in lines.take_while(|line| !line.is_empty()) {
        match line.strip_prefix(TRY.trim_start()) {
            Some(first) if fix.is_empty() => fix.push(first),
            _ if fix.is_empty() => what.push(line),
            _ => fix.push(line),
        }
    }
    let what = one_line(&what.join(" "));
    (!what.is_empty()).then(|| (what, one_line(&fix.join(" "))))
}

/// The same; where a process died without a message, all of its last words.
pub fn or_all(text: &str) -> Option<String> {
    let all = || {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        Some(one_line(&lines.collect::<Vec<_>>().join("; "))).filter(|all| !all.is_empty())
    };
    found(text).or_else(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_message_is_found_as_it_was_written() {
        let text = "left out: x\nllmtui: a note\n".to_string()
            + &written("unknown task `a`", "llmtui eval --list");
        let said = "unknown task `a`; try: llmtui eval --list";
        assert_eq!(found(&text).as_deref(), Some(said));
        assert_eq!(found(&written("at once", "")).as_deref(), Some("at once"));
        let cut = format!("xx\n{}", written("end", ""));
        assert_eq!(found(&cut).as_deref(), Some("end"));
        assert_eq!(found("progress\n"), None);
        assert_eq!(
            or_all("bash: no\x1b[2J\n\n such\n").as_deref(),
            Some("bash: no·[2J; such")
        );
        assert_eq!(or_all("\n"), None);
    }
}
