//! The hardware pane: every GPU in a row, the selected one with its history and its processes, the machine beneath, and the
//! doctor's findings. It owns cursors only; machines come folded in [`MachineView`]s.

mod findings;
mod gpus;
mod history;
mod host;
mod plan;

use super::{Pane, PaneContext, PaneEntry, save_chart};
use crate::base::text::one_line;
use crate::hardware::Machine;
use crate::ui::action::{Action, Context};
use crate::ui::effect::Effect;
use crate::ui::freshness::Freshness;
use crate::ui::hit::Target;
use crate::ui::layout::scroll_to;
use crate::ui::machine_view::MachineView;
use crate::ui::msg::Msg;
use crate::ui::request::{Hints, Request};
use crate::ui::store::Store;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::Lattice;
use crate::ui::widgets::frame::{padded, title};
use crate::ui::widgets::text::{self, word};
use plan::{Counts, Plan};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

pub static ENTRY: PaneEntry = PaneEntry {
    id: "hardware",
    title: "Hardware",
    doc: "Go to Hardware: GPUs, memory, disks, findings of the doctor.",
    contexts: &[Context::Hardware, Context::Chart, Context::List, Context::Global],
    everywhere: &[],
    make: || Box::new(HardwarePane::default()),
};

/// Whose machine is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Whose {
    /// That of the live run on the screen, else this one.
    #[default]
    Either,
    This,
    /// That of the run, from its log.
    Run,
}

/// The pane's cursors.
#[derive(Debug, Default)]
pub struct HardwarePane {
    whose: Whose,
    gpu: usize,
    first: usize,
    scroll: usize,
    /// How far the findings can be scrolled.
    most: usize,
    page: usize,
    /// The place of the charts; empty without any.
    charts: Rect,
}

