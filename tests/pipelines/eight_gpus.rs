//! The shipped pipeline for eight GPUs: planned as a whole, and run scaled down.

use super::{MINE, Place, code, err, out};
use serde_json::Value;

/// The recorded machine with eight H100.
fn eight() -> String {
    format!("{}/tests/machines/eight.json", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_eight_gpu_speedrun_is_planned_as_a_whole_without_data() {
    let place = Place::new(MINE);
    let planned = |arguments: &[&str]| {
        let mut command = place.command(&["train", "speedrun-8gpu", "--dry-run"]);
        // No hub is reachable: any request to it would fail.
        command
            .args(arguments)
            .env("HF_ENDPOINT", "http://127.0.0.1:9")
            .output()
            .unwrap()
    };
    let there = planned(&["--hardware", &eight()]);
    assert_eq!(code(&there), 0, "{}", err(&there));
    let printed = out(&there);
    for word in [
        "memory of each",
        "18,000",
        "9.44B",
        "dpo",
        "on 8 × NVIDIA H100 80GB HBM3",
        "price rough",
        "not in it: downloads and exam",
        "their data at the hub were not read: base, mid, sft, dpo",
        "dry run: nothing started",
    ] {
        assert!(printed.contains(word), "{word}: {printed}");
    }
    let dollars = |line: &str| {
        line.split('$')
            .nth(1)
            .and_then(|n| n.split_whitespace().next()?.parse::<f64>().ok())
    };
    let base = printed
        .lines()
        .find(|line| line.starts_with("base "))
        .unwrap();
    // 6 · 482M · 9.44B FLOPs at 40 % of 989 TFLOP/s and $3.00 an hour.
    assert!((50.0..70.0).contains(&dollars(base).unwrap()), "{base}");
    assert!(!place.dir.path().join("runs").exists());

    // Without visible GPUs memory is known, time and price are not.
    let empty = planned(&["--hardware", &eight().replace("eight", "cpu")]);
    assert_eq!(code(&empty), 0, "{}", err(&empty));
    assert!(
        out(&empty).contains("for 8 GPUs; this machine has none"),
        "{}",
        out(&empty)
    );
    // Epochs over unread data do not determine steps.
    let epochs = planned(&["--hardware", &eight(), "-s", "sft.epochs=1"]);
    let printed = format!("{}{}", out(&epochs), err(&epochs));
    assert!(
        printed.contains("steps and time are unknown: sft"),
        "{printed}"
    );
    // What is too large for a GPU is rejected in terms of the spec.
    let large = planned(&[
        "--hardware",
        &eight(),
        "-s",
        "base.train.micro_batch_size=1024",
    ]);
    assert_eq!(code(&large), 2);
    assert!(
        err(&large).contains("stage base") && err(&large).contains("on each of 8 GPUs"),
        "{}",
        err(&large)
    );
}

#[test]
fn ranks_without_gpus_are_reported_before_a_pipeline_starts() {
    let place = Place::new(MINE);
    let cpu = eight().replace("eight", "cpu");
    let output = place.go(&["train", "speedrun-8gpu", "--headless", "--hardware", &cpu]);
    assert_eq!(code(&output), 2, "{}", out(&output));
    assert!(
        err(&output).contains("8 PyTorch ranks need one GPU each"),
        "{}",
        err(&output)
    );
    assert!(!place.dir.path().join("runs").exists());
}

/// The shipped stages for eight GPUs, scaled down to this processor, with rows in the formats of their data sets.
#[test]
fn the_eight_gpu_speedrun_runs_scaled_down_on_rows_in_its_formats() {
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/pipelines/speedrun-8gpu.yaml");
    let mut text = String::new();
    for line in std::fs::read_to_string(shipped).unwrap().lines() {
        let local = [
            ("fineweb", "web"),
            ("smoltalk", "chats"),
            ("gsm8k", "sums"),
            ("ultrafeedback", "pairs"),
        ];
        let source = local
            .iter()
            .find(|(name, _)| line.contains(name) && line.contains("- {hub"));
        let line = match (source, line.trim_start()) {
            (Some((_, file)), _) => {
                let rest = line.split_once("format: ").unwrap().1;
                format!("          - {{path: {file}.jsonl, format: {rest}")
            }
            (None, words) if words.starts_with("sources: ['HuggingFaceFW") => {
                "        sources: [{path: web.jsonl}]".into()
            }
            (None, words) if words.starts_with("engine:") || words.starts_with('#') => continue,
            (None, words) if words.starts_with("eval: {tasks") => {
                "    eval: {tasks: [made_sort], limit: 2, models: [base, mid, sft, dpo]}".into()
            }
            _ => line.to_string(),
        };
        text.push_str(&line);
        text.push('\n');
    }
    for (from, to) in [
        ("vocab_size: 65536", "vocab_size: 400"),
        ("n_layer: 20", "n_layer: 1"),
        ("n_head: 10", "n_head: 2"),
        ("d_model: 1280", "d_model: 16"),
        ("d_ff: 3456", "d_ff: 32"),
        ("seq_len: 2048", "seq_len: 64"),
        ("grad_accum_steps: 2", "grad_accum_steps: 1"),
        ("micro_batch_size: 128", "micro_batch_size: 2"),
        ("micro_batch_size: 64", "micro_batch_size: 2"),
        ("micro_batch_size: 32", "micro_batch_size: 2"),
        ("val_fraction: 0.001", "val_fraction: 0.05"),
        ("val_fraction: 0.005", "val_fraction: 0.05"),
        ("val_fraction: 0.01\n", "val_fraction: 0.05\n"),
    ] {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let place = Place::new(&text);
    let write = |name: &str, row: &dyn Fn(usize) -> Value| {
        let rows = (0..120).map(|i| row(i).to_string() + "\n");
        std::fs::write(place.dir.path().join(name), rows.collect::<String>()).unwrap();
    };
    let words = |i: usize| {
        format!(
            "the {i} birds flew over {} old houses and sat down",
            i * 7 % 31
        )
    };
    let turns = |i: usize, answer: String| serde_json::json!([{"role": "user", "content": words(i)}, {"role": "assistant", "content": answer}]);
    write(
        "web.jsonl",
        &|i| serde_json::json!({"text": words(i).repeat(4), "id": i}),
    );
    write(
        "chats.jsonl",
        &|i| serde_json::json!({"messages": turns(i, words(i + 1)), "source": "x"}),
    );
    write(
        "sums.jsonl",
        &|i| serde_json::json!({"question": words(i), "answer": format!("so many\n#### {i}")}),
    );
    write(
        "pairs.jsonl",
        &|i| serde_json::json!({"chosen": turns(i, words(i + 2)), "rejected": turns(i, "no".into()), "score_chosen": 8.0, "score_rejected": 2.0}),
    );
    let mut arguments = vec!["train", "mine.yaml", "--headless"];
    let sets: Vec<String> = ["base", "mid", "sft", "dpo"]
        .iter()
        .flat_map(|stage| {
            [
                "train.max_steps=2",
                "schedule.cosine.warmup_steps=1",
                "eval.every=2",
                "checkpoint.every=2",
                "train.threads=1",
            ]
            .map(|set| format!("{stage}.{set}"))
        })
        .collect();
    sets.iter().for_each(|set| arguments.extend(["-s", set]));
    let output = place.go(&arguments);
    assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
    assert_eq!(place.words(), ["done"; 8]);
}
