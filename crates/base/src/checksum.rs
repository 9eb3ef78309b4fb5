//! Checksums of records: CRC-32C as TFRecord masks it, and CRC-32 as wandb's log has it. Both reflected, a table each.

const fn table(polynomial: u32) -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = (value >> 1) ^ (polynomial & (value & 1).wrapping_neg());
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
}

const CASTAGNOLI: [u32; 256] = table(0x82f6_3b78);
const IEEE: [u32; 256] = table(0xedb8_8320);

fn run(table: &[u32; 256], parts: &[&[u8]]) -> u32 {
    let bytes = parts.iter().flat_map(|part| part.iter());
    !bytes.fold(u32::MAX, |crc, byte| {
        table[usize::from(crc as u8 ^ byte)] ^ (crc >> 8)
    })
}

/// CRC-32C, rotated and shifted as in TensorFlow's record_writer.cc, so that a checksum of checksums is none.
pub fn masked_crc32c(bytes: &[u8]) -> u32 {
    run(&CASTAGNOLI, &[bytes])
        .rotate_right(15)
        .wrapping_add(0xa282_ead8)
}

/// CRC-32 of zlib over the parts, one behind the other.
pub fn crc32(parts: &[&[u8]]) -> u32 {
    run(&IEEE, parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_values_of_the_catalogue_come_out() {
        // reveng.sourceforge.io/crc-catalogue: CRC-32/ISCSI and CRC-32/ISO-HDLC over "123456789"
        assert_eq!(run(&CASTAGNOLI, &[b"123456789"]), 0xe306_9283);
        assert_eq!(crc32(&[b"1234", b"56789"]), 0xcbf4_3926);
    }
}
