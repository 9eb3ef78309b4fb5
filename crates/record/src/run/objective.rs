//! What a reading of a run measures: whether it says the same of several runs. Reads specs, and the tokenizer files that they name; no
//! logs.

use crate::base::files::read_small;
use crate::wire::id;
use serde_json::Value;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

/// Largest tokenizer file whose contents are compared: those of known models have up to 35 MB. Of a larger one, such as a GGUF file,
/// the path counts.
const MAX_TOKENIZER: u64 = 64 << 20;
/// The tokenizer of a model folder.
const IN_FOLDER: &str = "tokenizer.json";
/// Settings of a method that leave what its loss measures as it is: where the reference comes from, and noise in training.
const NOT_OF_THE_LOSS: [&str; 2] = ["reference", "neftune_alpha"];
/// The method whose loss is that of pairs of scores, which has no unit of tokens.
const OF_SCORES: &str = "reward";

/// What determines the meaning of a run's readings.
#[derive(Debug, Clone, Copy)]
pub struct Objective<'a> {
    pub method: &'a str,
    /// The resolved spec.
    pub spec: &'a Value,
    /// What [`tokenizer`] says of it.
    pub tokenizer: &'a Value,
}

/// Why a reading does not say the same of all runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// Their losses are of different methods, or of different settings of one.
    Loss,
    /// It depends on how text is cut into tokens, and these are cut differently.
    Tokenizer,
}

impl Difference {
    /// For a line that says that runs are not comparable.
    pub fn words(self) -> &'static str {
        match self {
            Difference::Loss => "different losses",
            Difference::Tokenizer => "different tokenizers",
        }
    }
}

/// What identifies the tokenizer of a spec. Of one in a file its contents count, since every checkpoint has a copy; where they cannot be
/// read, its path. The path is the base model's (`train.from`) where the spec names none.
pub fn tokenizer(spec: &Value) -> Value {
    let mut said = spec["data"]["tokenizer"].clone();
    let Some(path) = said.pointer_mut("/file/path") else {
        return said;
    };
    let read = |path: &Path| read_small(path, MAX_TOKENIZER).ok();
    let contents = path
        .as_str()
        .map(Path::new)
        .and_then(|path| read(path).or_else(|| read(&path.join(IN_FOLDER))));
    if let Some(contents) = contents {
        let mut hash = DefaultHasher::new();
        contents.hash(&mut hash);
        *path = format!("{:016x}", hash.finish()).into();
    }
    said
}

