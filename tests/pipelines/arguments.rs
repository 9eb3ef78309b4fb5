//! Words of the command line that do not fit a pipeline, and commands that do not take one.

use super::{LONG, MINE, Place, code, err, out};

#[test]
fn invalid_arguments_for_pipelines_are_rejected_before_anything_starts() {
    let place = Place::new(MINE);
    for (arguments, expected) in [
        (vec!["train", "mine.yaml", "--skip", "nope"], "has no stage"),
        (
            vec!["train", "mine.yaml", "-s", "max_steps=3"],
            "which stage?",
        ),
        (
            vec!["train", "mine.yaml", "-s", "base.nope=3"],
            "stage base",
        ),
        (
            vec!["train", "mine.yaml", "--stop-after", "3"],
            "--stop-after applies to one run",
        ),
        (
            vec!["train", "smoke", "--skip", "base"],
            "belong to pipelines",
        ),
    ] {
        let output = place.go(&arguments);
        assert_eq!(code(&output), 2, "{arguments:?}: {}", err(&output));
        assert!(
            err(&output).contains(expected),
            "{arguments:?}: {}",
            err(&output)
        );
        assert!(!place.dir.path().join("runs").exists(), "{arguments:?}");
    }
}

#[test]
fn commands_for_a_single_spec_report_that_a_name_is_a_pipeline() {
    let place = Place::new(LONG);
    for verb in ["plan", "ladder", "preflight"] {
        for word in ["speedrun", "mine.yaml"] {
            let refused = place.go(&[verb, word]);
            assert_eq!(code(&refused), 2, "{verb}: {}", out(&refused));
            let printed = err(&refused);
            assert!(printed.contains("is a pipeline"), "{verb}: {printed}");
        }
    }
}

#[test]
fn only_folders_of_pipelines_are_deleted() {
    let place = Place::new(LONG);
    std::fs::write(place.dir.path().join("pipeline.yaml"), LONG).unwrap();
    let kept = place.go(&["rm", "--yes", "."]);
    assert_eq!(code(&kept), 2, "{}", out(&kept));
    assert!(place.dir.path().join("mine.yaml").exists());
}
