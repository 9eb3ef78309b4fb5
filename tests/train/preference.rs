//! Runs on preference pairs and judged answers: their initial values, and that they resume bit-exactly.

use super::{Place, code, err, out};
use llmtui::run::log::read_all;
use llmtui::wire::Event;

#[test]
fn kto_begins_at_its_reference_learns_labels_and_resumes_bit_exactly() {
    let judged = [
        "method=kto",
        "data.sources=[{synthetic: {sort: {max_value: 9}}, as: judged, rows: 200}]",
        "data.tokenizer=char",
        "data.val_fraction=0.1",
        "model.seq_len=48",
        "max_steps=6",
        "eval.every=3",
    ];
    let train = |options: &[&str]| {
        let place = Place::new();
        let output = place.train(&judged, options);
        assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
        place
    };
    let weights = |place: &Place| {
        let folder = place.run().checkpoints_path().join("step-000006");
        std::fs::read(folder.join("model.safetensors")).unwrap()
    };
    let whole = train(&["--headless"]);
    let printed = read_all(&whole.run().events_path()).unwrap();
    let first = printed.iter().find_map(|e| match &e.event {
        Event::Stepped { values, .. } => Some(values.clone()),
        _ => None,
    });
    let first = first.unwrap();
    assert!((first["train/loss"].0 - 0.5).abs() < 1e-6, "{first:?}");
    assert_eq!((first["kl"].0, first["rewards/chosen"].0), (0.0, 0.0));
    let last = printed.iter().rev().find_map(|e| match &e.event {
        Event::Evaluated { values, .. } => Some(values.clone()),
        _ => None,
    });
    let last = last.unwrap();
    assert!(
        last["val/rewards/margins"].0 > 0.0 && last.contains_key("val/kl"),
        "{last:?}"
    );
    let labels: Vec<String> = printed
        .iter()
        .filter_map(|e| match &e.event {
            Event::Examined { examples, .. } => Some(examples[0].sequences[0].label.clone()),
            _ => None,
        })
        .collect();
    assert!(
        labels.iter().all(|label| label.ends_with("desirable")),
        "{labels:?}"
    );
    let stopped = train(&["--headless", "--stop-after", "3"]);
    let resumed = stopped.go(&["train", "--resume", "auto", "--headless"]);
    assert_eq!(code(&resumed), 0, "{}", err(&resumed));
    assert!(weights(&whole) == weights(&stopped));
    for (wrong, printed) in [
        ("method.kto.reference=precomputed", "use frozen"),
        ("micro_batch_size=1", "2 or more"),
    ] {
        let words = [&judged[..], &[wrong]].concat();
        let refused = Place::new().train(&words, &["--headless"]);
        assert_eq!(code(&refused), 2);
        assert!(err(&refused).contains(printed), "{}", err(&refused));
    }
}

/// Preference pairs with DPO: the reference is the same however it is stored, and after a resume.
#[test]
fn dpo_trains_the_same_with_either_reference_and_across_a_resume() {
    let pairs = [
        "data.sources=[{synthetic: {sort: {max_value: 9}}, as: preference, rows: 200}]",
        "data.tokenizer=char",
        "data.val_fraction=0.1",
        "model.seq_len=48",
        "max_steps=6",
        "eval.every=3",
        "preflight.enabled=false",
    ];
    let train = |reference: &str, options: &[&str]| {
        let place = Place::new();
        let reference = format!("method.dpo.reference={reference}");
        let words = [&pairs[..], &[reference.as_str()]].concat();
        let output = place.train(&words, options);
        assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
        place
    };
    let weights = |place: &Place| {
        let folder = place.run().checkpoints_path().join("step-000006");
        std::fs::read(folder.join("model.safetensors")).unwrap()
    };
    let frozen = train("frozen", &["--headless"]);
    let printed = read_all(&frozen.run().events_path()).unwrap();
    let first = printed.iter().find_map(|e| match &e.event {
        Event::Stepped { values, .. } => Some(values.clone()),
        _ => None,
    });
    let first = first.unwrap();
    assert!((first["train/loss"].0 - std::f64::consts::LN_2).abs() < 1e-6);
    assert_eq!(first["rewards/margins"].0, 0.0);
    let measured = printed.iter().any(|e| match &e.event {
        Event::Evaluated { values, .. } => values.contains_key("val/rewards/accuracies"),
        _ => false,
    });
    assert!(measured);
    let precomputed = train("precomputed", &["--headless"]);
    assert!(weights(&frozen) == weights(&precomputed));
    let stopped = train("frozen", &["--headless", "--stop-after", "3"]);
    let resumed = stopped.go(&["train", "--resume", "auto", "--headless"]);
    assert_eq!(code(&resumed), 0, "{}", err(&resumed));
    assert!(weights(&frozen) == weights(&stopped));
    let refused = Place::new().train(&["method.dpo.reference=adapter_off"], &["--headless"]);
    assert_eq!(code(&refused), 2);
    assert!(err(&refused).contains("adapter"), "{}", err(&refused));
}
