//! Generated files, valid and malicious.

use super::*;

/// Writes the start of a file piece by piece.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn head(n_tensors: u64, n_keys: u64) -> Writer {
        let mut w = Writer::default();
        w.0.extend(MAGIC);
        w.u32(3).u64(n_tensors).u64(n_keys);
        w
    }
    fn u32(&mut self, x: u32) -> &mut Writer {
        self.0.extend(x.to_le_bytes());
        self
    }
    fn u64(&mut self, x: u64) -> &mut Writer {
        self.0.extend(x.to_le_bytes());
        self
    }
    fn string(&mut self, text: &str) -> &mut Writer {
        self.u64(text.len() as u64).0.extend(text.as_bytes());
        self
    }
    fn tensor(&mut self, name: &str, dims: &[u64], kind: u32, offset: u64) -> &mut Writer {
        self.string(name).u32(dims.len() as u32);
        for dim in dims {
            self.u64(*dim);
        }
        self.u32(kind).u64(offset)
    }
    /// Reads the file, padded to the data, with `data` more bytes.
    fn read(&self, data: usize) -> Result<Gguf, GgufError> {
        let mut bytes = self.0.clone();
        bytes.resize(bytes.len().next_multiple_of(32) + data, 0);
        Gguf::read(bytes.as_slice(), bytes.len() as u64)
    }
}

fn assert_rejected(w: &Writer, data: usize, part: &str) {
    let error = w.read(data).unwrap_err().to_string();
    assert!(error.contains(part), "{error}");
}

#[test]
fn keys_arrays_and_tensors_are_read() {
    let mut w = Writer::head(2, 4);
    w.string("general.name").u32(8).string("tiny");
    w.string("a.count").u32(4).u32(7);
    w.string("a.scores").u32(9).u32(6).u64(2);
    w.u32(1f32.to_bits()).u32((-2f32).to_bits());
    w.string("a.words")
        .u32(9)
        .u32(8)
        .u64(2)
        .string("ä")
        .string("");
    w.tensor("x", &[32, 2], 8, 0).tensor("y", &[3], 0, 96);
    let file = w.read(96 + 12).unwrap();
    assert_eq!(file.metadata.str("general.name"), Some("tiny"));
    assert_eq!(file.metadata.u64("a.count"), Some(7));
    assert_eq!(
        file.metadata.array("a.scores"),
        Some(&Array::F32(vec![1.0, -2.0]))
    );
    assert_eq!(
        file.metadata.strings("a.words").unwrap(),
        ["ä".to_string(), String::new()]
    );
    assert_eq!(file.tensors[0].bytes, 68);
    assert_eq!(file.tensors[1].kind.name, "F32");
    assert_eq!(file.data_start % 32, 0);
    assert_rejected(&w, 96 + 11, "extends past the end");
}

#[test]
fn other_files_are_reported_as_not_gguf() {
    let read = |bytes: &[u8]| Gguf::read(bytes, bytes.len() as u64).unwrap_err();
    assert!(matches!(read(b""), GgufError::Magic));
    assert!(matches!(read(b"PK\x03\x04....."), GgufError::Magic));
    assert!(matches!(read(b"GGUF\x01\0\0\0"), GgufError::Version(1)));
    assert!(matches!(
        read(b"GGUF\0\0\0\x03"),
        GgufError::Version(0x0300_0000)
    ));
}

#[test]
fn counts_beyond_the_file_do_not_allocate() {
    assert_rejected(&Writer::head(u64::MAX, 0), 0, "tensors declared");
    assert_rejected(&Writer::head(0, 1 << 40), 0, "keys declared");
    let mut w = Writer::head(0, 1);
    w.string("k").u32(9).u32(6).u64(1 << 61);
    assert_rejected(&w, 0, "values declared");
    let mut w = Writer::head(0, 1);
    w.u64(u64::MAX);
    assert_rejected(&w, 64, "a string of 18446744073709551615 bytes");
}

#[test]
fn crafted_numbers_are_rejected() {
    for alignment in [0, 7, 48, u64::MAX] {
        let mut w = Writer::head(0, 1);
        w.string("general.alignment").u32(10).u64(alignment);
        assert_rejected(&w, 0, "power of two");
    }
    let mut w = Writer::head(1, 0);
    w.tensor("x", &[1 << 32, 1 << 32], 0, 0);
    assert_rejected(&w, 64, "cannot have shape");
    let mut w = Writer::head(1, 0);
    w.tensor("x", &[33], 8, 0);
    assert_rejected(&w, 64, "cannot have shape");
    let mut w = Writer::head(1, 0);
    w.tensor("x", &[8], 0, u64::MAX - 31);
    assert_rejected(&w, 64, "extends past");
    let mut w = Writer::head(2, 0);
    w.tensor("x", &[16], 0, 0).tensor("y", &[16], 0, 32);
    assert_rejected(&w, 128, "overlaps");
    let mut w = Writer::head(0, 2);
    w.string("k").u32(4).u32(1).string("k").u32(4).u32(2);
    assert_rejected(&w, 0, "duplicate key");
}

#[test]
fn every_truncated_file_is_an_error_and_not_a_panic() {
    let mut w = Writer::head(1, 2);
    w.string("a").u32(9).u32(8).u64(1).string("xyz");
    w.string("b").u32(7).0.push(1);
    w.tensor("x", &[8], 0, 0);
    let whole = w.read(32).unwrap();
    assert_eq!(whole.metadata.bool("b"), Some(true));
    for cut in 0..w.0.len() {
        let bytes = &w.0[..cut];
        assert!(Gguf::read(bytes, cut as u64).is_err(), "cut at {cut}");
        // The length that the file system reports may be wrong too.
        assert!(Gguf::read(bytes, 1 << 40).is_err(), "cut at {cut}");
    }
}

proptest::proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(0u8..=255, 0..400)) {
        let mut w = Writer::head(1, 1);
        w.0.extend(bytes);
        let _ = Gguf::read(w.0.as_slice(), w.0.len() as u64);
    }
}
