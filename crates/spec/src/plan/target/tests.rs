//! Specs and models as targets of a plan.

use super::*;
use crate::plan::request::Checkpointing;

#[test]
fn a_run_on_its_own_answers_is_told_in_prompts_and_not_advised_on_repeated_text() {
    let request = resolve("grpo-arithmetic", &[], &here()).unwrap();
    let answers = request.extras.answers.unwrap();
    // 8,000 prompts, about a tenth of them held out.
    assert_eq!(answers.prompts, Some(7_158));
    let length = answers.length.unwrap();
    assert_eq!(
        (length.prompts, length.group_size, length.steps),
        (16, 8, 550)
    );
    let plan = crate::plan::plan(&request);
    let ids: Vec<&str> = plan.advice.iter().map(|advice| &*advice.id).collect();
    assert!(!ids.contains(&"repeated_data"), "{ids:?}");
    let text = resolve("quickstart", &["max_steps=90000".into()], &here()).unwrap();
    let plan = crate::plan::plan(&text);
    assert!(
        plan.advice
            .iter()
            .any(|advice| advice.id == "repeated_data")
    );
}

/// Every row was counted as long as the context, though prompts and answers were known to be far shorter.
#[test]
fn rows_of_own_answers_are_as_long_as_prompts_with_their_longest_answers() {
    let of = |max: usize| {
        let set = [format!("rollout.max_new_tokens={max}")];
        resolve("grpo-gsm8k", &set, &here()).unwrap()
    };
    let (short, long) = (of(40), of(320));
    assert!(
        (41.0..60.0).contains(&short.row_tokens()),
        "{}",
        short.row_tokens()
    );
    assert!((long.row_tokens() - short.row_tokens() - 280.0).abs() < 1e-6);
    // 500 steps of 64 rows.
    let rows = short.tokens as f64 / short.row_tokens();
    assert!((rows - 32_000.0).abs() < 1.0, "{rows}");
    let cut = resolve("grpo-gsm8k", &["seq_len=330".into()], &here()).unwrap();
    assert!(cut.row_tokens() <= 330.0);
    // So many rows go through the model in parts that memory sets no limit to them.
    let mut roomy = short;
    roomy.device = Device::limit("1 TB", Some(1 << 40));
    let most = crate::plan::solve::what_fits(&roomy).unwrap().micro_batch;
    assert_eq!(most, Some(crate::plan::solve::ANY_BATCH));
}

#[test]
fn an_evaluation_at_the_end_alone_holds_no_more_than_was_held_out() {
    let batch = |set: &[&str]| {
        let set: Vec<String> = set.iter().map(ToString::to_string).collect();
        resolve("quickstart", &set, &here())
            .unwrap()
            .extras
            .eval_batch
    };
    assert_eq!(batch(&[]), 12);
    assert_eq!(batch(&["eval.every=0"]), 12);
    // 1,115,394 characters, a thousandth of them held out: 1,116 tokens in windows of 128.
    let little = ["data.val_fraction=0.001", "seq_len=128", "eval.every=0"];
    assert_eq!(batch(&little), 9);
    assert_eq!(batch(&little[..2]), 12);
}

pub(super) fn here() -> SpecSources {
    SpecSources {
        config_dir: None,
        project_dir: std::env::temp_dir().join("llmtui-no-such-folder"),
        ..SpecSources::default()
    }
}

