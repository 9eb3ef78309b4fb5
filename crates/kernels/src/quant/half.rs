//! Sixteen-bit floats ⇄ f32. Rounding is to nearest, ties to even (IEEE 754). Not from the `half` crate: these compile to
//! lanes in the inner loops of `floats.rs`, which `half`'s do not (a count of leading zeros, or a call).

/// f16 → f32, exactly.
#[inline(always)]
pub fn from_f16(bits: u16) -> f32 {
    /// 2^112: the difference of the exponent biases, 127 − 15, as a factor. Multiplying handles denormals too.
    const RAISE: f32 = f32::from_bits((112 + 127) << 23);
    let sign = u32::from(bits & 0x8000) << 16;
    let magnitude = u32::from(bits & 0x7fff);
    if magnitude >= 0x7c00 {
        return f32::from_bits(sign | 0x7f80_0000 | ((magnitude & 0x3ff) << 13));
    }
    f32::from_bits(sign | (f32::from_bits(magnitude << 13) * RAISE).to_bits())
}

/// f32 → f16; infinite beyond its range.
#[inline(always)]
pub fn to_f16(x: f32) -> u16 {
    let sign = (x.to_bits() >> 16) as u16 & 0x8000;
    let bits = x.to_bits() & 0x7fff_ffff;
    if bits > 0x7f80_0000 {
        return sign | 0x7e00;
    }
    if bits >= 0x4780_0000 {
        return sign | 0x7c00;
    }
    if bits < 0x3880_0000 {
        // Denormal: adding 0.5 leaves the rounded multiple of 2^-24 in the low bits.
        let rounded = (f32::from_bits(bits) + 0.5).to_bits() - 0.5_f32.to_bits();
        return sign | rounded as u16;
    }
    // A carry out of the significand increments the exponent, up to infinity.
    let rounded = bits + 0xfff + ((bits >> 13) & 1);
    sign | ((rounded >> 13) - (112 << 10)) as u16
}

/// bf16 → f32, exactly.
#[inline(always)]
pub fn from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// f32 → bf16.
#[inline(always)]
pub fn to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

/// The little-endian 16-bit word at byte `at`.
#[inline(always)]
pub fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// The f16 at byte `at`.
#[inline(always)]
pub fn f16_at(bytes: &[u8], at: usize) -> f32 {
    from_f16(word(bytes, at))
}

/// Writes `x` as f16 at byte `at` and returns what was written.
#[inline(always)]
pub fn put_f16(bytes: &mut [u8], at: usize, x: f32) -> f32 {
    let bits = to_f16(x);
    bytes[at..at + 2].copy_from_slice(&bits.to_le_bytes());
    from_f16(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_round_trips() {
        for bits in 0..=u16::MAX {
            let x = from_f16(bits);
            if x.is_nan() {
                assert!(bits & 0x7c00 == 0x7c00 && bits & 0x3ff != 0);
                assert!(from_f16(to_f16(x)).is_nan());
            } else {
                assert_eq!(to_f16(x), bits, "{x}");
            }
        }
        assert_eq!(from_f16(0x3c00), 1.0);
        assert_eq!(from_f16(0x0001), 2f32.powi(-24));
        assert_eq!(from_f16(0x7bff), 65504.0);
    }

    #[test]
    fn rounding_is_to_nearest_and_ties_go_to_even() {
        // Between 1 and the next f16, 1 + 2^-10.
        assert_eq!(to_f16(1.0 + 2f32.powi(-11)), 0x3c00);
        assert_eq!(to_f16(1.0 + 3.0 * 2f32.powi(-11)), 0x3c02);
        assert_eq!(to_f16(1.0 + 2f32.powi(-11) + 2f32.powi(-20)), 0x3c01);
        assert_eq!(to_f16(65519.9), 0x7bff);
        assert_eq!(to_f16(65520.0), 0x7c00);
        assert_eq!(to_f16(1e30), 0x7c00);
        assert_eq!(to_f16(2f32.powi(-25)), 0);
        assert_eq!(to_f16(-3.0 * 2f32.powi(-25)), 0x8002);
        // Between 1 and the next bf16, 1 + 2^-7.
        assert_eq!(to_bf16(1.0 + 2f32.powi(-8)), 0x3f80);
        assert_eq!(to_bf16(1.0 + 3.0 * 2f32.powi(-8)), 0x3f82);
        assert_eq!(from_bf16(to_bf16(f32::INFINITY)), f32::INFINITY);
        assert!(from_bf16(to_bf16(f32::NAN)).is_nan());
    }
}
