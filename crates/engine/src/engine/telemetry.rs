//! Readings of the machine, once a second, on their own thread: the training loop only picks up the latest.

use crate::base::paths::Env;
use crate::hardware::{Live, Machine, Provider, sampler};
use crate::wire::Event;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// Time between two readings.
const PERIOD: Duration = Duration::from_secs(1);
/// Events that may wait for the training loop; later readings are dropped until it comes by.
const WAITING: usize = 8;

/// The running sampler; ends when dropped.
#[derive(Debug)]
pub struct Telemetry {
    events: Receiver<Event>,
    /// Dropping it wakes and ends the thread.
    _stop: SyncSender<()>,
}

impl Telemetry {
    /// Starts sampling; if no thread can be started there are no readings.
    pub fn start(env: &Env) -> Telemetry {
        let env = env.clone();
        let (send, events) = sync_channel(WAITING);
        let (stop, stopped) = sync_channel::<()>(0);
        let spawned = std::thread::Builder::new()
            .name("telemetry".into())
            .spawn(move || sample(&env, &send, &stopped));
        if let Err(e) = spawned {
            tracing::warn!("no telemetry: {e}");
        }
        Telemetry {
            events,
            _stop: stop,
        }
    }

    /// The next event that lies ready.
    pub fn take(&self) -> Option<Event> {
        self.events.try_recv().ok()
    }
}

fn sample(env: &Env, send: &SyncSender<Event>, stopped: &Receiver<()>) {
    // All GPUs are watched; which of them CUDA shows to this process is written down with them.
    let mut live = Live::new(env);
    for event in described(&live.machine()) {
        if send.try_send(event).is_err() {
            return;
        }
    }
    // Rates are differences: the first sample gives their start.
    live.sample();
    while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
        let values = live.sample();
        if let Err(TrySendError::Disconnected(_)) = send.try_send(Event::HardwareSampled { values })
        {
            return;
        }
    }
}

/// The machine, and the metrics declared for it.
fn described(machine: &Machine) -> Vec<Event> {
    let gpus = machine.gpus.iter().map(|gpu| gpu.index);
    let metrics = sampler::declarations(gpus);
    let machine = serde_json::to_value(machine).unwrap_or_default();
    vec![
        Event::MachineDescribed { machine },
        Event::MetricsDeclared { metrics },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reading_is_declared_and_plausible() {
        let mut live = Live::new(&Env::default());
        let events = described(&live.machine());
        let Event::MetricsDeclared { metrics: declared } = &events[1] else {
            panic!("no declarations");
        };
        live.sample();
        std::thread::yield_now();
        let values = live.sample();
        let get = |id: &str| values[id].0;
        assert!(get(sampler::id::RSS) > 1e6 && get(sampler::id::RSS) < get(sampler::id::RAM_TOTAL));
        assert!(get(sampler::id::RAM_USED) <= get(sampler::id::RAM_TOTAL));
        for id in values.keys() {
            assert!(declared.iter().any(|m| m.id == *id), "{id}");
        }
    }

    #[test]
    fn a_machine_reads_back_from_its_event_with_what_cuda_shows() {
        let env = Env {
            cuda_visible_devices: Some("1,0".into()),
            ..Env::default()
        };
        let machine = Live::new(&env).machine();
        assert_eq!(machine.nvidia.cuda_visible_devices.as_deref(), Some("1,0"));
        let Event::MachineDescribed { machine: value } = &described(&machine)[0] else {
            panic!("no machine");
        };
        assert_eq!(crate::base::json::read::<Machine>(value).unwrap(), machine);
    }
}
