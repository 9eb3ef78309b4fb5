//! The machine beneath its GPUs: processor, memory, disks, network, in bars and words.

use crate::base::human::bytes;
use crate::base::text::one_line;
use crate::hardware::machine::{Disk, Machine};
use crate::hardware::sampler::id;
use crate::ui::machine_view::MachineView;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::bar;
use crate::ui::widgets::text::{self, Word, word};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

const BAR: u16 = 10;
const LABEL: usize = 5;
/// A level above this is worth a warning.
const FULL: f64 = 0.95;

/// Columns from which on two rows stand side by side.
pub const TWO_COLUMNS: u16 = 76;

/// One row: label, level, words.
struct Row {
    label: String,
    level: Option<f64>,
    words: Vec<Word>,
    /// A full bar is a matter of concern, not of use.
    scarce: bool,
}

/// Two rows side by side while there are columns for it.
pub fn draw(buffer: &mut Buffer, area: Rect, machine: &Machine, view: &MachineView, theme: &Theme) {
    let rows = rows(machine, view);
    let columns: u16 = if area.width >= TWO_COLUMNS { 2 } else { 1 };
    let width = area.width / columns;
    for (i, row) in rows.iter().enumerate() {
        let (column, line) = (i as u16 % columns, i as u16 / columns);
        if line >= area.height {
            break;
        }
        let place = Rect {
            x: area.x + column * width,
            y: area.y + line,
            width: width.saturating_sub(1),
            height: 1,
        };
        draw_row(buffer, place, row, theme);
    }
}

fn draw_row(buffer: &mut Buffer, area: Rect, row: &Row, theme: &Theme) {
    let label = [word(format!("{:<LABEL$}", row.label), Meaning::Muted)];
    let mut x = text::draw(buffer, area.x, area.y, area.width, &label, theme);
    if let Some(level) = row.level {
        let meaning = match row.scarce && level > FULL {
            true => Meaning::Warn,
            false => Meaning::Accent,
        };
        bar::level(buffer, x, area.y, BAR, level, meaning, theme);
        x += BAR + 1;
    }
    let room = area.right().saturating_sub(x);
    text::draw(buffer, x, area.y, room, &row.words, theme);
}

/// Rows that this machine needs.
pub fn n_rows(machine: &Machine) -> usize {
    rows(machine, &MachineView::default()).len()
}

fn rows(machine: &Machine, view: &MachineView) -> Vec<Row> {
    let mut rows = vec![cpu(machine, view), memory(machine, view)];
    let mut disks: Vec<&Disk> = machine.disks.iter().collect();
    disks.sort_by_key(|disk| !disk.holds_runs);
    rows.extend(disks.first().map(|disk| disk_row(disk)));
    rows.push(network(machine, view));
    rows.extend(disks.iter().skip(1).map(|disk| disk_row(disk)));
    if machine.memory.swap_total > 0 {
        rows.push(swap(machine, view));
    }
    rows.extend(machine.accelerators.iter().map(|device| Row {
        label: "also".into(),
        level: None,
        words: vec![word(
            format!("{} {}", device.kind.word(), one_line(&device.name)),
            Meaning::Text,
        )],
        scarce: false,
    }));
    rows
}

fn cpu(machine: &Machine, view: &MachineView) -> Row {
    let used = view.latest(id::CPU);
    let mut words = Vec::new();
    if let Some(used) = used {
        words.push(word(format!("{used:>3.0} %  "), Meaning::Text));
    }
    let cores = match (machine.cpu.usable(), machine.cpu.logical) {
        (1, 0 | 1) => "1 core".to_string(),
        (usable, all) if all > usable => format!("{usable} of {all} cores"),
        (usable, _) => format!("{usable} cores"),
    };
    words.push(word(cores, Meaning::Muted));
    Row {
        label: "CPU".into(),
        level: used.map(|x| x / 100.0),
        words,
        scarce: false,
    }
}

fn memory(machine: &Machine, view: &MachineView) -> Row {
    let total = machine.memory.usable();
    let used = match (machine.memory.cgroup_limit, view.latest(id::RAM_USED)) {
        (None, Some(used)) => used as u64,
        _ => total.saturating_sub(machine.memory.free()),
    };
    let mut words = vec![word(
        format!("{} / {}", bytes(used), bytes(total)),
        Meaning::Text,
    )];
    if machine.memory.cgroup_limit.is_some() {
        words.push(word("  limit of the container", Meaning::Muted));
    }
    Row {
        label: "RAM".into(),
        level: (total > 0).then(|| used as f64 / total as f64),
        words,
        scarce: true,
    }
}

fn swap(machine: &Machine, view: &MachineView) -> Row {
    let total = machine.memory.swap_total;
    let used = view
        .latest(id::SWAP)
        .unwrap_or(machine.memory.swap_used as f64);
    Row {
        label: "swap".into(),
        level: Some(used / total as f64),
        words: vec![word(
            format!("{} / {}", bytes(used as u64), bytes(total)),
            Meaning::Text,
        )],
        scarce: true,
    }
}

fn disk_row(disk: &Disk) -> Row {
    let space = disk.space;
    let mut words = Vec::new();
    if space.total > 0 {
        words.push(word(format!("{} free  ", bytes(space.free)), Meaning::Text));
    }
    words.push(word(
        format!("{} {}", disk.kind.word(), one_line(&disk.mount)),
        Meaning::Muted,
    ));
    Row {
        label: "disk".into(),
        level: (space.total > 0).then(|| 1.0 - space.free as f64 / space.total as f64),
        words,
        scarce: true,
    }
}

fn network(machine: &Machine, view: &MachineView) -> Row {
    let up = machine.networks.iter().find(|n| n.up);
    let mut words = Vec::new();
    match (view.latest(id::NET_IN), view.latest(id::NET_OUT)) {
        (Some(received), Some(sent)) => words.push(word(
            format!(
                "in {}/s  out {}/s  ",
                bytes(received as u64),
                bytes(sent as u64)
            ),
            Meaning::Text,
        )),
        _ if up.is_none() => words.push(word("none up", Meaning::Muted)),
        _ => {}
    }
    if let Some(network) = up {
        let speed = network
            .speed_mbps
            .map_or(String::new(), |s| format!(" {} Gbit/s", s as f64 / 1000.0));
        words.push(word(
            format!("{}{speed}", one_line(&network.name)),
            Meaning::Muted,
        ));
    }
    Row {
        label: "net".into(),
        level: None,
        words,
        scarce: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_shows_its_own_limit() {
        let mut machine = Machine::default();
        machine.memory.total = 100 << 30;
        machine.memory.available = 90 << 30;
        machine.memory.cgroup_limit = Some(16 << 30);
        machine.memory.cgroup_used = Some(4 << 30);
        let row = memory(&machine, &MachineView::default());
        assert_eq!(row.level, Some(0.25));
        assert_eq!(row.words[0].text, "4 GiB / 16 GiB");
        assert_eq!(row.words.len(), 2);
    }
}
