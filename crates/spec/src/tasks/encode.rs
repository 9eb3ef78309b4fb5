//! Text to tokens as lm-evaluation-harness 0.4 does it: context and continuation are tokenized together and cut where the
//! context alone ends; spaces at the end of the context go to the continuation; what is too long loses its beginning.

use super::subject::Subject;
use crate::data::DataError;

/// Tokens of a context and of its continuation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pair {
    pub context: Vec<u32>,
    pub continuation: Vec<u32>,
    /// Tokens that were cut off in front.
    pub cut: usize,
}

/// Why a pair has no tokens.
#[derive(Debug)]
pub(super) enum EncodeError {
    Data(DataError),
    Said(String),
}

impl From<DataError> for EncodeError {
    fn from(error: DataError) -> EncodeError {
        EncodeError::Data(error)
    }
}

impl std::fmt::Display for EncodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            EncodeError::Data(error) => error.fmt(f),
            EncodeError::Said(what) => f.write_str(what),
        }
    }
}

impl Subject<'_> {
    /// # Errors
    /// Text that the tokenizer refuses, or a continuation without tokens or longer than the model's context.
    pub(super) fn pair(&self, context: &str, continuation: &str) -> Result<Pair, EncodeError> {
        let (context, continuation) = match context {
            "" => {
                let ids = self.tokenizer.encode(continuation)?;
                match self.prefix {
                    Some(prefix) if ids.first() != Some(&prefix) => (vec![prefix], ids),
                    Some(_) => (ids[..1].to_vec(), ids[1..].to_vec()),
                    None => {
                        let what = "its prompt is empty, and the model has no BOS or EOS token";
                        return Err(EncodeError::Said(what.into()));
                    }
                }
            }
            context => {
                let kept = context.trim_end();
                let spaces = &context[kept.len()..];
                let whole = self
                    .tokenizer
                    .encode_begun(&format!("{kept}{spaces}{continuation}"))?;
                let context = self.tokenizer.encode_begun(kept)?;
                let rest = whole.get(context.len()..).unwrap_or_default().to_vec();
                (context, rest)
            }
        };
        self.fitted(context, continuation)
    }

    fn fitted(&self, mut context: Vec<u32>, continuation: Vec<u32>) -> Result<Pair, EncodeError> {
        let limit = self.model.shape().seq_len;
        if continuation.is_empty() || context.is_empty() {
            let what =
                "its continuation has no separate tokens: the tokenizer merges it into the prompt";
            return Err(EncodeError::Said(what.into()));
        }
        if continuation.len() > limit {
            return Err(EncodeError::Said(format!(
                "its continuation has {} tokens, more than the model's context of {limit}",
                continuation.len()
            )));
        }
        // The last token is predicted, not read.
        let cut = (context.len() + continuation.len()).saturating_sub(limit + 1);
        context.drain(..cut);
        Ok(Pair {
            context,
            continuation,
            cut,
        })
    }

    /// A whole text in windows: every token is predicted once, with as much in front of it as its window has. Windows do not
    /// overlap, but for the last one, which is full. The first token is predicted behind the one that begins or ends texts;
    /// where there is none it is not predicted.
    pub(super) fn windows(&self, text: &str) -> Result<Vec<Pair>, DataError> {
        let mut ids = self.tokenizer.encode_begun(text)?;
        // The tokenizer's own begin is given, as the other is that stands in for one.
        let mut given = self.tokenizer.lead().len();
        if given == 0 {
            given = 1;
            ids.splice(0..0, self.prefix);
        }
        let limit = self.model.shape().seq_len;
        let (mut windows, mut at) = (Vec::new(), given);
        while at < ids.len() {
            let to = (at + limit).min(ids.len());
            // The last window reaches back over what is predicted already.
            let from = match at {
                at if at == given => 0,
                _ => (to - 1).saturating_sub(limit),
            };
            windows.push(Pair {
                context: ids[from..at].to_vec(),
                continuation: ids[at..to].to_vec(),
                cut: 0,
            });
            at = to;
        }
        Ok(windows)
    }
}
