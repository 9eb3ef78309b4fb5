//! Nothing in the folder executes when it is loaded, and no link leads out of it.

use super::super::files::{Entry, Link};
use super::super::subject::Subject;
use super::{Check, several};
use crate::base::finding::Finding;
use crate::base::text::one_line;
use crate::hub::confined;

pub(super) const CHECK: Check = Check {
    id: "safe",
    title: "Safe to open",
    run,
};

/// Formats of pickled Python objects, which execute code when loaded.
const PICKLES: &[&str] = &[
    "bin", "pt", "pth", "pkl", "pickle", "ckpt", "joblib", "dill", "npy", "npz", "h5", "keras",
];
/// Programs, and archives of them.
const PROGRAMS: &[&str] = &[
    "exe", "dll", "so", "dylib", "sh", "bash", "bat", "cmd", "ps1", "jar", "pyc", "pyd", "com", "msi", "apk", "app", "whl",
];
/// Source that runs where a reader asks for it.
const SOURCES: &[&str] = &["py", "ipynb", "js", "rb", "pl"];

fn run(subject: &Subject) -> Vec<Finding> {
    let mut groups: Vec<(Vec<String>, Make)> = Vec::new();
    let mut add = |name: &str, make: Make| match groups.iter_mut().find(|(_, m)| *m == make) {
        Some((names, _)) => names.push(name.into()),
        None => groups.push((vec![name.into()], make)),
    };
    for file in &subject.files {
        if let Some(make) = judge(file, &file.head(&subject.folder)) {
            add(&file.name, make);
        }
    }
    if let Some(auto_map) = auto_map(subject) {
        add(&auto_map, Make::CustomCode);
    }
    let mut findings: Vec<Finding> = groups
        .iter()
        .map(|(names, make)| make.finding(names))
        .collect();
    if findings.is_empty() {
        findings.push(Finding::pass(match subject.files.len() {
            1 => "1 file, with no code and no links".into(),
            n => format!("{n} files, with no code and no links"),
        }));
    }
    findings
}

/// The fault of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Make {
    Pickle,
    Program,
    Source,
    CustomCode,
    Link,
    Special,
    Name,
}

impl Make {
    fn finding(self, names: &[String]) -> Finding {
        let what = several(names);
        let made = match self {
            Make::Pickle => Finding::fail(
                format!("{what}: pickled Python objects, by name or by content"),
                "a pickle executes code when loaded; the hub marks such files as unsafe, and users reject them",
                "store weights as .safetensors (`save_pretrained` writes them), and delete the file",
            ),
            Make::Program => Finding::fail(
                format!("{what}: a program"),
                "a model needs none, and everyone who downloads the folder gets it",
                "remove it",
            ),
            Make::Source => Finding::warn(
                format!("{what}: source code"),
                "with trust_remote_code=True transformers runs code from a repository",
                "delete it, unless the model needs custom code; then describe it in the card",
            ),
            Make::CustomCode => Finding::warn(
                what.clone(),
                "`auto_map` points to code that transformers runs with trust_remote_code=True alone",
                "remove auto_map if a transformers class implements the model",
            ),
            Make::Link => Finding::fail(
                format!("{what}: a link that leads outside the folder, or nowhere"),
                "an upload would follow it and publish another file, or fail",
                "replace it with a copy of the file, or delete it",
            ),
            Make::Name => Finding::fail(
                format!("{what}: not a valid name on the hub and other systems"),
                "control characters, backslashes and non-UTF-8 bytes break listings and uploads",
                "rename the file",
            ),
            Make::Special => Finding::fail(
                format!("{what}: a socket, a pipe or a device"),
                "it has no content to publish",
                "remove it",
            ),
        };
        made.at(names.first().map(|name| one_line(name)).unwrap_or_default())
    }
}

fn judge(file: &Entry, head: &[u8]) -> Option<Make> {
    let ending = file.ending();
    let is = |list: &[&str]| list.contains(&ending.as_str());
    // Names of safe formats: their content is checked elsewhere, not guessed from two bytes.
    let is_known = is(&["safetensors", "gguf", "json", "md", "txt", "jinja"]);
    match () {
        () if confined(&file.name).is_err() || file.name.contains('\u{fffd}') => Some(Make::Name),
        () if matches!(file.link, Link::Outside(_)) => Some(Make::Link),
        () if file.is_special => Some(Make::Special),
        () if is(PICKLES) || is_pickle(head) => Some(Make::Pickle),
        () if is(PROGRAMS) || is_program(head) => Some(Make::Program),
        () if is(SOURCES) => Some(Make::Source),
        () if file.is_executable && !is_known && !file.base().contains('.') => Some(Make::Program),
        () => None,
    }
}

/// A pickle of protocol 2 to 5, or an archive of them as PyTorch writes it.
fn is_pickle(head: &[u8]) -> bool {
    let plain = matches!(head, [0x80, 2..=5, ..]);
    let archive = head.starts_with(b"PK\x03\x04");
    plain || archive && contains(head, b"data.pkl") || archive && contains(head, b".npy")
}

fn is_program(head: &[u8]) -> bool {
    let magics: [&[u8]; 6] = [
        b"\x7fELF",
        b"#!",
        b"\xfe\xed\xfa\xce",
        b"\xfe\xed\xfa\xcf",
        b"\xcf\xfa\xed\xfe",
        b"\xca\xfe\xba\xbe",
    ];
    let dos = head.starts_with(b"MZ") && contains(head, b"This program");
    dos || magics.iter().any(|magic| head.starts_with(magic))
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Where config.json or tokenizer_config.json references custom code.
fn auto_map(subject: &Subject) -> Option<String> {
    ["config.json", "tokenizer_config.json"].into_iter().find_map(|name| {
        subject.entry(name).filter(|file| file.can_be_read())?;
        let text = crate::base::files::read_small(&subject.folder.join(name), 16 << 20).ok()?;
        let value: serde_json::Value = serde_json::from_slice(&text).ok()?;
        value.get("auto_map").map(|_| format!("{name}: auto_map"))
    })
}
