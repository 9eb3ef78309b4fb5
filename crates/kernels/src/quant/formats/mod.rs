//! Quantization formats, one file each, one line in the list. Byte layouts are those of GGUF files
//! (ggml-org/ggml, ggml-common.h); the choice of codes is up to the encoder.
//!
//! These are the references: plain loops that define the bytes. The fast matmuls are in `packed`.

mod bfloat16;
mod float16;
mod float32;
pub(super) mod iq4_nl;
pub(super) mod iq4_xs;
pub(super) mod mxfp4;
pub(super) mod q2_k;
pub(super) mod q3_k;
mod q4_0;
mod q4_1;
pub(super) mod q4_k;
mod q5_0;
mod q5_1;
pub(super) mod q5_k;
pub(super) mod q6_k;
mod q8_0;
pub(super) mod super_block;

/// Values per block of formats with two levels of scales.
pub(super) const VALUES: usize = 256;

/// Writes the values of one block.
type Encode = fn(&[f32], &mut [u8]);

/// A format's properties.
#[derive(Debug)]
pub struct Format {
    /// Name in files and other programs.
    pub name: &'static str,
    /// Name in options.
    pub word: &'static str,
    /// Id in GGUF files.
    pub ggml_id: u32,
    /// Values and bytes per block.
    pub values: usize,
    pub bytes: usize,
    /// One block (or, of plain floats, any number of values) → values.
    decode: fn(&[u8], &mut [f32]),
    /// Values → one block; `None` if the format is read-only.
    encode: Option<Encode>,
}

macro_rules! formats {
    ($($variant:ident: $module:ident),+ $(,)?) => {
        /// Number formats of weights.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Kind {
            $($variant,)+
        }

        impl Kind {
            /// All formats, in the order of the list.
            pub const ALL: &'static [Kind] = &[$(Kind::$variant),+];

            pub fn format(self) -> &'static Format {
                match self { $(Kind::$variant => &$module::FORMAT,)+ }
            }
        }
    };
}

formats! {
    F32: float32,
    F16: float16,
    Bf16: bfloat16,
    Q8_0: q8_0,
    Q4_0: q4_0,
    Q4_1: q4_1,
    Q5_0: q5_0,
    Q5_1: q5_1,
    Q2K: q2_k,
    Q3K: q3_k,
    Q4K: q4_k,
    Q5K: q5_k,
    Q6K: q6_k,
    Iq4Nl: iq4_nl,
    Iq4Xs: iq4_xs,
    Mxfp4: mxfp4,
}

impl Kind {
    /// The format with a GGUF id.
    pub fn by_ggml_id(id: u32) -> Option<Kind> {
        Kind::ALL.iter().copied().find(|k| k.format().ggml_id == id)
    }

    /// The format with an option's name.
    pub fn by_word(word: &str) -> Option<Kind> {
        Kind::ALL.iter().copied().find(|k| k.format().word == word)
    }

    pub fn name(self) -> &'static str {
        self.format().name
    }

    /// Whether it can be written.
    pub fn writable(self) -> bool {
        self.format().encode.is_some()
    }

    /// Whether the values are plain floats, without scales.
    pub fn is_float(self) -> bool {
        self.format().values == 1
    }

    /// Bytes per row of `cols` values; `None` if it is not a whole number of blocks.
    pub fn row_bytes(self, cols: usize) -> Option<usize> {
        let Format { values, bytes, .. } = self.format();
        cols.is_multiple_of(*values)
            .then(|| cols / values)
            .and_then(|blocks| blocks.checked_mul(*bytes))
    }

    /// Whole blocks → values.
    ///
    /// # Panics
    /// If the sizes do not match.
    pub fn decode(self, bytes: &[u8], values: &mut [f32]) {
        let format = self.format();
        assert_eq!(
            bytes.len() / format.bytes,
            values.len() / format.values,
            "blocks of {}",
            format.name
        );
        if self.is_float() {
            return (format.decode)(bytes, values);
        }
        let blocks = bytes.chunks_exact(format.bytes);
        for (block, values) in blocks.zip(values.chunks_exact_mut(format.values)) {
            (format.decode)(block, values);
        }
    }

    /// The first of the rows that contains a non-finite value or scale.
    pub fn first_not_finite(self, bytes: &[u8], row_bytes: usize) -> Option<usize> {
        let mut values = [0.0; VALUES];
        let format = self.format();
        let chunk = VALUES / format.values;
        let mut finite = |bytes: &[u8]| {
            let values = &mut values[..bytes.len() / format.bytes * format.values];
            self.decode(bytes, values);
            // A number times 0 is 0, anything else is not.
            values.iter().map(|x| x * 0.0).sum::<f32>() == 0.0
        };
        let mut rows = bytes.chunks_exact(row_bytes.max(1));
        rows.position(|row| !row.chunks(chunk * format.bytes).all(&mut finite))
    }

    /// Values → whole blocks; false if the format is read-only.
    ///
    /// # Panics
    /// If the sizes do not match.
    pub fn encode(self, values: &[f32], bytes: &mut [u8]) -> bool {
        let format = self.format();
        let Some(encode) = format.encode else {
            return false;
        };
        assert_eq!(
            bytes.len() / format.bytes,
            values.len() / format.values,
            "blocks of {}",
            format.name
        );
        if self.is_float() {
            encode(values, bytes);
        } else {
            let blocks = bytes.chunks_exact_mut(format.bytes);
            for (block, values) in blocks.zip(values.chunks_exact(format.values)) {
                encode(values, block);
            }
        }
        true
    }
}

