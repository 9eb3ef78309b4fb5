//! What is reported of a rollout: readings of every step, and groups of completions to inspect.

use super::parts::{COMPARING, SCORING, WRITING};
use super::{Rollout, Written};
use crate::base::stats::sample_std;
pub use crate::methods::policy::pass_at;
use crate::metrics::{Metric, Repeatable, metric};
use crate::rewards::repetition::repeated;
use crate::rewards::{Scores, verifier};
use crate::run::rollouts::mean;
use crate::spec::RunSpec;
use crate::wire::{Direction, ExaminedExample, ExaminedSequence, MetricInfo, Num, id};
use Direction::{Higher, Lower, Neutral};
use Repeatable::{No, Yes};

pub const EVAL_LENGTH: &str = "eval/completion_length";
/// Words of a group whose repetition counts.
const GROUP: usize = 3;
/// The loop takes the time.
pub const SHARE: &str = "rollout/share";
const REFILLED: &str = "rollout/refilled";
pub const SPEED: &str = "rollout/tok_per_sec";

/// Groups, answers of a group, and characters of a prompt's end and an answer's beginning that are shown.
const GROUPS: usize = 3;
const ANSWERS: usize = 8;
const CHARACTERS: usize = 240;

/// Every metric of answers but those of single rewards. Names are TRL's where it has one.
#[rustfmt::skip]
pub const OF_ANSWERS: &[Metric] = &[
    metric(id::PASS_AT_1, "Held-out pass@1", "share", Higher, Yes, "share of held-out prompts whose completion the first verifier among the rewards gives 1").label("held-out pass@1"),
    metric(id::REWARD, "Reward", "", Higher, Yes, "mean over the step's completions of the weighted sum of rewards, without a KL penalty (TRL)"),
    metric(id::EVAL_REWARD, "Held-out reward", "", Higher, Yes, "mean weighted sum of rewards over completions of held-out prompts"),
    metric(id::REWARD_STD, "Reward std", "", Neutral, Yes, "standard deviation of the rewards of all the step's completions (TRL)"),
    metric(id::SAME_REWARDS, "Groups with equal rewards", "share", Lower, Yes, "share of groups whose completions all have the same reward: they teach nothing (TRL)").label("equal rewards"),
    metric(id::ANSWER_LENGTH, "Completion length", "tokens", Neutral, Yes, "mean tokens of the step's completions (TRL)"),
    metric(EVAL_LENGTH, "Held-out completion length", "tokens", Neutral, Yes, "mean tokens of completions of held-out prompts").label("held-out length"),
    metric(id::CUT_ANSWERS, "Truncated", "share", Lower, Yes, "share of completions that reached max_new_tokens (TRL)"),
    metric(id::UNFINISHED_THOUGHTS, "Ended inside thoughts", "share", Lower, Yes, "share of completions that ended inside their thoughts, of models that think first: they have no final message, and rules score them 0 (a larger rollout.max_new_tokens lets them finish)").label("unfinished thoughts"),
    metric(id::REPETITION, "Repetition in completions", "share", Lower, Yes, "share of groups of three words that stood in the same completion before, mean over the step's completions").label("repetition"),
    metric(id::UNREAD, "Unparsed completions", "share", Lower, Yes, "share of the step's completions in which a reward finds nothing to score (no number, no JSON); the largest over the rewards"),
    metric(id::POLICY_LOSS, "Policy loss", "", Neutral, Yes, "loss of the method on the completions, the mean over the steps since the last line: the clipped surrogate (its ratio is 1 while the policy is the one that wrote them) with its KL, entropy and value terms (TRL: loss)"),
    metric(SHARE, "Rollout time", "share", Neutral, No, "share of the step spent on generating and scoring completions"),
    metric(WRITING, "Generation time", "share", Neutral, No, "share of the step spent on generating completions"),
    metric(SCORING, "Reward time", "share", Neutral, No, "share of the step spent on rewards"),
    metric(COMPARING, "Log-probability time", "share", Neutral, No, "share of the step spent on log-probabilities of completions under the reference and the policy that generated them").label("logp time"),
    metric(REFILLED, "Resampled groups", "share", Lower, Yes, "groups that were generated and resampled because their rewards were all the same, over the groups that are learned from (DAPO)"),
    metric(SPEED, "Completion tokens per second", "1/s", Higher, No, "completion tokens over the time spent on writing them").label("rollout tokens/s"),
];

/// Of answers and rewards of a spec; `thinks`: some of an answer may be thoughts.
pub fn declarations(spec: &RunSpec, thinks: bool) -> Vec<MetricInfo> {
    let judges = verifier(&spec.rewards).is_some();
    let measured = |metric: &&Metric| match metric.id {
        id::PASS_AT_1 => judges,
        id::UNFINISHED_THOUGHTS => thinks,
        _ => true,
    };
    let mut all: Vec<MetricInfo> = OF_ANSWERS
        .iter()
        .filter(measured)
        .map(Metric::info)
        .collect();
    let k = spec.rollout.pass_at.iter().filter(|k| judges && **k > 1);
    all.extend(k.map(|k| pass_at_k(&k.to_string())));
    for reward in &spec.rewards {
        all.extend(of_reward(&reward.name, reward.reward.program().is_some()));
    }
    all
}

