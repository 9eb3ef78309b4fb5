//! Statistics of a matrix's spectrum: its effective rank. All from the eigenvalues λ = σ² of its smaller Gram matrix.

/// Sums over one spectrum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spectrum {
    /// σ_max = ‖W‖₂.
    pub spectral_norm: f64,
    /// ‖W‖_F² / σ_max², from 1 to the rank.
    pub stable_rank: f64,
    /// ln r − H(p), p_i = σ_i / Σσ: 0 if all directions are equal, ln r if one carries everything (`kl_sigma`).
    pub kl_sigma: f64,
    /// The same with p_i = σ_i² / Σσ² (`kl_energy`).
    pub kl_energy: f64,
    /// exp H(p) of σ: the effective number of directions, from 1 to r (Roy and Vetterli 2007).
    pub effective_rank: f64,
    /// ‖W‖_F.
    pub frobenius: f64,
}

/// From all eigenvalues; `None` for a zero matrix.
pub fn of_eigenvalues(values: &[f64]) -> Option<Spectrum> {
    let largest = values.iter().copied().fold(0.0, f64::max);
    let energy: f64 = values.iter().sum();
    if !(largest > 0.0 && energy.is_finite()) {
        return None;
    }
    let size = (values.len() as f64).ln();
    let sigma = |x: f64| x.max(0.0).sqrt();
    let entropy = entropy(values.iter().map(|x| sigma(*x)));
    Some(Spectrum {
        spectral_norm: largest.sqrt(),
        stable_rank: energy / largest,
        kl_sigma: size - entropy,
        kl_energy: size - self::entropy(values.iter().copied()),
        effective_rank: entropy.exp(),
        frobenius: energy.sqrt(),
    })
}

/// −Σ p ln p of weights ≥ 0 over their sum; 0 · ln 0 is 0.
fn entropy(weights: impl Iterator<Item = f64> + Clone) -> f64 {
    let total: f64 = weights.clone().sum();
    let term = |w: f64| {
        let p = w / total;
        if p > 0.0 { -p * p.ln() } else { 0.0 }
    };
    weights.map(term).sum()
}

#[cfg(test)]
mod tests {
    use super::super::close;
    use super::*;

    #[test]
    fn known_diagonals() {
        let s = of_eigenvalues(&[1.0, 4.0, 9.0]).unwrap();
        close(s.kl_sigma, 0.0872080, 1e-6);
        close(s.effective_rank, 2.749459, 1e-6);
        close(s.kl_energy, 0.2681406, 1e-6);
        close(s.stable_rank, 14.0 / 9.0, 1e-9);
        close(s.spectral_norm, 3.0, 1e-12);
        let even = of_eigenvalues(&[2.0; 7]).unwrap();
        close(even.kl_sigma, 0.0, 1e-12);
        let one = of_eigenvalues(&[0.0, 0.0, 5.0]).unwrap();
        close(one.kl_sigma, 3f64.ln(), 1e-12);
        assert_eq!(of_eigenvalues(&[0.0, 0.0]), None);
    }

    #[test]
    fn a_random_square_matrix_is_far_from_even() {
        let mut rng = crate::base::rng::Rng::new(3, crate::base::rng::Stream::Init, 0, 0);
        let w: Vec<f32> = (0..512 * 512).map(|_| rng.normal()).collect();
        let values = crate::kernels::spectrum::eigenvalues(&w, 512, 512);
        let s = of_eigenvalues(&values).unwrap();
        close(s.kl_energy, 0.50, 0.02);
        close(s.kl_sigma, 0.217, 0.005);
    }
}
