//! Multi-head latent attention, as said in a spec: keys and values of all heads come from one short latent vector of each token, and
//! that is what a text keeps of it. With x the block's input, of each head
//!
//! ```text
//! q = q_b(norm(q_a(x))), or q_proj(x) without q_rank          nope_dim + rope_dim features
//! c, k_rope = kv_a(x)                                         kv_rank, and rope_dim that all heads share
//! k_nope, v = kv_b(norm(c))                                   nope_dim and v_dim features
//! k = k_nope | RoPE(k_rope), q = q_nope | RoPE(q_rope)
//! ```

use super::position::ScalingConfig;
use super::{AttentionBias, ModelConfig};
use crate::kernels::attention::Heads;
use crate::kernels::latent::Sizes;
use serde::{Deserialize, Serialize};

/// Keys and values from a latent vector of each token (MLA; DeepSeek-V2, DeepSeek-AI 2024, arXiv 2405.04434).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MlaConfig {
    /// Width of the latent vector that keys and values come from (DeepSeek-V2: 512). A text keeps kv_rank + rope_dim numbers of a
    /// token in each block.
    #[schemars(range(min = 1, max = 8192))]
    pub kv_rank: usize,
    /// Width of a latent vector that queries come from (DeepSeek-V3: 1536). Default: queries come from the block's input.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65536))]
    pub q_rank: Option<usize>,
    /// Features of a query or key head that have no position (DeepSeek-V2: 128).
    #[schemars(range(min = 1, max = 1024))]
    pub nope_dim: usize,
    /// Features of a query or key head that RoPE rotates; their keys are shared by all heads (DeepSeek-V2: 64).
    #[schemars(range(min = 2, max = 1024))]
    pub rope_dim: usize,
    /// Features of a value head (DeepSeek-V2: 128).
    #[schemars(range(min = 1, max = 1024))]
    pub v_dim: usize,
    /// Added to the mean square in the norms of the latent vectors.
    #[serde(skip_serializing_if = "is_usual_eps")]
    #[schemars(range(min = 1e-12, max = 1.0), extend("default" = 1e-6))]
    pub norm_eps: f64,
}

/// That of DeepSeek's models, whatever their other norms have.
const EPS: f64 = 1e-6;

fn is_usual_eps(eps: &f64) -> bool {
    *eps == EPS
}

impl Default for MlaConfig {
    fn default() -> Self {
        MlaConfig {
            kv_rank: 64,
            q_rank: None,
            nope_dim: 32,
            rope_dim: 16,
            v_dim: 32,
            norm_eps: EPS,
        }
    }
}

impl MlaConfig {
    /// Features of a query or key head.
    pub fn qk_dim(&self) -> usize {
        self.nope_dim + self.rope_dim
    }

    /// Features of a head in attention's kernels, where queries, keys and values have the same: the rest is zeros.
    pub fn head_dim(&self) -> usize {
        self.qk_dim().max(self.v_dim)
    }

    /// What a text keeps of a token in a block.
    pub fn kept(&self) -> usize {
        self.kv_rank + self.rope_dim
    }

    pub(crate) fn sizes(&self, n_head: usize) -> Sizes {
        Sizes {
            n_head,
            kv_rank: self.kv_rank,
            nope_dim: self.nope_dim,
            rope_dim: self.rope_dim,
            v_dim: self.v_dim,
        }
    }
}

impl ModelConfig {
    /// Features of a head that RoPE may rotate.
    pub fn rope_head_dim(&self) -> usize {
        let of_head = self.head_width();
        self.mla.as_ref().map_or(of_head, |mla| mla.rope_dim)
    }

    /// The scale of attention's scores, if it is not 1 / √(features of a head in attention's kernels). Latent attention with YaRN
    /// multiplies it by (0.1 · mscale_all_dim · ln(factor) + 1)² (DeepSeek-V2's own code).
    pub fn score_scale(&self) -> Option<f64> {
        let Some(mla) = &self.mla else {
            return self.attention_scale;
        };
        let scaling = self.position.rope().and_then(|rope| rope.scaling.as_ref());
        let stretched = match scaling {
            Some(ScalingConfig::Yarn(yarn)) => yarn.score_factor(),
            _ => 1.0,
        };
        let plain = stretched.powi(2) / (mla.qk_dim() as f64).sqrt();
        Some(self.attention_scale.unwrap_or(plain))
    }

    /// The mean of the widths of all queries and of all values: what the FLOPs of attention are proportional to.
    pub fn scored_width(&self) -> f64 {
        let of_head = match &self.mla {
            Some(mla) => (mla.qk_dim() + mla.v_dim) as f64 / 2.0,
            None => self.head_width() as f64,
        };
        self.n_head as f64 * of_head
    }

