//! The experts of a model over an optimizer step: their load, and the biases that balance it.

use super::{Model, StepPosition};
use crate::kernels::experts::Tally;
use crate::nn::Balancing;
use crate::nn::layout::MlpSpans;
use candle_core::Result;

/// Load statistics of the experts in the micro-steps since [`Model::begin_step`]; means over the blocks with experts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExpertLoad {
    /// Tokens of the busiest expert over the mean: 1 if balanced.
    pub busiest: f64,
    /// Entropy of the tokens' distribution over experts, divided by that of the uniform one: 1 if balanced.
    pub entropy: f64,
    /// E · Σ f_e P_e: top_k if balanced.
    pub aux_loss: f64,
    /// Mean squared log-sum-exp of the router's logits.
    pub z_loss: f64,
}

impl ExpertLoad {
    /// Over the tallies of a step, one for each block; `None` if none has tokens.
    pub fn over(tallies: &[Tally]) -> Option<ExpertLoad> {
        let seen = tallies.iter().filter(|tally| tally.tokens > 0.0);
        let loads: Vec<ExpertLoad> = seen.map(ExpertLoad::of).collect();
        let n = loads.len() as f64;
        let mean = |f: fn(&ExpertLoad) -> f64| loads.iter().map(f).sum::<f64>() / n;
        (n > 0.0).then(|| ExpertLoad {
            busiest: mean(|l| l.busiest),
            entropy: mean(|l| l.entropy),
            aux_loss: mean(|l| l.aux_loss),
            z_loss: mean(|l| l.z_loss),
        })
    }

    fn of(tally: &Tally) -> ExpertLoad {
        let total: f64 = tally.counts.iter().sum();
        let n = tally.counts.len() as f64;
        let most = tally.counts.iter().fold(0.0_f64, |a, b| a.max(*b));
        let shares = tally.counts.iter().map(|count| count / total.max(1.0));
        let entropy: f64 = shares.filter(|p| *p > 0.0).map(|p| -p * p.ln()).sum();
        ExpertLoad {
            busiest: most * n / total.max(1.0),
            entropy: if n > 1.0 { entropy / n.ln() } else { 1.0 },
            aux_loss: tally.aux(),
            z_loss: tally.z(),
        }
    }
}

/// Tallies of the micro-steps of an optimizer step, by block; empty for blocks without experts.
#[derive(Debug, Default)]
pub(super) struct Loads(Vec<Tally>);

impl Loads {
    pub fn add(&mut self, tallies: &[Tally]) {
        if self.0.len() < tallies.len() {
            self.0.resize_with(tallies.len(), Tally::default);
        }
        for (sum, tally) in self.0.iter_mut().zip(tallies) {
            sum.join(tally);
        }
    }

    fn clear(&mut self) {
        self.0.iter_mut().for_each(|tally| tally.clear(0));
    }
}

impl Model {
    /// Sets the position in the run of the next passes: dropout and the weight of balancing depend on it.
    pub fn set_step_position(&mut self, step_position: StepPosition) {
        self.step_position = step_position;
    }

    /// The load of the experts; `None` without experts, or before a training pass. Only available on the fused backend.
    pub fn expert_load(&self) -> Option<ExpertLoad> {
        ExpertLoad::over(&self.loads.0)
    }

    /// Begins an optimizer step: gradients and expert tallies are reset. A previous step that was not applied
    /// has no effect.
    ///
    /// # Errors
    /// candle's own.
    pub fn begin_step(&mut self) -> Result<()> {
        self.loads.clear();
        self.params.zero_grads()
    }

    /// Ends an optimizer step, after its update: the experts' biases move against the observed load (DeepSeek-V3, arXiv
    /// 2412.19437, section 2.1.2).
    ///
    /// # Errors
    /// Quantized weights.
    pub fn end_step(&mut self) -> Result<()> {
        let biased = self.config.moe.as_ref().map(|moe| moe.balancing);
        if let Some(Balancing::Bias { rate }) = biased
            && rate > 0.0
            && self.adapter.is_none()
        {
            let (layout, loads) = (&self.layout, &self.loads.0);
            self.params.write_weights(|weights| {
                for (block, tally) in layout.blocks.iter().zip(loads) {
                    let MlpSpans::Many(spans) = &block.mlp else {
                        continue;
                    };
                    // A frozen base must not change.
                    if let Some(span) = spans.bias.filter(|span| span.grad.is_some()) {
                        move_bias(&mut weights[span.range()], tally, rate);
                    }
                }
            })?;
        }
        self.loads.clear();
        Ok(())
    }
}

/// Up for experts with fewer tokens than the mean, down for those with more.
fn move_bias(bias: &mut [f32], tally: &Tally, rate: f64) {
    let mean = tally.counts.iter().sum::<f64>() / tally.counts.len().max(1) as f64;
    for (bias, &count) in bias.iter_mut().zip(&tally.counts) {
        let direction = match count.partial_cmp(&mean) {
            Some(std::cmp::Ordering::Less) => 1.0,
            Some(std::cmp::Ordering::Greater) => -1.0,
            _ => 0.0,
        };
        *bias += (rate * direction) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balanced_load_is_one_and_a_single_busy_expert_the_maximum() {
        let mut tally = Tally::default();
        tally.clear(4);
        tally.counts = vec![5.0; 4];
        tally.tokens = 10.0;
        let load = ExpertLoad::of(&tally);
        assert_eq!((load.busiest, load.entropy), (1.0, 1.0));
        tally.counts = vec![20.0, 0.0, 0.0, 0.0];
        let load = ExpertLoad::of(&tally);
        assert_eq!((load.busiest, load.entropy), (4.0, 0.0));
    }

    #[test]
    fn biases_move_against_the_load() {
        let mut tally = Tally::default();
        tally.clear(3);
        tally.counts = vec![9.0, 0.0, 3.0];
        let mut bias = [0.0, 0.5, 0.0];
        move_bias(&mut bias, &tally, 0.25);
        assert_eq!(bias, [-0.25, 0.75, 0.25]);
    }
}
