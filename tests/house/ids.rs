//! Metric ids are written once, in `wire/id.rs`: with a second spelling, a reader would find nothing after a change.

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
