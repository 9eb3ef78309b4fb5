//! A random permutation of 0..n with random access: a Feistel network over the smallest even number of bits that holds n,
//! iterated until the result is below n (Black and Rogaway 2002, "Ciphers with arbitrary finite domains").

use crate::base::rng::{Rng, Stream, mix64};

/// Enough to look random; this is an order, not a secret.
const ROUNDS: usize = 6;

/// One order of 0..n, given by a seed and an epoch.
#[derive(Debug, Clone)]
pub(super) struct Permutation {
    n: u64,
    half_bits: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    /// `n` must be positive.
    pub fn new(n: u64, seed: u64, epoch: u64) -> Permutation {
        // Lane 1: lane 0 of this stream draws random windows.
        Permutation::drawn(n, &mut Rng::new(seed, Stream::Data, epoch, 1))
    }

    /// The order that a generator draws; `n` must be positive.
    pub fn drawn(n: u64, rng: &mut Rng) -> Permutation {
        let bits = u64::BITS - n.saturating_sub(1).leading_zeros();
        Permutation {
            n,
            half_bits: bits.div_ceil(2).max(1),
            keys: std::array::from_fn(|_| rng.next_u64()),
        }
    }

    /// The element at `index` < n. At most four expected walks: the domain is less than four times n.
    pub fn at(&self, index: u64) -> u64 {
        let mut x = index;
        loop {
            x = self.encrypt(x);
            if x < self.n {
                return x;
            }
        }
    }

    fn encrypt(&self, x: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (x >> self.half_bits, x & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (mix64(right ^ key) & mask));
        }
        (left << self.half_bits) | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_is_a_permutation() {
        for n in [1, 2, 3, 5, 64, 65, 1000] {
            let order = Permutation::new(n, 7, 3);
            let mut seen: Vec<u64> = (0..n).map(|i| order.at(i)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..n).collect::<Vec<_>>(), "n = {n}");
        }
    }

    #[test]
    fn seeds_and_epochs_give_other_orders_and_no_place_is_preferred() {
        let first = |seed, epoch| {
            (0..50)
                .map(|i| Permutation::new(1000, seed, epoch).at(i))
                .collect::<Vec<_>>()
        };
        assert_ne!(first(1, 0), first(1, 1));
        assert_ne!(first(1, 0), first(2, 0));
        // Mean of the first element over many epochs: uniform on 0..1000 has mean 499.5, deviation 289/√2000 = 6.5.
        let mean = (0..2000)
            .map(|e| Permutation::new(1000, 5, e).at(0) as f64)
            .sum::<f64>()
            / 2000.0;
        assert!((mean - 499.5).abs() < 30.0, "{mean}");
    }
}
