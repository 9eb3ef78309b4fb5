//! What ranks answer of the tokens of a batch.

use crate::nn::{TeacherScores, TokenOutputs, TokenValues};
use candle_core::{Device, Result, Tensor};

/// What an answer has besides log-probabilities, entropies and top-1 marks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts {
    pub value: bool,
    pub teacher: bool,
}

impl Parts {
    pub fn count(self) -> usize {
        3 + if self.value { 1 } else { 0 } + if self.teacher { 3 } else { 0 }
    }
}

/// Values of the tokens of a whole batch; those that an answer does not have are empty.
#[derive(Debug)]
pub(super) struct TokenRows {
    logp: Vec<f32>,
    entropy: Vec<f32>,
    top1: Vec<f32>,
    value: Vec<f32>,
    teacher: TeacherScores,
}

impl Default for TokenRows {
    fn default() -> Self {
        let none = Vec::new;
        TokenRows {
            logp: none(),
            entropy: none(),
            top1: none(),
            value: none(),
            teacher: TeacherScores {
                divergence: none(),
                entropy: none(),
                agrees: none(),
            },
        }
    }
}

impl TokenRows {
    /// In the order of a rank's answer.
    pub fn parts(&mut self, of: Parts) -> Vec<&mut Vec<f32>> {
        let TeacherScores {
            divergence,
            entropy,
            agrees,
        } = &mut self.teacher;
        let mut parts = vec![&mut self.logp, &mut self.entropy, &mut self.top1];
        if of.teacher {
            parts.extend([divergence, entropy, agrees]);
        }
        if of.value {
            parts.push(&mut self.value);
        }
        parts
    }

    fn is_taught(&self) -> bool {
        !self.teacher.divergence.is_empty()
    }

    pub fn view(&self) -> TokenValues<'_> {
        TokenValues {
            logp: &self.logp,
            entropy: &self.entropy,
            top1: &self.top1,
            value: (!self.value.is_empty()).then_some(&*self.value),
            teacher: self.is_taught().then(|| self.teacher.view()),
        }
    }

    /// As an evaluation keeps them, (rows, tokens) each.
    pub fn outputs(self, shape: (usize, usize)) -> Result<TokenOutputs> {
        let tensor = |values: &[f32]| Tensor::from_slice(values, shape, &Device::Cpu);
        Ok(TokenOutputs {
            logp: tensor(&self.logp)?,
            entropy: tensor(&self.entropy)?,
            top1: tensor(&self.top1)?,
            value: match self.value.is_empty() {
                true => None,
                false => Some(tensor(&self.value)?),
            },
            teacher: self.is_taught().then_some(self.teacher),
        })
    }
}
