//! Adam's running means.

use super::{Subject, poor};
use crate::base::finding::Finding;
use crate::optim::Epsilon;

/// From this size on, and with batches as large, the short memory is the rule.
const LARGE: f64 = 1e8;
const LARGE_BATCH: u64 = 100_000;

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let optimizer = &subject.spec.optimizer;
    let (Some((beta1, beta2)), Some(Epsilon { value: eps, .. })) =
        (optimizer.adam_betas(), optimizer.epsilon())
    else {
        return Vec::new();
    };
    let mut list = Vec::new();
    let set = |key: &str, value: &str| format!("-s {}={value}", subject.of_optimizer(key));
    if beta1 * beta1 >= beta2 {
        list.push(poor(
            "optimizer",
            format!("β1² ≥ β2 ({beta1} and {beta2}): Adam may diverge when the second moment decays faster than the first"),
            set("beta2", "0.99"),
            "Reddi et al. 2018, arXiv 1904.09237",
        ));
    }
    let large = subject.n_params > LARGE && subject.sizes.step_tokens >= Some(LARGE_BATCH);
    let pretrains = subject.begins_at_random() && subject.spec.method.entry().id == "pretrain";
    if large && pretrains && beta2 > 0.98 {
        list.push(poor(
            "optimizer",
            format!("with β2 {beta2} a spike stays in the second moment for {:.0} steps", 1.0 / (1.0 - beta2)),
            set("beta2", "0.95"),
            "0.95 in GPT-3 (arXiv 2005.14165) and Llama 2 (arXiv 2307.09288); instability at large batches: Molybog et al. 2023, arXiv 2304.09871",
        ));
    }
    let remembered = 1.0 / (1.0 - beta2);
    if beta2 > 0.9995 && remembered > subject.spec.train.max_steps as f64 {
        list.push(poor(
            "optimizer",
            format!("β2 {beta2} averages over {remembered:.0} steps, more than the run has: the large early gradients shrink every later update"),
            set("beta2", "0.99"),
            "Kingma and Ba 2014, arXiv 1412.6980: 0.999; 0.95 to 0.99 in short and large runs, Llama 2, arXiv 2307.09288",
        ));
    }
    if eps > 1e-4 {
        list.push(poor(
            "optimizer",
            format!("ε {eps} exceeds the root of most second moments: updates shrink to nearly nothing"),
            set("eps", "1e-8"),
            "Kingma and Ba 2014, arXiv 1412.6980: 1e-8",
        ));
    }
    list
}
