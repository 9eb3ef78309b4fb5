//! Counter-based random numbers: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
//!
//! A draw is a pure function of (seed, stream, step, lane, position), so a resumed run needs no saved generator state
//! and streams never interfere.

/// The finaliser of SplitMix64 (Steele et al. 2014): a bijection of 64-bit numbers that hides every pattern. A hash, not a
/// generator: random numbers come from [`Rng`].
pub fn mix64(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The purpose of the numbers. The discriminants are part of the checkpoint contract: never renumber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Stream {
    /// Parameter initialization; lane = the parameter's index.
    Init = 1,
    /// Training batches; step = micro-step.
    Data = 2,
    /// Evaluation batches; never touches the training stream.
    Eval = 3,
    /// Token sampling; step = position in the generated text.
    Sample = 4,
    /// Preflight probes.
    Preflight = 5,
    /// Dropout masks; lane = layer.
    Dropout = 6,
    /// Tests and synthetic data.
    Test = 7,
    /// Seeds of the answers that a step learns from; step = optimizer step.
    Rollout = 8,
    /// Noise on embeddings; step = micro-step, lane = row.
    Noise = 9,
    /// Labels sampled from the model; step = micro-step, lane = row.
    Labels = 10,
    /// Changes that a merge of models drops; step = model, lane = tensor.
    Merge = 11,
}

/// A generator positioned at one (seed, stream, step, lane).
#[derive(Debug, Clone)]
pub struct Rng {
    key: [u32; 2],
    /// (block index, step low, step high ^ stream tag, lane)
    counter: [u32; 4],
    block: [u32; 4],
    used: usize,
}

impl Rng {
    pub fn new(seed: u64, stream: Stream, step: u64, lane: u32) -> Self {
        let key = [seed as u32, (seed >> 32) as u32];
        // The stream is in the top byte of the high step word: steps stay unique up to 2^56.
        let high = ((step >> 32) as u32 & 0x00ff_ffff) | ((stream as u32) << 24);
        Rng {
            key,
            counter: [0, step as u32, high, lane],
            block: [0; 4],
            used: 4,
        }
    }

    pub fn next_u32(&mut self) -> u32 {
        if self.used == 4 {
            self.block = philox4x32(self.counter, self.key);
            self.counter[0] = self.counter[0].wrapping_add(1);
            self.used = 0;
        }
        self.used += 1;
        self.block[self.used - 1]
    }

    pub fn next_u64(&mut self) -> u64 {
        u64::from(self.next_u32()) | (u64::from(self.next_u32()) << 32)
    }

    /// Uniform in [0, 1) with 24 random bits.
    pub fn uniform(&mut self) -> f32 {
        (self.next_u32() >> 8) as f32 / 16_777_216.0
    }

    /// Uniform in [0, 1) with 53 random bits.
    pub fn uniform_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / 9_007_199_254_740_992.0
    }

    /// Standard normal by Box–Muller in f64, rounded once: the same bits on every platform whose libm rounds the same.
    pub fn normal(&mut self) -> f32 {
        let radius = (-2.0 * (1.0 - self.uniform_f64()).ln()).sqrt();
        let angle = std::f64::consts::TAU * self.uniform_f64();
        (radius * angle.cos()) as f32
    }

    /// Skips `n` normals of an unused generator, so that threads can fill parts of one
    /// array: a normal takes exactly one block.
    pub fn skip_normals(&mut self, n: u32) {
        debug_assert!(self.used == 4, "at a block's end");
        self.counter[0] = self.counter[0].wrapping_add(n);
    }

    /// The next 4 n numbers of a generator at a block's end, number 4 i + j in `numbers[j][i]`: side by side, so that the
    /// compiler vectorizes them. Always inlined, to use the caller's instructions.
    #[inline(always)]
    pub fn next_blocks(&mut self, numbers: [&mut [u32]; 4]) {
        debug_assert!(self.used == 4, "at a block's end");
        const LOW: u64 = u32::MAX as u64;
        let [first, a, b, lane] = self.counter;
        // Zipped: a loop with bounds checks would not vectorize.
        let [w0, w1, w2, w3] = numbers;
        let n = w0.len();
        let words = w0.iter_mut().zip(w1).zip(w2.iter_mut().zip(w3));
        for (i, ((w0, w1), (w2, w3))) in (0..).zip(words) {
            // In 64 bits, of which the lower half is used: 32-bit products then need no conversion.
            let index = u64::from(first.wrapping_add(i));
            let mut c = [index, u64::from(a), u64::from(b), u64::from(lane)];
            let mut k = self.key;
            for _ in 0..ROUNDS {
                let (p0, p1) = ((c[0] & LOW) * FACTORS[0], (c[2] & LOW) * FACTORS[1]);
                let (k0, k1) = (u64::from(k[0]), u64::from(k[1]));
                c = [(p1 >> 32) ^ c[1] ^ k0, p1, (p0 >> 32) ^ c[3] ^ k1, p0];
                k = next_key(k);
            }
            *w0 = c[0] as u32;
            *w1 = c[1] as u32;
            *w2 = c[2] as u32;
            *w3 = c[3] as u32;
        }
        self.counter[0] = first.wrapping_add(n as u32);
    }

    /// Uniform in 0..n without modulo bias (Lemire 2019). `n` must be positive.
    pub fn below(&mut self, n: u64) -> u64 {
        debug_assert!(n > 0);
        loop {
            let product = u128::from(self.next_u64()) * u128::from(n);
            let low = product as u64;
            if low >= n.wrapping_neg() % n {
                return (product >> 64) as u64;
            }
        }
    }

    /// Fisher–Yates shuffle.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = self.below(i as u64 + 1) as usize;
            items.swap(i, j);
        }
    }
}

