//! Memory layout of packed weights: panels of sixteen rows, so that one register holds the same column of all of them and
//! a matmul reads its matrix sequentially.
//!
//! A panel is a row of *units*, each one block of 32 columns or a super-block of eight. A unit starts with the scales of
//! its sixteen rows, followed by the codes, block by block. Codes are non-negative; a format's offset is subtracted
//! from the sum instead. Columns come in groups of four: byte 4 r + i of a group is column i of row r.

use super::activations::BLOCK;
use super::formats::{iq4_nl, mxfp4, super_block};
use super::lanes::{Lanes, ROWS};
use std::marker::PhantomData;

/// Groups of four columns per block.
pub(super) const GROUPS: usize = BLOCK / 4;

/// A packed format.
pub(super) trait Layout {
    type Codes: Codes;
    type Scales: Scales;
    /// Offset of the codes.
    const OFFSET: i32;
    /// Bytes per unit.
    const UNIT: usize = Self::Scales::BYTES + Self::Scales::BLOCKS * Self::Codes::BYTES;
}

/// Layout of the codes of one block.
pub(super) trait Codes {
    /// Bytes of 16 rows × 32 columns.
    const BYTES: usize;
    /// What is multiplied for the codes of group `group` of the block at `at`: the codes, or the levels that they select.
    unsafe fn group<S: Lanes>(at: *const u8, group: usize) -> S::Bytes;
    /// Stores the code of (row, column) in a block that starts zeroed.
    fn put(block: &mut [u8], row: usize, column: usize, code: u8);
    /// What is multiplied for the code of (row, column).
    fn get(block: &[u8], row: usize, column: usize) -> u8;
}

/// Layout of the scales of one unit.
pub(super) trait Scales {
    const BYTES: usize;
    /// Blocks per unit.
    const BLOCKS: usize;
    /// Parts of a block with their own scale.
    const PARTS: usize;
    /// Whether something is added to scale · code.
    const MINIMUM: bool;
    /// Scales of part `part` of block `block`.
    unsafe fn scale<S: Lanes>(head: *const u8, block: usize, part: usize) -> S::Floats;
    /// What is added in part `part` of block `block`.
    unsafe fn minimum<S: Lanes>(head: *const u8, block: usize, part: usize) -> S::Floats;
    /// Copies the scales of `row` from a block in the file's format.
    fn put(head: &mut [u8], row: usize, scales: &RowScales);
}

/// One row of one unit in file order: codes and scales.
pub(super) struct RowUnit {
    pub codes: [u8; super::formats::VALUES],
    pub scales: RowScales,
}

/// Scales of one row of one unit; 0 where a format has none.
#[derive(Default)]
pub(super) struct RowScales {
    /// f16 bits.
    pub scale: u16,
    pub minimum: u16,
    pub parts: [u8; 16],
    pub part_minima: [u8; 16],
}

fn column_place(row: usize, column: usize) -> (usize, usize) {
    (column / 4, 4 * row + column % 4)
}

/// One byte per code.
pub(super) struct Bytes;

impl Codes for Bytes {
    const BYTES: usize = 32 * ROWS;
    #[inline(always)]
    unsafe fn group<S: Lanes>(at: *const u8, group: usize) -> S::Bytes {
        // SAFETY: within the block.
        unsafe { S::bytes(at.add(64 * group)) }
    }
    fn put(block: &mut [u8], row: usize, column: usize, code: u8) {
        let (group, lane) = column_place(row, column);
        block[64 * group + lane] = code;
    }
    fn get(block: &[u8], row: usize, column: usize) -> u8 {
        let (group, lane) = column_place(row, column);
        block[64 * group + lane]
    }
}

/// Two codes per byte: even groups low, odd ones high.
pub(super) struct Nibbles;

impl Codes for Nibbles {
    const BYTES: usize = 16 * ROWS;
    #[inline(always)]
    unsafe fn group<S: Lanes>(at: *const u8, group: usize) -> S::Bytes {
        // SAFETY: within the block.
        unsafe {
            let both = S::bytes(at.add(64 * (group / 2)));
            S::bits(both, 4 * (group % 2) as i32, 15)
        }
    }
    fn put(block: &mut [u8], row: usize, column: usize, code: u8) {
        let (group, lane) = column_place(row, column);
        block[64 * (group / 2) + lane] |= (code & 15) << (4 * (group % 2));
    }
    fn get(block: &[u8], row: usize, column: usize) -> u8 {
        let (group, lane) = column_place(row, column);
        block[64 * (group / 2) + lane] >> (4 * (group % 2)) & 15
    }
}

