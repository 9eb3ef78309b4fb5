//! Fast-changing readings, as cheaply as possible: five small kernel files and a few NVML queries.

use super::host::{self, Root, kib};
use super::nvml::{Library, Pulse};
use crate::base::clock::{Clock, SystemClock};
pub use crate::wire::id::machine as id;
use crate::wire::{ChartPlace, Direction, MetricInfo, Num, Values};
use std::time::Duration;

/// Id, title, unit.
type Row = (&'static str, &'static str, &'static str);

const HOST: &[Row] = &[
    (id::CPU, "CPU, whole machine", "%"),
    (id::RSS, "Memory of this process", "bytes"),
    (
        id::STARTED,
        "Memory of the processes that it started",
        "bytes",
    ),
    (id::RAM_USED, "Memory in use, whole machine", "bytes"),
    (id::RAM_TOTAL, "Memory of the machine", "bytes"),
    (id::SWAP, "Swap in use", "bytes"),
    (id::DISK_READ, "Read from disks", "bytes/s"),
    (id::DISK_WRITE, "Written to disks", "bytes/s"),
    (id::NET_IN, "Received from the network", "bytes/s"),
    (id::NET_OUT, "Sent to the network", "bytes/s"),
];

const GPU: &[Row] = &[
    (id::GPU_UTIL, "utilisation", "%"),
    (id::GPU_MEMORY, "memory in use", "bytes"),
    (id::GPU_TEMPERATURE, "temperature", "°C"),
    (id::GPU_POWER, "power", "W"),
    (id::GPU_CLOCK, "SM clock", "MHz"),
    (id::GPU_THROTTLE, "throttle reasons", "bits"),
    (id::GPU_OWN_MEMORY, "memory of this process", "bytes"),
];

/// All readings that a sample of a machine with these GPUs may contain.
pub fn declarations(gpus: impl IntoIterator<Item = u32>) -> Vec<MetricInfo> {
    let info = |id: String, title: String, unit: &str, source: &str| MetricInfo {
        id,
        title,
        unit: unit.into(),
        direction: Direction::Neutral,
        source: source.into(),
        place: ChartPlace::Hardware,
        ..MetricInfo::default()
    };
    let host = HOST.iter().map(|(id, title, unit)| {
        let info = info((*id).into(), (*title).into(), unit, "operating system");
        let (label, exact, place) = match *id {
            self::id::CPU => ("CPU", false, ChartPlace::Dashboard),
            self::id::RSS => ("memory of the run", true, ChartPlace::Dashboard),
            self::id::RAM_USED => ("RAM used", true, ChartPlace::Dashboard),
            self::id::RAM_TOTAL => ("", false, ChartPlace::Nowhere),
            _ => ("", false, ChartPlace::Hardware),
        };
        MetricInfo {
            label: label.into(),
            exact,
            place,
            ..info
        }
    });
    let gpus = gpus.into_iter().flat_map(|index| {
        GPU.iter().map(move |(what, title, unit)| {
            let title = format!("GPU {index}, {title}");
            info(id::gpu(index, what), title, unit, "NVML")
        })
    });
    host.chain(gpus).collect()
}

/// Counter values, for differences.
#[derive(Debug, Clone, Copy, Default)]
struct Counters {
    at: Duration,
    cpu_busy: u64,
    cpu_all: u64,
    disk_read: u64,
    disk_written: u64,
    net_in: u64,
    net_out: u64,
}

/// Samples the host. The first sample has no rates, since there is no previous one.
pub struct HostSampler {
    clock: SystemClock,
    /// Whole disks, found once.
    disks: Vec<String>,
    before: Option<Counters>,
}

impl HostSampler {
    pub fn new(root: &Root) -> HostSampler {
        let disks = root.names("sys/block");
        HostSampler {
            clock: SystemClock::new(),
            disks: disks
                .into_iter()
                .filter(|name| root.exists(&format!("sys/block/{name}/device")))
                .collect(),
            before: None,
        }
    }

    pub fn sample(&mut self, root: &Root) -> Values {
        let mut values = Values::new();
        memory(root, &mut values);
        let Some(now) = self.counters(root) else {
            return values;
        };
        if let Some(before) = self.before.replace(now) {
            rates(&before, &now, &mut values);
        }
        values
    }

    fn counters(&self, root: &Root) -> Option<Counters> {
        let (cpu_busy, cpu_all) = cpu(&root.read("proc/stat")?)?;
        let disks = root.read("proc/diskstats").unwrap_or_default();
        let (disk_read, disk_written) = sectors(&disks, &self.disks);
        let (net_in, net_out) = traffic(&root.read("proc/net/dev").unwrap_or_default());
        Some(Counters {
            at: self.clock.elapsed(),
            cpu_busy,
            cpu_all,
            disk_read,
            disk_written,
            net_in,
            net_out,
        })
    }
}

fn memory(root: &Root, values: &mut Values) {
    let mut set = |id: &str, kib: u64| values.insert(id.into(), Num((kib * 1024) as f64));
    let info = root.read("proc/meminfo").unwrap_or_default();
    let of = |key| kib(&info, key);
    if let (Some(total), Some(available)) = (of("MemTotal"), of("MemAvailable")) {
        set(id::RAM_TOTAL, total);
        set(id::RAM_USED, total.saturating_sub(available));
    }
    if let (Some(total), Some(free)) = (of("SwapTotal"), of("SwapFree")) {
        set(id::SWAP, total.saturating_sub(free));
    }
    if let Some(rss) = root.kib("proc/self/status", "VmRSS") {
        set(id::RSS, rss);
        set(id::STARTED, host::started_kib(root));
    }
}

/// Ticks of all CPUs: busy, and total.
fn cpu(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line
        .split_whitespace()
        .take(8)
        .filter_map(|t| t.parse().ok())
        .collect();
    let all: u64 = ticks.iter().sum();
    // user nice system idle iowait …
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some((all - idle, all))
}

/// Bytes read and written by these disks; a sector is always 512 bytes (kernel documentation, iostats).
fn sectors(stats: &str, disks: &[String]) -> (u64, u64) {
    stats.lines().fold((0, 0), |(read, written), line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if !fields
            .get(2)
            .is_some_and(|name| disks.iter().any(|d| d == name))
        {
            return (read, written);
        }
        let field = |i: usize| fields.get(i).and_then(|f| f.parse::<u64>().ok());
        (
            read + field(5).unwrap_or(0) * 512,
            written + field(9).unwrap_or(0) * 512,
        )
    })
}

