//! The largest singular value of each block's matrices, by a power iteration that continues from probe to probe.

use super::spectra::parts;
use super::{Cadence, ProbeInput, Probe, ProbeEntry, Report, Setup};
use crate::base::rng::{Rng, Stream};
use crate::kernels::spectrum::spectral_norm;
use crate::metrics::{Direction, Metric, Origin, Repeatable, id, metric};
use crate::nn::{Params, Role};
use crate::optim::UpdateRule;
use candle_core::Result;

pub static ENTRY: ProbeEntry = ProbeEntry {
    id: "spectral",
    metrics: &[NORM, SCALED],
    cadence: Cadence::Seldom,
    inputs: &[ProbeInput::Update],
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
    "σ_max / √(rows / columns), the largest of a block, queries, keys and values each: of order 1 where features are learned at every width (Yang et al. 2023, arXiv 2310.17813). Not of adapters: a factor alone is no layer's update",
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
    /// A factor of an adapter begins far above the scale of a layer: only the product of both is an update.
    is_factor: bool,
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
            for (_, part) in parts(info, [rows / 3; 3]) {
                matrices.push(Matrix {
                    layer: layer as usize,
                    from: info.offset + part.start * cols,
                    rows: part.len(),
                    cols: *cols,
                    vector: (0..*cols).map(|_| rng.normal()).collect(),
                    seen: false,
                    is_factor: matches!(info.role, Role::Adapter(_)),
                });
            }
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
                let scaled = match matrix.is_factor {
                    true => f64::NAN,
                    false => sigma / (rows as f64 / cols as f64).sqrt(),
                };
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
        }
        if self.found.iter().any(|x| x[1].is_finite()) {
            into.set_layers(SCALED.id, self.found.iter().map(|x| x[1]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::{Model, ModelConfig};
    use crate::optim::OptimizerConfig;
    use candle_core::Device;

    fn model() -> Model {
        let config = ModelConfig {
            n_layer: 1,
            n_head: 2,
            d_model: 8,
            seq_len: 4,
            ..Default::default()
        };
        let mut model = Model::new(&config, 13, &Device::Cpu).unwrap();
        model.init(1).unwrap();
        model
    }

    fn report(model: &Model) -> Report {
        let params = model.params();
        let mut probe = Spectral::of(&Setup {
            n_layer: 1,
            params: params.infos(),
            micro_batches: 1,
            batch_tokens: 4,
            max_steps: 1,
            reference: None,
            remote: false,
        });
        let rule = OptimizerConfig::AdamW(Default::default());
        let rule = rule.build(params).unwrap();
        probe.update(params, &*rule).unwrap();
        let mut report = Report::default();
        probe.report(&mut report);
        report
    }

    /// Queries of 3 · identity over keys and values of 0: the three at once would be 3 / √3.
    #[test]
    fn queries_keys_and_values_are_measured_apart() {
        let mut model = model();
        let infos = model.params().infos().to_vec();
        let fused = infos.iter().find(|info| info.name.ends_with("c_attn.weight"));
        let from = fused.unwrap().offset;
        let fill = |weights: &mut [f32]| {
            weights.fill(0.0);
            (0..8).for_each(|i| weights[from + 9 * i] = 3.0);
        };
        model.params_mut().write_weights(fill).unwrap();
        let found = report(&model).layers;
        assert_eq!(found[NORM.id][0].0, 3.0);
        assert_eq!(found[SCALED.id][0].0, 3.0);
    }

    /// A alone begins at about 0.58 · √(columns / rank) of that scale, whatever it does to the layer.
    #[test]
    fn factors_of_adapters_have_no_scale() {
        let mut model = model();
        let adapter = serde_json::json!({"lora": {"rank": 2}});
        model.adapt(&serde_json::from_value(adapter).unwrap()).unwrap();
        model.init(1).unwrap();
        let found = report(&model).layers;
        assert!(found[NORM.id][0].0 > 0.0);
        assert!(!found.contains_key(SCALED.id), "{found:?}");
    }
}
