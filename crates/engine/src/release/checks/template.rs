//! The chat template renders typical conversations, and a turn of the model ends with a stop token.

use super::super::subject::{Form, Subject};
use super::Check;
use crate::base::child::Child;
use crate::base::finding::Finding;
use crate::base::text::one_line;
use crate::data::Message;
use crate::data::chat::{AUTO, GenerationPrompt, Template};
use crate::data::tokenizer::{self, Tokenizer};
use crate::models::ModelSource;
use std::path::Path;

pub(super) const CHECK: Check = Check {
    id: "template",
    title: "Chat template",
    run,
};

const ANSWER: &str = "Fine, thanks.";

fn run(subject: &Subject) -> Vec<Finding> {
    let models = subject.models();
    let found = |path: &std::path::PathBuf| {
        let place = match subject.form {
            Form::Gguf => format!("{}: tokenizer.chat_template", subject.place(path)),
            _ if subject.entry("chat_template.jinja").is_some() => "chat_template.jinja".into(),
            _ => "tokenizer_config.json: chat_template".into(),
        };
        look(path).into_iter().map(move |f| f.at(&place)).collect::<Vec<_>>()
    };
    models.iter().flat_map(found).collect()
}

fn look(path: &Path) -> Vec<Finding> {
    let source = ModelSource::open(path).ok();
    let place = source.as_ref().map_or(path, |source| source.tokenizer_path());
    let child = Child::of_this_program();
    // One that cannot be had is the tokenizer's finding.
    let Ok(tokenizer) = tokenizer::load(place, &child) else {
        return vec![Finding::not_applicable("there is no tokenizer, so no template")];
    };
    let broken = |why: String, hint: String| {
        Finding::fail(why, "programs cannot chat with the model", hint)
    };
    let template = match Template::choose(AUTO, &tokenizer, &child) {
        Ok(Some(template)) => template,
        Ok(None) => {
            return vec![Finding::not_applicable("none: a base model, which completes text")];
        }
        Err(error) => return vec![broken(error.to_string(), error.hint().to_string())],
    };
    let user = Message::new("user", "How are you?");
    let plain = [user.clone()];
    let turns = [
        user.clone(),
        Message::new("assistant", ANSWER),
        Message::new("user", "And you?"),
    ];
    let mut findings = Vec::new();
    for (what, messages) in [("one question", &plain[..]), ("three turns", &turns)] {
        let text = template.render(messages, None, GenerationPrompt::With);
        match text {
            Err(error) => findings.push(broken(
                format!("{what}: {error}"),
                error.hint().to_string(),
            )),
            Ok(text) => {
                let lost = messages.iter().find(|m| !text.contains(&m.content));
                findings.extend(lost.map(|m| {
                    broken(
                        format!("{what}: \"{}\" is missing from the rendered text", one_line(&m.content)),
                        "fix the template: it must render every turn".into(),
                    )
                }));
            }
        }
    }
    if findings.is_empty() {
        findings.extend(system(&template, user));
        let ends = source.map(|source| source.ends());
        findings.extend(ends.and_then(|ends| end(&template, &tokenizer, &turns[..2], &ends)));
    }
    if findings.is_empty() {
        findings.push(Finding::pass("a question, three turns, a system prompt; turns end with an EOS token"));
    }
    findings
}

/// Whether a system prompt is written.
fn system(template: &Template, user: Message) -> Option<Finding> {
    let system = "Speak like a pirate.";
    let messages = [Message::new("system", system), user];
    let what = match template.render(&messages, None, GenerationPrompt::With) {
        Ok(text) if text.contains(system) => return None,
        Ok(_) => "it drops the system prompt".to_string(),
        Err(error) => format!("it rejects a system prompt: {error}"),
    };
    Some(Finding::warn(
        what,
        "some models have none by design; programs that send one fail or have it ignored",
        "state it in the card, or put it into the first user turn as Gemma's template does",
    ))
}

/// Whether what follows the model's own words holds a token that ends generation.
fn end(
    template: &Template,
    tokenizer: &Tokenizer,
    turns: &[Message],
    ends: &[u32],
) -> Option<Finding> {
    let text = template.render(turns, None, GenerationPrompt::Without).ok()?;
    let (_, behind) = text.rsplit_once(ANSWER)?;
    let ids = tokenizer.encode(behind).ok()?;
    let stops = ids.iter().take(2).any(|id| ends.contains(id));
    let shown = one_line(behind);
    (!stops).then(|| {
        Finding::warn(
            format!("the assistant's turn ends with {shown:?}, which has no eos_token_id"),
            "the end-of-turn token does not stop generation: programs also generate the user's next turn",
            "add the token to eos_token_id in generation_config.json, or for GGUF to tokenizer.ggml.eot_token_id",
        )
    })
}
