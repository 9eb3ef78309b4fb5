//! A table: a row for each step, a column for each metric, an empty cell where it was not measured.

use super::rows::{Row, rows};
use super::{Body, Curves, Format};
use crate::base::registry::Entry;
use crate::wire::id;

pub const FORMAT: Format = Format {
    entry: Entry {
        id: "csv",
        title: "CSV",
        summary: "a row for each step, a column for each metric: pandas, spreadsheets",
        source: "RFC 4180",
    },
    is: |name| name.ends_with(".csv"),
    body: Body::Whole(table),
};

fn table(curves: &Curves) -> Vec<u8> {
    let mut columns = curves.columns();
    // Beside the step already.
    columns.retain(|column| curves.id(*column) != id::EPOCHS);
    let rows = rows(curves.records());
    let has_epoch = rows.iter().any(|row| row.epoch.is_some());
    let has_tokens = rows.iter().any(|row| row.tokens.is_some());
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    let optional = |there: bool, cell: String| there.then_some(cell);
    let time = |row: &Row| match curves.is_untimed {
        true => String::new(),
        false => row.time().to_string(),
    };
    let names = [
        Some("step".to_string()),
        Some("time".into()),
        optional(has_epoch, "epoch".into()),
        optional(has_tokens, "tokens".into()),
    ];
    let ids = columns.iter().map(|column| curves.id(*column).to_string());
    let _ = writer.write_record(names.into_iter().flatten().chain(ids));
    for row in &rows {
        let ends = [
            Some(row.step.to_string()),
            Some(time(row)),
            optional(has_epoch, cell(row.epoch)),
            optional(
                has_tokens,
                row.tokens.map_or_else(String::new, |n| n.to_string()),
            ),
        ];
        let values = columns.iter().map(|c| cell(row.values.get(c).copied()));
        // Memory takes every row.
        let _ = writer.write_record(ends.into_iter().flatten().chain(values));
    }
    writer.into_inner().unwrap_or_default()
}

/// The shortest digits that give the same number again; `NaN`, `inf`, `-inf`.
fn cell(x: Option<f64>) -> String {
    x.map_or_else(String::new, |x| format!("{x:?}"))
}
