//! The runs of several machines in one list. What machines say comes from their connections; here are the cursors.

mod draw;

use super::{Pane, PaneContext, PaneEntry};
use crate::fleet::{Fleet, Place, HostStatus, Sort};
use crate::run::state::Level;
use crate::ui::action::{Action, Context};
use crate::ui::effect::Effect;
use crate::ui::freshness::Freshness;
use crate::ui::hit::Target;
use crate::ui::msg::Msg;
use crate::ui::request::{Hints, Request, titles};
use crate::ui::store::Store;
use ratatui::Frame;
use ratatui::layout::Rect;
use std::path::PathBuf;
use std::time::Duration;

pub static ENTRY: PaneEntry = PaneEntry {
    id: "fleet",
    title: "Fleet",
    doc: "Go to Fleet: the runs of several machines in one list (llmtui fleet).",
    contexts: &[Context::Fleet, Context::List, Context::Global],
    everywhere: &[],
    make: || Box::new(FleetPane::default()),
};

/// How often "last seen" is refreshed.
const TICK: Duration = Duration::from_secs(5);

/// The list and its cursors.
#[derive(Debug, Default)]
pub struct FleetPane {
    fleet: Option<Fleet>,
    sort: Sort,
    /// Host and id of the marked run: rows move, the mark stays with its run.
    marked: Option<(usize, String)>,
    page: usize,
    first: usize,
}

impl FleetPane {
    fn walk(&mut self, by: i64) {
        let Some(fleet) = &self.fleet else {
            return;
        };
        let rows = fleet.rows(self.sort);
        let at = self.place(fleet).unwrap_or(0) as i64;
        let to = at.saturating_add(by).clamp(0, rows.len().max(1) as i64 - 1);
        self.marked = rows.get(to as usize).map(|row| (row.at, row.run.id.clone()));
    }

    /// Where the marked run stands now.
    fn place(&self, fleet: &Fleet) -> Option<usize> {
        let (at, id) = self.marked.as_ref()?;
        let rows = fleet.rows(self.sort);
        rows.iter().position(|row| row.at == *at && row.run.id == *id)
    }

    /// Watches the machines of the user's file; then shows the marked run: here in this workbench, elsewhere over ssh in this terminal.
    fn open(&self) -> Vec<Request> {
        let Some(fleet) = &self.fleet else {
            return vec![Request::Do(Effect::WatchFleet)];
        };
        let rows = fleet.rows(self.sort);
        let Some(row) = rows.get(self.place(fleet).unwrap_or(0)) else {
            return Vec::new();
        };
        let host = &row.host.host;
        if matches!(row.host.reach, HostStatus::Gone { .. }) {
            let words = format!("{} is unreachable; retrying", host.name);
            return vec![Request::Toast(Level::Warn, words)];
        }
        vec![match (&host.place, &host.runs_dir) {
            (Place::Here, Some(dir)) => Request::OpenRun(PathBuf::from(dir).join(&row.run.id)),
            _ => Request::Do(Effect::AttachThere {
                host: row.at,
                run: row.run.id.clone(),
            }),
        }]
    }
}

impl Pane for FleetPane {
    fn hints(&self, _store: &Store) -> Hints {
        Hints::of_pane(match self.fleet {
            Some(_) => {
                let mut hints = vec![(Action::Accept, "show run")];
                hints.extend(titles(&[Action::FleetSort]));
                hints
            }
            None => vec![(Action::Accept, "connect")],
        })
    }

    fn tick(&self, _store: &Store) -> Option<Duration> {
        self.fleet.is_some().then_some(TICK)
    }

    fn act(&mut self, action: Action, _context: &mut PaneContext) -> Vec<Request> {
        let page = self.page.max(1) as i64;
        match action {
            Action::Accept => return self.open(),
            Action::FleetSort => self.sort = self.sort.next(),
            Action::Up => self.walk(-1),
            Action::Down => self.walk(1),
            Action::PageUp => self.walk(-page),
            Action::PageDown => self.walk(page),
            Action::Top => self.walk(i64::MIN / 2),
            Action::Bottom => self.walk(i64::MAX / 2),
            _ => {}
        }
        Vec::new()
    }

    fn click(&mut self, row: usize, _context: &mut PaneContext) -> Vec<Request> {
        if let Some(fleet) = &self.fleet {
            let rows = fleet.rows(self.sort);
            self.marked = rows.get(row).map(|row| (row.at, row.run.id.clone()));
        }
        Vec::new()
    }

    fn incoming(&mut self, msg: &Msg, context: &mut PaneContext) -> Vec<Request> {
        match msg {
            Msg::FleetOpened(hosts) => {
                self.fleet = Some(Fleet::new(hosts.clone(), context.store.elapsed));
                vec![Request::Draw(Freshness::Asked)]
            }
            Msg::Fleet { at, said } => {
                if let Some(fleet) = &mut self.fleet {
                    fleet.apply(*at, said.clone(), context.store.elapsed);
                }
                vec![Request::Draw(Freshness::DataMoved)]
            }
            Msg::Tick if context.in_front => vec![Request::Draw(Freshness::DataMoved)],
            _ => Vec::new(),
        }
    }

    fn draw(&mut self, frame: &mut Frame, area: Rect, context: &mut PaneContext) {
        let rows = self.draw_all(frame.buffer_mut(), area, context.store.moment(), context.keymap, context.theme);
        for (row, area) in rows {
            context.hits.add(area, Target::Row(row));
        }
    }
}

#[cfg(test)]
mod tests;
