//! Metric ids are written once, in `wire/id.rs`: with a second spelling, a reader would find nothing after a change.
//! The names of checkpoints have one place as well.

use crate::sources::sources;

const TABLE: &str = "wire/id.rs";

/// Whether the word can only be an id: `lr` and `reward` are settings and methods too, `data_wait` a rule.
fn is_distinct(id: &str) -> bool {
    id.contains(['/', '_']) && id != "data_wait"
}

#[test]
fn metric_ids_are_written_once() {
    let sources = sources();
    let table = sources.iter().find(|source| source.path == TABLE).unwrap();
    let written = table.code.lines().filter_map(|line| {
        let (_, rest) = line.split_once(": &str = ")?;
        Some(rest.trim_end_matches(';'))
    });
    let ids: Vec<&str> = written
        .filter(|id| is_distinct(id.trim_matches('"')))
        .collect();
    assert!(ids.len() > 50, "{ids:?}");
    let mut faults = Vec::new();
    for source in sources.iter().filter(|source| source.path != TABLE) {
        let twice = ids.iter().filter(|id| source.code.contains(**id));
        faults.extend(twice.map(|id| format!("{}: {id} is a constant of wire/id.rs", source.file)));
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// The file with the names of checkpoints' folders.
const CHECKPOINTS: &str = "run/checkpoints.rs";

/// It was written in seven places, and read in some of them in other ways.
#[test]
fn the_name_of_a_checkpoints_folder_is_written_and_read_in_one_place() {
    let is_it = |line: &&str| line.contains("\"step-\"") || line.contains("step-{");
    let sources = sources();
    let with = sources
        .iter()
        .filter(|source| source.code.lines().any(|line| is_it(&line)));
    let with: Vec<&str> = with.map(|source| source.path.as_str()).collect();
    assert_eq!(with, [CHECKPOINTS]);
}