impl HardwarePane {
    /// The machine that is shown, and whose it is.
    fn view<'a>(&self, store: &'a Store) -> (&'a MachineView, Option<&'a str>) {
        let run = store.held.as_ref().filter(|held| !held.hardware.is_empty());
        let run = run.filter(|held| match self.whose {
            Whose::Either => held.live(),
            Whose::This => false,
            Whose::Run => true,
        });
        match run {
            Some(held) => (&held.hardware, Some(held.name())),
            None => (&store.hardware, None),
        }
    }

    fn walk(&mut self, action: Action, store: &Store) {
        let (view, run) = self.view(store);
        let last = n_gpus(view).saturating_sub(1);
        match action {
            Action::Up if last > 0 => self.gpu = self.gpu.saturating_sub(1),
            Action::Down if last > 0 => self.gpu = (self.gpu + 1).min(last),
            Action::Up => self.scroll = self.scroll.saturating_sub(1),
            Action::Down => self.scroll = (self.scroll + 1).min(self.most),
            Action::Top => self.gpu = 0,
            Action::Bottom => self.gpu = last,
            Action::PageUp => self.scroll = self.scroll.saturating_sub(self.page.max(1)),
            Action::PageDown => self.scroll = (self.scroll + self.page.max(1)).min(self.most),
            Action::OtherMachine => {
                self.whose = if run.is_some() {
                    Whose::This
                } else {
                    Whose::Run
                };
                self.scroll = 0;
            }
            _ => {}
        }
    }

    fn draw_all(&mut self, frame: &mut Frame, area: Rect, context: &mut PaneContext) {
        self.charts = Rect::default();
        let theme = context.theme;
        let (view, run) = self.view(context.store);
        let Some(machine) = &view.machine else {
            let words = match run {
                Some(_) => "This run's log does not describe its machine.",
                None => "Inspecting this machine …",
            };
            let inner = Rect {
                x: area.x + 2,
                width: area.width.saturating_sub(4),
                ..area
            };
            text::paragraph(frame.buffer_mut(), inner, words, Meaning::Muted, theme);
            return;
        };
        self.gpu = self.gpu.min(machine.gpus.len().saturating_sub(1));
        let n_processes = machine.gpus.get(self.gpu).map_or(0, |g| g.processes.len());
        let plan = Plan::of(
            area,
            Counts {
                gpus: machine.gpus.len(),
                processes: n_processes,
                host_rows: host::n_rows(machine),
            },
        );
        let buffer = frame.buffer_mut();
        borders(buffer, area, &plan, theme);
        head(buffer, plan.head, machine, run, theme);
        if let Some(outline) = plan.gpus {
            self.draw_gpus(buffer, outline, &plan, machine, context);
        }
        self.draw_charts(buffer, &plan, machine, view, theme);
        let charts = plan.gpu_charts.iter().chain(&plan.host_charts);
        let charts = charts.copied().reduce(Rect::union).unwrap_or_default();
        // The lowest row is the border of the box beneath, with its title.
        self.charts = Rect {
            height: charts.height.saturating_sub(1),
            ..charts
        };
        if let Some(outline) = plan.processes {
            self.draw_processes(buffer, outline, machine, theme);
        }
        if let Some(outline) = plan.host {
            title(buffer, outline, &[word(" machine ", Meaning::Title)], theme);
            host::draw(buffer, padded(outline), machine, view, theme);
        }
        if let Some(outline) = plan.findings {
            title(buffer, outline, &findings::title(view, theme), theme);
            let inner = padded(outline);
            self.page = usize::from(inner.height);
            self.most = findings::draw(buffer, inner, view, self.scroll, theme);
            self.scroll = self.scroll.min(self.most);
        }
    }

    fn draw_gpus(
        &mut self,
        buffer: &mut Buffer,
        outline: Rect,
        plan: &Plan,
        machine: &Machine,
        context: &mut PaneContext,
    ) {
        let theme = context.theme;
        let mut inner = padded(outline);
        if machine.gpus.is_empty() {
            title(buffer, outline, &[word(" GPU ", Meaning::Title)], theme);
            let (words, meaning) = gpus::absence(machine);
            text::paragraph(buffer, inner, &words, meaning, theme);
            return;
        }
        let n = machine.gpus.len();
        let words = if n == 1 {
            " GPU ".to_string()
        } else {
            format!(" {n} GPUs ")
        };
        title(buffer, outline, &[word(words, Meaning::Title)], theme);
        if plan.headings {
            gpus::headings(buffer, inner, theme);
            inner.y += 1;
            inner.height = inner.height.saturating_sub(1);
        }
        self.first = scroll_to(self.gpu, self.first.min(n - 1), usize::from(inner.height));
        let rows = machine.gpus.iter().enumerate().skip(self.first);
        for ((i, gpu), y) in rows.zip(inner.y..inner.bottom()) {
            let place = Rect {
                y,
                height: 1,
                ..inner
            };
            gpus::row(buffer, place, gpu, i == self.gpu && n > 1, theme);
            context.hits.add(place, Target::Row(i));
        }
    }

    fn draw_charts(
        &self,
        buffer: &mut Buffer,
        plan: &Plan,
        machine: &Machine,
        view: &MachineView,
        theme: &Theme,
    ) {
        if let Some(gpu) = machine.gpus.get(self.gpu) {
            let tracks = history::of_gpu(gpu.index);
            for (outline, track) in plan.gpu_charts.iter().zip(&tracks) {
                history::draw(buffer, *outline, track, view, theme);
            }
        }
        for (outline, track) in plan.host_charts.iter().zip(&history::of_host()) {
            history::draw(buffer, *outline, track, view, theme);
        }
    }

    fn draw_processes(&self, buffer: &mut Buffer, outline: Rect, machine: &Machine, theme: &Theme) {
        let Some(gpu) = machine.gpus.get(self.gpu) else {
            return;
        };
        let words = format!(" processes on GPU {} ", gpu.index);
        title(buffer, outline, &[word(words, Meaning::Title)], theme);
        let inner = padded(outline);
        if gpu.processes.is_empty() {
            text::paragraph(buffer, inner, "No processes.", Meaning::Muted, theme);
        }
        for (process, y) in gpu.processes.iter().zip(inner.y..inner.bottom()) {
            let place = Rect {
                y,
                height: 1,
                ..inner
            };
            gpus::process(buffer, place, process, theme);
        }
    }
}

