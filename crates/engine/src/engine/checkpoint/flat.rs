//! A second model in one file of a checkpoint: its weights in the engine's layout, and its optimizer's moments. For a critic
//! on the policy's trunk only the value head: the folder itself remains a language model that any program can load.

use super::error::CheckpointError;
use crate::hf::safetensors::{TensorFile, TensorHead, write_to};
use crate::kernels::errors::io_error;
use crate::nn::Model;
use crate::optim::UpdateRule;
use std::io;
use std::path::Path;

/// The weights; the optimizer's parts lie beside them under their own names.
const WEIGHTS: &str = "weights";

/// Writes a model, and the state of its optimizer where it has one.
///
/// # Errors
/// The disk's.
pub fn write(
    model: &Model,
    optimizer: Option<&dyn UpdateRule>,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let parts = optimizer.map(|o| o.state()).unwrap_or_default();
    let held = model.params().read_held(<[f32]>::len);
    let weights = TensorHead::f32(WEIGHTS, vec![held.map_err(io_error)?]);
    let moments = parts
        .iter()
        .map(|part| TensorHead::f32(part.name, vec![part.len]));
    let heads: Vec<TensorHead> = std::iter::once(weights).chain(moments).collect();
    write_to(out, &heads, &mut |sink| {
        let written = model.params().read_held(|values| sink.put(values));
        written.map_err(io_error)??;
        parts.iter().try_for_each(|part| {
            let mut written = Ok(());
            let mut put = |values: &[f32]| written = sink.put(values);
            let read = optimizer.map(|o| o.read_state(part.name, &mut put));
            read.transpose().map_err(io_error)?;
            written
        })
    })
}

/// Fills a model and its optimizer from what [`write()`] wrote.
///
/// # Errors
/// A file of another shape.
pub fn read(
    path: &Path,
    model: &mut Model,
    optimizer: Option<&mut (dyn UpdateRule + 'static)>,
) -> Result<(), CheckpointError> {
    let file = TensorFile::open(path)?;
    let mut read = Ok(());
    model.params_mut().write_held(|values| {
        read = file.read_into(WEIGHTS, &[values.len()], values);
    })?;
    read?;
    let Some(optimizer) = optimizer else {
        return Ok(());
    };
    for part in optimizer.state() {
        let mut read = Ok(());
        let mut fill = |values: &mut [f32]| read = file.read_into(part.name, &[part.len], values);
        optimizer.write_state(part.name, &mut fill)?;
        read?;
    }
    Ok(())
}

/// Writes the value head of a policy that has one, under its own name.
///
/// # Errors
/// The disk's.
pub fn write_value_head(policy: &Model, out: &mut dyn io::Write) -> io::Result<()> {
    let params = policy.params();
    let Some(info) = params.value_head() else {
        return Ok(());
    };
    let from = info.offset - params.first_held();
    let heads = [TensorHead::f32(info.name.as_str(), info.shape.clone())];
    write_to(out, &heads, &mut |sink| {
        let written = params.read_held(|values| sink.put(&values[from..from + info.len]));
        written.map_err(io_error)?
    })
}

/// Fills the value head of a policy that has one.
///
/// # Errors
/// No file, or one of another shape.
pub fn read_value_head(path: &Path, policy: &mut Model) -> Result<(), CheckpointError> {
    let Some(info) = policy.params().value_head().cloned() else {
        return Ok(());
    };
    let file = TensorFile::open(path)?;
    let from = info.offset - policy.params().first_held();
    let mut read = Ok(());
    policy.params_mut().write_held(|values| {
        let own = &mut values[from..from + info.len];
        read = file.read_into(&info.name, &info.shape, own);
    })?;
    Ok(read?)
}
