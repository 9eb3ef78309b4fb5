//! Rotary positions (Su et al. 2021): feature j of a head is paired with j + head_dim/2 and the pair turned by
//! position · theta^(−2j / head_dim).

use super::positions::Positions;
use super::simd::multiversion;
use super::threads;
use candle_core::{D, DType, Device, Result, Tensor};

/// Cosines and sines of positions 0..len, each (len, head_dim / 2), row-major; computed in f64, rounded once.
#[derive(Debug, Clone)]
pub struct RotaryTable {
    pub cos: Vec<f32>,
    pub sin: Vec<f32>,
    pub half: usize,
    pub theta: f64,
}

impl RotaryTable {
    pub fn new(theta: f64, head_dim: usize, len: usize) -> Self {
        let half = head_dim / 2;
        let mut table = RotaryTable {
            cos: Vec::new(),
            sin: Vec::new(),
            half,
            theta,
        };
        table.extend_to(len);
        table
    }

    /// Number of positions held.
    pub fn len(&self) -> usize {
        self.cos.len().checked_div(self.half).unwrap_or(0)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes sure that positions 0..len are held.
    pub fn extend_to(&mut self, len: usize) {
        for position in self.len()..len {
            for j in 0..self.half {
                let angle = angle(self.theta, self.half, position, j);
                self.cos.push(angle.cos() as f32);
                self.sin.push(angle.sin() as f32);
            }
            if self.half == 0 {
                break;
            }
        }
    }
}

/// Angle of pair `j` at `position`, in radians.
fn angle(theta: f64, half: usize, position: usize, j: usize) -> f64 {
    let inv_freq = 1.0 / theta.powf(j as f64 / half as f64);
    position as f64 * inv_freq
}

/// Turns `x` (B, T, H, head_dim).
pub fn composite(x: &Tensor, theta: f64, positions: Positions) -> Result<Tensor> {
    let (batch_size, seq_len, _, head_dim) = x.dims4()?;
    let half = head_dim / 2;
    let rows = positions.first.map_or(1, |_| batch_size);
    let at: Vec<usize> = (0..rows * seq_len).map(|i| positions.at(i)).collect();
    let (cos, sin) = tables(theta, half, &at, x.dtype(), x.device())?;
    let shape = (rows, seq_len, 1, half);
    let (cos, sin) = (cos.reshape(shape)?, sin.reshape(shape)?);
    let a = x.narrow(D::Minus1, 0, half)?;
    let b = x.narrow(D::Minus1, half, half)?;
    let turned_a = (a.broadcast_mul(&cos)? - b.broadcast_mul(&sin)?)?;
    let turned_b = (b.broadcast_mul(&cos)? + a.broadcast_mul(&sin)?)?;
    Tensor::cat(&[turned_a, turned_b], D::Minus1)
}

/// Cosines and sines of some positions, each (positions · half).
fn tables(
    theta: f64,
    half: usize,
    positions: &[usize],
    dtype: DType,
    device: &Device,
) -> Result<(Tensor, Tensor)> {
    let angles: Vec<f64> = positions
        .iter()
        .flat_map(|&position| (0..half).map(move |j| angle(theta, half, position, j)))
        .collect();
    let make = |f: fn(f64) -> f64| {
        let values: Vec<f64> = angles.iter().map(|&angle| f(angle)).collect();
        let len = values.len();
        Tensor::from_vec(values, len, &Device::Cpu)?
            .to_dtype(dtype)?
            .to_device(device)
    };
    Ok((make(f64::cos)?, make(f64::sin)?))
}

/// Which way to turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    Forward,
    /// The inverse, which is also the backward.
    Back,
}

/// Turns the first `n_turned` heads of each row of `x` (B · T, row_width) in place; the table must reach as far as the
/// positions.
pub fn apply(
    table: &RotaryTable,
    x: &mut [f32],
    row_width: usize,
    n_turned: usize,
    positions: Positions,
    turn: Turn,
) {
    let half = table.half;
    let sign = match turn {
        Turn::Forward => 1.0,
        Turn::Back => -1.0,
    };
    threads::rows1(x, row_width, 4 * n_turned * half, |first, x| {
        for (i, row) in x.chunks_exact_mut(row_width).enumerate() {
            let at = positions.at(first + i) * half;
            let (cos, sin) = (&table.cos[at..at + half], &table.sin[at..at + half]);
            turn_row(&mut row[..n_turned * 2 * half], cos, sin, sign);
        }
    });
}

multiversion! {
    fn turn_row(row: &mut [f32], cos: &[f32], sin: &[f32], sign: f32) {
        let half = cos.len();
        for head in row.chunks_exact_mut(2 * half) {
            let (a, b) = head.split_at_mut(half);
            for ((a, b), (&c, &s)) in a.iter_mut().zip(b).zip(cos.iter().zip(sin)) {
                let s = s * sign;
                let (x, y) = (*a, *b);
                *a = x * c - y * s;
                *b = y * c + x * s;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::check::{assert_close, leaf, normal, oracle};

    #[test]
    fn gradients_agree_with_candle_in_f64_and_back_undoes_forward() {
        let whole = Positions::whole_rows(5);
        check(Positions { start: 4, ..whole });
        let first = Some([0, 0, 2, 2, 4, 0, 1, 1, 1, 1].as_slice());
        check(Positions { first, ..whole });
    }

    fn check(positions: Positions) {
        let (batch, seq_len, heads, head_dim) = (2, 5, 3, 6);
        let width = heads * head_dim;
        let x = normal(batch * seq_len * width, 0);
        let dy = normal(x.len(), 1);
        let lx = leaf(&x, &[batch, seq_len, heads, head_dim]);
        let (exact, grads) = oracle(&[&lx], &dy, || composite(&lx, 100.0, positions));
        let table = RotaryTable::new(100.0, head_dim, positions.start + seq_len);
        let mut y = x.clone();
        apply(&table, &mut y, width, heads, positions, Turn::Forward);
        assert_close("y", &y, &exact, 1e-6);
        let mut dx = dy.clone();
        apply(&table, &mut dx, width, heads, positions, Turn::Back);
        assert_close("dx", &dx, &grads[0], 1e-6);
        apply(&table, &mut y, width, heads, positions, Turn::Back);
        let x: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
        assert_close("x", &y, &x, 1e-6);
    }

    #[test]
    fn products_depend_on_the_distance_alone_and_other_columns_stay() {
        let table = RotaryTable::new(10_000.0, 8, 40);
        let dot_at = |p: usize, q: usize| {
            let mut a = normal(9, 0);
            let mut b = normal(9, 1);
            let last = a[8];
            let at = |start| Positions {
                start,
                ..Positions::whole_rows(1)
            };
            apply(&table, &mut a, 9, 1, at(p), Turn::Forward);
            apply(&table, &mut b, 9, 1, at(q), Turn::Forward);
            assert_eq!(a[8], last);
            a[..8].iter().zip(&b[..8]).map(|(a, b)| a * b).sum::<f32>()
        };
        assert!((dot_at(3, 1) - dot_at(33, 31)).abs() < 1e-5);
        assert!((dot_at(3, 1) - dot_at(3, 2)).abs() > 1e-3);
    }
}
