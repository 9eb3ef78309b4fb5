//! The unit of training: one example of a data set. The store keeps examples, the hold-out draws them, packing places them;
//! none of them splits one.

/// The kinds of examples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unit {
    /// One text, conversation or completion: one sequence.
    #[default]
    Text,
    /// Two answers to one prompt: the chosen sequence, then the rejected one.
    Pair,
    /// The same to score: of each sequence one place counts, at its last token; with how much better the chosen one is.
    Ranked,
    /// An answer that was judged alone, with its label.
    Judged,
    /// A prompt that the model answers itself, with what rewards compare the answer with.
    Prompt,
}

impl Unit {
    /// What a row must contain, in words.
    pub fn needs(self) -> &'static str {
        match self {
            Unit::Text => "a text, a completion or a conversation",
            Unit::Pair | Unit::Ranked => "a prompt with a chosen and a rejected answer",
            Unit::Judged => "an answer with its label, good or bad",
            Unit::Prompt => "a prompt to answer",
        }
    }

    /// The methods that train on it, by their names in a spec.
    pub fn methods(self) -> &'static [&'static str] {
        match self {
            Unit::Text => &["pretrain", "sft", "distill"],
            Unit::Pair | Unit::Ranked => &["dpo", "orpo", "simpo", "cpo", "reward"],
            Unit::Judged => &["kto"],
            Unit::Prompt => &["ppo", "grpo", "rloo"],
        }
    }

    /// Sequences of an example in a batch; they are adjacent.
    pub fn sequences(self) -> usize {
        match self {
            Unit::Text | Unit::Judged | Unit::Prompt => 1,
            Unit::Pair | Unit::Ranked => 2,
        }
    }

    /// Documents of an example in the store; they are adjacent. A judged answer is followed by its label, one id:
    /// 1 is desirable. A prompt is followed by its reference: the bytes of a JSON object, one for each id. A ranked pair is
    /// followed by its margin: the bits of an f32 in two ids.
    pub fn documents(self) -> usize {
        match self {
            Unit::Text => 1,
            Unit::Pair | Unit::Judged | Unit::Prompt => 2,
            Unit::Ranked => 3,
        }
    }
}
