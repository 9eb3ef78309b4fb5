//! Questions and their answers.

use super::*;
use crate::diagnosis::RULES;

/// Every page and area that is not a symptom, in words of people.
const QUESTIONS: &[(&str, &str)] = &[
    ("can this machine train it?", "fit"),
    ("which method?", "method"),
    ("why unstable?", "unstable"),
    ("why did my loss spike at step 400", "unstable"),
    ("why a crash, OOM, hang?", "crash"),
    ("reasoning on a budget?", "reasoning"),
    ("how much data?", "data"),
    ("how many tokens do I need", "data"),
    ("overfitting or memorization?", "overfitting"),
    ("my loss is flat", "learning"),
    ("unstable", "unstable"),
    ("how to resume", "crash"),
    ("how do i resume a run", "crash"),
    ("can i continue trainig", "crash"),
    ("early stopping", "overfitting"),
    ("how long will it take", "fit"),
    ("how much does it cost to train llama-3.1-8b on H100", "fit"),
    ("train on my own text", "data"),
    ("overfiting", "overfitting"),
    ("can i train qwen2.5-0.5b with lora", "fit"),
    ("validation loss goes up", "overfitting"),
    ("which gpu do I need", "fit"),
    ("the loss goes to nan", "unstable"),
    ("what learning rate for dpo", "settings"),
    ("how do I choose lora rank", "settings"),
    ("what batch size", "settings"),
    ("why is it not learning", "learning"),
    ("dpo or kto", "method"),
    ("why is my loss spiking", "unstable"),
    ("loss exploded", "unstable"),
    ("loss goes up", "unstable"),
    ("which beta for dpo", "settings"),
    ("template wrong", "gibberish"),
    ("tokenizer mismatch", "tokenizer_mismatch"),
    ("eval differs from lm-eval", "lm_eval_differs"),
    ("yarn", "model.position.rope.scaling.yarn"),
    ("how do I extend the context", "long_context"),
    ("quantized model is worse", "quantized_worse"),
    (
        "exported model answers differently in ollama",
        "export_differs",
    ),
    ("slurm job ends at the time limit", "slurm"),
    ("generation is slow", "generation_slow"),
    (
        "what is perplexity of two models with different tokenizers",
        "perplexity_compare",
    ),
    ("how do I export to gguf", "export"),
    ("how do I chat", "chat"),
    ("how do I make it answer in json", "serve"),
    ("merge lora", "merge"),
    ("xyzzy", "none"),
    ("how do I bake a cake", "none"),
    ("who won the election", "none"),
    ("reward does not increase", "reasoning"),
    ("my run crashed", "crash"),
    ("loss is nan", "unstable"),
    ("is my model overfitting", "overfitting"),
    ("which optimizer should i use", "settings"),
    ("what is the best lora rank", "settings"),
    ("should i use lora or full finetuning", "method"),
    ("how much memory does a 7b model need", "fit"),
    ("my gpu is at 30% utilization", "low_utilization"),
    ("the answers are too long", "length_explodes"),
    ("model outputs gibberish after dpo", "dpo_gibberish"),
    ("model forgets how to chat after finetuning", "chat_lost"),
    ("catastrophic forgetting", "method"),
    ("my loss is nan at step 1", "nan_at_start"),
    ("docker container has no gpu", "gpu_not_visible"),
    ("process killed", "crash"),
    ("disk full", "crash"),
    ("nccl timeout", "rank_hang"),
    ("weather in berlin", "none"),
    ("write me a poem", "none"),
    ("how to fix a flat tire", "none"),
    ("early stopping", "overfitting"),
    ("ollama gives wrong answers", "export_differs"),
    ("my adapter does not load in peft", "adapter_not_loading"),
    ("what is a good temperature for grpo", "settings"),
    ("my sft model only writes empty answers", "empty_answers"),
    ("cuda out of memory", "oom_first_step"),
    (
        "CUDA error: device-side assert triggered",
        "id_out_of_range",
    ),
    ("dataloader worker is killed by signal: Bus error", "shm"),
    ("loss does not go down", "learning"),
    ("validation loss rises", "overfitting"),
    ("too many refusals", "over_refusal"),
    ("DPO rewards chosen negative", "displacement_entry"),
    ("gradient explodes", "unstable"),
    ("how do I make it faster", "low_utilization"),
    ("weights not updating", "zero_grad_norm"),
    ("wrong bos token", "gibberish"),
    ("double bos", "gibberish"),
    ("how many epochs", "settings"),
    ("how much vram for a 70b", "fit"),
    ("what is a good loss", "none"),
    ("which preset should i use", "none"),
    ("training is slow", "low_utilization"),
    ("tokens per second drops over time", "throttling"),
    ("how do I stop a run", "stop"),
    ("where are my checkpoints", "runs"),
    ("loss spikes after resuming", "resume_jump"),
    ("gradient clipping", "unstable"),
    ("grpo reward stuck at 0", "zero_advantage"),
    ("learning rate too high", "unstable"),
    ("convert my axolotl config", "import"),
    ("how do I watch a transformers run", "watch"),
    ("show wandb logs", "watch"),
    ("write an html report", "report"),
    ("reward goes up but answers get worse", "reward_hacking"),
    ("reward does not increase", "reasoning"),
    ("reasoning on a budget", "reasoning"),
    ("can I do grpo on a 8b model with 24 GB", "fit"),
    ("does a 7b fit in 16 gb", "fit"),
];

