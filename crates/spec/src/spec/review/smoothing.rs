//! Label smoothing beside losses of pairs that have none.

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
            "no loss of this run reads it: {} has no label smoothing, so {} changes nothing",
            dpo.loss_words(),
            dpo.label_smoothing
        ),
        "-s method.dpo.label_smoothing=0; of the losses sigmoid and robust read it".into(),
        "of these losses cDPO and robust DPO alone have it (arXiv 2305.18290, 2403.00409), in TRL too",
    )]
}
