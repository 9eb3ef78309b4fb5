//! Reward models and teachers of earlier stages in a later one: `rewards: [{model: {path: STAGE}}]`, `critic_from: STAGE` and
//! `teacher: STAGE` name the stage that trains one, in an inline spec, in `set`, or in the spec's file. A path with a slash is always a folder.

use super::{Fault, Pipeline, PipelineError, Places, Stage, Train, Work};
use crate::spec::{Draft, SpecSources};
use serde_json::{Map, Value};
use std::path::Path;

/// The keys of a critic's and of a teacher's place, whatever stands in front of them.
const MODELS: [&str; 2] = ["critic_from", "teacher"];

impl Train {
    /// What stands where a reward model is wanted.
    pub fn judges(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut copy = self.clone();
        copy.each_judge(&mut |place| found.push(place.clone()));
        found
    }

    /// The same stage with other words for stages: `of` says where a stage's model lies, and nothing of other words.
    ///
    /// # Errors
    /// What `of` says.
    pub fn with_judges<E>(
        &self,
        of: &mut dyn FnMut(&str) -> Result<Option<String>, E>,
    ) -> Result<Train, E> {
        let mut train = self.clone();
        let mut wrong = None;
        train.each_judge(&mut |place| match of(place) {
            Ok(Some(found)) => *place = found,
            Ok(None) => {}
            Err(error) => wrong = wrong.take().or(Some(error)),
        });
        match wrong {
            Some(error) => Err(error),
            None => Ok(train),
        }
    }

    /// The stage with what its spec's file says of reward models in `set`, where one of them is a stage: the file alone would
    /// take the word for a folder. What the pipeline says itself counts more.
    pub fn with_named_judges(
        &self,
        is_stage: &dyn Fn(&str) -> bool,
        sources: &SpecSources,
    ) -> Train {
        let mut train = self.clone();
        let file = self
            .spec
            .as_str()
            .or_else(|| self.spec.get("extends")?.as_str());
        // What is wrong with it is reported when it is loaded.
        let Some(draft) = file.and_then(|word| Draft::open(word, sources).ok()) else {
            return train;
        };
        let method = draft.value("method");
        let method = method.as_str().unwrap_or_default();
        let models = MODELS.map(|key| format!("method.{method}.{key}"));
        for path in ["rewards"]
            .into_iter()
            .chain(models.iter().map(String::as_str))
        {
            let own =
                sets_path(&Value::Object(self.set.clone()), path) || sets_path(&self.spec, path);
            let Some(mut value) = draft.said(path).filter(|_| !own).cloned() else {
                continue;
            };
            let mut named = false;
            visit(path, &mut value, &mut |word| named |= is_stage(word));
            if named {
                train.set.insert(path.into(), value);
            }
        }
        train
    }

    fn each_judge(&mut self, seen: &mut dyn FnMut(&mut String)) {
        visit("", &mut self.spec, seen);
        each(&mut self.set, seen);
    }
}

/// Whether a map of keys, dotted or nested, says this path or chooses another member above it.
fn sets_path(value: &Value, path: &str) -> bool {
    let Value::Object(map) = value else {
        return false;
    };
    map.iter().any(|(key, value)| {
        let mut left: Vec<&str> = path.split('.').collect();
        for name in key.split('.') {
            match left.first() {
                Some(first) if name == *first || name == "*" => left.remove(0),
                _ => return false,
            };
        }
        match value {
            Value::Object(_) if !left.is_empty() => sets_path(value, &left.join(".")),
            _ => true,
        }
    })
}

fn each(map: &mut Map<String, Value>, seen: &mut dyn FnMut(&mut String)) {
    for (key, value) in map {
        visit(key, value, seen);
    }
}

fn visit(key: &str, value: &mut Value, seen: &mut dyn FnMut(&mut String)) {
    let last = key.rsplit('.').next().unwrap_or(key);
    match value {
        Value::Array(rewards) if last == "rewards" => {
            let models = rewards.iter_mut();
            let paths = models.filter_map(|one| one.get_mut("model")?.get_mut("path"));
            for path in paths {
                if let Value::String(path) = path {
                    seen(path);
                }
            }
        }
        Value::String(path) if MODELS.contains(&last) => seen(path),
        Value::Object(map) => each(map, seen),
        _ => {}
    }
}

