//! What the run's machine does: processor, memory of the run against its plan, GPUs, ranks; in a box, and in one line.

use crate::base::human;
use crate::hardware::sampler::id::GPU_OWN_MEMORY;
use crate::metrics::ranks;
use crate::plan::measured::{self, Place};
use crate::run::{RunState, rank_times};
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::bar;
use crate::ui::widgets::text::{self, Word, word};
use crate::wire::id;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// A label, the share that its bar shows, and the value in words.
type Reading = (&'static str, Option<f64>, String);

/// A reading of the host that is a number.
fn read(state: &RunState, id: &str) -> Option<f64> {
    state.host.get(id).copied().filter(|x| x.is_finite())
}

pub(super) fn machine_line(state: &RunState) -> Vec<Word> {
    let mut words = Vec::new();
    if let Some((slow, true)) = ranks_words(state).filter(|_| state.running()) {
        words.push(word(format!("{slow}  "), Meaning::Warn));
    }
    if let Some(cpu) = state.host.get(id::machine::CPU) {
        words.push(word("CPU ", Meaning::Muted));
        words.push(word(format!("{cpu:>3.0} %"), Meaning::Text));
    }
    if let Some((_, Some(share), _)) = gpu_row(state) {
        words.push(word("  GPU ", Meaning::Muted));
        words.push(word(format!("{:>3.0} %", share * 100.0), Meaning::Text));
    }
    if let Some(rss) = main_memory(state) {
        words.push(word("  run ", Meaning::Muted));
        words.push(word(
            format!("{:>8}", human::bytes(rss as u64)),
            Meaning::Text,
        ));
    }
    words
}

/// CPU, RAM, the run's own memory and what was planned for it, each with a bar; where the run is.
pub fn hardware(
    buffer: &mut Buffer,
    area: Rect,
    state: &RunState,
    planned: Option<u64>,
    theme: &Theme,
) {
    let mut rows = readings(state, planned);
    rows.truncate(area.height.into());
    let n_rows = rows.len() as u16;
    for (reading, y) in rows.into_iter().zip(area.y..) {
        draw_reading(buffer, Rect { y, ..area }, reading, theme);
    }
    let mut note = |row: u16, words: String| {
        let width = area.width.saturating_sub(2);
        let words = [word(words, Meaning::Muted)];
        if row < area.height {
            text::draw(buffer, area.x + 1, area.y + row, width, &words, theme);
        }
    };
    match n_rows {
        0 => {
            note(0, "No data yet.".into());
            note(1, host_words(state));
        }
        n => note(n, host_words(state)),
    }
}

fn readings(state: &RunState, planned: Option<u64>) -> Vec<Reading> {
    let total = read(state, id::machine::RAM_TOTAL).filter(|t| *t > 0.0);
    let mut rows: Vec<Reading> = Vec::new();
    if let Some(cpu) = read(state, id::machine::CPU) {
        rows.push(("CPU", Some(cpu / 100.0), format!("{cpu:>3.0} %")));
    }
    if let Some(used) = read(state, id::machine::RAM_USED) {
        let words = match total {
            Some(total) => human::bytes_of(used as u64, total as u64),
            None => human::bytes(used as u64),
        };
        rows.push(("RAM", total.map(|t| used / t), words));
    }
    if let Some(rss) = main_memory(state) {
        rows.push(("run", total.map(|t| rss / t), human::bytes(rss as u64)));
    }
    rows.extend(plan_row(state, planned, total));
    rows.extend(gpu_row(state));
    rows.extend(fleet_row(state));
    rows.extend(ranks_words(state).map(|(words, _)| ("rank", None, words)));
    rows
}

fn draw_reading(buffer: &mut Buffer, area: Rect, (label, share, value): Reading, theme: &Theme) {
    let width = area.width.saturating_sub(27).clamp(4, 16);
    let title = [word(format!("{label:<5}"), Meaning::Muted)];
    let x = text::draw(buffer, area.x + 1, area.y, 5, &title, theme);
    if let Some(share) = share {
        let meaning = match share > 0.95 && label == "RAM" {
            true => Meaning::Warn,
            false => Meaning::Accent,
        };
        bar::level(buffer, x, area.y, width, share, meaning, theme);
    }
    let x = x + width + 1;
    let room = area.right().saturating_sub(x + 1);
    let value = [word(value, Meaning::Text)];
    text::draw(buffer, x, area.y, room, &value, theme);
}

/// What was planned, and how far off the measured memory is: of the process, or of what it holds of a GPU.
fn plan_row(state: &RunState, planned: Option<u64>, ram: Option<f64>) -> Option<Reading> {
    let planned = planned.filter(|p| *p > 0)? as f64;
    let found = measured::now(state)?;
    let error = 100.0 * (found.bytes as f64 / planned - 1.0);
    let (share, of) = match found.place {
        Place::Process => (ram.map(|t| planned / t), String::new()),
        // With one GPU there is no other place.
        Place::Gpu(index) if gpus_in_use(state) > 1 => (None, format!(" on GPU {index}")),
        Place::Gpu(_) => (None, String::new()),
        Place::Rank(rank) => (None, format!(" on rank {rank}")),
    };
    // Planned, and how far off that was.
    let words = format!("{}, {error:+.0} %{of}", human::bytes(planned as u64));
    Some(("plan", share, words.replace('-', "−")))
}

/// On how many GPUs the run holds memory.
fn gpus_in_use(state: &RunState) -> usize {
    let own = state.host.keys().filter(|id| id.ends_with(GPU_OWN_MEMORY));
    own.count()
}

/// One GPU: its use and memory; several: their mean use. Of a machine with more, those that the run holds memory on.
fn gpu_row(state: &RunState) -> Option<Reading> {
    let used = state.host.iter().filter_map(|(id, x)| {
        let gpu = id
            .strip_suffix("/util")
            .filter(|gpu| gpu.starts_with(id::machine::GPU))?;
        x.is_finite().then_some((gpu, *x))
    });
    let mut used: Vec<(&str, f64)> = used.collect();
    let own = |gpu: &str| state.host.contains_key(&format!("{gpu}/{GPU_OWN_MEMORY}"));
    if used.iter().any(|(gpu, _)| own(gpu)) {
        used.retain(|(gpu, _)| own(gpu));
    }
    let mean = used.iter().map(|(_, x)| x).sum::<f64>() / used.len().max(1) as f64;
    let words = match used[..] {
        [] => return None,
        [(gpu, _)] => {
            let memory = state.host.get(&format!("{gpu}/memory_used_bytes"));
            let memory = memory.map_or(String::new(), |m| format!("  {}", human::bytes(*m as u64)));
            format!("{mean:>3.0} %{memory}")
        }
        _ => format!("{mean:>3.0} %  mean of {}", used.len()),
    };
    Some(("GPU", Some(mean / 100.0), words))
}

/// The fullest of the ranks' GPUs, where NVML sees none that the run holds: they are of other machines.
fn fleet_row(state: &RunState) -> Option<Reading> {
    if gpus_in_use(state) > 0 {
        return None;
    }
    let found = ranks::fullest(|id| state.host.get(id).copied())?;
    let bytes = |x: f64| human::bytes(x as u64);
    // The bar shows the share of the whole.
    let used = bytes(found.used);
    let words = match found.ranks {
        1 => format!("{used} / {}", bytes(found.total)),
        n => format!("{used}, rank {} of {n}", found.rank),
    };
    Some(("GPUs", Some(found.used / found.total.max(1.0)), words))
}

/// Main memory of the run: of the engine, and of the processes that it started.
fn main_memory(state: &RunState) -> Option<f64> {
    let started = read(state, id::machine::STARTED).unwrap_or(0.0);
    Some(read(state, id::machine::RSS)? + started)
}

/// `4 alike, 41 ms`, or the rank that the others wait for, and that there is one.
fn ranks_words(state: &RunState) -> Option<(String, bool)> {
    let newest = |id: &str| state.series.get(id)?.last();
    let step = newest(&ranks::forward(0))?.step;
    // An earlier generation may have had more ranks.
    let millis = rank_times::newest(|id| newest(id).filter(|p| p.step == step).map(|p| p.value));
    let mean = millis.iter().sum::<f64>() / millis.len().max(1) as f64;
    match rank_times::slow(&millis) {
        Some((rank, times)) => Some((format!("rank {rank} slow ({times:.1}×)"), true)),
        None if millis.is_empty() => None,
        None => Some((format!("{} alike, {mean:.0} ms", millis.len()), false)),
    }
}

fn host_words(state: &RunState) -> String {
    match state.host_name.is_empty() {
        true => String::new(),
        false if state.is_foreign() => state.host_name.clone(),
        false => format!("{}, process {}", state.host_name, state.pid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run on one GPU of eight looked starved of data.
    #[test]
    fn the_use_of_the_gpus_is_that_of_the_runs_own() {
        let mut state = RunState::new();
        for gpu in 0..8 {
            let busy = if gpu == 3 { 97.0 } else { 0.0 };
            state.host.insert(format!("gpu/{gpu}/util"), busy);
            let bytes = f64::from(gpu + 1) * f64::from(1 << 30);
            state
                .host
                .insert(format!("gpu/{gpu}/memory_used_bytes"), bytes);
        }
        let words = |state: &RunState| gpu_row(state).unwrap().2;
        assert_eq!(words(&state), " 12 %  mean of 8");
        state.host.insert(format!("gpu/3/{GPU_OWN_MEMORY}"), 1e9);
        assert_eq!(words(&state), " 97 %  4 GiB");
    }

    #[test]
    fn the_plan_names_a_gpu_where_there_are_several() {
        let mut state = RunState::new();
        let mut row = |index: u32, bytes: f64| {
            let id = format!("gpu/{index}/{GPU_OWN_MEMORY}");
            state.host.insert(id, bytes);
            plan_row(&state, Some(8 << 30), None).map(|(_, _, words)| words)
        };
        assert_eq!(row(0, 6e9).as_deref(), Some("8 GiB, −30 %"));
        assert_eq!(row(1, 9e9).as_deref(), Some("8 GiB, +5 % on GPU 1"));
    }
}
