//! The divergences of distillation and their gradients against TRL's GKDTrainer and the paper's formulas in f64.
//! `tests/oracle/distill_oracle.py` made the fixture.

use super::TOLERANCE;
use llmtui::kernels::logprob::{
    Divergence, Inputs, Learned, Outputs, Sizes, Teacher, Upstream, distill,
};
use llmtui::kernels::matmul::{Accumulation, ComputeDtype};
use llmtui::kernels::matrix::Matrix;

#[derive(Debug, serde::Deserialize)]
struct Fixture {
    hidden: Vec<f32>,
    table: Vec<f32>,
    teacher_hidden: Vec<f32>,
    teacher_table: Vec<f32>,
    weights: Vec<f32>,
    targets: Vec<u32>,
    cases: Vec<Case>,
}

#[derive(Debug, serde::Deserialize)]
struct Case {
    beta: f32,
    temperature: f32,
    cap: Option<f32>,
    ce: f32,
    divergence: Vec<f64>,
    loss: f64,
    dhidden: Vec<f64>,
    dtable: Vec<f64>,
}

/// Largest difference of a divergence, the loss or a gradient from the fixture's, by this divergence.
fn distance(of: &Fixture, case: &Case, divergence: Divergence) -> f64 {
    let rows = of.targets.len();
    let (d, teacher_d) = (of.hidden.len() / rows, of.teacher_hidden.len() / rows);
    let (vocab, teacher_vocab) = (of.table.len() / d, of.teacher_table.len() / teacher_d);
    let inputs = Inputs {
        hidden: &of.hidden,
        table: Matrix::Dense(&of.table),
        targets: &of.targets,
        cap: case.cap,
    };
    let teacher = Teacher {
        hidden: &of.teacher_hidden,
        d: teacher_d,
        table: Matrix::Dense(&of.teacher_table),
        vocab: teacher_vocab,
        cap: case.cap,
        divergence,
    };
    let dlogp: Vec<f32> = of.weights.iter().map(|w| -case.ce * w).collect();
    let (mut dhidden, mut dtable) = (vec![0.0; rows * d], vec![0.0; vocab * d]);
    let learned = Learned {
        tokens: Upstream {
            dlogp: &dlogp,
            dentropy: None,
            z_loss: 0.0,
        },
        ddivergence: &of.weights,
        dhidden: &mut dhidden,
        dtable: Some((&mut dtable, Accumulation::Overwrite)),
    };
    let mut outputs = Outputs::default();
    let sizes = Sizes::in_chunks(rows, d, vocab);
    distill(
        ComputeDtype::F32,
        sizes,
        inputs,
        teacher,
        &mut outputs,
        Some(learned),
    );
    let each = outputs.teacher.divergence.iter().zip(&outputs.logp);
    let losses = each
        .zip(&of.weights)
        .map(|((divergence, logp), w)| f64::from(w * (divergence - case.ce * logp)));
    let loss: f64 = losses.sum();
    let pairs = [
        (&outputs.teacher.divergence, &case.divergence),
        (&dhidden, &case.dhidden),
        (&dtable, &case.dtable),
    ];
    let apart = pairs.into_iter().flat_map(|(found, exact)| {
        assert_eq!(found.len(), exact.len());
        found
            .iter()
            .zip(exact)
            .map(|(x, e)| (f64::from(*x) - e).abs())
    });
    apart.fold((loss - case.loss).abs(), f64::max)
}

#[test]
fn every_divergence_matches_trl() {
    let fixture: Fixture = serde_json::from_str(include_str!("distill.json")).unwrap();
    assert_eq!(fixture.cases.len(), 15);
    for case in &fixture.cases {
        let own = Divergence {
            beta: case.beta,
            temperature: case.temperature,
        };
        let off = distance(&fixture, case, own);
        assert!(off <= TOLERANCE, "{case:?}: {off:e}");
        // Another one fails the same comparison.
        for wrong in [
            Divergence {
                beta: 1.0 - case.beta + if case.beta == 0.5 { 0.2 } else { 0.0 },
                ..own
            },
            Divergence {
                temperature: 1.1 * case.temperature,
                ..own
            },
        ] {
            let off = distance(&fixture, case, wrong);
            assert!(off > 100.0 * TOLERANCE, "{wrong:?}: {off:e}");
        }
    }
}
