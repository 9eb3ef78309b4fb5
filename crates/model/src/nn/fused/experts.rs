//! Experts: tokens are grouped by the experts that the router selected for them, each expert multiplies its own group, and the
//! results are combined.

use super::{Node, Output, Pass, Plan};
use crate::kernels::experts::{self, Balance, Counted, Order, Router, Scoring, Tally};
use crate::kernels::matmul::{Accumulation, ComputeDtype, Plus};
use crate::kernels::numbers::{Values, ValuesMut};
use crate::kernels::skinny::{self, View};
use crate::kernels::{activation, linear, low_rank};
use crate::nn::MoeConfig;
use crate::nn::layout::{ExpertFactors, ExpertSpans, LinearSpans, Span};
use crate::nn::profile::Part;
use crate::nn::tape::{Buffer, Slot, Track};

/// One of the layers of a block's experts: how many there are, the layer of each, and their adapters.
type Layer<'a> = (
    usize,
    &'a dyn Fn(usize) -> LinearSpans,
    Option<ExpertFactors>,
);

/// State of a forward over experts for its backward.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExpertsNode {
    x: Slot,
    y: Slot,
    residual: Option<Slot>,
    /// Scores and selections, see `kernels::experts`.
    routing: Slot,
    /// By position, that is by token and expert: both sides of the activation, and the experts' outputs.
    wide: Slot,
    active: Slot,
    outs: Slot,
    layer: usize,
    spans: ExpertSpans,
}

/// A pass's data about its experts.
#[derive(Debug, Default)]
pub(crate) struct Experts {
    order: Order,
    /// Tallies of the current micro-step, by block.
    now: Vec<Tally>,
    /// Gradients of the balancing loss with respect to each expert's share of a token.
    by_share: Vec<f32>,
}

impl Experts {
    /// Router statistics of the last pass, per block; empty for blocks without experts.
    pub fn tallies(&self) -> &[Tally] {
        &self.now
    }

    fn tally(&mut self, layer: usize, router: Router, routing: &[f32], counted: Counted) {
        if self.now.len() <= layer {
            self.now.resize_with(layer + 1, Tally::default);
        }
        self.now[layer].clear(router.n_expert);
        self.now[layer].add(router, routing, counted);
    }
}

/// The sizes of a block's experts for one pass.
#[derive(Clone, Copy)]
struct Sizes {
    rows: usize,
    /// Rows times top_k.
    places: usize,
    d: usize,
    wide: usize,
    d_ff: usize,
}

impl Sizes {
    fn of(rows: usize, router: Router, spans: &ExpertSpans) -> Sizes {
        let one = spans.expert(0);
        Sizes {
            rows,
            places: rows * router.top_k,
            d: one.wide.weight.cols,
            wide: one.wide.weight.rows,
            d_ff: one.out.weight.cols,
        }
    }

    fn router(&self, n_expert: usize) -> linear::Sizes {
        linear::Sizes {
            rows: self.rows,
            d_in: self.d,
            d_out: n_expert,
        }
    }
}

impl ExpertsNode {
    pub fn output(&self) -> Slot {
        self.y
    }
}

impl Pass {
    /// `residual` + the experts' output for `x` (rows, D).
    pub(super) fn experts(
        &mut self,
        plan: &Plan,
        (x, residual): (Slot, Option<Slot>),
        (layer, spans): (usize, &ExpertSpans),
        output: Output,
    ) -> Slot {
        let router = router_of(plan, layer, spans);
        let sizes = Sizes::of(self.rows.count, router, spans);
        let routing = self.route(plan, x, (layer, spans), router, sizes);
        let mut gathered = self.arena.buffer(sizes.places * sizes.d);
        let x_values = self.arena.get(x);
        self.kernels.run(Part::Experts, || {
            experts::gather(&self.experts.order, sizes.d, x_values, &mut gathered);
        });
        let wide = self.arena.slot(sizes.places * sizes.wide);
        let mut values = self.arena.take(wide);
        let part = |e: usize| spans.expert(e).wide;
        let of: Layer = (spans.count, &part, spans.low[0]);
        self.expert_matmuls(plan, of, sizes.places, (&gathered, &mut values));
        self.arena.free(gathered);
        self.arena.put(wide, values);
        let active = self.expert_activation(plan, wide, sizes);
        let outs = self.arena.slot(sizes.places * sizes.d);
        let (mut values, active_values) = (self.arena.take(outs), self.arena.take(active));
        let part = |e: usize| spans.expert(e).out;
        let of: Layer = (spans.count, &part, spans.low[1]);
        self.expert_matmuls(plan, of, sizes.places, (&active_values, &mut values));
        self.arena.put(active, active_values);
        self.arena.put(outs, values);
        let y = self.combine(router, routing, outs, residual, (sizes, output));
        for slot in [wide, active, outs, routing] {
            self.read(slot);
        }
        self.record(Node::Experts(ExpertsNode {
            x,
            y,
            residual,
            routing,
            wide,
            active,
            outs,
            layer,
            spans: *spans,
        }));
        y
    }

