//! Distribution of row lengths: exact up to 4,096, to one part in 2,048 above, in constant memory.

use serde::Serialize;
use std::collections::BTreeMap;

/// Below this every length has a bin of its own.
const EXACT: u64 = 4096;

/// Counts by length.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lengths {
    counts: BTreeMap<u64, u64>,
    rows: u64,
    total: u64,
    max: u64,
}

/// One bar of a histogram: rows of `from` to `to` (`None`: and longer).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Bin {
    pub from: u64,
    pub to: Option<u64>,
    pub rows: u64,
}

impl Lengths {
    pub fn add(&mut self, length: u64) {
        *self.counts.entry(binned(length)).or_default() += 1;
        self.rows += 1;
        self.total += length;
        self.max = self.max.max(length);
    }

    pub fn rows(&self) -> u64 {
        self.rows
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn max(&self) -> u64 {
        self.max
    }

    pub fn mean(&self) -> f64 {
        self.total as f64 / self.rows.max(1) as f64
    }

    /// The smallest length that at least the share `q` of the rows does not exceed.
    pub fn quantile(&self, q: f64) -> u64 {
        let wanted = (q * self.rows as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (length, rows) in &self.counts {
            seen += rows;
            if seen >= wanted {
                return *length;
            }
        }
        self.max
    }

    /// Rows longer than `limit`.
    pub fn over(&self, limit: u64) -> u64 {
        let range = self.counts.range(limit.saturating_add(1)..);
        range.map(|(_, rows)| rows).sum()
    }

    /// Rows that lose tokens with such a `seq_len`: of seq_len + 1 tokens the last one is only a target.
    pub fn over_row(&self, seq_len: u64) -> u64 {
        self.over(seq_len.saturating_add(1))
    }

    /// At most `n` bins of a round width; where few rows are very long, the last bin takes all of them.
    pub fn bins(&self, n: usize) -> Vec<Bin> {
        if self.rows == 0 || n == 0 {
            return Vec::new();
        }
        let p99 = self.quantile(0.99);
        let top = if self.max > p99.saturating_mul(2) {
            p99
        } else {
            self.max
        };
        let width = round_width(top / n as u64 + 1);
        let last = (top / width).min(n as u64 - 1);
        let mut bins: Vec<Bin> = (0..=last)
            .map(|i| Bin {
                from: i * width,
                to: Some((i + 1) * width - 1),
                rows: 0,
            })
            .collect();
        for (length, rows) in &self.counts {
            let at = (length / width).min(last) as usize;
            bins[at].rows += rows;
        }
        if let Some(bin) = bins.last_mut()
            && self.max / width > last
        {
            bin.to = None;
        }
        bins
    }
}

fn binned(length: u64) -> u64 {
    if length < EXACT {
        return length;
    }
    let drop = u64::BITS - length.leading_zeros() - EXACT.trailing_zeros();
    length >> drop << drop
}

/// The next of 1, 2, 5, 10, 20, 50 …
fn round_width(width: u64) -> u64 {
    let mut unit = 1_u64;
    loop {
        for step in [1, 2, 5] {
            if unit.saturating_mul(step) >= width {
                return unit.saturating_mul(step);
            }
        }
        unit = unit.saturating_mul(10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(values: impl IntoIterator<Item = u64>) -> Lengths {
        let mut lengths = Lengths::default();
        values.into_iter().for_each(|v| lengths.add(v));
        lengths
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_rows() {
        let lengths = lengths((1..=100).rev());
        assert_eq!(
            [0.5, 0.95, 0.99, 1.0].map(|q| lengths.quantile(q)),
            [50, 95, 99, 100]
        );
        assert_eq!((lengths.over(95), lengths.over(100)), (5, 0));
        assert_eq!(lengths.over_row(95), 4);
        assert!((lengths.mean() - 50.5).abs() < 1e-9);
    }

    #[test]
    fn great_lengths_keep_their_first_digits_and_little_memory() {
        let lengths = lengths((0..100_000).map(|i| i * 37));
        assert!(lengths.counts.len() < 25_000, "{}", lengths.counts.len());
        let p50 = lengths.quantile(0.5) as f64;
        assert!((p50 / 1_850_000.0 - 1.0).abs() < 1e-3, "{p50}");
        assert_eq!(binned(4095), 4095);
        assert_eq!(binned(8193), 8192);
    }

    #[test]
    fn bins_are_round_and_hold_every_row() {
        let even = lengths(0..95);
        let bins = even.bins(10);
        assert_eq!((bins.len(), bins[0].to), (10, Some(9)));
        assert_eq!(bins.iter().map(|b| b.rows).sum::<u64>(), 95);
        // One very long row does not squeeze the others into one bar.
        let tail = lengths((0..500).map(|i| i % 50).chain([100_000]));
        let bins = tail.bins(10);
        assert_eq!(bins.last().map(|b| (b.from, b.to)), Some((45, None)));
        assert_eq!(bins.iter().map(|b| b.rows).sum::<u64>(), 501);
        assert!(lengths([]).bins(10).is_empty());
        assert_eq!(lengths([7]).bins(4).len(), 4);
    }
}
