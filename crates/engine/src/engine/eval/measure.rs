//! Validation: random windows during training, the whole split at the end. Evaluation never touches the training stream,
//! and each one looks at the same windows, so that the curve compares like with like.

use crate::data::Dataset;
use crate::engine::EngineError;
use crate::engine::roles::Models;
use crate::methods::{Method, evaluate as measure};
use crate::metrics::Readings;
use std::ops::Range;

/// How much of the validation split is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// This many batches of random rows.
    Batches(usize),
    /// So many rows from the first on.
    Rows(usize),
    /// Every row once, in order.
    Whole,
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
    extent: Extent,
    broken_off: &mut dyn FnMut() -> bool,
) -> Result<Option<Evaluation>, EngineError> {
    let rows = match extent {
        Extent::Rows(n) => n.min(data.val_windows()),
        _ => data.val_windows(),
    };
    // None: so many rows by chance.
    let parts: Vec<Option<Range<usize>>> = match extent {
        Extent::Batches(n) => vec![None; n],
        Extent::Rows(_) | Extent::Whole => data.val_batches(rows, batch_size).map(Some).collect(),
    };
    let (mut total, mut counted, mut n_windows) = (0.0, 0, 0);
    let mut readings = Readings::default();
    for (i, part) in parts.into_iter().enumerate() {
        if broken_off() {
            return Ok(None);
        }
        let mut batch = match part {
            None => data.eval_batch(seed, i as u64, batch_size),
            Some(rows) => data.val_batch(rows.start, rows.len()),
        };
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
        whole: n_windows == data.val_windows() && !matches!(extent, Extent::Batches(_)),
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
        let whole = measure(4, Extent::Whole);
        assert_eq!(whole.n_windows as usize, data.val_windows());
        let other = measure(7, Extent::Whole);
        assert_eq!(
            other.n_windows, whole.n_windows,
            "a last, smaller batch is read"
        );
        assert!((other.loss - whole.loss).abs() < 1e-6);
        let some = measure(4, Extent::Batches(3));
        assert_eq!((some.n_windows, some.whole), (12, false));
        assert_eq!(some, measure(4, Extent::Batches(3)));
        let first = measure(4, Extent::Rows(10));
        assert_eq!(
            (first.n_windows, first.whole),
            (10, false),
            "the last batch is cut"
        );
        assert_eq!(
            measure(4, Extent::Rows(usize::MAX)),
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
            Extent::Whole,
            &mut || {
                asked += 1;
                asked > 2
            },
        );
        assert_eq!(found.unwrap(), None);
    }
}