/// The troubleshooting catalogue: environment, data, optimization, distributed, alignment, adapters.
const SYMPTOMS: &[(&str, &str)] = &[
    ("import error segfault at start", "import_error"),
    ("no kernel image for device", "no_kernel_image"),
    ("driver library mismatch", "driver_mismatch"),
    ("cuda not visible in container", "gpu_not_visible"),
    ("bus error in loader", "shm"),
    ("shm bus error", "shm"),
    ("exit 137 without traceback", "killed_137"),
    ("illegal instruction", "illegal_instruction"),
    ("gpu oom at step 0", "oom_first_step"),
    ("oom after many steps", "oom_later"),
    ("out of memory only in evaluation", "oom_eval"),
    ("oom at the first optimizer step", "oom_optimizer"),
    ("slow, gpu utilization below 50 %", "low_utilization"),
    ("step time drifts up", "throttling"),
    ("periodic stalls", "stalls"),
    ("hang at init", "hang_at_init"),
    ("xid 79", "xid"),
    ("uncorrectable ecc error", "xid"),
    ("corrupt last checkpoint", "damaged_checkpoint"),
    ("inf in fp16 on an old gpu", "fp16_overflow"),
    ("loss stuck at ln V", "loss_at_ln_v"),
    ("loss drops to 0 in pretraining", "loss_drops_to_zero"),
    ("loss nan on some batches", "nan_some_batches"),
    ("model never stops", "never_stops"),
    (
        "gibberish at inference although the loss is fine",
        "gibberish",
    ),
    ("saw-tooth loss per epoch", "saw_tooth"),
    ("loss spike at the same sample", "spikes_same_rows"),
    ("validation loss far below train loss", "val_below_train"),
    (
        "val loss far above training loss from the start",
        "val_above_from_start",
    ),
    ("benchmark too good", "contamination"),
    ("mojibake", "mojibake"),
    ("mixture weights are off", "mixture_off"),
    ("vocab id out of range", "id_out_of_range"),
    ("packing hurts quality", "packing"),
    ("answers truncated by long prompts", "truncated_answers"),
    ("verbatim output of duplicated rows", "verbatim"),
    ("nan at the start", "nan_at_start"),
    ("divergence after thousands of steps", "late_divergence"),
    ("a single spike that recovers", "spike_recovers"),
    ("spike with no recovery", "spike_no_recovery"),
    ("high plateau", "plateau"),
    ("plateau near the noise", "noise_plateau"),
    ("slow start of the training, warm-up too long", "slow_start"),
    ("loss rises at resume", "resume_jump"),
    ("train loss falls but validation loss rises", "overfitting"),
    ("grad norm 0", "zero_grad_norm"),
    ("clip rate above 30 %", "clipped_often"),
    ("result changes with gradient accumulation", "accumulation"),
    ("bf16 weights stop moving", "bf16_stalls"),
    ("deep layers idle", "idle_blocks"),
    ("muon makes no progress", "muon_slow"),
    ("muon unstable", "muon_unstable"),
    ("sophia blows up", "sophia"),
    ("lion diverges", "lion"),
    ("schedule-free eval is bad", "schedule_free"),
    ("moe router collapse", "moe_collapse"),
    ("one expert is hot", "moe_collapse"),
    ("repeats itself", "repeats"),
    ("my model repeats itself", "repeats"),
    ("runs differ with the same seed", "seed_differs"),
    ("rank hang nccl", "rank_hang"),
    ("hang in the middle of the run", "rank_hang"),
    ("identical loss on all ranks", "same_loss_ranks"),
    ("ranks diverge", "ranks_diverge"),
    ("poor scaling over gpus", "scaling"),
    ("one slow rank", "slow_rank"),
    (
        "loss depends on the number of gpus",
        "loss_depends_on_ranks",
    ),
    ("zero-3 is slow", "zero3_slow"),
    ("save hangs", "save_hangs"),
    ("same order every epoch", "same_order"),
    ("silent data corruption", "silent_corruption"),
    ("dpo loss not 0.6931", "dpo_start"),
    ("dpo accuracy is 1 at once", "dpo_accuracy_one"),
    ("both log-probabilities fall", "displacement_entry"),
    ("dpo output is gibberish", "dpo_gibberish"),
    ("dpo loss flat", "dpo_flat"),
    ("model refuses harmless questions", "over_refusal"),
    ("over-refusal", "over_refusal"),
    ("ppo reward flat", "reward_flat"),
    ("reward hacking", "reward_hacking"),
    ("reward up, quality down", "reward_hacking"),
    ("reward goes up but answers get worse", "reward_hacking"),
    ("kl negative at step 1", "kl_first_step"),
    ("kl runaway", "kl_runaway"),
    ("value loss flat, explained variance below 0", "critic_flat"),
    ("ratio not 1 on the first inner step", "ratio_not_one"),
    ("grpo zero advantage", "zero_advantage"),
    ("entropy collapse", "entropy_collapse"),
    (
        "length explodes and answers are truncated",
        "length_explodes",
    ),
    ("answers become empty", "empty_answers"),
    ("reward 0 although answers are right", "verifier_parse"),
    ("kto unstable", "kto_unstable"),
    ("rollout takes 80 % of the step", "rollout_slow"),
    ("language mixing in cot", "language_mixing"),
    ("lora shows no improvement", "lora_no_improvement"),
    ("merged model differs", "merged_differs"),
    ("adapter won't load", "adapter_not_loading"),
    ("new special tokens are ignored", "new_tokens_ignored"),
    ("lora takes more memory than planned", "lora_memory"),
    ("qlora slow", "qlora_slow"),
    ("chat ability lost", "chat_lost"),
    ("raising r hurts", "rank_hurts"),
    ("dpo after sft lora does not start at ln 2", "dpo_on_lora"),
    ("gpt-2 lora has the wrong shape", "gpt2_conv1d"),
];

