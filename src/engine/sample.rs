//! Text for the eye: a continuation of the prompt by the weights as they are.

use super::context::RunContext;
use crate::base::sampling::{ContextLimit, Sampling};
use crate::data::Dataset;
use crate::nn::Model;
use crate::nn::generate::{Continuing, WhenFull, generate};
use crate::wire::{Event, Phase};
use std::ops::ControlFlow;

/// Continues `prompt`; the text is the continuation alone. `broken_off` is asked before every token.
pub fn continuation(
    model: &mut Model,
    data: &Dataset,
    prompt: &str,
    sampling: &Sampling,
    broken_off: &mut dyn FnMut() -> bool,
) -> Result<String, String> {
    let tokens = data
        .tokenizer
        .encode(prompt)
        .map_err(|e| format!("the prompt: {e}; {}", e.hint()))?;
    if tokens.is_empty() {
        return Err("the prompt is empty: give at least one character".into());
    }
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
    let result = generate(model, &tokens, how, &mut |token| {
        ids.push(token.id);
        if !sampling.stop.is_empty() {
            cut = stop_at(&data.tokenizer.decode(&ids), &sampling.stop);
        }
        if cut.is_some() || broken_off() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    result.map_err(|e| e.to_string())?;
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
        if let Err(why) = self.sample_now(&sample.prompt, &sample.sampling) {
            self.port
                .warn(step, "sample_failed", why, "change sample.prompt");
        }
        self.state.progress.sampled_at = Some(step);
    }

    /// Samples and tells.
    pub(super) fn sample_now(&mut self, prompt: &str, sampling: &Sampling) -> Result<(), String> {
        let step = self.step();
        self.port.enter(Phase::Sampling, step);
        let begun = self.port.clock.elapsed();
        let port = &mut *self.port;
        let text = continuation(
            &mut self.state.models.policy,
            &self.data,
            prompt,
            sampling,
            &mut || port.stop_is_waiting(),
        )?;
        let seconds = (self.port.clock.elapsed() - begun).as_secs_f64();
        self.port.emit(Event::Sampled {
            step,
            prompt: prompt.into(),
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
