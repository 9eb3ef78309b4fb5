//! Rotary positions (Su et al. 2021): feature j of a head is paired with j + head_dim/2 and the pair turned by
//! position · theta^(−2j / head_dim).

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

/// Turns `x` (B, T, H, head_dim), whose token t stands at position `start + t`.
pub fn composite(x: &Tensor, theta: f64, start: usize) -> Result<Tensor> {
    let (_, seq_len, _, head_dim) = x.dims4()?;
    let half = head_dim / 2;
    let (cos, sin) = tables(theta, half, start, seq_len, x.dtype(), x.device())?;
    let a = x.narrow(D::Minus1, 0, half)?;
    let b = x.narrow(D::Minus1, half, half)?;
    let turned_a = (a.broadcast_mul(&cos)? - b.broadcast_mul(&sin)?)?;
    let turned_b = (b.broadcast_mul(&cos)? + a.broadcast_mul(&sin)?)?;
    Tensor::cat(&[turned_a, turned_b], D::Minus1)
}

/// Cosines and sines of positions start..start + len, each (len, 1, half).
fn tables(
    theta: f64,
    half: usize,
    start: usize,
    len: usize,
    dtype: DType,
    device: &Device,
) -> Result<(Tensor, Tensor)> {
    let angles: Vec<f64> = (start..start + len)
        .flat_map(|position| (0..half).map(move |j| angle(theta, half, position, j)))
        .collect();
    let make = |f: fn(f64) -> f64| {
        let values: Vec<f64> = angles.iter().map(|&angle| f(angle)).collect();
        Tensor::from_vec(values, (len, 1, half), &Device::Cpu)?
            .to_dtype(dtype)?
            .to_device(device)
    };
    Ok((make(f64::cos)?, make(f64::sin)?))
}