    /// Routes all rows and gathers them by expert. The router computes in f32 in any compute dtype.
    fn route(
        &mut self,
        plan: &Plan,
        x: Slot,
        (layer, spans): (usize, &ExpertSpans),
        router: Router,
        sizes: Sizes,
    ) -> Slot {
        let routing = self.arena.slot(sizes.rows * router.width());
        let mut values = self.arena.take(routing);
        let mut logits = self.arena.buffer(sizes.rows * router.n_expert);
        let x_values = self.arena.get(x);
        let counts = self.track == Track::Gradients && !self.replays;
        let (known, rows) = (&mut self.experts, &self.rows);
        self.kernels.run(Part::Experts, || {
            let weight = plan.matrix(spans.router);
            let bias = spans.bias.map(|span| plan.dense(span));
            let product = sizes.router(router.n_expert);
            let f32 = ComputeDtype::F32;
            let (x, to) = (Values::F32(x_values), logits.view_mut());
            let plus = Plus {
                bias: spans.logit_bias.map(|span| plan.dense(span)),
                ..Plus::default()
            };
            linear::forward(f32, product, x, weight, plus, to);
            experts::route(router, &logits, bias, &mut values);
            known.order.arrange(router, &values);
            if counts {
                known.tally(layer, router, &values, rows.counted());
            }
        });
        self.arena.free(logits);
        self.arena.put(routing, values);
        routing
    }

    /// Each expert's matmul with its own rows; `part` selects one of its matrices. Adapters add their terms.
    fn expert_matmuls(
        &mut self,
        plan: &Plan,
        (count, part, low): Layer<'_>,
        places: usize,
        (x, y): (&[f32], &mut [f32]),
    ) {
        let low = low.filter(|_| plan.adapters);
        let mut z = low.map(|low| self.arena.buffer(places * low.rank()));
        let order = &self.experts.order;
        self.kernels.run(Part::LinearForward, || {
            for e in (0..count).filter(|e| !order.of(*e).is_empty()) {
                let (of, spans) = (order.of(e), part(e));
                let sizes = expert_sizes(&spans, of.len());
                linear::forward(
                    plan.arithmetic,
                    sizes,
                    Values::F32(&x[of.start * sizes.d_in..of.end * sizes.d_in]),
                    plan.matrix(spans.weight),
                    Plus {
                        bias: spans.bias.map(|span| plan.dense(span)),
                        ..Plus::default()
                    },
                    ValuesMut::F32(&mut y[of.start * sizes.d_out..of.end * sizes.d_out]),
                );
                if let Some((low, z)) = low.zip(z.as_mut()) {
                    let x = &x[of.start * sizes.d_in..of.end * sizes.d_in];
                    let y = &mut y[of.start * sizes.d_out..of.end * sizes.d_out];
                    let z = &mut z[of.start * low.rank()..of.end * low.rank()];
                    low_rank_of(plan, low.a(e), x, z);
                    let columns = columns(&low, sizes);
                    low_rank::forward(plan.arithmetic, columns, z, plan.dense(low.b(e)), y);
                }
            }
        });
        if let Some(z) = z {
            self.arena.free(z);
        }
    }

    fn expert_activation(&mut self, plan: &Plan, wide: Slot, sizes: Sizes) -> Slot {
        let active = self.arena.slot(sizes.places * sizes.d_ff);
        let mut values = self.arena.take(active);
        let (kind, x) = (plan.config.mlp.activation(), self.arena.view(wide));
        self.kernels.run(Part::Activation, || {
            activation::forward(kind, sizes.d_ff, x, values.view_mut());
        });
        self.arena.put(active, values);
        active
    }

