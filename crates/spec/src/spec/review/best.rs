//! The best weights of a run that reads its data again are lost where it saves more seldom than it evaluates.

use super::passes::passes;
use super::{Subject, poor};
use crate::base::finding::Finding;
use crate::base::human::grouped;

/// Passes over the data from which on a validation loss may rise for good.
const PASSES: f64 = 2.0;

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let (spec, steps) = (subject.spec, subject.spec.train.max_steps);
    let [evaluated, saved] = [spec.eval.every, spec.checkpoint.every].map(|every| every.steps(steps));
    let is_seldom = evaluated > 0 && evaluated < steps && (saved == 0 || saved > evaluated);
    let passes = passes(subject);
    if spec.keeps_best() || !is_seldom || passes.is_none_or(|passes| passes < PASSES) {
        return Vec::new();
    }
    let saved = match (1..steps).contains(&saved) {
        true => format!("saved every {}", grouped(saved)),
        false => "saved at the end".into(),
    };
    vec![poor(
        "checkpoint.every",
        format!(
            "evaluated every {} steps but {saved}: if the model overfits, its best weights are lost",
            grouped(evaluated)
        ),
        "-s checkpoint.save_best=true saves each new best".into(),
        "early stopping: Prechelt 1998",
    )]
}
