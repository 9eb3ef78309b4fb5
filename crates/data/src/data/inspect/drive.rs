//! Passes rows through an inspector: measured on all threads, checked in their order.

use super::{Faults, Inspector, Row};
use crate::data::{Example, Place, RowFault};
use rayon::prelude::*;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Rows, or characters of them, measured at a time.
const BATCH_ROWS: usize = 512;
const BATCH_CHARACTERS: usize = 4 << 20;

/// How far an inspection is.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Progress {
    pub rows: u64,
    /// 0 to 1, where the end is known.
    pub share: Option<f64>,
}

/// A row on its way in.
pub type Fed = Result<(Place, Arc<str>, Example), RowFault>;

/// Feeds every row; `judged` gets each one with its attached data. Stops when `progress` says so.
pub fn drive<T: Send>(
    inspector: &mut Inspector,
    rows: &mut dyn Iterator<Item = (Fed, T)>,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    judged: &mut dyn FnMut(T, &Faults) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let measure = inspector.measure();
    loop {
        let mut batch: Vec<(Fed, T)> = Vec::with_capacity(BATCH_ROWS);
        let mut characters = 0;
        while batch.len() < BATCH_ROWS && characters < BATCH_CHARACTERS {
            let Some(row) = rows.next() else { break };
            characters += row.0.as_ref().map_or(0, |(_, _, example)| size(example));
            batch.push(row);
        }
        if batch.is_empty() {
            return ControlFlow::Continue(());
        }
        let measured: Vec<(Result<Row, RowFault>, T)> = batch
            .into_par_iter()
            .map(|(fed, with)| {
                let row = fed.map(|(place, source, example)| measure.row(place, source, example));
                (row, with)
            })
            .collect();
        for (row, with) in measured {
            let faults = inspector.observe(row);
            judged(with, &faults)?;
        }
        progress(inspector.rows())?;
    }
}

fn size(example: &Example) -> usize {
    super::parts(example)
        .iter()
        .map(|part| part.text.len())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::super::Options;
    use super::*;
    use crate::data::Content;

    #[test]
    fn rows_are_judged_in_their_order_and_the_work_can_be_given_up() {
        let mut rows = (0..2000_u64).map(|i| {
            let place = Place {
                file: "a".into(),
                row: i + 1,
            };
            let text = if i % 10 == 0 { "" } else { "words" };
            let example = Example::new(Content::Text(text.into()));
            (Ok((place, "a".into(), example)), i)
        });
        let mut inspector = Inspector::new(
            Options {
                only: vec!["empty"],
                ..Options::default()
            },
            None,
        );
        let (mut order, mut empty) = (Vec::new(), 0);
        let mut judged = |i: u64, faults: &Faults| {
            order.push(i);
            empty += faults.list.len();
            ControlFlow::Continue(())
        };
        let mut progress = |rows| match rows {
            rows if rows >= 1024 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        let flow = drive(&mut inspector, &mut rows, &mut progress, &mut judged);
        assert!(flow.is_break());
        assert_eq!(order, (0..1024).collect::<Vec<_>>());
        assert_eq!((empty, inspector.rows()), (103, 1024));
    }
}
