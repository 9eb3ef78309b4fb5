//! A reward model: a score at the last token of each answer, higher for the chosen one. L = −ln σ(s_chosen − s_rejected − m)
//! + c · (s_chosen + s_rejected)², a mean over pairs, where m is the pair's own margin, 0 where the data have none.

use super::preference::{self, BY_ACCURACY, PAIRS};
use super::{Criterion, Knob, Needs, ScoredBatch, knob, log_sigmoid, read};
use crate::base::registry::Entry;
use crate::data::{Batch, MARGIN, Unit};
use crate::metrics::{Direction, Metric, Readings, Repeatable, metric};
use crate::nn::HeadKind;
use candle_core::{Device, Result, Tensor};
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "reward",
    title: "Reward model",
    summary: "Train a reward model on pairs, for ranking answers and for reinforcement learning.",
    source: "Stiennon et al. 2020, arXiv 2009.01325; Bradley & Terry 1952; TRL's RewardTrainer",
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Weight of the squared sum of a pair's scores, which centers them at 0 (Eisenstein et al. 2023); 0.01 is typical.
    #[schemars(range(min = 0, max = 1000))]
    pub center_rewards_coefficient: f64,
}

/// What a rule that only counts tokens would get right.
const BY_LENGTH: &str = "rewards/length_accuracies";

const LENGTH: Metric = metric(
    BY_LENGTH,
    "Length-only accuracy",
    "share",
    Direction::Neutral,
    Repeatable::Yes,
    "share of pairs whose chosen answer is longer, ties counting half: the accuracy of length alone. An accuracy not well above it, or above 1 minus it, has learned no more than length",
);

impl super::Method for Config {
    fn knobs(&self) -> &'static [Knob] {
        const OWN: &[Knob] = &[knob(
            "method.*.center_rewards_coefficient",
            "0 or 0.01",
            "keeps the scores around 0, so that those of different prompts are comparable",
        )];
        OWN
    }

    fn needs(&self) -> Needs {
        Needs {
            unit: Unit::Ranked,
            head: HeadKind::Score,
            ..Needs::default()
        }
    }

    fn loss(&self, scored: &ScoredBatch, readings: &mut Readings) -> Result<Tensor> {
        // Of each sequence one place counts, so the sum over it is its score.
        let scores = scored.sequence_logps()?;
        preference::note_rewards(scored, &scores, readings)?;
        let by_length = longer(scored.batch);
        let by_length = Tensor::from_slice(&by_length, by_length.len(), &Device::Cpu)?;
        read(readings, BY_LENGTH, &by_length)?;
        let [chosen, rejected] = scored.sides(&scores)?;
        let mut apart = (&chosen - &rejected)?;
        if scored.batch.column(MARGIN).is_some() {
            let [margins, _] = scored.sides(&scored.column(MARGIN)?)?;
            apart = (apart - margins)?;
        }
        let mut loss = log_sigmoid(&apart)?.neg()?;
        if self.center_rewards_coefficient > 0.0 {
            let centre = (chosen + rejected)?.sqr()?;
            loss = (loss + (centre * self.center_rewards_coefficient)?)?;
        }
        loss.sum_all()? / scored.normalizer
    }

    fn readings(&self) -> &'static [Metric] {
        const READINGS: &[Metric] = &{
            let [accuracies, margins, chosen, rejected, ..] = PAIRS;
            [accuracies, LENGTH, margins, chosen, rejected]
        };
        READINGS
    }

    fn best(&self) -> Criterion {
        BY_ACCURACY
    }
}

