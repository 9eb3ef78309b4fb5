//! Pixels as a PNG file: eight bits a channel, one compression, one filter, not interlaced.

use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::io::{self, Write};

/// Encodes `pixels`, rows of `width` pixels (red, green, blue), as a PNG file. `about` is
/// stored as its description, if not empty.
///
/// # Errors
/// A side exceeds the format's limit.
pub fn encode(width: usize, pixels: &[u8], about: &str) -> io::Result<Vec<u8>> {
    let row_bytes = 3 * width.max(1);
    let height = pixels.len() / row_bytes;
    let mut head = Vec::new();
    for side in [width, height] {
        let side = u32::try_from(side).map_err(io::Error::other)?;
        head.extend(side.to_be_bytes());
    }
    head.extend([8, 2, 0, 0, 0]);
    let mut data = ZlibEncoder::new(Vec::new(), Compression::default());
    for row in pixels.chunks(row_bytes) {
        data.write_all(&[0])?;
        data.write_all(row)?;
    }
    let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
    chunk(&mut out, b"IHDR", &head)?;
    if !about.is_empty() {
        // Keyword, not compressed, no language, no translation of the keyword; then UTF-8.
        let text = [b"Description\0\0\0\0\0", about.as_bytes()].concat();
        chunk(&mut out, b"iTXt", &text)?;
    }
    chunk(&mut out, b"IDAT", &data.finish()?)?;
    chunk(&mut out, b"IEND", &[])?;
    Ok(out)
}

/// Length, name, contents, and the checksum of name and contents.
fn chunk(out: &mut Vec<u8>, name: &[u8; 4], data: &[u8]) -> io::Result<()> {
    let length = u32::try_from(data.len()).map_err(io::Error::other)?;
    let mut sum = flate2::Crc::new();
    sum.update(name);
    sum.update(data);
    out.extend(length.to_be_bytes());
    out.extend(name);
    out.extend(data);
    out.extend(sum.sum().to_be_bytes());
    Ok(())
}
