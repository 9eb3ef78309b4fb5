//! The head beside a teacher's against plain candle in f64, for all divergences, in all chunkings.

use super::*;
use crate::check::{assert_close, leaf, normal};
use candle_core::{DType, Device};

/// Rows, then width and vocabulary of student and teacher.
type Shape = (usize, (usize, usize), (usize, usize));

const SHAPES: [Shape; 4] = [
    (1, (3, 2), (2, 2)),
    (37, (8, 17), (5, 17)),
    // A teacher with padding rows, and a student with some.
    (20, (8, 65), (16, 70)),
    (20, (8, 65), (4, 61)),
];

const KINDS: [(f32, f32); 6] = [
    (0.0, 1.0),
    (1.0, 1.0),
    (0.5, 1.0),
    (0.0, 2.5),
    (1.0, 0.7),
    (0.1, 2.0),
];

fn divergence((beta, temperature): (f32, f32)) -> Divergence {
    Divergence { beta, temperature }
}

/// Divergence, both gradients; then the teacher's entropies and the agreement.
fn fused(
    (rows, (d, vocab), (teacher_d, teacher_vocab)): Shape,
    kind: (f32, f32),
    cap: Option<f32>,
    sizes: Sizes,
    dlogp: &[f32],
) -> [Vec<f32>; 5] {
    let (hidden, table) = (normal(rows * d, 0), normal(vocab * d, 1));
    let (theirs, their_table) = (
        normal(rows * teacher_d, 2),
        normal(teacher_vocab * teacher_d, 3),
    );
    let targets: Vec<u32> = (0..rows).map(|i| (i * 7 % vocab) as u32).collect();
    let weights = normal(rows, 4);
    let inputs = Inputs {
        hidden: &hidden,
        table: Matrix::Dense(&table),
        targets: &targets,
        cap,
    };
    let teacher = Teacher {
        hidden: &theirs,
        d: teacher_d,
        table: Matrix::Dense(&their_table),
        vocab: teacher_vocab,
        cap: cap.map(|cap| 2.0 * cap),
        divergence: divergence(kind),
    };
    let (mut dhidden, mut dtable) = (vec![9.0; rows * d], vec![f32::NAN; vocab * d]);
    let mut outputs = Outputs::default();
    let learned = Learned {
        tokens: Upstream {
            dlogp,
            dentropy: None,
            z_loss: 0.0,
        },
        ddivergence: &weights,
        dhidden: &mut dhidden,
        dtable: Some((&mut dtable, Accumulation::Overwrite)),
    };
    let arithmetic = ComputeDtype::F32;
    distill(
        arithmetic,
        sizes,
        inputs,
        teacher,
        &mut outputs,
        Some(learned),
    );
    let beside = bytes_beside(sizes, teacher_vocab);
    assert_eq!(outputs.bytes(), sizes.bytes() + beside);

    // Without a gradient the values are the same, and the head alone has those of its own.
    let mut values = Outputs::default();
    distill(arithmetic, sizes, inputs, teacher, &mut values, None);
    assert_eq!(values.teacher.divergence, outputs.teacher.divergence);
    forward(arithmetic, sizes, inputs, &mut values);
    assert_eq!((&values.logp, &values.top1), (&outputs.logp, &outputs.top1));
    let TeacherOutputs {
        divergence,
        entropy,
        agrees,
        ..
    } = outputs.teacher;
    [divergence, dhidden, dtable, entropy, agrees]
}

fn exact(
    (rows, (d, vocab), (teacher_d, teacher_vocab)): Shape,
    kind: (f32, f32),
    cap: Option<f64>,
    dlogp: &[f32],
) -> [Vec<f64>; 5] {
    let hidden = leaf(&normal(rows * d, 0), &[rows, d]);
    let table = leaf(&normal(vocab * d, 1), &[vocab, d]);
    let theirs = leaf(&normal(rows * teacher_d, 2), &[rows, teacher_d]);
    let their_table = leaf(
        &normal(teacher_vocab * teacher_d, 3),
        &[teacher_vocab, teacher_d],
    );
    let logits = |hidden: &Tensor, table: &Tensor, cap: Option<f64>| {
        let logits = hidden.matmul(&table.t().unwrap()).unwrap();
        match cap {
            Some(cap) => softcap::composite(&logits, cap).unwrap(),
            None => logits,
        }
    };
    let own = logits(&hidden, &table, cap);
    let teacher = logits(&theirs, &their_table, cap.map(|cap| 2.0 * cap)).detach();
    let n = vocab.min(teacher_vocab);
    let both = [&own, &teacher].map(|logits| logits.narrow(1, 0, n).unwrap());
    let found = divergence(kind).composite(&both[0], &both[1]).unwrap();
    let targets: Vec<u32> = (0..rows).map(|i| (i * 7 % vocab) as u32).collect();
    let ids = Tensor::from_slice(&targets, (rows, 1), &Device::Cpu).unwrap();
    let logp = crate::softmax::log_composite(&own)
        .unwrap()
        .gather(&ids, 1)
        .unwrap();
    let weigh = |of: &Tensor, by: &[f32]| {
        let by = Tensor::from_slice(by, rows, &Device::Cpu).unwrap();
        (of * by.to_dtype(DType::F64).unwrap())
            .unwrap()
            .sum_all()
            .unwrap()
    };
    let loss = weigh(&found, &normal(rows, 4)) + weigh(&logp.squeeze(1).unwrap(), dlogp);
    let grads = loss.unwrap().backward().unwrap();
    let flat = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f64>().unwrap();
    let scaled = (&both[1] / f64::from(kind.1)).unwrap();
    let log_q = crate::softmax::log_composite(&scaled).unwrap();
    let entropy = (log_q.exp().unwrap() * &log_q)
        .unwrap()
        .sum(1)
        .unwrap()
        .neg()
        .unwrap();
    let top = |t: &Tensor| t.argmax(1).unwrap().to_vec1::<u32>().unwrap();
    let pairs = top(&both[0]).into_iter().zip(top(&both[1]));
    let agrees = pairs.map(|(a, b)| f64::from(u8::from(a == b))).collect();
    [
        flat(&found),
        flat(grads.get(&hidden).unwrap()),
        flat(grads.get(&table).unwrap()),
        flat(&entropy),
        agrees,
    ]
}

