//! Which documents are held out for validation: the same ones at every start, independent of the run's seed.

use super::Unit;
use super::store::Store;
use crate::base::rng::{Rng, Stream};
use std::collections::HashSet;

/// First token and length of a document, or of a part of one.
pub(super) type Span = (u64, u64);

/// From this number on, each row is held out by chance; of fewer, as many as the fraction says.
const ENOUGH: u64 = 20;

/// Times the share that was asked for that whole texts may come to: of two files, one is half of them.
const MOST: f64 = 2.0;

/// The training and the validation part of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Split {
    pub train: Vec<Span>,
    pub val: Vec<Span>,
    /// The last tokens are held out, which are a part of an example: none could be held out whole.
    pub is_cut: bool,
}

/// Divides the rows of a source. Each is held out whole, both answers of a pair too where they are judged one by one: with the given probability, drawn by its number, so that sorted
/// rows are no danger; of a few, their share of them, one at least, and one is left at least. A single text is cut, its last
/// tokens are held out; and so are a few texts that run together in rows of `row` tokens whose parts would be shorter than one, or of
/// which far more would be held out than was asked for. Without `row` every example is learned by itself, and stays whole.
pub(super) fn split(store: &Store, fraction: f64, row: Option<u64>) -> Split {
    let spans: Vec<Span> = store.spans().collect();
    let size = store.documents_of_row();
    let rows = (spans.len() / size) as u64;
    if fraction <= 0.0 {
        return Split {
            train: spans,
            val: Vec::new(),
            is_cut: false,
        };
    }
    let (mut train, mut val) = match few(store, fraction) {
        true => {
            let wanted = (rows as f64 * fraction).round() as u64;
            lowest(store, &spans, wanted.clamp(1, rows - 1))
        }
        false => apart(&spans, size, |number| drawn(number) < fraction),
    };
    if val.is_empty() && rows > 1 {
        val = train.split_off(train.len().saturating_sub(size));
    }
    let tokens = |spans: &[Span]| spans.iter().map(|span| span.1).sum::<u64>();
    // The shortest sequence that predicts anything has two tokens.
    let least = row.unwrap_or(2);
    let short = tokens(&train) < least || tokens(&val) < least;
    let far = row.is_some() && tokens(&val) as f64 > MOST * fraction * store.tokens() as f64;
    let is_cut = store.unit == Unit::Text && rows < ENOUGH && (rows < 2 || short || far);
    if is_cut {
        (train, val) = cut(store, fraction);
    }
    Split { train, val, is_cut }
}

/// Divides the rows of a source by number: so many are held out, whole, and one is left at least.
pub(super) fn split_rows(store: &Store, wanted: u64) -> Split {
    let spans: Vec<Span> = store.spans().collect();
    let most = rows(store).saturating_sub(1);
    let (train, val) = lowest(store, &spans, wanted.min(most));
    Split {
        train,
        val,
        is_cut: false,
    }
}

/// How many of `wanted` rows are held out of each source: in proportion to its rows, and all of them together.
pub(super) fn shares(rows: &[u64], wanted: u64) -> Vec<u64> {
    let all: u128 = rows.iter().map(|n| u128::from(*n)).sum::<u128>().max(1);
    let exact = |n: u64| u128::from(n) * u128::from(wanted);
    let mut shares: Vec<u64> = rows.iter().map(|n| (exact(*n) / all) as u64).collect();
    // What rounding down leaves goes to those who lost most by it.
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(exact(rows[*at]) % all));
    let left = wanted.saturating_sub(shares.iter().sum());
    for at in order.into_iter().take(left as usize) {
        shares[at] += 1;
    }
    shares
}

/// Rows of a source, which are divided whole.
pub(super) fn rows(store: &Store) -> u64 {
    store.documents() / store.documents_of_row() as u64
}

/// A number of a row of its own, from 0 to 1.
fn drawn(number: u64) -> f64 {
    Rng::new(0, Stream::Eval, number, 2).uniform_f64()
}

