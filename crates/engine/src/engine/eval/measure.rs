//! Validation: random windows during training, the whole split at the end. Evaluation never changes the training stream, and
//! each one uses the same windows, so that the points of a curve are comparable.

use crate::data::{Batch, Dataset};
use crate::engine::EngineError;
use crate::engine::roles::Models;
use crate::methods::{Method, evaluate as measure};
use crate::metrics::Readings;
use std::ops::Range;

/// How much of the validation split is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvalScope {
    /// This many batches of random rows.
    Batches(usize),
    /// So many rows, the first ones of each source.
    Rows(usize),
    /// Every row once, in order.
    Whole,
}

impl EvalScope {
    /// The batches of an evaluation, the same ones each time.
    pub fn batches(
        self,
        data: &Dataset,
        seed: u64,
        batch_size: usize,
    ) -> impl Iterator<Item = Batch> + '_ {
        let rows = match self {
            EvalScope::Batches(_) => Vec::new(),
            EvalScope::Rows(n) => data.first_val_rows(n),
            EvalScope::Whole => (0..data.val_windows() as u64).collect(),
        };
        // None: so many rows by chance.
        let parts: Vec<Option<Range<usize>>> = match self {
            EvalScope::Batches(n) => vec![None; n],
            EvalScope::Rows(_) | EvalScope::Whole => {
                let parts = data.val_batches(rows.len(), batch_size);
                parts.map(Some).collect()
            }
        };
        let parts = parts.into_iter().enumerate();
        parts.map(move |(i, part)| match part {
            None => data.eval_batch(seed, i as u64, batch_size),
            Some(part) => data.val_rows(&rows[part]),
        })
    }
}

/// What an evaluation found.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// The method's loss, a mean over what its normalizer counts.
    pub loss: f64,
    pub readings: Readings,
    /// Examples read: windows, pairs, judged answers.
    pub n_windows: u64,
    pub whole: bool,
}

/// Measures the validation loss and the method's readings; `Ok(None)` when `broken_off` said so in between. The random rows
/// are the same at every evaluation of a run.
///
/// # Errors
/// A batch that the model or the method refuses.
pub fn evaluate(
    method: &dyn Method,
    models: &mut Models,
    data: &Dataset,
    (seed, batch_size): (u64, usize),
    extent: EvalScope,
    broken_off: &mut dyn FnMut() -> bool,
) -> Result<Option<Evaluation>, EngineError> {
    let batches = extent.batches(data, seed, batch_size);
    let (mut total, mut counted, mut n_windows) = (0.0, 0, 0);
    let mut readings = Readings::default();
    for mut batch in batches {
        if broken_off() {
            return Ok(None);
        }
        if method.needs().reference.is_some() {
            models.add_reference(&mut batch)?;
        }
        let out = models.score(&batch)?;
        // Sums, divided at the end by what all batches count.
        total += measure(method, &batch, &out, 1.0, &mut readings)?;
        n_windows += batch.batch_size / batch.unit.sequences();
        counted += method.normalizer().count(std::slice::from_ref(&batch));
    }
    Ok(Some(Evaluation {
        loss: total / counted.max(1) as f64,
        readings,
        n_windows: n_windows as u64,
        whole: n_windows == data.val_windows() && !matches!(extent, EvalScope::Batches(_)),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::TrainState;
    use crate::engine::tests::tiny;

    #[test]
    fn the_whole_split_is_every_window_once_and_batches_repeat() {
        let (spec, data) = tiny(&[]);
        let mut models = TrainState::fresh(&spec, &data).unwrap().models;
        let mut measure = |batch_size, extent| {
            evaluate(
                &*spec.method,
                &mut models,
                &data,
                (7, batch_size),
                extent,
                &mut || false,
            )
            .unwrap()
            .unwrap()
        };
        let whole = measure(4, EvalScope::Whole);
        assert_eq!(whole.n_windows as usize, data.val_windows());
        let other = measure(7, EvalScope::Whole);
        assert_eq!(
            other.n_windows, whole.n_windows,
            "a last, smaller batch is read"
        );
        assert!((other.loss - whole.loss).abs() < 1e-6);
        let some = measure(4, EvalScope::Batches(3));
        assert_eq!((some.n_windows, some.whole), (12, false));
        assert_eq!(some, measure(4, EvalScope::Batches(3)));
        let first = measure(4, EvalScope::Rows(10));
        assert_eq!(
            (first.n_windows, first.whole),
            (10, false),
            "the last batch is cut"
        );
        assert_eq!(
            measure(4, EvalScope::Rows(usize::MAX)),
            whole,
            "a limit above all rows is none"
        );
    }

    #[test]
    fn an_evaluation_can_be_broken_off() {
        let (spec, data) = tiny(&[]);
        let mut models = TrainState::fresh(&spec, &data).unwrap().models;
        let mut asked = 0;
        let found = evaluate(
            &*spec.method,
            &mut models,
            &data,
            (7, 4),
            EvalScope::Whole,
            &mut || {
                asked += 1;
                asked > 2
            },
        );
        assert_eq!(found.unwrap(), None);
    }
}
