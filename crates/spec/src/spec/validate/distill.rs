//! Rules for distillation: its teacher, and answers that the student writes itself.

use super::IssueCollector;
use crate::spec::RunConfig;

pub(super) fn distill(config: &RunConfig, judge: &mut IssueCollector) {
    let Some(distill) = config.method.distills() else {
        return;
    };
    let named = distill.teacher.as_ref();
    judge.want(
        named.is_some_and(|path| !path.as_os_str().is_empty()),
        &["method.distill.teacher"],
        "distillation needs a teacher, and none is named",
        "method.distill.teacher=MODEL: a folder, a .gguf file or a hub id (org/name), with the same tokens as the student",
    );
    judge.want(
        config.engine.torch().is_none(),
        &["engine", "method"],
        "engine: torch does not support distill: ranks return one log-probability a token, and the loss compares whole distributions",
        "use engine: candle",
    );
    if distill.on_policy <= 0.0 {
        return;
    }
    let rollout = &config.rollout;
    judge.want(
        rollout.max_new_tokens < config.model.seq_len,
        &["rollout.max_new_tokens", "model.seq_len"],
        format!(
            "completions of {} tokens leave no room for a prompt in {}",
            rollout.max_new_tokens, config.model.seq_len
        ),
        "lower max_new_tokens, or raise model.seq_len",
    );
    judge.want(
        rollout.stop.iter().all(|s| !s.is_empty()),
        &["rollout.stop"],
        "an empty stop string stops immediately",
        "remove it",
    );
}
