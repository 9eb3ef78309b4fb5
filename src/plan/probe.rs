//! Matmul speed of this machine: the time estimate for a first run. The measuring function is passed in, because kernels
//! may not be imported here; the result is cached while the processor and its core
//! count stay the same.

use crate::base::files::write_atomic;
use crate::base::paths::Env;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Returns the FLOP/s of matmuls in `f32` or `bf16`; `None` if the machine does not support it. Takes about a tenth of
/// a second each.
pub type Measure = fn(products: &str) -> Option<f64>;

/// Fraction of that speed that training reaches: small models lose some of it between matmuls.
pub const SHARE: f64 = 0.7;

/// The measurement and its machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Speed {
    /// Processor model and cores of this process: not valid elsewhere.
    pub on: String,
    /// FLOP/s of f32 matmuls.
    pub f32: Option<f64>,
    /// FLOP/s of bf16 matmuls; `None` if the processor does not support bf16.
    pub bf16: Option<f64>,
}

impl Speed {
    /// FLOP/s of one number format.
    pub fn of(&self, products: &str) -> Option<f64> {
        match products {
            "bf16" => self.bf16,
            _ => self.f32,
        }
    }
}

/// The cached measurement of this machine.
pub fn remembered(env: &Env) -> Option<Speed> {
    let text = std::fs::read_to_string(file(env.state_dir.as_deref()?)).ok()?;
    let speed: Speed = serde_json::from_str(&text).ok()?;
    let whole = speed.f32.is_some_and(|x| x.is_finite() && x > 0.0);
    (whole && speed.on == this_machine(env)).then_some(speed)
}

/// Measures and caches. If writing fails, the next run measures again.
pub fn measure(env: &Env, measure: Measure) -> Speed {
    let good = |products| measure(products).filter(|x| x.is_finite() && *x > 0.0);
    let speed = Speed {
        on: this_machine(env),
        f32: good("f32"),
        bf16: good("bf16"),
    };
    if let (Some(folder), Ok(text)) = (&env.state_dir, serde_json::to_string(&speed)) {
        let _ = std::fs::create_dir_all(folder)
            .and_then(|()| write_atomic(&file(folder), text.as_bytes()));
    }
    speed
}

fn file(folder: &Path) -> PathBuf {
    folder.join("speed.json")
}

/// `AMD EPYC 9R14, 2 threads`
fn this_machine(env: &Env) -> String {
    let cpu = crate::hardware::summary(None, env).map(|s| s.cpu);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    format!("{}, {threads} threads", cpu.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(folder: &Path) -> Env {
        Env {
            state_dir: Some(folder.into()),
            ..Env::default()
        }
    }

    #[test]
    fn a_machine_is_measured_once_and_another_one_anew() {
        let folder = tempfile::tempdir().unwrap();
        let env = env(folder.path());
        assert_eq!(remembered(&env), None);
        let speed = measure(&env, |products| (products == "f32").then_some(2e11));
        assert_eq!((speed.of("f32"), speed.of("bf16")), (Some(2e11), None));
        assert_eq!(remembered(&env), Some(speed.clone()));
        let elsewhere = Speed {
            on: "another processor, 1 threads".into(),
            ..speed
        };
        let text = serde_json::to_string(&elsewhere).unwrap();
        std::fs::write(file(folder.path()), text).unwrap();
        assert_eq!(remembered(&env), None);
    }

    #[test]
    fn nonsense_is_neither_kept_nor_read() {
        let folder = tempfile::tempdir().unwrap();
        let env = env(folder.path());
        let speed = measure(&env, |_| Some(f64::NAN));
        assert_eq!((speed.f32, remembered(&env)), (None, None));
        std::fs::write(file(folder.path()), "{").unwrap();
        assert_eq!(remembered(&env), None);
    }
}
