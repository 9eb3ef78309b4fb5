//! Weights of desirable and undesirable answers against their numbers.

use super::{Subject, poor};
use crate::base::finding::Finding;
use crate::methods::MethodConfig;

/// What desirable answers should weigh together, by the paper, of what undesirable ones do; and how far beside it is no matter:
/// labels that are balanced but for chance.
const LEAST: f64 = 1.0;
const MOST: f64 = 4.0 / 3.0;
const SLACK: f64 = 1.15;
/// The largest weight that a spec takes.
const MOST_WEIGHT: f64 = 1_000.0;

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let (MethodConfig::Kto(kto), Some((good, bad))) = (&subject.spec.method, subject.sizes.labels)
    else {
        return Vec::new();
    };
    if good == 0 || bad == 0 {
        let side = if good == 0 { "undesirable" } else { "desirable" };
        return vec![poor(
            "data",
            format!("all answers are {side}: there is no contrast to learn"),
            "add rows with the other label".into(),
            SOURCE,
        )];
    }
    let (good, bad) = (good as f64, bad as f64);
    let ratio = kto.desirable_weight * good / (kto.undesirable_weight * bad);
    if (LEAST / SLACK..=MOST * SLACK).contains(&ratio) {
        return Vec::new();
    }
    // The rare side weighs more, as in the paper; the other one is left at 1.
    let (key, other, weight) = match good <= bad {
        true => ("desirable", "undesirable", LEAST * bad / good),
        false => ("undesirable", "desirable", good / bad / LEAST),
    };
    // Both as they are to one another, within the range of a weight.
    let (weight, beside) = match weight <= MOST_WEIGHT {
        true => (format!("{weight:.2}"), "1".to_string()),
        false => (MOST_WEIGHT.to_string(), two_digits(MOST_WEIGHT / weight)),
    };
    vec![poor(
        "method.kto.desirable_weight",
        format!(
            "{good} desirable answers of weight {} versus {bad} undesirable ones of weight {}: a weighted ratio of {ratio:.2}, where 1 to 4/3 is advised",
            kto.desirable_weight, kto.undesirable_weight
        ),
        format!(
            "-s method.kto.{key}_weight={weight} -s method.kto.{other}_weight={beside}"
        ),
        SOURCE,
    )]
}

/// `0.48`
fn two_digits(x: f64) -> String {
    let rounded: f64 = format!("{x:.1e}").parse().unwrap_or(x);
    rounded.to_string()
}

const SOURCE: &str = "Ethayarajh et al. 2024, arXiv 2402.01306; TRL's KTOTrainer: weights times numbers in 1:1 to 4:3";
