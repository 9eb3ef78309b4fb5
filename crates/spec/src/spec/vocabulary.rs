//! `train.resize_vocab`: the number of rows of a start model's tables, determined when its spec is loaded, so that plans,
//! checkpoints and resumes all use it; and the messages about it. New rows are initialized by the model.

use super::RunSpec;
use super::issue::{Issue, Origin};
use super::merge::Merged;
use crate::base::child::Child;
use crate::base::human::grouped;
use crate::data::tokenizer;
use crate::models::ModelSource;
use crate::nn::ModelConfig;
use serde_json::{Value, json};
use std::path::Path;

const ROWS: &str = "model.vocab_size";

/// Tables that are larger than those of the start model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Growth {
    pub from: usize,
    pub to: usize,
    /// The head is a table of its own.
    pub has_head: bool,
}

impl Growth {
    /// By the start model on this disk; `None` where nothing grows, or it is not here.
    pub fn of(spec: &RunSpec) -> Option<Growth> {
        let from = spec
            .train
            .from
            .as_deref()
            .filter(|_| spec.train.resize_vocab)?;
        let source = ModelSource::open(from).ok()?;
        let (rows, to) = (source.config().vocab_size?, spec.model.vocab_size?);
        (rows < to).then(|| Growth::new(&spec.model, rows, to))
    }

    fn new(model: &ModelConfig, from: usize, to: usize) -> Growth {
        let has_head = !model.is_reward_model() && !model.ties_head();
        Growth { from, to, has_head }
    }

    /// `embeddings grow from 49,152 to 49,154 rows (2 new tokens)`. The tokenizer has so many tokens.
    pub fn words(&self, tokens: usize) -> String {
        let tables = match self.has_head {
            true => "embeddings and head",
            false => "embeddings",
        };
        let new = tokens.saturating_sub(self.from);
        let word = if new == 1 { "token" } else { "tokens" };
        format!(
            "{tables} grow from {} to {} rows ({} new {word})",
            grouped(self.from as u64),
            grouped(self.to as u64),
            grouped(new as u64)
        )
    }

    /// The tables that must train beside adapters for the new tokens to be learned, as `adapter.lora.modules_to_save` lists them.
    pub fn tables(&self) -> &'static str {
        match self.has_head {
            true => "[embeddings,head]",
            false => "[embeddings]",
        }
    }
}

