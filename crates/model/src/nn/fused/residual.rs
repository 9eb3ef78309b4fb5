//! Adds a sub-layer's output to the residual stream where the matmul before cannot: with dropout in training, or scaled.

use super::{Node, Output, Pass, Plan};
use crate::kernels::dropout::{self, Dropout};
use crate::kernels::reduce;
use crate::nn::profile::Part;
use crate::nn::tape::{Buffer, Slot};

impl Pass {
    /// `residual` + the residual scale · `x` with dropout; the last read of `x`.
    pub(super) fn residual(
        &mut self,
        plan: &Plan,
        (x, residual): (Slot, Slot),
        drop: Option<Dropout>,
        output: Output,
    ) -> Slot {
        let y = match output {
            Output::Known(y) => y,
            Output::New(_) => {
                let len = self.arena.len(x);
                let y = self.arena.slot(len);
                let mut values = self.arena.take(y);
                let (width, arena) = (len / self.rows.count, &self.arena);
                self.kernels.run(Part::Residual, || {
                    let (x, residual) = (arena.get(x), arena.get(residual));
                    let how = (drop.as_ref(), plan.residual_scale());
                    dropout::add(how, width, x, residual, &mut values);
                });
                self.arena.put(y, values);
                y
            }
        };
        // The backward of a sum needs no stored values.
        self.arena.release(x);
        self.record(Node::Residual {
            x,
            residual,
            y,
            drop,
        });
        y
    }

    pub(super) fn sum_backward(
        &mut self,
        plan: &Plan,
        [x, residual, y]: [Slot; 3],
        drop: Option<Dropout>,
    ) {
        let Some(dy) = self.arena.take_gradient(y) else {
            return;
        };
        self.arena.release(y);
        let mut dx = self.arena.buffer(dy.len());
        let width = dy.len() / self.rows.count;
        self.kernels.run(Part::Residual, || {
            let how = (drop.as_ref(), plan.residual_scale());
            dropout::add_backward(how, width, &dy, &mut dx);
        });
        self.arena.put_gradient(x, dx);
        self.residual_backward(Some(residual), dy);
    }

    /// The residual's gradient is `dy` itself: moved if it is the first contribution.
    pub(super) fn residual_backward(&mut self, residual: Option<Slot>, dy: Buffer) {
        let Some(residual) = residual else {
            return self.arena.free(dy);
        };
        match self.arena.take_gradient(residual) {
            None => self.arena.put_gradient(residual, dy),
            Some(mut sum) => {
                self.kernels
                    .run(Part::Residual, || reduce::add(&mut sum, &dy));
                self.arena.put_gradient(residual, sum);
                self.arena.free(dy);
            }
        }
    }
}
