//! Each target is the token after its input. Off by one either way still trains, and learns nothing of use.

use super::{Check, Subject, Verdict};
use crate::base::text::one_line;
use crate::data::Batch;
use crate::engine::EngineError;

pub const CHECK: Check = Check {
    id: "token_shift",
    title: "Targets are the inputs' next tokens",
    run,
};

/// Tokens shown side by side.
const SHOWN: usize = 24;

fn run(subject: &mut Subject<'_>) -> Result<Verdict, EngineError> {
    let batch = subject.first_batch(usize::MAX);
    let decode = |ids: &[u32]| subject.data.tokenizer.decode(ids);
    Ok(judge(&batch, &decode))
}

fn judge(batch: &Batch, decode: &dyn Fn(&[u32]) -> String) -> Verdict {
    let seq_len = batch.seq_len;
    let rows = batch
        .inputs
        .chunks(seq_len)
        .zip(batch.targets.chunks(seq_len));
    let wrong = rows
        .clone()
        .filter(|(inputs, targets)| inputs[1..] != targets[..seq_len - 1])
        .count();
    let show = |ids: &[u32]| one_line(&decode(&ids[..ids.len().min(SHOWN)]));
    let evidence = format!(
        "inputs «{}» → targets «{}»",
        show(&batch.inputs),
        show(&batch.targets)
    );
    if batch.inputs.is_empty() || batch.inputs.len() != batch.targets.len() {
        return Verdict::fail(
            "inputs and targets differ in length",
            "the loader is broken",
        );
    }
    if wrong == 0 {
        return Verdict::pass(evidence);
    }
    let identical = rows.clone().all(|(inputs, targets)| inputs == targets);
    let cause = if identical {
        "targets equal inputs: nothing is shifted, and the model only learns to copy"
    } else {
        "the shift between inputs and targets is not one token"
    };
    Verdict::fail(
        format!("{wrong} sequences are not shifted by one; {evidence}"),
        cause,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::CheckStatus;

    fn verdict(targets: [u32; 6]) -> Verdict {
        let batch = Batch {
            inputs: vec![1, 2, 3, 7, 8, 9],
            targets: targets.into(),
            batch_size: 2,
            seq_len: 3,
            starts: vec![0, 6],
        };
        judge(&batch, &|ids| format!("{ids:?}"))
    }

    #[test]
    fn one_token_passes_none_and_two_fail() {
        let good = verdict([2, 3, 4, 8, 9, 1]);
        assert_eq!(good.status, CheckStatus::Pass);
        assert!(
            good.evidence.contains("[1, 2, 3, 7, 8, 9]"),
            "{}",
            good.evidence
        );
        let same = verdict([1, 2, 3, 7, 8, 9]);
        assert_eq!(same.status, CheckStatus::Fail);
        assert!(same.hint.contains("copy"), "{}", same.hint);
        let two = verdict([3, 4, 5, 9, 1, 2]);
        assert_eq!(two.status, CheckStatus::Fail);
        let one_row = verdict([2, 3, 4, 7, 8, 9]);
        assert!(
            one_row.evidence.starts_with("1 sequences"),
            "{}",
            one_row.evidence
        );
    }
}
