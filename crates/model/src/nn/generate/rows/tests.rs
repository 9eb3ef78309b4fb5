//! Texts that join, leave and are written side by side equal texts alone, to the bit.

use super::*;
use crate::nn::generate::GenerateError;

/// What one text has besides its settings.
#[derive(Default)]
pub(crate) struct Extras {
    pub top: usize,
    pub constraint: Option<Box<dyn Constraint>>,
}

/// One text in rows that keep what is cached.
pub(crate) fn generate_on(
    model: &mut Model,
    rows: &mut Rows,
    prompt: &[u32],
    how: Continuing,
    extras: Extras,
    on_step: &mut dyn FnMut(Step) -> ControlFlow<()>,
) -> Result<Generated> {
    let asked = Asked {
        prompt: prompt.to_vec(),
        sampling: how.sampling.clone(),
        ends: how.ends.to_vec(),
        when_full: how.when_full,
        top: extras.top,
        constraint: extras.constraint,
        scores_prompt: false,
        afresh: false,
    };
    one(model, rows, asked, on_step)
}

/// Scores a prompt; whether that was broken off.
pub(crate) fn score_prompt(
    model: &mut Model,
    rows: &mut Rows,
    prompt: &[u32],
    top: usize,
    on_tokens: &mut dyn FnMut(Vec<PromptToken>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>> {
    let asked = Asked {
        top,
        scores_prompt: true,
        ..asked(prompt, 0, 0.0, 0)
    };
    let generated = one(model, rows, asked, &mut |step| match step {
        Step::Scored(tokens) => on_tokens(tokens.to_vec()),
        _ => ControlFlow::Continue(()),
    })?;
    Ok(match generated.finish {
        Finish::Stopped => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    })
}

fn one(
    model: &mut Model,
    rows: &mut Rows,
    asked: Asked,
    on_step: &mut dyn FnMut(Step) -> ControlFlow<()>,
) -> Result<Generated> {
    let at = rows.join(model, asked)?.expect("a free row");
    loop {
        let ended = rows.write(model, &mut |progress| match progress {
            Progress::Row(_, step) => on_step(step),
            Progress::Between => ControlFlow::Continue(()),
        })?;
        if let Some((_, generated)) = ended.into_iter().find(|(row, _)| *row == at) {
            return generated;
        }
    }
}

fn asked(prompt: &[u32], max_new_tokens: usize, temperature: f32, seed: u64) -> Asked {
    Asked {
        prompt: prompt.to_vec(),
        sampling: Sampling {
            temperature,
            max_new_tokens,
            seed,
            ..Sampling::default()
        },
        ends: Vec::new(),
        when_full: WhenFull::Roll,
        top: 0,
        constraint: None,
        scores_prompt: false,
        afresh: true,
    }
}
