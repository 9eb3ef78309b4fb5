//! Ids of metrics in `values` on the wire: every id that more than one file reads or writes. What a metric
//! means (title, unit, direction) is in the table of its room; `tests/docs.rs` compares these ids with those tables.

/// Prefix of readings on held-out data.
pub const VAL: &str = "val/";
/// Prefix of losses on sets of `eval.extra`.
pub const EXTRA: &str = "extra/";
/// Prefix of scores of `eval.tasks` and of answers to held-out prompts.
pub const EVAL: &str = "eval/";
/// Prefix of standard errors of the scores of `eval.tasks`.
pub const EVAL_STDERR: &str = "eval_stderr/";

/// The loss on a set of `eval.extra`.
pub fn of_extra_set(name: &str) -> String {
    format!("{EXTRA}{name}")
}

// Of every training.
pub const TRAIN_LOSS: &str = "train/loss";
pub const GRAD_NORM: &str = "grad_norm";
pub const ENTROPY: &str = "entropy";
pub const TOKEN_ACCURACY: &str = "mean_token_accuracy";
pub const LR: &str = "lr";
pub const CLIPPED: &str = "clipped";
pub const UPDATE_RATIO: &str = "update_ratio";
/// Of Sophia.
pub const UNCLIPPED: &str = "unclipped";
pub const EPOCHS: &str = "epochs";
pub const TOK_PER_SEC: &str = "tok_per_sec";
pub const STEP_MS: &str = "step_ms";
/// Model FLOPs utilization, a share of 1.
pub const MFU: &str = "mfu";
pub const DATA_WAIT: &str = "data_wait";
pub const REFERENCE_SHARE: &str = "reference_share";
pub const VAL_LOSS: &str = "val/loss";
pub const VAL_PPL: &str = "val/ppl";
pub const VAL_BPB: &str = "val/bpb";
pub const VAL_TOKEN_ACCURACY: &str = "val/mean_token_accuracy";

// Of models with experts.
pub const EXPERT_LOAD: &str = "expert_load";
pub const EXPERT_ENTROPY: &str = "expert_entropy";
pub const AUX_LOSS: &str = "aux_loss";
pub const Z_LOSS: &str = "z_loss";
/// Readings of models with experts only.
pub const OF_EXPERTS: [&str; 4] = [EXPERT_LOAD, EXPERT_ENTROPY, AUX_LOSS, Z_LOSS];

// Of methods on pairs and on judged answers.
pub const CHOSEN: &str = "rewards/chosen";
pub const REJECTED: &str = "rewards/rejected";
pub const MARGINS: &str = "rewards/margins";
pub const ACCURACIES: &str = "rewards/accuracies";
pub const LOGPS_CHOSEN: &str = "logps/chosen";
/// Of CPO and ORPO, and of DPO with a likelihood term.
pub const NLL_LOSS: &str = "nll_loss";
/// Of ORPO.
pub const LOG_ODDS: &str = "log_odds_chosen";
pub const LOG_ODDS_RATIO: &str = "log_odds_ratio";
pub const VAL_ACCURACIES: &str = "val/rewards/accuracies";
/// What a judge would reach that always prefers the longer answer.
pub const VAL_LENGTH_ACCURACIES: &str = "val/rewards/length_accuracies";
pub const VAL_MARGINS: &str = "val/rewards/margins";
/// KL from the reference.
pub const KL: &str = "kl";

// Of RL methods.
/// Of the sampler's log-probabilities from the trainer's.
pub const LOGP_DIFFERENCE: &str = "sampling/logp_difference";
/// Share of held-out prompts whose first answer is right.
pub const PASS_AT_1: &str = "eval/pass@1";
/// Mean reward of answers to held-out prompts.
pub const EVAL_REWARD: &str = "eval/reward";
pub const REWARD: &str = "reward";
/// The surrogate that a step minimizes: no likelihood.
pub const POLICY_LOSS: &str = "policy_loss";
pub const REWARD_STD: &str = "reward_std";
pub const SAME_REWARDS: &str = "frac_reward_zero_std";
pub const ANSWER_LENGTH: &str = "completions/mean_length";
pub const CUT_ANSWERS: &str = "completions/clipped_ratio";
pub const REPETITION: &str = "completions/repetition";
pub const UNREAD: &str = "completions/unread_ratio";
pub const UNFINISHED_THOUGHTS: &str = "completions/unfinished_thoughts";