/// Why a reading does not say the same of these runs. Any reading of what a method optimizes differs with the method.
pub fn difference(runs: &[Objective<'_>], id: &str) -> Option<Difference> {
    of_loss(runs, id).or_else(|| of_tokens(runs, id))
}

/// The same for a score by which runs are ranked: shares and rewards say the same under every method.
pub fn difference_of_score(runs: &[Objective<'_>], id: &str) -> Option<Difference> {
    match [id::TRAIN_LOSS, id::VAL_LOSS].contains(&id) {
        true => difference(runs, id),
        false => of_tokens(runs, id),
    }
}

fn of_loss(runs: &[Objective<'_>], id: &str) -> Option<Difference> {
    let mut pairs = runs.windows(2);
    let differ = pairs.any(|pair| pair[0].measured(id) != pair[1].measured(id));
    differ.then_some(Difference::Loss)
}

fn of_tokens(runs: &[Objective<'_>], id: &str) -> Option<Difference> {
    let counts_tokens = is_per_token(id) && runs.iter().any(|run| run.method != OF_SCORES);
    let mut pairs = runs.windows(2);
    let differ = pairs.any(|pair| pair[0].tokenizer != pair[1].tokenizer);
    (counts_tokens && differ).then_some(Difference::Tokenizer)
}

/// Whether a reading depends on how text is cut into tokens: means over tokens, and log-probabilities of them.
fn is_per_token(id: &str) -> bool {
    let of_tokens = [
        id::TRAIN_LOSS,
        id::VAL_LOSS,
        id::VAL_PPL,
        id::ENTROPY,
        id::TOKEN_ACCURACY,
        id::VAL_TOKEN_ACCURACY,
    ];
    of_tokens.contains(&id) || id.starts_with(id::EXTRA)
}

impl Objective<'_> {
    /// The method, and those of its settings on which a reading depends: for its losses those that make the loss (IPO's is a distance,
    /// the hinge another one), for implicit rewards β, which multiplies them.
    fn measured(&self, id: &str) -> (&str, Value) {
        let name = id.strip_prefix(id::VAL).unwrap_or(id);
        let mut of_loss = self.spec["method"][self.method].clone();
        if let Some(settings) = of_loss.as_object_mut() {
            settings.retain(|key, _| match name {
                id::TRAIN_LOSS | "loss" => !NOT_OF_THE_LOSS.contains(&key.as_str()),
                id::CHOSEN | id::REJECTED | id::MARGINS => key == "beta",
                _ => false,
            });
        }
        (self.method, of_loss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(method: &str, tokenizer: Value) -> Value {
        json!({"method": {method: {}}, "data": {"tokenizer": tokenizer}})
    }

    fn between(method: &str, tokenizers: [Value; 2], id: &str) -> Option<Difference> {
        let specs = tokenizers.map(|tokenizer| spec(method, tokenizer));
        let said = specs.each_ref().map(tokenizer);
        let runs = [0, 1].map(|at| Objective {
            method,
            spec: &specs[at],
            tokenizer: &said[at],
        });
        difference(&runs, id)
    }

    /// A vocabulary of 500 had a lower loss per token than one of 50,000, and won.
    #[test]
    fn means_over_tokens_of_different_tokenizers_do_not_say_the_same() {
        let sizes = || [500, 50_000].map(|n| json!({"bpe": {"vocab_size": n}}));
        let tokens = Some(Difference::Tokenizer);
        for (method, id, found) in [
            ("pretrain", "train/loss", tokens),
            ("pretrain", "val/loss", tokens),
            ("pretrain", "val/ppl", tokens),
            ("pretrain", "extra/code", tokens),
            ("pretrain", "val/bpb", None),
            ("pretrain", "grad_norm", None),
            ("dpo", "val/loss", tokens),
            ("dpo", "val/rewards/accuracies", None),
            // Pairs of scores have no tokens.
            ("reward", "val/loss", None),
        ] {
            assert_eq!(between(method, sizes(), id), found, "{method} {id}");
        }
        let alike = || [500, 500].map(|n| json!({"bpe": {"vocab_size": n}}));
        assert_eq!(between("pretrain", alike(), "val/loss"), None);
    }

    #[test]
    fn copies_of_one_tokenizer_are_the_same_one() {
        let dir = tempfile::tempdir().unwrap();
        let model = |name: &str, contents: &str| {
            let folder = dir.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("tokenizer.json"), contents).unwrap();
            folder.display().to_string()
        };
        let [a, copy, other] = [("a", "{}"), ("copy", "{}"), ("other", "[]")]
            .map(|(name, contents)| model(name, contents));
        let file = format!("{a}/tokenizer.json");
        let of = |paths: [&str; 2]| {
            let paths = paths.map(|path| json!({"file": {"path": path}}));
            between("sft", paths, "val/loss")
        };
        assert_eq!(of([&a, &copy]), None);
        assert_eq!(of([&a, &file]), None);
        assert_eq!(of([&a, &other]), Some(Difference::Tokenizer));
        assert_eq!(of([&a, "gone"]), Some(Difference::Tokenizer));
        assert_eq!(of(["gone", "gone"]), None);
    }

    #[test]
    fn a_loss_of_another_method_is_told_before_its_tokens() {
        let specs = [spec("sft", json!("a")), spec("dpo", json!("b"))];
        let runs = ["sft", "dpo"].map(|method| {
            let at = usize::from(method == "dpo");
            Objective {
                method,
                spec: &specs[at],
                tokenizer: &specs[at]["data"]["tokenizer"],
            }
        });
        let loss = Some(Difference::Loss);
        assert_eq!(difference(&runs, "val/loss"), loss);
        assert_eq!(difference_of_score(&runs, "val/loss"), loss);
        assert_eq!(difference(&runs, "rewards/margins"), loss);
        assert_eq!(difference_of_score(&runs, "eval/pass@1"), None);
    }
}
