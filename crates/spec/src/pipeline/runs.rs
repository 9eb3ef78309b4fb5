//! The runs of stages. A run may be resumed without its pipeline: its own log has its state and its training time.

use super::{PipelineDir, StageState, State};
use crate::run::RunDir;
use crate::run::index::{self, RunSummary};
use std::path::Path;

impl StageState {
    /// The run of a training stage as it stands; `None` where there is none, or it is gone.
    pub fn current_run(&self, runs_dir: &Path) -> Option<RunSummary> {
        let id = self.run.as_deref()?;
        let run = index::resolve_one(runs_dir, id).ok()?;
        // Of one that is gone another may have a name that begins so.
        index::summarize(&run).ok().filter(|_| run.id() == id)
    }

    /// Seconds up to now, all attempts together.
    pub fn spent(&self, runs_dir: &Path) -> f64 {
        match self
            .current_run(runs_dir)
            .filter(|_| !self.status.is_over())
        {
            Some(run) => self.earlier_seconds + run.seconds,
            None => self.seconds,
        }
    }
}

/// The pipeline that a run is of.
#[derive(Debug, Clone)]
pub struct Membership {
    pub dir: PipelineDir,
    pub state: State,
    pub stage: String,
}

impl Membership {
    /// Nobody drives the pipeline, and it has stages left: what goes on with them.
    pub fn resume(&self, runs_dir: &Path) -> Option<String> {
        let stands = !self.dir.is_live() && !self.state.is_finished();
        stands.then(|| {
            let options = index::option(runs_dir);
            format!("llmtui train --resume {}{options}", self.state.id)
        })
    }
}

/// The newest pipeline with a stage that this run trains.
pub fn membership(run: &RunDir, runs_dir: &Path) -> Option<Membership> {
    let all = PipelineDir::list(runs_dir).into_iter();
    let mut found = all.filter_map(|(dir, state)| {
        let mut stages = state.stages.iter();
        let stage = stages.find(|stage| stage.run.as_deref() == Some(run.id()))?;
        let stage = stage.name.clone();
        Some(Membership { dir, state, stage })
    });
    found.next()
}
