//! `llmtui train --resume RUN -s max_steps=N`, or `-s epochs=N`: a run that goes on to another last step. Its spec says the new one from
//! then on, and the schedule is recomputed over all of its steps.

use super::Context;
use super::exit::Failure;
use super::run_ref::spec_of;
use crate::base::files::write_atomic;
use crate::base::human::{grouped, number};
use crate::run::RunDir;
use crate::spec::{self, Loaded, RunSpec};

/// What `-s` may say of a resumed run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Asked {
    pub threads: Option<usize>,
    pub length: Option<Length>,
}

/// How long a run is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Length {
    Steps(u64),
    Epochs(f64),
}

impl Length {
    fn of(spec: &RunSpec) -> Length {
        match spec.train.epochs {
            Some(epochs) => Length::Epochs(epochs),
            None => Length::Steps(spec.train.max_steps),
        }
    }

    /// As `-s` takes it.
    fn word(self) -> String {
        match self {
            Length::Steps(steps) => format!("max_steps={steps}"),
            Length::Epochs(epochs) => format!("epochs={epochs}"),
        }
    }

    fn words(self) -> String {
        match self {
            Length::Steps(steps) => format!("step {}", grouped(steps)),
            Length::Epochs(epochs) => format!("the end of {} epochs", number(epochs)),
        }
    }
}

impl Asked {
    /// Reads the words of `-s`.
    ///
    /// # Errors
    /// A value that is no number, a key that would make another run.
    pub fn read(words: &[String]) -> Result<Asked, Failure> {
        let mut asked = Asked::default();
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let value = value.trim().replace('_', "");
            match key.trim().replace('-', "_").as_str() {
                "threads" | "train.threads" => match value.parse() {
                    Ok(n) if n > 0 => asked.threads = Some(n),
                    _ => {
                        let what = format!("`{word}`: not a number of threads");
                        return Err(Failure::yours(what, ""));
                    }
                },
                "max_steps" | "train.max_steps" => match value.parse() {
                    Ok(n) if n > 0 => asked.length = Some(Length::Steps(n)),
                    _ => {
                        let what = format!("`{word}`: not a number of steps");
                        return Err(Failure::yours(what, "-s max_steps=2000"));
                    }
                },
                "epochs" | "train.epochs" => match value.parse::<f64>() {
                    Ok(n) if n > 0.0 && n.is_finite() => asked.length = Some(Length::Epochs(n)),
                    _ => {
                        let what = format!("`{word}`: not a number of epochs");
                        return Err(Failure::yours(what, "-s epochs=3"));
                    }
                },
                _ => {
                    let what = format!(
                        "a resumed run keeps its spec but for train.threads, train.max_steps and train.epochs: `-s {word}` would make another run"
                    );
                    let hint =
                        format!("go on with it in a new run: llmtui train --branch RUN -s {word}");
                    return Err(Failure::yours(what, hint));
                }
            }
        }
        Ok(asked)
    }
}

/// Another last step for a run.
#[derive(Debug)]
pub struct Extension {
    loaded: Loaded,
    was: RunSpec,
    /// Step of the newest checkpoint.
    newest: u64,
}

impl Extension {
    /// What another length changes of a run; nothing where it is the run's own and steps are left.
    ///
    /// # Errors
    /// A last step that the run has already taken.
    pub fn plan(run: &RunDir, length: Length, cx: &Context) -> anyhow::Result<Option<Extension>> {
        let was = spec_of(run)?;
        let newest = run.checkpoints().last().map_or(0, |c| c.step);
        // What epochs come to is known once the data are read.
        if let Length::Steps(max_steps) = length
            && max_steps <= newest
        {
            let what = format!(
                "{} has a checkpoint of step {}: with max_steps {} nothing is left to train",
                run.id(),
                grouped(newest),
                grouped(max_steps)
            );
            let hint = format!("-s max_steps={}", newest + was.train.max_steps.max(100));
            return Err(Failure::yours(what, hint).into());
        }
        if length == Length::of(&was) || length == Length::Steps(was.train.max_steps) {
            return Ok(None);
        }
        let target = run.spec_path().display().to_string();
        let set = [length.word()];
        let loaded = spec::load(&target, &set, &cx.spec_sources())?;
        Ok(Some(Extension {
            loaded,
            was,
            newest,
        }))
    }

    pub fn spec(&self) -> &RunSpec {
        &self.loaded.spec
    }

    /// What is told before it starts.
    pub fn lines(&self, run: &RunDir) -> Vec<String> {
        let (spec, was) = (&self.loaded.spec, &self.was);
        let (now, before) = (Length::of(spec), was.train.max_steps);
        let rate = |steps| {
            let peak = spec.optimizer.lr();
            number(spec.schedule.lr_at(self.newest, steps, peak))
        };
        let goes_on = format!(
            "{} continues from step {} to {}; its last step was {}",
            run.id(),
            grouped(self.newest),
            now.words(),
            grouped(before)
        );
        let Length::Steps(now) = now else {
            return vec![goes_on];
        };
        vec![
            goes_on,
            format!(
                "the {} schedule is recomputed: the learning rate of the next update is {}, of the old plan {}",
                spec.schedule.entry().id,
                rate(now),
                rate(before)
            ),
        ]
    }

    /// Writes the new last step into the run's spec and its request.
    ///
    /// # Errors
    /// The run is alive, or the disk.
    pub fn write(&self, run: &RunDir) -> anyhow::Result<()> {
        let _lock = run
            .lock()
            .map_err(|e| Failure::yours(e.to_string(), "llmtui runs"))?;
        let spec = &self.loaded.spec;
        let asked = std::fs::read_to_string(run.asked_path()).unwrap_or_default();
        let heading = asked.lines().next().filter(|line| line.starts_with('#'));
        let heading = heading.unwrap_or("# Requested");
        let body = self
            .loaded
            .asked
            .split_once('\n')
            .map_or("", |(_, body)| body);
        let asked = format!(
            "{heading}\n# Extended at step {}: -s {}\n{body}",
            self.newest,
            Length::of(spec).word()
        );
        for (path, text) in [(run.asked_path(), asked), (run.spec_path(), spec.to_yaml())] {
            write_atomic(&path, text.as_bytes())
                .map_err(|e| Failure::machine(format!("{}: {e}", path.display()), ""))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Asked, String> {
        let words: Vec<String> = words.iter().map(|w| w.to_string()).collect();
        Asked::read(&words).map_err(|e| e.to_string())
    }

    #[test]
    fn a_resumed_run_may_have_other_threads_and_another_last_step() {
        let asked = read(&["threads=2", "train.max_steps=2_000"]).unwrap();
        let steps = Some(Length::Steps(2000));
        assert_eq!((asked.threads, asked.length), (Some(2), steps));
        let asked = read(&["epochs=1.5"]).unwrap();
        assert_eq!(asked.length, Some(Length::Epochs(1.5)));
        assert!(read(&["epochs=-1"]).unwrap_err().contains("of epochs"));
        assert!(read(&["max_steps=0"]).unwrap_err().contains("of steps"));
        assert!(read(&["threads=x"]).unwrap_err().contains("of threads"));
        assert!(read(&["lr=1"]).unwrap_err().contains("another run"));
    }
}
