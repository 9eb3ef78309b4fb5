//! Broken inputs, each read end to end from a path to examples: every one ends in a message with the location, the
//! cause and what to do, in bounded time and memory, and never in a panic.

#![expect(clippy::unwrap_used, reason = "a test without its files has failed")]

use llmtui::data::formats::FormatChoice;
use llmtui::data::source::{ReadContext, SourceConfig};
use llmtui::data::{Content, Example, OnBadRow, examples};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// Far below the size of any of the large inputs; the largest row and its copies fit.
const MAX_RESIDENT: u64 = 400 << 20;

struct Outcome {
    read: Vec<Example>,
    /// The message and the hint.
    error: Option<(String, String)>,
    skipped: Vec<String>,
    notes: Vec<String>,
}

struct ScratchDir(TempDir);

impl ScratchDir {
    fn new() -> ScratchDir {
        // Untrusted binary formats are parsed by a child of the program, as in production.
        llmtui::base::child::this_program_is(PathBuf::from(env!("CARGO_BIN_EXE_llmtui")));
        ScratchDir(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn with(name: &str, bytes: impl AsRef<[u8]>) -> ScratchDir {
        let dir = ScratchDir::new();
        fs::write(dir.path(name), bytes).unwrap();
        dir
    }

    fn read(&self, source: &str, on_bad_row: OnBadRow) -> Outcome {
        let source = SourceConfig::parse(source).unwrap();
        let context = ReadContext {
            base: self.0.path().to_path_buf(),
            ..ReadContext::default()
        };
        let mut outcome = Outcome {
            read: Vec::new(),
            error: None,
            skipped: Vec::new(),
            notes: Vec::new(),
        };
        match examples(&source, FormatChoice::Auto, on_bad_row, &context) {
            Err(e) => outcome.error = Some((e.to_string(), e.hint().into_owned())),
            Ok(mut found) => {
                for item in found.by_ref() {
                    match item {
                        Ok((_, example)) => outcome.read.push(example),
                        Err(fault) => outcome.error = Some((fault.to_string(), fault.fix)),
                    }
                }
                outcome.skipped = found
                    .skipped()
                    .first
                    .iter()
                    .map(|f| f.to_string())
                    .collect();
                outcome.notes = found.rows().notes();
            }
        }
        bounded_memory();
        outcome
    }
}

/// Asserts a bound on the peak memory of this process, if the system reports it.
fn bounded_memory() {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    if let Some(kilobytes) = peak.and_then(|p| p.split_whitespace().next()) {
        let bytes = kilobytes.parse::<u64>().unwrap() << 10;
        assert!(bytes < MAX_RESIDENT, "{} MB", bytes >> 20);
    }
}

/// Reads one file and expects an error with all of `parts` in its message, and `fix` in its hint.
#[track_caller]
fn fails(name: &str, bytes: impl AsRef<[u8]>, parts: &[&str], fix: &str) {
    let dir = ScratchDir::with(name, bytes);
    expect(&dir, name, parts, fix);
}

#[track_caller]
fn expect(dir: &ScratchDir, source: &str, parts: &[&str], fix: &str) {
    let (message, hint) = dir.read(source, OnBadRow::Error).error.expect(source);
    for part in parts {
        assert!(message.contains(part), "no `{part}` in: {message}");
    }
    assert!(hint.contains(fix), "no `{fix}` in: {hint}");
    assert!(!hint.is_empty());
    assert!(!message.chars().chain(hint.chars()).any(char::is_control));
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn parquet(path: &Path, rows: usize) {
    let schema = parse_message_type("message m { REQUIRED BYTE_ARRAY text (UTF8); }").unwrap();
    let properties = Arc::new(WriterProperties::builder().build());
    let file = File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let texts: Vec<ByteArray> = (0..rows)
        .map(|i| format!("row {i}").as_str().into())
        .collect();
    column
        .typed::<ByteArrayType>()
        .write_batch(&texts, None, None)
        .unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
}

#[test]
fn invalid_utf8_is_reported_with_line_and_byte() {
    fails(
        "a.jsonl",
        b"{\"text\":\"a\"}\n{\"text\":\"\xff\"}\n",
        &["a.jsonl:2", "0xff", "byte 10"],
        "iconv",
    );
    fails(
        "a.txt",
        b"one\ntwo\nth\xffree",
        &["a.txt:3", "0xff", "byte 10 of the file"],
        "iconv",
    );
    fails(
        "a.csv",
        b"text,n\nok,1\n\xc3\x28,2\n",
        &["a.csv:3", "column text"],
        "iconv",
    );
    fails(
        "a.json",
        b"[{\"text\":\"a\"},\n{\"text\":\"\xe9\"}]",
        &["a.json:2", "0xe9"],
        "iconv",
    );
    fails("a.tsv", b"te\xffxt\tn\n", &["a.tsv:1", "column 1"], "iconv");
}

#[test]
fn nul_bytes_and_utf16_are_reported() {
    fails(
        "a.txt",
        b"one\ntw\0o",
        &["a.txt:2", "NUL byte", "byte 6"],
        "iconv -f utf-16",
    );
    fails(
        "a.jsonl",
        b"{\"text\":\"a\0b\"}",
        &["a.jsonl:1", "NUL byte"],
        "tr -d",
    );
    fails("a.csv", b"text\na\0b\n", &["a.csv:2", "NUL byte"], "tr -d");
    let wide: Vec<u8> = "\u{feff}text"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    fails("a.txt", &wide, &["UTF-16"], "iconv -f utf-16");
    fails("a.jsonl.gz", gz(&wide), &["UTF-16"], "iconv -f utf-16");
}

#[test]
fn byte_order_marks_and_cr_lf_are_accepted_with_a_note() {
    for (name, text) in [
        ("a.txt", "\u{feff}one\r\ntwo\r\n"),
        (
            "a.jsonl",
            "\u{feff}{\"text\":\"one\"}\r\n{\"text\":\"two\"}\r\n",
        ),
        (
            "a.json",
            "\u{feff}[{\"text\":\"one\"},\r\n{\"text\":\"two\"}]\r\n",
        ),
        ("a.csv", "\u{feff}text\r\none\r\ntwo\r\n"),
    ] {
        let outcome = ScratchDir::with(name, text).read(name, OnBadRow::Error);
        assert_eq!(outcome.error, None, "{name}");
        let Content::Text(first) = &outcome.read[0].content else {
            panic!("{name}")
        };
        assert!(first.starts_with("one"), "{name}: {first:?}");
        assert!(
            name == "a.csv" || outcome.notes.iter().any(|n| n.contains("byte-order")),
            "{name}"
        );
    }
}

#[test]
fn half_written_files_are_reported_as_such() {
    let half = b"{\"text\":\"a\"}\n{\"text\":\"b";
    fails(
        "a.jsonl",
        half,
        &["a.jsonl:2", "incomplete JSON"],
        "delete it",
    );
    let outcome = ScratchDir::with("a.jsonl", half).read("a.jsonl", OnBadRow::Skip);
    assert_eq!((outcome.read.len(), outcome.skipped.len()), (1, 1));
    fails(
        "a.json",
        b"[{\"text\":\"a\"},\n{\"te",
        &["a.json:2", "ends inside"],
        "again",
    );
    fails(
        "a.json",
        b"[{\"text\":\"a\"}\n",
        &["before the `]`"],
        "again",
    );
    let packed = gz(&b"{\"text\":\"a\"}\n".repeat(10_000));
    fails(
        "a.jsonl.gz",
        &packed[..packed.len() / 2],
        &["a.jsonl.gz:", "ends too early"],
        "again",
    );
    let packed = zstd::encode_all(&b"{\"text\":\"a\"}\n".repeat(10_000)[..], 1).unwrap();
    fails(
        "a.jsonl.zst",
        &packed[..packed.len() / 2],
        &["a.jsonl.zst"],
        "again",
    );
}

#[test]
fn truncated_and_crafted_parquet_files_end_in_an_error() {
    let dir = ScratchDir::new();
    let path = dir.path("a.parquet");
    parquet(&path, 1000);
    let outcome = dir.read("a.parquet", OnBadRow::Error);
    assert_eq!((outcome.read.len(), outcome.error), (1000, None));
    let whole = fs::read(&path).unwrap();
    for length in [0, 3, 4, 11, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        let (message, hint) = dir.read("a.parquet", OnBadRow::Skip).error.unwrap();
        assert!(
            message.contains("a.parquet") && !hint.is_empty(),
            "{length}: {message}"
        );
    }
    // One byte after the other is changed: most changes break the footer, some the pages, some nothing.
    for round in 0..40u64 {
        let mut bytes = whole.clone();
        let back = (round * 17) as usize % 600 + 9;
        let at = bytes.len().saturating_sub(back);
        bytes[at] ^= 1 << (round % 8);
        fs::write(&path, &bytes).unwrap();
        if let Some((message, hint)) = dir.read("a.parquet", OnBadRow::Error).error {
            assert!(
                message.contains("a.parquet") && !hint.is_empty(),
                "{round}: {message}"
            );
        }
    }
    fs::write(&path, b"PAR1 this is no table PAR1").unwrap();
    expect(&dir, "a.parquet", &["a.parquet"], "again");
    fs::write(dir.path("b.parquet.gz"), gz(&whole)).unwrap();
    expect(
        &dir,
        "b.parquet.gz",
        &["inside another compression"],
        "decompress",
    );
}

#[test]
fn a_line_of_a_gigabyte_is_an_error_and_does_not_use_a_gigabyte() {
    for (name, start, parts) in [
        (
            "a.jsonl",
            "{\"text\":\"ok\"}\n{\"text\":\"",
            ["a.jsonl:2", "16 MiB"],
        ),
        ("a.txt", "ok\n", ["a.txt:2", "16 MiB"]),
        (
            "a.json",
            "[{\"text\":\"ok\"},\n{\"text\":\"",
            ["a.json:", ""],
        ),
        ("a.csv", "text,n\nok,1\n\"", ["a.csv:3", "16 MiB"]),
    ] {
        let dir = ScratchDir::new();
        let mut file = File::create(dir.path(name)).unwrap();
        file.write_all(start.as_bytes()).unwrap();
        // A sparse file: a gigabyte to read, nothing on the disk.
        file.set_len(1 << 30).unwrap();
        expect(&dir, name, &parts, "");
    }
    // If it is skipped, the rest of the file is read.
    let dir = ScratchDir::new();
    let mut file = File::create(dir.path("a.jsonl")).unwrap();
    file.write_all(b"{\"text\":\"one\"}\n").unwrap();
    std::io::copy(&mut std::io::repeat(b'x').take(100 << 20), &mut file).unwrap();
    file.write_all(b"\n{\"text\":\"two\"}\n").unwrap();
    let outcome = dir.read("a.jsonl", OnBadRow::Skip);
    assert_eq!((outcome.read.len(), outcome.error), (2, None));
    assert!(outcome.skipped[0].starts_with("a.jsonl:2"));
}

#[test]
fn decompression_bombs_are_rejected() {
    // Blank lines of a megabyte: nothing to parse, much to decompress.
    let blank = [vec![b' '; 1 << 20], vec![b'\n']].concat();
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
    encoder.write_all(b"{\"text\":\"a\"}\n").unwrap();
    (0..200).for_each(|_| encoder.write_all(&blank).unwrap());
    let bomb = encoder.finish().unwrap();
    assert!(bomb.len() < 1 << 20);
    let parts = ["a.jsonl.zst", "200 times"];
    fails("a.jsonl.zst", &bomb, &parts, "decompress it yourself");
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    (0..100).for_each(|_| encoder.write_all(&blank).unwrap());
    let parts = ["a.jsonl.gz", "200 times"];
    fails(
        "a.jsonl.gz",
        encoder.finish().unwrap(),
        &parts,
        "decompress it yourself",
    );
}

#[test]
fn deeply_nested_json_is_rejected_before_recursion() {
    let deep = format!(
        "{{\"text\":{}{}}}",
        "[".repeat(200_000),
        "]".repeat(200_000)
    );
    fails(
        "a.jsonl",
        &deep,
        &["a.jsonl:1", "deeper than 64"],
        "flatten",
    );
    fails("a.json", &deep, &["a.json:1", "deeper than 64"], "flatten");
    let open = format!("{{\"text\":{}", "[{\"a\":".repeat(200_000));
    fails("a.jsonl", &open, &["deeper than 64"], "flatten");
}

#[test]
fn empty_inputs_have_their_own_error() {
    for name in ["a.txt", "a.jsonl", "a.json", "a.csv"] {
        fails(name, b"", &[name], "");
    }
    fails("a.jsonl", b"\n \n\n", &["a.jsonl", "no text"], "with text");
    fails("a.json", b"[]", &["a.json", "no text"], "with text");
    fails("a.csv", b"text,n\n", &["a.csv", "no rows"], "header");
    let dir = ScratchDir::new();
    fs::create_dir(dir.path("empty.jsonl")).unwrap();
    expect(&dir, "empty.jsonl", &["holds no data files"], "glob");
    expect(
        &dir,
        "absent.jsonl",
        &["absent.jsonl", "does not exist"],
        "",
    );
    expect(&dir, "*.jsonl.gz", &["matches no files"], "`*`");
}

#[test]
fn wrong_columns_get_a_mapping_that_fixes_them() {
    fails(
        "a.jsonl",
        r#"{"id":1,"dialog":[{"role":"user","content":"a"}]}"#,
        &["a.jsonl:1", "id, dialog"],
        "columns: {messages: dialog}",
    );
    fails(
        "a.csv",
        "Instruction,Outputs\na,b\n",
        &["a.csv:2", "Instruction, Outputs"],
        "{instruction: Instruction, output: Outputs}",
    );
    let rows = "{\"prompt\":\"a\",\"completion\":\"b\"}\n{\"prompt\":\"a\",\"completions\":\"b\"}\n{\"prompt\":\"a\",\"completion\":\"b\"}\n";
    fails(
        "a.jsonl",
        rows,
        &[
            "a.jsonl:2",
            "no column for `completion`; found: prompt, completions",
        ],
        "of 3 rows 1 cannot be read: data.on_bad_row: skip",
    );
    fails(
        "a.jsonl",
        r#"{"question":"1+1","answer":"2"}"#,
        &["could be instruction_response or prompt_only"],
        "data.format",
    );
    fails(
        "a.jsonl",
        r#"{"messages":[{"role":"asistant","content":"a"}]}"#,
        &["a.jsonl:1", "`asistant`"],
        "assistant",
    );
}

#[test]
fn files_that_are_not_data_are_recognized() {
    fails("a.jsonl", b"PK\x03\x04rest", &["zip archive"], "unzip");
    fails("a.txt", b"%PDF-1.7", &["PDF"], "pdftotext");
    fails(
        "a.jsonl",
        b"[\"a\", \"b\"]",
        &["a.jsonl:1", "found a list"],
        "messages",
    );
    fails("a.jsonl", b"{'text': 'a'}", &["a.jsonl:1"], "json.dumps");
    fails("a.jsonl", b"{\"text\": NaN}", &["a.jsonl:1"], "NaN");
    fails("a.json", b"hello", &["a.json:1"], "");
    fails(
        "a.json",
        b"[{\"text\":\"a\"}] x",
        &["a.json:1", "`x`"],
        "jq",
    );
    fails(
        "a.csv",
        b"a,a\n1,2\n",
        &["a.csv:1", "named `a`"],
        "first line",
    );
    fails("a.csv", b"text,n\na\n", &["a.csv:2", "1 columns"], "quotes");
}

#[test]
fn names_cannot_point_outside_a_data_set() {
    let dir = ScratchDir::new();
    fs::create_dir_all(dir.path("set/en")).unwrap();
    fs::write(dir.path("secret.jsonl"), "{\"text\":\"x\"}").unwrap();
    fs::write(dir.path("set/en/train.jsonl"), "{\"text\":\"a\"}").unwrap();
    assert_eq!(dir.read("set | en", OnBadRow::Error).read.len(), 1);
    for evil in ["..", "../..", "../secret.jsonl", "/", "en/../.."] {
        expect(&dir, &format!("set | {evil}"), &["no subset"], "en");
    }
    // A data set's README may contain patterns, and those stay inside too.
    let card = "---\nconfigs:\n- config_name: x\n  data_files:\n  - split: train\n    path: ../secret.jsonl\n---\n";
    fs::write(dir.path("set/README.md"), card).unwrap();
    expect(&dir, "set | x", &["not there"], "pattern");
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("loop.jsonl", dir.path("loop.jsonl")).unwrap();
        expect(&dir, "loop.jsonl", &["does not exist"], "");
    }
}

#[test]
fn several_file_types_in_a_folder_need_a_choice() {
    let dir = ScratchDir::with("a.jsonl", "{\"text\":\"a\"}");
    fs::write(dir.path("README.txt"), "about the data").unwrap();
    expect(&dir, ".", &["several kinds"], "*.");
}
