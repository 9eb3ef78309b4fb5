//! The weights under llmtui's own names, for any architecture: the export for models that no transformers class computes.

use super::hf::{weights, write_side_files};
use super::{ExportError, FLOATS, Folder, Format, Options, Source};
use crate::hf::Naming;

pub(super) const FORMAT: Format = Format {
    word: "safetensors",
    summary: "a folder for llmtui itself, for any architecture, with its own names in weights and config.json",
    dtypes: FLOATS,
    write,
};

fn write(source: &Source, options: &Options, folder: &mut Folder) -> Result<(), ExportError> {
    weights(source, options, Naming::Own, folder)?;
    write_side_files(source, None, folder)
}
