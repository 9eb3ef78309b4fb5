//! A table of numbers whose first line names the columns: Lightning's `metrics.csv`, a spreadsheet, a custom log. Empty cells
//! are skipped. Without a step column, rows are counted.

use crate::base::clock::UnixMillis;
use crate::base::registry::Entry;
use crate::base::text::one_line;
use crate::watch::json::{self, Comma};
use crate::watch::names::{Mapping, Role, is_known};
use crate::watch::tail::{self, Change, Tail};
use crate::watch::{Format, Item, Source};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// Columns that are read.
const MAX_COLUMNS: usize = 10_000;

pub const FORMAT: Format = Format {
    entry: Entry {
        id: "csv",
        title: "CSV",
        summary: "a table with a header: step, loss and other columns; separated by commas, semicolons or tabs",
        source: "RFC 4180; Lightning's CSVLogger",
    },
    rank: 3,
    is,
    open: |path, _, mapping| {
        Box::new(Table {
            // Lightning writes the whole table anew when a column comes.
            tail: Tail::by_first_line(path),
            mapping: mapping.clone(),
            columns: Vec::new(),
            separator: b',',
            decimal_comma: false,
            said_stepless: false,
        })
    },
};

fn is(path: &Path, head: &[u8]) -> bool {
    let named = path.extension().is_some_and(|e| e == "csv" || e == "tsv");
    let text = String::from_utf8_lossy(head);
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let (Some(first), true) = (lines.next(), named) else {
        return false;
    };
    let separator = separator(first);
    let (names, _) = of_one_run(cells(first, separator), &Mapping::default());
    // Names are no numbers, and the first row has one at least.
    let numbers = |line: &str| {
        cells(line, separator)
            .iter()
            .any(|cell| json::text_number(cell).is_some())
    };
    let metric = |name: &String| matches!(Mapping::default().role(name), Role::Metric(..));
    let stepped = Mapping::default().has_step(names.iter().map(String::as_str));
    !numbers(first)
        && names.len() > 1
        && names.iter().any(metric)
        && (stepped || lines.next().is_some_and(numbers))
}

/// The most frequent of those that are usual.
fn separator(line: &str) -> u8 {
    let count = |b: &u8| line.bytes().filter(|x| x == b).count();
    [b';', b'\t', b',']
        .into_iter()
        .max_by_key(count)
        .unwrap_or(b',')
}

fn cells(line: &str, separator: u8) -> Vec<String> {
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(separator)
        .from_reader(line.as_bytes());
    let record = reader
        .records()
        .next()
        .and_then(Result::ok)
        .unwrap_or_default();
    record
        .iter()
        .take(MAX_COLUMNS)
        .map(|cell| cell.trim().to_string())
        .collect()
}

/// The curve in a table that TensorBoard's page saves: only the file's name identifies it (`run-train-tag-loss.csv`).
fn exported(path: &Path, columns: &[String]) -> Option<String> {
    let name = path.file_stem()?.to_str()?;
    let (_, tag) = name.split_once("tag-")?;
    (columns == ["Wall time", "Step", "Value"] && !tag.is_empty()).then(|| tag.to_string())
}

/// Columns of a chart that wandb exports: `my run - train/loss`, with its extremes beside it, which are left out as is every run
/// but the first one. The name of a run that is left out as well.
fn of_one_run(columns: Vec<String>, mapping: &Mapping) -> (Vec<String>, Option<String>) {
    let has_extremes = |name: &str| columns.contains(&format!("{name}__MIN"));
    let is_extreme = |name: &str| {
        let ends = ["__MIN", "__MAX"]
            .iter()
            .find_map(|end| name.strip_suffix(end));
        ends.is_some_and(|name| has_extremes(name) && columns.iter().any(|c| c == name))
    };
    let (mut first, mut other) = (None, None);
    let names = columns.iter().map(|name| {
        let named = mapping.role(name) != Role::Metric(name.clone(), 1.0);
        let parts = name.rsplit_once(" - ").filter(|_| !named);
        match parts {
            _ if is_extreme(name) => String::new(),
            Some((run, metric)) if has_extremes(name) => {
                if *first.get_or_insert(run) == run {
                    return metric.to_string();
                }
                other.get_or_insert(run);
                String::new()
            }
            _ => name.clone(),
        }
    });
    let names = names.collect();
    (names, other.map(str::to_string))
}

struct Table {
    tail: Tail,
    mapping: Mapping,
    columns: Vec<String>,
    separator: u8,
    /// A cell of a known metric has shown that the table's commas stand before fractions.
    decimal_comma: bool,
    /// It was said that some rows have no readable step.
    said_stepless: bool,
}

