//! The adapters of a linear layer: y += scale · (x Aᵀ) Bᵀ, part by part, with dropout on x in training; forward and backward.
//! `linear` calls all of it: an adapter is not a node of its own.

use super::{Output, Pass, Plan};
use crate::kernels::dropout::{self, Dropout, Kept};
use crate::kernels::linear;
use crate::kernels::low_rank::{self, Factors, Part as Columns};
use crate::kernels::matmul::{Accumulation, LowRank, Plus};
use crate::kernels::numbers::Values;
use crate::kernels::skinny::{self, View};
use crate::nn::layout::{AdapterSpans, LinearSpans, Span};
use crate::nn::profile::Part;
use crate::nn::step_position::Place;
use crate::nn::tape::{Arena, Buffer, Slot};

/// State of an adapter's forward for its backward.
#[derive(Debug, Clone, Copy)]
pub(super) struct Low {
    /// x Aᵀ (rows, sum of the ranks).
    pub low: Slot,
    /// The dropout mask of x, one bit per feature; stored, because drawing takes longer than reading.
    pub mask: Option<Slot>,
    /// W x + scale · B (A x), if magnitudes train.
    product: Option<Slot>,
}

impl Pass {
    /// The dropout on an adapter's input; `None` outside training.
    pub(super) fn adapter_drop(&self, plan: &Plan, adapter: &AdapterSpans) -> Option<Dropout> {
        self.drops_at(plan, adapter.dropout, Place::Adapter(adapter.lane))
    }

    /// The dropout mask, in a slot; `None` without dropout.
    fn adapter_mask(&mut self, plan: &Plan, adapter: &AdapterSpans) -> Option<Slot> {
        let drop = self.adapter_drop(plan, adapter)?;
        let width = adapter.a.cols;
        let mask = self
            .arena
            .slot(self.rows.count * dropout::mask_words(width));
        let mut values = self.arena.take(mask);
        self.kernels.run(Part::LinearForward, || {
            dropout::draw_mask(&drop, width, &mut values);
        });
        self.arena.put(mask, values);
        Some(mask)
    }

    /// x after dropout, in its own buffer; `None` without dropout.
    fn adapter_dropped(
        &mut self,
        plan: &Plan,
        adapter: &AdapterSpans,
        mask: Option<Slot>,
        x: Values,
    ) -> Option<Buffer> {
        let (drop, mask) = self.adapter_drop(plan, adapter).zip(mask)?;
        let width = adapter.a.cols;
        let mut dropped = self.arena.buffer(self.rows.count * width);
        let mask = self.arena.get(mask);
        self.kernels.run(Part::LinearForward, || {
            dropout::copy_masked(&drop, width, mask, x.f32(), &mut dropped);
        });
        Some(dropped)
    }

    /// x Aᵀ (rows, sum of the ranks) in a slot, with the dropout mask.
    pub(super) fn adapter_low(&mut self, plan: &Plan, x: Slot, adapter: &AdapterSpans) -> Low {
        let mask = self.adapter_mask(plan, adapter);
        let x_values = self.arena.take(x);
        let sizes = self.low_sizes(adapter.a);
        let low = self.arena.slot(sizes.rows * sizes.d_out);
        let mut values = self.arena.take(low);
        if skinny::is_profitable(sizes.d_out) {
            let dropped = self.adapter_drop(plan, adapter).zip(mask);
            let kept = kept(&self.arena, dropped, sizes.d_in);
            let (x_view, z_view) = views(sizes);
            let (x, z) = ((x_values.view(), x_view), (&mut values[..], z_view));
            self.kernels.run(Part::LinearForward, || {
                skinny::project(x, kept, plan.dense(adapter.a), 1.0, z);
            });
        } else {
            let dropped = self.adapter_dropped(plan, adapter, mask, x_values.view());
            let input = dropped.as_ref().unwrap_or(&x_values).view();
            self.kernels.run(Part::LinearForward, || {
                let (a, y) = (plan.matrix(adapter.a), values.view_mut());
                linear::forward(plan.arithmetic, sizes, input, a, Plus::default(), y);
            });
            if let Some(dropped) = dropped {
                self.arena.free(dropped);
            }
        }
        self.arena.put(low, values);
        self.arena.put(x, x_values);
        Low {
            low,
            mask,
            product: None,
        }
    }

