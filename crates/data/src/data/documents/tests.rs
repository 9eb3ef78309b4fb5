//! Rows of every packing: their contents, the masks, and that splits and mixtures are kept.

use super::super::store::{Store, of_documents};
use super::*;
use crate::data::pack::TooLong;
use crate::data::{Document, Order};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Documents whose every token is another number, supervised but for their first third.
fn documents(lens: &[usize], from: u32) -> Vec<Document> {
    let mut next = from;
    let document = |len: &usize| {
        let ids = (next..next + *len as u32).collect();
        next += *len as u32;
        Document {
            ids,
            supervised: (0..*len).map(|i| i > len / 3).collect(),
        }
    };
    lens.iter().map(document).collect()
}

fn data(sources: &[(&[usize], f64)], packing: Packing) -> Documents {
    let how = Layouting {
        packing,
        too_long: TooLong::Split,
        order: Order::Shuffled,
        seq_len: 12,
        unit: Unit::Text,
    };
    let portion = |(i, (lens, _)): (usize, &(&[usize], f64))| {
        let documents = documents(lens, 100_000 * i as u32);
        let store = Arc::new(of_documents(&[&documents]));
        let spans: Vec<_> = store.spans().collect();
        Portion::new(&format!("s{i}"), &store, &spans, how).0
    };
    let portions = || sources.iter().enumerate().map(portion).collect();
    Documents {
        train: portions(),
        val: portions(),
        passes: None,
        stages: vec![Wanted {
            until_tokens: None,
            weights: sources.iter().map(|s| s.1).collect(),
        }],
        how,
        bytes_per_token: None,
    }
}

/// How often each token was predicted and supervised; checks that rows keep documents apart.
fn seen(batch: &Batch, counts: &mut BTreeMap<u32, (u32, u32)>) {
    let n = batch.batch_size * batch.seq_len;
    assert!(
        [
            batch.inputs.len(),
            batch.targets.len(),
            batch.mask.len(),
            batch.first.len()
        ] == [n; 4]
    );
    let mut tokens = 0;
    for i in 0..n {
        let t = (i % batch.seq_len) as u32;
        let padding = (batch.inputs[i], batch.targets[i]) == (0, 0);
        if padding {
            assert!(!batch.mask[i] && batch.first[i] == t);
            continue;
        }
        tokens += 1;
        assert_eq!(batch.targets[i], batch.inputs[i] + 1);
        // Within its document the tokens are consecutive: nothing of another one is visible.
        let first = batch.first[i];
        assert_eq!(
            batch.inputs[i] - batch.inputs[i - (t - first) as usize],
            t - first
        );
        let count = counts.entry(batch.targets[i]).or_default();
        count.0 += 1;
        count.1 += u32::from(batch.mask[i]);
    }
    assert_eq!(batch.n_tokens(), tokens);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn an_epoch_predicts_every_token_once_with_its_own_mask(
        lens in prop::collection::vec(2_usize..40, 1..60),
        batch_size in 1_usize..5,
        padded in any::<bool>(),
    ) {
        let packing = if padded { Packing::Padded } else { Packing::Packed };
        let data = data(&[(&lens, 1.0)], packing);
        let rows = data.train[0].draws(batch_size);
        // Whole epochs only where batches fit them: rows by ones.
        let batch_size = if padded { batch_size } else { 1 };
        let rows = if padded { data.train[0].draws(batch_size) } else { rows };
        let mut counts = BTreeMap::new();
        let mut batch = Batch::default();
        for micro_step in 0..rows {
            data.fill_train(&mut batch, 5, micro_step, batch_size);
            seen(&batch, &mut counts);
        }
        // Each third was cut: parts of long documents of which nothing is supervised are skipped.
        let document = documents(&lens, 0);
        for document in &document {
            for (id, supervised) in document.ids.iter().zip(&document.supervised).skip(1) {
                match counts.get(id) {
                    Some((predicted, weight)) => {
                        prop_assert_eq!((*predicted, *weight), (1, u32::from(*supervised)));
                    }
                    None => prop_assert!(!supervised || document.ids.len() > 13),
                }
                prop_assert!(!supervised || counts.contains_key(id));
            }
        }
        // What counts in a loss over tokens, counted without a batch.
        let counted: u32 = counts.values().map(|(_, supervised)| supervised).sum();
        prop_assert_eq!(data.val[0].supervised(), u64::from(counted));
        // Evaluation covers the same.
        let mut whole = BTreeMap::new();
        for first in (0..data.val_rows()).step_by(3) {
            data.fill_val(&mut batch, first..first + 3);
            seen(&batch, &mut whole);
        }
        prop_assert_eq!(counts, whole);
    }
}

