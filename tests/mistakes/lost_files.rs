//! A run whose small files were lost or truncated: nothing is trained with defaults, and what the log holds is restored from it.

use super::*;

const TRAIN: &str = "train smoke --runs-dir ra --headless -s max_steps=12 -s preflight.enabled=false -s lr=0.0123 -s checkpoint.every=2";

/// A run of 12 steps, stopped after the fourth.
fn stopped() -> (tempfile::TempDir, RunDir) {
    let dir = tempfile::tempdir().unwrap();
    let mut words: Vec<&str> = TRAIN.split(' ').collect();
    words.extend(["--stop-after", "4"]);
    let (code, out, printed) = llmtui(dir.path(), &words);
    assert_eq!(code, 0, "{out}{printed}");
    let runs = std::fs::read_dir(dir.path().join("ra")).unwrap();
    let mut runs = runs
        .flatten()
        .filter(|e| e.path().join("run.json").exists());
    let run = RunDir::open(&runs.next().unwrap().path()).unwrap();
    (dir, run)
}

fn resume<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let words = [
        "train",
        "--resume",
        "smoke",
        "--runs-dir",
        "ra",
        "--headless",
    ];
    words.iter().chain(more).copied().collect()
}

/// The missing part was filled in with defaults, and the run continued with another learning rate.
#[test]
fn an_empty_or_truncated_spec_is_rejected_and_restored_from_the_log() {
    let (dir, run) = stopped();
    let whole = std::fs::read_to_string(run.spec_path()).unwrap();
    let (cut, _) = whole.split_once("\noptimizer:").unwrap();
    let log = || std::fs::read(run.events_path()).unwrap();
    let before = log();
    // The run's name is also that of a preset.
    let path = run.path().display().to_string();
    let damaged = [
        ("", "spec.yaml is empty"),
        ("# lost\n", "it lacks"),
        (cut, "it lacks optimizer"),
    ];
    for (text, phrase) in damaged {
        std::fs::write(run.spec_path(), text).unwrap();
        let verbs = [
            resume(&[]),
            resume(&["-s", "max_steps=20"]),
            vec!["train", "--branch", "smoke", "--runs-dir", "ra"],
            vec!["plan", &path],
        ];
        for verb in verbs {
            fails(dir.path(), &verb, 2, &[phrase, "try: ", ".damaged"]);
        }
        assert!(log() == before, "nothing was trained");
    }
    std::fs::rename(
        run.spec_path(),
        run.spec_path().with_extension("yaml.damaged"),
    )
    .unwrap();
    let (code, out, printed) = llmtui(dir.path(), &resume(&["--stop-after", "6"]));
    assert_eq!(code, 0, "{out}{printed}");
    assert!(printed.contains("restored from the last spec"), "{printed}");
    assert!(!out.contains("was changed"), "{out}");
    assert_eq!(std::fs::read_to_string(run.spec_path()).unwrap(), whole);
    // The log is empty too.
    std::fs::write(run.spec_path(), cut).unwrap();
    std::fs::write(run.events_path(), "").unwrap();
    let copy = "restore the file from a copy";
    fails(dir.path(), &resume(&[]), 2, &["it lacks optimizer", copy]);
}

/// It could not be resumed, and vanished from the list without a message.
#[test]
fn a_run_without_its_header_is_listed_and_can_be_resumed() {
    let (dir, run) = stopped();
    let header = run.header().unwrap();
    for damage in [None, Some("{\"format\""), Some("\u{1}\0")] {
        match damage {
            Some(text) => std::fs::write(run.header_path(), text).unwrap(),
            None => std::fs::remove_file(run.header_path()).unwrap(),
        }
        let (code, out, printed) = llmtui(dir.path(), &["runs", "--runs-dir", "ra"]);
        assert_eq!(code, 0, "{printed}");
        assert!(out.contains(&run.folder()), "{out}{printed}");
        let dry = resume(&["--dry-run"]);
        let (code, out, printed) = llmtui(dir.path(), &dry);
        assert_eq!(code, 0, "{out}{printed}");
        assert!(printed.contains("run.json"), "{printed}");
    }
    let (code, out, printed) = llmtui(dir.path(), &resume(&[]));
    assert_eq!(code, 0, "{out}{printed}");
    let again = run.header().unwrap();
    assert!(!run.lost_its_header());
    assert_eq!((again.id, again.name), (header.id, header.name));
    // The id has its minute, which may have begun before the header was written.
    let apart = again.created.0.abs_diff(header.created.0);
    assert!(apart < 2 * 60_000, "{apart} ms");
}

