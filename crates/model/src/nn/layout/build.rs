//! Names parameters and assigns their offsets, one after another.

use super::{
    BlockSpans, ExpertSpans, FeedForwardSpans, Layout, LinearSpans, MlpSpans, Naming, NormSpans,
    Parts, SharedSpans, Span,
};
use crate::kernels::norm::NormKind;
use crate::nn::moe::Balancing;
use crate::nn::params::{Init, ParamInfo};
use crate::nn::role::{MlpRole, Role};
use crate::nn::{AdapterConfig, HeadKind, ModelConfig, ModelShape, NormPlacement};

/// The names of a block's norms, if it has them.
struct BlockNorms {
    before1: Option<&'static str>,
    after1: Option<&'static str>,
    before2: Option<&'static str>,
    after2: Option<&'static str>,
}

impl BlockNorms {
    fn of(naming: Naming, placement: NormPlacement) -> BlockNorms {
        let names = match (naming, placement) {
            (Naming::Gpt2, _) => ["ln_1", "", "ln_2", ""],
            (_, NormPlacement::Pre) => ["input_layernorm", "", "post_attention_layernorm", ""],
            (_, NormPlacement::Post | NormPlacement::Reordered) => [
                "",
                "post_attention_layernorm",
                "",
                "post_feedforward_layernorm",
            ],
            (_, NormPlacement::Both) => [
                "input_layernorm",
                "post_attention_layernorm",
                "pre_feedforward_layernorm",
                "post_feedforward_layernorm",
            ],
        };
        let [before1, after1, before2, after2] =
            names.map(|name| Some(name).filter(|n| !n.is_empty()));
        BlockNorms {
            before1,
            after1,
            before2,
            after2,
        }
    }
}

pub(super) struct Builder<'a> {
    pub(super) config: &'a ModelConfig,
    pub(super) shape: &'a ModelShape,
    pub(super) naming: Naming,
    parts: Parts<'a>,
    pub(super) infos: Vec<ParamInfo>,
    end: usize,
    /// Number of trainable elements so far.
    grads: usize,
    /// The block and the expert of the parameters being created.
    layer: Option<u32>,
    expert: Option<u32>,
    /// Names of parameters of one matmul of which some train and some do not.
    pub(super) mixed: Vec<String>,
}

impl<'a> Builder<'a> {
    pub fn new(config: &'a ModelConfig, shape: &'a ModelShape, parts: Parts<'a>) -> Self {
        Builder {
            config,
            shape,
            naming: Naming::of(config),
            parts,
            infos: Vec::new(),
            end: 0,
            grads: 0,
            layer: None,
            expert: None,
            mixed: Vec::new(),
        }
    }

    /// The layout without its table of parameters, which is in `infos`. Adapters come after everything else, so that the base
    /// model has the same positions with and without them.
    pub fn build(&mut self) -> Layout {
        let (vocab, d) = (self.shape.vocab_size, self.shape.d_model);
        let std = self.config.init_std;
        let (wte, wpe, norm) = match self.naming {
            Naming::Gpt2 => ("transformer.wte", "transformer.wpe", "transformer.ln_f"),
            Naming::Llama => ("model.embed_tokens", "model.embed_positions", "model.norm"),
        };
        let tokens = self.matrix(wte, Role::Embedding, (vocab, d), std);
        let positions = self
            .config
            .position
            .has_table()
            .then(|| self.matrix(wpe, Role::Position, (self.shape.seq_len, d), std));
        let mut blocks: Vec<BlockSpans> = (0..self.shape.n_layer)
            .map(|layer| self.block(layer))
            .collect();
        self.layer = None;
        let ends_normed = self.config.norm_placement == NormPlacement::Post;
        let norm = (!ends_normed).then(|| self.norm(norm));
        let head = match self.config.head {
            HeadKind::Score => self.matrix("score", Role::Head, (1, d), std),
            HeadKind::Vocabulary if self.config.tie_embeddings => tokens,
            HeadKind::Vocabulary => self.matrix("lm_head", Role::Head, (vocab, d), std),
        };
        let n_base = self.infos.len();
        let adapters = self.adapt(&mut blocks);
        self.layer = None;
        // TRL's name for it.
        let value = self
            .config
            .value_head
            .then(|| self.matrix("v_head.summary", Role::Value, (1, d), std));
        Layout {
            tokens,
            positions,
            blocks,
            norm,
            head,
            value,
            adapters,
            infos: Vec::new(),
            n_base,
        }
    }

