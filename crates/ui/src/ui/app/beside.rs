//! What is started beside a live run asks first, whichever way it was asked for: from Home, the palette, a key, the editor or the
//! wizard. So does a run that would go on from nothing.

use super::App;
use crate::base::human::counted;
use crate::base::text::one_line;
use crate::run::index::RunStatus;
use crate::ui::effect::Effect;
use crate::ui::msg::PipelineStatus;
use crate::ui::overlays::{Question, YES};
use crate::ui::panes::home;
use crate::ui::request::{Answer, Topic};
use crate::ui::store::{OpenRun, Store, short_run};
use crate::wire::Phase;
use std::path::{Path, PathBuf};

/// The question, and its answer to wait.
const START: &str = "start";
const AFTER: &str = "after";
/// The question whether a run without a checkpoint starts over.
const OVER: &str = "over";

/// What is to be started.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Wanted {
    Preset(String),
    /// A run that ended early, or a branch that was just made.
    Resume(PathBuf),
    Spec {
        name: String,
        yaml: String,
        force: bool,
    },
}

/// A run that a start would share the machine with.
#[derive(Debug)]
struct Live {
    path: PathBuf,
    name: String,
    queued: bool,
    /// Stages follow it.
    in_pipeline: bool,
}

fn topic(about: &'static str) -> Topic {
    Topic {
        pane: &home::ENTRY,
        about,
    }
}

impl App {
    /// Starts it; beside a live run it asks first, and so does a run whose steps were not saved.
    pub(super) fn begin(&mut self, wanted: Wanted) -> Vec<Effect> {
        let Some(question) = starts_over(&self.store, &wanted) else {
            return self.begin_beside(wanted);
        };
        self.over = Some(wanted);
        self.open(Box::new(question))
    }

    /// Beside a live run it asks first. A template is only set up, and a pipeline waits for none.
    fn begin_beside(&mut self, wanted: Wanted) -> Vec<Effect> {
        let waits = match &wanted {
            Wanted::Preset(name) => !self.store.is_template(name) && !self.store.is_pipeline(name),
            Wanted::Resume(_) | Wanted::Spec { .. } => true,
        };
        let own = match &wanted {
            Wanted::Resume(path) => Some(path.as_path()),
            _ => None,
        };
        let Some(last) = last_in_queue(&self.store, own).filter(|_| waits) else {
            return self.begin_now(wanted, None);
        };
        let now = match last.queued {
            true => "waits for its turn",
            false => "is live",
        };
        let title = format!("{} {now}", one_line(&last.name));
        let why =
            "Two runs at a time share processors and memory: each is slower, and both may not fit.";
        let answers = ["start now, beside it", "start nothing"];
        let question = Question::new(&title, vec![why.into()], answers, topic(START));
        let after = match last.in_pipeline {
            true => "start when its pipeline has ended",
            false => "start when it has ended",
        };
        self.wanted = Some((wanted, last.path));
        self.open(Box::new(question.or(AFTER, after).first()))
    }

    /// Takes the answer to such a question; `None` where it is another's.
    pub(super) fn begin_as_answered(
        &mut self,
        about: Topic,
        answer: &Answer,
    ) -> Option<Vec<Effect>> {
        if about == topic(OVER) {
            let said = matches!(answer, Answer::Text(word) if word == YES);
            let wanted = self.over.take().filter(|_| said);
            return Some(wanted.map_or_else(Vec::new, |wanted| self.begin_beside(wanted)));
        }
        if about != topic(START) {
            return None;
        }
        Some(match (self.wanted.take(), answer) {
            (Some((wanted, _)), Answer::Text(word)) if word == YES => self.begin_now(wanted, None),
            (Some((wanted, last)), Answer::Text(word)) if word == AFTER => {
                self.begin_now(wanted, Some(last))
            }
            _ => Vec::new(),
        })
    }

    fn begin_now(&mut self, wanted: Wanted, after: Option<PathBuf>) -> Vec<Effect> {
        match wanted {
            Wanted::Preset(name) => self.start_run(name, after),
            Wanted::Resume(path) => self.resume_run(path, after),
            Wanted::Spec { name, yaml, force } => self.start_spec(name, yaml, force, after),
        }
    }
}

/// Whether a run that has nothing to go on from is to be trained again from its first step.
fn starts_over(store: &Store, wanted: &Wanted) -> Option<Question> {
    let Wanted::Resume(path) = wanted else {
        return None;
    };
    let run = store.runs().iter().find(|run| run.path == *path)?;
    if !run.nothing_saved {
        return None;
    }
    let name = one_line(short_run(&run.id));
    let why = format!(
        "{name} has saved nothing to go on from: its {} are discarded and trained again from step 0.",
        counted(run.step, "step")
    );
    let answers = ["start over", "leave the run as it is"];
    let title = "no checkpoint yet: it starts over";
    Some(Question::new(title, vec![why], answers, topic(OVER)).first())
}

/// The newest of the live runs on this machine that no other one waits for; not the one that is to go on itself. What is on the
/// screen is newer than the list of runs.
fn last_in_queue(store: &Store, own: Option<&Path>) -> Option<Live> {
    let held = store.held.as_ref();
    let path_of = |held: &OpenRun| held.path.clone();
    let over = held
        .filter(|held| held.state.finished.is_some() || held.state.orphaned)
        .and_then(path_of);
    let on_screen = held.filter(|held| held.live()).and_then(|held| {
        let path = path_of(held)?;
        Some(Live {
            name: short_run(held.name()).into(),
            queued: held.state.phase == Some(Phase::Queued),
            in_pipeline: held
                .stage
                .as_ref()
                .is_some_and(|stage| stage.standing == PipelineStatus::Running),
            path,
        })
    });
    let listed = |path: &Path| store.runs().iter().any(|run| run.path == path);
    if let Some(new) = on_screen.filter(|run| !listed(&run.path) && Some(run.path.as_path()) != own)
    {
        return Some(new);
    }
    let live = store.runs().iter().filter(|run| {
        let path = Some(run.path.as_path());
        run.status == RunStatus::Live && !run.elsewhere && path != own && path != over.as_deref()
    });
    let live: Vec<_> = live.collect();
    let last = live.iter().filter(|run| {
        let mut others = live.iter();
        !others.any(|other| other.queued_after.as_deref() == Some(run.id.as_str()))
    });
    let last = last.max_by_key(|run| run.created)?;
    let stage = store.stages.get(&last.created_as);
    Some(Live {
        path: last.path.clone(),
        name: short_run(&last.id).into(),
        queued: last.phase == Some(Phase::Queued),
        in_pipeline: stage.is_some_and(|stage| stage.standing == PipelineStatus::Running),
    })
}
