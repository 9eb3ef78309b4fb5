//! The question about the reward, for methods that train on the model's own completions.

use crate::advisor::choose::{Goal, MethodId};
use crate::advisor::inspection::{DataFacts, ReferenceKind};
use crate::advisor::wizard::answers::{Answers, DataAnswer, RewardAnswer};
use crate::advisor::wizard::question::{Ask, Explanation, Row, note};
use crate::advisor::wizard::{Outcome, Wizard};
use crate::base::paths::expand_home;
use crate::models::RewardModel;
use crate::plan::start::model_of_run;
use serde_json::{Value, json};
use std::path::Path;

pub(in crate::advisor::wizard) struct Reward;

impl Ask for Reward {
    fn word(&self) -> &'static str {
        "reward"
    }

    fn title(&self) -> &'static str {
        "What scores its completions?"
    }

    /// Only methods that generate are asked; an imported config has its own.
    fn applies(&self, wizard: &Wizard) -> bool {
        let generates = [MethodId::Grpo, MethodId::Rloo, MethodId::Ppo];
        let method = wizard.answers.method;
        method.is_some_and(|method| generates.contains(&method))
    }

    fn rows(&self, wizard: &Wizard) -> Vec<Row> {
        let best = wizard.advised_reward().0;
        let row = |answer: &RewardAnswer| {
            let lack = wizard.lacks(*answer);
            let detail = match (lack, *answer == best) {
                (Some(lack), _) => lack.to_string(),
                (None, true) => format!("advised · {}", scores(*answer)),
                (None, false) => scores(*answer).to_string(),
            };
            let row = match answer.text(&wizard.answers) {
                Some(text) => Row::input(title(*answer), text, hint(*answer)),
                None => Row::choice(title(*answer), ""),
            };
            Row {
                detail,
                open: lack.is_none(),
                ..row
            }
        };
        RewardAnswer::ALL.iter().map(row).collect()
    }

    fn explain(&self, wizard: &Wizard, _: &[Row]) -> Explanation {
        let Some(answer) = RewardAnswer::ALL.get(wizard.selected()) else {
            return Explanation::default();
        };
        let mut notes = vec![note("Scores", scores(*answer))];
        if let Some(lack) = wizard.lacks(*answer) {
            notes.push(note("Lacks", lack));
        }
        let (best, why) = wizard.advised_reward();
        if *answer == best {
            notes.push(note("Why", why));
        }
        notes.push(note("Careful", careful(*answer)));
        notes.push(note(
            "Also",
            "penalties of the recipe for length and repetition stay; weights and all other rewards are in docs/rewards.md, and llmtui reward test shows scores before a run",
        ));
        (notes, Vec::new())
    }

    fn answer(&self, wizard: &Wizard) -> Option<String> {
        wizard.answers.reward.map(|answer| title(answer).into())
    }

    fn chosen(&self, wizard: &Wizard) -> Option<usize> {
        let answer = wizard.reward();
        RewardAnswer::ALL.iter().position(|other| *other == answer)
    }

    fn type_in(&self, wizard: &mut Wizard, text: &str) {
        match RewardAnswer::ALL.get(wizard.selected()) {
            Some(RewardAnswer::Command) => wizard.answers.reward_command = text.into(),
            Some(RewardAnswer::Model) => wizard.answers.reward_model = text.into(),
            _ => {}
        }
    }

    fn enter(&self, wizard: &mut Wizard) -> Outcome {
        let Some(answer) = RewardAnswer::ALL.get(wizard.selected()).copied() else {
            return Outcome::Stay;
        };
        if let Some(lack) = wizard.lacks(answer) {
            return wizard.refuse(format!("{} does not fit: {lack}", title(answer)));
        }
        // Who only described the data wants advice.
        let real = wizard.answers.data == Some(DataAnswer::Path);
        let empty = answer
            .text(&wizard.answers)
            .is_some_and(|text| text.trim().is_empty());
        match answer {
            RewardAnswer::Command if empty && real => {
                return wizard.refuse("which program? Type its command, e.g. python3 score.py");
            }
            RewardAnswer::Model if empty && real => {
                return wizard.refuse(
                    "which reward model? Type its folder or its run; llmtui train reward trains one from pairs",
                );
            }
            RewardAnswer::Model if !empty => {
                if let Err(why) = find_model(wizard) {
                    return wizard.refuse(why);
                }
            }
            _ => {}
        }
        wizard.answers.reward = Some(answer);
        wizard.answers.reward_for = wizard.reward_subject();
        wizard.advance()
    }
}

