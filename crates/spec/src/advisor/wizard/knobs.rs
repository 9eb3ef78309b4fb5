//! The settings that matter for a method, with typical ranges and the effect of each. Meaning and legal values are in
//! the schema.

/// One setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Knob {
    /// Full path; `*` stands for the selected member.
    pub path: &'static str,
    /// Typical values.
    pub typical: &'static str,
    /// The effect of changing it.
    pub why: &'static str,
    /// The model's architecture: not asked if the model is given.
    pub shape: bool,
}

impl Knob {
    /// Its name in a form: the key, with its section if the key alone is ambiguous.
    pub fn word(&self) -> &'static str {
        match self.path {
            "eval.every" | "sample.prompt" => self.path,
            path => path.rsplit('.').next().unwrap_or(path),
        }
    }
}

const fn knob(path: &'static str, typical: &'static str, why: &'static str) -> Knob {
    Knob {
        path,
        typical,
        why,
        shape: false,
    }
}

const fn shape(path: &'static str, typical: &'static str, why: &'static str) -> Knob {
    Knob {
        path,
        typical,
        why,
        shape: true,
    }
}

/// In place of the steps where a spec counts passes.
pub const EPOCHS: Knob = knob(
    "train.epochs",
    "1 to 5 for fine-tuning",
    "passes over the data; time grows with it, and beyond a few the model memorizes",
);

/// In place of the warm-up's steps where a spec gives a share of the run.
pub const WARMUP_RATIO: Knob = knob(
    "train.warmup_ratio",
    "0.01 to 0.1",
    "early steps are the least stable; the rate rises gradually to its peak",
);

/// Of methods that learn from answers that the model writes.
pub const ANSWERS: &[Knob] = &[knob(
    "rollout.max_new_tokens",
    "64 to 1,024",
    "longest completion: prompt and completion must fit the context; generation takes most of the time",
)];

/// Asked for where a failed check names them.
pub const ADVISED: &[Knob] = &[
    knob(
        "data.template",
        "auto, chatml, plain",
        "how turns become text, and which token ends an answer",
    ),
    knob(
        "data.train_on",
        "auto",
        "which tokens are supervised: without the end-of-turn token a model never stops",
    ),
    knob(
        "data.too_long",
        "auto, truncate, drop",
        "what happens to rows that are longer than the context",
    ),
];

/// Settings of every method, in this order.
pub const COMMON: &[Knob] = &[
    knob("name", "a word", "names the run's folder"),
    knob(
        "train.max_steps",
        "1,000 to 50,000 for small models",
        "time grows with it; the schedule ends at this step, so set it before the run",
    ),
    knob(
        "optimizer.*.lr",
        "1e-4 to 1e-3; the larger the model the lower",
        "the most important setting: too high and the loss spikes, too low and it barely moves",
    ),
    knob(
        "train.micro_batch_size",
        "4 to 64 sequences",
        "larger is more stable and takes more memory; step time grows with it",
    ),
    knob(
        "train.grad_accum_steps",
        "1 to 64",
        "a larger batch without more memory: accumulates gradients over micro-steps",
    ),
    knob(
        "schedule.*.warmup_steps",
        "1 to 5 % of the steps",
        "early steps are the least stable; the rate rises gradually to its peak",
    ),
    shape(
        "model.n_layer",
        "4 to 12 on a CPU, 12 to 32 on a GPU",
        "depth: parameters and time grow in proportion",
    ),
    shape(
        "model.n_head",
        "d_model / 64; heads of 32 to 128",
        "must divide d_model; changes no parameter count",
    ),
    shape(
        "model.d_model",
        "128 to 512 on a CPU, 768 to 4,096 on a GPU",
        "width: parameters grow with its square",
    ),
    shape(
        "model.seq_len",
        "64 to 256 for toys, 1,024 to 8,192 for real use",
        "context length; attention cost grows with its square",
    ),
    knob(
        "optimizer.*.weight_decay",
        "0.01 to 0.1",
        "reduces overfitting; 0.1 is typical for pretraining",
    ),
    knob(
        "data.val_fraction",
        "0.1, or 0.01 for a large text",
        "held-out text distinguishes learning from memorizing",
    ),
    knob(
        "eval.every",
        "2 to 10 % of the steps, 0.1 for ten times in a run",
        "each evaluation costs a little time and shows overfitting early",
    ),
    knob(
        "sample.prompt",
        "empty, or your own question or beginning",
        "the prompt of the samples on screen",
    ),
    knob(
        "seed",
        "any number",
        "the same seed gives the same run, bit for bit",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::schema::root;

    #[test]
    fn every_knob_exists_in_the_schema_and_stands_once() {
        let all: Vec<&Knob> = COMMON.iter().chain(ANSWERS).chain(ADVISED).collect();
        for (i, knob) in all.iter().enumerate() {
            let mut found = false;
            root().walk("", &mut |path, _| {
                let (a, b): (Vec<_>, Vec<_>) =
                    (knob.path.split('.').collect(), path.split('.').collect());
                found |= a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a == b || *a == "*");
            });
            assert!(found, "{} is no place of a spec", knob.path);
            assert!(all[..i].iter().all(|other| other.path != knob.path));
            assert!(!knob.typical.is_empty() && !knob.why.is_empty());
        }
    }
}
