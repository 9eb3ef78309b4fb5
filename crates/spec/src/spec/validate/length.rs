//! How long a run is, and how its batch grows.

use super::Judge;
use crate::spec::RunConfig;
use crate::spec::issue::Origin;

pub(super) fn length(config: &RunConfig, judge: &mut Judge) {
    let train = &config.train;
    let (word, answers) = (
        config.method.entry().id,
        config.method.on_policy().is_some(),
    );
    judge.want(
        !answers || train.epochs.is_none(),
        &["train.epochs"],
        format!("{word} trains on its own completions, so epochs do not apply"),
        "set train.max_steps",
    );
    // A file may say both: a run's own spec does. Of two words of one command line neither is the later one.
    let typed = |path| matches!(judge.origins.get(path), Origin::Set(_));
    let both = train.epochs.is_some() && typed("train.epochs") && typed("train.max_steps");
    judge.want(
        !both,
        &["train.epochs", "train.max_steps"],
        "epochs and max_steps both set the length of the run",
        "set only one of them",
    );
    judge.want(
        !answers || train.batch_ramp.is_empty(),
        &["train.batch_ramp"],
        format!("{word} needs a constant batch size (whole groups)"),
        "leave it out",
    );
    let mut before = (0, 0);
    for stage in &train.batch_ramp {
        let (until, accum) = (stage.until_step, stage.grad_accum_steps);
        judge.want(
            until > before.0 && accum > before.1 && accum < train.grad_accum_steps,
            &["train.batch_ramp"],
            format!(
                "{accum} micro-steps until step {until} does not fit between {} until step {} and train.grad_accum_steps={}",
                before.1, before.0, train.grad_accum_steps
            ),
            "each stage must end later and accumulate more than the one before, the last one less than train.grad_accum_steps: \
             train.grad_accum_steps=8 with [{grad_accum_steps: 2, until_step: 100}, {grad_accum_steps: 4, until_step: 300}]",
        );
        before = (until, accum);
    }
}
