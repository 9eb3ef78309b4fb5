//! Calibration from earlier runs on this machine: memory beyond the plan, and speed. Kept in the user's state
//! directory, one line per run; always shown next to the plan's own number.

use super::measured::{self, Place};
use super::probe::{self, Measure, Speed};
use super::request::{Device, Estimator, Method, Request, ValueSource};
use super::{plan, room, work};
use crate::base::clock::{Clock, SystemClock, UnixMillis};
use crate::base::files::{read_plain_text, write_atomic};
use crate::base::human;
use crate::base::paths::Env;
use crate::base::stats::median;
use crate::hardware::sampler::id::RSS;
use crate::metrics::id;
use crate::run::RunState;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// Most runs to keep; the oldest are dropped first.
const KEPT: usize = 64;
/// Runs needed for a correction: a single one may be an outlier.
const ENOUGH: usize = 3;
/// Memory readings a run needs to count.
const READINGS: u64 = 3;
/// A run's speed applies to models up to this factor larger or smaller.
const ALIKE: f64 = 6.0;
/// Where runs of nearly the same size or a measurement of this machine are at hand, those of other sizes do not count:
/// small models reach a fraction of the speed of larger ones. A run's memory applies to plans of nearly the same size only.
const SAME: f64 = 2.0;

/// Whether two sizes are within a factor of each other.
fn within(factor: f64, a: u64, b: u64) -> bool {
    let ratio = a.max(1) as f64 / b.max(1) as f64;
    (1.0 / factor..=factor).contains(&ratio)
}

/// One run, planned and measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    pub run: String,
    pub n_params: u64,
    /// The plan's memory without preflight's peak.
    pub predicted_bytes: u64,
    pub measured_bytes: u64,
    /// Model FLOP/s of all passes, attention included.
    pub flops_per_second: Option<f64>,
    /// The dtype of its matmuls: `f32`, `bf16`. Absent in older versions' lines.
    #[serde(default)]
    pub products: String,
    /// Its method in a spec. Absent in older versions' lines.
    #[serde(default)]
    pub method: String,
}

impl Observation {
    /// What this run took beyond its plan, as a plan of another size would: fixed bytes of the process, which a larger plan
    /// has no more of, or a share of the plan, of which a smaller one has less. One run does not show which: the smaller of both.
    fn excess(&self, predicted: u64) -> f64 {
        let own = self.predicted_bytes as f64;
        (self.measured_bytes as f64 - own) * (predicted as f64 / own).min(1.0)
    }
}

/// Runs whose speeds tell of one another: writing answers takes a token at a time, and each method on them asks other models.
fn pace(method: Method) -> Option<Method> {
    Some(method).filter(|method| method.rolls_out())
}

/// The calibration from a finished or stopped run; `None` if it has too few readings.
pub fn observe(state: &RunState) -> Option<Observation> {
    let head = state.head.as_ref()?;
    if measured::most(state).is_some_and(|m| m.place != Place::Process) {
        return None;
    }
    let request = measured::of_log(state)?;
    // Memory and speed of PyTorch say nothing about plans for this engine.
    if request.extras.ranks.is_some() {
        return None;
    }
    let rss = state.series.get(RSS).filter(|s| s.len() >= READINGS)?;
    // Step 0 is preflight, whose model copies are freed before training.
    let (_, most) = rss.extent(1.0, f64::MAX)?;
    let speeds: Vec<f64> = state
        .series
        .get(id::TOK_PER_SEC)
        .map(|series| series.recent().map(|point| point.value).collect())
        .unwrap_or_default();
    let per_token = work::engine_flops_per_token(&request);
    Some(Observation {
        run: state.run.clone(),
        n_params: head.n_params,
        predicted_bytes: plan(&request).memory.steady(),
        measured_bytes: most as u64,
        flops_per_second: median(&speeds).map(|speed| speed * per_token),
        products: request.precision.matmul_dtype().into(),
        method: request.method.word().into(),
    })
}

/// Records a run, replacing one of the same name.
///
/// # Errors
/// The file cannot be written.
pub fn record(folder: &Path, observation: &Observation) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut all = read(folder);
    all.retain(|o| o.run != observation.run);
    all.push(observation.clone());
    let skip = all.len().saturating_sub(KEPT);
    let mut text = String::new();
    for observation in &all[skip..] {
        text.push_str(&serde_json::to_string(observation)?);
        text.push('\n');
    }
    write_atomic(&file(folder), text.as_bytes())
}

fn file(folder: &Path) -> PathBuf {
    folder.join("plan.jsonl")
}

