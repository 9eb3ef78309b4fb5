//! From logits to the next token, in the order of transformers' logits processors (`GenerationMixin`):
//!
//! 1. repetition penalty over the whole text, prompt included;
//! 2. temperature; 0 ends here with the most likely token;
//! 3. top-k, ties with the k-th stay;
//! 4. top-p over the remaining candidates;
//! 5. min-p over the remaining candidates;
//! 6. a draw from the softmax of the remaining candidates.
//!
//! Tokens that do not fit the form of the text ([`Constraint`]) are left out behind the temperature.
//!
//! The most likely token survives every truncation. The reported log-probability of a token and the entropy at its position
//! are those of the model's own distribution, before all of this. Stop strings are about text and handled elsewhere.

use crate::base::rng::{Rng, Stream};
use crate::base::sampling::Sampling;
use crate::kernels::distribution::{self, Softmax};
use crate::kernels::math::exp;
use candle_core::{Context, Error, Result};

/// The lowest temperature that logits are divided by. A logit 0.001 below the top one has a probability of e^-1000 there.
const COLDEST: f32 = 1e-6;

/// The initial number of candidates of top-p; it grows until it covers the mass.
const INITIAL_CANDIDATES: usize = 64;

/// A logit that no token can be drawn beside: NaN or infinite.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("the model's logit of token {token} is {value}: its weights are damaged")]
pub struct BrokenLogit {
    /// The first token id that has one.
    pub token: usize,
    pub value: f32,
}

impl BrokenLogit {
    /// The logit that an error is about, if it is about one. candle's `Wrapped` forgets the type; `WrappedContext` keeps it.
    pub fn of(error: &Error) -> Option<BrokenLogit> {
        match error {
            Error::WithBacktrace { inner, .. }
            | Error::Context { inner, .. }
            | Error::WithPath { inner, .. } => BrokenLogit::of(inner),
            Error::WrappedContext { wrapped, .. } => match wrapped.downcast_ref::<Error>() {
                Some(inner) => BrokenLogit::of(inner),
                None => wrapped.downcast_ref().copied(),
            },
            _ => None,
        }
    }
}

/// A sampled token, and its statistics under the model's own distribution, in nats.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Chosen {
    pub id: u32,
    pub logprob: f32,
    /// Entropy of the distribution it was drawn from, before penalties, temperature and truncation.
    pub entropy: f32,
    /// Its log-probability after penalties and temperature, before truncation: under the policy whose completion this is.
    pub tempered: f32,
}

/// A token that might have come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Alternative {
    pub id: u32,
    /// In nats, under the model's own distribution.
    pub logprob: f32,
}

/// The log-probability of a token, in nats, by the softmax of the logits.
pub(crate) fn logprob(logits: &[f32], of: &Softmax, id: u32) -> f32 {
    (f64::from(logits[id as usize] - of.top) - of.sum.ln()) as f32
}

/// The `n` most likely tokens by the softmax of the logits, likeliest first; of equal ones the first ids.
pub(crate) fn most_likely(logits: &[f32], of: &Softmax, n: usize) -> Vec<Alternative> {
    let mut best: Vec<(u32, f32)> = Vec::with_capacity(n + 1);
    for (id, &logit) in (0..).zip(logits) {
        let is_full = best.len() == n;
        if is_full && best.last().is_none_or(|&(_, least)| logit <= least) {
            continue;
        }
        let at = best.partition_point(|&(_, better)| better >= logit);
        best.insert(at, (id, logit));
        best.truncate(n);
    }
    let alternative = |(id, _)| Alternative {
        id,
        logprob: logprob(logits, of, id),
    };
    best.into_iter().map(alternative).collect()
}

/// Says which tokens may come next in one text, so that it has a form.
pub trait Constraint: Send {
    /// Gives the logit [`FORBIDDEN`] to the tokens that cannot come next. At least one stays.
    ///
    /// # Errors
    /// A sentence: the form is beyond its limits.
    fn mask(&mut self, logits: &mut [f32]) -> std::result::Result<(), String>;

    /// The next token, which may be one that ends the text.
    ///
    /// # Errors
    /// A sentence: it was forbidden.
    fn accept(&mut self, id: u32) -> std::result::Result<(), String>;
}

/// The logit of a token that cannot come: finite, and of no weight beside any other.
pub const FORBIDDEN: f32 = -1e30;

