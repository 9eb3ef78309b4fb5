//! Rewards can parse the rows' reference answers, programs score one of them, and these fit into a completion: otherwise this
//! would show at the first rollout, or never.

use super::{Check, Finding, Subject};
use crate::base::finding::Status;
use crate::base::human::{grouped, short};
use crate::base::text::{one_line, shown};
use crate::engine::EngineError;
use crate::engine::rollouts::Asked;
use crate::rewards::command::{Config as ProgramConfig, OnFailure};
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
/// Share of rows from which on empty right answers are no oversight of a few.
const EMPTY: f64 = 0.2;

fn run(subject: &mut Subject<'_>) -> Result<Finding, EngineError> {
    let (spec, data) = (subject.spec, subject.data);
    if spec.method.on_policy().is_none() {
        return Ok(Finding::not_applicable("no answers are scored"));
    }
    let batch = data.train_batch(spec.seed, 0, ROWS);
    let asked = Asked::rows(&batch);
    let rows: Vec<Answer> = asked
        .map(|row| right(&row.reference, data.tokenizer.decode(&row.tokens)))
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
    rows: &[Answer],
    rewards: &[WeightedReward],
    length: &dyn Fn(&str) -> usize,
    most: usize,
) -> Finding {
    let (mut programs, mut doubt) = (Vec::new(), None);
    let tried = Tried::of(rows);
    for reward in rewards {
        if let Some(folder) = reward.reward.model().filter(|folder| !folder.exists()) {
            return Finding::fail(
                format!("reward `{}`: {} does not exist", reward.name, shown(folder)),
                "the run would end at its first rollout",
                "name the reward model's checkpoint in rewards, or take this reward out",
            );
        }
        if let (Some(program), Some(tried)) = (reward.reward.program(), &tried) {
            match asked_once(reward, &tried.answer) {
                Ok(score) => programs.push((&reward.name, score)),
                Err(what) => {
                    let found = failed(reward, program, tried, &what);
                    if found.status == Status::Fail {
                        return found;
                    }
                    doubt = doubt.or(Some(found));
                }
            }
        }
        // Models are asked at the first rollout.
        if reward.reward.worker().is_some() {
            continue;
        }
        for (at, answer) in rows.iter().enumerate() {
            if let Err(what) = reward.reward.score(answer) {
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
    if let Some(found) = empty(rows, rewards).or(doubt) {
        return found;
    }
    let lengths: Vec<usize> = rows
        .iter()
        .filter_map(|row| row.reference.answer.as_deref())
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
    let by_rule = rewards
        .iter()
        .filter(|r| r.reward.worker().is_none())
        .count();
    let mut said = Vec::new();
    if by_rule > 0 {
        let of = rewards.len();
        said.push(format!(
            "{by_rule} of {of} rewards read the answers of {} rows",
            rows.len()
        ));
    }
    let of = tried.map_or(String::new(), |tried| tried.words());
    let scored = programs.iter().map(|(name, score)| {
        let (name, score) = (one_line(name), short(*score));
        format!("program `{name}` scores {of} {score}")
    });
    said.extend(scored);
    let models = rewards.iter().filter(|r| r.reward.model().is_some());
    said.extend(models.map(|r| {
        format!(
            "model `{}` is asked at the first rollout",
            one_line(&r.name)
        )
    }));
    Finding::pass(said.join("; "))
}

/// Rows whose right answer is empty, so that a completion of nothing earns a reward.
fn empty(rows: &[Answer], rewards: &[WeightedReward]) -> Option<Finding> {
    let by_rule = || rewards.iter().filter(|it| it.reward.worker().is_none());
    let earns = |row: &&Answer| {
        let blank = row.reference.answer.as_deref().map(str::trim) == Some("");
        blank && by_rule().any(|it| it.weight > 0.0 && it.reward.score(row).is_ok_and(|x| x > 0.0))
    };
    let n = rows.iter().filter(earns).count();
    if n == 0 {
        return None;
    }
    let said = format!(
        "the right answer of {n} of the first {} rows is empty, and an empty completion earns their reward",
        rows.len()
    );
    let cause = "the model learns to answer nothing";
    let fix = "check which column holds the answers (llmtui data inspect FILE), and drop rows without one";
    Some(match n as f64 > EMPTY * rows.len() as f64 {
        true => Finding::fail(said, cause, fix),
        false => Finding::warn(said, cause, fix),
    })
}

/// Stands in for an answer where no row has one: a program may divide by the length of what it reads.
const STAND_IN: &str = "The answer is 42.";

/// What programs are tried on.
struct Tried {
    answer: Answer,
    /// The row whose own answer it is, from 0; `None` where no row has one.
    row: Option<usize>,
}

impl Tried {
    /// The first row's that has one.
    fn of(rows: &[Answer]) -> Option<Tried> {
        let row = rows.iter().position(|row| !row.text.trim().is_empty());
        let mut answer = rows.get(row.unwrap_or(0))?.clone();
        if row.is_none() {
            answer.text = STAND_IN.into();
        }
        Some(Tried { answer, row })
    }

    fn words(&self) -> String {
        match self.row {
            Some(0) => "the first row's own answer".into(),
            Some(row) => format!("row {}'s own answer", row + 1),
            None => format!("`{STAND_IN}` (no row has an answer)"),
        }
    }
}

/// The score of a program for one answer. It is started for that, and once more where that fails, as in training.
fn asked_once(reward: &WeightedReward, row: &Answer) -> Result<f64, String> {
    let mut worker = reward.reward.worker().ok_or("it has no program")?;
    worker.begin(std::slice::from_ref(row))?;
    worker.score(0, row)
}

fn failed(reward: &WeightedReward, program: &ProgramConfig, tried: &Tried, what: &str) -> Finding {
    let said = format!(
        "program `{}` on {}: {}",
        one_line(&reward.name),
        tried.words(),
        one_line(what)
    );
    let fix = format!(
        "correct the command line or the program: {}; llmtui reward test tries it on answers in a file",
        one_line(&program.run)
    );
    match program.on_failure {
        // It may score what the model writes.
        OnFailure::Stop if tried.row.is_none() => {
            let cause = "if it scores no completion either, the run ends at its first rollout";
            Finding::warn(said, cause, fix)
        }
        OnFailure::Stop => Finding::fail(said, "the run would end at its first rollout", fix),
        OnFailure::Zero => Finding::warn(said, "answers that it does not score count as 0", fix),
    }
}

/// The row's own answer, as if the model had written it.
fn right(row: &Reference, prompt: String) -> Answer {
    Answer {
        prompt,
        text: row.answer.clone().unwrap_or_default(),
        tokens: 1,
        ended: true,
        behind: None,
        thinking: None,
        reference: row.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(answers: &[&str], rewards: serde_json::Value, most: usize) -> Finding {
        let rows: Vec<Answer> = answers
            .iter()
            .map(|answer| Reference::parse(&json!({"answer": answer}).to_string()))
            .map(|row| right(&row, "the prompt".into()))
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

    /// A run on such rows ended with pass@1 of 1: it had learned to answer nothing.
    #[test]
    fn empty_right_answers_are_no_task() {
        let all = found(&["", " "], json!(["exact"]), 64);
        assert_eq!(all.status, Status::Fail, "{all:?}");
        let few: Vec<&str> = [""].into_iter().chain(["7"; 9]).collect();
        let one = found(&few, json!(["exact"]), 64);
        assert_eq!(one.status, Status::Warn, "{one:?}");
        let said = one.evidence.to_string();
        assert!(said.contains("of 1 of the first 10 rows"), "{said}");
    }

    /// It was "ready to train" with a program that did not exist.
    #[test]
    fn a_program_is_started_once_on_a_row_s_own_answer() {
        let of = |run: &str, on_failure: &str| {
            let program = json!({"run": run, "timeout": 60, "on_failure": on_failure});
            found(&["7"], json!([{"command": program, "name": "mine"}]), 64)
        };
        let gone = of("echo \"can't open file 'rewrad.py'\" >&2; exit 2", "stop");
        assert_eq!(gone.status, Status::Fail);
        let said = gone.evidence.to_string();
        for words in [
            "program `mine`",
            "exit status: 2",
            "can't open file 'rewrad.py'",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert_eq!(of("exit 2", "zero").status, Status::Warn);
        let other = of(r#"while read -r l; do echo '{"reward": 1}'; done"#, "stop");
        assert_eq!(other.status, Status::Fail, "{other:?}");
        let reads = r#"read -r l; case $l in *'"prompt":"the prompt"'*) echo 0.5;; esac"#;
        let good = of(reads, "stop");
        assert_eq!(good.status, Status::Pass, "{good:?}");
        let said = good.evidence.to_string();
        assert_eq!(
            said,
            "program `mine` scores the first row's own answer 0.50"
        );
    }

    /// It was tried on an empty text, and a program that divides by its length dies of that.
    #[test]
    fn a_program_is_tried_on_a_row_with_an_answer_and_on_a_stand_in_where_no_row_has_one() {
        let of = |answers: &[&str], run: &str| {
            let program = json!({"run": run, "timeout": 60, "on_failure": "stop"});
            found(answers, json!([{"command": program, "name": "mine"}]), 64)
        };
        let divides = r#"read -r l; case $l in *'"answer":""'*) exit 1;; esac; echo 0.5"#;
        let second = of(&["", "7"], divides);
        assert_eq!(second.status, Status::Pass, "{second:?}");
        let said = second.evidence.to_string();
        assert_eq!(said, "program `mine` scores row 2's own answer 0.50");
        let none = of(&["", ""], divides);
        assert_eq!(none.status, Status::Pass, "{none:?}");
        assert!(
            none.evidence.to_string().contains("no row has an answer"),
            "{none:?}"
        );
        assert_eq!(of(&["", ""], "exit 1").status, Status::Warn);
        assert_eq!(of(&["", "7"], "exit 1").status, Status::Fail);
    }
}
