//! The loss mask: whether targets are masked that should count, or the reverse.

use super::{Cause, Subject};
use crate::base::finding::Finding;
use crate::base::human::{grouped, percent};
use crate::base::text::one_line;
use crate::data::{TrainOn, Unit};
use crate::engine::EngineError;
use crate::methods::LossMask;

pub const CAUSE: Cause = Cause {
    id: "labels",
    title: "loss mask",
    run,
};

/// Steps whose batches are looked at.
const STEPS: u64 = 64;
/// Share of rows without a target that counts from which on the run is wrong.
const EMPTY_ROWS: f64 = 0.2;
/// Share of targets that count: below it a row teaches next to nothing, above it nothing is masked.
const FEW: f64 = 0.005;
const ALL: f64 = 0.999;
/// Characters that are shown.
const SHOWN: usize = 60;

/// Counts over the rows.
#[derive(Debug, Clone, Default, PartialEq)]
struct Counted {
    rows: u64,
    empty: u64,
    targets: u64,
    supervised: u64,
    /// The first text that counts.
    example: String,
}

fn run(subject: &Subject<'_>) -> Result<Finding, EngineError> {
    if subject.spec.method.needs().unit == Unit::Prompt {
        return Ok(Finding::not_applicable(
            "the model trains on its own completions",
        ));
    }
    let mut counted = Counted::default();
    for step in subject.spread(STEPS) {
        for row in subject.revisit.rows(step, None)? {
            counted.rows += 1;
            counted.empty += u64::from(row.supervised == 0);
            counted.targets += row.targets.len() as u64;
            counted.supervised += row.supervised as u64;
            if counted.example.is_empty() {
                let targets = row.targets.iter().zip(&row.mask);
                let ids: Vec<u32> = targets
                    .skip_while(|(_, counts)| !**counts)
                    .take_while(|(_, counts)| **counts)
                    .map(|(id, _)| *id)
                    .collect();
                counted.example = subject.data.tokenizer.decode(&ids);
            }
        }
    }
    let needs = subject.spec.method.needs();
    let answers = needs.mask == LossMask::CompletionOnly;
    let wanted = match needs.unit {
        Unit::Ranked => Wanted::LastToken,
        _ if answers && subject.spec.data.train_on != TrainOn::All => Wanted::Answers,
        _ => Wanted::AnyShare,
    };
    Ok(judge(&counted, wanted))
}

/// Which tokens the spec supervises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// Answers only.
    Answers,
    AnyShare,
    /// A score stands at the last token of each answer, however long that is.
    LastToken,
}

fn judge(counted: &Counted, wanted: Wanted) -> Finding {
    let share = counted.supervised as f64 / counted.targets.max(1) as f64;
    let empty = counted.empty as f64 / counted.rows.max(1) as f64;
    let shown: String = one_line(&counted.example).chars().take(SHOWN).collect();
    let evidence = format!(
        "{} of {} targets are supervised ({}) in {} rows of the run's batches; {} rows have none; the first supervised text: {shown:?}",
        grouped(counted.supervised),
        grouped(counted.targets),
        percent(share, 1),
        grouped(counted.rows),
        grouped(counted.empty)
    );
    let fix = "inspect rows: llmtui data batches --run RUN --step N, llmtui data inspect";
    let few = share < FEW && wanted != Wanted::LastToken;
    if few || empty > EMPTY_ROWS {
        let cause = "answers are masked or truncated: most of the compute is wasted";
        return Finding::fail(
            evidence,
            cause,
            format!("{fix}; data.train_on, data.too_long, model.seq_len"),
        );
    }
    if wanted == Wanted::LastToken {
        return Finding::not_applicable(
            "a reward model is scored at the last token of each answer: no other token is supervised",
        );
    }
    if wanted == Wanted::Answers && share > ALL {
        let cause =
            "only answers should be supervised, but prompts are too: their end was not found";
        return Finding::warn(
            evidence,
            cause,
            format!("{fix}; data.template, the roles of the turns"),
        );
    }
    Finding::pass(evidence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Status;

    #[test]
    fn masked_answers_fail_and_prompts_that_count_warn() {
        let counted = |supervised, empty| Counted {
            rows: 10,
            empty,
            targets: 1_000,
            supervised,
            example: "Hi".into(),
        };
        let status = |c: &Counted, wanted| judge(c, wanted).status;
        let answers = Wanted::Answers;
        assert_eq!(status(&counted(300, 0), answers), Status::Pass);
        assert_eq!(status(&counted(3, 0), answers), Status::Fail);
        assert_eq!(status(&counted(300, 3), answers), Status::Fail);
        assert_eq!(status(&counted(1_000, 0), answers), Status::Warn);
        assert_eq!(status(&counted(1_000, 0), Wanted::AnyShare), Status::Pass);
    }

    /// Ten answers of 300 tokens each failed as "masked".
    #[test]
    fn a_reward_model_supervises_one_token_of_a_row_of_any_length() {
        let counted = |empty: u64| Counted {
            rows: 10,
            empty,
            targets: 3_000,
            supervised: 10 - empty,
            example: "!".into(),
        };
        let status = |empty| judge(&counted(empty), Wanted::LastToken).status;
        assert_eq!(status(0), Status::NotApplicable);
        assert_eq!(status(3), Status::Fail);
    }
}
