//! Near duplicates: rows whose sets of word 5-grams have a Jaccard similarity of at least 0.8. MinHash and banding (Broder
//! 1997, "On the resemblance and containment of documents"; Leskovec, Rajaraman and Ullman, "Mining of massive datasets",
//! ch. 3) find candidates; a sketch of each row's smallest shingles decides: exact for rows of up to 512 shingles.

use super::words::{STEP, grams};
use crate::base::rng::mix64;
use std::collections::HashMap;

/// Words in a shingle.
pub const SHINGLE: usize = 5;
/// Rows at least this similar are one.
pub const THRESHOLD: f64 = 0.8;
/// A pair of similarity s becomes a candidate with probability 1 − (1 − s⁶)²⁰: 0.998 at 0.8, 0.27 at 0.5.
const BANDS: usize = 20;
const ROWS_OF_A_BAND: usize = 6;
/// Shingles kept of a row; a longer row's similarity is estimated from them, within about 0.02.
const SKETCH: usize = 512;
/// Candidates that are compared with one row; templates shared by thousands of rows would otherwise cost all the time.
const MAX_CANDIDATES: usize = 64;

/// The sketch of a row: a few kilobytes, whatever its length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    bands: [u64; BANDS],
    /// The smallest hashes of its shingles, ascending.
    sketch: Vec<u32>,
}

impl Signature {
    /// `None` for a text without words.
    pub fn of(words: &[u64]) -> Option<Signature> {
        let mut shingles: Vec<u64> = grams(words, SHINGLE).collect();
        shingles.sort_unstable();
        shingles.dedup();
        if shingles.is_empty() {
            return None;
        }
        let mut bands = [0; BANDS];
        for (b, band) in bands.iter_mut().enumerate() {
            let mut key = b as u64;
            for r in 0..ROWS_OF_A_BAND {
                // Counter-based: the n-th permutation is the mix of the shingle and n steps.
                let step = STEP.wrapping_mul((b * ROWS_OF_A_BAND + r + 1) as u64);
                let least = shingles.iter().map(|s| mix64(s.wrapping_add(step))).min();
                key = mix64(key.wrapping_mul(STEP) ^ least.unwrap_or(0));
            }
            *band = key;
        }
        let mut sketch: Vec<u32> = shingles.iter().map(|s| (s >> 32) as u32).collect();
        sketch.dedup();
        sketch.truncate(SKETCH);
        Some(Signature { bands, sketch })
    }

    /// The Jaccard similarity of two rows.
    pub fn similarity(&self, other: &Signature) -> f64 {
        similarity(&self.sketch, &other.sketch)
    }
}

/// From the smallest hashes of the union of two sketches (Broder's bottom-k sketch).
fn similarity(a: &[u32], b: &[u32]) -> f64 {
    let k = match a.len() < SKETCH && b.len() < SKETCH {
        true => usize::MAX,
        false => SKETCH,
    };
    let (mut i, mut j, mut union, mut both) = (0, 0, 0_usize, 0_usize);
    while union < k && (i < a.len() || j < b.len()) {
        match (a.get(i), b.get(j)) {
            (Some(x), Some(y)) if x == y => (i, j, both) = (i + 1, j + 1, both + 1),
            (Some(x), Some(y)) if x > y => j += 1,
            (None, Some(_)) => j += 1,
            _ => i += 1,
        }
        union += 1;
    }
    both as f64 / union.max(1) as f64
}

/// Ends a chain.
const NONE: u32 = u32::MAX;

/// Rows seen so far that have no near duplicate before them.
#[derive(Debug, Default)]
pub struct Index {
    sketches: Vec<Vec<u32>>,
    /// The newest row of each bucket, and for each row and band the one before it there.
    newest: HashMap<u64, u32>,
    before: Vec<[u32; BANDS]>,
    bytes: usize,
}

impl Index {
    /// Rows remembered.
    pub fn len(&self) -> usize {
        self.sketches.len()
    }

    /// Memory that they take, roughly.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The most similar remembered row at or above the threshold, and how similar it is.
    pub fn nearest(&self, signature: &Signature) -> Option<(usize, f64)> {
        self.candidates(signature)
            .into_iter()
            .map(|row| (row, similarity(&self.sketches[row], &signature.sketch)))
            .filter(|(_, similarity)| *similarity >= THRESHOLD)
            .max_by(|a, b| a.1.total_cmp(&b.1))
    }

    fn candidates(&self, signature: &Signature) -> Vec<usize> {
        let mut rows: Vec<usize> = Vec::new();
        for (band, key) in signature.bands.iter().enumerate() {
            let mut row = self.newest.get(key).copied().unwrap_or(NONE);
            while row != NONE && rows.len() < MAX_CANDIDATES {
                if !rows.contains(&(row as usize)) {
                    rows.push(row as usize);
                }
                row = self.before[row as usize][band];
            }
        }
        rows
    }

