//! The loss or its gradient is not finite, or the loss is above that of a uniform prediction, or most of its gain is lost. A
//! passing spike does not count: every one of 20 readings must be that high.

use super::{SPIKE_SIGMAS, metric};
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::{ABOVE as SHARE, ABOVE_NATS as NATS, FREQUENCIES, Loss, View};
use crate::run::series::{Bucket, Series};
use crate::run::state::Evaluation;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "diverged",
        title: "divergence",
        summary: "Losses and gradient norm are finite; the loss is no higher than a uniform guess or its start, and keeps most of its gain.",
        source: "7 standard deviations: OLMo 2, arXiv 2501.00656; the other margins are rules of thumb",
    },
    // Runs that learn from their own answers have a policy loss in its place.
    needs: &[],
    judge,
};

/// Margin above the best, as a share of the gain since the start.
const GAINED: f64 = 0.5;
/// Parts of a run in which the beginning of a long stretch of non-finite readings is searched for.
const PARTS: usize = 1_024;
/// A gradient norm above this is mentioned together with a divergence: healthy ones are below 5.
const LARGE: f64 = 100.0;

fn judge(view: &View<'_>) -> Option<Finding> {
    if let Some(signal) = not_finite(view) {
        let at = human::grouped(signal.step.unwrap_or_default());
        let signals: Vec<Signal> = std::iter::once(signal).chain(gradient(view)).collect();
        return Some(
            Finding::fail(
                signals,
                "numerical overflow: usually the learning rate is too high, or the warm-up too short",
                restart_with_lower_lr(view),
            )
            .at(format!("step {at}")),
        );
    }
    let loss = view.loss()?;
    let line = line(view, loss);
    let above = |value: f64| value > line + (SHARE * line).max(NATS);
    if above(loss.floor) {
        return Some(above_line(view, loss, line, loss.now));
    }
    if above(loss.worst.min) && loss.now > recovered(view, loss) {
        return Some(above_line(view, loss, line, loss.worst.mean));
    }
    let gained = loss.start - loss.best.mean;
    let clear = (SPIKE_SIGMAS * loss.sigma).max(NATS);
    let far = |value: f64| value - loss.best.mean > clear.max(GAINED * gained);
    let far = far(loss.floor) || far(newest_floor(view)?) && is_lost_in_val(view);
    far.then(|| {
        let best = human::grouped(loss.best.last);
        // The best itself is no sign of a fault, so it has no date: a checkpoint of its last step is good.
        let since = since_above(view, loss, loss.best.mean + clear).max(loss.best.last + 1);
        let signals = vec![
            Signal::of(metric::TRAIN_LOSS, loss.now, format!("train loss {}", human::number(loss.now)))
                .at(since),
            Signal::of(
                metric::TRAIN_LOSS,
                loss.best.mean,
                format!("its best was {} at step {best}", human::number(loss.best.mean)),
            ),
        ];
        Finding::fail(
            signals,
            "the model has lost what it learned: the learning rate is too high, or a spike polluted the optimizer's moments",
            restart_with_lower_lr(view),
        )
        .at(format!("after step {best}"))
    })
}

/// Readings that are enough where the validation loss agrees.
const FEW: usize = 5;

/// The lowest of the newest five readings.
fn newest_floor(view: &View<'_>) -> Option<f64> {
    let newest = view.recent(metric::TRAIN_LOSS);
    let few = newest.get(newest.len().checked_sub(FEW)?..)?;
    few.iter().map(|point| point.value).reduce(f64::min)
}

/// Whether the validation loss has lost half of its gain as well.
fn is_lost_in_val(view: &View<'_>) -> bool {
    let evaluations = view.state.evaluations.iter();
    let all: Vec<f64> = evaluations
        .map(Evaluation::val_loss)
        .filter(|loss| loss.is_finite())
        .collect();
    let (Some(first), Some(last)) = (all.first(), all.last()) else {
        return false;
    };
    let best = all.iter().copied().fold(f64::INFINITY, f64::min);
    last - best > NATS.max(GAINED * (first - best))
}

/// The newest loss, gradient norm or validation loss, if it is NaN or infinite, and since when; otherwise what else ended the
/// run so: a weight, or a logit while an answer was written.
fn not_finite(view: &View<'_>) -> Option<Signal> {
    let names = [
        (metric::TRAIN_LOSS, "train loss"),
        (metric::POLICY_LOSS, "policy loss"),
        (metric::GRAD_NORM, "gradient norm"),
        (metric::VAL_LOSS, "val loss"),
    ];
    let reading = names.into_iter().find_map(|(id, name)| {
        let series = view.state.series.get(id)?;
        let last = series.last().filter(|last| !last.value.is_finite())?;
        let first = since(series).unwrap_or(last.step);
        let word = if first < last.step { "since" } else { "at" };
        let text = format!(
            "{name} {} {word} step {}",
            last.value,
            human::grouped(first)
        );
        Some(Signal::of(id, last.value, text).at(first))
    });
    reading.or_else(|| {
        let (step, what) = view.state.non_finite.as_ref()?;
        Some(Signal {
            text: format!("{what} at step {}", human::grouped(*step)),
            step: Some(*step),
            ..Signal::default()
        })
    })
}

