//! The stages of a pipeline, followed as long as the screen shows the run of one.

use crate::base::files::is_locked;
use crate::pipeline::{PipelineDir, membership};
use crate::run::RunDir;
use crate::ui::msg::Slot;
use std::path::{Path, PathBuf};

/// A pipeline whose stages are followed.
#[derive(Debug)]
pub(super) struct Followed {
    dir: PipelineDir,
    /// Where the app shows the newest stage; slots are never used again.
    slot: Option<Slot>,
    /// The run of that stage.
    run: String,
}

/// What there is to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The screen shows something else: the pipeline is no longer followed.
    Over,
    Wait,
    /// The next stage trains: its run's directory.
    Run(PathBuf),
}

impl Followed {
    pub(super) fn new(dir: PipelineDir, slot: Slot, run: String) -> Followed {
        let slot = Some(slot);
        Followed { dir, slot, run }
    }

    /// That of a run which was opened while its stage trains: whoever watches a stage watches the next ones, too.
    pub(super) fn of(run_dir: &Path, slot: Slot, runs_dir: &Path) -> Option<Followed> {
        let run = RunDir::open(run_dir).ok()?;
        let dir = membership(&run, runs_dir)?.dir;
        let trains = dir.is_live() && dir.running().as_deref() == Some(run.id());
        trains.then(|| Followed::new(dir, slot, run.id().into()))
    }

    /// Looks for the next stage; `shown` is the slot of the run on the screen.
    pub(super) fn next(&mut self, shown: Option<Slot>, runs_dir: &Path) -> Next {
        if shown != self.slot {
            return Next::Over;
        }
        let Some(run) = self.dir.running().filter(|run| *run != self.run) else {
            return Next::Wait;
        };
        let path = runs_dir.join(&run);
        // Its engine must answer before anybody can watch it.
        if !RunDir::open(&path).is_ok_and(|run| is_locked(&run.lock_path())) {
            return Next::Wait;
        }
        self.run = run;
        Next::Run(path)
    }

    /// The app shows the newest stage here.
    pub(super) fn shown_in(&mut self, slot: Option<Slot>) {
        self.slot = slot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::ManualClock;
    use crate::base::files::try_lock;
    use crate::pipeline::{Pipeline, Status};

    #[test]
    fn the_next_stage_is_shown_unless_something_else_was_opened() {
        let runs = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(0);
        let text = "stages: [{name: a, train: quickstart}, {name: b, train: quickstart}]";
        let pipeline = Pipeline::parse("mine.yaml", "mine", text).unwrap();
        let dir = PipelineDir::create(runs.path(), &pipeline, text, &clock).unwrap();
        let run = RunDir::create(runs.path(), "b", "", "", &clock).unwrap();
        let mut state = dir.state().unwrap();
        state.stages[0].status = Status::Done;
        state.stages[1].status = Status::Running;
        state.stages[1].run = Some(run.id().into());
        dir.save(&state).unwrap();
        let path = runs.path().join(run.id());
        assert!(Followed::of(&path, Slot(1), runs.path()).is_none());
        let driver = dir.claim().unwrap();
        assert!(Followed::of(&path, Slot(1), runs.path()).is_some());
        drop(driver);
        let follow = || Followed::new(dir.clone(), Slot(1), "a".into());
        let mut followed = follow();
        let shown = Some(Slot(1));
        assert_eq!(followed.next(shown, runs.path()), Next::Wait, "no engine");
        let _lock = try_lock(&run.lock_path()).unwrap().unwrap();
        let next = Next::Run(runs.path().join(run.id()));
        assert_eq!(followed.next(shown, runs.path()), next);
        followed.shown_in(Some(Slot(2)));
        assert_eq!(followed.next(Some(Slot(2)), runs.path()), Next::Wait);
        for elsewhere in [Some(Slot(2)), None] {
            assert_eq!(follow().next(elsewhere, runs.path()), Next::Over);
        }
    }
}
