//! What the plan pane asks for: lists of things to plan and of devices, and the run on the screen.

use super::App;
use crate::plan::request::Device;
use crate::plan::{Request, gpus, measured, models, target};
use crate::ui::effect::Effect;
use crate::ui::overlays::{Choice, Item, Overlay, Picker};
use crate::ui::panes::home::HomeRow;
use crate::ui::panes::plan::PaneRequest;

/// Planned when nothing else suggests itself.
const FIRST: &str = "quickstart";

impl App {
    /// The pane comes onto the screen: the open run's plan when there is a new one, else what is selected on Home.
    pub(super) fn enter_plan(&mut self) -> Vec<Effect> {
        let mut effects = vec![Effect::LookAtMachine];
        effects.extend(self.plan_first());
        effects
    }

    fn plan_first(&mut self) -> Vec<Effect> {
        let run = self.store.held.as_ref().map(|held| held.state.run.as_str());
        let known = self.plan.run();
        if run.is_some_and(|run| !run.is_empty() && known != Some(run)) && self.plan_run() {
            return Vec::new();
        }
        if !self.plan.idle() {
            return Vec::new();
        }
        let name = match self.home.current(&self.store) {
            Some(HomeRow::Preset(name)) => name,
            _ => FIRST.to_string(),
        };
        self.plan_what(Some(name))
    }

    /// The machine was looked at: what is planned for it follows.
    pub(super) fn machine_seen(&mut self, machine: crate::plan::learn::Machine) {
        self.plan.equip(&machine);
        self.store.machine = Some(machine);
        self.ask_draw();
    }

    /// Shows the plan of the run on the screen; false where it has not told its spec.
    fn plan_run(&mut self) -> bool {
        let Some(held) = &self.store.held else {
            return false;
        };
        let machine = held.hardware.machine.as_ref();
        let Some(mut request) = measured::request_of(&held.state, machine) else {
            return false;
        };
        self.store.equip(&mut request);
        self.plan.show(request, Some(held.state.run.clone()));
        true
    }

    /// Reads what a name stands for; no name is the run on the screen.
    pub(super) fn plan_what(&mut self, name: Option<String>) -> Vec<Effect> {
        let Some(name) = name else {
            self.plan_run();
            return Vec::new();
        };
        self.plan.read(&name);
        vec![Effect::PlanTarget { name }]
    }

    /// Puts a GPU under the plan, or this machine.
    pub(super) fn plan_on(&mut self, name: Option<&str>) {
        let device = match name.and_then(gpus::find) {
            Some(gpu) => Device::of(gpu),
            None => Device::limit("this machine", None),
        };
        let on_gpu = name.is_some();
        let store = &self.store;
        self.plan.change(|request| {
            let mut request = match on_gpu {
                true => target::on_gpu(request, device),
                false => Request { device, ..request },
            };
            if !on_gpu {
                store.equip(&mut request);
            }
            request
        });
    }

    pub(super) fn grant(&mut self, request: PaneRequest) -> Vec<Effect> {
        match request {
            PaneRequest::None => Vec::new(),
            PaneRequest::Targets => self.open(Overlay::Picker(self.target_picker())),
            PaneRequest::Devices => self.open(Overlay::Picker(device_picker())),
        }
    }

    fn target_picker(&self) -> Picker {
        let item = |title: &str, detail: String, right: String, name: Option<String>| Item {
            title: title.into(),
            detail,
            right,
            choice: Choice::PlanTarget(name),
        };
        let held = self.store.held.as_ref().filter(|h| h.state.head.is_some());
        let mut items: Vec<Item> = held
            .map(|held| {
                item(
                    "the run on the screen",
                    held.name().into(),
                    String::new(),
                    None,
                )
            })
            .into_iter()
            .collect();
        items.extend(self.store.presets.iter().map(|p| {
            item(
                &p.name,
                p.about.clone(),
                String::new(),
                Some(p.name.clone()),
            )
        }));
        items.extend(models::MODELS.iter().map(|m| {
            let n = crate::base::human::short(m.arch.n_params() as f64);
            let shape = format!("{} layers of {}", m.arch.n_layer, m.arch.d_model);
            item(m.name, shape, n, Some(m.name.to_string()))
        }));
        Picker::new("plan what", "", items)
    }
}

fn device_picker() -> Picker {
    let mut items = vec![Item {
        title: "this machine".into(),
        detail: "this program's own engine, on its CPU".into(),
        right: String::new(),
        choice: Choice::PlanDevice(None),
    }];
    items.extend(gpus::GPUS.iter().map(|gpu| Item {
        title: gpu.name.into(),
        detail: format!(
            "{} GB, {} TFLOP/s in bf16, {} GB/s",
            gpu.memory_gb, gpu.bf16_tflops, gpu.bandwidth_gbs
        ),
        right: gpu.price.map_or("no price known".into(), |price| {
            format!("${:.2} to ${:.2} an hour", price.low, price.high)
        }),
        choice: Choice::PlanDevice(Some(gpu.name.into())),
    }));
    Picker::new("plan on what", "", items)
}
