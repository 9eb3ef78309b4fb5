//! `llmtui score`.

use super::{Place, code, err, out};

/// Scores of a text add up, do not depend on the row format, and equal what evaluations measure.
#[test]
fn score_gives_each_token_its_log_probability() {
    let place = Place::new();
    assert_eq!(code(&place.train(&["max_steps=5"], &["--headless"])), 0);
    let model = place.run().checkpoints_path().join("step-000005");
    let model = model.to_str().unwrap();
    let write = |name: &str, text: &str| std::fs::write(place.dir.path().join(name), text).unwrap();
    let printed = "First Citizen: before we proceed any further, hear me speak.";
    write("text.txt", printed);
    write(
        "pairs.jsonl",
        &format!(
            "{{\"prompt\":\"First \",\"chosen\":\"{}\",\"rejected\":\"zzzzzzzz\"}}\n",
            &printed[6..]
        ),
    );
    let score = |words: &[&str]| -> serde_json::Value {
        let words = [&["score", model][..], words, &["--json"]].concat();
        let output = place.go(&words);
        assert_eq!(code(&output), 0, "{}", err(&output));
        serde_json::from_str(&out(&output)).unwrap()
    };
    let text = score(&["text.txt"]);
    let logps = |value: &serde_json::Value| -> Vec<f64> {
        let list = value["logps"].as_array().unwrap();
        list.iter().map(|x| x.as_f64().unwrap()).collect()
    };
    let each = logps(&text["texts"][0]);
    assert_eq!(each.len(), printed.len() - 1);
    let total = &text["total"];
    let sum: f64 = each.iter().sum();
    assert!((total["logp"].as_f64().unwrap() - sum).abs() < 1e-6);
    let perplexity = (-sum / each.len() as f64).exp();
    assert!((total["perplexity"].as_f64().unwrap() - perplexity).abs() < 1e-6);
    // One byte per token here.
    let bits = -sum / std::f64::consts::LN_2 / each.len() as f64;
    assert!((total["bits_per_byte"].as_f64().unwrap() - bits).abs() < 1e-9);
    // Windows that start anew have less context, from their second token on.
    let short = logps(&score(&["text.txt", "--window", "8"])["texts"][0]);
    assert_eq!(short.len(), each.len());
    assert!(
        short[..8]
            .iter()
            .zip(&each)
            .all(|(a, b)| (a - b).abs() < 1e-5)
    );
    assert!(
        short[8..]
            .iter()
            .zip(&each[8..])
            .any(|(a, b)| (a - b).abs() > 1e-4)
    );
    // Of a pair only the answers count, after their prompt.
    let pairs = score(&["pairs.jsonl"]);
    let chosen = logps(&pairs["texts"][0]);
    assert_eq!(pairs["texts"][1]["label"], "rejected");
    for (found, exact) in chosen.iter().zip(&each[5..]) {
        assert!((found - exact).abs() < 1e-5, "{found} {exact}");
    }
    assert_eq!(pairs["chosen_longer"], 1.0);
    let refused = place.go(&["score", model, "absent.jsonl"]);
    assert_eq!(code(&refused), 2, "{}", err(&refused));
    let shown = out(&place.go(&["score", model, "text.txt"]));
    assert!(
        shown.contains("bits per byte") && shown.contains("windows"),
        "{shown}"
    );
    // Rows that are not scored are counted, with the reason.
    assert_eq!(text["total"]["not_scored"]["first"], 1);
    assert!(
        shown.contains("59 tokens scored") && shown.contains("not scored        1 first"),
        "{shown}"
    );
    let prompts = &pairs["texts"][0]["not_scored"];
    assert_eq!(
        (&prompts["first"], &prompts["context"]),
        (&1.into(), &5.into())
    );
}
