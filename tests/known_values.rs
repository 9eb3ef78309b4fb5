//! Which test compares each health metric with known values, and the statistical ones that need many draws. Most known values
//! are next to their estimators; `health_oracle` compares with brute force in PyTorch and numpy.

use llmtui::base::rng::{Rng, Stream};
use llmtui::kernels::spectrum::eigenvalues;
use llmtui::metrics::estimators::{alpha, dispersion::Moments};
use llmtui::metrics::{METRICS, Metric, texts::OF_TEXTS};
use llmtui::probes::{COST, PROBES, spectra};
use std::path::Path;

const ORACLE: (&str, &str) = ("tests/oracle/health.rs", "probes_see_what_pytorch_sees");
const NUMPY: (&str, &str) = (
    "tests/oracle/health.rs",
    "spectra_and_their_exponents_are_those_of_numpy",
);

/// A metric, the ids that carry it, and the tests of its known values.
type Row = (
    &'static str,
    &'static [&'static str],
    &'static [(&'static str, &'static str)],
);

#[rustfmt::skip]
const TABLE: &[Row] = &[
    ("alpha", &["alpha/layer"], &[
        ("crates/record/src/metrics/estimators/alpha.rs", "three_values_by_hand_and_quantiles_of_known_laws"),
        ("crates/record/src/metrics/estimators/alpha.rs", "spectra_of_random_laws_have_weightwatchers_exponents"),
        ("crates/record/src/metrics/estimators/alpha.rs", "scale_does_not_matter_and_a_flat_spectrum_has_no_exponent"),
        ("tests/known_values.rs", "exponents_of_pareto_draws_and_of_noise"), NUMPY]),
    ("attention head entropy", &["attn_entropy/layer", "attn_entropy_std/layer", "attn_logit_max/layer", "attn_sink/layer"], &[
        ("crates/record/src/metrics/estimators/entropy.rs", "known_rows"),
        ("crates/record/src/metrics/estimators/entropy.rs", "adding_a_constant_to_all_scores_changes_nothing"), ORACLE]),
    ("CoDeC", &["codec"], &[
        ("crates/record/src/metrics/estimators/memory.rs", "falls_are_counted_without_ties"),
        ("crates/engine/src/engine/memorization.rs", "sequences_known_by_heart_are_told_from_others")]),
    ("collapse residual", &["collapse_residual", "collapse_residual/noise", "loss_forecast"], &[
        ("crates/record/src/metrics/estimators/collapse.rs", "known_values_of_fit_and_residual"),
        ("crates/record/src/metrics/estimators/collapse.rs", "the_timescale_is_that_of_the_whole_run"),
        ("crates/record/src/metrics/estimators/collapse.rs", "the_spread_is_the_standard_deviation_of_what_is_left")]),
    ("gradient direction consistency", &["grad_consistency", "grad_cosine"], &[
        ("crates/record/src/metrics/estimators/noise.rs", "two_gradients_by_hand"), ORACLE]),
    ("gradient norm", &["grad_norm", "grad_norm/layer", "clipped"], &[
        ("crates/model/src/optim/tests.rs", "clipping_scales_only_what_is_too_long"),
        ("crates/engine/src/probes/tests.rs", "gradients_of_micro_batches_agree_with_each_one_taken_alone"), ORACLE]),
    ("GSNR and noise scale", &["noise_scale", "gsnr", "gsnr/layer"], &[
        ("crates/record/src/metrics/estimators/noise.rs", "two_gradients_by_hand"),
        ("crates/record/src/metrics/estimators/noise.rs", "signal_and_noise_are_unbiased_over_many_steps"),
        ORACLE]),
    ("spike score", &["grad_spike", "spike_score/grad", "spike_score/loss", "spike_score/element/layer", "spiking_elements"], &[
        ("crates/record/src/metrics/estimators/spikes.rs", "nine_ones_and_a_ten"),
        ("crates/record/src/metrics/estimators/spikes.rs", "one_of_a_thousand_and_one_is_an_outlier"),
        ("crates/record/src/metrics/estimators/spikes.rs", "spam_clips_at_seventy_times_the_root")]),
    ("layer-wise weight std", &["weight_std/layer"], &[
        ("crates/record/src/metrics/estimators/dispersion.rs", "parts_give_the_result_of_the_whole"),
        ("tests/known_values.rs", "a_million_normal_weights_have_their_spread"), ORACLE]),
    ("loss dispersion", &["loss_dispersion"], &[
        ("crates/record/src/metrics/estimators/dispersion.rs", "std_is_the_populations_and_not_the_samples"), ORACLE]),
    ("singular entropy", &["singular_entropy/layer"], &[
        ("crates/record/src/metrics/estimators/spectrum.rs", "known_diagonals"),
        ("crates/record/src/metrics/estimators/spectrum.rs", "a_random_square_matrix_is_far_from_even"), NUMPY]),
    ("spectral norm", &["spectral_norm/layer", "spectral_scale/layer"], &[
        ("crates/kernels/src/spectrum.rs", "power_iteration_converges_to_three_as_computed_by_hand"),
        ("crates/kernels/src/spectrum.rs", "power_iteration_and_the_whole_spectrum_agree_on_a_random_matrix"), NUMPY]),
    ("token entropy", &["entropy"], &[("tests/oracle.rs", "every_option_computes_what_pytorch_and_transformers_do")]),
    ("update-to-weight ratio", &["update_ratio", "update_ratio/layer"], &[("crates/kernels/src/update.rs", "the_update_ratio_is_change_over_size")]),
    ("zlib ratio", &["zlib_ratio"], &[
        ("crates/record/src/metrics/estimators/memory.rs", "lengths_under_zlib"),
        ("crates/record/src/metrics/estimators/memory.rs", "the_ratio_is_one_if_both_need_the_same_bits")]),
    ("Min-K %", &["min_k_prob"], &[("crates/record/src/metrics/estimators/memory.rs", "the_least_fifth_is_averaged")]),
    ("stable rank", &["stable_rank/layer"], &[("crates/record/src/metrics/estimators/spectrum.rs", "known_diagonals"), NUMPY]),
    ("activations", &["act_rms/layer", "act_max/layer"], &[("crates/engine/src/probes/activations.rs", "sizes_of_known_values"), ORACLE]),
    ("dead units", &["dead_units", "dead_units/layer"], &[
        ("crates/engine/src/probes/dead_units.rs", "units_that_stay_silent_are_counted_and_too_few_tokens_say_nothing"), ORACLE]),
    ("logit level", &["logit_lse"], &[ORACLE]),
];