/// Samples the tokens of one text; a draw depends only on the seed, the text's number and the index of the new token.
pub(crate) struct Sampler {
    sampling: Sampling,
    /// Number of the text among those generated with one seed.
    number: u32,
    /// Whether a token id occurs in the text so far; empty without a repetition penalty.
    seen: Vec<bool>,
    /// Logits after penalty and temperature, if these change any; reused between draws, as are the following.
    adjusted: Vec<f32>,
    /// The form of the text, if it has one.
    constraint: Option<Box<dyn Constraint>>,
    /// So many of the most likely tokens are found with each token.
    top: usize,
    pub alternatives: Vec<Alternative>,
    /// (id, adjusted logit) of the remaining candidates; empty without truncation.
    candidates: Vec<(u32, f32)>,
    /// Unnormalized probabilities; at the end, those of the model's own distribution.
    weights: Vec<f32>,
}

impl Sampler {
    pub fn new(sampling: &Sampling, vocab_size: usize, prompt: &[u32], number: u32) -> Self {
        let penalised = sampling.repetition_penalty != 1.0;
        let mut sampler = Sampler {
            sampling: sampling.clone(),
            number,
            seen: vec![false; if penalised { vocab_size } else { 0 }],
            adjusted: Vec::new(),
            constraint: None,
            top: 0,
            alternatives: Vec::new(),
            candidates: Vec::new(),
            weights: Vec::new(),
        };
        for &id in prompt {
            sampler.note(id);
        }
        sampler
    }

    /// The same for a text of a form, with `top` alternatives to each token.
    pub fn with(mut self, top: usize, constraint: Option<Box<dyn Constraint>>) -> Self {
        (self.top, self.constraint) = (top, constraint);
        self
    }

    fn note(&mut self, id: u32) {
        if let Some(seen) = self.seen.get_mut(id as usize) {
            *seen = true;
        }
    }

    /// New token number `index` (from 0).
    ///
    /// # Errors
    /// A logit that is not finite ([`BrokenLogit::of`] finds it); a form beyond its limits.
    pub fn next(&mut self, logits: &[f32], index: u64) -> Result<Chosen> {
        if !distribution::is_finite(logits) {
            let damaged = logits.iter().enumerate().find(|(_, x)| !x.is_finite());
            let (token, value) = damaged.unwrap_or((0, &f32::NAN));
            let value = *value;
            return Err(BrokenLogit { token, value }).context("generating");
        }
        let temperature = self.temperature();
        let is_plain =
            self.seen.is_empty() && self.constraint.is_none() && [0.0, 1.0].contains(&temperature);
        if !is_plain {
            self.adjust(logits);
        }
        if let Some(constraint) = &mut self.constraint {
            constraint.mask(&mut self.adjusted).map_err(Error::msg)?;
        }
        let mut own = None;
        let id = if temperature <= 0.0 {
            greedy(if is_plain { logits } else { &self.adjusted })
        } else if self.truncates(logits.len()) {
            self.reset_candidates(if is_plain { Some(logits) } else { None });
            self.apply_top_k();
            self.apply_top_p();
            self.apply_min_p();
            self.draw(index)
        } else if is_plain {
            // One softmax for both the draw and the report.
            own = Some(distribution::softmax(logits, &mut self.weights));
            self.draw_of_all(logits, index)
        } else {
            distribution::softmax(&self.adjusted, &mut self.weights);
            self.draw_of_all(&self.adjusted, index)
        };
        self.note(id);
        if let Some(constraint) = &mut self.constraint {
            constraint.accept(id).map_err(Error::msg)?;
        }
        // Greedy completions have no temperature.
        let tempered = !is_plain && temperature > 0.0;
        let tempered = tempered.then(|| {
            let of = distribution::softmax(&self.adjusted, &mut self.weights);
            logprob(&self.adjusted, &of, id)
        });
        let own = own.unwrap_or_else(|| distribution::softmax(logits, &mut self.weights));
        let logprob = logprob(logits, &own, id);
        if self.top > 0 {
            self.alternatives = most_likely(logits, &own, self.top);
        }
        Ok(Chosen {
            id,
            logprob,
            entropy: (own.sum.ln() - own.mean).max(0.0) as f32,
            tempered: tempered.unwrap_or(logprob),
        })
    }

    /// Whether candidates may be truncated before a draw.
    fn truncates(&self, vocab_size: usize) -> bool {
        let Sampling {
            top_k,
            top_p,
            min_p,
            ..
        } = self.sampling;
        (1..vocab_size).contains(&top_k) || top_p < 1.0 || min_p > 0.0
    }

    /// 0 is greedy, and so is what is too cold to divide logits by without an overflow.
    fn temperature(&self) -> f32 {
        match self.sampling.temperature {
            temperature if temperature < COLDEST => 0.0,
            temperature => temperature,
        }
    }

