//! The model that a task runs on: this program's own, or one on PyTorch's ranks.

use crate::nn::continuations::{self, Group, Scores};
use crate::nn::generate::{
    Continuing, GenerateError, Generated, GeneratedToken, Prompt, generate_batch,
};
use crate::nn::{Model, ModelConfig, ModelShape, error_text};
use std::ops::ControlFlow;

/// A model that scores texts and writes answers. Its errors are sentences.
pub trait AskedModel {
    fn shape(&self) -> &ModelShape;

    fn config(&self) -> &ModelConfig;

    /// Scores of every continuation of every group, in their order.
    ///
    /// # Errors
    /// As [`continuations::score`]; whoever holds the weights is gone.
    fn score(&mut self, groups: &[Group]) -> Result<Vec<Vec<Scores>>, String>;

    /// Continues prompts side by side, as [`generate_batch`] does.
    ///
    /// # Errors
    /// As [`generate_batch`]; whoever holds the weights is gone.
    fn answer(
        &mut self,
        prompts: &[Prompt],
        how: Continuing,
        on_token: &mut dyn FnMut(usize, GeneratedToken) -> ControlFlow<()>,
    ) -> Result<Vec<Generated>, GenerateError>;
}

impl AskedModel for Model {
    fn shape(&self) -> &ModelShape {
        Model::shape(self)
    }

    fn config(&self) -> &ModelConfig {
        Model::config(self)
    }

    fn score(&mut self, groups: &[Group]) -> Result<Vec<Vec<Scores>>, String> {
        continuations::score(self, groups).map_err(error_text)
    }

    fn answer(
        &mut self,
        prompts: &[Prompt],
        how: Continuing,
        on_token: &mut dyn FnMut(usize, GeneratedToken) -> ControlFlow<()>,
    ) -> Result<Vec<Generated>, GenerateError> {
        Ok(generate_batch(self, prompts, how, on_token)?)
    }
}
