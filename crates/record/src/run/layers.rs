//! A metric with one value per block, over steps: rows for a heat map. Memory is bounded: a full map merges its rows
//! pairwise, so that each then represents 2, 4, 8 … probes.

/// Values that span more than this factor are shown by their logarithm.
pub const DECADES: f32 = 30.0;

/// Rows before a pairwise merge.
pub const MAX_ROWS: usize = 512;

/// What was seen at one look, or the mean of several.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerRow {
    /// The newest step that it stands for.
    pub step: u64,
    /// One for each block; NaN where nothing finite was seen.
    pub values: Vec<f32>,
    looks: u32,
}

/// All looks, oldest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LayerMap {
    rows: Vec<LayerRow>,
    /// Looks that a full row stands for.
    span: u32,
}

impl LayerMap {
    /// Appends a look. A step before the last one means a rollback: later rows are dropped.
    pub fn push(&mut self, step: u64, values: Vec<f32>) {
        if self.rows.last().is_some_and(|last| step < last.step) {
            self.truncate_after(step);
        }
        // Another number of blocks is another model.
        if self
            .rows
            .last()
            .is_some_and(|last| last.values.len() != values.len())
        {
            self.rows.clear();
        }
        self.span = self.span.max(1);
        let row = LayerRow {
            step,
            values,
            looks: 1,
        };
        match self.rows.last_mut() {
            Some(last) if last.looks < self.span => *last = merged(last, &row),
            _ => self.rows.push(row),
        }
        if self.rows.len() > MAX_ROWS {
            self.span *= 2;
            let pairs = self.rows.chunks(2);
            self.rows = pairs
                .map(|pair| pair[1..].iter().fold(pair[0].clone(), |a, b| merged(&a, b)))
                .collect();
        }
    }

    /// Drops everything after `step`; a merged row that reaches beyond it goes whole.
    pub fn truncate_after(&mut self, step: u64) {
        self.rows.retain(|row| row.step <= step);
    }

    pub fn rows(&self) -> &[LayerRow] {
        &self.rows
    }

    pub fn last(&self) -> Option<&LayerRow> {
        self.rows.last()
    }

    /// Blocks.
    pub fn n_layer(&self) -> usize {
        self.rows.last().map_or(0, |row| row.values.len())
    }
}

fn merged(a: &LayerRow, b: &LayerRow) -> LayerRow {
    let (wa, wb) = (a.looks as f32, b.looks as f32);
    let mean = |(a, b): (&f32, &f32)| match (a.is_finite(), b.is_finite()) {
        (true, true) => (a * wa + b * wb) / (wa + wb),
        (true, false) => *a,
        _ => *b,
    };
    LayerRow {
        step: b.step,
        values: a.values.iter().zip(&b.values).map(mean).collect(),
        looks: a.looks + b.looks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_keeps_few_rows_whose_means_hold_every_look() {
        let mut map = LayerMap::default();
        let n = 5000;
        (1..=n).for_each(|step| map.push(step, vec![step as f32, f32::NAN]));
        assert!(map.rows().len() <= MAX_ROWS && map.rows().len() > MAX_ROWS / 4);
        assert_eq!((map.last().unwrap().step, map.n_layer()), (n, 2));
        let looks: u32 = map.rows().iter().map(|row| row.looks).sum();
        let sum: f64 = map
            .rows()
            .iter()
            .map(|row| f64::from(row.looks) * f64::from(row.values[0]))
            .sum();
        assert_eq!(u64::from(looks), n);
        assert!((sum / (n * (n + 1) / 2) as f64 - 1.0).abs() < 1e-5, "{sum}");
        assert!(map.rows().iter().all(|row| row.values[1].is_nan()));
    }

    #[test]
    fn a_rollback_drops_later_rows_and_another_model_begins_anew() {
        let mut map = LayerMap::default();
        (1..=9).for_each(|step| map.push(10 * step, vec![1.0]));
        map.push(45, vec![2.0]);
        let steps: Vec<u64> = map.rows().iter().map(|row| row.step).collect();
        assert_eq!(steps, [10, 20, 30, 40, 45]);
        map.push(50, vec![1.0, 2.0]);
        assert_eq!((map.rows().len(), map.n_layer()), (1, 2));
    }
}
