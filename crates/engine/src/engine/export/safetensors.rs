//! The weights under llmtui's own names, for any architecture: what no class of transformers computes travels this way.

use super::hf::{beside, weights};
use super::{ExportError, FLOATS, Folder, Format, Options, Source};
use crate::hf::Naming;

pub(super) const FORMAT: Format = Format {
    word: "safetensors",
    summary: "a folder for llmtui itself, of any architecture: weights under its own names, config.json with its own words",
    dtypes: FLOATS,
    write,
};

fn write(source: &Source, options: &Options, folder: &mut Folder) -> Result<(), ExportError> {
    weights(source, options, Naming::Own, folder)?;
    beside(source, folder)
}
