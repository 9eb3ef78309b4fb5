//! Number formats of weights against the `gguf` package of llama.cpp: the values it reads from blocks, and the blocks that it
//! writes. `tests/oracle/gguf_formats_oracle.py` made the fixture.

#![expect(
    clippy::unwrap_used,
    reason = "a fixture that cannot be read has failed"
)]

use llmtui::kernels::quant::{Kind, Packed};
use serde_json::Value;

fn fixture(part: &str) -> Vec<(Kind, Vec<u8>, Vec<f32>)> {
    let all: Value = serde_json::from_str(include_str!("oracle/gguf_formats.json")).unwrap();
    let rows = all[part].as_object().unwrap().iter();
    rows.map(|(name, row)| {
        let kind = Kind::ALL.iter().find(|kind| kind.name() == name).unwrap();
        let hex = row["bytes"].as_str().unwrap();
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let bytes = (0..hex.len()).step_by(2).map(byte).collect();
        let bits = row["values"].as_array().unwrap().iter();
        let values = bits.map(|b| f32::from_bits(b.as_u64().unwrap() as u32));
        (*kind, bytes, values.collect())
    })
    .collect()
}

#[test]
fn blocks_decode_bit_exactly() {
    let rows = fixture("read");
    assert_eq!(rows.len(), Kind::ALL.len() - 1, "all but f32");
    for (kind, bytes, expected) in rows {
        let mut values = vec![0.0; expected.len()];
        kind.decode(&bytes, &mut values);
        assert_eq!(values, expected, "{}", kind.name());
    }
}

#[test]
fn packed_matrices_hold_the_same_values() {
    for (kind, bytes, expected) in fixture("read") {
        let mut packed = Packed::new(expected.len());
        packed.push(kind, 1, &bytes).unwrap();
        let mut values = vec![0.0; expected.len()];
        packed.row(0, &mut values);
        assert_eq!(values, expected, "{}", kind.name());
    }
}

#[test]
fn plain_formats_are_written_byte_for_byte() {
    for (kind, expected, values) in fixture("written") {
        let mut bytes = vec![0; expected.len()];
        assert!(kind.encode(&values, &mut bytes));
        let differing = bytes.iter().zip(&expected).filter(|(a, b)| a != b).count();
        // For a value on the border between two codes, the order of operations may decide.
        assert!(differing <= 1, "{}: {differing} bytes", kind.name());
    }
}
