//! Which documents are held out for validation: the same ones at every start, whatever the run's seed.

use super::Unit;
use super::store::Store;
use crate::base::rng::{Rng, Stream};

/// First token and length of a document, or of a part of one.
pub(super) type Span = (u64, u64);

/// From this number on, whole documents are held out; of fewer, the last tokens.
const ENOUGH: u64 = 20;

/// The training and the validation part. Each example is held out whole with the given probability, drawn by its number, so
/// that sorted rows are no danger; one at least is. A few long texts are cut: their last tokens are held out.
pub(super) fn split(store: &Store, fraction: f64) -> (Vec<Span>, Vec<Span>) {
    if fraction <= 0.0 {
        return (store.spans().collect(), Vec::new());
    }
    if store.unit == Unit::Text && store.documents() < ENOUGH {
        return cut(store, fraction);
    }
    let documents = store.unit.documents();
    let (mut train, mut val) = (Vec::new(), Vec::new());
    let spans: Vec<Span> = store.spans().collect();
    for (number, example) in spans.chunks(documents).enumerate() {
        let mut rng = Rng::new(0, Stream::Eval, number as u64, 2);
        match rng.uniform_f64() < fraction {
            true => val.extend_from_slice(example),
            false => train.extend_from_slice(example),
        }
    }
    if val.is_empty() {
        val = train.split_off(train.len().saturating_sub(documents));
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
        let (train, val) = split(&store, 0.1);
        assert!((450..550).contains(&val.len()), "{}", val.len());
        assert_eq!(train.len() + val.len(), 5000);
        assert!(train.iter().all(|span| !val.contains(span)));
        assert_eq!(split(&store, 0.1).1, val);
        assert_eq!(split(&store, 0.0).1, []);
        assert_eq!(split(&store, 1e-9).1.len(), 1);
    }

    #[test]
    fn a_pair_is_held_out_with_both_its_sides_however_few_there_are() {
        for pairs in [3, 400] {
            let mut store = store(2 * pairs, 3);
            store.unit = Unit::Pair;
            let (train, val) = split(&store, 0.25);
            assert!(!val.is_empty() && train.len() + val.len() == 2 * pairs);
            for part in [train, val] {
                let whole =
                    |pair: &[Span]| pair[0].0.is_multiple_of(6) && pair[1].0 == pair[0].0 + 3;
                assert!(part.chunks(2).all(whole), "{part:?}");
            }
        }
    }

    #[test]
    fn few_documents_are_cut_at_their_end() {
        let (train, val) = split(&store(3, 10), 0.4);
        assert_eq!(
            (train, val.clone()),
            (vec![(0, 10), (10, 8)], vec![(18, 2), (20, 10)])
        );
        assert_eq!(tokens(&val), 12);
    }
}
