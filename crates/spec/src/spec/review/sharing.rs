//! Rows of a micro-batch that the processes of a run cannot share evenly: every one computes as many as the fullest.

use crate::base::human::percent;
use super::{Subject, poor};
use crate::base::finding::Finding;

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let rows = subject.spec.train.micro_batch_size as u64;
    let ranks = subject.sizes.ranks;
    ranks
        .and_then(|ranks| uneven_rows(rows, ranks))
        .into_iter()
        .collect()
}

/// What is lost with so many rows on so many ranks; `None` where each gets as many.
pub fn uneven_rows(rows: u64, ranks: u64) -> Option<Finding> {
    let share = rows.div_ceil(ranks.max(1));
    let places = share * ranks;
    if rows == places {
        return None;
    }
    let of = match ranks - rows.div_ceil(share) {
        0 => "the last rank gets fewer".to_string(),
        1 => "1 rank gets none".to_string(),
        n => format!("{n} ranks get none"),
    };
    let others = match rows / ranks * ranks {
        0 => String::new(),
        below => format!("{below} or "),
    };
    let what = format!(
        "it is the total of all ranks, and {rows} over {ranks}: {of}, {} of the work is wasted",
        percent((places - rows) as f64 / places as f64, 0)
    );
    let fix = format!("-s train.micro_batch_size={places}; {others}fewer ranks do as well");
    let source = "each rank computes as many rows as the fullest one";
    let found = poor("train.micro_batch_size", what, fix, source);
    Some(found)
}
