//! `olmoe`: experts in every block whose weights are not normalized, QK-norm over all heads of a token (llama.cpp,
//! src/models/olmoe.cpp).

use super::{Architecture, Keys, OwnKeys, Seen, common};
use crate::nn::{AttentionBias, ModelConfig, ModelShape, QkNormOver};

pub struct Olmoe;

impl Architecture for Olmoe {
    fn name(&self) -> &'static str {
        "olmoe"
    }

    fn read(&self, keys: Keys, seen: &Seen) -> Result<ModelConfig, String> {
        let mut config = common::read(keys, seen)?;
        if let Some(moe) = &mut config.moe {
            moe.norm_topk = false;
        }
        Ok(ModelConfig {
            qk_norm: true,
            qk_norm_over: QkNormOver::AllHeads,
            ..config
        })
    }

    fn write(&self, config: &ModelConfig, shape: &ModelShape) -> Option<OwnKeys> {
        let moe = config.moe.as_ref()?;
        let by_head = ModelConfig {
            qk_norm_over: QkNormOver::Head,
            ..config.clone()
        };
        let fits = config.qk_norm
            && config.qk_norm_over == QkNormOver::AllHeads
            && !moe.norm_topk
            && common::is_plain(&by_head)
            && common::rotates_alike(config, shape)
            && config.attention_biases() == AttentionBias::None
            // Both norms are as wide as the model there.
            && shape.n_head * shape.head_dim == shape.d_model
            && shape.n_kv_head == shape.n_head;
        fits.then(|| common::write_one_width(config, shape))?
    }

    fn needs_head(&self) -> bool {
        true
    }
}
