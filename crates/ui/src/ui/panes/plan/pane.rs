//! The plan among the panes: what its keys do, and the lists of things to plan and of devices.

use super::{Editing, Field, Kind, PlanPane, Shown, draw};
use crate::base::human;
use crate::plan::ranks::on_gpus_named;
use crate::plan::request::Device;
use crate::plan::target::on_engine;
use crate::plan::{Estimator, Request as PlanRequest, gpus, measured, models};
use crate::ui::action::{Action, Context};
use crate::ui::effect::Effect;
use crate::ui::field::{Lines, TextField};
use crate::ui::freshness::Freshness;
use crate::ui::msg::Msg;
use crate::ui::overlays::{Choice, Item, Picker};
use crate::ui::panes::{Pane, PaneContext, PaneEntry};
use crate::ui::request::{Answer, Hints, Request, Topic, titles};
use crate::ui::store::{OpenRun, Store};
use crossterm::event::KeyEvent;
use ratatui::Frame;
use ratatui::layout::Rect;

pub static ENTRY: PaneEntry = PaneEntry {
    id: "plan",
    title: "Plan",
    doc: "Go to Plan: memory, time and cost of a run, and what fits.",
    contexts: &[Context::Plan, Context::List, Context::Global],
    everywhere: &[],
    make: || Box::new(PlanPane::default()),
};

/// Planned when nothing else suggests itself.
const FIRST: &str = "quickstart";

const TARGET: &str = "target";
const DEVICE: &str = "device";
/// The row of the run on the screen among the targets, and of this machine among the devices.
const HERE: &str = "";

impl PlanPane {
    /// The open run's plan when there is a new one, else that of the preset selected last.
    fn first(&mut self, store: &Store) -> Vec<Request> {
        let run = store.held.as_ref().and_then(OpenRun::identity);
        if run.is_some() && run != self.shown_for && self.show_run(store) {
            return Vec::new();
        }
        match self.idle() {
            true => self.look_up(store.preset.as_deref().unwrap_or(FIRST)),
            false => Vec::new(),
        }
    }

    /// Shows the plan of the run on the screen; false before it has reported its spec.
    fn show_run(&mut self, store: &Store) -> bool {
        let Some(held) = &store.held else {
            return false;
        };
        let machine = held.hardware.machine.as_ref();
        let Some(mut request) = measured::request_of(&held.state, machine) else {
            return false;
        };
        store.calibrate(&mut request);
        self.shown_for = held.identity();
        self.show(request, held.identity());
        true
    }

    fn look_up(&mut self, name: &str) -> Vec<Request> {
        self.read(name);
        let name = name.to_string();
        vec![Request::Do(Effect::PlanTarget { name })]
    }

    /// Puts a GPU of the table under the plan, or this machine.
    pub(super) fn on(&mut self, name: &str, store: &Store) {
        match gpus::find(name).filter(|_| name != HERE) {
            Some(gpu) => self.change(|request| on_gpus_named(request, gpu, 1)),
            None => {
                let engine = self.shown.as_ref().map(|shown| shown.original.clone());
                let engine = engine.filter(|request| request.estimator == Estimator::Engine);
                self.change(|request| {
                    let mut request = match &engine {
                        Some(engine) => on_engine(request, engine),
                        None => PlanRequest {
                            device: Device::limit("this machine", None),
                            ..request
                        },
                    };
                    store.calibrate(&mut request);
                    request
                });
            }
        }
    }

    fn act_editing(&mut self, action: Action, context: &mut PaneContext) -> Vec<Request> {
        match action {
            Action::Accept => self.commit(),
            Action::Cancel => self.editing = None,
            Action::Up | Action::Down if self.commit_quietly() => return self.act(action, context),
            _ => {}
        }
        Vec::new()
    }

    fn enter_field(&mut self, field: Field, store: &Store) -> Vec<Request> {
        match (field.kind(), field) {
            (Kind::List, Field::Device) => return vec![devices()],
            (Kind::List, _) => return vec![targets(store)],
            (Kind::Word, _) => self.step(field, true),
            (Kind::Number, _) => {
                let text = self.request().map(|r| field.text(r)).unwrap_or_default();
                self.editing = Some(Editing {
                    field,
                    text: TextField::new(Lines::One, &text),
                    error: None,
                });
            }
        }
        Vec::new()
    }

    fn step(&mut self, field: Field, forward: bool) {
        self.change(|mut r| {
            field.step(&mut r, forward);
            r
        });
    }
}

const fn topic(about: &'static str) -> Topic {
    Topic {
        pane: &ENTRY,
        about,
    }
}

fn answer(about: &'static str, name: &str) -> Choice {
    Choice::Answer(topic(about), Answer::Text(name.into()))
}

fn targets(store: &Store) -> Request {
    let item = |title: &str, detail: String, right: String, name: &str| Item {
        title: title.into(),
        detail,
        right,
        choice: answer(TARGET, name),
    };
    let held = store.held.as_ref().filter(|h| h.state.head.is_some());
    let here = held.map(|held| {
        let name = held.name().to_string();
        item("the run on the screen", name, String::new(), HERE)
    });
    let mut items: Vec<Item> = here.into_iter().collect();
    let presets = store.run_presets();
    items.extend(presets.map(|p| item(&p.title(), p.about.clone(), String::new(), &p.name)));
    items.extend(models::MODELS.iter().map(|m| {
        let n = crate::base::human::short(m.arch.n_params() as f64);
        let layers = human::counted(m.arch.n_layer(), "layer");
        let shape = format!("{layers} of {}", m.arch.d_model());
        item(m.name, shape, n, m.name)
    }));
    let picker = Picker::new("what to plan", "", items).about(topic(TARGET));
    Request::Open(Box::new(picker))
}

