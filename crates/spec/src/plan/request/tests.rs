//! What a request comes to: parameters, tokens, rows, and how it is told.

use super::*;
use crate::nn::adapter::Targets;
use crate::plan::models;

#[test]
fn adapters_have_as_many_parameters_as_published() {
    let counts = |name| {
        let arch = &models::find(name).unwrap().arch;
        let of = |targets| Lora { rank: 8, targets }.params(arch);
        LoraTargets::ALL.map(|(_, targets)| of(targets))
    };
    assert_eq!(
        counts("qwen2.5-0.5b"),
        [540_672, 1_081_344, 3_317_760, 4_399_104]
    );
    assert_eq!(
        counts("llama-2-7b"),
        [4_194_304, 8_388_608, 11_599_872, 19_988_480]
    );
    assert_eq!(
        counts("llama-3.1-8b"),
        [3_407_872, 6_815_744, 14_155_776, 20_971_520]
    );
}

#[test]
fn checkpointing_is_read_as_it_is_written_and_means_what_the_engine_does() {
    use Checkpointing::{EveryN, Full, Off};
    let read = ["off", "every-3", "FULL", "every-0", "every-", "some"];
    assert_eq!(
        read.map(Checkpointing::by_word),
        [Some(Off), Some(EveryN(3)), Some(Full), None, None, None]
    );
    for form in Checkpointing::ALL {
        assert_eq!(Checkpointing::from(form.engine()), form);
    }
    assert_eq!(
        [Off, EveryN(3), EveryN(99), Full].map(|c| c.segment_len(12)),
        [12, 3, 12, 1]
    );
}

#[test]
fn every_word_means_one_thing() {
    for (word, method) in Method::ALL {
        assert_eq!(Method::by_word(word), Some(method));
    }
    assert_eq!(Method::by_word("DPO"), Some(Method::Dpo));
    assert_eq!(Method::Pretrain.word(), "pretrain");
}

/// The options of a plan on a spec that has adapters: one of them leaves the others as the spec says them.
#[test]
fn adapters_of_a_spec_change_in_what_is_named_alone() {
    let set = [
        "adapter.lora.rank=4".to_string(),
        "adapter.lora.dora=true".into(),
    ];
    let request = || {
        let sources = crate::spec::SpecSources::default();
        crate::plan::target::resolve("sft-lora-demo", &set, &sources).unwrap()
    };
    let (mut fewer, mut larger, mut quantized) = (request(), request(), request());
    let before = request();
    fewer.adapt(None, Some(LoraTargets::Minimal));
    assert_eq!(fewer.lora.unwrap().rank, 4);
    // The head of the plan and its numbers are about the same adapters.
    assert!(fewer.n_trainable() < before.n_trainable() / 2);
    let AdapterConfig::Lora(config) = fewer.engine_adapter().unwrap();
    assert!(config.dora && config.targets == Targets::Minimal);
    larger.adapt(Some(8), None);
    assert_eq!(larger.lora.unwrap().targets, before.lora.unwrap().targets);
    assert!(larger.n_trainable() > before.n_trainable());
    // --quantize alone: the rank is the spec's.
    quantized.adapt(None, None);
    assert_eq!(quantized.n_trainable(), before.n_trainable());
}

#[test]
fn every_method_of_a_spec_is_planned_as_itself() {
    for entry in crate::methods::MethodConfig::ENTRIES {
        let usual = crate::methods::MethodConfig::usual(entry.id).unwrap();
        let method = Method::of(&usual);
        assert_eq!(Method::by_word(entry.id), Some(method), "{}", entry.id);
        assert_eq!(
            (method.word(), method.facts().spec_word),
            (entry.id, entry.id)
        );
        let trained = method.facts().trained().unwrap();
        assert_eq!(
            method.rolls_out(),
            trained.on_policy().is_some(),
            "{}",
            entry.id
        );
        let critic = trained
            .on_policy()
            .is_some_and(|method| method.critic().is_some());
        assert_eq!(method.facts().passes.critic, critic, "{}", entry.id);
    }
}