/// Unreadable lines are skipped: another version may have written them.
fn read(folder: &Path) -> Vec<Observation> {
    let text = read_plain_text(file(folder)).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// This machine as the planner sees it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Machine {
    /// Bytes available to this process.
    pub memory: Option<u64>,
    pub runs: Vec<Observation>,
    /// Measured matmul speed, if known.
    pub speed: Option<Speed>,
}

impl Machine {
    /// Reads the machine and its records.
    pub fn load(env: &Env) -> Machine {
        // What the gate before a start holds a run against.
        let (memory, _) = room::there(&crate::hardware::memory(), None);
        let runs = env.state_dir.as_deref().map(read).unwrap_or_default();
        Machine {
            memory: Some(memory).filter(|bytes| *bytes > 0),
            runs,
            speed: probe::cached_speed(env),
        }
    }

    /// The same; while its speed was measured too seldom to be trusted, it is measured now, which takes a moment.
    pub fn load_or_measure(env: &Env, measure: Measure) -> Machine {
        let now = SystemClock::new().now();
        Machine {
            speed: probe::measure(env, now, measure),
            ..Machine::load(env)
        }
    }

    /// `the best of 3 measurements, the newest 2 d old`, where the machine was measured.
    pub fn speed_words(&self, now: UnixMillis) -> Option<String> {
        let speed = self.speed.as_ref()?;
        let age = match human::age(now.since(speed.newest)).as_str() {
            "now" => "taken now".to_string(),
            age => format!("{age} old"),
        };
        Some(match speed.times {
            1 => format!("one measurement, {age}"),
            n => format!("the best of {n} measurements, the newest {age}"),
        })
    }

    /// Bytes beyond the plan that a run of this size takes, negative where it takes fewer: the median of past runs of nearly
    /// this size; `None` before there are enough.
    pub fn memory_excess(&self, predicted: u64) -> Option<f64> {
        let alike =
            |o: &&Observation| o.predicted_bytes > 0 && within(SAME, o.predicted_bytes, predicted);
        let alike = self.runs.iter().filter(alike);
        let excess: Vec<f64> = alike.map(|o| o.excess(predicted)).collect();
        median(&excess).filter(|_| excess.len() >= ENOUGH)
    }

    /// Model FLOP/s that similar models reached with this method and matmul dtype: the median of past runs. Where no run wrote
    /// answers as this one does, runs that wrote none.
    fn flops_per_second(&self, n_params: u64, products: &str, method: Method) -> Option<f64> {
        let own = self.speed_at(pace(method), n_params, products);
        own.or_else(|| self.speed_at(None, n_params, products))
    }

    fn speed_at(&self, wanted: Option<Method>, n_params: u64, products: &str) -> Option<f64> {
        let speed = |factor: f64| {
            let alike = |o: &&Observation| {
                let of = Method::by_word(&o.method).map(pace);
                let same = o.products == products && of == Some(wanted);
                same && within(factor, o.n_params, n_params)
            };
            let alike = self.runs.iter().filter(alike);
            let speeds: Vec<f64> = alike.filter_map(|o| o.flops_per_second).collect();
            median(&speeds)
        };
        let measured = self.speed.as_ref().and_then(|s| s.of(products));
        speed(SAME).or_else(|| speed(ALIKE).filter(|_| measured.is_none()))
    }

