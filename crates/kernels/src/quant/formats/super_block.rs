//! Shared by Q4_K and Q5_K: eight blocks of 32 values, each with a scale and a minimum of six bits, in twelve bytes.

use crate::quant::half::put_f16;

/// Blocks per super-block, and values per block.
pub const BLOCKS: usize = 8;
pub const BLOCK: usize = 32;
/// Bytes of all scales and minima.
pub const SCALES: usize = 12;

/// Scale and minimum of block `b`. The first four blocks have theirs in the low six bits of a byte each; of the last four,
/// the low four bits lie in the last bytes and the high two in the high bits of the first eight.
pub fn scale_and_minimum(bytes: &[u8], b: usize) -> (u8, u8) {
    if b < 4 {
        return (bytes[b] & 63, bytes[b + 4] & 63);
    }
    let low = bytes[b + 4];
    (
        low & 15 | bytes[b - 4] >> 6 << 4,
        low >> 4 | bytes[b] >> 6 << 4,
    )
}

pub(super) fn put(bytes: &mut [u8], b: usize, (scale, minimum): (u8, u8)) {
    if b < 4 {
        bytes[b] |= scale;
        bytes[b + 4] |= minimum;
    } else {
        bytes[b + 4] |= scale & 15 | (minimum & 15) << 4;
        bytes[b - 4] |= scale >> 4 << 6;
        bytes[b] |= minimum >> 4 << 6;
    }
}

/// x = d s q − e m.
pub fn decode(scales: &[u8], [d, e]: [f32; 2], codes: &[u8], values: &mut [f32]) {
    let blocks = values
        .chunks_exact_mut(BLOCK)
        .zip(codes.chunks_exact(BLOCK));
    for (b, (values, codes)) in blocks.enumerate() {
        let (scale, minimum) = scale_and_minimum(scales, b);
        let (scale, minimum) = (d * f32::from(scale), e * f32::from(minimum));
        for (x, &q) in values.iter_mut().zip(codes) {
            *x = scale * f32::from(q) - minimum;
        }
    }
}

/// Writes d, e and the packed scales into `head`, and the codes 0..=`most`.
pub fn encode(values: &[f32], most: u8, head: &mut [u8], codes: &mut [u8]) {
    let mut fits = [Fit::default(); BLOCKS];
    for (fit, values) in fits.iter_mut().zip(values.chunks_exact(BLOCK)) {
        *fit = fit_block(values, f32::from(most));
    }
    let top = |of: fn(&Fit) -> f32| fits.iter().map(of).fold(0.0, f32::max);
    head.fill(0);
    let d = put_f16(head, 0, top(|f| f.scale) / 63.0);
    let e = put_f16(head, 2, top(|f| f.minimum) / 63.0);
    let six_bits = |x: f32, step: f32| match step > 0.0 {
        true => (x / step).round_ties_even().clamp(0.0, 63.0) as u8,
        false => 0,
    };
    for (b, fit) in fits.iter().enumerate() {
        let (scale, minimum) = (six_bits(fit.scale, d), six_bits(fit.minimum, e));
        put(&mut head[4..], b, (scale, minimum));
        let (scale, minimum) = (d * f32::from(scale), e * f32::from(minimum));
        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        let range = b * BLOCK..(b + 1) * BLOCK;
        for (q, x) in codes[range.clone()].iter_mut().zip(&values[range]) {
            let code = ((x + minimum) * inverse).round_ties_even();
            *q = code.clamp(0.0, f32::from(most)) as u8;
        }
    }
}

/// x ≈ scale · q − minimum, both not negative.
#[derive(Debug, Clone, Copy, Default)]
struct Fit {
    scale: f32,
    minimum: f32,
}

/// Scales tried around the naive one, which spans the minimum to the maximum.
const TRIES: i32 = 20;

/// The pair with the least squared error, large values weighted more: for each trial scale the codes are rounded and the
/// optimal scale and minimum for these codes solved for.
fn fit_block(values: &[f32], most: f32) -> Fit {
    let (least, greatest) = super::extent(values);
    let least = least.min(0.0);
    if greatest <= least {
        return Fit {
            scale: 0.0,
            minimum: -least,
        };
    }
    let mean_square = values.iter().map(|x| x * x).sum::<f32>() / values.len() as f32;
    let base = mean_square.sqrt();
    let plain = Fit {
        scale: (greatest - least) / most,
        minimum: -least,
    };
    let mut best = (error(values, plain, most, base), plain);
    for i in 0..=TRIES {
        let reach = most - 1.0 + 0.1 * i as f32;
        let tried = Fit {
            scale: (greatest - least) / reach,
            minimum: -least,
        };
        let Some(solved) = solve(values, tried, most, base) else {
            continue;
        };
        let e = error(values, solved, most, base);
        if e < best.0 {
            best = (e, solved);
        }
    }
    best.1
}

fn code(x: f32, fit: Fit, most: f32) -> f32 {
    ((x + fit.minimum) / fit.scale)
        .round_ties_even()
        .clamp(0.0, most)
}

fn error(values: &[f32], fit: Fit, most: f32, base: f32) -> f32 {
    let one = |&x: &f32| {
        let off = fit.scale * code(x, fit, most) - fit.minimum - x;
        (base + x.abs()) * off * off
    };
    values.iter().map(one).sum()
}

/// Weighted least squares of x on the codes that `fit` gives; `None` if they are all equal or the minimum would change
/// its sign.
fn solve(values: &[f32], fit: Fit, most: f32, base: f32) -> Option<Fit> {
    let (mut w, mut wq, mut wqq, mut wx, mut wqx) = (0.0_f64, 0.0, 0.0, 0.0, 0.0);
    for &x in values {
        let weight = f64::from(base + x.abs());
        let q = f64::from(code(x, fit, most));
        let x = f64::from(x);
        w += weight;
        wq += weight * q;
        wqq += weight * q * q;
        wx += weight * x;
        wqx += weight * q * x;
    }
    let det = w * wqq - wq * wq;
    if det <= 0.0 {
        return None;
    }
    let mut scale = (w * wqx - wx * wq) / det;
    let mut minimum = (wq * wqx - wqq * wx) / det;
    if minimum < 0.0 {
        minimum = 0.0;
        scale = wqx / wqq;
    }
    (scale > 0.0).then_some(Fit {
        scale: scale as f32,
        minimum: minimum as f32,
    })
}
