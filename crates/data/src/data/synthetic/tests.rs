//! Properties of every generator.

use super::*;

fn every() -> Vec<SyntheticConfig> {
    let words = SyntheticConfig::ENTRIES.iter().map(|entry| entry.id);
    words
        .map(|id| serde_json::from_value(serde_json::json!({id: {}})).unwrap())
        .collect()
}

fn source(generator: SyntheticConfig, rows: u64) -> SyntheticSource {
    SyntheticSource {
        rows,
        ..SyntheticSource::new(generator)
    }
}

fn records(source: &SyntheticSource) -> Vec<Record> {
    source.rows().map(|row| row.unwrap()).collect()
}

#[test]
fn rows_are_functions_of_the_seed_and_all_different() {
    for generator in every() {
        let source = source(generator, 500);
        let rows = records(&source);
        assert_eq!(rows, records(&source), "{}", source.generator.entry().id);
        let other = SyntheticSource {
            seed: 1,
            ..source.clone()
        };
        assert_ne!(rows, records(&other));
        let prompts: HashSet<String> = rows
            .iter()
            .map(|r| r.fields["prompt"].to_string())
            .collect();
        assert_eq!(prompts.len(), rows.len());
        // More rows begin with the same ones.
        let more = SyntheticSource {
            rows: 600,
            ..source
        };
        assert_eq!(records(&more)[..500], rows);
    }
}

#[test]
fn every_shape_has_the_columns_of_its_format() {
    let mut source = source(every().remove(0), 1);
    for (shape, columns) in [
        (Shape::Completion, vec!["prompt", "completion"]),
        (Shape::Text, vec!["text"]),
        (Shape::Prompt, vec!["prompt", "answer"]),
        (Shape::Chat, vec!["messages"]),
        (Shape::ChatPrompt, vec!["prompt", "answer"]),
        (Shape::ChatPreference, vec!["prompt", "chosen", "rejected"]),
        (Shape::Preference, vec!["prompt", "chosen", "rejected"]),
    ] {
        source.shape = shape;
        let rows = records(&source);
        let found: Vec<&String> = rows[0].fields.keys().collect();
        assert_eq!(found, columns);
        assert_eq!(rows[0].place.to_string(), "synthetic arithmetic:1");
    }
}

#[test]
fn a_generator_that_runs_dry_says_how_many_it_knows() {
    let tiny = serde_json::json!({"arithmetic": {"digits": 1, "operations": ["add"]}});
    let source = source(serde_json::from_value(tiny).unwrap(), 10_000);
    let rows: Vec<_> = source.rows().collect();
    let fault = rows.last().unwrap().as_ref().unwrap_err();
    assert_eq!(rows.len(), 101, "ten by ten sums and the fault");
    assert!(fault.what.contains("hardly more than 100"), "{fault}");
    assert!(fault.fix.contains("fewer rows"));
}

#[test]
fn wrong_settings_are_the_first_row() {
    for wrong in [
        serde_json::json!({"arithmetic": {"operations": []}}),
        serde_json::json!({"arithmetic": {"digits": 12}}),
        serde_json::json!({"arithmetic": {"terms": 1}}),
        serde_json::json!({"copy": {"alphabet": ""}}),
        serde_json::json!({"copy": {"min_length": 9, "max_length": 3}}),
        serde_json::json!({"sort": {"min_length": 0}}),
        serde_json::json!({"recall": {"max_pairs": 700}}),
        serde_json::json!({"recall": {"digits": 0}}),
        serde_json::json!({"grammar": {"depth": 99}}),
    ] {
        let source = source(serde_json::from_value(wrong.clone()).unwrap(), 10);
        let rows: Vec<_> = source.rows().collect();
        assert_eq!(rows.len(), 1, "{wrong}");
        assert!(rows[0].is_err(), "{wrong}");
    }
}

#[test]
fn the_page_on_data_lists_every_generator() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/data.md");
    let page = std::fs::read_to_string(page).unwrap();
    for entry in SyntheticConfig::ENTRIES {
        assert!(
            page.contains(&format!("| `{}` |", entry.id)),
            "{}",
            entry.id
        );
    }
}
