//! Short names and the names other tools use. `*` stands for the selected registry member. Options of other tools that
//! have no counterpart are listed too, with what to write instead.

use super::import::shared::{OPTIMIZERS, SCHEDULES};
use super::schema::root;
use crate::base::text::one_line;
use serde_json::{Value, json};

/// (accepted name, full path). `-` and `_` compare equal.
pub const ALIASES: &[(&str, &str)] = &[
    // short names
    ("max_steps", "train.max_steps"),
    ("epochs", "train.epochs"),
    ("warmup_ratio", "train.warmup_ratio"),
    ("lr", "optimizer.*.lr"),
    ("micro_batch_size", "train.micro_batch_size"),
    ("grad_accum_steps", "train.grad_accum_steps"),
    ("clip_norm", "train.clip_norm"),
    ("precision", "train.precision"),
    ("activation_checkpointing", "train.activation_checkpointing"),
    ("threads", "train.threads"),
    ("log_every", "train.log_every"),
    ("weight_decay", "optimizer.*.weight_decay"),
    ("beta1", "optimizer.*.beta1"),
    ("beta2", "optimizer.*.beta2"),
    ("warmup_steps", "schedule.*.warmup_steps"),
    ("min_lr", "schedule.*.min_lr"),
    ("eval_every", "eval.every"),
    ("eval_batches", "eval.batches"),
    ("patience", "eval.patience"),
    ("early_stopping_patience", "eval.patience"),
    ("save_every", "checkpoint.every"),
    ("checkpoint_every", "checkpoint.every"),
    ("sample_every", "sample.every"),
    ("keep_last", "checkpoint.keep_last"),
    ("model.from", "train.from"),
    ("resize_vocab", "train.resize_vocab"),
    ("resize_token_embeddings", "train.resize_vocab"),
    ("prompt", "sample.prompt"),
    ("tokenizer", "data.tokenizer"),
    ("val_fraction", "data.val_fraction"),
    ("val_rows", "data.val_rows"),
    ("max_rows", "data.max_rows"),
    ("max_samples", "data.max_rows"),
    ("max_train_samples", "data.max_rows"),
    ("n_layer", "model.n_layer"),
    ("n_head", "model.n_head"),
    ("n_kv_head", "model.n_kv_head"),
    ("d_model", "model.d_model"),
    ("d_ff", "model.d_ff"),
    ("seq_len", "model.seq_len"),
    // Hugging Face, LLaMA-Factory, TRL, Axolotl, LitGPT, nanoGPT, LLM-Lab
    ("learning_rate", "optimizer.*.lr"),
    ("adam_beta1", "optimizer.*.beta1"),
    ("adam_beta2", "optimizer.*.beta2"),
    ("adam_epsilon", "optimizer.*.eps"),
    ("adamw_beta1", "optimizer.*.beta1"),
    ("adamw_beta2", "optimizer.*.beta2"),
    ("adamw_eps", "optimizer.*.eps"),
    ("optim", "optimizer"),
    ("lr_scheduler_type", "schedule"),
    ("lr_scheduler", "schedule"),
    ("scheduler", "schedule"),
    ("warmup_iters", "schedule.*.warmup_steps"),
    ("batch_size", "train.micro_batch_size"),
    ("per_device_train_batch_size", "train.micro_batch_size"),
    ("gradient_accumulation_steps", "train.grad_accum_steps"),
    ("grad_clip", "train.clip_norm"),
    ("max_grad_norm", "train.clip_norm"),
    ("bf16", "train.precision"),
    ("gradient_checkpointing", "train.activation_checkpointing"),
    (
        "use_gradient_checkpointing",
        "train.activation_checkpointing",
    ),
    ("max_iters", "train.max_steps"),
    ("steps", "train.max_steps"),
    ("num_train_epochs", "train.epochs"),
    ("num_epochs", "train.epochs"),
    ("logging_steps", "train.log_every"),
    ("log_interval", "train.log_every"),
    ("eval_interval", "eval.every"),
    ("eval_iters", "eval.batches"),
    ("save_steps", "checkpoint.every"),
    ("save_total_limit", "checkpoint.keep_last"),
    ("max_seq_len", "model.seq_len"),
    ("max_seq_length", "model.seq_len"),
    ("sequence_len", "model.seq_len"),
    ("sequence_length", "model.seq_len"),
    ("cutoff_len", "model.seq_len"),
    ("max_length", "model.seq_len"),
    ("block_size", "model.seq_len"),
    ("context_length", "model.seq_len"),
    ("context", "model.seq_len"),
    ("train.max_seq_length", "model.seq_len"),
    ("n_embd", "model.d_model"),
    ("hidden_size", "model.d_model"),
    ("n_layers", "model.n_layer"),
    ("num_hidden_layers", "model.n_layer"),
    ("n_heads", "model.n_head"),
    ("num_attention_heads", "model.n_head"),
    ("n_kv_heads", "model.n_kv_head"),
    ("num_key_value_heads", "model.n_kv_head"),
    ("intermediate_size", "model.d_ff"),
    ("num_experts", "model.moe.n_expert"),
    ("num_local_experts", "model.moe.n_expert"),
    ("num_experts_per_tok", "model.moe.top_k"),
    ("moe_intermediate_size", "model.moe.d_ff"),
    ("router_aux_loss_coef", "model.moe.aux_loss_coef"),
    ("norm_topk_prob", "model.moe.norm_topk"),
    ("decoder_sparse_step", "model.moe.every"),
    ("mlp_only_layers", "model.moe.dense_blocks"),
    ("shared_expert_intermediate_size", "model.moe.shared_d_ff"),
    ("scoring_func", "model.moe.scoring"),
    ("routed_scaling_factor", "model.moe.gate_scale"),
    ("n_routed_experts", "model.moe.n_expert"),
    ("kv_lora_rank", "model.mla.kv_rank"),
    ("q_lora_rank", "model.mla.q_rank"),
    ("qk_nope_head_dim", "model.mla.nope_dim"),
    ("qk_rope_head_dim", "model.mla.rope_dim"),
    ("v_head_dim", "model.mla.v_dim"),
    ("full_attention_interval", "model.attention_every"),
    ("full_attn_idxs", "model.attention_blocks"),
    ("attn_output_gate", "model.attention_gate"),
    ("conv_L_cache", "model.mixer.short_conv.conv_len"),
    ("conv_bias", "model.mixer.short_conv.bias"),
    (
        "linear_num_key_heads",
        "model.mixer.gated_delta_net.n_key_head",
    ),
    (
        "linear_num_value_heads",
        "model.mixer.gated_delta_net.n_value_head",
    ),
    ("linear_key_head_dim", "model.mixer.gated_delta_net.key_dim"),
    (
        "linear_value_head_dim",
        "model.mixer.gated_delta_net.value_dim",
    ),
    (
        "linear_conv_kernel_dim",
        "model.mixer.gated_delta_net.conv_len",
    ),
    ("mamba_n_heads", "model.mixer.mamba2.n_head"),
    ("mamba_d_head", "model.mixer.mamba2.head_dim"),
    ("mamba_d_state", "model.mixer.mamba2.state_dim"),
    ("mamba_n_groups", "model.mixer.mamba2.n_group"),
    ("mamba_d_conv", "model.mixer.mamba2.conv_len"),
    ("mamba_conv_bias", "model.mixer.mamba2.conv_bias"),
    ("mamba_proj_bias", "model.mixer.mamba2.bias"),
    ("sliding_window", "model.sliding_window"),
    ("dropout", "model.dropout"),
    ("qk_norm", "model.qk_norm"),
    ("embedding_multiplier", "model.embedding_scale"),
    ("attention_multiplier", "model.attention_scale"),
    ("residual_multiplier", "model.residual_scale"),
    ("use_parallel_residual", "model.parallel_residual"),
    ("final_logit_softcapping", "model.logit_softcap"),
    ("attn_logit_softcapping", "model.attention_softcap"),
    ("positional_encoding", "model.position"),
    ("attention_type", "model.attention_type"),
    ("head_dim", "model.head_dim"),
    ("attention_bias", "model.attention_bias"),
    ("norm_type", "model.norm"),
    ("activation", "model.mlp"),
    ("tie_word_embeddings", "model.tie_embeddings"),
    ("vocab_size", "model.vocab_size"),
    ("norm_eps", "model.norm.*.eps"),
    ("rms_norm_eps", "model.norm.*.eps"),
    ("layer_norm_epsilon", "model.norm.*.eps"),
    ("norm_epsilon", "model.norm.*.eps"),
    ("layer_norm_eps", "model.norm.*.eps"),
    ("rope_theta", "model.position.rope.theta"),
    ("no_rope_layer_interval", "model.position.rope.nope_every"),
    ("model_name_or_path", "train.from"),
    ("base_model", "train.from"),
    ("lora_rank", "adapter.lora.rank"),
    ("lora_r", "adapter.lora.rank"),
    ("lora_alpha", "adapter.lora.alpha"),
    ("lora_dropout", "adapter.lora.dropout"),
    ("dataset", "data.path"),
    ("run_name", "name"),
    // LLM-Lab, beyond those above
    ("lion_beta1", "optimizer.lion.beta1"),
    ("lion_beta2", "optimizer.lion.beta2"),
    ("sophia_beta1", "optimizer.sophia.beta1"),
    ("sophia_beta2", "optimizer.sophia.beta2"),
    ("sophia_rho", "optimizer.sophia.rho"),
    ("muon_momentum", "optimizer.muon.momentum"),
    ("muon_nesterov", "optimizer.muon.nesterov"),
    ("policy_checkpoint", "train.from"),
    ("lora_preset", "adapter.lora.targets"),
    ("beta", "method.*.beta"),
    ("clip_range", "method.*.clip"),
    ("vf_coef", "method.*.value_coef"),
    ("gamma", "method.*.gamma"),
    ("gae_lambda", "method.*.lambda"),
    ("ppo_epochs", "rollout.epochs"),
    ("group_size", "rollout.group_size"),
    ("grpo_temperature", "rollout.temperature"),
    ("temperature", "rollout.temperature"),
    ("top_k", "rollout.top_k"),
    ("top_p", "rollout.top_p"),
    ("max_new_tokens", "rollout.max_new_tokens"),
];

