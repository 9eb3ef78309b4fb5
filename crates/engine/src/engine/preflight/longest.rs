//! The longest document compared with the row length, and what happened to longer ones.

use super::{Check, Finding, Subject};
use crate::base::finding::Status;
use crate::base::human::{grouped, percent};
use crate::base::text::one_line;
use crate::data::{Loss, TrainingCounts};
use crate::engine::EngineError;

pub const CHECK: Check = Check {
    id: "longest",
    title: "Documents fit into rows",
    computes: false,
    run,
};

/// Share of documents that lose tokens at which we warn.
const WARN: f64 = 0.05;

fn run(subject: &mut Subject<'_>) -> Result<Finding, EngineError> {
    let seq_len = subject.data.seq_len() as u64;
    let model = &subject.spec.model;
    let is_scaled = subject.spec.train.from.is_some()
        && model
            .position
            .rope()
            .is_some_and(|rope| rope.scaling.is_some());
    let original = is_scaled.then(|| model.original_context() as u64);
    Ok(match &subject.data.learning {
        Some(learning) => {
            let found = judge(learning, seq_len);
            let short = original.and_then(|original| too_short(learning, original, seq_len));
            short
                .filter(|_| found.status == Status::Pass)
                .unwrap_or(found)
        }
        None => Finding::pass(format!("one text, split into windows of {seq_len} tokens")),
    })
}

/// A document attends to itself alone, in packed rows too: no distance is longer than the longest one.
fn too_short(learning: &TrainingCounts, original: u64, seq_len: u64) -> Option<Finding> {
    let stays_within = learning.longest <= original && seq_len > original;
    stays_within.then(|| {
        Finding::warn(
            format!(
                "the longest document has {} tokens, and the model was trained with {} before its positions were scaled",
                grouped(learning.longest),
                grouped(original)
            ),
            "tokens attend to their own document only: no distance beyond the original context occurs, and the longer context is not learned",
            "add longer documents; or -s data.format=text reads a text as one, in windows of whole rows",
        )
    })
}

fn with_tokens(lost: u64) -> String {
    match lost {
        0 => String::new(),
        n => format!(", with {} tokens", grouped(n)),
    }
}

