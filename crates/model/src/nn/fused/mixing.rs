//! The part of a block in which tokens read earlier ones: attention, or a mixer in its place, with the norms around it.

use super::block::{Joint, Last};
use super::{Output, Pass, Plan};
use crate::kernels::numbers::Storage;
use crate::nn::kv_cache::Texts;
use crate::nn::layout::{AttentionSpans, BlockSpans, LinearSpans, MixingSpans};
use crate::nn::mixer::MixerConfig;
use crate::nn::step_position::Place;
use crate::nn::tape::Slot;

impl Pass {
    /// Attention or its replacement, with its norms, added to the residual stream.
    pub(super) fn mixing_layer(
        &mut self,
        plan: &Plan,
        x: Slot,
        (layer, block): (usize, &BlockSpans),
        texts: Option<&mut Texts>,
    ) -> Slot {
        let is_cached = texts.is_some();
        let [wide, out] = block.mixing.ends();
        let kept = match &block.mixing {
            MixingSpans::Attention(AttentionSpans {
                gate: Some(gate), ..
            }) => plan.among([wide, gate], is_cached),
            _ => plan.among([wide], is_cached),
        };
        let h = self.norm_before(plan, x, block.norm1.as_ref(), kept);
        let mixed = match &block.mixing {
            MixingSpans::Attention(spans) => {
                self.attention_of(plan, [x, h], (layer, spans), texts, kept)
            }
            MixingSpans::Latent(spans) => {
                let Some(mla) = &plan.config.mla else {
                    unreachable!("block {layer} has the parameters of latent attention")
                };
                let wide = self.widened(plan, [x, h], wide);
                self.latent_attention(plan, wide, (layer, mla, spans), texts)
            }
            MixingSpans::ShortConv(spans) => {
                let wide = self.widened(plan, [x, h], wide);
                let mixed = match texts {
                    Some(texts) => self.cached_short_conv(plan, wide, texts, (layer, spans)),
                    None => self.short_conv(plan, wide, spans),
                };
                self.read(wide);
                mixed
            }
            MixingSpans::GatedDelta(spans) => {
                let Some(MixerConfig::GatedDeltaNet(net)) = plan.config.mixer(layer) else {
                    unreachable!("block {layer} has the parameters of a gated delta net")
                };
                let wide = self.widened(plan, [x, h], wide);
                let mixed = match texts {
                    Some(texts) => self.cached_gated_delta(plan, wide, texts, (layer, net, spans)),
                    None => self.gated_delta(plan, wide, (net, spans)),
                };
                self.read(wide);
                mixed
            }
            MixingSpans::Mamba2(spans) => {
                let Some(MixerConfig::Mamba2(net)) = plan.config.mixer(layer) else {
                    unreachable!("block {layer} has the parameters of Mamba 2")
                };
                let wide = self.widened(plan, [x, h], wide);
                let mixed = match texts {
                    Some(texts) => self.cached_mamba2(plan, wide, texts, (layer, net, spans)),
                    None => self.mamba2(plan, wide, (net, spans)),
                };
                self.read(wide);
                mixed
            }
        };
        let last = Last::Linear {
            x: mixed,
            spans: out,
        };
        let joint = Joint {
            layer,
            norm: block.norm1_after.as_ref(),
            drop: self.drops(plan, Place::Attention(layer)),
        };
        let after = self.join(plan, x, last, joint, Output::NEW);
        self.read(mixed);
        after
    }

    /// The projection of a mixer's input `h`, in f32: it is not only matmuls that read it.
    fn widened(&mut self, plan: &Plan, [x, h]: [Slot; 2], spans: &LinearSpans) -> Slot {
        let wide = self.linear(plan, h, None, spans, Output::NEW);
        if h != x {
            self.release_recomputable(h);
        }
        wide
    }

    /// What attention gives of its input `h`, without the projection out; `kept` is the dtype of `h`.
    fn attention_of(
        &mut self,
        plan: &Plan,
        [x, h]: [Slot; 2],
        (layer, spans): (usize, &AttentionSpans),
        texts: Option<&mut Texts>,
        kept: Storage,
    ) -> Slot {
        let is_cached = texts.is_some();
        // Rows whose keys are cached, or that a norm reads, are f32.
        let is_plain = spans.qk_norm.is_none() && !is_cached;
        let to = if is_plain { kept } else { Storage::F32 };
        let mut qkv = self.linear(plan, h, None, &spans.qkv, Output::New(to));
        let gate = spans.gate.as_ref();
        let gate = gate.map(|gate| self.linear(plan, h, None, gate, Output::NEW));
        if h != x {
            self.release_recomputable(h);
        }
        if let Some(gains) = spans.qk_norm {
            let normed = self.qk_norm(plan, qkv, gains);
            self.read(qkv);
            qkv = normed;
        }
        // The gate reads and writes f32.
        let to = match gate {
            Some(_) => Storage::F32,
            None => plan.among([&spans.out], false),
        };
        let mixed = match texts {
            Some(texts) => self.cached_attention(plan, qkv, texts, (layer, spans.sinks)),
            None => self.attention(plan, qkv, (layer, spans.sinks), to),
        };
        self.read(qkv);
        let Some(gate) = gate else {
            return mixed;
        };
        let gated = self.gate(plan, mixed, gate);
        self.read(mixed);
        self.read(gate);
        gated
    }
}