    /// Repetition penalty and temperature.
    fn adjust(&mut self, logits: &[f32]) {
        let penalty = self.sampling.repetition_penalty;
        let temperature = self.temperature();
        let scale = if temperature > 0.0 { temperature } else { 1.0 };
        self.adjusted.clear();
        self.adjusted.extend_from_slice(logits);
        for (logit, _) in self
            .adjusted
            .iter_mut()
            .zip(&self.seen)
            .filter(|(_, s)| **s)
        {
            *logit = if *logit > 0.0 {
                *logit / penalty
            } else {
                *logit * penalty
            };
        }
        self.adjusted.iter_mut().for_each(|logit| *logit /= scale);
    }

    /// Makes every token that is not forbidden a candidate, with the given logits or else the adjusted ones.
    fn reset_candidates(&mut self, logits: Option<&[f32]>) {
        let logits = logits.unwrap_or(&self.adjusted);
        let all = (0..).zip(logits.iter().copied());
        self.candidates.clear();
        if self.constraint.is_some() {
            let allowed = all.clone().filter(|&(_, logit)| logit > FORBIDDEN);
            self.candidates.extend(allowed);
        }
        // All, too, if the model's own logits are as low as that.
        if self.candidates.is_empty() {
            self.candidates.extend(all);
        }
    }

    fn apply_top_k(&mut self) {
        let k = self.sampling.top_k;
        if k == 0 || k >= self.candidates.len() {
            return;
        }
        self.candidates.select_nth_unstable_by(k - 1, by_logit);
        let last = self.candidates[k - 1].1;
        self.candidates.retain(|&(_, x)| x >= last);
        self.candidates.sort_unstable_by(by_logit);
    }

    fn apply_top_p(&mut self) {
        let p = f64::from(self.sampling.top_p);
        if p >= 1.0 {
            return;
        }
        let wanted = p * weigh(&self.candidates).sum::<f64>();
        let n = self.candidates.len();
        let mut look = INITIAL_CANDIDATES.min(n);
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
                // All of it: rounding kept the sum below.
                None if look == n => return,
                None => look = (look * 8).min(n),
            }
        }
    }

    fn apply_min_p(&mut self) {
        let min_p = self.sampling.min_p;
        if min_p <= 0.0 {
            return;
        }
        let least = highest(&self.candidates) + min_p.ln();
        let best = self.best();
        self.candidates
            .retain(|&(id, x)| x >= least || Some(id) == best);
    }

    /// A number in [0, 1) for new token `index`.
    fn uniform(&self, index: u64) -> f64 {
        Rng::new(self.sampling.seed, Stream::Sample, index, self.number).uniform_f64()
    }

    /// Draws from the remaining candidates.
    fn draw(&mut self, index: u64) -> u32 {
        let total: f64 = weigh(&self.candidates).sum();
        let mut left = self.uniform(index) * total;
        for (&(id, _), weight) in self.candidates.iter().zip(weigh(&self.candidates)) {
            left -= weight;
            if left < 0.0 {
                return id;
            }
        }
        // Rounding can leave a remainder: it goes to the most likely token.
        self.best().unwrap_or_default()
    }

    /// Draws from all of `logits`, whose softmax is in `weights`.
    fn draw_of_all(&self, logits: &[f32], index: u64) -> u32 {
        let place = distribution::sample(&self.weights, self.uniform(index));
        place.map_or_else(|| greedy(logits), |at| at as u32)
    }

    /// The first of the most likely candidates.
    fn best(&self) -> Option<u32> {
        let best = self.candidates.iter().copied();
        best.reduce(|best, next| if next.1 > best.1 { next } else { best })
            .map(|(id, _)| id)
    }
}

/// Most likely first; ties by id.
fn by_logit(a: &(u32, f32), b: &(u32, f32)) -> std::cmp::Ordering {
    b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
}

/// The index of the first maximum.
fn greedy(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate();
    let best = best.reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.map_or(0, |(at, _)| at as u32)
}

fn highest(candidates: &[(u32, f32)]) -> f32 {
    candidates
        .iter()
        .fold(f32::NEG_INFINITY, |top, &(_, x)| top.max(x))
}

/// Unnormalized probabilities.
fn weigh(candidates: &[(u32, f32)]) -> impl Iterator<Item = f64> {
    let top = highest(candidates);
    candidates
        .iter()
        .map(move |&(_, x)| f64::from(exp(x - top)))
}

#[cfg(test)]
mod tests;
