//! Answers end with a supervised token. If none does, the model never learns to stop: the most common fault in fine-tuning,
//! which is invisible in the loss.

use super::samples::{self, Sample};
use super::{Check, Finding, OWN_ANSWERS, Subject};
use crate::base::finding::Status;
use crate::data::Unit;
use crate::data::source::{Origin, SourceConfig};
use crate::engine::EngineError;
use crate::methods::LossMask;

pub const CHECK: Check = Check {
    id: "answers_end",
    title: "Answers end with a supervised token",
    computes: false,
    run,
};

fn run(subject: &mut Subject<'_>) -> Result<Finding, EngineError> {
    if subject.spec.method.needs().unit == Unit::Ranked {
        return Ok(Finding::not_applicable(
            "answers are scored at their last token; nothing is generated",
        ));
    }
    if subject.spec.method.needs().mask != LossMask::CompletionOnly {
        return Ok(Finding::not_applicable(
            "plain text: there are no answers to end",
        ));
    }
    if subject.answers_are_its_own() {
        return Ok(Finding::not_applicable(OWN_ANSWERS));
    }
    let tokenizer = &subject.data.tokenizer;
    let names = |ids: &[u32]| tokenizer.decode(ids);
    let samples = samples::first(subject);
    let sources = subject.spec.data.all_sources();
    let made_up = |source: &SourceConfig| matches!(source.origin, Origin::Synthetic(_));
    if subject.data.ends.is_empty()
        && sources.iter().all(made_up)
        && let Some(finding) = of_lines(&samples, &names)
    {
        return Ok(finding);
    }
    let finding = judge(&samples, &subject.data.ends, &names);
    if subject.data.is_plain_text() {
        return Ok(of_text(finding));
    }
    Ok(match tokenizer.eos() {
        Some(eos) if !subject.data.cut_marks.is_empty() => of_cut_marks(finding, &names(&[eos])),
        _ => finding,
    })
}

/// Ends that never come because the template's are no tokens of this vocabulary: there is a template that has others.
fn of_cut_marks(finding: Finding, eos: &str) -> Finding {
    if finding.status != Status::Fail {
        return finding;
    }
    let cause = "the template ends answers with markers that are not tokens of this vocabulary";
    let fix = format!("-s data.template=plain ends answers with {eos}");
    Finding::fail(finding.evidence, cause, fix)
}

/// Ends that never come because there are no answers.
fn of_text(finding: Finding) -> Finding {
    if finding.status != Status::Fail {
        return finding;
    }
    let cause = "the data are one plain text: it has no prompts and answers, and every token of it is supervised";
    let fix = "name rows with prompts and answers (JSONL, CSV, parquet); -s method=pretrain learns a text as it stands";
    Finding::fail(finding.evidence, cause, fix)
}

/// Made-up answers are one line each and end with it, so a vocabulary of characters has their end, too. Answers of other data
/// may have many lines: a line break says nothing there.
fn of_lines(samples: &[Sample], names: &dyn Fn(&[u32]) -> String) -> Option<Finding> {
    let all = samples.len();
    let ends = |sample: &&Sample| {
        let last = sample.supervised.last();
        last.is_some_and(|id| names(&[*id]).ends_with('\n'))
    };
    let ended = samples.iter().filter(ends).count();
    let evidence = format!(
        "synthetic answers end with a line break: the last target in {ended} of {all} samples"
    );
    (all > 0 && 2 * ended >= all).then(|| Finding::pass(evidence))
}

fn judge(samples: &[Sample], ends: &[u32], names: &dyn Fn(&[u32]) -> String) -> Finding {
    if ends.is_empty() {
        return Finding::warn(
            "the vocabulary has no EOS or end-of-turn token",
            "generation stops only at its length limit or a stop string",
            "use a tokenizer with such a token",
        );
    }
    let ended = samples
        .iter()
        .filter(|sample| sample.supervised.iter().any(|id| ends.contains(id)))
        .count();
    let all = samples.len();
    let evidence = format!("{} is a target in {ended} of {all} samples", names(ends));
    let cause = "the template or the mask omits the end, or rows are truncated before it";
    let fix = "inspect rows in the Data pane; check data.template, data.train_on and data.too_long";
    match ended {
        0 => Finding::fail(evidence, cause, fix),
        _ if 2 * ended < all => Finding::warn(evidence, cause, fix),
        _ => Finding::pass(evidence),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(supervised: &[&[u32]], ends: &[u32]) -> Status {
        let samples: Vec<Sample> = supervised
            .iter()
            .map(|supervised| Sample {
                ids: vec![1, 9],
                supervised: supervised.to_vec(),
            })
            .collect();
        judge(&samples, ends, &|_| "<|im_end|>".into()).status
    }

    #[test]
    fn answers_of_one_line_end_with_it() {
        let names = |ids: &[u32]| if ids == [7] { "\n" } else { "a" }.to_string();
        let of = |supervised: &[&[u32]]| {
            let samples: Vec<Sample> = supervised
                .iter()
                .map(|supervised| Sample {
                    ids: vec![1],
                    supervised: supervised.to_vec(),
                })
                .collect();
            of_lines(&samples, &names).map(|finding| finding.status)
        };
        assert_eq!(of(&[&[1, 7], &[2, 7]]), Some(Status::Pass));
        // Part of an answer may be at the end of a row.
        assert_eq!(of(&[&[1, 7], &[2]]), Some(Status::Pass));
        assert_eq!(of(&[&[7, 1], &[2]]), None);
        assert_eq!(of(&[]), None);
    }

    /// A circle otherwise: `data.template` is to be looked at, `auto` has no template, and `chatml` is cut.
    #[test]
    fn a_template_whose_ends_are_no_tokens_is_met_with_one_whose_are() {
        let never = Finding::fail("</s> is a target in 0 of 64 samples", "?", "?");
        let found = of_cut_marks(never, "</s>");
        assert_eq!(found.status, Status::Fail);
        assert_eq!(found.fix, "-s data.template=plain ends answers with </s>");
        let good = of_cut_marks(Finding::pass("all"), "</s>");
        assert_eq!(good.status, Status::Pass);
    }

    /// The template and the mask were blamed.
    #[test]
    fn a_text_without_answers_is_the_cause_where_it_is_one() {
        let never = Finding::fail("<|im_end|> is a target in 0 of 64 samples", "?", "?");
        let found = of_text(never);
        assert_eq!(found.status, Status::Fail);
        assert!(
            found.cause.contains("no prompts and answers"),
            "{}",
            found.cause
        );
        assert_eq!(found.changes(), ["method=pretrain"]);
    }

    #[test]
    fn an_end_that_is_never_a_target_stops_the_run() {
        assert_eq!(status(&[&[1, 9], &[9]], &[9]), Status::Pass);
        assert_eq!(status(&[&[1], &[2], &[9]], &[9]), Status::Warn);
        assert_eq!(status(&[&[1], &[2]], &[9]), Status::Fail);
        assert_eq!(status(&[], &[9]), Status::Fail);
        assert_eq!(status(&[&[1]], &[]), Status::Warn);
    }
}
