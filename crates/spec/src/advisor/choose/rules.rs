//! The tree itself, one row per branch. For each method the first row whose condition holds decides, with its reason.

use super::MethodId as M;
use super::{DataKind, Goal, Inputs, Reward, Start};
use crate::base::human;

/// How well a method suits, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    Best,
    Good,
    Possible,
    /// A requirement is missing.
    Unfit,
}

/// One branch.
pub struct Rule {
    /// Identifies the branch in reasons and tests.
    pub id: &'static str,
    pub method: M,
    pub verdict: Verdict,
    pub when: fn(&Inputs) -> bool,
    pub why: fn(&Inputs) -> String,
}

/// Compute-optimal tokens per parameter (Hoffmann et al. 2022).
const TOKENS_PER_PARAM: u64 = 20;
/// Domain tokens from which continued pretraining pays off.
pub(super) const CPT_TOKENS: u64 = 1_000_000_000;
pub(in crate::advisor) const CPT_ADAPTER_TOKENS: u64 = 50_000_000;
/// Examples from which SFT pays off; below, they go into the prompt.
const SFT_ROWS: u64 = 500;
const FEW_ROWS: u64 = 100;
/// Pairs from which DPO pays off.
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

/// `about 244k tokens`: nothing is tokenized before the run.
fn text_tokens(i: &Inputs) -> String {
    match i.tokens {
        Some(_) => format!("about {}", counted(i.tokens, "tokens")),
        None => counted(None, "tokens"),
    }
}

fn post(i: &Inputs) -> bool {
    i.start != Start::Scratch
}

