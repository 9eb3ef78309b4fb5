//! Weight decay. Norms and biases are in a group without it always (`optim/groups`); what remains is how strong it is.

use super::{Subject, one_digit, poor};
use crate::base::finding::Finding;
use crate::optim::{OptimizerConfig, RateScale};

/// Passes of AdamW's memory over the run: 1 / (lr · decay) steps is its length.
const MOST: f64 = 60.0;
/// Of these, so many are advised.
const GOOD: f64 = MOST / 6.0;
/// More decay than this is unusual, whatever the rate.
const USUAL: f64 = 0.1;
/// A step, whatever the length of the run: the rule `weight_decay` looks from there on.
const STRONG: f64 = 5e-3;
const SOURCE: &str = "AdamW averages updates over 1 / (lr · weight_decay) steps: Wang and Aitchison 2024, arXiv 2405.13698";

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let (spec, mut list) = (subject.spec, Vec::new());
    let (lr, decay) = (spec.optimizer.lr(), spec.optimizer.weight_decay());
    let steps = spec.train.max_steps as f64;
    let set = |value: String| format!("-s {}={value}", subject.of_optimizer("weight_decay"));
    // Muon's rate is not one of single elements.
    let own = spec.optimizer.rate_scale() == RateScale::Matrices;
    let strong = lr * decay > STRONG || lr * decay * steps > MOST && lr * decay > 1e-3;
    if !own && steps > 100.0 && strong {
        let memory = match (1.0 / (lr * decay)).round() {
            n if n <= 1.0 => "in earlier steps".to_string(),
            n => format!("more than {n:.0} steps ago"),
        };
        // Half of the limit, so that one digit stays below it.
        let most = (GOOD / steps).min(STRONG / 2.0);
        list.push(poor(
            "optimizer",
            format!(
                "lr · weight_decay is {}: weights lose what they learned {memory}, of {steps}",
                one_digit(lr * decay)
            ),
            set(one_digit((most / lr).min(USUAL))),
            SOURCE,
        ));
    }
    let lion = matches!(spec.optimizer, OptimizerConfig::Lion(_));
    if lion && subject.begins_at_random() && decay > 0.0 && decay <= 0.1 && lr < 5e-4 && steps > 100.0 {
        list.push(poor(
            "optimizer",
            format!("weight decay {decay} is AdamW's: at Lion's smaller learning rate it has hardly any effect"),
            set("1".into()),
            "Chen et al. 2023, arXiv 2302.06675: 3 to 10 times AdamW's",
        ));
    }
    let tuned = !subject.begins_at_random()
        && (subject.learns_preferences() || spec.method.on_policy().is_some());
    if tuned && decay > 0.1 && spec.adapter.is_none() {
        list.push(poor(
            "optimizer",
            format!(
                "weight decay {decay} pulls a trained model towards 0, away from its reference"
            ),
            set("0".into()),
            "TRL trains preference and RL methods without weight decay",
        ));
    }
    list
}