#[test]
fn presets_come_first_then_models_then_near_names() {
    let preset = resolve("quickstart", &[], &here()).unwrap();
    assert_eq!(
        (preset.arch.n_params(), preset.estimator),
        (804_096, Estimator::Engine)
    );
    assert_eq!(preset.tokens, 2000 * 12 * 64);
    let model = resolve("llama-2-7b", &[], &here()).unwrap();
    assert_eq!(
        (model.arch.n_params(), model.estimator),
        (6_738_415_616, Estimator::General)
    );
    match resolve("lama-2-7b", &[], &here()) {
        Err(TargetError::Unknown { near, .. }) => assert_eq!(near[0], "llama-2-7b"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_folder_is_planned_by_its_config_whatever_its_name_is() {
    let room = tempfile::tempdir().unwrap();
    let sources = SpecSources {
        project_dir: room.path().into(),
        ..here()
    };
    let config = serde_json::json!({
        "model_type": "gpt2", "n_layer": 2, "n_embd": 16, "n_head": 2, "n_positions": 32, "vocab_size": 100,
        "activation_function": "gelu_new",
    });
    std::fs::create_dir(room.path().join("gpt2")).unwrap();
    std::fs::write(room.path().join("gpt2/config.json"), config.to_string()).unwrap();
    let block = 12 * 16 * 16 + 13 * 16;
    for word in ["./gpt2", "gpt2", "gpt2/"] {
        let planned = resolve(word, &[], &sources).unwrap();
        assert_eq!(
            planned.arch.n_params(),
            100 * 16 + 32 * 16 + 2 * block + 2 * 16,
            "{word}"
        );
        assert_eq!((planned.name.as_str(), planned.seq_len), ("gpt2", 32));
    }
    // A folder without a model hides no reference model, unless it is named as a path.
    std::fs::create_dir(room.path().join("llama-2-7b")).unwrap();
    assert!(resolve("llama-2-7b", &[], &sources).is_ok());
    let told = |word| resolve(word, &[], &sources).unwrap_err().to_string();
    assert!(told("./llama-2-7b").contains("holds no config.json"));
    assert!(told("./mistral-7b").contains("does not exist"));
    assert!(told("nothing").contains("unknown target `nothing`"));
    assert!(resolve("mistralai/Mistral-7B-v0.1", &[], &sources).is_ok());
}

/// Keys, values and logits of answers are planned, and a reference where the spec's own method needs one.
#[test]
fn answers_are_planned_as_the_spec_writes_them() {
    use crate::plan::{Part, plan};
    let ledger = |set: &[&str]| {
        let set = set.iter().chain(&["train.precision=f32"]);
        let set: Vec<String> = set.map(ToString::to_string).collect();
        plan(&resolve("grpo-sort", &set, &here()).unwrap()).memory
    };
    let plain = ledger(&[]);
    assert_eq!(plain.bytes(Part::Reference), 0);
    assert_eq!(plain.bytes(Part::Evaluation), 0);
    // 128 answers × 32 places × 2 layers × keys and values of 96 × 4 B, and what reads them.
    let cache = 128 * 32 * 2 * 2 * 96 * 4;
    let found = plain.bytes(Part::Rollouts);
    assert!(
        (cache..cache + (4 << 20)).contains(&found),
        "{found}, {cache}"
    );
    let half = ledger(&["rollout.side_by_side=64"]).bytes(Part::Rollouts);
    assert!(found - half >= cache / 2, "{found}, {half}");
    let compared = ["method.grpo.beta=0.1", "rollout.cold_start_steps=0"];
    let compared = ledger(&compared);
    let n = resolve("grpo-sort", &[], &here()).unwrap().arch.n_params();
    assert!(compared.bytes(Part::Reference) >= 4 * n);
    // Log-probabilities of the policy that answered: a pass without a gradient, and a loss that is not linear.
    let twice = ledger(&["rollout.epochs=2"]);
    assert!(twice.bytes(Part::Evaluation) > 0);
    // A critic is a second model with gradients, moments and passes of its own.
    let critic = ["method=ppo", "rollout.group_size=1"];
    assert!(ledger(&critic).bytes(Part::Critic) >= 16 * n);
    assert_eq!(plain.bytes(Part::Critic), 0);
    // On the policy's trunk it is a vector more, and a pass that says values.
    let shared = ledger(&[
        "method=ppo",
        "rollout.group_size=1",
        "method.ppo.critic=shared",
    ]);
    assert_eq!(shared.bytes(Part::Critic), 0);
    assert!(shared.bytes(Part::Evaluation) > 0);
    let linear = |words: &[&str]| {
        let set: Vec<String> = words.iter().map(ToString::to_string).collect();
        resolve("grpo-sort", &set, &here()).unwrap().is_linear()
    };
    assert!(linear(&["seed=1"]) && !linear(&["rollout.epochs=2"]));
    assert!(!linear(&["method.grpo.beta=0.1"]), "a term of the loss");
    // A KL that is charged to the reward is known before the forward pass.
    let charged = ["method=rloo", "method.rloo.beta=0.1"];
    assert!(linear(&charged));
    assert!(!linear(&[&charged[..], &["rollout.steps=2"]].concat()));
    assert!(linear(&critic) && !linear(&[&critic[..], &["method.ppo.entropy_coef=0.1"]].concat()));
}

/// Beside two policies with their states there are, before the first step, the reference once and the moments of two critics.
#[test]
fn preflight_holds_references_and_moments_of_critics_too() {
    let total = |preset: &str, set: &[&str]| {
        let large = ["d_model=1024", "n_head=16", "precision=f32"];
        let set: Vec<String> = large.iter().chain(set).map(ToString::to_string).collect();
        let request = resolve(preset, &set, &here()).unwrap();
        let per_param = |bytes: u64| bytes as f64 / request.arch.n_params() as f64;
        let memory = crate::plan::plan(&request).memory;
        let other = crate::plan::Part::Context;
        (per_param(memory.total() - memory.bytes(other)), request)
    };
    let (dpo, _) = total("dpo-demo", &["micro_batch_size=2"]);
    assert!((36.0..40.0).contains(&dpo), "{dpo}");
    let few = ["micro_batch_size=2", "rollout.side_by_side=2"];
    let (ppo, request) = total("ppo-demo", &few);
    assert!((52.0..60.0).contains(&ppo), "{ppo}");
    // An average is of the policy alone: weights, states, and on the disk.
    let averaged = [&few[..], &["train.ema_decay=0.9"]].concat();
    let (_, with) = total("ppo-demo", &averaged);
    let bytes = |request| {
        let memory = crate::plan::plan(request).memory;
        memory.bytes(crate::plan::Part::Critic)
    };
    assert_eq!(bytes(&request), bytes(&with));
    let size = |request| crate::plan::plan(request).checkpoint_bytes;
    assert_eq!(size(&with) - size(&request), 4 * request.n_trainable());
}

#[test]
fn settings_change_specs_and_not_reference_models() {
    let set = ["micro_batch_size=3".to_string()];
    assert_eq!(resolve("quickstart", &set, &here()).unwrap().micro_batch, 3);
    assert!(matches!(
        resolve("gpt2", &set, &here()),
        Err(TargetError::NoSettings(_))
    ));
}

#[test]
fn precision_and_checkpointing_are_planned_as_the_spec_says() {
    let with = |set: &[&str]| {
        let set: Vec<String> = set.iter().map(ToString::to_string).collect();
        resolve("quickstart", &set, &here()).unwrap()
    };
    let (f32, bf16) = (with(&["precision=f32"]), with(&["precision=bf16"]));
    assert_eq!(f32.precision, Precision::Fp32);
    // As asked, also where this machine would refuse it.
    assert_eq!(bf16.precision, Precision::Fp32Bf16Matmuls);
    assert_eq!(bf16.precision.matmul_dtype(), "bf16");
    let gpu = |request| on_gpu(request, Device::limit("a GPU", None)).precision;
    assert_eq!(
        (gpu(f32), gpu(bf16), gpu(with(&[]))),
        (Precision::Fp32, Precision::Mixed, Precision::Mixed)
    );
    let every = with(&["train.activation_checkpointing={every_n: {n: 2}}"]);
    assert_eq!(every.checkpointing, Checkpointing::EveryN(2));
    let activations = |how: Request| {
        let memory = crate::plan::plan(&how).memory;
        memory.bytes(crate::plan::Part::Activations)
    };
    let full = activations(with(&["train.activation_checkpointing=full"]));
    let (every, off) = (activations(every), activations(with(&[])));
    assert!(full < every && every < off, "{full} {every} {off}");
}

#[test]
fn moments_are_planned_as_the_update_rule_says_for_what_trains() {
    let with = |set: &[&str]| {
        let set: Vec<String> = set.iter().map(ToString::to_string).collect();
        let loaded = spec::load("quickstart", &set, &here()).unwrap().spec;
        let request = resolve("quickstart", &set, &here()).unwrap();
        let vocab_size = request.arch.vocab_size() as usize;
        let infos = param_infos_of(&loaded.model, vocab_size, loaded.trained());
        (request, loaded.optimizer.state_bytes(&infos))
    };
    let members = spec::schema::root().at("optimizer").unwrap().children();
    assert!(members.len() > 1);
    for (word, _) in members {
        for part in ["adapter=null", "adapter.lora.rank=4", "train.freeze=[mlp]"] {
            let (request, bytes) = with(&[&format!("optimizer={word}"), part]);
            let memory = crate::plan::plan(&request).memory;
            let n = request.n_trainable();
            assert_eq!(memory.bytes(crate::plan::Part::Optimizer), bytes, "{word}");
            assert_eq!(memory.bytes(crate::plan::Part::Gradients), 4 * n, "{word}");
        }
    }
    // Four blocks with c_attn 128 → 384, c_proj 128 → 128, c_fc 128 → 512 and c_proj 512 → 128 at rank 4.
    let (request, _) = with(&["adapter.lora.rank=4"]);
    assert_eq!(request.n_trainable(), 4 * 4 * (512 + 256 + 640 + 640));
    assert_eq!(request.rank_words().unwrap(), "rank 4");
    let own = "adapter.lora.rank_pattern={c_attn: 1}";
    for engine in ["engine=candle", "engine=torch"] {
        let (request, _) = with(&["adapter.lora.rank=4", own, engine]);
        let counted = 4 * (512 + 4 * (256 + 640 + 640));
        assert_eq!(request.n_trainable(), counted, "{engine}");
        assert_eq!(request.rank_words().unwrap(), "ranks 1 to 4");
    }
}

/// Four blocks with c_fc 128 → 512 and c_proj 512 → 128.
#[test]
fn what_is_frozen_by_name_has_no_gradients_and_no_moments() {
    use crate::plan::{Part, passes::passes, plan};
    let of = |set: &[&str]| {
        let set: Vec<String> = set.iter().map(ToString::to_string).collect();
        resolve("quickstart", &set, &here()).unwrap()
    };
    let (all, some) = (of(&[]), of(&["train.freeze=[mlp]"]));
    let (n, frozen) = (all.arch.n_params(), 4 * 2 * 128 * 512);
    assert_eq!((all.n_trainable(), some.n_trainable()), (n, n - frozen));
    let (before, after) = (plan(&all), plan(&some));
    let bytes = |part| (before.memory.bytes(part), after.memory.bytes(part));
    assert_eq!(bytes(Part::Weights), (4 * n, 4 * n));
    assert_eq!(bytes(Part::Gradients), (4 * n, 4 * (n - frozen)));
    let saved = before.checkpoint_bytes - after.checkpoint_bytes;
    assert_eq!(saved, 8 * frozen, "moments alone");
    // Their inputs have gradients; they have none.
    let learned = 6.0 - 2.0 * frozen as f64 / some.arch.n_matmul() as f64;
    assert_eq!((passes(&all), passes(&some)), (6.0, learned));
}

/// Lists of 4 to 8 numbers in rows of 48 places: 508,000 of the 614,400 places of 400 steps are tokens.
#[test]
fn packed_rows_are_counted_as_far_as_they_are_filled() {
    let of = |set: &[&str]| {
        let set: Vec<String> = set.iter().map(ToString::to_string).collect();
        resolve("sft-demo", &set, &here()).unwrap()
    };
    let request = of(&[]);
    assert!(
        (495_000..520_000).contains(&request.tokens),
        "{}",
        request.tokens
    );
    let share = request.tokens as f64 / 614_400.0;
    let filled = Some(share);
    let RowLengths::Packed { filled: found } = request.extras.rows else {
        panic!("{:?}", request.extras.rows);
    };
    assert!(
        (found.unwrap() - share).abs() < 1e-5,
        "{found:?} {filled:?}"
    );
    assert_eq!(request.row_places(), 48.0);
    // Padding is computed.
    let whole = Request {
        extras: EngineExtras {
            rows: RowLengths::Full,
            ..request.extras
        },
        tokens: 614_400,
        ..request.clone()
    };
    let flops = |r: &Request| crate::plan::work::engine_flops_per_token(r) * r.tokens as f64;
    assert!((flops(&request) / flops(&whole) - 1.0).abs() < 1e-4);
    // Other lengths are filled alike.
    let longer = crate::plan::solve::with_seq_len(&request, 96);
    assert!((longer.row_tokens() / 96.0 - share).abs() < 1e-5);
    // Steps, and passes over the data, stay as they are.
    let steps = request.tokens as f64 / request.batch_tokens() as f64;
    assert!((steps - 400.0).abs() < 1.0, "{steps}");
    assert_eq!(of(&["data.packing=stream"]).extras.rows, RowLengths::Full);
    let quickstart = resolve("quickstart", &[], &here()).unwrap();
    assert_eq!(quickstart.extras.rows, RowLengths::Full);
}

#[test]
fn checkpoints_and_their_disk_follow_the_tokens() {
    let words = ["max_steps=2", "checkpoint.every=1", "eval.every=1"].map(String::from);
    let spec = crate::spec::load("quickstart", &words, &SpecSources::default());
    let data = DataSize {
        vocab_size: 65,
        ..DataSize::default()
    };
    let mut request = of_spec(&spec.unwrap().spec, data);
    let two = crate::plan::plan(&request);
    assert_eq!(two.n_checkpoints(), 2);
    let tokens = request.tokens;
    request.set_tokens(100 * tokens);
    let many = crate::plan::plan(&request);
    assert!(many.n_checkpoints() > 2 && many.disk_bytes > two.disk_bytes);
    request.set_tokens(tokens);
    assert_eq!(crate::plan::plan(&request).n_checkpoints(), 2);
}

#[test]
fn a_run_is_planned_from_what_it_told() {
    let spec = spec::load("quickstart", &[], &here()).unwrap().spec;
    let mut head = Head {
        name: spec.name.clone(),
        method: "pretrain".into(),
        spec: spec.to_value(),
        n_params: 0,
        vocab_size: 65,
        max_steps: 0,
        batch_tokens: 0,
        epoch_tokens: 1_003_853,
        resumed_from: None,
        precision: None,
        unigram_entropy: None,
    };
    let asked = resolve("quickstart", &[], &here()).unwrap();
    assert_eq!(of_run(&head), Some(asked));
    head.spec = serde_json::json!({"from": "the future"});
    assert!(of_run(&head).is_none());
}

/// A plan of any RL spec read and tokenized all prompts there are.
#[test]
fn of_many_prompts_a_plan_reads_the_first() {
    let size = |rows: usize| {
        let words = [
            format!(
                "data.sources=[{{synthetic: {{arithmetic: {{digits: 3, operations: [add]}}}}, as: prompt, rows: {rows}}}]"
            ),
            "data.tokenizer={bpe: {vocab_size: 280}}".into(),
        ];
        let loaded = spec::load("grpo-arithmetic", &words, &here()).unwrap();
        measure(&loaded.spec).unwrap()
    };
    let (few, many) = (size(2_000), size(40_000));
    let (_, all) = few.val_prompts.unwrap();
    assert!((1_900..=2_000).contains(&all), "{all}");
    assert_eq!((many.val_prompts, many.pass_tokens), (None, None));
    assert!(many.rows.is_some_and(|rows| rows.tokens > 1.0), "{many:?}");
    assert_eq!(many.packing, few.packing);
}
