//! Ids of the metrics that rules read, as on the wire.

pub const LOSS: &str = "train/loss";
pub const VAL_LOSS: &str = "val/loss";
/// Begins the ids of the losses on sets of eval.extra.
pub const EXTRA: &str = "extra/";
/// Begin the ids of the scores of eval.tasks, and of their standard errors.
pub const TASK: &str = "eval/";
pub const TASK_STDERR: &str = "eval_stderr/";
pub const GRAD_NORM: &str = "grad_norm";
pub const UPDATE_RATIO: &str = "update_ratio";
pub const CLIPPED: &str = "clipped";
pub const DATA_WAIT: &str = "data_wait";
pub const ENTROPY: &str = "entropy";
pub const PASS: &str = "eval/pass@1";
/// Of held-out prompts.
pub const EVAL_REWARD: &str = "eval/reward";
pub const REWARD: &str = "reward";
pub const REWARD_SPREAD: &str = "reward_std";
pub const SAME_REWARDS: &str = "frac_reward_zero_std";
pub const ANSWER_LENGTH: &str = "completions/mean_length";
pub const CUT_ANSWERS: &str = "completions/clipped_ratio";
pub const REPETITION: &str = "completions/repetition";
pub const UNREAD: &str = "completions/unread_ratio";
pub const KL: &str = "kl";
pub const PPO_CLIPPED: &str = "policy/clipfrac_avg";
pub const APPROX_KL: &str = "policy/approxkl_avg";
pub const EXPLAINED: &str = "val/var_explained";
pub const VALUE_LOSS: &str = "loss/value_avg";
pub const DISPERSION: &str = "loss_dispersion";
pub const CONSISTENCY: &str = "grad_consistency";
pub const NOISE_SCALE: &str = "noise_scale";
pub const DEAD_UNITS: &str = "dead_units/layer";
pub const GRAD_BY_LAYER: &str = "grad_norm/layer";
pub const UPDATE_BY_LAYER: &str = "update_ratio/layer";
pub const ATTENTION_ENTROPY: &str = "attn_entropy/layer";
pub const WEIGHT_STD: &str = "weight_std/layer";
pub const ACT_RMS: &str = "act_rms/layer";
pub const MARGINS: &str = "rewards/margins";
pub const CHOSEN: &str = "rewards/chosen";
pub const LOGPS_CHOSEN: &str = "logps/chosen";
pub const REJECTED: &str = "rewards/rejected";
pub const ACCURACIES: &str = "rewards/accuracies";
pub const VAL_ACCURACIES: &str = "val/rewards/accuracies";
pub const SPEED: &str = "tok_per_sec";
pub const STEP_MS: &str = "step_ms";
pub const RSS: &str = "host/rss_bytes";
pub const GPU_UTIL: &str = "gpu/0/util";
/// Of the run's own processes.
pub const GPU_MEMORY: &str = "gpu/0/own_memory_bytes";
pub const ATTENTION_LARGEST: &str = "attn_logit_max/layer";
