//! Singular values of one matrix: all of them by its Gram matrix in f64, or the largest by power iteration. On one thread:
//! spectra are not urgent, and training needs the cores.

use super::simd::multiversion;

/// Elements of the longer side that are multiplied at once: a panel of both in f64 stays in the cache.
const PANEL: usize = 256;

/// Eigenvalues λ = σ² of the smaller Gram matrix of `w` (rows, cols), ascending; min(rows, cols) of them. Values rounded below
/// zero become zero.
pub fn eigenvalues(w: &[f32], rows: usize, cols: usize) -> Vec<f64> {
    assert_eq!(w.len(), rows * cols, "a matrix of these sizes");
    let n = rows.min(cols);
    let (mut diagonal, mut beside) = tridiagonal(gram(w, rows, cols), n);
    ql(&mut diagonal, &mut beside);
    diagonal.iter_mut().for_each(|x| *x = x.max(0.0));
    diagonal.sort_by(f64::total_cmp);
    diagonal
}

/// W Wᵀ or Wᵀ W, whichever is smaller, (n, n) in f64.
fn gram(w: &[f32], rows: usize, cols: usize) -> Vec<f64> {
    let (n, long) = (rows.min(cols), rows.max(cols));
    let mut g = vec![0.0; n * n];
    let mut panel = vec![0.0; n * PANEL];
    for from in (0..long).step_by(PANEL) {
        let len = PANEL.min(long - from);
        for (i, line) in panel.chunks_exact_mut(PANEL).enumerate() {
            for (k, x) in line[..len].iter_mut().enumerate() {
                let at = if rows <= cols {
                    i * cols + from + k
                } else {
                    (from + k) * cols + i
                };
                *x = f64::from(w[at]);
            }
            line[len..].fill(0.0);
        }
        for i in 0..n {
            let a = &panel[i * PANEL..(i + 1) * PANEL];
            for j in 0..=i {
                g[i * n + j] += dot(a, &panel[j * PANEL..(j + 1) * PANEL]);
            }
        }
    }
    for i in 0..n {
        for j in 0..i {
            g[j * n + i] = g[i * n + j];
        }
    }
    g
}

/// Householder's reduction of the symmetric `a` (n, n): diagonal (n) and off-diagonal (n, the last is 0).
fn tridiagonal(mut a: Vec<f64>, n: usize) -> (Vec<f64>, Vec<f64>) {
    let (mut diagonal, mut beside) = (vec![0.0; n], vec![0.0; n]);
    for k in 0..n {
        diagonal[k] = a[k * n + k];
        let m = n - k - 1;
        if m == 0 {
            break;
        }
        let mut v = a[k * n + k + 1..(k + 1) * n].to_vec();
        let tail = dot(&v[1..], &v[1..]);
        if tail == 0.0 {
            beside[k] = v[0];
            continue;
        }
        let norm = (v[0] * v[0] + tail).sqrt();
        let alpha = if v[0] > 0.0 { -norm } else { norm };
        beside[k] = alpha;
        v[0] -= alpha;
        let scale = 2.0 / (v[0] * v[0] + tail);
        // A ← H A H with H = I − scale · v vᵀ, as a symmetric update of rank two.
        let row = |i: usize| (k + 1 + i) * n + k + 1;
        let mut w: Vec<f64> = (0..m)
            .map(|i| scale * dot(&a[row(i)..row(i) + m], &v))
            .collect();
        let half = 0.5 * scale * dot(&w, &v);
        w.iter_mut().zip(&v).for_each(|(w, v)| *w -= half * v);
        for i in 0..m {
            subtract(&mut a[row(i)..row(i) + m], v[i], &w, w[i], &v);
        }
    }
    (diagonal, beside)
}

