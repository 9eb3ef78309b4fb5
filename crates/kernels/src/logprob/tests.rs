//! The fused head against the composite in f64, in all chunkings.

use super::*;
use crate::check::{assert_close, leaf, normal};
use candle_core::{DType, Device};

/// Both outputs with random upstream gradients, against candle in f64.
fn check(sizes: Sizes, tolerance: f64) {
    check_capped(sizes, None, tolerance);
    check_capped(sizes, Some(2.0), tolerance);
}

fn check_capped(sizes: Sizes, cap: Option<f64>, tolerance: f64) {
    let Sizes { rows, d, vocab, .. } = sizes;
    let hidden = normal(rows * d, 0);
    let table: Vec<f32> = normal(vocab * d, 1).iter().map(|x| 0.3 * x).collect();
    let targets: Vec<u32> = (0..rows).map(|i| (i * 7 % vocab) as u32).collect();
    let (dlogp, dentropy) = (normal(rows, 2), normal(rows, 3));
    let (lh, lt) = (leaf(&hidden, &[rows, d]), leaf(&table, &[vocab, d]));
    let ids = Tensor::from_slice(&targets, rows, &Device::Cpu).unwrap();
    let (logp, entropy, top1) = composite(&lh, &lt, &ids, cap).unwrap();
    let up = |x: &[f32]| {
        let x = Tensor::from_slice(x, rows, &Device::Cpu).unwrap();
        x.to_dtype(DType::F64).unwrap()
    };
    let sum = ((&logp * up(&dlogp)).unwrap() + (&entropy * up(&dentropy)).unwrap()).unwrap();
    let grads = sum.sum_all().unwrap().backward().unwrap();
    let flat = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f64>().unwrap();

    let inputs = Inputs {
        hidden: &hidden,
        table: Matrix::Dense(&table),
        targets: &targets,
        cap: cap.map(|cap| cap as f32),
    };
    let upstream = Upstream {
        dlogp: &dlogp,
        dentropy: Some(&dentropy),
        z_loss: 0.0,
    };
    let exact = [
        flat(&logp),
        flat(&entropy),
        flat(&top1),
        flat(grads.get(&lh).unwrap()),
        flat(grads.get(&lt).unwrap()),
    ];
    let names = ["logp", "entropy", "top1", "dhidden", "dtable"];
    let ways = [HeadPass::Separate, HeadPass::AtOnce].map(|way| run(way, sizes, inputs, upstream));
    for found in &ways {
        for ((name, found), exact) in names.iter().zip(found).zip(&exact) {
            let tolerance = if *name == "top1" { 0.0 } else { tolerance };
            assert_close(name, found, exact, tolerance);
        }
    }
    let bits = |of: &[Vec<f32>; 5]| of.concat().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert!(bits(&ways[0]) == bits(&ways[1]), "{sizes:?} {cap:?}");
}

#[derive(Clone, Copy, PartialEq)]
enum HeadPass {
    Separate,
    AtOnce,
}

/// Log-probabilities, entropies, top1, gradients of hidden states and table.
fn run(way: HeadPass, sizes: Sizes, inputs: Inputs, upstream: Upstream) -> [Vec<f32>; 5] {
    let Sizes { rows, d, vocab, .. } = sizes;
    let mut outputs = Outputs::default();
    let (mut dhidden, mut dtable) = (vec![9.0; rows * d], vec![f32::NAN; vocab * d]);
    let differentiate = match way {
        HeadPass::Separate => {
            forward(ComputeDtype::F32, sizes, inputs, &mut outputs);
            backward
        }
        HeadPass::AtOnce => forward_backward,
    };
    differentiate(
        ComputeDtype::F32,
        sizes,
        inputs,
        &mut outputs,
        upstream,
        &mut dhidden,
        Some((&mut dtable, Accumulation::Overwrite)),
    );
    assert_eq!(outputs.bytes(), sizes.bytes());
    let Outputs {
        logp,
        entropy,
        top1,
        ..
    } = outputs;
    [logp, entropy, top1, dhidden, dtable]
}

#[test]
fn gradients_agree_with_candle_in_f64() {
    for (rows, d, vocab) in [(1, 3, 2), (5, 8, 17), (70, 32, 65)] {
        check(Sizes::new(rows, d, vocab), 5e-6);
    }
}

#[test]
fn chunks_give_the_same_gradients() {
    for chunk_rows in [1, 8, 35, 69] {
        let sizes = Sizes {
            chunk_rows,
            ..Sizes::new(70, 32, 65)
        };
        assert!(!sizes.keeps_logits());
        check(sizes, 5e-6);
    }
}

