//! What a family is.

use super::super::keys::Keys;
use super::super::tensors::DiskTensor;
use crate::nn::{HeadKind, ModelConfig, ParamInfo};
use serde_json::Value;

/// One model class of transformers.
pub trait Family: Sync {
    /// The `model_type` in `config.json`.
    fn model_type(&self) -> &'static str;

    /// The class in `architectures` of a language model.
    fn class(&self) -> &'static str;

    /// The class with a score in place of the vocabulary.
    fn classifier(&self) -> &'static str;

    /// Whether transformers has that class.
    fn has_classifier(&self) -> bool {
        true
    }

    /// The class in `architectures` of a model of this family.
    fn class_of(&self, config: &ModelConfig) -> &'static str {
        match config.head {
            HeadKind::Vocabulary => self.class(),
            HeadKind::Score => self.classifier(),
        }
    }

    /// Whether its class has other names than ours for matrices that an adapter may be on, or fuses some. Phi-3 is asked by the
    /// parts of its fused matrices instead.
    fn renames_matrices(&self) -> bool {
        false
    }

    /// Reads the model config from the keys.
    ///
    /// # Errors
    /// A key that is missing, invalid or unsupported. Unread keys are the caller's
    /// concern.
    fn read(&self, keys: &Keys) -> Result<ModelConfig, String>;

    /// The keys of a canonical config, as far as the family can express it: gaps show when reading them back.
    fn write(&self, config: &ModelConfig) -> Value;

    /// `config` in the form of [`Family::read`], if this family computes the same differently.
    fn canonical(&self, config: ModelConfig) -> ModelConfig {
        config
    }

    /// Their name of a tensor that has our layout.
    fn disk_name(&self, own: &str) -> String {
        own.to_string()
    }

    /// Where each of their tensors is in our weights.
    fn tensors(&self, _config: &ModelConfig, infos: &[ParamInfo]) -> Vec<DiskTensor> {
        let renamed = |tensor: DiskTensor| {
            let name = self.disk_name(&tensor.name);
            tensor.named(name)
        };
        one_by_one(infos).into_iter().map(renamed).collect()
    }

    /// Tensors of blocks behind the model's own, which predict tokens further ahead and are not read.
    fn is_behind(&self, _config: &ModelConfig, _name: &str) -> bool {
        false
    }

    /// Whether its experts may be in MXFP4.
    fn reads_mxfp4(&self) -> bool {
        false
    }

    /// Tensors in files that follow from the config.
    fn is_buffer(&self, name: &str) -> bool {
        name.ends_with(".rotary_emb.inv_freq")
    }
}

/// Each parameter as one tensor, in our order; a position table may be longer in the file.
pub fn one_by_one(infos: &[ParamInfo]) -> Vec<DiskTensor> {
    const POSITIONS: [&str; 2] = ["transformer.wpe.weight", "model.embed_positions.weight"];
    infos
        .iter()
        .map(|info| DiskTensor {
            more_rows: POSITIONS.contains(&info.name.as_str()),
            ..DiskTensor::own(info)
        })
        .collect()
}
