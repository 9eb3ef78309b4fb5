//! Rules on completions, checked against what RL methods really log.

use super::rollouts::run_of;
use super::*;
use crate::diagnosis::{RULES, settings};
use crate::run::RunState;
use crate::spec::schema;
use crate::wire::{Envelope, MetricInfo};

/// Rules that judge any run on its own answers, whatever its method.
const OF_ANSWERS: [&str; 9] = [
    "empty_answers",
    "repeated_answers",
    "kl_runaway",
    "unread_answers",
    "constant_reward",
    "reward_hacking",
    "same_rewards",
    "entropy_collapse",
    "answer_length",
];
/// Methods, the pull to the reference that makes them read the distance, and rules of their own.
const METHODS: [(&str, &str, &[&str]); 3] = [
    ("grpo", "method.grpo.beta=0.1", &[]),
    ("rloo", "method.rloo.beta=0.1", &[]),
    ("ppo", "method.ppo.beta=0.1", &["big_steps", "critic"]),
];

/// The fold of a run's events, and the metrics that it declared.
fn folded(words: &[&str]) -> (RunState, Vec<MetricInfo>) {
    fold(run_of(words).go())
}

fn fold(events: Vec<Event>) -> (RunState, Vec<MetricInfo>) {
    assert_eq!(finished(&events).0, Outcome::Completed, "{events:?}");
    let (mut state, mut declared) = (RunState::new(), Vec::new());
    for (seq, event) in (1..).zip(events) {
        if let Event::MetricsDeclared { metrics } = &event {
            declared.extend(metrics.clone());
        }
        state.apply(&Envelope {
            v: 1,
            seq,
            t: crate::base::clock::UnixMillis(seq),
            event,
        });
    }
    (state, declared)
}

#[test]
fn every_rule_on_answers_can_speak_of_every_method_on_answers() {
    for (method, pull, own) in METHODS {
        let method_is = format!("method={method}");
        let reads = "rewards=[exact, {number: {}, weight: 0.5}]";
        // Weights move within a rollout: what is read of clipping is read.
        let words = [&method_is, pull, reads, "rollout.epochs=2", "max_steps=6"];
        let (state, declared) = folded(&words);
        for rule in RULES {
            let id = rule.entry.id;
            if !OF_ANSWERS.contains(&id) && !own.contains(&id) {
                continue;
            }
            for reading in rule.needs {
                assert!(
                    state.series.contains_key(*reading),
                    "{method}: {id} reads {reading}"
                );
                let known = declared.iter().any(|metric| metric.id == *reading);
                assert!(known, "{method}: {reading} is not declared");
            }
        }
        let kl = state.series["kl"].recent().map(|point| point.value);
        let kl: Vec<f64> = kl.collect();
        let measured = kl.iter().all(|x| x.is_finite()) && kl.iter().any(|x| *x != 0.0);
        assert!(measured, "{method}: {kl:?}");
    }
}

/// A KL penalty moves advantages; what a reward gave is reported without it (TRL).
#[test]
fn a_reward_that_never_varies_fails_whatever_the_pull_to_the_reference() {
    use crate::base::finding::Status;
    use crate::run::rollouts::{RolloutQuery, find};
    for pull in ["method.rloo.beta=0", "method.rloo.beta=0.5"] {
        let never = "rewards=[{regex: {pattern: never}}]";
        let words = ["method=rloo", pull, never, "max_steps=24", "rollout.keep=1"];
        let run = run_of(&words);
        let state = fold(run.go()).0;
        let all = |id: &str, wanted: f64| {
            let values: Vec<f64> = state.series[id].recent().map(|point| point.value).collect();
            assert!(
                values.iter().all(|x| *x == wanted),
                "{pull}: {id} {values:?}"
            );
        };
        all("reward", 0.0);
        all("reward_std", 0.0);
        all("frac_reward_zero_std", 1.0);
        let found = crate::diagnosis::diagnose(&state).findings;
        let found = found.iter().find(|f| f.id == "constant_reward").unwrap();
        assert_eq!(found.status, Status::Fail, "{pull}: {found:?}");
        let kept = find(run.job.run_dir.path(), &RolloutQuery::Upto(24)).unwrap();
        let groups = kept.rollouts.iter().flat_map(|rollout| &rollout.groups);
        let answers: Vec<_> = groups.flat_map(|group| &group.answers).collect();
        assert!(answers.iter().all(|a| a.reward.0 == 0.0), "{answers:?}");
        let charged = answers.iter().any(|a| a.advantage.0 != 0.0);
        assert_eq!(charged, pull.ends_with("0.5"), "{answers:?}");
    }
}

/// What a run never reads it does not declare.
#[test]
fn without_a_reference_no_distance_is_declared() {
    for (method, _, _) in METHODS {
        let words = [
            format!("method={method}"),
            format!("method.{method}.beta=0"),
        ];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (state, declared) = folded(&[&words[..], &["max_steps=2"]].concat());
        assert!(!state.series.contains_key("kl"), "{method}");
        assert!(declared.iter().all(|metric| metric.id != "kl"), "{method}");
    }
}

#[test]
fn every_setting_that_a_fix_may_name_is_one_of_the_method() {
    for (method, _, _) in METHODS {
        for key in settings(method)
            .into_iter()
            .filter(|key| key.starts_with("method."))
        {
            assert!(schema::root().at(&key).is_some(), "{method}: {key}");
        }
        assert!(settings(method).contains(&format!("method.{method}.beta")));
    }
    let paths = |key: &str| key.contains('.') && !key.starts_with("method.");
    for key in settings("dpo").iter().filter(|key| paths(key)) {
        assert!(schema::root().at(key).is_some(), "{key}");
    }
}
