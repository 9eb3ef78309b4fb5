//! docs/keys.md is generated from the table of actions; `LLMTUI_UPDATE_DOCS=1 cargo test --test keys_doc` regenerates it.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use llmtui::ui::action::{Context, actions};
use llmtui::ui::keymap::Keymap;
use llmtui::ui::signs::behind;
use std::fmt::Write;

fn page() -> String {
    let keymap = Keymap::embedded();
    let mut page = String::from(
        "# Keys\n\nGenerated from the table of actions (`crates/ui/src/ui/action.rs`) and `assets/keymap.yaml`; do not edit. A file in the \
         same format at\n`~/.config/llmtui/keymap.yaml` overrides the keys of the actions that it lists, by the names in \
         the second column.\n",
    );
    for &context in Context::ALL {
        write!(
            page,
            "\n## {}\n\n| keys | `{}:` | |\n|---|---|---|\n",
            context.title(),
            context.id()
        )
        .unwrap();
        for info in actions().filter(|info| info.context == context) {
            let keys: Vec<String> = keymap
                .keys(info.action)
                .map(|key| format!("`{key}`"))
                .collect();
            writeln!(
                page,
                "| {} | `{}` | {} |",
                keys.join(" "),
                info.id,
                info.doc
            )
            .unwrap();
        }
        if let Some((title, rows)) = behind(context, false) {
            write!(page, "\n## {title}\n\n| | |\n|---|---|\n").unwrap();
            for (sign, words) in rows {
                writeln!(page, "| `{sign}` | {words} |").unwrap();
            }
        }
    }
    page
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a switch of this test, not of the program"
)]
fn the_page_of_keys_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/keys.md");
    if std::env::var("LLMTUI_UPDATE_DOCS").is_ok() {
        std::fs::create_dir_all(concat!(env!("CARGO_MANIFEST_DIR"), "/docs")).unwrap();
        std::fs::write(path, page()).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == page(),
        "docs/keys.md is stale: LLMTUI_UPDATE_DOCS=1 cargo test --test keys_doc"
    );
}
