//! How the run does, in a few facts read from its own events: preflight, loss, gradient norm, the gap to the validation
//! loss, waiting, warnings. Facts with their numbers; causes and cures are not claimed here.

use crate::base::human;
use crate::base::stats;
use crate::run::RunState;
use crate::run::series::Series;
use crate::run::state::{Level, MarkKind};
use crate::wire::CheckStatus;

/// One fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    pub level: Level,
    pub label: &'static str,
    pub text: String,
}

fn fact(level: Level, label: &'static str, text: String) -> Option<Fact> {
    Some(Fact { level, label, text })
}

/// Steps that count as "now".
const RECENT: usize = 200;
/// A gradient norm this many times its median is a spike.
const SPIKE: f64 = 5.0;
/// A validation gap that grew by this much over three evaluations is growing, in nats.
const GROWTH: f64 = 0.02;
/// More waiting for data than this is worth a word.
const WAITING: f64 = 0.2;

/// The facts in their fixed order.
pub fn facts(state: &RunState) -> Vec<Fact> {
    let readings = [
        preflight(state),
        loss(state),
        gradient(state),
        gap(state),
        waiting(state),
        warnings(state),
        losses_on_the_way(state),
    ];
    readings.into_iter().flatten().collect()
}

/// The fact that matters most: the first of the worst.
pub fn worst(facts: &[Fact]) -> Option<&Fact> {
    let level = facts.iter().map(|f| f.level).max()?;
    facts.iter().find(|f| f.level == level)
}

fn preflight(state: &RunState) -> Option<Fact> {
    let count = |status| state.checks.iter().filter(|c| c.status == status).count();
    let first = |status| state.checks.iter().find(|c| c.status == status);
    let label = "preflight";
    if let Some(check) = first(CheckStatus::Fail) {
        return fact(
            Level::Bad,
            label,
            format!("{}: {}", check.title, check.evidence),
        );
    }
    if let Some(check) = first(CheckStatus::Warn) {
        return fact(
            Level::Warn,
            label,
            format!("{}: {}", check.title, check.evidence),
        );
    }
    let passed = count(CheckStatus::Pass);
    (passed > 0).then(|| Fact {
        level: Level::Good,
        label,
        text: format!("{passed} checks passed"),
    })
}

