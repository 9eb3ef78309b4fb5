//! Runs of a series (`ladder`, `sweep`): which earlier runs already are what one of its runs would be.

use super::Context;
use crate::base::clock::UnixMillis;
use crate::base::files::read_plain_text;
use crate::run::RunDir;
use crate::run::index::{self, RunStatus, RunSummary};
use crate::spec::RunSpec;
use crate::wire::Event;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// Most entries of a folder of data that are looked at.
const MAX_ENTRIES: usize = 10_000;

/// The runs of exactly this spec, newest first, whose data are as they found them and which nobody adjusted on their way.
pub fn same_runs(spec: &RunSpec, cx: &Context) -> Vec<(RunDir, RunSummary)> {
    let Ok((runs, _unreadable)) = index::list(&cx.runs_dir) else {
        return Vec::new();
    };
    let yaml = spec.to_yaml();
    // A branch goes on from a checkpoint; a run with `train.from` has a parent as well, and is one of its spec.
    let of_name = runs
        .into_iter()
        .filter(|run| run.name == spec.name && (run.parent.is_none() || !run.preset.is_empty()));
    let same = of_name.filter_map(|summary| {
        let run = RunDir::open(&summary.path).ok()?;
        let same = read_plain_text(run.spec_path()).is_ok_and(|text| text == yaml)
            && !changed_since(spec, summary.created)
            && !was_adjusted(&run);
        same.then_some((run, summary))
    });
    same.collect()
}

/// What a finished run came to.
pub struct Done {
    pub id: String,
    pub seconds: f64,
    /// Validation loss after the last step, nats per token.
    pub val_loss: f64,
}

/// The newest of [`same_runs`] that took all its steps and ended with a validation loss.
pub fn finished(spec: &RunSpec, cx: &Context) -> Option<Done> {
    let mut runs = same_runs(spec, cx).into_iter();
    runs.find_map(|(run, summary)| {
        let val_loss = (summary.status == RunStatus::Finished).then(|| last_loss(&run))??;
        Some(Done {
            id: summary.id,
            seconds: summary.seconds,
            val_loss,
        })
    })
}

fn last_loss(run: &RunDir) -> Option<f64> {
    let mut loss = None;
    index::scan_events(&run.events_path(), &["Finished"], |event| {
        if let Event::Finished { val_loss, .. } = event {
            loss = val_loss.map(|loss| loss.0);
        }
    })
    .ok()?;
    loss.filter(|loss: &f64| loss.is_finite())
}

/// Whether somebody changed a setting of it while it trained. What cannot be read may have been.
fn was_adjusted(run: &RunDir) -> bool {
    let mut adjusted = false;
    let read = index::scan_events(&run.events_path(), &["Adjusted"], |_| adjusted = true);
    read.is_err() || adjusted
}

/// Whether a file that the spec names, or one in a folder that it names, was written after `then`.
fn changed_since(spec: &RunSpec, then: UnixMillis) -> bool {
    let mut files = spec.paths();
    files.retain(|path| path != Path::new(&spec.data.cache));
    let then = UNIX_EPOCH + Duration::from_millis(then.0);
    let newer = |path: &Path| {
        let modified = std::fs::metadata(path).and_then(|meta| meta.modified());
        modified.is_ok_and(|at| at > then)
    };
    let any_newer = |path: &PathBuf| {
        // For a glob, everything in its folder counts.
        let folder = match path.exists() {
            true => path,
            false => path.parent().unwrap_or(path),
        };
        let inside = std::fs::read_dir(folder).into_iter().flatten().flatten();
        newer(path) || inside.take(MAX_ENTRIES).any(|entry| newer(&entry.path()))
    };
    files.iter().any(any_newer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_any_part_of_the_spec_names_makes_a_run_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let spec = |text: &str| {
            let text = text.replace("AT", &dir.path().display().to_string());
            RunSpec::from_yaml(&text).unwrap()
        };
        let specs = [
            spec("data: {path: AT/a, tokenizer: {file: {path: AT/file}}}"),
            spec("data: {val_path: AT/file}"),
            spec("eval: {extra: [{name: x, source: {path: AT/file}}]}"),
            spec("train: {from: AT/model}"),
            spec(
                "method: {ppo: {critic_from: AT/model}}\nrewards: [{length: {}}]\nrollout: {max_new_tokens: 8}",
            ),
            spec(
                "method: {grpo: {}}\nrewards: [{model: {path: AT/model}}]\nrollout: {max_new_tokens: 8}",
            ),
        ];
        std::fs::write(dir.path().join("file"), "").unwrap();
        std::fs::create_dir(dir.path().join("model")).unwrap();
        std::fs::write(dir.path().join("model/weights"), "").unwrap();
        for spec in &specs {
            let yaml = spec.to_yaml();
            assert!(changed_since(spec, UnixMillis(0)), "{yaml}");
            assert!(!changed_since(spec, UnixMillis(u64::MAX >> 20)), "{yaml}");
        }
        assert!(!changed_since(&spec("seed: 7"), UnixMillis(0)));
    }
}