fn devices() -> Request {
    let mut items = vec![Item {
        title: "this machine".into(),
        detail: "llmtui's own engine, on the CPU".into(),
        right: String::new(),
        choice: answer(DEVICE, HERE),
    }];
    items.extend(gpus::GPUS.iter().map(|gpu| Item {
        title: gpu.name.into(),
        detail: format!(
            "{}, {} TFLOP/s in bf16, {} GB/s",
            human::bytes(gpu.memory()),
            gpu.bf16_tflops,
            gpu.bandwidth_gbs
        ),
        right: gpu.price.map_or("no price known".into(), |price| {
            format!("${:.2} to ${:.2} an hour", price.low, price.high)
        }),
        choice: answer(DEVICE, gpu.name),
    }));
    let picker = Picker::new("choose a device", "", items).about(topic(DEVICE));
    Request::Open(Box::new(picker))
}

impl Pane for PlanPane {
    fn hints(&self, _store: &Store) -> Hints {
        use Action as A;
        if self.typing() {
            return Hints {
                own: vec![(A::Accept, "accept"), (A::Down, "accept, next")],
                kept: vec![(A::Cancel, "as it was")],
            };
        }
        let mut own = vec![(A::Accept, "change")];
        // What is chosen from a list has no smaller and no larger one.
        let field = self.fields().get(self.selected).copied();
        if field.is_some_and(|field| field.kind() != Kind::List) {
            own.extend(titles(&[A::Less, A::More]));
        }
        own.extend(titles(&[
            A::PlanTarget,
            A::PlanDevice,
            A::PlanApply,
            A::PlanReset,
        ]));
        Hints::of_pane(own)
    }

    fn typing(&self) -> bool {
        self.editing.is_some()
    }

    fn enter(&mut self, context: &mut PaneContext) -> Vec<Request> {
        let mut requests = vec![Request::Do(Effect::LookAtMachine)];
        requests.extend(self.first(context.store));
        requests
    }

    fn act(&mut self, action: Action, context: &mut PaneContext) -> Vec<Request> {
        let store = context.store;
        let fields = self.fields();
        let Some(field) = fields.get(self.selected).copied() else {
            return match action {
                Action::Accept | Action::PlanTarget => vec![targets(store)],
                _ => Vec::new(),
            };
        };
        if self.editing.is_some() {
            return self.act_editing(action, context);
        }
        let last = fields.len() - 1;
        match action {
            Action::Up => self.selected = self.selected.checked_sub(1).unwrap_or(last),
            Action::Down if self.selected >= last => self.selected = 0,
            Action::Down => self.selected += 1,
            Action::Top | Action::PageUp => self.selected = 0,
            Action::Bottom | Action::PageDown => self.selected = last,
            Action::Accept => return self.enter_field(field, store),
            Action::Less | Action::More => self.step(field, action == Action::More),
            Action::PlanTarget => return vec![targets(store)],
            Action::PlanDevice => return vec![devices()],
            Action::PlanApply => return self.apply(context.keymap),
            Action::PlanReset => {
                if let Some(shown) = self.shown.take() {
                    self.shown = Some(Shown::new(shown.original.clone(), shown.original));
                }
            }
            _ => {}
        }
        Vec::new()
    }

    fn key(&mut self, key: KeyEvent, _context: &mut PaneContext) -> Vec<Request> {
        if let Some(editing) = &mut self.editing {
            editing.error = None;
            editing.text.key(key);
        }
        Vec::new()
    }

    fn paste(&mut self, text: &str, _context: &mut PaneContext) -> Vec<Request> {
        if let Some(editing) = &mut self.editing {
            editing.text.paste(text);
        }
        Vec::new()
    }

    /// A click selects a row, a second one changes it.
    fn click(&mut self, row: usize, context: &mut PaneContext) -> Vec<Request> {
        if self.selected == row && self.editing.is_none() {
            return self.act(Action::Accept, context);
        }
        self.editing = None;
        self.selected = row.min(self.fields().len().saturating_sub(1));
        Vec::new()
    }

    fn incoming(&mut self, msg: &Msg, context: &mut PaneContext) -> Vec<Request> {
        match msg {
            Msg::Machine(machine) => self.calibrate(machine),
            Msg::Planned { name, result } => {
                let result = result.clone().map(|mut request| {
                    context.store.calibrate(&mut request);
                    request
                });
                self.planned(name, result);
            }
            _ => return Vec::new(),
        }
        vec![Request::Draw(Freshness::Asked)]
    }

    fn answered(
        &mut self,
        about: &str,
        answer: Answer,
        context: &mut PaneContext,
    ) -> Vec<Request> {
        match (about, answer) {
            (TARGET, Answer::Text(name)) if name == HERE => {
                self.show_run(context.store);
            }
            (TARGET, Answer::Text(name)) => return self.look_up(&name),
            (DEVICE, Answer::Text(name)) => self.on(&name, context.store),
            _ => {}
        }
        Vec::new()
    }

    fn draw(&mut self, frame: &mut Frame, area: Rect, context: &mut PaneContext) {
        draw::draw(self, frame, area, context);
    }
}
