//! Exact duplicates; the first occurrence is kept.

use super::{Check, Kind, Setup, Severity};
use crate::base::human::grouped;
use crate::data::Place;
use crate::data::inspect::row::Row;
use std::collections::HashMap;
use std::sync::Arc;

pub const KIND: Kind = Kind {
    id: "duplicates",
    title: "Exact duplicates",
    severity: Severity::Warning,
    cleans: true,
    cause: "files were concatenated twice, or a page was collected repeatedly: the model memorizes these rows",
    fix: "llmtui data clean IN --drop duplicates --out OUT",
    make: |setup| Some(Box::new(Duplicates::new(setup))),
};

struct Duplicates {
    first: HashMap<u128, (u32, u64)>,
    files: Vec<Arc<str>>,
    max_rows: usize,
    forgotten: u64,
}

impl Duplicates {
    fn new(setup: &Setup) -> Duplicates {
        Duplicates {
            first: HashMap::new(),
            files: Vec::new(),
            max_rows: setup.max_rows,
            forgotten: 0,
        }
    }

    fn file(&mut self, place: &Place) -> u32 {
        // Rows come file by file: the last one is nearly always it.
        let known = self.files.iter().rposition(|file| *file == place.file);
        known.unwrap_or_else(|| {
            self.files.push(place.file.clone());
            self.files.len() - 1
        }) as u32
    }
}

impl Check for Duplicates {
    fn row(&mut self, row: &Row) -> Option<String> {
        if row.characters == 0 {
            return None;
        }
        if let Some((file, at)) = self.first.get(&row.key) {
            let file = &self.files[*file as usize];
            let file = if *file == row.place.file { "" } else { file };
            return Some(format!("the same as {file}:{at}"));
        }
        if self.first.len() >= self.max_rows {
            self.forgotten += 1;
            return None;
        }
        let file = self.file(&row.place);
        self.first.insert(row.key, (file, row.place.row));
        None
    }

    fn severity(&self, share: f64) -> Option<Severity> {
        Some(match share {
            s if s >= 0.1 => Severity::Problem,
            s if s < 0.001 => Severity::Note,
            _ => Severity::Warning,
        })
    }

    fn limit(&self) -> Option<String> {
        (self.forgotten > 0).then(|| {
            format!(
                "duplicates were searched among the first {} distinct rows; {} later ones were only compared with these",
                grouped(self.max_rows as u64),
                grouped(self.forgotten)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Setup, Severity, testing};
    use testing::{make, text};

    #[test]
    fn the_second_of_two_is_found_with_the_place_of_the_first() {
        let mut check = make("duplicates", Setup::default());
        assert_eq!(check.row(&text("once")), None);
        let mut again = text("once");
        again.place.row = 9;
        assert_eq!(check.row(&again).unwrap(), "the same as :1");
        assert_eq!(check.row(&text("Once")), None);
        assert_eq!(check.row(&text("")), None);
        assert_eq!(check.row(&text("")), None, "empty rows are another kind");
        assert_eq!(check.severity(0.5), Some(Severity::Problem));
    }

    #[test]
    fn the_bound_on_memory_is_told() {
        let setup = Setup {
            max_rows: 1,
            ..Setup::default()
        };
        let mut check = make("duplicates", setup);
        check.row(&text("one"));
        assert_eq!(check.limit(), None);
        check.row(&text("two"));
        assert!(check.limit().unwrap().contains("1 later"));
        assert!(check.row(&text("one")).is_some());
    }
}