impl Pane for HardwarePane {
    fn hints(&self, store: &Store) -> Hints {
        let mut own = Vec::new();
        if n_gpus(self.view(store).0) > 1 {
            own.push((Action::Down, "next GPU"));
        }
        own.push((Action::PageDown, "more findings"));
        if store.held.is_some() {
            own.push((Action::OtherMachine, Action::OtherMachine.info().title));
        }
        if !self.charts.is_empty() {
            own.push((Action::SaveChart, Action::SaveChart.info().title));
        }
        Hints::of_pane(own)
    }

    fn enter(&mut self, _context: &mut PaneContext) -> Vec<Request> {
        vec![Request::Do(Effect::WatchHardware)]
    }

    fn act(&mut self, action: Action, context: &mut PaneContext) -> Vec<Request> {
        if action == Action::SaveChart {
            let (view, run) = self.view(context.store);
            let host = view.machine.as_ref().map(|machine| machine.host.as_str());
            let name = run.or(host).filter(|name| !name.is_empty());
            return save_chart(format!("{}-hardware", name.unwrap_or("llmtui")), self.charts);
        }
        self.walk(action, context.store);
        Vec::new()
    }

    fn click(&mut self, row: usize, _context: &mut PaneContext) -> Vec<Request> {
        self.gpu = row;
        Vec::new()
    }

    fn incoming(&mut self, msg: &Msg, _context: &mut PaneContext) -> Vec<Request> {
        match msg {
            Msg::Hardware { .. } => vec![Request::Draw(Freshness::DataMoved)],
            _ => Vec::new(),
        }
    }

    fn draw(&mut self, frame: &mut Frame, area: Rect, context: &mut PaneContext) {
        self.draw_all(frame, area, context);
    }
}

fn n_gpus(view: &MachineView) -> usize {
    view.machine.as_ref().map_or(0, |m| m.gpus.len())
}

/// `atlas · AMD EPYC 9654 (32 cores, AVX-512) · …                  this machine`
fn head(buffer: &mut Buffer, area: Rect, machine: &Machine, run: Option<&str>, theme: &Theme) {
    let whose = match run {
        Some(name) => format!("machine of {}", one_line(name)),
        None => "this machine".into(),
    };
    let separator = format!(" {} ", theme.glyphs().separator);
    let parts: Vec<String> = [
        machine.host.clone(),
        machine.cpu.model.clone(),
        machine.os.clone(),
    ]
    .into_iter()
    .filter(|part| !part.is_empty())
    .map(|part| one_line(&part))
    .collect();
    let words = [word(parts.join(&separator), Meaning::Text)];
    let inner = area.width.saturating_sub(2);
    let end = text::draw(buffer, area.x + 1, area.y, inner, &words, theme);
    let right = [word(whose, Meaning::Muted)];
    let room = area.right().saturating_sub(end + 3);
    text::draw_right(
        buffer,
        area.right().saturating_sub(1),
        area.y,
        room,
        &right,
        theme,
    );
}

fn borders(buffer: &mut Buffer, area: Rect, plan: &Plan, theme: &Theme) {
    let mut lattice = Lattice::new(area);
    let single = [plan.gpus, plan.processes, plan.host, plan.findings];
    let charts = plan.gpu_charts.iter().chain(&plan.host_charts);
    for outline in single.iter().flatten().chain(charts) {
        lattice.outline(*outline);
    }
    lattice.draw(buffer, theme);
}
