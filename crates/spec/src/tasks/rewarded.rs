//! Answers scored by rewards: rules, programs, or a reward model as the judge of a win rate.

use super::answers::Written;
use super::config::AnswerConfig;
use super::error::TaskError;
use super::items::{Asked, Item};
use super::subject::fingerprint;
use crate::base::files::open_plain;
use crate::base::text::one_line;
use crate::rewards::{Answer, Reference, Scorer};
use sha2::{Digest, Sha256};
use std::fmt;
use std::io::Read;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The weighted sum, where a task has several rewards.
pub(super) const SUM: &str = "reward";

/// The rewards of one task.
pub struct Rewarder {
    task: String,
    /// Programs and models that score keep something from answer to answer.
    judge: Mutex<Scorer>,
}

impl fmt::Debug for Rewarder {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Rewarder({})", self.task)
    }
}

/// What a task's rewards are called, their sum last.
pub(super) fn names(config: &AnswerConfig) -> Vec<String> {
    let mut names: Vec<String> = config.rewards.iter().map(|r| r.name.clone()).collect();
    if names.len() > 1 {
        names.push(SUM.into());
    }
    names
}

/// What is wrong with the rewards of a task's file.
pub(super) fn fault(config: &AnswerConfig) -> Option<String> {
    let faults = config.rewards.iter().find_map(|reward| reward.fault());
    if let Some((what, fix)) = faults {
        return Some(format!("`answer.rewards`: {what}; {fix}"));
    }
    let mut all = names(config);
    all.extend(config.extract.iter().map(|extract| extract.name.clone()));
    all.extend(config.counts.iter().map(|count| count.name.clone()));
    all.sort_unstable();
    let twice = all
        .windows(2)
        .find(|two| two[0] == two[1] && !config.rewards.is_empty())?;
    Some(format!(
        "`answer.rewards`: two metrics are named `{}`; give the reward a `name`",
        one_line(&twice[0])
    ))
}

/// Largest file of a reward's program of which the contents are looked at; of others the length.
const MAX_PROGRAM: u64 = 64 << 20;

/// What decides the scores besides the task's file: the weights of reward models, and the files that the command lines of
/// programs name. One that is missing is reported by its reward.
pub(super) fn add_judges(hash: &mut Sha256, config: &AnswerConfig) {
    for reward in &config.rewards {
        if let Some(Ok(judge)) = reward.reward.model().map(fingerprint) {
            hash.update(judge);
        }
        if let Some(program) = reward.reward.program() {
            add_files(hash, &program.run);
        }
    }
}

fn add_files(hash: &mut Sha256, command: &str) {
    for word in command.split_whitespace() {
        let path = Path::new(word.trim_matches(['\'', '"', ';']));
        let Ok(file) = open_plain(path) else {
            continue;
        };
        let length = file.metadata().map_or(0, |found| found.len());
        hash.update(length.to_le_bytes());
        if length <= MAX_PROGRAM {
            let _ = std::io::copy(&mut file.take(MAX_PROGRAM), hash);
        }
    }
}

impl Rewarder {
    /// # Errors
    /// What this machine lacks for one of them: known before anything is asked.
    pub(super) fn new(task: &str, config: &AnswerConfig) -> Result<Rewarder, TaskError> {
        for reward in &config.rewards {
            if let Some((what, hint)) = reward.reward.missing() {
                return Err(TaskError::Programs {
                    task: task.into(),
                    what,
                    hint,
                });
            }
        }
        Ok(Rewarder {
            task: task.into(),
            judge: Mutex::new(Scorer::new(&config.rewards)),
        })
    }

    /// Notes what each answer is worth.
    ///
    /// # Errors
    /// A row without what a reward needs, a program or a model that gave no score.
    pub(super) fn judge(&self, items: &[&Item], written: &mut [Written]) -> Result<(), TaskError> {
        let answers = items.iter().zip(written.iter());
        let answers: Vec<Answer> = answers.filter_map(|(item, w)| answer(item, w)).collect();
        // A judge that panicked while another thread held it is asked anew.
        let mut judge = self.judge.lock().unwrap_or_else(PoisonError::into_inner);
        let all = judge.score(&answers).map_err(|e| TaskError::Reward {
            task: self.task.clone(),
            what: one_line(&e.to_string()),
        })?;
        for (at, written) in written.iter_mut().enumerate() {
            let scores = &mut written.record.scores;
            let mut sum = 0.0;
            for of in &all {
                scores.insert(of.name.clone(), of.values[at]);
                sum += of.weight * of.values[at];
            }
            if all.len() > 1 {
                scores.insert(SUM.into(), sum);
            }
        }
        Ok(())
    }
}

fn answer(item: &Item, written: &Written) -> Option<Answer> {
    let Asked::Answer {
        prompt,
        target,
        metadata,
        ..
    } = &item.asked
    else {
        return None;
    };
    let (prompt, behind) = match written.asked.clone() {
        Some((turns, behind)) => (turns, Some(behind)),
        None => (prompt.clone(), None),
    };
    Some(Answer {
        prompt,
        behind,
        text: written.record.answer.clone()?,
        thinking: written.thinking.clone(),
        tokens: written.tokens,
        ended: written.ended,
        reference: Reference {
            answer: Some(target.clone()).filter(|target| !target.is_empty()),
            metadata: metadata.clone(),
        },
    })
}

#[cfg(test)]
mod tests {
    use crate::base::paths::Env;
    use crate::data::source::ReadContext;
    use crate::tasks::{Prepared, compare, judge, load, summarize};
    use std::path::Path;

    fn task(rewards: &str) -> Result<Prepared, String> {
        task_in(tempfile::tempdir().unwrap().path(), rewards)
    }

