//! The largest singular value of each block's matrices, by a power iteration that continues from probe to probe.

use super::{Cadence, Look, Probe, ProbeEntry, Report, Setup};
use crate::base::rng::{Rng, Stream};
use crate::kernels::spectrum::spectral_norm;
use crate::metrics::{Direction, Metric, Origin, Repeatable, id, metric};
use crate::nn::Params;
use crate::optim::UpdateRule;
use candle_core::Result;

pub static ENTRY: ProbeEntry = ProbeEntry {
    id: "spectral",
    metrics: &[NORM, SCALED],
    cadence: Cadence::Seldom,
    looks: &[Look::Update],
    cost: "two matrix-vector products per trained matrix",
    make: |setup| Some(Box::new(Spectral::of(setup))),
};

const SOURCE: &str = "σ_max of a matrix, not the spectral radius; the largest of a block's matrices that train, by power iteration";

const NORM: Metric = metric(
    id::SPECTRAL_NORM,
    "Spectral norm by layer",
    "",
    Direction::Neutral,
    Repeatable::No,
    SOURCE,
)
.label("spectral norm")
.per_layer()
.estimator("power_iteration")
.meaning(
    "An untrained matrix of n × m normal numbers of spread s has about s (√n + √m). It grows early, then slowly.",
    "More than twice in a thousand steps, or five times that of other blocks: activations and scores follow; lower the learning rate, raise weight decay, QK-norm for attention.",
);

const SCALED: Metric = metric(
    "spectral_scale/layer",
    "Spectral norm to scale by layer",
    "",
    Direction::Neutral,
    Repeatable::No,
    "σ_max / √(rows / columns), the largest of a block: of order 1 where features are learned at every width (Yang et al. 2023, arXiv 2310.17813)",
)
.label("spectral scale")
.per_layer()
.estimator("power_iteration")
.band(f64::NEG_INFINITY, 30.0, Origin::RuleOfThumb)
.meaning(
    "Of order 1 to 10.",
    "Above 30: the layer amplifies its input too much; act as for the spectral norm.",
);

/// Iterations of the first look and of each later one: the vector turns slowly from one to the next.
const COLD: usize = 10;
const WARM: usize = 2;

struct Matrix {
    layer: usize,
    from: usize,
    rows: usize,
    cols: usize,
    vector: Vec<f32>,
    seen: bool,
}

struct Spectral {
    matrices: Vec<Matrix>,
    /// Norm and scaled norm of each block.
    found: Vec<[f64; 2]>,
}

impl Spectral {
    fn of(setup: &Setup<'_>) -> Spectral {
        let mut matrices = Vec::new();
        for (index, info) in setup.params.iter().enumerate() {
            let (Some(layer), [rows, cols]) = (info.layer, &*info.shape) else { continue };
            if !info.trains() {
                continue;
            }
            let mut rng = Rng::new(0, Stream::Init, 0, index as u32);
            matrices.push(Matrix {
                layer: layer as usize,
                from: info.offset,
                rows: *rows,
                cols: *cols,
                vector: (0..*cols).map(|_| rng.normal()).collect(),
                seen: false,
            });
        }
        Spectral {
            matrices,
            found: vec![[f64::NAN; 2]; setup.n_layer],
        }
    }
}

impl Probe for Spectral {
    fn update(&mut self, params: &Params, _rule: &dyn UpdateRule) -> Result<()> {
        let held = params.first_held();
        self.found.fill([f64::NAN; 2]);
        let (matrices, found) = (&mut self.matrices, &mut self.found);
        crate::kernels::flat::read(params.weights(), |weights| {
            for matrix in matrices {
                let (rows, cols) = (matrix.rows, matrix.cols);
                let from = matrix.from - held;
                let rounds = if matrix.seen { WARM } else { COLD };
                matrix.seen = true;
                let values = &weights[from..from + rows * cols];
                let sigma = spectral_norm(values, rows, cols, &mut matrix.vector, rounds);
                let scaled = sigma / (rows as f64 / cols as f64).sqrt();
                if let Some(block) = found.get_mut(matrix.layer) {
                    // NaN: not measured yet.
                    *block = [block[0].max(sigma), block[1].max(scaled)];
                }
            }
        })
    }

    fn report(&mut self, into: &mut Report) {
        if self.found.iter().any(|x| x[0].is_finite()) {
            into.set_layers(NORM.id, self.found.iter().map(|x| x[0]));
            into.set_layers(SCALED.id, self.found.iter().map(|x| x[1]));
        }
    }
}
