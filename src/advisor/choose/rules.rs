//! The tree itself: one row a branch. For each method the first row whose condition holds decides, and says why.

use super::MethodId as M;
use super::{DataKind, Goal, Inputs, Reward, Start};
use crate::base::human;

/// How well a method suits, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    Best,
    Good,
    Possible,
    /// Something that it needs is missing.
    Unfit,
}

/// One branch.
pub struct Rule {
    /// Names the branch in reasons and tests.
    pub id: &'static str,
    pub method: M,
    pub verdict: Verdict,
    pub when: fn(&Inputs) -> bool,
    pub why: fn(&Inputs) -> String,
}

/// Tokens that one parameter wants (Hoffmann et al. 2022).
const TOKENS_PER_PARAM: u64 = 20;
/// Tokens of a field from which continued pretraining pays.
const CPT_TOKENS: u64 = 1_000_000_000;
const CPT_ADAPTER_TOKENS: u64 = 50_000_000;
/// Examples from which SFT pays; below, they go into the prompt.
const SFT_ROWS: u64 = 500;
const FEW_ROWS: u64 = 100;
/// Pairs from which DPO pays.
const DPO_ROWS: u64 = 5_000;
const KTO_ROWS: u64 = 5_000;

fn rows(i: &Inputs) -> u64 {
    i.rows.unwrap_or(u64::MAX)
}

fn tokens(i: &Inputs) -> u64 {
    i.tokens.unwrap_or(u64::MAX)
}

fn counted(n: Option<u64>, what: &str) -> String {
    match n {
        Some(n) => format!("{} {what}", human::short(n as f64)),
        None => format!("{what} (how many is not known yet)"),
    }
}

fn post(i: &Inputs) -> bool {
    i.start != Start::Scratch
}

macro_rules! rule {
    ($id:literal $method:ident $verdict:ident when $when:expr; $why:expr) => {
        Rule {
            id: $id,
            method: M::$method,
            verdict: Verdict::$verdict,
            when: $when,
            why: $why,
        }
    };
}