fn judge(learning: &TrainingCounts, seq_len: u64) -> Finding {
    let longest = format!(
        "the longest document has {} tokens, a row {}",
        grouped(learning.longest),
        grouped(seq_len)
    );
    let share = learning.too_long as f64 / learning.documents.max(1) as f64;
    if learning.lost_tokens + learning.cut_off == 0 {
        let split = match learning.too_long {
            0 => String::new(),
            n => format!("; {} continue in further rows", grouped(n)),
        };
        return Finding::pass(longest + &split);
    }
    let tokens = with_tokens(learning.lost_tokens);
    let unanswered = match learning.cut_off {
        0 => String::new(),
        n => format!("; {} of them lose their whole answer", grouped(n)),
    };
    let evidence = format!(
        "{longest}; {} of {} are truncated or dropped ({}){tokens}{unanswered}",
        grouped(learning.too_long),
        grouped(learning.documents),
        percent(share, 1),
    );
    // One long text beside many short conversations is a small share of all documents, and all of its source.
    let hurt = |loss: &&Loss| loss.cut as f64 > WARN * loss.documents as f64;
    let hurt: Vec<&Loss> = learning.losses.iter().filter(hurt).collect();
    if share <= WARN && hurt.is_empty() {
        return Finding::pass(evidence);
    }
    let named = hurt.iter().map(|loss| {
        let tokens = with_tokens(loss.tokens);
        let source = one_line(&loss.source);
        // Counted above.
        if loss.documents == learning.documents {
            return format!("; all in {source}");
        }
        let (cut, all) = (grouped(loss.cut), grouped(loss.documents));
        format!("; {source}: {cut} of {all}{tokens}")
    });
    let evidence = named.fold(evidence, |evidence, of| evidence + &of);
    let texts = hurt.iter().filter(|loss| !loss.conversations).count();
    let (cause, fix) = match (texts, hurt.len() - texts) {
        (0, _) => (
            "truncation removes the end of a document, where answers are",
            "raise model.seq_len, or change data.too_long",
        ),
        (_, 0) => (
            "plain text is truncated to one row",
            "remove data.too_long: texts then continue in further rows, as with -s data.too_long=split",
        ),
        _ => (
            "plain text is truncated to one row, and truncation removes the end of a document, where answers are",
            "remove data.too_long: texts then continue in further rows; raise model.seq_len for the conversations",
        ),
    };
    Finding::warn(evidence, cause, fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_within_the_original_context_teach_none_of_the_longer_one() {
        let learning = |longest| TrainingCounts {
            documents: 10,
            longest,
            ..TrainingCounts::default()
        };
        let found = too_short(&learning(30), 32, 128).unwrap();
        assert_eq!(found.status, Status::Warn);
        assert!(found.evidence.to_string().contains("trained with 32"));
        assert!(too_short(&learning(33), 32, 128).is_none());
        assert!(
            too_short(&learning(30), 32, 32).is_none(),
            "short rows are said elsewhere"
        );
    }

    #[test]
    fn lost_tokens_of_many_documents_are_a_warning() {
        let judged = |too_long, lost_tokens| {
            let learning = TrainingCounts {
                documents: 100,
                longest: 900,
                too_long,
                lost_tokens,
                ..TrainingCounts::default()
            };
            judge(&learning, 512)
        };
        assert_eq!(
            judged(0, 0).evidence.to_string(),
            "the longest document has 900 tokens, a row 512"
        );
        assert_eq!(judged(40, 0).status, Status::Pass);
        assert_eq!(judged(2, 500).status, Status::Pass);
        let many = judged(40, 9000);
        assert_eq!(many.status, Status::Warn);
        assert!(
            many.evidence.to_string().contains("40 of 100")
                && many.evidence.to_string().contains("9,000 tokens")
        );
    }

    /// Prompts that fill a row leave no token of their answers: no document is cut, and these do not fit either.
    #[test]
    fn answers_behind_the_end_of_a_row_are_documents_that_do_not_fit() {
        let judged = judge(
            &TrainingCounts {
                documents: 57,
                longest: 11_443,
                nothing_supervised: 6,
                cut_off: 6,
                too_long: 6,
                losses: vec![Loss {
                    source: "chats.jsonl".into(),
                    conversations: true,
                    documents: 57,
                    cut: 6,
                    tokens: 0,
                }],
                ..TrainingCounts::default()
            },
            256,
        );
        assert_eq!(judged.status, Status::Warn);
        assert_eq!(
            judged.evidence.to_string(),
            "the longest document has 11,443 tokens, a row 256; 6 of 57 are truncated or dropped (10.5 %); 6 of them lose their \
             whole answer; all in chats.jsonl"
        );
    }

    /// One long text of a mix is 1 of 1,001 documents, and all of its source.
    #[test]
    fn a_source_that_is_cut_is_named_with_a_fix_that_suits_it() {
        let of = |conversations| {
            judge(
                &TrainingCounts {
                    documents: 1_001,
                    longest: 207_217,
                    too_long: 1,
                    lost_tokens: 206_960,
                    losses: vec![Loss {
                        source: "book.txt".into(),
                        conversations,
                        documents: 1,
                        cut: 1,
                        tokens: 206_960,
                    }],
                    ..TrainingCounts::default()
                },
                256,
            )
        };
        let text = of(false);
        assert_eq!(text.status, Status::Warn);
        let seen = text.evidence.to_string();
        assert!(
            seen.contains("book.txt: 1 of 1, with 206,960 tokens"),
            "{seen}"
        );
        assert_eq!(text.changes(), ["data.too_long=split"]);
        assert!(of(true).fix.contains("raise model.seq_len"));
    }
}