/// The first of the newest non-finite readings, with no finite one after it.
fn since(series: &Series) -> Option<u64> {
    let newest = series.recent().rev();
    let odd = newest.take_while(|point| !point.value.is_finite());
    let (n, first) = odd.fold((0, None), |(n, _), point| (n + 1, Some(point.step)));
    if n < series.recent().len() || series.len() as usize == n {
        return first;
    }
    // Older than the exact readings: accurate to a part of the run's steps.
    let (from, to) = series.steps()?;
    let parts = series.columns(from as f64, to as f64 + 1.0, PARTS);
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    let Some(at) = parts.iter().rposition(|part| part.n > 0) else {
        return Some(from);
    };
    // The last part with a finite reading may contain the first non-finite one: they began there at the latest.
    let mixed = Some(parts[at]).filter(|part| part.non_finite > 0);
    let behind = parts.get(at + 1).map(|part| part.first);
    mixed.map(|part| part.last).or(behind).or(first)
}

/// The loss that any useful training stays below: its start, and a uniform prediction if the weights began at random. A branch
/// of a run that has diverged starts above that prediction: its own start is no measure.
fn line(view: &View<'_>, loss: &Loss) -> f64 {
    match view.guessing() {
        Some(guessing) if view.from_scratch() => guessing.max(loss.start),
        Some(guessing) if view.is_branch() => guessing.min(loss.start),
        _ => loss.start,
    }
}

/// Below this a run that was above the line has recovered.
fn recovered(view: &View<'_>, loss: &Loss) -> f64 {
    match view.guessing().filter(|_| view.from_scratch()) {
        Some(guessing) => FREQUENCIES * guessing,
        None => loss.start,
    }
}

fn above_line(view: &View<'_>, loss: &Loss, line: f64, height: f64) -> Finding {
    let guessing = match view.guessing() {
        Some(x) if (x - line).abs() < NATS => format!(", guessing gives {}", human::number(x)),
        _ => String::new(),
    };
    let worst = loss.worst;
    let (from, to) = (human::grouped(worst.first), human::grouped(worst.last));
    let mut text = format!(
        "train loss {} over steps {from} to {to}",
        human::number(height)
    );
    if loss.now < height {
        text.push_str(&format!(", now {}", human::number(loss.now)));
    }
    let start = format!("{}{guessing}", loss.began());
    // A spike that it recovered from is none of it: checkpoints from between are good.
    let high = line + (SHARE * line).max(NATS);
    let since = if loss.floor > high {
        since_above(view, loss, high)
    } else {
        let from = since_above(view, loss, high.min(recovered(view, loss)));
        let first = view.first(metric::TRAIN_LOSS, from, |part| part.min > high);
        first.unwrap_or(from)
    };
    let mut signals = vec![
        Signal::of(metric::TRAIN_LOSS, height, text).at(since),
        Signal::of(metric::TRAIN_LOSS, loss.start, start),
    ];
    signals.extend(gradient(view));
    // A branch of a young run may start a little above a uniform guess.
    let (cause, fix) = if loss.start > line + (SHARE * line).max(NATS) {
        (
            "the branch began with weights that had diverged: they are worse than a uniform guess",
            "branch from an earlier checkpoint, from before the divergence".into(),
        )
    } else {
        (
            "training made the model worse than at the start: the learning rate is too high for this model",
            restart_with_lower_lr(view),
        )
    };
    Finding::fail(signals, cause, fix).at(format!("step {to}"))
}

/// Since when the loss is above a limit. A part of a long run may hold readings from before it as well: then it is so since the
/// newest readings at the latest.
fn since_above(view: &View<'_>, loss: &Loss, limit: f64) -> u64 {
    let above = |part: &Bucket| part.mean().is_none_or(|mean| mean > limit);
    let newest = view.recent(metric::TRAIN_LOSS);
    let newest = newest.iter().rev().nth(loss.n_now.saturating_sub(1));
    let since = view.onset(metric::TRAIN_LOSS, above);
    since
        .or(newest.map(|point| point.step))
        .unwrap_or(view.state.step)
}

/// The gradient norm, if it exploded as well.
fn gradient(view: &View<'_>) -> Option<Signal> {
    let norms = view.recent(metric::GRAD_NORM);
    let finite = norms.iter().filter(|p| p.value.is_finite());
    let top = finite.max_by(|a, b| a.value.total_cmp(&b.value))?;
    (top.value > LARGE).then(|| {
        let text = format!("gradient norm up to {}", human::short(top.value));
        Signal::of(metric::GRAD_NORM, top.value, text).at(top.step)
    })
}

/// The suggested setting: a tenth of the rate, at most what small models tolerate; clipping if it is off.
fn lower(view: &View<'_>) -> String {
    let mut words = match view.lr().filter(|lr| *lr > 0.0) {
        Some(lr) => format!("<learning_rate={:.0e}>", (lr / 10.0).min(1e-3)),
        None => "«-s lr=…|learning_rate=…»".into(),
    };
    if view.state.settings.get("clip_norm") == Some(&0.0) {
        words.push_str(" <max_grad_norm=1>");
    }
    words
}

/// For weights that a lower rate helps from here on.
pub(super) fn lower_lr(view: &View<'_>) -> String {
    let live = match view.state.running() {
        true => "« (t tunes it while it runs)|»",
        false => "",
    };
    format!("lower the learning rate: {}{live}", lower(view))
}

/// For weights that have lost what they knew: a lower rate does not bring it back.
pub(super) fn restart_with_lower_lr(view: &View<'_>) -> String {
    format!(
        "restart from before it with a lower learning rate: {}",
        lower(view)
    )
}