    fn block(&mut self, layer: usize) -> BlockSpans {
        self.layer = Some(layer as u32);
        let stem = match self.naming {
            Naming::Gpt2 => format!("transformer.h.{layer}"),
            Naming::Llama => format!("model.layers.{layer}"),
        };
        let at = |part: &str| format!("{stem}.{part}");
        let names = BlockNorms::of(self.naming, self.config.norm_placement);
        let norms = [names.before1, names.after1, names.before2, names.after2];
        let [before1, after1, before2, after2] = norms.map(|name| name.map(at));
        BlockSpans {
            norm1: before1.map(|name| self.norm(&name)),
            mixing: self.mixing(layer, &stem),
            norm1_after: after1.map(|name| self.norm(&name)),
            norm2: before2.map(|name| self.norm(&name)),
            mlp: self.mlp(layer, &at("mlp")),
            norm2_after: after2.map(|name| self.norm(&name)),
        }
    }

    /// Standard deviations of initial weights, and of projections into the residual stream.
    pub(super) fn stds(&self) -> (f64, f64) {
        let std = self.config.init_std;
        (std, std / (2.0 * self.shape.n_layer as f64).sqrt())
    }

    fn mlp(&mut self, layer: usize, name: &str) -> MlpSpans {
        let Some(moe) = self.config.experts(layer) else {
            let sizes = (self.shape.d_ff, self.config.bias);
            return MlpSpans::One(self.feed_forward(name, sizes));
        };
        let (std, _) = self.stds();
        let d_ff = moe.d_ff.unwrap_or(self.shape.d_ff);
        let gate = format!("{name}.gate");
        let size = (moe.n_expert, self.shape.d_model);
        let router = self.matrix(&gate, Role::Router, size, std);
        let logit_bias = moe.bias.then(|| {
            let shape = vec![moe.n_expert];
            self.push(
                format!("{gate}.bias"),
                Role::Router.bias(),
                shape,
                Init::Zeros,
            )
        });
        let bias = matches!(moe.balancing, Balancing::Bias { .. }).then(|| {
            let name = format!("{gate}.e_score_correction_bias");
            self.push(name, Role::Router, vec![moe.n_expert], Init::Zeros)
        });
        let first = self.infos.len();
        let experts: Vec<_> = (0..moe.n_expert)
            .map(|e| {
                self.expert = Some(e as u32);
                let sizes = (d_ff, self.config.bias || moe.bias);
                self.feed_forward(&format!("{name}.experts.{e}"), sizes)
            })
            .collect();
        self.expert = None;
        // A single position in the flat buffers represents all of them.
        self.trains_as_one(first);
        let shared = moe.shared_d_ff.map(|d_ff| {
            let name = format!("{name}.shared_expert");
            let mlp = self.feed_forward(&name, (d_ff, self.config.bias));
            let gate = moe.shared_gate.then(|| {
                let size = (1, self.shape.d_model);
                self.matrix(&format!("{name}_gate"), Role::Router, size, std)
            });
            SharedSpans { mlp, gate }
        });
        MlpSpans::Many(ExpertSpans {
            router,
            bias,
            logit_bias,
            first: experts[0],
            count: moe.n_expert,
            shared,
            low: [None; 2],
        })
    }

    fn feed_forward(&mut self, name: &str, (d_ff, biased): (usize, bool)) -> FeedForwardSpans {
        let at = |part: &str| format!("{name}.{part}");
        let wide = match (self.naming, self.config.mlp.gated()) {
            (Naming::Gpt2, _) => vec![("c_fc", MlpRole::Up)],
            (Naming::Llama, true) => vec![("gate_proj", MlpRole::Gate), ("up_proj", MlpRole::Up)],
            (Naming::Llama, false) => vec![("up_proj", MlpRole::Up)],
        };
        let wide: Vec<_> = wide
            .into_iter()
            .map(|(name, part)| (at(name), Role::Mlp(part), d_ff))
            .collect();
        let out = match self.naming {
            Naming::Gpt2 => at("c_proj"),
            Naming::Llama => at("down_proj"),
        };
        let d = self.shape.d_model;
        let (std, residual_std) = self.stds();
        FeedForwardSpans {
            wide: self.linear(&wide, d, std, biased),
            out: self.linear(
                &[(out, Role::Mlp(MlpRole::Down), d)],
                d_ff,
                residual_std,
                biased,
            ),
        }
    }

