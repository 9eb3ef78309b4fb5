//! Norms of queries and keys.

use super::{Node, Pass, Plan};
use crate::kernels::qk_norm;
use crate::nn::layout::Span;
use crate::nn::profile::Part;
use crate::nn::tape::Slot;

impl Pass {
    /// `x` (rows, qkv_width) with queries and keys normalized.
    pub(super) fn qk_norm(&mut self, plan: &Plan, x: Slot, gains: [Span; 2]) -> Slot {
        let (norm, rows) = (plan.qk_norm(gains), self.rows.count);
        let y = self.arena.slot(rows * norm.heads.qkv_width());
        let scales = self.arena.slot(rows * norm.normalized());
        let (mut values, mut scale_values) = (self.arena.take(y), self.arena.take(scales));
        let x_values = self.arena.get(x);
        self.kernels.run(Part::Norm, || {
            qk_norm::forward(norm, x_values, &mut values, &mut scale_values);
        });
        self.arena.put(y, values);
        self.arena.put(scales, scale_values);
        self.read(scales);
        self.record(Node::QkNorm {
            x,
            y,
            scales,
            gains,
        });
        y
    }

    pub(super) fn qk_norm_backward(
        &mut self,
        plan: &Plan,
        [x, y, scales]: [Slot; 3],
        gains: [Span; 2],
        grads: &mut [f32],
    ) {
        let Some(dy) = self.arena.take_gradient(y) else {
            return;
        };
        self.arena.release(y);
        let mut dx = self.arena.buffer(dy.len());
        let saved = qk_norm::Saved {
            x: self.arena.get(x),
            scales: self.arena.get(scales),
        };
        let norm = plan.qk_norm(gains);
        // The gains of queries and keys are adjacent.
        let len = gains[0].len() + gains[1].len();
        let into = self.into;
        self.kernels.run(Part::Norm, || {
            let dgains = gains[0]
                .grad
                .map(|from| (&mut grads[from..from + len], into));
            qk_norm::backward(norm, saved, &dy, &mut dx, dgains);
        });
        self.arena.put_gradient(x, dx);
        self.arena.free(dy);
        self.arena.release(scales);
    }
}
