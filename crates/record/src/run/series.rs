//! One metric over steps, structured for drawing: append-only leaves under a min/max pyramid, so that any range reduces to W
//! columns in O(W log n). No styles or axes: those belong to the chart.
//!
//! Memory is bounded: a full series ([`MAX_LEAVES`]) merges its leaves pairwise, so that each then represents 2, 4, 8 …
//! points, and keeps the newest [`RECENT`] points exactly. 10 million points take less than 4 MB.

use std::collections::VecDeque;

/// Leaves before a pairwise merge: 80 times the columns of a wide screen's braille dots.
pub const MAX_LEAVES: usize = 1 << 16;
/// Newest points stored individually, so that zooming to the end stays exact after merges.
pub const RECENT: usize = 1 << 13;
/// Children of a pyramid node.
const FAN: usize = 8;

/// One reading of the metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Completed optimizer steps at the time.
    pub step: u64,
    pub value: f64,
}

/// Aggregate over a range of steps: extremes, sum and counts. Non-finite values are counted, never averaged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    pub first: u64,
    pub last: u64,
    /// +∞ if there is no finite value.
    pub min: f64,
    /// −∞ if there is no finite value.
    pub max: f64,
    /// Over the finite values.
    pub sum: f64,
    /// Finite values.
    pub n: u32,
    /// NaN and ±∞ values.
    pub non_finite: u32,
}

impl Bucket {
    fn of(point: Point) -> Self {
        let finite = point.value.is_finite();
        Bucket {
            first: point.step,
            last: point.step,
            min: if finite { point.value } else { f64::INFINITY },
            max: if finite {
                point.value
            } else {
                f64::NEG_INFINITY
            },
            sum: if finite { point.value } else { 0.0 },
            n: u32::from(finite),
            non_finite: u32::from(!finite),
        }
    }

    /// Merges a later bucket into this one.
    fn absorb(&mut self, later: &Bucket) {
        self.last = later.last;
        self.min = self.min.min(later.min);
        self.max = self.max.max(later.max);
        self.sum += later.sum;
        self.n = self.n.saturating_add(later.n);
        self.non_finite = self.non_finite.saturating_add(later.non_finite);
    }

    /// The single point, or the mean of several.
    fn as_point(&self) -> Point {
        Point {
            step: self.last,
            value: self.mean().unwrap_or(f64::NAN),
        }
    }

    /// Mean of the finite values.
    pub fn mean(&self) -> Option<f64> {
        (self.n > 0).then(|| self.sum / f64::from(self.n))
    }
}

/// A metric's history. Steps never decrease; several points may share one.
#[derive(Debug, Clone, Default)]
pub struct Series {
    /// `levels[0]` are the leaves; node `i` of level `k` covers the leaves `i·8^k ..` of it.
    levels: Vec<Vec<Bucket>>,
    /// Points per full leaf: a power of two.
    span: u32,
    /// Points already inside the last leaf.
    filled: u32,
    recent: VecDeque<Point>,
    count: u64,
    non_finite: u64,
}

impl Series {
    pub fn new() -> Self {
        Self::default()
    }

    /// Points received and not rolled back.
    pub fn len(&self) -> u64 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Non-finite ones among them.
    pub fn non_finite(&self) -> u64 {
        self.non_finite
    }

    /// Where the first non-finite point is: its step twice, or the first and the last step of the merged points that hold it.
    pub fn first_non_finite(&self) -> Option<(u64, u64)> {
        let leaf = self.leaves().iter().find(|leaf| leaf.non_finite > 0)?;
        Some((leaf.first, leaf.last))
    }

    /// The newest point, finite or not; after a rollback past the exact ones, the mean of the newest leaf.
    pub fn last(&self) -> Option<Point> {
        let exact = self.recent.back().copied();
        exact.or_else(|| self.leaves().last().map(Bucket::as_point))
    }

