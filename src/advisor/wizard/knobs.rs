//! The settings that matter for a method, with the ranges that people use and what each does when it is turned. What a
//! setting means stands in the schema, and which values are legal too.

/// One setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Knob {
    /// Full path; `*` stands for the chosen member.
    pub path: &'static str,
    /// Values that people use.
    pub typical: &'static str,
    /// What turning it does.
    pub why: &'static str,
    /// The model's shape: not asked when the model is given.
    pub shape: bool,
}

impl Knob {
    /// What a form calls it: the key, with its section where the key alone says too little.
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

/// What every method asks, in this order.
pub const COMMON: &[Knob] = &[
    knob("name", "a word", "names the run's folder"),
    knob(
        "train.max_steps",
        "1,000 to 50,000 for small models",
        "time grows with it; the schedule ends with it, so change it before the run, not after",
    ),
    knob(
        "optimizer.*.lr",
        "1e-4 to 1e-3; the larger the model the lower",
        "the one that matters most: too high and the loss jumps, too low and nothing moves",
    ),
    knob(
        "train.micro_batch_size",
        "4 to 64 sequences",
        "more is steadier and takes more memory; time for each step grows with it",
    ),
    knob(
        "train.grad_accum_steps",
        "1 to 64",
        "a larger batch without its memory: gradients of several portions are summed",
    ),
    knob(
        "schedule.*.warmup_steps",
        "1 to 5 % of the steps",
        "the first steps of a fresh model are the wildest; it rises gently to the peak",
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
        "how far back it can look; attention grows with its square",
    ),
    knob(
        "optimizer.*.weight_decay",
        "0.01 to 0.1",
        "holds overfitting back; 0.1 is usual for pretraining",
    ),
    knob(
        "data.val_fraction",
        "0.1, or 0.01 for a large text",
        "held-out text is how one tells learning from memorising",
    ),
    knob(
        "eval.every",
        "every 2 to 10 % of the steps",
        "each evaluation costs a little time and shows overfitting early",
    ),
    knob(
        "sample.prompt",
        "a line break, or the beginning of something",
        "what the samples on the screen continue",
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
        for (i, knob) in COMMON.iter().enumerate() {
            let mut found = false;
            root().walk("", &mut |path, _| {
                let (a, b): (Vec<_>, Vec<_>) =
                    (knob.path.split('.').collect(), path.split('.').collect());
                found |= a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a == b || *a == "*");
            });
            assert!(found, "{} is no place of a spec", knob.path);
            assert!(COMMON[..i].iter().all(|other| other.path != knob.path));
            assert!(!knob.typical.is_empty() && !knob.why.is_empty());
        }
    }
}
