//! Gated short convolutions. The backward recomputes the convolution from the layer's input.

use super::{Node, Pass, Plan};
use crate::kernels::numbers::{Values, ValuesMut};
use crate::kernels::short_conv::{self, ParamGradients, ShortConv};
use crate::nn::kv_cache::Texts;
use crate::nn::layout::{ShortConvSpans, gradients};
use crate::nn::profile::Part;
use crate::nn::tape::Slot;

impl ShortConvSpans {
    fn channels(&self) -> usize {
        self.wide.weight.rows / 3
    }

    fn kernel<'a>(&self, plan: &Plan<'a>) -> ShortConv<'a> {
        ShortConv {
            weight: plan.dense(self.conv.weight),
            bias: self.conv.bias.map(|span| plan.dense(span)),
            len: self.conv.weight.len() / self.channels(),
        }
    }
}

impl Pass {
    /// `wide` (rows, 3 D) → (rows, D).
    pub(super) fn short_conv(&mut self, plan: &Plan, wide: Slot, spans: &ShortConvSpans) -> Slot {
        let storage = plan.among([&spans.out], false);
        let n = self.rows.count * spans.channels();
        let out = self.arena.slot_in(storage, n);
        let mut values = self.arena.take(out);
        let (positions, wide_values) = (self.rows.positions(0), self.arena.view(wide));
        self.kernels.run(Part::Mixer, || {
            short_conv::forward(
                spans.kernel(plan),
                positions,
                wide_values,
                values.view_mut(),
            );
        });
        self.arena.put(out, values);
        self.record(Node::ShortConv {
            wide,
            out,
            spans: *spans,
        });
        out
    }

    pub(super) fn short_conv_backward(
        &mut self,
        plan: &Plan,
        [wide, out]: [Slot; 2],
        spans: &ShortConvSpans,
        grads: &mut [f32],
    ) {
        let Some(dout) = self.arena.take_gradient(out) else {
            return;
        };
        self.arena.release(out);
        let mut dwide = self.arena.buffer(self.arena.len(wide));
        let (into, positions) = (self.into, self.rows.positions(0));
        let wide_values = self.arena.view(wide);
        self.kernels.run(Part::Mixer, || {
            let [weight, bias] = gradients([Some(spans.conv.weight), spans.conv.bias], grads);
            short_conv::backward(
                spans.kernel(plan),
                positions,
                wide_values,
                dout.view(),
                dwide.view_mut(),
                ParamGradients { weight, bias, into },
            );
        });
        self.arena.put_gradient(wide, dwide);
        self.arena.free(dout);
    }

    /// The same for the new tokens of each text, after its state.
    pub(super) fn cached_short_conv(
        &mut self,
        plan: &Plan,
        wide: Slot,
        texts: &mut Texts,
        (layer, spans): (usize, &ShortConvSpans),
    ) -> Slot {
        let channels = spans.channels();
        let out = self.arena.slot(self.rows.count * channels);
        let mut values = self.arena.take(out);
        let wide = self.arena.get(wide);
        self.kernels.run(Part::Mixer, || {
            let mut row = 0;
            for (cache, new) in texts.reading() {
                let state = &mut cache.state(layer).conv;
                let rows = row * channels..(row + new) * channels;
                let wide = Values::F32(&wide[3 * rows.start..3 * rows.end]);
                let out = ValuesMut::F32(&mut values[rows]);
                short_conv::forward_after(spans.kernel(plan), state, wide, out);
                row += new;
            }
        });
        self.arena.put(out, values);
        out
    }
}
