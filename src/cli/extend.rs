//! `llmtui train --resume RUN -s max_steps=N`, or `-s epochs=N`: a run that goes on to another last step, over which the schedule is
//! recomputed; or by another engine, on other machines (`-s engine.…`, `--nodes`). Its spec says so from then on.

use super::exit::Failure;
use super::run_ref::{check_kept_reference, sources_of, spec_of};
use super::{Context, memory};
use crate::base::files::{read_plain, read_plain_text, write_atomic};
use crate::base::human::{grouped, number};
use crate::base::text::one_line;
use crate::engine::checkpoint;
use crate::run::RunDir;
use crate::run::index::{self, CHANGED_AT};
use crate::spec::{self, Loaded, RunSpec};
use std::io::ErrorKind;
use std::path::PathBuf;

/// What `-s` may say of a resumed run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Asked {
    pub threads: Option<usize>,
    pub length: Option<Length>,
    /// Where it computes: settings of the engine.
    pub engine: Vec<String>,
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
    /// Sets the length, where the words before said no other.
    fn set_length(&mut self, length: Length) -> Result<(), Failure> {
        let other =
            |before: &Length| std::mem::discriminant(before) != std::mem::discriminant(&length);
        if self.length.as_ref().is_some_and(other) {
            let what = "epochs and max_steps both set the length of the run";
            return Err(Failure::user_error(what, "set only one of them"));
        }
        self.length = Some(length);
        Ok(())
    }

    /// Reads the words of `-s`.
    ///
    /// # Errors
    /// A value that is non-finite, two kinds of length, a key that would make another run.
    pub fn read(words: &[String], run: &str) -> Result<Asked, Failure> {
        let mut asked = Asked::default();
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let value = value.trim().replace('_', "");
            match key.trim().replace('-', "_").as_str() {
                "threads" | "train.threads" => match value.parse() {
                    Ok(n) if n > 0 => asked.threads = Some(n),
                    _ => {
                        let what = format!("`{word}`: not a number of threads");
                        return Err(Failure::user_error(what, ""));
                    }
                },
                "max_steps" | "train.max_steps" => match value.parse() {
                    Ok(n) if n > 0 => asked.set_length(Length::Steps(n))?,
                    _ => {
                        let what = format!("`{word}`: not a number of steps");
                        return Err(Failure::user_error(what, "-s max_steps=2000"));
                    }
                },
                "epochs" | "train.epochs" => match value.parse::<f64>() {
                    Ok(n) if n > 0.0 && n.is_finite() => asked.set_length(Length::Epochs(n))?,
                    _ => {
                        let what = format!("`{word}`: not a number of epochs");
                        return Err(Failure::user_error(what, "-s epochs=3"));
                    }
                },
                key if key == "engine" || key.starts_with("engine.") => {
                    asked.engine.push(word.clone());
                }
                _ => {
                    let what = format!(
                        "a resumed run can change only engine, train.threads, train.max_steps and train.epochs: not `-s {word}`"
                    );
                    let hint = format!(
                        "continue with it in a new run: llmtui train --branch {run} -s {word}"
                    );
                    return Err(Failure::user_error(what, hint));
                }
            }
        }
        Ok(asked)
    }
}

/// The learning rate of the update behind step `newest`, as the engine has it: scaled as `lr` was changed while the run trained, and behind
/// a cold start by `rollout.lr_scale`.
fn rate(spec: &RunSpec, newest: u64, adjusted: Option<f64>) -> String {
    let peak = spec.optimizer.lr();
    let mut lr = spec.schedule.lr_at(newest, spec.train.max_steps, peak);
    if spec.method.on_policy().is_some() && newest >= spec.rollout.cold_start_steps {
        lr *= spec.rollout.lr_scale;
    }
    number(match adjusted {
        Some(adjusted) if peak > 0.0 => lr * (adjusted / peak),
        Some(adjusted) => adjusted,
        None => lr,
    })
}

/// Another last step for a run, or another engine.
#[derive(Debug)]
pub struct Extension {
    loaded: Loaded,
    was: RunSpec,
    /// As it was said.
    words: Vec<String>,
    /// Step of the newest checkpoint.
    newest: u64,
}

