//! FLOPs per token of a model at hand, for benchmarks; `plan` counts those of a run, by its method.

use super::{Model, ModelConfig, ModelShape, ParamInfo, Role};

/// Floating-point operations of one training token, forward and backward: 6 N + 12 · n_layer · n_head · head_dim · seq_len
/// (Chowdhery et al. 2022, PaLM, appendix B). N counts the matrices that a token is multiplied with: `n_params` less
/// embedding tables that are only looked up, and experts that a token is not sent to. The attention term counts the whole square, as PaLM does, causal or not; of a
/// block with a sliding window the window in place of seq_len, and nothing of a block without attention. With latent attention
/// n_head · head_dim is the mean of the widths of queries and of values.
fn flops_per_token(config: &ModelConfig, shape: &ModelShape, n_matmul_params: usize) -> f64 {
    let attention = 12.0 * config.scored_width() * config.scored_keys(shape.seq_len as f64);
    6.0 * n_matmul_params as f64 + attention + state_flops(config)
}

/// The same of the states of mixers: backward costs twice as much as forward.
pub fn state_flops(config: &ModelConfig) -> f64 {
    3.0 * config.state_flops() as f64
}

/// Frozen parameters in matrices that a token is multiplied with: a backward pass needs no gradient of theirs, 2 FLOPs less for each.
pub fn frozen_matmul_params(config: &ModelConfig, infos: &[ParamInfo]) -> u64 {
    let frozen = infos
        .iter()
        .filter(|info| !info.trains() && info.shape.len() == 2);
    let passed = frozen.map(|info| match info.role {
        Role::Position => 0,
        Role::Embedding if !config.ties_head() => 0,
        // Of all experts a token passes as many as it is sent to.
        _ => match (info.expert, &config.moe) {
            (Some(_), Some(moe)) => {
                (info.len as f64 * moe.top_k as f64 / moe.n_expert.max(1) as f64) as u64
            }
            _ => info.len as u64,
        },
    });
    passed.sum()
}

impl Model {
    /// FLOPs of one training token of this model. A frozen matrix needs no weight gradient: 4 N instead of
    /// 6 N.
    pub fn flops_per_token(&self) -> f64 {
        let unused = self.lookup_params() + self.idle_params();
        let all = flops_per_token(self.config(), self.shape(), self.n_params() - unused);
        all - 2.0 * frozen_matmul_params(self.config(), self.params().infos()) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::ModelConfig;
    use candle_core::Device;

    #[test]
    fn lookups_cost_nothing_and_the_head_counts_once() {
        let tied = ModelConfig::default();
        let free = ModelConfig {
            tie_embeddings: false,
            ..tied.clone()
        };
        let flops = |config: &ModelConfig| {
            let model = Model::new(config, 65, &Device::Cpu).unwrap();
            model.flops_per_token()
        };
        // 804,096 parameters minus 64 × 128 positions; 4 layers × 128 features × 64 tokens of attention.
        let expected = 6.0 * (804_096.0 - 8_192.0) + 12.0 * 4.0 * 128.0 * 64.0;
        assert_eq!(flops(&tied), expected);
        assert_eq!(flops(&free), expected);
    }

    /// Every second block sees all 64 tokens, the others 16.
    #[test]
    fn a_window_bounds_what_attention_costs() {
        let windowed = ModelConfig {
            sliding_window: Some(16),
            global_every: Some(2),
            ..ModelConfig::default()
        };
        let model = Model::new(&windowed, 65, &Device::Cpu).unwrap();
        let expected = 6.0 * (804_096.0 - 8_192.0) + 12.0 * 128.0 * (2.0 * 64.0 + 2.0 * 16.0);
        assert_eq!(model.flops_per_token(), expected);
    }

    #[test]
    fn frozen_matrices_cost_two_thirds() {
        let untied = ModelConfig {
            tie_embeddings: false,
            ..ModelConfig::default()
        };
        for config in [ModelConfig::default(), untied] {
            let mut model = Model::new(&config, 65, &Device::Cpu).unwrap();
            let all = model.flops_per_token();
            let attention = 12.0 * 4.0 * 128.0 * 64.0;
            model.train_only(|_| false).unwrap();
            let matrices = 65.0 * 128.0 + 4.0 * 12.0 * 128.0 * 128.0;
            let expected = all - 2.0 * matrices;
            assert_eq!(model.flops_per_token(), expected);
            assert!(expected - attention > 0.6 * (all - attention));
        }
    }
}