    fn combine(
        &mut self,
        router: Router,
        routing: Slot,
        outs: Slot,
        residual: Option<Slot>,
        (sizes, output): (Sizes, Output),
    ) -> Slot {
        if let Output::Known(y) = output {
            return y;
        }
        let y = self.arena.slot(sizes.rows * sizes.d);
        let mut values = self.arena.take(y);
        let (arena, order) = (&self.arena, &self.experts.order);
        self.kernels.run(Part::Experts, || {
            let residual = residual.map(|slot| arena.get(slot));
            let (routing, outs) = (arena.get(routing), arena.get(outs));
            experts::combine(router, order, routing, outs, residual, &mut values);
        });
        self.arena.put(y, values);
        y
    }

    pub(super) fn experts_backward(&mut self, plan: &Plan, node: &ExpertsNode, grads: &mut [f32]) {
        let Some(dy) = self.arena.take_gradient(node.y) else {
            return;
        };
        self.arena.release(node.y);
        let spans = &node.spans;
        let router = router_of(plan, node.layer, spans);
        let sizes = Sizes::of(self.rows.count, router, spans);
        let routing = self.arena.take(node.routing);
        let mut dgates = self.arena.buffer(sizes.places);
        let mut douts = self.arena.take(node.outs);
        let known = &mut self.experts;
        self.kernels.run(Part::Experts, || {
            known.order.arrange(router, &routing);
            let order = &known.order;
            experts::combine_backward(router, order, &routing, &dy, &mut douts, &mut dgates);
        });
        let dwide = self.experts_out_backward(plan, node, sizes, &douts, grads);
        // The gradient of the gathered rows reuses the buffer of the outputs' gradient.
        let mut dgathered = douts;
        self.experts_in_backward(plan, node, sizes, (&dwide, &mut dgathered), grads);
        self.arena.free(dwide);
        let (mut dx, into) = self.arena.open_gradient(node.x, sizes.rows * sizes.d);
        let (order, add) = (&self.experts.order, into == Accumulation::Add);
        self.kernels.run(Part::Experts, || {
            experts::gather_backward(order, router.top_k, &dgathered, &mut dx, add);
        });
        self.arena.free(dgathered);
        self.router_backward(plan, node, (&routing, &dgates), &mut dx, grads);
        self.arena.put_gradient(node.x, dx);
        for buffer in [routing, dgates] {
            self.arena.free(buffer);
        }
        self.residual_backward(node.residual, dy);
    }

    /// Back through the second matmuls and the activation: gives the gradient with respect to `wide`.
    fn experts_out_backward(
        &mut self,
        plan: &Plan,
        node: &ExpertsNode,
        sizes: Sizes,
        douts: &[f32],
        grads: &mut [f32],
    ) -> Buffer {
        let active = self.arena.take(node.active);
        let mut dactive = self.arena.buffer(active.len());
        let part = |e: usize| node.spans.expert(e).out;
        let count = node.spans.count;
        let of: Layer = (count, &part, node.spans.low[1]);
        self.expert_matmuls_backward(
            plan,
            (of, sizes.places),
            douts,
            (&active, &mut dactive),
            grads,
        );
        self.arena.free(active);
        let mut wide = self.arena.take(node.wide);
        let kind = plan.config.mlp.activation();
        self.kernels.run(Part::Activation, || {
            activation::backward(kind, sizes.d_ff, wide.view_mut(), dactive.view_mut());
        });
        self.arena.free(dactive);
        wide
    }

    /// Back through the first matmuls.
    fn experts_in_backward(
        &mut self,
        plan: &Plan,
        node: &ExpertsNode,
        sizes: Sizes,
        (dwide, dgathered): (&[f32], &mut [f32]),
        grads: &mut [f32],
    ) {
        let mut gathered = self.arena.buffer(sizes.places * sizes.d);
        let x = self.arena.get(node.x);
        self.kernels.run(Part::Experts, || {
            experts::gather(&self.experts.order, sizes.d, x, &mut gathered);
        });
        let part = |e: usize| node.spans.expert(e).wide;
        let count = node.spans.count;
        let of: Layer = (count, &part, node.spans.low[0]);
        self.expert_matmuls_backward(
            plan,
            (of, sizes.places),
            dwide,
            (&gathered, dgathered),
            grads,
        );
        self.arena.free(gathered);
    }

