//! The answers so far. Remembered between sessions; going back loses nothing.

use crate::advisor::choose::{Adapter, DataKind, Goal, MethodId, Reward, Start};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where the data is, or a description of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataAnswer {
    /// The embedded corpus.
    Corpus,
    /// A file or folder: [`Answers::data_path`].
    Path,
    /// Not available yet: for advice.
    Demos,
    Pairs,
    Thumbs,
    /// Prompts, and a program that verifies answers.
    Checked,
    /// Prompts, and a reward model.
    Judged,
}

impl DataAnswer {
    pub const ALL: [DataAnswer; 7] = [
        DataAnswer::Corpus,
        DataAnswer::Path,
        DataAnswer::Demos,
        DataAnswer::Pairs,
        DataAnswer::Thumbs,
        DataAnswer::Checked,
        DataAnswer::Judged,
    ];

    /// The kind described; `None` if it comes from a file.
    pub fn described(self) -> Option<(DataKind, Reward)> {
        Some(match self {
            DataAnswer::Corpus | DataAnswer::Path => return None,
            DataAnswer::Demos => (DataKind::Demos, Reward::None),
            DataAnswer::Pairs => (DataKind::Pairs, Reward::None),
            DataAnswer::Thumbs => (DataKind::Thumbs, Reward::None),
            DataAnswer::Checked => (DataKind::Prompts, Reward::Checker),
            DataAnswer::Judged => (DataKind::Prompts, Reward::Model),
        })
    }
}

/// What scores completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RewardAnswer {
    Number,
    Exact,
    Python,
    Countdown,
    Json,
    /// A program: [`Answers::reward_command`].
    Command,
    /// [`Answers::reward_model`].
    Model,
}

impl RewardAnswer {
    pub const ALL: [RewardAnswer; 7] = [
        RewardAnswer::Number,
        RewardAnswer::Exact,
        RewardAnswer::Python,
        RewardAnswer::Countdown,
        RewardAnswer::Json,
        RewardAnswer::Command,
        RewardAnswer::Model,
    ];

    /// As in a spec.
    pub fn word(self) -> &'static str {
        match self {
            RewardAnswer::Number => "number",
            RewardAnswer::Exact => "exact",
            RewardAnswer::Python => "python",
            RewardAnswer::Countdown => "countdown",
            RewardAnswer::Json => "json",
            RewardAnswer::Command => "command",
            RewardAnswer::Model => "model",
        }
    }
}

/// How a spec begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Begin {
    /// Goal, data, start, method, size, one after the other.
    #[default]
    Questions,
    /// Another tool's config: [`Answers::config_path`].
    Config,
}

/// All answers. `None` means not answered yet; texts are kept as typed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Answers {
    pub begin: Begin,
    pub config_path: String,
    /// The method that the config is for, where the user says one.
    pub config_method: String,
    pub goal: Option<Goal>,
    pub data: Option<DataAnswer>,
    pub data_path: String,
    pub start: Option<Start>,
    pub start_path: String,
    pub method: Option<MethodId>,
    /// All weights, or an adapter.
    pub adapter: Option<Adapter>,
    /// What the method was chosen for: another goal or another kind of data has other advice.
    pub method_for: String,
    /// The preset that the spec extends.
    pub preset: Option<String>,
    pub reward: Option<RewardAnswer>,
    pub reward_command: String,
    pub reward_model: String,
    /// What the reward was chosen for: other data have other references.
    pub reward_for: String,
    /// Settings as typed, by path.
    pub settings: BTreeMap<String, String>,
    /// What the settings were typed for: other data or another model makes them nobody's.
    pub settings_for: String,
    pub save_as: String,
    /// Answers for other goals: what suits one says nothing of another.
    pub others: BTreeMap<String, Answers>,
}

impl Answers {
    /// What was answered for a goal the last time; a new model has no base.
    pub fn of_goal(&self, goal: Goal) -> Answers {
        let mut answers = match self.goal == Some(goal) {
            true => Answers {
                others: BTreeMap::new(),
                ..self.clone()
            },
            false => self.others.get(&word(goal)).cloned().unwrap_or_default(),
        };
        answers.goal = Some(goal);
        answers.config_path.clone_from(&self.config_path);
        answers.config_method.clone_from(&self.config_method);
        if goal == Goal::NewModel {
            answers.start = None;
            answers.start_path.clear();
        }
        answers
    }

    /// With those of an earlier time for other goals than this one's.
    #[must_use]
    pub fn with_earlier(mut self, earlier: &Answers) -> Answers {
        self.others.clone_from(&earlier.others);
        if let Some(goal) = earlier.goal {
            self.others.insert(word(goal), earlier.of_goal(goal));
        }
        if let Some(goal) = self.goal {
            self.others.remove(&word(goal));
        }
        self
    }

    /// Reads the output of [`Answers::to_json`]. Answers of another version or a damaged file are ignored: the wizard then
    /// starts from scratch, which costs only a few keys.
    pub fn from_json(text: &str) -> Answers {
        serde_json::from_str(text).unwrap_or_default()
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

fn word(goal: Goal) -> String {
    format!("{goal:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_kept_for_each_goal() {
        let style = Answers {
            goal: Some(Goal::Style),
            data_path: "pairs.jsonl".into(),
            start: Some(Start::Base),
            ..Answers::default()
        };
        let fresh = style.of_goal(Goal::NewModel);
        assert_eq!((fresh.data_path.as_str(), fresh.start), ("", None));
        let fresh = Answers {
            data_path: "poems.txt".into(),
            start: Some(Start::Base),
            ..fresh
        };
        let kept = Answers::from_json(&fresh.with_earlier(&style).to_json());
        assert_eq!(kept.of_goal(Goal::Style).data_path, "pairs.jsonl");
        let again = kept.of_goal(Goal::NewModel);
        assert_eq!((again.data_path.as_str(), again.start), ("poems.txt", None));
        // Each goal stands once.
        let back = kept.of_goal(Goal::Style).with_earlier(&kept);
        let others: Vec<&String> = back.others.keys().collect();
        assert_eq!(others, ["NewModel"]);
    }

    #[test]
    fn answers_come_back_and_damage_is_no_answer() {
        let answers = Answers {
            goal: Some(Goal::Style),
            data: Some(DataAnswer::Path),
            data_path: "a b.txt".into(),
            method: Some(MethodId::Dpo),
            settings: [("train.max_steps".to_string(), "x".to_string())].into(),
            ..Answers::default()
        };
        assert_eq!(Answers::from_json(&answers.to_json()), answers);
        assert_eq!(Answers::from_json("{"), Answers::default());
        assert_eq!(Answers::from_json("{\"later\": 1}"), Answers::default());
    }
}
