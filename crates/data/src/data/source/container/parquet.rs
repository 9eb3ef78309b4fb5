//! Parquet tables. The library that reads them panics on crafted files, so it runs in a child process with limits and returns
//! each row as a line of JSON. Binary values that are not text become `{"bytes": LENGTH}`, which is noted, non-finite numbers null.

use super::{Container, Stream};
use crate::base::child::{Child, ChildError, Limits, LineSink, Lines, Parser, Request};
use crate::base::files::open_plain;
use crate::base::text::one_line;
use crate::data::source::fault::ReadFault;
use crate::data::source::input::{Input, Notes};
use crate::data::source::{MAX_ROW_BYTES, json};
use crate::data::{DataError, Place, Record};
use parquet::basic::Compression;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(super) const CONTAINER: Container = Container {
    id: "parquet",
    extensions: &["parquet", "pq"],
    open,
};

/// The side of the child process.
pub(in crate::data) const PARSER: Parser = Parser {
    id: "parquet",
    parse,
};

/// A row group is decoded page by page: this is far more than honest files need. Time is bounded by silence alone, for a
/// large file takes long and its rows are read as slowly as they are used.
const LIMITS: Limits = Limits {
    memory: 4 << 30,
    cpu_seconds: 7 * 24 * 3600,
    silence: Duration::from_secs(120),
    line_bytes: MAX_ROW_BYTES,
    total_bytes: u64::MAX,
};

/// How the child begins to say that a file is sound, but compressed in a way that is not read.
const COMPRESSED: &str = "its columns are compressed with ";

/// The parser's option that asks for the number of rows alone.
const ANNOUNCED: &str = "announced";

struct Rows {
    lines: Lines,
    file: Arc<str>,
    notes: Notes,
    row: u64,
}

fn open(input: Input) -> Result<Stream, DataError> {
    if input.compressed {
        let fix = "parquet compresses itself: decompress the file and name the result";
        return Err(DataError::source(
            &input.file,
            "is parquet inside another compression",
            fix,
        ));
    }
    let path = std::path::absolute(&input.path).unwrap_or(input.path);
    let lines = Child::of_this_program()
        .run(&PARSER, Request::file(&path), &LIMITS)
        .map_err(|e| DataError::source(&input.file, e.to_string(), e.hint()))?;
    Ok(Box::new(Rows {
        lines,
        file: input.file,
        notes: input.notes,
        row: 0,
    }))
}

/// The number of rows in a file's footer, without decoding any. `None` if it is not a complete parquet file.
pub fn announced_rows(path: &Path) -> Option<u64> {
    let path = std::path::absolute(path).ok()?;
    let request = Request::file(&path).with(json!(ANNOUNCED));
    let mut lines = Child::of_this_program()
        .run(&PARSER, request, &LIMITS)
        .ok()?;
    lines.next()?.ok()?.parse().ok()
}

impl Iterator for Rows {
    type Item = Result<Record, ReadFault>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut line = self.lines.next()?;
        while let Some(column) = line.as_deref().ok().and_then(binary_column) {
            let (file, column) = (&self.file, one_line(&column));
            let note = format!(
                "{file}: the column {column} has binary values, which are read as {{\"bytes\": LENGTH}}"
            );
            self.notes.add(note);
            line = self.lines.next()?;
        }
        self.row += 1;
        let place = Place {
            file: self.file.clone(),
            row: self.row,
        };
        Some(match line {
            Ok(line) => json::record(line.as_bytes(), place, &self.notes),
            Err(e) => {
                let fix = match &e {
                    ChildError::Refused(why) if why.starts_with(COMPRESSED) => {
                        "write it with zstd, snappy, gzip or none, e.g. pq.write_table(pq.read_table(IN), OUT, compression='zstd')"
                    }
                    ChildError::Refused(_) => {
                        "it is damaged, truncated or not parquet: download or write it again"
                    }
                    other => other.hint(),
                };
                Err(ReadFault::fatal(&place, e.to_string(), fix))
            }
        })
    }
}

fn parse(request: &Request, emit: &mut LineSink) -> Result<(), String> {
    let path = request.path.as_deref().ok_or("no file given")?;
    let file = open_plain(path).map_err(|e| e.to_string())?;
    let reader =
        SerializedFileReader::new(file).map_err(|e| format!("not a complete parquet file: {e}"))?;
    let announced = reader.metadata().file_metadata().num_rows();
    if request.options == ANNOUNCED {
        return emit(&announced.to_string());
    }
    if let Some(codec) = unread_codec(reader.metadata()) {
        return Err(format!("{COMPRESSED}{codec}, which is not read here"));
    }
    let mut given = 0;
    let mut binary = HashSet::new();
    for row in reader {
        let row = row.map_err(|e| format!("row {} cannot be decoded: {e}", given + 1))?;
        for (name, field) in row.get_column_iter() {
            if !binary.contains(name) && is_binary(field) {
                emit(&Value::from(name.as_str()).to_string())?;
                binary.insert(name.clone());
            }
        }
        emit(&Value::Object(fields(row)).to_string())?;
        given += 1;
    }
    match given == announced {
        true => Ok(()),
        false => Err(format!("{given} rows were found, {announced} declared")),
    }
}

