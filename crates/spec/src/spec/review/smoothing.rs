//! Label smoothing with pairwise losses that ignore it.

use super::{Subject, poor};
use crate::base::finding::Finding;
use crate::methods::MethodConfig;

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let MethodConfig::Dpo(dpo) = &subject.spec.method else {
        return Vec::new();
    };
    if dpo.label_smoothing == 0.0 || dpo.smooths_labels() {
        return Vec::new();
    }
    vec![poor(
        "method.dpo.label_smoothing",
        format!(
            "the loss does not use it: {} has no label smoothing, so {} has no effect",
            dpo.loss_words(),
            dpo.label_smoothing
        ),
        "-s method.dpo.label_smoothing=0; only the losses sigmoid and robust use it".into(),
        "only cDPO and robust DPO have it (arXiv 2305.18290, 2403.00409), in TRL too",
    )]
}
