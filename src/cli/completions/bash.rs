//! Bash takes `key=value` apart at the `=` before it asks (`COMP_WORDBREAKS`), and replaces the last part alone. Here the word of
//! an option is put together, and what was typed before the `=` is left out of the answer; all else is the library's.

use clap::Command;
use clap_complete::engine::complete;
use clap_complete::env::{self, EnvCompleter};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

pub struct Bash;

impl EnvCompleter for Bash {
    fn name(&self) -> &'static str {
        "bash"
    }

    fn is(&self, name: &str) -> bool {
        name == "bash"
    }

    fn write_registration(
        &self,
        var: &str,
        name: &str,
        bin: &str,
        completer: &str,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        env::Bash.write_registration(var, name, bin, completer, out)
    }

    fn write_complete(
        &self,
        command: &mut Command,
        words: Vec<OsString>,
        here: Option<&Path>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let at = said("_CLAP_COMPLETE_INDEX").and_then(|index| index.parse().ok());
        let line = Line::of(words, at.unwrap_or_default());
        let found = complete(command, line.words, line.at, here)?;
        let between = said("_CLAP_IFS").unwrap_or_else(|| "\n".into());
        let values = found.iter().map(|candidate| {
            let value = candidate.get_value().to_string_lossy();
            match value.strip_prefix(&line.before) {
                Some(rest) => rest.to_string(),
                None => value.into_owned(),
            }
        });
        let values: Vec<String> = values.collect();
        write!(out, "{}", values.join(&between))
    }
}

/// What the library's script says besides the words.
fn said(name: &str) -> Option<String> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the script of the library speaks to its own program by these"
    )]
    std::env::var(name).ok()
}

/// The words of a line as they were typed, and which of them is being typed.
#[derive(Debug, PartialEq)]
struct Line {
    words: Vec<OsString>,
    at: usize,
    /// What of that word bash keeps.
    before: String,
}

impl Line {
    fn of(words: Vec<OsString>, at: usize) -> Line {
        let mut line = Line {
            words: Vec::new(),
            at,
            before: String::new(),
        };
        let mut i = 0;
        while i < words.len() {
            let is_option = i > 0 && words[i - 1].to_string_lossy().starts_with('-');
            let long = words[i].to_string_lossy().starts_with("--");
            let parts = match is_option || long {
                true => parts(&words[i..], at.wrapping_sub(i)),
                false => 1,
            };
            let typed = (i..i + parts).contains(&at);
            let mut word = words[i].clone();
            if parts > 1 {
                word.push("=");
            }
            if typed {
                line.at = line.words.len();
                line.before = match parts > 1 {
                    true => word.to_string_lossy().into_owned(),
                    false => String::new(),
                };
            }
            if parts == 3 {
                word.push(&words[i + 2]);
            }
            line.words.push(word);
            i += parts;
        }
        line
    }
}

/// How many words the first one was before bash took it apart; `at` is the one that is being typed.
fn parts(words: &[OsString], at: usize) -> usize {
    let value = words.get(2).is_some();
    match words.get(1) {
        Some(word) if word == "=" && value => 3,
        Some(word) if word == "=" => 2,
        // Of a value that is not begun the script leaves an empty word in place of the `=`.
        Some(word) if word.is_empty() && at == 1 && !is_whole(&words[0]) => 2,
        _ => 1,
    }
}

/// Whether a word can stand before a space: `--set` waits for its value, `lr` for an `=`.
fn is_whole(word: &OsString) -> bool {
    let word = word.to_string_lossy();
    word.starts_with('-') || crate::spec::key_is_known(&word).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &[&str], at: usize) -> (Vec<String>, usize, String) {
        let line = Line::of(words.iter().map(OsString::from).collect(), at);
        let words = line.words.iter().map(|w| w.to_string_lossy().into_owned());
        (words.collect(), line.at, line.before)
    }

    #[test]
    fn settings_are_put_together_again() {
        let told = |words: &[&str], at| {
            let (words, at, before) = line(words, at);
            (words.join(" "), at, before)
        };
        fn with<'a>(rest: &[&'a str]) -> Vec<&'a str> {
            [&["llmtui", "train", "-s"], rest].concat()
        }
        assert_eq!(
            told(&with(&["optimizer", "=", "ad"]), 5),
            (
                "llmtui train -s optimizer=ad".into(),
                3,
                "optimizer=".into()
            )
        );
        // The script has put an empty word where the `=` was.
        assert_eq!(
            told(&with(&["optimizer", ""]), 4),
            ("llmtui train -s optimizer=".into(), 3, "optimizer=".into())
        );
        // What is done stays before what is being typed.
        assert_eq!(
            told(&with(&["lr", "=", "1e-3", "qu"]), 6),
            ("llmtui train -s lr=1e-3 qu".into(), 4, String::new())
        );
        assert_eq!(
            told(&["llmtui", "--runs-dir", "=", "my", "attach", ""], 5),
            ("llmtui --runs-dir=my attach ".into(), 3, String::new())
        );
        // A space, not an `=`, is behind these.
        assert_eq!(told(&["llmtui", "train", "lr", ""], 3).1, 3);
        assert_eq!(told(&["llmtui", "attach", "--ascii", ""], 3).1, 3);
        assert_eq!(told(&["llmtui", "chat", "-c", "my.yaml", ""], 4).1, 4);
    }
}
