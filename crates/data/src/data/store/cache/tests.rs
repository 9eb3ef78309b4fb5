//! The cache of tokenized shards.

use super::*;
use crate::data::render::RenderCounts;
use crate::data::store::build::Piece;
use crate::data::{Content, Document, Example, OnBadRow, Place, RowFault};
use std::cell::Cell;

fn place(row: u64) -> Place {
    Place {
        file: "a.jsonl".into(),
        row,
    }
}

/// Two million tokens a row: a shard every other row.
fn tokenize(place: &Place, _: &Example) -> Result<Piece, RowFault> {
    if place.row == 5 {
        return Err(RowFault::new(place, "is bad", "mend it"));
    }
    Ok(Piece {
        documents: vec![Document::all_supervised(vec![place.row as u32; 2 << 20])],
        text_bytes: 6,
        rendered: RenderCounts {
            empty_answers: 1,
            ..RenderCounts::default()
        },
        ..Piece::default()
    })
}

/// Makes or opens an entry of 8 rows; fails before row `until` as if the process had been killed.
fn make(folder: &Path, key: &Key, until: u64, asked: &Cell<u64>) -> Result<Entry, DataError> {
    open_or_build(folder, key, 2, &mut |build| {
        let mut rows = (1..=8).map(|row| match row < until {
            true => Ok((place(row), Example::new(Content::Text(String::new())))),
            false => Err(RowFault::new(&place(row), "the power went", "")),
        });
        build(Feed {
            name: "a.jsonl",
            rows: &mut rows,
            tokenize: &tokenize,
            eos: None,
            on_bad_row: OnBadRow::Skip,
            progress: &mut |progress| asked.set(progress.rows),
        })?;
        Ok(Vec::new())
    })
}

#[test]
fn an_entry_is_made_once_and_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let (key, asked) = (Key::new("a.jsonl").with("files", "1"), Cell::new(0));
    let made = make(dir.path(), &key, 9, &asked).unwrap();
    assert_eq!((made.store.documents(), asked.get()), (7, 8));
    assert_eq!(made.store.tally().faults, ["a.jsonl:5: is bad"]);
    asked.set(0);
    let found = make(dir.path(), &key, 9, &asked).unwrap();
    assert_eq!((found.store.tokens(), asked.get()), (7 * (2 << 20), 0));
    assert!(found.notes.is_empty());
    let listed = list(dir.path());
    assert!(listed.len() == 1 && listed[0].whole && listed[0].documents == 7);
    assert_eq!(clear(dir.path()).unwrap(), listed[0].bytes);
    assert!(list(dir.path()).is_empty());
}

#[test]
fn what_was_noticed_is_told_of_the_source_that_is_read_now() {
    let notes = || vec!["d/a.txt: read as text".to_string(), "odd".to_string()];
    let told = |now, made| under_the_name(now, made, notes());
    assert_eq!(told("d/a.txt", "d/a.txt"), notes());
    assert_eq!(told("b", "d/a.txt"), ["b: read as text", "odd"]);
    assert_eq!(told("e", "d"), ["e/a.txt: read as text", "odd"]);
    assert!(told("b.txt", "d/*.txt").is_empty());
}

#[test]
fn a_killed_process_leaves_shards_to_go_on_from() {
    let dir = tempfile::tempdir().unwrap();
    let (key, asked) = (Key::new("a.jsonl"), Cell::new(0));
    assert!(make(dir.path(), &key, 5, &asked).is_err());
    assert!(!list(dir.path())[0].whole);
    let resumed = make(dir.path(), &key, 9, &asked).unwrap();
    assert!(
        resumed.notes[0].contains("continues after"),
        "{:?}",
        resumed.notes
    );
    assert!(asked.get() < 8, "{} rows were tokenized again", asked.get());
    let whole = tempfile::tempdir().unwrap();
    let straight = make(whole.path(), &key, 9, &asked).unwrap();
    let spans = |entry: &Entry| entry.store.spans().collect::<Vec<_>>();
    assert_eq!(spans(&resumed), spans(&straight));
    assert_eq!(resumed.store.tally(), straight.store.tally());
}

#[test]
fn a_source_that_is_refused_at_once_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let key = Key::new("a.jsonl");
    for _ in 0..2 {
        let refused = open_or_build(dir.path(), &key, 2, &mut |_| {
            Err(RowFault::new(&place(1), "is bad", "mend it").into())
        });
        assert!(refused.is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
    // Leftovers of a killed process stay.
    assert!(make(dir.path(), &key, 5, &Cell::new(0)).is_err());
    assert!(!list(dir.path())[0].whole);
}

#[test]
fn another_input_makes_another_entry_and_says_what_changed() {
    let dir = tempfile::tempdir().unwrap();
    let asked = Cell::new(0);
    let key = Key::new("a.jsonl")
        .with("files", "1")
        .with("tokenizer", "t");
    make(dir.path(), &key, 9, &asked).unwrap();
    asked.set(0);
    let other = key.clone().with("files", "2");
    let made = make(dir.path(), &other, 9, &asked).unwrap();
    assert_eq!(asked.get(), 8);
    assert_eq!(
        made.notes,
        ["a.jsonl: tokenized again, as this changed: its content"]
    );
    assert_ne!(key.hash(), other.hash());
}

#[test]
fn a_damaged_entry_is_rebuilt_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (key, asked) = (Key::new("a.jsonl"), Cell::new(0));
    make(dir.path(), &key, 9, &asked).unwrap();
    let place = dir.path().join(key.hash());
    let shard = place.join("shard-00001");
    let whole = fs::read(&shard).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for (damage, what) in [(whole[..100].to_vec(), "cut off"), (flipped, "checksum")] {
        fs::write(&shard, damage).unwrap();
        asked.set(0);
        let made = make(dir.path(), &key, 9, &asked).unwrap();
        assert_eq!((made.store.documents(), asked.get()), (7, 8));
        let said = made.notes.join(" ");
        assert!(
            said.contains("shard-00001") && said.contains(what),
            "{said}"
        );
        assert_eq!(fs::read(&shard).unwrap(), whole);
    }
}

#[test]
fn what_was_verified_and_not_changed_is_not_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let (key, asked) = (Key::new("a.jsonl"), Cell::new(0));
    make(dir.path(), &key, 9, &asked).unwrap();
    let shard = dir.path().join(key.hash()).join("shard-00001");
    let (mut bytes, meta) = (fs::read(&shard).unwrap(), fs::metadata(&shard).unwrap());
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&shard, bytes).unwrap();
    let file = File::options().write(true).open(&shard).unwrap();
    file.set_modified(meta.modified().unwrap()).unwrap();
    asked.set(0);
    make(dir.path(), &key, 9, &asked).unwrap();
    assert_eq!(asked.get(), 0, "the stamp is the same");
}