    /// Heads of what a text keeps: of latent attention one key, rope part first, whose other part is the value.
    pub(crate) fn kept_heads(&self) -> Heads {
        match &self.mla {
            Some(mla) => mla.sizes(self.n_head).latent_heads(),
            None => self.shape(0).heads(),
        }
    }
}

/// What latent attention does not go together with, as (whether it is there, key, what to do).
pub(super) fn conflicts(
    config: &ModelConfig,
) -> Vec<(bool, &'static [&'static str], &'static str)> {
    vec![
        (
            config.n_kv_head.is_some_and(|n| n != config.n_head),
            &["mla", "n_kv_head"],
            "all heads share one latent vector: leave n_kv_head out",
        ),
        (
            config.attention_type.is_some(),
            &["mla", "attention_type"],
            "leave attention_type out",
        ),
        (
            config
                .mla
                .as_ref()
                .is_some_and(|mla| config.head_dim.is_some_and(|n| n != mla.head_dim())),
            &["mla", "head_dim"],
            "nope_dim, rope_dim and v_dim are the features of a head: leave head_dim out",
        ),
        (
            config.qk_norm,
            &["mla", "qk_norm"],
            "its latent vectors are normalized: leave qk_norm out",
        ),
        (
            config.attention_gate,
            &["mla", "attention_gate"],
            "attention_gate: false",
        ),
        (
            config.attention_sinks,
            &["mla", "attention_sinks"],
            "attention_sinks: false",
        ),
        (
            config.sliding_window.is_some(),
            &["mla", "sliding_window"],
            "leave sliding_window out",
        ),
        (
            config.bias || config.attention_bias != AttentionBias::None,
            &["mla", "bias", "attention_bias"],
            "bias: false and attention_bias: none",
        ),
        (
            config.mixer.is_some(),
            &["mla", "mixer"],
            "leave mixer out: all blocks have latent attention",
        ),
        (
            config.position.rope().is_none(),
            &["mla", "position"],
            "position: rope, which rotates rope_dim features of each head",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn model(says: Value) -> ModelConfig {
        let mut all = json!({"mla": {}, "position": {"rope": {}}, "norm": {"rmsnorm": {}}});
        for (key, value) in says.as_object().unwrap() {
            all[key] = value.clone();
        }
        serde_json::from_value(all).unwrap()
    }

    #[test]
    fn what_does_not_go_together_is_named_with_a_fix() {
        assert_eq!(model(json!({})).faults(), []);
        for (says, key) in [
            (json!({"n_kv_head": 2}), "n_kv_head"),
            (json!({"attention_type": "mha"}), "attention_type"),
            (json!({"head_dim": 32}), "head_dim"),
            (json!({"qk_norm": true}), "qk_norm"),
            (json!({"attention_gate": true}), "attention_gate"),
            (json!({"sliding_window": 8}), "sliding_window"),
            (json!({"bias": true}), "bias"),
            (json!({"attention_bias": "qkv"}), "attention_bias"),
            (
                json!({"mixer": {"short_conv": {}}, "attention_every": 2}),
                "mixer",
            ),
            (json!({"position": {"learned": {}}}), "position"),
            (
                json!({"position": {"rope": {"fraction": 0.5}}}),
                "position.rope.fraction",
            ),
            (json!({"mla": {"rope_dim": 7}}), "mla"),
        ] {
            let faults = model(says.clone()).faults();
            assert_eq!(faults.len(), 1, "{says}: {faults:?}");
            assert!(faults[0].keys.contains(&key), "{faults:?}");
        }
    }

    #[test]
    fn scores_are_scaled_by_the_features_of_a_key_and_by_yarn() {
        let plain = model(json!({"mla": {"nope_dim": 128, "rope_dim": 64, "v_dim": 256}}));
        assert_eq!(plain.score_scale(), Some(1.0 / 192f64.sqrt()));
        assert_eq!((plain.head_width(), plain.rope_head_dim()), (256, 64));
        // DeepSeek-V2.
        let yarn =
            json!({"factor": 40.0, "original_len": 4096, "mscale": 0.707, "mscale_all_dim": 0.707});
        let long = model(json!({
            "mla": {"nope_dim": 128, "rope_dim": 64},
            "position": {"rope": {"scaling": {"yarn": yarn}}},
        }));
        let factor = 0.1 * 0.707 * 40f64.ln() + 1.0;
        let expected = factor * factor / 192f64.sqrt();
        assert!((long.score_scale().unwrap() - expected).abs() < 1e-12);
    }
}
