//! Norms of the residual stream.

use super::{Node, Output, Pass, Plan};
use crate::kernels::norm;
use crate::nn::layout::NormSpans;
use crate::nn::profile::Part;
use crate::nn::tape::Slot;

impl Pass {
    pub(super) fn norm(&mut self, plan: &Plan, x: Slot, spans: &NormSpans, output: Output) -> Slot {
        let len = self.rows.count * plan.shape.d_model;
        let y = match output {
            Output::New(storage) => self.arena.slot_in(storage, len),
            Output::Known(y) => y,
        };
        let mut y_values = match output {
            Output::New(_) => self.arena.take(y),
            // Only the statistics are needed.
            Output::Known(_) => self.arena.buffer(len),
        };
        let stats = self.arena.slot(self.rows.count * 2);
        let mut stats_values = self.arena.take(stats);
        let x_values = self.arena.get(x);
        self.kernels.run(Part::Norm, || {
            norm::forward(
                plan.norm_of(spans),
                x_values,
                y_values.view_mut(),
                &mut stats_values,
            );
        });
        let storage = y_values.storage();
        match output {
            Output::New(_) => self.arena.put(y, y_values),
            Output::Known(_) => self.arena.free(y_values),
        }
        self.arena.put(stats, stats_values);
        self.read(stats);
        self.record(Node::Norm {
            x,
            y,
            storage,
            stats,
            spans: *spans,
        });
        y
    }

    pub(super) fn norm_backward(
        &mut self,
        plan: &Plan,
        [x, y, stats]: [Slot; 3],
        spans: &NormSpans,
        grads: &mut [f32],
    ) {
        let Some(dy) = self.arena.take_gradient(y) else {
            return;
        };
        self.arena.release(y);
        let (mut dx, into) = self.arena.open_gradient(x, dy.len());
        let saved = norm::Saved {
            x: self.arena.get(x),
            stats: self.arena.get(stats),
        };
        let into_params = self.into;
        self.kernels.run(Part::Norm, || {
            let params = spans.split(grads).map(|(gain, bias)| norm::ParamGradients {
                gain,
                bias,
                into: into_params,
            });
            norm::backward(plan.norm_of(spans), saved, &dy, (&mut dx, into), params);
        });
        self.arena.put_gradient(x, dx);
        self.arena.free(dy);
        self.arena.release(stats);
    }
}
