//! What panes read: folded runs and lists. Cursors, scrolls and filters belong to the panes.

use super::machine_view::MachineView;
use super::msg::{Asked, Holder, Slot, StageOf};
use super::rows::{CheckpointRow, ModelFiles, PresetKind, PresetRow};
use crate::base::clock::{Moment, UnixMillis};
use crate::base::human;
use crate::run::RunState;
pub use crate::run::id::short_run;
use crate::run::index::{RunStatus, RunSummary};
use crate::wire::{CommandId, Outcome, Phase};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Everything that several panes read.
#[derive(Debug, Default)]
pub struct Store {
    /// As the person wrote it, for empty states.
    pub runs_dir: PathBuf,
    /// The person's home folder: `~` in paths.
    pub home: Option<PathBuf>,
    /// In the order of Home, those of one kind together.
    pub presets: Vec<PresetRow>,
    /// The preset that was selected last: what plans begin with.
    pub preset: Option<String>,
    /// Seconds east of Greenwich.
    pub utc_offset: i64,
    /// `None` until the directory was read once.
    pub runs: Option<Vec<RunSummary>>,
    /// Which of them pipelines' stages trained, by their ids.
    pub stages: BTreeMap<String, StageOf>,
    /// The list of runs was asked for and has not come; when the last one came.
    pub reading_runs: bool,
    pub runs_read: Duration,
    /// Runs that could not be read, in words.
    pub unreadable: Vec<String>,
    pub checkpoints: Vec<CheckpointRow>,
    /// Model folders and GGUF files, for the chat.
    pub model_files: ModelFiles,
    /// This machine as plans see it; `None` until it was looked at.
    pub machine: Option<crate::plan::calibration::Machine>,
    /// This machine, from the first look at it on.
    pub hardware: MachineView,
    /// The run on the screen.
    pub held: Option<OpenRun>,
    /// Wall time of the newest message.
    pub now: UnixMillis,
    /// Monotonic time of the newest message: what measures a length goes by this, since the machine's clock may be set.
    pub elapsed: Duration,
}

impl Store {
    /// When the newest message came.
    pub fn moment(&self) -> Moment {
        Moment {
            now: self.now,
            elapsed: self.elapsed,
        }
    }

    /// Presets and specs of one run, which can be edited and planned.
    pub fn run_presets(&self) -> impl Iterator<Item = &PresetRow> {
        let of_run = |row: &&PresetRow| row.kind != PresetKind::Pipeline;
        self.presets.iter().filter(of_run)
    }

    /// Whether a preset or spec still wants its model and data: it is set up, not started.
    pub fn is_template(&self, name: &str) -> bool {
        let mut presets = self.presets.iter();
        presets.any(|row| row.name == name && row.is_template)
    }

    /// Whether it is a file of several trainings.
    pub fn is_pipeline(&self, name: &str) -> bool {
        let mut presets = self.presets.iter();
        presets.any(|row| row.name == name && row.kind == PresetKind::Pipeline)
    }

    pub fn runs(&self) -> &[RunSummary] {
        self.runs.as_deref().unwrap_or_default()
    }

    /// Puts what is known of this machine under a plan: its memory, and what earlier runs on it reached.
    pub fn calibrate(&self, request: &mut crate::plan::Request) {
        if let Some(machine) = &self.machine {
            machine.calibrate(request);
        }
    }

    /// Whether the pipeline of a listed run stands still and goes on with it or behind it.
    pub fn continues(&self, run: &RunSummary) -> bool {
        let stage = self.stages.get(&run.created_as);
        // As on its page: one that `eval.patience` ended is completed.
        let steps_left = run.status != RunStatus::Finished;
        let ended = run.status != RunStatus::Live;
        ended && stage.is_some_and(|stage| stage.continues(steps_left))
    }

    pub fn any_live(&self) -> bool {
        self.runs().iter().any(|run| run.status == RunStatus::Live)
    }
}

/// How far the link to a run has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkState {
    /// Not there yet; since when, in monotonic time.
    Opening(Duration),
    /// What was logged before is on its way.
    CatchingUp,
    /// New events arrive as they happen.
    Live,
    /// No more will come; the words say why when that was not the plan.
    Ended(Option<String>),
}

