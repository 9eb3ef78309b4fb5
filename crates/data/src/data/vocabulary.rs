//! The tokenizer of a run on documents: read from its file, or trained on the text of the sources and cached, so that the
//! same data give it at once.

use super::chat::{AUTO, GenerationPrompt, Template};
use super::examples::examples;
use super::limit;
use super::source::{ReadContext, SourceConfig};
use super::store::{Key, digest, text_bytes};
use super::tokenizer::{ChatMarkers, TokenizerConfig};
use super::{Content, DataConfig, DataError, Example, Message, Tokenizer, Turns};
use crate::base::child::Child;
use crate::base::files::{read_plain_text, write_atomic};
use std::path::Path;

/// A subword tokenizer is trained on this much text: with more, its tokens hardly change.
const SAMPLE: usize = 128 << 20;
/// A character vocabulary needs all of the text; texts larger than this should not use one.
const ALL: usize = 1 << 30;

/// The template of tokenizers that are made here.
pub(super) const TEMPLATE: &str = "chatml";

/// Reads or makes the tokenizer of a config, and the template that turns become text with.
pub(super) fn tokenizer(
    config: &DataConfig,
    sources: &[SourceConfig],
    read: &ReadContext,
    cache: Option<&Path>,
) -> Result<(Tokenizer, Option<Template>), DataError> {
    if matches!(config.tokenizer, TokenizerConfig::File(_)) {
        let tokenizer = config.tokenizer.build("", "")?;
        let template = template(config, &tokenizer)?;
        return Ok((tokenizer, template));
    }
    // A template from a file takes its markers from the tokenizer, and one that is trained here has none.
    let bare = TokenizerConfig::Char(Default::default()).build("-", "-")?;
    let template = template(config, &bare)?;
    let tokenizer = made(config, sources, template.as_ref(), read, cache)?;
    Ok((tokenizer, template))
}

/// The template that turns become text with, for a tokenizer that was read or made.
pub(super) fn template(
    config: &DataConfig,
    tokenizer: &Tokenizer,
) -> Result<Option<Template>, DataError> {
    let of_file = matches!(config.tokenizer, TokenizerConfig::File(_));
    let said = match &*config.template {
        AUTO if !of_file => TEMPLATE,
        said => said,
    };
    Template::choose(said, tokenizer, &Child::of_this_program())
}

/// Takes the tokenizer from the cache, or makes it of the sources' text.
fn made(
    config: &DataConfig,
    sources: &[SourceConfig],
    template: Option<&Template>,
    read: &ReadContext,
    cache: Option<&Path>,
) -> Result<Tokenizer, DataError> {
    let kept = match cache {
        Some(folder) => Some(folder.join(name(config, sources, template, read)?)),
        None => None,
    };
    if let Some(path) = &kept
        && let Ok(json) = read_plain_text(path)
        && let Ok(tokenizer) = Tokenizer::from_json(&json)
    {
        return Ok(tokenizer);
    }
    let gathered = gather(config, sources, template, read)?;
    let markers = match template {
        Some(template) if gathered.turns => ChatMarkers::of_template(template.name()),
        _ => ChatMarkers::None,
    };
    let kind = config.tokenizer.with_chat_markers(markers);
    let tokenizer = kind.build(&gathered.text, &gathered.text)?;
    if let Some(path) = &kept {
        // Without it the next start takes longer, and nothing else.
        let folder = path.parent().map(std::fs::create_dir_all);
        if folder.is_some_and(|made| made.is_ok()) {
            let _ = write_atomic(path, tokenizer.to_json().as_bytes());
        }
    }
    Ok(tokenizer)
}

/// The file's name in the cache, by everything that the tokenizer depends on.
fn name(
    config: &DataConfig,
    sources: &[SourceConfig],
    template: Option<&Template>,
    read: &ReadContext,
) -> Result<String, DataError> {
    let mut key = Key::new("tokenizer")
        .with(
            "kind",
            serde_json::to_string(&config.tokenizer).unwrap_or_default(),
        )
        .with(
            "template",
            template.map(Template::fingerprint).unwrap_or_default(),
        );
    // The text of a row depends on these, too.
    key = key
        .with("format", format!("{:?}", config.format))
        .with("unit", format!("{:?}", read.unit))
        .with("on_bad_row", format!("{:?}", config.on_bad_row));
    if let Some(rows) = config.max_rows {
        key = key.with("max_rows", rows.to_string());
    }
    for (i, source) in sources.iter().enumerate() {
        let rows = super::source::rows(source, read)?;
        key = key.with(&format!("files {i}"), digest(rows.files())?).with(
            &format!("source {i}"),
            serde_json::to_string(source).unwrap_or_default(),
        );
    }
    Ok(format!("tokenizer-{}.json", key.hash()))
}

/// The training text of a tokenizer.
#[derive(Default)]
struct Gathered {
    text: String,
    /// Some of it was rendered from turns.
    turns: bool,
}

