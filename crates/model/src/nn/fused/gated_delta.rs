//! Gated delta nets. Of the forward the backward has the input, each token's update, and the states between segments.

use super::{Node, Pass, Plan};
use crate::kernels::gated_delta::{self, GatedDelta, Keep, Kept, ParamGradients, Sizes, State};
use crate::kernels::numbers::{Values, ValuesMut};
use crate::nn::kv_cache::Texts;
use crate::nn::layout::{GatedDeltaSpans, gradients};
use crate::nn::mixer::GatedDeltaNetConfig;
use crate::nn::profile::Part;
use crate::nn::tape::{Slot, Track};

/// State of a gated delta net's forward for its backward.
#[derive(Debug, Clone, Copy)]
pub(super) struct GatedDeltaNode {
    wide: Slot,
    pub out: Slot,
    states: Slot,
    updates: Slot,
    spans: GatedDeltaSpans,
    sizes: Sizes,
}

fn sizes(net: &GatedDeltaNetConfig) -> Sizes {
    Sizes {
        n_key_head: net.n_key_head,
        n_value_head: net.n_value_head,
        key_dim: net.key_dim,
        value_dim: net.value_dim,
        conv_len: net.conv_len,
    }
}

fn kernel<'a>(plan: &Plan<'a>, spans: &GatedDeltaSpans, sizes: Sizes) -> GatedDelta<'a> {
    GatedDelta {
        sizes,
        conv: plan.dense(spans.conv.weight),
        a_log: plan.dense(spans.a_log),
        dt_bias: plan.dense(spans.dt_bias),
        gain: plan.dense(spans.norm),
        eps: plan.config.norm.eps() as f32,
    }
}

impl Pass {
    /// `wide` (rows, width of the projections) → (rows, values).
    pub(super) fn gated_delta(
        &mut self,
        plan: &Plan,
        wide: Slot,
        (net, spans): (&GatedDeltaNetConfig, &GatedDeltaSpans),
    ) -> Slot {
        let (sizes, rows) = (sizes(net), self.rows.count);
        let storage = plan.among([&spans.out], false);
        let out = self.arena.slot_in(storage, rows * sizes.values());
        let mut values = self.arena.take(out);
        let keeps = self.keep == Track::Gradients;
        let kept = keeps.then(|| {
            sizes
                .kept(rows, self.rows.seq_len)
                .map(|n| self.arena.slot(n))
        });
        let mut buffers = kept.map(|kept| kept.map(|slot| self.arena.take(slot)));
        let (positions, wide_values) = (self.rows.positions(0), self.arena.view(wide));
        self.kernels.run(Part::Mixer, || {
            let keep = buffers
                .as_mut()
                .map(|[states, updates]| Keep { states, updates });
            let net = kernel(plan, spans, sizes);
            gated_delta::forward(net, positions, wide_values, values.view_mut(), keep);
        });
        self.arena.put(out, values);
        if let (Some([states, updates]), Some(buffers)) = (kept, buffers) {
            for (slot, buffer) in [states, updates].into_iter().zip(buffers) {
                self.arena.put(slot, buffer);
            }
            self.record(Node::GatedDelta(GatedDeltaNode {
                wide,
                out,
                states,
                updates,
                spans: *spans,
                sizes,
            }));
        }
        out
    }

    pub(super) fn gated_delta_backward(
        &mut self,
        plan: &Plan,
        node: &GatedDeltaNode,
        grads: &mut [f32],
    ) {
        let Some(dout) = self.arena.take_gradient(node.out) else {
            return;
        };
        self.arena.release(node.out);
        let spans = &node.spans;
        let mut dwide = self.arena.buffer(self.arena.len(node.wide));
        let (into, positions, arena) = (self.into, self.rows.positions(0), &self.arena);
        self.kernels.run(Part::Mixer, || {
            let kept = Kept {
                states: arena.get(node.states),
                updates: arena.get(node.updates),
            };
            let parts = [spans.conv.weight, spans.dt_bias, spans.a_log, spans.norm];
            let [conv, dt_bias, a_log, gain] = gradients(parts.map(Some), grads);
            gated_delta::backward(
                kernel(plan, spans, node.sizes),
                positions,
                arena.view(node.wide),
                kept,
                dout.view(),
                dwide.view_mut(),
                ParamGradients {
                    conv,
                    a_log,
                    dt_bias,
                    gain,
                    into,
                },
            );
        });
        self.arena.put_gradient(node.wide, dwide);
        self.arena.free(dout);
        self.arena.release(node.states);
        self.arena.release(node.updates);
    }

    /// The same for the new tokens of each text, after its state.
    pub(super) fn cached_gated_delta(
        &mut self,
        plan: &Plan,
        wide: Slot,
        texts: &mut Texts,
        (layer, net, spans): (usize, &GatedDeltaNetConfig, &GatedDeltaSpans),
    ) -> Slot {
        let sizes = sizes(net);
        let out = self.arena.slot(self.rows.count * sizes.values());
        let mut values = self.arena.take(out);
        let wide = self.arena.get(wide);
        self.kernels.run(Part::Mixer, || {
            let mut row = 0;
            for (cache, new) in texts.reading() {
                let state = cache.state(layer);
                let state = State {
                    conv: &mut state.conv,
                    heads: &mut state.memory,
                };
                let part = |width: usize| row * width..(row + new) * width;
                let wide = Values::F32(&wide[part(sizes.wide())]);
                let out = ValuesMut::F32(&mut values[part(sizes.values())]);
                gated_delta::forward_after(kernel(plan, spans, sizes), state, wide, out);
                row += new;
            }
        });
        self.arena.put(out, values);
        out
    }
}
