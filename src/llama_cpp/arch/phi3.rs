//! `phi3`: Llama with fused projections. Read only: without them the same model is a `llama`.

use super::{Architecture, Keys, OwnKeys, Seen, common};
use crate::nn::{ModelConfig, ModelShape};

pub struct Phi3;

impl Architecture for Phi3 {
    fn name(&self) -> &'static str {
        "phi3"
    }

    fn read(&self, keys: Keys, seen: &Seen) -> Result<ModelConfig, String> {
        let config = common::read(keys, seen)?;
        let window = keys.count_if("attention.sliding_window")?;
        Ok(ModelConfig {
            // A window of the whole context is none.
            sliding_window: window.filter(|n| *n > 0 && *n < config.seq_len),
            ..config
        })
    }

    fn write(&self, _: &ModelConfig, _: &ModelShape) -> Option<OwnKeys> {
        None
    }

    fn is_fused(&self) -> bool {
        true
    }
}
