//! Sample texts: continuations of the prompt by the current weights.

use super::context::RunContext;
use super::roles::Models;
use super::rollouts::stops;
use crate::base::sampling::{ContextLimit, Sampling};
use crate::data::chat::GenerationPrompt;
use crate::data::chat::tool_calls::{Answers, Said, Writing};
use crate::data::render::decoded;
use crate::data::{Dataset, Message, Tokenizer};
use crate::kernels::errors::error_text;
use crate::nn::generate::{
    Continuing, GeneratedToken, Prompt, WhenFull, generate_batch, generate_by,
};
use crate::spec::RunSpec;
use crate::wire::{Event, Phase};
use std::ops::ControlFlow;

/// Held-out questions that are answered in a sample.
const QUESTIONS: usize = 2;

/// The prompt of a sample.
struct Given {
    text: String,
    tokens: Vec<u32>,
    /// What is generated continues its text, with a space between words; the answer to a turn is a text of its own, as in chat.
    continues: bool,
}

impl Given {
    fn of_text(text: &str, tokenizer: &Tokenizer) -> Result<Given, String> {
        let tokens = tokenizer
            .encode_begun(text)
            .map_err(|e| format!("the prompt: {e}; {}", e.hint()))?;
        if tokens.is_empty() {
            return Err("the prompt is empty: give at least one character".into());
        }
        Ok(Given {
            text: text.into(),
            tokens,
            continues: true,
        })
    }

    /// What a user asks: a turn of its own where the run is on conversations, as in chat. A text that the template has written
    /// already, or of a run on plain texts, is continued as it stands.
    fn of_user(text: &str, data: &Dataset) -> Result<Given, String> {
        let Some(template) = data.template.as_ref().filter(|t| !t.has_written(text)) else {
            return Given::of_text(text, &data.tokenizer);
        };
        // As rows are in training.
        let turn = decoded(&[Message::new("user", text)]);
        let rendered = template.render(&turn, None, GenerationPrompt::With);
        let text = rendered.map_err(|e| format!("the prompt: {e}; {}", e.hint()))?;
        let tokens = data.tokenizer.encode(&text);
        Ok(Given {
            tokens: tokens.map_err(|e| format!("the prompt: {e}; {}", e.hint()))?,
            text,
            continues: false,
        })
    }

    /// What is generated behind it; thoughts are set apart in the answer to a turn.
    fn writing<'a>(
        &'a self,
        answers: Answers,
        tokenizer: &'a Tokenizer,
        until: &'a [String],
    ) -> Writing<'a> {
        let answers = match self.continues {
            true => Answers::default(),
            false => answers,
        };
        Writing::new(answers, &self.text, tokenizer, until)
    }

    /// What was generated after it, up to the earliest stop text.
    fn answer(&self, writing: &Writing) -> Said {
        let whole = match self.continues {
            true => writing.finish_behind(&self.tokens),
            false => writing.finish(),
        };
        whole.said
    }
}

/// Where only answers are supervised: the first held-out questions, as their template renders them, the same ones each
/// time. Nothing where a text is supervised from its beginning.
fn questions(data: &Dataset) -> Vec<Given> {
    let numbers = data.first_val_rows(QUESTIONS);
    let batch = data.val_rows(&numbers);
    let rows = (0..batch.batch_size).step_by(batch.unit.sequences());
    let question = |(row, number): (usize, u64)| {
        let at = row * batch.seq_len;
        let mask = batch.mask.get(at..at + batch.seq_len)?;
        let given = mask.iter().position(|counts| *counts).filter(|n| *n > 0)?;
        let mut tokens = vec![batch.inputs[at]];
        tokens.extend(&batch.targets[at..at + given]);
        Some(Given {
            text: data.tokenizer.decode(&tokens),
            tokens,
            continues: !data.is_val_row_templated(number),
        })
    };
    rows.zip(numbers).filter_map(question).collect()
}

/// Continues prompts by the policy, side by side, on its ranks where it has some; the texts are the continuations alone. `broken_off`
/// is asked before every token.
fn continuations(
    models: &mut Models,
    data: &Dataset,
    given: &[Given],
    sampling: &Sampling,
    broken_off: &mut dyn FnMut() -> bool,
) -> Result<Vec<Said>, String> {
    let answers = data.answers();
    let mut writings: Vec<Writing> = given
        .iter()
        .map(|given| given.writing(answers, &data.tokenizer, &sampling.stop))
        .collect();
    let how = Continuing {
        sampling,
        ends: &data.ends,
        when_full: match sampling.context {
            ContextLimit::Stop => WhenFull::Stop,
            ContextLimit::Auto | ContextLimit::Roll => WhenFull::Roll,
        },
    };
    let mut hear = |text: usize, token: GeneratedToken| {
        let ends = writings[text].push(token.id);
        match broken_off() {
            true => ControlFlow::Break(()),
            false => ends,
        }
    };
    // Each draws as it would alone.
    let prompts: Vec<Prompt> = given
        .iter()
        .map(|given| Prompt {
            tokens: &given.tokens,
            number: 0,
        })
        .collect();
    let policy = &mut models.policy;
    let result = match &mut models.remote {
        Some(remote) => {
            remote.push(policy).map_err(error_text)?;
            let (policy, texts) = (&*policy, prompts.len());
            generate_by(
                policy,
                move |room| remote.texts(policy, texts, room),
                &prompts,
                how,
                &mut hear,
            )
        }
        None => generate_batch(policy, &prompts, how, &mut hear),
    };
    result.map_err(error_text)?;
    let texts = given.iter().zip(&writings);
    Ok(texts
        .map(|(given, writing)| given.answer(writing))
        .collect())
}

