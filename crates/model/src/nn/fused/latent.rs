//! Latent attention: queries, keys and values from latent vectors, for attention over whole rows; in decode the latent vectors are
//! what it attends to.
//!
//! ```text
//! wide ─┬─ norm ─ q ────┐                    wide: of each row [queries | latent | shared key],
//!       ├─ norm ─ kv ───┼─ join ─ attention ─ values          or with q_rank [its latent | …]
//!       └─ shared key ──┘
//! ```
//!
//! The gradient with respect to `wide` is written part by part: the columns of the three are disjoint and together all.

use super::{Node, Output, Pass, Plan};
use crate::kernels::attention;
use crate::kernels::latent::{self, Columns, Parts, Sizes, Up, UpAdapter};
use crate::kernels::matmul::Accumulation;
use crate::kernels::norm::{self, Norm, NormKind};
use crate::kernels::numbers::Storage;
use crate::kernels::rotary;
use crate::nn::kv_cache::Texts;
use crate::nn::layout::{LatentSpans, LinearSpans, Span};
use crate::nn::mla::MlaConfig;
use crate::nn::profile::Part;
use crate::nn::tape::Slot;

/// State of the norm of a latent vector for its backward.
#[derive(Debug, Clone, Copy)]
pub(super) struct LatentNormNode {
    wide: Slot,
    columns: Columns,
    pub y: Slot,
    stats: Slot,
    gain: Span,
}

/// What [`Pass::latent_attention`] joins.
#[derive(Debug, Clone, Copy)]
pub(super) struct JoinNode {
    q: (Slot, Columns),
    kv: Slot,
    key: (Slot, Columns),
    pub qkv: Slot,
    sizes: Sizes,
}

fn norm_of<'a>(plan: &Plan<'a>, gain: Span) -> Norm<'a> {
    let eps = plan.config.mla.as_ref().map_or(0.0, |mla| mla.norm_eps);
    Norm {
        kind: NormKind::Rms,
        gain: plan.dense(gain),
        gain_offset: 0.0,
        bias: None,
        eps: eps as f32,
    }
}

impl Pass {
    /// `wide` (rows, width of the projections of the block's input) → what goes to the projection out, (rows, values).
    pub(super) fn latent_attention(
        &mut self,
        plan: &Plan,
        wide: Slot,
        (layer, mla, spans): (usize, &MlaConfig, &LatentSpans),
        texts: Option<&mut Texts>,
    ) -> Slot {
        let sizes = mla.sizes(plan.shape.n_head);
        let is_cached = texts.is_some() || self.decodes;
        let stride = spans.wide.weight.rows;
        let columns = |first, width| Columns {
            first,
            width,
            stride,
        };
        let first = stride - mla.kept();
        let q = match &spans.q {
            None => (wide, columns(0, first)),
            Some((gain, linear)) => {
                let kept = plan.among([linear], is_cached);
                let normed = self.latent_norm(plan, (wide, columns(0, first)), *gain, kept);
                let q = self.linear(plan, normed, None, linear, Output::NEW);
                self.read(normed);
                let width = linear.weight.rows;
                let whole = Columns {
                    first: 0,
                    width,
                    stride: width,
                };
                (q, whole)
            }
        };
        let key = (wide, columns(first + mla.kv_rank, mla.rope_dim));
        let kept = match is_cached {
            true => Storage::F32,
            false => plan.among([&spans.kv], false),
        };
        let latent = columns(first, mla.kv_rank);
        let latent = self.latent_norm(plan, (wide, latent), spans.kv_norm, kept);
        if is_cached {
            let mixed =
                self.cached_latent(plan, [q, key], latent, (layer, sizes, &spans.kv), texts);
            for slot in [latent, q.0, wide] {
                self.arena.release(slot);
            }
            return mixed;
        }
        let kv = self.linear(plan, latent, None, &spans.kv, Output::NEW);
        self.read(latent);
        let kept = plan.among([&spans.wide], false);
        let qkv = self.join_heads(plan, [q, key], kv, sizes, kept);
        // Backward passes need no values of a matmul's output; norms need those of `wide`.
        self.arena.release(kv);
        if q.0 != wide {
            self.arena.release(q.0);
        }
        self.read(wide);
        let to = plan.among([&spans.out], false);
        let mixed = self.attention(plan, qkv, (layer, None), to);
        self.read(qkv);
        if sizes.head_dim() == sizes.v_dim {
            return mixed;
        }
        let values = self.values_of(mixed, sizes);
        self.read(mixed);
        values
    }

