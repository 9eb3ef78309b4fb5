//! Rotary position embedding, RoPE (Su et al. 2021): among the first features of a head, feature j is paired with
//! j + width/2 and the pair rotated by position · its frequency.

use super::fetch;
use super::numbers::{Number, ValuesMut};
use super::positions::Positions;
use super::simd::multiversion;
use super::threads;
use candle_core::{D, DType, Device, Result, Tensor};

/// Rotation frequencies of the feature pairs.
#[derive(Debug, Clone, PartialEq)]
pub struct Rotation {
    /// Radians per position of each pair, first to last.
    pub frequencies: Vec<f64>,
    /// Scale of cosines and sines (YaRN); else 1.
    pub factor: f64,
}

impl Rotation {
    /// Frequencies theta^(−j/half) for pairs j = 0..half.
    pub fn plain(theta: f64, half: usize) -> Rotation {
        let frequency = |j: usize| 1.0 / theta.powf(j as f64 / half as f64);
        Rotation {
            frequencies: (0..half).map(frequency).collect(),
            factor: 1.0,
        }
    }

    /// Whether both rotate alike but for the rounding of numbers in files.
    pub fn is_about(&self, other: &Rotation) -> bool {
        let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-5 * a.abs();
        self.half() == other.half()
            && near((&self.factor, &other.factor))
            && self.frequencies.iter().zip(&other.frequencies).all(near)
    }

    /// Number of rotated pairs.
    pub fn half(&self) -> usize {
        self.frequencies.len()
    }

    /// The scaled cosine or sine (`f`) of pair `j` at a position.
    fn value(&self, f: fn(f64) -> f64, position: usize, j: usize) -> f64 {
        f(position as f64 * self.frequencies[j]) * self.factor
    }
}

