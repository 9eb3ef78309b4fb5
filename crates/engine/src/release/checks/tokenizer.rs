//! The tokenizer is there, belongs to the model, and gives texts back as they were.

use super::super::subject::{Form, Subject};
use super::Check;
use crate::base::child::Child;
use crate::base::finding::Finding;
use crate::base::human;
use crate::data::tokenizer;
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
    // What lies with its base is none of an adapter's files.
    let has = match &source {
        Ok(source) if form != Form::Adapter => source.has_tokenizer(),
        _ => tokenizer::has_tokenizer(path),
    };
    if !has {
        return match form {
            Form::Adapter if trains_tokens(path) => Finding::fail(
                "there is none, and the adapter brings embeddings of its own",
                "where tokens were added, nobody can tell which rows are theirs: the base's tokenizer does not know them",
                "put the tokenizer.json and tokenizer_config.json that it was trained with beside it",
            ),
            Form::Adapter => Finding::not_applicable("an adapter takes its base's"),
            _ => Finding::fail(
                "there is none",
                "nobody can tell which ids the model's texts are made of",
                "put the model's tokenizer.json and tokenizer_config.json beside the weights",
            ),
        };
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
            format!("it knows {known} tokens and the model {model}"),
            "they belong to different models: texts become ids that the model does not have",
            "put the tokenizer files of this model there",
        );
    }
    for text in TEXTS {
        match loaded.encode(text) {
            // One of single characters knows those of its training text, by design.
            Err(error) if loaded.encode(PLAIN).is_ok() => {
                return Finding::warn(
                    error.to_string(),
                    "it has no token for every character: texts of others may not be encoded",
                    "say in the card which characters it knows; a bpe tokenizer knows every byte",
                );
            }
            Err(error) => {
                return Finding::fail(error.to_string(), "texts cannot be encoded", error.hint());
            }
            Ok(ids) => {
                let back = loaded.decode(&ids);
                if back.trim() != text.trim() {
                    let (from, to) = (text.escape_debug(), back.escape_debug());
                    return Finding::warn(
                        format!("{from} comes back as {to}"),
                        "characters that it has no tokens for are lost, or it changes texts by design",
                        "say in the card which texts it is for",
                    );
                }
            }
        }
    }
    Finding::pass(format!("{} tokens; texts come back as they were", human::grouped(known as u64)))
}
