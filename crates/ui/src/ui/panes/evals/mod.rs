//! Stored evaluations side by side: tasks down, models across, each against the first one; behind a task its items, with the
//! prompt and what each model made of it. Models are chosen on Home or here; files are read by jobs.

mod draw;
mod items;

use super::{Pane, PaneContext, PaneEntry, home};
use crate::base::text::{one_line, shown};
use crate::run::state::Level;
use crate::tasks::{MAX_MODELS, TaskRow, TaskTable};
use crate::ui::action::{Action, Context};
use crate::ui::effect::Effect;
use crate::ui::freshness::Freshness;
use crate::ui::hit::Target;
use crate::ui::msg::Msg;
use crate::ui::overlays::{Choice, Item, Picker};
use crate::ui::request::{Answer, Hints, Request, Topic, titles};
use crate::ui::store::{Store, short_run};
use crate::ui::widgets::frame;
use items::Items;
use ratatui::Frame;
use ratatui::layout::Rect;
use std::path::PathBuf;

pub static ENTRY: PaneEntry = PaneEntry {
    id: "evals",
    title: "Evals",
    doc: "Go to Evaluations: results of several models on the same tasks, and their answers.",
    contexts: &[Context::Evals, Context::List, Context::Global],
    everywhere: &[],
    make: || Box::new(EvalsPane::default()),
};

/// Models whose evaluations are to be shown.
pub const MODELS: Topic = topic("models");

const fn topic(about: &'static str) -> Topic {
    Topic {
        pane: &ENTRY,
        about,
    }
}

/// The cursors, and what was read.
#[derive(Debug, Default)]
pub struct EvalsPane {
    /// Directories of runs, and folders of answers of other models, in the order of the columns.
    subjects: Vec<PathBuf>,
    table: TaskTable,
    /// Why they could not be read.
    fault: Option<String>,
    reading: bool,
    /// Models that have answers, for the list to choose from.
    known: Vec<(String, PathBuf)>,
    /// The marked task.
    row: usize,
    first: usize,
    page: usize,
    /// The items of a task, in front of the table.
    items: Option<Items>,
}

impl EvalsPane {
    fn read(&mut self) -> Vec<Request> {
        self.reading = !self.subjects.is_empty();
        match self.reading {
            true => vec![Request::Do(Effect::ReadEvals(self.subjects.clone()))],
            false => {
                self.take(TaskTable::default());
                Vec::new()
            }
        }
    }

    /// The mark stays on its task.
    fn take(&mut self, table: TaskTable) {
        let before = self.marked().map(|row| row.task.clone());
        let same = table.rows.iter().position(|row| Some(&row.task) == before.as_ref());
        self.row = same.unwrap_or(0);
        self.table = table;
    }

    fn marked(&self) -> Option<&TaskRow> {
        self.table.rows.get(self.row)
    }

    fn choose(&mut self, paths: Vec<PathBuf>) -> Vec<Request> {
        let mut requests = Vec::new();
        if paths.len() > MAX_MODELS {
            let words = format!("at most {MAX_MODELS} models: the first ones are shown");
            requests.push(Request::Toast(Level::Info, words));
        }
        self.subjects.clear();
        for path in paths.into_iter().take(MAX_MODELS) {
            if !self.subjects.contains(&path) {
                self.subjects.push(path);
            }
        }
        self.items = None;
        requests.extend(self.read());
        requests
    }

    /// Runs, and models that were asked by themselves.
    fn picker(&self, store: &Store) -> Picker {
        let runs = store.runs().iter();
        let runs = runs.map(|run| (short_run(&run.id).to_string(), run.path.clone()));
        let all = runs.chain(self.known.iter().cloned());
        let items = all.filter(|(_, path)| !self.subjects.contains(path));
        let items = items.map(|(title, path)| Item {
            title: one_line(&title),
            detail: shown(&path),
            right: String::new(),
            choice: Choice::Answer(topic("add"), Answer::Path(path)),
        });
        let empty = "no other model was evaluated: llmtui eval evaluates one";
        Picker::new("add a model", empty, items.collect()).about(topic("add"))
    }

    fn open(&mut self) -> Vec<Request> {
        match self.marked() {
            Some(row) => vec![Request::Do(Effect::ReadQuestions(Box::new(row.clone())))],
            None => Vec::new(),
        }
    }

