//! Rotary positions apart from weights: those that the config.json beside an adapter gives a base that it was trained on, where
//! the run stretched them, and as settings that make transformers read the base so.

use super::{CONFIG, families, read_config};
use crate::nn::ModelConfig;
use serde_json::Value;
use std::path::Path;

/// The model `base` with rotations and context of the config.json of a folder; `None` where they are the base's, or no file
/// names others.
pub fn positions_in(folder: &Path, base: &ModelConfig) -> Option<ModelConfig> {
    if !folder.join(CONFIG).is_file() {
        return None;
    }
    let own = read_config(folder).ok()?;
    base.is_stretched_in(&own).then(|| ModelConfig {
        position: own.position,
        seq_len: own.seq_len,
        context_len: own.context_len,
        ..base.clone()
    })
}

/// `rope_parameters` of transformers for this model's positions; `None` of a model without RoPE.
pub fn rope_parameters(config: &ModelConfig) -> Option<Value> {
    let config = config.in_files();
    let shape = config.shape(config.vocab_size.unwrap_or(1));
    let canonical = families::canonical(&config, &shape);
    canonical.position.rope().map(families::rope_parameters)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hf::config_json;
    use crate::nn::Model;
    use crate::nn::position::scaling::{Linear, Yarn};
    use crate::nn::position::{PositionConfig, RopeConfig, ScalingConfig};

    fn config(scaling: Option<ScalingConfig>, seq_len: usize) -> ModelConfig {
        let rope = RopeConfig {
            scaling,
            ..RopeConfig::default()
        };
        ModelConfig {
            n_layer: 1,
            n_head: 2,
            d_model: 16,
            seq_len,
            position: PositionConfig::Rope(rope),
            ..ModelConfig::default()
        }
    }

    fn yarn() -> Option<ScalingConfig> {
        Some(ScalingConfig::Yarn(Yarn {
            factor: 4.0,
            original_len: Some(32),
            ..Yarn::default()
        }))
    }

    #[test]
    fn a_folder_says_how_the_positions_of_its_base_were_stretched() {
        let dir = tempfile::tempdir().unwrap();
        let cpu = candle_core::Device::Cpu;
        let base = config(None, 32);
        assert_eq!(positions_in(dir.path(), &base), None);
        let beside = |config: &ModelConfig| {
            let model = Model::new(config, 11, &cpu).unwrap();
            std::fs::write(dir.path().join(CONFIG), config_json(&model, None)).unwrap();
            positions_in(dir.path(), &base)
        };
        let found = beside(&config(yarn(), 128)).unwrap();
        assert_eq!((found.seq_len, found.d_model), (128, 16));
        assert!(!found.is_stretched_in(&config(yarn(), 128)));
        // The base's own, and shorter rows of training: nothing to say.
        assert_eq!(beside(&config(None, 32)), None);
        assert_eq!(beside(&config(None, 16)), None);
        let shorter = ModelConfig {
            context_len: Some(128),
            ..config(yarn(), 64)
        };
        assert_eq!(beside(&shorter).unwrap().context(), 128);
    }

    #[test]
    fn transformers_reads_the_positions_from_rope_parameters() {
        let found = rope_parameters(&config(yarn(), 128)).unwrap();
        assert_eq!(found["rope_type"], "yarn");
        assert_eq!(found["original_max_position_embeddings"], 32);
        let linear = ScalingConfig::Linear(Linear { factor: 4.0 });
        let found = rope_parameters(&config(Some(linear), 128)).unwrap();
        assert_eq!(found["rope_type"], "linear");
        assert_eq!(found["factor"], 4.0);
        let learned = ModelConfig::default();
        assert_eq!(rope_parameters(&learned), None);
    }
}
