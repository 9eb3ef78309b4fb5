//! How nodes form a transformer block: the placement of norms, and what is added to the residual stream. With a parallel residual
//! the stream before attention has three readers: both norms, and the sum with attention's output. Attention and its replacements
//! are in `mixing`.

use super::{Output, Pass, Plan};
use crate::kernels::dropout::Dropout;
use crate::kernels::numbers::Storage;
use crate::nn::kv_cache::Texts;
use crate::nn::layout::{BlockSpans, ExpertSpans, LinearSpans, MlpSpans, NormSpans};
use crate::nn::step_position::Place;
use crate::nn::tap::Site;
use crate::nn::tape::{Slot, Track};

/// The last part of a sub-layer, whose output is added to the residual stream.
#[derive(Clone, Copy)]
pub(super) enum Last<'a> {
    Linear {
        x: Slot,
        spans: &'a LinearSpans,
    },
    Experts {
        x: Slot,
        spans: &'a ExpertSpans,
        is_cached: bool,
    },
}

/// What is between a sub-layer and the residual stream.
#[derive(Clone, Copy)]
pub(super) struct Joint<'a> {
    pub layer: usize,
    pub norm: Option<&'a NormSpans>,
    pub drop: Option<Dropout>,
}

impl Pass {
    /// One transformer block over `x`, which is not modified.
    pub(super) fn block(
        &mut self,
        plan: &Plan,
        x: Slot,
        (layer, block): (usize, &BlockSpans),
        texts: Option<&mut Texts>,
        output: Output,
    ) -> Slot {
        let is_cached = texts.is_some();
        let after = self.mixing_layer(plan, x, (layer, block), texts);
        if !plan.config.parallel_residual {
            let y = self.mlp_layer(plan, [after; 2], (layer, block), is_cached, output);
            self.read(after);
            return y;
        }
        let y = self.mlp_layer(plan, [x, after], (layer, block), is_cached, output);
        // Only the sum read it, whose backward needs no values: its buffer is free in training, too.
        self.arena.release(after);
        y
    }

    /// The feed-forward layer of the residual stream `x` with its norms, added to the stream `after` attention.
    fn mlp_layer(
        &mut self,
        plan: &Plan,
        [x, after]: [Slot; 2],
        (layer, block): (usize, &BlockSpans),
        is_cached: bool,
        output: Output,
    ) -> Slot {
        let joint = Joint {
            layer,
            norm: block.norm2_after.as_ref(),
            drop: self.drops(plan, Place::Mlp(layer)),
        };
        let kept = match &block.mlp {
            MlpSpans::One(spans) => plan.among([&spans.wide], is_cached),
            MlpSpans::Many(_) => Storage::F32,
        };
        let h = self.norm_before(plan, x, block.norm2.as_ref(), kept);
        match &block.mlp {
            MlpSpans::One(spans) => {
                let kept = Output::New(plan.among([&spans.wide, &spans.out], is_cached));
                let wide = self.linear(plan, h, None, &spans.wide, kept);
                if h != x {
                    self.release_recomputable(h);
                }
                let active = self.activation(plan, wide, spans.out.weight.cols);
                self.show(Site::FeedForward, layer, active);
                self.read(wide);
                let last = Last::Linear {
                    x: active,
                    spans: &spans.out,
                };
                let y = self.join(plan, after, last, joint, output);
                // The backward gets it together with its gradient.
                self.arena.release(active);
                y
            }
            MlpSpans::Many(spans) => {
                let last = Last::Experts {
                    x: h,
                    spans,
                    is_cached,
                };
                let y = self.join(plan, after, last, joint, output);
                if h != x {
                    self.read(h);
                }
                y
            }
        }
    }

    /// The norm before a sub-layer, if there is one, and its output's dtype.
    pub(super) fn norm_before(
        &mut self,
        plan: &Plan,
        x: Slot,
        norm: Option<&NormSpans>,
        storage: Storage,
    ) -> Slot {
        norm.map_or(x, |norm| self.norm(plan, x, norm, Output::New(storage)))
    }

    /// The dropout at a site; `None` outside training.
    pub(super) fn drops(&self, plan: &Plan, place: Place) -> Option<Dropout> {
        self.drops_at(plan, plan.config.dropout, place)
    }

    /// The same with another rate.
    pub(super) fn drops_at(&self, plan: &Plan, rate: f64, place: Place) -> Option<Dropout> {
        let drop = plan.step_position.dropout(rate, place);
        drop.filter(|_| self.track == Track::Gradients)
    }

    /// The residual stream `x` plus the sub-layer's output.
    pub(super) fn join(
        &mut self,
        plan: &Plan,
        x: Slot,
        last: Last,
        joint: Joint,
        output: Output,
    ) -> Slot {
        if plan.config.norm_placement.is_before_sum() {
            let added = self.last(plan, last, None, joint.layer, Output::NEW);
            let normed = match joint.norm {
                Some(norm) => {
                    let normed = self.norm(plan, added, norm, Output::NEW);
                    self.read(added);
                    normed
                }
                None => added,
            };
            return self.residual(plan, (normed, x), joint.drop, output);
        }
        let sum_to = joint.norm.map_or(output, |_| Output::NEW);
        let sum = match (joint.drop, plan.residual_scale()) {
            (None, 1.0) => self.last(plan, last, Some(x), joint.layer, sum_to),
            (drop, _) => {
                let added = self.last(plan, last, None, joint.layer, Output::NEW);
                self.residual(plan, (added, x), drop, sum_to)
            }
        };
        let Some(norm) = joint.norm else {
            return sum;
        };
        let y = self.norm(plan, sum, norm, output);
        self.read(sum);
        y
    }

    fn last(
        &mut self,
        plan: &Plan,
        last: Last,
        residual: Option<Slot>,
        layer: usize,
        output: Output,
    ) -> Slot {
        match last {
            Last::Linear { x, spans } => self.linear(plan, x, residual, spans, output),
            Last::Experts {
                x,
                spans,
                is_cached,
            } => {
                let Some(shared) = &spans.shared else {
                    return self.experts(plan, (x, residual), (layer, spans), output);
                };
                let sum = self.shared_expert(plan, (x, residual), shared, is_cached);
                let y = self.experts(plan, (x, Some(sum)), (layer, spans), output);
                // Only the sum read it, whose backward needs no values.
                self.arena.release(sum);
                y
            }
        }
    }
}
