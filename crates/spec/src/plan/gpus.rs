//! Accelerators by name: dense bf16 peak with f32 accumulation and bandwidth from data sheets (a real matmul reaches 50 to
//! 87 % of the peak), memory as their drivers report it; and a rough price with its source and date, where there is one.

use crate::base::near;

/// Approximate rental price per hour.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// US dollars, lowest and highest offer.
    pub low: f64,
    pub high: f64,
    pub source: &'static str,
}

impl Price {
    /// The midpoint of the range, to five cents.
    pub fn dollars(self) -> f64 {
        ((self.low + self.high) * 10.0).round() / 20.0
    }

    /// `rough: $2.50 to $3.50 in price lists of May 2026`
    pub fn words(self) -> String {
        format!(
            "rough: ${:.2} to ${:.2} in {}",
            self.low, self.high, self.source
        )
    }
}

/// Specialized clouds, on demand; <https://www.mercatus-ai.com/blog/cloud-gpu-pricing>.
const SPECIALISED: &str = "price lists of specialized clouds, May 2026";
/// Interruptible to on demand; <https://deploybase.ai/articles/runpod-gpu-pricing>.
const RUNPOD: &str = "RunPod's list, March 2026";

const fn price(low: f64, high: f64, source: &'static str) -> Option<Price> {
    Some(Price { low, high, source })
}

/// One accelerator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gpu {
    pub name: &'static str,
    /// Dense bf16 with f32 accumulation, TFLOP/s. Vendors' figures with sparsity are twice this.
    pub bf16_tflops: f64,
    /// f32, TFLOP/s, without TF32: PyTorch's default for matmuls, which ranks keep.
    pub f32_tflops: f64,
    /// What `nvidia-smi` or `rocm-smi` calls the total, MiB: an H100 "with 80 GB" has 79.6 GiB, a L4 "with 24 GB" 22.5.
    pub memory_mib: u32,
    /// Memory bandwidth, GB/s.
    pub bandwidth_gbs: f64,
    /// `None` if no dated price list was found: the user sets it.
    pub price: Option<Price>,
}

impl Gpu {
    /// Bytes.
    pub fn memory(&self) -> u64 {
        u64::from(self.memory_mib) << 20
    }
}

/// `speeds`: TFLOP/s in bf16 and in f32, GB/s.
const fn gpu(name: &'static str, memory_mib: u32, speeds: [f64; 3], price: Option<Price>) -> Gpu {
    let [bf16_tflops, f32_tflops, bandwidth_gbs] = speeds;
    Gpu {
        name,
        bf16_tflops,
        f32_tflops,
        memory_mib,
        bandwidth_gbs,
        price,
    }
}

/// Every accelerator a plan can name.
#[rustfmt::skip]
pub const GPUS: &[Gpu] = &[
    gpu("A100-40", 40_960, [312.0, 19.5, 1555.0], None),
    gpu("A100-80-PCIe", 81_920, [312.0, 19.5, 1935.0], price(1.19, 2.10, RUNPOD)),
    gpu("A100-80", 81_920, [312.0, 19.5, 2039.0], price(1.10, 1.50, SPECIALISED)),
    gpu("H100-PCIe", 81_559, [756.0, 51.0, 2000.0], price(1.99, 3.51, RUNPOD)),
    gpu("H100", 81_559, [989.0, 67.0, 3350.0], price(2.50, 3.50, SPECIALISED)),
    gpu("H100-NVL", 95_830, [835.0, 60.0, 3900.0], None),
    gpu("H200", 143_771, [989.0, 67.0, 4800.0], price(3.50, 4.50, SPECIALISED)),
    gpu("B200", 183_359, [2250.0, 75.0, 8000.0], price(5.98, 10.57, RUNPOD)),
    gpu("MI300X", 196_592, [1307.0, 163.4, 5300.0], None),
    gpu("L40S", 46_068, [362.0, 91.6, 864.0], price(0.79, 1.40, RUNPOD)),
    gpu("L4", 23_034, [121.0, 30.3, 300.0], price(0.44, 0.78, RUNPOD)),
    gpu("A10", 23_028, [125.0, 31.2, 600.0], None),
    gpu("RTX-3090", 24_576, [71.0, 35.6, 936.0], price(0.22, 0.39, RUNPOD)),
    gpu("RTX-4090", 24_564, [165.0, 82.6, 1008.0], price(0.34, 0.60, RUNPOD)),
    gpu("RTX-5090", 32_607, [209.5, 104.8, 1792.0], price(0.69, 1.22, RUNPOD)),
];

/// Alternative spellings.
const ALIASES: &[(&str, &str)] = &[
    ("a100", "A100-80"),
    ("a100sxm", "A100-80"),
    ("a10080gb", "A100-80"),
    ("a10040gb", "A100-40"),
    ("a10080pcie", "A100-80-PCIe"),
    // As NVML names them: `NVIDIA A100-SXM4-80GB`, `NVIDIA A100 80GB PCIe`, `NVIDIA A100-PCIE-40GB`.
    ("a100sxm480gb", "A100-80"),
    ("a100sxm440gb", "A100-40"),
    ("a100sxm80gb", "A100-80"),
    ("a100sxm40gb", "A100-40"),
    ("a10080gbpcie", "A100-80-PCIe"),
    ("a100pcie80gb", "A100-80-PCIe"),
    ("a100pcie40gb", "A100-40"),
    ("a100pcie", "A100-80-PCIe"),
    ("h100sxm5", "H100"),
    ("h100sxm580gb", "H100"),
    ("h100pcie80gb", "H100-PCIe"),
    ("h100nvl", "H100-NVL"),
    ("h200141gb", "H200"),
    ("h100sxm", "H100"),
    ("h10080gb", "H100"),
    ("h200sxm", "H200"),
    ("a10g", "A10"),
    ("3090", "RTX-3090"),
    ("4090", "RTX-4090"),
    ("5090", "RTX-5090"),
];

