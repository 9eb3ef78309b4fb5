//! Accelerators by name: dense bf16 peak with f32 accumulation, memory, bandwidth, and a rough price. Data sheets, not
//! measurements: a real matrix product reaches 50 to 87 % of the peak.

/// One accelerator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gpu {
    pub name: &'static str,
    /// Dense bf16 with f32 accumulation, TFLOP/s. Vendors' figures with sparsity are twice this.
    pub bf16_tflops: f64,
    /// 10⁹ bytes.
    pub memory_gb: f64,
    /// Memory bandwidth, GB/s.
    pub bandwidth_gbs: f64,
    /// US dollars for an hour of one, on demand: a rough figure, as prices of this kind change monthly.
    pub price_per_hour: f64,
}

const fn gpu(name: &'static str, numbers: [f64; 4]) -> Gpu {
    let [bf16_tflops, memory_gb, bandwidth_gbs, price_per_hour] = numbers;
    Gpu {
        name,
        bf16_tflops,
        memory_gb,
        bandwidth_gbs,
        price_per_hour,
    }
}

/// Every accelerator that a plan can name.
#[rustfmt::skip]
pub const GPUS: &[Gpu] = &[
    gpu("A100-40", [312.0, 40.0, 1555.0, 1.30]),
    gpu("A100-80-PCIe", [312.0, 80.0, 1935.0, 1.60]),
    gpu("A100-80", [312.0, 80.0, 2039.0, 1.80]),
    gpu("H100-PCIe", [756.0, 80.0, 2000.0, 2.40]),
    gpu("H100", [989.0, 80.0, 3350.0, 3.00]),
    gpu("H200", [989.0, 141.0, 4800.0, 3.80]),
    gpu("B200", [2250.0, 180.0, 8000.0, 5.50]),
    gpu("MI300X", [1307.0, 192.0, 5300.0, 3.00]),
    gpu("L40S", [362.0, 48.0, 864.0, 1.00]),
    gpu("L4", [121.0, 24.0, 300.0, 0.60]),
    gpu("A10", [125.0, 24.0, 600.0, 0.75]),
    gpu("RTX-3090", [71.0, 24.0, 936.0, 0.25]),
    gpu("RTX-4090", [165.0, 24.0, 1008.0, 0.45]),
    gpu("RTX-5090", [209.5, 32.0, 1792.0, 0.70]),
];

/// Other ways to write a name.
const ALIASES: &[(&str, &str)] = &[
    ("a100", "A100-80"),
    ("a100sxm", "A100-80"),
    ("a10080gb", "A100-80"),
    ("a10040gb", "A100-40"),
    ("a10080pcie", "A100-80-PCIe"),
    ("h100sxm", "H100"),
    ("h10080gb", "H100"),
    ("h200sxm", "H200"),
    ("a10g", "A10"),
    ("3090", "RTX-3090"),
    ("4090", "RTX-4090"),
    ("5090", "RTX-5090"),
];

/// A GPU by its name, as people write it: `h100`, `RTX 4090`, `nvidia h100 80gb hbm3`.
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

/// The name most like `word`, for an error.
pub fn nearest(word: &str) -> Vec<&'static str> {
    let plain = plain(word);
    let mut near: Vec<(usize, &str)> = GPUS
        .iter()
        .map(|gpu| {
            (
                strsim::osa_distance(&plain, &self::plain(gpu.name)),
                gpu.name,
            )
        })
        .collect();
    near.sort();
    near.into_iter().take(3).map(|(_, name)| name).collect()
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
        assert!(nearest("h101").contains(&"H100"));
    }

    #[test]
    fn every_row_is_filled_and_names_are_unique() {
        let mut names: Vec<String> = GPUS.iter().map(|g| plain(g.name)).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), GPUS.len());
        for gpu in GPUS {
            let numbers = [
                gpu.bf16_tflops,
                gpu.memory_gb,
                gpu.bandwidth_gbs,
                gpu.price_per_hour,
            ];
            assert!(numbers.iter().all(|x| *x > 0.0), "{}", gpu.name);
        }
        for (_, name) in ALIASES {
            assert!(GPUS.iter().any(|g| g.name == *name), "{name}");
        }
    }
}