    fn task_in(dir: &Path, rewards: &str) -> Result<Prepared, String> {
        let rows = "{\"ask\": \"1 + 1\", \"sum\": \"2\"}\n{\"ask\": \"2 + 2\", \"sum\": \"4\"}\n";
        std::fs::write(dir.join("rows.jsonl"), rows).unwrap();
        let yaml = format!(
            "name: sums\nversion: 1\nsummary: Sums.\nkind: answer\nsource: rows.jsonl\nprompt: '{{{{ ask }}}} ='\n\
             target: '{{{{ sum }}}}'\nanswer: {{rewards: {rewards}}}\n"
        );
        let path = dir.join("sums.yaml");
        std::fs::write(&path, yaml).unwrap();
        let task = load(path.to_str().unwrap(), &Env::default()).map_err(|e| e.to_string())?;
        let prepared = task.prepare(None, &ReadContext::default());
        prepared.map_err(|e| e.to_string())
    }

    fn answers(texts: [&str; 2]) -> Vec<String> {
        texts.map(String::from).to_vec()
    }

    /// Scores of an earlier evaluation are found by the digest: they are those of this judge, or there are none.
    #[test]
    fn another_judge_is_another_evaluation() {
        let dir = tempfile::tempdir().unwrap();
        let judge = dir.path().join("judge");
        std::fs::create_dir(&judge).unwrap();
        let weights = judge.join("model.safetensors");
        std::fs::write(&weights, "weights").unwrap();
        let program = dir.path().join("score.sh");
        std::fs::write(&program, "echo 0.25").unwrap();
        for (file, reward) in [
            (
                &weights,
                format!("[{{model: {{path: {}}}}}]", judge.display()),
            ),
            (
                &program,
                format!("[{{command: {{run: 'sh {}'}}}}]", program.display()),
            ),
        ] {
            let digest = || task_in(dir.path(), &reward).unwrap().digest;
            let before = digest();
            assert_eq!(before, digest(), "{reward}");
            std::fs::write(file, "echo 0.75").unwrap();
            assert_ne!(before, digest(), "{reward}");
        }
        let names = task("[number, {command: {run: 'sh x'}, name: mine}]").unwrap();
        assert_eq!(names.scored_by_programs(), ["mine"]);
    }

    /// `llmtui reward test` ended with 2 on it, `llmtui eval` with 3.
    #[test]
    fn a_row_that_a_reward_cannot_judge_is_to_be_corrected_by_its_author() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("rows.jsonl"),
            "{\"ask\": \"1 + 1\", \"sum\": \"2\"}\n",
        )
        .unwrap();
        let yaml = "name: sums\nversion: 1\nsummary: Sums.\nkind: answer\nsource: rows.jsonl\nprompt: '{{ ask }} ='\n\
                    target: '{{ sum }}'\nanswer: {rewards: [{model: {path: nowhere}}]}\n";
        let path = dir.path().join("sums.yaml");
        std::fs::write(&path, yaml).unwrap();
        let error = load(path.to_str().unwrap(), &Env::default())
            .and_then(|task| task.prepare(None, &ReadContext::default()))
            .and_then(|prepared| judge(&prepared, vec!["3".into()]))
            .unwrap_err();
        assert!(!error.is_outage() && !error.hint().is_empty(), "{error}");
    }

    #[test]
    fn answers_are_scored_by_rewards_and_the_win_rate_counts_who_scores_higher() {
        let prepared =
            task("[number, {regex: {pattern: please}, weight: 0.5, name: polite}]").unwrap();
        let plain = judge(&prepared, answers(["3", "it is 4"])).unwrap();
        let other = judge(&prepared, answers(["2, please", "4"])).unwrap();
        let of = |name: &str| other.iter().map(|r| r.scores[name]).collect::<Vec<_>>();
        assert_eq!(of("number"), [1.0, 1.0]);
        assert_eq!(of("polite"), [1.0, 0.0]);
        assert_eq!(of("reward"), [1.5, 1.0]);
        let summary = summarize(prepared.task.config(), &other);
        assert_eq!(summary.headline, "reward");
        let reading = |name: &str| summary.readings.iter().find(|r| r.metric == name);
        assert_eq!(reading("reward").unwrap().value, 1.25);
        // Better on the first, the same on the second.
        let found = compare("reward", &plain, &other).unwrap();
        assert_eq!((found.better, found.worse, found.win_rate), (1, 0, 0.75));
    }

    /// An `exact` that nobody asked for was the headline, 0 where the reward was 1, and alone was compared.
    #[test]
    fn one_reward_is_the_headline_and_a_comparison_is_there_where_it_is_asked_for() {
        let names = |rewards: &str| {
            let prepared = task(rewards).unwrap();
            let records = judge(&prepared, answers(["so it is 2", "4"])).unwrap();
            let summary = summarize(prepared.task.config(), &records);
            let readings = summary.readings.iter().map(|r| r.metric.clone());
            (summary.headline.clone(), readings.collect::<Vec<_>>())
        };
        let (headline, metrics) = names("[number]");
        assert_eq!(
            (headline.as_str(), metrics),
            ("number", vec!["number".to_string()])
        );
        let (headline, metrics) = names("[number], extract: [{name: whole, take: first}]");
        assert_eq!(headline, "whole");
        assert!(metrics.contains(&"number".to_string()), "{metrics:?}");
    }

    #[test]
    fn rewards_that_cannot_be_given_are_told_before_anything_is_asked() {
        let error = task("[{model: {path: ''}}]").unwrap_err();
        assert!(error.contains("which reward model"), "{error}");
        let twice = "[{number: {}, name: whole}], extract: [{name: whole, take: first}]";
        let error = task(twice).unwrap_err();
        assert!(error.contains("two metrics are named `whole`"), "{error}");
    }
}