    /// The newest points, oldest first; at most [`RECENT`].
    pub fn recent(&self) -> impl DoubleEndedIterator<Item = Point> + ExactSizeIterator + '_ {
        self.recent.iter().copied()
    }

    /// Smallest and largest step.
    pub fn steps(&self) -> Option<(u64, u64)> {
        let leaves = self.leaves();
        Some((leaves.first()?.first, leaves.last()?.last))
    }

    /// Appends a reading. A step before the last one means a rollback: later points are dropped.
    pub fn push(&mut self, step: u64, value: f64) {
        if self.last().is_some_and(|last| step < last.step) {
            self.truncate_after(step);
        }
        let point = Point { step, value };
        self.count += 1;
        self.non_finite += u64::from(!value.is_finite());
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(point);
        self.push_leaf(Bucket::of(point));
    }

    fn push_leaf(&mut self, bucket: Bucket) {
        self.span = self.span.max(1);
        if self.filled > 0 && self.filled < self.span {
            self.filled += 1;
            for level in &mut self.levels {
                if let Some(node) = level.last_mut() {
                    node.absorb(&bucket);
                }
            }
            return;
        }
        if self.leaves().len() >= MAX_LEAVES {
            self.merge_pairs();
        }
        self.filled = 1;
        if self.levels.is_empty() {
            self.levels.push(Vec::new());
        }
        self.levels[0].push(bucket);
        self.raise(bucket);
    }

    /// Adds the newest leaf to each level above.
    fn raise(&mut self, bucket: Bucket) {
        let mut below = self.levels[0].len();
        let mut level = 1;
        while below > FAN || level < self.levels.len() {
            let index = (below - 1) / FAN;
            if level == self.levels.len() {
                let nodes = self.levels[level - 1].chunks(FAN).map(fold).collect();
                self.levels.push(nodes);
            } else if index == self.levels[level].len() {
                self.levels[level].push(bucket);
            } else {
                self.levels[level][index].absorb(&bucket);
            }
            below = self.levels[level].len();
            level += 1;
        }
    }

    fn merge_pairs(&mut self) {
        let leaves: Vec<Bucket> = self.levels[0].chunks(2).map(fold).collect();
        self.span = self.span.saturating_mul(2);
        self.rebuild(leaves);
    }

    fn rebuild(&mut self, leaves: Vec<Bucket>) {
        self.levels = vec![leaves];
        while let Some(top) = self.levels.last().filter(|top| top.len() > FAN) {
            let nodes = top.chunks(FAN).map(fold).collect();
            self.levels.push(nodes);
        }
    }

    fn leaves(&self) -> &[Bucket] {
        self.levels.first().map_or(&[], Vec::as_slice)
    }

    /// Drops everything after `step`. A merged leaf that straddles it is dropped whole: rolled-back values are never
    /// shown, at the cost of a short gap in a run of more than [`MAX_LEAVES`] points.
    pub fn truncate_after(&mut self, step: u64) {
        let keep = self.leaves().partition_point(|leaf| leaf.last <= step);
        if keep == self.leaves().len() {
            return;
        }
        let mut leaves = std::mem::take(&mut self.levels).swap_remove(0);
        leaves.truncate(keep);
        if self.span == 1 {
            let newest = leaves.iter().skip(leaves.len().saturating_sub(RECENT));
            self.recent = newest.map(|leaf| leaf.as_point()).collect();
        } else {
            let exact = self.recent.partition_point(|point| point.step <= step);
            self.recent.truncate(exact);
        }
        self.count = leaves.iter().map(|b| u64::from(b.n + b.non_finite)).sum();
        self.non_finite = leaves.iter().map(|b| u64::from(b.non_finite)).sum();
        self.filled = self.span;
        self.rebuild(leaves);
    }

    /// The buckets of `n_columns` equal parts of the steps `from..to` (`to` excluded); `None` for empty ones. A point
    /// belongs to the column of its step, a merged leaf to that of its first step.
    pub fn columns(&self, from: f64, to: f64, n_columns: usize) -> Vec<Option<Bucket>> {
        let width = (to - from) / n_columns.max(1) as f64;
        if !width.is_finite() || width <= 0.0 {
            return vec![None; n_columns];
        }
        let edge = |column: usize| from + width * column as f64;
        let exact = self.exact_from(from);
        let mut start =
            exact.unwrap_or_else(|| self.leaves().partition_point(|b| (b.first as f64) < from));
        (0..n_columns)
            .map(|column| {
                let limit = edge(column + 1);
                let end = match exact {
                    Some(_) => self.recent.partition_point(|p| (p.step as f64) < limit),
                    None => self.leaves().partition_point(|b| (b.first as f64) < limit),
                };
                let range = start..end.max(start);
                start = range.end;
                match exact {
                    Some(_) => self
                        .recent
                        .range(range)
                        .map(|p| Bucket::of(*p))
                        .reduce(join),
                    None => self.range(range),
                }
            })
            .collect()
    }

    /// Index into `recent` if leaves are merged and the newest points cover everything from `from` on.
    fn exact_from(&self, from: f64) -> Option<usize> {
        let covered = self.span > 1 && self.recent.front().is_some_and(|p| (p.step as f64) < from);
        covered.then(|| self.recent.partition_point(|p| (p.step as f64) < from))
    }

    /// Reduces a range of leaves with as few nodes as possible.
    fn range(&self, range: std::ops::Range<usize>) -> Option<Bucket> {
        let (mut at, mut total) = (range.start, None::<Bucket>);
        while at < range.end {
            let (mut level, mut size) = (0, 1);
            while level + 1 < self.levels.len()
                && at % (size * FAN) == 0
                && at + size * FAN <= range.end
            {
                level += 1;
                size *= FAN;
            }
            let node = self.levels[level][at / size];
            total = Some(total.map_or(node, |t| join(t, node)));
            at += size;
        }
        total
    }

    /// The bucket nearest to `step`, for the cursor. Exact for the newest [`RECENT`] points and for all points of a
    /// series that was never merged.
    pub fn nearest(&self, step: u64) -> Option<Bucket> {
        if self.recent.front().is_some_and(|p| p.step <= step) {
            let i = self.recent.partition_point(|p| p.step < step);
            let near = closest(
                self.recent
                    .range(i.saturating_sub(1)..)
                    .take(2)
                    .map(|p| Bucket::of(*p)),
                step,
            );
            return near;
        }
        let i = self.leaves().partition_point(|b| b.last < step);
        closest(
            self.leaves()[i.saturating_sub(1)..].iter().take(2).copied(),
            step,
        )
    }

    /// The step of what [`Series::nearest`] finds, where that was not measured at `step` itself.
    pub fn elsewhere(&self, step: u64) -> Option<u64> {
        let bucket = self.nearest(step)?;
        match step {
            _ if step < bucket.first => Some(bucket.first),
            _ if step > bucket.last => Some(bucket.last),
            _ => None,
        }
    }

    /// Smallest and largest finite value over the steps `from..to`.
    pub fn extent(&self, from: f64, to: f64) -> Option<(f64, f64)> {
        let bucket = self.columns(from, to, 1).pop().flatten()?;
        (bucket.n > 0).then_some((bucket.min, bucket.max))
    }
}

