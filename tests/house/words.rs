//! Words that are allowed only in some rooms, each with its reason, and the only functions that may print; words that texts for users
//! do not use.

use crate::sources::sources;
use std::fs;
use std::path::{Path, PathBuf};

/// Files of the kernel and of sandboxes, and a folder's descriptor: never named by a user.
const READERS: &[&str] = &[
    "base/files.rs",
    "cli/bench/machine.rs",
    "hardware/host/",
    "link/address.rs",
    "sandbox/",
    "workers/group.rs",
];
const READ_PLAIN: &str = "base::files opens plain files alone: a pipe would keep its reader waiting, a device never ends";

/// Pattern → where it is allowed, and why nowhere else.
const PATTERNS: &[(&str, &[&str], &str)] = &[
    (
        "println!(",
        &["cli/", "main.rs"],
        "only cli speaks to standard output: a stray print corrupts the screen",
    ),
    (
        "eprintln!(",
        &["cli/", "main.rs"],
        "only cli speaks to standard error: a stray print corrupts the screen",
    ),
    (
        "Color::",
        &["ui/theme"],
        "panes ask the theme for a meaning, never for a colour",
    ),
    (
        "unsafe {",
        &["kernels/", "base/mapped.rs"],
        "unsafe lives in kernels/, and in base/mapped.rs: a memory map cannot be had without, and tokens may be more than memory holds",
    ),
    ("unsafe fn", &["kernels/"], "unsafe lives in kernels/ alone"),
    (
        "unsafe impl",
        &["kernels/"],
        "unsafe lives in kernels/ alone",
    ),
    (
        "unsafe extern",
        &["kernels/"],
        "unsafe lives in kernels/ alone",
    ),
    (
        "allow(unsafe_code)",
        &["kernels/", "base/mapped.rs"],
        "unsafe lives in kernels/, and in base/mapped.rs: every other file is held to `deny(unsafe_code)`",
    ),
    (
        ".set_symbol(",
        &[],
        "a cell passes control sequences through: draw text by spans",
    ),
    ("fs::read(", READERS, READ_PLAIN),
    ("fs::read_to_string(", READERS, READ_PLAIN),
    (" File::open(", READERS, READ_PLAIN),
    ("fs::File::open(", READERS, READ_PLAIN),
    (
        "from] candle_core::Error",
        &[],
        "with RUST_BACKTRACE its text is a backtrace: keep kernels::errors::error_text of it",
    ),
    ("todo!(", &[], "unfinished code does not land"),
    ("unimplemented!(", &[], "unfinished code does not land"),
];

#[test]
fn forbidden_words_stay_in_their_rooms() {
    let faults: Vec<String> = sources()
        .iter()
        .flat_map(|source| {
            PATTERNS
                .iter()
                .filter(|(pattern, owners, _)| {
                    source.code.contains(pattern)
                        && !owners.iter().any(|owner| source.path.starts_with(owner))
                })
                .map(|(pattern, _, why)| format!("{}: `{pattern}`: {why}", source.file))
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// JSON on a terminal must not control it, and `serde_json` escapes only the C0 controls.
#[test]
fn the_command_line_prints_json_through_one_function() {
    let raw = [
        "serde_json::to_string",
        "serde_json::to_writer",
        "quiet_json(",
    ];
    let faults: Vec<String> = sources()
        .iter()
        .filter(|source| source.path.starts_with("cli/") && source.path != "cli/out.rs")
        .filter(|source| raw.iter().any(|word| source.code.contains(word)))
        .map(|source| format!("{}: print by out::json or out::json_line", source.file))
        .collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// A file's name may contain control sequences: printed names go through `base::text::shown`, data becomes a `String` first.
#[test]
fn paths_are_shown_through_one_function() {
    let mut faults = Vec::new();
    for source in sources() {
        let printed = source.path.starts_with("cli/");
        let code: String = source.code.split_whitespace().collect();
        for (at, display) in code.match_indices(".display()") {
            let data = code[at + display.len()..].starts_with(".to_string()");
            let before = code[..at].trim_end_matches(|c: char| !"&,;".contains(c));
            let wrapped = before.ends_with("one_line(&") && source.path != "base/text.rs";
            if (printed && !data) || wrapped {
                let skip = code[..at].chars().count().saturating_sub(40);
                let place: String = code[..at].chars().skip(skip).collect();
                faults.push(format!(
                    "{}: {place}.display(): say shown(path)",
                    source.file
                ));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// Words that readers of English have to translate → what the field says. They may be in no text that a user reads.
const TRANSLATED: &[(&str, &str)] = &[
    ("tell", "report, show, warn, distinguish"),
    ("tells", "reports, shows, warns"),
    ("told", "reported, distinguished"),
    ("mend", "fix"),
    ("mends", "fixes"),
    ("mended", "fixed"),
    ("anew", "again, from scratch"),
    ("goes on", "continues"),
    ("stands still", "is halted"),
    ("foretold", "predicted"),
    ("learnt", "supervised; learned"),
];

/// Whether a text has the word by itself.
fn has_word(text: &str, word: &str) -> bool {
    let text = text.to_lowercase();
    let inside = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || "_-".contains(c));
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !inside(before) && !inside(after)
    })
}

/// What is between quotation marks on each line of code: line number and text. A string that goes over the end of a line ends that
/// line with a backslash, as rustfmt leaves them.
fn strings(code: &str) -> Vec<(usize, String)> {
    let (mut found, mut open) = (Vec::new(), false);
    for (at, line) in code.lines().enumerate() {
        let line = line
            .replace("\\\\", "")
            .replace("\\\"", "")
            .replace("'\"'", "");
        let pieces: Vec<&str> = line.split('"').collect();
        let first = usize::from(!open);
        let inside = pieces.iter().skip(first).step_by(2);
        found.extend(inside.map(|piece| (at + 1, piece.to_string())));
        let ends_open = open == (pieces.len() % 2 == 1);
        open = ends_open && line.ends_with('\\');
    }
    found
}

#[test]
fn strings_are_read_from_code() {
    let code = "let a = \"one\"; f(\"two \\\"x\\\" \\\n  three\", '\"', \"four\");\nlet told = b;";
    let texts: Vec<String> = strings(code).into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["one", "two x \\", "  three", "four"]);
    assert!(has_word("It is Told.", "told") && !has_word("untold, told_by", "told"));
}

#[test]
fn texts_for_users_use_the_words_of_the_field() {
    let mut faults = Vec::new();
    let mut look = |place: String, text: &str| {
        for (word, instead) in TRANSLATED.iter().filter(|(word, _)| has_word(text, word)) {
            faults.push(format!(
                "{place}: `{word}`: say {instead}\n    {}",
                text.trim()
            ));
        }
    };
    for source in sources() {
        for (_, text) in strings(&source.code) {
            look(source.file.clone(), &text);
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = vec![root.join("README.md"), root.join("CHANGELOG.md")];
    for folder in ["docs", "assets/guide", "presets", "pipelines"] {
        texts(&root.join(folder), &mut pages);
    }
    assert!(pages.len() > 30, "{pages:?}");
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for (at, line) in text.lines().enumerate() {
            look(format!("{}:{}", page.display(), at + 1), line);
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

fn texts(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        match path.is_dir() {
            true => texts(&path, into),
            false if matches!(ending, Some("md" | "yaml")) => into.push(path),
            false => (),
        }
    }
}
