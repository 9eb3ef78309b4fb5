//! The model generates: a few greedy tokens. Tokenizer and template run within limits, as in `llmtui chat`.

use super::super::subject::{Form, Subject};
use super::Check;
use crate::base::finding::Finding;
use crate::base::human;
use crate::base::sampling::Sampling;
use crate::base::text::one_line;
use crate::engine::infer::{LoadedModel, Step, TextModel};
use crate::hf::Peft;
use crate::models::ModelSource;
use crate::wire::{Prompt, Turn};
use std::ops::ControlFlow;
use std::path::Path;

pub(super) const CHECK: Check = Check {
    id: "generates",
    title: "Generates",
    run,
};

/// New tokens of an answer.
const TOKENS: usize = 16;
const TEXT: &str = "The";
const QUESTION: &str = "What is the capital of France?";

fn run(subject: &Subject) -> Vec<Finding> {
    let answers = subject.models();
    answers
        .iter()
        .map(|path| look(subject, path).at(subject.place(path)))
        .collect()
}

fn look(subject: &Subject, path: &Path) -> Finding {
    let scores = || Finding::not_applicable("a reward model scores texts and cannot generate");
    if subject.form == Form::Adapter && Peft::find(path).is_ok_and(|peft| peft.scores()) {
        return scores();
    }
    // An adapter is attached to its base, as in PEFT.
    let (model, adapters) = match subject.form {
        Form::Adapter => match subject.base() {
            Some(base) => (base, vec![path.to_path_buf()]),
            None => {
                return Finding::unknown(
                    "its base was not found",
                    "download it with llmtui model pull BASE, then check again",
                );
            }
        },
        _ => (path.to_path_buf(), Vec::new()),
    };
    let Ok(source) = ModelSource::open(&model) else {
        return Finding::unknown("not tried", "fix config.json first");
    };
    if source.config().is_reward_model() {
        return scores();
    }
    let (need, room) = (Subject::need(&source), subject.here.room);
    if need > room {
        return Finding::unknown(
            format!(
                "the model takes about {}; {} are free",
                human::bytes(need),
                human::bytes(room)
            ),
            "check it on a machine with more memory",
        );
    }
    let has_template = source.has_chat_template();
    drop(source);
    let mut model = match LoadedModel::load_with(&model, &adapters) {
        Ok(model) => model,
        Err(error) => return failed(error.to_string()),
    };
    let mut said = Vec::new();
    for prompt in prompts(has_template) {
        match answer(&mut model, &prompt) {
            Ok(text) => said.push(text),
            Err(why) => return failed(why),
        }
    }
    if subject.form == Form::Adapter
        && let Some(found) = another_base(path, &model)
    {
        return found;
    }
    Finding::pass(said.join("; "))
}

/// An adapter of other weights than those that its base has here. Files of PEFT's do not say of which.
fn another_base(adapter: &Path, model: &LoadedModel) -> Option<Finding> {
    let peft = Peft::find(adapter).ok()?;
    let said = peft.base_fingerprint()?;
    let found = model.base_fingerprint().ok()?;
    (found != said).then(|| {
        Finding::warn(
            "it generates, but the base's weights differ from those it was trained on",
            "another revision or fine-tune of the base, or the adapter comes from a quantized copy of it: answers will differ",
            "set base_model_name_or_path to the exact base; if it was a quantized copy, state it in the card",
        )
    })
}

fn prompts(has_template: bool) -> Vec<Prompt> {
    let mut prompts = vec![Prompt::Text(TEXT.into())];
    if has_template {
        prompts.push(Prompt::Turns(vec![Turn {
            role: "user".into(),
            content: QUESTION.into(),
            extra: serde_json::Map::new(),
        }]));
    }
    prompts
}

/// `The → " quick brown fox"`
fn answer(model: &mut LoadedModel, prompt: &Prompt) -> Result<String, String> {
    let sampling = Sampling {
        temperature: 0.0,
        max_new_tokens: TOKENS,
        ..Sampling::default()
    };
    let reading = model.read(prompt, &sampling)?;
    let (mut text, mut bad) = (String::new(), 0);
    model.generate(&reading, &sampling, &mut |step| {
        if let Step::Wrote(piece) = step {
            text.push_str(&piece.text);
            bad += usize::from(piece.id.is_some() && !piece.logprob.is_finite());
        }
        ControlFlow::Continue(())
    })?;
    if bad > 0 {
        return Err(format!("{bad} of {TOKENS} tokens have a non-finite probability"));
    }
    let asked = match prompt {
        Prompt::Text(text) => text,
        _ => QUESTION,
    };
    Ok(format!("{asked} → {:?}", one_line(&text)))
}

fn failed(why: String) -> Finding {
    Finding::fail(
        why,
        "everyone who downloads the model gets the same",
        "see it with llmtui chat FOLDER; fix the named files",
    )
}
