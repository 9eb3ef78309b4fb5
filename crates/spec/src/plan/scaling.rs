//! Compute-optimal token counts and the predicted loss, in Chinchilla's form `L = E + A/N^α + B/D^β`.

/// Compute-optimal tokens per parameter (Hoffmann et al., arXiv 2203.15556).
pub const TOKENS_PER_PARAM: f64 = 20.0;

/// Constants of one fit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    pub e: f64,
    pub a: f64,
    pub b: f64,
    pub alpha: f64,
    pub beta: f64,
}

/// Besiroglu et al. 2024, arXiv 2404.10102: a refit of the same data. Hoffmann et al.'s own
/// constants contradict their 20 tokens per parameter (rounding), so they are not used.
pub const BESIROGLU: Fit = Fit {
    e: 1.8172,
    a: 482.01,
    b: 2085.43,
    alpha: 0.3478,
    beta: 0.3658,
};

/// Nats that guessing among 32k tokens costs: where a fit gives more, the run lies outside of what it was fitted to.
pub const GUESSING: f64 = 10.373;

/// Where the predicted loss is valid.
pub const CAVEAT: &str = "nats per token of MassiveText with a 32k tokenizer: for comparing plans, not runs on other text";

impl Fit {
    /// Predicted loss of `n` parameters after `d` tokens, nats per token.
    pub fn loss(&self, n: f64, d: f64) -> f64 {
        self.e + self.a / n.powf(self.alpha) + self.b / d.powf(self.beta)
    }

    /// Compute-optimal parameters and tokens for `flops = 6·N·D`.
    pub fn optimal(&self, flops: f64) -> (f64, f64) {
        let sum = self.alpha + self.beta;
        let g = (self.alpha * self.a / (self.beta * self.b)).powf(1.0 / sum);
        let c = flops / 6.0;
        (g * c.powf(self.beta / sum), c.powf(self.alpha / sum) / g)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hoffmann et al., as printed.
    const HOFFMANN: Fit = Fit {
        e: 1.69,
        a: 406.4,
        b: 410.7,
        alpha: 0.34,
        beta: 0.28,
    };

    #[test]
    fn both_fits_give_the_published_losses() {
        for (n, d, hoffmann, besiroglu) in [
            (70e9, 1.4e12, 1.9366, 1.9739),
            (175e9, 300e9, 2.0023, 2.0085),
            (7e9, 140e9, 2.1835, 2.1733),
            (8e9, 15e12, 1.9485, 2.0221),
            (124e6, 2.5e9, 3.3694, 3.3165),
        ] {
            assert!((HOFFMANN.loss(n, d) - hoffmann).abs() < 2e-4, "{n}");
            assert!((BESIROGLU.loss(n, d) - besiroglu).abs() < 2e-4, "{n}");
        }
    }

    #[test]
    fn the_optimum_spends_about_twenty_tokens_a_parameter() {
        let (n, d) = BESIROGLU.optimal(5.76e23);
        assert!((n / 72.2e9 - 1.0).abs() < 0.01 && (d / 1.33e12 - 1.0).abs() < 0.01);
        for (c, ratio) in [(5.76e23, 18.4), (1e20, 22.9), (1e18, 25.7)] {
            let (n, d) = BESIROGLU.optimal(c);
            assert!((d / n / ratio - 1.0).abs() < 0.01, "{c} {}", d / n);
        }
        let (n, d) = HOFFMANN.optimal(5.76e23);
        assert!((d / n - 92.6).abs() < 1.0);
    }
}
