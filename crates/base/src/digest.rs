//! Digests as written in files and logs. The choice of algorithm is the caller's.

/// Lower-case hexadecimal, two digits per byte.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_byte_has_two_digits() {
        assert_eq!(super::hex(&[0, 15, 160, 255]), "000fa0ff");
        assert_eq!(super::hex(&[]), "");
    }
}
