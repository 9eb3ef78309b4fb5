//! Which side of a split a row is on: a function of its content and a seed, so that equal rows stay together, and adding or
//! removing rows moves no others.

use super::row::key;
use crate::base::rng::mix64;
use crate::data::Example;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Train,
    Val,
}

/// A split.
#[derive(Debug, Clone, Copy)]
pub struct Halves {
    below: f64,
    seed: u64,
}

impl Halves {
    /// `val` is the share held out, between 0 and 1.
    pub fn new(val: f64, seed: u64) -> Halves {
        Halves { below: val, seed }
    }

    pub fn side(&self, example: &Example) -> Side {
        self.side_of(key(example))
    }

    /// The same of a row's fingerprint.
    pub fn side_of(&self, key: u128) -> Side {
        let draw = mix64(mix64(self.seed ^ (key >> 64) as u64) ^ key as u64);
        // 53 bits, uniform in [0, 1).
        match ((draw >> 11) as f64 / (1_u64 << 53) as f64) < self.below {
            true => Side::Val,
            false => Side::Train,
        }
    }
}

/// Of the first seeds the one whose split comes closest to the share, with rows on both sides, and how many rows it holds out: of
/// few rows a share is far off by chance. `None` where no seed has both sides.
pub fn closest_seed(val: f64, keys: &[u128]) -> Option<(u64, u64)> {
    const SEEDS: u64 = 200;
    let held = |seed: u64| {
        let halves = Halves::new(val, seed);
        let held = keys.iter().filter(|key| halves.side_of(**key) == Side::Val);
        (seed, held.count() as u64)
    };
    let wanted = val * keys.len() as f64;
    let both = (0..SEEDS).map(held);
    let both = both.filter(|(_, n)| (1..keys.len() as u64).contains(n));
    both.min_by(|(_, a), (_, b)| {
        (*a as f64 - wanted)
            .abs()
            .total_cmp(&(*b as f64 - wanted).abs())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Content;

    fn sides(val: f64, seed: u64) -> Vec<Side> {
        let halves = Halves::new(val, seed);
        let example = |i| Example::new(Content::Text(format!("row {i}")));
        (0..4000).map(|i| halves.side(&example(i))).collect()
    }

    #[test]
    fn the_share_is_kept_and_the_seed_decides() {
        let held = |sides: &[Side]| sides.iter().filter(|s| **s == Side::Val).count();
        let one = sides(0.1, 1);
        // 400 expected, deviation 19.
        assert!((320..480).contains(&held(&one)), "{}", held(&one));
        assert_eq!(one, sides(0.1, 1));
        assert_ne!(one, sides(0.1, 2));
        // A larger share keeps what was held out.
        let more = sides(0.2, 1);
        assert!(
            one.iter()
                .zip(&more)
                .all(|(a, b)| *a == Side::Train || *b == Side::Val)
        );
    }

    #[test]
    fn of_few_rows_a_seed_that_keeps_the_share_is_found() {
        let row = |i: u32| key(&Example::new(Content::Text(format!("row {i}"))));
        let keys: Vec<u128> = (0..20).map(row).collect();
        let (seed, held) = closest_seed(0.2, &keys).unwrap();
        assert_eq!(held, 4);
        let halves = Halves::new(0.2, seed);
        let val = keys.iter().filter(|key| halves.side_of(**key) == Side::Val);
        assert_eq!(val.count(), 4);
        assert_eq!(closest_seed(0.2, &keys[..1]), None);
    }
}
