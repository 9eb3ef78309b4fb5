//! The spectrum of every matrix of a model at rest: a checkpoint while its run continues, or any model folder. One matrix is
//! in memory at a time, and a model in training is not touched.

use crate::hf::Weights;
use crate::kernels::spectrum::eigenvalues;
use crate::metrics::estimators::{alpha, dispersion::Moments, spectrum};
use crate::metrics::{Direction, Metric, Origin, Repeatable, id, metric};
use crate::nn::role::AttentionRole;
use crate::nn::{ParamInfo, Role};
use crate::wire::{MetricInfo, Num, Values};
use std::collections::BTreeMap;

/// Largest smaller side whose whole spectrum is computed: at 2,048 it takes some ten seconds.
pub const LARGEST: usize = 2048;
/// Fewer eigenvalues have no tail to fit (WeightWatcher advises 50).
const ENOUGH: usize = 50;
/// With fewer the fit scatters too far for the band to mean anything.
const JUDGED: usize = 200;

pub const ALPHA: Metric = metric(
    id::ALPHA,
    "Power-law exponent by layer",
    "",
    Direction::Neutral,
    Repeatable::Yes,
    "exponent α of ρ(λ) ∝ λ^−α in the tail of WᵀW, mean over a block's matrices with 50 eigenvalues and more (Martin and Mahoney 2021, arXiv 1810.01075)",
)
.label("alpha")
.per_layer()
.estimator("ww_ks")
.band(2.0, 6.0, Origin::Literature)
.meaning(
    "2 to 6, the best trained layers close to 2 (WeightWatcher). Random 512 × 512 matrices give about 5.8, so a young model is high. Values of other estimators (hill_mid, hill_top10) must not be compared. Models with matrices of fewer than 200 eigenvalues have no band: the fit scatters too far.",
    "Staying above 6: the layer has not learned, check learning rate and groups. Below 2: a few directions dominate, look at held-out loss and weight decay.",
);

pub const STABLE_RANK: Metric = metric(
    "stable_rank/layer",
    "Stable rank by layer",
    "",
    Direction::Neutral,
    Repeatable::Yes,
    "‖W‖_F² / σ_max², mean over a block's matrices",
)
.estimator("frobenius_over_top")
.label("stable rank")
.per_layer()
.band(2.0, f64::INFINITY, Origin::RuleOfThumb)
.meaning(
    "A random n × n matrix has about n / 4. Falls as a model learns.",
    "Below 2 one direction dominates a matrix: check learning rate, weight decay, data variety.",
);

pub const SINGULAR: Metric = metric(
    "singular_entropy/layer",
    "Singular entropy by layer",
    "nats",
    Direction::Lower,
    Repeatable::Yes,
    "ln r − H(σ / Σσ): higher is more collapsed, 0 if all directions are equal (after Elgaar and Amiri 2026, arXiv 2601.21698), mean over a block's matrices",
)
.label("singular entropy")
.per_layer()
.estimator("kl_sigma")
.meaning(
    "A random square matrix has 0.217, one of 512 × 2,048 has 0.035: compare with its start, not with 0. Rises as a model learns.",
    "A rise of 0.3 within a twentieth of the run: directions collapse; check learning rate, weight decay, repeated data.",
);

/// Metrics of a checkpoint while its run continues.
pub const METRICS: [&Metric; 3] = [&ALPHA, &STABLE_RANK, &SINGULAR];

/// Their declarations for a model: the exponent of small matrices has no band.
pub fn declarations(params: &[ParamInfo]) -> Vec<MetricInfo> {
    let side = |info: &ParamInfo| match (info.layer, &*info.shape) {
        (Some(_), [rows, cols]) => Some(*rows.min(cols)),
        _ => None,
    };
    let sides = params.iter().filter_map(side);
    let smallest = sides.filter(|side| *side >= ENOUGH).min();
    let judged = smallest.is_some_and(|side| side >= JUDGED);
    let info = |metric: &Metric| MetricInfo {
        band: metric.band.filter(|_| judged || metric.id != ALPHA.id),
        ..metric.info()
    };
    METRICS.into_iter().map(info).collect()
}

