//! Text for the eye: a continuation of the prompt by the weights as they are.

use super::context::RunContext;
use super::roles::Models;
use super::rollouts::stops;
use crate::base::sampling::{ContextLimit, Sampling};
use crate::data::Dataset;
use crate::kernels::errors::error_text;
use crate::nn::generate::{Continuing, GeneratedToken, Prompt, WhenFull, generate, generate_by};
use crate::wire::{Event, Phase};
use std::ops::ControlFlow;

/// Held-out questions that are answered in a sample.
const QUESTIONS: usize = 2;

/// What a sample continues.
struct Given {
    text: String,
    tokens: Vec<u32>,
}

impl Given {
    fn of_text(text: &str, data: &Dataset) -> Result<Given, String> {
        let tokens = data
            .tokenizer
            .encode(text)
            .map_err(|e| format!("the prompt: {e}; {}", e.hint()))?;
        if tokens.is_empty() {
            return Err("the prompt is empty: give at least one character".into());
        }
        Ok(Given {
            text: text.into(),
            tokens,
        })
    }
}

/// Where only answers are supervised: the first held-out questions, as their template renders them, the same ones each
/// time. Nothing where a text is supervised from its beginning.
fn questions(data: &Dataset) -> Vec<Given> {
    let batch = data.val_batch(0, QUESTIONS);
    let rows = (0..batch.batch_size).step_by(batch.unit.sequences());
    let question = |row: usize| {
        let at = row * batch.seq_len;
        let mask = batch.mask.get(at..at + batch.seq_len)?;
        let given = mask.iter().position(|counts| *counts).filter(|n| *n > 0)?;
        let mut tokens = vec![batch.inputs[at]];
        tokens.extend(&batch.targets[at..at + given]);
        Some(Given {
            text: data.tokenizer.decode(&tokens),
            tokens,
        })
    };
    rows.filter_map(question).collect()
}

/// Continues a prompt by the policy, on its ranks where it has some; the text is the continuation alone. `broken_off` is asked before
/// every token.
fn continuation(
    models: &mut Models,
    data: &Dataset,
    tokens: &[u32],
    sampling: &Sampling,
    broken_off: &mut dyn FnMut() -> bool,
) -> Result<String, String> {
    let mut ids = Vec::new();
    let mut cut = None;
    let how = Continuing {
        sampling,
        ends: &data.ends,
        when_full: match sampling.context {
            ContextLimit::Stop => WhenFull::Stop,
            ContextLimit::Auto | ContextLimit::Roll => WhenFull::Roll,
        },
    };
    let mut hear = |token: GeneratedToken| {
        ids.push(token.id);
        if !sampling.stop.is_empty() {
            cut = stop_at(&data.tokenizer.decode(&ids), &sampling.stop);
        }
        if cut.is_some() || broken_off() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let policy = &mut models.policy;
    let result = match &mut models.remote {
        Some(remote) => {
            remote.push(policy).map_err(error_text)?;
            let (policy, prompt) = (&*policy, Prompt { tokens, number: 0 });
            generate_by(
                policy,
                move |room| remote.texts(policy, 1, room),
                &[prompt],
                how,
                &mut |_, token| hear(token),
            )
            .map(|_| ())
        }
        None => generate(policy, tokens, how, &mut hear).map(|_| ()),
    };
    result.map_err(error_text)?;
    let mut text = data.tokenizer.decode(&ids);
    if let Some(at) = cut {
        text.truncate(at);
    }
    Ok(text)
}

/// Where the earliest stop string begins.
fn stop_at(text: &str, stop: &[String]) -> Option<usize> {
    stop.iter()
        .filter(|s| !s.is_empty())
        .filter_map(|s| text.find(s.as_str()))
        .min()
}

impl RunContext<'_, '_> {
    /// The sample that the spec's rhythm asks for. It is for the eye: a prompt that cannot be read is a warning.
    pub(super) fn sample_on_schedule(&mut self) {
        let step = self.step();
        let sample = &self.spec.sample;
        if self.spec.model.is_reward_model() {
            return;
        }
        if let Err(why) = self.sample_now(&sample.prompt, &sample.sampling) {
            self.port
                .warn(step, "sample_failed", why, "change sample.prompt");
        }
        self.state.progress.sampled_at = Some(step);
    }

    /// Samples and reports it. An empty prompt (blanks and line breaks) of a run that learns answers means its held-out
    /// questions: without its template such a model only goes on with line breaks.
    pub(super) fn sample_now(&mut self, prompt: &str, sampling: &Sampling) -> Result<(), String> {
        if self.spec.model.is_reward_model() {
            return Err("a reward model scores answers and writes none".into());
        }
        self.state.show_average(true).map_err(error_text)?;
        let mut given = match prompt.trim().is_empty() {
            true => questions(&self.data),
            false => Vec::new(),
        };
        if given.is_empty() {
            given.push(Given::of_text(prompt, &self.data)?);
        }
        let mut sampling = sampling.clone();
        // Answers end where those of the rollouts do.
        if self.spec.method.on_policy().is_some() && sampling.stop.is_empty() {
            sampling.stop = stops(&self.spec.rollout, &self.data);
        }
        given
            .iter()
            .try_for_each(|given| self.sample_one(given, &sampling))
    }

    fn sample_one(&mut self, given: &Given, sampling: &Sampling) -> Result<(), String> {
        let step = self.step();
        self.port.enter(Phase::Sampling, step);
        let begun = self.port.clock.elapsed();
        let port = &mut *self.port;
        let text = continuation(
            &mut self.state.models,
            &self.data,
            &given.tokens,
            sampling,
            &mut || port.stop_is_waiting(),
        )?;
        let seconds = (self.port.clock.elapsed() - begun).as_secs_f64();
        self.port.emit(Event::Sampled {
            step,
            prompt: given.text.clone(),
            text,
            seconds,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_stop_string_cuts() {
        let stop = ["END".to_string(), "\n\n".to_string(), String::new()];
        assert_eq!(stop_at("ab\n\ncEND", &stop), Some(2));
        assert_eq!(stop_at("abc", &stop), None);
    }
}
