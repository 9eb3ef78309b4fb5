//! Runs that are named in a model's place, as after `-s`: which checkpoint one means, the disk says.

use super::Editor;
use crate::ui::effect::Effect;
use crate::ui::overlays::Reply;
use serde_json::Value;
use std::path::PathBuf;

/// Rewards are a list, in which reward models are named.
const REWARDS: &str = "rewards";
const MODELS: [&str; 3] = [
    "train.from",
    "method.ppo.critic_from",
    "method.distill.teacher",
];

impl Editor {
    /// Asks for the models that a place was just given.
    pub(super) fn ask_for_runs(&mut self, place: &str, text: &str) -> Reply {
        self.awaited = match place {
            REWARDS => self.draft.said(REWARDS).map(judges).unwrap_or_default(),
            _ if MODELS.contains(&place) && text != "null" => vec![text.to_string()],
            _ => Vec::new(),
        };
        self.ask_next(place)
    }

    /// One model after the other.
    fn ask_next(&mut self, place: &str) -> Reply {
        match self.awaited.pop() {
            Some(said) => Reply::Do(Effect::ModelOfRun {
                place: place.into(),
                said,
            }),
            None => Reply::Stay,
        }
    }

    /// A run in a model's place becomes its checkpoint, if the place still says it. One step takes it back, with the run's name.
    pub(super) fn model_of_run(
        &mut self,
        place: &str,
        said: &str,
        found: Option<&Result<PathBuf, String>>,
    ) -> Reply {
        let mut value = self.draft.said(place).cloned().unwrap_or_default();
        let models = match place {
            REWARDS => places_of_judges(&mut value),
            _ => vec![&mut value],
        };
        let named: Vec<&mut Value> = models.into_iter().filter(|model| **model == said).collect();
        match found {
            Some(Ok(checkpoint)) if !named.is_empty() => {
                let checkpoint = checkpoint.display().to_string();
                named.into_iter().for_each(|model| *model = checkpoint.clone().into());
                let text = match value {
                    Value::String(text) => text,
                    list => list.to_string(),
                };
                let set = self.on_this_place(|editor| editor.draft.set(place, &text, ""));
                self.error = set.err().map(|issue| issue.what);
            }
            Some(Err(why)) if !named.is_empty() => self.error = Some(why.clone()),
            _ => {}
        }
        self.ask_next(place)
    }
}

/// The reward models of a list, as named.
fn judges(rewards: &Value) -> Vec<String> {
    let mut rewards = rewards.clone();
    let models = places_of_judges(&mut rewards).into_iter();
    models.filter_map(|model| model.as_str().map(String::from)).collect()
}

/// Where they are named: `{model: {path: …}}`.
fn places_of_judges(rewards: &mut Value) -> Vec<&mut Value> {
    let list = rewards.as_array_mut().into_iter().flatten();
    list.filter_map(|reward| reward.pointer_mut("/model/path")).collect()
}