    /// A linear layer with magnitudes: y = m / norm · (W x + scale · B (A x)) + b + residual. The bracketed part
    /// is stored for the backward.
    pub(super) fn adapter_scaled(
        &mut self,
        plan: &Plan,
        (x, residual): (Slot, Option<Slot>),
        (spans, adapter): (&LinearSpans, &AdapterSpans),
        output: Output,
    ) -> (Slot, Low) {
        let sizes = self.linear_sizes(spans);
        let product = self.arena.slot(sizes.rows * sizes.d_out);
        let mut values = self.arena.take(product);
        let x_values = self.arena.view(x);
        self.kernels.run(Part::LinearForward, || {
            let weight = plan.matrix(spans.weight);
            linear::forward(
                plan.arithmetic,
                sizes,
                x_values,
                weight,
                Plus::default(),
                values.view_mut(),
            );
        });
        self.arena.put(product, values);
        let low = self.adapter_low(plan, x, adapter);
        self.adapter_add(plan, low.low, adapter, (product, sizes.d_out));
        let y = match output {
            Output::Known(y) => y,
            Output::New(_) => {
                let y = self.arena.slot(sizes.rows * sizes.d_out);
                let mut values = self.arena.take(y);
                let arena = &self.arena;
                self.kernels.run(Part::LinearForward, || {
                    let bias = spans.bias.map(|span| plan.dense(span));
                    let residual = residual.map(|slot| arena.get(slot));
                    let scales = &plan.magnitudes(adapter).scales;
                    let added = (bias, residual);
                    low_rank::scale_columns(scales, arena.get(product), added, &mut values);
                });
                self.arena.put(y, values);
                y
            }
        };
        let product = Some(product);
        (y, Low { product, ..low })
    }

    /// The gradient with respect to the scaled part, and the gradients with respect to the magnitudes; `None` without magnitudes.
    pub(super) fn adapter_scale_backward(
        &mut self,
        plan: &Plan,
        (spans, low): (&LinearSpans, Option<Low>),
        dy: &[f32],
        grads: &mut [f32],
    ) -> Option<Buffer> {
        let adapter = plan.adapter(spans)?;
        let product = self.arena.take(low?.product?);
        let mut scaled = self.arena.buffer(product.len());
        let (into, width) = (self.into, spans.weight.rows);
        self.kernels.run(Part::LinearBackward, || {
            let magnitudes = plan.magnitudes(adapter);
            for part in adapter.parts() {
                let Some(range) = part.magnitude.and_then(|span| span.grads()) else {
                    continue;
                };
                let norms = &magnitudes.norms[part.first..][..part.b.rows];
                let at = (width, part.first);
                let dm = &mut grads[range];
                low_rank::magnitude_gradient((dy, &product), at, norms, dm, into);
            }
            low_rank::scale_columns(&magnitudes.scales, dy, (None, None), &mut scaled);
        });
        self.arena.free(product);
        Some(scaled)
    }

    /// Marks the last use of an adapter's state in the forward.
    pub(super) fn read_low(&mut self, low: Low) {
        self.read(low.low);
        let others = [low.mask, low.product];
        others
            .into_iter()
            .flatten()
            .for_each(|slot| self.read(slot));
    }