/// Four codes of two bits per byte, the first groups low.
pub(super) struct Twos;

impl Codes for Twos {
    const BYTES: usize = 8 * ROWS;
    #[inline(always)]
    unsafe fn group<S: Lanes>(at: *const u8, group: usize) -> S::Bytes {
        // SAFETY: within the block.
        unsafe {
            let four = S::bytes(at.add(64 * (group / 4)));
            S::bits(four, 2 * (group % 4) as i32, 3)
        }
    }
    fn put(block: &mut [u8], row: usize, column: usize, code: u8) {
        let (group, lane) = column_place(row, column);
        block[64 * (group / 4) + lane] |= (code & 3) << (2 * (group % 4));
    }
    fn get(block: &[u8], row: usize, column: usize) -> u8 {
        let (group, lane) = column_place(row, column);
        block[64 * (group / 4) + lane] >> (2 * (group % 4)) & 3
    }
}

/// The low two bits as [`Twos`], then the third: bit g of a byte is that of group g.
pub(super) struct Threes;

impl Codes for Threes {
    const BYTES: usize = Twos::BYTES + 4 * ROWS;
    #[inline(always)]
    unsafe fn group<S: Lanes>(at: *const u8, group: usize) -> S::Bytes {
        // SAFETY: within the block.
        unsafe {
            let third = S::bits(S::bytes(at.add(Twos::BYTES)), group as i32 - 2, 4);
            S::or(Twos::group::<S>(at, group), third)
        }
    }
    fn put(block: &mut [u8], row: usize, column: usize, code: u8) {
        let (group, lane) = column_place(row, column);
        Twos::put(block, row, column, code);
        block[Twos::BYTES + lane] |= (code >> 2 & 1) << group;
    }
    fn get(block: &[u8], row: usize, column: usize) -> u8 {
        let (group, lane) = column_place(row, column);
        let third = block[Twos::BYTES + lane] >> group & 1;
        Twos::get(block, row, column) | third << 2
    }
}

/// [`Nibbles`] that select levels of a table, which are stored with an offset of 128.
pub(super) struct Levels<T>(PhantomData<T>);

/// The levels of a format, as unsigned bytes.
pub(super) trait Table {
    const LEVELS: [u8; 16];
}

pub(super) struct OfIq4;
pub(super) struct OfMxfp4;

impl Table for OfIq4 {
    const LEVELS: [u8; 16] = with_offset(iq4_nl::LEVELS);
}

impl Table for OfMxfp4 {
    const LEVELS: [u8; 16] = with_offset(mxfp4::LEVELS);
}

const fn with_offset(signed: [i8; 16]) -> [u8; 16] {
    let mut levels = [0; 16];
    let mut i = 0;
    while i < 16 {
        levels[i] = signed[i].cast_unsigned() ^ 0x80;
        i += 1;
    }
    levels
}

impl<T: Table> Codes for Levels<T> {
    const BYTES: usize = Nibbles::BYTES;
    #[inline(always)]
    unsafe fn group<S: Lanes>(at: *const u8, group: usize) -> S::Bytes {
        // SAFETY: within the block.
        unsafe { S::look_up(Nibbles::group::<S>(at, group), &T::LEVELS) }
    }
    fn put(block: &mut [u8], row: usize, column: usize, code: u8) {
        Nibbles::put(block, row, column, code);
    }
    fn get(block: &[u8], row: usize, column: usize) -> u8 {
        T::LEVELS[usize::from(Nibbles::get(block, row, column))]
    }
}

/// The low four bits as [`Nibbles`], then the fifth: bit g of a byte is that of group g.
pub(super) struct Fives;

