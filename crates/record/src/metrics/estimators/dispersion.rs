//! The dispersion of losses over a step's micro-batches (Li et al. 2026, arXiv 2602.14462), and mean and spread of weights.

pub use crate::base::stats::population_std;

/// Count, mean and squared deviations of values that arrive in parts (Welford; Chan et al. 1983 for parts).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Moments {
    n: f64,
    mean: f64,
    squares: f64,
}

impl Moments {
    /// Adds all values of a slice: two passes over it, to avoid cancellation.
    pub fn add(&mut self, values: &[f32]) {
        let n = values.len() as f64;
        if n == 0.0 {
            return;
        }
        let mean = values.iter().map(|x| f64::from(*x)).sum::<f64>() / n;
        let squares = values
            .iter()
            .map(|x| (f64::from(*x) - mean).powi(2))
            .sum::<f64>();
        let (total, gap) = (self.n + n, mean - self.mean);
        self.squares += squares + gap * gap * self.n * n / total;
        self.mean += gap * n / total;
        self.n = total;
    }

    /// Population standard deviation; `None` without values.
    pub fn std(&self) -> Option<f64> {
        (self.n > 0.0).then(|| (self.squares / self.n).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::super::close;
    use super::*;

    #[test]
    fn std_is_the_populations_and_not_the_samples() {
        close(
            population_std(&[2.0, 2.2, 1.8, 2.0]).unwrap(),
            0.1414214,
            1e-7,
        );
        close(population_std(&[1.5; 4]).unwrap(), 0.0, 1e-12);
        assert_eq!(population_std(&[1.0]), None);
    }

    #[test]
    fn parts_give_the_result_of_the_whole() {
        let std = |parts: &[&[f32]]| {
            let mut moments = Moments::default();
            parts.iter().for_each(|part| moments.add(part));
            moments.std()
        };
        close(std(&[&[1.0, -1.0, 1.0, -1.0]]).unwrap(), 1.0, 1e-12);
        close(std(&[&[3.0; 9]]).unwrap(), 0.0, 1e-12);
        let values: Vec<f32> = (0..1000).map(|i| (i as f32 * 0.7).sin() + 5.0).collect();
        let (a, b) = values.split_at(300);
        let whole = std(&[&values]).unwrap();
        close(std(&[a, &[], b]).unwrap() / whole, 1.0, 1e-12);
        assert_eq!(std(&[]), None);
    }
}
