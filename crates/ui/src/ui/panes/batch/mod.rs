//! Time travel: the rows that a past step learned from with the loss of each token, the step before beside it, and the way
//! from there: back with the run itself, or on in a branch. Rows are computed again by a process of its own.

mod advice;
mod draw;
mod from_here;
#[cfg(test)]
mod tests;

pub use advice::{advice, is_refuted, last_step, starts};

use super::{Pane, PaneContext, PaneEntry, SPIN, run};
use crate::base::human::grouped;
use crate::run::revisit::Row;
use crate::run::state::Level;
use crate::ui::action::{Action, Context};
use crate::ui::effect::Effect;
use crate::ui::freshness::Freshness;
use crate::ui::hit::Target;
use crate::ui::msg::{BranchPlan, Holder, Msg, Revisited, Slot};
use crate::ui::overlays::Prompt;
use crate::ui::request::{Answer, Hints, Request, Topic, titles};
use crate::ui::store::Store;
use ratatui::Frame;
use ratatui::layout::Rect;
use std::path::PathBuf;
use std::time::Duration;

pub static ENTRY: PaneEntry = PaneEntry {
    id: "batch",
    title: "Batch",
    doc: "Go to Batch: a step's rows with the loss of each token; roll back or branch from there.",
    contexts: &[Context::Batch, Context::List, Context::Global],
    everywhere: &[],
    make: || Box::new(BatchPane::default()),
};

/// The step to look at, said by another pane.
pub const STEP: Topic = topic("step");

const fn topic(about: &'static str) -> Topic {
    Topic {
        pane: &ENTRY,
        about,
    }
}

/// The cursors, and what was computed.
#[derive(Debug, Default)]
pub struct BatchPane {
    /// Whose rows these are.
    slot: Option<Slot>,
    run: Option<PathBuf>,
    /// The step to look at, counted from 1.
    step: Option<u64>,
    /// What is being computed, for which step.
    under_way: Option<u64>,
    found: Option<Revisited>,
    fault: Option<String>,
    /// The highest loss first instead of the order in which the step read them.
    worst_first: bool,
    marked: usize,
    /// Lines of the marked row scrolled away, and how many there could be.
    scroll: usize,
    most: usize,
    page: usize,
    /// The branch that is being made.
    branch: Option<BranchPlan>,
}

impl BatchPane {
    /// Another run gets fresh cursors.
    fn follow(&mut self, store: &Store) {
        let held = store.held.as_ref();
        let slot = held.map(|held| held.slot);
        if slot != self.slot {
            *self = BatchPane {
                slot,
                ..BatchPane::default()
            };
        }
        self.run = held.and_then(|held| held.path.clone());
    }

    /// Asks for the step that is to be shown, unless it is there or something is under way.
    fn ask(&mut self, store: &Store) -> Vec<Request> {
        let foreign = store.held.as_ref().is_some_and(|held| held.holder == Holder::Foreign);
        let newest = store.held.as_ref().map_or(0, |held| held.state.step);
        if self.step.is_none() && newest > 0 {
            self.step = Some(newest);
        }
        let (Some(run_dir), Some(step), false) = (self.run.clone(), self.step, foreign) else {
            return Vec::new();
        };
        let there = self.found.as_ref().is_some_and(|found| found.step == step);
        if there || self.under_way.is_some() || self.fault.is_some() {
            return Vec::new();
        }
        self.under_way = Some(step);
        vec![Request::Do(Effect::Revisit { run_dir, step })]
    }

    fn go_to(&mut self, step: u64, store: &Store) -> Vec<Request> {
        let newest = store.held.as_ref().map_or(0, |held| held.state.step);
        let step = step.clamp(1, newest.max(1));
        if self.step != Some(step) {
            (self.step, self.fault) = (Some(step), None);
            (self.marked, self.scroll) = (0, 0);
        }
        self.ask(store)
    }

    /// Goes to the typed step; if the run does not have it, to the nearest one, with a message.
    fn go_to_typed(&mut self, step: u64, store: &Store) -> Vec<Request> {
        let newest = store.held.as_ref().map_or(0, |held| held.state.step);
        let asked = self.go_to(step, store);
        let there = (1..=newest).contains(&step);
        let words = match newest {
            0 => "no steps completed yet".into(),
            newest => format!(
                "no step {}: the run has steps 1 to {}",
                grouped(step),
                grouped(newest)
            ),
        };
        let toast = (!there).then_some(Request::Toast(Level::Info, words));
        toast.into_iter().chain(asked).collect()
    }

    /// The rows on the screen, in their order.
    fn rows(&self) -> Vec<&Row> {
        let found = self.found.iter();
        let mut rows: Vec<&Row> = found.flat_map(|found| &found.rows).collect();
        if self.worst_first {
            let loss = |row: &Row| row.loss().unwrap_or(f64::NEG_INFINITY);
            rows.sort_by(|a, b| loss(b).total_cmp(&loss(a)));
        }
        rows
    }