/// Puts the checkpoint in the place of a run's name, and sees whether a reward model is there.
fn find_model(wizard: &mut Wizard) -> Result<(), String> {
    let said = wizard.answers.reward_model.trim().to_string();
    let home = wizard.home().map(Path::to_path_buf);
    let of_run = wizard
        .runs_dir()
        .and_then(|dir| model_of_run(dir, &said, home.as_deref()));
    if let Some(found) = of_run {
        wizard.answers.reward_model = found?.display().to_string();
    }
    let said = Path::new(wizard.answers.reward_model.trim());
    let full = expand_home(said, Path::new(""), home.as_deref());
    let full = full.map_err(|(what, fix)| format!("{what}; {fix}"))?;
    match RewardModel::check(&full) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{error}; {}", error.hint())),
    }
}

impl RewardAnswer {
    /// What was typed, where something is to be typed.
    fn text(self, answers: &Answers) -> Option<&str> {
        match self {
            RewardAnswer::Command => Some(&answers.reward_command),
            RewardAnswer::Model => Some(&answers.reward_model),
            _ => None,
        }
    }

    /// As a spec lists it; `None` while what it needs is not typed.
    fn entry(self, answers: &Answers) -> Option<Value> {
        let text = self.text(answers).map(str::trim);
        match (self, text) {
            (_, Some("")) => None,
            (RewardAnswer::Command, Some(run)) => Some(json!({"command": {"run": run}})),
            (RewardAnswer::Model, Some(path)) => Some(json!({"model": {"path": path}})),
            _ => Some(json!(self.word())),
        }
    }
}

impl Wizard {
    /// What rewards are chosen for: a reference of one file says nothing of another's.
    pub(in crate::advisor::wizard) fn reward_subject(&self) -> String {
        match self.answers.data {
            Some(DataAnswer::Path) => self.answers.data_path.trim().into(),
            data => format!("{data:?}"),
        }
    }

    /// The chosen reward where it was chosen for these data, else the one to propose.
    fn reward(&self) -> RewardAnswer {
        let same = self.answers.reward_for == self.reward_subject();
        let chosen = self
            .answers
            .reward
            .filter(|answer| same && self.lacks(*answer).is_none());
        chosen.unwrap_or_else(|| self.advised_reward().0)
    }

    /// The reward that suits the data, and why.
    fn advised_reward(&self) -> (RewardAnswer, &'static str) {
        let described = self.answers.data == Some(DataAnswer::Judged);
        let reference = self.chosen_data().and_then(|facts| facts.reference);
        match reference {
            Some(ReferenceKind::Tests) => (RewardAnswer::Python, "the rows have unit tests"),
            Some(ReferenceKind::Countdown) => (
                RewardAnswer::Countdown,
                "the rows have numbers and a target",
            ),
            Some(ReferenceKind::Number) => (
                RewardAnswer::Number,
                "the rows' answers are numbers: how they are derived and written is free",
            ),
            Some(ReferenceKind::Words) => (
                RewardAnswer::Exact,
                "the rows have short answers, which are right or wrong as a whole",
            ),
            None if !described && self.chosen_data().is_none() => (
                RewardAnswer::Exact,
                "a rule cannot be exploited as a model can",
            ),
            None if self.answers.goal == Some(Goal::Reasoning) => (
                RewardAnswer::Command,
                "the rows have no answers: a program of yours verifies completions",
            ),
            Some(ReferenceKind::Prose) | None => (
                RewardAnswer::Model,
                "the rows have no answer that a rule could compare: completions must be judged",
            ),
        }
    }

