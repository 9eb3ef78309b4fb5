//! `llmtui bench gemm`: matmuls by themselves, against the compute and memory peaks of the machine.

use super::machine::Peaks;
use super::sizes::Size;
use super::{Exit, check, pool, print};
use crate::base::clock::Clock;
use crate::base::stats::median;
use crate::cli::Context;
use crate::kernels::bandwidth::read_bandwidth;
use crate::kernels::matmul::{Accumulation, Compute, ComputeDtype, Mat, bf16_available, matmul};
use crate::kernels::simd::instructions;
use crate::kernels::threads;
use serde::Serialize;

/// Measure GFLOP/s of the matmuls of a training step
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Matmuls of one model size; all sizes by default
    #[arg(long, value_enum)]
    pub size: Option<Size>,
    /// Measure for about this long
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    pub seconds: f64,
    /// Compute threads; all cores by default
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Fraction of the time spent measuring the compute peaks and memory bandwidth.
const PEAK_SHARE: f64 = 0.1;
/// Fewest repetitions of a matmul, however long they take.
const MIN_REPEATS: usize = 3;
/// Input and output features of the layer used for one row: 64 MiB of weights.
const ONE_ROW: usize = 4096;

/// The measurements: the object printed by `--json`.
#[derive(Debug, Serialize)]
struct Report {
    threads: usize,
    /// The vector instructions in use, which `LLMTUI_SIMD` can limit.
    instructions: &'static str,
    /// GFLOP/s of the microkernels alone.
    peak_gflops: Peaks,
    /// Sustained read bandwidth.
    read_gb_per_sec: f64,
    /// Bandwidth of a one-row matmul with 64 MiB of weights.
    one_row_gb_per_sec: f64,
    layers: Vec<LayerReport>,
}

/// One linear layer.
#[derive(Debug, Serialize)]
struct LayerReport {
    size: Size,
    layer: &'static str,
    rows: usize,
    d_in: usize,
    d_out: usize,
    f32: Passes,
    /// If the processor supports bf16.
    bf16: Option<Passes>,
}

/// GFLOP/s of a layer's three matmuls, medians.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Passes {
    /// (rows, d_in) · (d_out, d_in)ᵀ
    forward: f64,
    /// (rows, d_out) · (d_out, d_in)
    backward_input: f64,
    /// (rows, d_out)ᵀ · (rows, d_in)
    backward_weight: f64,
}

pub fn run(args: Args, cx: &Context) -> anyhow::Result<Exit> {
    check(args.seconds, args.threads)?;
    let (pool, threads) = pool(args.threads)?;
    let report = pool.install(|| measure(&args, threads, &cx.clock));
    print(&report, args.json, print_table)
}

fn measure(args: &Args, threads: usize, clock: &dyn Clock) -> Report {
    let sizes = match &args.size {
        Some(size) => std::slice::from_ref(size),
        None => &[Size::S, Size::M, Size::L, Size::XL],
    };
    let layers: Vec<_> = sizes.iter().flat_map(|&size| layers(size)).collect();
    let arithmetics = 1 + usize::from(bf16_available());
    let each = args.seconds * (1.0 - 3.0 * PEAK_SHARE) / (3 * arithmetics * layers.len()) as f64;
    let one_row = Layer::new(Size::S, "one row", 1, ONE_ROW, ONE_ROW);
    Report {
        threads,
        instructions: instructions(),
        peak_gflops: Peaks::measure(args.seconds * PEAK_SHARE),
        read_gb_per_sec: read_bandwidth(args.seconds * PEAK_SHARE),
        // 2 FLOPs per weight of 4 bytes
        one_row_gb_per_sec: 2.0 * one_row.forward(ComputeDtype::F32, each, clock),
        layers: layers
            .iter()
            .map(|layer| layer.measure(each, clock))
            .collect(),
    }
}

/// Dimensions of one linear layer.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Layer {
    size: Size,
    name: &'static str,
    rows: usize,
    d_in: usize,
    d_out: usize,
}

/// The linear layers of a model, in forward order.
fn layers(size: Size) -> Vec<Layer> {
    let setup = size.setup();
    let shape = setup.model.shape(setup.vocab_size);
    let rows = setup.batch_size * shape.seq_len;
    let (d, q) = (shape.d_model, shape.n_head * shape.head_dim);
    let qkv = q + 2 * shape.n_kv_head * shape.head_dim;
    let wide = match setup.model.mlp.gated() {
        true => 2 * shape.d_ff,
        false => shape.d_ff,
    };
    vec![
        Layer::new(size, "query, key, value", rows, d, qkv),
        Layer::new(size, "attention out", rows, q, d),
        Layer::new(size, "mlp in", rows, d, wide),
        Layer::new(size, "mlp out", rows, shape.d_ff, d),
        Layer::new(size, "head", rows, d, shape.vocab_size),
    ]
}

impl Layer {
    fn new(size: Size, name: &'static str, rows: usize, d_in: usize, d_out: usize) -> Self {
        Layer {
            size,
            name,
            rows,
            d_in,
            d_out,
        }
    }

    fn measure(&self, seconds: f64, clock: &dyn Clock) -> LayerReport {
        let passes = |arithmetic| Passes {
            forward: self.forward(arithmetic, seconds, clock),
            backward_input: self.backward_input(arithmetic, seconds, clock),
            backward_weight: self.backward_weight(arithmetic, seconds, clock),
        };
        LayerReport {
            size: self.size,
            layer: self.name,
            rows: self.rows,
            d_in: self.d_in,
            d_out: self.d_out,
            f32: passes(ComputeDtype::F32),
            bf16: bf16_available().then(|| passes(ComputeDtype::Bf16)),
        }
    }

