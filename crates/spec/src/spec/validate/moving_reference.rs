//! A reference that moves with the policy: what cannot move is refused, as TRL does.

use super::IssueCollector;
use crate::methods::ReferenceChoice;
use crate::spec::RunConfig;

const KEY: &str = "train.sync_ref_model";

pub(super) fn moving_reference(config: &RunConfig, judge: &mut IssueCollector) {
    if !config.train.sync_ref_model {
        return;
    }
    let word = config.method.entry().id;
    let path = format!("method.{word}.reference");
    let reference = config.method.needs().reference;
    // GRPO, RLOO and PPO have one where they charge a KL.
    let fix = match config.method.on_policy() {
        Some(_) => format!("method.{word}.beta above 0, or remove {KEY}"),
        None => format!("remove {KEY}, or choose method=dpo or kto"),
    };
    judge.want(
        reference.is_some(),
        &[KEY],
        format!("{word} compares with no reference model here: none can move"),
        fix,
    );
    judge.want(
        reference != Some(ReferenceChoice::Precomputed),
        &[KEY, &path],
        "log-probabilities that are computed before the first step are those of a reference that stays",
        format!("{path}=frozen, or remove {KEY}"),
    );
    judge.want(
        config.adapter.is_none() || reference.is_none(),
        &[KEY, "adapter"],
        "an adapter is trained, but the reference has only base weights: it cannot follow",
        format!("remove the adapter (train all weights), or {KEY}"),
    );
}