#[test]
fn joined_sources_are_read_once_an_epoch_and_weights_multiply_the_passes() {
    for packing in [Packing::Stream, Packing::Packed, Packing::Padded] {
        for weight in [1.0, 3.0] {
            // 40 documents of 12 tokens, and 40 of 36: the second holds three quarters of the tokens.
            let (short, long) = (vec![12; 40], vec![36; 40]);
            let mut data = data(&[(&short, 1.0), (&long, weight)], packing);
            data.concatenate();
            let steps = data.micro_steps_per_epoch(2).round() as u64;
            let epochs = data.epochs(7, steps, 2);
            for (epochs, passes) in epochs.iter().zip([1.0, weight]) {
                assert!(
                    (epochs - passes).abs() < 0.07 * passes,
                    "{packing:?}: {epochs}"
                );
            }
        }
    }
}

#[test]
fn shares_are_those_of_the_weights_in_tokens_and_batches_repeat() {
    let (short, long): (Vec<usize>, Vec<usize>) = (vec![3; 100], vec![11; 40]);
    for packing in [Packing::Stream, Packing::Packed, Packing::Padded] {
        let data = data(&[(&short, 2.0), (&long, 1.0)], packing);
        let mut tokens = [0, 0];
        let mut batch = Batch::default();
        for micro_step in 0..3000 {
            data.fill_train(&mut batch, 1, micro_step, 4);
            tokens[0] += batch.tokens[0];
            tokens[1] += batch.tokens[1];
            if micro_step % 1000 == 7 {
                let mut again = Batch::default();
                data.fill_train(&mut again, 1, micro_step, 4);
                assert_eq!(batch, again);
                data.fill_train(&mut again, 2, micro_step, 4);
                assert_ne!(batch, again);
            }
        }
        let share = tokens[0] as f64 / (tokens[0] + tokens[1]) as f64;
        assert!((share - 2.0 / 3.0).abs() < 0.01, "{packing:?} {share}");
        let epochs = data.epochs(1, 3000, 4);
        let passes = tokens[0] as f64 / data.train[0].tokens as f64;
        assert!(
            (epochs[0] / passes - 1.0).abs() < 0.01,
            "{packing:?} {epochs:?} {passes}"
        );
    }
}

#[test]
fn streams_run_documents_together_and_keep_their_masks() {
    let data = data(&[(&[5, 4, 30], 1.0)], Packing::Stream);
    let mut batch = Batch::default();
    data.fill_val(&mut batch, 0..2);
    assert_eq!((batch.batch_size, batch.seq_len), (2, 12));
    assert_eq!(batch.inputs[..12], (0..12).collect::<Vec<_>>());
    assert!(batch.first.is_empty());
    // Documents begin at 0, 5 and 9; the first third of each and its first token are not supervised.
    let supervised: Vec<u32> = batch
        .targets
        .iter()
        .zip(&batch.mask)
        .filter(|(_, counts)| **counts)
        .map(|(t, _)| *t)
        .collect();
    assert_eq!(
        supervised,
        [2, 3, 4, 7, 8]
            .into_iter()
            .chain(20..25)
            .collect::<Vec<u32>>()
    );
}

#[test]
fn random_evaluation_rows_repeat_and_lie_in_the_split() {
    let lens = vec![6; 50];
    let data = data(&[(&lens, 1.0), (&lens, 1.0)], Packing::Packed);
    let mut batch = Batch::default();
    data.fill_eval(&mut batch, 3, 1, 8);
    let mut again = Batch::default();
    data.fill_eval(&mut again, 3, 1, 8);
    assert_eq!((batch.batch_size, &batch), (8, &again));
    data.fill_eval(&mut again, 3, 0, 8);
    assert_ne!(batch, again);
}

/// All of a store, to learn from and to hold out as well, in padded rows; and where its documents begin, with their lengths.
fn padded_rows(mut store: Store, unit: Unit, seq_len: usize) -> (Documents, Vec<(u64, u64)>) {
    store.unit = unit;
    let store = Arc::new(store);
    let spans: Vec<(u64, u64)> = store.spans().collect();
    let how = Layouting {
        packing: Packing::Padded,
        too_long: TooLong::Truncate,
        order: Order::default(),
        seq_len,
        unit,
    };
    let portion = || Portion::new("padded", &store, &spans, how).0;
    let data = Documents {
        train: vec![portion()],
        val: vec![portion()],
        passes: None,
        stages: vec![Wanted {
            until_tokens: None,
            weights: vec![1.0],
        }],
        how,
        bytes_per_token: None,
    };
    (data, spans)
}

