//! Validation loss against training loss: overfitting is the former rising for good while the latter falls.

use super::{lost, metric};
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::base::stats;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;
use crate::run::state::Evaluation;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "overfitting",
        title: "val − train",
        summary: "Validation loss is not above its best for three evaluations while training loss falls.",
        source: "two agreeing signals; early stopping with patience, Prechelt 1998",
    },
    needs: &[metric::TRAIN_LOSS, metric::VAL_LOSS],
    judge,
};

/// Consecutive evaluations that must be above the best.
const PATIENCE: usize = 3;
/// Rises below this are noise: nats, a share of the best, and standard deviations between neighbours.
const NATS: f64 = 0.02;
pub(super) const SHARE: f64 = 0.01;
const SIGMAS: f64 = 3.0;
/// Steps around or before an evaluation whose training loss is compared with it; if a reading is a mean over many steps, only the
/// newest one.
const AROUND: u64 = 50;

fn judge(view: &View<'_>) -> Option<Finding> {
    if lost(view) {
        return None;
    }
    // An evaluation behind a step comes behind the move that follows it, too: those before and behind compare with another reference.
    let alike = view.last_move().unwrap_or(0)..view.next_move().unwrap_or(u64::MAX);
    let found = |e: &&Evaluation| e.val_loss().is_finite() && alike.contains(&e.step);
    let all: Vec<&Evaluation> = view.state.evaluations.iter().filter(found).collect();
    let last = *all.last()?;
    let train = beside(view, last.step)?;
    let gap = last.val_loss() - train;
    // With what it is the difference of: the training loss at that step is not the one that stands for the run now.
    let text = format!(
        "{gap:.3} = {} − {} at {}",
        human::number(last.val_loss()),
        human::number(train),
        human::grouped(last.step)
    );
    let signal = Signal::of(metric::VAL_LOSS, gap, text).at(last.step);
    // Evaluations of a part of the split and of all of it are not comparable.
    let alike: Vec<&Evaluation> = all
        .iter()
        .copied()
        .filter(|e| e.n_windows == last.n_windows && e.whole == last.whole)
        .collect();
    let alike = if alike.len() > PATIENCE {
        alike
    } else {
        largest(&all)
    };
    Some(match rise(view, &alike) {
        Some(signals) => {
            let best = signals[1].step.unwrap_or_default();
            Finding::warn(
                signals,
                "the model memorizes: gains on the training split no longer generalize",
                format!("{}; {}", kept(view, best), regularize(view)),
            )
            .at(format!("after step {}", human::grouped(best)))
        }
        None => Finding::pass(signal),
    })
}

/// The saved checkpoint nearest to the best evaluation; old ones are pruned, the best saved one is kept. One that has lost more than
/// half of what was gained is none to use.
fn kept(view: &View<'_>, best: u64) -> String {
    let evaluations = || view.state.evaluations.iter();
    let loss_at = |step: u64| evaluations().find(|e| e.step == step).map(|e| e.val_loss());
    let newest = evaluations().next_back().map(|e| e.val_loss());
    let is_stale = |step: u64| {
        let lost = loss_at(step).zip(loss_at(best)).map(|(a, b)| a - b);
        let all = newest.zip(loss_at(best)).map(|(a, b)| a - b);
        lost.zip(all).is_some_and(|(lost, all)| 2.0 * lost > all)
    };
    let saved = view.state.checkpoints.iter().rev().find(|mark| mark.best);
    match saved.map(|mark| mark.step) {
        Some(step) if step == best => {
            format!(
                "stop and use the checkpoint of step {}",
                human::grouped(step)
            )
        }
        Some(step) if is_stale(step) => format!(
            "the weights of step {} were not saved: train again« with -s checkpoint.save_best=true, which saves each new best|, and save each new best»",
            human::grouped(best)
        ),
        Some(step) => format!(
            "stop and use the checkpoint of step {}, the best one that was saved« (-s eval.patience=3 saves each new best and stops by itself)|»",
            human::grouped(step)
        ),
        None => "stop«; -s eval.patience=3 saves each new best and stops by itself|»".into(),
    }
}

/// Stronger values of the regularization in use; dropout above 0.3 hurts small models more than it helps. Beside a reference there is
/// to be none: the policy would differ from it before the first update.
fn regularize(view: &View<'_>) -> String {
    if view.has_reference() {
        return "add data, train fewer steps, lower the learning rate, or raise <beta>".into();
    }
    const MOST: f64 = 0.3;
    let head = view.state.head.as_ref();
    let now = head.and_then(|head| head.spec["model"]["dropout"].as_f64());
    let now = now.unwrap_or(0.0);
    match now < MOST - 1e-9 {
        true => format!("add data, or <dropout={:.1}>", (now + 0.1).min(MOST)),
        false => format!("add data, or train fewer steps: dropout is {now} already"),
    }
}

