//! What ranks answer of the tokens of a batch.

use crate::nn::{TeacherScores, TokenOutputs, TokenValues};
use candle_core::{Device, Result, Tensor};

/// Values of the tokens of a whole batch; the teacher's are empty without one.
#[derive(Debug)]
pub(super) struct TokenRows {
    logp: Vec<f32>,
    entropy: Vec<f32>,
    top1: Vec<f32>,
    teacher: TeacherScores,
}

impl Default for TokenRows {
    fn default() -> Self {
        let none = Vec::new;
        TokenRows {
            logp: none(),
            entropy: none(),
            top1: none(),
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
    pub fn parts(&mut self) -> [&mut Vec<f32>; 6] {
        let TeacherScores {
            divergence,
            entropy,
            agrees,
        } = &mut self.teacher;
        [
            &mut self.logp,
            &mut self.entropy,
            &mut self.top1,
            divergence,
            entropy,
            agrees,
        ]
    }

    fn is_taught(&self) -> bool {
        !self.teacher.divergence.is_empty()
    }

    pub fn view(&self) -> TokenValues<'_> {
        TokenValues {
            logp: &self.logp,
            entropy: &self.entropy,
            top1: &self.top1,
            value: None,
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
            value: None,
            teacher: self.is_taught().then_some(self.teacher),
        })
    }
}
