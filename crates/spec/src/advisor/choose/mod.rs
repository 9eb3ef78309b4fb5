//! The decision tree: from a goal, the available data, a base model and a machine to a ranked list of methods. The rules
//! are rows of [`rules::RULES`], the methods are rows of [`FACTS`]; this file combines them.

mod fit;
mod groups;
mod rules;

pub use crate::plan::{FACTS, Facts, MethodId};
pub use fit::{Adapter, Fit};
pub use groups::{Group, in_groups};
pub(in crate::advisor) use rules::CPT_ADAPTER_TOKENS;
pub use rules::{RULES, Rule, Verdict};

use crate::spec::schema;
use serde::{Deserialize, Serialize};

/// What the model is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// A language model from scratch, or to see how one is trained.
    NewModel,
    /// Domain knowledge.
    Knowledge,
    /// Following instructions, or a fixed answer format.
    Instructions,
    /// A style, politeness, safety.
    Style,
    /// Problems with verifiable answers.
    Reasoning,
    /// Classification or extraction.
    Classify,
    /// Distillation of a large model into a small one.
    Compress,
}

impl Goal {
    pub const ALL: [Goal; 7] = [
        Goal::NewModel,
        Goal::Instructions,
        Goal::Knowledge,
        Goal::Style,
        Goal::Reasoning,
        Goal::Classify,
        Goal::Compress,
    ];

    /// A short title.
    pub fn title(self) -> &'static str {
        match self {
            Goal::NewModel => "train a model from scratch",
            Goal::Instructions => "follow instructions",
            Goal::Knowledge => "know my domain",
            Goal::Style => "answer in a style I prefer",
            Goal::Reasoning => "solve problems with verifiable answers",
            Goal::Classify => "classify or extract",
            Goal::Compress => "a small model that does what a large one can",
        }
    }

    /// One sentence.
    pub fn about(self) -> &'static str {
        match self {
            Goal::NewModel => "the whole pipeline, small: data, training, samples, chat",
            Goal::Instructions => "answers to questions, or one fixed format",
            Goal::Knowledge => "facts and vocabulary of a domain or another language",
            Goal::Style => "tone, politeness, safety: one answer is better than another",
            Goal::Reasoning => "mathematics, code: a program can verify the answer",
            Goal::Classify => "labels, fields, yes or no",
            Goal::Compress => "train on the answers of a larger model",
        }
    }
}

/// The shape of the available rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataKind {
    /// Plain text, no roles.
    Text,
    /// Prompts with good answers, or conversations.
    Demos,
    /// Prompts with a chosen and a rejected answer.
    Pairs,
    /// Answers rated up or down.
    Thumbs,
    /// Prompts alone.
    Prompts,
}

impl DataKind {
    pub fn title(self) -> &'static str {
        match self {
            DataKind::Text => "plain text",
            DataKind::Demos => "prompts with answers",
            DataKind::Pairs => "chosen and rejected answers",
            DataKind::Thumbs => "answers rated up or down",
            DataKind::Prompts => "prompts without answers",
        }
    }
}

/// What training starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// Random weights.
    Scratch,
    /// A model that continues text.
    Base,
    /// A model that already follows instructions.
    Instruct,
}

/// What scores the answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reward {
    /// Nothing.
    None,
    /// A program: tests, a solver, a known answer.
    Checker,
    /// A trained reward model.
    Model,
}

/// The inputs of the tree. Unknown sizes are `None`: a rule that needs one states its assumption.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Inputs {
    pub goal: Goal,
    pub data: DataKind,
    /// Examples, pairs, prompts.
    pub rows: Option<u64>,
    /// About how many tokens the text has.
    pub tokens: Option<u64>,
    pub start: Start,
    pub reward: Reward,
    /// Parameters of the trained model.
    pub n_params: u64,
    /// Bytes of its weights in a quantized GGUF file, where it starts from one.
    pub packed_bytes: Option<u64>,
    /// Bytes of main memory available for training.
    pub memory: Option<u64>,
    /// Bytes of the largest GPU: relevant for methods that this build leaves to other trainers.
    pub gpu_memory: Option<u64>,
}