/// A compression that the library is built without: it would call every row of the file damaged.
fn unread_codec(metadata: &ParquetMetaData) -> Option<&'static str> {
    let groups = metadata.row_groups().iter();
    groups
        .flat_map(|group| group.columns())
        .find_map(|column| match column.compression() {
            Compression::BROTLI(_) => Some("brotli"),
            Compression::LZ4 | Compression::LZ4_RAW => Some("lz4"),
            Compression::LZO => Some("lzo"),
            _ => None,
        })
}

/// The name of a column with binary values, where the child passes one on: its rows are objects.
fn binary_column(line: &str) -> Option<String> {
    let named = line.starts_with('"');
    named.then(|| serde_json::from_str(line).ok()).flatten()
}

/// Whether a value has bytes in it that are no text.
fn is_binary(field: &Field) -> bool {
    match field {
        Field::Bytes(bytes) => std::str::from_utf8(bytes.data()).is_err(),
        Field::Group(row) => row.get_column_iter().any(|(_, field)| is_binary(field)),
        Field::ListInternal(list) => list.elements().iter().any(is_binary),
        Field::MapInternal(map) => {
            let mut entries = map.entries().iter();
            entries.any(|(key, value)| is_binary(key) || is_binary(value))
        }
        _ => false,
    }
}

fn fields(row: Row) -> Map<String, Value> {
    row.into_columns()
        .into_iter()
        .map(|(name, field)| (name, value(&field)))
        .collect()
}

