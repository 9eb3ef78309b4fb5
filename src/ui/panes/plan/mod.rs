//! Plan: what a run needs, takes and costs, with the few numbers that matter editable in place; what fits and what would
//! make it fit. During a run the plan stands beside what is measured.

mod draw;
mod fields;
mod stack;

use super::PaneContext;
use crate::plan::changes::{Ladder, ladder};
use crate::plan::solve::{WhatFits, what_fits};
use crate::plan::{Plan, Request, plan};
use crate::ui::action::Action;
use crate::ui::field::{Lines, TextField};
use crossterm::event::KeyEvent;
use fields::{Field, Kind};
use ratatui::Frame;
use ratatui::layout::Rect;

/// What the pane asks the app to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PaneRequest {
    None,
    /// Open the list of things to plan.
    Targets,
    /// Open the list of devices.
    Devices,
}

/// A request with everything that follows from it.
#[derive(Debug)]
struct Shown {
    /// As it came, for starting over.
    original: Request,
    request: Request,
    plan: Plan,
    fits: Option<WhatFits>,
    ladder: Ladder,
}

impl Shown {
    fn new(original: Request, request: Request) -> Shown {
        Shown {
            plan: plan(&request),
            fits: what_fits(&request),
            ladder: ladder(&request),
            original,
            request,
        }
    }
}

/// A field that is being typed.
#[derive(Debug)]
struct Editing {
    field: Field,
    text: TextField,
    /// What was wrong at the last Enter.
    error: Option<String>,
}

/// The pane's cursors.
#[derive(Debug, Default)]
pub struct PlanPane {
    shown: Option<Shown>,
    selected: usize,
    scroll: usize,
    editing: Option<Editing>,
    /// What is being read, and what went wrong when it was.
    reading: Option<String>,
    error: Option<String>,
    /// The run whose plan this is.
    run: Option<String>,
}

impl PlanPane {
    /// True while letters are text.
    pub fn typing(&self) -> bool {
        self.editing.is_some()
    }

    /// True before anything was asked for.
    pub fn idle(&self) -> bool {
        self.shown.is_none() && self.reading.is_none()
    }

    /// The run on the screen, if the pane shows its plan.
    pub fn run(&self) -> Option<&str> {
        self.run.as_deref()
    }

    /// A target is being read.
    pub fn read(&mut self, name: &str) {
        self.reading = Some(name.to_string());
        self.error = None;
        self.editing = None;
    }

    /// A target came, or why not. Late answers to an earlier question are dropped.
    pub fn planned(&mut self, name: &str, result: Result<Box<Request>, String>) {
        if self.reading.as_deref() != Some(name) {
            return;
        }
        self.reading = None;
        match result {
            Ok(request) => self.show(*request, None),
            Err(why) => self.error = Some(why),
        }
    }

    /// Shows a request; `run` names the run that it belongs to.
    pub fn show(&mut self, request: Request, run: Option<String>) {
        (self.reading, self.error, self.editing) = (None, None, None);
        self.run = run;
        self.shown = Some(Shown::new(request.clone(), request));
        self.selected = self.selected.min(self.fields().len().saturating_sub(1));
    }

    /// The request as it stands.
    pub fn request(&self) -> Option<&Request> {
        self.shown.as_ref().map(|shown| &shown.request)
    }

    /// Puts another device under the request.
    pub fn change(&mut self, change: impl FnOnce(Request) -> Request) {
        if let Some(shown) = self.shown.take() {
            let request = change(shown.request);
            self.shown = Some(Shown::new(shown.original, request));
            self.selected = self.selected.min(self.fields().len().saturating_sub(1));
        }
    }

    /// Puts what is known of this machine under the plan, before and after its changes.
    pub fn equip(&mut self, machine: &crate::plan::learn::Machine) {
        if let Some(mut shown) = self.shown.take() {
            machine.equip(&mut shown.original);
            machine.equip(&mut shown.request);
            self.shown = Some(Shown::new(shown.original, shown.request));
        }
    }

