//! Token ids are within the model's vocabulary, and the BOS token occurs once.

use super::samples::{self, Sample};
use super::{Check, Finding, Subject};
use crate::engine::EngineError;

pub const CHECK: Check = Check {
    id: "token_ids",
    title: "Token ids are valid, no double BOS",
    computes: false,
    run,
};

fn run(subject: &mut Subject<'_>) -> Result<Finding, EngineError> {
    let vocab_size = subject.state.models.policy.shape().vocab_size;
    let samples = samples::first(subject);
    Ok(judge(&samples, vocab_size, subject.data.tokenizer.bos()))
}

fn judge(samples: &[Sample], vocab_size: usize, bos: Option<u32>) -> Finding {
    let ids = samples.iter().flat_map(|sample| &sample.ids);
    let highest = ids.copied().max().unwrap_or_default();
    if highest as usize >= vocab_size {
        return Finding::fail(
            format!("the id {highest}, in a vocabulary of {vocab_size}"),
            "the tokenizer does not match the model",
            "use the tokenizer that the model was trained with (data.tokenizer)",
        );
    }
    let doubled = |sample: &&Sample| {
        let begins = sample.ids.get(..2);
        bos.is_some_and(|bos| begins == Some(&[bos, bos]))
    };
    let n = samples.iter().filter(doubled).count();
    if n > 0 {
        return Finding::fail(
            format!("{n} of {} samples start with two BOS tokens", samples.len()),
            "the rows contain it and the template or the tokenizer adds another",
            "remove it from the rows",
        );
    }
    Finding::pass(format!(
        "the highest id of {} samples is {highest}, below {vocab_size}",
        samples.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Status;

    fn status(ids: &[u32], vocab_size: usize) -> Status {
        let sample = Sample {
            ids: ids.to_vec(),
            supervised: vec![1],
        };
        judge(&[sample], vocab_size, Some(1)).status
    }

    #[test]
    fn unknown_ids_and_doubled_begins_fail() {
        assert_eq!(status(&[1, 5, 9], 10), Status::Pass);
        assert_eq!(status(&[1, 5, 10], 10), Status::Fail);
        assert_eq!(status(&[1, 1, 5], 10), Status::Fail);
        assert_eq!(status(&[5, 1, 1], 10), Status::Pass);
    }
}
