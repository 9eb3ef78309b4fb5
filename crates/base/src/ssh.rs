//! Command lines of the system's own `ssh`, with its agent, keys and configuration.

use std::ffi::OsString;

/// Options of every connection: a lost machine is detected within half a minute.
const OPTIONS: [&str; 6] = [
    "-o",
    "ConnectTimeout=10",
    "-o",
    "ServerAliveInterval=10",
    "-o",
    "ServerAliveCountMax=3",
];

/// `ssh` with its options, up to the destination. `terminal`: interactive; otherwise it never asks for a password.
pub fn begin(terminal: bool) -> Vec<OsString> {
    let mut line: Vec<OsString> = vec!["ssh".into()];
    line.extend(OPTIONS.map(OsString::from));
    match terminal {
        true => line.push("-t".into()),
        false => line.extend(["-T", "-o", "BatchMode=yes"].map(OsString::from)),
    }
    line
}

/// Checks a destination: `ssh` takes one that begins with a dash for an option, and options may run programs.
///
/// # Errors
/// It is not a valid destination: the reason.
pub fn is_destination(word: &str) -> Result<(), String> {
    let odd = |c: char| c.is_whitespace() || c.is_control();
    match word.is_empty() || word.starts_with('-') || word.contains(odd) {
        true => Err(format!(
            "{word:?} is not a valid host; write HOST or USER@HOST, options belong in ~/.ssh/config"
        )),
        false => Ok(()),
    }
}

/// A program and its arguments for the remote shell, which expands a leading `~` of the program.
pub fn in_shell(program: &str, words: &[&str]) -> String {
    let words = words.iter().map(|word| shell_quote(word));
    std::iter::once(path_in_shell(program))
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}

/// A path for the remote shell, which expands a leading `~` or `~/` to the home folder there; everything else is quoted.
pub fn path_in_shell(path: &str) -> String {
    match path.strip_prefix("~/") {
        Some(rest) => format!("~/{}", shell_quote(rest)),
        None if path == "~" => path.into(),
        None => shell_quote(path),
    }
}

/// A word for a POSIX shell, quoted if necessary.
pub fn shell_quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@,+%".contains(c);
    match !word.is_empty() && !word.starts_with('=') && word.chars().all(plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_home_folder_of_a_path_is_expanded_there() {
        for (path, word) in [
            ("~/my runs", "~/'my runs'"),
            ("~/runs", "~/runs"),
            ("~", "~"),
            ("~root/runs", "'~root/runs'"),
            ("/data/~/$HOME", "'/data/~/$HOME'"),
        ] {
            assert_eq!(path_in_shell(path), word);
        }
    }

    #[test]
    fn words_reach_the_remote_shell_unchanged() {
        let words = ["attach", "a; rm -rf ~"];
        assert_eq!(
            in_shell("~/bin/my llmtui", &words),
            "~/'bin/my llmtui' attach 'a; rm -rf ~'"
        );
        assert_eq!(shell_quote("it's"), r"'it'\''s'");
        assert!(is_destination("me@gpu-1").is_ok());
        for word in ["", "-oProxyCommand=x", "a b", "a\n"] {
            assert!(is_destination(word).is_err(), "{word:?}");
        }
    }
}
