//! What a reading of a run measures: whether it says the same of several runs. Reads specs, the tokenizer files that they name, and what
//! checkpoints record of data and tokenizer; no logs.

use super::RunDir;
use super::checkpoints::STATE;
use crate::base::files::read_small;
use crate::wire::id;
use serde_json::{Value, json};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

/// Largest tokenizer file whose contents are compared: those of known models have up to 35 MB. Of a larger one, such as a GGUF file,
/// the path counts.
const MAX_TOKENIZER: u64 = 64 << 20;
/// Largest state of a checkpoint that is read for its fingerprints.
const MAX_STATE: u64 = 1 << 20;
/// Settings of the data that leave the texts and what is learned of them as they are: in which order and in which rows they are read,
/// how often each source is. The tokenizer is compared by itself.
const NOT_OF_THE_TEXT: [&str; 6] = [
    "tokenizer",
    "cache",
    "packing",
    "order",
    "mix",
    "curriculum",
];
/// Settings that apply to a validation set of its own too: which of its rows are read, what is made of them, and which of their tokens are
/// scored.
const OF_THE_VALIDATION_SET: [&str; 6] = [
    "train_on", "template", "too_long", "max_rows", "format", "columns",
];
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
    pub contents: &'a Contents,
}

/// What identifies the tokenizer of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TokenizerContents {
    /// What [`tokenizer`] says of it.
    said: Value,
    /// Its fingerprint: a learned one depends on the text that it was learned from.
    recorded: Option<String>,
}

/// What identifies the data of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DataContents {
    /// The settings that say which texts are read, and what is learned of them.
    said: Value,
    /// All settings on which the fingerprint depends.
    read_as: Value,
    /// Fingerprint of the texts, and of how they are read where they are documents.
    recorded: Option<String>,
    /// The share of a plain text that is held out, as it was recorded; older checkpoints do not say.
    held_out: Option<String>,
}

/// What a run was trained on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Contents {
    tokenizer: TokenizerContents,
    data: DataContents,
}

impl Contents {
    /// By the settings of a spec; no file is read.
    pub fn said(spec: &Value) -> Contents {
        let mut said = spec["data"].clone();
        let mut read_as = said.clone();
        if let Some(settings) = read_as.as_object_mut() {
            settings.remove("cache");
        }
        if let Some(settings) = said.as_object_mut() {
            settings.retain(|key, _| !NOT_OF_THE_TEXT.contains(&key.as_str()));
        }
        let sources = said.get_mut("sources").and_then(Value::as_array_mut);
        for source in sources.into_iter().flatten() {
            if let Some(settings) = source.as_object_mut() {
                settings.remove("weight");
            }
        }
        Contents {
            tokenizer: TokenizerContents {
                said: spec["data"]["tokenizer"].clone(),
                recorded: None,
            },
            data: DataContents {
                said,
                // Synthetic rows are drawn by the seed.
                read_as: json!([
                    read_as,
                    spec["model"]["seq_len"],
                    spec["method"],
                    spec["seed"]
                ]),
                recorded: None,
                held_out: None,
            },
        }
    }

    /// The same with the contents of the tokenizer file that the spec names.
    pub fn of_spec(spec: &Value) -> Contents {
        let mut contents = Contents::said(spec);
        contents.tokenizer.said = tokenizer(spec);
        contents
    }

    /// The same with what the run's newest checkpoint records.
    pub fn of_run(run: &RunDir, spec: &Value) -> Contents {
        let mut contents = Contents::of_spec(spec);
        let newest = run.checkpoints().pop();
        let state = newest.and_then(|it| read_small(&it.path.join(STATE), MAX_STATE).ok());
        let state: Option<Value> = state.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let Some(state) = state else {
            return contents;
        };
        let of = |key: &str| state["fingerprint"][key].as_str().filter(|s| !s.is_empty());
        contents.tokenizer.recorded = of("tokenizer").map(String::from);
        contents.data.recorded = of("data").map(String::from);
        contents.data.held_out = of("val_fraction").map(String::from);
        contents
    }
}

