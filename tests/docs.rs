//! `docs/parameters.md` is made from the types. This test fails when it is stale; make it new with
//! `LLMTUI_UPDATE_DOCS=1 cargo test --test docs`.

use llmtui::spec::alias::ALIASES;
use llmtui::spec::schema::{self, Kind, Node};
use std::fmt::Write as _;
use std::path::Path;

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a switch for people who run this test"
)]
fn the_list_of_parameters_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/parameters.md");
    let wanted = document();
    if std::env::var("LLMTUI_UPDATE_DOCS").is_ok() {
        std::fs::write(&path, &wanted).expect("docs/ can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "docs/parameters.md is stale: run LLMTUI_UPDATE_DOCS=1 cargo test --test docs"
    );
}

fn document() -> String {
    let mut text = String::from(
        "<!-- Generated from the types by tests/docs.rs: change the doc comments there, then run\n     \
         LLMTUI_UPDATE_DOCS=1 cargo test --test docs -->\n\n\
         # Parameters\n\n\
         Every key of a spec. In a file, sections nest (`train: {max_steps: 500}`); on the command line, keys are dotted\n\
         (`-s train.max_steps=500`). `-` and `_` are equivalent. A section with alternatives takes a bare name\n\
         (`position: rope`) or a name with settings (`position: {rope: {theta: 500000}}`,\n\
         or `{every_n: 2}` if there is only one setting).\n",
    );
    let root = schema::root();
    section(&mut text, "", root);
    for (name, node) in root.children() {
        if !matches!(node.kind, Kind::Object(_) | Kind::Registry(_)) {
            continue;
        }
        let _ = write!(text, "\n## {name}\n\n{}\n", node.doc);
        section(&mut text, name, node);
    }
    text.push_str("\n## Other names\n\nShort names and the names of other tools. `*` stands for the selected member.\n\n");
    text.push_str("| name | means |\n|---|---|\n");
    for (name, target) in ALIASES {
        let _ = writeln!(text, "| `{name}` | `{target}` |");
    }
    text
}

/// A table of the plain keys at and under `node`, down to every member of every choice.
fn section(text: &mut String, path: &str, node: &Node) {
    let mut rows = String::new();
    if let Kind::Registry(_) = node.kind {
        row(&mut rows, path, node);
    }
    collect(&mut rows, path, node);
    if !rows.is_empty() {
        let _ = write!(
            text,
            "\n| key | value | default | meaning |\n|---|---|---|---|\n{rows}"
        );
    }
}

fn collect(rows: &mut String, path: &str, node: &Node) {
    for (name, child) in node.children() {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        let section = !child.children().is_empty();
        if section && !path.contains('.') {
            continue; // a section of its own
        }
        let member = matches!(node.kind, Kind::Registry(_));
        if !matches!(child.kind, Kind::Object(_)) && !member {
            row(rows, &path, child);
        }
        collect(rows, &path, child);
    }
}

fn row(rows: &mut String, path: &str, node: &Node) {
    let default = match (&node.kind, node.default_member()) {
        (Kind::Registry(_), Some(member)) => format!("`{member}`"),
        _ if node.default.is_null() => "–".to_string(),
        _ => format!("`{}`", node.default),
    };
    let doc = node.doc.replace('|', "\\|");
    let _ = writeln!(
        rows,
        "| `{path}` | {} | {default} | {doc} |",
        node.expected()
    );
}