/// The default stop strings for a run's model: those of its samples; of an on-policy method without any, those of its rollouts.
pub(crate) fn answer_stops(spec: &RunSpec, ends: &[u32]) -> Vec<String> {
    let said = &spec.sample.sampling.stop;
    match said.is_empty() && spec.method.on_policy().is_some() {
        true => stops(&spec.rollout, ends),
        false => said.clone(),
    }
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
            // Lost ranks are reported with the consequence for the run.
            if self.state.models.lost().is_none() {
                self.port
                    .warn(step, "sample_failed", why, "change sample.prompt");
            }
        }
        self.state.progress.sampled_at = Some(step);
    }

    /// Samples and reports it. An empty prompt (blanks and line breaks) of a run that learns answers means its held-out
    /// questions: without its template such a model only goes on with line breaks. Any other one is asked there as a user's turn.
    /// Texts begin after a line break.
    pub(super) fn sample_now(&mut self, prompt: &str, sampling: &Sampling) -> Result<(), String> {
        if self.spec.model.is_reward_model() {
            return Err("a reward model scores completions and cannot generate".into());
        }
        self.state.show_average(true).map_err(error_text)?;
        let mut given = match prompt.trim().is_empty() {
            true => questions(&self.data),
            false => Vec::new(),
        };
        if given.is_empty() {
            let prompt = if prompt.is_empty() { "\n" } else { prompt };
            given.push(match prompt.trim().is_empty() {
                true => Given::of_text(prompt, &self.data.tokenizer)?,
                false => Given::of_user(prompt, &self.data)?,
            });
        }
        let mut sampling = sampling.clone();
        if sampling.stop.is_empty() {
            sampling.stop = answer_stops(self.spec, &self.data.ends);
        }
        let step = self.step();
        self.port.enter(Phase::Sampling, step);
        let begun = self.port.clock.elapsed();
        let port = &mut *self.port;
        let texts = continuations(
            &mut self.state.models,
            &self.data,
            &given,
            &sampling,
            &mut || port.stop_pending(),
        )?;
        let seconds = (self.port.clock.elapsed() - begun).as_secs_f64() / given.len() as f64;
        for (given, said) in given.into_iter().zip(texts) {
            self.port.emit(Event::Sampled {
                step,
                prompt: given.text,
                thought: said
                    .thought
                    .filter(|thought| said.is_unfinished || !thought.trim().is_empty()),
                text: said.text,
                seconds,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts in training begin with `<s>`; samples began without it.
    #[test]
    fn a_sample_begins_as_the_texts_of_training_do() {
        let json = serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": {"type": "Whitespace"}, "decoder": null,
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
            },
            "model": {"type": "WordLevel", "vocab": {"?": 0, "<s>": 1, "once": 2}, "unk_token": "?"},
        });
        let tokenizer = Tokenizer::from_json(&json.to_string()).unwrap();
        let given = Given::of_text("once", &tokenizer).unwrap();
        assert_eq!((&*given.text, given.tokens), ("once", vec![1, 2]));
    }

    /// After Llama 2's `[/INST]` the answer begins with the token `▁Yes`: its space separates words only in a text that goes on.
    #[test]
    fn an_answer_to_a_turn_begins_without_the_space_between_words() {
        let space = serde_json::json!({
            "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": false,
        });
        let json = serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": space, "post_processor": null, "decoder": space,
            "model": {"type": "BPE", "vocab": {"▁ask": 0, "]": 1, "▁Yes": 2, "▁no": 3}, "merges": []},
        });
        let tokenizer = Tokenizer::from_json(&json.to_string()).unwrap();
        let answer = |given: &Given, ids: [u32; 2]| {
            let mut writing = given.writing(Answers::default(), &tokenizer, &[]);
            ids.iter().for_each(|id| {
                let _ = writing.push(*id);
            });
            given.answer(&writing).text
        };
        let given = |continues| Given {
            text: "ask]".into(),
            tokens: vec![0, 1],
            continues,
        };
        assert_eq!(answer(&given(false), [2, 3]), "Yes no");
        assert_eq!(answer(&given(true), [2, 3]), " Yes no");
    }
}
