//! From logits to the next token, in the order of transformers' logits processors (`GenerationMixin`):
//!
//! 1. repetition penalty over the whole text, prompt included;
//! 2. temperature; 0 ends here with the most likely token;
//! 3. top-k, ties with the k-th stay;
//! 4. top-p over what is left;
//! 5. min-p over what is left;
//! 6. a draw from the softmax of what is left.
//!
//! The most likely token survives every cut. What is reported of a token, its log-probability and the entropy of its place,
//! is that of the model's own distribution, before all of this. Stop strings are about text and live elsewhere.

use crate::base::rng::{Rng, Stream};
use crate::base::sampling::Sampling;
use crate::kernels::math::exp;
use candle_core::{Result, bail};

/// What top-p looks at first; it grows until it holds the mass.
const FIRST_LOOK: usize = 64;

/// A token that was chosen, and what the model's own distribution says of it, in nats.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Chosen {
    pub id: u32,
    pub logprob: f32,
    /// Entropy of the distribution that it was chosen from, before penalties, temperature and cuts.
    pub entropy: f32,
}

/// Chooses the tokens of one text; a draw depends on the seed, the text's number and the number of the new token alone.
pub(crate) struct Sampler<'a> {
    sampling: &'a Sampling,
    /// Of the text among those that are written under one seed.
    number: u32,
    /// Whether a token id stands in the text so far; empty where nobody asks.
    seen: Vec<bool>,
    /// (id, adjusted logit), reused between draws.
    candidates: Vec<(u32, f32)>,
    weights: Vec<f64>,
}

