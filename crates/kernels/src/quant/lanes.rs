//! The interface of an instruction set for quantized matmuls: sixteen rows of weights side by side. All ISAs give the same
//! bits: integer sums are exact, and floats are multiplied and added one by one, in one order.

/// Rows of weights multiplied at once.
pub(super) const ROWS: usize = 16;

/// The instructions of one ISA.
///
/// # Safety
/// Methods need the instructions of the implementing type; pointers must be valid for the documented number of elements.
pub(super) trait Lanes {
    /// Four bytes of each row.
    type Bytes: Copy;
    /// One integer per row.
    type Ints: Copy;
    /// One float per row.
    type Floats: Copy;

    /// 64 bytes.
    unsafe fn bytes(from: *const u8) -> Self::Bytes;
    /// Each byte shifted right by `shift` bits, or left by −`shift`, and masked. The mask has no bits that the shift would bring
    /// in from another byte.
    unsafe fn bits(x: Self::Bytes, shift: i32, mask: u8) -> Self::Bytes;
    /// The entries of `table` that the bytes, 0 to 15, select.
    unsafe fn look_up(x: Self::Bytes, table: &[u8; 16]) -> Self::Bytes;
    unsafe fn or(x: Self::Bytes, y: Self::Bytes) -> Self::Bytes;
    unsafe fn all(x: i32) -> Self::Ints;
    /// sum + Σ over four bytes of weight (unsigned) · x (signed); `x` is the same for all rows.
    unsafe fn dot(sum: Self::Ints, weights: Self::Bytes, x: *const i8) -> Self::Ints;
    unsafe fn to_floats(x: Self::Ints) -> Self::Floats;
    /// Sixteen f16.
    unsafe fn halves(from: *const u8) -> Self::Floats;
    /// Sixteen bytes as numbers.
    unsafe fn unsigned(from: *const u8) -> Self::Floats;
    unsafe fn signed(from: *const u8) -> Self::Floats;
    /// 2^(byte − 127) of sixteen bytes; 0 of a byte of 0.
    unsafe fn powers(from: *const u8) -> Self::Floats;
    unsafe fn splat(x: f32) -> Self::Floats;
    unsafe fn mul(x: Self::Floats, y: Self::Floats) -> Self::Floats;
    unsafe fn add(x: Self::Floats, y: Self::Floats) -> Self::Floats;
    unsafe fn store(to: *mut f32, x: Self::Floats);
}