impl Codes for Fives {
    const BYTES: usize = Nibbles::BYTES + 4 * ROWS;
    #[inline(always)]
    unsafe fn group<S: Lanes>(at: *const u8, group: usize) -> S::Bytes {
        // SAFETY: within the block.
        unsafe {
            let fifth = S::bits(S::bytes(at.add(Nibbles::BYTES)), group as i32 - 4, 16);
            S::or(Nibbles::group::<S>(at, group), fifth)
        }
    }
    fn put(block: &mut [u8], row: usize, column: usize, code: u8) {
        let (group, lane) = column_place(row, column);
        Nibbles::put(block, row, column, code);
        block[Nibbles::BYTES + lane] |= (code >> 4 & 1) << group;
    }
    fn get(block: &[u8], row: usize, column: usize) -> u8 {
        let (group, lane) = column_place(row, column);
        let fifth = block[Nibbles::BYTES + lane] >> group & 1;
        Nibbles::get(block, row, column) | fifth << 4
    }
}

/// The low four bits as [`Nibbles`], then the high two, those of four groups in a byte.
pub(super) struct Sixes;

impl Codes for Sixes {
    const BYTES: usize = Nibbles::BYTES + 8 * ROWS;
    #[inline(always)]
    unsafe fn group<S: Lanes>(at: *const u8, group: usize) -> S::Bytes {
        // SAFETY: within the block.
        unsafe {
            let four = S::bytes(at.add(Nibbles::BYTES + 64 * (group / 4)));
            let high = S::bits(four, 2 * (group % 4) as i32 - 4, 48);
            S::or(Nibbles::group::<S>(at, group), high)
        }
    }
    fn put(block: &mut [u8], row: usize, column: usize, code: u8) {
        let (group, lane) = column_place(row, column);
        Nibbles::put(block, row, column, code);
        block[Nibbles::BYTES + 64 * (group / 4) + lane] |= (code >> 4 & 3) << (2 * (group % 4));
    }
    fn get(block: &[u8], row: usize, column: usize) -> u8 {
        let (group, lane) = column_place(row, column);
        let high = block[Nibbles::BYTES + 64 * (group / 4) + lane] >> (2 * (group % 4)) & 3;
        Nibbles::get(block, row, column) | high << 4
    }
}

fn put_word(head: &mut [u8], at: usize, row: usize, word: u16) {
    head[at + 2 * row..at + 2 * row + 2].copy_from_slice(&word.to_le_bytes());
}

/// One f16 per block.
pub(super) struct One;

impl Scales for One {
    const BYTES: usize = 2 * ROWS;
    const BLOCKS: usize = 1;
    const PARTS: usize = 1;
    const MINIMUM: bool = false;
    #[inline(always)]
    unsafe fn scale<S: Lanes>(head: *const u8, _: usize, _: usize) -> S::Floats {
        // SAFETY: within the head.
        unsafe { S::halves(head) }
    }
    #[inline(always)]
    unsafe fn minimum<S: Lanes>(_: *const u8, _: usize, _: usize) -> S::Floats {
        // SAFETY: needs only the instructions, guaranteed by the caller.
        unsafe { S::splat(0.0) }
    }
    fn put(head: &mut [u8], row: usize, scales: &RowScales) {
        put_word(head, 0, row, scales.scale);
    }
}

/// One power of two per block, by its exponent plus 128. A scale below the normal numbers is 0.
pub(super) struct Power;

impl Scales for Power {
    const BYTES: usize = ROWS;
    const BLOCKS: usize = 1;
    const PARTS: usize = 1;
    const MINIMUM: bool = false;
    #[inline(always)]
    unsafe fn scale<S: Lanes>(head: *const u8, _: usize, _: usize) -> S::Floats {
        // SAFETY: within the head.
        unsafe { S::mul(S::powers(head), S::splat(0.5)) }
    }
    #[inline(always)]
    unsafe fn minimum<S: Lanes>(_: *const u8, _: usize, _: usize) -> S::Floats {
        // SAFETY: needs only the instructions, guaranteed by the caller.
        unsafe { S::splat(0.0) }
    }
    fn put(head: &mut [u8], row: usize, scales: &RowScales) {
        head[row] = scales.parts[0];
    }
}

/// An f16 scale and an f16 minimum per block.
pub(super) struct Two;

impl Scales for Two {
    const BYTES: usize = 4 * ROWS;
    const BLOCKS: usize = 1;
    const PARTS: usize = 1;
    const MINIMUM: bool = true;
    #[inline(always)]
    unsafe fn scale<S: Lanes>(head: *const u8, _: usize, _: usize) -> S::Floats {
        // SAFETY: within the head.
        unsafe { S::halves(head) }
    }
    #[inline(always)]
    unsafe fn minimum<S: Lanes>(head: *const u8, _: usize, _: usize) -> S::Floats {
        // SAFETY: within the head.
        unsafe { S::halves(head.add(2 * ROWS)) }
    }
    fn put(head: &mut [u8], row: usize, scales: &RowScales) {
        put_word(head, 0, row, scales.scale);
        put_word(head, 2 * ROWS, row, scales.minimum);
    }
}

