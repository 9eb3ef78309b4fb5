//! Hugging Face's `warmup_stable_decay`.

use super::*;

fn read(more: &str) -> Imported {
    let text = format!("dataset_name: d\nlr_scheduler_type: warmup_stable_decay\n{more}");
    import("x", &text, None).unwrap()
}

/// The decay was a tenth of the run in a straight line, whatever the file said.
#[test]
fn steps_of_the_decay_are_a_share_of_the_run_in_its_shape() {
    let kwargs = "lr_scheduler_kwargs: {num_decay_steps: 30, num_stable_steps: 60, decay_type: 1-sqrt, min_lr_ratio: 0.1}\n";
    let imported = read(&format!(
        "max_steps: 100\nwarmup_steps: 10\nlearning_rate: 1.0e-3\n{kwargs}"
    ));
    let value = |path: &str| imported.draft.value(&format!("schedule.wsd.{path}"));
    assert_eq!(
        (value("decay_fraction"), value("shape")),
        (0.3.into(), "sqrt".into())
    );
    assert_eq!(value("min_lr"), 1e-4);
    let stable = outcome(&imported, "lr_scheduler_kwargs.num_stable_steps");
    assert_eq!(stable.outcome, KeyOutcome::Needless);
    // The rates of transformers behind the warm-up.
    let spec = imported.draft.spec().unwrap();
    let at = |step: u64| spec.schedule.lr_at(step, 100, 1e-3);
    assert_eq!((at(10), at(69)), (1e-3, 1e-3));
    let half = 1e-4 + 9e-4 * (1.0 - 0.5f64.sqrt());
    assert!((at(85) - half).abs() < 1e-12, "{} {half}", at(85));
}

#[test]
fn the_tools_shape_is_a_cosine_and_steps_of_a_run_in_epochs_are_told() {
    let imported = read("lr_scheduler_kwargs: {num_decay_steps: 30}\n");
    assert_eq!(imported.draft.value("schedule.wsd.shape"), "cosine");
    let line = outcome(&imported, "lr_scheduler_kwargs.num_decay_steps");
    assert!(
        line.outcome == KeyOutcome::NoEqual && line.words.contains("30 / steps"),
        "{line:?}"
    );
    // All phases together are the run.
    let kwargs = "lr_scheduler_kwargs: {num_decay_steps: 30, num_stable_steps: 60}\n";
    for warm_up in ["warmup_steps: 10\n", "warmup_ratio: 0.1\n"] {
        let phases = read(&format!("{warm_up}{kwargs}"));
        assert_eq!(
            phases.draft.value("schedule.wsd.decay_fraction"),
            0.3,
            "{warm_up}"
        );
        let stable = outcome(&phases, "lr_scheduler_kwargs.num_stable_steps");
        assert_eq!(stable.outcome, KeyOutcome::Needless);
    }
    let none = read("max_steps: 100\n");
    assert_eq!(none.draft.value("schedule.wsd.shape"), "cosine");
    let told = |line: &&Line| line.theirs == "(no num_decay_steps)";
    assert_eq!(
        none.lines.iter().find(told).unwrap().outcome,
        KeyOutcome::NoEqual
    );
    let early =
        read("max_steps: 100\nlr_scheduler_kwargs: {num_decay_steps: 10, num_stable_steps: 20}\n");
    let line = outcome(&early, "lr_scheduler_kwargs.num_stable_steps");
    assert!(line.words.contains("ends at step 30 of 100"), "{line:?}");
}
