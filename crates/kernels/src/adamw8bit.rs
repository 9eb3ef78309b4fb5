//! One AdamW update of one tensor with 8-bit moments (Dettmers et al. 2021, arXiv 2110.02861): blocks of 256 values, each
//! with its maximum in f32, codes with a dynamic exponent.

use super::adamw::Rule;
use super::threads;
use super::update::Part;
use std::sync::OnceLock;

/// Values that share a scale.
pub const BLOCK: usize = 256;

/// One moment of a tensor: a code for each value, a scale for each [`BLOCK`] of them.
#[derive(Debug)]
pub struct Moment<'a> {
    pub codes: &'a mut [u8],
    pub scales: &'a mut [f32],
}

/// Code of 0 in a signed moment.
pub const ZERO_MEAN: u8 = 127;
/// Code of 0 in an unsigned moment.
pub const ZERO_SQUARE: u8 = 0;

/// Values that one task updates.
const SPAN: usize = 64 * BLOCK;

/// Updates weights and moments in place. Blocks are independent, so the number of threads does not change the bits.
pub fn update(
    rule: &Rule,
    part: &Part,
    weights: &mut [f32],
    grads: &[f32],
    [mean, square]: [Moment; 2],
) {
    let update = Update::new(rule, part);
    let weights = weights.chunks_mut(SPAN).zip(grads.chunks(SPAN));
    let moments = spans(mean).zip(spans(square));
    let mut tasks: Vec<_> = weights.zip(moments).collect();
    threads::each(&mut tasks, |((weights, grads), (mean, square))| {
        update.apply(weights, grads, mean, square);
    });
}