impl TokenizerContents {
    fn is_same(&self, other: &TokenizerContents) -> bool {
        match (&self.recorded, &other.recorded) {
            (Some(a), Some(b)) => a == b,
            _ => self.said == other.said,
        }
    }
}

impl DataContents {
    fn is_same(&self, other: &DataContents) -> bool {
        match (&self.recorded, &other.recorded) {
            (Some(a), Some(b)) if a == b => match (&self.held_out, &other.held_out) {
                (Some(share), Some(of_other)) => share == of_other,
                _ => self.said["val_fraction"] == other.said["val_fraction"],
            },
            // The same settings, and other texts: the files were changed in between.
            (Some(_), Some(_)) if self.read_as == other.read_as => false,
            _ => self.said == other.said,
        }
    }
}

/// Why a reading does not say the same of all runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// Their losses are of different methods, or of different settings of one.
    Loss,
    /// It depends on how text is cut into tokens, and these are cut differently.
    Tokenizer,
    /// It is a mean over texts, and these are others.
    Data,
}

impl Difference {
    /// For a line that says that runs are not comparable.
    pub fn words(self) -> &'static str {
        match self {
            Difference::Loss => "different losses",
            Difference::Tokenizer => "different tokenizers",
            Difference::Data => "different data",
        }
    }
}

/// What identifies the tokenizer of a spec. Of one in a file its contents count, since every checkpoint has a copy; where they cannot be
/// read, its path. The path is the base model's (`train.from`) where the spec names none.
fn tokenizer(spec: &Value) -> Value {
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
    of_loss(runs, id)
        .or_else(|| of_tokens(runs, id))
        .or_else(|| of_data(runs, id))
}

