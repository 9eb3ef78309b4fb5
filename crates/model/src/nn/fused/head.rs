//! The head of a pass: forward and backward, or both at once if the gradient is known beforehand. Its kernel is
//! `kernels::logprob`. A value head next to it is `kernels::score` over the same hidden states.

use super::{Pass, Plan};
use crate::kernels::matmul::{Accumulation, ComputeDtype, Plus};
use crate::kernels::numbers::{Values, ValuesMut};
use crate::kernels::{linear, logprob, score, softcap, threads};
use crate::nn::profile::Part;
use crate::nn::tape::{Buffer, Slot, Track};
use crate::nn::{HeadKind, TokenBatch};

/// How the head computes its gradients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadPass {
    /// From the state of its forward.
    Backward,
    /// Forward and backward at once: fills `outputs` too.
    Both,
}

/// The gradient of a loss with respect to the heads' outputs.
#[derive(Clone, Copy)]
pub(crate) struct HeadGradient<'a> {
    pub tokens: logprob::Upstream<'a>,
    /// With respect to values, if the loss depends on them.
    pub values: Option<&'a [f32]>,
    /// A teacher's head, if the loss depends on the divergence from it: then head and gradient are computed at once.
    pub teacher: Option<(logprob::Teacher<'a>, &'a [f32])>,
}

/// A kernel that does so.
type Differentiate = fn(
    ComputeDtype,
    logprob::Sizes,
    logprob::Inputs,
    &mut logprob::Outputs,
    logprob::Upstream,
    &mut [f32],
    Option<(&mut [f32], Accumulation)>,
);

/// The factor of hidden states before the head, for logits z times the scale s, capped at c and divided by the temperature T: the
/// head is linear, and c · tanh(s z / c) / T is (c / T) · tanh((s z / T) / (c / T)), so that neither needs a separate kernel.
fn share(plan: &Plan, temperature: f32) -> f32 {
    plan.logit_scale() / temperature
}

/// The head's inputs for `hidden` states (rows, D) times [`share`].
fn inputs<'a>(
    plan: &Plan<'a>,
    hidden: &'a [f32],
    (targets, temperature): (&'a [u32], f32),
) -> logprob::Inputs<'a> {
    logprob::Inputs {
        hidden,
        table: plan.matrix(plan.layout.head),
        targets,
        cap: plan.logit_cap().map(|cap| cap / temperature),
    }
}

impl Pass {
    /// Fills `outputs`.
    pub(super) fn head_forward(
        &mut self,
        plan: &Plan,
        hidden: Slot,
        teacher: Option<logprob::Teacher>,
    ) {
        let (rows, d, vocab) = (self.rows.count, plan.shape.d_model, plan.shape.vocab_size);
        if plan.config.head == HeadKind::Score {
            return self.score_forward(plan, hidden);
        }
        let sizes = match self.track {
            Track::Gradients => logprob::Sizes::new(rows, d, vocab),
            Track::Off => logprob::Sizes::in_chunks(rows, d, vocab),
        };
        self.head_bytes = self.head_bytes.max(sizes.bytes());
        let scaled = self.scaled_states(plan, hidden);
        let of = (&*self.targets, self.temperature);
        let states = scaled.as_deref().unwrap_or(self.arena.get(hidden));
        let inputs = inputs(plan, states, of);
        let outputs = &mut self.outputs;
        outputs.teacher.clear();
        self.kernels.run(Part::Head, || match teacher {
            Some(teacher) => {
                logprob::distill(plan.arithmetic, sizes, inputs, teacher, outputs, None);
            }
            None => logprob::forward(plan.arithmetic, sizes, inputs, outputs),
        });
        if let Some(scaled) = scaled {
            self.arena.free(scaled);
        }
        self.value_forward(plan, hidden);
    }

