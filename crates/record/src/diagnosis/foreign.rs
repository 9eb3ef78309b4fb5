//! What helps a run of another program: the fixes of the rules in the field's terms, without the settings, keys and verbs of this
//! one. Rules write their fixes for runs of this program; a new setting, key or verb in one of them gets its words here.

/// Words of this program and what they say elsewhere; the longer of two that begin alike stands first.
const WORDS: &[(&str, &str)] = &[
    (
        "run `llmtui preflight` (token_shift, causal_mask); look at the data pane for repeated rows",
        "check that targets are shifted by one token and that the mask is causal; look for repeated rows in the data",
    ),
    (
        "run `llmtui preflight`, then vary the learning rate: -s lr=… by factors of 10",
        "check inputs and targets (mask, shift, labels), then vary the learning rate by factors of 10",
    ),
    (
        "look at supervised tokens in the data pane; `llmtui preflight` checks them",
        "look at which tokens are supervised",
    ),
    ("the learning rate: -s lr=…", "the learning rate"),
    ("the learning rate: -s lr=", "the learning rate to "),
    (" -s clip_norm=1", " and clip the gradient norm at 1"),
    (" (t tunes it while it runs)", ""),
    ("-s train.clip_norm=", "a clipping norm of "),
    ("or -s dropout=0.1", "or dropout 0.1"),
    ("-s model.dropout=0.1", "dropout 0.1"),
    ("-s model.dropout=0", "dropout 0"),
    ("QK-norm (-s model.qk_norm=true)", "QK-norm"),
    ("-s weight_decay=0.1", "a weight decay of 0.1"),
    (
        "look at them (`llmtui data batches SPEC --step N`) and filter; -s rescue.skip_outliers=true leaves such updates out",
        "look at the data of these steps and filter",
    ),
    (
        "look at the supervised tokens of these batches: `llmtui data batches`",
        "look at the supervised tokens of these batches",
    ),
    (
        "look at the batches of these steps: `llmtui data batches`",
        "look at the batches of these steps",
    ),
    (
        "look at the batches in the data pane",
        "look at the batches",
    ),
    (
        "look at both in the data pane; `llmtui preflight` looks for overlap",
        "look at both, and for overlap between them",
    ),
    (
        "read pairs of both in the data pane; check the columns (`--map`)",
        "read pairs of both; check which column holds the chosen answers",
    ),
    ("(`llmtui data split`, `shuf`)", "(`shuf`)"),
    ("tokenize ahead (data.cache)", "tokenize ahead"),
    (
        "raise train.grad_accum_steps",
        "accumulate gradients over more steps",
    ),
    ("or train.precision: f32", "or float32"),
    (
        "`llmtui doctor`, and the hardware pane: temperature",
        "look at the hardware: temperature",
    ),
    (
        "-s method.dpo.nll_weight=1",
        "an NLL loss on the chosen answers beside it",
    ),
    ("as reference (method.dpo.reference: auto)", "as reference"),
    (
        "begin with supervised learning (rollout.cold_start_steps, train.from)",
        "begin with supervised fine-tuning",
    ),
    ("a larger rollout.group_size", "larger groups"),
    (
        "a larger rollout.max_new_tokens, rollout.stop, or a cold start that",
        "more new tokens for each answer, a stop string, or supervised fine-tuning first, which",
    ),
    (
        "a larger rollout.max_new_tokens, rollout.mask_truncated=true, or a cold start that",
        "more new tokens for each answer, truncated answers masked out of the loss, or supervised fine-tuning first, which",
    ),
    (
        "a larger rollout.max_new_tokens; see that no rollout.stop matches",
        "more new tokens for each answer; see that no stop string matches",
    ),
    (
        "method.grpo.aggregation=dr_grpo, a reward {length: {limit: …}}, rollout.mask_truncated=true",
        "the loss aggregation of Dr. GRPO, a penalty on length, or truncated answers masked out of the loss",
    ),
    (
        "prompts as turns (a column `question`, or llmtui data convert FILE --to messages); else a cold start (rollout.cold_start_steps)",
        "prompts in the model's chat template; else supervised fine-tuning first, which",
    ),
    (
        "llmtui reward test SPEC FILE shows what is read of an answer; name the form in the prompt, marked: false, or a cold start (rollout.cold_start_steps)",
        "look at what the reward reads of an answer; name the form in the prompt, or begin with supervised fine-tuning",
    ),
    (
        "try it on answers of your own with `llmtui reward test`; a cold start (rollout.cold_start_steps) teaches",
        "try it on answers of your own; supervised fine-tuning first teaches",
    ),
    (
        "rewards: a penalty {repetition: {words: 3}, weight: 0.5}; look at answers in the examples pane",
        "a penalty on repetition in the reward; look at the answers",
    ),
    (
        "a reward {repetition: {words: 3}}",
        "a penalty on repetition in the reward",
    ),
    (
        "look at answers and rewards by part in the examples pane",
        "look at answers and at the rewards by part",
    ),
    (
        "a smaller learning rate (rollout.lr_scale)",
        "a smaller learning rate",
    ),
    ("method.grpo.beta=0.04", "a KL penalty (beta) of 0.04"),
    (
        "method.grpo.clip_high=0.28",
        "an upper clipping bound of 0.28",
    ),
    (
        "a higher rollout.temperature",
        "a higher sampling temperature",
    ),
    ("fewer rollout.epochs", "fewer epochs over each rollout"),
    (
        "a higher method.ppo.critic_lr_scale, method.ppo.critic_warmup_steps, method.ppo.critic_from a reward model; or grpo and rloo, which need no critic",
        "a higher learning rate of the critic, a warm-up of the critic alone, or a critic that begins from a reward model; or GRPO and RLOO, which need no critic",
    ),
];