/// The id of the best answer.
fn best(question: &str) -> String {
    let found = ask(question, &[]);
    found
        .hits
        .first()
        .map_or("none".into(), |hit| hit.id().to_string())
}

#[test]
fn questions_lead_to_their_answers() {
    assert!(QUESTIONS.len() >= 60 && SYMPTOMS.len() >= 95);
    let wrong: Vec<String> = [QUESTIONS, SYMPTOMS]
        .concat()
        .into_iter()
        .filter(|(question, wanted)| best(question) != *wanted)
        .map(|(question, wanted)| format!("{question}: {} in place of {wanted}", best(question)))
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_entry_answers_its_own_title_and_its_id() {
    let wrong =
        entries().filter(|entry| best(entry.id) != entry.id || best(entry.title) != entry.id);
    let wrong: Vec<(&str, String, String)> = wrong
        .map(|entry| (entry.id, best(entry.id), best(entry.title)))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_rule_and_metric_can_be_asked_for() {
    let answers = |question: &str, kind: &str, id: &str| {
        let found = ask(question, &[]);
        let shown = found.hits.iter().take(found.whole);
        shown
            .map(|hit| (hit.kind(), hit.id()))
            .any(|hit| hit == (kind, id))
    };
    for rule in RULES {
        let id = rule.entry.id;
        // A page or an entry of that name has the rule's words or explains it.
        let explained = pages()
            .iter()
            .any(|page| page.id == id && page.rules.contains(&id));
        assert!(explained || answers(id, "rule", id), "{id}");
        let words = id.replace('_', " ");
        assert!(!ask(&words, &[]).hits.is_empty(), "{words}");
    }
    for metric in crate::metrics::METRICS {
        assert!(answers(metric.id, "metric", metric.id), "{}", metric.id);
        let question = format!("what is {}?", metric.id);
        assert!(answers(&question, "metric", metric.id), "{question}");
    }
    for (asked, id) in [
        ("gradient norm", "grad_norm"),
        ("val/grad_norm", "grad_norm"),
        ("rewards/exact/mean", "rewards/NAME/mean"),
        ("eval/pass@8", "eval/pass@K"),
        ("eval/hellaswag", "eval/NAME"),
        ("logps/chosen", "logps/chosen"),
    ] {
        let more = [
            (OF_STEP_ID, "Held-out pass@K"),
            ("rewards/NAME/mean", "Reward NAME"),
        ];
        let more = more.map(|(id, title)| crate::wire::MetricInfo {
            id: id.into(),
            title: title.into(),
            ..crate::metrics::METRICS[0].info()
        });
        let found = ask(asked, &more);
        assert!(
            found.hits.iter().any(|hit| hit.id() == id),
            "{asked}: {:?}",
            found.hits
        );
    }
}

const OF_STEP_ID: &str = "eval/pass@K";

#[test]
fn settings_answer_with_their_words() {
    for (asked, path) in [
        ("lora.alpha", "adapter.lora.alpha"),
        ("what is alpha", "adapter.lora.alpha"),
        ("lora_alpha", "adapter.lora.alpha"),
        ("what does grad_accum_steps do?", "train.grad_accum_steps"),
        ("explain dpo", "method.dpo"),
        ("beta", "method.dpo.beta"),
        ("optimizer.muon.lr=0.02", "optimizer.muon.lr"),
        ("per_device_train_batch_size", "train.micro_batch_size"),
        ("yarn", "model.position.rope.scaling.yarn"),
    ] {
        let found = ask(asked, &[]);
        let shown: Vec<&str> = found.hits.iter().take(found.whole).map(Hit::id).collect();
        assert!(shown.contains(&path), "{asked}: {shown:?}");
    }
    let alpha = ask("what is alpha", &[]).hits[0].text();
    assert!(alpha.contains("scaled by alpha / rank"), "{alpha}");
    // What follows the word's own meaning is what helps.
    let yarn = ask("yarn", &[]);
    assert!(
        yarn.hits.iter().any(|hit| hit.id() == "long_context"),
        "{yarn:?}"
    );
}

#[test]
fn what_nothing_answers_is_asked_back() {
    for (asked, near) in [("grad_nrom", "grad_norm"), ("kl_runawy", "kl_runaway")] {
        let found = ask(asked, &[]);
        let hit = found.hits.first().map(|hit| hit.id().to_string());
        assert_eq!(hit.or(found.near), Some(near.into()), "{asked}");
    }
    let found = ask("xyzzy", &[]);
    assert!(
        found.hits.is_empty() && found.guesses.is_empty() && found.near.is_none(),
        "{found:?}"
    );
}

#[test]
fn findings_have_pages_and_pages_name_what_exists() {
    let pages = pages();
    for rule in [
        "diverged",
        "overfitting",
        "not_learning",
        "reward_hacking",
        "data_wait",
    ] {
        assert!(pages.iter().any(|p| p.rules.contains(&rule)), "{rule}");
    }
    for page in &pages {
        for rule in &page.rules {
            assert!(
                RULES.iter().any(|r| r.entry.id == *rule),
                "{}: {rule}",
                page.id
            );
        }
        for other in &page.see {
            assert!(pages.iter().any(|p| p.id == *other), "{}: {other}", page.id);
        }
    }
}

/// Numbers that the code has as well are written as it has them.
#[test]
fn numbers_are_those_of_plans_metrics_and_reviews() {
    use crate::metrics::texts::CODEC;
    use crate::plan::scheme::{Precision, UpdateState, bytes_per_param};
    let bytes = bytes_per_param(Precision::Mixed, UpdateState::AdamW).sum();
    let codec = CODEC.band.and_then(|band| band.high).unwrap();
    for (page, words) in [
        (
            "fit",
            format!("mixed precision takes {bytes} bytes for each parameter"),
        ),
        (
            "data",
            format!(
                "about {} tokens for each parameter",
                crate::plan::scaling::TOKENS_PER_PARAM
            ),
        ),
        ("data", format!("Up to {} passes", crate::spec::GOOD_PASSES)),
        (
            "overfitting",
            format!("a benchmark above {codec} is contaminated"),
        ),
    ] {
        let body = pages().into_iter().find(|p| p.id == page).unwrap().body;
        assert!(body.contains(&words), "{page}: {words}");
    }
}

#[test]
fn every_statement_has_a_source_and_every_mark_is_filled() {
    let subject = Subject::default();
    for page in pages() {
        for line in page.body.lines().filter(|line| line.starts_with("- ")) {
            assert!(
                line.contains("](") || line.starts_with("- {"),
                "{}: no source: {line}",
                page.id
            );
        }
        for mark in page.marks() {
            assert!(subject.knows(mark), "{}: {{{mark}}} is no fact", page.id);
        }
        let shown = page.fill(&subject);
        assert!(!shown.text.contains('{'), "{}: {}", page.id, shown.text);
    }
}