/// A GPU by its name as typed: `h100`, `RTX 4090`, `nvidia h100 80gb hbm3`.
pub fn find(name: &str) -> Option<&'static Gpu> {
    let plain = plain(name);
    let by = |wanted: &str| GPUS.iter().find(|gpu| self::plain(gpu.name) == wanted);
    let alias = ALIASES.iter().find(|(alias, _)| *alias == plain);
    by(&plain).or_else(|| by(&self::plain(alias?.1)))
}

fn plain(name: &str) -> String {
    let words = [
        "nvidia", "geforce", "tesla", "amd", "instinct", "hbm2e", "hbm3e", "hbm3",
    ];
    let mut plain: String = name
        .to_lowercase()
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect();
    for word in words {
        plain = plain.replace(word, "");
    }
    plain
}

/// The name that was probably meant.
pub fn nearest(word: &str) -> Option<&'static str> {
    let word = plain(word);
    let names: Vec<String> = GPUS.iter().map(|gpu| plain(gpu.name)).collect();
    let near = near::nearest(&word, names.iter().map(String::as_str))?;
    let at = names.iter().position(|name| name == near)?;
    Some(GPUS[at].name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_as_people_write_them() {
        for (said, meant) in [
            ("h100", "H100"),
            ("NVIDIA H100 80GB HBM3", "H100"),
            ("RTX 4090", "RTX-4090"),
            ("a100", "A100-80"),
            ("NVIDIA GeForce RTX 3090", "RTX-3090"),
            ("MI300x", "MI300X"),
        ] {
            assert_eq!(find(said).map(|g| g.name), Some(meant), "{said}");
        }
        assert!(find("h101").is_none());
        assert_eq!(nearest("h101"), Some("H100"));
        assert_eq!(nearest("RTX 4091"), Some("RTX-4090"));
        assert_eq!(nearest("FOO"), None);
    }

    /// Names as the drivers give them.
    #[test]
    fn names_of_nvml_are_found() {
        for (said, meant) in [
            ("NVIDIA A100-SXM4-80GB", "A100-80"),
            ("NVIDIA A100-SXM4-40GB", "A100-40"),
            ("NVIDIA A100-PCIE-40GB", "A100-40"),
            ("NVIDIA A100 80GB PCIe", "A100-80-PCIe"),
            ("A100-SXM4-40GB", "A100-40"),
            ("NVIDIA H100 PCIe", "H100-PCIe"),
            ("NVIDIA H100 NVL", "H100-NVL"),
            ("NVIDIA H100 80GB HBM3", "H100"),
            ("NVIDIA H200", "H200"),
            ("NVIDIA B200", "B200"),
            ("NVIDIA L4", "L4"),
            ("NVIDIA L40S", "L40S"),
            ("NVIDIA A10", "A10"),
            ("NVIDIA A10G", "A10"),
            ("NVIDIA GeForce RTX 4090", "RTX-4090"),
            ("NVIDIA GeForce RTX 5090", "RTX-5090"),
            ("AMD Instinct MI300X", "MI300X"),
        ] {
            assert_eq!(find(said).map(|g| g.name), Some(meant), "{said}");
        }
        // Others of the same family are not taken for one that is listed.
        for other in [
            "NVIDIA RTX A6000",
            "NVIDIA A100X",
            "Tesla V100-SXM2-16GB",
            "NVIDIA L40",
        ] {
            assert_eq!(find(other).map(|g| g.name), None, "{other}");
        }
    }

    #[test]
    fn a_price_has_a_range_a_source_and_a_date() {
        for price in GPUS.iter().filter_map(|gpu| gpu.price) {
            assert!(0.0 < price.low && price.low < price.high, "{price:?}");
            assert!((price.low..=price.high).contains(&price.dollars()));
            assert!(price.source.contains("202"), "{price:?}");
        }
        assert_eq!(find("h100").unwrap().price.unwrap().dollars(), 3.0);
    }

    #[test]
    fn every_row_is_filled_and_names_are_unique() {
        let mut names: Vec<String> = GPUS.iter().map(|g| plain(g.name)).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), GPUS.len());
        for gpu in GPUS {
            let numbers = [gpu.bf16_tflops, gpu.f32_tflops, gpu.bandwidth_gbs];
            assert!(numbers.iter().all(|x| *x > 0.0), "{}", gpu.name);
            assert!(gpu.memory() > 20 << 30, "{}", gpu.name);
        }
        for (_, name) in ALIASES {
            assert!(GPUS.iter().any(|g| g.name == *name), "{name}");
        }
    }
}