    fn walk(&mut self, action: Action) {
        let last = self.table.rows.len().saturating_sub(1);
        let page = self.page.max(1);
        self.row = match action {
            Action::Up => self.row.saturating_sub(1),
            Action::Down => self.row + 1,
            Action::PageUp => self.row.saturating_sub(page),
            Action::PageDown => self.row + page,
            Action::Top => 0,
            Action::Bottom => last,
            _ => self.row,
        }
        .min(last);
    }
}

impl Pane for EvalsPane {
    fn hints(&self, _store: &Store) -> Hints {
        use Action as A;
        let mut own = Vec::new();
        if self.items.is_some() {
            own.extend([(A::Cancel, "back"), (A::Down, "next item"), (A::PageDown, "scroll")]);
            own.extend(titles(&[A::EvalsOnly]));
            return Hints::of_pane(own);
        }
        own.extend(titles(&[A::Cancel]));
        if !self.table.rows.is_empty() {
            own.push((A::Accept, "items"));
        }
        own.extend(titles(&[A::EvalsAdd]));
        if !self.subjects.is_empty() {
            own.extend(titles(&[A::EvalsDrop, A::EvalsAgain]));
        }
        Hints::of_pane(own)
    }

    fn enter(&mut self, _context: &mut PaneContext) -> Vec<Request> {
        let mut requests = vec![
            Request::Do(Effect::RefreshRuns),
            Request::Do(Effect::ListEvals),
        ];
        if !self.reading {
            requests.extend(self.read());
        }
        requests
    }

    fn act(&mut self, action: Action, context: &mut PaneContext) -> Vec<Request> {
        match (action, &mut self.items) {
            (Action::EvalsAdd, _) => return vec![Request::Open(Box::new(self.picker(context.store)))],
            (Action::EvalsDrop, _) => {
                self.subjects.pop();
                self.items = None;
                return self.read();
            }
            (Action::EvalsAgain, _) => return self.read(),
            (Action::Cancel, Some(_)) => self.items = None,
            (Action::Cancel, None) => return vec![Request::Show(&home::ENTRY)],
            (action, Some(items)) => items.act(action),
            (Action::Accept, None) => return self.open(),
            (action, None) => self.walk(action),
        }
        Vec::new()
    }

    /// A click marks a row, a second one opens a task.
    fn click(&mut self, row: usize, _context: &mut PaneContext) -> Vec<Request> {
        match &mut self.items {
            Some(items) => items.select(row),
            None if row == self.row => return self.open(),
            None => self.row = row,
        }
        Vec::new()
    }

    fn incoming(&mut self, msg: &Msg, _context: &mut PaneContext) -> Vec<Request> {
        match msg {
            Msg::Evals { subjects, result } if *subjects == self.subjects => {
                self.reading = false;
                self.fault = result.as_ref().err().cloned();
                if let Ok(table) = result {
                    self.take((**table).clone());
                }
            }
            Msg::Questions { row, result } if self.marked() == Some(&**row) => match result {
                Ok(questions) => {
                    let models = self.table.models.clone();
                    self.items = Some(Items::new((**row).clone(), models, questions.clone()));
                }
                Err(why) => return vec![Request::Toast(Level::Bad, why.clone())],
            },
            Msg::EvalModels(known) => self.known.clone_from(known),
            _ => return Vec::new(),
        }
        vec![Request::Draw(Freshness::DataMoved)]
    }

    fn answered(&mut self, about: &str, answer: Answer, _: &mut PaneContext) -> Vec<Request> {
        match (about, answer) {
            ("models", Answer::Paths(paths)) => self.choose(paths),
            ("add", Answer::Path(path)) => {
                let mut paths = self.subjects.clone();
                paths.push(path);
                self.choose(paths)
            }
            _ => Vec::new(),
        }
    }

    fn draw(&mut self, frame: &mut Frame, area: Rect, context: &mut PaneContext) {
        let buffer = frame.buffer_mut();
        let inner = frame::with_padding(area);
        let rows = match &mut self.items {
            Some(items) => items.draw(buffer, inner, context.theme),
            None => self.draw_table(buffer, inner, context),
        };
        for (row, place) in rows {
            context.hits.add(place, Target::Row(row));
        }
    }
}

#[cfg(test)]
mod tests;
