//! The standard tape: the events of a made-up run of 2,000 steps in which everything happens once: preflight, evaluations,
//! samples, checkpoints, a pause, a note, a changed learning rate, a gradient spike, a NaN, a stop and a resume, the end.
//! Deterministic; `tests/tapes/standard.jsonl` holds it with every fifth step.

use crate::base::clock::UnixMillis;
use crate::base::finding::Finding;
use crate::run::checkpoints::path_in_run;
use crate::wire::{Direction, Envelope, Event, MetricInfo, Num, Outcome, Phase, Values};

pub const MAX_STEPS: u64 = 2_000;
/// 12 windows of 64 tokens.
pub const BATCH_TOKENS: u64 = 768;
/// Milliseconds a step: 25 steps a second.
pub const STEP_MS: u64 = 40;
/// 2026-11-21 10:40:00 UTC.
const START: u64 = 1_795_257_600_000;
const STOPPED_AT: u64 = 1_500;

/// The whole run with every `stride`-th step.
pub fn standard(stride: u64) -> Vec<Envelope> {
    let mut tape = Tape {
        events: Vec::new(),
        t: START,
        stride,
    };
    tape.open(None);
    tape.preflight();
    tape.train(1..=STOPPED_AT);
    tape.finish(
        Outcome::Stopped,
        STOPPED_AT,
        "stopped on request; `llmtui train --resume` goes on from here",
    );
    tape.t += 120_000;
    tape.open(Some(STOPPED_AT));
    tape.train(STOPPED_AT + 1..=MAX_STEPS);
    tape.finish(Outcome::Completed, MAX_STEPS, "");
    tape.events
}

/// The run up to its step `step`.
pub fn until(stride: u64, step: u64) -> Vec<Envelope> {
    let events = standard(stride);
    let end = events
        .iter()
        .position(|e| matches!(&e.event, Event::Stepped { step: at, .. } if *at > step));
    events[..end.unwrap_or(events.len())].to_vec()
}

struct Tape {
    events: Vec<Envelope>,
    t: u64,
    stride: u64,
}

impl Tape {
    fn add(&mut self, event: Event) {
        let seq = self.events.len() as u64 + 1;
        self.events.push(Envelope {
            v: 1,
            seq,
            t: UnixMillis(self.t),
            event,
        });
    }

    fn after(&mut self, ms: u64, event: Event) {
        self.t += ms;
        self.add(event);
    }

    fn open(&mut self, resumed_from: Option<u64>) {
        let run = "2026-11-21-1040-shakespeare-k3qf".to_string();
        let pid = if resumed_from.is_some() { 4411 } else { 4242 };
        self.add(Event::Hello {
            run,
            engine: "0.1.0".into(),
            pid,
            host: "workstation".into(),
        });
        if let Some(step) = resumed_from {
            self.add(Event::RolledBack { step });
        }
        let spec = serde_json::json!({
            "name": "shakespeare", "eval": {"every": 250}, "sample": {"every": 500}, "checkpoint": {"every": 500}
        });
        self.after(
            80,
            Event::Started {
                name: "shakespeare".into(),
                method: "pretrain".into(),
                spec,
                n_params: 804_096,
                vocab_size: 65,
                max_steps: MAX_STEPS,
                batch_tokens: BATCH_TOKENS,
                epoch_tokens: 1_003_854,
                resumed_from,
                precision: None,
                unigram_entropy: None,
            },
        );
        self.add(Event::MetricsDeclared { metrics: metrics() });
        self.host(0);
    }

    fn preflight(&mut self) {
        self.add(Event::PhaseChanged {
            phase: Phase::Preflight,
            step: 0,
        });
        for (id, title, evidence) in [
            ("init_loss", "loss at init", "4.183, expected ln 65 = 4.174"),
            (
                "causal_mask",
                "causal mask",
                "no past logit moves with a future token",
            ),
            (
                "token_shift",
                "token shift",
                "inputs \"First Citizen\", targets \"irst Citizen:\"",
            ),
            ("overfit", "one batch overfits", "4.18 to 0.09 in 60 steps"),
            ("same_seed", "same seed, same loss", "equal to the last bit"),
            (
                "round_trip",
                "checkpoint round trip",
                "equal to the last bit",
            ),
            (
                "overlap",
                "train and val apart",
                "no common window of 64 tokens",
            ),
            ("disk", "room for checkpoints", "needs 28 MiB, 312 GiB free"),
        ] {
            self.after(
                90,
                Event::Checked {
                    finding: Finding::pass(evidence).named(id, title).into(),
                    seconds: 0.09,
                    next: None,
                },
            );
        }
        self.evaluate(0);
    }

