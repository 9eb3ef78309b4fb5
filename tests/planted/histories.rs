//! Faults of preference learning and RL, as readings: what a run would log, step by step.

use super::{CHECK_INTERVAL, Row};
use llmtui::base::clock::UnixMillis;
use llmtui::base::finding::Status;
use llmtui::diagnosis::diagnose;
use llmtui::run::RunState;
use llmtui::wire::{Envelope, Event, Num, Values};
use serde_json::json;
use std::collections::BTreeMap;

const STEPS: u64 = 400;
/// Steps between evaluations.
const EVERY: u64 = 50;

type Readings = Vec<(&'static str, f64)>;

/// A history: its name, the rules that should fire, its method, and the readings of a step and of an evaluation.
struct History {
    name: &'static str,
    expected: &'static [&'static str],
    method: &'static str,
    dropout: f64,
    /// The step from which it is detectable.
    shows: u64,
    step: fn(u64) -> Readings,
    eval: fn(u64) -> Readings,
}

fn noise(step: u64) -> f64 {
    [0.01, -0.03, 0.015, -0.005, 0.03, -0.02][step as usize % 6]
}

/// Learning progress from 0 to 1.
fn learned(step: u64) -> f64 {
    1.0 - (-(step as f64) / 150.0).exp()
}

fn answers(step: u64) -> Readings {
    let (l, n) = (learned(step), noise(step));
    vec![
        ("policy_loss", 0.01),
        ("grad_norm", 0.3),
        ("reward", 0.2 + 0.7 * l + n),
        ("reward_std", 0.4 - 0.2 * l),
        ("frac_reward_zero_std", 0.3 + 0.4 * l + n),
        ("completions/mean_length", 12.0 + 40.0 * n),
        ("completions/clipped_ratio", 0.05 + n.abs()),
        ("entropy", 1.2 - 0.9 * l + n),
    ]
}

fn pass(step: u64) -> Readings {
    vec![("eval/pass@1", 0.2 + 0.7 * learned(step))]
}

fn pairs(step: u64) -> Readings {
    let (l, n) = (learned(step - 1), noise(step) * learned(step - 1));
    let margin = 1.5 * l + n;
    vec![
        ("train/loss", (1.0 + (-margin).exp()).ln()),
        ("grad_norm", 2.0 + n),
        ("rewards/chosen", -0.2 * l + n),
        ("rewards/rejected", -1.7 * l),
        ("rewards/margins", margin),
        ("rewards/accuracies", 0.5 + 0.25 * l + n),
    ]
}

fn none(_: u64) -> Readings {
    Vec::new()
}