/// A rule's fix, for a run of another program.
pub(super) fn advice(fix: &str) -> String {
    let replaced = |text: String, (ours, theirs): &(&str, &str)| text.replace(ours, theirs);
    WORDS.iter().fold(fix.to_string(), replaced)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// What only this program has: flags, keys, verbs, panes and paths of settings.
    const OURS: [&str; 14] = [
        "-s ",
        "(t ",
        "llmtui",
        " pane",
        "--map",
        "rollout.",
        "method.",
        "train.",
        "model.",
        "data.",
        "engine.",
        "rescue.",
        "{repetition",
        "{length: {",
    ];
    /// Rules that no log of another program can reach: they read events, layers or settings that only this one has.
    const OWN: [&str; 8] = [
        "engine",
        "events",
        "preflight",
        "rescued",
        "forgetting",
        "task_drop",
        "idle_gpu",
        "mod",
    ];

    #[test]
    fn every_fix_has_words_for_runs_of_other_programs() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/diagnosis/rules");
        let mut seen = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
            if OWN.contains(&stem.as_str()) {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            // Neither comments, nor the row of the documentation, nor evidence of the spec, which a log has not.
            let not_said = ["//", "summary:", "source:", "format!(\"model.dropout"];
            let said = text.lines().map(str::trim);
            for line in said.filter(|line| line.contains('"')) {
                if not_said.iter().any(|word| line.starts_with(word)) {
                    continue;
                }
                seen += usize::from(OURS.iter().any(|word| line.contains(word)));
                let advice = advice(line);
                let left = OURS.iter().find(|word| advice.contains(**word));
                assert_eq!(left, None, "{stem}: {advice}");
            }
        }
        assert!(seen > 20, "{seen}");
    }

    #[test]
    fn values_are_kept() {
        let ours = "go back to an earlier checkpoint; lower the learning rate: -s lr=1e-4 -s clip_norm=1 (t tunes it while it runs)";
        assert_eq!(
            advice(ours),
            "go back to an earlier checkpoint; lower the learning rate to 1e-4 and clip the gradient norm at 1"
        );
        assert_eq!(advice("shuffle the files once"), "shuffle the files once");
    }
}
