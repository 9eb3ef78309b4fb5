//! Rewards can parse the rows' reference answers, and these fit into a completion: otherwise this would show at the first
//! rollout, or never.

use super::{Check, Finding, Subject};
use crate::base::human::grouped;
use crate::base::text::{one_line, shown};
use crate::engine::EngineError;
use crate::rewards::{Answer, Reference, WeightedReward};

pub const CHECK: Check = Check {
    id: "rewards",
    title: "Rewards can score the rows' answers",
    computes: false,
    run,
};

/// Rows that are read.
const ROWS: usize = 64;
/// Share of right answers that may be too long to be written.
const LONG: f64 = 0.5;

fn run(subject: &mut Subject<'_>) -> Result<Finding, EngineError> {
    let (spec, data) = (subject.spec, subject.data);
    if spec.method.on_policy().is_none() {
        return Ok(Finding::pass("no answers are scored"));
    }
    let batch = data.train_batch(spec.seed, 0, ROWS);
    let rows: Vec<Reference> = batch
        .references
        .iter()
        .map(|json| Reference::parse(json))
        .collect();
    let length = |text: &str| data.tokenizer.encode(text).map_or(0, |ids| ids.len());
    Ok(judge(
        &rows,
        &spec.rewards,
        &length,
        spec.rollout.max_new_tokens,
    ))
}

/// `length`: tokens of a text; `most`: those of the longest completion.
fn judge(
    rows: &[Reference],
    rewards: &[WeightedReward],
    length: &dyn Fn(&str) -> usize,
    most: usize,
) -> Finding {
    for reward in rewards {
        if let Some(folder) = reward.reward.model().filter(|folder| !folder.exists()) {
            return Finding::fail(
                format!("reward `{}`: {} does not exist", reward.name, shown(folder)),
                "the run would end at its first rollout",
                "name the reward model's checkpoint in rewards, or take this reward out",
            );
        }
        // Programs and models are asked at the first rollout.
        if reward.reward.worker().is_some() {
            continue;
        }
        for (at, row) in rows.iter().enumerate() {
            let answer = right(row);
            if let Err(what) = reward.reward.score(&answer) {
                return Finding::fail(
                    format!(
                        "row {} of the first {}: reward `{}`: {}",
                        at + 1,
                        rows.len(),
                        reward.name,
                        one_line(&what)
                    ),
                    "the run would end at its first rollout",
                    "choose a reward for such answers (llmtui reward test FILE tries one on rows), or correct the rows",
                );
            }
        }
    }
    let lengths: Vec<usize> = rows
        .iter()
        .filter_map(|row| row.answer.as_deref())
        .map(length)
        .collect();
    let long = lengths.iter().filter(|tokens| **tokens > most).count();
    if long as f64 > LONG * lengths.len() as f64 {
        let longest = lengths.iter().max().copied().unwrap_or_default();
        return Finding::warn(
            format!(
                "{long} of {} right answers are longer than rollout.max_new_tokens {}, up to {} tokens",
                lengths.len(),
                grouped(most as u64),
                grouped(longest as u64)
            ),
            "completions are cut before a right answer ends",
            format!(
                "-s rollout.max_new_tokens={}",
                longest + longest.div_ceil(2)
            ),
        );
    }
    Finding::pass(format!(
        "{} of {} rewards read the answers of {} rows",
        rewards
            .iter()
            .filter(|r| r.reward.worker().is_none())
            .count(),
        rewards.len(),
        rows.len()
    ))
}

/// The row's own answer, as if the model had written it.
fn right(row: &Reference) -> Answer {
    Answer {
        prompt: String::new(),
        text: row.answer.clone().unwrap_or_default(),
        tokens: 1,
        ended: true,
        behind: None,
        reference: row.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Status;
    use serde_json::json;

    fn found(answers: &[&str], rewards: serde_json::Value, most: usize) -> Finding {
        let rows: Vec<Reference> = answers
            .iter()
            .map(|answer| Reference::parse(&json!({"answer": answer}).to_string()))
            .collect();
        let rewards: Vec<WeightedReward> = serde_json::from_value(rewards).unwrap();
        judge(&rows, &rewards, &|text| text.split(' ').count(), most)
    }

    #[test]
    fn a_reward_that_cannot_read_the_answers_fails_before_the_run_does() {
        let gold = found(&["7", "It is gold."], json!(["number", {"length": {}}]), 64);
        assert_eq!(gold.status, Status::Fail);
        let said = gold.evidence.to_string();
        assert!(
            said.contains("row 2 of the first 2: reward `number`") && said.contains("gold"),
            "{said}"
        );
        let exact = found(&["7", "It is gold."], json!(["exact"]), 64);
        assert_eq!(exact.status, Status::Pass, "{exact:?}");
        let gone = found(&["7"], json!([{"model": {"path": "/no/such/judge"}}]), 64);
        assert_eq!(gone.status, Status::Fail);
        assert!(
            gone.evidence.to_string().contains("does not exist"),
            "{gone:?}"
        );
    }

    #[test]
    fn completions_that_are_too_short_for_right_answers_warn() {
        let short = found(&["a b c d", "a b c"], json!(["exact"]), 2);
        assert_eq!(short.status, Status::Warn);
        assert_eq!(short.changes(), ["rollout.max_new_tokens=6"]);
        assert_eq!(
            found(&["a b c d", "a b"], json!(["exact"]), 2).status,
            Status::Pass
        );
    }
}
