//! The list of GPUs: one row each, every reading in its own column.

use crate::base::human;
use crate::base::text::one_line;
use crate::hardware::Gpu;
use crate::hardware::gpu::{DriverState, GpuProcess};
use crate::hardware::machine::Machine;
use crate::hardware::doctor::HOT;
use crate::hardware::throttle::Weight;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::bar;
use crate::ui::widgets::text::{self, Word, word};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;


const BAR: u16 = 8;
/// From this width on names and the last columns have room.
const ROOMY: u16 = 92;

/// `NVIDIA GeForce RTX 4090` → `RTX 4090`
fn short_name(name: &str) -> String {
    let name = name.trim_start_matches("NVIDIA ");
    one_line(name.trim_start_matches("GeForce "))
}

/// Columns of the name.
fn name_width(area: Rect) -> usize {
    if area.width >= ROOMY { 20 } else { 15 }
}

/// `   name    memory    use  temp  power  clock`
pub fn headings(buffer: &mut Buffer, area: Rect, theme: &Theme) {
    let name = name_width(area);
    let mut words = format!(
        "    {:<name$} {:<20}  {:>5} {:>6} {:>9}",
        "name", "memory", "use", "temp", "power"
    );
    if area.width >= ROOMY {
        words.push_str(&format!(" {:>9}", "clock"));
    }
    text::draw(
        buffer,
        area.x,
        area.y,
        area.width,
        &[word(words, Meaning::Muted)],
        theme,
    );
}

/// `▸ 0 H100 80GB HBM3   ▇▇▇▇▇▇▁▁  61 / 80 GiB   97 %  64 °C 642/700 W  1860 MHz  power limit`
pub fn row(buffer: &mut Buffer, area: Rect, gpu: &Gpu, selected: bool, theme: &Theme) {
    let glyphs = theme.glyphs();
    let pointer = if selected { glyphs.pointer } else { " " };
    let name = text::fit(&short_name(&gpu.name), name_width(area), theme.ascii);
    let meaning = if selected {
        Meaning::Title
    } else {
        Meaning::Text
    };
    let head = [
        word(format!("{pointer} "), Meaning::Accent),
        word(format!("{} ", gpu.index), Meaning::Muted),
        word(format!("{name:<w$} ", w = name_width(area)), meaning),
    ];
    let x = text::draw(buffer, area.x, area.y, area.width, &head, theme);
    let left = area.right().saturating_sub(x);
    if let Some(why) = &gpu.lost {
        let words = [word(
            format!("does not respond: {}", one_line(why)),
            Meaning::Bad,
        )];
        text::draw(buffer, x, area.y, left, &words, theme);
        return;
    }
    if left < BAR + 1 {
        return;
    }
    bar::level(
        buffer,
        x,
        area.y,
        BAR,
        gpu.memory_share(),
        Meaning::Accent,
        theme,
    );
    let x = x + BAR + 1;
    let words = readings(gpu, area.width >= ROOMY);
    text::draw(
        buffer,
        x,
        area.y,
        area.right().saturating_sub(x),
        &words,
        theme,
    );
}

fn readings(gpu: &Gpu, roomy: bool) -> Vec<Word> {
    let gib = |bytes: u64| format!("{:.0}", bytes as f64 / (1u64 << 30) as f64);
    let number =
        |value: Option<u32>, unit: &str| value.map_or("–".into(), |x| format!("{x} {unit}"));
    let power = match (gpu.power, gpu.power_limit) {
        (Some(power), Some(limit)) => format!("{power:.0}/{limit:.0} W"),
        (Some(power), None) => format!("{power:.0} W"),
        _ => "–".into(),
    };
    let hot = gpu.temperature.is_some_and(|t| t >= HOT);
    let mut words = vec![
        word(
            format!(
                "{:>3} / {:<4}",
                gib(gpu.memory_used),
                format!("{}G", gib(gpu.memory_total))
            ),
            Meaning::Text,
        ),
        word(
            format!("  {:>5} ", number(gpu.utilization, "%")),
            Meaning::Text,
        ),
        word(
            format!("{:>6} ", number(gpu.temperature, "°C")),
            if hot { Meaning::Warn } else { Meaning::Text },
        ),
        word(format!("{power:>9}"), Meaning::Text),
    ];
    if roomy {
        let clock = number(gpu.sm_clock, "MHz");
        words.push(word(format!(" {clock:>9}"), Meaning::Muted));
    }
    words.push(word("  ", Meaning::Muted));
    words.push(note(gpu));
    words
}