/// One method with all arguments for and against it here.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    pub facts: &'static Facts,
    pub adapter: Adapter,
    pub verdict: Verdict,
    /// Reasons with the id of the rule that gave each.
    pub why: Vec<(&'static str, String)>,
    /// Bytes of weights, gradients and moments, and whether they fit.
    pub fit: Fit,
    /// This build trains it.
    pub available: bool,
    /// It would, from a quantized GGUF file of the model, which is still to be made.
    pub quantize_first: bool,
}

impl Advice {
    /// `SFT with LoRA`, `pretraining`
    pub fn title(&self) -> String {
        match self.adapter {
            _ if self.verdict == Verdict::Unfit => self.facts.title.to_string(),
            Adapter::Full if self.facts.adapters => format!("{}, full", self.facts.title),
            Adapter::Full => self.facts.title.to_string(),
            adapter => format!("{} with {}", self.facts.title, adapter.word()),
        }
    }
}

/// True if the methods registry has the id.
pub fn available(facts: &Facts) -> bool {
    schema::root()
        .at("method")
        .is_some_and(|node| node.child(facts.spec_word).is_some())
}

/// Every method, best first for these inputs. Equally suited ones keep the order of the table.
pub fn advise(inputs: &Inputs) -> Vec<Advice> {
    let mut list: Vec<Advice> = FACTS.iter().flat_map(|f| judge(f, inputs)).collect();
    list.sort_by_key(|advice| advice.verdict);
    list
}

/// One entry for each form that fits; an unfit method has one.
fn judge(facts: &'static Facts, inputs: &Inputs) -> Vec<Advice> {
    // The first rule that holds decides about the method.
    let mut rules = RULES.iter().filter(|rule| rule.method == facts.id);
    let rule = rules.find(|rule| (rule.when)(inputs));
    let decided = rule.map_or(Verdict::Unfit, |rule| rule.verdict);
    let mut options = fit::options(facts, inputs);
    let beside = (options.len() > 1, inputs.packed_bytes.is_some());
    if decided == Verdict::Unfit {
        options.truncate(1);
    }
    let advice = |(adapter, fit): (Adapter, Fit)| {
        let mut why: Vec<_> = rule.map(|r| (r.id, (r.why)(inputs))).into_iter().collect();
        let mut verdict = decided;
        if verdict != Verdict::Unfit {
            why.extend(fit.words(adapter, beside).map(|words| ("8", words)));
            if fit == Fit::TooLarge {
                verdict = Verdict::Unfit;
            }
        }
        let trains = available(facts) && trainable(adapter);
        let quantize_first = adapter == Adapter::QLora && inputs.packed_bytes.is_none();
        Advice {
            facts,
            adapter,
            verdict,
            why,
            fit,
            available: trains && !quantize_first,
            quantize_first: trains && quantize_first,
        }
    };
    options.into_iter().map(advice).collect()
}

/// True if this build trains data of this kind by any method.
pub fn learns_from(kind: DataKind) -> bool {
    let words: &[&str] = match kind {
        DataKind::Text => &["pretrain"],
        DataKind::Demos => &["sft", "distill"],
        DataKind::Pairs => &["dpo", "orpo", "reward"],
        DataKind::Thumbs => &["kto"],
        DataKind::Prompts => &["grpo", "rloo"],
    };
    FACTS
        .iter()
        .any(|facts| words.contains(&facts.spec_word) && available(facts))
}

/// True if this build trains the weights in this form.
fn trainable(adapter: Adapter) -> bool {
    match adapter {
        Adapter::Full => true,
        Adapter::Lora | Adapter::QLora => schema::root().at("adapter.lora").is_some(),
    }
}

/// The best method that this build trains and that can use the data at all: plain text can always be continued.
pub fn nearest_available(list: &[Advice]) -> Option<&Advice> {
    list.iter()
        .filter(|advice| advice.available)
        .min_by_key(|advice| advice.verdict)
}

#[cfg(test)]
mod offers;
#[cfg(test)]
mod tests;