fn info(
    id: String,
    title: String,
    (unit, direction): (&str, Direction),
    source: &str,
) -> MetricInfo {
    MetricInfo {
        id,
        title,
        unit: unit.into(),
        direction,
        source: source.into(),
        ..MetricInfo::default()
    }
}

/// Whether one of `k` answers is right.
pub fn pass_at_k(k: &str) -> MetricInfo {
    let source = "1 - C(n - c, k) / C(n, k) over n completions of a held-out prompt, c of them right, mean over prompts (Chen et al. 2021)";
    let id = format!("{}{k}", id::PASS_AT_1.trim_end_matches('1'));
    info(id, format!("Held-out pass@{k}"), ("share", Higher), source)
}

/// Of a reward, which may be a program.
pub fn of_reward(name: &str, is_program: bool) -> Vec<MetricInfo> {
    let of = |part: &str, title: String, what, source| {
        info(format!("rewards/{name}/{part}"), title, what, source)
    };
    let means = "mean score over the step's completions, before its weight (TRL)";
    let spread = "standard deviation of the score over the step's completions (TRL)";
    let zero = "share of the step's completions that score 0";
    let mut all = vec![
        of("mean", format!("Reward {name}"), ("", Higher), means),
        of("std", format!("Reward {name} std"), ("", Neutral), spread),
        of("zero", format!("Zeros of {name}"), ("share", Neutral), zero),
    ];
    if is_program {
        let failed = "share of the step's completions that the program did not score";
        let title = format!("Unscored by {name}");
        all.push(of("failed", title, ("share", Lower), failed));
    }
    all
}

/// The readings of a step; `thinks` as in [`declarations`].
pub fn readings(rollout: &Rollout, group_size: usize, thinks: bool) -> Vec<(String, f64)> {
    let n = rollout.written.len().max(1) as f64;
    let groups = || rollout.rewards.chunks(group_size);
    let tokens: usize = rollout.written.iter().map(|w| w.answer.tokens).sum();
    let cut = rollout.written.iter().filter(|w| !w.answer.ended).count();
    let mut all = vec![
        (
            id::REWARD.to_string(),
            mean(rollout.rewards.iter().copied()),
        ),
        (id::ANSWER_LENGTH.into(), tokens as f64 / n),
        (id::CUT_ANSWERS.into(), cut as f64 / n),
        (
            SPEED.into(),
            tokens as f64 / rollout.parts.writing.as_secs_f64().max(1e-9),
        ),
    ];
    if thinks {
        let unfinished = rollout.written.iter().filter(|w| w.answer.is_unfinished());
        let share = unfinished.count() as f64 / n;
        all.push((id::UNFINISHED_THOUGHTS.into(), share));
    }
    let repeated = |w: &Written| repeated(&w.answer.words(), GROUP);
    all.push((
        id::REPETITION.into(),
        mean(rollout.written.iter().map(repeated)),
    ));
    if let Some(unread) = rollout.scores.iter().filter_map(Scores::n_unread).max() {
        all.push((id::UNREAD.into(), unread as f64 / n));
    }
    if group_size > 1 {
        let alike = mean(groups().map(|g| f64::from(u8::from(same(g)))));
        all.push((id::SAME_REWARDS.into(), alike));
    }
    all.push((id::REWARD_STD.into(), spread(&rollout.rewards)));
    if rollout.refilled > 0 {
        let groups = (rollout.written.len() / group_size.max(1)).max(1);
        all.push((REFILLED.into(), rollout.refilled as f64 / groups as f64));
    }
    for scores in &rollout.scores {
        let id = |part: &str| format!("rewards/{}/{part}", scores.name);
        let zeros = scores.values.iter().filter(|x| **x == 0.0).count();
        all.push((id("mean"), mean(scores.values.iter().copied())));
        all.push((id("std"), spread(&scores.values)));
        all.push((id("zero"), zeros as f64 / n));
        if scores.n_failed() > 0 {
            all.push((id("failed"), scores.n_failed() as f64 / n));
        }
    }
    all
}

/// Standard deviation; exactly 0 of values that are the same, whatever their mean rounds to.
fn spread(values: &[f64]) -> f64 {
    match same(values) {
        true => 0.0,
        false => sample_std(values),
    }
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

/// Completions of held-out prompts, each its own example.
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
    let thinking = answer.thinking.as_ref();
    let thought = thinking.filter(|it| it.is_unfinished || !it.thought.trim().is_empty());
    let thought = thought.map(|thinking| thinking.thought.trim());
    ExaminedSequence {
        label: String::new(),
        prompt: answer.prompt.chars().skip(skip).collect(),
        answer: answer.text.chars().take(CHARACTERS).collect(),
        thought: thought.map(|thought| thought.chars().take(CHARACTERS).collect()),
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

#[cfg(test)]
mod tests {
    use super::spread;

    /// Over all rewards, with n - 1, as `nanstd` of TRL: groups of equal rewards differ from each other.
    #[test]
    fn the_spread_of_rewards_is_that_of_the_whole_step() {
        let rewards = [0.0, 0.0, 1.0, 1.0];
        assert!((spread(&rewards) - (1.0_f64 / 3.0).sqrt()).abs() < 1e-12);
        // Their mean is not 0.1 in binary.
        assert_eq!(spread(&[0.1; 6]), 0.0);
    }
}