    /// Columns of `wide`, normalized.
    fn latent_norm(
        &mut self,
        plan: &Plan,
        (wide, columns): (Slot, Columns),
        gain: Span,
        storage: Storage,
    ) -> Slot {
        let len = self.rows.count * columns.width;
        let y = self.arena.slot_in(storage, len);
        let stats = self.arena.slot(self.rows.count * 2);
        let (mut values, mut stat_values) = (self.arena.take(y), self.arena.take(stats));
        let mut x = self.arena.buffer(len);
        let from = self.arena.get(wide);
        self.kernels.run(Part::Norm, || {
            latent::gather(columns, from, &mut x);
            norm::forward(norm_of(plan, gain), &x, values.view_mut(), &mut stat_values);
        });
        self.arena.free(x);
        self.arena.put(y, values);
        self.arena.put(stats, stat_values);
        self.read(stats);
        self.record(Node::LatentNorm(LatentNormNode {
            wide,
            columns,
            y,
            stats,
            gain,
        }));
        y
    }

    pub(super) fn latent_norm_backward(
        &mut self,
        plan: &Plan,
        node: &LatentNormNode,
        grads: &mut [f32],
    ) {
        let Some(dy) = self.arena.take_gradient(node.y) else {
            return;
        };
        self.arena.release(node.y);
        let mut x = self.arena.buffer(dy.len());
        let mut dx = self.arena.buffer(dy.len());
        let width = self.rows.count * node.columns.stride;
        let (mut dwide, _) = self.arena.open_gradient(node.wide, width);
        let (wide, stats) = (self.arena.get(node.wide), self.arena.get(node.stats));
        let into = self.into;
        self.kernels.run(Part::Norm, || {
            latent::gather(node.columns, wide, &mut x);
            let params = node.gain.grads().map(|range| norm::ParamGradients {
                gain: &mut grads[range],
                bias: None,
                into,
            });
            let saved = norm::Saved { x: &x, stats };
            let norm = norm_of(plan, node.gain);
            norm::backward(norm, saved, &dy, (&mut dx, Accumulation::Overwrite), params);
            latent::scatter(node.columns, &dx, &mut dwide);
        });
        self.arena.put_gradient(node.wide, dwide);
        for buffer in [x, dx, dy] {
            self.arena.free(buffer);
        }
        self.arena.release(node.stats);
    }

    /// Rows of queries, keys and values of heads of one width.
    fn join_heads(
        &mut self,
        plan: &Plan,
        [q, key]: [(Slot, Columns); 2],
        kv: Slot,
        sizes: Sizes,
        storage: Storage,
    ) -> Slot {
        let qkv = (self.arena).slot_in(storage, self.rows.count * plan.heads().qkv_width());
        let mut values = self.arena.take(qkv);
        let arena = &self.arena;
        self.kernels.run(Part::AttentionForward, || {
            let parts = Parts {
                q: arena.get(q.0),
                q_columns: q.1,
                kv: arena.get(kv),
                key: arena.get(key.0),
                key_columns: key.1,
            };
            latent::join(sizes, parts, values.view_mut());
        });
        self.arena.put(qkv, values);
        self.record(Node::Join(JoinNode {
            q,
            kv,
            key,
            qkv,
            sizes,
        }));
        qkv
    }

    pub(super) fn join_backward(&mut self, node: &JoinNode) {
        let Some(dqkv) = self.arena.take_gradient(node.qkv) else {
            return;
        };
        self.arena.release(node.qkv);
        let (rows, sizes) = (self.rows.count, node.sizes);
        let (q, q_columns) = node.q;
        let (wide, key_columns) = node.key;
        let mut dkv = self.arena.buffer(rows * sizes.keys_and_values());
        let (mut dwide, _) = (self.arena).open_gradient(wide, rows * key_columns.stride);
        let mut dq = (q != wide).then(|| self.arena.buffer(rows * q_columns.stride));
        self.kernels.run(Part::AttentionBackward, || {
            let to = match &mut dq {
                Some(dq) => &mut dq[..],
                None => &mut dwide[..],
            };
            latent::split_queries(sizes, dqkv.view(), (to, q_columns));
            latent::split_keys(sizes, dqkv.view(), &mut dkv, (&mut dwide, key_columns));
        });
        self.arena.put_gradient(wide, dwide);
        self.arena.put_gradient(node.kv, dkv);
        if let Some(dq) = dq {
            self.arena.put_gradient(q, dq);
        }
        self.arena.free(dqkv);
    }

