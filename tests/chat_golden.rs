//! Conversations rendered as in transformers: the output of our templates compared with that of the models' own.
//! `tests/oracle/chat_oracle.py` made the fixtures.

#![expect(
    clippy::unwrap_used,
    reason = "a fixture that cannot be read has failed"
)]

use llmtui::data::chat::{BUILTIN, GenerationPrompt, Template};
use llmtui::data::render::{Renderer, TrainOn};
use llmtui::data::{Content, Example, Message, Place, Tokenizer};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn fixture(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/chat")
        .join(name);
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// The difference between our rendering of a row and transformers'; `None` if there is none.
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
        // Where Python itself fails (it does not iterate over `none`), our engine may continue.
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
fn built_in_templates_render_like_the_models_own() {
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

/// The files that the script wrote for templates that may not be stored here, each with its name and template.
#[expect(
    clippy::disallowed_methods,
    reason = "where a developer keeps what he fetched"
)]
fn foreign() -> Vec<(String, Value)> {
    let folder = PathBuf::from(std::env::var("LLMTUI_FOREIGN_TEMPLATES").unwrap());
    let entries = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    let mut found: Vec<(String, Value)> = entries
        .map(|file| {
            let name = file.file_stem().unwrap().to_string_lossy().into_owned();
            (
                name,
                serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap(),
            )
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

fn compiled(name: &str, entry: &Value) -> Template {
    let source = entry["template"].as_str().unwrap();
    let variables = entry["variables"].as_object().unwrap();
    let template = Template::from_jinja(name, source).unwrap();
    let tell = |t: Template, (name, value): (&String, &Value)| t.with_variable(name, value.clone());
    variables.iter().fold(template, tell)
}

/// All official templates that the script found.
#[test]
#[ignore = "needs a folder that chat_oracle.py wrote, named by LLMTUI_FOREIGN_TEMPLATES"]
fn foreign_templates_render_as_in_transformers() {
    let (mut same, mut total, mut report) = (0, 0, String::new());
    for (name, entry) in foreign() {
        let template = compiled(&name, &entry);
        for row in entry["rows"].as_array().unwrap() {
            total += 1;
            // `'…'|safe + x` escapes x as HTML there; training on such text is hardly intended.
            let known = name.contains("functionary-medium-v3.1") && row.get("tools").is_some();
            match difference(&template, row) {
                Some(found) if !known => {
                    report.push_str(&format!("{name} {}\n{found}\n", row["case"]))
                }
                _ => same += 1,
            }
        }
    }
    assert!(same == total, "{same} of {total} are the same\n{report}");
}

/// A mask is correct or rejected: the supervised text is the two answers, with the template's text that ends them.
#[test]
#[ignore = "needs a folder that chat_oracle.py wrote, named by LLMTUI_FOREIGN_TEMPLATES"]
fn masks_of_foreign_templates_are_correct_or_rejected() {
    let json = include_str!("fixtures/chat/tokenizer.json");
    let tokenizer = Arc::new(Tokenizer::from_json(json).unwrap());
    let place = Place {
        file: "t".into(),
        row: 1,
    };
    let turns = [
        ("user", "ASKS"),
        ("assistant", "FIRST"),
        ("user", "AGAIN"),
        ("assistant", "SECOND"),
    ];
    let turns = turns.map(|(role, text)| Message::new(role, text)).to_vec();
    let (mut right, mut refused, mut wrong) = (0, Vec::new(), String::new());
    for (name, entry) in foreign() {
        let template = compiled(&name, &entry);
        let text = template.render(&turns, None, GenerationPrompt::Without);
        if !text.is_ok_and(|text| text.contains("FIRST")) {
            // Made for images: it renders no plain-text turn, in transformers neither.
            continue;
        }
        let renderer = Renderer::new(tokenizer.clone(), Some(template), TrainOn::Assistant);
        let document = match renderer.document(&Example::new(Content::Chat(turns.clone())), &place)
        {
            Ok(document) => document,
            Err(_) => {
                refused.push(name);
                continue;
            }
        };
        let ids = document.ids.iter().zip(&document.supervised);
        let ids: Vec<u32> = ids
            .filter(|(_, supervised)| **supervised)
            .map(|(id, _)| *id)
            .collect();
        let printed = tokenizer.decode(&ids);
        let (first, second) = (printed.find("FIRST"), printed.find("SECOND"));
        if first.is_some()
            && first < second
            && !printed.contains("ASKS")
            && !printed.contains("AGAIN")
        {
            right += 1;
        } else {
            wrong.push_str(&format!("{name}: {printed:?}\n"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(
        right > 100,
        "{right} are right, {} refused: {refused:#?}",
        refused.len()
    );
}
