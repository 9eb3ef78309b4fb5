//! The settings that matter, with typical ranges and the effect of each. A method's own are in its file (`methods`).

use crate::methods::knob;

pub use crate::methods::Knob;

const fn shape(path: &'static str, typical: &'static str, why: &'static str) -> Knob {
    Knob {
        path,
        typical,
        why,
        shape: true,
    }
}

/// The most important one.
pub const RATE: &str = "optimizer.*.lr";

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
pub const ANSWERS: &[Knob] = &[
    knob(
        "rollout.group_size",
        "4 to 16",
        "completions per prompt: more of them rank answers better, and a step has fewer prompts",
    ),
    knob(
        "rollout.max_new_tokens",
        "64 to 1,024",
        "longest completion: prompt and completion must fit the context; generation takes most of the time",
    ),
    knob(
        "rollout.temperature",
        "0.7 to 1",
        "below 1 completions are alike, and equal rewards teach nothing; above 1 they fall apart",
    ),
];

/// Of matrices beside frozen weights, where there are any.
pub const ADAPTERS: &[Knob] = &[
    knob(
        "adapter.*.rank",
        "8 to 64",
        "more parameters that learn: 8 are enough for a style or a task, much new text takes 64",
    ),
    knob(
        "adapter.*.alpha",
        "twice the rank",
        "the adapter's output is scaled by alpha / rank: larger acts like a higher learning rate",
    ),
];

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
        RATE,
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
    knob(
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
        "the prompt of the samples on screen: on chats a user's turn, else text to continue",
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
    use crate::advisor::choose::FACTS;
    use crate::methods::MethodConfig;
    use crate::spec::schema::root;

    #[test]
    fn every_knob_exists_in_the_schema_and_stands_once() {
        let methods = FACTS
            .iter()
            .filter_map(|facts| MethodConfig::usual(facts.spec_word));
        for own in methods.map(|method| method.knobs()) {
            of_a_form(own);
        }
    }

    fn of_a_form(own: &[Knob]) {
        let lists = [COMMON, own, ADAPTERS, ANSWERS, ADVISED];
        let all: Vec<&Knob> = lists.into_iter().flatten().collect();
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