/// The evaluations of the most frequent kind.
pub(super) fn largest<'a>(all: &[&'a Evaluation]) -> Vec<&'a Evaluation> {
    let count = |of: &Evaluation| {
        let same = |e: &&&Evaluation| e.n_windows == of.n_windows && e.whole == of.whole;
        all.iter().filter(same).count()
    };
    let kind = all.iter().copied().max_by_key(|e| count(e));
    let same =
        |e: &&&Evaluation| kind.is_some_and(|k| k.n_windows == e.n_windows && k.whole == e.whole);
    all.iter().filter(same).copied().collect()
}

/// Evaluations that show a rise: the best one, and the newest.
pub(super) struct Risen<'a> {
    pub best: &'a Evaluation,
    pub last: &'a Evaluation,
}

/// Whether the newest `patience` evaluations are all above the best one, beyond their noise.
pub(super) fn risen<'a>(evaluations: &[&'a Evaluation], patience: usize) -> Option<Risen<'a>> {
    let lower = |a: &&&Evaluation, b: &&&Evaluation| a.val_loss().total_cmp(&b.val_loss());
    let best = evaluations.iter().min_by(lower)?;
    let after: Vec<&&Evaluation> = evaluations.iter().filter(|e| e.step > best.step).collect();
    let newest = &after[after.len().checked_sub(patience)?..];
    let least = newest.iter().map(|e| e.val_loss()).reduce(f64::min)?;
    let noise = SIGMAS * spread(evaluations);
    let far = least - best.val_loss() > (SHARE * best.val_loss()).max(NATS).max(noise);
    let last = newest.last()?;
    far.then_some(Risen { best, last })
}

/// Validation loss now and at its best, and training loss at both, if the one rises and the other falls.
fn rise(view: &View<'_>, evaluations: &[&Evaluation]) -> Option<Vec<Signal>> {
    let Risen { best, last } = risen(evaluations, PATIENCE)?;
    // What is read for the first time cannot be memorized.
    // Where the run does not say how often it read them, rows may repeat for a fault of the loader.
    let epochs = view.state.latest(metric::EPOCHS);
    if epochs.is_some_and(|epochs| epochs < 1.0) {
        return None;
    }
    let then = around(view, best.step)?;
    let now = around(view, last.step)?;
    let sigma = view.loss()?.sigma;
    let readings = match has_mean_readings(view) {
        true => 1,
        false => width(best.step),
    };
    if now >= then - 2.0 * sigma * (2.0 / readings as f64).sqrt() {
        return None;
    }
    let number = human::number;
    let at = human::grouped(best.step);
    Some(vec![
        Signal::of(
            metric::VAL_LOSS,
            last.val_loss(),
            format!("val loss {}", number(last.val_loss())),
        )
        .at(last.step),
        Signal::of(
            metric::VAL_LOSS,
            best.val_loss(),
            format!("its best was {} at step {at}", number(best.val_loss())),
        )
        .at(best.step),
        Signal::of(
            metric::TRAIN_LOSS,
            now,
            format!("train loss {} then, {} now", number(then), number(now)),
        )
        .at(last.step),
    ])
}

/// How much neighbouring evaluations differ beyond their trend: half the median of second differences.
fn spread(evaluations: &[&Evaluation]) -> f64 {
    let bends: Vec<f64> = evaluations
        .windows(3)
        .map(|e| (e[2].val_loss() - 2.0 * e[1].val_loss() + e[0].val_loss()).abs() / 2.0)
        .collect();
    // The bend at the minimum of a curve is not noise: few evaluations contain little else.
    stats::median(&bends)
        .filter(|_| bends.len() >= 6)
        .unwrap_or(0.0)
}

/// Training loss at an evaluation, corrected for the decrease in the steps before it.
fn beside(view: &View<'_>, step: u64) -> Option<f64> {
    match has_mean_readings(view) {
        true => view.loss_at(step),
        false => view.loss_by_line(step, AROUND),
    }
}

/// Mean training loss in the steps before an evaluation, to judge a trend over the run.
fn around(view: &View<'_>, step: u64) -> Option<f64> {
    match has_mean_readings(view) {
        true => view.loss_at(step),
        false => view.loss_over(step.saturating_sub(width(step))..step + 1),
    }
}

/// Steps of such a mean: early in a run the loss falls so fast that 50 steps before say nothing of this one.
fn width(step: u64) -> u64 {
    (step / 5).clamp(10, AROUND)
}

/// Whether a reading is a mean over many steps: in a sparse log, and if every reading or every second one coincides with an
/// evaluation, as in a table with one row per epoch.
fn has_mean_readings(view: &View<'_>) -> bool {
    let losses = view.state.series.get(metric::TRAIN_LOSS);
    // Tasks are evaluated apart from it.
    let evaluations = view.state.evaluations.iter();
    let with_loss = evaluations.filter(|e| e.val_loss().is_finite()).count() as u64;
    view.is_sparse() || losses.is_some_and(|losses| 2 * with_loss >= losses.len())
}