/// Fills in how many rows the tables get, where the spec lets them grow and the tokenizer at `place` has more tokens than `config`
/// has rows. Rows that the spec names stand, if they are enough for the tokenizer.
pub(super) fn grow(
    merged: &mut Merged,
    config: &ModelConfig,
    place: Option<&Path>,
    base: &mut Value,
    issues: &mut Vec<Issue>,
) {
    if merged.value.pointer("/train/resize_vocab") != Some(&Value::Bool(true)) {
        return;
    }
    // A tokenizer that cannot be read is reported like the data.
    let loaded = place.map(|place| tokenizer::load(place, &Child::of_this_program()));
    let (Some(rows), Some(Ok(tokenizer))) = (config.vocab_size, loaded) else {
        return;
    };
    let tokens = tokenizer.vocab_size();
    let said = merged
        .value
        .pointer("/model/vocab_size")
        .and_then(Value::as_u64);
    match said.and_then(|said| usize::try_from(said).ok()) {
        Some(said) if said < tokens && said >= rows => issues.push(Issue {
            origin: merged.origins.get(ROWS),
            path: ROWS.into(),
            what: format!("{said} rows, but the tokenizer has {tokens} tokens"),
            hint: format!("remove it: with train.resize_vocab it becomes {tokens}"),
        }),
        Some(said) if said > rows => base["vocab_size"] = json!(said),
        // Fewer rows than the base's contradict it.
        Some(_) => {}
        None if tokens > rows => {
            base["vocab_size"] = json!(tokens);
            let words = Growth::new(config, rows, tokens).words(tokens);
            merged.origins.set(ROWS, Origin::Implied(words));
        }
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Finding;
    use crate::spec::{Loaded, SpecErrors, SpecSources, load, load_text};
    use std::path::PathBuf;

    #[test]
    fn growing_is_said_with_both_sizes_and_the_new_tokens() {
        let growth = |has_head| Growth {
            from: 49_152,
            to: 49_154,
            has_head,
        };
        assert_eq!(
            growth(false).words(49_154),
            "embeddings grow from 49,152 to 49,154 rows (2 new tokens)"
        );
        let padded = Growth {
            to: 49_216,
            ..growth(true)
        };
        assert_eq!(
            padded.words(49_153),
            "embeddings and head grow from 49,152 to 49,216 rows (1 new token)"
        );
    }

    /// A model with `rows` rows beside a tokenizer of 5 tokens. Nothing here reads its weights.
    fn folder(dir: &Path, rows: usize, tied: bool) -> PathBuf {
        let place = dir.join(format!("rows-{rows}-{tied}"));
        std::fs::create_dir_all(&place).unwrap();
        let config = json!({
            "model_type": "gpt2", "n_layer": 2, "n_embd": 16, "n_head": 2, "n_positions": 32, "vocab_size": rows,
            "activation_function": "gelu_new", "tie_word_embeddings": tied,
        });
        let added = ["<|im_start|>", "<|im_end|>"].iter().enumerate().map(|(n, mark)| {
            json!({"id": 3 + n, "content": mark, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true})
        });
        let tokenizer = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added.collect::<Vec<_>>(),
            "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
            "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "c": 2}, "unk_token": "a"},
        });
        std::fs::write(place.join("config.json"), config.to_string()).unwrap();
        std::fs::write(place.join("tokenizer.json"), tokenizer.to_string()).unwrap();
        std::fs::write(place.join("model.safetensors"), "").unwrap();
        place
    }

    fn loaded(place: &Path, words: &[&str]) -> Result<Loaded, SpecErrors> {
        let from = format!("train.from={}", place.display());
        let words = [&[&*from], words].concat();
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        load("quickstart", &words, &SpecSources::default())
    }

    #[test]
    fn a_spec_that_lets_tables_grow_has_their_new_size_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let grow = "resize_vocab=true";
        for (tied, tables) in [(true, "embeddings"), (false, "embeddings and head")] {
            let place = folder(dir.path(), 3, tied);
            let plain = loaded(&place, &[]).unwrap();
            assert_eq!(plain.spec.model.vocab_size, Some(3), "never silently");
            assert_eq!(Growth::of(&plain.spec), None);
            let grown = loaded(&place, &[grow]).unwrap();
            assert_eq!(grown.spec.model.vocab_size, Some(5));
            let words = format!("{tables} grow from 3 to 5 rows (2 new tokens)");
            let notes = grown.notes();
            assert!(notes.iter().any(|n| n.ends_with(&words)), "{notes:?}");
            assert_eq!(Growth::of(&grown.spec).unwrap().words(5), words);
            // The run's own spec says the size, and loads again.
            let text = grown.spec.to_yaml();
            let again = load_text("spec.yaml", &text, &SpecSources::default()).unwrap();
            assert_eq!(again.spec.model.vocab_size, Some(5));
        }
    }

    #[test]
    fn rows_that_are_enough_stay_and_a_spec_may_name_more_but_not_fewer() {
        let dir = tempfile::tempdir().unwrap();
        let grow = "train.resize_vocab=true";
        let padded = loaded(&folder(dir.path(), 8, true), &[grow]).unwrap();
        assert_eq!(padded.spec.model.vocab_size, Some(8));
        assert_eq!(Growth::of(&padded.spec), None);
        let place = folder(dir.path(), 3, true);
        let sized = |size: &str| loaded(&place, &[grow, &format!("model.vocab_size={size}")]);
        assert_eq!(sized("64").unwrap().spec.model.vocab_size, Some(64));
        let few = sized("4").unwrap_err().to_string();
        assert!(
            few.contains("5 tokens") && few.contains("remove it"),
            "{few}"
        );
        let fewer = sized("2").unwrap_err().to_string();
        assert!(fewer.contains("base model"), "{fewer}");
        // Without the key the base's own size holds, as ever.
        let other = loaded(&place, &["model.vocab_size=64"]).unwrap_err();
        assert!(other.to_string().contains("base model"), "{other}");
    }

    #[test]
    fn tokens_that_frozen_tables_do_not_learn_are_told_with_the_key() {
        let dir = tempfile::tempdir().unwrap();
        let told = |tied: bool, words: &[&str]| -> Vec<Finding> {
            let place = folder(dir.path(), 3, tied);
            let words = [&["resize_vocab=true", "adapter=lora"], words].concat();
            let found = loaded(&place, &words).unwrap().spec.advice().into_iter();
            found
                .filter(|f| f.place == "adapter.lora.modules_to_save")
                .collect()
        };
        for (tied, fix, all) in [
            (
                true,
                "[embeddings]",
                "adapter.lora.modules_to_save=[embeddings]",
            ),
            (
                false,
                "[embeddings,head]",
                "adapter.lora.modules_to_save=[embeddings,head]",
            ),
        ] {
            let found = told(tied, &[]);
            assert!(found[0].fix.ends_with(fix), "{found:?}");
            assert_eq!(found[0].changes(), [all]);
            assert!(found[0].evidence.to_string().contains("not learned"));
            assert_eq!(told(tied, &[all]), []);
        }
        let half = told(false, &["adapter.lora.modules_to_save=[embeddings]"]);
        assert!(
            half[0].evidence.to_string().contains("the head"),
            "{half:?}"
        );
    }
}
