//! Dropout with a reference model or with old log-probabilities: those passes apply none.

use super::{Subject, poor};
use crate::base::finding::Finding;

const SOURCE: &str = "TRL's DPO and KTO train without dropout (disable_dropout), its PPO disables it in every model: huggingface.co/docs/trl";

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let (spec, dropout) = (subject.spec, subject.spec.model.dropout);
    let compares = spec.method.needs().reference.is_some() || spec.method.on_policy().is_some();
    if dropout == 0.0 || !compares {
        return Vec::new();
    }
    vec![poor(
        "model.dropout",
        format!("dropout {dropout} makes the policy differ from its reference: log-ratios start with noise, not at 0"),
        "-s model.dropout=0".into(),
        SOURCE,
    )]
}