/// A count as people write it: `12k`, `1.5M`.
fn in_thousands(cell: &str) -> Option<f64> {
    let (number, unit) = cell.split_at_checked(cell.len().checked_sub(1)?)?;
    let unit = match unit {
        "k" | "K" => 1e3,
        "m" | "M" => 1e6,
        "b" | "B" | "g" | "G" => 1e9,
        _ => return None,
    };
    json::text_number(number).map(|x| (x * unit).round())
}

/// The first of the columns that bear one name keeps it; the names of the others, which are left out.
fn once(columns: &mut [String]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut twice = Vec::new();
    for name in columns.iter_mut().filter(|name| !name.is_empty()) {
        if !seen.insert(name.clone()) {
            twice.push(std::mem::take(name));
        }
    }
    twice
}

/// Whether a cell is a number with a decimal comma.
fn is_decimal(cell: &str) -> bool {
    json::comma(cell) == Comma::Decimal && json::comma_number(cell, true).is_some()
}

impl Table {
    /// Whether a row shows that commas stand before fractions. A column that is not known may hold lists (`0,1` of GPUs), whose commas
    /// say nothing of other cells.
    fn shows_decimals(&self, row: &[String]) -> bool {
        let is_number = |name: &str| match self.mapping.role(name) {
            Role::Metric(id, _) => {
                // A list has commas only where cells are not separated by them, or are quoted.
                self.separator != b','
                    || is_known(&id)
                    || self.mapping.is_mapped(name)
                    || id.to_lowercase().ends_with("loss")
            }
            _ => false,
        };
        let mut cells = self.columns.iter().zip(row);
        cells.any(|(name, cell)| is_decimal(cell) && is_number(name))
    }

    /// The text in the step's column where it is no number.
    fn stepless<'a>(&self, row: &'a [String]) -> Option<&'a str> {
        let cells = self.columns.iter().zip(row);
        let steps: Vec<_> = cells
            .filter(|(name, cell)| !cell.is_empty() && self.mapping.role(name) == Role::Step)
            .collect();
        let is_read = |(name, cell): &(&String, &String)| self.number(name, cell).is_some();
        let (_, first) = steps.first()?;
        (!steps.iter().any(is_read)).then_some(first)
    }

    /// Spreadsheets of many countries write a comma before the fraction. A cell whose comma may be either is left out until another one
    /// shows which it is.
    fn number(&self, name: &str, cell: &str) -> Option<f64> {
        let plain = match self.decimal_comma {
            true => json::comma_number(cell, true),
            false => json::text_number(cell),
        };
        let counts = || matches!(self.mapping.role(name), Role::Step | Role::Tokens);
        plain.or_else(|| counts().then(|| in_thousands(cell)).flatten())
    }
}

impl Source for Table {
    fn poll(&mut self, items: &mut Vec<Item>) -> io::Result<bool> {
        let (change, more) = self.tail.read()?;
        if change == Change::Replaced {
            self.columns.clear();
            self.decimal_comma = false;
            items.push(Item::Restart);
        }
        for line in self.tail.lines() {
            if line.trim().is_empty() {
                continue;
            }
            if self.columns.is_empty() {
                let line = line.trim_start_matches('\u{feff}');
                self.separator = separator(line);
                let (columns, other) = of_one_run(cells(line, self.separator), &self.mapping);
                self.columns = columns;
                if let Some(name) = once(&mut self.columns).first() {
                    let name = one_line(name);
                    items.push(Item::Trouble(format!(
                        "several columns are called {name}: only the first is read; rename the others"
                    )));
                }
                if let Some(run) = other {
                    let run = one_line(&run);
                    items.push(Item::Trouble(format!(
                        "the table has several runs: only the first is read, not {run}; export each one separately"
                    )));
                }
                if let Some(tag) = exported(self.tail.path(), &self.columns) {
                    self.columns[2] = tag;
                }
                let names = self.columns.iter().map(String::as_str);
                self.mapping.note(names.filter(|name| !name.is_empty()));
                continue;
            }
            let row = cells(&line, self.separator);
            self.decimal_comma |= self.shows_decimals(&row);
            let values: Vec<(String, f64)> = self
                .columns
                .iter()
                .zip(&row)
                .filter(|(name, _)| !name.is_empty())
                .filter_map(|(name, cell)| Some((name.clone(), self.number(name, cell)?)))
                .collect();
            // A row whose step is unreadable would be taken for the next one.
            if let Some(cell) = self.stepless(&row) {
                if !std::mem::replace(&mut self.said_stepless, true) {
                    let cell = one_line(cell);
                    items.push(Item::Trouble(format!(
                        "`{cell}` is not a step number: such rows are left out; write steps as whole numbers"
                    )));
                }
                continue;
            }
            let time = values
                .iter()
                .find(|(name, _)| self.mapping.role(name) == Role::Time);
            let t = time.and_then(|(_, x)| json::time_of(*x));
            items.push(Item::Readings {
                step: None,
                t,
                values,
            });
        }
        Ok(more)
    }