/// Names that mean something else in one member than `*` with their target says: registry, member, name, settings.
pub const OF_MEMBERS: &[(&str, &str, &str, &[&str])] = &[
    ("method", "dpo", "clip_range", &["beta"]),
    ("method", "grpo", "clip_range", &["clip_low", "clip_high"]),
    ("optimizer", "muon", "adam_beta1", &["adamw_beta1"]),
    ("optimizer", "muon", "adam_beta2", &["adamw_beta2"]),
    ("optimizer", "muon", "adam_epsilon", &["adamw_eps"]),
];

/// Settings of completions that are those of samples where a method trains on no completions of its own.
pub const OF_SAMPLES: &[(&str, &str)] = &[
    ("temperature", "sample.sampling.temperature"),
    ("top_k", "sample.sampling.top_k"),
    ("top_p", "sample.sampling.top_p"),
    ("max_new_tokens", "sample.sampling.max_new_tokens"),
];

/// (name, what to do instead).
const ELSEWHERE: &[(&str, &str)] = &[
    (
        "logits_scaling",
        "logits are multiplied here, not divided: set model.logit_scale to 1 / logits_scaling",
    ),
    (
        "fp16",
        "fp16 with loss scaling is not supported: set train.precision to auto, f32 or bf16",
    ),
    (
        "mixed_precision",
        "set train.precision: auto, f32 or bf16; weights and moments stay f32 in each",
    ),
    (
        "dtype",
        "set train.precision: auto, f32 or bf16; weights and moments stay f32 in each",
    ),
    (
        "torch_dtype",
        "set train.precision: auto, f32 or bf16; weights and moments stay f32 in each",
    ),
    ("output_dir", "set it on the command line: --runs-dir DIR"),
    (
        "resume_from_checkpoint",
        "set it on the command line: --resume RUN",
    ),
    (
        "eval_steps",
        "use eval_every for the interval, eval_batches for the amount",
    ),
    (
        "device",
        "set engine: torch trains on GPUs, candle on the CPU, where train.threads limits its cores; auto decides",
    ),
    (
        "tokenizer_name",
        "a start model (train.from) brings its tokenizer; -s 'data.tokenizer={file: {path: FOLDER}}' reads another, of a model folder",
    ),
    (
        "save_best_only",
        "the best checkpoint is always kept, beside the checkpoint.keep_last newest ones",
    ),
    (
        "use_lora",
        "-s adapter=lora trains adapters, -s adapter=none all weights",
    ),
    (
        "reward_model_name",
        "set -s 'rewards=[{model: {path: FOLDER}}]', and method.ppo.critic_from for a critic that begins with its weights",
    ),
    (
        "reference_checkpoint",
        "the reference is the model that the run starts from (train.from); method.dpo.reference sets how it is kept",
    ),
    (
        "mini_batch_size",
        "set train.micro_batch_size to it; a batch of n mini-batches is rollout.steps=n for PPO and GRPO, train.grad_accum_steps=n for DPO",
    ),
    (
        "bs",
        "did you mean train.micro_batch_size? An optimizer step has that many rows times train.grad_accum_steps",
    ),
    (
        "train_batch_size",
        "did you mean train.micro_batch_size? An optimizer step has that many rows times train.grad_accum_steps",
    ),
    (
        "global_batch_size",
        "it is train.micro_batch_size times train.grad_accum_steps: set both",
    ),
    (
        "warmup",
        "did you mean warmup_steps (a number of steps) or warmup_ratio (their share of the run)?",
    ),
    ("dataset_path", "did you mean data.path?"),
    ("data_path", "did you mean data.path?"),
    (
        "dataset_name",
        "did you mean data.path? It takes ids of the hub, too",
    ),
    ("train_file", "did you mean data.path?"),
    (
        "train_on_completions",
        "set data.train_on: completion, assistant or all; auto supervises completions already",
    ),
    (
        "checkpoint_dir",
        "set it on the command line: --runs-dir DIR; train.from=MODEL names the model to start from",
    ),
    ("clip", "did you mean clip_norm?"),
    ("heads", "did you mean n_head?"),
    ("layers", "did you mean n_layer?"),
    ("width", "did you mean model.d_model?"),
    ("grad_accum", "did you mean train.grad_accum_steps?"),
    (
        "batch",
        "did you mean train.micro_batch_size? An optimizer step has that many rows times train.grad_accum_steps",
    ),
    (
        "extends",
        "extends goes at the top level of a file, not in -s",
    ),
];