// Of PPO.
pub const APPROX_KL: &str = "policy/approxkl_avg";
pub const CLIP_FRACTION: &str = "policy/clipfrac_avg";
pub const VALUE_LOSS: &str = "loss/value_avg";
pub const EXPLAINED: &str = "val/var_explained";

// Of probes.
pub const LOSS_DISPERSION: &str = "loss_dispersion";
pub const GRAD_CONSISTENCY: &str = "grad_consistency";
pub const NOISE_SCALE: &str = "noise_scale";
pub const DEAD_UNITS: &str = "dead_units/layer";
pub const GRAD_BY_LAYER: &str = "grad_norm/layer";
pub const UPDATE_BY_LAYER: &str = "update_ratio/layer";
pub const ATTENTION_ENTROPY: &str = "attn_entropy/layer";
pub const ATTENTION_LARGEST: &str = "attn_logit_max/layer";
pub const WEIGHT_STD: &str = "weight_std/layer";
pub const ACT_RMS: &str = "act_rms/layer";
pub const ALPHA: &str = "alpha/layer";
pub const SPECTRAL_NORM: &str = "spectral_norm/layer";
pub const COLLAPSE_RESIDUAL: &str = "collapse_residual";
pub const COLLAPSE_NOISE: &str = "collapse_residual/noise";

/// Readings of the machine.
pub mod machine {
    /// Prefix of host readings.
    pub const HOST: &str = "host/";
    /// Prefix of GPU readings: `gpu/N/`.
    pub const GPU: &str = "gpu/";
    pub const CPU: &str = "host/cpu_percent";
    pub const RAM_USED: &str = "host/ram_used_bytes";
    pub const RAM_TOTAL: &str = "host/ram_total_bytes";
    /// Of the training process.
    pub const RSS: &str = "host/rss_bytes";
    /// Main memory of the training process's descendants: ranks, reward programs.
    pub const STARTED: &str = "host/started_bytes";
    pub const SWAP: &str = "host/swap_used_bytes";
    pub const DISK_READ: &str = "host/disk_read";
    pub const DISK_WRITE: &str = "host/disk_write";
    pub const NET_IN: &str = "host/net_in";
    pub const NET_OUT: &str = "host/net_out";
    pub const FIRST_GPU_UTIL: &str = "gpu/0/util";
    /// Of the run's own processes.
    pub const FIRST_GPU_OWN_MEMORY: &str = "gpu/0/own_memory_bytes";
    /// Per-GPU ids, after `gpu/N/`.
    pub const GPU_UTIL: &str = "util";
    pub const GPU_MEMORY: &str = "memory_used_bytes";
    pub const GPU_TEMPERATURE: &str = "temperature";
    pub const GPU_POWER: &str = "power";
    pub const GPU_CLOCK: &str = "sm_clock";
    pub const GPU_THROTTLE: &str = "throttle";
    /// Memory used by the sampling process itself.
    pub const GPU_OWN_MEMORY: &str = "own_memory_bytes";

    /// `gpu/0/util`
    pub fn gpu(index: u32, what: &str) -> String {
        format!("{GPU}{index}/{what}")
    }
}

/// Readings of the ranks of a PyTorch run.
pub mod ranks {
    /// What their ids begin with.
    pub const PREFIX: &str = "rank/";
    /// Ranks with their own readings; in a larger world only the first ones.
    pub const MOST: usize = 64;

    /// Milliseconds of a rank's forward passes per step: the part of a step in which it does not wait for others (with `ddp`).
    pub fn forward(rank: usize) -> String {
        format!("{PREFIX}{rank}/forward_ms")
    }
}