/// Two levels: a global f16 scale and f16 minimum, and integers per block. What is subtracted in the file is
/// added here: the f16 has the other sign.
pub(super) struct Eight;

impl Scales for Eight {
    const BYTES: usize = (4 + 2 * super_block::BLOCKS) * ROWS;
    const BLOCKS: usize = super_block::BLOCKS;
    const PARTS: usize = 1;
    const MINIMUM: bool = true;
    #[inline(always)]
    unsafe fn scale<S: Lanes>(head: *const u8, block: usize, _: usize) -> S::Floats {
        // SAFETY: within the head.
        unsafe { S::mul(S::halves(head), S::unsigned(head.add((4 + block) * ROWS))) }
    }
    #[inline(always)]
    unsafe fn minimum<S: Lanes>(head: *const u8, block: usize, _: usize) -> S::Floats {
        let at = (4 + super_block::BLOCKS + block) * ROWS;
        // SAFETY: within the head.
        unsafe { S::mul(S::halves(head.add(2 * ROWS)), S::unsigned(head.add(at))) }
    }
    fn put(head: &mut [u8], row: usize, scales: &RowScales) {
        put_word(head, 0, row, scales.scale);
        put_word(head, 2 * ROWS, row, scales.minimum ^ 0x8000);
        for block in 0..super_block::BLOCKS {
            head[(4 + block) * ROWS + row] = scales.parts[block];
            head[(4 + super_block::BLOCKS + block) * ROWS + row] = scales.part_minima[block];
        }
    }
}

/// Two levels: a global f16, and a signed byte per 32 columns.
pub(super) struct EightSigned;

impl Scales for EightSigned {
    const BYTES: usize = (2 + 8) * ROWS;
    const BLOCKS: usize = 8;
    const PARTS: usize = 1;
    const MINIMUM: bool = false;
    #[inline(always)]
    unsafe fn scale<S: Lanes>(head: *const u8, block: usize, _: usize) -> S::Floats {
        // SAFETY: within the head.
        unsafe { S::mul(S::halves(head), S::signed(head.add((2 + block) * ROWS))) }
    }
    #[inline(always)]
    unsafe fn minimum<S: Lanes>(_: *const u8, _: usize, _: usize) -> S::Floats {
        // SAFETY: needs only the instructions, guaranteed by the caller.
        unsafe { S::splat(0.0) }
    }
    fn put(head: &mut [u8], row: usize, scales: &RowScales) {
        put_word(head, 0, row, scales.scale);
        for block in 0..8 {
            head[(2 + block) * ROWS + row] = scales.parts[block];
        }
    }
}

/// Two levels: a global f16 scale and f16 minimum, and integers per sixteen columns. As in [`Eight`] the minimum is added.
pub(super) struct SixteenMinima;

impl Scales for SixteenMinima {
    const BYTES: usize = (4 + 2 * 16) * ROWS;
    const BLOCKS: usize = 8;
    const PARTS: usize = 2;
    const MINIMUM: bool = true;
    #[inline(always)]
    unsafe fn scale<S: Lanes>(head: *const u8, block: usize, part: usize) -> S::Floats {
        let at = (4 + 2 * block + part) * ROWS;
        // SAFETY: within the head.
        unsafe { S::mul(S::halves(head), S::unsigned(head.add(at))) }
    }
    #[inline(always)]
    unsafe fn minimum<S: Lanes>(head: *const u8, block: usize, part: usize) -> S::Floats {
        let at = (4 + 16 + 2 * block + part) * ROWS;
        // SAFETY: within the head.
        unsafe { S::mul(S::halves(head.add(2 * ROWS)), S::unsigned(head.add(at))) }
    }
    fn put(head: &mut [u8], row: usize, scales: &RowScales) {
        put_word(head, 0, row, scales.scale);
        put_word(head, 2 * ROWS, row, scales.minimum ^ 0x8000);
        for part in 0..16 {
            head[(4 + part) * ROWS + row] = scales.parts[part];
            head[(4 + 16 + part) * ROWS + row] = scales.part_minima[part];
        }
    }
}