    /// Remembers a row under the next number.
    pub fn add(&mut self, signature: Signature) {
        let row = self.sketches.len() as u32;
        let mut before = [NONE; BANDS];
        for (band, key) in signature.bands.into_iter().enumerate() {
            before[band] = self.newest.insert(key, row).unwrap_or(NONE);
        }
        self.before.push(before);
        // A sketch, a chain, twenty entries of a hash map.
        self.bytes += signature.sketch.len() * 4 + 24 + BANDS * (4 + 24);
        self.sketches.push(signature.sketch);
    }
}

#[cfg(test)]
mod tests {
    use super::super::words::push_words;
    use super::*;
    use crate::base::rng::{Rng, Stream};
    use std::collections::BTreeSet;

    fn words(text: &str) -> Vec<u64> {
        let mut out = Vec::new();
        push_words(text, &mut out);
        out
    }

    /// The definition, over the words themselves.
    fn jaccard(a: &str, b: &str) -> f64 {
        let shingles = |text: &str| -> BTreeSet<Vec<String>> {
            let words: Vec<String> = text.split(' ').map(String::from).collect();
            words.windows(SHINGLE).map(<[String]>::to_vec).collect()
        };
        let (a, b) = (shingles(a), shingles(b));
        a.intersection(&b).count() as f64 / a.union(&b).count() as f64
    }

    fn random_text(rng: &mut Rng, n: usize) -> Vec<String> {
        (0..n).map(|_| format!("w{}", rng.below(5000))).collect()
    }

    /// A text of `n` words and a copy of it with every `every`-th word replaced.
    fn pair(rng: &mut Rng, n: usize, every: usize) -> (String, String) {
        let text = random_text(rng, n);
        let mut copy = text.clone();
        for at in (every / 2..n).step_by(every) {
            copy[at] = "changed".into();
        }
        (text.join(" "), copy.join(" "))
    }

    #[test]
    fn similarity_is_the_jaccard_similarity_of_the_shingles() {
        let mut rng = Rng::new(3, Stream::Test, 0, 0);
        for (n, every) in [(40, 20), (120, 50), (300, 60), (480, 200), (200, 12)] {
            let (a, b) = pair(&mut rng, n, every);
            let (x, y) = (
                Signature::of(&words(&a)).unwrap(),
                Signature::of(&words(&b)).unwrap(),
            );
            assert!(
                (x.similarity(&y) - jaccard(&a, &b)).abs() < 1e-9,
                "{n} {every}"
            );
            assert!((x.similarity(&x) - 1.0).abs() < 1e-12);
        }
        // Longer than the sketch: an estimate.
        let (a, b) = pair(&mut rng, 4000, 50);
        let (x, y) = (
            Signature::of(&words(&a)).unwrap(),
            Signature::of(&words(&b)).unwrap(),
        );
        let error = x.similarity(&y) - jaccard(&a, &b);
        assert!(error.abs() < 0.06, "{error}");
    }

    #[test]
    fn pairs_above_the_threshold_are_found_and_strangers_are_not() {
        let mut rng = Rng::new(5, Stream::Test, 0, 0);
        let (mut found, mut above, mut wrong) = (0, 0, 0);
        for i in 0..120 {
            let (a, b) = pair(&mut rng, 150, 20 + i);
            let mut index = Index::default();
            for _ in 0..5 {
                let stranger = random_text(&mut rng, 150).join(" ");
                index.add(Signature::of(&words(&stranger)).unwrap());
            }
            index.add(Signature::of(&words(&a)).unwrap());
            let hit = index.nearest(&Signature::of(&words(&b)).unwrap());
            let truth = jaccard(&a, &b) >= THRESHOLD;
            above += usize::from(truth);
            found += usize::from(truth && hit.is_some_and(|(row, _)| row == 5));
            wrong += usize::from(!truth && hit.is_some());
        }
        assert!(above > 30 && above < 110, "{above}");
        // Banding may miss one in several hundred; its hits are correct.
        assert!(
            found + 2 >= above && wrong == 0,
            "{found} of {above}, {wrong}"
        );
    }

    #[test]
    fn short_texts_are_one_shingle_and_no_words_none() {
        let yes = Signature::of(&words("Yes, sure.")).unwrap();
        assert_eq!(yes, Signature::of(&words("yes SURE")).unwrap());
        let no = Signature::of(&words("not at all")).unwrap();
        assert!(yes.similarity(&no) < 0.01);
        assert_eq!(Signature::of(&[]), None);
    }
}