    /// The features of attention's output `x` that are values.
    fn values_of(&mut self, x: Slot, sizes: Sizes) -> Slot {
        let storage = self.arena.storage(x);
        let y = (self.arena).slot_in(storage, self.rows.count * sizes.values());
        let mut values = self.arena.take(y);
        let from = self.arena.view(x);
        self.kernels.run(Part::AttentionForward, || {
            latent::values(sizes, from, values.view_mut());
        });
        self.arena.put(y, values);
        self.record(Node::Values { x, y });
        y
    }

    pub(super) fn values_backward(&mut self, plan: &Plan, [x, y]: [Slot; 2]) {
        let Some(dy) = self.arena.take_gradient(y) else {
            return;
        };
        self.arena.release(y);
        let Some(mla) = &plan.config.mla else {
            return;
        };
        let sizes = mla.sizes(plan.shape.n_head);
        let mut dx = self.arena.buffer(self.rows.count * plan.heads().q_width());
        self.kernels.run(Part::AttentionBackward, || {
            latent::values_backward(sizes, &dy, &mut dx);
        });
        self.arena.put_gradient(x, dx);
        self.arena.free(dy);
    }

    /// Attention of each text's new tokens over the latent vectors of all its tokens.
    fn cached_latent(
        &mut self,
        plan: &Plan,
        [q, key]: [(Slot, Columns); 2],
        latent: Slot,
        (layer, sizes, up): (usize, Sizes, &LinearSpans),
        texts: Option<&mut Texts>,
    ) -> Slot {
        let (heads, rows) = (sizes.latent_heads(), self.rows.count);
        let width = heads.q_width() + heads.head_dim;
        let start = texts.as_ref().map_or(0, |texts| texts.start());
        let mut joined = self.arena.buffer(rows * width);
        let mut means = self.arena.buffer(rows * heads.q_width());
        let out = self.arena.slot(rows * sizes.values());
        let mut values = self.arena.take(out);
        let (arena, positions) = (&self.arena, self.rows.positions(start));
        self.kernels.run(Part::AttentionForward, || {
            let up = up_of(plan, up);
            let parts = Parts {
                q: arena.get(q.0),
                q_columns: q.1,
                kv: arena.get(latent),
                key: arena.get(key.0),
                key_columns: key.1,
            };
            latent::absorb(plan.arithmetic, sizes, parts, up, &mut joined);
            if let Some(table) = plan.rotary(layer) {
                let turned = (heads.n_head + 1, heads.head_dim);
                rotary::apply_to_heads(table, &mut joined, width, turned, positions);
            }
            let (mut row, mut pieces) = (0, Vec::new());
            for (cache, new) in texts.into_iter().flat_map(Texts::reading) {
                let rows = &joined[row * width..(row + new) * width];
                pieces.push(cache.append(layer, heads, rows));
                row += new;
            }
            let mut sizes_of = plan.attention(layer, 0);
            sizes_of.heads = heads;
            let q = (&joined[..], width);
            attention::forward_cached(plan.arithmetic, sizes_of, &pieces, q, &mut means);
            latent::expand(plan.arithmetic, sizes, &means, up, &mut values);
        });
        self.arena.free(joined);
        self.arena.free(means);
        self.arena.put(out, values);
        out
    }
}

/// The matrix that keys and values come from, with its adapter if it is on.
fn up_of<'a>(plan: &Plan<'a>, spans: &LinearSpans) -> Up<'a> {
    let adapter = plan.adapter(spans).and_then(|adapter| {
        let part = adapter.parts().next()?;
        Some(UpAdapter {
            a: plan.dense(adapter.a),
            b: plan.dense(part.b),
            scale: part.scale,
            row_scales: match adapter.has_magnitudes() {
                true => &plan.magnitudes(adapter).scales,
                false => &[],
            },
        })
    });
    Up {
        matrix: plan.matrix(spans.weight),
        adapter,
    }
}