/// The full path behind another name. `path` is the dotted path of an unknown key: all of it may be an alias, or its
/// last segment may be one whose target is in the same section.
pub fn resolve(path: &str) -> Option<&'static str> {
    let exact = ALIASES.iter().find(|(name, _)| *name == path);
    let (section, key) = path.rsplit_once('.').unwrap_or(("", path));
    let within = || {
        ALIASES
            .iter()
            .find(|(name, target)| *name == key && lies_in(target, section))
    };
    exact.or_else(within).map(|(_, target)| *target)
}

/// Settings of a registry's member that a name stands for there, in place of its target.
pub fn in_member(registry: &str, member: &str, name: &str) -> Option<&'static [&'static str]> {
    let mut of_members = OF_MEMBERS.iter();
    let found =
        of_members.find(|(at, of, other, _)| (*at, *of, *other) == (registry, member, name));
    found.map(|(.., settings)| *settings)
}

/// The setting of samples that a name means where no completions are trained on.
pub fn of_samples(name: &str) -> Option<&'static str> {
    let found = OF_SAMPLES.iter().find(|(other, _)| *other == name);
    found.map(|(_, path)| *path)
}

/// Names of this program's own, which are the last part of what they stand for, with that.
pub fn short_names() -> impl Iterator<Item = (&'static str, &'static str)> {
    let own = |(name, target): &&(&str, &str)| target.rsplit('.').next() == Some(*name);
    ALIASES.iter().filter(own).copied()
}

