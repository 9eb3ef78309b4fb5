//! The tensor list: names, shapes, formats, offsets. All tensors lie inside the file and do not overlap.

use super::GgufError;
use super::cursor::Cursor;
use super::kinds::TensorKind;
use std::io::Read;

/// Minimum bytes per tensor: an empty name, the number of dimensions, one dimension, a type, an offset.
pub(super) const LEAST_BYTES: u64 = 8 + 4 + 8 + 4 + 8;
/// ggml's GGML_MAX_DIMS, and a name limit above its own (64).
const MAX_DIMS: u32 = 4;
const MAX_NAME: usize = 256;

/// A tensor, without its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    pub name: String,
    /// Fastest-varying first: the reverse of PyTorch's shape.
    pub dims: Vec<u64>,
    pub kind: TensorKind,
    /// Relative to `Gguf::data_start`.
    pub offset: u64,
    pub bytes: u64,
}

impl TensorInfo {
    pub(super) fn read<R: Read>(
        cursor: &mut Cursor<R>,
        alignment: u64,
    ) -> Result<TensorInfo, GgufError> {
        let name = cursor.string()?;
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(cursor.bad(format!("a tensor's name of {} bytes", name.len())));
        }
        let n_dims = cursor.u32()?;
        if n_dims == 0 || n_dims > MAX_DIMS {
            return Err(cursor.bad(format!("tensor {name:?} has {n_dims} dimensions")));
        }
        let mut dims = Vec::with_capacity(n_dims as usize);
        for _ in 0..n_dims {
            dims.push(cursor.u64()?);
        }
        let id = cursor.u32()?;
        let kind = TensorKind::by_id(id)
            .ok_or_else(|| cursor.bad(format!("tensor {name:?} is of the unknown type {id}")))?;
        let offset = cursor.u64()?;
        if !offset.is_multiple_of(alignment) {
            let what = format!("tensor {name:?} starts at {offset}, not a multiple of {alignment}");
            return Err(cursor.bad(what));
        }
        let bytes = dims
            .iter()
            .try_fold(1u64, |product, dim| product.checked_mul(*dim))
            .filter(|values| *values > 0)
            .and_then(|values| kind.size(dims[0], values))
            .ok_or_else(|| {
                let what = format!(
                    "tensor {name:?} cannot have shape {dims:?} in {}",
                    kind.name
                );
                cursor.bad(what)
            })?;
        Ok(TensorInfo {
            name,
            dims,
            kind,
            offset,
            bytes,
        })
    }
}

/// Every tensor ends inside the file and before the next one starts; names are unique.
pub(super) fn check_offsets(
    tensors: &[TensorInfo],
    data_start: u64,
    length: u64,
) -> Result<(), GgufError> {
    let bad = |tensor: &TensorInfo, what: String| GgufError::Bad {
        at: data_start.saturating_add(tensor.offset),
        what: format!("tensor {:?} {what}", tensor.name),
    };
    let mut names = std::collections::HashSet::with_capacity(tensors.len());
    let mut order: Vec<&TensorInfo> = tensors.iter().collect();
    order.sort_by_key(|tensor| tensor.offset);
    let mut free = 0;
    for tensor in order {
        if !names.insert(tensor.name.as_str()) {
            return Err(bad(tensor, "is a duplicate".into()));
        }
        let end = tensor.offset.checked_add(tensor.bytes);
        let inside = end.and_then(|end| end.checked_add(data_start));
        if inside.is_none_or(|end| end > length) {
            return Err(bad(
                tensor,
                format!(
                    "of {} bytes extends past the end of the file ({length})",
                    tensor.bytes
                ),
            ));
        }
        if tensor.offset < free {
            return Err(bad(tensor, "overlaps the one before it".into()));
        }
        free = end.unwrap_or(u64::MAX);
    }
    Ok(())
}