    fn train(&mut self, steps: std::ops::RangeInclusive<u64>) {
        self.add(Event::PhaseChanged {
            phase: Phase::Training,
            step: steps.start() - 1,
        });
        for step in steps {
            self.t += STEP_MS;
            if step.is_multiple_of(self.stride) || step == 1 || special(step) {
                self.add(Event::Stepped {
                    step,
                    tokens: step * BATCH_TOKENS,
                    values: values(step),
                });
            }
            self.due(step);
        }
    }

    fn due(&mut self, step: u64) {
        if step.is_multiple_of(50) {
            self.host(step);
        }
        if step.is_multiple_of(250) {
            self.evaluate(step);
        }
        if step.is_multiple_of(500) {
            self.sample(step);
            self.checkpoint(step);
        }
        match step {
            800 => self.pause(step),
            820 => self.add(Event::Noted {
                step,
                text: "batches look fine, going on".into(),
            }),
            903 => self.warn(
                step,
                "spike",
                "gradient norm 6.1, nine times its median",
                "clipped to 1.0",
            ),
            1_100 => {
                self.add(Event::Accepted { id: 3 });
                let (old, new) = (Num(lr(1_099)), Num(lr(1_100)));
                self.add(Event::Adjusted {
                    step,
                    key: "lr".into(),
                    old,
                    new,
                });
            }
            1_340 => self.warn(step, "nan", "the loss is NaN", "the update was skipped"),
            _ => {}
        }
    }

    fn phase(&mut self, phase: Phase, step: u64) {
        self.add(Event::PhaseChanged { phase, step });
    }

    fn evaluate(&mut self, step: u64) {
        let whole = step == MAX_STEPS;
        self.phase(Phase::Evaluating, step);
        let loss = val_loss(step);
        let values = [
            ("val/loss", loss),
            ("val/ppl", loss.exp()),
            ("val/bpb", loss / std::f64::consts::LN_2),
        ];
        let (n_windows, seconds) = if whole { (1_742, 1.9) } else { (240, 0.3) };
        let (tokens, values) = (step * BATCH_TOKENS, rounded(&values));
        self.after(
            if whole { 1_900 } else { 300 },
            Event::Evaluated {
                step,
                tokens,
                values,
                n_windows,
                whole,
                seconds,
            },
        );
        self.phase(Phase::Training, step);
    }

    fn sample(&mut self, step: u64) {
        self.phase(Phase::Sampling, step);
        let text = match step {
            500 => {
                "Thou the shord and the wither,\nAnd the grear of the doth the hearth me,\nThat wo the peak."
            }
            1_000 => {
                "What say'st thou to my lord the duke of heaven,\nAnd that the world shall be the common of the wind?\n\nGLOUCESTER:\nI have a son, and thou hast been a queen."
            }
            1_500 => {
                "Come, come, my lord, the time is done; away,\nAnd bear the sorrow of the kingdom's tears.\n\nLADY ANNE:\nI will not think upon thy noble name."
            }
            _ => {
                "My gracious sovereign, I have seen the sun\nStand still above the towers of the town,\nAnd every man that loved him drew his sword\nTo swear the peace that he himself had broke.\n\nQUEEN MARGARET:\nThen let the trumpets speak, and we will hear."
            }
        };
        self.after(
            400,
            Event::Sampled {
                step,
                prompt: "KING RICHARD:\n".into(),
                text: text.into(),
                thought: None,
                seconds: 0.4,
            },
        );
        self.phase(Phase::Training, step);
    }

    fn checkpoint(&mut self, step: u64) {
        self.phase(Phase::Checkpointing, step);
        let (path, val_loss) = (path_in_run(step), Some(Num(val_loss(step))));
        self.after(
            60,
            Event::Checkpointed {
                step,
                path,
                bytes: 9_712_640,
                seconds: 0.06,
                best: true,
                val_loss,
                by: None,
            },
        );
        self.phase(Phase::Training, step);
    }

    fn pause(&mut self, step: u64) {
        self.after(20, Event::Accepted { id: 1 });
        self.phase(Phase::Paused, step);
        self.after(9_000, Event::Accepted { id: 2 });
        self.phase(Phase::Training, step);
    }

    fn warn(&mut self, step: u64, code: &str, message: &str, hint: &str) {
        let (code, message, hint) = (code.into(), message.into(), hint.into());
        self.add(Event::Warned {
            step,
            code,
            message,
            hint,
        });
    }

    fn host(&mut self, step: u64) {
        let busy = if step == 0 {
            12.0
        } else {
            97.0 + noise(step, 9)
        };
        let values = [
            ("host/cpu_percent", busy),
            (
                "host/ram_used_bytes",
                (1_180.0 + 4.0 * noise(step, 10)) * 1_048_576.0,
            ),
            ("host/ram_total_bytes", 24.0 * 1_073_741_824.0),
            (
                "host/rss_bytes",
                if step == 0 { 31.0 } else { 78.0 } * 1_048_576.0,
            ),
        ];
        let values = values
            .into_iter()
            .map(|(id, x)| (id.to_string(), Num(x.round())))
            .collect();
        self.add(Event::HardwareSampled { values });
    }