/// The text that a model will read, one document after the other.
fn gather(
    config: &DataConfig,
    sources: &[SourceConfig],
    template: Option<&Template>,
    read: &ReadContext,
) -> Result<Gathered, DataError> {
    let characters = matches!(config.tokenizer, TokenizerConfig::Char(_));
    let limit = if characters {
        ALL
    } else {
        SAMPLE / sources.len().max(1)
    };
    let Gathered {
        mut text,
        mut turns,
    } = Gathered::default();
    for source in sources {
        let begun = text.len();
        let rows = examples(source, config.format, config.on_bad_row, read)?;
        let most = limit::rows_read(source, config.max_rows, read)?;
        for row in rows.at_most(most) {
            let (_, example) = row?;
            if text.len() - begun + text_bytes(&example.content) > limit {
                if characters {
                    return Err(DataError::TooLarge {
                        place: source.to_string(),
                        bytes: limit as u64 + 1,
                        limit: limit as u64,
                    });
                }
                break;
            }
            turns |= has_turns(&example.content);
            text.push_str(&plain(&example, template));
            text.push('\n');
        }
    }
    Ok(Gathered { text, turns })
}

/// Whether a template will write some of it.
pub(super) fn has_turns(content: &Content) -> bool {
    match content {
        Content::Text(_) => false,
        Content::Chat(_) => true,
        other => sides(other)
            .iter()
            .flatten()
            .any(|side| matches!(side, Turns::Messages(_))),
    }
}

/// The prompt of a row that is a text: no template writes it.
pub fn plain_prompt(content: &Content) -> Option<&str> {
    let prompt = *sides(content).first()?.first()?;
    match prompt {
        Turns::Text(text) => Some(text.as_str()).filter(|text| !text.trim().is_empty()),
        Turns::Messages(_) => None,
    }
}

/// Each prompt with an answer to it; a prompt alone where the answer is made in training.
fn sides(content: &Content) -> Vec<Vec<&Turns>> {
    match content {
        Content::Text(_) | Content::Chat(_) => Vec::new(),
        Content::Completion { prompt, completion }
        | Content::Labelled {
            prompt, completion, ..
        } => vec![vec![prompt, completion]],
        Content::Preference {
            prompt,
            chosen,
            rejected,
        } => vec![vec![prompt, chosen], vec![prompt, rejected]],
        Content::Prompt { prompt, .. } => vec![vec![prompt]],
    }
}

/// An example as its model will read it. What the template refuses is refused again, with its place, when it is tokenized.
pub(super) fn plain(example: &Example, template: Option<&Template>) -> String {
    try_plain(example, template).unwrap_or_default()
}

/// The same where nothing else reads the example: empty without a template for its turns.
///
/// # Errors
/// The template's own refusal.
pub(super) fn try_plain(
    example: &Example,
    template: Option<&Template>,
) -> Result<String, DataError> {
    let rendered = |messages: &[Message]| {
        let tools = example.tools.as_ref();
        let text = template.map(|t| t.render(messages, tools, GenerationPrompt::Without));
        text.unwrap_or_else(|| Ok(String::new()))
    };
    let joined = |turns: Vec<&Turns>| -> Result<String, DataError> {
        let texts = turns.iter().map(|side| match side {
            Turns::Text(text) => Some(text.as_str()),
            Turns::Messages(_) => None,
        });
        if let Some(texts) = texts.collect::<Option<Vec<_>>>() {
            return Ok(texts.concat());
        }
        let roles = ["user", "assistant"];
        let messages = turns.iter().zip(roles).flat_map(|(side, role)| match side {
            Turns::Text(text) => vec![Message::new(role, text)],
            Turns::Messages(messages) => messages.clone(),
        });
        rendered(&messages.collect::<Vec<_>>())
    };
    match &example.content {
        Content::Text(text) => Ok(text.clone()),
        Content::Chat(messages) => rendered(messages),
        Content::Prompt {
            prompt,
            answer: Some(answer),
        } => joined(vec![prompt, &Turns::Text(answer.clone())]),
        other => {
            let texts = sides(other).into_iter().map(joined);
            Ok(texts.collect::<Result<Vec<_>, _>>()?.join("\n"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made_from(rows: &str, settings: serde_json::Value) -> Tokenizer {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.jsonl");
        std::fs::write(&path, rows).unwrap();
        let config = DataConfig {
            tokenizer: serde_json::from_value(settings).unwrap(),
            ..Default::default()
        };
        let source = SourceConfig::path(path.display().to_string());
        let read = ReadContext::default();
        tokenizer(&config, &[source], &read, None).unwrap().0
    }

    const CHAT: &str =
        r#"{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"ho"}]}"#;

    #[test]
    fn the_marks_of_a_conversation_are_tokens_of_their_own() {
        let made = made_from(CHAT, serde_json::json!({"bpe": {"vocab_size": 280}}));
        assert!(made.id("<|im_start|>").is_some());
        assert_eq!(made.encode("<|im_end|>").unwrap().len(), 1);
    }

    #[test]
    fn text_and_those_who_say_none_get_no_marks() {
        let text = made_from(
            r#"{"text":"hi ho"}"#,
            serde_json::json!({"bpe": {"vocab_size": 280}}),
        );
        assert_eq!(text.id("<|im_start|>"), None);
        let settings = serde_json::json!({"bpe": {"vocab_size": 280, "chat_markers": "none"}});
        assert_eq!(made_from(CHAT, settings).id("<|im_start|>"), None);
    }

    #[test]
    fn every_built_in_template_has_its_marks() {
        for builtin in crate::data::chat::BUILTIN {
            let markers = ChatMarkers::of_template(builtin.name).tokens();
            assert!(markers.contains(&builtin.turn_end), "{}", builtin.name);
        }
    }
}