/// The meaning of `true` or `false` for a name that other tools use as a switch and we do not.
pub fn switch(said: &str, on: bool) -> Option<&'static str> {
    let key = said.rsplit('.').next().unwrap_or(said).replace('-', "_");
    Some(match (key.as_str(), on) {
        ("bf16", true) => "bf16",
        ("bf16", false) => "f32",
        ("attention_bias", true) => "all",
        ("attention_bias", false) => "none",
        (checkpointing, on) if checkpointing.ends_with("_checkpointing") => {
            if on {
                "full"
            } else {
                "none"
            }
        }
        _ => return None,
    })
}

/// Members under the names that papers and other tools have for them: where, that name, ours.
const OTHER_NAMES: &[(&str, &str, &str)] = &[
    ("method", "cpt", "pretrain"),
    ("method", "continued_pretraining", "pretrain"),
    ("method", "rm", "reward"),
    ("optimizer", "schedule_free_adamw", "schedule_free"),
    ("schedule", "inverse_square_root", "inverse_sqrt"),
];

/// Scalings of rotary positions, which other tools name as positions.
const STRETCHED: [&str; 5] = ["linear", "ntk", "yarn", "llama3", "longrope"];

/// The meaning of a value where we have no member of that name: another member with settings. `settings` are those
/// given with the value.
pub fn member(path: &str, word: &str, settings: Value) -> Option<Value> {
    let other = OTHER_NAMES
        .iter()
        .find(|(at, name, _)| *at == path && *name == word);
    if let Some((.., ours)) = other {
        return Some(json!({*ours: settings}));
    }
    if let Some(ours) = of_trainer(path, word) {
        return Some(json!({ours: settings}));
    }
    if (path, word) == ("method", "ipo") {
        let mut settings = settings;
        settings
            .as_object_mut()?
            .insert("loss".into(), json!("ipo"));
        return Some(json!({"dpo": settings}));
    }
    (path == "model.position" && STRETCHED.contains(&word))
        .then(|| json!({"rope": {"scaling": {word: settings}}}))
}

