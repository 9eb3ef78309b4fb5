//! Dropout with a reference model or with old log-probabilities: those passes apply none, in the model or before adapters.

use super::{Subject, poor};
use crate::base::finding::Finding;

const SOURCE: &str = "TRL's DPO and KTO train without dropout (disable_dropout), adapters' included, its PPO disables it in every model: huggingface.co/docs/trl";

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let spec = subject.spec;
    let needs = spec.method.needs();
    if needs.reference.is_none() && spec.method.on_policy().is_none() {
        return Vec::new();
    }
    let of_adapter = spec.adapter.as_ref().map_or(0.0, |adapter| adapter.dropout());
    let rates = [
        ("model.dropout", spec.model.dropout),
        ("adapter.lora.dropout", of_adapter),
    ];
    let poor_rate = |(place, dropout): (&str, f64)| {
        poor(
            place,
            format!("dropout {dropout} makes the policy differ from its reference: log-ratios start with noise, not at 0"),
            format!("-s {place}=0"),
            SOURCE,
        )
    };
    let above_0 = rates.into_iter().filter(|(_, dropout)| *dropout > 0.0);
    above_0.map(poor_rate).collect()
}