const ROUNDS: usize = 10;
const FACTORS: [u64; 2] = [0xD251_1F53, 0xCD9E_8D57];

fn philox4x32(mut c: [u32; 4], mut k: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        c = round(c, k);
        k = next_key(k);
    }
    c
}

#[inline(always)]
fn round(c: [u32; 4], k: [u32; 2]) -> [u32; 4] {
    let p0 = u64::from(c[0]) * FACTORS[0];
    let p1 = u64::from(c[2]) * FACTORS[1];
    [
        (p1 >> 32) as u32 ^ c[1] ^ k[0],
        p1 as u32,
        (p0 >> 32) as u32 ^ c[3] ^ k[1],
        p0 as u32,
    ]
}

#[inline(always)]
fn next_key(k: [u32; 2]) -> [u32; 2] {
    [
        k[0].wrapping_add(0x9E37_79B9),
        k[1].wrapping_add(0xBB67_AE85),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers from the Random123 distribution (kat_vectors, philox4x32 10 rounds).
    #[test]
    fn mix64_finishes_splitmix64() {
        // The first numbers of SplitMix64 with seed 0.
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        assert_eq!(mix64(STEP), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix64(STEP.wrapping_mul(2)), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn philox_known_answers() {
        assert_eq!(
            philox4x32([0; 4], [0; 2]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox4x32([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
    }

    #[test]
    fn skipping_normals_equals_drawing_them() {
        let start = || Rng::new(3, Stream::Init, 0, 9);
        let mut whole = start();
        let drawn: Vec<f32> = (0..40).map(|_| whole.normal()).collect();
        for n in [0, 1, 17, 39] {
            let mut rng = start();
            rng.skip_normals(n);
            assert_eq!(rng.normal(), drawn[n as usize]);
        }
    }

    #[test]
    fn side_by_side_blocks_equal_blocks_one_by_one() {
        let mut one = Rng::new(11, Stream::Test, 1 << 40, 5);
        one.skip_normals(u32::MAX - 4);
        let mut many = one.clone();
        for n in [8, 1, 37] {
            let mut blocks = [const { [0; 37] }; 4];
            many.next_blocks(blocks.each_mut().map(|words| &mut words[..n]));
            for i in 0..n {
                for word in &blocks {
                    assert_eq!(word[i], one.next_u32());
                }
            }
        }
        assert_eq!(many.next_u32(), one.next_u32());
    }

    #[test]
    fn streams_steps_and_lanes_differ_and_repeat() {
        let draw = |seed, stream, step, lane| Rng::new(seed, stream, step, lane).next_u64();
        let base = draw(1, Stream::Data, 5, 0);
        assert_eq!(base, draw(1, Stream::Data, 5, 0));
        for other in [
            draw(2, Stream::Data, 5, 0),
            draw(1, Stream::Eval, 5, 0),
            draw(1, Stream::Data, 6, 0),
            draw(1, Stream::Data, 5, 1),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn normal_has_unit_moments_and_below_is_in_range() {
        let mut rng = Rng::new(7, Stream::Test, 0, 0);
        let draws: Vec<f64> = (0..100_000).map(|_| f64::from(rng.normal())).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let var = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        assert!(
            mean.abs() < 0.02 && (var - 1.0).abs() < 0.03,
            "mean {mean} var {var}"
        );
        assert!((0..1000).all(|_| rng.below(7) < 7));
    }
}