fn value(field: &Field) -> Value {
    match field {
        Field::Null => Value::Null,
        Field::Bool(b) => (*b).into(),
        Field::Byte(n) => (*n).into(),
        Field::Short(n) => (*n).into(),
        Field::Int(n) => (*n).into(),
        Field::Long(n) => (*n).into(),
        Field::UByte(n) => (*n).into(),
        Field::UShort(n) => (*n).into(),
        Field::UInt(n) => (*n).into(),
        Field::ULong(n) => (*n).into(),
        Field::Float16(x) => x.to_f64().into(),
        Field::Float(x) => f64::from(*x).into(),
        Field::Double(x) => (*x).into(),
        Field::Str(text) => text.as_str().into(),
        Field::Bytes(bytes) => match std::str::from_utf8(bytes.data()) {
            Ok(text) => text.into(),
            Err(_) => json!({"bytes": bytes.len()}),
        },
        // One schema for all rows gives each the members of every other: those that it lacks are null. A column of the table
        // itself stays, so that a row without a value differs from a table without the column.
        Field::Group(row) => row
            .get_column_iter()
            .filter(|(_, field)| !matches!(field, Field::Null))
            .map(|(name, field)| (name.clone(), value(field)))
            .collect::<Map<_, _>>()
            .into(),
        Field::ListInternal(list) => list.elements().iter().map(value).collect::<Vec<_>>().into(),
        Field::MapInternal(map) => map
            .entries()
            .iter()
            .map(|(key, field)| {
                let key = match value(key) {
                    Value::String(text) => text,
                    other => other.to_string(),
                };
                (key, value(field))
            })
            .collect::<Map<_, _>>()
            .into(),
        // Dates, times and decimals, as the library writes them.
        other => other.to_string().into(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::base::files::read_plain;
    use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    use std::fs::File;

    /// Writes a table with a text column and a number.
    pub(crate) fn write(path: &Path, rows: &[(&str, i64)]) {
        let schema = "message rows { REQUIRED BYTE_ARRAY text (UTF8); REQUIRED INT64 n; }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let properties = Arc::new(WriterProperties::builder().build());
        let mut writer =
            SerializedFileWriter::new(File::create(path).unwrap(), schema, properties).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let texts: Vec<ByteArray> = rows.iter().map(|(t, _)| (*t).into()).collect();
        let mut column = group.next_column().unwrap().unwrap();
        column
            .typed::<ByteArrayType>()
            .write_batch(&texts, None, None)
            .unwrap();
        column.close().unwrap();
        let numbers: Vec<i64> = rows.iter().map(|(_, n)| *n).collect();
        let mut column = group.next_column().unwrap().unwrap();
        column
            .typed::<Int64Type>()
            .write_batch(&numbers, None, None)
            .unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
    }

    fn input(path: &Path, notes: &Notes) -> Input {
        Input {
            path: path.to_path_buf(),
            file: "a.parquet".into(),
            reader: Box::new(std::io::empty()),
            compressed: false,
            notes: notes.clone(),
        }
    }

    fn read(path: &Path) -> Vec<Result<Record, ReadFault>> {
        open(input(path, &Notes::default())).unwrap().collect()
    }

    #[test]
    fn rows_come_with_their_columns_and_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.parquet");
        write(&path, &[("one", 1), ("zwei \u{e4}", -2)]);
        let rows = read(&path);
        let second = rows[1].as_ref().unwrap();
        assert_eq!(second.place.to_string(), "a.parquet:2");
        assert_eq!(second.fields["text"], "zwei \u{e4}");
        assert_eq!(second.fields["n"], -2);
        assert_eq!((rows.len(), announced_rows(&path)), (2, Some(2)));
        std::fs::write(&path, "PAR1").unwrap();
        assert_eq!(announced_rows(&path), None);
    }

    #[test]
    fn members_that_a_row_lacks_are_left_out_and_columns_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.parquet");
        let schema = "message rows { OPTIONAL BYTE_ARRAY n (UTF8);
            OPTIONAL group call { OPTIONAL BYTE_ARRAY city (UTF8); OPTIONAL BYTE_ARRAY ticker (UTF8); } }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let file = File::create(&path).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema, Default::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        // Of two rows: values, and to which level each is there.
        for (values, levels) in [(vec![], [0, 0]), (vec!["Ulm"], [2, 1]), (vec!["X"], [1, 2])] {
            let values: Vec<ByteArray> = values.into_iter().map(ByteArray::from).collect();
            let mut column = group.next_column().unwrap().unwrap();
            let typed = column.typed::<ByteArrayType>();
            typed.write_batch(&values, Some(&levels), None).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
        let rows = read(&path).into_iter().map(|row| row.unwrap().fields);
        let rows: Vec<Value> = rows.map(Value::Object).collect();
        let expected = [
            json!({"n": null, "call": {"city": "Ulm"}}),
            json!({"n": null, "call": {"ticker": "X"}}),
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn a_file_cut_anywhere_ends_in_a_fault() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.parquet");
        write(&path, &[("one", 1), ("two", 2)]);
        let whole = read_plain(&path).unwrap();
        for length in [0, 3, 8, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&path, &whole[..length]).unwrap();
            let last = read(&path).pop().unwrap();
            assert!(last.unwrap_err().fatal, "{length} bytes");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_noted_once_for_each_column() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.parquet");
        let schema = "message rows { REQUIRED BYTE_ARRAY word; REQUIRED BYTE_ARRAY b; }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let file = File::create(&path).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema, Default::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        for values in [[&b"one"[..], b"two"], [&b"\x00\xff"[..], b"\xff"]] {
            let values = values.map(|value| ByteArray::from(value.to_vec()));
            let mut column = group.next_column().unwrap().unwrap();
            let typed = column.typed::<ByteArrayType>();
            typed.write_batch(&values, None, None).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
        let notes = Notes::default();
        let rows: Vec<Record> = open(input(&path, &notes))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert_eq!(
            (rows[1].place.row, &rows[1].fields["word"]),
            (2, &json!("two"))
        );
        assert_eq!(rows[0].fields["b"], json!({"bytes": 2}));
        let note =
            "a.parquet: the column b has binary values, which are read as {\"bytes\": LENGTH}";
        assert_eq!(notes.list(), [note]);
    }

    /// Two rows of `text`, as pyarrow writes them with compression='lz4'.
    const LZ4: &[u8] = b"\
        \x50\x41\x52\x31\x15\x04\x15\x14\x15\x16\x4c\x15\x04\x15\x00\x12\x00\x00\xa0\x01\x00\x00\x00\x61\
        \x01\x00\x00\x00\x62\x15\x00\x15\x12\x15\x14\x2c\x15\x04\x15\x10\x15\x06\x15\x06\x1c\x00\x00\x00\
        \x90\x02\x00\x00\x00\x04\x01\x01\x03\x02\x15\x04\x19\x2c\x35\x00\x18\x06\x73\x63\x68\x65\x6d\x61\
        \x15\x02\x00\x15\x0c\x25\x02\x18\x04\x74\x65\x78\x74\x25\x00\x4c\x1c\x00\x00\x00\x16\x04\x19\x1c\
        \x19\x1c\x26\x00\x1c\x15\x0c\x19\x35\x00\x06\x10\x19\x18\x04\x74\x65\x78\x74\x15\x0e\x16\x04\x16\
        \x68\x16\x6c\x26\x3a\x26\x08\x29\x2c\x15\x04\x15\x00\x15\x02\x00\x15\x00\x15\x10\x15\x02\x00\x3c\
        \x16\x04\x19\x06\x19\x26\x00\x04\x00\x00\x00\x16\x68\x16\x04\x26\x08\x16\x6c\x00\x28\x20\x70\x61\
        \x72\x71\x75\x65\x74\x2d\x63\x70\x70\x2d\x61\x72\x72\x6f\x77\x20\x76\x65\x72\x73\x69\x6f\x6e\x20\
        \x32\x36\x2e\x30\x2e\x31\x19\x1c\x1c\x00\x00\x00\x92\x00\x00\x00\x50\x41\x52\x31";

    #[test]
    fn a_compression_that_is_not_read_is_named_instead_of_damage() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.parquet");
        std::fs::write(&path, LZ4).unwrap();
        let fault = read(&path).pop().unwrap().unwrap_err();
        let said = format!("{fault:?}");
        assert!(
            fault.fatal && said.contains("compressed with lz4"),
            "{said}"
        );
        assert!(said.contains("compression='zstd'"), "{said}");
    }
}
