//! Evaluation tasks during training (`eval.tasks`): the current weights are evaluated as `llmtui eval` would evaluate a
//! checkpoint. Rows are read before the first step, so that missing ones are known then. Answers are in the run's folder
//! under `evals/`.

use super::broken::NonFinite;
use super::checkpoint::{Fault, Manifest, name_of};
use super::context::RunContext;
use super::due::is_due;
use super::roles::Models;
use super::{EngineError, EngineJob};
use crate::base::child::Child;
use crate::base::files::sync_dir;
use crate::base::text::one_line;
use crate::data::chat::tool_calls::Answers;
use crate::data::chat::{AUTO, Template};
use crate::data::source::ReadContext;
use crate::data::tokenizer::Tokenizer;
use crate::hub::HubConfig;
use crate::spec::EvalConfig;
use crate::tasks::{self, AskedModel, Prepared, Request, Run, Subject, TaskError, compared_by};
use crate::wire::{ChartPlace, Direction, Event, MetricInfo, Num, Phase, Values};
use std::ops::ControlFlow;
use std::path::PathBuf;

/// The tasks of a run, with their rows.
pub(super) struct Tasks {
    prepared: Vec<Prepared>,
    folder: PathBuf,
    /// The chat template for prompts of tasks that are asked as turns.
    template: Option<Template>,
    /// How answers to those are read.
    answers: Answers,
}

/// Id of the metric of a task.
fn metric_id(task: &str) -> String {
    format!("eval/{task}")
}

/// Id of its standard error.
fn stderr_id(task: &str) -> String {
    format!("eval_stderr/{task}")
}

/// Steps that are evaluated by tasks: every so many, or at the quarters; before the first step in any case, because a rise or a
/// drop is measured against it.
pub(super) fn are_due(
    step: u64,
    config: &EvalConfig,
    max_steps: u64,
    done_at: Option<u64>,
) -> bool {
    let quarters = [1, 2, 3].map(|n| n * max_steps / 4);
    let on_beat = config.task_every == 0 && step > 0 && quarters.contains(&step);
    let begins = step == 0 || on_beat;
    begins && done_at != Some(step) || is_due(step, config.task_every, max_steps, done_at)
}

impl Tasks {
    /// Reads the rows of the spec's tasks.
    ///
    /// # Errors
    /// A task that is unknown, or whose rows cannot be had.
    pub(super) fn read(job: &EngineJob) -> Result<Tasks, EngineError> {
        if job.spec.model.is_reward_model() && !job.spec.eval.tasks.is_empty() {
            let what = "eval.tasks: a reward model cannot generate; remove them";
            return Err(EngineError::Setup(what.into()));
        }
        let read = ReadContext {
            hub: HubConfig::from_env(&job.env),
            ..ReadContext::default()
        };
        let limit = Some(job.spec.eval.task_limit);
        let one = |word: &String| tasks::load(word, &job.env)?.prepare(limit, &read);
        let prepared = job.spec.eval.tasks.iter().map(one);
        let prepared: Vec<Prepared> = prepared.collect::<Result<_, _>>().map_err(failed)?;
        Manifest::verify_tasks(&prepared).map_err(|(task, fault)| {
            EngineError::Setup(format!(
                "eval.tasks: {task}: the checkpoint of its reward model is damaged: {fault}; {}",
                Fault::HINT
            ))
        })?;
        Ok(Tasks {
            prepared,
            folder: job.run_dir.path().join("evals"),
            template: None,
            answers: Answers::default(),
        })
    }

    /// With the run's chat template, where a task needs one.
    ///
    /// # Errors
    /// The run has none.
    pub(super) fn with_template(self, tokenizer: &Tokenizer) -> Result<Tasks, EngineError> {
        let Some(chat) = self.prepared.iter().find(|task| task.task.config().chat) else {
            return Ok(self);
        };
        let template = Template::choose(AUTO, tokenizer, &Child::of_this_program());
        let template = template.map_err(|e| EngineError::Setup(e.to_string()))?;
        if template.is_none() {
            return Err(EngineError::Setup(format!(
                "eval.tasks: {} needs a chat template, and this run has none: it trains on plain text; remove the task",
                one_line(&chat.task.config().name)
            )));
        }
        Ok(Tasks {
            answers: Answers::of(template.as_ref(), tokenizer),
            template,
            ..self
        })
    }

    pub(super) fn declarations(&self) -> Vec<MetricInfo> {
        self.prepared.iter().flat_map(declared).collect()
    }

    /// Whether they are asked now.
    pub(super) fn are_due(&self, cx: &RunContext<'_, '_>) -> bool {
        let (spec, asked_at) = (cx.spec, cx.state.progress.asked_at);
        !self.prepared.is_empty() && are_due(cx.step(), &spec.eval, spec.train.max_steps, asked_at)
    }

