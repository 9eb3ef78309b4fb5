//! Names the parameters of a block's attention, or of the mixer that it has in its place.

use super::build::Builder;
use super::{
    AttentionSpans, ConvSpans, GatedDeltaSpans, LatentSpans, Mamba2Spans, MixingSpans, Naming,
    ShortConvSpans, Span,
};
use crate::nn::mixer::{GatedDeltaNetConfig, Mamba2Config, Mixer, MixerConfig, ShortConvConfig};
use crate::nn::mla::MlaConfig;
use crate::nn::params::Init;
use crate::nn::role::{AttentionRole, MixerRole, Role};
use crate::nn::{AttentionBias, QkNormOver};

/// The range of e^A_log at the start, as in transformers; above 0, whose logarithm is not finite.
const DECAY: (f64, f64) = (0.01, 16.0);
/// The same of Mamba 2, and the range of its steps of time, as in the authors' code.
const MAMBA_DECAY: (f64, f64) = (1.0, 16.0);
const MAMBA_STEP: (f64, f64) = (0.001, 0.1);

impl Builder<'_> {
    /// `stem` is the block's name.
    pub(super) fn mixing(&mut self, layer: usize, stem: &str) -> MixingSpans {
        match self.config.mixer(layer) {
            None => match &self.config.mla {
                Some(mla) => MixingSpans::Latent(self.latent(mla, stem)),
                None => MixingSpans::Attention(self.attention(stem)),
            },
            Some(MixerConfig::ShortConv(mixer)) => {
                MixingSpans::ShortConv(self.short_conv(mixer, &format!("{stem}.conv")))
            }
            Some(MixerConfig::GatedDeltaNet(mixer)) => {
                MixingSpans::GatedDelta(self.gated_delta(mixer, &format!("{stem}.linear_attn")))
            }
            Some(MixerConfig::Mamba2(mixer)) => {
                MixingSpans::Mamba2(self.mamba2(mixer, &format!("{stem}.mamba")))
            }
        }
    }

    fn attention(&mut self, stem: &str) -> AttentionSpans {
        use AttentionRole::{Gate, Key, Output, Query, QueryKeyValue, Sink, Value};
        let at = |part: &str| match self.naming {
            Naming::Gpt2 => format!("{stem}.attn.{part}"),
            Naming::Llama => format!("{stem}.self_attn.{part}"),
        };
        let (d, head_dim) = (self.shape.d_model, self.shape.head_dim);
        let q = self.shape.n_head * head_dim;
        let kv = self.shape.n_kv_head * head_dim;
        let (qkv, out) = match self.naming {
            Naming::Gpt2 => (
                vec![(at("c_attn"), QueryKeyValue, q + 2 * kv)],
                at("c_proj"),
            ),
            Naming::Llama => (
                vec![
                    (at("q_proj"), Query, q),
                    (at("k_proj"), Key, kv),
                    (at("v_proj"), Value, kv),
                ],
                at("o_proj"),
            ),
        };
        let qkv = qkv.into_iter();
        let qkv: Vec<_> = qkv
            .map(|(name, part, rows)| (name, Role::Attention(part), rows))
            .collect();
        let qk_names = [at("q_norm"), at("k_norm")];
        let sinks = at("sinks");
        let gate = [(at("q_gate_proj"), Role::Attention(Gate), q)];
        let out = [(out, Role::Attention(Output), d)];
        let biases = self.config.attention_biases();
        let has_qkv_bias = matches!(biases, AttentionBias::Qkv | AttentionBias::All);
        let has_out_bias = matches!(biases, AttentionBias::Output | AttentionBias::All);
        let (std, residual_std) = self.stds();
        AttentionSpans {
            qkv: self.linear(&qkv, d, std, has_qkv_bias),
            qk_norm: self.config.qk_norm.then(|| {
                let lens = match self.config.qk_norm_over {
                    QkNormOver::Head => [head_dim; 2],
                    QkNormOver::AllHeads => [q, kv],
                };
                self.gains(&qk_names, lens)
            }),
            gate: (self.config.attention_gate).then(|| self.linear(&gate, d, std, has_qkv_bias)),
            out: self.linear(&out, q, residual_std, has_out_bias),
            sinks: self.config.attention_sinks.then(|| {
                let (role, shape) = (Role::Attention(Sink), vec![self.shape.n_head]);
                self.push(sinks, role, shape, Init::Normal(std))
            }),
        }
    }

    /// Queries count as such by role, the matrix of the latent vector as keys, and what it becomes as values.
    fn latent(&mut self, mla: &MlaConfig, stem: &str) -> LatentSpans {
        use AttentionRole::{Key, Output, Query, Value};
        let at = |part: &str| format!("{stem}.self_attn.{part}");
        let (d, sizes) = (self.shape.d_model, mla.sizes(self.shape.n_head));
        let (std, residual_std) = self.stds();
        let (q, width) = match mla.q_rank {
            Some(rank) => (at("q_a_proj"), rank),
            None => (at("q_proj"), sizes.queries()),
        };
        let wide = [
            (q, Role::Attention(Query), width),
            (at("kv_a_proj_with_mqa"), Role::Attention(Key), mla.kept()),
        ];
        let queries = [(at("q_b_proj"), Role::Attention(Query), sizes.queries())];
        let kv = [(
            at("kv_b_proj"),
            Role::Attention(Value),
            sizes.keys_and_values(),
        )];
        let out = [(at("o_proj"), Role::Attention(Output), d)];
        // Plain gains, whatever the model's norms add to theirs.
        let norm = |builder: &mut Self, name: &str, len| {
            let name = format!("{}.weight", at(name));
            builder.push(name, Role::Norm, vec![len], Init::Ones)
        };
        LatentSpans {
            wide: self.linear(&wide, d, std, false),
            q: mla.q_rank.map(|rank| {
                let gain = norm(self, "q_a_layernorm", rank);
                (gain, self.linear(&queries, rank, std, false))
            }),
            kv_norm: norm(self, "kv_a_layernorm", mla.kv_rank),
            kv: self.linear(&kv, mla.kv_rank, std, false),
            out: self.linear(&out, sizes.values(), residual_std, false),
        }
    }

    fn short_conv(&mut self, mixer: &ShortConvConfig, name: &str) -> ShortConvSpans {
        let (d, bias) = (self.shape.d_model, mixer.bias);
        let (std, residual_std) = self.stds();
        let wide = [(format!("{name}.in_proj"), INPUT, 3 * d)];
        let out = [(format!("{name}.out_proj"), OUTPUT, d)];
        ShortConvSpans {
            wide: self.linear(&wide, d, std, bias),
            conv: self.conv(&format!("{name}.conv"), mixer, bias),
            out: self.linear(&out, d, residual_std, bias),
        }
    }

    fn gated_delta(&mut self, mixer: &GatedDeltaNetConfig, name: &str) -> GatedDeltaSpans {
        let at = |part: &str| format!("{name}.{part}");
        let (d, values, heads) = (self.shape.d_model, mixer.values(), mixer.n_value_head);
        let (std, residual_std) = self.stds();
        let wide = [
            (at("in_proj_qkv"), INPUT, mixer.conv_channels(d)),
            (at("in_proj_z"), INPUT, values),
            (at("in_proj_b"), INPUT, heads),
            (at("in_proj_a"), INPUT, heads),
        ];
        let out = [(at("out_proj"), OUTPUT, d)];
        let decay = Role::Mixer(MixerRole::Decay);
        let log = Init::LogUniform(DECAY.0, DECAY.1);
        GatedDeltaSpans {
            wide: self.linear(&wide, d, std, false),
            conv: self.conv(&at("conv1d"), mixer, false),
            dt_bias: self.push(at("dt_bias"), decay, vec![heads], Init::Ones),
            a_log: self.push(at("A_log"), decay, vec![heads], log),
            // A plain gain, whatever the model's norms add to theirs.
            norm: self.push(
                at("norm.weight"),
                Role::Norm,
                vec![mixer.value_dim],
                Init::Ones,
            ),
            out: self.linear(&out, values, residual_std, false),
        }
    }

    fn mamba2(&mut self, mixer: &Mamba2Config, name: &str) -> Mamba2Spans {
        let at = |part: &str| format!("{name}.{part}");
        let (d, heads, inner) = (self.shape.d_model, mixer.n_head, mixer.inner());
        let (std, residual_std) = self.stds();
        let wide = [(at("in_proj"), INPUT, mixer.sizes().wide())];
        let out = [(at("out_proj"), OUTPUT, d)];
        let decay = Role::Mixer(MixerRole::Decay);
        let log = Init::LogUniform(MAMBA_DECAY.0, MAMBA_DECAY.1);
        let step = Init::Step(MAMBA_STEP.0, MAMBA_STEP.1);
        let skip = Role::Mixer(MixerRole::Skip);
        Mamba2Spans {
            wide: self.linear(&wide, d, std, mixer.bias),
            conv: self.conv(&at("conv1d"), mixer, mixer.conv_bias),
            dt_bias: self.push(at("dt_bias"), decay, vec![heads], step),
            a_log: self.push(at("A_log"), decay, vec![heads], log),
            d: self.push(at("D"), skip, vec![heads], Init::Ones),
            // A plain gain, whatever the model's norms add to theirs.
            norm: self.push(at("norm.weight"), Role::Norm, vec![inner], Init::Ones),
            out: self.linear(&out, inner, residual_std, mixer.bias),
        }
    }

    /// Initialized as torch's convolutions are.
    fn conv(&mut self, name: &str, mixer: &dyn Mixer, has_bias: bool) -> ConvSpans {
        let (channels, taps) = (mixer.conv_channels(self.shape.d_model), mixer.conv_len());
        let init = Init::Uniform(1.0 / (taps as f64).sqrt());
        let role = Role::Mixer(MixerRole::Conv);
        let weight = self.push(format!("{name}.weight"), role, vec![channels, taps], init);
        ConvSpans {
            weight: Span {
                rows: 1,
                cols: channels * taps,
                ..weight
            },
            bias: has_bias
                .then(|| self.push(format!("{name}.bias"), role.bias(), vec![channels], init)),
        }
    }
}

const INPUT: Role = Role::Mixer(MixerRole::In);
const OUTPUT: Role = Role::Mixer(MixerRole::Output);