/// A matrix, or one of several in one tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    /// Name of the tensor, with `[q]`, `[k]`, `[v]` where it holds three.
    pub name: String,
    pub role: Role,
    pub layer: Option<u32>,
    pub rows: usize,
    pub cols: usize,
    /// `ww_ks`; `None` with fewer than 50 eigenvalues or too many.
    pub alpha: Option<alpha::Fit>,
    /// `hill_mid`: for comparison between layers, not with bands.
    pub hill_mid: Option<alpha::Fit>,
    /// `None` of zeros, of values that are not finite, and of a matrix that is too large.
    pub spectrum: Option<spectrum::Spectrum>,
    /// Singular entropy of energies over that of a random matrix of this shape, min / (2 · max).
    pub energy_to_random: Option<f64>,
    pub std: f64,
    /// Largest |w|.
    pub largest: f64,
    /// Rows whose norm is below a thousandth of the mean row norm.
    pub dead_rows: usize,
    pub non_finite: usize,
}

impl Matrix {
    /// Of `values` (rows, cols).
    pub fn of(info: &ParamInfo, suffix: &str, values: &[f32], cols: usize) -> Matrix {
        /// A row below this share of the mean norm does nothing.
        const DEAD: f64 = 1e-3;
        let rows = values.len() / cols.max(1);
        let non_finite = values.iter().filter(|x| !x.is_finite()).count();
        let norm = |row: &[f32]| {
            row.iter()
                .map(|x| f64::from(*x).powi(2))
                .sum::<f64>()
                .sqrt()
        };
        let norms: Vec<f64> = values.chunks_exact(cols.max(1)).map(norm).collect();
        let mean = norms.iter().sum::<f64>() / rows.max(1) as f64;
        let mut moments = Moments::default();
        moments.add(values);
        let (small, large) = (rows.min(cols), rows.max(cols));
        let known = non_finite == 0 && (1..=LARGEST).contains(&small);
        let values_of = if known {
            eigenvalues(values, rows, cols)
        } else {
            Vec::new()
        };
        let tail = if small >= ENOUGH { &*values_of } else { &[] };
        let spectrum = spectrum::of_eigenvalues(&values_of);
        Matrix {
            name: format!("{}{suffix}", info.name),
            role: info.role,
            layer: info.layer,
            rows,
            cols,
            alpha: alpha::ks(tail),
            hill_mid: alpha::hill_mid(tail),
            energy_to_random: spectrum.map(|s| s.kl_energy / (small as f64 / (2 * large) as f64)),
            spectrum,
            std: moments.std().unwrap_or(f64::NAN),
            largest: f64::from(values.iter().fold(0.0_f32, |most, x| most.max(x.abs()))),
            dead_rows: norms.iter().filter(|n| **n <= DEAD * mean).count(),
            non_finite,
        }
    }
}

/// The matrices of a parameter, (suffix, rows) each: queries, keys and values that lie in one tensor are three.
pub fn parts(info: &ParamInfo, n_rows: [usize; 3]) -> Vec<(&'static str, std::ops::Range<usize>)> {
    let [q, k, v] = n_rows;
    match (info.role, &*info.shape) {
        (Role::Attention(AttentionRole::QueryKeyValue), [rows, _]) if q + k + v == *rows => {
            vec![("[q]", 0..q), ("[k]", q..q + k), ("[v]", q + k..*rows)]
        }
        (_, [rows, _]) => vec![("", 0..*rows)],
        _ => Vec::new(),
    }
}

/// Spectra of the blocks of a checkpoint, by metric. Tensors that the file has under other names are skipped.
pub fn of_checkpoint(
    file: &Weights,
    infos: &[ParamInfo],
    n_layer: usize,
) -> BTreeMap<String, Vec<Num>> {
    let mut sums = vec![[(0.0, 0.0); 3]; n_layer];
    for info in infos {
        let (Some(layer), [_, cols]) = (info.layer, &*info.shape) else {
            continue;
        };
        let Ok(values) = file.read(&info.name, &info.shape) else {
            continue;
        };
        let third = info.shape[0] / 3;
        for (suffix, rows) in parts(info, [third; 3]) {
            let part = &values[rows.start * cols..rows.end * cols];
            let matrix = Matrix::of(info, suffix, part, *cols);
            let found = [
                matrix.alpha.map(|fit| fit.alpha),
                matrix.spectrum.map(|s| s.stable_rank),
                matrix.spectrum.map(|s| s.kl_sigma),
            ];
            let Some(block) = sums.get_mut(layer as usize) else {
                continue;
            };
            for ((sum, n), x) in block.iter_mut().zip(found) {
                if let Some(x) = x {
                    *sum += x;
                    *n += 1.0;
                }
            }
        }
    }
    let mut found = BTreeMap::new();
    for (at, metric) in METRICS.iter().enumerate() {
        let mut report = super::Report::default();
        report.set_layers(
            metric.id,
            sums.iter().map(|block| block[at].0 / block[at].1),
        );
        let measured = |(_, values): &(String, Vec<Num>)| values.iter().any(|x| x.0.is_finite());
        found.extend(report.layers.into_iter().filter(measured));
    }
    found
}