/// Cosines and sines of positions 0..len, each (len, half), row-major; computed in f64, rounded once.
#[derive(Debug, Clone)]
pub struct RotaryTable {
    rotation: Rotation,
    /// Features per head; those beyond the rotated pairs are unchanged.
    head_dim: usize,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl RotaryTable {
    pub fn new(rotation: Rotation, head_dim: usize, len: usize) -> Self {
        let mut table = RotaryTable {
            rotation,
            head_dim,
            cos: Vec::new(),
            sin: Vec::new(),
        };
        table.extend_to(len);
        table
    }

    /// Number of positions in the table.
    pub fn len(&self) -> usize {
        self.cos
            .len()
            .checked_div(self.rotation.half())
            .unwrap_or(0)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Extends the table to positions 0..len.
    pub fn extend_to(&mut self, len: usize) {
        let half = self.rotation.half();
        if half == 0 {
            return;
        }
        for position in self.len()..len {
            for j in 0..half {
                self.cos
                    .push(self.rotation.value(f64::cos, position, j) as f32);
                self.sin
                    .push(self.rotation.value(f64::sin, position, j) as f32);
            }
        }
    }
}

/// Rotates `x` (B, T, H, head_dim).
///
/// # Errors
/// candle's own: shapes or dtypes that do not match.
pub fn composite(x: &Tensor, rotation: &Rotation, positions: Positions) -> Result<Tensor> {
    let (batch_size, seq_len, _, head_dim) = x.dims4()?;
    let half = rotation.half();
    let rows = positions.first.map_or(1, |_| batch_size);
    let at: Vec<usize> = (0..rows * seq_len).map(|i| positions.at(i)).collect();
    let (cos, sin) = tables(rotation, &at, x.dtype(), x.device())?;
    let shape = (rows, seq_len, 1, half);
    let (cos, sin) = (cos.reshape(shape)?, sin.reshape(shape)?);
    let a = x.narrow(D::Minus1, 0, half)?;
    let b = x.narrow(D::Minus1, half, half)?;
    let turned_a = (a.broadcast_mul(&cos)? - b.broadcast_mul(&sin)?)?;
    let turned_b = (b.broadcast_mul(&cos)? + a.broadcast_mul(&sin)?)?;
    if 2 * half == head_dim {
        return Tensor::cat(&[turned_a, turned_b], D::Minus1);
    }
    let rest = x.narrow(D::Minus1, 2 * half, head_dim - 2 * half)?;
    Tensor::cat(&[turned_a, turned_b, rest], D::Minus1)
}

/// Cosines and sines of some positions, each (positions · half).
fn tables(
    rotation: &Rotation,
    positions: &[usize],
    dtype: DType,
    device: &Device,
) -> Result<(Tensor, Tensor)> {
    let make = |f: fn(f64) -> f64| {
        let values: Vec<f64> = positions
            .iter()
            .flat_map(|&at| (0..rotation.half()).map(move |j| rotation.value(f, at, j)))
            .collect();
        let len = values.len();
        Tensor::from_vec(values, len, &Device::Cpu)?
            .to_dtype(dtype)?
            .to_device(device)
    };
    Ok((make(f64::cos)?, make(f64::sin)?))
}

/// Direction of rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    Forward,
    /// The backward: the inverse rotation.
    Back,
}

/// Rotates the first `n_turned` heads of each row of `x` (B · T, row_width) in place; the table must cover the
/// positions.
pub fn apply(
    table: &RotaryTable,
    x: ValuesMut,
    row_width: usize,
    n_turned: usize,
    positions: Positions,
    turn: Turn,
) {
    let heads = (n_turned, table.head_dim);
    match x {
        ValuesMut::F32(x) => apply_to(table, x, row_width, heads, positions, turn),
        ValuesMut::Bf16(x) => apply_to(table, x, row_width, heads, positions, turn),
    }
}

/// The same for heads of another width, of which the first features are rotated.
pub fn apply_to_heads(
    table: &RotaryTable,
    x: &mut [f32],
    row_width: usize,
    (n_turned, head_dim): (usize, usize),
    positions: Positions,
) {
    let heads = (n_turned, head_dim);
    apply_to(table, x, row_width, heads, positions, Turn::Forward);
}

fn apply_to<N: Number>(
    table: &RotaryTable,
    x: &mut [N],
    row_width: usize,
    (n_turned, head_dim): (usize, usize),
    positions: Positions,
    turn: Turn,
) {
    let half = table.rotation.half();
    let sign = match turn {
        Turn::Forward => 1.0,
        Turn::Back => -1.0,
    };
    threads::rows1(x, row_width, 4 * n_turned * half, |first, x| {
        for (i, row) in x.chunks_exact_mut(row_width).enumerate() {
            let at = positions.at(first + i) * half;
            let (cos, sin) = (&table.cos[at..at + half], &table.sin[at..at + half]);
            let turned = &mut row[..n_turned * head_dim];
            fetch::ahead_mut(turned);
            turn_row(turned, head_dim, cos, sin, sign);
        }
    });
}

multiversion! {
    fn turn_row<N: Number>(row: &mut [N], head_dim: usize, cos: &[f32], sin: &[f32], sign: f32) {
        let half = cos.len();
        for head in row.chunks_exact_mut(head_dim) {
            let (a, b) = head[..2 * half].split_at_mut(half);
            for ((a, b), (&c, &s)) in a.iter_mut().zip(b).zip(cos.iter().zip(sin)) {
                let s = s * sign;
                let (x, y) = (a.wide(), b.wide());
                *a = N::narrow(x * c - y * s);
                *b = N::narrow(y * c + x * s);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{assert_close, leaf, normal, oracle};

    #[test]
    fn gradients_agree_with_candle_in_f64_and_backward_undoes_forward() {
        let whole = Positions::whole_rows(5);
        check(Positions { start: 4, ..whole }, 3, 1.0);
        let first = Some([0, 0, 2, 2, 4, 0, 1, 1, 1, 1].as_slice());
        check(Positions { first, ..whole }, 3, 1.0);
        // Part of a head, and with YaRN's factor.
        check(Positions { start: 4, ..whole }, 2, 1.0);
        check(Positions { first, ..whole }, 1, 1.2);
    }

    fn check(positions: Positions, half: usize, factor: f64) {
        let (batch, seq_len, heads, head_dim) = (2, 5, 3, 6);
        let width = heads * head_dim;
        let x = normal(batch * seq_len * width, 0);
        let dy = normal(x.len(), 1);
        let lx = leaf(&x, &[batch, seq_len, heads, head_dim]);
        let rotation = Rotation {
            factor,
            ..Rotation::plain(100.0, half)
        };
        let (exact, grads) = oracle(&[&lx], &dy, || composite(&lx, &rotation, positions));
        let table = RotaryTable::new(rotation, head_dim, positions.start + seq_len);
        let mut y = x.clone();
        apply_to(
            &table,
            &mut y,
            width,
            (heads, head_dim),
            positions,
            Turn::Forward,
        );
        assert_close("y", &y, &exact, 1e-6);
        let mut dx = dy.clone();
        apply_to(
            &table,
            &mut dx,
            width,
            (heads, head_dim),
            positions,
            Turn::Back,
        );
        assert_close("dx", &dx, &grads[0], 1e-6);
        apply_to(
            &table,
            &mut y,
            width,
            (heads, head_dim),
            positions,
            Turn::Back,
        );
        if factor == 1.0 {
            let x: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
            assert_close("x", &y, &x, 1e-6);
        }
    }

    #[test]
    fn halves_are_paired_and_products_depend_on_the_distance() {
        let table = RotaryTable::new(Rotation::plain(10_000.0, 2), 4, 20);
        let turned = |x: [f32; 4], start| {
            let mut x = x;
            let at = Positions {
                start,
                ..Positions::whole_rows(1)
            };
            apply_to(&table, &mut x, 4, (1, 4), at, Turn::Forward);
            x
        };
        let y = turned([1.0, 2.0, 3.0, 4.0], 1);
        let expected = [-1.984_111, 1.959_901, 2.462_378, 4.019_8];
        for (y, expected) in y.iter().zip(expected) {
            assert!((y - expected).abs() < 1e-5, "{y} {expected}");
        }
        let (q, k) = ([0.3, -1.0, 0.7, 2.0], [1.0, 0.2, -0.4, 0.9]);
        let dot = |a: usize, b: usize| -> f32 {
            let (q, k) = (turned(q, a), turned(k, b));
            q.iter().zip(&k).map(|(a, b)| a * b).sum()
        };
        assert!((dot(7, 3) - dot(14, 10)).abs() < 1e-5);
    }

    #[test]
    fn products_depend_on_the_distance_alone_and_other_columns_stay() {
        let table = RotaryTable::new(Rotation::plain(10_000.0, 4), 8, 40);
        let dot_at = |p: usize, q: usize| {
            let mut a = normal(9, 0);
            let mut b = normal(9, 1);
            let last = a[8];
            let at = |start| Positions {
                start,
                ..Positions::whole_rows(1)
            };
            apply_to(&table, &mut a, 9, (1, 8), at(p), Turn::Forward);
            apply_to(&table, &mut b, 9, (1, 8), at(q), Turn::Forward);
            assert_eq!(a[8], last);
            a[..8].iter().zip(&b[..8]).map(|(a, b)| a * b).sum::<f32>()
        };
        assert!((dot_at(3, 1) - dot_at(33, 31)).abs() < 1e-5);
        assert!((dot_at(3, 1) - dot_at(3, 2)).abs() > 1e-3);
    }
}
