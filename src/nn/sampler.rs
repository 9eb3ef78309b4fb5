//! From logits to the next token.

use crate::base::rng::{Rng, Stream};
use crate::base::sampling::Sampling;
use candle_core::{Result, bail};

/// Chooses tokens by the settings; a draw depends on the seed and the number of the new token alone.
pub(crate) struct Sampler<'a> {
    sampling: &'a Sampling,
    /// Whether a token id stands in the text so far.
    seen: Vec<bool>,
    /// (id, adjusted logit), reused between draws.
    candidates: Vec<(u32, f32)>,
}

impl<'a> Sampler<'a> {
    pub fn new(sampling: &'a Sampling, vocab_size: usize, prompt: &[u32]) -> Self {
        let mut sampler = Sampler {
            sampling,
            seen: vec![false; vocab_size],
            candidates: Vec::with_capacity(vocab_size),
        };
        for &id in prompt {
            sampler.note(id);
        }
        sampler
    }

    fn note(&mut self, id: u32) {
        if let Some(seen) = self.seen.get_mut(id as usize) {
            *seen = true;
        }
    }

    /// New token number `index` (from 0) and its log-probability under the untouched distribution, in nats.
    pub fn next(&mut self, logits: &[f32], index: u64) -> Result<(u32, f32)> {
        if let Some(at) = logits.iter().position(|x| !x.is_finite()) {
            bail!(
                "the model's logit of token {at} is {}: its weights are damaged",
                logits[at]
            )
        }
        self.adjust(logits);
        let id = if self.sampling.temperature <= 0.0 {
            greedy(&self.candidates)
        } else {
            self.truncate();
            self.draw(index)
        };
        self.note(id);
        Ok((id, log_softmax_at(logits, id as usize)))
    }

    /// Repetition penalty and temperature.
    fn adjust(&mut self, logits: &[f32]) {
        let penalty = self.sampling.repetition_penalty;
        let temperature = self.sampling.temperature;
        let scale = if temperature > 0.0 { temperature } else { 1.0 };
        self.candidates.clear();
        for (id, (&logit, &seen)) in logits.iter().zip(&self.seen).enumerate() {
            let logit = match (seen, logit > 0.0) {
                (false, _) => logit,
                (true, true) => logit / penalty,
                (true, false) => logit * penalty,
            };
            self.candidates.push((id as u32, logit / scale));
        }
    }

    /// Top-k and top-p; the most likely token always stays.
    fn truncate(&mut self) {
        let (top_k, top_p) = (self.sampling.top_k, self.sampling.top_p);
        let cuts_k = top_k > 0 && top_k < self.candidates.len();
        if !cuts_k && top_p >= 1.0 {
            return;
        }
        self.candidates
            .sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        if cuts_k {
            self.candidates.truncate(top_k);
        }
        if top_p < 1.0 {
            let weights = weights(&self.candidates);
            let total: f64 = weights.iter().sum();
            let mut sum = 0.0;
            let keep = weights.iter().position(|w| {
                sum += w;
                sum >= f64::from(top_p) * total
            });
            self.candidates
                .truncate(keep.map_or(weights.len(), |i| i + 1));
        }
    }

    fn draw(&self, index: u64) -> u32 {
        let weights = weights(&self.candidates);
        let total: f64 = weights.iter().sum();
        let mut rng = Rng::new(self.sampling.seed, Stream::Sample, index, 0);
        let mut left = rng.uniform_f64() * total;
        for (&(id, _), weight) in self.candidates.iter().zip(&weights) {
            left -= weight;
            if left < 0.0 {
                return id;
            }
        }
        // Rounding can leave a crumb: it belongs to the most likely token.
        greedy(&self.candidates)
    }
}

/// The first of the highest.
fn greedy(candidates: &[(u32, f32)]) -> u32 {
    let best = candidates
        .iter()
        .reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.map_or(0, |&(id, _)| id)
}

/// Unnormalised probabilities.
fn weights(candidates: &[(u32, f32)]) -> Vec<f64> {
    let max = candidates
        .iter()
        .fold(f32::NEG_INFINITY, |max, &(_, x)| max.max(x));
    candidates
        .iter()
        .map(|&(_, x)| f64::from(x - max).exp())
        .collect()
}

fn log_softmax_at(logits: &[f32], at: usize) -> f32 {
    let max = logits.iter().fold(f32::NEG_INFINITY, |max, &x| max.max(x));
    let sum: f64 = logits.iter().map(|&x| f64::from(x - max).exp()).sum();
    (f64::from(logits[at] - max) - sum.ln()) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 5] = [0.0, 2.0, 1.0, -1.0, 2.0];

    fn draw_many(sampling: &Sampling) -> Vec<usize> {
        let mut counts = vec![0; LOGITS.len()];
        for index in 0..4000 {
            let mut sampler = Sampler::new(sampling, LOGITS.len(), &[]);
            counts[sampler.next(&LOGITS, index).unwrap().0 as usize] += 1;
        }
        counts
    }

    #[test]
    fn greedy_takes_the_first_of_the_highest_and_reports_its_log_probability() {
        let sampling = Sampling {
            temperature: 0.0,
            ..Default::default()
        };
        let mut sampler = Sampler::new(&sampling, 5, &[]);
        let (id, logprob) = sampler.next(&LOGITS, 0).unwrap();
        assert_eq!(id, 1);
        let sum: f32 = LOGITS.iter().map(|x| x.exp()).sum();
        assert!((logprob - (2.0 - sum.ln())).abs() < 1e-6);
    }

    #[test]
    fn frequencies_follow_the_softmax() {
        let sampling = Sampling {
            temperature: 1.0,
            ..Default::default()
        };
        let counts = draw_many(&sampling);
        let total: f32 = LOGITS.iter().map(|x| x.exp()).sum();
        for (count, logit) in counts.iter().zip(LOGITS) {
            let expected = 4000.0 * logit.exp() / total;
            assert!(
                (*count as f32 - expected).abs() < 5.0 * expected.sqrt(),
                "{counts:?}"
            );
        }
    }

    #[test]
    fn top_k_and_top_p_cut_the_tail() {
        let sampling = Sampling {
            temperature: 1.0,
            top_k: 3,
            ..Default::default()
        };
        let counts = draw_many(&sampling);
        assert_eq!((counts[0], counts[3]), (0, 0));
        assert!(counts[1] > 0 && counts[2] > 0 && counts[4] > 0);
        let sampling = Sampling {
            temperature: 1.0,
            top_p: 0.5,
            ..Default::default()
        };
        let counts = draw_many(&sampling);
        assert_eq!(counts[1] + counts[4], 4000, "{counts:?}");
    }

    #[test]
    fn the_repetition_penalty_lowers_what_was_seen_whatever_its_sign() {
        let sampling = Sampling {
            temperature: 0.0,
            repetition_penalty: 3.0,
            ..Default::default()
        };
        let mut sampler = Sampler::new(&sampling, 5, &[1]);
        let drawn: Vec<u32> = (0..3)
            .map(|i| sampler.next(&LOGITS, i).unwrap().0)
            .collect();
        // 4 falls to 0.67 once drawn, then 2 (1.0) leads, then 1 and 4 stand at 0.67.
        assert_eq!(drawn, [4, 2, 1]);
    }

    #[test]
    fn a_logit_that_is_not_finite_is_an_error() {
        let sampling = Sampling::default();
        let mut sampler = Sampler::new(&sampling, 2, &[]);
        assert!(sampler.next(&[0.0, f32::NAN], 0).is_err());
    }
}
