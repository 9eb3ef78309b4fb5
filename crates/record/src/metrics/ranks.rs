//! Metrics of the ranks of a PyTorch run: their names, and whose GPU is fullest.

use super::Direction;
use crate::wire::{ChartPlace, MetricInfo, Num, Values};

pub use crate::wire::id::ranks::{MOST, forward};

/// Memory fields of a rank's answer, by the worker's names; all in bytes.
pub mod memory_fields {
    /// Of its whole GPU, other processes included.
    pub const GPU_USED: &str = "gpu_used_bytes";
    pub const GPU_TOTAL: &str = "gpu_total_bytes";
    pub const ALLOCATED: &str = "allocated_bytes";
    pub const PEAK: &str = "peak_bytes";
    /// Reserved by PyTorch's allocator: all GPU memory of the process except the CUDA context.
    pub const RESERVED: &str = "reserved_bytes";
    pub const RSS: &str = "rss_bytes";
}

const HELD: [(&str, &str); 6] = [
    (memory_fields::GPU_USED, "memory of its GPU in use"),
    (memory_fields::GPU_TOTAL, "memory of its GPU"),
    (memory_fields::ALLOCATED, "GPU memory in tensors"),
    (memory_fields::PEAK, "most GPU memory in tensors so far"),
    (memory_fields::RESERVED, "GPU memory reserved by PyTorch"),
    (memory_fields::RSS, "main memory of the process"),
];

/// `rank/3/reserved_bytes`
pub fn memory(rank: usize, what: &str) -> String {
    format!("rank/{rank}/{what}")
}

/// The memory in a rank's answer, by metric; unknown fields are ignored.
pub fn parse_memory(rank: usize, said: &serde_json::Value) -> Values {
    let of = |(what, _): (&str, &str)| Some((memory(rank, what), Num(said[what].as_f64()?)));
    HELD.into_iter().filter_map(of).collect()
}

/// The readings of `ranks` ranks; for a single one there is no time to compare.
pub fn declarations(ranks: usize) -> impl Iterator<Item = MetricInfo> {
    let info = |id: String, title: String, unit: &str| MetricInfo {
        id,
        title,
        unit: unit.into(),
        source: "engine".into(),
        ..MetricInfo::default()
    };
    (0..ranks.min(MOST)).flat_map(move |rank| {
        let title = format!("Rank {rank}, forward passes of a step");
        let time = MetricInfo {
            direction: Direction::Lower,
            // The strip of ranks shows them together.
            place: ChartPlace::Nowhere,
            ..info(forward(rank), title, "ms")
        };
        let memory = HELD.map(|(what, title)| MetricInfo {
            direction: Direction::Neutral,
            place: ChartPlace::Hardware,
            source: "PyTorch".into(),
            ..info(memory(rank, what), format!("Rank {rank}, {title}"), "bytes")
        });
        (ranks > 1).then_some(time).into_iter().chain(memory)
    })
}

/// The ranks' GPUs: how many, and the fullest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FullestGpu {
    pub ranks: usize,
    pub rank: usize,
    pub used: f64,
    pub total: f64,
}

/// The fullest GPU of all ranks; `read` returns a metric's newest reading. `None` if ranks have no GPUs.
pub fn fullest(read: impl Fn(&str) -> Option<f64>) -> Option<FullestGpu> {
    let of = |rank| {
        Some((
            read(&memory(rank, memory_fields::GPU_USED))?,
            read(&memory(rank, memory_fields::GPU_TOTAL))?,
        ))
    };
    let all: Vec<(f64, f64)> = (0..MOST).map_while(of).collect();
    let share = |(used, total): (f64, f64)| used / total.max(1.0);
    let (rank, (used, total)) = all
        .iter()
        .copied()
        .enumerate()
        .max_by(|a, b| share(a.1).total_cmp(&share(b.1)))?;
    Some(FullestGpu {
        ranks: all.len(),
        rank,
        used,
        total,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_process_declares_no_rank_times_and_large_worlds_are_bounded() {
        assert_eq!(declarations(1_000).count(), MOST * (1 + HELD.len()));
        assert!(declarations(1).all(|metric| metric.id != forward(0)));
    }

    #[test]
    fn the_fullest_gpu_of_the_fleet_is_found_and_every_reading_is_declared() {
        let said = |used: u64| serde_json::json!({"gpu_used_bytes": used, "gpu_total_bytes": 80, "reserved_bytes": 7, "of_later": 1});
        let mut values = parse_memory(0, &said(40));
        values.extend(parse_memory(1, &said(60)));
        let declared: Vec<String> = declarations(2).map(|metric| metric.id).collect();
        assert_eq!(values.len(), 6);
        assert!(values.keys().all(|id| declared.contains(id)));
        let found = fullest(|id| values.get(id).map(|x| x.0)).unwrap();
        assert_eq!((found.ranks, found.rank, found.used), (2, 1, 60.0));
        assert_eq!(fullest(|_| None), None);
    }
}