/// The same for a score by which runs are ranked: shares and rewards say the same under every method, implicit rewards only with the
/// same β. Data do not count, since which are the better ones may be the question: see [`on_same_data`].
pub fn difference_of_score(runs: &[Objective<'_>], id: &str) -> Option<Difference> {
    let name = id.strip_prefix(id::VAL).unwrap_or(id);
    let by_method = [
        id::TRAIN_LOSS,
        "loss",
        id::CHOSEN,
        id::REJECTED,
        id::MARGINS,
    ];
    match by_method.contains(&name) {
        true => of_loss(runs, id).or_else(|| of_tokens(runs, id)),
        false => of_tokens(runs, id),
    }
}

/// Whether a reading of two runs is of the same texts, as far as it depends on them: losses do. Held-out ones are of a validation set
/// that both name and read alike, whatever was trained on.
pub fn on_same_data(a: &Objective<'_>, b: &Objective<'_>, id: &str) -> bool {
    let is_mean = (is_per_token(id) && !id.starts_with(id::EXTRA)) || id == id::VAL_BPB;
    let [of_a, of_b] = [a, b].map(|run| &run.spec["data"]);
    let is_alike = |key: &str| of_a[key] == of_b[key];
    let on_one_set = id.starts_with(id::VAL)
        && !of_a["val_path"].is_null()
        && is_alike("val_path")
        && OF_THE_VALIDATION_SET.into_iter().all(is_alike);
    !is_mean || on_one_set || a.contents.data.is_same(&b.contents.data)
}

fn any_pair(
    runs: &[Objective<'_>],
    differ: impl Fn(&Objective<'_>, &Objective<'_>) -> bool,
) -> bool {
    let mut rest = runs.iter().enumerate();
    rest.any(|(at, a)| runs[at + 1..].iter().any(|b| differ(a, b)))
}

fn of_data(runs: &[Objective<'_>], id: &str) -> Option<Difference> {
    any_pair(runs, |a, b| !on_same_data(a, b, id)).then_some(Difference::Data)
}

fn of_loss(runs: &[Objective<'_>], id: &str) -> Option<Difference> {
    let mut pairs = runs.windows(2);
    let differ = pairs.any(|pair| pair[0].measured(id) != pair[1].measured(id));
    differ.then_some(Difference::Loss)
}

fn of_tokens(runs: &[Objective<'_>], id: &str) -> Option<Difference> {
    let counts_tokens = is_per_token(id) && runs.iter().any(|run| run.method != OF_SCORES);
    let differ =
        |a: &Objective<'_>, b: &Objective<'_>| !a.contents.tokenizer.is_same(&b.contents.tokenizer);
    (counts_tokens && any_pair(runs, differ)).then_some(Difference::Tokenizer)
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
    use crate::base::clock::ManualClock;

    fn spec(method: &str, tokenizer: Value) -> Value {
        json!({"method": {method: {}}, "data": {"tokenizer": tokenizer}})
    }

    fn between(method: &str, tokenizers: [Value; 2], id: &str) -> Option<Difference> {
        let specs = tokenizers.map(|tokenizer| spec(method, tokenizer));
        let contents = specs.each_ref().map(Contents::of_spec);
        let runs = [0, 1].map(|at| Objective {
            method,
            spec: &specs[at],
            contents: &contents[at],
        });
        difference(&runs, id)
    }

    /// A run of this spec, whose checkpoint records these fingerprints of data and tokenizer.
    fn recorded(dir: &Path, spec: &Value, data: &str, tokenizer: &str) -> Contents {
        let fingerprint = json!({"data": data, "val_fraction": "0.1", "tokenizer": tokenizer});
        with_fingerprint(dir, spec, fingerprint)
    }

    fn with_fingerprint(dir: &Path, spec: &Value, fingerprint: Value) -> Contents {
        let run = RunDir::create(dir, "x", "", "", &ManualClock::at(0)).unwrap();
        let folder = run.checkpoint_path(10);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("manifest.json"), "{}").unwrap();
        let state = json!({"progress": {}, "fingerprint": fingerprint}).to_string();
        std::fs::write(folder.join(STATE), state).unwrap();
        Contents::of_run(&run, spec)
    }

    fn of_contents(specs: [&Value; 2], contents: [&Contents; 2], id: &str) -> Option<Difference> {
        let runs = [0, 1].map(|at| Objective {
            method: "pretrain",
            spec: specs[at],
            contents: contents[at],
        });
        difference(&runs, id)
    }

    /// Two tokenizers of 500 tokens, learned from different texts, were taken for one.
    #[test]
    fn a_learned_tokenizer_is_known_by_its_fingerprint_where_one_is_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let spec = spec("pretrain", json!({"bpe": {"vocab_size": 500}}));
        let [a, same, other] =
            ["t", "t", "u"].map(|tokenizer| recorded(dir.path(), &spec, "d", tokenizer));
        let of = |pair| of_contents([&spec; 2], pair, "val/loss");
        assert_eq!(of([&a, &same]), None);
        assert_eq!(of([&a, &other]), Some(Difference::Tokenizer));
        // One that has saved nothing yet is known by its settings.
        assert_eq!(of([&other, &Contents::of_spec(&spec)]), None);
    }

    #[test]
    fn losses_of_different_data_do_not_say_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let on = |data: Value| json!({"method": {"pretrain": {}}, "data": data});
        let differ = |a: Value, b: Value, id: &str| {
            let (a, b) = (on(a), on(b));
            let contents = [Contents::of_spec(&a), Contents::of_spec(&b)];
            of_contents([&a, &b], [&contents[0], &contents[1]], id) == Some(Difference::Data)
        };
        let [a, b] = ["a.txt", "b.txt"].map(|path| json!({"path": path}));
        for id in ["train/loss", "val/loss", "val/ppl", "val/bpb"] {
            assert!(differ(a.clone(), b.clone(), id), "{id}");
            assert!(!differ(a.clone(), a.clone(), id), "{id}");
        }
        for id in ["extra/code", "eval/mmlu/acc", "grad_norm", "lr"] {
            assert!(!differ(a.clone(), b.clone(), id), "{id}");
        }
        // A validation set that both name.
        let [a, b] = ["a.txt", "b.txt"].map(|path| json!({"path": path, "val_path": "v.txt"}));
        assert!(differ(a.clone(), b.clone(), "train/loss") && !differ(a.clone(), b, "val/loss"));
        // It has other tokens where it is read in another way.
        for (key, x, found) in [
            ("train_on", json!("all"), true),
            ("template", json!("plain"), true),
            ("too_long", json!("drop"), true),
            ("max_rows", json!(50), true),
            ("format", json!("chat"), true),
            ("columns", json!({"text": "body"}), true),
            // With a bad row among them there was no reading.
            ("on_bad_row", json!("skip"), false),
            ("packing", json!("padded"), false),
            ("val_fraction", json!(0.2), false),
        ] {
            let mut b = json!({"path": "b.txt", "val_path": "v.txt"});
            b[key] = x;
            assert_eq!(differ(a.clone(), b, "val/loss"), found, "{key}");
        }
        // How often each source is read, and in which rows, changes no text.
        let mixed = |weight: f64, packing: &str| json!({"packing": packing, "sources": [{"path": "a", "weight": weight}, {"path": "b", "weight": 1.0}]});
        assert!(!differ(
            mixed(1.0, "packed"),
            mixed(3.0, "padded"),
            "val/loss"
        ));
        // The same settings, and a file that was written anew; other settings of the same text.
        let spec = on(json!({"path": "a.txt"}));
        let [one, anew] = ["d", "e"].map(|data| recorded(dir.path(), &spec, data, "t"));
        let data = Some(Difference::Data);
        assert_eq!(of_contents([&spec; 2], [&one, &anew], "val/loss"), data);
        let moved = on(json!({"path": "b/a.txt"}));
        let same = recorded(dir.path(), &moved, "d", "t");
        assert_eq!(
            of_contents([&spec, &moved], [&one, &same], "val/loss"),
            None
        );
    }

    #[test]
    fn a_checkpoint_that_does_not_say_what_was_held_out_is_known_by_the_settings() {
        let dir = tempfile::tempdir().unwrap();
        let on = |share: f64| json!({"method": {"pretrain": {}}, "data": {"path": "a.txt", "val_fraction": share}});
        let [tenth, fifth] = [0.1, 0.2].map(on);
        let old = json!({"data": "d", "tokenizer": "t"});
        let of = |spec, fingerprint| with_fingerprint(dir.path(), spec, fingerprint);
        let (new, older) = (
            recorded(dir.path(), &tenth, "d", "t"),
            of(&tenth, old.clone()),
        );
        let (twin, other) = (of(&tenth, old.clone()), of(&fifth, old));
        let differ = |specs, contents| of_contents(specs, contents, "val/loss");
        assert_eq!(differ([&tenth; 2], [&new, &older]), None);
        assert_eq!(differ([&tenth; 2], [&older, &twin]), None);
        let data = Some(Difference::Data);
        assert_eq!(differ([&tenth, &fifth], [&new, &other]), data);
        assert_eq!(differ([&tenth, &fifth], [&older, &other]), data);
        let fingerprint = json!({"data": "d", "val_fraction": "0.2", "tokenizer": "t"});
        let recorded = of(&fifth, fingerprint);
        assert_eq!(differ([&tenth, &fifth], [&new, &recorded]), data);
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
        let contents = specs.each_ref().map(Contents::of_spec);
        let runs = ["sft", "dpo"].map(|method| {
            let at = usize::from(method == "dpo");
            Objective {
                method,
                spec: &specs[at],
                contents: &contents[at],
            }
        });
        let loss = Some(Difference::Loss);
        assert_eq!(difference(&runs, "val/loss"), loss);
        assert_eq!(difference_of_score(&runs, "val/loss"), loss);
        assert_eq!(difference(&runs, "rewards/margins"), loss);
        assert_eq!(difference_of_score(&runs, "eval/pass@1"), None);
    }

    /// β multiplies the margins: a sweep over it ranked the largest first, whatever was learned.
    #[test]
    fn margins_of_another_beta_are_no_score() {
        let specs = [0.01, 1.0].map(|beta| json!({"method": {"kto": {"beta": beta}}}));
        let contents = specs.each_ref().map(Contents::of_spec);
        let runs = [0, 1].map(|at| Objective {
            method: "kto",
            spec: &specs[at],
            contents: &contents[at],
        });
        let found = |id| difference_of_score(&runs, id);
        assert_eq!(found("val/rewards/margins"), Some(Difference::Loss));
        assert_eq!(found("val/rewards/accuracies"), None);
        let same = [runs[0], runs[0]];
        assert_eq!(difference_of_score(&same, "val/rewards/margins"), None);
    }
}
