//! Whether texts were memorized: log-likelihood against zlib size, the least likely tokens, and the effect of other texts of
//! the set as context. Log-likelihoods are in nats.

use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::io::Write;

/// Compression level of [`zlib_bytes`]; lengths differ between levels and slightly between libraries.
const LEVEL: u32 = 6;

/// Length under zlib, header and checksum included.
pub fn zlib_bytes(text: &[u8]) -> usize {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(LEVEL));
    // Writing to memory does not fail.
    let written = encoder.write_all(text).and_then(|()| encoder.finish());
    written.map_or(text.len(), |bytes| bytes.len())
}

/// Bits that the model needs relative to those that zlib needs, `bits_ratio`: low if a text that zlib compresses badly is known
/// (after Carlini et al. 2021, arXiv 2012.07805).
pub fn bits_ratio(nll: f64, zlib_bytes: usize) -> f64 {
    nll / std::f64::consts::LN_2 / (8.0 * zlib_bytes.max(1) as f64)
}

/// Mean of the least likely tokens, `min_k`: a share `k` of them, at least one (Shi et al. 2024, arXiv 2310.16789). Higher
/// if a text is known.
pub fn min_k(logps: &[f32], k: f64) -> Option<f64> {
    let n = ((logps.len() as f64 * k) as usize).max(1);
    let mut sorted: Vec<f64> = logps.iter().map(|x| f64::from(*x)).collect();
    sorted.sort_by(f64::total_cmp);
    let least = sorted.get(..n)?;
    Some(least.iter().sum::<f64>() / n as f64)
}

/// Share of texts whose mean log-likelihood falls when other texts of their set precede them, `codec` (Zawalski et al. 2025,
/// arXiv 2510.27055), and its standard error. No change does not count as a fall.
pub fn codec(changes: &[f64]) -> Option<(f64, f64)> {
    let n = changes.len() as f64;
    let falls = changes.iter().filter(|change| **change < 0.0).count() as f64;
    let share = falls / n;
    (n > 0.0).then(|| (share, (share * (1.0 - share) / n).sqrt()))
}

/// How often a value of `low` is below one of `high`, ties counting half: the area under the ROC curve.
pub fn auc(low: &[f64], high: &[f64]) -> Option<f64> {
    let pairs = (low.len() * high.len()) as f64;
    let below = |a: f64, b: f64| match a.total_cmp(&b) {
        std::cmp::Ordering::Less => 1.0,
        std::cmp::Ordering::Equal => 0.5,
        std::cmp::Ordering::Greater => 0.0,
    };
    let sum: f64 = low
        .iter()
        .flat_map(|a| high.iter().map(move |b| below(*a, *b)))
        .sum();
    (pairs > 0.0).then(|| sum / pairs)
}

#[cfg(test)]
mod tests {
    use super::super::close;
    use super::*;
    use crate::base::rng::{Rng, Stream};

    #[test]
    fn lengths_under_zlib() {
        assert!(zlib_bytes(&[b'a'; 1000]).abs_diff(17) <= 3);
        let mut rng = Rng::new(1, Stream::Test, 0, 0);
        let random: Vec<u8> = (0..1000).map(|_| rng.below(256) as u8).collect();
        assert!(zlib_bytes(&random).abs_diff(1011) <= 5);
        let fox = zlib_bytes(b"The quick brown fox jumps over the lazy dog");
        assert!((50..=51).contains(&fox), "{fox}");
    }

    #[test]
    fn the_ratio_is_one_if_both_need_the_same_bits() {
        let nll = 8.0 * 100.0 * std::f64::consts::LN_2;
        close(bits_ratio(nll, 100), 1.0, 1e-12);
        close(bits_ratio(2.0 * nll, 100), 2.0, 1e-12);
    }

    #[test]
    fn falls_are_counted_without_ties() {
        let (share, error) = codec(&[-0.1, 0.2, -0.3, 0.05]).unwrap();
        close(share, 0.5, 1e-12);
        close(error, 0.25, 1e-12);
        assert_eq!(codec(&[0.1, 0.0]), Some((0.0, 0.0)));
        assert_eq!(codec(&[]), None);
    }

    #[test]
    fn the_least_fifth_is_averaged() {
        let logps: Vec<f32> = (1..=10).map(|i| -(i as f32)).collect();
        assert_eq!(min_k(&logps, 0.2), Some(-9.5));
        assert_eq!(min_k(&[-3.0, -1.0], 0.2), Some(-3.0), "at least one");
        assert_eq!(min_k(&[], 0.2), None);
    }

    #[test]
    fn separation() {
        assert_eq!(auc(&[1.0, 2.0], &[3.0, 4.0]), Some(1.0));
        assert_eq!(auc(&[1.0, 3.0], &[2.0, 3.0]), Some(0.625));
        assert_eq!(auc(&[], &[1.0]), None);
    }
}