/// Bytes received and sent, without interfaces that duplicate another one's traffic.
fn traffic(dev: &str) -> (u64, u64) {
    const VIRTUAL: &[&str] = &["lo", "veth", "docker", "br-", "virbr", "ifb", "tap", "cni"];
    dev.lines().fold((0, 0), |(received, sent), line| {
        let Some((name, rest)) = line.split_once(':') else {
            return (received, sent);
        };
        if VIRTUAL.iter().any(|v| name.trim().starts_with(v)) {
            return (received, sent);
        }
        let fields: Vec<u64> = rest
            .split_whitespace()
            .filter_map(|f| f.parse().ok())
            .collect();
        let field = |i: usize| fields.get(i).copied().unwrap_or(0);
        (received + field(0), sent + field(8))
    })
}

fn rates(before: &Counters, now: &Counters, values: &mut Values) {
    let seconds = now.at.saturating_sub(before.at).as_secs_f64();
    let ticks = now.cpu_all.saturating_sub(before.cpu_all);
    let mut set = |id: &str, value: f64| values.insert(id.into(), Num(value));
    if ticks > 0 {
        let busy = now.cpu_busy.saturating_sub(before.cpu_busy);
        set(id::CPU, 100.0 * busy as f64 / ticks as f64);
    }
    if seconds <= 0.0 {
        return;
    }
    let mut rate = |id: &str, before: u64, now: u64| {
        set(id, now.saturating_sub(before) as f64 / seconds);
    };
    rate(id::DISK_READ, before.disk_read, now.disk_read);
    rate(id::DISK_WRITE, before.disk_written, now.disk_written);
    rate(id::NET_IN, before.net_in, now.net_in);
    rate(id::NET_OUT, before.net_out, now.net_out);
}

/// The GPUs' readings. A lost GPU's utilization is NaN: it shows as a gap, not as idle.
pub fn gpus(library: &mut Library, values: &mut Values) {
    for pulse in library.pulses() {
        pulse_values(&pulse, values);
    }
}

