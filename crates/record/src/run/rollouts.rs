//! The completions of a run's rollouts, in files beside its log: `rollouts/step-000123.json.zst`, one per rollout, a bounded
//! number of them. They are for inspection: nothing is computed from them, and a run does not need them. The log itself has
//! the summary (rewards, lengths, shares) and the first groups at each evaluation.

use super::checkpoints::{name_of, step_in};
use crate::base::files::open_plain;
use crate::base::stats;
use crate::wire::Num;
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Bounds what is read of a file, in bytes of JSON.
const MAX_BYTES: u64 = 64 << 20;
const LEVEL: i32 = 3;
const FOLDER: &str = "rollouts";
const ENDING: &str = ".json.zst";

/// The answers of one rollout.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Rollout {
    /// The first step that learns from it.
    pub step: u64,
    pub groups: Vec<Group>,
    /// Groups that the file has no room for.
    pub left_out: u64,
}

/// The answers to one prompt.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// The prompt's source among the data and its row there, from 0: the same in every step. Files of older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<u64>,
    pub prompt: String,
    /// What the data say is right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub right: Option<String>,
    pub answers: Vec<Answer>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Its number in the group, from 0, as it was drawn; with step and row it names the answer.
    #[serde(default)]
    pub index: u32,
    /// It reached the limit of tokens.
    pub cut: bool,
    /// Σ weight · score, less what the distance to the reference costs.
    pub reward: Num,
    /// By each reward, before its weight.
    pub rewards: Vec<(String, Num)>,
    pub advantage: Num,
    pub tokens: Vec<Token>,
}

/// A token's text, its log-probability in nats when it was drawn, and the distance of that from the reference model's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Token(
    pub String,
    pub f32,
    #[serde(default, skip_serializing_if = "Option::is_none")] pub Option<f32>,
);

impl Answer {
    pub fn text(&self) -> String {
        self.tokens.iter().map(|token| token.0.as_str()).collect()
    }

    /// Mean of −log p over its tokens, in nats: an estimate of the entropy, without bias.
    pub fn nll(&self) -> f64 {
        mean(self.tokens.iter().map(|token| -f64::from(token.1)))
    }
}

impl Group {
    pub fn mean_reward(&self) -> f64 {
        mean(self.answers.iter().map(|a| a.reward.0))
    }

    /// Highest less lowest reward.
    pub fn range(&self) -> f64 {
        let rewards = || self.answers.iter().map(|a| a.reward.0);
        let range = rewards().fold(f64::MIN, f64::max) - rewards().fold(f64::MAX, f64::min);
        range.max(0.0)
    }

    /// Tokens, mean over the answers.
    pub fn length(&self) -> f64 {
        mean(self.answers.iter().map(|a| a.tokens.len() as f64))
    }

    pub fn nll(&self) -> f64 {
        mean(self.answers.iter().map(Answer::nll))
    }

    /// All answers are worth the same, of several: the group teaches nothing.
    pub fn is_flat(&self) -> bool {
        self.answers.len() > 1 && self.range() < 1e-9
    }
}

/// Mean of some values, 0 of none.
pub fn mean(values: impl Iterator<Item = f64>) -> f64 {
    stats::mean(values).unwrap_or_default()
}

/// What someone wants to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RolloutQuery {
    /// The rollout of this step, or the last one before it; `u64::MAX` means the newest.
    Upto(u64),
    /// The answers to this prompt in every rollout that has it.
    Prompt(String),
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Found {
    /// Every step with a file, in order.
    pub steps: Vec<u64>,
    pub rollouts: Vec<Rollout>,
}

fn folder(run: &Path) -> PathBuf {
    run.join(FOLDER)
}

fn name(step: u64) -> String {
    format!("{}{ENDING}", name_of(step))
}

/// The steps of which there are files, in order.
pub fn steps(run: &Path) -> Vec<u64> {
    let entries = std::fs::read_dir(folder(run)).into_iter().flatten();
    let mut steps: Vec<u64> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            step_in(name.to_str()?.strip_suffix(ENDING)?)
        })
        .collect();
    steps.sort_unstable();
    steps
}

/// Writes a rollout, and deletes what `keep` files have no room for: see [`steps_to_prune`]. Files of later steps go too; they
/// belong to a part of the run that was rolled back.
///
/// # Errors
/// The disk does not take it.
pub fn write(run: &Path, rollout: &Rollout, keep: usize) -> io::Result<()> {
    let folder = folder(run);
    std::fs::create_dir_all(&folder)?;
    let bytes = zstd::encode_all(&*serde_json::to_vec(rollout)?, LEVEL)?;
    let temporary = folder.join(".tmp-rollout");
    std::fs::write(&temporary, bytes)?;
    std::fs::rename(&temporary, folder.join(name(rollout.step)))?;
    let steps = steps(run);
    let (own, later): (Vec<u64>, Vec<u64>) = steps.into_iter().partition(|s| *s <= rollout.step);
    for step in later.into_iter().chain(steps_to_prune(&own, keep)) {
        std::fs::remove_file(folder.join(name(step)))?;
    }
    Ok(())
}

/// Which of the steps go so that `keep` stay: the newer half stays, the older ones are thinned out evenly, and the first one
/// stays as long as there are two.
fn steps_to_prune(steps: &[u64], keep: usize) -> Vec<u64> {
    let (mut left, mut gone) = (steps.to_vec(), Vec::new());
    while left.len() > keep {
        let older = left.len() - (keep - keep / 2).min(left.len());
        // The step whose neighbours are closest to one another.
        let inner = (1..older).filter(|at| at + 1 < left.len());
        let closest = inner.min_by_key(|at| left[at + 1] - left[at - 1]);
        gone.push(left.remove(closest.unwrap_or(0)));
    }
    gone
}

