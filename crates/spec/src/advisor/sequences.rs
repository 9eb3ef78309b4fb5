//! The sequences that a row becomes under a method: one, two, or none. Their lengths are estimated from a sample of the rows.

use crate::data::{Content, Message, Turns, Unit};
use std::ops::Add;

/// The text of one sequence; what a template writes around it comes on top.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SequenceSize {
    pub chars: u64,
    pub messages: u64,
}

impl SequenceSize {
    fn of_text(text: &str) -> SequenceSize {
        SequenceSize {
            chars: text.chars().count() as u64,
            messages: 0,
        }
    }

    fn of_messages(messages: &[Message]) -> SequenceSize {
        let chars = messages.iter().map(|m| m.content.chars().count() as u64);
        SequenceSize {
            chars: chars.sum(),
            messages: messages.len() as u64,
        }
    }

    fn of_side(side: &Turns) -> SequenceSize {
        match side {
            Turns::Messages(messages) => Self::of_messages(messages),
            Turns::Text(text) => Self::of_text(text),
        }
    }
}

impl Add for SequenceSize {
    type Output = SequenceSize;

    fn add(self, other: SequenceSize) -> SequenceSize {
        SequenceSize {
            chars: self.chars + other.chars,
            messages: self.messages + other.messages,
        }
    }
}

/// A row of the sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampledRow {
    /// Of a pair the chosen answer's comes first.
    sequences: Vec<SequenceSize>,
    /// What counts in the loss of the first one where prompts are masked.
    supervised: SequenceSize,
    /// An answer that was judged bad is not imitated.
    imitated: bool,
}

impl SampledRow {
    pub fn of(content: &Content) -> SampledRow {
        let side = SequenceSize::of_side;
        let sequences = match content {
            Content::Text(text) => vec![SequenceSize::of_text(text)],
            Content::Chat(messages) => vec![SequenceSize::of_messages(messages)],
            Content::Completion { prompt, completion }
            | Content::Labelled {
                prompt, completion, ..
            } => vec![side(prompt) + side(completion)],
            Content::Preference {
                prompt,
                chosen,
                rejected,
            } => vec![side(prompt) + side(chosen), side(prompt) + side(rejected)],
            Content::Prompt { prompt, .. } => vec![side(prompt)],
        };
        let judged_bad = matches!(
            content,
            Content::Labelled {
                desirable: false,
                ..
            }
        );
        let supervised = match content {
            Content::Text(text) => SequenceSize::of_text(text),
            Content::Chat(messages) => {
                let answers = messages.iter().filter(|m| m.role == "assistant");
                let answers: Vec<Message> = answers.cloned().collect();
                SequenceSize::of_messages(&answers)
            }
            Content::Completion { completion, .. } | Content::Labelled { completion, .. } => {
                side(completion)
            }
            Content::Preference { chosen, .. } => side(chosen),
            Content::Prompt { .. } => SequenceSize::default(),
        };
        SampledRow {
            supervised,
            sequences,
            imitated: !judged_bad,
        }
    }

    /// All of its sequences.
    pub fn sequences(&self) -> &[SequenceSize] {
        &self.sequences
    }

    /// What counts in the loss where prompts are masked.
    pub fn supervised(&self) -> &SequenceSize {
        &self.supervised
    }

    /// Those that a method of this unit reads: whoever imitates answers leaves out rejected and bad ones.
    pub fn read_by(&self, unit: Unit) -> &[SequenceSize] {
        let most = match unit {
            Unit::Text if !self.imitated => 0,
            Unit::Text | Unit::Prompt => 1,
            Unit::Pair | Unit::Ranked | Unit::Judged => self.sequences.len(),
        };
        self.sequences.get(..most).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_reads_the_sequences_that_it_learns_from() {
        let text = |text: &str| Turns::Text(text.into());
        let pair = SampledRow::of(&Content::Preference {
            prompt: text("to be"),
            chosen: text("or not"),
            rejected: text("no"),
        });
        let chars = |row: &SampledRow, unit| -> Vec<u64> {
            row.read_by(unit).iter().map(|s| s.chars).collect()
        };
        assert_eq!(chars(&pair, Unit::Text), [11]);
        assert_eq!(pair.supervised().chars, 6, "the prompt is masked");
        for unit in [Unit::Pair, Unit::Ranked, Unit::Judged] {
            assert_eq!(chars(&pair, unit), [11, 7]);
        }
        let bad = SampledRow::of(&Content::Labelled {
            prompt: text("to be"),
            completion: text("no"),
            desirable: false,
        });
        assert_eq!(chars(&bad, Unit::Text), [0; 0]);
        assert_eq!(chars(&bad, Unit::Judged), [7]);
    }
}