fn pulse_values(pulse: &Pulse, values: &mut Values) {
    let lost = pulse.lost.then_some(f64::NAN);
    let readings = [
        (id::GPU_UTIL, pulse.utilization.or(lost)),
        (id::GPU_MEMORY, pulse.memory_used),
        (id::GPU_TEMPERATURE, pulse.temperature),
        (id::GPU_POWER, pulse.power),
        (id::GPU_CLOCK, pulse.sm_clock),
        (id::GPU_THROTTLE, pulse.throttle),
        (id::GPU_OWN_MEMORY, pulse.own_memory),
    ];
    for (what, value) in readings {
        if let Some(value) = value {
            values.insert(id::gpu(pulse.index, what), Num(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::host::tests::tree;
    use super::*;

    #[test]
    fn rates_are_differences_over_time() {
        let before = Counters {
            cpu_busy: 100,
            cpu_all: 1000,
            net_in: 500,
            ..Counters::default()
        };
        let now = Counters {
            at: Duration::from_secs(2),
            cpu_busy: 150,
            cpu_all: 1200,
            net_in: 700,
            disk_read: 4096,
            ..Counters::default()
        };
        let mut values = Values::new();
        rates(&before, &now, &mut values);
        assert_eq!(values[id::CPU].0, 25.0);
        assert_eq!(
            (values[id::NET_IN].0, values[id::DISK_READ].0),
            (100.0, 2048.0)
        );
    }

    #[test]
    fn counters_are_read_from_the_kernels_files() {
        assert_eq!(cpu("cpu  10 1 5 80 4 0 0 0 0 0\n"), Some((16, 100)));
        assert_eq!(cpu("intr 5\n"), None);
        let disks = ["vda".to_string()];
        let stats = "254 0 vda 9 0 8 1 7 0 16 2 0 3 3\n254 1 vda1 9 0 99 1 7 0 99 2 0 3 3\n";
        assert_eq!(sectors(stats, &disks), (4096, 8192));
        let dev =
            "Inter-| x\n face |bytes\n lo: 9 0 0 0 0 0 0 0 9 0\neth0: 70 1 0 0 0 0 0 0 30 1\n";
        assert_eq!(traffic(dev), (70, 30));
    }

    /// On PyTorch the ranks hold a run's memory, and torchrun is between them and the engine.
    #[test]
    fn memory_of_all_descendant_processes_is_counted() {
        let (_keep, root) = tree(&[
            ("proc/self/status", "VmRSS:\t 2 kB\n"),
            ("proc/self/task/1/children", ""),
            ("proc/self/task/2/children", "10 11 "),
            ("proc/10/status", "VmRSS: 100 kB\nRssFile: 30 kB\n"),
            ("proc/10/task/10/children", "12\n"),
            ("proc/12/status", "VmRSS: 500 kB\nRssFile: 100 kB\n"),
            ("proc/13/status", "VmRSS: 9000 kB\n"),
        ]);
        let values = HostSampler::new(&root).sample(&root);
        assert_eq!(values[id::RSS].0, 2.0 * 1024.0);
        assert_eq!(values[id::STARTED].0, 470.0 * 1024.0);
    }

    #[test]
    fn every_reading_is_declared() {
        let (_keep, root) = tree(&[
            (
                "proc/meminfo",
                "MemTotal: 10 kB\nMemAvailable: 4 kB\nSwapTotal: 3 kB\nSwapFree: 1 kB\n",
            ),
            ("proc/self/status", "VmRSS:\t 2 kB\n"),
            ("proc/stat", "cpu  10 1 5 80 4 0 0 0\n"),
        ]);
        let mut sampler = HostSampler::new(&root);
        let mut values = sampler.sample(&root);
        values.extend(sampler.sample(&root));
        assert_eq!(values[id::RAM_USED].0, 6.0 * 1024.0);
        assert_eq!(values[id::SWAP].0, 2.0 * 1024.0);
        let pulse = Pulse {
            index: 3,
            lost: true,
            power: Some(70.0),
            own_memory: Some(9.0),
            ..Pulse::default()
        };
        pulse_values(&pulse, &mut values);
        assert!(values["gpu/3/util"].0.is_nan());
        let declared = declarations([3]);
        for id in values.keys() {
            assert!(declared.iter().any(|m| m.id == *id), "{id}");
        }
    }
}
