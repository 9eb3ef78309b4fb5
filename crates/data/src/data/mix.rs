//! Which source the next row comes from. Shares follow the weights as evenly as whole rows allow, at every moment: the
//! fractions of i·φ fill the unit interval evenly (Weyl 1916), and each source owns a part of it as large as its share. The
//! count of earlier rows of a source is a sum of floors, which Euclid's algorithm computes directly, so any row's index is
//! known at once.

/// Fractions are counted in parts of this.
const ONE: u128 = 1 << 32;
/// 2³² / φ, odd: every part is met once in 2³² rows.
const STRIDE: u128 = 0x9E37_79B9;

/// A part of the run with its own shares.
#[derive(Debug, Clone, PartialEq)]
struct Stage {
    /// Its first row; the next stage's is its end.
    from: u64,
    /// Where each source's part of the unit interval ends.
    ends: Vec<u64>,
}

/// Shares of rows over a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mixture {
    stages: Vec<Stage>,
}

/// A stretch of the run as the spec says it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wanted {
    /// Tokens of the run at which it ends; none: with the run.
    pub until_tokens: Option<u64>,
    /// Relative shares of tokens, one for each source; not all zero.
    pub weights: Vec<f64>,
}

impl Mixture {
    /// `row_tokens` are the mean tokens of a row (or whatever else is drawn) of each source: shares are meant in tokens, and
    /// a source of short rows gives more of them.
    pub fn new(stages: &[Wanted], row_tokens: &[f64]) -> Mixture {
        let (mut from, mut tokens) = (0, 0);
        let mut built = Vec::new();
        for stage in stages {
            let shares = row_shares(&stage.weights, row_tokens);
            built.push(Stage {
                from,
                ends: ends(&shares),
            });
            let Some(until) = stage.until_tokens else {
                break;
            };
            let mean: f64 = shares.iter().zip(row_tokens).map(|(p, n)| p * n).sum();
            from += ((until.saturating_sub(tokens)) as f64 / mean.max(1.0)).ceil() as u64;
            tokens = until.max(tokens);
        }
        Mixture { stages: built }
    }

    /// The source of row number `row`, and how many rows of that source came before it.
    pub fn pick(&self, row: u64, seed: u64) -> (usize, u64) {
        let stage = self
            .stages
            .partition_point(|stage| stage.from <= row)
            .max(1)
            - 1;
        let at = (u128::from(row) * STRIDE + offset(seed)) % ONE;
        let ends = &self.stages[stage].ends;
        let source = ends
            .partition_point(|end| u128::from(*end) <= at)
            .min(ends.len() - 1);
        (source, self.count(source, row, seed))
    }

    /// Rows of a source among the first `rows`.
    pub fn count(&self, source: usize, rows: u64, seed: u64) -> u64 {
        let mut n = 0;
        for (i, stage) in self.stages.iter().enumerate() {
            let until = self
                .stages
                .get(i + 1)
                .map_or(rows, |next| next.from.min(rows));
            if until <= stage.from {
                break;
            }
            let begin = if source == 0 {
                0
            } else {
                stage.ends[source - 1]
            };
            let below = |end: u64, rows: u64| count_below(u128::from(end), rows, offset(seed));
            let owned = |rows: u64| below(stage.ends[source], rows) - below(begin, rows);
            n += owned(until) - owned(stage.from);
        }
        n
    }
}

/// Where the sequence begins, another place for every seed.
fn offset(seed: u64) -> u128 {
    u128::from(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32)
}

/// Shares of rows that give shares of tokens in proportion to the weights; they add up to 1.
fn row_shares(weights: &[f64], row_tokens: &[f64]) -> Vec<f64> {
    let rows: Vec<f64> = weights
        .iter()
        .zip(row_tokens)
        .map(|(w, n)| w / n.max(1.0))
        .collect();
    let sum: f64 = rows.iter().sum();
    rows.iter().map(|r| r / sum).collect()
}

fn ends(shares: &[f64]) -> Vec<u64> {
    let mut sum = 0.0;
    let mut ends: Vec<u64> = shares
        .iter()
        .map(|share| {
            sum += share;
            (sum.min(1.0) * ONE as f64).round() as u64
        })
        .collect();
    // The last source that has a share owns the rest that rounding leaves.
    if let Some(last) = shares.iter().rposition(|share| *share > 0.0) {
        ends[last..].fill(ONE as u64);
    }
    ends
}

