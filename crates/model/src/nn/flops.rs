//! FLOPs per token, for a run's model FLOPs utilization (MFU).

use super::{Model, ModelShape, ParamInfo, Role};

/// Floating-point operations of one training token, forward and backward: 6 N + 12 · n_layer · n_head · head_dim · seq_len
/// (Chowdhery et al. 2022, PaLM, appendix B). N counts the matrices that a token is multiplied with: `n_params` minus
/// embedding tables that are only looked up, and experts that a token is not routed to. The attention term counts the full
/// square, as in PaLM, causal or not.
pub fn flops_per_token(shape: &ModelShape, n_matmul_params: usize) -> f64 {
    let attention = 12 * shape.n_layer * shape.n_head * shape.head_dim * shape.seq_len;
    6.0 * n_matmul_params as f64 + attention as f64
}

impl Model {
    /// FLOPs of one training token of this model. A frozen matrix needs no weight gradient: 4 N instead of
    /// 6 N.
    pub fn flops_per_token(&self) -> f64 {
        let unused = self.lookup_params() + self.idle_params();
        let all = flops_per_token(self.shape(), self.n_params() - unused);
        let frozen = |info: &&ParamInfo| !info.trains() && info.shape.len() == 2;
        let mut spared = 0;
        for info in self.params().infos().iter().filter(frozen) {
            let is_looked_up = match info.role {
                Role::Position => true,
                Role::Embedding => !self.config().ties_head(),
                _ => false,
            };
            // Only the experts that a token is routed to.
            let passes = match (info.expert, &self.config().moe) {
                (Some(_), Some(moe)) => moe.top_k as f64 / moe.n_expert.max(1) as f64,
                _ => 1.0,
            };
            if !is_looked_up {
                spared += (info.len as f64 * passes) as usize;
            }
        }
        all - 2.0 * spared as f64
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
