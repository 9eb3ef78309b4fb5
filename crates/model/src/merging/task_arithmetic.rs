//! Sums of what models have learned: their differences from the base that they were trained from.
//!
//! ```text
//! merged = base + λ Σ wᵢ sparse(modelᵢ − base)       task arithmetic (Ilharco et al. 2023, arXiv 2212.04089)
//! ```
//!
//! TIES (Yadav et al. 2023, arXiv 2306.01708) keeps the largest changes, and of each weight only those whose sign is that of the sum.
//! DARE (Yu et al. 2024, arXiv 2311.03099) drops changes at random and divides the others by the share that is kept.

use super::{Method, Setting, Settings, Tensors};

pub(super) const TASK_ARITHMETIC: Method = Method {
    word: "task_arithmetic",
    summary: "base plus the weighted sum of all changes",
    has_base: true,
    normalizes: false,
    reads: &[Setting::Scale, Setting::Normalize],
    merge: |tensors, settings, out| merge(tensors, settings, (Sparse::No, false), out),
};

pub(super) const TIES: Method = Method {
    word: "ties",
    summary: "the largest changes, of each weight those of the prevailing sign",
    has_base: true,
    normalizes: true,
    reads: &[Setting::Density, Setting::Scale, Setting::Normalize],
    merge: |tensors, settings, out| merge(tensors, settings, (Sparse::Largest, true), out),
};

pub(super) const DARE_LINEAR: Method = Method {
    word: "dare_linear",
    summary: "changes dropped at random, the others enlarged",
    has_base: true,
    normalizes: false,
    reads: &[
        Setting::Density,
        Setting::Scale,
        Setting::Normalize,
        Setting::Seed,
    ],
    merge: |tensors, settings, out| merge(tensors, settings, (Sparse::Random, false), out),
};

pub(super) const DARE_TIES: Method = Method {
    word: "dare_ties",
    summary: "the same, of each weight those of the prevailing sign",
    has_base: true,
    normalizes: false,
    reads: DARE_LINEAR.reads,
    merge: |tensors, settings, out| merge(tensors, settings, (Sparse::Random, true), out),
};

/// Which changes are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sparse {
    No,
    Largest,
    Random,
}

/// A divisor below this is none.
const NOTHING: f32 = 1e-8;

/// `elects_sign`: of each weight only the changes count whose sign is that of their weighted sum.
fn merge(
    tensors: &Tensors,
    settings: &Settings,
    (sparse, elects_sign): (Sparse, bool),
    out: &mut [f32],
) {
    let Some(base) = tensors.base else {
        return;
    };
    let weights: Vec<f32> = settings.weights.iter().map(|w| *w as f32).collect();
    let changes: Vec<Vec<f32>> = (tensors.models.iter().zip(&weights).enumerate())
        .map(|(at, (values, weight))| {
            let mut change: Vec<f32> = values.iter().zip(base).map(|(x, b)| x - b).collect();
            match sparse {
                Sparse::No => {}
                Sparse::Largest => keep_largest(&mut change, settings.density),
                Sparse::Random => {
                    let mut rng = tensors.rng(settings.seed, at);
                    keep_some(&mut change, settings.density, || rng.uniform_f64());
                }
            }
            change.iter_mut().for_each(|x| *x *= weight);
            change
        })
        .collect();
    let scale = settings.scale as f32;
    let total: f32 = weights.iter().sum();
    for (i, (out, base)) in out.iter_mut().zip(base).enumerate() {
        let of = changes.iter().map(|change| change[i]);
        let sum: f32 = of.clone().sum();
        let (sum, divisor) = match elects_sign {
            false => (sum, total),
            true => {
                let sign = if sum >= 0.0 { 1.0 } else { -1.0 };
                let agreeing = of.zip(&weights).filter(|(x, _)| *x * sign > 0.0);
                agreeing.fold((0.0, 0.0), |(sum, all), (x, weight)| {
                    (sum + x, all + weight)
                })
            }
        };
        let divisor = match settings.normalize && divisor.abs() >= NOTHING {
            true => divisor,
            false => 1.0,
        };
        *out = base + scale * (sum / divisor);
    }
}

/// Sets all to 0 but the largest in magnitude: the share `density` of them, at least one. Of equal ones the first stay.
fn keep_largest(values: &mut [f32], density: f64) {
    if density >= 1.0 || values.is_empty() {
        return;
    }
    let kept = ((density * values.len() as f64) as usize).max(1);
    let mut sizes: Vec<f32> = values.iter().map(|x| x.abs()).collect();
    let (_, least, _) = sizes.select_nth_unstable_by(kept - 1, |a, b| b.total_cmp(a));
    let least = *least;
    let larger = values.iter().filter(|x| x.abs() > least).count();
    let mut of_the_least = kept - larger;
    for x in values {
        let stays = match x.abs() {
            size if size == least && of_the_least > 0 => {
                of_the_least -= 1;
                true
            }
            size => size > least,
        };
        if !stays {
            *x = 0.0;
        }
    }
}

/// Keeps each with probability `density`, divided by it.
fn keep_some(values: &mut [f32], density: f64, mut uniform: impl FnMut() -> f64) {
    if density >= 1.0 {
        return;
    }
    for x in values {
        *x = match uniform() < density {
            true => (f64::from(*x) / density) as f32,
            false => 0.0,
        };
    }
}
