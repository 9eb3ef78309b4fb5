//! Spherical linear interpolation of two models: along the arc between the directions of a tensor's values (Shoemake 1985).

use super::{Method, Setting, Settings, Tensors};

pub(super) const SLERP: Method = Method {
    word: "slerp",
    summary: "along the arc from the first model (t = 0) to the second (t = 1)",
    has_base: false,
    normalizes: false,
    reads: &[Setting::T],
    merge,
};

/// The cosine from which on, in both directions, the arc is taken for a line.
const STRAIGHT: f64 = 0.9995;
/// A shorter vector has no direction.
const SHORT: f64 = 1e-8;

fn merge(tensors: &Tensors, settings: &Settings, out: &mut [f32]) {
    let [a, b] = tensors.models else {
        return;
    };
    let [of_a, of_b] = shares(cosine(a, b), settings.t);
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        *out = (of_a * f64::from(*a) + of_b * f64::from(*b)) as f32;
    }
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |x: &[f32], y: &[f32]| -> f64 {
        let products = x.iter().zip(y).map(|(x, y)| f64::from(*x) * f64::from(*y));
        products.sum()
    };
    let length = |x: &[f32]| match dot(x, x).sqrt() {
        length if length > SHORT => length,
        _ => 1.0,
    };
    (dot(a, b) / (length(a) * length(b))).clamp(-1.0, 1.0)
}

fn shares(cosine: f64, t: f64) -> [f64; 2] {
    if cosine.abs() > STRAIGHT {
        return [1.0 - t, t];
    }
    let angle = cosine.acos();
    [1.0 - t, t].map(|part| (part * angle).sin() / angle.sin())
}