    fn lines_of(&mut self) -> Option<&mut Tail> {
        Some(&mut self.tail)
    }

    fn changed(&self) -> Option<UnixMillis> {
        tail::changed(self.tail.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_that_wandb_exported_is_its_first_run_without_extremes() {
        let one = |run: &str| ["", "__MIN", "__MAX"].map(|end| format!("{run} - train/loss{end}"));
        let columns: Vec<String> = [
            vec!["Step".to_string()],
            one("my - run").into(),
            one("b").into(),
        ]
        .concat();
        let (names, other) = of_one_run(columns, &Mapping::default());
        assert_eq!(names, ["Step", "train/loss", "", "", "", "", ""]);
        assert_eq!(other.as_deref(), Some("b"));
        let plain = vec!["Step".to_string(), "a - b".to_string()];
        assert_eq!(
            of_one_run(plain.clone(), &Mapping::default()),
            (plain, None)
        );
        let text = "\"Step\",\"r - train/loss\",\"r - train/loss__MIN\",\"r - train/loss__MAX\"\n\"1\",\"3\",\"3\",\"3\"\n";
        assert!(is(Path::new("wandb_export.csv"), text.as_bytes()));
    }

    fn read(text: &str) -> Vec<Vec<(String, f64)>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log.csv");
        std::fs::write(&path, text).unwrap();
        let mut table = (FORMAT.open)(&path, true, &Mapping::default());
        let mut items = Vec::new();
        while table.poll(&mut items).unwrap() {}
        let values = items.into_iter().filter_map(|item| match item {
            Item::Readings { values, .. } => Some(values),
            _ => None,
        });
        values.collect()
    }

    /// A list of GPUs made a loss of 1,234 one of 1.234.
    #[test]
    fn a_list_in_a_cell_does_not_make_commas_decimal() {
        let value = |rows: &[Vec<(String, f64)>], row: usize, name: &str| {
            let found = rows[row].iter().find(|(known, _)| known == name);
            found.map(|(_, x)| *x)
        };
        let rows = read("step,loss,gpus\n1,\"1,234\",\"0,1\"\n2,2.5,\"0,1\"\n");
        assert_eq!(value(&rows, 0, "loss"), None, "it may be either");
        assert_eq!(value(&rows, 1, "loss"), Some(2.5));
        assert_eq!(value(&rows, 1, "gpus"), None);
        let rows = read("step;eval_loss;lr;mine\n1;1,234;1,5e-4;7,5\n2;2,345;1,5e-4;0,5\n");
        for (name, row, x) in [("eval_loss", 0, 1.234), ("lr", 1, 1.5e-4), ("mine", 0, 7.5)] {
            assert_eq!(value(&rows, row, name), Some(x), "{name}");
        }
    }

    /// The row of step 12,000 was taken for the one after the last.
    #[test]
    fn steps_are_read_as_people_write_them_and_rows_without_one_are_left_out() {
        let rows = read("step,loss\n11k,3\n12K,2\n1.5M,1\nlater,9\n,0.5\n");
        let step =
            |row: &Vec<(String, f64)>| row.iter().find(|(n, _)| n == "step").map(|(_, x)| *x);
        let steps: Vec<Option<f64>> = rows.iter().map(step).collect();
        let read = [Some(11e3), Some(12e3), Some(1.5e6), None];
        assert_eq!(steps, read, "the empty cell's row goes with the last step");
        assert_eq!(in_thousands("k"), None);
        assert_eq!(in_thousands("1é"), None);
    }

    #[test]
    fn of_columns_with_one_name_the_first_is_read() {
        let rows = read("step,loss,loss\n1,3,4\n");
        assert_eq!(
            rows[0],
            [("step".to_string(), 1.0), ("loss".to_string(), 3.0)]
        );
    }

    #[test]
    fn a_curve_that_tensorboard_exported_has_the_name_of_its_file() {
        let columns = ["Wall time", "Step", "Value"].map(String::from);
        let tag = |name: &str| exported(Path::new(name), &columns);
        assert_eq!(tag("a/run-train-tag-loss.csv").as_deref(), Some("loss"));
        assert_eq!(tag("a/loss.csv"), None);
        assert_eq!(exported(Path::new("tag-loss.csv"), &columns[1..]), None);
    }
}