    fn fields(&self) -> Vec<Field> {
        self.shown
            .as_ref()
            .map(|shown| Field::of(&shown.request))
            .unwrap_or_default()
    }

    pub fn act(&mut self, action: Action) -> PaneRequest {
        let fields = self.fields();
        let Some(field) = fields.get(self.selected).copied() else {
            return if matches!(action, Action::Accept | Action::PlanTarget) {
                PaneRequest::Targets
            } else {
                PaneRequest::None
            };
        };
        if self.editing.is_some() {
            match action {
                Action::Accept => self.commit(),
                Action::Cancel => self.editing = None,
                Action::Up | Action::Down if self.commit_quietly() => return self.act(action),
                _ => {}
            }
            return PaneRequest::None;
        }
        let last = fields.len() - 1;
        match action {
            Action::Up => self.selected = self.selected.checked_sub(1).unwrap_or(last),
            Action::Down => {
                self.selected = if self.selected >= last {
                    0
                } else {
                    self.selected + 1
                }
            }
            Action::Top | Action::PageUp => self.selected = 0,
            Action::Bottom | Action::PageDown => self.selected = last,
            Action::Accept => return self.enter(field),
            Action::Less | Action::More => {
                self.change(|mut r| {
                    field.step(&mut r, action == Action::More);
                    r
                });
            }
            Action::PlanTarget => return PaneRequest::Targets,
            Action::PlanDevice => return PaneRequest::Devices,
            Action::PlanApply => self.apply(),
            Action::PlanReset => {
                if let Some(shown) = self.shown.take() {
                    self.shown = Some(Shown::new(shown.original.clone(), shown.original));
                }
            }
            _ => {}
        }
        PaneRequest::None
    }

    fn enter(&mut self, field: Field) -> PaneRequest {
        match (field.kind(), field) {
            (Kind::List, Field::Device) => return PaneRequest::Devices,
            (Kind::List, _) => return PaneRequest::Targets,
            (Kind::Word, _) => self.change(|mut r| {
                field.step(&mut r, true);
                r
            }),
            (Kind::Number, _) => {
                let text = self.request().map(|r| field.text(r)).unwrap_or_default();
                let text = TextField::new(Lines::One, &text);
                self.editing = Some(Editing {
                    field,
                    text,
                    error: None,
                });
            }
        }
        PaneRequest::None
    }

    /// Takes the changes that make it fit.
    fn apply(&mut self) {
        if let Some(shown) = self.shown.take() {
            let request = shown.ladder.request.clone();
            self.shown = Some(Shown::new(shown.original, request));
        }
    }

    /// Takes what was typed; stays open with the reason when it is no value.
    fn commit(&mut self) {
        let Some(editing) = &mut self.editing else {
            return;
        };
        let Some(shown) = &self.shown else { return };
        let mut request = shown.request.clone();
        match editing.field.parse(&mut request, &editing.text.text()) {
            Ok(()) => {
                self.editing = None;
                self.change(|_| request);
            }
            Err(why) => editing.error = Some(why),
        }
    }

    fn commit_quietly(&mut self) -> bool {
        self.commit();
        self.editing.is_none()
    }

    /// A key that no binding took.
    pub fn key(&mut self, key: KeyEvent) {
        if let Some(editing) = &mut self.editing {
            editing.error = None;
            editing.text.key(key);
        }
    }

    pub fn paste(&mut self, text: &str) {
        if let Some(editing) = &mut self.editing {
            editing.text.paste(text);
        }
    }

    /// A click selects a row, a second one changes it.
    pub fn click(&mut self, row: usize) -> PaneRequest {
        if self.selected == row && self.editing.is_none() {
            return self.act(Action::Accept);
        }
        self.editing = None;
        self.selected = row.min(self.fields().len().saturating_sub(1));
        PaneRequest::None
    }

    pub fn draw(&mut self, frame: &mut Frame, area: Rect, context: &mut PaneContext) {
        draw::draw(self, frame, area, context);
    }
}

#[cfg(test)]
mod tests;
