//! The start of the residual stream: token embeddings plus position embeddings.

use super::{Pass, Plan};
use crate::kernels::matmul::Accumulation;
use crate::kernels::{dropout, embedding};
use crate::nn::profile::Part;
use crate::nn::step_position::Place;
use crate::nn::tape::{Slot, Track};

impl Pass {
    pub(super) fn embedding(&mut self, plan: &Plan, start: usize) -> Slot {
        let d = plan.shape.d_model;
        let slot = self.arena.slot(self.rows.count * d);
        let mut x = self.arena.take(slot);
        let drop = self.drops(plan, Place::Embedding);
        let positions = self.rows.positions(start);
        let size = plan.embedding_noise / ((self.rows.seq_len * d) as f64).sqrt();
        let noise = (size > 0.0 && self.track == Track::Gradients).then_some(embedding::Noise {
            seed: plan.step_position.seed,
            micro_step: plan.step_position.micro_step,
            size: size as f32,
        });
        self.kernels.run(Part::Embedding, || {
            let table = (plan.matrix(plan.layout.tokens), scale(plan));
            embedding::forward(&self.ids, table, plan.vectors(), positions, &mut x);
            if let Some(noise) = &noise {
                embedding::add_noise(noise, d, &mut x);
            }
            if let Some(drop) = &drop {
                dropout::apply(drop, d, &mut x);
            }
        });
        self.arena.put(slot, x);
        slot
    }

    pub(super) fn embedding_backward(&mut self, plan: &Plan, x: Slot, grads: &mut [f32]) {
        let Some(mut dx) = self.arena.take_gradient(x) else {
            return;
        };
        let d = plan.shape.d_model;
        let drop = self.drops(plan, Place::Embedding);
        let (ids, into) = (&self.ids, self.into);
        let position_grads = plan.layout.positions.and_then(|span| span.grads());
        let positions = self.rows.positions(0);
        self.kernels.run(Part::Embedding, || {
            if let Some(drop) = &drop {
                dropout::apply(drop, d, &mut dx);
            }
            if let Some(range) = plan.layout.tokens.grads() {
                let dtable = &mut grads[range];
                // A tied table already has the head's gradient; of an untied one few rows are written.
                if into == Accumulation::Overwrite && plan.layout.tokens != plan.layout.head {
                    dtable.fill(0.0);
                }
                embedding::backward(ids, scale(plan), &dx, dtable);
            }
            if let Some(range) = position_grads {
                let dtable = &mut grads[range];
                if into == Accumulation::Overwrite {
                    dtable.fill(0.0);
                }
                embedding::backward_positions(positions, d, &dx, dtable);
            }
        });
        self.arena.free(dx);
    }
}

/// The scale of token embeddings.
fn scale(plan: &Plan) -> f32 {
    plan.config.embedding_scale.unwrap_or(1.0) as f32
}