    /// Releases the adapter's state after its last use in the backward.
    pub(super) fn release_mask(&mut self, low: Option<Low>) {
        if let Some(mask) = low.and_then(|low| low.mask) {
            self.arena.release(mask);
        }
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

    /// Gradients with respect to B, and the gradient with respect to x Aᵀ, which is released.
    pub(super) fn adapter_out_backward(
        &mut self,
        plan: &Plan,
        (spans, low): (&LinearSpans, Option<Low>),
        dy: Values,
        grads: &mut [f32],
    ) -> Option<Buffer> {
        let adapter = plan.adapter(spans)?;
        let low = self.arena.take(low?.low);
        let mut dlow = self.arena.buffer(low.len());
        let (rows, into, width) = (self.rows.count, self.into, spans.weight.rows);
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
        (spans, low): (&LinearSpans, Option<Low>),
        (x, dlow): (Values, Option<&[f32]>),
        grads: &mut [f32],
    ) {
        let Some((adapter, dlow)) = plan.adapter(spans).zip(dlow) else {
            return;
        };
        let Some(range) = adapter.a.grads() else {
            return;
        };
        let mask = low.and_then(|low| low.mask);
        let (sizes, into) = (self.low_sizes(adapter.a), self.into);
        if skinny::is_profitable(sizes.d_out) {
            let dropped = self.adapter_drop(plan, adapter).zip(mask);
            let kept = kept(&self.arena, dropped, sizes.d_in);
            let (x_view, z_view) = views(sizes);
            return self.kernels.run(Part::LinearBackward, || {
                let (z, x) = ((dlow, z_view), (x, x_view));
                skinny::factor_gradient(z, x, kept, 1.0, &mut grads[range], into);
            });
        }
        let dropped = self.adapter_dropped(plan, adapter, mask, x);
        let input = dropped.as_ref().map_or(x, Buffer::view);
        self.kernels.run(Part::LinearBackward, || {
            let dlow = Values::F32(dlow);
            let da = &mut grads[range];
            linear::backward_weight(plan.arithmetic, sizes, dlow, input, da, into);
        });
        if let Some(dropped) = dropped {
            self.arena.free(dropped);
        }
    }

    /// dx += dlow · A, masked by dropout: a separate matmul.
    pub(super) fn adapter_input_gradient(
        &mut self,
        plan: &Plan,
        (spans, low): (&LinearSpans, Option<Low>),
        dlow: Option<&[f32]>,
        dx: &mut Buffer,
    ) {
        let Some((adapter, dlow)) = plan.adapter(spans).zip(dlow) else {
            return;
        };
        let (sizes, a) = (self.low_sizes(adapter.a), plan.matrix(adapter.a));
        let mask = low.and_then(|low| low.mask);
        let Some((drop, mask)) = self.adapter_drop(plan, adapter).zip(mask) else {
            return self.kernels.run(Part::LinearBackward, || {
                let (dlow, onto) = (Values::F32(dlow), Accumulation::Add.into());
                linear::backward_input(plan.arithmetic, sizes, dlow, a, dx.view_mut(), onto);
            });
        };
        let mut part = self.arena.buffer(sizes.rows * sizes.d_in);
        let mask = self.arena.get(mask);
        self.kernels.run(Part::LinearBackward, || {
            let (dlow, to) = (Values::F32(dlow), part.view_mut());
            linear::backward_input(plan.arithmetic, sizes, dlow, a, to, Plus::default());
            dropout::add_masked(&drop, sizes.d_in, mask, &part, dx);
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

/// Calls `f` with the addends of a layer, and with the low-rank term of its adapters if it is fused into the layer's matmul.
pub(super) fn with_low_rank(
    plan: &Plan,
    (arena, sizes): (&Arena, linear::Sizes),
    adapter: Option<(&AdapterSpans, Low)>,
    plus: Plus,
    f: impl FnOnce(Plus),
) {
    let Some((adapter, low)) = adapter else {
        return f(plus);
    };
    let parts = columns(adapter, sizes.rows, sizes.d_out);
    let parts = parts.map(|(part, b)| (part, plan.dense(b)));
    Factors::with((adapter.a.rows, sizes.d_out), parts, |factors| {
        f(Plus {
            low_rank: Some(factors.times(arena.get(low.low))),
            ..plus
        });
    });
}

/// dlow · A with the dropout mask, for the matmul into which it is fused.
pub(super) fn fused_input_term<'a>(
    plan: &Plan<'a>,
    (arena, dropped): (&'a Arena, Option<(Dropout, Slot)>),
    adapter: &AdapterSpans,
    dlow: &'a [f32],
) -> LowRank<'a> {
    LowRank {
        z: dlow,
        ranks: adapter.a.rows,
        factor: plan.dense(adapter.a),
        used: &[],
        kept: kept(arena, dropped, adapter.a.cols),
        scale: 1.0,
    }
}

/// Views of x and x Aᵀ.
fn views(sizes: linear::Sizes) -> (View, View) {
    let whole = |cols| View::whole(sizes.rows, cols);
    (whole(sizes.d_in), whole(sizes.d_out))
}

/// The mask for kernels that apply it themselves.
fn kept(arena: &Arena, dropped: Option<(Dropout, Slot)>, width: usize) -> Option<Kept<'_>> {
    dropped.map(|(drop, mask)| drop.kept(arena.get(mask), width))
}

/// The columns of each part, with its B.
fn columns(
    adapter: &AdapterSpans,
    rows: usize,
    y_width: usize,
) -> impl Iterator<Item = (Columns, Span)> {
    let view = move |first, cols, width| View {
        rows,
        first,
        cols,
        width,
    };
    let z_width = adapter.a.rows;
    adapter.parts().map(move |part| {
        let columns = Columns {
            z: view(part.low, part.rank, z_width),
            y: view(part.first, part.b.rows, y_width),
            scale: part.scale,
        };
        (columns, part.b)
    })
}
