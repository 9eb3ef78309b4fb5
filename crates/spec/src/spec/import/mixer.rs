//! The data sets of the alignment handbook: names with the fraction of each that is read, their splits and configurations in
//! keys beside them; and its newer form, a mixture of maps.

use super::{KeyOutcome, Reader, brief, plain};
use serde_json::{Map, Value, json};

/// What keys beside `dataset_mixer` say of all its sets.
#[derive(Debug, Default)]
pub(super) struct Mixer {
    /// Splits to train on; those to test on.
    train: Vec<String>,
    test: Vec<String>,
    /// A configuration for each set, in their order.
    configs: Vec<Option<String>>,
}

const FIRST: &str = "the first rows of it, as there";
/// The newer form draws them.
const FIRST_NOT_DRAWN: &str = "the first rows of it; the tool draws its rows at random";
const TESTED: &str = "data.val_fraction of the training rows is held out; eval.extra: [{name: test, source: {name: ORG/NAME, split: SPLIT}}] \
     measures a split of its own";

fn list(value: Option<&Value>) -> Vec<Value> {
    match value {
        Some(Value::Array(items)) => items.clone(),
        Some(Value::Null) | None => Vec::new(),
        Some(one) => vec![one.clone()],
    }
}

impl Mixer {
    pub fn of(map: &Map<String, Value>) -> Mixer {
        let splits = list(map.get("dataset_splits"));
        let splits = splits.iter().map(plain);
        let (train, test) = splits.partition(|split| split.contains("train"));
        let configs = list(map.get("dataset_configs")).into_iter();
        let configs = configs.map(|config| (!config.is_null()).then(|| plain(&config)));
        Mixer {
            train,
            test,
            configs: configs.collect(),
        }
    }

    /// The splits to train on; without a word on them `train`.
    fn splits(&self) -> Vec<Option<&str>> {
        match self.train.is_empty() {
            true => vec![None],
            false => self
                .train
                .iter()
                .map(|split| Some(split.as_str()))
                .collect(),
        }
    }
}

impl Reader {
    /// `dataset_mixer: {ORG/NAME: FRACTION}`.
    pub(super) fn mixer(&mut self, theirs: String, value: &Value) {
        let Value::Object(sets) = value else {
            let words = "a map from data sets to fractions is understood: data.sources, with `fraction` for each";
            return self.line(KeyOutcome::NoEqual, theirs, "", words);
        };
        let configs = std::mem::take(&mut self.mixer.configs);
        let splits: Vec<Option<String>> = self
            .mixer
            .splits()
            .into_iter()
            .map(|s| s.map(String::from))
            .collect();
        for (at, (name, fraction)) in sets.iter().enumerate() {
            let theirs = format!(
                "dataset_mixer.{}: {}",
                brief(&name.as_str().into()),
                brief(fraction)
            );
            let Some(part) = fraction_of(fraction) else {
                let words =
                    "a fraction above 0 and of at most 1 is understood; this set is left out";
                self.line(KeyOutcome::NoEqual, theirs, "", words);
                continue;
            };
            if part == 0.0 {
                self.line(
                    KeyOutcome::Needless,
                    theirs,
                    "",
                    "no row of it is read: it is left out",
                );
                continue;
            }
            for split in &splits {
                let mut source = Map::from_iter([("name".to_string(), json!(name))]);
                if let Some(config) = configs.get(at).cloned().flatten() {
                    source.insert("subset".into(), json!(config));
                }
                if let Some(split) = split {
                    source.insert("split".into(), json!(split));
                }
                self.part(source, part, theirs.clone(), FIRST);
            }
        }
    }

    /// A source, and the part of it that is read.
    fn part(&mut self, mut source: Map<String, Value>, part: f64, theirs: String, how: &str) {
        let ours = format!("data.sources: {}", plain(&source["name"]));
        match part < 1.0 {
            true => {
                source.insert("fraction".into(), json!(part));
                let ours = format!("{ours}, fraction: {part}");
                self.line(KeyOutcome::Differs, theirs, &ours, how);
            }
            false => self.line(KeyOutcome::Mapped, theirs, &ours, ""),
        }
        self.sources.push(source);
    }

