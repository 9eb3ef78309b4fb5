//! The adapters of a linear layer: y += scale · (x Aᵀ) Bᵀ, part by part, with x dropped at random in training; and back.
//! `linear` calls all of it: an adapter is no node of its own.

use super::linear::LinearNode;
use super::{Pass, Plan};
use crate::kernels::dropout::{self, Dropout};
use crate::kernels::low_rank::{self, Part as Columns};
use crate::kernels::matmul::Accumulation;
use crate::kernels::{linear, reduce};
use crate::nn::layout::{AdapterSpans, LinearSpans, Span};
use crate::nn::profile::Part;
use crate::nn::step_position::Place;
use crate::nn::tape::{Buffer, Slot};

impl Pass {
    /// What of the input is dropped: nothing but in training.
    fn adapter_drop(&self, plan: &Plan, adapter: &AdapterSpans) -> Option<Dropout> {
        self.drops_at(plan, adapter.dropout, Place::Adapter(adapter.lane))
    }

    /// x with features dropped, in a buffer of its own; `None` where nothing is dropped.
    fn adapter_dropped(
        &mut self,
        plan: &Plan,
        adapter: &AdapterSpans,
        x: &[f32],
    ) -> Option<Buffer> {
        let drop = self.adapter_drop(plan, adapter)?;
        let width = adapter.a.cols;
        let mut dropped = self.arena.buffer(self.rows.count * width);
        self.kernels.run(Part::LinearForward, || {
            dropped.copy_from_slice(x);
            dropout::apply(&drop, width, &mut dropped);
        });
        Some(dropped)
    }

    /// x Aᵀ (rows, parts · rank) in a slot.
    pub(super) fn adapter_low(&mut self, plan: &Plan, x: Slot, adapter: &AdapterSpans) -> Slot {
        let x_values = self.arena.take(x);
        let dropped = self.adapter_dropped(plan, adapter, &x_values);
        let sizes = self.low_sizes(adapter.a);
        let low = self.arena.slot(sizes.rows * sizes.d_out);
        let mut values = self.arena.take(low);
        let input = dropped.as_deref().unwrap_or(&x_values);
        self.kernels.run(Part::LinearForward, || {
            let a = plan.matrix(adapter.a);
            linear::forward(plan.arithmetic, sizes, input, a, None, None, &mut values);
        });
        self.arena.put(low, values);
        if let Some(dropped) = dropped {
            self.arena.free(dropped);
        }
        self.arena.put(x, x_values);
        low
    }

    /// y (rows, width) += scale · low Bᵀ.
    pub(super) fn adapter_add(
        &mut self,
        plan: &Plan,
        low: Slot,
        adapter: &AdapterSpans,
        (y, width): (Slot, usize),
    ) {
        let mut values = self.arena.take(y);
        let low = self.arena.get(low);
        let rows = self.rows.count;
        self.kernels.run(Part::LinearForward, || {
            for (columns, b) in columns(adapter, rows, width) {
                low_rank::forward(plan.arithmetic, columns, low, plan.dense(b), &mut values);
            }
        });
        self.arena.put(y, values);
    }

    /// Gradients with respect to B, and the gradient with respect to x Aᵀ, which is no longer needed itself.
    pub(super) fn adapter_out_backward(
        &mut self,
        plan: &Plan,
        node: &LinearNode,
        dy: &[f32],
        grads: &mut [f32],
    ) -> Option<Buffer> {
        let adapter = plan.adapter(&node.spans)?;
        let low = self.arena.take(node.low?);
        let mut dlow = self.arena.buffer(low.len());
        let (rows, into, width) = (self.rows.count, self.into, node.spans.weight.rows);
        self.kernels.run(Part::LinearBackward, || {
            for (columns, b) in columns(adapter, rows, width) {
                low_rank::backward_input(plan.arithmetic, columns, dy, plan.dense(b), &mut dlow);
                if let Some(range) = b.grads() {
                    let db = &mut grads[range];
                    low_rank::backward_weight(plan.arithmetic, columns, (dy, &low), db, into);
                }
            }
        });
        self.arena.free(low);
        Some(dlow)
    }

    /// The gradient with respect to A, from the layer's input `x`.
    pub(super) fn adapter_in_gradient(
        &mut self,
        plan: &Plan,
        spans: &LinearSpans,
        (x, dlow): (&[f32], Option<&[f32]>),
        grads: &mut [f32],
    ) {
        let Some((adapter, dlow)) = plan.adapter(spans).zip(dlow) else {
            return;
        };
        let Some(range) = adapter.a.grads() else {
            return;
        };
        let dropped = self.adapter_dropped(plan, adapter, x);
        let (sizes, into) = (self.low_sizes(adapter.a), self.into);
        let input = dropped.as_deref().unwrap_or(x);
        self.kernels.run(Part::LinearBackward, || {
            let da = &mut grads[range];
            linear::backward_weight(plan.arithmetic, sizes, dlow, input, da, into);
        });
        if let Some(dropped) = dropped {
            self.arena.free(dropped);
        }
    }

    /// dx += dlow · A, of what was not dropped.
    pub(super) fn adapter_input_gradient(
        &mut self,
        plan: &Plan,
        spans: &LinearSpans,
        dlow: Option<&[f32]>,
        dx: &mut [f32],
    ) {
        let Some((adapter, dlow)) = plan.adapter(spans).zip(dlow) else {
            return;
        };
        let (sizes, a) = (self.low_sizes(adapter.a), plan.matrix(adapter.a));
        let Some(drop) = self.adapter_drop(plan, adapter) else {
            return self.kernels.run(Part::LinearBackward, || {
                linear::backward_input(plan.arithmetic, sizes, dlow, a, dx, Accumulation::Add);
            });
        };
        let mut part = self.arena.buffer(sizes.rows * sizes.d_in);
        self.kernels.run(Part::LinearBackward, || {
            let overwrite = Accumulation::Overwrite;
            linear::backward_input(plan.arithmetic, sizes, dlow, a, &mut part, overwrite);
            dropout::apply(&drop, sizes.d_in, &mut part);
            reduce::add(dx, &part);
        });
        self.arena.free(part);
    }

    fn low_sizes(&self, a: Span) -> linear::Sizes {
        linear::Sizes {
            rows: self.rows.count,
            d_in: a.cols,
            d_out: a.rows,
        }
    }
}

/// The columns of each part, with its B.
fn columns(
    adapter: &AdapterSpans,
    rows: usize,
    y_width: usize,
) -> impl Iterator<Item = (Columns, Span)> {
    let (rank, scale, z_width) = (adapter.rank, adapter.scale, adapter.a.rows);
    adapter.parts().enumerate().map(move |(i, part)| {
        let columns = Columns {
            rows,
            z_width,
            z_first: i * rank,
            rank,
            y_width,
            y_first: part.first,
            d_out: part.b.rows,
            scale,
        };
        (columns, part.b)
    })
}