fn join(mut a: Bucket, b: Bucket) -> Bucket {
    a.absorb(&b);
    a
}

/// Reduces a non-empty chunk.
fn fold(chunk: &[Bucket]) -> Bucket {
    chunk[1..].iter().fold(chunk[0], |a, b| join(a, *b))
}

fn closest(buckets: impl Iterator<Item = Bucket>, step: u64) -> Option<Bucket> {
    buckets.min_by_key(|b| {
        b.first
            .saturating_sub(step)
            .max(step.saturating_sub(b.last))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn series(points: impl IntoIterator<Item = (u64, f64)>) -> Series {
        let mut series = Series::new();
        for (step, value) in points {
            series.push(step, value);
        }
        series
    }

    /// The slow truth: one pass over all points.
    fn brute(points: &[(u64, f64)], from: f64, to: f64, n: usize) -> Vec<Option<Bucket>> {
        let width = (to - from) / n as f64;
        (0..n)
            .map(|c| {
                let (a, b) = (from + width * c as f64, from + width * (c + 1) as f64);
                points
                    .iter()
                    .filter(|p| p.0 as f64 >= a && (p.0 as f64) < b)
                    .map(|p| {
                        Bucket::of(Point {
                            step: p.0,
                            value: p.1,
                        })
                    })
                    .reduce(join)
            })
            .collect()
    }

    fn same(a: &[Option<Bucket>], b: &[Option<Bucket>]) -> bool {
        a.iter().zip(b).all(|(a, b)| match (a, b) {
            (None, None) => true,
            (Some(a), Some(b)) => {
                (a.first, a.last, a.n, a.non_finite, a.min, a.max)
                    == (b.first, b.last, b.n, b.non_finite, b.min, b.max)
                    && (a.sum - b.sum).abs() <= 1e-9 * (1.0 + a.sum.abs() + f64::from(a.n) * 1e3)
            }
            _ => false,
        })
    }

    fn value() -> impl Strategy<Value = f64> {
        prop_oneof![8 => -1e3..1e3f64, 1 => Just(f64::NAN), 1 => Just(f64::INFINITY)]
    }

    proptest! {
        #[test]
        fn columns_equal_brute_force(
            raw in prop::collection::vec((0u64..4, value()), 0..700),
            from in -5.0..900.0f64, span in 0.5..1500.0f64, n in 1usize..150,
            cut in prop::option::of(0u64..1500),
        ) {
            let mut step = 0;
            let mut points: Vec<(u64, f64)> = raw.into_iter().map(|(d, v)| { step += d; (step, v) }).collect();
            let mut s = series(points.iter().copied());
            if let Some(cut) = cut {
                s.truncate_after(cut);
                points.retain(|p| p.0 <= cut);
                s.push(cut + 3, 7.0);
                points.push((cut + 3, 7.0));
            }
            prop_assert_eq!(s.len(), points.len() as u64);
            let got = s.columns(from, from + span, n);
            prop_assert!(same(&got, &brute(&points, from, from + span, n)), "{:?}", got);
        }
    }

    #[test]
    fn ten_million_points_stay_small_and_keep_their_extremes() {
        let n = 10_000_000u64;
        let s = series((1..=n).map(|i| (i, if i == 4_321_987 { 99.0 } else { (i % 7) as f64 })));
        assert_eq!(s.len(), n);
        let nodes: usize = s.levels.iter().map(Vec::len).sum();
        assert!(
            nodes * size_of::<Bucket>() + RECENT * size_of::<Point>() < 4_500_000,
            "{nodes}"
        );
        let columns = s.columns(1.0, n as f64 + 1.0, 400);
        assert_eq!(
            columns
                .iter()
                .flatten()
                .map(|b| u64::from(b.n))
                .sum::<u64>(),
            n
        );
        assert_eq!(
            columns.iter().flatten().filter(|b| b.max == 99.0).count(),
            1
        );
        assert!(columns.iter().all(Option::is_some));
        // The end is exact although a leaf now stands for 256 points.
        let tail = s.columns((n - 99) as f64, (n + 1) as f64, 100);
        assert!(tail.iter().all(|b| b.is_some_and(|b| b.n == 1)));
        assert_eq!(s.nearest(n - 5).unwrap().max, ((n - 5) % 7) as f64);
    }

    #[test]
    fn a_rollback_into_merged_leaves_shows_nothing_of_what_was_undone() {
        let n = (MAX_LEAVES + 10) as u64;
        let mut s = series((1..=n).map(|i| (i, i as f64)));
        s.truncate_after(1001);
        assert_eq!(
            s.extent(0.0, 1e9).unwrap().1,
            1000.0,
            "the straddling leaf (1001, 1002) goes"
        );
        s.push(1002, 5.0);
        assert_eq!(s.last().unwrap().step, 1002);
        assert_eq!(s.steps(), Some((1, 1002)));
    }

    #[test]
    fn an_earlier_step_means_that_the_state_went_back() {
        let mut s = series([(1, 1.0), (2, 2.0), (3, 30.0), (4, 4.0)]);
        s.push(2, 2.5);
        assert_eq!(s.steps(), Some((1, 2)));
        assert_eq!((s.len(), s.extent(0.0, 10.0)), (3, Some((1.0, 2.5))));
    }

    #[test]
    fn non_finite_values_are_counted_and_do_not_bend_the_extremes() {
        let s = series([(1, 1.0), (2, f64::NAN), (3, f64::NEG_INFINITY), (4, 2.0)]);
        assert_eq!((s.len(), s.non_finite()), (4, 2));
        assert_eq!(s.first_non_finite(), Some((2, 2)));
        assert_eq!(series([(1, 1.0)]).first_non_finite(), None);
        let columns = s.columns(1.0, 5.0, 4);
        assert_eq!(columns[1].unwrap().mean(), None);
        assert_eq!(columns[2].unwrap().non_finite, 1);
        assert_eq!(s.extent(0.0, 9.0), Some((1.0, 2.0)));
        assert!(s.nearest(2).unwrap().n == 0, "a cursor reads the NaN");
    }

    #[test]
    fn empty_and_degenerate_ranges_are_quiet() {
        let s = Series::new();
        assert_eq!(s.columns(0.0, 10.0, 3), vec![None; 3]);
        assert_eq!(
            (s.nearest(4), s.extent(0.0, 1.0), s.steps()),
            (None, None, None)
        );
        let s = series([(5, 1.0)]);
        assert_eq!(s.columns(5.0, 5.0, 2), vec![None; 2]);
        assert_eq!(s.columns(f64::NAN, 9.0, 1), vec![None]);
        assert!(s.columns(0.0, 9.0, 0).is_empty());
    }
}
