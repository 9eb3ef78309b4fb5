//! Register matmuls against plain sums.

use super::*;

unsafe fn product<V: Vector>(out: &mut [f32], a: &[f32], b: &[f32], lines: usize, k: usize) {
    for add in [false, true] {
        let to = To {
            start: out.as_mut_ptr(),
            row_stride: lines * LINE,
            add,
        };
        let left = Left {
            start: a.as_ptr(),
            row_stride: k,
            col_stride: 1,
        };
        let right = Right {
            start: b.as_ptr(),
            row_stride: lines * LINE,
        };
        // SAFETY: the slices hold 8 × k, k × lines · 16 and 8 × lines · 16 elements.
        unsafe { rows8::<V>(to, left, right, lines, k) }
    }
}

widest! { fn widest_product(pairs, out: &mut [f32], a: &[f32], b: &[f32], lines: usize, k: usize) = product }

#[test]
fn products_overwrite_or_accumulate_at_every_width() {
    for (lines, k) in [(1, 1), (2, 7), (3, 20)] {
        let a: Vec<f32> = (0..8 * k).map(|i| (i as f32 * 0.3).sin()).collect();
        let width = lines * LINE;
        let b: Vec<f32> = (0..k * width).map(|i| (i as f32 * 0.7).cos()).collect();
        let mut wide = vec![9.0; 8 * width];
        let mut portable = vec![9.0; 8 * width];
        // SAFETY: sizes as `product` requires.
        unsafe {
            widest_product(false, &mut wide, &a, &b, lines, k);
            product::<Portable>(&mut portable, &a, &b, lines, k);
        }
        for i in 0..8 * width {
            let exact: f32 = (0..k)
                .map(|p| a[i / width * k + p] * b[p * width + i % width])
                .sum();
            assert!((wide[i] - 2.0 * exact).abs() < 1e-5, "{i}");
            assert!((portable[i] - 2.0 * exact).abs() < 1e-5, "{i}");
        }
    }
}

/// Small integers as words, whose sums are all exact.
fn words<V: Vector>(n: usize, seed: usize) -> Aligned {
    let number = |i: usize| (i * i + 7 * i + seed) as f32 % 9.0 - 4.0;
    let mut words = Aligned::zeros(n);
    for (i, word) in words.iter_mut().enumerate() {
        *word = match V::NUMBERS {
            2 => {
                let (low, high) = (number(2 * i), number(2 * i + 1));
                f32::from_bits(low.to_bits() >> 16 | high.to_bits() & 0xffff_0000)
            }
            _ => number(i),
        };
    }
    words
}

unsafe fn group_is_eight_by_eight<V: Vector>(lines: usize, k: usize, turned: bool, add: bool) {
    let group = Group::of::<V>();
    // Neighbours of the transposed rows are read in whole registers.
    let stride = if turned { 32 } else { k };
    let a = words::<V>(stride.max(16) * k.max(16), 1);
    let b = words::<V>(k * lines * LINE, 2);
    let left = Left {
        start: a.as_ptr(),
        row_stride: if turned { 1 } else { stride },
        col_stride: if turned { stride } else { 1 },
    };
    let right = Right {
        start: b.as_ptr(),
        row_stride: lines * LINE,
    };
    let filled = || {
        let mut out = Aligned::zeros(group.rows * lines * LINE);
        out.fill(3.0);
        out
    };
    let (mut together, mut by_eight) = (filled(), filled());
    let to = |out: &mut Aligned, row: usize| To {
        start: out[row * lines * LINE..].as_mut_ptr(),
        row_stride: lines * LINE,
        add,
    };
    // SAFETY: the buffers hold all rows, words and columns; the machine has V's instructions.
    unsafe {
        begin::<V>();
        group.product::<V>(to(&mut together, 0), left, right, lines, k);
        end::<V>();
        for row in (0..group.rows).step_by(ROWS) {
            rows8::<V>(to(&mut by_eight, row), left.below(row), right, lines, k);
        }
    }
    assert!(
        together[..] == by_eight[..],
        "{lines} lines, {k} words, turned: {turned}, add: {add}"
    );
}

widest! { fn widest_group(pairs, lines: usize, k: usize, turned: bool, add: bool) = group_is_eight_by_eight }

/// In tile registers if the machine has them, with and without whole registers of words.
#[test]
fn rows_computed_together_equal_those_computed_by_eight() {
    for k in [0, 4, 15, 16, 20, 32, 48, 64, 84] {
        for lines in 1..=6 {
            for (turned, add) in [(false, false), (false, true), (true, false), (true, true)] {
                // SAFETY: sizes as the function requires.
                unsafe { widest_group(true, lines, k, turned, add) }
            }
        }
    }
}

unsafe fn exponentials<V: Vector>(x: &mut [f32]) {
    for x in x.chunks_exact_mut(V::LANES) {
        // SAFETY: the slice holds LANES elements.
        unsafe { V::load(x.as_ptr()).exp().store(x.as_mut_ptr()) }
    }
}

widest! { fn widest_exponentials(pairs, x: &mut [f32]) = exponentials }

