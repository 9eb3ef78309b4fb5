//! Metrics of the ranks of a PyTorch run: their names, which rank the others wait for, and which one's GPU is fullest.

use super::Direction;
use crate::base::stats::median;
use crate::wire::{ChartPlace, MetricInfo, Num, Values};

/// Ranks with their own readings; in a larger world only the first ones.
pub const MOST: usize = 64;
/// A rank is slow if its forward passes take this many times the median of all.
const SLOW: f64 = 1.25;

/// Milliseconds of a rank's forward passes per step: the part of a step in which it does not wait for others (with `ddp`).
pub fn forward(rank: usize) -> String {
    format!("rank/{rank}/forward_ms")
}

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

/// The newest milliseconds of every rank, in order; `read` returns a metric's newest reading. Empty for a single process.
pub fn newest(read: impl Fn(&str) -> Option<f64>) -> Vec<f64> {
    let all = (0..MOST).map_while(|rank| read(&forward(rank)));
    let all: Vec<f64> = all.collect();
    if all.len() < 2 { Vec::new() } else { all }
}

/// The slowest rank, if it is much slower than the others, and its ratio to the median.
pub fn slow(millis: &[f64]) -> Option<(usize, f64)> {
    let (rank, most) = millis
        .iter()
        .copied()
        .enumerate()
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    // Relative to the others: of two ranks the slow one is half of all.
    let others: Vec<f64> = millis
        .iter()
        .enumerate()
        .filter(|(other, _)| *other != rank)
        .map(|(_, x)| *x)
        .collect();
    let usual = median(&others).filter(|x| *x > 0.0)?;
    let times = most / usual;
    (times >= SLOW && times.is_finite()).then_some((rank, times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_that_others_wait_for_is_named() {
        assert_eq!(slow(&[40.0, 41.0, 80.0, 40.0]), Some((2, 2.0)));
        assert_eq!(slow(&[10.0, 30.0]), Some((1, 3.0)));
        assert_eq!(slow(&[40.0, 41.0, 44.0]), None);
        assert_eq!(slow(&[]), None);
        assert_eq!(slow(&[5.0]), None);
        assert_eq!(slow(&[0.0, 0.0]), None);
    }

    #[test]
    fn a_single_process_has_no_rank_times_and_large_worlds_are_bounded() {
        assert!(newest(|id| (id == forward(0)).then_some(1.0)).is_empty());
        assert_eq!(newest(|_| Some(1.0)).len(), MOST);
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
