//! How often imported runs evaluate and save.

use super::*;

const AXOLOTL: &str = "base_model: x/y\nsample_packing: true\n";
const TRL: &str = "model_name_or_path: x/y\ndataset_name: a/b\nmax_length: 64\n";

fn read(text: &str, more: &str) -> Imported {
    import("x", &format!("{text}{more}\n"), None).unwrap()
}

fn evals(text: &str, more: &str) -> Value {
    read(text, more).draft.value("eval.every")
}

#[test]
fn times_an_epoch_become_a_share_of_the_run() {
    let both = read(
        AXOLOTL,
        "num_epochs: 3\nevals_per_epoch: 2\nsaves_per_epoch: 1",
    );
    assert_eq!(both.draft.value("eval.every"), 1.0 / 6.0);
    assert_eq!(both.draft.value("checkpoint.every"), 1.0 / 3.0);
    assert_eq!(
        outcome(&both, "evals_per_epoch").outcome,
        KeyOutcome::Mapped
    );
    // At which steps: six evaluations in 600 steps, the last one at the end.
    let every = both.draft.spec().unwrap().eval.every;
    assert_eq!(every.steps(600), 100);
    // Axolotl trains one epoch unless told otherwise, and counts shares of a run that steps end as well.
    assert_eq!(evals(AXOLOTL, "evals_per_epoch: 4"), 0.25);
    let ended = "num_epochs: 2\nmax_steps: 50\nevals_per_epoch: 4";
    assert_eq!(evals(AXOLOTL, ended), 0.125);
}

#[test]
fn once_a_run_or_less_is_after_the_last_step() {
    for more in [
        "num_epochs: 1\nevals_per_epoch: 1",
        "num_epochs: 0.5\nevals_per_epoch: 1",
        "num_epochs: 1\neval_strategy: epoch",
    ] {
        assert_eq!(evals(AXOLOTL, more), 0, "{more}");
    }
    let off = read(AXOLOTL, "evals_per_epoch: 0");
    assert_eq!(
        outcome(&off, "evals_per_epoch").outcome,
        KeyOutcome::Needless
    );
    let odd = read(AXOLOTL, "evals_per_epoch: often");
    assert_eq!(
        outcome(&odd, "evals_per_epoch").outcome,
        KeyOutcome::NoEqual
    );
}

#[test]
fn strategies_say_when_and_whether_steps_count() {
    // Hugging Face's trainer has three epochs.
    assert_eq!(evals(TRL, "eval_strategy: epoch"), 1.0 / 3.0);
    assert_eq!(
        evals(TRL, "evaluation_strategy: epoch\nnum_train_epochs: 4"),
        0.25
    );
    for never in ["\"no\"", "no", "false"] {
        let off = read(TRL, &format!("eval_strategy: {never}\neval_steps: 50"));
        assert_eq!(off.draft.value("eval.every"), 0, "{never}");
        assert_eq!(outcome(&off, "eval_steps").outcome, KeyOutcome::Needless);
    }
    let saves = read(
        TRL,
        "save_strategy: epoch\nsave_steps: 500\neval_steps: 0.2",
    );
    assert_eq!(saves.draft.value("checkpoint.every"), 1.0 / 3.0);
    assert_eq!(saves.draft.value("eval.every"), 0.2);
    let steps = read(TRL, "eval_strategy: steps\neval_steps: 50");
    assert_eq!(steps.draft.value("eval.every"), 50);
    assert_eq!(
        outcome(&steps, "eval_strategy").outcome,
        KeyOutcome::Needless
    );
    let unknown = read(TRL, "eval_strategy: epoch\nmax_steps: 50");
    let line = outcome(&unknown, "eval_strategy");
    assert!(
        line.outcome == KeyOutcome::NoEqual && line.words.contains("set eval.every"),
        "{line:?}"
    );
}