/// The newest finite readings, oldest first.
fn recent(series: &Series) -> Vec<f64> {
    let skip = series.recent().len().saturating_sub(RECENT);
    series
        .recent()
        .skip(skip)
        .map(|p| p.value)
        .filter(|x| x.is_finite())
        .collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn loss(state: &RunState) -> Option<Fact> {
    let series = state.series.get("train/loss")?;
    let label = "train loss";
    if series.last().is_some_and(|p| !p.value.is_finite()) {
        return fact(
            Level::Bad,
            label,
            "is not a number: the run diverged".into(),
        );
    }
    let values = recent(series);
    if values.len() < 20 {
        return None;
    }
    let (older, newer) = values.split_at(values.len() / 2);
    let (before, now) = (mean(older), mean(newer));
    // Twice the standard error of the difference of the two means: less is noise.
    let spread = |x: &[f64], m: f64| {
        x.iter().map(|v| (v - m).powi(2)).sum::<f64>() / (x.len() * (x.len() - 1)) as f64
    };
    let noise = 2.0 * (spread(older, before) + spread(newer, now)).sqrt();
    let non_finite = series.non_finite();
    let (level, word) = match now - before {
        d if d < -noise => (Level::Good, "falling"),
        d if d > noise => (Level::Warn, "rising"),
        _ => (Level::Good, "flat"),
    };
    let odd = if non_finite > 0 {
        format!(", {non_finite} not finite")
    } else {
        String::new()
    };
    let level = if non_finite > 0 {
        level.max(Level::Warn)
    } else {
        level
    };
    fact(level, label, format!("{}  {word}{odd}", human::number(now)))
}

fn gradient(state: &RunState) -> Option<Fact> {
    let series = state.series.get("grad_norm")?;
    let values = recent(series);
    let median = stats::median(&values).filter(|_| values.len() >= 20)?;
    let skip = series.recent().len().saturating_sub(RECENT);
    let spike = series
        .recent()
        .skip(skip)
        .filter(|p| p.value > SPIKE * median)
        .max_by(|a, b| a.value.total_cmp(&b.value));
    match spike {
        Some(p) => {
            let times = human::short((p.value / median).round());
            fact(
                Level::Warn,
                "gradient norm",
                format!(
                    "{times} times its median at step {}",
                    human::grouped(p.step)
                ),
            )
        }
        None => fact(
            Level::Good,
            "gradient norm",
            format!("{}  steady", human::number(median)),
        ),
    }
}

fn gap(state: &RunState) -> Option<Fact> {
    let train = state.series.get("train/loss")?;
    let gaps: Vec<f64> = state
        .evaluations
        .iter()
        .rev()
        .take(3)
        .filter_map(|e| Some(e.val_loss() - around(train, e.step)?))
        .collect();
    let newest = gaps.first().copied().filter(|g| g.is_finite())?;
    let growing =
        gaps.len() == 3 && gaps[0] > gaps[1] && gaps[1] > gaps[2] && gaps[0] - gaps[2] > GROWTH;
    let (level, word) = if growing && newest > GROWTH {
        (Level::Warn, "and growing")
    } else {
        (Level::Good, "in step")
    };
    fact(level, "val − train", format!("{newest:.3}  {word}"))
}

/// The mean training loss of the steps before `step`.
fn around(train: &Series, step: u64) -> Option<f64> {
    let from = step.saturating_sub(50) as f64;
    train.columns(from, step as f64 + 1.0, 1).pop()??.mean()
}

fn waiting(state: &RunState) -> Option<Fact> {
    let values = recent(state.series.get("data_wait")?);
    let share = mean(&values);
    let text = format!("{:.0} % of the time", share * 100.0);
    if values.is_empty() || share <= WAITING {
        return None;
    }
    fact(Level::Warn, "waits for data", text)
}

fn warnings(state: &RunState) -> Option<Fact> {
    let last = state
        .marks
        .iter()
        .rev()
        .find(|m| m.kind == MarkKind::Warning)?;
    let more = if state.n_warnings > 1 {
        format!(" (of {})", state.n_warnings)
    } else {
        String::new()
    };
    fact(Level::Warn, "last warning", format!("{}{more}", last.text))
}

fn losses_on_the_way(state: &RunState) -> Option<Fact> {
    let text = match (state.missed, state.unknown) {
        (0, 0) => return None,
        (missed, 0) => format!("{} never arrived", human::grouped(missed)),
        (0, unknown) => format!("{} of a newer program", human::grouped(unknown)),
        (missed, unknown) => format!("{missed} never arrived, {unknown} of a newer program"),
    };
    fact(Level::Warn, "events", text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::UnixMillis;
    use crate::wire::{Envelope, Event, Num};

    fn run(
        steps: u64,
        loss: impl Fn(u64) -> f64,
        norm: impl Fn(u64) -> f64,
        val: &[(u64, f64)],
    ) -> RunState {
        let mut state = RunState::new();
        let mut seq = 0;
        let mut send = |event| {
            seq += 1;
            state.apply(&Envelope {
                v: 1,
                seq,
                t: UnixMillis(seq),
                event,
            });
        };
        for step in 1..=steps {
            let values = [
                ("train/loss".to_string(), Num(loss(step))),
                ("grad_norm".into(), Num(norm(step))),
            ]
            .into();
            send(Event::Stepped {
                step,
                tokens: step,
                values,
            });
            if let Some((_, x)) = val.iter().find(|(at, _)| *at == step) {
                let values = [("val/loss".to_string(), Num(*x))].into();
                send(Event::Evaluated {
                    step,
                    tokens: step,
                    values,
                    n_windows: 1,
                    whole: false,
                    seconds: 0.0,
                });
            }
        }
        state
    }

    fn said(state: &RunState, label: &str) -> Option<(Level, String)> {
        facts(state)
            .into_iter()
            .find(|f| f.label == label)
            .map(|f| (f.level, f.text))
    }

    fn wobble(step: u64) -> f64 {
        [0.01, -0.02, 0.015, -0.005][step as usize % 4]
    }

    #[test]
    fn a_calm_run_is_called_calm() {
        let state = run(
            300,
            |s| 4.0 - s as f64 * 0.01,
            |_| 0.8,
            &[(100, 3.1), (200, 2.1), (300, 1.1)],
        );
        assert!(
            facts(&state).iter().all(|f| f.level == Level::Good),
            "{:?}",
            facts(&state)
        );
        assert!(said(&state, "train loss").unwrap().1.contains("falling"));
        let flat = run(300, |s| 2.0 + wobble(s), |_| 0.8, &[]);
        assert!(said(&flat, "train loss").unwrap().1.contains("flat"));
    }

    #[test]
    fn divergence_spikes_and_gaps_are_seen() {
        let nan = run(100, |s| if s == 100 { f64::NAN } else { 2.0 }, |_| 1.0, &[]);
        assert_eq!(worst(&facts(&nan)).unwrap().level, Level::Bad);
        let spike = run(100, |_| 2.0, |s| if s == 90 { 9.0 } else { 1.0 }, &[]);
        assert_eq!(
            said(&spike, "gradient norm"),
            Some((Level::Warn, "9 times its median at step 90".into()))
        );
        let gap = run(
            300,
            |_| 2.0,
            |_| 1.0,
            &[(100, 2.05), (200, 2.1), (300, 2.2)],
        );
        assert_eq!(
            said(&gap, "val − train"),
            Some((Level::Warn, "0.200  and growing".into()))
        );
        let rising = run(300, |s| 2.0 + s as f64 * 0.01 + wobble(s), |_| 1.0, &[]);
        assert!(said(&rising, "train loss").unwrap().1.contains("rising"));
    }

    #[test]
    fn nothing_is_said_of_what_is_not_known_yet() {
        assert_eq!(facts(&RunState::new()), []);
        assert_eq!(worst(&[]), None);
        assert_eq!(facts(&run(5, |_| 2.0, |_| 1.0, &[])), []);
    }
}
