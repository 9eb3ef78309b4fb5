//! A task on which the model is worse than before training.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::base::text::one_line;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;
use crate::wire::Direction;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "task_drop",
        title: "tasks",
        summary: "No task of eval.tasks falls below its score before the first step by more than chance.",
        source: "the alignment tax, Ouyang et al. 2022; two standard errors of a difference, twice in a row, or three once",
    },
    needs: &[],
    judge,
};

/// Standard errors of the difference that a drop must exceed: in each of the last two evaluations, or in the only one.
const TWICE: f64 = 2.0;
const ONCE: f64 = 3.0;

/// Scores of a task by step: step, value, standard error.
type Curve = Vec<(u64, f64, f64)>;

fn judge(view: &View<'_>) -> Option<Finding> {
    let ids = view.state.metrics.iter().filter_map(|info| {
        let name = info.id.strip_prefix(metric::EVAL)?;
        Some((name, info.direction))
    });
    let mut curves = ids.map(|(name, direction)| (name, direction, curve(view, name)));
    let mut seen = None;
    let worst = curves.find_map(|(name, direction, curve)| {
        let [first, .., last] = curve[..] else {
            return None;
        };
        seen.get_or_insert((name, last));
        dropped(&curve, direction).then_some((name, first, last))
    });
    let Some((name, first, last)) = worst else {
        let (name, (step, value, _)) = seen?;
        let words = format!("{} {}", one_line(name), human::number(value));
        let id = format!("{}{name}", metric::EVAL);
        return Some(Finding::pass(Signal::of(&id, value, words).at(step)));
    };
    let id = format!("{}{name}", metric::EVAL);
    let name = one_line(name);
    let said = |word: &str, (step, value, stderr): (u64, f64, f64)| {
        let words = format!(
            "{word} {} ± {}",
            human::number(value),
            human::number(stderr)
        );
        Signal::of(&id, value, words).at(step)
    };
    let signals = vec![said(&format!("{name} is"), last), said("it was", first)];
    let fix = format!(
        "mix rows like those of {name} into data.sources, lower the learning rate, or train an adapter; -s \
         eval.best_by=eval/{name} selects the best checkpoint by it"
    );
    Some(Finding::warn(
        signals,
        "training costs earlier abilities",
        fix,
    ))
}

/// Evaluations that have both the score and its standard error.
fn curve(view: &View<'_>, name: &str) -> Curve {
    let (id, stderr) = (
        format!("{}{name}", metric::EVAL),
        format!("{}{name}", metric::EVAL_STDERR),
    );
    let all = view.state.evaluations.iter();
    all.filter_map(|e| Some((e.step, *e.values.get(&id)?, *e.values.get(&stderr)?)))
        .collect()
}

/// Whether the newest scores are below the first by more than chance.
fn dropped(curve: &[(u64, f64, f64)], direction: Direction) -> bool {
    let Some(((_, start, start_error), later)) = curve.split_first() else {
        return false;
    };
    let sign = match direction {
        Direction::Lower => 1.0,
        _ => -1.0,
    };
    let errors = |(_, value, error): &(u64, f64, f64)| {
        let chance = start_error.hypot(*error);
        // No spread at all, as when every row is right: any change is more than chance.
        sign * (value - start) / chance.max(f64::MIN_POSITIVE)
    };
    match later {
        [] => false,
        [only] => errors(only) > ONCE,
        [.., before, last] => errors(before) > TWICE && errors(last) > TWICE,
    }
}
