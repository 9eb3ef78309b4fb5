//! A loss that drops suddenly: the task has become trivial (leaked targets, mostly padding …).

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::base::stats::median;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

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

fn judge(view: &View<'_>) -> Option<Finding> {
    if view.state.step < view.patience() || view.state.series.contains_key(metric::REWARD) {
        return None;
    }
    let (before, now) = halves(view, metric::TRAIN_LOSS)?;
    let entropy = halves(view, metric::ENTROPY);
    // Without a supervised token there is neither loss nor entropy.
    let masked = now == 0.0 && before > 0.0;
    let sure = entropy.filter(|(before, now)| *now < HALF * before);
    // Readings of a sparse log are many steps apart: any loss may halve between ten of them.
    let sudden = masked || sure.is_some() && !view.is_sparse();
    if before <= 0.05 || now >= HALF * before || !sudden {
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
        true => (
            "no target is supervised any more: labels are masked",
            "inspect the supervised tokens of these batches«: `llmtui data batches`|»",
        ),
        false => (
            "targets became trivial: padding, one repeated text, or targets leaking into the inputs",
            "inspect the batches of these steps«: `llmtui data batches`|»",
        ),
    };
    Some(Finding::warn(signals, cause, fix))
}

/// Medians of the newest readings and of those before them.
fn halves(view: &View<'_>, id: &str) -> Option<(f64, f64)> {
    let values: Vec<f64> = view.recent(id).iter().map(|p| p.value).collect();
    let (older, newer) = values.split_at(values.len().checked_sub(NOW)?);
    let older = older.get(older.len().checked_sub(BEFORE)?..older.len() - NOW)?;
    Some((median(older)?, median(newer)?))
}
