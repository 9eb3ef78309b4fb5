//! Further models that a run holds beside the trained one, and its completions.

use super::tests::here;
use super::*;
use crate::plan::solve::with_seq_len;
use crate::plan::{Part, gpus, plan};

fn request(preset: &str, set: &[&str]) -> Request {
    let set: Vec<String> = set.iter().map(ToString::to_string).collect();
    resolve(preset, &set, &here()).unwrap()
}

fn bytes(request: &Request, part: Part) -> u64 {
    plan(request).memory.bytes(part)
}

/// Writes the description of a reward model of 60 layers.
fn reward_model(room: &Path) {
    let config = serde_json::json!({
        "model_type": "gpt2", "architectures": ["GPT2ForSequenceClassification"], "num_labels": 1,
        "n_layer": 60, "n_embd": 128, "n_head": 2, "n_positions": 32, "vocab_size": 3, "pad_token_id": 0,
        "activation_function": "gelu_new",
    });
    let tokenizer = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "c": 2}, "unk_token": "a"},
    });
    let write = |name: &str, text: String| std::fs::write(room.join(name), text).unwrap();
    write("config.json", config.to_string());
    write("tokenizer.json", tokenizer.to_string());
    write("model.safetensors", String::new());
}

/// It is opened whole in this process at the first answers.
#[test]
fn a_reward_model_is_in_the_plan_and_in_the_gate() {
    let room = tempfile::tempdir().unwrap();
    reward_model(room.path());
    let of = |batch: u64| {
        let path = room.path().display();
        let reward = format!("rewards=[{{model: {{path: {path}, batch: {batch}}}}}]");
        request("grpo-arithmetic", &[&reward])
    };
    let (few, many) = (of(2), of(16));
    let n = few.extras.rewards.params;
    assert!((11_000_000..13_000_000).contains(&n), "{n}");
    assert!(bytes(&few, Part::RewardModel) > 4 * n);
    assert!(bytes(&many, Part::RewardModel) > bytes(&few, Part::RewardModel));
    assert_eq!(
        bytes(&request("grpo-arithmetic", &[]), Part::RewardModel),
        0
    );
    // What it reads is work, too.
    let cost = |request: &Request| crate::plan::passes::passes(request);
    assert!(cost(&few) > cost(&request("grpo-arithmetic", &[])));
    // The gate asks the same plan.
    let path = room.path().display();
    let reward = format!("rewards=[{{model: {{path: {path}}}}}]");
    let spec = spec::load("grpo-arithmetic", &[reward], &here())
        .unwrap()
        .spec;
    let memory = crate::hardware::Memory {
        total: 4 * n,
        available: 4 * n,
        ..Default::default()
    };
    assert!(crate::plan::room::check(&spec, &memory).is_err());
    // On a GPU it is held in 16 bits.
    let there = on_gpu(few, Device::of(gpus::find("h100").unwrap()));
    assert_eq!(bytes(&there, Part::RewardModel), 2 * n);
}

/// Adapters on a quantized file: it is held as it is by a trainer on a GPU too, and other models are as small a part of their bits.
#[test]
fn a_quantized_base_is_no_larger_on_a_gpu_than_its_file() {
    let mut adapted = request("sft-demo", &["adapter.lora.rank=4"]);
    adapted.extras.packed_bytes = Some(500_000);
    let there = on_gpu(adapted.clone(), Device::of(gpus::find("h100").unwrap()));
    assert_eq!(bytes(&there, Part::QuantizedBase), 500_000);
    assert_eq!(bytes(&there, Part::Weights), 0);
    let rungs = crate::plan::changes::rungs(&there);
    assert!(rungs.iter().all(|change| change.id != "qlora"), "{rungs:?}");
    let n = there.arch.n_params();
    let fits = crate::plan::solve::what_fits(&there)
        .unwrap()
        .model
        .unwrap();
    // Two bytes a parameter, as of the small one: 80 GB hold no model of hundreds of billions.
    assert!(fits.params > n && fits.params < 200_000_000_000, "{fits:?}");
}

/// A table of the base that trains moves the model below the adapter: the engine keeps a copy.
#[test]
fn a_base_whose_tables_train_is_not_its_own_reference() {
    let lora = "adapter.lora.rank=4";
    let own = request("dpo-demo", &[lora]);
    assert_eq!(bytes(&own, Part::Reference), 0);
    let set = [lora, "adapter.lora.modules_to_save=[embeddings]"];
    let moved = request("dpo-demo", &set);
    assert!(bytes(&moved, Part::Reference) > 4 * moved.arch.n_params());
}

/// A spec for PPO says which models there are; a model by itself is planned with both.
#[test]
fn ppo_on_a_gpu_holds_the_models_that_its_spec_names() {
    let on_h100 = |set: &[&str]| {
        let device = Device::of(gpus::find("h100").unwrap());
        on_gpu(request("ppo-demo", set), device)
    };
    let apart = on_h100(&[]);
    assert!(bytes(&apart, Part::Critic) > 0);
    assert_eq!(bytes(&apart, Part::RewardModel), 0);
    let shared = on_h100(&[
        "method.ppo.critic=shared",
        "method.ppo.critic_warmup_steps=0",
    ]);
    assert_eq!(bytes(&shared, Part::Critic), 0);
    let mut alone = reference_request(models::find("tinyllama-1.1b").unwrap());
    alone.set_method(Method::Ppo);
    assert!(bytes(&alone, Part::Critic) > 0);
    let n = alone.arch.n_params();
    assert_eq!(bytes(&alone, Part::RewardModel), 2 * n);
}

/// Whoever names the method: the answers are written, on a GPU and here, and they are as long as the context.
#[test]
fn answers_of_another_method_or_length_are_planned() {
    let mut here = request("sft-demo", &[]);
    assert_eq!(bytes(&here, Part::Rollouts), 0);
    let mut there = on_gpu(here.clone(), Device::of(gpus::find("h100").unwrap()));
    for request in [&mut here, &mut there] {
        request.set_method(Method::Grpo);
        let found = bytes(request, Part::Rollouts);
        assert!(found > 0);
        let longer = with_seq_len(request, 2 * request.seq_len);
        assert!(bytes(&longer, Part::Rollouts) > found);
    }
    // Back at a method that writes none.
    here.set_method(Method::Sft);
    assert_eq!(bytes(&here, Part::Rollouts), 0);
    // In bf16 the cache is half as long.
    let answers = request("grpo-arithmetic", &["train.precision=f32"]);
    let longer = with_seq_len(&answers, 4 * answers.seq_len);
    let (short, long) = (
        bytes(&answers, Part::Rollouts),
        bytes(&longer, Part::Rollouts),
    );
    assert!(long > 3 * short, "{short} → {long}");
}

/// 405 MB were measured of a run of SmolLM2-135M that was planned at 321: its tokenizer has 49,152 tokens, and is read twice.
#[test]
fn tokenizers_of_real_vocabularies_are_in_the_plan() {
    let of = |vocab_size: usize, from: bool| {
        let mut value = spec::load("quickstart", &[], &here())
            .unwrap()
            .spec
            .to_value();
        if from {
            value["train"]["from"] = "somewhere".into();
        }
        let spec = RunSpec::from_yaml(&value.to_string()).unwrap();
        let data = DataSize {
            vocab_size,
            ..DataSize::default()
        };
        bytes(&of_spec(&spec, data), Part::Tokenizer)
    };
    assert_eq!(of(65, false), 0);
    assert!((33_000_000..36_000_000).contains(&of(49_152, false)));
    assert_eq!(of(49_152, true), 2 * of(49_152, false));
}