/// Implicit QL with Wilkinson's shift: eigenvalues of a symmetric tridiagonal matrix, in `d`.
fn ql(d: &mut [f64], e: &mut [f64]) {
    /// Far more iterations than ever needed; after that the values are as accurate as they get.
    const ROUNDS: usize = 60;
    let n = d.len();
    for l in 0..n {
        for _ in 0..ROUNDS {
            let small = |m: usize| e[m].abs() <= f64::EPSILON * (d[m].abs() + d[m + 1].abs());
            let m = (l..n - 1).find(|m| small(*m)).unwrap_or(n - 1);
            if m == l {
                break;
            }
            let mut g = (d[l + 1] - d[l]) / (2.0 * e[l]);
            let mut r = g.hypot(1.0);
            g = d[m] - d[l] + e[l] / (g + r.copysign(g));
            let (mut s, mut c, mut p) = (1.0, 1.0, 0.0);
            let mut split = false;
            for i in (l..m).rev() {
                let (f, b) = (s * e[i], c * e[i]);
                r = f.hypot(g);
                e[i + 1] = r;
                if r == 0.0 {
                    d[i + 1] -= p;
                    e[m] = 0.0;
                    split = true;
                    break;
                }
                (s, c) = (f / r, g / r);
                g = d[i + 1] - p;
                r = (d[i] - g) * s + 2.0 * c * b;
                p = s * r;
                d[i + 1] = g + p;
                g = c * r - b;
            }
            if !split {
                d[l] -= p;
                e[l] = g;
                e[m] = 0.0;
            }
        }
    }
}

/// The largest singular value of `w` (rows, cols) after `iterations` of power iteration from `v` (cols), which is kept for
/// the next call. A start of zeros, or orthogonal to all rows, gives 0.
pub fn spectral_norm(w: &[f32], rows: usize, cols: usize, v: &mut [f32], iterations: usize) -> f64 {
    assert_eq!(w.len(), rows * cols, "a matrix of these sizes");
    assert_eq!(v.len(), cols, "a vector as long as a row");
    let mut sigma = 0.0;
    for _ in 0..iterations {
        let mut back = vec![0.0f32; cols];
        let mut squares = 0.0;
        for row in w.chunks_exact(cols.max(1)) {
            let u = dot32(row, v);
            squares += f64::from(u) * f64::from(u);
            add_scaled(&mut back, u, row);
        }
        // With |v| = 1, |Wᵀ u| / |u| for u = W v.
        let length = f64::from(dot32(&back, &back)).sqrt();
        if squares == 0.0 || length == 0.0 {
            return 0.0;
        }
        sigma = length / squares.sqrt();
        let scale = (1.0 / length) as f32;
        v.iter_mut().zip(&back).for_each(|(v, x)| *v = x * scale);
    }
    sigma
}

multiversion! {
    fn dot(a: &[f64], b: &[f64]) -> f64 {
        let mut lanes = [0.0_f64; 8];
        let (a8, a_rest) = a.as_chunks::<8>();
        let (b8, b_rest) = b.as_chunks::<8>();
        for (a, b) in a8.iter().zip(b8) {
            for (lane, (a, b)) in lanes.iter_mut().zip(a.iter().zip(b)) {
                *lane += a * b;
            }
        }
        let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
        lanes.iter().sum::<f64>() + rest
    }
}

multiversion! {
    fn subtract(row: &mut [f64], a: f64, x: &[f64], b: f64, y: &[f64]) {
        for (row, (x, y)) in row.iter_mut().zip(x.iter().zip(y)) {
            *row -= a * x + b * y;
        }
    }
}

multiversion! {
    fn dot32(a: &[f32], b: &[f32]) -> f32 {
        let mut lanes = [0.0_f32; 16];
        let (a16, a_rest) = a.as_chunks::<16>();
        let (b16, b_rest) = b.as_chunks::<16>();
        for (a, b) in a16.iter().zip(b16) {
            for (lane, (a, b)) in lanes.iter_mut().zip(a.iter().zip(b)) {
                *lane += a * b;
            }
        }
        let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
        lanes.iter().sum::<f32>() + rest
    }
}

