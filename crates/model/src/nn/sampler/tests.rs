//! Draws against the softmax, and the whole chain against transformers' logits processors (`tests/oracle/sampling_oracle.py`).

use super::*;
use crate::nn::error_text;

const LOGITS: [f32; 5] = [0.0, 2.0, 1.0, -1.0, 2.0];

fn draw_many(sampling: &Sampling) -> Vec<usize> {
    let mut counts = vec![0; LOGITS.len()];
    for index in 0..4000 {
        let mut sampler = Sampler::new(sampling, LOGITS.len(), &[], 0);
        counts[sampler.next(&LOGITS, index).unwrap().id as usize] += 1;
    }
    counts
}

fn warm() -> Sampling {
    Sampling {
        temperature: 1.0,
        ..Default::default()
    }
}

fn greedily() -> Sampling {
    Sampling {
        temperature: 0.0,
        ..Default::default()
    }
}

#[test]
fn greedy_takes_the_first_maximum_and_reports_the_distribution() {
    let sampling = greedily();
    let mut sampler = Sampler::new(&sampling, 5, &[], 0);
    let chosen = sampler.next(&LOGITS, 0).unwrap();
    assert_eq!(chosen.id, 1);
    let sum: f32 = LOGITS.iter().map(|x| x.exp()).sum();
    assert!((chosen.logprob - (2.0 - sum.ln())).abs() < 1e-6);
    let entropy: f32 = LOGITS
        .iter()
        .map(|x| -(x.exp() / sum) * (x - sum.ln()))
        .sum();
    assert!((chosen.entropy - entropy).abs() < 1e-6, "{chosen:?}");
}

#[test]
fn entropies_of_large_vocabularies_are_exact_enough() {
    let sampling = greedily();
    let flat = vec![3.5_f32; 50_257];
    let chosen = Sampler::new(&sampling, flat.len(), &[], 0)
        .next(&flat, 0)
        .unwrap();
    let expected = (flat.len() as f32).ln();
    assert!((chosen.entropy - expected).abs() < 1e-4, "{chosen:?}");
    let mut sure = vec![-100.0_f32; 50_257];
    sure[7] = 0.0;
    let chosen = Sampler::new(&sampling, sure.len(), &[], 0)
        .next(&sure, 0)
        .unwrap();
    assert!(chosen.entropy < 1e-4 && chosen.logprob > -1e-4);
}

#[test]
fn frequencies_follow_the_softmax() {
    let counts = draw_many(&warm());
    let total: f32 = LOGITS.iter().map(|x| x.exp()).sum();
    for (count, logit) in counts.iter().zip(LOGITS) {
        let expected = 4000.0 * logit.exp() / total;
        assert!(
            (*count as f32 - expected).abs() < 5.0 * expected.sqrt(),
            "{counts:?}"
        );
    }
}

#[test]
fn truncation_keeps_the_expected_candidates() {
    let drawn = |sampling: Sampling| {
        let counts = draw_many(&sampling);
        (0..5).filter(|&i| counts[i] > 0).collect::<Vec<_>>()
    };
    let top_k = |top_k| Sampling { top_k, ..warm() };
    assert_eq!(drawn(top_k(3)), [1, 2, 4]);
    assert_eq!(drawn(top_k(1)), [1, 4], "what ties with the k-th stays");
    let top_p = |top_p| Sampling { top_p, ..warm() };
    assert_eq!(drawn(top_p(0.5)), [1, 4]);
    assert_eq!(drawn(top_p(1e-6)), [1]);
    let min_p = |min_p| Sampling { min_p, ..warm() };
    assert_eq!(drawn(min_p(0.2)), [1, 2, 4]);
    assert_eq!(drawn(min_p(1.0)), [1, 4]);
}

/// Allows tokens 0 and 3.
struct Two;

impl Constraint for Two {
    fn mask(&mut self, logits: &mut [f32]) -> std::result::Result<(), String> {
        for at in [1, 2, 4] {
            logits[at] = FORBIDDEN;
        }
        Ok(())
    }

    fn accept(&mut self, _: u32) -> std::result::Result<(), String> {
        Ok(())
    }
}

#[test]
fn forbidden_tokens_are_no_candidates_where_fewer_than_k_are_allowed() {
    for (top_k, top_p) in [(3, 1.0), (0, 0.999), (3, 0.999)] {
        let sampling = Sampling {
            top_k,
            top_p,
            ..warm()
        };
        let mut drawn = std::collections::BTreeSet::new();
        for index in 0..200 {
            let mut sampler = Sampler::new(&sampling, 5, &[], 0).with(0, Some(Box::new(Two)));
            drawn.insert(sampler.next(&LOGITS, index).unwrap().id);
            let mut ids: Vec<u32> = sampler.candidates.iter().map(|(id, _)| *id).collect();
            ids.sort_unstable();
            assert_eq!(ids, [0, 3], "top_k {top_k}, top_p {top_p}");
        }
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [0, 3]);
    }
}

