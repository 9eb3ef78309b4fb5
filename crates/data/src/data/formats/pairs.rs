//! A chosen and a rejected answer: their common prefix is the prompt; and the checks that every pair must pass.

use super::row::Row;
use super::turns::with_system;
use crate::data::{Content, RowFault, Turns};

/// The common beginning and the two ends. As TRL does it, both ends keep at least one character or message, and a space
/// in front of where texts part belongs to the ends. A `system` column goes in front of turns.
pub(super) fn split(row: &Row<'_>, chosen: Turns, rejected: Turns) -> Result<Content, RowFault> {
    if chosen == rejected {
        return Err(same(row));
    }
    match (chosen, rejected) {
        (Turns::Text(chosen), Turns::Text(rejected)) => {
            let at = common_text(&chosen, &rejected);
            Ok(Content::Preference {
                prompt: Turns::Text(chosen[..at].to_string()),
                chosen: Turns::Text(chosen[at..].to_string()),
                rejected: Turns::Text(rejected[at..].to_string()),
            })
        }
        (Turns::Messages(mut chosen), Turns::Messages(mut rejected)) => {
            let most = chosen.len().min(rejected.len()).saturating_sub(1);
            let at = (0..most)
                .find(|i| chosen[*i] != rejected[*i])
                .unwrap_or(most);
            if at == 0 {
                let fix =
                    "both must start with the same messages; or put the prompt into its own column";
                return Err(row.fault(
                    "chosen and rejected have no common start, so there is no prompt",
                    fix,
                ));
            }
            let rejected_end = rejected.split_off(at);
            let chosen_end = chosen.split_off(at);
            let system = row.optional_text("system")?;
            Ok(Content::Preference {
                prompt: Turns::Messages(with_system(chosen, system)),
                chosen: Turns::Messages(chosen_end),
                rejected: Turns::Messages(rejected_end),
            })
        }
        _ => Err(row.fault(
            "one of chosen and rejected is a text, the other a list of messages",
            "write both the same way",
        )),
    }
}

fn common_text(a: &str, b: &str) -> usize {
    let last = |text: &str| text.char_indices().next_back().map_or(0, |(at, _)| at);
    let most = last(a).min(last(b));
    let differ = a
        .char_indices()
        .zip(b.chars())
        .find(|((_, x), y)| x != y)
        .map(|((at, _), _)| at);
    match differ {
        Some(at) if a[..at].ends_with(' ') => (at - 1).min(most),
        Some(at) => at.min(most),
        None => most,
    }
}

pub(super) fn same(row: &Row<'_>) -> RowFault {
    row.fault(
        "chosen and rejected are the same",
        "drop such rows, or data.on_bad_row: skip: they express no preference",
    )
}
