//! Files that are not what a verb expects: pipes, empty files, files that cannot be written.

use super::{Place, code, printed};
use std::process::Output;

fn reported(output: &Output) -> String {
    format!(
        "{}{}",
        printed(output),
        String::from_utf8_lossy(&output.stdout)
    )
}

/// A run of three steps, its newest checkpoint, and a pipe next to it.
fn trained() -> (Place, llmtui::run::RunDir, String) {
    let place = Place::new();
    let trained =
        place.go("mkfifo pipe && echo a text > rows.txt && exec $P train quickstart $SMALL -s max_steps=3 --headless");
    assert_eq!(code(&trained), 0, "{}", printed(&trained));
    let run = place.run();
    let model = run.checkpoints().last().unwrap().path.display().to_string();
    (place, run, model)
}

#[test]
fn a_pipe_is_an_immediate_error_for_every_verb() {
    let (place, run, model) = trained();
    for verb in [
        "chat pipe --prompt a".to_string(),
        "export pipe --to out".into(),
        "quantize pipe --dtype q8_0 --to out.gguf".into(),
        format!("quantize {model} --dtype q8_0 --text pipe --to out.gguf"),
        "inspect pipe".into(),
        "model show pipe".into(),
        "plan pipe".into(),
        "train pipe --dry-run".into(),
        "train quickstart -s train.from=pipe --dry-run".into(),
        "release pipe".into(),
        "import pipe".into(),
        "tokenizer check pipe".into(),
        "tokenizer train pipe --out out".into(),
        "data inspect rows.txt --tokenizer pipe".into(),
        "merge --base pipe --to out".into(),
        format!("merge --base {model} --adapter pipe --to out"),
        format!("chat {model} --adapter pipe --prompt a"),
        format!("chat {model} --tools pipe --prompt a"),
        format!("chat {model} --json-schema pipe --prompt a"),
        format!("score {model} pipe"),
        "data inspect pipe".into(),
        "reward test grpo-arithmetic pipe".into(),
        "--hardware pipe plan quickstart".into(),
    ] {
        let output = place.go(&format!("exec timeout 20 $P {verb}"));
        assert_eq!(code(&output), 2, "{verb}: {}", reported(&output));
    }
    // Whichever file of a run is a pipe, no list of runs blocks on it.
    for name in ["events.jsonl", "spec.yaml", "asked.yaml"] {
        let path = run.path().join(name);
        let kept = path.with_extension("kept");
        std::fs::rename(&path, &kept).unwrap();
        assert_eq!(code(&place.go(&format!("mkfifo {}", path.display()))), 0);
        for verb in ["runs", "gc"] {
            let output = place.go(&format!("exec timeout 20 $P {verb}"));
            assert_eq!(code(&output), 0, "{name}, {verb}: {}", reported(&output));
        }
        let resumed = format!("exec timeout 20 $P train --resume {} --headless", run.id());
        let output = place.go(&resumed);
        assert_ne!(code(&output), 124, "{name}: {}", reported(&output));
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(&kept, &path).unwrap();
    }
}

#[test]
fn an_empty_file_is_neither_a_model_nor_a_spec() {
    let place = Place::new();
    let made = place
        .go("for e in gguf safetensors yaml; do : > empty.$e; done; echo '# mine' > comments.yaml");
    assert_eq!(code(&made), 0);
    for file in ["empty.gguf", "empty.safetensors", "empty.yaml"] {
        for verb in ["plan", "model show", "train --dry-run"] {
            let output = place.go(&format!("exec $P {verb} {file}"));
            assert_eq!(code(&output), 2, "{verb} {file}: {}", reported(&output));
            assert!(
                printed(&output).contains("is empty"),
                "{}",
                printed(&output)
            );
        }
    }
    let output = place.go("exec $P plan comments.yaml");
    assert_eq!(code(&output), 2, "{}", reported(&output));
    assert!(
        printed(&output).contains("sets nothing"),
        "{}",
        printed(&output)
    );
}

#[test]
fn unwritable_output_is_exit_three_leaves_nothing_and_can_be_retried_again() {
    let (place, run, model) = trained();
    std::fs::write(
        place.path().join("rows.jsonl"),
        "{\"text\": \"abcdefgh ijklmnop\"}\n".repeat(20),
    )
    .unwrap();
    let verbs = [
        "presets eject quickstart --to mine.yaml".to_string(),
        "new --defaults mine.yaml".into(),
        "doctor --record mine.yaml".into(),
        "engine script quickstart --slurm --to mine.yaml".into(),
        "data convert rows.jsonl --to jsonl --out mine.yaml.jsonl".into(),
        "data clean rows.jsonl --out mine.yaml.jsonl".into(),
        format!("export {model} --to mine.yaml"),
        format!("quantize {model} --dtype q8_0 --to mine.yaml"),
        format!("report {} --to mine.yaml.html", run.path().display()),
    ];
    for verb in &verbs {
        let output = place.go(&format!("ulimit -f 0; exec $P {verb}"));
        assert_eq!(code(&output), 3, "{verb}: {}", reported(&output));
        let left = place.go("ls -A | grep mine.yaml");
        assert_eq!(code(&left), 1, "{verb} left {}", reported(&left));
    }
    // A run that was not created leaves no folder either.
    let runs = std::fs::read_dir(place.path().join("runs"))
        .unwrap()
        .count();
    let made = place.go("ulimit -f 0; exec $P train quickstart $SMALL --headless");
    assert_eq!(code(&made), 3, "{}", reported(&made));
    let after = std::fs::read_dir(place.path().join("runs"))
        .unwrap()
        .count();
    assert_eq!(after, runs);
    let again = place.go(&format!("exec $P {}", verbs[0]));
    assert_eq!(code(&again), 0, "{}", reported(&again));
    let cached = place.go(
        "ulimit -f 0; exec $P train quickstart $SMALL -s data.path=rows.jsonl -s data.cache=cache --dry-run",
    );
    assert_eq!(code(&cached), 3, "{}", reported(&cached));
    std::fs::write(place.path().join("empty.txt"), "").unwrap();
    let empty = place.go(&format!(
        "exec $P quantize {model} --dtype q8_0 --text empty.txt --to out.gguf"
    ));
    assert_eq!(code(&empty), 2, "{}", reported(&empty));
    assert!(printed(&empty).contains("empty.txt"), "{}", printed(&empty));
}

#[test]
fn printed_commands_work_where_they_are_printed() {
    let place = Place::new();
    let trained = place.go(
        "exec $P train quickstart $SMALL -s max_steps=4 --stop-after 2 --headless --runs-dir 'e e'",
    );
    assert_eq!(code(&trained), 0, "{}", reported(&trained));
    let printed = |output: &Output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("resume: llmtui "));
        line.unwrap_or_else(|| panic!("{}", reported(output)))
            .to_string()
    };
    let again = place.go(&format!(
        "exec $P {} --stop-after 3 --headless",
        printed(&trained)
    ));
    assert_eq!(code(&again), 0, "{}", reported(&again));
    // A run named by its path.
    let moved = place.go("mkdir -p c/A && mv 'e e'/2* c/A/");
    assert_eq!(code(&moved), 0, "{}", reported(&moved));
    let by_path =
        place.go("exec $P train --resume c/A/2* -s max_steps=6 --stop-after 4 --headless");
    assert_eq!(code(&by_path), 0, "{}", reported(&by_path));
    let last = place.go(&format!("exec $P {} --headless", printed(&by_path)));
    assert_eq!(code(&last), 0, "{}", reported(&last));
}