#[test]
fn gradients_accumulate_onto_existing_ones() {
    let (rows, d, vocab) = (5, 3, 7);
    let (hidden, table, dlogp) = (normal(rows * d, 0), normal(vocab * d, 1), normal(rows, 2));
    let inputs = Inputs {
        hidden: &hidden,
        table: Matrix::Dense(&table),
        targets: &[0, 6, 2, 2, 5],
        cap: None,
    };
    let upstream = Upstream {
        dlogp: &dlogp,
        dentropy: None,
        z_loss: 0.0,
    };
    let sizes = Sizes {
        chunk_rows: 2,
        ..Sizes::in_chunks(rows, d, vocab)
    };
    let [.., anew] = run(HeadPass::AtOnce, sizes, inputs, upstream);
    let mut added = vec![1.0; vocab * d];
    forward_backward(
        ComputeDtype::F32,
        sizes,
        inputs,
        &mut Outputs::default(),
        upstream,
        &mut vec![0.0; rows * d],
        Some((&mut added, Accumulation::Add)),
    );
    let exact: Vec<f64> = anew.iter().map(|x| f64::from(*x) + 1.0).collect();
    assert_close("dtable", &added, &exact, 1e-6);
}

#[test]
fn chunks_hold_few_logits() {
    let chunk = |rows, d, vocab| Sizes::in_chunks(rows, d, vocab).chunk_rows;
    // All rows where their logits are few, else 1,024 of them.
    assert_eq!(chunk(4096, 384, 65), 4096);
    assert_eq!(chunk(2048, 512, 8192), 1024);
    // Chunks of one size: not 1,024 and 76.
    assert_eq!(chunk(1100, 512, 8192), 550);
    // Never more than 64 MiB.
    assert_eq!(chunk(4096, 768, 50_257), 316);
    assert_eq!(chunk(256, 768, 50_257), 256);
    assert_eq!(chunk(3, 8, 1 << 25), 1);
    assert_eq!(chunk(1, 1, 2), 1);
}

#[test]
fn the_entropy_of_equal_logits_is_ln_of_the_vocabulary() {
    let sizes = Sizes::new(1, 1, 65);
    let inputs = Inputs {
        hidden: &[0.0],
        table: Matrix::Dense(&[1.0; 65]),
        targets: &[3],
        cap: None,
    };
    let mut outputs = Outputs::default();
    forward(ComputeDtype::F32, sizes, inputs, &mut outputs);
    assert!((outputs.entropy[0] - 65f32.ln()).abs() < 1e-6);
    assert!((outputs.logp[0] + 65f32.ln()).abs() < 1e-6);
}

/// z · Σ w · lse² on top of Σ w · (−logp), by candle's autograd in f64.
#[test]
fn the_z_loss_has_the_gradient_of_squared_log_sum_exps() {
    let (rows, d, vocab, z) = (5, 4, 11, 0.3_f64);
    let (hidden, table) = (normal(rows * d, 0), normal(vocab * d, 1));
    let targets: Vec<u32> = (0..rows as u32).map(|i| (i * 3) % vocab as u32).collect();
    let weights = [0.2_f32, 0.0, 0.5, 0.1, 0.4];
    let dlogp = weights.map(|w| -w);
    for cap in [None, Some(2.0)] {
        let (lh, lt) = (leaf(&hidden, &[rows, d]), leaf(&table, &[vocab, d]));
        let ids = Tensor::from_slice(&targets, rows, &Device::Cpu).unwrap();
        let (logp, ..) = composite(&lh, &lt, &ids, cap).unwrap();
        let mut logits = lh.matmul(&lt.t().unwrap()).unwrap();
        if let Some(cap) = cap {
            logits = softcap::composite(&logits, cap).unwrap();
        }
        let lse = logits.exp().unwrap().sum(1).unwrap().log().unwrap();
        let each = ((lse.sqr().unwrap() * z).unwrap() - logp).unwrap();
        let w = Tensor::from_slice(&weights, rows, &Device::Cpu).unwrap();
        let loss = (each * w.to_dtype(DType::F64).unwrap()).unwrap();
        let grads = loss.sum_all().unwrap().backward().unwrap();
        let inputs = Inputs {
            hidden: &hidden,
            table: Matrix::Dense(&table),
            targets: &targets,
            cap: cap.map(|cap| cap as f32),
        };
        let upstream = Upstream {
            dlogp: &dlogp,
            dentropy: None,
            z_loss: z as f32,
        };
        let found = run(
            HeadPass::AtOnce,
            Sizes::in_chunks(rows, d, vocab),
            inputs,
            upstream,
        );
        for (found, of) in [(&found[3], &lh), (&found[4], &lt)] {
            let exact = grads.get(of).unwrap().flatten_all().unwrap();
            let exact = exact.to_vec1::<f64>().unwrap();
            assert!(exact.iter().any(|x| x.abs() > 1e-3));
            assert_close("z-loss", found, &exact, 1e-5);
        }
    }
}
