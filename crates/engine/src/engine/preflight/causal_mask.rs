//! No token attends to its future: changing a token changes no earlier logit, bit by bit.

use super::{Check, Finding, Subject};
use crate::engine::EngineError;

pub const CHECK: Check = Check {
    id: "causal_mask",
    title: "No token sees the future",
    computes: true,
    run,
};

/// Tokens of the probe.
const LEN: usize = 32;

fn run(subject: &mut Subject<'_>) -> Result<Finding, EngineError> {
    let mut tokens = subject.first_batch(1).inputs;
    tokens.truncate(subject.spec.model.seq_len.min(LEN));
    if tokens.len() < 2 {
        return Ok(Finding::pass("sequences of one token have no future"));
    }
    let model = &mut subject.state.models.policy;
    let vocab_size = model.shape().vocab_size;
    judge(tokens, vocab_size, &mut |tokens| {
        model
            .logits(tokens, 1, tokens.len())?
            .flatten_all()?
            .to_vec1()
    })
}

/// `logits` gives (len, V) row-major, or (len, 1).
fn judge(
    tokens: Vec<u32>,
    vocab_size: usize,
    logits: &mut dyn FnMut(&[u32]) -> candle_core::Result<Vec<f32>>,
) -> Result<Finding, EngineError> {
    let before = logits(&tokens)?;
    // A reward model has one number for each token.
    let width = before.len() / tokens.len();
    let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    for changed in [1, tokens.len() / 2, tokens.len() - 1] {
        let mut other = tokens.clone();
        other[changed] = (other[changed] + 1) % vocab_size as u32;
        let after = logits(&other)?;
        let past = changed * width;
        if let Some(at) = (0..changed).find(|row| {
            let row = row * width..(row + 1) * width;
            bits(&before[row.clone()]) != bits(&after[row])
        }) {
            return Ok(Finding::fail(
                format!("changing token {changed} changed the logits of token {at}"),
                "attention looks ahead: the mask is missing or shifted",
                "fix the mask: with it the loss falls to 0 and the model generates nonsense",
            ));
        }
        if bits(&before[past..]) == bits(&after[past..]) {
            return Ok(Finding::fail(
                format!("changing token {changed} changed no logit at all"),
                "the model ignores its inputs",
                "",
            ));
        }
    }
    Ok(Finding::pass(format!(
        "3 tokens of {} changed in turn: earlier logits have the same bits",
        tokens.len()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Status;

    /// A model of vocabulary 3 whose logits at `row` sum over the tokens in `seen(row)`.
    fn verdict(seen: impl Fn(usize, usize) -> std::ops::Range<usize>) -> Finding {
        let mut logits = |tokens: &[u32]| {
            let rows = (0..tokens.len()).flat_map(|row| {
                let sum: u32 = tokens[seen(row, tokens.len())].iter().sum();
                [sum as f32, 1.0, 2.0]
            });
            Ok(rows.collect())
        };
        judge(vec![0, 1, 2, 0, 1, 2, 0, 1], 3, &mut logits).unwrap()
    }

    #[test]
    fn the_past_alone_passes_and_any_look_ahead_fails() {
        assert_eq!(verdict(|row, _| 0..row + 1).status, Status::Pass);
        let peek = verdict(|row, len| 0..(row + 2).min(len));
        assert_eq!(peek.status, Status::Fail);
        assert!(
            peek.evidence
                .to_string()
                .contains("token 1 changed the logits of token 0"),
            "{}",
            peek.evidence
        );
        assert_eq!(verdict(|_, len| 0..len).status, Status::Fail);
        let blind = verdict(|_, _| 0..0);
        assert!(
            blind.cause.contains("ignores its inputs"),
            "{}",
            blind.cause
        );
    }
}
