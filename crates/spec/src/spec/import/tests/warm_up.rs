//! Schedules and their warm-up.

use super::*;

const TRL: &str = "dataset_name: d\n";
const AX: &str = "base_model: m\nsequence_len: 64\n";

fn of(text: &str) -> Imported {
    import("x", text, None).unwrap()
}

/// Hugging Face's `constant` reads no warm-up; it was given one here.
#[test]
fn a_constant_rate_has_no_warm_up_and_the_one_with_warm_up_has() {
    let constant = "lr_scheduler_type: constant\nwarmup_steps: 10\nwarmup_ratio: 0.1\n";
    let imported = of(&format!("{TRL}{constant}"));
    assert_eq!(imported.draft.value("schedule"), "none");
    assert!(imported.draft.value("train.warmup_ratio").is_null());
    for key in ["warmup_steps", "warmup_ratio"] {
        let line = outcome(&imported, key);
        assert!(
            line.outcome == KeyOutcome::Needless && line.words.contains("reads no warm-up"),
            "{line:?}"
        );
    }
    let silent = of(&format!("{AX}lr_scheduler: constant\n"));
    assert_eq!(silent.draft.value("schedule"), "none");
    assert!(silent.draft.value("train.warmup_ratio").is_null());
    assert!(
        !silent
            .lines
            .iter()
            .any(|line| line.theirs.contains("warmup"))
    );
    // The optimizer warms up by itself.
    let free = of(&format!(
        "{TRL}lr_scheduler_type: constant\nwarmup_steps: 10\noptim: schedule_free_adamw\n"
    ));
    assert_eq!(free.draft.value("schedule.constant.warmup_steps"), 10);
    let with = of(&format!(
        "{TRL}lr_scheduler_type: constant_with_warmup\nwarmup_steps: 10\n"
    ));
    assert_eq!(with.draft.value("schedule"), "constant");
    assert_eq!(with.draft.value("schedule.constant.warmup_steps"), 10);
}

/// transformers 4.57: `warmup_steps if warmup_steps > 0 else ceil(steps * warmup_ratio)`. Both were set, and the share won.
#[test]
fn of_two_warm_ups_the_steps_count_unless_they_are_none() {
    let with = |steps: &str| {
        let both = format!("{TRL}max_steps: 15\nwarmup_ratio: 0.1\nwarmup_steps: {steps}\n");
        let imported = of(&both);
        let steps = imported.draft.spec().unwrap().schedule.warmup_steps();
        let outcomes = ["warmup_steps", "warmup_ratio"].map(|key| outcome(&imported, key).outcome);
        (steps, outcomes)
    };
    assert_eq!(with("5"), (5, [KeyOutcome::Mapped, KeyOutcome::Needless]));
    // One and a half steps are two.
    assert_eq!(with("0"), (2, [KeyOutcome::Needless, KeyOutcome::Mapped]));
}