/// Every branch.
pub const RULES: &[Rule] = &[
    // 1. From nothing there is only one way.
    rule!("1.text" Pretrain Best when |i| i.start == Start::Scratch && i.data == DataKind::Text
    && i.n_params.saturating_mul(5) <= tokens(i);
    |i| match i.tokens {
        Some(t) if t < i.n_params.saturating_mul(TOKENS_PER_PARAM) => format!(
            "nothing to start from, and {} tokens for {} parameters: {:.0} each, where {TOKENS_PER_PARAM} are ideal",
            human::short(t as f64), human::short(i.n_params as f64), t as f64 / i.n_params.max(1) as f64),
        Some(t) => format!("nothing to start from, and {} tokens are enough for {} parameters",
            human::short(t as f64), human::short(i.n_params as f64)),
        None => "nothing to start from: random weights learn from plain text first".into(),
    }),
    rule!("1.small" Pretrain Best when |i| i.start == Start::Scratch && i.data == DataKind::Text;
        |i| format!("nothing to start from; {} tokens for {} parameters, where {TOKENS_PER_PARAM} each are ideal: good for seeing a model learn, and after some passes it knows the text by heart",
            human::short(tokens(i) as f64), human::short(i.n_params as f64))),
    rule!("1.kind" Pretrain Good when |i| i.start == Start::Scratch;
    |i| match i.data {
        DataKind::Demos => "random weights know no language yet, so all of each row is supervised, questions too; with a base model only the answers would be".into(),
        _ => format!("random weights cannot learn from {} yet: plain text first, then fine-tuning", i.data.title()),
    }),
    rule!("1.start" Pretrain Unfit when |_| true;
        |_| "there is a model to start from: beginning anew would throw away what it knows".into()),
    // 2. Knowledge.
    rule!("2.cpt" ContinuedPretrain Best when |i| post(i) && i.goal == Goal::Knowledge && i.data == DataKind::Text && tokens(i) >= CPT_TOKENS;
        |i| format!("{} of the field: enough to move what the model knows; mix in 10 to 20 % general text", counted(i.tokens, "tokens"))),
    rule!("2.adapter" ContinuedPretrain Best when |i| post(i) && i.goal == Goal::Knowledge && i.data == DataKind::Text && tokens(i) >= CPT_ADAPTER_TOKENS;
        |i| format!("{} of the field: a high-rank adapter (64 or more) or all weights, one or two passes", counted(i.tokens, "tokens"))),
    rule!("2.little" ContinuedPretrain Possible when |i| post(i) && i.goal == Goal::Knowledge && i.data == DataKind::Text;
        |i| format!("only {} of the field: style comes through, facts hardly do; retrieval is surer", counted(i.tokens, "tokens"))),
    rule!("2.text" ContinuedPretrain Good when |i| post(i) && i.data == DataKind::Text;
        |_| "the data is plain text, and a model to start from is there: it goes on where that one stopped".into()),
    rule!("2.none" ContinuedPretrain Unfit when |i| !post(i);
        |_| "there is no model to continue".into()),
    rule!("2.kind" ContinuedPretrain Unfit when |_| true;
        |i| format!("it learns from plain text, and the data is {}", i.data.title())),
    rule!("2.rag" NoTraining Best when |i| i.goal == Goal::Knowledge && i.data == DataKind::Text && tokens(i) < CPT_ADAPTER_TOKENS && post(i);
        |i| format!("{} are too few to train facts in, and retrieval stays up to date", counted(i.tokens, "tokens"))),
    rule!("3.few" NoTraining Best when |i| i.data == DataKind::Demos && rows(i) < FEW_ROWS && post(i);
        |i| format!("{}: put the best of them into the prompt, and make more", counted(i.rows, "examples"))),
    rule!("3.prompt" NoTraining Possible when |i| post(i);
        |_| "always worth a try first: it costs an afternoon and is the baseline".into()),
    rule!("1.no" NoTraining Unfit when |_| true;
        |_| "random weights understand no prompt".into()),
    // 3. Form and task.
    rule!("1.sft" Sft Unfit when |i| !post(i);
        |_| "a model with random weights cannot learn answers: pretrain first, or start from a base model".into()),
    rule!("5.cold" Sft Good when |i| i.goal == Goal::Reasoning && i.reward != Reward::None;
        |_| "a cold start: 2k to 5k worked solutions before reinforcement learning, when fewer than 1 % are solved now".into()),
    rule!("5.distil" Sft Best when |i| matches!(i.goal, Goal::Reasoning | Goal::Compress) && i.data == DataKind::Demos;
        |i| format!("{}: learn from worked solutions; 100k and more for reasoning", counted(i.rows, "examples"))),
    rule!("3.sft" Sft Best when |i| i.data == DataKind::Demos && rows(i) >= SFT_ROWS && i.goal != Goal::Knowledge;
        |i| format!("{}: the data has answers, not pairs; 500 suffice for a task, 1k to 10k for general use", counted(i.rows, "examples"))),
    rule!("2.sft" Sft Possible when |i| i.data == DataKind::Demos && i.goal == Goal::Knowledge;
        |_| "answers teach form; facts stick poorly. Good after continued pretraining".into()),
    rule!("3.thin" Sft Possible when |i| i.data == DataKind::Demos;
        |i| format!("{} is little: 500 is where it begins to pay", counted(i.rows, "examples"))),
    rule!("4.first" Sft Good when |i| matches!(i.data, DataKind::Pairs | DataKind::Thumbs) && i.start == Start::Base;
        |_| "a base model learns to answer first: SFT on the good answers, then preferences".into()),
    rule!("4.chosen" Sft Possible when |i| matches!(i.data, DataKind::Pairs | DataKind::Thumbs);
        |_| "on the good answers alone: simple, and throws half of the data away".into()),
    rule!("3.no" Sft Unfit when |_| true;
        |i| format!("needs prompts with answers; the data is {}", i.data.title())),
    // 4. Style and preferences.
    rule!("4.dpo" Dpo Best when |i| post(i) && i.data == DataKind::Pairs && rows(i) >= DPO_ROWS;
        |i| format!("{}: exactly what it learns from{}", counted(i.rows, "pairs"),
            if i.start == Start::Base { "; do SFT first" } else { "" })),
    rule!("4.few" Dpo Good when |i| post(i) && i.data == DataKind::Pairs;
        |i| format!("{}: works, but 5k and more is where it gets reliable", counted(i.rows, "pairs"))),
    rule!("4.pairs" Dpo Unfit when |_| true;
        |i| if i.start == Start::Scratch { "random weights have no answers to prefer".into() }
            else { format!("needs chosen and rejected answers; the data is {}", i.data.title()) }),
    rule!("4.kto" Kto Best when |i| post(i) && i.data == DataKind::Thumbs && rows(i) >= KTO_ROWS;
        |i| format!("{} on single answers: it needs no pairs", counted(i.rows, "thumbs"))),
    rule!("4.marks" Kto Good when |i| post(i) && i.data == DataKind::Thumbs;
        |i| format!("{}: works, more is better", counted(i.rows, "thumbs"))),
    rule!("4.split" Kto Possible when |i| post(i) && i.data == DataKind::Pairs;
        |_| "each pair is two marks: robust when pairs are noisy".into()),
    rule!("4.no" Kto Unfit when |_| true;
        |_| "needs answers marked good or bad".into()),
    rule!("4.orpo" Orpo Good when |i| i.start == Start::Base && i.data == DataKind::Pairs;
        |_| "SFT and preferences in one pass, and no reference model".into()),
    rule!("4.tight" Orpo Possible when |i| post(i) && i.data == DataKind::Pairs;
        |_| "needs no reference model: where memory is tight".into()),
    rule!("4.none" Orpo Unfit when |_| true;
        |_| "needs chosen and rejected answers".into()),
    rule!("4.rm" RewardModel Good when |i| post(i) && i.data == DataKind::Pairs && rows(i) >= 10_000;
        |i| format!("{} can teach a judge, for RLOO or PPO afterwards", counted(i.rows, "pairs"))),
    rule!("4.judge" RewardModel Possible when |i| post(i) && i.data == DataKind::Pairs;
        |_| "too few pairs for a judge one can trust: 10k and more".into()),
    rule!("4.norm" RewardModel Unfit when |_| true;
        |_| "needs chosen and rejected answers".into()),
    // 5. Answers that a program can check.
    rule!("5.grpo" Grpo Best when |i| post(i) && i.reward == Reward::Checker && matches!(i.data, DataKind::Prompts | DataKind::Demos) && i.goal == Goal::Reasoning;
        |_| "answers can be checked by a program: the model learns from its own tries. Keep prompts that 10 to 90 % of tries solve".into()),
    rule!("5.check" Grpo Good when |i| post(i) && i.reward == Reward::Checker;
        |_| "answers can be checked by a program".into()),
    rule!("5.model" Grpo Possible when |i| post(i) && i.reward == Reward::Model && i.data == DataKind::Prompts;
        |_| "a reward model can mark the answers, though it can be fooled".into()),
    rule!("5.no" Grpo Unfit when |_| true;
        |i| if i.start == Start::Scratch { "random weights solve nothing: there is no reward to learn from".into() }
            else { "needs something that marks answers: none was named".into() }),
    rule!("4.rloo" Rloo Best when |i| post(i) && i.reward == Reward::Model && matches!(i.data, DataKind::Prompts | DataKind::Pairs);
        |_| "a reward model and prompts: unbiased, no critic, a third of PPO's memory".into()),
    rule!("5.rloo" Rloo Good when |i| post(i) && i.reward == Reward::Checker;
        |_| "like GRPO, and unbiased: 4 to 8 answers for each prompt".into()),
    rule!("5.norloo" Rloo Unfit when |_| true;
        |i| if i.start == Start::Scratch { "random weights have nothing to be rewarded for".into() }
            else { "needs something that marks answers: none was named".into() }),
    // 6. PPO only where nothing smaller will do.
    rule!("6.ppo" Ppo Possible when |i| post(i) && i.reward == Reward::Model && matches!(i.data, DataKind::Prompts | DataKind::Pairs);
        |_| "a reward model is there; worth its four models only where each token needs its own credit".into()),
    rule!("6.no" Ppo Unfit when |_| true;
        |i| if i.reward == Reward::Checker { "a checker marks whole answers: GRPO or RLOO do the same without a critic".into() }
            else { "needs a reward model".into() }),
];
