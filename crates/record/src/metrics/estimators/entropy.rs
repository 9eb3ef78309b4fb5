//! Entropy of attention rows, in nats and relative to the maximum for the row's length (Zhai et al. 2023, arXiv 2303.06296).

/// One row of attention before its softmax.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// −Σ a ln a.
    pub entropy: f64,
    /// Divided by ln n for n visible keys; `None` if there is one.
    pub relative: Option<f64>,
    /// Probability of the first key, where attention sinks are.
    pub first: f64,
    /// The largest score.
    pub largest: f64,
}

/// The statistics of scores before the softmax; `None` for an empty row.
pub fn of_scores(scores: &[f32]) -> Option<Row> {
    let largest = f64::from(scores.iter().copied().reduce(f32::max)?);
    let shifted = || scores.iter().map(|s| f64::from(*s) - largest);
    let (mut sum, mut weighted) = (0.0, 0.0);
    for s in shifted() {
        let e = s.exp();
        sum += e;
        weighted += e * s;
    }
    // LSE − Σ a s, both relative to the largest score.
    let entropy = (sum.ln() - weighted / sum).max(0.0);
    let n = scores.len() as f64;
    Some(Row {
        entropy,
        relative: (n > 1.0).then(|| entropy / n.ln()),
        first: (f64::from(scores[0]) - largest).exp() / sum,
        largest,
    })
}

#[cfg(test)]
mod tests {
    use super::super::close;
    use super::*;

    #[test]
    fn known_rows() {
        let row = |p: &[f64]| of_scores(&p.iter().map(|p| p.ln() as f32).collect::<Vec<_>>());
        let uniform = row(&[0.25; 4]).unwrap();
        close(uniform.entropy, 1.386294, 1e-6);
        close(uniform.relative.unwrap(), 1.0, 1e-9);
        close(uniform.first, 0.25, 1e-9);
        let skew = row(&[0.7, 0.2, 0.1]).unwrap();
        close(skew.entropy, 0.801819, 1e-6);
        close(skew.relative.unwrap(), 0.729847, 1e-6);
        close(row(&[1.0, 0.0]).unwrap().entropy, 0.0, 1e-12);
        close(
            of_scores(&[0.0, 3f32.ln()]).unwrap().entropy,
            0.562335,
            1e-6,
        );
        let causal: f64 = (1..=4)
            .map(|n| of_scores(&vec![0.5; n]).unwrap().entropy)
            .sum();
        close(causal / 4.0, 0.794513, 1e-6);
        assert_eq!(of_scores(&[2.0]).unwrap().relative, None);
        assert_eq!(of_scores(&[]), None);
    }

    #[test]
    fn adding_a_constant_to_all_scores_changes_nothing() {
        let (a, b) = ([0.3f32, -1.0, 2.0], [100.3f32, 99.0, 102.0]);
        let (a, b) = (of_scores(&a).unwrap(), of_scores(&b).unwrap());
        close(a.entropy, b.entropy, 1e-5);
        close(b.largest - a.largest, 100.0, 1e-4);
    }
}
