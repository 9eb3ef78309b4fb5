//! The registries, tested as lists: ids, titles and sources of all members.

use llmtui::base::registry::Entry;
use llmtui::data::Unit;
use llmtui::spec::schema::{self, Kind};
use std::collections::BTreeSet;

/// Every registry, with its path in a spec.
fn registries() -> Vec<(&'static str, &'static [Entry])> {
    vec![
        ("method", llmtui::methods::MethodConfig::ENTRIES),
        (
            "model.position",
            llmtui::nn::position::PositionConfig::ENTRIES,
        ),
        (
            "model.position.rope.scaling",
            llmtui::nn::position::ScalingConfig::ENTRIES,
        ),
        ("adapter", llmtui::nn::AdapterConfig::ENTRIES),
        ("engine", llmtui::workers::EngineConfig::ENTRIES),
        ("model.norm", llmtui::nn::norm::NormConfig::ENTRIES),
        ("model.mixer", llmtui::nn::mixer::MixerConfig::ENTRIES),
        ("model.mlp", llmtui::nn::mlp::MlpConfig::ENTRIES),
        (
            "data.tokenizer",
            llmtui::data::tokenizer::TokenizerConfig::ENTRIES,
        ),
        (
            "data.synthetic",
            llmtui::data::synthetic::SyntheticConfig::ENTRIES,
        ),
        ("optimizer", llmtui::optim::OptimizerConfig::ENTRIES),
        ("schedule", llmtui::optim::schedule::ScheduleConfig::ENTRIES),
    ]
}

/// README counts parts in words; a count that is not updated with its list is a false statement.
#[test]
fn the_counts_of_the_readme_are_those_of_the_registries() {
    let readme = include_str!("../README.md");
    let readme = readme.split_whitespace().collect::<Vec<_>>().join(" ");
    let readme = readme.to_lowercase();
    let words = [
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
        "fifteen",
        "sixteen",
        "seventeen",
        "eighteen",
    ];
    let len = |path: &str| {
        let found = registries().into_iter().find(|(of, _)| *of == path);
        found.expect(path).1.len()
    };
    let counts = [
        (len("model.position"), "position encodings"),
        (len("model.position.rope.scaling"), "rope scalings"),
        (len("model.mlp"), "feed-forward variants"),
        (len("schedule"), "schedules"),
        (llmtui::engine::preflight::CHECKS.len(), "preflight checks"),
        (llmtui::data::formats::FormatId::ALL.len(), "row formats"),
        // And `plain`, which belongs to no model.
        (llmtui::data::chat::BUILTIN.len() + 1, "chat templates"),
        (llmtui::hf::FAMILIES.len(), "hugging face families"),
    ];
    for (count, what) in counts {
        let word = words
            .get(count)
            .map_or(count.to_string(), |word| word.to_string());
        let text = format!("{word} {what}");
        assert!(readme.contains(&text), "README.md: it is `{text}`");
    }
}

/// A preference method that diagnosis does not list would be judged by the rules for likelihoods.
#[test]
fn diagnosis_lists_every_method_that_learns_which_answer_is_better() {
    let of_units: BTreeSet<&str> = llmtui::methods::MethodConfig::ENTRIES
        .iter()
        .map(|entry| entry.id)
        .filter(|id| {
            let method = llmtui::methods::MethodConfig::usual(id).expect(id);
            let unit = method.needs().unit;
            matches!(unit, Unit::Pair | Unit::Ranked | Unit::Judged)
        })
        .collect();
    assert_eq!(of_units, BTreeSet::from(llmtui::diagnosis::PREFERENCES));
}

/// Plain choices with a value in one variant: written like a registry's members, but not extensible.
const CHOICES: [&str; 2] = ["train.activation_checkpointing", "model.moe.balancing"];

#[test]
fn every_registry_of_a_spec_is_in_this_test() {
    let registries = registries();
    let paths = registries.iter().map(|(path, _)| *path);
    let listed: BTreeSet<&str> = paths.chain(CHOICES).collect();
    let mut found = BTreeSet::new();
    schema::root().walk("", &mut |path, node| {
        if matches!(node.kind, Kind::Registry(_)) {
            found.insert(path.to_string());
        }
    });
    assert_eq!(listed, found.iter().map(String::as_str).collect());
}

#[test]
fn every_id_is_the_name_in_a_spec_and_unique() {
    for (path, entries) in registries() {
        let node = schema::root().at(path).expect(path);
        let words: Vec<&str> = node.children().iter().map(|(n, _)| n.as_str()).collect();
        let ids: Vec<&str> = entries.iter().map(|e| e.id).collect();
        assert_eq!(words, ids, "{path}");
        assert_eq!(
            ids.iter().collect::<BTreeSet<_>>().len(),
            ids.len(),
            "{path}"
        );
    }
}

#[test]
fn every_entry_has_a_summary_and_a_source() {
    for (path, entries) in registries() {
        for entry in entries {
            let place = format!("{path}.{}", entry.id);
            assert!(
                !entry.title.is_empty() && !entry.source.is_empty(),
                "{place}"
            );
            assert!(entry.summary.ends_with('.'), "{place}: {}", entry.summary);
            assert!(entry.summary.len() <= 120, "{place}: one sentence");
        }
    }
}

#[test]
fn every_default_passes_its_own_range() {
    schema::root().walk("", &mut |path, node| {
        let (Kind::Integer { min, max } | Kind::Number { min, max, .. }) = &node.kind else {
            return;
        };
        let Some(default) = node.default.as_f64() else {
            assert!(node.nullable, "{path} has no default");
            return;
        };
        assert!(min.is_none_or(|min| default >= min), "{path}");
        assert!(max.is_none_or(|max| default <= max), "{path}");
    });
}
