//! A fixed sample of the flat gradients: all elements if there are few, else short segments spread over each tensor. Weighted
//! sums of squares and products over it are unbiased.

use crate::nn::ParamInfo;
use std::ops::Range;

/// Elements that are looked at in all.
const BUDGET: usize = 1 << 17;
/// Elements of a segment: four cache lines.
const PIECE: usize = 64;
/// Of each tensor at least as many.
const LEAST: usize = 1024;

/// Where it lies.
#[derive(Debug, Clone)]
pub struct Sample {
    pieces: Vec<Piece>,
    len: usize,
    n_layer: usize,
}

#[derive(Debug, Clone)]
struct Piece {
    grads: Range<usize>,
    /// First element of the parameter it is of, in the sample.
    at: usize,
    /// The weight of one element.
    weight: f64,
    /// Its block; those of none (embeddings, head) come last.
    group: usize,
}

impl Sample {
    /// Of what trains.
    pub fn of(params: &[ParamInfo], n_layer: usize) -> Sample {
        let total: usize = params.iter().filter(|p| p.trains()).map(|p| p.len).sum();
        let (mut pieces, mut len) = (Vec::new(), 0);
        for info in params {
            let Some(from) = info.grad else { continue };
            let share = info.len as f64 * BUDGET as f64 / total.max(1) as f64;
            let wanted = (share as usize).max(LEAST).min(info.len);
            let group = info.layer.map_or(n_layer, |layer| layer as usize);
            let (count, size) = if wanted == info.len {
                (1, info.len)
            } else {
                (wanted.div_ceil(PIECE), PIECE)
            };
            let weight = info.len as f64 / (count * size) as f64;
            for i in 0..count {
                let start = from + i * (info.len - size) / (count - 1).max(1);
                pieces.push(Piece {
                    grads: start..start + size,
                    at: len,
                    weight,
                    group,
                });
                len += size;
            }
        }
        Sample {
            pieces,
            len,
            n_layer,
        }
    }

    /// Elements in all.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Blocks; the group of what belongs to none.
    pub fn n_layer(&self) -> usize {
        self.n_layer
    }

    /// Each segment: its group, its position in the sample, and the weight of its elements.
    pub fn pieces(&self) -> impl Iterator<Item = (usize, Range<usize>, f64)> + '_ {
        self.pieces.iter().map(|piece| {
            (
                piece.group,
                piece.at..piece.at + piece.grads.len(),
                piece.weight,
            )
        })
    }

    /// Copies the sample of `grads` into `into`.
    pub fn gather(&self, grads: &[f32], into: &mut Vec<f32>) {
        into.clear();
        into.reserve(self.len);
        for piece in &self.pieces {
            into.extend_from_slice(&grads[piece.grads.clone()]);
        }
    }

    /// Σ a · b over each block, and over what belongs to none, last.
    pub fn dots(&self, a: &[f32], b: &[f32]) -> Vec<f64> {
        let mut sums = vec![0.0; self.n_layer + 1];
        for piece in &self.pieces {
            let range = piece.at..piece.at + piece.grads.len();
            sums[piece.group] += piece.weight * dot(&a[range.clone()], &b[range]);
        }
        sums
    }
}

/// In f64 over eight lanes, so that the compiler takes several at once.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    let mut lanes = [0.0_f64; 8];
    let (a8, a_rest) = a.as_chunks::<8>();
    let (b8, b_rest) = b.as_chunks::<8>();
    for (a, b) in a8.iter().zip(b8) {
        for (lane, (a, b)) in lanes.iter_mut().zip(a.iter().zip(b)) {
            *lane += f64::from(*a) * f64::from(*b);
        }
    }
    let rest = a_rest.iter().zip(b_rest);
    let rest: f64 = rest.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
    lanes.iter().sum::<f64>() + rest
}

/// A trained tensor of `len` elements from `from` on.
#[cfg(test)]
pub(super) fn info(layer: Option<u32>, from: usize, len: usize) -> ParamInfo {
    ParamInfo {
        name: "w".into(),
        role: crate::nn::Role::Embedding,
        layer,
        expert: None,
        shape: vec![len],
        offset: from,
        len,
        grad: Some(from),
        decay: true,
        lr_scale: 1.0,
        init: crate::nn::Init::Zeros,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_gradients_are_taken_whole_and_large_ones_in_unbiased_pieces() {
        let small = Sample::of(&[info(Some(0), 0, 30), info(None, 30, 12)], 1);
        let grads: Vec<f32> = (0..42).map(|i| i as f32).collect();
        let mut sample = Vec::new();
        small.gather(&grads, &mut sample);
        assert!(sample == grads);
        let squares = |range: Range<usize>| range.map(|i| (i * i) as f64).sum::<f64>();
        assert_eq!(
            small.dots(&sample, &sample),
            [squares(0..30), squares(30..42)]
        );

        let n = 3 << 20;
        let large = Sample::of(&[info(Some(0), 0, n), info(Some(1), n, 500)], 2);
        let grads: Vec<f32> = (0..n + 500).map(|i| (i as f32 * 0.7).sin()).collect();
        large.gather(&grads, &mut sample);
        assert!(sample.len() < BUDGET + 2 * LEAST, "{}", sample.len());
        let found = large.dots(&sample, &sample);
        assert!(
            (found[0] / (n as f64 / 2.0) - 1.0).abs() < 0.01,
            "{found:?}"
        );
        assert!((found[1] / 250.0 - 1.0).abs() < 0.01, "{found:?}");
        assert_eq!(found[2], 0.0);
    }
}
