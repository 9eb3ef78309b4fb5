//! How long a run is, and how its batch grows.

use super::IssueCollector;
use crate::spec::RunConfig;
use crate::spec::issue::Origin;

pub(super) fn length(config: &RunConfig, judge: &mut IssueCollector) {
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
    let typed = |path: &str| matches!(judge.origins.get(path), Origin::Set(_));
    let both = train.epochs.is_some() && typed("train.epochs") && typed("train.max_steps");
    judge.want(
        !both,
        &["train.epochs", "train.max_steps"],
        "epochs and max_steps both set the length of the run",
        "set only one of them",
    );
    let warmup = format!("schedule.{}.warmup_steps", config.schedule.entry().id);
    let both = train.warmup_ratio.is_some() && typed("train.warmup_ratio") && typed(&warmup);
    judge.want(
        !both,
        &["train.warmup_ratio", &warmup],
        "warmup_ratio and warmup_steps both set the warm-up",
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
        let whole = train.grad_accum_steps;
        let stage = format!("{{grad_accum_steps: {accum}, until_step: {until}}}");
        let what = match before {
            _ if accum >= whole => {
                format!(
                    "{stage} takes no fewer micro-steps than train.grad_accum_steps={whole}, to which the ramp leads"
                )
            }
            (end, _) if until <= end => {
                format!("{stage} ends no later than what is before it, at step {end}")
            }
            (_, less) => {
                format!("{stage} takes no more micro-steps than the stage before it, {less}")
            }
        };
        judge.want(
            until > before.0 && accum > before.1 && accum < whole,
            &["train.batch_ramp"],
            what,
            "each stage ends later and takes more than the one before, the last one less than train.grad_accum_steps: \
             train.grad_accum_steps=8 with [{grad_accum_steps: 2, until_step: 100}, {grad_accum_steps: 4, until_step: 300}]",
        );
        before = (until, accum);
    }
}