    fn forward(&self, arithmetic: ComputeDtype, seconds: f64, clock: &dyn Clock) -> f64 {
        let (x, w) = (
            values(self.rows * self.d_in),
            values(self.d_out * self.d_in),
        );
        let x = Mat::new(&x, self.rows, self.d_in);
        let w = Mat::new(&w, self.d_out, self.d_in).t();
        self.rate(self.d_out * self.rows, seconds, clock, |y| {
            matmul(
                y,
                x,
                w,
                1.0,
                Accumulation::Overwrite,
                Compute::pool(arithmetic),
            );
        })
    }

    fn backward_input(&self, arithmetic: ComputeDtype, seconds: f64, clock: &dyn Clock) -> f64 {
        let (dy, w) = (
            values(self.rows * self.d_out),
            values(self.d_out * self.d_in),
        );
        let dy = Mat::new(&dy, self.rows, self.d_out);
        let w = Mat::new(&w, self.d_out, self.d_in);
        self.rate(self.d_in * self.rows, seconds, clock, |dx| {
            matmul(
                dx,
                dy,
                w,
                1.0,
                Accumulation::Overwrite,
                Compute::pool(arithmetic),
            );
        })
    }

    fn backward_weight(&self, arithmetic: ComputeDtype, seconds: f64, clock: &dyn Clock) -> f64 {
        let (dy, x) = (
            values(self.rows * self.d_out),
            values(self.rows * self.d_in),
        );
        let dy = Mat::new(&dy, self.rows, self.d_out).t();
        let x = Mat::new(&x, self.rows, self.d_in);
        self.rate(self.d_in * self.d_out, seconds, clock, |dw| {
            matmul(dw, dy, x, 1.0, Accumulation::Add, Compute::pool(arithmetic));
        })
    }

    /// Median GFLOP/s of `matmul` into `out_len` elements, on a pool thread as in a training step.
    fn rate(
        &self,
        out_len: usize,
        seconds: f64,
        clock: &dyn Clock,
        matmul: impl Fn(&mut [f32]) + Send + Sync,
    ) -> f64 {
        let mut out = vec![0.0; out_len];
        threads::enter(|| {
            // The first one runs with cold caches and buffers.
            matmul(&mut out);
            let mut times = Vec::new();
            let begun = clock.elapsed();
            while times.len() < MIN_REPEATS || (clock.elapsed() - begun).as_secs_f64() < seconds {
                let before = clock.elapsed();
                matmul(&mut out);
                times.push((clock.elapsed() - before).as_secs_f64());
            }
            let time = median(&times).unwrap_or(f64::NAN);
            2.0 * (self.rows * self.d_in * self.d_out) as f64 / time / 1e9
        })
    }
}

/// Varied numbers of both signs.
fn values(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i % 23) as f32 * 0.1 - 1.1).collect()
}

fn print_table(report: &Report) -> std::io::Result<()> {
    let Peaks { f32, bf16 } = report.peak_gflops;
    outln!("threads            {}", report.threads)?;
    outln!("instructions       {}", report.instructions)?;
    outln!("peak, f32          {f32:.0} GFLOP/s")?;
    match bf16 {
        Some(bf16) => outln!("peak, bf16         {bf16:.0} GFLOP/s")?,
        None => outln!("peak, bf16         not supported by this processor")?,
    }
    outln!("memory             {:.1} GB/s read", report.read_gb_per_sec)?;
    outln!(
        "one row            {:.1} GB/s of 64 MiB of weights",
        report.one_row_gb_per_sec
    )?;
    outln!("\nGFLOP/s                                            forward         dx         dW")?;
    for layer in &report.layers {
        let name = format!(
            "{:?}  {}, {} × {} → {}",
            layer.size, layer.layer, layer.rows, layer.d_in, layer.d_out
        );
        print_passes(&name, "f32", &layer.f32)?;
        if let Some(passes) = &layer.bf16 {
            print_passes("", "bf16", passes)?;
        }
    }
    Ok(())
}

fn print_passes(name: &str, arithmetic: &str, passes: &Passes) -> std::io::Result<()> {
    outln!(
        "{name:<44} {arithmetic:>4} {:>9.0} {:>10.0} {:>10.0}",
        passes.forward,
        passes.backward_input,
        passes.backward_weight
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::SystemClock;

    #[test]
    fn the_layers_of_a_size_hold_its_weights() {
        let per_block = |size| {
            let layers = layers(size);
            let weights = |layer: &Layer| layer.d_in * layer.d_out;
            layers[..4].iter().map(weights).sum::<usize>()
        };
        // 4 d² of attention and 8 d² of the feed-forward
        assert_eq!(per_block(Size::M), 12 * 384 * 384);
        assert_eq!(per_block(Size::L), 512 * 1024 + 512 * 512 + 3 * 512 * 1408);
        assert_eq!(layers(Size::XL)[4].d_out, 50_257);
    }

    #[test]
    fn a_layer_is_measured_in_all_three_passes() {
        let layer = Layer::new(Size::S, "test", 5, 7, 3);
        let report = layer.measure(0.0, &SystemClock::new());
        let f32 = report.f32;
        for rate in [f32.forward, f32.backward_input, f32.backward_weight] {
            assert!(rate.is_finite() && rate > 0.0);
        }
        assert_eq!(report.bf16.is_some(), bf16_available());
    }
}
