//! Each target is the token after its input. A model with targets off by one still trains, but learns nothing useful.

use super::{Check, Finding, Subject};
use crate::base::text::one_line;
use crate::data::Batch;
use crate::engine::EngineError;

pub const CHECK: Check = Check {
    id: "token_shift",
    title: "Targets are the inputs' next tokens",
    computes: false,
    run,
};

/// Tokens shown side by side.
const SHOWN: usize = 24;

fn run(subject: &mut Subject<'_>) -> Result<Finding, EngineError> {
    let batch = subject.first_batch(usize::MAX);
    let decode = |ids: &[u32]| subject.data.tokenizer.decode(ids);
    Ok(judge(&batch, &decode))
}

fn judge(batch: &Batch, decode: &dyn Fn(&[u32]) -> String) -> Finding {
    let seq_len = batch.seq_len;
    let rows = batch
        .inputs
        .chunks(seq_len)
        .zip(batch.targets.chunks(seq_len));
    let shifted = |row: usize, inputs: &[u32], targets: &[u32]| {
        (1..seq_len).all(|t| {
            // The last target of a document is its end, whatever follows it in the row.
            let begins = batch.first.get(row * seq_len + t) == Some(&(t as u32));
            begins || inputs[t] == targets[t - 1]
        })
    };
    let wrong = rows
        .clone()
        .enumerate()
        .filter(|(row, (inputs, targets))| !shifted(*row, inputs, targets))
        .count();
    let show = |ids: &[u32]| one_line(&decode(&ids[..ids.len().min(SHOWN)]));
    let evidence = format!(
        "inputs «{}» → targets «{}»",
        show(&batch.inputs),
        show(&batch.targets)
    );
    if batch.inputs.is_empty() || batch.inputs.len() != batch.targets.len() {
        return Finding::fail(
            "inputs and targets differ in length",
            "a bug in the data loader",
            "please report it with the spec",
        );
    }
    if wrong == 0 {
        return Finding::pass(evidence);
    }
    let identical = rows.clone().all(|(inputs, targets)| inputs == targets);
    let cause = if identical {
        "targets equal inputs: they are not shifted, and the model only learns to copy"
    } else {
        "the shift between inputs and targets is not one token"
    };
    Finding::fail(
        format!("{wrong} sequences are not shifted by one; {evidence}"),
        cause,
        "take inputs and targets from one sequence, one token apart",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Status;

    fn verdict(targets: [u32; 6]) -> Finding {
        let batch = Batch {
            inputs: vec![1, 2, 3, 7, 8, 9],
            targets: targets.into(),
            batch_size: 2,
            seq_len: 3,
            ..Batch::default()
        };
        judge(&batch, &|ids| format!("{ids:?}"))
    }

    #[test]
    fn one_token_passes_none_and_two_fail() {
        let good = verdict([2, 3, 4, 8, 9, 1]);
        assert_eq!(good.status, Status::Pass);
        assert!(
            good.evidence.to_string().contains("[1, 2, 3, 7, 8, 9]"),
            "{}",
            good.evidence
        );
        let same = verdict([1, 2, 3, 7, 8, 9]);
        assert_eq!(same.status, Status::Fail);
        assert!(same.cause.contains("copy"), "{}", same.cause);
        let packed = Batch {
            inputs: vec![1, 2, 7, 8],
            targets: vec![2, 3, 8, 9],
            first: vec![0, 0, 2, 2],
            batch_size: 1,
            seq_len: 4,
            ..Batch::default()
        };
        let decode = |ids: &[u32]| format!("{ids:?}");
        assert_eq!(judge(&packed, &decode).status, Status::Pass);
        let run_together = Batch {
            first: Vec::new(),
            ..packed
        };
        assert_eq!(judge(&run_together, &decode).status, Status::Fail);
        let two = verdict([3, 4, 5, 9, 1, 2]);
        assert_eq!(two.status, Status::Fail);
        let one_row = verdict([2, 3, 4, 7, 8, 9]);
        assert!(
            one_row.evidence.to_string().starts_with("1 sequences"),
            "{}",
            one_row.evidence
        );
    }
}