impl<'a> Sampler<'a> {
    pub fn new(sampling: &'a Sampling, vocab_size: usize, prompt: &[u32], number: u32) -> Self {
        let penalised = sampling.repetition_penalty != 1.0;
        let mut sampler = Sampler {
            sampling,
            number,
            seen: vec![false; if penalised { vocab_size } else { 0 }],
            candidates: Vec::new(),
            weights: Vec::new(),
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

    /// New token number `index` (from 0).
    pub fn next(&mut self, logits: &[f32], index: u64) -> Result<Chosen> {
        if let Some(at) = logits.iter().position(|x| !x.is_finite()) {
            bail!(
                "the model's logit of token {at} is {}: its weights are damaged",
                logits[at]
            )
        }
        let id = if self.sampling.temperature > 0.0 {
            self.adjust(logits);
            self.cut_top_k();
            self.cut_top_p();
            self.cut_min_p();
            self.draw(index)
        } else if self.seen.is_empty() {
            greedy(logits.iter().copied())
        } else {
            self.adjust(logits);
            greedy(self.candidates.iter().map(|&(_, x)| x))
        };
        self.note(id);
        let (top, sum, mean) = softmax(logits);
        Ok(Chosen {
            id,
            logprob: (f64::from(logits[id as usize] - top) - sum.ln()) as f32,
            entropy: (sum.ln() - mean).max(0.0) as f32,
        })
    }

    /// Repetition penalty and temperature.
    fn adjust(&mut self, logits: &[f32]) {
        let penalty = self.sampling.repetition_penalty;
        let temperature = self.sampling.temperature;
        let scale = if temperature > 0.0 { temperature } else { 1.0 };
        self.candidates.clear();
        let adjusted = logits.iter().enumerate().map(|(id, &logit)| {
            let seen = self.seen.get(id).is_some_and(|seen| *seen);
            let logit = match (seen, logit > 0.0) {
                (false, _) => logit,
                (true, true) => logit / penalty,
                (true, false) => logit * penalty,
            };
            (id as u32, logit / scale)
        });
        self.candidates.extend(adjusted);
    }

    fn cut_top_k(&mut self) {
        let k = self.sampling.top_k;
        if k == 0 || k >= self.candidates.len() {
            return;
        }
        self.candidates.select_nth_unstable_by(k - 1, by_logit);
        let last = self.candidates[k - 1].1;
        self.candidates.retain(|&(_, x)| x >= last);
        self.candidates.sort_unstable_by(by_logit);
    }

    fn cut_top_p(&mut self) {
        let p = f64::from(self.sampling.top_p);
        if p >= 1.0 {
            return;
        }
        weigh(&self.candidates, &mut self.weights);
        let wanted = p * self.weights.iter().sum::<f64>();
        let n = self.candidates.len();
        let mut look = FIRST_LOOK.min(n);
        loop {
            if look < n {
                self.candidates.select_nth_unstable_by(look - 1, by_logit);
            }
            self.candidates[..look].sort_unstable_by(by_logit);
            let top = self.candidates[0].1;
            let mut sum = 0.0;
            let reached = self.candidates[..look].iter().position(|&(_, x)| {
                sum += f64::from(exp(x - top));
                sum >= wanted
            });
            match reached {
                Some(last) => return self.candidates.truncate(last + 1),
                // All of it, and rounding kept the sum below.
                None if look == n => return,
                None => look = (look * 8).min(n),
            }
        }
    }

    fn cut_min_p(&mut self) {
        let min_p = self.sampling.min_p;
        if min_p <= 0.0 {
            return;
        }
        let least = highest(&self.candidates) + min_p.ln();
        let best = self.best();
        self.candidates
            .retain(|&(id, x)| x >= least || Some(id) == best);
    }

    fn draw(&mut self, index: u64) -> u32 {
        weigh(&self.candidates, &mut self.weights);
        let total: f64 = self.weights.iter().sum();
        let mut rng = Rng::new(self.sampling.seed, Stream::Sample, index, self.number);
        let mut left = rng.uniform_f64() * total;
        for (&(id, _), weight) in self.candidates.iter().zip(&self.weights) {
            left -= weight;
            if left < 0.0 {
                return id;
            }
        }
        // Rounding can leave a crumb: it belongs to the most likely token.
        self.best().unwrap_or_default()
    }

    /// The first of the most likely.
    fn best(&self) -> Option<u32> {
        let at = greedy(self.candidates.iter().map(|&(_, x)| x));
        self.candidates.get(at as usize).map(|&(id, _)| id)
    }
}

/// Likeliest first; ties by id.
fn by_logit(a: &(u32, f32), b: &(u32, f32)) -> std::cmp::Ordering {
    b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
}

/// The place of the first of the highest.
fn greedy(logits: impl Iterator<Item = f32>) -> u32 {
    let best = logits
        .enumerate()
        .reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.map_or(0, |(at, _)| at as u32)
}

fn highest(candidates: &[(u32, f32)]) -> f32 {
    candidates
        .iter()
        .fold(f32::NEG_INFINITY, |top, &(_, x)| top.max(x))
}

/// Unnormalised probabilities.
fn weigh(candidates: &[(u32, f32)], weights: &mut Vec<f64>) {
    let top = highest(candidates);
    weights.clear();
    weights.extend(candidates.iter().map(|&(_, x)| f64::from(exp(x - top))));
}

/// The highest logit t, Σ exp(x − t), and the mean of x − t under the softmax.
fn softmax(logits: &[f32]) -> (f32, f64, f64) {
    const BLOCK: usize = 1024;
    let top = logits.iter().fold(f32::NEG_INFINITY, |top, &x| top.max(x));
    let (mut sum, mut mean) = (0.0_f64, 0.0_f64);
    // Blocks in f32 (which vectorise), their sums in f64.
    for block in logits.chunks(BLOCK) {
        let (mut block_sum, mut block_mean) = ([0.0_f32; 8], [0.0_f32; 8]);
        for part in block.chunks(8) {
            for ((sum, mean), &x) in block_sum.iter_mut().zip(&mut block_mean).zip(part) {
                let weight = exp(x - top);
                *sum += weight;
                *mean += weight * (x - top);
            }
        }
        sum += block_sum.iter().map(|&x| f64::from(x)).sum::<f64>();
        mean += block_mean.iter().map(|&x| f64::from(x)).sum::<f64>();
    }
    (top, sum, mean / sum)
}

#[cfg(test)]
mod tests;