/// The `wanted` rows of the lowest draws, after the others. One of which nothing is supervised has no validation loss: such ones
/// come last.
fn lowest(store: &Store, spans: &[Span], wanted: u64) -> (Vec<Span>, Vec<Span>) {
    let size = store.documents_of_row();
    let blank = |number: u64| {
        let first = number as usize * size;
        let mut parts = spans[first..(first + size).min(spans.len())].iter();
        !parts.any(|(start, len)| store.supervised(*start, *len as usize) > 0)
    };
    let mut order: Vec<(bool, f64, u64)> = (0..rows(store))
        .map(|number| (blank(number), drawn(number), number))
        .collect();
    order.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let order = order.into_iter().take(wanted as usize);
    let held: HashSet<u64> = order.map(|(.., number)| number).collect();
    apart(spans, size, |number| held.contains(&number))
}

/// Whether so few rows are divided that their number decides, not chance.
pub(super) fn few(store: &Store, fraction: f64) -> bool {
    fraction > 0.0 && (2..ENOUGH).contains(&rows(store))
}

/// The rows that `held` does not name, and those that it does.
fn apart(spans: &[Span], size: usize, held: impl Fn(u64) -> bool) -> (Vec<Span>, Vec<Span>) {
    let (mut train, mut val) = (Vec::new(), Vec::new());
    for (number, row) in spans.chunks(size).enumerate() {
        match held(number as u64) {
            true => val.extend_from_slice(row),
            false => train.extend_from_slice(row),
        }
    }
    (train, val)
}

