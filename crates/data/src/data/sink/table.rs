//! CSV and TSV: the first row's columns are the table's.

use super::Writer;
use serde_json::{Map, Value};
use std::io::{self, Write};

pub(super) struct Table {
    delimiter: u8,
    columns: Option<Vec<String>>,
}

impl Table {
    pub fn new(delimiter: u8) -> Table {
        Table {
            delimiter,
            columns: None,
        }
    }

    fn line(&self, cells: &[String], out: &mut dyn Write) -> io::Result<()> {
        let mut writer = csv::WriterBuilder::new()
            .delimiter(self.delimiter)
            .from_writer(out);
        writer.write_record(cells)?;
        writer.flush()
    }
}

impl Writer for Table {
    fn row(&mut self, fields: &Map<String, Value>, out: &mut dyn Write) -> io::Result<()> {
        if self.columns.is_none() {
            let columns: Vec<String> = fields.keys().cloned().collect();
            self.line(&columns, out)?;
            self.columns = Some(columns);
        }
        let columns = self.columns.as_deref().unwrap_or_default();
        if let Some(stranger) = fields.keys().find(|key| !columns.contains(key)) {
            return Err(refusal(format!("the first row has no column `{stranger}`")));
        }
        let cells: Result<Vec<String>, io::Error> = columns
            .iter()
            .map(|column| cell(column, fields.get(column)))
            .collect();
        self.line(&cells?, out)
    }
}

fn cell(column: &str, value: Option<&Value>) -> io::Result<String> {
    match value {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(_) | Value::Object(_)) => Err(refusal(format!(
            "`{column}` is a list or an object, but a cell is text"
        ))),
        Some(value) => Ok(value.to_string()),
    }
}

fn refusal(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_column_that_comes_later_is_refused_and_one_that_is_missing_is_empty() {
        let mut table = Table::new(b',');
        let mut out = Vec::new();
        let mut write = |value: Value| table.row(value.as_object().unwrap(), &mut out);
        write(json!({"a": "x", "b": true})).unwrap();
        write(json!({"b": 2})).unwrap();
        assert!(write(json!({"a": "x", "c": "y"})).is_err());
        assert_eq!(out, b"a,b\nx,true\n,2\n");
    }
}