#[test]
fn a_lost_log_is_reported_once_at_the_resume() {
    let (dir, run) = stopped();
    std::fs::write(run.events_path(), [7, 0, 255, 10, 1]).unwrap();
    let (code, out, printed) = llmtui(dir.path(), &resume(&["--stop-after", "6"]));
    assert_eq!(code, 0, "{out}{printed}");
    assert!(out.contains("the log of steps 1 to 4 is lost"), "{out}");
    let (code, out, printed) = llmtui(dir.path(), &resume(&["--stop-after", "3"]));
    assert_eq!(code, 0, "{out}{printed}");
    assert!(!out.contains("is lost"), "{out}");
    assert!(
        out.contains("nothing is trained: the run is at step 6 already"),
        "{out}"
    );
    // A branch begins with an empty log, from which nothing is lost.
    let branch = "train --branch smoke@4 --runs-dir ra --headless --stop-after 5";
    let branch: Vec<&str> = branch.split(' ').collect();
    let (code, out, printed) = llmtui(dir.path(), &branch);
    assert_eq!(code, 0, "{out}{printed}");
    assert!(!out.contains("is lost"), "{out}");
}

#[test]
fn a_spec_beyond_its_checkpoint_and_other_data_are_rejected_with_what_works() {
    let (dir, run) = stopped();
    let whole = std::fs::read_to_string(run.spec_path()).unwrap();
    std::fs::write(
        run.spec_path(),
        whole.replacen("n_layer: 2", "n_layer: 3", 1),
    )
    .unwrap();
    let (code, out, printed) = llmtui(dir.path(), &resume(&[]));
    assert_eq!(code, 2, "{out}{printed}");
    let phrases = [
        "not resumed",
        "does not fit spec.yaml",
        "model.n_layer 2 -> 3",
    ];
    // Arrows are ASCII if the locale is not UTF-8.
    let plain = out.replace('→', "->");
    assert!(phrases.iter().all(|p| plain.contains(p)), "{out}");
    // The hint can be typed as printed, and the run is not in ./runs.
    let corpus: String = (0..900).map(|i| format!("line {i}. ")).collect();
    std::fs::write(dir.path().join("own.txt"), &corpus).unwrap();
    let own = format!("{TRAIN} -s data.path=own.txt -s name=own --stop-after 2");
    let own: Vec<&str> = own.split(' ').collect();
    let (code, out, printed) = llmtui(dir.path(), &own);
    assert_eq!(code, 0, "{out}{printed}");
    std::fs::write(dir.path().join("own.txt"), corpus.replace("line", "nile")).unwrap();
    let again = "train --resume own --runs-dir ra --headless";
    let again: Vec<&str> = again.split(' ').collect();
    let (code, out, _) = llmtui(dir.path(), &again);
    assert_eq!(code, 2, "{out}");
    assert!(out.contains("llmtui train --resume ra/"), "{out}");
    // One more letter, and no weights fit: --force is not suggested.
    std::fs::write(dir.path().join("own.txt"), format!("{corpus}ß")).unwrap();
    let (code, out, _) = llmtui(dir.path(), &again);
    assert_eq!(code, 2, "{out}");
    assert!(
        out.contains("the vocabulary has") && !out.contains("--force"),
        "{out}"
    );
    let forced: Vec<&str> = again.iter().copied().chain(["--force"]).collect();
    let (code, out, _) = llmtui(dir.path(), &forced);
    assert_eq!(code, 2, "{out}");
    assert!(!out.contains("continued because"), "{out}");
}

/// It was exit code 4, "the check itself broke", with --force as the suggestion.
#[test]
fn a_disk_without_space_for_a_checkpoint_in_preflight_is_a_machine_error() {
    let dir = tempfile::tempdir().unwrap();
    let words = "train smoke --headless -s d_model=128 -s max_steps=2";
    let script = format!(
        "ulimit -f 200; exec {} {words}",
        env!("CARGO_BIN_EXE_llmtui")
    );
    let output = Command::new("sh")
        .args(["-c", &script])
        .current_dir(dir.path())
        .env_clear()
        .env("HOME", dir.path())
        .env("XDG_RUNTIME_DIR", dir.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{out}");
    assert!(
        out.contains("does not take a checkpoint") && out.contains("ulimit -f"),
        "{out}"
    );
    assert!(
        !out.contains("--force") && !out.contains("itself broke"),
        "{out}"
    );
}