multiversion! {
    fn add_scaled(sum: &mut [f32], by: f32, x: &[f32]) {
        for (sum, x) in sum.iter_mut().zip(x) {
            *sum += by * x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Approximately normal pseudo-random numbers: sums of twelve uniform ones.
    fn gaussian(n: usize) -> Vec<f32> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut uniform = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 24) as f32
        };
        (0..n)
            .map(|_| (0..12).map(|_| uniform()).sum::<f32>() - 6.0)
            .collect()
    }

    #[test]
    fn a_diagonal_matrix_has_its_squared_entries_as_eigenvalues() {
        let w = [3.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 1.0];
        assert_eq!(eigenvalues(&w, 3, 3), [1.0, 4.0, 9.0]);
        let wide = [3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0];
        for (rows, cols) in [(2, 4), (4, 2)] {
            // (4, 2) reads the same numbers as another matrix with the same sum of squares.
            let sum: f64 = eigenvalues(&wide, rows, cols).iter().sum();
            assert!((sum - 13.0).abs() < 1e-12);
        }
        assert_eq!(eigenvalues(&wide, 2, 4), [4.0, 9.0]);
        assert_eq!(eigenvalues(&[0.0, 1.0, 0.0, 0.0], 2, 2), [0.0, 1.0]);
    }

    #[test]
    fn trace_square_sum_and_both_sides_of_a_random_matrix_agree() {
        let (rows, cols) = (70, 300);
        let w = gaussian(rows * cols);
        let values = eigenvalues(&w, rows, cols);
        let squares: f64 = w.iter().map(|x| f64::from(*x).powi(2)).sum();
        assert!((values.iter().sum::<f64>() / squares - 1.0).abs() < 1e-12);
        let mut turned = vec![0.0; w.len()];
        for (i, x) in w.iter().enumerate() {
            turned[i % cols * rows + i / cols] = *x;
        }
        for (a, b) in values.iter().zip(eigenvalues(&turned, cols, rows)) {
            assert!((a - b).abs() < 1e-9 * squares, "{a} {b}");
        }
        // Marchenko and Pastur: the edges are (√cols ± √rows)².
        let edge = |sign: f64| (300f64.sqrt() + sign * 70f64.sqrt()).powi(2);
        assert!((values[0] / edge(-1.0) - 1.0).abs() < 0.15, "{}", values[0]);
        assert!(
            (values[69] / edge(1.0) - 1.0).abs() < 0.15,
            "{}",
            values[69]
        );
    }

    #[test]
    fn power_iteration_converges_to_three_as_computed_by_hand() {
        let w = [3.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 1.0];
        let mut v = [1.0 / 3f32.sqrt(); 3];
        for known in [2.645751, 2.930342, 2.985739, 2.997154, 2.999436, 2.999889] {
            let sigma = spectral_norm(&w, 3, 3, &mut v, 1);
            assert!((sigma - known).abs() < 2e-6, "{sigma} {known}");
        }
        let mut v = [0.6, 0.8];
        assert_eq!(spectral_norm(&[0.0, 1.0, 0.0, 0.0], 2, 2, &mut v, 5), 1.0);
        assert_eq!(spectral_norm(&[0.0; 4], 2, 2, &mut v, 5), 0.0);
    }

    #[test]
    fn power_iteration_and_the_whole_spectrum_agree_on_a_random_matrix() {
        let w: Vec<f32> = gaussian(512 * 512).iter().map(|x| 0.02 * x).collect();
        let mut v = gaussian(512);
        let sigma = spectral_norm(&w, 512, 512, &mut v, 60);
        let largest = eigenvalues(&w, 512, 512)[511].sqrt();
        assert!((sigma / largest - 1.0).abs() < 0.005, "{sigma} {largest}");
        assert!((largest - 0.905).abs() < 0.02, "{largest}");
    }
}