/// How many of the first `rows` fractions lie below `end`.
fn count_below(end: u128, rows: u64, offset: u128) -> u64 {
    let rows = u128::from(rows);
    let all = floor_sum(rows, ONE, STRIDE, offset + ONE);
    (all - floor_sum(rows, ONE, STRIDE, offset + ONE - end)) as u64
}

/// Σ ⌊(a·i + b) / m⌋ over i = 0 … n − 1, in as many steps as Euclid's algorithm takes (Graham, Knuth and Patashnik,
/// *Concrete Mathematics*, 3.5).
fn floor_sum(mut n: u128, mut m: u128, mut a: u128, mut b: u128) -> u128 {
    let mut sum = 0;
    while n > 0 {
        sum += n * (n - 1) / 2 * (a / m) + n * (b / m);
        a %= m;
        b %= m;
        let top = a * n + b;
        (n, b) = (top / m, top % m);
        (m, a) = (a, m);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn constant(weights: &[f64], row_tokens: &[f64]) -> Mixture {
        let wanted = Wanted {
            until_tokens: None,
            weights: weights.to_vec(),
        };
        Mixture::new(&[wanted], row_tokens)
    }

    proptest! {
        #[test]
        fn sums_of_floors_are_those_of_counting(n in 0_u128..200, m in 1_u128..50, a in 0_u128..120, b in 0_u128..120) {
            let counted: u128 = (0..n).map(|i| (a * i + b) / m).sum();
            prop_assert_eq!(floor_sum(n, m, a, b), counted);
        }

        #[test]
        fn counts_are_those_of_the_rows_before_and_shares_are_kept(
            weights in prop::collection::vec(0.05_f64..3.0, 1..6),
            seed in 0_u64..1000,
        ) {
            let mixture = constant(&weights, &vec![64.0; weights.len()]);
            let total: f64 = weights.iter().sum();
            let mut counts = vec![0; weights.len()];
            for row in 0..3000 {
                let (source, before) = mixture.pick(row, seed);
                prop_assert_eq!(before, counts[source]);
                counts[source] += 1;
            }
            for (count, weight) in counts.iter().zip(&weights) {
                let share = f64::from(u32::try_from(*count).unwrap()) / 3000.0;
                prop_assert!((share - weight / total).abs() < 0.005, "{share} {}", weight / total);
            }
        }
    }

    #[test]
    fn two_to_one_is_two_thirds_in_tokens_whatever_the_rows_hold() {
        let mixture = constant(&[2.0, 1.0], &[100.0, 400.0]);
        let rows = 90_000;
        let tokens = [
            mixture.count(0, rows, 3) * 100,
            mixture.count(1, rows, 3) * 400,
        ];
        let share = tokens[0] as f64 / (tokens[0] + tokens[1]) as f64;
        assert!((share - 2.0 / 3.0).abs() < 1e-3, "{share}");
    }

    #[test]
    fn a_curriculum_changes_shares_at_its_tokens_and_a_weight_of_zero_is_none() {
        let stage = |until_tokens, weights: [f64; 2]| Wanted {
            until_tokens,
            weights: weights.to_vec(),
        };
        let stages = [
            stage(Some(10_000), [1.0, 0.0]),
            stage(Some(30_000), [1.0, 1.0]),
            stage(None, [0.0, 1.0]),
        ];
        let mixture = Mixture::new(&stages, &[10.0, 10.0]);
        assert_eq!(
            (mixture.count(0, 1000, 9), mixture.count(1, 1000, 9)),
            (1000, 0)
        );
        let middle = mixture.count(0, 3000, 9) - 1000;
        assert!((995..=1005).contains(&middle), "{middle}");
        assert_eq!(mixture.count(0, 9000, 9), mixture.count(0, 3000, 9));
        let mut counts = [0, 0];
        for row in 0..5000 {
            let (source, before) = mixture.pick(row, 9);
            assert_eq!(before, counts[source], "{row}");
            counts[source] += 1;
        }
    }

    #[test]
    fn far_rows_cost_no_more_than_near_ones() {
        let mixture = constant(&[1.0, 1.0], &[1.0, 1.0]);
        let far = 1 << 45;
        let both = mixture.count(0, far, 1) + mixture.count(1, far, 1);
        assert_eq!(both, far);
        assert!(mixture.count(0, far, 1).abs_diff(far / 2) < 100_000);
    }
}