fn spans(moment: Moment<'_>) -> impl Iterator<Item = Moment<'_>> {
    let scales = moment.scales.chunks_mut(SPAN / BLOCK);
    let spans = moment.codes.chunks_mut(SPAN).zip(scales);
    spans.map(|(codes, scales)| Moment { codes, scales })
}

/// The numbers that all values share.
struct Update {
    keep: f32,
    step_size: f32,
    root_correction: f32,
    gains: [f32; 2],
    beta2: f32,
    eps: f32,
    grad_scale: f32,
    signed: &'static Map,
    unsigned: &'static Map,
}

impl Update {
    fn new(rule: &Rule, part: &Part) -> Update {
        let correction = |beta: f64| 1.0 - beta.powf(rule.step as f64);
        Update {
            keep: part.keep(rule.lr) as f32,
            step_size: (part.lr(rule.lr) / correction(rule.beta1)) as f32,
            root_correction: (1.0 / correction(rule.beta2).sqrt()) as f32,
            gains: [(1.0 - rule.beta1) as f32, (1.0 - rule.beta2) as f32],
            beta2: rule.beta2 as f32,
            eps: rule.eps as f32,
            grad_scale: rule.grad_scale as f32,
            signed: Map::signed(),
            unsigned: Map::unsigned(),
        }
    }

    fn apply(&self, weights: &mut [f32], grads: &[f32], mean: &mut Moment, square: &mut Moment) {
        let (mut m, mut v) = ([0.0_f32; BLOCK], [0.0_f32; BLOCK]);
        let blocks = weights.chunks_mut(BLOCK).zip(grads.chunks(BLOCK));
        let means = mean.codes.chunks_mut(BLOCK).zip(&mut *mean.scales);
        let squares = square.codes.chunks_mut(BLOCK).zip(&mut *square.scales);
        for ((weights, grads), ((m_codes, m_scale), (v_codes, v_scale))) in
            blocks.zip(means.zip(squares))
        {
            for (i, (w, g)) in weights.iter_mut().zip(grads).enumerate() {
                let g = g * self.grad_scale;
                let old = self.signed.values[m_codes[i] as usize] * *m_scale;
                m[i] = old + (g - old) * self.gains[0];
                let old = self.unsigned.values[v_codes[i] as usize] * *v_scale;
                v[i] = old * self.beta2 + g * g * self.gains[1];
                let denominator = v[i].sqrt() * self.root_correction + self.eps;
                *w = *w * self.keep - self.step_size * (m[i] / denominator);
            }
            let n = grads.len();
            self.signed.encode(&m[..n], m_codes, m_scale);
            self.unsigned.encode(&v[..n], v_codes, v_scale);
        }
    }
}

/// The values of 256 codes, ascending, and an index for finding the nearest.
struct Map {
    values: [f32; 256],
    /// Midpoints between adjacent codes.
    middles: [f32; 255],
    /// First candidate code for numbers that share their upper bits.
    starts: Vec<u8>,
}

/// Shift that keeps the upper bits that choose where the search begins: sign, exponent and six bits of the fraction, so that it
/// passes about one code; the index takes 32 KiB.
const SHIFT: u32 = 17;

/// An integer key that orders floats by value.
fn key(x: f32) -> u32 {
    let bits = x.to_bits();
    if bits >> 31 == 1 {
        !bits
    } else {
        bits | 1 << 31
    }
}

impl Map {
    fn signed() -> &'static Map {
        static MAP: OnceLock<Map> = OnceLock::new();
        MAP.get_or_init(|| Map::dynamic(true))
    }

    fn unsigned() -> &'static Map {
        static MAP: OnceLock<Map> = OnceLock::new();
        MAP.get_or_init(|| Map::dynamic(false))
    }

    /// bitsandbytes' dynamic map: seven decades; each smaller decade has one fraction bit less.
    fn dynamic(signed: bool) -> Map {
        let mut values = vec![0.0, 1.0];
        for i in 0..7 {
            let n = 1 << if signed { i } else { i + 1 };
            let decade = 10.0_f64.powi(i - 6);
            let bound = |k: i32| 0.1 + 0.9 * f64::from(k) / f64::from(n);
            for k in 0..n {
                let value = (decade * (bound(k) + bound(k + 1)) / 2.0) as f32;
                values.push(value);
                if signed {
                    values.push(-value);
                }
            }
        }
        values.sort_by(f32::total_cmp);
        let values: [f32; 256] = std::array::from_fn(|i| values[i]);
        let middles: [f32; 255] = std::array::from_fn(|i| (values[i] + values[i + 1]) / 2.0);
        let first = |bucket: u32| middles.partition_point(|m| key(*m) < bucket << SHIFT) as u8;
        Map {
            values,
            middles,
            starts: (0..1 << (32 - SHIFT)).map(first).collect(),
        }
    }

    /// Codes of the nearest values, the lower of two equally near; the scale is the largest magnitude. A positive number never
    /// gets code 0, the 0 of a mean square: the mean reaches further down, and over a root of 0 it would move its weight by
    /// thousands of learning rates as soon as a gradient is 0 or tiny, as those of tokens are that come rarely.
    fn encode(&self, x: &[f32], codes: &mut [u8], scale: &mut f32) {
        *scale = x.iter().fold(0.0, |most, x| most.max(x.abs()));
        let by = if *scale > 0.0 { 1.0 / *scale } else { 0.0 };
        for (code, x) in codes.iter_mut().zip(x) {
            let least = u8::from(*x > 0.0);
            let x = x * by;
            let mut at = self.starts[(key(x) >> SHIFT) as usize];
            while at < 255 && x > self.middles[at as usize] {
                at += 1;
            }
            *code = at.max(least);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip_and_other_values_go_to_the_nearest_code() {
        for (map, zero) in [(Map::signed(), ZERO_MEAN), (Map::unsigned(), ZERO_SQUARE)] {
            assert!(map.values.windows(2).all(|w| w[0] < w[1]));
            assert_eq!(map.values[zero as usize], 0.0);
            let (mut codes, mut scale) = ([0; 256], 0.0);
            map.encode(&map.values, &mut codes, &mut scale);
            assert_eq!(scale, 1.0);
            assert!(codes.iter().enumerate().all(|(i, c)| i == *c as usize));
            let low = map.values[0];
            for i in 0..5000 {
                let x = low + (1.0 - low) * (i as f32 / 5000.0).powi(3);
                let mut codes = [0; 2];
                map.encode(&[x, 1.0], &mut codes, &mut scale);
                let near = |c: &f32| (c - x).abs();
                // The 0 of mean squares is for 0 alone.
                let least = usize::from(low == 0.0 && x > 0.0);
                let best = map.values[least..].iter().map(near).fold(9.0, f32::min);
                assert!(near(&map.values[codes[0] as usize]) <= best + 1e-9, "{x}");
            }
        }
    }

    /// A token that comes once: its gradients are 10,000 times smaller than the largest of its block, and then 0. Expected is
    /// what AdamW does in f64, 0.67 learning rates in the second update.
    #[test]
    fn small_gradients_beside_large_ones_move_no_weight_far() {
        let rule = Rule {
            lr: 1.0,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            grad_scale: 1.0,
            step: 1,
        };
        let part = Part {
            weights: 0,
            grads: 0,
            len: 4,
            lr_scale: 1.0,
            weight_decay: 0.0,
        };
        let (mut weights, small) = ([0.0_f32; 4], [1e-3, 1e-4, 1e-5]);
        let (mut codes, mut scales) = ([[ZERO_MEAN; 4], [ZERO_SQUARE; 4]], [[0.0]; 2]);
        for step in 1..=2 {
            let before = weights;
            let grads = match step {
                1 => [1.0, small[0], small[1], small[2]],
                _ => [0.0; 4],
            };
            let ([m, v], [m_scale, v_scale]) = (&mut codes, &mut scales);
            let moments = [(m, m_scale), (v, v_scale)];
            let moments = moments.map(|(codes, scales)| Moment { codes, scales });
            update(&Rule { step, ..rule }, &part, &mut weights, &grads, moments);
            for (w, old) in weights.iter().zip(before) {
                assert!((w - old).abs() < 1.1, "update {step}: {}", w - old);
            }
        }
        assert_eq!(codes[1], [255, 2, 1, 1]);
    }

    #[test]
    fn a_block_of_zeros_stays_zero() {
        let (mut codes, mut scale) = ([9; 4], 7.0);
        Map::signed().encode(&[0.0; 4], &mut codes, &mut scale);
        assert_eq!((codes, scale), ([ZERO_MEAN; 4], 0.0));
    }
}
