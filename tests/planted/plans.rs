//! What is planted, and which rules may name it.

use super::{HEALTHY_STEPS, LATE, STEPS};
use serde_json::{Value, json};

/// One run.
#[derive(Clone)]
pub struct Plan {
    pub name: &'static str,
    /// Rules of which one has to fire; none for a healthy run.
    pub expected: &'static [&'static str],
    pub model: Value,
    /// Settings of AdamW besides the learning rate.
    pub optimizer: Value,
    pub lr: f64,
    pub warmup: u64,
    pub clip: f64,
    pub seed: u64,
    pub steps: u64,
    pub fault: Option<Fault>,
}

impl Plan {
    /// The step from which the fault is in the readings and the rules may fire: they are silent during warm-up and
    /// the first 100 steps. For gradual faults it is determined from the run, see `world::Seen`.
    pub fn shows(&self) -> u64 {
        use Fault as F;
        let late = matches!(
            self.fault,
            Some(
                F::MaskedLate
                    | F::UnshiftedLate
                    | F::ShuffledLate
                    | F::NoiseLate
                    | F::PaddingLate
                    | F::CorruptSpans
                    | F::GarbageBatches
                    | F::DeadBlock(_)
                    | F::SharpAttention(_)
                    | F::BrokenWeight(_)
                    | F::BrokenGradient
                    | F::PollutedSteps(..)
                    | F::Ascent
                    | F::RateLate(_)
                    | F::Throttled
            )
        );
        if late { LATE } else { 100 + self.warmup }
    }
}

/// What is wrong. Late ones begin at [`super::LATE`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    MaskedLabels,
    MaskedLate,
    UnshiftedTargets,
    UnshiftedLate,
    ShuffledTargets,
    ShuffledLate,
    NoiseLate,
    /// Stretches of this many steps of one kind of text.
    SortedData(u64),
    SameMicroBatches,
    /// This many batches, again and again.
    FewBatches(u64),
    PaddingLate,
    CorruptSpans,
    GarbageBatches,
    /// These blocks are not to train.
    FrozenBlocks(u32, u32),
    /// These are to train, and no gradient reaches them.
    CutOff(u32, u32),
    DeadBlock(u32),
    /// Queries and keys × 40, of block 1 or of all.
    SharpAttention(bool),
    BrokenWeight(f32),
    BrokenGradient,
    /// Gradients × factor for this many steps.
    PollutedSteps(f32, u64),
    /// All gradients times a factor: the sum in place of the mean.
    SummedLoss,
    Ascent,
    /// Initial weights times a factor.
    Init(f32),
    /// The rate jumps by a factor.
    RateLate(f64),
    /// Weights are stored with 8 bits of significand.
    Bf16Weights,
    /// The optimizer's moments are.
    Bf16Moments,
    /// Matrices that write into the residual stream are initialized too large by this factor.
    ResidualScale(f32),
    /// Gains of norms decay, by this factor times the learning rate.
    DecayedNorms(f64),
    SlowData,
    Throttled,
    MemoryGrows,
}

/// Steps of all healthy runs.
pub fn healthy_steps() -> u64 {
    let all = plans();
    let healthy = all.iter().filter(|plan| plan.expected.is_empty());
    healthy.map(|plan| plan.steps).sum()
}