/// Why it is slower than it could be, or into what it is cut.
fn note(gpu: &Gpu) -> Word {
    let reasons = gpu.throttled();
    if let Some(worst) = reasons.first() {
        let meaning = match worst.weight {
            Weight::Critical => Meaning::Bad,
            Weight::Slows => Meaning::Warn,
            Weight::Usual => Meaning::Muted,
        };
        return word(worst.words, meaning);
    }
    match gpu.mig.as_ref().filter(|mig| mig.enabled) {
        Some(mig) => word(format!("{} instances", mig.devices.len()), Meaning::Muted),
        None => word("", Meaning::Muted),
    }
}

/// What stands in the list's place on a machine without a GPU.
pub fn absence(machine: &Machine) -> (String, Meaning) {
    let nvidia = &machine.nvidia;
    let cpu = match machine.cpu.widest() {
        "" => format!("{} cores", machine.cpu.usable()),
        isa => format!("{} cores, {isa}", machine.cpu.usable()),
    };
    let cpu = cpu.replace("1 cores", "1 core");
    let there = nvidia.pci_devices > 0 || !nvidia.module_version.is_empty();
    match &nvidia.driver {
        DriverState::Mismatch => (
            "The NVIDIA driver and its library differ in version: the GPU cannot be used until a reboot.".into(),
            Meaning::Bad,
        ),
        DriverState::Failed(why) => (format!("The NVIDIA driver does not respond: {}", one_line(why)), Meaning::Bad),
        _ if there => (
            "There is an NVIDIA GPU, but its driver does not respond: see the doctor's findings.".into(),
            Meaning::Warn,
        ),
        _ => (format!("No GPU: training runs on the CPU ({cpu})."), Meaning::Text),
    }
}

/// `41273  ana       61 GiB  llmtui engine runs/…`
pub fn process(buffer: &mut Buffer, area: Rect, process: &GpuProcess, theme: &Theme) {
    let memory = process.memory.map_or("–".into(), human::bytes);
    let user = text::fit(&one_line(&process.user), 10, theme.ascii);
    let words = [
        word(format!("{:>8}  ", process.pid), Meaning::Muted),
        word(format!("{user:<10} {memory:>8}  "), Meaning::Text),
        word(one_line(&process.command), Meaning::Text),
    ];
    text::draw(buffer, area.x, area.y, area.width, &words, theme);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gravest_reason_is_the_note() {
        let gpu = |throttle| Gpu {
            throttle: Some(throttle),
            ..Gpu::default()
        };
        assert_eq!(note(&gpu(0x44)), word("too hot (hardware)", Meaning::Bad));
        assert_eq!(note(&gpu(0x4)), word("power limit", Meaning::Muted));
        assert_eq!(note(&gpu(0x1)).text, "");
    }

    #[test]
    fn a_machine_without_a_gpu_says_what_it_trains_on() {
        let mut machine = Machine::default();
        machine.cpu.allowed = 2;
        machine.cpu.features = vec!["avx2".into()];
        assert_eq!(
            absence(&machine).0,
            "No GPU: training runs on the CPU (2 cores, AVX2)."
        );
        machine.nvidia.pci_devices = 1;
        assert_eq!(absence(&machine).1, Meaning::Warn);
    }
}