impl Stage {
    /// The key of the stage that says this word: one of `set`, or its spec.
    fn key_with(&self, word: &str) -> String {
        fn says(value: &Value, word: &str) -> bool {
            match value {
                Value::String(text) => text == word,
                Value::Array(list) => list.iter().any(|item| says(item, word)),
                Value::Object(map) => map.values().any(|value| says(value, word)),
                _ => false,
            }
        }
        let set = match &self.work {
            Work::Train(train) => train.set.iter().find(|(_, value)| says(value, word)),
            _ => None,
        };
        set.map_or("train".into(), |(key, _)| format!("set.{key}"))
    }
}

impl Pipeline {
    /// The training of stage `at`, with the reward models that its spec's file names by stages.
    pub fn training(&self, at: usize, sources: &SpecSources) -> Option<Train> {
        let Work::Train(train) = &self.stages.get(at)?.work else {
            return None;
        };
        Some(train.with_named_judges(&|word| self.stage(word).is_some(), sources))
    }

    /// The stages whose reward models stage `at` learns from.
    pub fn judges_of(&self, at: usize, sources: &SpecSources) -> Vec<&Stage> {
        let Some(train) = self.training(at, sources) else {
            return Vec::new();
        };
        let words = train.judges();
        let named = words.iter().filter_map(|word| self.stage(word));
        named.map(|(_, stage)| stage).collect()
    }

    /// Holds every stage that is named as a reward model against its place.
    ///
    /// # Errors
    /// Each stage that comes later, is the same one, or trains nothing; each bare word that is neither stage nor folder.
    pub fn check_judges(
        &self,
        places: &Places,
        sources: &SpecSources,
    ) -> Result<(), PipelineError> {
        let faults = self.judge_faults(places, sources).into_iter();
        let faults: Vec<Fault> = faults.map(|(_, fault)| fault).collect();
        match faults.is_empty() {
            true => Ok(()),
            false => Err(PipelineError::Invalid(faults)),
        }
    }

    /// The same, each with the number of its stage, from 0.
    pub fn judge_faults(&self, places: &Places, sources: &SpecSources) -> Vec<(usize, Fault)> {
        let mut faults = Vec::new();
        for (at, stage) in self.stages.iter().enumerate() {
            let Some(train) = self.training(at, sources) else {
                continue;
            };
            let wrong = train.judges().into_iter().filter_map(|word| {
                let what = self.why_no_judge(&word, at)?;
                let place = places.of_stage(at, &stage.name, &stage.key_with(&word));
                let fault = Fault {
                    place: format!("{place}: stage {} ({})", at + 1, stage.name),
                    what: format!("its reward model: {what}"),
                    hint: self.judges_before(at, &word),
                };
                Some((at, fault))
            });
            faults.extend(wrong);
        }
        faults
    }

    /// Why `word` is no reward model for stage `at`.
    fn why_no_judge(&self, word: &str, at: usize) -> Option<String> {
        Some(match self.stage(word) {
            Some((before, judge)) if before < at => match judge.work {
                Work::Train(_) => return None,
                _ => format!("stage {word} trains no model"),
            },
            Some((same, _)) if same == at => "a stage cannot use itself as its reward model".into(),
            Some(_) => format!("stage {word} comes after it"),
            None if word.contains('/') || Path::new(word).exists() => return None,
            None => format!("{word:?} is neither an earlier training stage nor a folder"),
        })
    }

    fn judges_before(&self, at: usize, word: &str) -> String {
        let before = self.stages[..at].iter();
        let names: Vec<&str> = before
            .filter(|stage| matches!(stage.work, Work::Train(_)))
            .map(|stage| stage.name.as_str())
            .collect();
        match names.as_slice() {
            [] => "put a stage of method reward before it, or name a folder".into(),
            names => format!(
                "a stage of method reward before it ({}), or a folder: ./{word}",
                names.join(", ")
            ),
        }
    }
}