    /// Applies this machine to a plan for this program's engine; plans for a GPU are unchanged.
    pub fn calibrate(&self, request: &mut Request) {
        if request.estimator != Estimator::Engine {
            return;
        }
        let device = &mut request.device;
        *device = Device {
            memory: device.memory.or(self.memory),
            ..device.clone()
        };
        // Only runs make a correction: a plan more is worth it only with them.
        if self.runs.len() >= ENOUGH {
            let predicted = plan(request).memory.steady();
            request.device.memory_excess = self.memory_excess(predicted);
        }
        let device = &mut request.device;
        if request.mfu_source == ValueSource::Stated {
            return;
        }
        let products = request.precision.matmul_dtype();
        if let Some(speed) =
            self.flops_per_second(request.arch.n_params(), products, request.method)
        {
            device.peak_flops = Some(speed);
            (request.mfu, request.mfu_source) = (1.0, ValueSource::Learned);
        } else if let Some(speed) = &self.speed
            && let Some(matmuls) = speed.of(products)
        {
            device.peak_flops = Some(matmuls);
            (request.mfu, request.mfu_source) = (speed.share(products), ValueSource::Probed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::request::RowLengths;
    use crate::plan::target;
    use crate::wire::{Envelope, Event, Num, VERSION};

    fn observation(run: &str, predicted: u64, measured: u64) -> Observation {
        Observation {
            run: run.into(),
            n_params: 804_096,
            predicted_bytes: predicted,
            measured_bytes: measured,
            flops_per_second: Some(1e11),
            products: "f32".into(),
            method: "sft".into(),
        }
    }

    #[test]
    fn the_correction_is_the_median_and_needs_three_runs() {
        let folder = tempfile::tempdir().unwrap();
        let look = || Machine {
            memory: None,
            runs: read(folder.path()),
            speed: None,
        };
        for (i, measured) in [104, 108].into_iter().enumerate() {
            record(folder.path(), &observation(&format!("r{i}"), 100, measured)).unwrap();
        }
        assert_eq!(look().memory_excess(100), None);
        // An outlier moves a median little.
        record(folder.path(), &observation("r2", 100, 900)).unwrap();
        assert_eq!(look().memory_excess(100), Some(8.0));
        // The same run again counts once.
        record(folder.path(), &observation("r2", 100, 106)).unwrap();
        assert_eq!(
            (look().runs.len(), look().memory_excess(100)),
            (3, Some(6.0))
        );
    }

    /// Planned and measured MiB.
    fn measured(sizes: &[(u64, u64)]) -> Machine {
        let runs = sizes.iter().enumerate();
        let of = |(i, (planned, took)): (usize, &(u64, u64))| {
            observation(&format!("r{i}"), planned << 20, took << 20)
        };
        Machine {
            runs: runs.map(of).collect(),
            ..Machine::default()
        }
    }

    /// A toy run takes half as much again as planned, for the process itself; a larger run takes no more bytes for it.
    #[test]
    fn what_a_toy_run_took_more_than_planned_is_not_expected_of_a_large_one() {
        let machine = measured(&[(60, 90); 3]);
        let excess = |planned: u64| machine.memory_excess(planned << 20);
        let mib = |n: u64| Some((n << 20) as f64);
        assert_eq!(excess(60), mib(30));
        assert_eq!(excess(100), mib(30), "bytes, not a share");
        assert_eq!(excess(40), mib(20), "a share, not bytes");
        assert_eq!((excess(181), excess(3 << 10)), (None, None));
    }

    /// Runs of other sizes have no say where the plan was right, however many they are.
    #[test]
    fn many_small_runs_do_not_correct_a_larger_plan_that_was_right() {
        let small = [(43, 54), (44, 56), (42, 53), (50, 64), (47, 60), (40, 50)];
        let large = [(182, 183), (240, 242), (213, 216), (170, 169)];
        let machine = measured(&[&small[..], &small, &small, &large].concat());
        for (planned, took) in small.into_iter().chain(large) {
            let excess = machine.memory_excess(planned << 20).unwrap() / (1 << 20) as f64;
            let corrected = planned as f64 + excess;
            assert!(
                (corrected / took as f64 - 1.0).abs() < 0.05,
                "{corrected} for {took}"
            );
        }
        let few = measured(&small);
        assert_eq!(few.memory_excess(181 << 20), None);
        // Runs that took less than planned do not make a plan negative.
        assert!(measured(&[(100, 1); 3]).memory_excess(50 << 20).unwrap() > -f64::from(50 << 20));
    }

    #[test]
    fn only_so_many_runs_are_kept_and_broken_lines_do_no_harm() {
        let folder = tempfile::tempdir().unwrap();
        for i in 0..KEPT + 3 {
            record(folder.path(), &observation(&format!("r{i}"), 100, 100)).unwrap();
        }
        assert_eq!(read(folder.path()).len(), KEPT);
        std::fs::write(file(folder.path()), "{\"run\": 3}\nnonsense\n").unwrap();
        assert_eq!(read(folder.path()), []);
    }

    #[test]
    fn a_plan_keeps_its_own_number_beside_the_correction() {
        let set = ["precision=f32".to_string()];
        let mut request = target::resolve("quickstart", &set, &Default::default()).unwrap();
        let size = plan(&request).memory.steady();
        let runs = (0..3)
            .map(|i| observation(&format!("r{i}"), size, size + size / 10))
            .collect();
        Machine {
            memory: Some(1 << 30),
            runs,
            speed: None,
        }
        .calibrate(&mut request);
        let plan = plan(&request);
        assert_eq!(request.device.memory, Some(1 << 30));
        assert_eq!(plan.corrected_bytes(), Some(plan.p50_bytes() + size / 10));
        let seconds = 3600.0 * plan.work.hours.unwrap();
        let wanted = work::flops_per_token(&request.arch, 64) * request.tokens as f64 / 1e11;
        assert!((seconds / wanted - 1.0).abs() < 1e-9);
    }

    /// A spec, and the log of a run of it at 5,000 tokens a second.
    fn run(preset: &str, set: &[&str]) -> RunState {
        let set: Vec<String> = set.iter().map(|word| (*word).to_string()).collect();
        let sources = crate::spec::SpecSources::default();
        let spec = crate::spec::load(preset, &set, &sources).unwrap().spec;
        let told = |seq: u64, event: Event| Envelope {
            v: VERSION,
            seq,
            t: UnixMillis(seq),
            event,
        };
        let started = Event::Started {
            name: "r".into(),
            method: String::new(),
            spec: spec.to_value(),
            n_params: 0,
            vocab_size: 65,
            max_steps: 10,
            batch_tokens: 0,
            epoch_tokens: 1_000_000,
            resumed_from: None,
            precision: None,
            unigram_entropy: None,
        };
        // Pairs of 28 tokens an answer, texts of full rows.
        let rows = spec.train.micro_batch_size * spec.train.grad_accum_steps;
        let each = match spec.method.needs().unit.sequences() {
            1 => rows * spec.model.seq_len,
            n => rows * n * 28,
        };
        let stepped = |step: u64| Event::Stepped {
            step,
            tokens: step * each as u64,
            values: [(RSS, 1e8), (id::TOK_PER_SEC, 5_000.0)]
                .map(|(id, x)| (id.to_string(), Num(x)))
                .into(),
        };
        let steps = (1..=READINGS).map(|step| told(1 + step, stepped(step)));
        let events: Vec<Envelope> = [told(1, started)].into_iter().chain(steps).collect();
        RunState::from_events(&events)
    }

    /// A run's own speed predicts its own time, whatever its method does with a token.
    #[test]
    fn a_run_that_is_planned_again_takes_as_long_as_it_took() {
        for (preset, set) in [
            ("quickstart", &[][..]),
            ("dpo-demo", &[]),
            ("ppo-demo", &[]),
            ("sft-demo", &[]),
            ("quickstart", &["adapter.lora.rank=4"]),
        ] {
            let state = run(preset, set);
            let mut observation = observe(&state).unwrap();
            let mut request = measured::of_log(&state).unwrap();
            observation.n_params = request.arch.n_params();
            Machine {
                runs: vec![observation],
                ..Machine::default()
            }
            .calibrate(&mut request);
            let seconds = 3600.0 * plan(&request).work.hours.unwrap();
            let took = request.tokens as f64 / 5_000.0;
            assert!(
                (seconds / took - 1.0).abs() < 1e-9,
                "{preset}: {seconds} for {took}"
            );
        }
    }

    /// Rows of pairs are as long as their answers, not as the context: a plan of them at that length was 19 times too slow.
    #[test]
    fn short_pairs_are_planned_at_their_length() {
        let state = run("dpo-demo", &["seq_len=1024"]);
        let mut observation = observe(&state).unwrap();
        let sources = crate::spec::SpecSources::default();
        let set = ["seq_len=1024".to_string()];
        let mut request = target::resolve("dpo-demo", &set, &sources).unwrap();
        let RowLengths::Read(rows) = request.extras.rows else {
            panic!("its data are made on the spot");
        };
        assert!(
            (26.0..30.0).contains(&rows.tokens) && (32.0..40.0).contains(&rows.places),
            "{rows:?}"
        );
        // 300 steps of 16 pairs.
        assert!(
            (250_000..290_000).contains(&request.tokens),
            "{}",
            request.tokens
        );
        assert!((830..970).contains(&request.batch_tokens()));
        let attention = plan(&request).work;
        assert!(attention.attention_flops < 0.1 * attention.flops);
        observation.n_params = request.arch.n_params();
        Machine {
            runs: vec![observation],
            ..Machine::default()
        }
        .calibrate(&mut request);
        let seconds = 3600.0 * plan(&request).work.hours.unwrap();
        let took = request.tokens as f64 / 5_000.0;
        // The log has no padding: it is estimated.
        assert!(
            (0.8..1.25).contains(&(seconds / took)),
            "{seconds} for {took}"
        );
    }

    /// Documents side by side fill rows in part; the first micro-batches of a ramp are fewer.
    #[test]
    fn packed_rows_are_as_full_as_the_run_found_them() {
        let ramp = "train.batch_ramp=[{until_step: 2, grad_accum_steps: 1}]";
        for preset in ["sft-demo", "dpo-demo"] {
            let mut state = run(preset, &["grad_accum_steps=4", ramp]);
            // Three steps of 1, 1 and 4 micro-batches, three quarters of them tokens.
            let before = target::of_run(state.head.as_ref().unwrap()).unwrap();
            let rows = 6 * before.micro_batch * before.method.sequences();
            let places = rows * before.seq_len;
            (state.step, state.tokens) = (3, places * 3 / 4);
            let request = measured::of_log(&state).unwrap();
            let longest = before.seq_len as f64;
            assert!(
                (request.row_tokens() / longest - 0.75).abs() < 1e-9,
                "{preset}"
            );
            assert!((request.tokens as f64 / before.tokens as f64 - 0.75).abs() < 1e-3);
            let RowLengths::Packed { filled } = request.extras.rows else {
                assert_eq!(preset, "dpo-demo");
                continue;
            };
            assert_eq!((filled, request.row_places()), (Some(0.75), longest));
        }
    }

    #[test]
    fn a_run_of_pytorch_says_nothing_about_this_engine() {
        assert!(observe(&run("quickstart", &[])).is_some());
        assert_eq!(observe(&run("quickstart", &["engine=torch"])), None);
    }

    #[test]
    fn speeds_are_learnt_from_models_of_like_size_and_arithmetic_only() {
        let machine = Machine {
            runs: vec![observation("r", 1, 1)],
            ..Machine::default()
        };
        assert_eq!(
            machine.flops_per_second(2_000_000, "f32", Method::Pretrain),
            Some(1e11)
        );
        assert_eq!(
            machine.flops_per_second(2_000_000, "bf16", Method::Pretrain),
            None
        );
        assert_eq!(
            machine.flops_per_second(124_000_000, "f32", Method::Pretrain),
            None
        );
    }

    /// A step that writes its answers token by token is no measure of one that reads a text, nor of another method on answers.
    #[test]
    fn methods_on_own_answers_keep_their_speed_to_themselves() {
        let of = |run: &str, method: &str, speed| Observation {
            method: method.into(),
            flops_per_second: Some(speed),
            ..observation(run, 1, 1)
        };
        let mut machine = Machine {
            runs: vec![of("a", "ppo", 2e11)],
            ..Machine::default()
        };
        let speed = |machine: &Machine, method| machine.flops_per_second(800_000, "f32", method);
        assert_eq!(speed(&machine, Method::Ppo), Some(2e11));
        assert_eq!(speed(&machine, Method::Grpo), None);
        assert_eq!(speed(&machine, Method::Pretrain), None);
        machine.runs.push(of("b", "dpo", 7e10));
        // A line of an older version names no method.
        machine.runs.push(of("c", "", 1.0));
        assert_eq!(speed(&machine, Method::Pretrain), Some(7e10));
        assert_eq!(speed(&machine, Method::Grpo), Some(7e10));
        assert_eq!(speed(&machine, Method::Ppo), Some(2e11));
    }

    #[test]
    fn before_a_first_run_a_measured_product_tells_the_time_and_runs_tell_better() {
        let time = |machine: &Machine, set: &str| {
            let set = [set.to_string()];
            let mut request = target::resolve("quickstart", &set, &Default::default()).unwrap();
            machine.calibrate(&mut request);
            (plan(&request).work.hours, request.mfu_source)
        };
        let mut machine = Machine::default();
        assert_eq!(
            time(&machine, "precision=f32"),
            (None, ValueSource::Assumed)
        );
        machine.speed = Some(Speed {
            on: "here".into(),
            f32: Some(2e11),
            bf16: Some(4e11),
            times: 3,
            newest: Default::default(),
        });
        let (f32, said) = time(&machine, "precision=f32");
        let (bf16, _) = time(&machine, "precision=bf16");
        assert_eq!(said, ValueSource::Probed);
        // Matmuls at twice the speed, and what lies between them at the same.
        let faster = f32.unwrap() / bf16.unwrap();
        assert!((1.7..1.8).contains(&faster), "{faster}");
        machine.runs = vec![observation("r", 1, 1)];
        assert_eq!(time(&machine, "precision=f32").1, ValueSource::Learned);
        // A model of another size reaches another speed: the measurement is the better guide, where there is one.
        machine.runs[0].n_params /= 4;
        assert_eq!(time(&machine, "precision=f32").1, ValueSource::Probed);
        machine.speed = None;
        assert_eq!(time(&machine, "precision=f32").1, ValueSource::Learned);
    }
}