/// Words besides its own that a choice takes at this path.
pub(super) fn other_words(path: &str) -> Vec<&'static str> {
    let others = OTHER_NAMES.iter().filter(|(at, ..)| *at == path);
    let mut words: Vec<&str> = others.map(|(_, name, _)| *name).collect();
    let trainer = [("optimizer", OPTIMIZERS), ("schedule", SCHEDULES)];
    for (at, table) in trainer {
        let known = table.iter().map(|(theirs, _)| *theirs);
        let known = known.filter(|word| at == path && of_trainer(path, word).is_some());
        words.extend(known);
    }
    words.extend((path == "method").then_some("ipo"));
    words.extend(
        (path == "model.position")
            .then_some(STRETCHED)
            .into_iter()
            .flatten(),
    );
    words
}

/// Optimizers and schedules as Hugging Face's trainer names them (`adamw_torch`, `constant_with_warmup`), those alone that have
/// another name here: `constant` is a schedule with a warm-up here.
fn of_trainer(path: &str, word: &str) -> Option<&'static str> {
    let table = match path {
        "optimizer" => OPTIMIZERS,
        "schedule" => SCHEDULES,
        _ => return None,
    };
    let has = |name: &str| {
        root()
            .at(path)
            .is_some_and(|node| node.child(name).is_some())
    };
    let (_, ours) = table.iter().find(|(theirs, _)| *theirs == word)?;
    (!has(word) && has(ours)).then_some(*ours)
}

/// What to write instead of a key that only other tools have.
pub fn elsewhere(path: &str) -> Option<&'static str> {
    let key = path.rsplit('.').next().unwrap_or(path);
    ELSEWHERE
        .iter()
        .find(|(name, _)| *name == key)
        .map(|(_, hint)| *hint)
}

/// What people know as a member of its own and is a setting here: where they say it, the word, and what stands for it.
const MEMBERS: &[(&str, &str, &str)] = &[
    (
        "adapter",
        "qlora",
        "-s adapter=lora -s train.from=MODEL.gguf: the file's weights stay quantized under the adapter",
    ),
    ("adapter", "dora", "-s adapter.lora.dora=true"),
    ("adapter", "rslora", "-s adapter.lora.rslora=true"),
];

/// The setting that a text means that was given to a whole section: `data=foo.txt`, `model=org/name`.
pub fn key_in_section(path: &str, value: &Value) -> Option<String> {
    let word = one_line(value.as_str()?);
    let key = match path {
        "data" => "data.path",
        "model" => "train.from",
        "eval" => {
            return Some("eval.tasks=[TASK] asks tasks, eval.every=N sets the interval".into());
        }
        "checkpoint" => {
            return Some(format!(
                "train.from={word} starts from a model; checkpoint.every=N sets how often the run is saved"
            ));
        }
        _ => return None,
    };
    Some(format!("{key}={word}"))
}

/// What to say to somebody who names such a member of the registry at `path`.
pub fn member_elsewhere(path: &str, word: &str) -> Option<&'static str> {
    let known = MEMBERS
        .iter()
        .find(|(at, name, _)| *at == path && *name == word);
    known.map(|(.., hint)| *hint)
}

/// Whether a setting lies in a section.
pub(super) fn lies_in(target: &str, section: &str) -> bool {
    let mut target = target.split('.');
    !section.is_empty()
        && section
            .split('.')
            .all(|s| target.next().is_some_and(|t| t == s || t == "*"))
}

#[cfg(test)]
mod tests;
