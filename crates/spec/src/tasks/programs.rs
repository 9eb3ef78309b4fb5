//! Programs in answers, run against the tests of their rows in a sandbox.

use super::config::PythonConfig;
use super::error::TaskError;
use super::items::{Asked, COMPLETION, Item};
use super::record::{Record, UNFINISHED};
use crate::base::child::Child;
use crate::base::text::one_line;
use crate::sandbox::{Sandbox, SandboxError, find};

/// One greedy answer an item: the share that passes.
pub(super) const PASS: &str = "pass@1";
/// What is kept of a failure.
const TESTS: &str = "tests";

/// Runs the programs of one task.
#[derive(Debug)]
pub struct Tester {
    task: String,
    config: PythonConfig,
    sandbox: Sandbox,
}

impl Tester {
    /// # Errors
    /// No Python, or no sandbox on this machine: known before anything is asked.
    pub(super) fn new(task: &str, config: &PythonConfig) -> Result<Tester, TaskError> {
        let failed = |what: String, hint: String| TaskError::Programs {
            task: task.into(),
            what,
            hint,
        };
        let python = &config.limits.program;
        if find(python).is_none() {
            let what = format!(
                "Python was not found: `{}` is not in PATH",
                one_line(python)
            );
            let hint = "install Python, or exclude the task with --tasks";
            return Err(failed(what, hint.into()));
        }
        let guard = Child::of_this_program().program;
        let guard = guard.ok_or_else(|| {
            let what = "only the llmtui executable runs programs";
            failed(what.into(), "use llmtui eval".into())
        })?;
        let sandbox = config.limits.sandbox(guard);
        let checked = sandbox.check();
        checked.map_err(|e| failed(e.to_string(), e.hint().into()))?;
        Ok(Tester {
            task: task.into(),
            config: config.clone(),
            sandbox,
        })
    }

    /// Runs the program of each answer, as many at once as the machine has cores, and notes whether it passed.
    ///
    /// # Errors
    /// The sandbox broke.
    pub(super) fn judge(&self, items: &[&Item], records: &mut [Record]) -> Result<(), TaskError> {
        let mut pairs: Vec<(&Item, &mut Record)> =
            items.iter().copied().zip(records.iter_mut()).collect();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let share = pairs.len().div_ceil(cores).max(1);
        let done: Vec<Result<(), SandboxError>> = std::thread::scope(|threads| {
            let running: Vec<_> = pairs
                .chunks_mut(share)
                .map(|part| {
                    threads.spawn(move || {
                        part.iter_mut()
                            .try_for_each(|(item, record)| self.one(item, record))
                    })
                })
                .collect();
            let broken = |_| Err(SandboxError::Broken("its thread ended".into()));
            let ended = running.into_iter();
            ended
                .map(|thread| thread.join().unwrap_or_else(broken))
                .collect()
        });
        let failed = |e: SandboxError| TaskError::Programs {
            task: self.task.clone(),
            what: e.to_string(),
            hint: e.hint().into(),
        };
        done.into_iter().collect::<Result<(), _>>().map_err(failed)
    }

    fn one(&self, item: &Item, record: &mut Record) -> Result<(), SandboxError> {
        let (
            Asked::Answer {
                program: Some(program),
                ..
            },
            Some(answer),
        ) = (&item.asked, &record.answer)
        else {
            return Ok(());
        };
        if record.unfinished {
            record.scores.insert(PASS.into(), 0.0);
            record.found.insert(TESTS.into(), UNFINISHED.into());
            return Ok(());
        }
        let text = program.replace(COMPLETION, self.config.code.of(answer));
        let fault = self.config.limits.fault(&self.sandbox, &text)?;
        let passed = f64::from(u8::from(fault.is_none()));
        record.scores.insert(PASS.into(), passed);
        let told = fault.map_or_else(|| "passed".into(), |fault| one_line(&fault));
        record.found.insert(TESTS.into(), told);
        Ok(())
    }
}
