//! How far a value deviates from those before it: as a ratio to their running mean, and as the share of steps beyond seven
//! standard deviations (OLMo 2, arXiv 2501.00656, section 3). The estimators have their own thresholds.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Preceding values that a new one is compared with.
const WINDOW: usize = 1000;
/// Standard deviations that make a spike.
const SIGMAS: f64 = 7.0;
/// Fewer values have no meaningful spread.
const ENOUGH: usize = 50;
/// If a square that leaves the window was this many times all others, it cost them six digits.
const LARGE: f64 = 1e6;
/// Weight of the past in the running mean.
const PAST: f64 = 0.97;

/// Percentage of outlier steps relative to the thousand before each, `olmo`. As in OLMo, outliers are part of the window for
/// later values: a lasting level soon becomes normal.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpikeScore {
    window: VecDeque<f64>,
    sum: f64,
    squares: f64,
    seen: u64,
    spikes: u64,
}

impl SpikeScore {
    /// Adds a value; returns its distance from the mean in standard deviations, if known.
    pub fn push(&mut self, x: f64) -> Option<f64> {
        self.seen += 1;
        if !x.is_finite() {
            self.spikes += 1;
            return None;
        }
        let n = self.window.len() as f64;
        let z = (self.window.len() >= ENOUGH).then(|| {
            let mean = self.sum / n;
            let sigma = (self.squares / n - mean * mean).max(0.0).sqrt();
            (x - mean) / sigma.max(1e-9 * mean.abs()).max(f64::MIN_POSITIVE)
        });
        self.spikes += u64::from(z.is_some_and(|z| z.abs() >= SIGMAS));
        self.window.push_back(x);
        self.sum += x;
        self.squares += x * x;
        if self.window.len() > WINDOW
            && let Some(old) = self.window.pop_front()
        {
            self.sum -= old;
            self.squares -= old * old;
            // Digits lost next to a far larger square are not restored by subtracting it.
            if old * old > LARGE * self.squares {
                self.sum = self.window.iter().sum();
                self.squares = self.window.iter().map(|x| x * x).sum();
            }
        }
        z
    }

    /// Percent of all steps.
    pub fn percent(&self) -> f64 {
        100.0 * self.spikes as f64 / self.seen.max(1) as f64
    }
}

/// A value over the running mean of the preceding ones: `norm_ratio`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct NormRatio(crate::base::stats::Ema);

impl Default for NormRatio {
    fn default() -> Self {
        NormRatio(crate::base::stats::Ema::new(PAST))
    }
}

impl NormRatio {
    /// Adds a value; `None` for the first. An outlier counts as at most three times the mean.
    pub fn push(&mut self, x: f64) -> Option<f64> {
        /// A spike must not hide the next one.
        const MOST: f64 = 3.0;
        let before = self.0.value();
        self.0.push(before.map_or(x, |mean| x.min(MOST * mean)));
        before.filter(|mean| *mean > 0.0).map(|mean| x / mean)
    }
}

/// θ of SPAM's code: an element is a spike where its square exceeds so many times the moving mean of its squares.
const THETA: f64 = 5000.0;

/// SPAM's clipped value of an element (arXiv 2501.06842): beyond g² > θ v it is sign(g) √(θ v). `None` if it is not a spike.
pub fn spam_clip(gradient: f64, square: f64) -> Option<f64> {
    (gradient * gradient > THETA * square).then(|| gradient.signum() * (THETA * square).sqrt())
}

#[cfg(test)]
mod tests {
    use super::super::close;
    use super::*;

    #[test]
    fn nine_ones_and_a_ten() {
        let mut ratio = NormRatio::default();
        assert_eq!(ratio.push(1.0), None);
        (0..8).for_each(|_| close(ratio.push(1.0).unwrap(), 1.0, 1e-12));
        close(ratio.push(10.0).unwrap(), 10.0, 1e-12);
        // It entered the mean as 3.
        assert!(ratio.push(10.0).unwrap() > 5.0);
    }

    #[test]
    fn one_of_a_thousand_and_one_is_an_outlier() {
        let mut score = SpikeScore::default();
        for _ in 0..500 {
            score.push(0.9);
            score.push(1.1);
        }
        close(score.push(5.0).unwrap(), 40.0, 1e-6);
        close(score.percent(), 0.0999, 1e-4);
        // 0.0959 over 0.1612: the spike is one of the thousand.
        close(score.push(1.1).unwrap(), 0.595, 1e-3);
        score.push(f64::NAN);
        assert_eq!(score.spikes, 2);
    }

    /// Every step after a lasting shift used to be a spike.
    #[test]
    fn a_lasting_level_soon_stops_being_a_spike() {
        let mut score = SpikeScore::default();
        let noise = |i: usize| 0.03 * ((i * 7919 % 101) as f64 / 50.0 - 1.0);
        for epoch in 0..3 {
            for i in 0..300 {
                score.push(2.0 - 0.4 * epoch as f64 + noise(i));
            }
        }
        assert!((2..16).contains(&score.spikes), "{}", score.spikes);
        let before = score.spikes;
        (0..300).for_each(|i| {
            score.push(1.2 + noise(i));
        });
        assert_eq!(score.spikes, before);
    }

    /// A square of 1e16 rounds ones of 0.1 away: when it left the window, every step was a spike, or none.
    #[test]
    fn a_huge_value_has_no_effect_after_it_leaves_the_window() {
        let noise = |i: usize| 0.3 + 0.03 * ((i * 7919 % 101) as f64 / 50.0 - 1.0);
        let (mut hit, mut quiet) = (SpikeScore::default(), SpikeScore::default());
        (0..100).for_each(|i| {
            hit.push(noise(i));
        });
        hit.push(1e8);
        for i in 0..1200 {
            hit.push(noise(i));
            quiet.push(noise(i));
        }
        assert_eq!((hit.spikes, quiet.spikes), (1, 0));
        close(hit.push(0.6).unwrap(), quiet.push(0.6).unwrap(), 1e-6);
    }

    #[test]
    fn spam_clips_at_seventy_times_the_root() {
        close(spam_clip(1.0, 1e-4).unwrap(), 0.5f64.sqrt(), 1e-12);
        assert_eq!(spam_clip(0.5, 1e-4), None);
    }
}
