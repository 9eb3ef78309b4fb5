//! Completions of models that think first.

use super::*;
use crate::wire::id;

/// A run on prompts that a template writes, whose generation prompt goes on with `opens`.
fn run_with(folder: &Path, opens: &str, extra: &[&str]) -> Run {
    let source = "{% for m in messages %}<U>{{ m.content.split('</think>')[-1] }}{% endfor %}\
                  {% if add_generation_prompt %}<A>OPENS{% endif %}";
    let template = folder.join("t.jinja");
    std::fs::write(&template, source.replace("OPENS", opens)).unwrap();
    let rows = (0..32).map(|i| {
        let asked = serde_json::json!([{"role": "user", "content": format!("{i}+1")}]);
        format!(
            "{}\n",
            serde_json::json!({"prompt": asked, "answer": (i + 1).to_string()})
        )
    });
    let data = folder.join("rows.jsonl");
    std::fs::write(&data, rows.collect::<String>()).unwrap();
    let words = [
        format!("data.sources=[{{path: {}}}]", data.display()),
        format!("data.template={}", template.display()),
        "data.tokenizer={bpe: {vocab_size: 300}}".into(),
        "model.seq_len=64".into(),
        "max_steps=2".into(),
        "eval.every=0".into(),
        "sample.every=2".into(),
        "sample.prompt=2+2".into(),
        "sample.sampling.max_new_tokens=8".into(),
        // Any completion is worth it, if it has a final message.
        "rewards=[{regex: {pattern: '(?s).*'}}, {regex: {pattern: '(?s).', whole: true}, name: whole}]".into(),
    ];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    run_of(&[&words[..], extra].concat())
}

/// The prompt begins the thought, and four tokens do not end it.
#[test]
fn completions_that_end_inside_their_thoughts_are_worth_nothing_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let events = run_with(folder.path(), "<think>", &[]).go();
    assert_eq!(finished(&events).0, Outcome::Completed, "{events:?}");
    let unfinished = id::UNFINISHED_THOUGHTS;
    assert_eq!(readings(&events, unfinished), [1.0, 1.0]);
    assert_eq!(readings(&events, "rewards/regex/mean"), [0.0, 0.0]);
    let whole = readings(&events, "rewards/whole/mean");
    assert!(whole.iter().all(|mean| *mean > 0.0), "{whole:?}");
    let sampled = events.iter().find_map(|event| match event {
        Event::Sampled { text, thought, .. } => Some((text.clone(), thought.clone())),
        _ => None,
    });
    let (text, thought) = sampled.expect("a sample");
    assert_eq!(text, "");
    assert!(thought.is_some_and(|thought| !thought.is_empty()));
    let declared = |events: &[Event]| {
        events.iter().any(|event| match event {
            Event::MetricsDeclared { metrics } => metrics.iter().any(|m| m.id == unfinished),
            _ => false,
        })
    };
    assert!(declared(&events));

    // A prompt that ends the thought, as templates write it where none is wanted: all is the final message.
    let folder = tempfile::tempdir().unwrap();
    let events = run_with(folder.path(), "<think></think>", &[]).go();
    assert_eq!(readings(&events, unfinished), [0.0, 0.0]);
    assert_eq!(readings(&events, "rewards/regex/mean"), [1.0, 1.0]);
    // Where nothing thinks, there is no such reading.
    assert!(!declared(&run_of(&["max_steps=1"]).go()));
}