/// The run on the screen and the link to it.
#[derive(Debug)]
pub struct OpenRun {
    pub slot: Slot,
    /// The preset's name or the run's id, until the engine reports its own.
    pub title: String,
    pub path: Option<PathBuf>,
    pub holder: Holder,
    /// Where it is the run of a pipeline's stage.
    pub stage: Option<StageOf>,
    pub link: LinkState,
    /// When the newest event arrived here, in monotonic time.
    pub heard: Duration,
    /// When its step, or what it does between two, began, in monotonic time; for somebody who comes later, when they came.
    pub begun: Duration,
    /// How long that had taken by then.
    pub taken_before: Duration,
    /// Commands whose answer is awaited; the oldest are forgotten.
    pub pending: Vec<(CommandId, Asked)>,
    pub state: RunState,
    /// The machine that the run is on.
    pub hardware: MachineView,
    /// It is being made here, and not one that was there.
    pub new: bool,
}

impl OpenRun {
    pub fn opening(slot: Slot, title: String, elapsed: Duration) -> Self {
        OpenRun {
            slot,
            title,
            path: None,
            holder: Holder::Detached,
            stage: None,
            link: LinkState::Opening(elapsed),
            heard: elapsed,
            begun: elapsed,
            taken_before: Duration::ZERO,
            pending: Vec::new(),
            state: RunState::new(),
            hardware: MachineView::default(),
            new: false,
        }
    }

    /// Time since the last progress event, if it is many times the recent step time. Evaluations, checkpoints, loading and pauses do not
    /// count.
    pub fn silence(&self, elapsed: Duration) -> Option<Duration> {
        const SHORTEST: u64 = 10_000;
        const STEPS: f64 = 20.0;
        const WAITS: u64 = 4;
        let state = &self.state;
        let stepping = state.phase == Some(Phase::Training) && !state.in_pause;
        if !self.live() || self.link != LinkState::Live || !stepping || state.halted.is_some() {
            return None;
        }
        let usual = (state.pace.step_ms()? * STEPS) as u64;
        // Steps that make the answers they learn from take longer than the others.
        let longest = state.pace.longest_ms()?.saturating_mul(WAITS);
        let silent = elapsed.saturating_sub(self.heard);
        let most = Duration::from_millis(SHORTEST.max(usual).max(longest));
        (silent > most).then_some(silent)
    }

    /// `no event for 1:10 (a step takes 25 ms)`
    pub fn silence_words(&self, elapsed: Duration) -> Option<String> {
        let silent = self.silence(elapsed)?;
        let step = self.state.pace.step_ms()? / 1000.0;
        let step = Duration::try_from_secs_f64(step).unwrap_or_default();
        Some(format!(
            "no event for {} (a step takes {})",
            human::duration(silent),
            match step.as_millis() {
                ms @ 0..10_000 => format!("{ms} ms"),
                _ => human::duration(step),
            }
        ))
    }

    /// `step 4: 38 s so far`, `evaluating: 12 s so far`: of what takes so long that the screen would seem to stand still.
    pub fn so_far(&self, elapsed: Duration) -> Option<String> {
        const SHORTEST: Duration = Duration::from_secs(5);
        let state = &self.state;
        let phase = state.phase.filter(|_| {
            let moves = !state.in_pause && state.halted.is_none() && state.head.is_some();
            self.live() && self.link == LinkState::Live && moves
        })?;
        let what = match phase {
            Phase::Training => format!("step {}", human::grouped(state.step + 1)),
            Phase::Evaluating | Phase::Sampling | Phase::Checkpointing => state.word().into(),
            _ => return None,
        };
        let taken = elapsed.saturating_sub(self.begun) + self.taken_before;
        // Of steps that are not logged one by one nobody knows when they began.
        let spec = state.head.as_ref().map(|head| &head.spec);
        let log_every = spec.and_then(|spec| spec.pointer("/train/log_every")?.as_u64());
        let each = phase != Phase::Training || log_every.is_none_or(|every| every == 1);
        let long = match taken.as_secs() {
            s @ 0..60 => format!("{s} s"),
            _ => human::duration(taken),
        };
        (each && taken >= SHORTEST).then(|| format!("{what}: {long} so far"))
    }

