//! A loss that drops suddenly: the task has become trivial (leaked targets, mostly padding …).

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::base::stats::median;
use crate::diagnosis::Rule;
use crate::diagnosis::view::{ENOUGH, View};

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "sudden_drop",
        title: "sudden drop",
        summary: "After the start, the loss does not halve within 20 steps together with the entropy, nor drop to 0.",
        source: "masked labels, padding, targets in the inputs; the margins are rules of thumb",
    },
    needs: &[metric::TRAIN_LOSS],
    judge,
};

/// Readings that count as now, and as before.
const NOW: usize = 10;
const BEFORE: usize = 50;
const HALF: f64 = 0.5;
/// A loss below this, in nats, may be that of a task that is learned: rounded, it may end at 0.
const LEARNED: f64 = 0.05;

fn judge(view: &View<'_>) -> Option<Finding> {
    if view.state.step < view.patience() || view.state.series.contains_key(metric::REWARD) {
        return None;
    }
    if let Some(found) = nothing_counts(view) {
        return Some(found);
    }
    let (before, now) = halves(view, metric::TRAIN_LOSS)?;
    let entropy = halves(view, metric::ENTROPY);
    // Without a supervised token there is neither loss nor entropy.
    let masked = now == 0.0 && before > 0.0;
    let sure = entropy.filter(|(before, now)| *now < HALF * before);
    // Readings of a sparse log are many steps apart: any loss may halve between ten of them.
    let sudden = masked || sure.is_some() && !view.is_sparse();
    if before <= LEARNED || now >= HALF * before || !sudden {
        return None;
    }
    let number = human::number;
    let text = format!(
        "train loss fell from {} to {} within 20 {}",
        number(before),
        number(now),
        view.unit()
    );
    let mut signals = vec![Signal::of(metric::TRAIN_LOSS, now, text).at(view.state.step)];
    signals.extend(match sure {
        Some((before, now)) => {
            let text = format!("entropy fell from {} to {}", number(before), number(now));
            Some(Signal::of(metric::ENTROPY, now, text))
        }
        None => view.typical_of_last(metric::GRAD_NORM, NOW).map(|norm| {
            Signal::of(
                metric::GRAD_NORM,
                norm,
                format!("gradient norm {}", number(norm)),
            )
        }),
    });
    let (cause, fix) = match masked {
        true => MASKED,
        false => (
            "targets became trivial: padding, one repeated text, or targets leaking into the inputs",
            "inspect the batches of these steps«: `llmtui data batches`|»",
        ),
    };
    Some(Finding::warn(signals, cause, fix))
}

/// A loss of exactly 0, at each of the newest readings, however long: a model that has learned its task comes near it step by step.
fn nothing_counts(view: &View<'_>) -> Option<Finding> {
    let newest = view.recent(metric::TRAIN_LOSS);
    let newest = &newest[newest.len().checked_sub(ENOUGH)?..];
    if newest.iter().any(|point| point.value != 0.0) {
        return None;
    }
    let since = view.last_above_zero(metric::TRAIN_LOSS);
    let text = match since {
        Some((_, before)) if before <= LEARNED => return None,
        Some((step, before)) => format!(
            "train loss has been exactly 0 since step {}; it was {} before",
            human::grouped(step),
            human::number(before)
        ),
        None => "train loss has been exactly 0 since the first reading".into(),
    };
    let since = since.map_or(0, |(step, _)| step);
    let signal = Signal::of(metric::TRAIN_LOSS, 0.0, text).at(since);
    Some(Finding::fail(signal, MASKED.0, MASKED.1))
}

/// Of a loss that becomes 0 all at once: cause and fix.
const MASKED: (&str, &str) = (
    "no target is supervised any more: labels are masked",
    "inspect the supervised tokens of these batches«: `llmtui data batches`|»",
);

/// Medians of the newest readings and of those before them.
fn halves(view: &View<'_>, id: &str) -> Option<(f64, f64)> {
    let values: Vec<f64> = view.recent(id).iter().map(|p| p.value).collect();
    let (older, newer) = values.split_at(values.len().checked_sub(NOW)?);
    let older = older.get(older.len().checked_sub(BEFORE)?..older.len() - NOW)?;
    Some((median(older)?, median(newer)?))
}
