//! The engine's side of probes: which ones a run has, and what they saw on its way into the log.

use super::context::RunContext;
use crate::probes::{Probes, Setup};
use crate::wire::{Event, Num};
use std::collections::BTreeMap;

/// Those of this run.
pub(super) fn probes(cx: &RunContext<'_, '_>) -> Probes {
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
