//! Both answers of the pairs become less likely: the margin grows because the rejected ones fall faster (likelihood
//! displacement).

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "displacement",
        title: "displacement",
        summary: "While margins rise, the reward of chosen answers stays above −3, or sinks by less than a twentieth in 100 steps; their log-probability is not five times lower than at the start.",
        source: "likelihood displacement: Razin et al. 2024, arXiv 2410.08847; the margin is a rule of thumb",
    },
    needs: &[metric::CHOSEN, metric::MARGINS],
    judge,
};

const CAUSE: &str = "likelihood displacement: chosen answers become less likely as well";
const FIX: &str =
    "a lower learning rate, a higher <beta>, or <rpo_alpha=1>, which holds on to chosen answers";

const LOW: f64 = -3.0;
/// Readings that count as "now", and the number of steps before them to compare with.
const NEWEST: usize = 20;
const BEFORE: u64 = 100;
/// A reward that decreased by less than this share has settled.
const SINKS: f64 = 0.05;
/// Answers whose nats grew to this many times the start, and by at least this many, are lost, whatever beta and length are, even
/// after the decrease.
const TIMES: f64 = 5.0;
const NATS: f64 = 10.0;

fn judge(view: &View<'_>) -> Option<Finding> {
    if !view.is_dpo() {
        return None;
    }
    let (chosen, margin) = (
        view.typical_of_last(metric::CHOSEN, NEWEST)?,
        view.typical_of_last(metric::MARGINS, NEWEST)?,
    );
    let begun = view.opening(metric::MARGINS)?;
    if margin <= begun || margin <= 0.0 {
        return None;
    }
    if let Some(signal) = lost(view) {
        return Some(Finding::warn(vec![signal], CAUSE, FIX));
    }
    if chosen > LOW {
        return None;
    }
    // If the run is younger than that, the start was zero.
    let since = view.state.step.saturating_sub(BEFORE);
    let series = view.state.series.get(metric::CHOSEN)?;
    let from = since.saturating_sub(NEWEST as u64);
    let before = series.columns(from as f64, since as f64 + 1.0, 1);
    let before = before.into_iter().next().flatten();
    let before = before.and_then(|bucket| bucket.mean()).unwrap_or(0.0);
    if chosen > (1.0 + SINKS) * before {
        return None;
    }
    let number = human::number;
    let signals = vec![
        Signal::of(
            metric::CHOSEN,
            chosen,
            format!(
                "reward of chosen answers {}, {} {BEFORE} steps before",
                number(chosen),
                number(before)
            ),
        )
        .at(view.state.step),
        Signal::of(
            metric::MARGINS,
            margin,
            format!("margin {}: rejected ones drop faster", number(margin)),
        ),
    ];
    Some(Finding::warn(signals, CAUSE, FIX))
}

/// Log-probabilities of chosen answers then and now, if they fell by far.
fn lost(view: &View<'_>) -> Option<Signal> {
    let begun = view.opening(metric::LOGPS_CHOSEN)?;
    let now = view.typical_of_last(metric::LOGPS_CHOSEN, NEWEST)?;
    let fell = begun < 0.0 && now < TIMES * begun && now < begun - NATS;
    fell.then(|| {
        let number = human::number;
        let text = format!(
            "log-probability of chosen answers {} → {} nats",
            number(begun),
            number(now)
        );
        Signal::of(metric::LOGPS_CHOSEN, now, text).at(view.state.step)
    })
}
