//! The draft of the current answers, made once for each state of them, and the settings that the user typed on top.

use super::Wizard;
use super::answers::{Answers, Begin};
use crate::base::human;
use crate::spec::{Draft, Issue, Origin};
use std::sync::{Arc, OnceLock};

/// A draft and what was found of it.
#[derive(Debug)]
pub(super) struct Made {
    pub draft: Draft,
    /// Typed settings that are no values of their keys.
    pub wrong: Vec<(String, Issue)>,
    /// Contradictions between values.
    pub issues: Vec<Issue>,
    writes: OnceLock<bool>,
}

impl Made {
    /// Its method learns from answers that the model writes.
    pub fn writes(&self) -> bool {
        let rolls = || {
            self.draft
                .spec()
                .is_ok_and(|spec| spec.rollout_length().is_some())
        };
        *self.writes.get_or_init(rolls)
    }
}

/// The newest draft, with the state that it was made for.
#[derive(Debug, Clone)]
pub(super) struct Latest {
    answers: Answers,
    sightings: u64,
    made: Option<Arc<Made>>,
}

impl Wizard {
    /// The draft for the answers, and what is wrong with typed settings; those keep the previous value.
    pub fn draft(&self) -> Option<(Draft, Vec<(String, Issue)>)> {
        let made = self.made()?;
        Some((made.draft.clone(), made.wrong.clone()))
    }

    /// The same with its contradictions, made once for each state of the answers: a key may ask for it many times.
    pub(super) fn made(&self) -> Option<Arc<Made>> {
        let known = self.made.borrow().clone();
        if let Some(known) = known
            && known.sightings == self.sightings
            && known.answers == self.answers
        {
            return known.made;
        }
        let made = self.make().map(Arc::new);
        *self.made.borrow_mut() = Some(Latest {
            answers: self.answers.clone(),
            sightings: self.sightings,
            made: made.clone(),
        });
        made
    }

    /// A context that the start model does not have: `train` would refuse the file.
    fn beyond_base(&self, draft: &Draft) -> Option<Issue> {
        const PATH: &str = "model.seq_len";
        // The spec's scaling is checked against the model as the spec is loaded.
        let is_scaled = !draft.value("model.position.rope.scaling").is_null();
        let longest = self.start_model()?.seq_len() as u64;
        let asked = draft.value(PATH).as_u64();
        let asked = asked.filter(|n| *n > longest && !is_scaled)?;
        let what = format!(
            "{} tokens, but the base model supports {}",
            human::grouped(asked),
            human::grouped(longest)
        );
        let hint = format!(
            "at most {longest}, or -s model.position.rope.scaling=yarn for a model with RoPE"
        );
        Some(Issue {
            origin: Origin::Derived,
            path: PATH.into(),
            what,
            hint,
        })
    }

    fn make(&self) -> Option<Made> {
        let mut wrong = Vec::new();
        let mut draft = match self.answers.begin {
            Begin::Config => self.config_facts()?.as_ref().ok()?.draft()?,
            Begin::Questions => self.recipe(self.preset()?),
        };
        for (path, text) in &self.answers.settings {
            let Some(full) = draft.resolve_wildcard(path) else {
                continue;
            };
            if let Err(issue) = draft.set(&full, text, "your choice") {
                wrong.push((path.clone(), issue));
            }
        }
        if self.answers.begin == Begin::Questions {
            self.follow_steps(&mut draft);
        }
        let mut issues = draft.issues();
        issues.extend(self.beyond_base(&draft));
        Some(Made {
            issues,
            writes: OnceLock::new(),
            draft,
            wrong,
        })
    }
}