    /// The hidden states times [`share`], in their own buffer; `None` if that is 1.
    fn scaled_states(&mut self, plan: &Plan, hidden: Slot) -> Option<Buffer> {
        let share = share(plan, self.temperature);
        if share == 1.0 {
            return None;
        }
        let mut scaled = self.arena.buffer(self.arena.len(hidden));
        let states = self.arena.get(hidden);
        self.kernels.run(Part::Head, || {
            let pairs = scaled.iter_mut().zip(states);
            pairs.for_each(|(to, x)| *to = x * share);
        });
        Some(scaled)
    }

    /// From `upstream` to the gradient with respect to the hidden states; the table's goes to `grads`, unless it is frozen.
    pub(super) fn head_backward(
        &mut self,
        plan: &Plan,
        hidden: Slot,
        upstream: HeadGradient,
        grads: &mut [f32],
        pass: HeadPass,
    ) {
        let (rows, d, vocab) = (self.rows.count, plan.shape.d_model, plan.shape.vocab_size);
        if plan.config.head == HeadKind::Score {
            if pass == HeadPass::Both {
                self.score_forward(plan, hidden);
            }
            return self.score_backward(plan, hidden, upstream.tokens, grads);
        }
        let (sizes, differentiate): (_, Differentiate) = match pass {
            HeadPass::Backward => (logprob::Sizes::new(rows, d, vocab), logprob::backward),
            HeadPass::Both => (
                logprob::Sizes::in_chunks(rows, d, vocab),
                logprob::forward_backward,
            ),
        };
        self.head_bytes = self.head_bytes.max(sizes.bytes());
        let mut dhidden = self.arena.buffer(self.arena.len(hidden));
        let scaled = self.scaled_states(plan, hidden);
        let of = (&*self.targets, self.temperature);
        let states = scaled.as_deref().unwrap_or(self.arena.get(hidden));
        let inputs = inputs(plan, states, of);
        let (outputs, into) = (&mut self.outputs, self.into);
        outputs.teacher.clear();
        self.kernels.run(Part::Head, || {
            let dtable = plan.layout.head.grads();
            let dtable = dtable.map(|range| (&mut grads[range], into));
            if let Some((teacher, ddivergence)) = upstream.teacher {
                let learned = logprob::Learned {
                    tokens: upstream.tokens,
                    ddivergence,
                    dhidden: &mut dhidden,
                    dtable,
                };
                let arithmetic = plan.arithmetic;
                return logprob::distill(
                    arithmetic,
                    sizes,
                    inputs,
                    teacher,
                    outputs,
                    Some(learned),
                );
            }
            differentiate(
                plan.arithmetic,
                sizes,
                inputs,
                outputs,
                upstream.tokens,
                &mut dhidden,
                dtable,
            );
        });
        if let Some(scaled) = scaled {
            self.arena.free(scaled);
            let share = share(plan, self.temperature);
            self.kernels.run(Part::Head, || {
                dhidden.iter_mut().for_each(|x| *x *= share);
            });
        }
        if pass == HeadPass::Both {
            self.value_forward(plan, hidden);
        }
        self.value_backward(plan, hidden, upstream.values, (&mut dhidden, grads));
        self.arena.put_gradient(hidden, dhidden);
        self.head_done = true;
    }
}

impl Pass {
    /// Calls `work` with this model's head over its hidden states of a batch: a teacher's, in an evaluation pass.
    pub fn teach<R>(
        &mut self,
        plan: &Plan,
        batch: &TokenBatch,
        divergence: logprob::Divergence,
        work: impl FnOnce(logprob::Teacher) -> R,
    ) -> R {
        // The divergence has a temperature of its own.
        let batch = TokenBatch {
            temperature: 1.0,
            ..*batch
        };
        let hidden = threads::enter(|| self.hidden_of(plan, &batch));
        let scaled = self.scaled_states(plan, hidden);
        let states = scaled.as_deref().unwrap_or(self.arena.get(hidden));
        let result = work(logprob::Teacher {
            hidden: states,
            d: plan.shape.d_model,
            table: plan.matrix(plan.layout.head),
            vocab: plan.shape.vocab_size,
            cap: plan.logit_cap(),
            divergence,
        });
        if let Some(scaled) = scaled {
            self.arena.free(scaled);
        }
        result
    }
}

