//! A task as defined in its YAML file.

use crate::data::source::SourceConfig;
use crate::rewards::WeightedReward;
use crate::sandbox::python::{self, Python};
use serde::{Deserialize, Serialize};

/// What is asked of the model for each row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Which of several continuations is the most likely one.
    Choice,
    /// How likely one continuation is, and whether it is the most likely one token for token.
    Continuation,
    /// How likely the whole text of a row is.
    Text,
    /// An answer is written, greedily, and compared with the target.
    Answer,
}

/// Worked examples in front of each prompt: the first ones of a source, in its order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shots {
    pub source: SourceConfig,
    pub count: usize,
    /// Rows of the source in front of the first example.
    #[serde(default)]
    pub skip: usize,
    /// An expression: examples come from rows where it has the same value as in the row asked.
    #[serde(default)]
    pub same: Option<String>,
}

/// Which of several matches counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Take {
    #[default]
    First,
    Last,
}

/// How the answer proper is found in what the model wrote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extract {
    /// The metric's name.
    pub name: String,
    /// A regular expression; its first group that matched, or all of it. Without one the whole answer counts.
    #[serde(default)]
    pub pattern: Option<String>,
    #[serde(default)]
    pub take: Take,
}

/// Something to look for in answers, in place of a target: refusals, or what a fixed prompt must bring about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Count {
    /// The metric's name.
    pub name: String,
    /// A regular expression; with `{{ … }}` in it a template over the row's columns that makes one.
    pub pattern: String,
    /// Answers without it count.
    #[serde(default)]
    pub absent: bool,
}

/// What a program checks of answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// The instructions that rows name in the columns of google/IFEval.
    Ifeval,
}

/// Which part of an answer is its program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// Its last fenced block, or all of it where it has none.
    #[default]
    LastBlock,
    /// All of it.
    Whole,
    /// What stands before its first fence: the prompt opened the block.
    UntilFence,
}

impl Code {
    /// The part of this answer.
    pub(super) fn of(self, answer: &str) -> &str {
        match self {
            Code::LastBlock => python::code(answer),
            Code::Whole => answer,
            Code::UntilFence => answer.split("```").next().unwrap_or(answer),
        }
    }
}

/// A program in Python that passes or fails.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PythonConfig {
    /// A template over the row's columns and `completion`, the answer's program.
    pub run: String,
    /// Which part of the answer that is.
    #[serde(default)]
    pub code: Code,
    /// Interpreter, time, memory, isolation.
    #[serde(default)]
    pub limits: Python,
}

/// How answers are written and compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AnswerConfig {
    /// A template, for `chat`: what the assistant's turn begins with. The model continues it.
    pub prefix: Option<String>,
    /// The answer ends before the first of these.
    pub until: Vec<String>,
    pub max_new_tokens: usize,
    /// One metric each, where there is a target.
    pub extract: Vec<Extract>,
    /// One metric each.
    pub counts: Vec<Count>,
    pub check: Option<Check>,
    /// Answers are run, in a sandbox, against the tests of their rows.
    pub python: Option<PythonConfig>,
    /// What answers are worth, as the rewards of a run: one metric each, and `reward`, their weighted sum, where there are several.
    pub rewards: Vec<WeightedReward>,
    /// Regular expressions taken out of answer and target before they are compared.
    pub ignore: Vec<String>,
    pub ignore_case: bool,
}

impl Default for AnswerConfig {
    fn default() -> AnswerConfig {
        AnswerConfig {
            prefix: None,
            until: vec!["\n".into()],
            max_new_tokens: 256,
            extract: vec![Extract {
                name: "exact".into(),
                pattern: None,
                take: Take::First,
            }],
            counts: Vec::new(),
            check: None,
            python: None,
            rewards: Vec::new(),
            ignore: Vec::new(),
            ignore_case: false,
        }
    }
}

/// One task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskConfig {
    pub name: String,
    /// Counts up with every change that changes results.
    pub version: u32,
    /// One sentence.
    pub summary: String,
    /// Where the task was published.
    #[serde(default)]
    pub reference: String,
    pub kind: Kind,
    pub source: SourceConfig,
    #[serde(default)]
    pub shots: Option<Shots>,
    /// A template that stands once in front of everything.
    #[serde(default)]
    pub description: String,
    /// A template: what stands before the continuation. For `text`, the text.
    #[serde(default)]
    pub prompt: String,
    /// A template, for `text`: the text whose bytes the loss is divided by. Default: `prompt`.
    #[serde(default)]
    pub measured: Option<String>,
    /// An expression with a list of prompts in place of `prompt`: the continuation is `target`, and the prompt after which it
    /// is the most likely one is the model's choice.
    #[serde(default)]
    pub prompts: Option<String>,
    /// An expression with the list of continuations.
    #[serde(default)]
    pub choices: Option<String>,
    /// An expression: the number of the right choice from 0, true for 1, or one of `labels`.
    #[serde(default)]
    pub gold: Option<String>,
    /// An expression: what the choices are called.
    #[serde(default)]
    pub labels: Option<String>,
    /// A template: the right continuation, or what the answer is compared with.
    #[serde(default)]
    pub target: Option<String>,
    /// Stands between a prompt and a continuation.
    #[serde(default = "space")]
    pub delimiter: String,
    /// An expression: results are also given for each of its values.
    #[serde(default)]
    pub group: Option<String>,
    /// The metric that stands for the task. Default: `acc_norm` or the first of its metrics.
    #[serde(default)]
    pub headline: Option<String>,
    #[serde(default)]
    pub answer: AnswerConfig,
    /// The prompt is a user's turn: the model's chat template stands around it.
    #[serde(default)]
    pub chat: bool,
}

fn space() -> String {
    " ".into()
}
