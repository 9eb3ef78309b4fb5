//! Models of one architecture merged into one, tensor by tensor as files have them. Names and defaults are mergekit's.

mod linear;
mod slerp;
mod task_arithmetic;
#[cfg(test)]
mod tests;

use crate::base::rng::{Rng, Stream};
use crate::nn::ParamInfo;
use serde_json::Value;

/// How models are merged.
#[derive(Debug, Clone, Copy)]
pub struct Method {
    pub word: &'static str,
    /// What it does, in half a sentence.
    pub summary: &'static str,
    /// The first model is the one that the others were trained from.
    pub has_base: bool,
    /// Divides by the sum of the weights, unless the settings say otherwise.
    pub normalizes: bool,
    /// The settings that it reads besides the weights.
    pub reads: &'static [Setting],
    /// Merges one tensor; see [`Tensors`].
    merge: fn(&Tensors, &Settings, &mut [f32]),
}

/// Every method: one file and one word here.
pub const METHODS: [&Method; 6] = [
    &linear::LINEAR,
    &slerp::SLERP,
    &task_arithmetic::TASK_ARITHMETIC,
    &task_arithmetic::TIES,
    &task_arithmetic::DARE_LINEAR,
    &task_arithmetic::DARE_TIES,
];

/// The method of a word.
pub fn method(word: &str) -> Option<&'static Method> {
    METHODS.into_iter().find(|method| method.word == word)
}

/// A setting that only some methods read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    T,
    Density,
    Scale,
    Normalize,
    Seed,
}

impl Setting {
    /// Its name, as mergekit has it.
    pub fn word(self) -> &'static str {
        match self {
            Setting::T => "t",
            Setting::Density => "density",
            Setting::Scale => "lambda",
            Setting::Normalize => "normalize",
            Setting::Seed => "seed",
        }
    }

    /// Its value.
    pub fn value(self, settings: &Settings) -> Value {
        match self {
            Setting::T => settings.t.into(),
            Setting::Density => settings.density.into(),
            Setting::Scale => settings.scale.into(),
            Setting::Normalize => settings.normalize.into(),
            Setting::Seed => settings.seed.into(),
        }
    }
}

/// What a merge is told.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Of each model but the base.
    pub weights: Vec<f64>,
    /// The place between the first model, 0, and the second, 1.
    pub t: f64,
    /// The share of a model's changes that is kept.
    pub density: f64,
    /// Multiplies the sum of all changes: λ.
    pub scale: f64,
    /// Divide by the sum of the weights.
    pub normalize: bool,
    /// Of the changes that are dropped at random.
    pub seed: u64,
}

impl Settings {
    /// Of `weights`, with mergekit's defaults.
    pub fn new(method: &Method, weights: Vec<f64>) -> Settings {
        Settings {
            weights,
            t: 0.5,
            density: 1.0,
            scale: 1.0,
            normalize: method.normalizes,
            seed: 0,
        }
    }
}

/// The values of one tensor.
#[derive(Debug)]
struct Tensors<'a> {
    /// Its number, for what is drawn at random.
    at: usize,
    /// Of the base, if the method has one.
    base: Option<&'a [f32]>,
    /// Of each other model.
    models: &'a [Vec<f32>],
}

impl Tensors<'_> {
    /// Random numbers of this tensor of model `at`.
    fn rng(&self, seed: u64, at: usize) -> Rng {
        Rng::new(seed, Stream::Merge, at as u64, self.at as u32)
    }
}

/// The first difference of two architectures that keeps their weights apart: both as text.
pub fn difference(a: &[ParamInfo], b: &[ParamInfo]) -> Option<(String, String)> {
    let parts = a.iter().zip(b).map(|(a, b)| (part(a), part(b)));
    let mut differing = parts.filter(|(a, b)| a != b);
    let longer = || {
        let more = |all: &[ParamInfo], n: usize| match all.get(n) {
            Some(info) => part(info),
            None => "nothing".into(),
        };
        let n = a.len().min(b.len());
        (a.len() != b.len()).then(|| (more(a, n), more(b, n)))
    };
    differing.next().or_else(longer)
}

fn part(info: &ParamInfo) -> String {
    format!("{} {:?}", info.name, info.shape)
}

/// Merges the values of tensor number `at`, the base's first if the method has one. Each tensor is merged by itself, in f32 with sums
/// over a whole tensor in f64.
pub fn merge(
    method: &Method,
    settings: &Settings,
    at: usize,
    mut values: Vec<Vec<f32>>,
) -> Vec<f32> {
    let base = (method.has_base && !values.is_empty()).then(|| values.remove(0));
    let len = base.as_ref().or(values.first()).map_or(0, Vec::len);
    let mut merged = vec![0.0; len];
    let tensors = Tensors {
        at,
        base: base.as_deref(),
        models: &values,
    };
    (method.merge)(&tensors, settings, &mut merged);
    merged
}

/// Tensors as large as the largest that a merge of `n` models, the base among them, holds: their values, what they changed, the sizes
/// of those changes, the result, and a parameter of which a tensor is a part.
pub fn tensors_held(n: usize) -> usize {
    2 * n + 3
}