impl Pass {
    /// Fills `outputs` with scores.
    fn score_forward(&mut self, plan: &Plan, hidden: Slot) {
        let sizes = score::sizes(self.rows.count, plan.shape.d_model);
        self.head_bytes = self.head_bytes.max(sizes.bytes());
        let Pass {
            arena,
            kernels,
            outputs,
            ..
        } = self;
        kernels.run(Part::Head, || {
            score::forward(
                sizes,
                arena.get(hidden),
                plan.dense(plan.layout.head),
                outputs,
            );
        });
    }

    fn score_backward(
        &mut self,
        plan: &Plan,
        hidden: Slot,
        upstream: logprob::Upstream,
        grads: &mut [f32],
    ) {
        let mut dhidden = self.arena.buffer(self.arena.len(hidden));
        let Pass {
            arena,
            kernels,
            into,
            ..
        } = &mut *self;
        kernels.run(Part::Head, || {
            let head = plan.layout.head;
            let dweight = head.grads().map(|range| (&mut grads[range], *into));
            let both = (arena.get(hidden), plan.dense(head));
            let dhidden = (&mut *dhidden, Accumulation::Overwrite);
            score::backward(both, upstream.dlogp, dhidden, dweight);
        });
        self.arena.put_gradient(hidden, dhidden);
        self.head_done = true;
    }
}

impl Pass {
    /// Fills `values`, if there is a value head.
    fn value_forward(&mut self, plan: &Plan, hidden: Slot) {
        let (Some(head), rows) = (plan.layout.value, self.rows.count) else {
            return;
        };
        let Pass {
            arena,
            kernels,
            values,
            ..
        } = self;
        kernels.run(Part::Head, || {
            values.resize(rows, 0.0);
            score::scores(arena.get(hidden), plan.dense(head), values);
        });
    }

    /// Adds the gradient through the values to that with respect to the hidden states.
    fn value_backward(
        &mut self,
        plan: &Plan,
        hidden: Slot,
        dvalues: Option<&[f32]>,
        (dhidden, grads): (&mut [f32], &mut [f32]),
    ) {
        let Some(head) = plan.layout.value else {
            return;
        };
        let Pass {
            arena,
            kernels,
            into,
            ..
        } = self;
        kernels.run(Part::Head, || {
            let dweight = head.grads().map(|range| (&mut grads[range], *into));
            match (dvalues, dweight) {
                (Some(dvalues), dweight) => {
                    let both = (arena.get(hidden), plan.dense(head));
                    score::backward(both, dvalues, (dhidden, Accumulation::Add), dweight);
                }
                // The loss does not depend on values, as in a cold start: their gradient is zero.
                (None, Some((dweight, Accumulation::Overwrite))) => dweight.fill(0.0),
                (None, _) => {}
            }
        });
    }
}

/// Logits (rows, V) of `hidden` states (rows, D) after the last norm; the score (rows, 1) for a reward model.
pub(super) fn logits(plan: &Plan, hidden: &[f32], logits: &mut Vec<f32>) {
    let (d, vocab) = (plan.shape.d_model, plan.shape.vocab_size);
    let rows = hidden.len() / d;
    if plan.config.head == HeadKind::Score {
        logits.resize(rows, 0.0);
        return score::scores(hidden, plan.dense(plan.layout.head), logits);
    }
    let sizes = linear::Sizes {
        rows,
        d_in: d,
        d_out: vocab,
    };
    let table = plan.matrix(plan.layout.head);
    logits.resize(rows * vocab, 0.0);
    // As in the passes with targets: the head is linear, and hidden states are fewer than logits.
    let scale = plan.logit_scale();
    let scaled: Option<Vec<f32>> =
        (scale != 1.0).then(|| hidden.iter().map(|x| x * scale).collect());
    let hidden = scaled.as_deref().unwrap_or(hidden);
    let (x, y) = (Values::F32(hidden), ValuesMut::F32(logits));
    linear::forward(plan.arithmetic, sizes, x, table, Plus::default(), y);
    if let Some(cap) = plan.logit_cap() {
        softcap::apply(logits, cap);
    }
}
