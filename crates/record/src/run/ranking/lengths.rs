//! Runs without a result, and runs of different lengths.

use super::*;

fn trial(set: &[&str], loss: Option<f64>) -> Trial {
    Trial {
        run: Some("r".into()),
        over: loss.is_some(),
        score: loss.map(|value| Score {
            metric: id::VAL_LOSS.into(),
            higher: false,
            value,
            step: 10,
            whole: None,
        }),
        ..Trial::new(set.iter().map(ToString::to_string).collect(), 10)
    }
}

/// The best run was last in the ranking, behind one of 40 steps, as another with its settings had been stopped at step 0.
#[test]
fn a_run_that_was_stopped_does_not_pull_its_settings_down() {
    let long = ["train.max_steps=2000", "lr=1e-3"];
    let trials = [
        trial(&long, Some(1.901)),
        trial(&long, None),
        trial(&["train.max_steps=40", "lr=1e-2"], Some(2.699)),
    ];
    let groups = ranked(&trials);
    assert_eq!(groups[0].members, [0, 1]);
    assert_eq!((groups[0].runs, groups[0].without), (1, 0));
    // One that failed is a result, and no good one.
    let mut failed = trials;
    failed[1].over = true;
    let groups = ranked(&failed);
    assert_eq!(groups[0].members, [2]);
    assert_eq!((groups[1].runs, groups[1].without), (1, 1));
}

/// A longer run is better: its learning rate is not why.
#[test]
fn the_end_of_a_list_is_not_told_among_runs_of_different_lengths() {
    let ends = |other: &str| {
        let trials = [
            trial(&[&format!("{other}=1"), "lr=1e-3"], Some(2.5)),
            trial(&[&format!("{other}=2"), "lr=1e-2"], Some(1.9)),
        ];
        let told = caveats(&trials, &ranked(&trials), |key: &str| key.to_string());
        told.iter().any(|line| line.contains("that was tried"))
    };
    for key in ["train.max_steps", "train.micro_batch_size", "model.seq_len"] {
        assert!(!ends(key), "{key}");
    }
    assert!(ends("optimizer.adamw.weight_decay"));
}
