//! AMX: eight registers that hold matrices of up to 16 rows of 64 bytes, and an instruction that multiplies two of them: 16 × 32
//! by 32 × 16 numbers of bf16, added to 16 × 16 sums in f32. Subnormal numbers count as 0.
//!
//! tile registers on their own: what one block leaves in them is still there in the next.
//! tile registers by themselves: what one block leaves in them is there in the next.
#![allow(unsafe_code)]

use std::arch::asm;

/// Rows of a register, and words (pairs of bf16, or sums) in each.
pub const SIDE: usize = 16;

/// Sets the four registers of sums, 0 to 3, to 0.
///
/// # Safety
/// Between [`configure`] and [`release`].
#[inline(always)]
pub unsafe fn clear() {
    // SAFETY: guaranteed by the caller.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            options(nostack, nomem)
        );
    }
}

/// Gives all registers of this thread 16 rows of 64 bytes, until [`release`].
///
/// # Safety
/// The machine must have AMX, see [`permitted`].
pub unsafe fn configure() {
    let shape = Shape::WHOLE;
    // SAFETY: guaranteed by the caller; the shape is read.
    unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const shape, options(nostack, readonly)) }
}

/// Frees the registers, so that the system need not save them.
///
/// # Safety
/// As for [`configure`].
pub unsafe fn release() {
    // SAFETY: guaranteed by the caller.
    unsafe { asm!("tilerelease", options(nostack, nomem)) }
}

/// The operand of `ldtilecfg` (Intel, "Instruction Set Extensions Programming Reference", chapter 3).
#[repr(C, align(64))]
struct Shape {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes_per_row: [u16; 16],
    rows: [u8; 16],
}

impl Shape {
    const WHOLE: Shape = {
        let mut shape = Shape {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            bytes_per_row: [0; 16],
            rows: [0; 16],
        };
        let mut register = 0;
        while register < 8 {
            shape.bytes_per_row[register] = (SIDE * size_of::<u32>()) as u16;
            shape.rows[register] = SIDE as u8;
            register += 1;
        }
        shape
    };
}

/// Whether the processor has AMX for bf16 and the system lets this process use it. Linux requires a request, because tiles add
/// 8 KiB to the state that it saves per thread; other systems do not.
pub fn permitted() -> bool {
    #[cfg(target_os = "linux")]
    {
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        const AMX_BF16: u32 = 1 << 22;
        const AMX_TILE: u32 = 1 << 24;
        // `ARCH_REQ_XCOMP_PERM` and the number of the tile data state component (Linux, Documentation/arch/x86/xstate.rst).
        const REQUEST_PERMISSION: libc::c_long = 0x1023;
        const TILE_DATA: libc::c_long = 18;
        let features = (__cpuid(0).eax >= 7).then(|| __cpuid_count(7, 0).edx);
        let has = features.is_some_and(|edx| edx & AMX_BF16 != 0 && edx & AMX_TILE != 0);
        // SAFETY: the call reads no memory.
        has && unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) } == 0
    }
    #[cfg(not(target_os = "linux"))]
    false
}
