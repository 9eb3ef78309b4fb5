//! Mamba 2. Of the forward the backward has the input, y, and the states between chunks; it recomputes the convolution.

use super::{Node, Pass, Plan};
use crate::kernels::mamba2::{self, Buffers, Kept, Mamba2, ParamGradients, State};
use crate::kernels::numbers::{Values, ValuesMut};
use crate::nn::kv_cache::Texts;
use crate::nn::layout::{Mamba2Spans, gradients};
use crate::nn::mixer::Mamba2Config;
use crate::nn::profile::Part;
use crate::nn::tape::{Slot, Track};

/// State of Mamba 2's forward for its backward.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mamba2Node {
    wide: Slot,
    pub out: Slot,
    y: Slot,
    states: Slot,
    spans: Mamba2Spans,
    sizes: mamba2::Sizes,
    limits: [f32; 2],
}

fn limits(net: &Mamba2Config) -> [f32; 2] {
    let most = net.dt_max.map_or(f32::INFINITY, |most| most as f32);
    [net.dt_min as f32, most]
}

fn kernel<'a>(
    plan: &Plan<'a>,
    spans: &Mamba2Spans,
    sizes: mamba2::Sizes,
    limits: [f32; 2],
) -> Mamba2<'a> {
    Mamba2 {
        sizes,
        conv: plan.dense(spans.conv.weight),
        conv_bias: spans.conv.bias.map(|span| plan.dense(span)),
        a_log: plan.dense(spans.a_log),
        dt_bias: plan.dense(spans.dt_bias),
        d: plan.dense(spans.d),
        gain: plan.dense(spans.norm),
        eps: plan.config.norm.eps() as f32,
        limits,
    }
}

impl Pass {
    /// `wide` (rows, width of the projection) → (rows, width of all heads).
    pub(super) fn mamba2(
        &mut self,
        plan: &Plan,
        wide: Slot,
        (net, spans): (&Mamba2Config, &Mamba2Spans),
    ) -> Slot {
        let (sizes, limits, rows) = (net.sizes(), limits(net), self.rows.count);
        let storage = plan.among([&spans.out], false);
        let out = self.arena.slot_in(storage, rows * sizes.inner());
        let mut values = self.arena.take(out);
        let mut xbc = self.arena.buffer(rows * sizes.channels());
        let y = self.arena.slot(rows * sizes.inner());
        let mut y_values = self.arena.take(y);
        let keeps = self.keep == Track::Gradients;
        let states = keeps.then(|| self.arena.slot(sizes.kept(rows, self.rows.seq_len)));
        let mut kept = states.map(|slot| self.arena.take(slot));
        let (positions, wide_values) = (self.rows.positions(0), self.arena.view(wide));
        self.kernels.run(Part::Mixer, || {
            let buffers = Buffers {
                xbc: &mut xbc,
                y: &mut y_values,
                states: kept.as_deref_mut(),
            };
            let net = kernel(plan, spans, sizes, limits);
            mamba2::forward(net, positions, wide_values, buffers, values.view_mut());
        });
        self.arena.free(xbc);
        self.arena.put(out, values);
        self.arena.put(y, y_values);
        match (states, kept) {
            (Some(states), Some(kept)) => {
                self.arena.put(states, kept);
                self.record(Node::Mamba2(Mamba2Node {
                    wide,
                    out,
                    y,
                    states,
                    spans: *spans,
                    sizes,
                    limits,
                }));
            }
            _ => self.arena.release(y),
        }
        out
    }

    pub(super) fn mamba2_backward(&mut self, plan: &Plan, node: &Mamba2Node, grads: &mut [f32]) {
        let Some(dout) = self.arena.take_gradient(node.out) else {
            return;
        };
        self.arena.release(node.out);
        let (spans, sizes, rows) = (&node.spans, node.sizes, self.rows.count);
        let mut dwide = self.arena.buffer(self.arena.len(node.wide));
        let mut xbc = self.arena.buffer(rows * sizes.channels());
        let mut mixed = self.arena.buffer(rows * sizes.gradient());
        let (into, positions, arena) = (self.into, self.rows.positions(0), &self.arena);
        self.kernels.run(Part::Mixer, || {
            let kept = Kept {
                y: arena.get(node.y),
                states: arena.get(node.states),
            };
            let parts = [
                Some(spans.conv.weight),
                spans.conv.bias,
                Some(spans.dt_bias),
                Some(spans.a_log),
                Some(spans.d),
                Some(spans.norm),
            ];
            let [conv, conv_bias, dt_bias, a_log, d, gain] = gradients(parts, grads);
            mamba2::backward(
                kernel(plan, spans, sizes, node.limits),
                positions,
                (arena.view(node.wide), kept, dout.view()),
                [&mut xbc, &mut mixed],
                dwide.view_mut(),
                ParamGradients {
                    conv,
                    conv_bias,
                    a_log,
                    dt_bias,
                    d,
                    gain,
                    into,
                },
            );
        });
        self.arena.put_gradient(node.wide, dwide);
        for buffer in [xbc, mixed, dout] {
            self.arena.free(buffer);
        }
        self.arena.release(node.y);
        self.arena.release(node.states);
    }

    /// The same for the new tokens of each text, after its state.
    pub(super) fn cached_mamba2(
        &mut self,
        plan: &Plan,
        wide: Slot,
        texts: &mut Texts,
        (layer, net, spans): (usize, &Mamba2Config, &Mamba2Spans),
    ) -> Slot {
        let (sizes, limits, rows) = (net.sizes(), limits(net), self.rows.count);
        let out = self.arena.slot(rows * sizes.inner());
        let mut values = self.arena.take(out);
        let mut xbc = self.arena.buffer(rows * sizes.channels());
        let mut y = self.arena.buffer(rows * sizes.inner());
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
                let buffers = Buffers {
                    xbc: &mut xbc[part(sizes.channels())],
                    y: &mut y[part(sizes.inner())],
                    states: None,
                };
                let wide = Values::F32(&wide[part(sizes.wide())]);
                let out = ValuesMut::F32(&mut values[part(sizes.inner())]);
                let net = kernel(plan, spans, sizes, limits);
                mamba2::forward_after(net, state, wide, buffers, out);
                row += new;
            }
        });
        self.arena.put(out, values);
        self.arena.free(xbc);
        self.arena.free(y);
        out
    }
}