fn cut(store: &Store, fraction: f64) -> (Vec<Span>, Vec<Span>) {
    let at = (store.tokens() as f64 * (1.0 - fraction)) as u64;
    let (mut train, mut val) = (Vec::new(), Vec::new());
    for (start, len) in store.spans() {
        let kept = at.saturating_sub(start).min(len);
        if kept > 0 {
            train.push((start, kept));
        }
        if kept < len {
            val.push((start + kept, len - kept));
        }
    }
    (train, val)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Document;
    use crate::data::store::of_documents;

    fn store(documents: usize, len: u32) -> Store {
        let documents: Vec<Document> = (0..documents)
            .map(|_| Document::all_supervised((0..len).collect()))
            .collect();
        of_documents(&[&documents])
    }

    fn tokens(spans: &[Span]) -> u64 {
        spans.iter().map(|s| s.1).sum()
    }

    #[test]
    fn many_documents_are_held_out_whole_and_always_the_same() {
        let store = store(5000, 3);
        let Split { train, val, .. } = split(&store, 0.1, None);
        assert!((450..550).contains(&val.len()), "{}", val.len());
        assert_eq!(train.len() + val.len(), 5000);
        assert!(train.iter().all(|span| !val.contains(span)));
        assert_eq!(split(&store, 0.1, None).val, val);
        assert_eq!(split(&store, 0.0, None).val, []);
        assert_eq!(split(&store, 1e-9, None).val.len(), 1);
    }

    #[test]
    fn a_pair_is_held_out_with_both_its_sides_however_few_there_are() {
        for pairs in [2, 3, 19, 400] {
            let mut store = store(2 * pairs, 3);
            store.unit = Unit::Pair;
            let Split { train, val, .. } = split(&store, 0.25, None);
            assert!(!val.is_empty() && !train.is_empty());
            assert!(train.len() + val.len() == 2 * pairs);
            for part in [train, val] {
                let whole =
                    |pair: &[Span]| pair[0].0.is_multiple_of(6) && pair[1].0 == pair[0].0 + 3;
                assert!(part.chunks(2).all(whole), "{part:?}");
            }
        }
    }

    #[test]
    fn few_documents_are_held_out_whole_and_one_is_left() {
        for (documents, fraction, held) in [
            (2, 0.1, 1),
            (2, 0.9, 1),
            (3, 0.4, 1),
            (12, 0.1, 1),
            (12, 0.25, 3),
            (19, 0.9, 17),
        ] {
            let store = store(documents, 10);
            let Split { train, val, is_cut } = split(&store, fraction, None);
            assert_eq!((val.len(), is_cut), (held, false), "{documents} {fraction}");
            assert_eq!(train.len() + held, documents);
            assert!(train.iter().chain(&val).all(|span| span.1 == 10));
            assert!(train.iter().all(|span| !val.contains(span)));
        }
    }

    #[test]
    fn of_a_few_texts_no_more_than_twice_the_share_is_held_out() {
        for (documents, share) in [(2, 0.1), (3, 0.1), (4, 0.1), (9, 0.05)] {
            let Split { train, val, is_cut } = split(&store(documents, 100), share, Some(20));
            assert!(is_cut, "{documents} {share}");
            let all = 100.0 * documents as f64;
            assert!((tokens(&val) as f64 - share * all).abs() <= 1.0);
            assert_eq!(tokens(&train) + tokens(&val), 100 * documents as u64);
        }
        // Rows that are learned one by one stay whole.
        assert_eq!(tokens(&split(&store(4, 100), 0.1, None).val), 100);
        let mut pairs = store(4, 100);
        pairs.unit = Unit::Pair;
        assert_eq!(tokens(&split(&pairs, 0.1, None).val), 200);
    }

    #[test]
    fn a_count_of_rows_is_held_out_to_the_row() {
        for (rows, wanted, held) in [
            (5000, 100, 100),
            (12, 3, 3),
            (4, 9, 3),
            (1, 1, 0),
            (7, 0, 0),
        ] {
            let store = store(rows, 3);
            let Split { train, val, is_cut } = split_rows(&store, wanted);
            assert_eq!((val.len(), is_cut), (held, false), "{rows} {wanted}");
            assert_eq!(train.len() + val.len(), rows);
            assert!(train.iter().all(|span| !val.contains(span)));
            assert_eq!(split_rows(&store, wanted).val, val);
        }
        let mut pairs = store(40, 3);
        pairs.unit = Unit::Pair;
        assert_eq!(split_rows(&pairs, 5).val.len(), 10, "both answers");
        assert_eq!(shares(&[900, 100], 100), [90, 10]);
        assert_eq!(shares(&[10, 10, 10], 10), [4, 3, 3]);
        assert_eq!(shares(&[99, 1], 10), [10, 0]);
        assert_eq!(shares(&[5], 3), [3]);
    }

    #[test]
    fn one_document_is_cut_at_its_end() {
        let split = split(&store(1, 10), 0.4, None);
        assert!(split.is_cut);
        assert_eq!((split.train, split.val), (vec![(0, 6)], vec![(6, 4)]));
    }

    #[test]
    fn few_texts_that_run_together_are_cut_where_a_whole_one_makes_no_row() {
        let of = |len: u32| Document::all_supervised((0..len).collect());
        let store = of_documents(&[&[of(100), of(5)]]);
        assert!(!split(&store, 0.2, None).is_cut);
        let Split { train, val, is_cut } = split(&store, 0.2, Some(20));
        assert!(is_cut && tokens(&train) == 84 && tokens(&val) == 21);
        let store = of_documents(&[&[of(50), of(50)]]);
        assert!(!split(&store, 0.3, Some(20)).is_cut);
        let Split { train, val, is_cut } = split(&store, 0.3, Some(60));
        assert!(is_cut && tokens(&train) == 70 && tokens(&val) == 30);
    }

    #[test]
    fn what_has_nothing_to_predict_is_not_what_is_held_out() {
        let blank = Document {
            ids: (0..4).collect(),
            supervised: vec![false; 4],
        };
        let answer = Document::all_supervised((0..4).collect());
        let store = of_documents(&[&[blank.clone(), blank.clone(), answer.clone(), answer, blank]]);
        let Split { val, .. } = split(&store, 0.1, None);
        assert!(val == [(8, 4)] || val == [(12, 4)], "{val:?}");
    }
}
