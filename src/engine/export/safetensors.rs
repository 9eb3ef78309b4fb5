//! The weights under llmtui's own names, for any architecture: what no class of transformers computes travels this way.

use super::hf::{beside, weights};
use super::{ExportError, FLOATS, Folder, Format, Options, Source};
use crate::hf::Naming;

pub struct Safetensors;

impl Format for Safetensors {
    fn word(&self) -> &'static str {
        "safetensors"
    }

    fn summary(&self) -> &'static str {
        "a folder for llmtui itself, of any architecture: weights under its own names, config.json with its own words"
    }

    fn dtypes(&self) -> &'static [&'static str] {
        FLOATS
    }

    fn write(
        &self,
        source: &Source,
        options: &Options,
        folder: &mut Folder,
    ) -> Result<(), ExportError> {
        weights(source, options, Naming::Own, folder)?;
        beside(source, folder)
    }
}