/// 32 codes out of 16 bytes: the low four bits first, then the high ones.
pub(super) fn nibbles(bytes: &[u8]) -> impl Iterator<Item = u8> {
    let low = bytes.iter().map(|b| b & 15);
    low.chain(bytes.iter().map(|b| b >> 4))
}

fn pack_nibbles(bytes: &mut [u8], values: &[f32], code: impl Fn(f32) -> u8) {
    let (low, high) = values.split_at(bytes.len());
    for (byte, (low, high)) in bytes.iter_mut().zip(low.iter().zip(high)) {
        *byte = code(*low) | code(*high) << 4;
    }
}

/// 32 codes of five bits: four bytes of fifth bits, then the low four as in [`nibbles`].
pub(super) fn fives(bytes: &[u8]) -> impl Iterator<Item = u8> {
    let fifth = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let low = nibbles(&bytes[4..]).enumerate();
    low.map(move |(i, q)| q | ((fifth >> i & 1) as u8) << 4)
}

fn pack_fives(bytes: &mut [u8], values: &[f32], code: impl Fn(f32) -> u8) {
    let mut fifth = 0;
    for (i, x) in values.iter().enumerate() {
        fifth |= u32::from(code(*x) >> 4) << i;
    }
    let (bits, low) = bytes.split_at_mut(4);
    bits.copy_from_slice(&fifth.to_le_bytes());
    pack_nibbles(low, values, |x| code(x) & 15);
}

/// The value of largest magnitude, with its sign.
fn signed_top(values: &[f32]) -> f32 {
    let larger = |top: f32, &x: &f32| if x.abs() > top.abs() { x } else { top };
    values.iter().fold(0.0, larger)
}

/// The minimum and the maximum.
fn extent(values: &[f32]) -> (f32, f32) {
    let start = (f32::INFINITY, f32::NEG_INFINITY);
    let wider = |(least, greatest): (f32, f32), &x: &f32| (least.min(x), greatest.max(x));
    values.iter().fold(start, wider)
}

/// The scale s for codes −half..half with the least Σ x² (s q − x)²: the naive one and its neighbours are tried, and the
/// optimal scale is solved for each set of codes.
fn best_scale(values: &[f32], half: i32) -> f32 {
    let top = signed_top(values);
    if top == 0.0 {
        return 0.0;
    }
    let (least, most) = (-half as f32, (half - 1) as f32);
    let mut best = (f64::NEG_INFINITY, 0.0);
    for i in -9..=9 {
        let inverse = (least + 0.1 * i as f32) / top;
        let (mut qx, mut qq) = (0.0_f64, 0.0_f64);
        for &x in values {
            let q = f64::from((x * inverse).round_ties_even().clamp(least, most));
            let (x, weight) = (f64::from(x), f64::from(x * x));
            qx += weight * q * x;
            qq += weight * q * q;
        }
        // The reduction of the squared error, for the best scale qx / qq.
        if qq > 0.0 && qx * qx / qq > best.0 {
            best = (qx * qx / qq, qx / qq);
        }
    }
    best.1 as f32
}

#[cfg(test)]
pub(super) mod tests;
