//! Access to the f32 memory of tensors: kernels work on slices, tensors are opened at the model's boundary.

use candle_core::{CpuStorage, Device, InplaceOp1, Layout, Result, Storage, Tensor, bail};
use std::cell::RefCell;

/// Passes the elements of a contiguous f32 tensor to `read`; a tensor on an accelerator is copied to the host first.
///
/// # Errors
/// A tensor that is not contiguous or not f32; a copy from or to an accelerator that fails.
pub fn read<R>(tensor: &Tensor, read: impl FnOnce(&[f32]) -> R) -> Result<R> {
    if !tensor.device().is_cpu() {
        return self::read(&tensor.to_device(&Device::Cpu)?, read);
    }
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Cpu(storage) = &*storage else {
        bail!("a CPU tensor without CPU storage")
    };
    let Some((from, to)) = layout.contiguous_offsets() else {
        bail!("expected a contiguous tensor, got {layout:?}")
    };
    Ok(read(&storage.as_slice::<f32>()?[from..to]))
}

/// Passes the elements of a contiguous f32 tensor to `write` for in-place modification; a tensor on an accelerator is
/// copied to the host and back. Tensors that share the memory see the change.
///
/// # Errors
/// A tensor that is not contiguous or not f32; a copy from or to an accelerator that fails.
pub fn write<R>(tensor: &Tensor, write: impl FnOnce(&mut [f32]) -> R) -> Result<R> {
    if !tensor.device().is_cpu() {
        let host = tensor.to_device(&Device::Cpu)?;
        let result = self::write(&host, write)?;
        tensor.slice_set(&host.to_device(tensor.device())?, 0, 0)?;
        return Ok(result);
    }
    let op = WriteOp {
        write: RefCell::new(Some(write)),
        result: RefCell::new(None),
    };
    tensor.inplace_op1(&op)?;
    match op.result.into_inner() {
        Some(result) => Ok(result),
        None => bail!("candle did not run the write"),
    }
}

/// Runs a closure through candle's only API for mutable storage.
struct WriteOp<F, R> {
    write: RefCell<Option<F>>,
    result: RefCell<Option<R>>,
}

impl<R, F: FnOnce(&mut [f32]) -> R> InplaceOp1 for WriteOp<F, R> {
    fn name(&self) -> &'static str {
        "write"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let Some((from, to)) = layout.contiguous_offsets() else {
            bail!("expected a contiguous tensor, got {layout:?}")
        };
        let CpuStorage::F32(values) = storage else {
            bail!("expected an f32 tensor")
        };
        if let Some(write) = self.write.take() {
            self.result.replace(Some(write(&mut values[from..to])));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_visible_to_tensors_that_share_the_memory() {
        let tensor = Tensor::zeros(4, candle_core::DType::F32, &Device::Cpu).unwrap();
        let view = tensor.narrow(0, 1, 2).unwrap();
        write(&tensor, |x| x.copy_from_slice(&[1.0, 2.0, 3.0, 4.0])).unwrap();
        assert_eq!(read(&view, |x| x.to_vec()).unwrap(), [2.0, 3.0]);
        write(&view, |x| x[0] = 9.0).unwrap();
        assert_eq!(tensor.to_vec1::<f32>().unwrap(), [1.0, 9.0, 3.0, 4.0]);
    }

    #[test]
    fn other_types_and_strides_are_refused() {
        let tensor = Tensor::zeros((2, 3), candle_core::DType::F64, &Device::Cpu).unwrap();
        assert!(write(&tensor, |_| ()).is_err());
        let turned = Tensor::zeros((2, 3), candle_core::DType::F32, &Device::Cpu)
            .and_then(|t| t.t())
            .unwrap();
        assert!(read(&turned, |_| ()).is_err());
    }
}