    /// `dataset_splits` and `dataset_configs`, which were taken with the mixer.
    pub(super) fn of_mixer(&mut self, key: &str, theirs: String) {
        match key {
            "dataset_splits" if !self.mixer.test.is_empty() => {
                let ours = format!("data.sources: split: {}", self.mixer.train.join(", "));
                let words = format!("{} is not read: {TESTED}", self.mixer.test.join(", "));
                self.line(KeyOutcome::Differs, theirs, &ours, words);
            }
            _ => self.line(
                KeyOutcome::Mapped,
                theirs,
                "data.sources",
                "for each of them",
            ),
        }
    }

    /// `dataset_mixture: {datasets: [{id: …, weight: …}], test_split_size: …}`.
    pub(super) fn mixture(&mut self, theirs: String, value: &Value) {
        let Some(sets) = value.get("datasets").and_then(Value::as_array) else {
            let words =
                "a map with `datasets` is understood: data.sources, with `fraction` for each";
            return self.line(KeyOutcome::NoEqual, theirs, "", words);
        };
        for (at, set) in sets.iter().enumerate() {
            let word = |keys: &[&str]| keys.iter().find_map(|key| set.get(*key)?.as_str());
            let theirs = format!("dataset_mixture.datasets[{at}]: {}", brief(set));
            let Some(name) = word(&["id", "path"]) else {
                self.line(KeyOutcome::NoEqual, theirs, "", "it has no `id`");
                continue;
            };
            let weight = set.get("weight").filter(|weight| !weight.is_null());
            let Some(part) = weight
                .map_or(Some(1.0), fraction_of)
                .filter(|part| *part > 0.0)
            else {
                let words = "a weight above 0 and of at most 1 is understood; this set is left out";
                self.line(KeyOutcome::NoEqual, theirs, "", words);
                continue;
            };
            let mut source = Map::from_iter([("name".to_string(), json!(name))]);
            for (ours, keys) in [
                ("subset", &["config", "name"][..]),
                ("split", &["split"][..]),
            ] {
                if let Some(text) = word(keys) {
                    source.insert(ours.into(), json!(text));
                }
            }
            self.part(source, part, theirs, FIRST_NOT_DRAWN);
            self.left_out_of_set(at, set);
        }
        for (key, value) in value.as_object().into_iter().flatten() {
            let theirs = format!("dataset_mixture.{key}: {}", brief(value));
            match key.as_str() {
                "datasets" => {}
                "test_split_size" => self.held_out(theirs, value),
                "seed" => self.line(KeyOutcome::Needless, theirs, "", "seed draws the batches"),
                _ => self.line(
                    KeyOutcome::Unknown,
                    theirs,
                    "",
                    "unknown key: check it yourself",
                ),
            }
        }
    }
}

impl Reader {
    /// What is said of a set of the mixture beside its name and its part.
    fn left_out_of_set(&mut self, at: usize, set: &Value) {
        const TAKEN: [&str; 6] = ["id", "path", "config", "name", "split", "weight"];
        for (key, value) in set.as_object().into_iter().flatten() {
            if TAKEN.contains(&key.as_str()) || value.is_null() {
                continue;
            }
            let theirs = format!("dataset_mixture.datasets[{at}].{key}: {}", brief(value));
            let (outcome, words) = match key.as_str() {
                "columns" => (
                    KeyOutcome::Needless,
                    "a format ignores columns it does not use",
                ),
                _ => (
                    KeyOutcome::NoEqual,
                    "not carried over: every file of the split is read; files of this disk have a source each: `path: FILE`",
                ),
            };
            self.line(outcome, theirs, "", words);
        }
    }
}

/// A part of a set.
fn fraction_of(value: &Value) -> Option<f64> {
    value.as_f64().filter(|part| (0.0..=1.0).contains(part))
}
