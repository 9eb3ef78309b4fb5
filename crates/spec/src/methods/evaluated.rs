//! The readings that evaluations of a run have, as far as its method and settings determine them, with their direction.

use super::MethodConfig;
use super::policy::pass_at;
use crate::metrics::{Direction, id, validation_id};

/// Ids of the readings by which a method's evaluations can be ranked. `ks`: of which pass@k is measured, none where no
/// reward is a verifier; `extra`: names of further validation sets.
pub fn evaluated<'a>(
    method: &MethodConfig,
    ks: Option<&[usize]>,
    extra: impl Iterator<Item = &'a str>,
) -> Vec<String> {
    if method.on_policy().is_some() {
        let Some(ks) = ks else {
            return vec![id::EVAL_REWARD.to_string()];
        };
        let of_answers = [id::PASS_AT_1, id::EVAL_REWARD]
            .map(String::from)
            .into_iter();
        let more = ks.iter().filter(|k| **k > 1).map(|k| pass_at(*k));
        return of_answers.chain(more).collect();
    }
    let mut all = vec![id::VAL_LOSS.to_string()];
    if method.is_likelihood() {
        all.extend([id::VAL_PPL, id::VAL_BPB].map(String::from));
    }
    let own = method.readings().iter();
    let own = own.filter(|metric| metric.direction != Direction::Neutral);
    all.extend(own.map(|metric| validation_id(metric.id)));
    all.extend(extra.map(id::of_extra_set));
    all
}
