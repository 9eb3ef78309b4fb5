//! Readings of the machine, once a second, on a thread of their own: the training loop only picks up what lies ready.

use crate::metrics::id;
use crate::wire::{Num, Values};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

/// Time between two readings.
const PERIOD: Duration = Duration::from_secs(1);
/// Readings that may wait for the training loop; later ones are dropped until it comes by.
const WAITING: usize = 4;

/// The running sampler; ends when dropped.
#[derive(Debug)]
pub struct Telemetry {
    readings: Receiver<Values>,
    /// Dropping it wakes and ends the thread.
    _stop: SyncSender<()>,
}

impl Telemetry {
    /// Starts sampling; without a thread to be had there are simply no readings.
    pub fn start() -> Telemetry {
        let (send, readings) = sync_channel(WAITING);
        let (stop, stopped) = sync_channel::<()>(0);
        let spawned = std::thread::Builder::new()
            .name("telemetry".into())
            .spawn(move || sample(&send, &stopped));
        if let Err(e) = spawned {
            tracing::warn!("no telemetry: {e}");
        }
        Telemetry {
            readings,
            _stop: stop,
        }
    }

    /// The next reading that lies ready.
    pub fn take(&self) -> Option<Values> {
        self.readings.try_recv().ok()
    }
}

/// This machine's name; empty when it has none.
pub fn host_name() -> String {
    System::host_name().unwrap_or_default()
}

fn sample(send: &SyncSender<Values>, stopped: &Receiver<()>) {
    let Ok(mut system) = System::new() else {
        return;
    };
    let pid = Pid::from_u32(std::process::id());
    // CPU use is a difference: the first refresh gives its start.
    system.refresh_cpu_usage();
    while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
        if let Err(TrySendError::Disconnected(_)) = send.try_send(read(&mut system, pid)) {
            return;
        }
    }
}

fn read(system: &mut System, pid: Pid) -> Values {
    system.refresh_cpu_usage();
    system.refresh_memory();
    system.refresh_processes_specifics(
        ProcessesToUpdate::Some(&[pid]),
        false,
        ProcessRefreshKind::nothing().with_memory(),
    );
    let mut values = Values::new();
    let mut set = |id: &str, value: f64| values.insert(id.to_string(), Num(value));
    set(id::CPU_PERCENT, f64::from(system.global_cpu_usage()));
    set(id::RAM_USED, system.used_memory() as f64);
    set(id::RAM_TOTAL, system.total_memory() as f64);
    if let Some(process) = system.process(pid) {
        set(id::RSS, process.memory() as f64);
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_is_complete_and_plausible() {
        let mut system = System::new().unwrap();
        let values = read(&mut system, Pid::from_u32(std::process::id()));
        let get = |id: &str| values[id].0;
        assert!((0.0..=100.0).contains(&get(id::CPU_PERCENT)));
        assert!(get(id::RSS) > 1e6 && get(id::RSS) < get(id::RAM_TOTAL));
        assert!(get(id::RAM_USED) <= get(id::RAM_TOTAL));
        assert!(values.keys().all(|id| crate::metrics::find(id).is_some()));
    }
}