/// For each pair 1 where the chosen sequence has more tokens, 0 where it has fewer, else a half. Prompts are the same.
fn longer(batch: &Batch) -> Vec<f32> {
    let mut tokens = vec![0usize; batch.origins.len()];
    for (at, sequence) in batch.sequence.iter().enumerate() {
        // Padding begins a document of its own.
        let pads = batch.first.get(at).is_some_and(|first| *first != 0);
        if let Some(tokens) = tokens.get_mut(*sequence as usize)
            && !pads
        {
            *tokens += 1;
        }
    }
    let pairs = tokens.chunks_exact(2);
    pairs
        .map(|pair| match pair[0].cmp(&pair[1]) {
            std::cmp::Ordering::Greater => 1.0,
            std::cmp::Ordering::Equal => 0.5,
            std::cmp::Ordering::Less => 0.0,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Column, Origin};

    /// Two pairs in rows of four places; each side ends where its mask says.
    fn batch(margins: &[f32]) -> Batch {
        let origin = |start| Origin {
            held_out: false,
            source: 0,
            start,
        };
        let lengths = [4u32, 2, 3, 3];
        let of = |f: &dyn Fn(u32, u32) -> u32| -> Vec<u32> {
            let rows = lengths
                .iter()
                .flat_map(|len| (0..4).map(move |t| (*len, t)));
            rows.map(|(len, t)| f(len, t)).collect()
        };
        let ends = of(&|len, t| u32::from(t + 1 == len));
        let column = Column {
            name: MARGIN,
            values: margins.iter().flat_map(|m| [*m, *m]).collect(),
        };
        Batch {
            inputs: vec![1; 16],
            targets: vec![1; 16],
            batch_size: 4,
            seq_len: 4,
            unit: Unit::Ranked,
            mask: ends.iter().map(|e| *e == 1).collect(),
            first: of(&|len, t| if t < len { 0 } else { len }),
            sequence: (0..4).flat_map(|s| [s; 4]).collect(),
            origins: (0..4).map(origin).collect(),
            columns: if margins.is_empty() {
                Vec::new()
            } else {
                vec![column]
            },
            ..Batch::default()
        }
    }

    fn loss(config: &Config, batch: &Batch) -> (f32, Readings) {
        // Scores 1.5, −0.5 and 0.25, 1.25 where they count, and 9 where they do not.
        let mut logp = vec![9.0f32; 16];
        for (row, at, score) in [(0, 3, 1.5), (1, 1, -0.5), (2, 2, 0.25), (3, 2, 1.25)] {
            logp[4 * row + at] = score;
        }
        let logp = Tensor::from_vec(logp, (4, 4), &Device::Cpu).unwrap();
        let scored = ScoredBatch {
            batch,
            entropy: logp.zeros_like().unwrap(),
            value: None,
            logp,
            normalizer: 2.0,
        };
        let mut readings = Readings::default();
        let loss = super::super::Method::loss(config, &scored, &mut readings).unwrap();
        (loss.to_scalar().unwrap(), readings)
    }

    #[test]
    fn the_loss_is_bradley_terrys_with_margins_and_a_centre() {
        let softplus = |x: f64| (1.0 + x.exp()).ln();
        let config = Config::default();
        let (plain, readings) = loss(&config, &batch(&[]));
        let exact = (softplus(-2.0) + softplus(1.0)) / 2.0;
        assert!((f64::from(plain) - exact).abs() < 1e-6, "{plain} {exact}");
        let mean = |id| readings.mean(id).unwrap();
        assert_eq!(mean("rewards/accuracies"), 0.5);
        assert_eq!(mean("rewards/margins"), 0.5);
        assert_eq!(mean("rewards/chosen"), 0.875);
        assert_eq!(mean(BY_LENGTH), 0.75, "one longer, one as long");
        let (with, _) = loss(&config, &batch(&[0.5, 2.0]));
        let exact = (softplus(-1.5) + softplus(3.0)) / 2.0;
        assert!((f64::from(with) - exact).abs() < 1e-6, "{with} {exact}");
        let centred = Config {
            center_rewards_coefficient: 0.1,
        };
        let (centred, _) = loss(&centred, &batch(&[0.5, 2.0]));
        let exact = exact + 0.1 * (1.0 + 2.25) / 2.0;
        assert!((f64::from(centred) - exact).abs() < 1e-6, "{centred}");
    }
}