impl Extension {
    /// What another length or engine changes of a run; nothing where both are the run's own and steps are left.
    ///
    /// # Errors
    /// A last step that the run has already taken; an engine that cannot train it.
    pub fn plan(run: &RunDir, asked: &Asked, cx: &Context) -> anyhow::Result<Option<Extension>> {
        let length = asked.length;
        let was = spec_of(run)?;
        let newest = run.checkpoints().last().map_or(0, |c| c.step);
        // What epochs come to is known once the data are read.
        if let Some(Length::Steps(max_steps)) = length
            && max_steps <= newest
        {
            let what = format!(
                "{} has a checkpoint at step {}: with max_steps {} nothing is left to train",
                run.folder(),
                grouped(newest),
                grouped(max_steps)
            );
            let hint = format!("-s max_steps={}", newest + was.train.max_steps.max(100));
            return Err(Failure::user_error(what, hint).into());
        }
        let own = [Length::of(&was), Length::Steps(was.train.max_steps)];
        let length = length.filter(|length| !own.contains(length));
        let length = length.map(Length::word);
        let words: Vec<String> = length.into_iter().chain(asked.engine.clone()).collect();
        if words.is_empty() {
            return Ok(None);
        }
        let target = run.spec_path().display().to_string();
        let sources = sources_of(run, &was, cx);
        let loaded = spec::load(&target, &words, &sources)?;
        check_kept_reference(run, &loaded.spec)?;
        let loaded = memory::decided(loaded, cx);
        let changed = loaded.spec != was;
        Ok(changed.then_some(Extension {
            loaded,
            was,
            words,
            newest,
        }))
    }

    pub fn spec(&self) -> &RunSpec {
        &self.loaded.spec
    }

    /// What is reported before it starts, without what the engine says itself.
    pub fn line(&self, run: &RunDir) -> String {
        self.lines(run).into_iter().next().unwrap_or_default()
    }

    /// What is reported before it starts.
    pub fn lines(&self, run: &RunDir) -> Vec<String> {
        let (spec, was) = (&self.loaded.spec, &self.was);
        let (now, before) = (Length::of(spec), was.train.max_steps);
        if Length::of(spec) == Length::of(was) {
            let words = self.words.join(" -s ");
            return vec![format!(
                "{} continues from step {} with {words}",
                run.folder(),
                grouped(self.newest)
            )];
        }
        let mut goes_on = format!(
            "{} continues from step {} to {}; its last step was {}",
            run.folder(),
            grouped(self.newest),
            now.words(),
            grouped(before)
        );
        for word in self.words.iter().filter(|word| word.starts_with("engine")) {
            goes_on.push_str(&format!("; {word}"));
        }
        let Length::Steps(now) = now else {
            return vec![goes_on];
        };
        let adjusted = run.checkpoints().last().and_then(|newest| {
            let saved = checkpoint::read_state(&newest.path).ok()?;
            saved.progress.adjustments.lr
        });
        let rate =
            |spec: &RunSpec, steps| rate(&spec.clone().to_step(steps), self.newest, adjusted);
        let (is, was) = (rate(spec, now), rate(was, before));
        let mut lines = vec![goes_on];
        if is != was {
            lines.push(format!(
                "the {} schedule is recomputed: the learning rate of the next update is {is}, not {was}",
                spec.schedule.entry().id,
            ));
        }
        lines
    }

    /// Writes what changes into the run's spec and its request; returns what they said before.
    ///
    /// # Errors
    /// The run is alive, or the disk.
    pub fn write(&self, run: &RunDir) -> anyhow::Result<Before> {
        let _lock = run.lock().map_err(|e| Failure::run(&e))?;
        let spec = &self.loaded.spec;
        let before = Before::of([run.asked_path(), run.spec_path()])?;
        let asked = read_plain_text(run.asked_path()).unwrap_or_default();
        let heading = asked.lines().next().filter(|line| line.starts_with('#'));
        let heading = heading.unwrap_or("# Requested");
        let body = self
            .loaded
            .asked
            .split_once('\n')
            .map_or("", |(_, body)| body);
        let asked = format!(
            "{heading}\n{CHANGED_AT}{}: -s {}\n{body}",
            self.newest,
            one_line(&self.words.join(" -s "))
        );
        for (path, text) in [(run.asked_path(), asked), (run.spec_path(), spec.to_yaml())] {
            if let Err(error) = write_atomic(&path, text.as_bytes()) {
                // Half of it would be another request than spec.
                let _ = before.restore();
                return Err(Failure::not_written(&path, &error).into());
            }
        }
        Ok(before)
    }
}

/// The files of a run that [`Extension::write`] has replaced.
#[derive(Debug)]
#[must_use = "a refused extension leaves the run as it was: unless_begun"]
pub struct Before(Vec<(PathBuf, Option<Vec<u8>>)>);

