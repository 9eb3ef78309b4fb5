//! What people see of a rollout: readings of every step, and groups of answers to look at.

use super::parts::{COMPARING, SCORING, WRITING};
use super::{Rollout, Written, mean};
pub use crate::methods::policy::{EVAL_REWARD, pass_at};
use crate::methods::policy::{PASS_AT_1, sample_std};
use crate::rewards::Scores;
use crate::rewards::repetition::repeated;
use crate::spec::RunSpec;
use crate::wire::{Direction, ExaminedExample, ExaminedSequence, MetricInfo, Num};

pub const PASS: &str = PASS_AT_1;
pub const EVAL_LENGTH: &str = "eval/completion_length";
const REWARD: &str = "reward";
const REWARD_STD: &str = "reward_std";
const SAME: &str = "frac_reward_zero_std";
const LENGTH: &str = "completions/mean_length";
const CUT: &str = "completions/clipped_ratio";
const REPETITION: &str = "completions/repetition";
const UNREAD: &str = "completions/unread_ratio";
/// Words of a group whose repetition counts.
const GROUP: usize = 3;
/// The loop names the loss: it is no likelihood, and what is said of those does not hold for it.
pub const POLICY_LOSS: &str = "policy_loss";
/// The loop takes the time.
pub const SHARE: &str = "rollout/share";
const REFILLED: &str = "rollout/refilled";
pub const SPEED: &str = "rollout/tok_per_sec";

/// Groups, answers of a group, and characters of a prompt's end and an answer's beginning that are shown.
const GROUPS: usize = 3;
const ANSWERS: usize = 8;
const CHARACTERS: usize = 240;

/// Every metric of answers and rewards. Names are TRL's where it has one.
pub fn declarations(spec: &RunSpec) -> Vec<MetricInfo> {
    use Direction::{Higher, Lower, Neutral};
    #[rustfmt::skip]
    let fixed = [
        (PASS, "Held-out pass@1", "share", Higher, "share of held-out prompts whose completion gets 1 from the first reward"),
        (REWARD, "Reward", "", Higher, "mean over the step's completions of the weighted sum of rewards (TRL)"),
        (EVAL_REWARD, "Held-out reward", "", Higher, "mean weighted sum of rewards over completions of held-out prompts"),
        (REWARD_STD, "Reward std", "", Neutral, "standard deviation of rewards in a group, mean over groups (TRL)"),
        (SAME, "Groups with equal rewards", "share", Lower, "share of groups whose completions all have the same reward: no learning signal (TRL)"),
        (LENGTH, "Answer length", "tokens", Neutral, "mean tokens of the step's completions (TRL)"),
        (EVAL_LENGTH, "Held-out answer length", "tokens", Neutral, "mean tokens of completions of held-out prompts"),
        (CUT, "Cut answers", "share", Lower, "share of completions that reached max_new_tokens (TRL)"),
        (REPETITION, "Repetition in answers", "share", Lower, "share of 3-grams that occurred earlier in the same completion, mean over the step's completions"),
        (UNREAD, "Unread answers", "share", Lower, "share of the step's completions in which a reward finds nothing to score (no number, no JSON); the largest over the rewards"),
        (POLICY_LOSS, "Policy loss", "", Neutral, "-(1/N) sum of advantage times log-probability; its value is meaningless, its gradient is that of the expected reward"),
        (SHARE, "Rollout time", "share", Neutral, "share of the step spent generating and scoring completions"),
        (WRITING, "Generation time", "share", Neutral, "share of the step spent generating completions"),
        (SCORING, "Reward time", "share", Neutral, "share of the step spent on rewards"),
        (COMPARING, "Log-probability time", "share", Neutral, "share of the step spent on log-probabilities of completions under the reference and the sampling policy"),
        (REFILLED, "Replaced groups", "share", Lower, "groups replaced because all their rewards were equal, relative to the groups trained on (DAPO)"),
        (SPEED, "Answer tokens per second", "1/s", Higher, "completion tokens per second of generation"),
    ];
    let info = |id: String, title: String, unit: &str, direction, source: &str| MetricInfo {
        id,
        title,
        unit: unit.into(),
        direction,
        source: source.into(),
        ..MetricInfo::default()
    };
    let mut all: Vec<MetricInfo> = fixed
        .into_iter()
        .map(|(id, title, unit, direction, source)| {
            info(id.into(), title.into(), unit, direction, source)
        })
        .collect();
    for k in spec.rollout.pass_at.iter().filter(|k| **k > 1) {
        let source = "1 - C(n - c, k) / C(n, k) over n completions of a held-out prompt, c of them correct, mean over prompts (Chen et al. 2021)";
        let title = format!("Held-out pass@{k}");
        all.push(info(pass_at(*k), title, "share", Higher, source));
    }
    for reward in &spec.rewards {
        let name = &reward.name;
        let id = |part: &str| format!("rewards/{name}/{part}");
        let means = "mean score over the step's completions, before its weight (TRL)";
        all.push(info(
            id("mean"),
            format!("Reward {name}"),
            "",
            Higher,
            means,
        ));
        let spread = "standard deviation of the score over the step's completions (TRL)";
        all.push(info(
            id("std"),
            format!("Spread of {name}"),
            "",
            Neutral,
            spread,
        ));
        let zero = "share of the step's completions that score 0";
        all.push(info(
            id("zero"),
            format!("Zeros of {name}"),
            "share",
            Neutral,
            zero,
        ));
        if reward.reward.program().is_some() {
            let failed = "share of the step's completions that the program did not score";
            all.push(info(
                id("failed"),
                format!("Unscored by {name}"),
                "share",
                Lower,
                failed,
            ));
        }
    }
    all
}