    fn mark(&mut self, row: usize) {
        let last = self.rows().len().saturating_sub(1);
        (self.marked, self.scroll) = (row.min(last), 0);
    }

    fn take(&mut self, step: u64, result: &Result<Box<Revisited>, String>) {
        self.under_way = None;
        if self.step != Some(step) {
            return;
        }
        match result {
            Ok(found) => {
                self.found = Some((**found).clone());
                self.mark(self.marked);
            }
            Err(why) => {
                self.found = None;
                self.fault = Some(why.clone());
            }
        }
    }
}

impl Pane for BatchPane {
    fn hints(&self, store: &Store) -> Hints {
        use Action as A;
        match store.held {
            Some(_) => Hints::of_pane(titles(&[
                A::Cancel,
                A::BatchEarlier,
                A::BatchLater,
                A::BatchStep,
                A::BatchSort,
                A::FromHere,
            ])),
            None => Hints::of_pane(titles(&[A::Cancel])),
        }
    }

    fn tick(&self, _store: &Store) -> Option<Duration> {
        self.under_way.map(|_| SPIN)
    }

    fn enter(&mut self, context: &mut PaneContext) -> Vec<Request> {
        self.follow(context.store);
        self.ask(context.store)
    }

    fn act(&mut self, action: Action, context: &mut PaneContext) -> Vec<Request> {
        let store = context.store;
        self.follow(store);
        let (page, step) = (self.page.max(1), self.step.unwrap_or(1));
        match action {
            Action::Cancel => return vec![Request::Show(&run::ENTRY)],
            Action::BatchEarlier => return self.go_to(step.saturating_sub(1), store),
            Action::BatchLater => return self.go_to(step + 1, store),
            Action::BatchStep => {
                let hint = "{accept} goes there";
                let prompt = Prompt::new(STEP, "the batch of step", hint).needed();
                return vec![Request::Open(Box::new(prompt))];
            }
            Action::BatchSort => {
                self.worst_first = !self.worst_first;
                self.mark(0);
            }
            Action::FromHere | Action::Accept => return self.next_actions(store),
            Action::Up => self.mark(self.marked.saturating_sub(1)),
            Action::Down => self.mark(self.marked + 1),
            Action::Top => self.mark(0),
            Action::Bottom => self.mark(usize::MAX),
            Action::PageUp => self.scroll = self.scroll.saturating_sub(page),
            Action::PageDown => self.scroll = (self.scroll + page).min(self.most),
            _ => {}
        }
        Vec::new()
    }

    fn click(&mut self, row: usize, _context: &mut PaneContext) -> Vec<Request> {
        self.mark(row);
        Vec::new()
    }

    fn incoming(&mut self, msg: &Msg, context: &mut PaneContext) -> Vec<Request> {
        self.follow(context.store);
        let ours = |run_dir: &PathBuf| self.run.as_ref() == Some(run_dir);
        match msg {
            Msg::Revisited {
                run_dir,
                step,
                result,
            } if ours(run_dir) => {
                self.take(*step, result);
                let mut requests = vec![Request::Draw(Freshness::Asked)];
                requests.extend(self.ask(context.store));
                requests
            }
            Msg::BranchPlanned { run_dir, result, .. } if ours(run_dir) => self.planned(result),
            Msg::BranchMade { run_dir, result } if ours(run_dir) => match result {
                Ok(path) => vec![Request::ResumeRun(path.clone())],
                Err(why) => vec![Request::Toast(Level::Bad, format!("no branch: {why}"))],
            },
            // The run may have been opened while the pane was in front.
            Msg::Opened { .. } | Msg::Incoming { .. } if context.in_front && self.step.is_none() => {
                self.ask(context.store)
            }
            Msg::Tick if context.in_front && self.under_way.is_some() => {
                vec![Request::Draw(Freshness::Asked)]
            }
            _ => Vec::new(),
        }
    }

    fn answered(
        &mut self,
        about: &str,
        answer: Answer,
        context: &mut PaneContext,
    ) -> Vec<Request> {
        self.follow(context.store);
        match (about, answer) {
            ("step", Answer::Text(text)) => match text.replace([',', '_', ' '], "").parse() {
                Ok(step) => self.go_to_typed(step, context.store),
                Err(_) => {
                    let words = format!("`{text}` is not a step number: write a whole number");
                    vec![Request::Toast(Level::Warn, words)]
                }
            },
            ("advice", Answer::Text(text)) => self.follow_advice(&text, context.store),
            (about, answer) => self.on_action_answer(about, answer, context.store),
        }
    }

    fn draw(&mut self, frame: &mut Frame, area: Rect, context: &mut PaneContext) {
        self.follow(context.store);
        let rows = self.draw_all(frame.buffer_mut(), area, context.store, context.theme);
        for (row, area) in rows {
            context.hits.add(area, Target::Row(row));
        }
    }
}
