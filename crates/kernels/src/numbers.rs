//! Storage dtypes. Compute is f32, or a matmul's own dtype; an activation that only matmuls read, and that they round to bf16
//! anyway, may be stored in bf16: half the traffic and half the memory.
#![allow(unsafe_code)]

pub use half::bf16;

use crate::fetch::RUN;
use crate::quant::half::{from_bf16, to_bf16};
use crate::simd::{Level, has_bf16, level, multiversion};
use std::borrow::Cow;
use std::ops::Range;

/// Storage dtype.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Storage {
    #[default]
    F32,
    Bf16,
}

impl Storage {
    /// Bytes of a number.
    pub const fn size(self) -> usize {
        match self {
            Storage::F32 => size_of::<f32>(),
            Storage::Bf16 => size_of::<bf16>(),
        }
    }

    /// f32 words that hold `n` numbers.
    pub const fn words(self, n: usize) -> usize {
        match self {
            Storage::F32 => n,
            Storage::Bf16 => n.div_ceil(2),
        }
    }

    /// The first `n` numbers stored in `words`.
    pub fn view(self, words: &[f32], n: usize) -> Values<'_> {
        match self {
            Storage::F32 => Values::F32(&words[..n]),
            Storage::Bf16 => Values::Bf16(&halves(words)[..n]),
        }
    }

    /// The same for writing.
    pub fn view_mut(self, words: &mut [f32], n: usize) -> ValuesMut<'_> {
        match self {
            Storage::F32 => ValuesMut::F32(&mut words[..n]),
            Storage::Bf16 => ValuesMut::Bf16(&mut halves_mut(words)[..n]),
        }
    }
}

/// The bf16 numbers of a buffer, two in each word.
pub fn halves(words: &[f32]) -> &[bf16] {
    // SAFETY: the same bytes; a bf16 is any 16 bits and needs less alignment.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), 2 * words.len()) }
}

/// The same for writing.
pub fn halves_mut(words: &mut [f32]) -> &mut [bf16] {
    // SAFETY: as above; any 32 bits are an f32 as well.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), 2 * words.len()) }
}

/// Numbers to read.
#[derive(Debug, Clone, Copy)]
pub enum Values<'a> {
    F32(&'a [f32]),
    Bf16(&'a [bf16]),
}

impl<'a> Values<'a> {
    pub fn len(&self) -> usize {
        match self {
            Values::F32(x) => x.len(),
            Values::Bf16(x) => x.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// f32 numbers.
    ///
    /// # Panics
    /// For other dtypes: callers of kernels that read only f32 pass nothing else.
    pub fn f32(self) -> &'a [f32] {
        match self {
            Values::F32(x) => x,
            Values::Bf16(_) => unreachable!("a kernel that reads f32 alone was given bf16"),
        }
    }

    /// The values from number `first` on.
    pub fn from(self, first: usize) -> Values<'a> {
        match self {
            Values::F32(x) => Values::F32(&x[first..]),
            Values::Bf16(x) => Values::Bf16(&x[first..]),
        }
    }

    /// The values of a range of numbers.
    pub fn range(self, range: Range<usize>) -> Values<'a> {
        match self {
            Values::F32(x) => Values::F32(&x[range]),
            Values::Bf16(x) => Values::Bf16(&x[range]),
        }
    }

    /// Number `at`.
    pub fn get(&self, at: usize) -> f32 {
        match self {
            Values::F32(x) => x[at],
            Values::Bf16(x) => x[at].wide(),
        }
    }

    /// All values as f32; copied if they are stored otherwise.
    pub fn as_f32(self) -> Cow<'a, [f32]> {
        match self {
            Values::F32(x) => Cow::Borrowed(x),
            Values::Bf16(x) => x.iter().map(|x| x.wide()).collect(),
        }
    }
}

impl<'a> From<&'a [f32]> for Values<'a> {
    fn from(x: &'a [f32]) -> Self {
        Values::F32(x)
    }
}

impl<'a> From<&'a [bf16]> for Values<'a> {
    fn from(x: &'a [bf16]) -> Self {
        Values::Bf16(x)
    }
}