/// The readings of a step.
pub fn readings(rollout: &Rollout, group_size: usize) -> Vec<(String, f64)> {
    let n = rollout.written.len().max(1) as f64;
    let groups = || rollout.rewards.chunks(group_size);
    let tokens: usize = rollout.written.iter().map(|w| w.answer.tokens).sum();
    let cut = rollout.written.iter().filter(|w| !w.answer.ended).count();
    let mut all = vec![
        (REWARD.to_string(), mean(rollout.rewards.iter().copied())),
        (LENGTH.into(), tokens as f64 / n),
        (CUT.into(), cut as f64 / n),
        (
            SPEED.into(),
            tokens as f64 / rollout.parts.writing.as_secs_f64().max(1e-9),
        ),
    ];
    let repeated = |w: &Written| repeated(&w.answer.text, GROUP);
    all.push((
        REPETITION.into(),
        mean(rollout.written.iter().map(repeated)),
    ));
    if let Some(unread) = rollout
        .scores
        .iter()
        .filter_map(|scores| scores.unread)
        .max()
    {
        all.push((UNREAD.into(), unread as f64 / n));
    }
    if group_size > 1 {
        let alike = mean(groups().map(|g| f64::from(u8::from(same(g)))));
        all.push((SAME.into(), alike));
        all.push((REWARD_STD.into(), mean(groups().map(sample_std))));
    } else {
        all.push((REWARD_STD.into(), sample_std(&rollout.rewards)));
    }
    if rollout.refilled > 0 {
        let groups = (rollout.written.len() / group_size.max(1)).max(1);
        all.push((REFILLED.into(), rollout.refilled as f64 / groups as f64));
    }
    for scores in &rollout.scores {
        let id = |part: &str| format!("rewards/{}/{part}", scores.name);
        let zeros = scores.values.iter().filter(|x| **x == 0.0).count();
        all.push((id("mean"), mean(scores.values.iter().copied())));
        all.push((id("std"), sample_std(&scores.values)));
        all.push((id("zero"), zeros as f64 / n));
        if scores.failed > 0 {
            all.push((id("failed"), scores.failed as f64 / n));
        }
    }
    all
}

/// Whether all answers of a group are worth the same: it teaches nothing.
pub fn same(group: &[f64]) -> bool {
    group.windows(2).all(|two| (two[0] - two[1]).abs() < 1e-9)
}

/// The first groups of a rollout, with advantages.
pub fn groups(rollout: &Rollout, group_size: usize) -> Vec<ExaminedExample> {
    let group = |first: usize| {
        let end = rollout.written.len().min(first + group_size.min(ANSWERS));
        let sequence = |i: usize| {
            let mut shown = shown(&rollout.written[i], &rollout.scores, i, rollout.rewards[i]);
            shown.label = format!("answer {}", i - first + 1);
            shown.advantage = rollout.advantages.get(i).map(|a| Num(*a));
            shown
        };
        ExaminedExample {
            sequences: (first..end).map(sequence).collect(),
        }
    };
    let firsts = (0..rollout.written.len()).step_by(group_size.max(1));
    firsts.take(GROUPS).map(group).collect()
}

/// Answers to held-out prompts, each an example of its own.
pub fn held_out<'a>(
    written: &'a [Written],
    scores: &'a [Scores],
    rewards: &'a [f64],
) -> impl Iterator<Item = ExaminedExample> + 'a {
    written.iter().enumerate().map(move |(i, one)| {
        let mut shown = shown(one, scores, i, rewards[i]);
        shown.label = "held out".into();
        ExaminedExample {
            sequences: vec![shown],
        }
    })
}

fn shown(written: &Written, scores: &[Scores], i: usize, reward: f64) -> ExaminedSequence {
    let answer = &written.answer;
    let skip = answer.prompt.chars().count().saturating_sub(CHARACTERS);
    let parts = scores.iter().map(|s| (s.name.clone(), Num(s.values[i])));
    ExaminedSequence {
        label: String::new(),
        prompt: answer.prompt.chars().skip(skip).collect(),
        answer: answer.text.chars().take(CHARACTERS).collect(),
        tokens: answer.tokens as u32,
        pieces: Vec::new(),
        logp: Num(written.logps.iter().map(|x| f64::from(*x)).sum()),
        reference_logp: None,
        right: answer.reference.answer.clone(),
        reward: Some(Num(reward)),
        rewards: parts.collect(),
        advantage: None,
    }
}