/// Answers whose first token is even are desirable.
#[test]
fn judged_answers_keep_their_labels_in_both_splits() {
    let mut all = Vec::new();
    for (i, answer) in documents(&[4, 9, 6, 5, 13, 7], 100).into_iter().enumerate() {
        let ids = vec![u32::from(answer.ids[0].is_multiple_of(2))];
        let label = Document {
            ids,
            supervised: vec![false],
        };
        // Nothing is supervised of the last: it goes with its label.
        let supervised = answer.supervised.iter().map(|s| *s && i < 5).collect();
        all.extend([
            Document {
                supervised,
                ..answer
            },
            label,
        ]);
    }
    let store = of_documents(&[&all[..4], &all[4..]]);
    let (data, _) = padded_rows(store, Unit::Judged, 11);
    // The fifth joins the two before it: alone it would have no baseline.
    assert_eq!((data.val_rows(), data.train[0].draws(2)), (5, 2));
    assert_eq!(data.train[0].tokens, 3 + 8 + 5 + 4 + 11);
    let (mut seen, mut batch) = (Vec::new(), Batch::default());
    let mut check = |batch: &Batch| {
        let labels = batch.column(LABEL).unwrap();
        assert_eq!(
            (labels.len(), batch.groups()),
            (batch.batch_size, batch.batch_size)
        );
        for (row, label) in labels.iter().enumerate() {
            let first = batch.inputs[row * batch.seq_len];
            assert_eq!(*label == 1.0, first.is_multiple_of(2));
            seen.push(first);
        }
    };
    for micro_step in 0..2 {
        data.fill_train(&mut batch, 1, micro_step, 2);
        check(&batch);
    }
    data.fill_val(&mut batch, 0..5);
    check(&batch);
    seen.sort_unstable();
    let twice = [100, 100, 104, 104, 113, 113, 119, 119, 124, 124];
    assert_eq!(seen, twice);
    assert_eq!(data.repeated(), Some((5, 5)));
}

#[test]
fn both_sides_of_a_pair_stand_in_one_batch_chosen_first() {
    let sides: Vec<Document> = documents(&[4, 9, 6, 5, 3, 7, 8, 8], 1);
    let store = of_documents(&[&sides]);
    let (data, spans) = padded_rows(store, Unit::Pair, 12);
    assert_eq!((data.val_rows(), data.train[0].draws(3)), (4, 2));
    // Whole pairs are compared: one of the same answer beside another one is another example.
    assert_eq!(data.repeated(), Some((4, 4)));
    let mut starts = Vec::new();
    for micro_step in 0..2 {
        let mut batch = Batch::default();
        data.fill_train(&mut batch, 1, micro_step, 3);
        assert_eq!(batch.batch_size, 2 * batch.groups());
        for (row, origin) in batch.origins.iter().enumerate() {
            let row = row * batch.seq_len..(row + 1) * batch.seq_len;
            let first = batch.sequence[row.start];
            assert!(batch.sequence[row].iter().all(|s| *s == first));
            assert!(!origin.held_out);
            starts.push(origin.start);
        }
        for pair in batch.origins.chunks(2) {
            let at = spans.iter().position(|s| s.0 == pair[0].start).unwrap();
            assert!(at % 2 == 0 && spans[at + 1].0 == pair[1].start);
        }
    }
    starts.sort_unstable();
    assert_eq!(starts, spans.iter().map(|s| s.0).collect::<Vec<_>>());
    let mut batch = Batch::default();
    data.fill_val(&mut batch, 1..3);
    assert_eq!((batch.batch_size, batch.groups()), (4, 2));
    assert!(batch.origins.iter().all(|origin| origin.held_out));
}

#[test]
fn a_short_evaluation_reads_the_first_rows_of_each_source_whatever_their_length() {
    let data = data(
        &[(&[2, 9, 3, 8, 4, 7, 5, 6], 1.0), (&[3, 4, 5, 6], 1.0)],
        Packing::Padded,
    );
    let rows = data.first_val_rows(3);
    let mut batch = Batch::default();
    data.fill_val(&mut batch, rows.iter().copied());
    let firsts = |batch: &Batch| {
        let rows = (0..batch.batch_size).map(|row| batch.inputs[row * batch.seq_len]);
        rows.collect::<Vec<u32>>()
    };
    // Documents 1 and 0 of the first source, longest first, and the first of the second.
    assert_eq!(firsts(&batch), [2, 0, 100_000]);
    assert_eq!(data.first_val_rows(100).len(), 12);
    for packing in [Packing::Stream, Packing::Packed] {
        let data = self::data(&[(&[2, 9, 3, 8, 4, 7, 5, 6], 1.0)], packing);
        assert_eq!(data.first_val_rows(2), [0, 1]);
    }
}
