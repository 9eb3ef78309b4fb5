//! A trained reward model as a reward: it scores prompt and completion as one text.

use super::{Answer, Reward, Worker};
use crate::base::registry::Entry;
use crate::models::{AnswerRead, RewardModel};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

pub const ENTRY: Entry = Entry {
    id: "model",
    title: "A reward model",
    summary: "The score of a trained reward model for prompt and answer.",
    source: "Stiennon et al. 2020, arXiv 2009.01325",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Folder of the reward model: a checkpoint of the method reward, or a sequence-classification model with one label.
    pub path: PathBuf,
    /// Answers that it reads at once.
    #[schemars(range(min = 1, max = 4096))]
    pub batch: usize,
    /// What its scores are multiplied by.
    pub scale: f64,
    /// What is subtracted from its scores first: their mean on good data, say.
    pub offset: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            path: PathBuf::new(),
            batch: 16,
            scale: 1.0,
            offset: 0.0,
        }
    }
}

impl Reward for Config {
    fn is_verifier(&self) -> bool {
        false
    }

    fn judges_message(&self) -> bool {
        false
    }

    fn score(&self, _answer: &Answer) -> Result<f64, String> {
        Err("a model scores this reward".into())
    }

    fn model(&self) -> Option<&Path> {
        Some(&self.path)
            .filter(|path| !path.as_os_str().is_empty())
            .map(PathBuf::as_path)
    }

    fn read_at_once(&self) -> usize {
        self.batch
    }

    fn fix_paths(&mut self, absolute: &dyn Fn(&Path) -> PathBuf) {
        if !self.path.as_os_str().is_empty() {
            self.path = absolute(&self.path);
        }
    }

    fn worker(&self) -> Option<Box<dyn Worker>> {
        Some(Box::new(Scorer {
            config: self.clone(),
            model: None,
            scores: Vec::new(),
        }))
    }

    fn fault(&self) -> Option<(String, String)> {
        let fix = "{model: {path: runs/…/checkpoints/step-001000}}";
        if self.path.as_os_str().is_empty() {
            return Some(("which reward model?".into(), fix.into()));
        }
        let numbers = self.scale.is_finite() && self.offset.is_finite();
        (!numbers).then(|| ("scale and offset must be numbers".into(), fix.into()))
    }
}

/// The model, which is read with the first answers, and the scores of those in hand.
struct Scorer {
    config: Config,
    model: Option<RewardModel>,
    scores: Vec<f32>,
}

impl fmt::Debug for Scorer {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Scorer({})", self.config.path.display())
    }
}

impl Worker for Scorer {
    fn begin(&mut self, answers: &[Answer]) -> Result<(), String> {
        let model = match &mut self.model {
            Some(model) => model,
            none => {
                let opened = RewardModel::open(&self.config.path);
                none.insert(opened.map_err(|e| format!("{e}; {}", e.hint()))?)
            }
        };
        let texts = answers.iter().map(|answer| model.ids(&as_read(answer)));
        let texts = texts.collect::<Result<Vec<_>, String>>()?;
        let scores = model.scores(&texts, self.config.batch);
        self.scores = scores.map_err(|e| e.to_string())?;
        Ok(())
    }

    fn score(&mut self, number: usize, _answer: &Answer) -> Result<f64, String> {
        let score = self.scores.get(number).copied().map(f64::from);
        match score.filter(|score| score.is_finite()) {
            Some(score) => Ok((score - self.config.offset) * self.config.scale),
            None => Err("the model's score is non-finite".into()),
        }
    }
}

/// Without its thoughts, as the model read answers when it was trained.
fn as_read(answer: &Answer) -> AnswerRead<'_> {
    let thinking = answer.thinking.as_ref();
    AnswerRead {
        prompt: &answer.prompt,
        text: thinking.map_or(&answer.text, |thinking| &thinking.alone),
        ended: answer.ended,
        behind: answer.behind.as_deref(),
    }
}
