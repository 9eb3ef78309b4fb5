//! Plan: what a run needs, takes and costs, with the few numbers that matter editable in place; what fits and what would
//! make it fit. During a run the plan stands beside what is measured.

mod below;
mod cursor;
mod draw;
mod facts;
mod fields;
mod pane;
mod stack;

pub use pane::ENTRY;

use crate::plan::changes::{Ladder, ladder};
use crate::plan::engines::{EngineChoice, Gpus, choose};
use crate::plan::ranks::on_gpus_named;
use crate::plan::solve::{MaxSizes, what_fits};
use crate::plan::{Device, Estimator, Plan, Request, Verdict, gpus, plan};
use crate::run::state::Level;
use crate::ui::field::TextField;
use crate::ui::keymap::Keymap;
use crate::ui::request::Request as Act;
use fields::{Field, Kind};
use std::path::PathBuf;

/// A request with everything that follows from it.
#[derive(Debug)]
struct Shown {
    /// As it came, for starting over.
    original: Request,
    request: Request,
    plan: Plan,
    fits: Option<MaxSizes>,
    ladder: Ladder,
    /// The engine on the GPUs of the request; `None` where it is for this machine's processor.
    engine: Option<EngineChoice>,
}

impl Shown {
    fn new(original: Request, request: Request) -> Shown {
        Shown {
            plan: plan(&request),
            fits: what_fits(&request),
            ladder: ladder(&request),
            engine: on_gpus(&request),
            original,
            request,
        }
    }
}

impl Shown {
    /// The device with its limit and price, and how many of them, where they are not those that the request came with.
    fn chosen_device(&self) -> Option<(Device, u64)> {
        let of = |request: &Request| (request.device.clone(), request.n_devices);
        let chosen = of(&self.request);
        (chosen != of(&self.original)).then_some(chosen)
    }
}

/// Another target on the devices that were chosen for the one before it: models are compared on one machine.
fn put_on(request: Request, device: Device, n_devices: u64) -> Request {
    match gpus::find(&device.name) {
        Some(gpu) => Request {
            device,
            n_devices,
            ..on_gpus_named(request, gpu, n_devices)
        },
        // This machine, with another limit.
        None => Request {
            device: Device {
                memory: device.memory,
                ..request.device
            },
            n_devices,
            ..request
        },
    }
}

/// The engine where the request names GPUs.
fn on_gpus(request: &Request) -> Option<EngineChoice> {
    let device = &request.device;
    let gpus = Gpus {
        name: device.name.clone(),
        memory: device.memory?,
        count: Some(request.n_devices),
        here: false,
    };
    match request.estimator {
        Estimator::General => choose(request, Some(&gpus)),
        Estimator::Engine => None,
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
    /// The identity of the run whose plan this is.
    run: Option<PathBuf>,
    /// That of the run whose plan came up by itself last: what is planned instead stays until there is another run.
    shown_for: Option<PathBuf>,
}

impl PlanPane {
    /// True before anything was asked for.
    pub fn idle(&self) -> bool {
        self.shown.is_none() && self.reading.is_none()
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
        let chosen = self.shown.as_ref().and_then(Shown::chosen_device);
        match result {
            Ok(request) => {
                self.show(*request, None);
                if let Some((device, n_devices)) = chosen {
                    self.change(|request| put_on(request, device, n_devices));
                }
            }
            Err(why) => self.error = Some(why),
        }
    }

    /// Shows a request; `run` is the identity of the run that it belongs to.
    pub fn show(&mut self, request: Request, run: Option<PathBuf>) {
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
    pub fn calibrate(&mut self, machine: &crate::plan::calibration::Machine) {
        if let Some(mut shown) = self.shown.take() {
            machine.calibrate(&mut shown.original);
            machine.calibrate(&mut shown.request);
            self.shown = Some(Shown::new(shown.original, shown.request));
        }
    }

    fn fields(&self) -> Vec<Field> {
        self.shown
            .as_ref()
            .map(|shown| Field::of(&shown.request))
            .unwrap_or_default()
    }

    /// Takes the changes that make it fit.
    fn apply(&mut self, keymap: &Keymap) -> Vec<Act> {
        let Some(shown) = self.shown.take() else {
            return Vec::new();
        };
        if shown.ladder.changes.is_empty() {
            let words = match shown.plan.verdict() {
                None => keymap.fill("no memory limit is set: {plan-device} chooses a device"),
                Some(Verdict::Fits) => "it fits: nothing to change".into(),
                Some(_) => "none of the listed changes makes it smaller".into(),
            };
            self.shown = Some(shown);
            return vec![Act::Toast(Level::Info, words)];
        }
        let request = shown.ladder.request.clone();
        self.shown = Some(Shown::new(shown.original, request));
        Vec::new()
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
}

#[cfg(test)]
mod tests;