/// Reads the rollout of a step.
///
/// # Errors
/// What is wrong with the file.
pub fn read(run: &Path, step: u64) -> Result<Rollout, String> {
    let path = folder(run).join(name(step));
    let fault = |e: String| format!("{}: {e}", path.display());
    let file = open_plain(&path).map_err(|e| fault(e.to_string()))?;
    let text = zstd::Decoder::new(file).map_err(|e| fault(e.to_string()))?;
    serde_json::from_reader(text.take(MAX_BYTES)).map_err(|e| fault(format!("unreadable: {e}")))
}

/// Looks for rollouts. A file that went away meanwhile is left out.
///
/// # Errors
/// A file that is damaged.
pub fn find(run: &Path, wanted: &RolloutQuery) -> Result<Found, String> {
    let steps = steps(run);
    let mut rollouts = Vec::new();
    match wanted {
        RolloutQuery::Upto(most) => {
            let step = steps
                .iter()
                .rev()
                .find(|step| *step <= most)
                .or(steps.first());
            rollouts.extend(step.map(|step| read(run, *step)).transpose()?);
        }
        RolloutQuery::Prompt(prompt) => {
            for step in &steps {
                let Ok(mut rollout) = read(run, *step) else {
                    continue;
                };
                rollout.groups.retain(|group| group.prompt == *prompt);
                if !rollout.groups.is_empty() {
                    rollouts.push(rollout);
                }
            }
        }
    }
    Ok(Found { steps, rollouts })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rollout(step: u64, prompts: [&str; 2]) -> Rollout {
        let answer = |index: u32, reward: f64| Answer {
            index,
            cut: false,
            reward: Num(reward),
            rewards: vec![("exact".into(), Num(reward))],
            advantage: Num(0.5),
            tokens: vec![
                Token("1".into(), -0.5, None),
                Token("9".into(), -1.5, Some(0.1)),
            ],
        };
        let group = |prompt: &str| Group {
            source: Some("sums".into()),
            row: prompt.bytes().next().map(u64::from),
            prompt: prompt.into(),
            right: Some("19".into()),
            answers: vec![answer(0, 1.0), answer(1, 0.0)],
        };
        Rollout {
            step,
            groups: prompts.map(group).into(),
            left_out: 0,
        }
    }

    #[test]
    fn files_give_back_what_was_written_and_a_prompt_is_found_over_the_steps() {
        let run = tempfile::tempdir().unwrap();
        for (step, prompts) in [(1, ["a", "b"]), (2, ["b", "c"]), (3, ["c", "d"])] {
            write(run.path(), &rollout(step, prompts), 8).unwrap();
        }
        let newest = find(run.path(), &RolloutQuery::Upto(u64::MAX)).unwrap();
        assert_eq!(newest.steps, [1, 2, 3]);
        assert_eq!(newest.rollouts, [rollout(3, ["c", "d"])]);
        let found = find(run.path(), &RolloutQuery::Prompt("b".into())).unwrap();
        let steps: Vec<u64> = found.rollouts.iter().map(|r| r.step).collect();
        assert_eq!(steps, [1, 2]);
        let group = &newest.rollouts[0].groups[0];
        assert_eq!((group.mean_reward(), group.range()), (0.5, 1.0));
        assert_eq!(
            (group.length(), group.nll(), group.is_flat()),
            (2.0, 1.0, false)
        );
        assert_eq!(group.answers[0].text(), "19");
        // Step 2 comes again after a rollback: step 3 is of a past that is no more.
        write(run.path(), &rollout(2, ["x", "y"]), 8).unwrap();
        assert_eq!(steps_of(run.path()), [1, 2]);
    }

    fn steps_of(run: &Path) -> Vec<u64> {
        steps(run)
    }

    #[test]
    fn a_file_of_an_older_version_has_no_ids_and_is_read() {
        let run = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder(run.path())).unwrap();
        let text = r#"{"step":7,"groups":[{"prompt":"a","answers":[
            {"cut":false,"reward":1.0,"rewards":[],"advantage":0.5,"tokens":[["1",-0.5]]}]}],"left_out":0}"#;
        let bytes = zstd::encode_all(text.as_bytes(), LEVEL).unwrap();
        std::fs::write(folder(run.path()).join(name(7)), bytes).unwrap();
        let group = &read(run.path(), 7).unwrap().groups[0];
        assert_eq!((&group.source, group.row), (&None, None));
        assert_eq!(group.answers[0].index, 0);
    }

    #[test]
    fn a_damaged_file_says_which_one_it_is() {
        let run = tempfile::tempdir().unwrap();
        write(run.path(), &rollout(7, ["a", "b"]), 8).unwrap();
        let path = folder(run.path()).join(name(7));
        std::fs::write(&path, b"no zstd").unwrap();
        let why = find(run.path(), &RolloutQuery::Upto(7)).unwrap_err();
        assert!(why.contains("step-000007.json.zst"), "{why}");
    }

    #[test]
    fn old_files_are_thinned_out_evenly_and_the_newer_half_stays() {
        let mut left: Vec<u64> = Vec::new();
        for step in 1..=1000 {
            left.push(step);
            let gone = steps_to_prune(&left, 16);
            left.retain(|step| !gone.contains(step));
            assert!(left.len() <= 16);
        }
        assert_eq!(left[0], 1);
        assert_eq!(left[8..], (993..=1000).collect::<Vec<u64>>());
        let widest = left.windows(2).map(|two| two[1] - two[0]).max().unwrap();
        assert!(widest <= 400, "{left:?}");
        assert_eq!(steps_to_prune(&[1, 2, 3], 1), [2, 1]);
        assert!(steps_to_prune(&[1, 2], 2).is_empty());
    }
}