    fn expert_matmuls_backward(
        &mut self,
        plan: &Plan,
        ((count, part, low), places): (Layer<'_>, usize),
        dy: &[f32],
        (x, dx): (&[f32], &mut [f32]),
        grads: &mut [f32],
    ) {
        let low = low.filter(|_| plan.adapters);
        let mut factors = low.map(|low| {
            let z = self.arena.buffer(places * low.rank());
            (low, z, self.arena.buffer(places * low.rank()))
        });
        let (order, into) = (&self.experts.order, self.into);
        self.kernels.run(Part::LinearBackward, || {
            for e in 0..count {
                let (of, spans) = (order.of(e), part(e));
                if of.is_empty() {
                    leave_unused((&spans, low.map(|low| [low.a(e), low.b(e)])), into, grads);
                    continue;
                }
                let sizes = expert_sizes(&spans, of.len());
                let ins = of.start * sizes.d_in..of.end * sizes.d_in;
                let dy = Values::F32(&dy[of.start * sizes.d_out..of.end * sizes.d_out]);
                if let Some(range) = spans.weight.grads() {
                    let (x, dweight) = (Values::F32(&x[ins.clone()]), &mut grads[range]);
                    linear::backward_weight(plan.arithmetic, sizes, dy, x, dweight, into);
                }
                if let Some(range) = spans.bias.and_then(|span| span.grads()) {
                    linear::backward_bias(dy, &mut grads[range], into);
                }
                let (weight, to) = (
                    plan.matrix(spans.weight),
                    ValuesMut::F32(&mut dx[ins.clone()]),
                );
                linear::backward_input(plan.arithmetic, sizes, dy, weight, to, Plus::default());
                if let Some((low, z, dz)) = &mut factors {
                    let own = of.start * low.rank()..of.end * low.rank();
                    let (z, dz) = (&mut z[own.clone()], &mut dz[own]);
                    let x = &x[ins.clone()];
                    low_rank_of(plan, low.a(e), x, z);
                    let (columns, b) = (columns(low, sizes), low.b(e));
                    low_rank::backward_input(plan.arithmetic, columns, dy, plan.dense(b), dz);
                    if let Some(range) = b.grads() {
                        let db = &mut grads[range];
                        low_rank::backward_weight(plan.arithmetic, columns, (dy, z), db, into);
                    }
                    low_rank_backward(plan, low.a(e), (x, &mut dx[ins]), dz, (&mut *grads, into));
                }
            }
        });
        for buffer in factors.into_iter().flat_map(|(_, z, dz)| [z, dz]) {
            self.arena.free(buffer);
        }
    }

    /// Backward through the router, with the balancing losses, into `dx` (rows, D).
    fn router_backward(
        &mut self,
        plan: &Plan,
        node: &ExpertsNode,
        (routing, dgates): (&[f32], &[f32]),
        dx: &mut [f32],
        grads: &mut [f32],
    ) {
        let (router, spans) = (router_of(plan, node.layer, &node.spans), &node.spans);
        let sizes = Sizes::of(self.rows.count, router, spans).router(router.n_expert);
        let mut dlogits = self.arena.buffer(sizes.rows * router.n_expert);
        let (x, into) = (self.arena.get(node.x), self.into);
        let (known, rows) = (&mut self.experts, &self.rows);
        self.kernels.run(Part::Experts, || {
            let by_lse = known.balance_gradients(plan, node.layer);
            let balance = Balance {
                by_share: &known.by_share,
                by_lse,
                counted: rows.counted(),
            };
            experts::route_backward(router, routing, dgates, balance, &mut dlogits);
            let dlogits = dlogits.view();
            if let Some(range) = spans.router.grads() {
                let (x, dweight) = (Values::F32(x), &mut grads[range]);
                linear::backward_weight(ComputeDtype::F32, sizes, dlogits, x, dweight, into);
            }
            if let Some(range) = spans.logit_bias.and_then(|span| span.grads()) {
                linear::backward_bias(dlogits, &mut grads[range], into);
            }
            let weight = plan.matrix(spans.router);
            linear::backward_input(
                ComputeDtype::F32,
                sizes,
                dlogits,
                weight,
                ValuesMut::F32(dx),
                Accumulation::Add.into(),
            );
            // Balancing biases have no gradient.
            let bias = spans.bias.and_then(|span| span.grads());
            if let (Some(range), Accumulation::Overwrite) = (bias, into) {
                grads[range].fill(0.0);
            }
        });
        self.arena.free(dlogits);
    }
}

impl Experts {
    /// Fills the gradients of a block's balancing loss with respect to shares; returns the coefficient c of its z-loss:
    /// the gradient with respect to a log-sum-exp is 2 c times it.
    fn balance_gradients(&mut self, plan: &Plan, layer: usize) -> f32 {
        self.by_share.clear();
        let Some((moe, tally)) = plan.config.experts(layer).zip(self.now.get(layer)) else {
            return 0.0;
        };
        let blocks = plan.config.expert_blocks().max(1) as f64;
        let share = plan.step_position.share / (blocks * tally.tokens.max(1.0));
        let n_expert = tally.counts.len() as f64;
        let by_share = |count: &f64| {
            let f = count / tally.tokens.max(1.0);
            (moe.aux_loss_coef * share * n_expert * f) as f32
        };
        self.by_share.extend(tally.counts.iter().map(by_share));
        (moe.z_loss_coef * share) as f32
    }
}

fn router_of(plan: &Plan, layer: usize, spans: &ExpertSpans) -> Router {
    let router = plan.config.experts(layer).map(MoeConfig::router);
    router.unwrap_or(Router {
        n_expert: spans.count,
        top_k: 1,
        scoring: Scoring::Softmax,
        norm_topk: false,
        scale: 1.0,
        groups: None,
    })
}

fn expert_sizes(spans: &LinearSpans, rows: usize) -> linear::Sizes {
    linear::Sizes {
        rows,
        d_in: spans.weight.cols,
        d_out: spans.weight.rows,
    }
}

/// The columns of an expert's adapter: all of its output.
fn columns(low: &ExpertFactors, sizes: linear::Sizes) -> low_rank::Part {
    low_rank::Part {
        z: View::whole(sizes.rows, low.rank()),
        y: View::whole(sizes.rows, sizes.d_out),
        scale: low.scale,
    }
}

fn low_sizes(a: Span, x: &[f32]) -> linear::Sizes {
    linear::Sizes {
        rows: x.len() / a.cols.max(1),
        d_in: a.cols,
        d_out: a.rows,
    }
}

/// `z` = `x` Aᵀ.
fn low_rank_of(plan: &Plan, a: Span, x: &[f32], z: &mut [f32]) {
    let sizes = low_sizes(a, x);
    if skinny::is_profitable(a.rows) {
        let (x_view, z_view) = (
            View::whole(sizes.rows, a.cols),
            View::whole(sizes.rows, a.rows),
        );
        skinny::project(
            (Values::F32(x), x_view),
            None,
            plan.dense(a),
            1.0,
            (z, z_view),
        );
    } else {
        let (x, z) = (Values::F32(x), ValuesMut::F32(z));
        linear::forward(
            plan.arithmetic,
            sizes,
            x,
            plan.matrix(a),
            Plus::default(),
            z,
        );
    }
}

/// The gradient with respect to A, and `dx` += `dz` A.
fn low_rank_backward(
    plan: &Plan,
    a: Span,
    (x, dx): (&[f32], &mut [f32]),
    dz: &[f32],
    (grads, into): (&mut [f32], Accumulation),
) {
    let sizes = low_sizes(a, x);
    if let Some(range) = a.grads() {
        let da = &mut grads[range];
        if skinny::is_profitable(a.rows) {
            let (x_view, z_view) = (
                View::whole(sizes.rows, a.cols),
                View::whole(sizes.rows, a.rows),
            );
            skinny::factor_gradient((dz, z_view), (Values::F32(x), x_view), None, 1.0, da, into);
        } else {
            let (dz, x) = (Values::F32(dz), Values::F32(x));
            linear::backward_weight(plan.arithmetic, sizes, dz, x, da, into);
        }
    }
    let (dz, dx) = (Values::F32(dz), ValuesMut::F32(dx));
    let add = Accumulation::Add.into();
    linear::backward_input(plan.arithmetic, sizes, dz, plan.matrix(a), dx, add);
}

/// Experts without tokens have a zero gradient, and so have their adapters.
fn leave_unused(
    (spans, low): (&LinearSpans, Option<[Span; 2]>),
    into: Accumulation,
    grads: &mut [f32],
) {
    if into == Accumulation::Overwrite {
        let parts = [Some(spans.weight), spans.bias].into_iter().flatten();
        let parts = parts.chain(low.into_iter().flatten());
        for range in parts.filter_map(|span| span.grads()) {
            grads[range].fill(0.0);
        }
    }
}