pub fn plans() -> Vec<Plan> {
    use Fault as F;
    let plan = |name, expected: &'static [&'static str], fault| Plan {
        name,
        expected,
        model: json!({}),
        optimizer: json!({"beta2": 0.99}),
        lr: 3e-3,
        warmup: 20,
        clip: 1.0,
        seed: 1,
        steps: STEPS,
        fault,
    };
    let healthy = |name| Plan {
        steps: HEALTHY_STEPS,
        ..plan(name, &[], None)
    };
    let lr = |name, expected, lr, clip| Plan {
        lr,
        clip,
        ..plan(name, expected, None)
    };
    let planted = |name, expected, fault| plan(name, expected, Some(fault));
    let unclipped = |name, expected, fault| Plan {
        clip: 0.0,
        ..planted(name, expected, fault)
    };
    let llama = json!({"mlp": {"swiglu": {}}, "norm": {"rmsnorm": {}}, "position": {"rope": {}}, "bias": false});
    let relu = json!({"mlp": {"relu": {}}, "bias": true});
    let no_decay = json!({"beta2": 0.99, "weight_decay": 0.0});
    const HIGH: &[&str] = &["lr_too_high", "diverged"];
    const LOW: &[&str] = &["lr_too_low", "not_learning"];
    const WORSE: &[&str] = &["train_loss", "diverged"];
    vec![
        healthy("healthy"),
        Plan {
            seed: 2,
            model: llama,
            ..healthy("healthy, Llama style")
        },
        Plan {
            seed: 3,
            lr: 1e-3,
            warmup: 0,
            ..healthy("healthy, no warm-up, lower rate")
        },
        Plan {
            seed: 4,
            clip: 0.0,
            ..healthy("healthy, no clipping")
        },
        Plan {
            seed: 5,
            model: json!({"dropout": 0.1}),
            ..healthy("healthy, dropout 0.1")
        },
        Plan {
            seed: 6,
            model: relu.clone(),
            ..healthy("healthy, ReLU")
        },
        Plan {
            seed: 7,
            lr: 1e-2,
            warmup: 50,
            ..healthy("healthy, rate 0.01 after 50 steps of warm-up")
        },
        Plan {
            seed: 8,
            optimizer: json!({"beta2": 0.999, "weight_decay": 0.0}),
            ..healthy("healthy, no decay, β2 0.999")
        },
        Plan {
            fault: Some(F::FrozenBlocks(1, 2)),
            ..healthy("healthy, a block frozen on purpose")
        },
        Plan {
            seed: 9,
            model: json!({"n_head": 4, "n_kv_head": 1, "tie_embeddings": false, "qk_norm": true}),
            ..healthy("healthy, grouped queries, QK-norm")
        },
        Plan {
            seed: 10,
            optimizer: json!({"beta2": 0.95, "weight_decay": 0.3}),
            clip: 0.5,
            ..healthy("healthy, β2 0.95, clipped at 0.5")
        },
        lr("learning rate × 30", HIGH, 0.09, 0.0),
        lr("learning rate × 30, clipped", HIGH, 0.09, 1.0),
        lr(
            "learning rate × 300, clipped",
            &["lr_too_high", "diverged", "not_learning"],
            0.9,
            1.0,
        ),
        lr("learning rate ÷ 100", LOW, 3e-5, 1.0),
        lr("learning rate ÷ 1,000", LOW, 3e-6, 1.0),
        lr("learning rate of nothing", LOW, 1e-8, 1.0),
        Plan {
            optimizer: json!({"eps": 1.0, "beta2": 0.99}),
            ..plan("ε of 1", LOW, None)
        },
        Plan {
            optimizer: json!({"weight_decay": 10.0, "beta2": 0.99}),
            ..plan("weight decay 10", &["weight_decay"], None)
        },
        lr("clipping norm 0.001", &["clip_tight"], 3e-3, 1e-3),
        lr("clipping norm 0.01", &["clip_tight"], 3e-3, 1e-2),
        planted("loss summed, not averaged", &["clip_tight"], F::SummedLoss),
        Plan {
            model: json!({"dropout": 0.7}),
            ..plan("dropout 0.7", &["train_above_val"], None)
        },
        planted("initial weights × 10", &["initial_loss"], F::Init(10.0)),
        planted("initial weights × 30", &["initial_loss"], F::Init(30.0)),
        planted(
            "residual projections × 30 at the start",
            &["initial_loss", "lr_too_low", "not_learning", "lr_too_high"],
            F::ResidualScale(30.0),
        ),
        Plan {
            warmup: 0,
            optimizer: json!({"beta2": 0.999}),
            ..lr("no warm-up at rate 0.03", HIGH, 0.03, 1.0)
        },
        planted("labels masked", &["not_learning"], F::MaskedLabels),
        planted(
            "labels masked from step 200 on",
            &["sudden_drop"],
            F::MaskedLate,
        ),
        planted("targets not shifted", &["leak"], F::UnshiftedTargets),
        planted(
            "targets not shifted from step 200 on",
            &["sudden_drop", "leak"],
            F::UnshiftedLate,
        ),
        planted("targets shuffled", &["not_learning"], F::ShuffledTargets),
        planted("targets shuffled from step 200 on", WORSE, F::ShuffledLate),
        planted(
            "noise in place of text from step 200 on",
            WORSE,
            F::NoiseLate,
        ),
        planted(
            "data sorted, stretches of 15 steps",
            &["sorted_data"],
            F::SortedData(15),
        ),
        planted(
            "data sorted, stretches of 40 steps",
            &["sorted_data"],
            F::SortedData(40),
        ),
        planted("micro-batches alike", &["same_data"], F::SameMicroBatches),
        planted(
            "one batch repeated",
            &["overfitting", "leak"],
            F::FewBatches(1),
        ),
        planted("six batches repeated", &["overfitting"], F::FewBatches(6)),
        planted(
            "padding only from step 200 on",
            &["sudden_drop"],
            F::PaddingLate,
        ),
        planted(
            "corrupt spans in each fifth step from 200 on",
            &["gradient_spike", "lr_too_high", "diverged", "train_loss"],
            F::CorruptSpans,
        ),
        planted(
            "each 25th batch is noise from step 200 on",
            &["gradient_spike", "odd_batches"],
            F::GarbageBatches,
        ),
        Plan {
            optimizer: no_decay.clone(),
            ..planted("a block cut off", &["idle_layer"], F::CutOff(1, 2))
        },
        Plan {
            optimizer: no_decay,
            ..planted("the first block cut off", &["idle_layer"], F::CutOff(0, 1))
        },
        planted("all blocks frozen", &["idle_layer"], F::FrozenBlocks(0, 4)),
        Plan {
            model: relu.clone(),
            ..planted(
                "a block's units die at step 200",
                &["dead_layer"],
                F::DeadBlock(1),
            )
        },
        Plan {
            model: relu,
            ..planted(
                "the last block's units die at step 200",
                &["dead_layer"],
                F::DeadBlock(3),
            )
        },
        planted(
            "attention sharpened at step 200",
            &["attention_collapse"],
            F::SharpAttention(false),
        ),
        planted(
            "attention sharpened in all blocks at step 200",
            &["attention_collapse"],
            F::SharpAttention(true),
        ),
        planted(
            "a weight NaN at step 200",
            &["diverged"],
            F::BrokenWeight(f32::NAN),
        ),
        planted(
            "a weight infinite at step 200",
            &["diverged"],
            F::BrokenWeight(f32::INFINITY),
        ),
        planted(
            "a gradient NaN at step 200",
            &["diverged"],
            F::BrokenGradient,
        ),
        unclipped(
            "one gradient × 1,000 at step 200",
            &["gradient_spike", "diverged"],
            F::PollutedSteps(1000.0, 1),
        ),
        unclipped(
            "three gradients × 100 from step 200 on",
            &["gradient_spike", "diverged"],
            F::PollutedSteps(100.0, 3),
        ),
        planted(
            "gradients of the wrong sign from step 200 on",
            WORSE,
            F::Ascent,
        ),
        planted(
            "learning rate × 100 from step 200 on",
            HIGH,
            F::RateLate(100.0),
        ),
        planted(
            "weights rounded to bf16 after each step",
            &["lr_too_low", "not_learning"],
            F::Bf16Weights,
        ),
        Plan {
            optimizer: json!({"beta2": 0.999}),
            ..planted("means of Adam rounded to bf16", LOW, F::Bf16Moments)
        },
        planted(
            "gains of norms decay by 10",
            &["weight_decay", "lr_too_low"],
            F::DecayedNorms(10.0),
        ),
        planted(
            "half of each step waits for data",
            &["data_wait"],
            F::SlowData,
        ),
        planted(
            "a third of the speed from step 200 on",
            &["slower"],
            F::Throttled,
        ),
        planted("memory grows", &["memory_growth"], F::MemoryGrows),
    ]
}
