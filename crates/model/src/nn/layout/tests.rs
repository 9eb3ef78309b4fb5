//! Names, orders and counts of parameters.

use super::*;
use crate::nn::QkNormOver;
use crate::nn::moe::Balancing;
use crate::nn::{mlp::MlpConfig, norm::NormConfig, position::PositionConfig};

fn llama() -> ModelConfig {
    ModelConfig {
        n_kv_head: Some(2),
        position: PositionConfig::Rope(Default::default()),
        norm: NormConfig::RmsNorm(Default::default()),
        mlp: MlpConfig::SwiGlu(Default::default()),
        tie_embeddings: false,
        bias: true,
        ..Default::default()
    }
}

fn qwen3_moe() -> ModelConfig {
    ModelConfig {
        head_dim: Some(64),
        qk_norm: true,
        bias: false,
        moe: Some(crate::nn::MoeConfig {
            n_expert: 3,
            d_ff: Some(40),
            balancing: Balancing::Bias { rate: 1e-3 },
            every: 2,
            ..Default::default()
        }),
        ..llama()
    }
}

fn gemma() -> ModelConfig {
    ModelConfig {
        norm_placement: NormPlacement::Both,
        attention_bias: AttentionBias::Qkv,
        bias: false,
        ..llama()
    }
}

fn names(config: &ModelConfig, prefix: &str) -> Vec<String> {
    let infos = Layout::new(config, &config.shape(65)).infos;
    let short = |info: ParamInfo| info.name.strip_prefix(prefix).map(String::from);
    infos.into_iter().filter_map(short).collect()
}

#[test]
fn options_have_the_names_of_hugging_face() {
    assert_eq!(
        names(&gemma(), "model.layers.3."),
        [
            "input_layernorm.weight",
            "self_attn.q_proj.weight",
            "self_attn.k_proj.weight",
            "self_attn.v_proj.weight",
            "self_attn.q_proj.bias",
            "self_attn.k_proj.bias",
            "self_attn.v_proj.bias",
            "self_attn.o_proj.weight",
            "post_attention_layernorm.weight",
            "pre_feedforward_layernorm.weight",
            "mlp.gate_proj.weight",
            "mlp.up_proj.weight",
            "mlp.down_proj.weight",
            "post_feedforward_layernorm.weight",
        ]
    );
    let experts = names(&qwen3_moe(), "model.layers.1.mlp.");
    assert_eq!(
        experts[..2],
        ["gate.weight", "gate.e_score_correction_bias"]
    );
    assert_eq!(experts[10], "experts.2.down_proj.weight");
    let dense = names(&qwen3_moe(), "model.layers.2.mlp.");
    assert_eq!(dense[0], "gate_proj.weight");
    let post = ModelConfig {
        norm_placement: NormPlacement::Post,
        ..llama()
    };
    assert!(names(&post, "model.norm").is_empty());
}

#[test]
fn norms_of_added_outputs_and_of_all_heads_have_the_names_and_widths_of_olmo_2() {
    let olmo = ModelConfig {
        norm_placement: NormPlacement::Reordered,
        qk_norm: true,
        qk_norm_over: QkNormOver::AllHeads,
        bias: false,
        ..llama()
    };
    let parts = [
        "self_attn.q_proj.weight",
        "self_attn.k_proj.weight",
        "self_attn.v_proj.weight",
        "self_attn.q_norm.weight",
        "self_attn.k_norm.weight",
        "self_attn.o_proj.weight",
        "post_attention_layernorm.weight",
        "mlp.gate_proj.weight",
        "mlp.up_proj.weight",
        "mlp.down_proj.weight",
        "post_feedforward_layernorm.weight",
    ];
    assert_eq!(names(&olmo, "model.layers.3."), parts);
    assert_eq!(names(&olmo, "model.norm"), [".weight"]);
    let infos = Layout::new(&olmo, &olmo.shape(65)).infos;
    let width = |name: &str| {
        let info = infos.iter().find(|info| info.name.ends_with(name));
        info.unwrap().len
    };
    // Four heads of 32 features, and two of keys.
    assert_eq!(
        (
            width("0.self_attn.q_norm.weight"),
            width("0.self_attn.k_norm.weight")
        ),
        (128, 64)
    );
}

#[test]
fn experts_are_contiguous() {
    let config = qwen3_moe();
    let layout = Layout::new(&config, &config.shape(65));
    let MlpSpans::Many(experts) = layout.blocks[3].mlp else {
        panic!("block 3 has experts")
    };
    for e in 0..3 {
        let spans = experts.expert(e);
        for (part, span) in [
            ("gate_proj", spans.wide.weight),
            ("down_proj", spans.out.weight),
        ] {
            let name = format!("model.layers.3.mlp.experts.{e}.{part}.weight");
            let info = layout.infos.iter().find(|i| i.name == name).unwrap();
            assert_eq!(info.offset, span.offset, "{name}");
        }
        assert_eq!((spans.wide.weight.rows, spans.out.weight.cols), (80, 40));
    }
}

#[test]
fn parameters_have_no_gaps_and_unique_names() {
    for config in [ModelConfig::default(), llama(), qwen3_moe(), gemma()] {
        let layout = Layout::new(&config, &config.shape(65));
        let mut end = 0;
        for info in &layout.infos {
            assert_eq!(info.offset, end, "{}", info.name);
            assert_eq!(info.len, info.shape.iter().product::<usize>());
            assert_eq!(info.decay, info.shape.len() >= 2, "{}", info.name);
            end += info.len;
        }
        let names: std::collections::BTreeSet<_> =
            layout.infos.iter().map(|info| &info.name).collect();
        assert_eq!(names.len(), layout.infos.len());
    }
}

#[test]
fn the_quickstart_has_nanogpts_parameter_count_and_gpt2_names() {
    let config = ModelConfig::default();
    let layout = Layout::new(&config, &config.shape(65));
    // 65·128 + 64·128 + 4·(12·128² + 2·128) + 128
    let total: usize = layout.infos.iter().map(|info| info.len).sum();
    assert_eq!(total, 804_096);
    assert_eq!(layout.infos[3].name, "transformer.h.0.attn.c_attn.weight");
    assert_eq!(layout.infos[3].shape, [384, 128]);
    assert_eq!(layout.head, layout.tokens);
}

#[test]
fn packed_spans_cover_their_parts() {
    let config = llama();
    let layout = Layout::new(&config, &config.shape(65));
    let find = |name: &str| {
        layout
            .infos
            .iter()
            .find(|info| info.name == name)
            .unwrap_or_else(|| panic!("{name} is missing"))
    };
    let MixingSpans::Attention(AttentionSpans { qkv, .. }) = layout.blocks[1].mixing else {
        panic!("every block has attention")
    };
    let q = find("model.layers.1.self_attn.q_proj.weight");
    let v = find("model.layers.1.self_attn.v_proj.weight");
    assert_eq!(qkv.weight.range(), q.offset..v.offset + v.len);
    let v_bias = find("model.layers.1.self_attn.v_proj.bias");
    assert_eq!(
        qkv.bias.map(|span| span.range().end),
        Some(v_bias.offset + v_bias.len)
    );
    let up = find("model.layers.1.mlp.up_proj.weight");
    let MlpSpans::One(mlp) = layout.blocks[1].mlp else {
        panic!("no experts were asked for")
    };
    assert_eq!(mlp.wide.weight.range().end, up.offset + up.len);
    let norm1 = layout.blocks[1].norm1.unwrap();
    assert!(norm1.bias.is_none(), "RMSNorm has no bias");
    assert_ne!(layout.head, layout.tokens);
}