/// A matrix as numbers for JSON.
pub fn numbers(matrix: &Matrix) -> Values {
    let mut values = Values::new();
    let mut set = |id: &str, x: Option<f64>| {
        if let Some(x) = x {
            values.insert(id.into(), Num(x));
        }
    };
    set("alpha", matrix.alpha.map(|f| f.alpha));
    set("alpha_distance", matrix.alpha.map(|f| f.distance));
    set("alpha_n", matrix.alpha.map(|f| f.n as f64));
    set("alpha_hill_mid", matrix.hill_mid.map(|f| f.alpha));
    let s = matrix.spectrum;
    set("spectral_norm", s.map(|s| s.spectral_norm));
    set("stable_rank", s.map(|s| s.stable_rank));
    set("effective_rank", s.map(|s| s.effective_rank));
    set("singular_entropy", s.map(|s| s.kl_sigma));
    set("singular_entropy_energy", s.map(|s| s.kl_energy));
    set("energy_to_random", matrix.energy_to_random);
    set("frobenius", s.map(|s| s.frobenius));
    set("std", Some(matrix.std));
    set("max", Some(matrix.largest));
    set("dead_rows", Some(matrix.dead_rows as f64));
    set("non_finite", Some(matrix.non_finite as f64));
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::{Rng, Stream};
    use crate::nn::Init;

    fn info(role: Role, rows: usize, cols: usize) -> ParamInfo {
        ParamInfo {
            name: "w".into(),
            role,
            layer: Some(0),
            expert: None,
            shape: vec![rows, cols],
            offset: 0,
            len: rows * cols,
            grad: None,
            decay: true,
            lr_scale: 1.0,
            init: Init::Zeros,
        }
    }

    /// A healthy small model ended with an alarm.
    #[test]
    fn the_exponent_of_small_matrices_has_no_band() {
        let band = |side: usize| {
            let info = info(Role::Head, side, 4 * side);
            declarations(&[info])[0].band
        };
        assert_eq!((band(64), band(128)), (None, None));
        assert_eq!(band(256), ALPHA.band);
        assert!(declarations(&[])[1].band.is_some());
    }

    #[test]
    fn noise_looks_like_noise_and_faults_are_counted() {
        let (rows, cols) = (128, 128);
        let mut rng = Rng::new(1, Stream::Init, 0, 0);
        let mut values: Vec<f32> = (0..rows * cols).map(|_| 0.02 * rng.normal()).collect();
        let info = info(Role::Head, rows, cols);
        let random = Matrix::of(&info, "", &values, cols);
        assert!(
            (random.energy_to_random.unwrap() - 1.0).abs() < 0.1,
            "{random:?}"
        );
        assert!((random.std - 0.02).abs() < 1e-3 && random.dead_rows == 0);
        assert!(random.alpha.unwrap().alpha > 2.0);
        values[..2 * cols].fill(0.0);
        assert_eq!(Matrix::of(&info, "", &values, cols).dead_rows, 2);
        values[5] = f32::NAN;
        let broken = Matrix::of(&info, "", &values, cols);
        assert_eq!(
            (broken.non_finite, broken.spectrum, broken.alpha),
            (1, None, None)
        );
    }

    #[test]
    fn queries_keys_and_values_in_one_tensor_are_three_matrices() {
        let fused = info(Role::Attention(AttentionRole::QueryKeyValue), 12, 4);
        let names: Vec<_> = parts(&fused, [4; 3])
            .into_iter()
            .map(|part| part.0)
            .collect();
        assert_eq!(names, ["[q]", "[k]", "[v]"]);
        assert_eq!(parts(&info(Role::Head, 12, 4), [4; 3]), [("", 0..12)]);
    }
}