    /// Asks the weights as they are. A stop breaks it off; then nothing is reported, and it is done at the resume. Returns what is
    /// wrong where the weights give NaN; then nothing is reported either.
    ///
    /// # Errors
    /// A task that this model cannot be asked, the disk, the model.
    pub(super) fn ask(
        &self,
        cx: &mut RunContext<'_, '_>,
    ) -> Result<Option<NonFinite>, EngineError> {
        let step = cx.step();
        cx.port.enter(Phase::Evaluating, step);
        cx.state.show_average(true)?;
        let begun = cx.port.clock.elapsed();
        let mut values = Values::new();
        let mut items = 0;
        for prepared in &self.prepared {
            let request = Request {
                prepared,
                folder: &self.folder.join(name_of(step)),
                model: &format!("{} {}", cx.job.run_dir.folder(), name_of(step)),
                fingerprint: tasks::WHILE_TRAINING,
            };
            forget_earlier(&request)?;
            let mut run = Run::open(request).map_err(failed)?;
            let data = &cx.data;
            let Models { policy, remote, .. } = &mut cx.state.models;
            let mut there = None;
            let model: &mut dyn AskedModel = match remote {
                Some(remote) => there.insert(remote.policy_on_ranks(policy)?),
                None => policy,
            };
            let mut subject = Subject::new(model, &data.tokenizer, &data.ends)
                .with_template(self.template.as_ref().map(|it| (it, self.answers)));
            let port = &mut *cx.port;
            let asked = run.evaluate(&mut subject, &mut |_| match port.stop_pending() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            });
            match asked {
                Err(TaskError::NotFinite) => return Ok(Some(no_likelihood(cx))),
                asked => asked.map_err(failed)?,
            }
            if !run.is_whole() {
                return Ok(None);
            }
            let summary = tasks::summarize(prepared.task.config(), &run.finish().records);
            items += summary.items;
            if let Some(reading) = summary.headline() {
                values.insert(metric_id(&summary.task), Num(reading.value));
                if let Some(stderr) = reading.stderr {
                    values.insert(stderr_id(&summary.task), Num(stderr));
                }
            }
        }
        cx.state.progress.asked_at = Some(step);
        cx.note_best(&values);
        cx.port.emit(Event::Evaluated {
            step,
            tokens: cx.state.progress.tokens,
            values,
            n_windows: items as u64,
            whole: false,
            seconds: (cx.port.clock.elapsed() - begun).as_secs_f64(),
        });
        Ok(None)
    }
}

/// Removes the answers of an earlier attempt at this step: after a rollback its weights may have been others.
fn forget_earlier(request: &Request<'_>) -> Result<(), EngineError> {
    match std::fs::remove_file(request.file()) {
        Ok(()) => {
            let _ = sync_dir(request.folder);
            Ok(())
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(EngineError::Machine(format!(
            "{}: {e}",
            request.file().display()
        ))),
    }
}

fn no_likelihood(cx: &RunContext<'_, '_>) -> NonFinite {
    NonFinite {
        what: "a logit or log-probability of a task",
        value: f64::NAN,
        step: cx.step(),
        lr: cx.state.lr(cx.spec),
    }
}

/// The score of a task, and its standard error without a chart.
fn declared(task: &Prepared) -> [MetricInfo; 2] {
    let config = task.task.config();
    let name = one_line(&config.name);
    let headline = tasks::headline(config);
    let unit = match tasks::is_share(config, &headline) {
        true => "share".to_string(),
        false => String::new(),
    };
    // Lower is better for perplexities and bits.
    let direction = match compared_by(&headline) == headline {
        true => Direction::Higher,
        false => Direction::Lower,
    };
    let rows = task.extent();
    let score = MetricInfo {
        id: metric_id(&config.name),
        title: format!("Task {name}"),
        unit: unit.clone(),
        direction,
        source: format!("{rows}; {}", one_line(&config.summary)),
        label: name.clone(),
        ..MetricInfo::default()
    };
    let stderr = MetricInfo {
        id: stderr_id(&config.name),
        title: format!("Task {name}, standard error"),
        unit,
        source: rows,
        label: format!("{name} ±"),
        place: ChartPlace::Nowhere,
        ..MetricInfo::default()
    };
    [score, stderr]
}

fn failed(error: TaskError) -> EngineError {
    let what = one_line(&format!("eval.tasks: {error}; {}", error.hint()));
    match error.is_outage() {
        true => EngineError::Machine(what),
        false => EngineError::Setup(what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(every: u64, max_steps: u64) -> Vec<u64> {
        let config = EvalConfig {
            task_every: every,
            ..EvalConfig::default()
        };
        let due = |step: &u64| are_due(*step, &config, max_steps, None);
        (0..=max_steps).filter(due).collect()
    }

    #[test]
    fn before_the_first_step_at_the_quarters_and_at_the_end() {
        assert_eq!(steps(0, 100), [0, 25, 50, 75, 100]);
        assert_eq!(steps(40, 100), [0, 40, 80, 100]);
        assert_eq!(steps(0, 2), [0, 1, 2]);
        assert!(!are_due(50, &EvalConfig::default(), 100, Some(50)));
    }
}
