//! Rules for distillation: its teacher, and answers that the student writes itself.

use super::IssueCollector;
use super::answers::room_and_ends;
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
    if distill.on_policy > 0.0 {
        room_and_ends(config, judge);
    }
}