    fn finish(&mut self, outcome: Outcome, step: u64, message: &str) {
        let completed = outcome == Outcome::Completed;
        self.after(
            30,
            Event::Finished {
                outcome,
                step,
                tokens: step * BATCH_TOKENS,
                val_loss: completed.then(|| Num(val_loss(step))),
                best: serde_json::from_value(serde_json::json!(val_loss(step))).ok(),
                train_loss: Some(Num(loss(step))),
                seconds: if completed { 24.6 } else { 73.9 },
                message: message.into(),
            },
        );
    }
}

fn metrics() -> Vec<MetricInfo> {
    let metric = |id: &str, title: &str, unit: &str, direction| MetricInfo {
        id: id.into(),
        title: title.into(),
        unit: unit.into(),
        direction,
        source: String::new(),
        ..MetricInfo::default()
    };
    use Direction::{Higher, Lower, Neutral};
    vec![
        metric("train/loss", "training loss", "nats", Lower),
        metric("val/loss", "validation loss", "nats", Lower),
        metric("val/ppl", "validation perplexity", "", Lower),
        metric("val/bpb", "validation bits per byte", "bits", Lower),
        metric("grad_norm", "gradient norm", "", Neutral),
        metric("entropy", "token entropy", "nats", Neutral),
        metric("lr", "learning rate", "", Neutral),
        metric("clipped", "clipped steps", "share", Neutral),
        metric("tok_per_sec", "tokens per second", "1/s", Higher),
        metric("step_ms", "step time", "ms", Lower),
        metric("data_wait", "waiting for data", "share", Lower),
    ]
}

/// Steps that are on the tape whatever its stride.
fn special(step: u64) -> bool {
    matches!(step, 903 | 1_340)
}

fn values(step: u64) -> Values {
    let norm = norm(step);
    let speed = 19_350.0 * (1.0 + 0.015 * noise(step, 4));
    rounded(&[
        ("train/loss", loss(step)),
        ("grad_norm", norm),
        (
            "entropy",
            1.47 + 2.65 * decay(step, 190.0) + 0.035 * noise(step, 3),
        ),
        ("lr", lr(step)),
        ("clipped", f64::from(u8::from(norm > 1.0))),
        ("tok_per_sec", speed),
        ("step_ms", BATCH_TOKENS as f64 / speed * 1e3),
        ("data_wait", 0.008 + 0.004 * noise(step, 5).abs()),
    ])
}

fn loss(step: u64) -> f64 {
    if step == 1_340 {
        return f64::NAN;
    }
    let spike = if (903..=908).contains(&step) {
        0.5
    } else {
        0.0
    };
    1.40 + 2.78 * (0.62 * decay(step, 110.0) + 0.38 * decay(step, 700.0))
        + 0.055 * noise(step, 1)
        + spike
}

fn val_loss(step: u64) -> f64 {
    let loss = 1.555
        + 2.62 * (0.62 * decay(step, 110.0) + 0.38 * decay(step, 560.0))
        + 0.004 * noise(step, 6);
    (loss * 1e4).round() / 1e4
}

fn norm(step: u64) -> f64 {
    if step == 903 {
        return 6.1;
    }
    0.62 + 2.4 * decay(step, 45.0) + 0.00006 * step as f64 + 0.07 * noise(step, 2)
}

/// Warm-up and cosine of the quickstart; four fifths of it from step 1,100 on.
fn lr(step: u64) -> f64 {
    let (peak, floor, warmup) = (1e-3, 1e-4, 100);
    let lr = if step < warmup {
        peak * step as f64 / warmup as f64
    } else {
        let done = (step - warmup) as f64 / (MAX_STEPS - warmup) as f64;
        floor + 0.5 * (peak - floor) * (1.0 + (std::f64::consts::PI * done).cos())
    };
    if step >= 1_100 { lr * 0.8 } else { lr }
}

fn decay(step: u64, by: f64) -> f64 {
    (-(step as f64) / by).exp()
}

/// Roughly normal, by stream and step (a sum of four uniform numbers from splitmix64).
fn noise(step: u64, stream: u64) -> f64 {
    let mut state =
        step.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03);
    let mut uniform = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    };
    (uniform() + uniform() + uniform() + uniform() - 2.0) * 1.732
}

/// Four significant digits: the last bits of `exp` differ between machines.
fn rounded(values: &[(&str, f64)]) -> Values {
    let round = |x: f64| {
        if x.is_finite() {
            format!("{x:.3e}").parse().unwrap_or(x)
        } else {
            x
        }
    };
    values
        .iter()
        .map(|(id, x)| (id.to_string(), Num(round(*x))))
        .collect()
}
