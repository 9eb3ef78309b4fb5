//! The tokenizer is present, matches the model, and round-trips texts.

use super::super::subject::{Form, Subject};
use super::Check;
use crate::base::child::Child;
use crate::base::finding::Finding;
use crate::base::human;
use crate::data::{Tokenizer, tokenizer};
use crate::hf::Peft;
use crate::models::ModelSource;
use std::path::Path;

pub(super) const CHECK: Check = Check {
    id: "tokenizer",
    title: "Tokenizer",
    run,
};

/// What every tokenizer of English can write.
const PLAIN: &str = "the king";
const TEXTS: [&str; 3] = [
    "The quick brown fox jumps over the lazy dog.",
    "def f(x):\n    return x * 2  # twice\n",
    "Grüße, naïve façade — 1,234.5 €",
];

fn run(subject: &Subject) -> Vec<Finding> {
    let found = |path: &Path| look(path, subject.form).at(match subject.form {
        Form::Gguf => subject.place(path),
        _ => crate::hf::TOKENIZER.into(),
    });
    subject.models().iter().map(|path| found(path)).collect()
}

/// Whether an adapter holds a table of embeddings.
fn trains_tokens(path: &Path) -> bool {
    let whole = Peft::find(path).map(|peft| peft.whole());
    whole.is_ok_and(|names| {
        let is_table = |name: &String| name.ends_with("embed_tokens") || name.ends_with("wte");
        names.iter().any(is_table)
    })
}

fn look(path: &Path, form: Form) -> Finding {
    let source = ModelSource::open(path);
    // Files of the base do not belong to an adapter.
    let has = match &source {
        Ok(source) if form != Form::Adapter => source.has_tokenizer(),
        _ => tokenizer::has_tokenizer(path),
    };
    if !has {
        return missing(path, form);
    }
    // Foreign ones are tried out in a child process with limits first.
    let loaded = match tokenizer::load(path, &Child::of_this_program()) {
        Ok(loaded) => loaded,
        Err(error) => {
            return Finding::fail(
                error.to_string(),
                "the model cannot be given a text",
                error.hint(),
            );
        }
    };
    let vocab_size = source.ok().and_then(|source| source.config().vocab_size);
    let known = loaded.vocab_size();
    if let Some(model) = vocab_size.filter(|model| known > *model) {
        return Finding::fail(
            format!("it has {known} tokens but the model {model}"),
            "they belong to different models: texts give ids that the model does not have",
            "add this model's own tokenizer files",
        );
    }
    let fault = TEXTS.iter().find_map(|text| round_trip_fault(&loaded, text));
    fault.unwrap_or_else(|| {
        let tokens = human::grouped(known as u64);
        Finding::pass(format!("{tokens} tokens; texts round-trip unchanged"))
    })
}

/// A folder without a tokenizer.
fn missing(path: &Path, form: Form) -> Finding {
    match form {
        Form::Adapter if trains_tokens(path) => Finding::fail(
            "there is none, but the adapter has its own embeddings",
            "if tokens were added, their rows cannot be identified: the base's tokenizer lacks them",
            "add the tokenizer.json and tokenizer_config.json that it was trained with",
        ),
        Form::Adapter => Finding::not_applicable("an adapter takes its base's"),
        _ => Finding::fail(
            "there is none",
            "the mapping from text to token ids is unknown",
            "add the model's tokenizer.json and tokenizer_config.json next to the weights",
        ),
    }
}

/// A text that cannot be encoded, or that comes back as another one.
fn round_trip_fault(tokenizer: &Tokenizer, text: &str) -> Option<Finding> {
    match tokenizer.encode(text) {
        // One of single characters knows those of its training text, by design.
        Err(error) if tokenizer.encode(PLAIN).is_ok() => Some(Finding::warn(
            error.to_string(),
            "it does not cover every character: some texts cannot be encoded",
            "state in the card which characters it covers; a bpe tokenizer covers every byte",
        )),
        Err(error) => Some(Finding::fail(
            error.to_string(),
            "texts cannot be encoded",
            error.hint(),
        )),
        Ok(ids) => {
            let back = tokenizer.decode(&ids);
            let (from, to) = (text.escape_debug(), back.escape_debug());
            (back.trim() != text.trim()).then(|| {
                Finding::warn(
                    format!("{from} decodes to {to}"),
                    "characters without tokens are lost, or it normalizes text by design",
                    "state in the card which texts it is for",
                )
            })
        }
    }
}