fn check(shape: Shape, kind: (f32, f32), cap: Option<f32>, chunk_rows: Option<usize>, ce: f32) {
    let (rows, (d, vocab), _) = shape;
    let sizes = Sizes::in_chunks(rows, d, vocab);
    let sizes = Sizes {
        chunk_rows: chunk_rows.unwrap_or(sizes.chunk_rows).min(rows),
        ..sizes
    };
    // Every third row without a cross entropy.
    let dlogp: Vec<f32> = normal(rows, 5)
        .iter()
        .enumerate()
        .map(|(i, x)| if i % 3 == 0 { 0.0 } else { ce * x })
        .collect();
    let found = fused(shape, kind, cap, sizes, &dlogp);
    let wanted = exact(shape, kind, cap.map(f64::from), &dlogp);
    let names = ["divergence", "dhidden", "dtable", "entropy", "agrees"];
    for ((name, found), exact) in names.iter().zip(&found).zip(&wanted) {
        let what = format!("{name} of {shape:?} {kind:?} {cap:?}");
        // Where both distributions are nearly the same, logarithms cancel: what is left is their rounding, some 1e-8.
        let largest = exact.iter().fold(1e-6, |max: f64, x| max.max(x.abs()));
        let tolerance = 5e-6_f64.max(1e-7 / largest);
        assert_close(&what, found, exact, tolerance);
    }
}

#[test]
fn divergences_and_gradients_agree_with_candle_in_f64() {
    for shape in SHAPES {
        for kind in KINDS {
            for cap in [None, Some(2.0)] {
                check(shape, kind, cap, None, 0.0);
                check(shape, kind, cap, None, 0.5);
            }
        }
    }
}

#[test]
fn chunks_give_the_same() {
    for chunk_rows in [1, 7, 19] {
        for kind in [(0.0, 1.0), (0.5, 2.0)] {
            check(SHAPES[2], kind, None, Some(chunk_rows), 0.5);
        }
    }
}

/// A student that is its teacher: no divergence, no gradient, and the same first choice.
#[test]
fn equals_are_at_no_distance() {
    let (rows, d, vocab) = (9, 6, 33);
    let (hidden, table) = (normal(rows * d, 0), normal(vocab * d, 1));
    let targets = vec![0; rows];
    for kind in KINDS {
        let inputs = Inputs {
            hidden: &hidden,
            table: Matrix::Dense(&table),
            targets: &targets,
            cap: None,
        };
        let teacher = Teacher {
            hidden: &hidden,
            d,
            table: Matrix::Dense(&table),
            vocab,
            cap: None,
            divergence: divergence(kind),
        };
        let mut dhidden = vec![9.0; rows * d];
        let learned = Learned {
            tokens: Upstream {
                dlogp: &vec![0.0; rows],
                dentropy: None,
                z_loss: 0.0,
            },
            ddivergence: &vec![1.0; rows],
            dhidden: &mut dhidden,
            dtable: None,
        };
        let sizes = Sizes::in_chunks(rows, d, vocab);
        let mut outputs = Outputs::default();
        distill(
            ComputeDtype::F32,
            sizes,
            inputs,
            teacher,
            &mut outputs,
            Some(learned),
        );
        let far = outputs
            .teacher
            .divergence
            .iter()
            .all(|x| (0.0..1e-6).contains(x));
        assert!(far, "{kind:?}: {:?}", outputs.teacher.divergence);
        assert!(
            dhidden.iter().all(|x| x.abs() < 2e-6),
            "{kind:?}: {dhidden:?}"
        );
        assert!(outputs.teacher.agrees.iter().all(|x| *x == 1.0));
    }
}

/// Logits that are far apart: a probability of 0 beside one of 1 is no NaN.
#[test]
fn certain_distributions_have_a_finite_divergence() {
    let student = [300.0_f32, 0.0, -200.0, 5.0];
    let teacher = [-300.0_f32, 0.0, 250.0, 5.0];
    for (kind, wanted) in [
        ((0.0, 1.0), 500.0),
        ((1.0, 1.0), 550.0),
        ((0.5, 1.0), 2f32.ln()),
    ] {
        let of = divergence(kind);
        let mut log_q = teacher;
        let found = of.compare(&student, &mut log_q);
        let apart = (found.divergence - wanted).abs();
        assert!(apart < 1e-4 * wanted, "{kind:?}: {}", found.divergence);
        of.gradient(&student, &mut log_q, &found, 1.0);
        assert!(log_q.iter().all(|x| x.is_finite()), "{kind:?}: {log_q:?}");
    }
}
