//! Memory pages: huge pages for large buffers, because a pass over weights, gradients and moments crosses hundreds of
//! thousands of small ones; and returning free pages to the system.
#![allow(unsafe_code)]

use super::flat;
use candle_core::{DType, Device, Result, Tensor};

/// Asks the system to back a large tensor in host memory by huge pages (Linux; elsewhere, and where the system refuses,
/// nothing changes). Best before the memory is touched.
///
/// # Errors
/// A tensor on a CPU that is not contiguous f32.
pub fn prefer_huge(tensor: &Tensor) -> Result<()> {
    if !tensor.device().is_cpu() {
        return Ok(());
    }
    flat::read(tensor, prefer_huge_for)
}

/// `len` zeros in f32, on huge pages, already written: memory that is read before it is written gets small pages.
///
/// # Errors
/// Those of candle: too little memory.
pub fn written_zeros(len: usize, device: &Device) -> Result<Tensor> {
    let zeros = Tensor::zeros(len, DType::F32, device)?;
    if zeros.device().is_cpu() {
        prefer_huge(&zeros)?;
        flat::write(&zeros, |values| values.fill(0.0))?;
    }
    Ok(zeros)
}

#[cfg(target_os = "linux")]
pub fn prefer_huge_for<T>(values: &[T]) {
    /// Size of the smallest page; advice is for whole pages.
    const PAGE: usize = 4096;
    /// Less than a few huge pages is not worth a system call.
    const WORTHWHILE: usize = 4 << 20;
    let range = values.as_ptr_range();
    let start = (range.start as usize).next_multiple_of(PAGE);
    let end = range.end as usize / PAGE * PAGE;
    if end < start + WORTHWHILE {
        return;
    }
    let start = range.start.wrapping_byte_add(start - range.start as usize);
    let len = end - start as usize;
    // SAFETY: whole pages within a live allocation; the advice changes neither contents nor validity.
    let advised = unsafe {
        let start = start.cast_mut().cast::<std::ffi::c_void>();
        rustix::mm::madvise(start, len, rustix::mm::Advice::LinuxHugepage)
    };
    // A kernel without huge pages returns an error; small pages work as well.
    let _ = advised;
}

#[cfg(not(target_os = "linux"))]
pub fn prefer_huge_for<T>(_values: &[T]) {}

/// Returns freed memory to the system: the allocator would keep buffers of up to 32 MiB for later. Only glibc
/// has a call for it; elsewhere nothing happens. Takes milliseconds: for the end of a phase, not for a loop.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        // SAFETY: a thread-safe call of the C library that moves no live allocation; 0 keeps nothing back.
        let _ = unsafe { malloc_trim(0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_zeros_are_zeros() {
        let zeros = written_zeros(5, &Device::Cpu).unwrap();
        assert_eq!(zeros.to_vec1::<f32>().unwrap(), vec![0.0; 5]);
    }

    /// Resident bytes of this process.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/statm").unwrap();
        status
            .split(' ')
            .nth(1)
            .and_then(|n| n.parse::<usize>().ok())
            .unwrap()
            * 4096
    }

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn freed_buffers_go_back_to_the_system() {
        // Far below the size for which the allocator maps memory each time; the last buffer keeps the others off the heap top.
        let mut buffers: Vec<Vec<u8>> = (0..1600).map(|i| vec![i as u8 | 1; 64 << 10]).collect();
        let last = buffers.pop();
        let full = resident();
        drop(buffers);
        give_back();
        let left = resident();
        // 100 MiB were freed; other tests of this process allocate meanwhile.
        assert!(left + (50 << 20) < full, "{left} of {full}");
        assert_eq!(last.map(|b| b[7]), Some(1599_u32 as u8 | 1));
    }

    #[test]
    fn advice_does_not_change_the_contents() {
        for len in [0, 5, 4 << 20] {
            let tensor = Tensor::ones(len, DType::F32, &Device::Cpu).unwrap();
            prefer_huge(&tensor).unwrap();
            let sum = tensor.to_dtype(DType::F64).unwrap().sum_all().unwrap();
            assert_eq!(sum.to_scalar::<f64>().unwrap(), len as f64);
        }
    }
}
