//! Matmul speed of this machine: the time estimate for a first run. The measuring function is passed in, because kernels
//! may not be imported here; the last results are kept while the processor and its core count stay the same.

use crate::base::clock::UnixMillis;
use crate::base::files::{read_plain_text, write_atomic};
use crate::base::paths::Env;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Returns the FLOP/s of matmuls in `f32` or `bf16`; `None` if the machine does not support it. Takes about a tenth of
/// a second each.
pub type Measure = fn(products: &str) -> Option<f64>;

/// Fraction of that speed that training in f32 reaches: small models lose some of it between matmuls.
pub const SHARE: f64 = 0.7;
/// Time of what lies between matmuls, as a part of what all FLOPs take in f32 matmuls. It is f32 in every format, so that it weighs
/// the more, the faster bf16 is: of a step of 11 million parameters a tenth with AVX-512, 0.4 with AMX.
const BETWEEN: f64 = 0.22;

/// Measurements that are kept, and those that make a speed trustworthy: other processes slow one, none makes it faster.
const KEPT: usize = 5;
const ENOUGH: usize = 3;
/// After this long the machine is measured again: its clocks and its kernels may have changed.
const STALE: Duration = Duration::from_secs(30 * 24 * 3600);

/// The matmul speed of a machine: the best of the measurements kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Speed {
    /// Processor model and cores of this process: not valid elsewhere.
    pub on: String,
    /// FLOP/s of f32 matmuls.
    pub f32: Option<f64>,
    /// FLOP/s of bf16 matmuls; `None` if the processor does not support bf16.
    pub bf16: Option<f64>,
    /// Measurements behind it, and when the newest was taken.
    pub times: usize,
    pub newest: UnixMillis,
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Measured {
    t: UnixMillis,
    f32: Option<f64>,
    bf16: Option<f64>,
}

/// The file: a machine and its last measurements.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Kept {
    on: String,
    measured: Vec<Measured>,
}

impl Kept {
    /// What is known of this machine; nothing of another one.
    fn read(env: &Env) -> Kept {
        let on = this_machine(env);
        let read = |folder: &PathBuf| read_plain_text(file(folder)).ok();
        let kept = env.state_dir.as_ref().and_then(read);
        let kept = kept.and_then(|text| serde_json::from_str::<Kept>(&text).ok());
        kept.filter(|kept| kept.on == on).unwrap_or(Kept {
            on,
            measured: Vec::new(),
        })
    }

    fn speed(&self) -> Option<Speed> {
        let best = |of: fn(&Measured) -> Option<f64>| {
            let good = self.measured.iter().filter_map(of);
            good.filter(|x| x.is_finite() && *x > 0.0)
                .max_by(f64::total_cmp)
        };
        let speed = Speed {
            on: self.on.clone(),
            f32: best(|m| m.f32),
            bf16: best(|m| m.bf16),
            times: self.measured.len(),
            newest: self.measured.last()?.t,
        };
        speed.f32.is_some().then_some(speed)
    }
}

impl Speed {
    /// FLOP/s of one number format.
    pub fn of(&self, products: &str) -> Option<f64> {
        match products {
            "bf16" => self.bf16,
            _ => self.f32,
        }
    }

    /// The fraction of [`Speed::of`] that training reaches.
    pub fn share(&self, products: &str) -> f64 {
        let faster = match (self.of(products), self.f32) {
            (Some(of), Some(f32)) => of / f32,
            _ => 1.0,
        };
        1.0 / (1.0 / SHARE + BETWEEN * (faster - 1.0).max(0.0))
    }
}

/// What was measured on this machine before.
pub fn cached_speed(env: &Env) -> Option<Speed> {
    Kept::read(env).speed()
}

/// The speed of this machine; measured once more while few measurements are kept or the newest is old, which takes a moment.
/// If writing fails, the next start measures again.
pub fn measure(env: &Env, now: UnixMillis, measure: Measure) -> Option<Speed> {
    let mut kept = Kept::read(env);
    let fresh = |speed: &Speed| speed.times >= ENOUGH && now.since(speed.newest) < STALE;
    if let Some(speed) = kept.speed().filter(fresh) {
        return Some(speed);
    }
    kept.measured.retain(|m| now.since(m.t) < STALE);
    let good = |products| measure(products).filter(|x| x.is_finite() && *x > 0.0);
    kept.measured.push(Measured {
        t: now,
        f32: good("f32"),
        bf16: good("bf16"),
    });
    let skip = kept.measured.len().saturating_sub(KEPT);
    kept.measured.drain(..skip);
    let speed = kept.speed()?;
    if let (Some(folder), Ok(text)) = (&env.state_dir, serde_json::to_string(&kept)) {
        let _ = std::fs::create_dir_all(folder)
            .and_then(|()| write_atomic(&file(folder), text.as_bytes()));
    }
    Some(speed)
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

    const DAY: u64 = 24 * 3600 * 1000;

    fn at(day: u64) -> UnixMillis {
        UnixMillis((1_000 + day) * DAY)
    }

    #[test]
    fn a_busy_moment_does_not_stay_and_three_measurements_are_enough() {
        let folder = tempfile::tempdir().unwrap();
        let env = env(folder.path());
        assert_eq!(cached_speed(&env), None);
        let busy: Measure = |products| (products == "f32").then_some(1.6e10);
        let calm: Measure = |products| (products == "f32").then_some(2e11);
        let speed = measure(&env, at(0), busy).unwrap();
        assert_eq!((speed.of("f32"), speed.of("bf16")), (Some(1.6e10), None));
        assert_eq!(measure(&env, at(1), calm).unwrap().f32, Some(2e11));
        measure(&env, at(1), busy).unwrap();
        let speed = measure(&env, at(2), |_| panic!("measured a fourth time")).unwrap();
        assert_eq!(
            (speed.f32, speed.times, speed.newest),
            (Some(2e11), 3, at(1))
        );
        assert_eq!(cached_speed(&env), Some(speed));
        // A month later it is looked at anew, without what is as old.
        assert_eq!(measure(&env, at(40), busy).unwrap().f32, Some(1.6e10));
    }

    #[test]
    fn the_faster_matmuls_are_the_less_of_their_speed_is_reached() {
        let speed = |bf16: Option<f64>| Speed {
            on: String::new(),
            f32: Some(4e11),
            bf16,
            times: 1,
            newest: at(0),
        };
        let share = |bf16, products| speed(bf16).share(products);
        assert_eq!(share(None, "f32"), SHARE);
        assert_eq!(share(Some(4e11), "bf16"), SHARE);
        assert!((share(Some(8e11), "bf16") - 0.607).abs() < 1e-3);
        assert!((share(Some(2e12), "bf16") - 0.433).abs() < 1e-3);
    }

    #[test]
    fn another_machine_is_measured_anew() {
        let folder = tempfile::tempdir().unwrap();
        let env = env(folder.path());
        measure(&env, at(0), |_| Some(2e11)).unwrap();
        let mut kept = Kept::read(&env);
        kept.on = "another processor, 1 threads".into();
        let text = serde_json::to_string(&kept).unwrap();
        std::fs::write(file(folder.path()), text).unwrap();
        assert_eq!(cached_speed(&env), None);
    }

    #[test]
    fn nonsense_is_neither_kept_nor_read() {
        let folder = tempfile::tempdir().unwrap();
        let env = env(folder.path());
        assert_eq!(measure(&env, at(0), |_| Some(f64::NAN)), None);
        assert_eq!(cached_speed(&env), None);
        std::fs::write(file(folder.path()), "{").unwrap();
        assert_eq!(cached_speed(&env), None);
    }
}