/// Two levels: a global f16, and a signed byte per sixteen columns.
pub(super) struct Sixteen;

impl Scales for Sixteen {
    const BYTES: usize = (2 + 16) * ROWS;
    const BLOCKS: usize = 8;
    const PARTS: usize = 2;
    const MINIMUM: bool = false;
    #[inline(always)]
    unsafe fn scale<S: Lanes>(head: *const u8, block: usize, part: usize) -> S::Floats {
        let at = (2 + 2 * block + part) * ROWS;
        // SAFETY: within the head.
        unsafe { S::mul(S::halves(head), S::signed(head.add(at))) }
    }
    #[inline(always)]
    unsafe fn minimum<S: Lanes>(_: *const u8, _: usize, _: usize) -> S::Floats {
        // SAFETY: needs only the instructions, guaranteed by the caller.
        unsafe { S::splat(0.0) }
    }
    fn put(head: &mut [u8], row: usize, scales: &RowScales) {
        put_word(head, 0, row, scales.scale);
        for part in 0..16 {
            head[(2 + part) * ROWS + row] = scales.parts[part];
        }
    }
}

/// Codes and scales combined.
pub(super) struct Of<C, S, const OFFSET: i32>(PhantomData<(C, S)>);

impl<C: Codes, S: Scales, const OFFSET: i32> Layout for Of<C, S, OFFSET> {
    type Codes = C;
    type Scales = S;
    const OFFSET: i32 = OFFSET;
}

pub(super) type Q8_0 = Of<Bytes, One, 128>;
pub(super) type Q4_0 = Of<Nibbles, One, 8>;
pub(super) type Q4_1 = Of<Nibbles, Two, 0>;
pub(super) type Q5_0 = Of<Fives, One, 16>;
pub(super) type Q5_1 = Of<Fives, Two, 0>;
pub(super) type Q2K = Of<Twos, SixteenMinima, 0>;
pub(super) type Q3K = Of<Threes, Sixteen, 4>;
pub(super) type Q4K = Of<Nibbles, Eight, 0>;
pub(super) type Q5K = Of<Fives, Eight, 0>;
pub(super) type Q6K = Of<Sixes, Sixteen, 32>;
pub(super) type Iq4Nl = Of<Levels<OfIq4>, One, 128>;
pub(super) type Iq4Xs = Of<Levels<OfIq4>, EightSigned, 128>;
pub(super) type Mxfp4 = Of<Levels<OfMxfp4>, Power, 128>;

/// Calls `$f::<the layout of $kind>($arguments)`; `$other` for plain floats.
macro_rules! with_layout {
    ($kind:expr, $f:ident $arguments:tt, $other:expr) => {
        match $kind {
            $crate::quant::Kind::Q8_0 => $f::<$crate::quant::layout::Q8_0> $arguments,
            $crate::quant::Kind::Q4_0 => $f::<$crate::quant::layout::Q4_0> $arguments,
            $crate::quant::Kind::Q4_1 => $f::<$crate::quant::layout::Q4_1> $arguments,
            $crate::quant::Kind::Q5_0 => $f::<$crate::quant::layout::Q5_0> $arguments,
            $crate::quant::Kind::Q5_1 => $f::<$crate::quant::layout::Q5_1> $arguments,
            $crate::quant::Kind::Q2K => $f::<$crate::quant::layout::Q2K> $arguments,
            $crate::quant::Kind::Q3K => $f::<$crate::quant::layout::Q3K> $arguments,
            $crate::quant::Kind::Q4K => $f::<$crate::quant::layout::Q4K> $arguments,
            $crate::quant::Kind::Q5K => $f::<$crate::quant::layout::Q5K> $arguments,
            $crate::quant::Kind::Q6K => $f::<$crate::quant::layout::Q6K> $arguments,
            $crate::quant::Kind::Iq4Nl => $f::<$crate::quant::layout::Iq4Nl> $arguments,
            $crate::quant::Kind::Iq4Xs => $f::<$crate::quant::layout::Iq4Xs> $arguments,
            $crate::quant::Kind::Mxfp4 => $f::<$crate::quant::layout::Mxfp4> $arguments,
            $crate::quant::Kind::F32
            | $crate::quant::Kind::F16
            | $crate::quant::Kind::Bf16 => $other,
        }
    };
}
pub(super) use with_layout;