/// The readings with some of them replaced.
fn with(mut readings: Readings, other: &[(&'static str, f64)]) -> Readings {
    for (id, x) in other {
        readings.retain(|(known, _)| known != id);
        readings.push((id, *x));
    }
    readings
}

const HISTORIES: &[History] = &[
    History {
        name: "healthy GRPO",
        expected: &[],
        method: "grpo",
        dropout: 0.0,
        shows: 1,
        step: answers,
        eval: pass,
    },
    History {
        name: "healthy DPO",
        expected: &[],
        method: "dpo",
        dropout: 0.0,
        shows: 1,
        step: pairs,
        eval: none,
    },
    History {
        name: "healthy PPO, solved",
        expected: &[],
        method: "ppo",
        dropout: 0.0,
        shows: 1,
        // Few prompts are left unsolved: a batch with one of them has a large gradient.
        step: |s| {
            let norm = if s % 13 == 0 { 4.0 } else { 0.3 + noise(s) };
            with(answers(s), &[("grad_norm", norm)])
        },
        eval: |s| {
            let chance = [0.0, 0.01, -0.03, 0.0, -0.04][(s / EVERY) as usize % 5];
            vec![("eval/pass@1", 0.96 + 0.03 * learned(s) + chance)]
        },
    },
    History {
        name: "healthy DPO, solved",
        expected: &[],
        method: "dpo",
        dropout: 0.0,
        shows: 1,
        step: |s| {
            let unsolved = s > 120 && s % 11 == 0;
            let norm = if unsolved {
                9.0
            } else {
                0.2 + 2.0 * (-(s as f64) / 30.0).exp()
            };
            let loss = 0.03 + 0.66 * (-(s as f64 - 1.0) / 30.0).exp() + noise(s).abs();
            let jump = if unsolved { 0.08 } else { 0.0 };
            with(
                pairs(s),
                &[
                    ("grad_norm", norm),
                    ("train/loss", loss + jump),
                    (
                        "rewards/accuracies",
                        1.0 - 0.5 * (-(s as f64 - 1.0) / 30.0).exp(),
                    ),
                ],
            )
        },
        eval: |s| {
            vec![
                ("val/rewards/accuracies", 0.97 + noise(s).abs()),
                ("val/loss", 0.03 + 0.3 * (1.0 - learned(s))),
            ]
        },
    },
    History {
        name: "DPO, sides drawn by a coin",
        expected: &["not_learning"],
        method: "dpo",
        dropout: 0.0,
        shows: 100,
        step: |s| {
            let n = noise(s);
            with(
                pairs(s),
                &[
                    ("train/loss", 0.693 + 0.1 * n),
                    ("rewards/chosen", 0.02 * n),
                    ("rewards/rejected", -0.02 * n),
                    ("rewards/margins", 0.04 * n),
                    ("rewards/accuracies", 0.5 + n),
                ],
            )
        },
        eval: |s| {
            vec![
                ("val/rewards/accuracies", 0.51 + noise(s / EVERY)),
                ("val/loss", 0.693),
            ]
        },
    },
    History {
        name: "healthy SFT, a noisy loss at its best",
        expected: &[],
        method: "sft",
        dropout: 0.0,
        shows: 1,
        step: |s| {
            vec![
                ("train/loss", 1.2 + 8.0 * noise(7 * s + s / 6)),
                ("grad_norm", 1.0),
            ]
        },
        eval: |_| vec![("val/loss", 1.2)],
    },
    History {
        name: "SFT, learning rate too high for trained weights",
        expected: &["not_learning"],
        method: "sft",
        dropout: 0.0,
        shows: 100,
        step: |s| {
            let thrown = 0.4 * (1.0 - (-(s as f64 - 1.0) / 20.0).exp());
            vec![("train/loss", 1.2 + thrown + noise(s)), ("grad_norm", 1.0)]
        },
        eval: |s| vec![("val/loss", 1.2 + 0.4 * (1.0 - (-(s as f64) / 20.0).exp()))],
    },
    History {
        name: "GRPO, a reward that never applies",
        expected: &["constant_reward"],
        method: "grpo",
        dropout: 0.0,
        shows: 1,
        step: |s| {
            with(
                answers(s),
                &[
                    ("reward", 0.0),
                    ("reward_std", 0.0),
                    ("frac_reward_zero_std", 1.0),
                ],
            )
        },
        eval: |_| vec![("eval/pass@1", 0.0)],
    },
    History {
        name: "GRPO, answers end at once",
        expected: &["empty_answers"],
        method: "grpo",
        dropout: 0.0,
        shows: 1,
        step: |s| {
            with(
                answers(s),
                &[
                    ("reward", 0.0),
                    ("reward_std", 0.0),
                    ("frac_reward_zero_std", 1.0),
                    ("completions/mean_length", 1.0),
                ],
            )
        },
        eval: |_| vec![("eval/pass@1", 0.0)],
    },
    History {
        name: "GRPO, a reward that can be flattered",
        expected: &["reward_hacking"],
        method: "grpo",
        dropout: 0.0,
        shows: 150,
        step: answers,
        eval: |s| {
            vec![(
                "eval/pass@1",
                if s < 150 {
                    0.2 + 0.004 * s as f64
                } else {
                    0.8 - 0.002 * (s - 150) as f64
                },
            )]
        },
    },
    History {
        name: "GRPO, groups of one reward",
        expected: &["same_rewards"],
        method: "grpo",
        dropout: 0.0,
        shows: 1,
        step: |s| {
            with(
                answers(s),
                &[("frac_reward_zero_std", 0.95), ("reward", 0.5 + noise(s))],
            )
        },
        eval: |_| vec![("eval/pass@1", 0.5)],
    },
    History {
        name: "GRPO, entropy collapses",
        expected: &["entropy_collapse"],
        method: "grpo",
        dropout: 0.0,
        shows: 60,
        step: |s| {
            with(
                answers(s),
                &[
                    ("entropy", 1.2 * (-(s as f64) / 20.0).exp()),
                    ("reward", 0.4 + noise(s)),
                ],
            )
        },
        eval: |_| vec![("eval/pass@1", 0.4)],
    },
    History {
        name: "GRPO, answers are cut off",
        expected: &["answer_length"],
        method: "grpo",
        dropout: 0.0,
        shows: 1,
        step: |s| {
            with(
                answers(s),
                &[
                    ("completions/clipped_ratio", 0.8),
                    ("completions/mean_length", 60.0),
                ],
            )
        },
        eval: pass,
    },
    History {
        name: "DPO, another reference than the policy's start",
        expected: &["preference_start"],
        method: "dpo",
        dropout: 0.0,
        shows: 1,
        step: |s| {
            with(
                pairs(s),
                &[
                    ("rewards/margins", 0.8 + 0.5 * learned(s)),
                    ("train/loss", 0.4),
                    ("rewards/chosen", 0.5),
                ],
            )
        },
        eval: none,
    },
    History {
        name: "DPO, dropout left on",
        expected: &["preference_start"],
        method: "dpo",
        dropout: 0.1,
        shows: 1,
        // Dropout makes both answers of a pair less probable than under the reference.
        step: |s| {
            let l = learned(s - 1);
            with(
                pairs(s),
                &[
                    ("rewards/chosen", -0.8 - 0.2 * l + noise(s)),
                    ("rewards/rejected", -0.8 - 1.7 * l),
                ],
            )
        },
        eval: none,
    },
    History {
        name: "DPO, chosen answers sink too",
        expected: &["displacement"],
        method: "dpo",
        dropout: 0.0,
        shows: 100,
        step: |s| {
            with(
                pairs(s),
                &[
                    ("rewards/chosen", -6.0 * learned(s - 1)),
                    ("rewards/rejected", -7.5 * learned(s - 1)),
                ],
            )
        },
        eval: none,
    },
    History {
        name: "DPO, sides of the pairs swapped in the hold-out",
        expected: &["swapped_pairs"],
        method: "dpo",
        dropout: 0.0,
        shows: 50,
        step: pairs,
        eval: |s| {
            vec![
                ("val/rewards/accuracies", 0.5 - 0.25 * learned(s)),
                ("val/loss", 0.69 + 0.4 * learned(s)),
            ]
        },
    },
];

/// The results of the rules for each history.
pub fn rows() -> Vec<Row> {
    HISTORIES.iter().map(row).collect()
}

fn row(history: &History) -> Row {
    let (mut state, mut seq, mut found) = (RunState::new(), 0, BTreeMap::new());
    let mut add = |state: &mut RunState, event| {
        seq += 1;
        let (v, t) = (1, UnixMillis(seq));
        state.apply(&Envelope { v, seq, t, event });
    };
    let values = |readings: Readings| -> Values {
        readings
            .into_iter()
            .map(|(id, x)| (id.to_string(), Num(x)))
            .collect()
    };
    let method = history.method;
    add(
        &mut state,
        Event::Started {
            name: history.name.into(),
            method: method.into(),
            spec: json!({"train": {"from": "base", "clip_norm": 1.0}, "method": {method: {}}, "model": {"dropout": history.dropout}}),
            n_params: 1,
            vocab_size: 100,
            max_steps: STEPS,
            batch_tokens: 1,
            epoch_tokens: 1 << 40,
            resumed_from: None,
            precision: None,
            unigram_entropy: None,
        },
    );
    for step in 1..=STEPS {
        add(
            &mut state,
            Event::Stepped {
                step,
                tokens: step,
                values: values((history.step)(step)),
            },
        );
        let evaluated = (history.eval)(step);
        if step.is_multiple_of(EVERY) && !evaluated.is_empty() {
            add(
                &mut state,
                Event::Evaluated {
                    step,
                    tokens: step,
                    values: values(evaluated),
                    n_windows: 400,
                    whole: false,
                    seconds: 0.0,
                },
            );
        }
        if step.is_multiple_of(CHECK_INTERVAL) {
            for finding in super::agreeing(diagnose(&state)).findings {
                if finding.status <= Status::Warn {
                    found.entry(finding.id).or_insert(step);
                }
            }
        }
    }
    Row {
        name: history.name.into(),
        expected: history.expected.to_vec(),
        found,
        shows: history.shows,
        trace: Vec::new(),
    }
}