    /// `pausing after this step …`: what was asked for last and waits until the engine takes it.
    pub fn waiting(&self, ellipsis: &str) -> Option<String> {
        let (_, asked) = self.pending.last().filter(|_| self.live())?;
        let after = match self.state.phase? {
            Phase::Evaluating => "this evaluation",
            Phase::Sampling => "these samples",
            Phase::Checkpointing => "this checkpoint",
            Phase::Training => "this step",
            _ => return None,
        };
        Some(format!("{} after {after} {ellipsis}", asked.doing()))
    }

    /// Whether a stop was asked for and waits.
    pub fn stops(&self) -> bool {
        let mut pending = self.pending.iter();
        self.live() && pending.any(|(_, asked)| *asked == Asked::Stop)
    }

    /// What the run will be told last of pausing and going on: true if it pauses.
    pub fn will_pause(&self) -> bool {
        let asked = self.pending.iter().rev().map(|(_, asked)| asked);
        let mut asked = asked.filter(|asked| matches!(asked, Asked::Pause | Asked::Resume));
        match asked.next() {
            Some(asked) => *asked == Asked::Pause,
            None => self.state.phase == Some(Phase::Paused),
        }
    }

    /// True while an engine is at work that commands would reach.
    pub fn live(&self) -> bool {
        !matches!(self.holder, Holder::Log | Holder::Foreign)
            && self.state.finished.is_none()
            && matches!(self.link, LinkState::Live | LinkState::CatchingUp)
    }

    /// Identifies this run among others, its copies too, whose logs give the same name: its directory, or elsewhere that name.
    /// `None` before the log gave it.
    pub fn identity(&self) -> Option<PathBuf> {
        let named = || {
            self.path
                .clone()
                .unwrap_or_else(|| self.state.run.clone().into())
        };
        (!self.state.run.is_empty()).then(named)
    }

    /// The run's directory, when its engine ended before the last step: it can go on from its newest checkpoint.
    pub fn resumable(&self) -> Option<PathBuf> {
        let finish = self.state.finished.as_ref();
        let ended = matches!(self.link, LinkState::Ended(_));
        let early = finish.map_or(ended, |finish| finish.outcome != Outcome::Completed);
        let ours = self.holder != Holder::Foreign;
        self.path.clone().filter(|_| early && ours && !self.live())
    }

    /// The run's directory, where its pipeline stands still and goes on with it or behind it.
    pub fn continues(&self) -> Option<PathBuf> {
        let stage = self.stage.as_ref().filter(|_| !self.live())?;
        let path = self.path.clone()?;
        let steps_left = self.resumable().is_some();
        stage.continues(steps_left).then_some(path)
    }

    /// What was asked of a run that can go on: the editor begins from it.
    pub fn asked(&self) -> Option<String> {
        let path = self.resumable()?.join("asked.yaml");
        Some(path.display().to_string())
    }

    /// The run's name without its date: `shakespeare-k3qf`. A renamed directory and a copy are named as commands find them,
    /// while the log knows the name that the run began with.
    pub fn name(&self) -> &str {
        let own = self
            .path
            .as_ref()
            .filter(|_| self.holder != Holder::Foreign);
        let folder = own.and_then(|path| path.file_name()?.to_str());
        match folder {
            _ if self.state.run.is_empty() => &self.title,
            Some(folder) => short_run(folder),
            None => short_run(&self.state.run),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_named_after_its_directory() {
        let mut held = OpenRun::opening(Slot(1), "copy".into(), Duration::ZERO);
        assert_eq!(held.name(), "copy");
        held.state.run = "2026-11-21-1422-shakespeare-k3qf".into();
        assert_eq!(held.name(), "shakespeare-k3qf");
        held.path = Some("runs/2026-11-21-1422-copy".into());
        assert_eq!(held.name(), "copy");
        let copy = held.identity();
        held.path = Some("runs/2026-11-21-1422-shakespeare-k3qf".into());
        assert!(copy.is_some() && held.identity() != copy);
        held.holder = Holder::Foreign;
        assert_eq!(held.name(), "shakespeare-k3qf");
    }
}