    /// Linear layers with the same input, weights and then biases, contiguous.
    pub(super) fn linear(
        &mut self,
        parts: &[(String, Role, usize)],
        d_in: usize,
        std: f64,
        has_bias: bool,
    ) -> LinearSpans {
        let d_out = parts.iter().map(|(_, _, rows)| rows).sum();
        let first = self.infos.len();
        for (name, role, rows) in parts {
            self.matrix(name, *role, (*rows, d_in), std);
        }
        let weight = self.span_from(first, d_out, d_in);
        let first = self.infos.len();
        if has_bias {
            for (name, role, rows) in parts {
                let name = format!("{name}.bias");
                self.push(name, role.bias(), vec![*rows], Init::Zeros);
            }
        }
        LinearSpans {
            weight,
            bias: has_bias.then(|| self.span_from(first, 1, d_out)),
            adapter: None,
        }
    }

    /// RMSNorm has no bias, whatever the config.
    fn norm(&mut self, name: &str) -> NormSpans {
        let d = self.shape.d_model;
        let first = self.infos.len();
        let gain = self.gain(name, d);
        let is_biased = self.config.norm.bias().unwrap_or(self.config.bias);
        let has_bias = is_biased && self.config.norm.kind() == NormKind::Layer;
        let bias = has_bias.then(|| {
            let name = format!("{name}.bias");
            self.push(name, Role::Norm.bias(), vec![d], Init::Zeros)
        });
        self.trains_as_one(first);
        NormSpans { gain, bias }
    }

    /// Gains of queries and of keys.
    pub(super) fn gains(&mut self, [q, k]: &[String; 2], lens: [usize; 2]) -> [Span; 2] {
        let first = self.infos.len();
        let gains = [self.gain(q, lens[0]), self.gain(k, lens[1])];
        self.trains_as_one(first);
        gains
    }

    /// Gains initialized to have no effect.
    fn gain(&mut self, name: &str, len: usize) -> Span {
        let init = if self.config.norm.gain_offset() == 0.0 {
            Init::Ones
        } else {
            Init::Zeros
        };
        self.push(format!("{name}.weight"), Role::Norm, vec![len], init)
    }

    fn matrix(&mut self, name: &str, role: Role, (rows, cols): (usize, usize), std: f64) -> Span {
        let name = format!("{name}.weight");
        self.push(name, role, vec![rows, cols], Init::Normal(std))
    }

    pub(super) fn push(&mut self, name: String, role: Role, shape: Vec<usize>, init: Init) -> Span {
        let len = shape.iter().product();
        let (rows, cols) = match shape[..] {
            [rows, cols] => (rows, cols),
            _ => (1, len),
        };
        let mut info = ParamInfo {
            decay: shape.len() >= 2,
            lr_scale: 1.0,
            name,
            role,
            layer: self.layer,
            expert: self.expert,
            shape,
            offset: self.end,
            len,
            grad: None,
            init,
        };
        if (self.parts.trains)(&info) {
            info.grad = Some(self.grads);
            self.grads += len;
        }
        self.end += len;
        self.infos.push(info);
        self.span_from(self.infos.len() - 1, rows, cols)
    }

    /// All parameters from number `first` on as one matrix.
    pub(super) fn span_from(&mut self, first: usize, rows: usize, cols: usize) -> Span {
        self.trains_as_one(first);
        let begin = &self.infos[first];
        Span {
            offset: begin.offset,
            grad: begin.grad,
            rows,
            cols,
        }
    }

    /// Records the parameters from number `first` on if only some of them train.
    fn trains_as_one(&mut self, first: usize) {
        let part = &self.infos[first..];
        if part.iter().any(|i| i.trains() != part[0].trains()) {
            self.mixed.extend(part.iter().map(|i| i.name.clone()));
        }
    }

    /// Sets the relative learning rate of the newest parameter.
    pub(super) fn rate_of_last(&mut self, ratio: f64) {
        if let Some(info) = self.infos.last_mut() {
            info.lr_scale = ratio;
        }
    }

    pub(super) fn adapter_config(&self) -> Option<&'a AdapterConfig> {
        self.parts.adapter
    }

    pub(super) fn enter(&mut self, layer: usize) {
        self.layer = Some(layer as u32);
    }
}