#[test]
fn the_repetition_penalty_lowers_seen_tokens_of_either_sign() {
    let sampling = Sampling {
        repetition_penalty: 3.0,
        ..greedily()
    };
    let mut sampler = Sampler::new(&sampling, 5, &[1], 0);
    let drawn: Vec<u32> = (0..3)
        .map(|i| sampler.next(&LOGITS, i).unwrap().id)
        .collect();
    // 4 falls to 0.67 once drawn, then 2 (1.0) leads, then 1 and 4 are at 0.67.
    assert_eq!(drawn, [4, 2, 1]);
}

#[test]
fn a_draw_depends_on_seed_text_and_token_number_alone() {
    let sampling = warm();
    let draws = |number| {
        let mut sampler = Sampler::new(&sampling, 5, &[], number);
        (0..40)
            .map(|i| sampler.next(&LOGITS, i).unwrap().id)
            .collect::<Vec<_>>()
    };
    assert_eq!(draws(0), draws(0));
    assert_ne!(draws(0), draws(1));
    let late = Sampler::new(&sampling, 5, &[3], 1)
        .next(&LOGITS, 39)
        .unwrap();
    assert_eq!(late.id, draws(1)[39]);
}

#[test]
fn a_logit_that_is_not_finite_is_an_error() {
    let sampling = Sampling::default();
    let mut sampler = Sampler::new(&sampling, 2, &[], 0);
    let error = sampler.next(&[0.0, f32::NAN], 0).unwrap_err();
    assert!(error_text(&error).ends_with("token 1 is NaN: its weights are damaged"));
    let found = BrokenLogit::of(&error.context("answering")).unwrap();
    assert!(found.token == 1 && found.value.is_nan(), "{found:?}");
    let other = candle_core::Error::Msg("shapes".into());
    assert_eq!(BrokenLogit::of(&other), None);
}

/// What transformers keeps of a row of logits, for settings alone and together.
#[test]
fn remaining_candidates_match_transformers() {
    #[derive(serde::Deserialize)]
    struct Case {
        sampling: Sampling,
        prompt: Vec<u32>,
        logits: Vec<f32>,
        /// Remaining ids, and their probabilities.
        kept: Vec<u32>,
        probabilities: Vec<f64>,
    }
    let fixture = include_str!("../../../../../tests/oracle/sampling.json");
    let cases: Vec<Case> = serde_json::from_str(fixture).unwrap();
    assert!(cases.len() >= 30);
    for case in cases {
        let mut sampler = Sampler::new(&case.sampling, case.logits.len(), &case.prompt, 0);
        sampler.adjust(&case.logits);
        sampler.reset_candidates(None);
        sampler.apply_top_k();
        sampler.apply_top_p();
        sampler.apply_min_p();
        let total: f64 = weigh(&sampler.candidates).sum();
        let mut left: Vec<(u32, f64)> = sampler
            .candidates
            .iter()
            .zip(weigh(&sampler.candidates))
            .map(|(&(id, _), w)| (id, w / total))
            .collect();
        left.sort_by_key(|(id, _)| *id);
        let ids: Vec<u32> = left.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, case.kept, "{:?}", case.sampling);
        for ((_, ours), theirs) in left.iter().zip(&case.probabilities) {
            assert!((ours - theirs).abs() < 2e-6, "{:?}", case.sampling);
        }
    }
}

/// Logits divided by a temperature near 0 would be infinite, and their softmax NaN.
#[test]
fn the_coldest_temperatures_are_greedy() {
    for temperature in [1e-6, 1e-30, 1e-38, 1e-45] {
        let sampling = Sampling {
            temperature,
            ..Default::default()
        };
        for top_p in [1.0, 0.9] {
            let sampling = Sampling {
                top_p,
                ..sampling.clone()
            };
            let logits = [80.0, -3.0, 79.999, -88.0];
            let mut sampler = Sampler::new(&sampling, logits.len(), &[], 0);
            let chosen = sampler.next(&logits, 0).unwrap();
            assert_eq!(chosen.id, 0, "temperature {temperature}, top_p {top_p}");
            assert!(chosen.logprob.is_finite() && chosen.tempered.is_finite());
        }
    }
}