/// Numbers to write.
#[derive(Debug)]
pub enum ValuesMut<'a> {
    F32(&'a mut [f32]),
    Bf16(&'a mut [bf16]),
}

impl ValuesMut<'_> {
    pub fn len(&self) -> usize {
        match self {
            ValuesMut::F32(x) => x.len(),
            ValuesMut::Bf16(x) => x.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lets `f` write f32 numbers, and stores them in this dtype.
    pub fn write_f32(self, f: impl FnOnce(&mut [f32])) {
        match self {
            ValuesMut::F32(x) => f(x),
            ValuesMut::Bf16(x) => {
                let mut wide = vec![0.0; x.len()];
                f(&mut wide);
                x.iter_mut()
                    .zip(wide)
                    .for_each(|(x, wide)| *x = Number::narrow(wide));
            }
        }
    }
}

impl<'a> From<&'a mut [f32]> for ValuesMut<'a> {
    fn from(x: &'a mut [f32]) -> Self {
        ValuesMut::F32(x)
    }
}

impl<'a> From<&'a mut [bf16]> for ValuesMut<'a> {
    fn from(x: &'a mut [bf16]) -> Self {
        ValuesMut::Bf16(x)
    }
}

/// A storage dtype: loops are written once, and compile to vectors for each.
pub trait Number: Copy + Send + Sync {
    fn wide(self) -> f32;
    /// Rounded to nearest, ties to even.
    fn narrow(x: f32) -> Self;

    // A run of an array is computed in f32: in place, or in a separate buffer.

    /// Memory for the f32 numbers of a run, which [`Number::put`] converts back.
    fn room<'a>(run: &'a mut [Self], buffer: &'a mut Run) -> &'a mut [f32];
    fn put(buffer: &Run, run: &mut [Self]);
}

/// Numbers computed at once.
pub type Run = [f32; RUN];

/// Rounds numbers to as many bf16, to nearest, ties to even.
pub fn narrow(wide: &[f32], to: &mut [bf16]) {
    #[cfg(target_arch = "x86_64")]
    if has_bf16() && level() >= Level::Avx512 {
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
        fn by_instruction(wide: &[f32], to: &mut [bf16]) {
            use std::arch::x86_64::{__m256bh, __m256i, _mm256_storeu_si256};
            use std::arch::x86_64::{_mm512_cvtneps_pbh, _mm512_loadu_ps};
            let (lines, rest) = wide.as_chunks::<16>();
            let (to_lines, to_rest) = to.as_chunks_mut::<16>();
            for (line, to) in lines.iter().zip(to_lines) {
                // SAFETY: sixteen numbers each.
                unsafe {
                    let rounded = _mm512_cvtneps_pbh(_mm512_loadu_ps(line.as_ptr()));
                    let rounded = std::mem::transmute::<__m256bh, __m256i>(rounded);
                    _mm256_storeu_si256(to.as_mut_ptr().cast(), rounded);
                }
            }
            for (to, &x) in to_rest.iter_mut().zip(rest) {
                *to = Number::narrow(x);
            }
        }
        // SAFETY: the machine has the instructions.
        return unsafe { by_instruction(wide, to) };
    }
    narrow_plainly(wide, to);
}

multiversion! {
    fn narrow_plainly(wide: &[f32], to: &mut [bf16]) {
        for (to, &x) in to.iter_mut().zip(wide) {
            *to = Number::narrow(x);
        }
    }
}

impl Number for f32 {
    #[inline(always)]
    fn wide(self) -> f32 {
        self
    }
    #[inline(always)]
    fn narrow(x: f32) -> Self {
        x
    }
    #[inline(always)]
    fn room<'a>(run: &'a mut [f32], _: &'a mut Run) -> &'a mut [f32] {
        run
    }
    #[inline(always)]
    fn put(_: &Run, _: &mut [f32]) {}
}

impl Number for bf16 {
    #[inline(always)]
    fn wide(self) -> f32 {
        from_bf16(self.to_bits())
    }
    #[inline(always)]
    fn narrow(x: f32) -> Self {
        bf16::from_bits(to_bf16(x))
    }
    #[inline(always)]
    fn room<'a>(run: &'a mut [bf16], buffer: &'a mut Run) -> &'a mut [f32] {
        &mut buffer[..run.len()]
    }
    #[inline(always)]
    fn put(buffer: &Run, run: &mut [bf16]) {
        narrow(&buffer[..run.len()], run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_odd_number_of_bf16_values_fits_and_keeps_its_values() {
        let mut words = vec![0.0; Storage::Bf16.words(5)];
        let wanted = [1.0, -2.5, 0.0, 3.0e38, 1.0 + 1.0 / 256.0];
        Storage::Bf16
            .view_mut(&mut words, 5)
            .write_f32(|x| x.copy_from_slice(&wanted));
        let kept = Storage::Bf16.view(&words, 5);
        let rounded = wanted.map(|x| bf16::from_f32(x).to_f32());
        assert_eq!((kept.len(), &*kept.as_f32()), (5, &rounded[..]));
        assert_eq!(Storage::F32.words(5), 5);
    }
}
