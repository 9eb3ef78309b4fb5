//! Gradient norm and update size per block: both are by-products of the optimizer's pass.

use super::{Cadence, ProbeInput, Probe, ProbeEntry, Report, Setup};
use crate::metrics::{Direction, Metric, Origin, Repeatable, id, metric};
use crate::nn::Params;
use crate::optim::UpdateRule;
use candle_core::Result;

pub static ENTRY: ProbeEntry = ProbeEntry {
    id: "layers",
    metrics: &[GRADIENT, UPDATE],
    cadence: Cadence::Often,
    inputs: &[ProbeInput::Update],
    cost: "none: by-products of the update",
    make: |setup| Some(Box::new(Layers::of(setup))),
};

const GRADIENT: Metric = metric(
    id::GRAD_BY_LAYER,
    "Gradient norm by layer",
    "",
    Direction::Neutral,
    Repeatable::Yes,
    "L2 norm of a block's gradient before clipping (Pascanu et al. 2013, arXiv 1211.5063)",
)
.estimator("l2")
.label("grad norm/layer")
.per_layer()
.meaning(
    "Falls fast in the warm-up, then drifts slowly. Blocks are within a factor of about ten of each other: residual connections carry the gradient to all of them. The absolute value depends on the model and has no band.",
    "One block far below the others: it is frozen, dead or disconnected. Growth with depth that keeps rising: lower the learning rate, lengthen the warm-up.",
);

const UPDATE: Metric = metric(
    id::UPDATE_BY_LAYER,
    "Update to weight ratio by layer",
    "",
    Direction::Neutral,
    Repeatable::Yes,
    "‖ΔW‖ / ‖W‖ over a block's matrices, from the actual change, decay included (Karpathy, CS231n: about 1e-3)",
)
.estimator("l2_ratio")
.label("update ratio/layer")
.per_layer()
.band(f64::NEG_INFINITY, 1e-2, Origin::RuleOfThumb)
.meaning(
    "3e-4 to 3e-3 in pretraining with AdamW; 1e-5 to 1e-4 when a model is fine-tuned at 5e-6, less in preference training, where a low value is normal. Near 0 at the start of warm-up.",
    "Above 1e-2: the learning rate is too high or the warm-up too short. Far below the other blocks: that block does not train.",
);

struct Layers {
    /// Block of each parameter that trains, in the order of the optimizer's norms, and whether it is a matrix.
    of: Vec<(Option<u32>, bool)>,
    /// Squares of gradient, update and weight of each block.
    squares: Vec<[f64; 3]>,
    /// Blocks that hold anything that trains: adapters may be on some alone.
    trains: Vec<bool>,
    /// Whether the optimizer has reported an update: then blocks without one did not change.
    seen: bool,
}

impl Layers {
    fn of(setup: &Setup<'_>) -> Layers {
        let trained = setup.params.iter().filter(|info| info.trains());
        let of: Vec<_> = trained.map(|info| (info.layer, info.has_update_ratio())).collect();
        let trains = |block| of.iter().any(|(layer, _)| *layer == Some(block));
        Layers {
            trains: (0..setup.n_layer as u32).map(trains).collect(),
            of,
            squares: vec![[0.0; 3]; setup.n_layer],
            seen: false,
        }
    }

    /// A value of each block; none of one that is not to train, beside others that are.
    fn by_block(&self, value: impl Fn(&[f64; 3]) -> f64) -> Vec<f64> {
        let none = !self.trains.contains(&true);
        let blocks = self.squares.iter().zip(&self.trains);
        let of = |(squares, trains): (_, &bool)| if *trains || none { value(squares) } else { f64::NAN };
        blocks.map(of).collect()
    }
}

impl Probe for Layers {
    fn update(&mut self, _params: &Params, rule: &dyn UpdateRule) -> Result<()> {
        self.squares.fill([0.0; 3]);
        self.seen = rule.last_norms().iter().any(|norms| norms.weight > 0.0);
        for (norms, (layer, matrix)) in rule.last_norms().iter().zip(&self.of) {
            let block = layer.and_then(|layer| self.squares.get_mut(layer as usize));
            let Some([gradient, update, weight]) = block else { continue };
            *gradient += norms.grad.powi(2);
            if *matrix {
                *update += norms.update.powi(2);
                *weight += norms.weight.powi(2);
            }
        }
        Ok(())
    }

    fn report(&mut self, into: &mut Report) {
        if !self.seen {
            return;
        }
        into.set_layers(GRADIENT.id, self.by_block(|s| s[0].sqrt()));
        let ratio = |s: &[f64; 3]| s[1].sqrt() / (s[2].sqrt() + 1e-12);
        into.set_layers(UPDATE.id, self.by_block(ratio));
    }
}