#[test]
fn exponentials_are_within_two_ulp_at_every_width() {
    let x: Vec<f32> = (0..175_008).map(|i| i as f32 * 1e-3 - 87.0).collect();
    let (mut wide, mut portable) = (x.clone(), x.clone());
    // SAFETY: the length is a multiple of all lanes.
    unsafe {
        widest_exponentials(false, &mut wide);
        exponentials::<Portable>(&mut portable);
    }
    for ((x, wide), portable) in x.iter().zip(wide).zip(portable) {
        let exact = f64::from(*x).exp();
        for value in [wide, portable] {
            assert!((f64::from(value) / exact - 1.0).abs() < 2.5e-7, "{x}");
        }
    }
    let mut ends = [f32::NAN, f32::NEG_INFINITY, 200.0, 0.0].repeat(4);
    // SAFETY: sixteen elements.
    unsafe { widest_exponentials(false, &mut ends) };
    assert!(ends[0].is_nan() && ends[1] == 0.0 && ends[2] > 1e38 && ends[3] == 1.0);
}

/// Runs `flush_subnormal` over the slice, and `zero_below` −1 of each number on the number itself.
unsafe fn flushed<V: Vector>(x: &mut [f32], kept: &mut [f32]) {
    for (x, kept) in x
        .chunks_exact_mut(V::LANES)
        .zip(kept.chunks_exact_mut(V::LANES))
    {
        // SAFETY: both hold LANES elements.
        unsafe {
            let of = V::load(x.as_ptr());
            of.zero_below(of, -1.0).store(kept.as_mut_ptr());
            of.flush_subnormal().store(x.as_mut_ptr());
        }
    }
}

widest! { fn widest_flushed(pairs, x: &mut [f32], kept: &mut [f32]) = flushed }

#[test]
fn only_subnormal_numbers_become_0_at_every_width() {
    let least = f32::MIN_POSITIVE;
    let unchanged = [
        least,
        1.0,
        0.0,
        f32::INFINITY,
        f32::MAX,
        f32::NAN,
        1.5e-38,
        2.0,
    ];
    let subnormal = [least.next_down(), f32::from_bits(1), 1e-40, 1e-39];
    let unchanged = unchanged.into_iter().map(|x| (x, x));
    let pairs = unchanged.chain(subnormal.map(|x| (x, 0.0)));
    let pairs: Vec<(f32, f32)> = pairs.flat_map(|(x, y)| [(x, y), (-x, -y)]).collect();
    let pairs = pairs.repeat(2);
    assert_eq!(pairs.len() % LINE, 0);
    let x: Vec<f32> = pairs.iter().map(|pair| pair.0).collect();
    let mut ways = [(x.clone(), x.clone()), (x.clone(), x.clone())];
    let [(wide, wide_kept), (portable, portable_kept)] = &mut ways;
    // SAFETY: the lengths are whole lines.
    unsafe {
        widest_flushed(false, wide, wide_kept);
        flushed::<Portable>(portable, portable_kept);
    }
    for (found, kept) in ways {
        for (i, (x, y)) in pairs.iter().enumerate() {
            assert_eq!(found[i].to_bits(), y.to_bits(), "{x:e}");
            let y = if *x < -1.0 { 0.0_f32 } else { *x };
            assert_eq!(kept[i].to_bits(), y.to_bits(), "{x:e}");
        }
    }
}

#[test]
fn lanes_within_a_range_are_kept() {
    let ones = [1.0_f32; 8];
    for (first, last) in [(0, 8), (3, 5), (0, 0), (7, 20), (9, 12)] {
        let mut kept = [0.0_f32; 8];
        // SAFETY: eight elements each.
        unsafe {
            let nothing = Portable::zero();
            let all = Portable::load(ones.as_ptr());
            all.keep(first, last, nothing).store(kept.as_mut_ptr());
        }
        for (i, x) in kept.iter().enumerate() {
            assert_eq!(*x == 1.0, i >= first && i < last);
        }
    }
}

#[test]
fn buffers_are_aligned_and_keep_their_memory() {
    let mut buffer = Buffer::default();
    let first = buffer.get(100).as_ptr();
    assert_eq!(first as usize % 64, 0);
    assert!(buffer.get(70).len() >= 70);
    assert_eq!(buffer.get(100).as_ptr(), first);
}

unsafe fn four_totals<V: Vector>(rows: &[f32], totals: &mut [f32]) {
    // SAFETY: rows of 16 words, a whole number of registers.
    unsafe {
        let four = std::array::from_fn(|i| {
            let mut row = Lanes::<V>::all(0.0);
            for at in (0..LINE).step_by(V::LANES) {
                *row.at(at) = V::load(rows.as_ptr().add(i * LINE + at));
            }
            row
        });
        totals[..4].copy_from_slice(&Lanes::totals(four));
        totals[4..].copy_from_slice(&four.map(|row| row.total()));
    }
}

widest! { fn widest_totals(pairs, rows: &[f32], totals: &mut [f32]) = four_totals }

/// On a machine with AVX-512 the widest registers are others.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2_totals(rows: &[f32], totals: &mut [f32]) {
    // SAFETY: four rows, and room for four totals twice; the instructions are there.
    unsafe { four_totals::<Ymm>(rows, totals) }
}

#[test]
fn four_totals_at_once_have_the_bits_of_each_at_every_width() {
    let rows: Vec<f32> = (0..4 * LINE)
        .map(|i| (i as f32 * 0.7).sin() / 3.0)
        .collect();
    let (mut wide, mut portable) = ([0.0; 8], [0.0; 8]);
    // SAFETY: four rows, and room for four totals twice.
    unsafe {
        widest_totals(false, &rows, &mut wide);
        four_totals::<Portable>(&rows, &mut portable);
    }
    assert_eq!(wide[..4], wide[4..]);
    assert_eq!(wide, portable);
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        let mut avx2 = [0.0; 8];
        // SAFETY: the processor has the instructions.
        unsafe { avx2_totals(&rows, &mut avx2) };
        assert_eq!(avx2, portable);
    }
}