    /// What the data lack for a reward.
    fn lacks(&self, answer: RewardAnswer) -> Option<&'static str> {
        let facts: &DataFacts = self.chosen_data()?;
        let found = facts.reference;
        let good = match answer {
            RewardAnswer::Python => found == Some(ReferenceKind::Tests),
            RewardAnswer::Countdown => found == Some(ReferenceKind::Countdown),
            RewardAnswer::Number => found == Some(ReferenceKind::Number),
            RewardAnswer::Exact => matches!(
                found,
                Some(ReferenceKind::Number | ReferenceKind::Words | ReferenceKind::Prose)
            ),
            RewardAnswer::Json | RewardAnswer::Command | RewardAnswer::Model => true,
        };
        (!good).then_some(match answer {
            RewardAnswer::Python => "the rows have no column `tests`",
            RewardAnswer::Countdown => "the rows have no columns `nums` and `target`",
            RewardAnswer::Number => "the rows' answers are not numbers",
            _ => "the rows have no answers to compare with",
        })
    }

    /// The rewards of the spec, and why, where they are not the recipe's: the chosen one before the recipe's penalties.
    pub(in crate::advisor::wizard) fn rewards(
        &self,
        said: Option<&Value>,
    ) -> Option<(String, String)> {
        let answer = self.reward();
        let entry = answer.entry(&self.answers)?;
        let said = said.and_then(Value::as_array).cloned().unwrap_or_default();
        let has = said.iter().any(|own| kind(own) == answer.word());
        if has && answer.text(&self.answers).is_none() {
            return None;
        }
        let penalties = said
            .into_iter()
            .filter(|own| ["length", "repetition"].contains(&kind(own)));
        let all: Vec<Value> = [entry].into_iter().chain(penalties).collect();
        let why = match answer == self.advised_reward().0 {
            true => self.advised_reward().1,
            false => "your choice",
        };
        Some((Value::from(all).to_string(), why.into()))
    }
}

/// The word of a reward as a spec lists it: `exact`, `{length: {…}, weight: 0.2}`.
fn kind(said: &Value) -> &str {
    match said {
        Value::String(word) => word,
        Value::Object(map) => map
            .keys()
            .map(String::as_str)
            .find(|key| !["weight", "name"].contains(key))
            .unwrap_or_default(),
        _ => "",
    }
}

fn title(answer: RewardAnswer) -> &'static str {
    match answer {
        RewardAnswer::Number => "the right number",
        RewardAnswer::Exact => "the exact answer",
        RewardAnswer::Python => "unit tests of Python",
        RewardAnswer::Countdown => "an equation",
        RewardAnswer::Json => "valid JSON",
        RewardAnswer::Command => "a program of mine",
        RewardAnswer::Model => "a reward model",
    }
}

fn hint(answer: RewardAnswer) -> &'static str {
    match answer {
        RewardAnswer::Model => "type its folder, or a run",
        _ => "type its command",
    }
}

fn scores(answer: RewardAnswer) -> &'static str {
    match answer {
        RewardAnswer::Number => {
            r"1 if the number after ####, in \boxed{} or the last one is the row's"
        }
        RewardAnswer::Exact => {
            "1 if the completion is the row's answer, apart from blanks around it"
        }
        RewardAnswer::Python => {
            "the share of the row's tests that its Python code passes, in a sandbox"
        }
        RewardAnswer::Countdown => {
            "1 if an expression of the row's numbers evaluates to its target"
        }
        RewardAnswer::Json => "1 if the completion is one JSON value",
        RewardAnswer::Command => "what your program writes for each completion",
        RewardAnswer::Model => "the score of a model that was trained on preferences",
    }
}

fn careful(answer: RewardAnswer) -> &'static str {
    match answer {
        RewardAnswer::Exact => {
            "longer answers hardly ever match word for word: then nothing is learned"
        }
        RewardAnswer::Json => {
            "the form alone is rewarded, whatever it says: add a reward for the content"
        }
        RewardAnswer::Command => {
            "it runs with your rights, and completions are untrusted: it must not execute them outside a sandbox"
        }
        RewardAnswer::Model => {
            "a policy learns to exploit it: set method.grpo.beta, and measure a rule with a weight of 0 beside it"
        }
        _ => {
            "with a pass rate near 0 or 1 nothing is learned: watch eval/pass@1 in the first steps"
        }
    }
}