fn all() -> Vec<&'static Metric> {
    let probes = PROBES.iter().flat_map(|probe| probe.metrics);
    let rest = METRICS.iter().chain(OF_TEXTS).chain(spectra::METRICS);
    probes.chain(rest).chain([&COST]).collect()
}

#[test]
fn every_health_metric_has_a_test_of_its_known_values() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (name, ids, tests) in TABLE {
        assert!(!tests.is_empty(), "{name}");
        for (file, test) in *tests {
            let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
            assert!(
                text.contains(&format!("fn {test}()")),
                "{name}: {file} has no test {test}"
            );
        }
        for id in *ids {
            assert!(
                all().iter().any(|metric| metric.id == *id),
                "{name}: nothing is called {id}"
            );
        }
    }
    // Readings of a probe are in the table, except a ratio of two of its rows.
    let derived = ["grad_consistency/expected"];
    for metric in PROBES.iter().flat_map(|probe| probe.metrics) {
        let listed = TABLE.iter().any(|(_, ids, _)| ids.contains(&metric.id));
        assert!(
            listed || derived.contains(&metric.id),
            "{} has no known value",
            metric.id
        );
    }
}

#[test]
fn normal_bands_are_defined_next_to_their_estimator() {
    for metric in all() {
        let probed = PROBES
            .iter()
            .flat_map(|probe| probe.metrics)
            .any(|m| m.id == metric.id);
        let wanted = probed || metric.band.is_some();
        assert!(
            !wanted || !metric.estimator.is_empty(),
            "{} names no estimator",
            metric.id
        );
    }
}

/// A draw ≥ 1 with a density of x^−α.
fn pareto(rng: &mut Rng, alpha: f64) -> f64 {
    (1.0 - rng.uniform_f64()).powf(-1.0 / (alpha - 1.0))
}

#[test]
fn exponents_of_pareto_draws_and_of_noise() {
    let mut rng = Rng::new(5, Stream::Test, 0, 0);
    let mut draws: Vec<f64> = (0..20_000).map(|_| pareto(&mut rng, 3.0)).collect();
    draws.sort_by(f64::total_cmp);
    // For a power law every tail follows it: the median starts a tail of 10,000.
    let fit = alpha::hill_mid(&draws).unwrap();
    assert!(
        (fit.alpha - 3.0).abs() < 4.0 * 2.0 / 10_000f64.sqrt(),
        "{fit:?}"
    );
    // Noise alone is within 2 to 3 by this estimator: it has no absolute band.
    for (cols, range) in [(512, 2.05..2.20), (2048, 3.3..3.65)] {
        let w: Vec<f32> = (0..512 * cols).map(|_| rng.normal()).collect();
        let found = alpha::hill_mid(&eigenvalues(&w, 512, cols)).unwrap().alpha;
        assert!(range.contains(&found), "512 × {cols}: {found}");
    }
}

#[test]
fn a_million_normal_weights_have_their_spread() {
    let mut rng = Rng::new(6, Stream::Test, 0, 0);
    let mut moments = Moments::default();
    for _ in 0..100 {
        let part: Vec<f32> = (0..10_000).map(|_| 0.02 * rng.normal()).collect();
        moments.add(&part);
    }
    let std = moments.std().unwrap();
    assert!((std - 0.02).abs() < 6e-5, "{std}");
}
