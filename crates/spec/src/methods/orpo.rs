//! Odds ratio preference optimization: supervised fine-tuning on the chosen answers, and a term that makes their odds higher
//! than those of the rejected ones; no reference model.
//!
//! With ℓ the mean log-probability of an answer's tokens, its log-odds are ℓ − ln(1 − e^ℓ), and
//! L = −ℓ_chosen − λ · ln σ(log-odds_chosen − log-odds_rejected), a mean over pairs.

use super::preference::{self, NLL_LOSS, PAIRS};
use super::{Criterion, Knob, LossMask, Needs, ScoredBatch, knob, log_sigmoid, read};
use crate::base::registry::Entry;
use crate::data::Unit;
use crate::metrics::{Direction, Metric, Readings, Repeatable, id, metric};
use candle_core::{Result, Tensor};
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "orpo",
    title: "Odds ratio preference optimization (ORPO)",
    summary: "Learn to answer and which answer to prefer in one stage; needs no reference model.",
    source: "Hong et al. 2024, arXiv 2403.07691",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Weight λ of the odds-ratio loss (TRL's beta).
    #[schemars(range(min = 0, max = 100))]
    pub beta: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config { beta: 0.1 }
    }
}

#[rustfmt::skip]
const READINGS: &[Metric] = &{
    let [a, b, c, d, e, f] = PAIRS;
    [
        a, b, c, d, e, f, NLL_LOSS,
        metric(id::LOG_ODDS, "Log odds ratio", "", Direction::Higher, Repeatable::Yes, "mean log-odds of chosen minus rejected answers (TRL's log_odds_chosen)"),
        metric(id::LOG_ODDS_RATIO, "ln σ(log odds ratio)", "", Direction::Higher, Repeatable::Yes, "mean ln σ of the log odds ratio (TRL's log_odds_ratio)"),
    ]
};

impl super::Method for Config {
    fn knobs(&self) -> &'static [Knob] {
        const OWN: &[Knob] = &[knob(
            "method.*.beta",
            "0.05 to 0.3; 0.1 is usual",
            "the weight of the preference beside the likelihood of the chosen answers",
        )];
        OWN
    }

    fn needs(&self) -> Needs {
        Needs {
            unit: Unit::Pair,
            mask: LossMask::CompletionOnly,
            ..Needs::default()
        }
    }

    fn loss(&self, scored: &ScoredBatch, readings: &mut Readings) -> Result<Tensor> {
        let logps = (scored.sequence_logps()? / scored.sequence_lengths()?)?;
        preference::note(scored, &(&logps * self.beta)?, &logps, readings)?;
        let odds = (&logps - log_1_minus_exp(&logps)?)?;
        let [chosen, rejected] = scored.sides(&odds)?;
        let apart = (chosen - rejected)?;
        let ratio = log_sigmoid(&apart)?;
        read(readings, id::LOG_ODDS, &apart)?;
        read(readings, id::LOG_ODDS_RATIO, &ratio)?;
        let nll = preference::nll_of_chosen(scored, &logps, readings)?;
        (nll - (ratio * self.beta)?)?.sum_all()? / scored.normalizer
    }

    fn readings(&self) -> &'static [Metric] {
        READINGS
    }

    fn best(&self) -> Criterion {
        preference::BY_ACCURACY
    }
}

/// ln(1 − e^x) for x ≤ 0. Near 0, where 1 − e^x cancels, by its series; probability 1 counts as 1 − 10⁻⁹.
fn log_1_minus_exp(x: &Tensor) -> Result<Tensor> {
    let near = x.detach().gt(-0.1)?.to_dtype(x.dtype())?;
    let far = (1.0 - &near)?;
    // −(e^x − 1) = −x · (1 + x/2 · (1 + x/3 · (1 + x/4 · (1 + x/5)))), the rest is below 2·10⁻⁹ of it.
    let mut series = ((x / 5.0)? + 1.0)?;
    for n in [4.0, 3.0, 2.0] {
        series = (((x / n)? * series)? + 1.0)?;
    }
    let series = (series * x.neg()?)?;
    let plain = (1.0 - x.exp()?)?;
    ((series * near)? + (plain * far)?)?.maximum(1e-9)?.log()
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{Device, Var};

    #[test]
    fn ln_of_one_minus_exp_keeps_its_digits_near_zero_and_far_from_it() {
        let at = [-1e-6_f64, -1e-3, -0.0999, -0.1001, -0.7, -20.0];
        let x: Vec<f32> = at.iter().map(|x| *x as f32).collect();
        let x = Var::from_slice(&x, at.len(), &Device::Cpu).unwrap();
        let y = log_1_minus_exp(x.as_tensor()).unwrap();
        let gradients = y.sum_all().unwrap().backward().unwrap();
        let gradient: Vec<f32> = gradients.get(&x).unwrap().to_vec1().unwrap();
        let exact = x.as_tensor().to_vec1::<f32>().unwrap();
        for ((x, y), g) in exact.iter().zip(y.to_vec1::<f32>().unwrap()).zip(gradient) {
            let x = f64::from(*x);
            let value = (-x.exp_m1()).ln();
            let slope = x.exp() / x.exp_m1();
            assert!(
                (f64::from(y) - value).abs() < 1e-6 * value.abs().max(1e-2),
                "{x}: {y}"
            );
            assert!(
                (f64::from(g) / slope - 1.0).abs() < 3e-6,
                "{x}: {g}, {slope}"
            );
        }
        let one = Tensor::zeros(1, candle_core::DType::F32, &Device::Cpu).unwrap();
        assert!(log_1_minus_exp(&one).unwrap().to_vec1::<f32>().unwrap()[0].is_finite());
    }
}
