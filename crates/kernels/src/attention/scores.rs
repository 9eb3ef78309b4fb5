//! Attention scores from dot products of queries and keys.

use crate::simd::multiversion;
use crate::softcap;

/// How dot products become scores: scale, soft cap, distance bias, in this order; and what joins them in the softmax.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Scores<'a> {
    /// Scale of the dot products; `None`: 1 / √head_dim.
    pub scale: Option<f64>,
    /// A score s becomes c · tanh(s / c).
    pub softcap: Option<f64>,
    /// For each query head, the penalty per token of distance (ALiBi).
    pub slopes: Option<&'a [f32]>,
    /// For each query head, one more score in the softmax's denominator, of a key without a value (gpt-oss, arXiv 2508.10925): a row's
    /// weights sum to less than 1.
    pub sinks: Option<&'a [f32]>,
}

impl Scores<'_> {
    /// The scale for heads of `head_dim` features.
    pub(super) fn scale(&self, head_dim: usize) -> f32 {
        match self.scale {
            Some(scale) => scale as f32,
            None => 1.0 / (head_dim as f32).sqrt(),
        }
    }

    /// The sink of head `h`; −∞, which changes nothing, without one.
    pub(super) fn sink(&self, h: usize) -> f32 {
        self.sinks.map_or(f32::NEG_INFINITY, |sinks| sinks[h])
    }

    pub(super) fn cap(&self) -> Option<f32> {
        self.softcap.map(|cap| cap as f32)
    }

    /// Whether scores are more than scaled dot products.
    pub(super) fn is_plain(&self) -> bool {
        self.softcap.is_none() && self.slopes.is_none()
    }

    /// Subtracts the distance penalty of head `h`: the first of the row's scores belongs to the key `distance` tokens
    /// before the query. Later keys are masked, whatever value they get here.
    pub(super) fn tilt(&self, h: usize, distance: isize, row: &mut [f32]) {
        if let Some(slopes) = self.slopes {
            tilt(row, slopes[h], distance as f32);
        }
    }

    /// Soft cap and distance bias of a row of scaled dot products.
    pub(super) fn finish(&self, h: usize, distance: isize, row: &mut [f32]) {
        if let Some(cap) = self.cap() {
            softcap::apply(row, cap);
        }
        self.tilt(h, distance, row);
    }
}

multiversion! {
    fn tilt(row: &mut [f32], slope: f32, distance: f32) {
        for (i, x) in row.iter_mut().enumerate() {
            *x -= slope * (distance - i as f32);
        }
    }
}