/// Rows with an answer that can be learned.
fn has_answers(i: &Inputs) -> bool {
    !matches!(i.data, DataKind::Text | DataKind::Prompts)
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
    // 1. From scratch there is only one way.
    rule!("1.text" Pretrain Best when |i| i.start == Start::Scratch && i.data == DataKind::Text
    && i.n_params.saturating_mul(5) <= tokens(i);
    |i| match i.tokens {
        Some(t) if t < i.n_params.saturating_mul(TOKENS_PER_PARAM) => format!(
            "no base model, and about {} tokens for {} parameters: {:.0} each, where {TOKENS_PER_PARAM} are compute-optimal",
            human::short(t as f64), human::short(i.n_params as f64), t as f64 / i.n_params.max(1) as f64),
        Some(t) => format!("no base model, and about {} tokens are enough for {} parameters",
            human::short(t as f64), human::short(i.n_params as f64)),
        None => "no base model: random weights learn from plain text first".into(),
    }),
    rule!("1.small" Pretrain Best when |i| i.start == Start::Scratch && i.data == DataKind::Text;
        |i| format!("no base model; about {} tokens for {} parameters, where {TOKENS_PER_PARAM} each are compute-optimal: good for seeing a model learn, but after a few epochs it memorizes the text",
            human::short(tokens(i) as f64), human::short(i.n_params as f64))),
    rule!("1.kind" Pretrain Good when |i| i.start == Start::Scratch;
    |i| match i.data {
        DataKind::Demos => "random weights know no language yet, so all of each row is supervised, questions too; with a base model only the answers would be".into(),
        _ => format!("random weights cannot learn from {} yet: text first, here that of the rows, then fine-tuning", i.data.title()),
    }),
    rule!("1.start" Pretrain Unfit when |_| true;
        |_| "there is a base model: training from scratch would discard what it knows".into()),
    // 2. Knowledge.
    rule!("2.cpt" ContinuedPretrain Best when |i| post(i) && i.goal == Goal::Knowledge && i.data == DataKind::Text && tokens(i) >= CPT_TOKENS;
        |i| format!("{} of domain text: enough to change what the model knows; mix in 10 to 20 % general text", text_tokens(i))),
    rule!("2.adapter" ContinuedPretrain Best when |i| post(i) && i.goal == Goal::Knowledge && i.data == DataKind::Text && tokens(i) >= CPT_ADAPTER_TOKENS;
        |i| format!("{} of domain text: a high-rank adapter (64 or more) or all weights, one or two epochs", text_tokens(i))),
    rule!("2.little" ContinuedPretrain Possible when |i| post(i) && i.goal == Goal::Knowledge && i.data == DataKind::Text;
        |i| format!("only {} of domain text: the style transfers, facts hardly do; retrieval is more reliable", text_tokens(i))),
    rule!("2.text" ContinuedPretrain Good when |i| post(i) && i.data == DataKind::Text;
        |_| "the data is plain text, and there is a base model to continue from".into()),
    rule!("2.none" ContinuedPretrain Unfit when |i| !post(i);
        |_| "there is no model to continue".into()),
    rule!("2.kind" ContinuedPretrain Unfit when |_| true;
        |i| format!("it learns from plain text, and the data is {}", i.data.title())),
    rule!("2.rag" NoTraining Best when |i| i.goal == Goal::Knowledge && i.data == DataKind::Text && tokens(i) < CPT_ADAPTER_TOKENS && post(i);
        |i| format!("{} are too few to teach facts, and retrieval stays current", text_tokens(i))),
    rule!("3.few" NoTraining Best when |i| i.data == DataKind::Demos && rows(i) < FEW_ROWS && post(i);
        |i| format!("{}: put the best of them into the prompt, and make more", counted(i.rows, "examples"))),
    rule!("3.prompt" NoTraining Possible when |i| post(i);
        |_| "always worth trying first: it takes an afternoon and gives a baseline".into()),
    rule!("1.no" NoTraining Unfit when |_| true;
        |_| "random weights cannot follow a prompt".into()),
    // 3. Form and task.
    rule!("1.sft" Sft Unfit when |i| !post(i);
        |_| "a model with random weights cannot learn answers: pretrain first, or start from a base model".into()),
    rule!("5.cold" Sft Good when |i| i.goal == Goal::Reasoning && i.reward != Reward::None && has_answers(i);
        |_| "a cold start: 2k to 5k worked solutions before reinforcement learning, if the pass rate is below 1 %".into()),
    rule!("5.worked" Sft Unfit when |i| i.goal == Goal::Reasoning && i.reward != Reward::None;
        |i| format!("a cold start takes 2k to 5k worked solutions of their own; the data is {}", i.data.title())),
    rule!("5.distil" Sft Best when |i| matches!(i.goal, Goal::Reasoning | Goal::Compress) && i.data == DataKind::Demos;
        |i| format!("{}: learn from worked solutions; 100k and more for reasoning", counted(i.rows, "examples"))),
    rule!("3.sft" Sft Best when |i| i.data == DataKind::Demos && rows(i) >= SFT_ROWS && i.goal != Goal::Knowledge;
        |i| format!("{}: the data has answers, not pairs; 500 are enough for a task, 1k to 10k for general use", counted(i.rows, "examples"))),
    rule!("2.sft" Sft Possible when |i| i.data == DataKind::Demos && i.goal == Goal::Knowledge;
        |_| "answers teach format rather than facts. Good after continued pretraining".into()),
    rule!("3.thin" Sft Possible when |i| i.data == DataKind::Demos;
        |i| format!("{} is little: it pays off from about 500", counted(i.rows, "examples"))),
    rule!("4.first" Sft Good when |i| matches!(i.data, DataKind::Pairs | DataKind::Thumbs) && i.start == Start::Base;
        |_| "a base model learns to answer first: SFT on the good answers, then preferences".into()),
    rule!("4.chosen" Sft Possible when |i| matches!(i.data, DataKind::Pairs | DataKind::Thumbs);
        |_| "on the good answers only: simple, but the bad ones are unused".into()),
    rule!("3.no" Sft Unfit when |_| true;
        |i| format!("needs prompts with answers; the data is {}", i.data.title())),
    // A teacher at hand.
    rule!("5.scratch" Distill Unfit when |i| !post(i);
        |_| "the student needs the teacher's tokens: start from a small model of the same family".into()),
    rule!("5.gkd" Distill Best when |i| i.goal == Goal::Compress && matches!(i.data, DataKind::Demos | DataKind::Text);
        |_| "learns the large model's whole distribution at every token; the large model must be here, with the same tokens, and may be quantized".into()),
    rule!("5.teacher" Distill Possible when |i| matches!(i.data, DataKind::Demos | DataKind::Text);
        |_| "if a larger model with the same tokens is at hand: its distributions teach more than the one token that follows".into()),
    rule!("5.noteacher" Distill Unfit when |_| true;
        |i| format!("needs texts, or prompts with answers, and a larger model; the data is {}", i.data.title())),
    // 4. Style and preferences.
    rule!("4.dpo" Dpo Best when |i| post(i) && i.data == DataKind::Pairs && rows(i) >= DPO_ROWS;
        |i| format!("{}: exactly what it learns from{}", counted(i.rows, "pairs"),
            if i.start == Start::Base { "; do SFT first" } else { "" })),
    rule!("4.few" Dpo Good when |i| post(i) && i.data == DataKind::Pairs;
        |i| format!("{}: works, but is reliable only from about 5k", counted(i.rows, "pairs"))),
    rule!("4.pairs" Dpo Unfit when |_| true;
        |i| if i.start == Start::Scratch { "random weights have no answers to prefer".into() }
            else { format!("needs chosen and rejected answers; the data is {}", i.data.title()) }),
    rule!("4.kto" Kto Best when |i| post(i) && i.data == DataKind::Thumbs && rows(i) >= KTO_ROWS;
        |i| format!("{} of single answers: it needs no pairs", counted(i.rows, "thumbs"))),
    rule!("4.marks" Kto Good when |i| post(i) && i.data == DataKind::Thumbs;
        |i| format!("{}: works, more is better", counted(i.rows, "thumbs"))),
    rule!("4.split" Kto Possible when |i| post(i) && i.data == DataKind::Pairs;
        |_| "each pair is two labels: robust when pairs are noisy".into()),
    rule!("4.no" Kto Unfit when |_| true;
        |_| "needs answers labelled good or bad".into()),
    rule!("4.orpo" Orpo Good when |i| i.start == Start::Base && i.data == DataKind::Pairs;
        |_| "SFT and preferences in one pass, and no reference model".into()),
    rule!("4.tight" Orpo Possible when |i| post(i) && i.data == DataKind::Pairs;
        |_| "needs no reference model: where memory is tight".into()),
    rule!("4.none" Orpo Unfit when |_| true;
        |_| "needs chosen and rejected answers".into()),
    rule!("4.simpo" SimPo Possible when |i| post(i) && i.data == DataKind::Pairs;
        |_| "needs no reference model; compares per token, so length is no advantage".into()),
    rule!("4.nosimpo" SimPo Unfit when |_| true;
        |_| "needs chosen and rejected answers".into()),
    rule!("4.cpo" Cpo Possible when |i| post(i) && i.data == DataKind::Pairs;
        |_| "needs no reference model: DPO with a likelihood term in its place".into()),
    rule!("4.nocpo" Cpo Unfit when |_| true;
        |_| "needs chosen and rejected answers".into()),
    rule!("4.rm" RewardModel Good when |i| post(i) && i.data == DataKind::Pairs && rows(i) >= 10_000;
        |i| format!("{} can train a reward model, for RLOO or PPO afterwards", counted(i.rows, "pairs"))),
    rule!("4.judge" RewardModel Possible when |i| post(i) && i.data == DataKind::Pairs;
        |_| "too few pairs for a reliable reward model: 10k and more".into()),
    rule!("4.norm" RewardModel Unfit when |_| true;
        |_| "needs chosen and rejected answers".into()),
    // 5. Verifiable answers.
    rule!("5.grpo" Grpo Best when |i| post(i) && i.reward == Reward::Checker && matches!(i.data, DataKind::Prompts | DataKind::Demos) && i.goal == Goal::Reasoning;
        |_| "answers can be verified by a program: the model learns from its own attempts. Keep prompts with a pass rate of 10 to 90 %".into()),
    rule!("5.check" Grpo Good when |i| post(i) && i.reward == Reward::Checker && i.data != DataKind::Text;
        |_| "answers can be verified by a program".into()),
    rule!("5.model" Grpo Possible when |i| post(i) && i.reward == Reward::Model && i.data == DataKind::Prompts;
        |_| "a reward model can score the answers, though it can be exploited".into()),
    rule!("5.no" Grpo Unfit when |_| true;
        |i| if i.start == Start::Scratch { "random weights solve nothing: there is no reward signal".into() }
            else if i.data == DataKind::Text && i.reward != Reward::None { "needs prompts: the data is plain text".into() }
            else { "needs a verifier or a reward model: none is given".into() }),
    rule!("4.rloo" Rloo Best when |i| post(i) && i.reward == Reward::Model && matches!(i.data, DataKind::Prompts | DataKind::Pairs);
        |_| "a reward model and prompts: unbiased, no critic, a third of PPO's memory".into()),
    rule!("5.rloo" Rloo Good when |i| post(i) && i.reward == Reward::Checker && i.data != DataKind::Text;
        |_| "like GRPO, and unbiased: 4 to 8 completions per prompt".into()),
    rule!("5.norloo" Rloo Unfit when |_| true;
        |i| if i.start == Start::Scratch { "random weights solve nothing: there is no reward signal".into() }
            else if i.data == DataKind::Text && i.reward != Reward::None { "needs prompts: the data is plain text".into() }
            else { "needs a verifier or a reward model: none is given".into() }),
    // 6. PPO only if nothing simpler will do.
    rule!("6.ppo" Ppo Possible when |i| post(i) && i.reward == Reward::Model && matches!(i.data, DataKind::Prompts | DataKind::Pairs);
        |_| "there is a reward model; worth its four models only where tokens need individual credit".into()),
    rule!("6.no" Ppo Unfit when |_| true;
        |i| if i.reward == Reward::Checker { "a verifier scores whole answers: GRPO or RLOO do the same without a critic".into() }
            else if i.data == DataKind::Pairs { "needs a reward model: these pairs train one (the method reward model), and prompts are learned from afterwards".into() }
            else { "needs a reward model".into() }),
];
