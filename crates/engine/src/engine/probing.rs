//! The engine's side of probes: which ones a run has, and writing their readings to the log.

use super::context::RunContext;
use crate::hf::Weights;
use crate::metrics::estimators::collapse::Reference;
use crate::probes::{Probes, Setup, spectra};
use crate::run::checkpoints::name_of;
use crate::wire::{Event, Num};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

/// Niceness of the thread for spectra: everybody else comes first.
#[cfg(target_os = "linux")]
const NICE: i32 = 19;

/// Those of this run.
pub(super) fn probes(cx: &RunContext<'_, '_>, reference: Option<&Reference>) -> Probes {
    let (health, train) = (&cx.spec.health, &cx.spec.train);
    if !health.enabled {
        return Probes::default();
    }
    let model = &cx.state.models.policy;
    let setup = Setup {
        n_layer: model.shape().n_layer,
        params: model.params().infos(),
        micro_batches: train.grad_accum_steps,
        batch_tokens: cx.batch_tokens(),
        max_steps: train.max_steps,
        reference,
        remote: cx.state.models.remote.is_some(),
    };
    let rhythm = (health.every, train.log_every);
    Probes::new(&setup, rhythm, cx.port.clock.clone())
}

/// Sends what probes saw of each block, a few lists to an event, so that lines stay short in deep models.
pub(super) fn emit_layers(cx: &mut RunContext<'_, '_>, layers: BTreeMap<String, Vec<Num>>) {
    /// Values of an event: about 40 kB.
    const MOST: usize = 4096;
    let (step, mut part, mut held) = (cx.step(), BTreeMap::new(), 0);
    for (id, values) in layers {
        if held > 0 && held + values.len() > MOST {
            let layers = std::mem::take(&mut part);
            cx.port.emit(Event::Probed { step, layers });
            held = 0;
        }
        held += values.len();
        part.insert(id, values);
    }
    if held > 0 {
        cx.port.emit(Event::Probed { step, layers: part });
    }
}

/// Spectra of a checkpoint, one at a time, on a thread of the lowest priority.
#[derive(Default)]
pub(super) struct Spectra {
    /// Its step, and where its result comes from.
    under_way: Option<(u64, Receiver<Layers>)>,
}

type Layers = BTreeMap<String, Vec<Num>>;

impl Spectra {
    /// Begins with the checkpoint of `step`, unless another is under way, or adapters are what trains.
    pub fn begin(&mut self, cx: &RunContext<'_, '_>, step: u64) {
        let adapted = cx.spec.adapter.is_some();
        if self.under_way.is_some() || !cx.spec.health.enabled || adapted {
            return;
        }
        let model = &cx.state.models.policy;
        let (infos, n_layer) = (model.params().infos().to_vec(), model.shape().n_layer);
        let folder = cx.job.run_dir.checkpoints_path().join(name_of(step));
        let (send, receive) = sync_channel(1);
        let work = move || {
            // On Linux it is the thread's own; elsewhere the thread takes its share.
            #[cfg(target_os = "linux")]
            let _ = rustix::process::nice(NICE);
            // A checkpoint that was pruned meanwhile has nothing to say.
            if let Ok(file) = Weights::open(&folder) {
                let _ = send.send(spectra::of_checkpoint(&file, &infos, n_layer));
            }
        };
        let spawned = std::thread::Builder::new()
            .name("spectra".into())
            .spawn(work);
        match spawned {
            Ok(_) => self.under_way = Some((step, receive)),
            Err(e) => tracing::warn!("no spectra: {e}"),
        }
    }

    /// Forgets the checkpoint that is under way, where the run went back behind it.
    pub fn went_back(&mut self, to: u64) {
        self.under_way.take_if(|(step, _)| *step > to);
    }

    /// Sends the results that are ready.
    pub fn emit(&mut self, cx: &mut RunContext<'_, '_>) {
        let Some((step, receive)) = &self.under_way else {
            return;
        };
        let step = *step;
        match receive.try_recv() {
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => self.under_way = None,
            Ok(layers) => {
                self.under_way = None;
                if !layers.is_empty() {
                    cx.port.emit(Event::Probed { step, layers });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_at_a_checkpoint_that_was_given_up_is_dropped() {
        let (_send, receive) = sync_channel(1);
        let mut spectra = Spectra {
            under_way: Some((100, receive)),
        };
        spectra.went_back(100);
        assert!(spectra.under_way.is_some());
        spectra.went_back(90);
        assert!(spectra.under_way.is_none());
    }
}