impl Before {
    fn of(paths: [PathBuf; 2]) -> Result<Before, Failure> {
        let read = |path: PathBuf| match read_plain(&path) {
            Ok(was) => Ok((path, Some(was))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok((path, None)),
            Err(error) => Err(Failure::not_read(&path, &error)),
        };
        let files = paths.into_iter().map(read);
        Ok(Before(files.collect::<Result<_, _>>()?))
    }

    /// Brings them back where the engine refused what was asked for: the run stays as it was.
    pub fn unless_begun(self, run: &RunDir) {
        if index::refusal(run).is_some() && self.restore().is_ok() {
            errln!("{} and its spec are unchanged", one_line(&run.folder()));
        }
    }

    /// All that can be brought back is, whatever becomes of the others.
    fn restore(&self) -> std::io::Result<()> {
        let one = |(path, was): &(PathBuf, Option<Vec<u8>>)| match was {
            Some(was) => write_atomic(path, was),
            None => match std::fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        };
        let mut restored = Ok(());
        for file in &self.0 {
            restored = restored.and(one(file));
        }
        restored
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Asked, String> {
        let words: Vec<String> = words.iter().map(|w| w.to_string()).collect();
        Asked::read(&words, "mine").map_err(|e| format!("{e}; {}", e.hint))
    }

    #[test]
    fn what_cannot_be_written_as_a_whole_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let clock = crate::base::clock::SystemClock::new();
        let loaded = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            spec::load("smoke", &words, &spec::SpecSources::default()).unwrap()
        };
        let was = loaded(&[]);
        let run = crate::plan::start::new_run(dir.path(), &was, None, &clock).unwrap();
        let extension = Extension {
            loaded: loaded(&["max_steps=99"]),
            was: was.spec.clone(),
            words: vec!["max_steps=99".into()],
            newest: 5,
        };
        let files = || [run.asked_path(), run.spec_path()].map(|path| read_plain_text(path).ok());
        let before = files();
        // The second of the two files cannot be replaced.
        std::fs::remove_file(run.spec_path()).unwrap();
        std::fs::create_dir(run.spec_path()).unwrap();
        assert!(extension.write(&run).is_err());
        assert_eq!(files(), [before[0].clone(), None]);

        std::fs::remove_dir(run.spec_path()).unwrap();
        std::fs::write(run.spec_path(), before[1].as_ref().unwrap()).unwrap();
        let kept = extension.write(&run).unwrap();
        assert!(files()[0].as_ref().unwrap().contains("Changed at step 5"));
        kept.restore().unwrap();
        assert_eq!(files(), before);
        // One that was not there goes again.
        std::fs::remove_file(run.asked_path()).unwrap();
        extension.write(&run).unwrap().restore().unwrap();
        assert_eq!(files(), [None, before[1].clone()]);
    }

    #[test]
    fn the_rate_told_is_that_of_the_next_update() {
        let spec = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            let found = spec::load("grpo-sort", &words, &spec::SpecSources::default());
            found.unwrap().spec
        };
        let words = [
            "schedule=constant",
            "lr=1e-3",
            "rollout.cold_start_steps=5",
            "rollout.lr_scale=0.1",
        ];
        let spec = spec(&words);
        assert_eq!(rate(&spec, 4, None), number(1e-3));
        // Behind the cold start.
        assert_eq!(rate(&spec, 5, None), number(1e-4));
        // Halved by hand or by a rescue.
        assert_eq!(rate(&spec, 5, Some(5e-4)), number(5e-5));
    }

    #[test]
    fn a_resumed_run_may_have_other_threads_another_engine_and_another_last_step() {
        let asked = read(&["threads=2", "train.max_steps=2_000"]).unwrap();
        let steps = Some(Length::Steps(2000));
        assert_eq!((asked.threads, asked.length), (Some(2), steps));
        let asked = read(&["epochs=1.5"]).unwrap();
        assert_eq!(asked.length, Some(Length::Epochs(1.5)));
        let asked = read(&["engine.torch.nodes=[a]", "threads=2"]).unwrap();
        assert_eq!(asked.engine, ["engine.torch.nodes=[a]"]);
        assert!(read(&["epochs=-1"]).unwrap_err().contains("of epochs"));
        assert!(read(&["max_steps=0"]).unwrap_err().contains("of steps"));
        assert!(read(&["threads=x"]).unwrap_err().contains("of threads"));
        let both = read(&["max_steps=80", "epochs=0.2"]).unwrap_err();
        assert!(both.contains("set only one of them"), "{both}");
        // Of one of them the last word counts.
        let last = read(&["max_steps=80", "train.max_steps=90"]).unwrap();
        assert_eq!(last.length, Some(Length::Steps(90)));
        let other = read(&["lr=1"]).unwrap_err();
        assert!(other.contains("can change only"), "{other}");
        assert!(
            other.ends_with("llmtui train --branch mine -s lr=1"),
            "{other}"
        );
    }
}
