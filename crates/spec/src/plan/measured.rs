//! Measured memory of a run and the plan to compare it with: the process's resident set on a CPU, its GPU memory according to
//! NVML, or what PyTorch says of the ranks' GPUs where those are of other machines.

use super::ranks::on_ranks;
use super::request::{Device, RowLengths, Rows};
use super::{Part, Plan, Request, gpus, target};
use crate::hardware::Machine;
use crate::hardware::sampler::id;
use crate::metrics::ranks::{self, memory_fields};
use crate::run::RunState;

/// Where memory was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The process's resident memory.
    Process,
    /// This process's memory on one GPU.
    Gpu(u32),
    /// What PyTorch reserved on the GPU of a rank: all of the process but the CUDA context.
    Rank(u32),
}

impl Place {
    /// The part of a plan that is measured there.
    pub fn planned(self, plan: &Plan) -> u64 {
        let context = match self {
            Place::Rank(_) => plan.memory.bytes(Part::Context),
            Place::Process | Place::Gpu(_) => 0,
        };
        plan.memory.steady() - context
    }
}

/// Bytes, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    pub bytes: u64,
    pub place: Place,
}

/// Peak memory since the first step: on its fullest GPU if it uses one, else main memory.
pub fn most(state: &RunState) -> Option<Measured> {
    let seen = |id: &str| {
        let (_, most) = state.series.get(id)?.extent(1.0, f64::MAX)?;
        (most > 0.0).then_some(most as u64)
    };
    of(state, state.series.keys(), seen)
}

/// Current memory.
pub fn now(state: &RunState) -> Option<Measured> {
    let seen = |id: &str| {
        let value = state.host.get(id).filter(|x| x.is_finite() && **x > 0.0)?;
        Some(*value as u64)
    };
    of(state, state.host.keys(), seen)
}

/// Whether ranks of PyTorch train it: the resident memory of the engine that drives them is no part of what is planned for them.
fn has_ranks(state: &RunState) -> bool {
    let engine = state.head.as_ref().map(|head| &head.spec["engine"]);
    engine.is_some_and(|engine| engine == "torch" || !engine["torch"].is_null())
}

fn of<'a>(
    state: &RunState,
    ids: impl Iterator<Item = &'a String>,
    seen: impl Fn(&str) -> Option<u64>,
) -> Option<Measured> {
    let on_gpu = |id: &String| {
        let (kind, rest) = id.split_once('/')?;
        let (index, what) = rest.split_once('/')?;
        let place = match (kind, what) {
            ("gpu", id::GPU_OWN_MEMORY) => Place::Gpu(index.parse().ok()?),
            ("rank", memory_fields::RESERVED) => Place::Rank(index.parse().ok()?),
            _ => return None,
        };
        let bytes = seen(id)?;
        Some(Measured { bytes, place })
    };
    // NVML sees more of a GPU than PyTorch does.
    let by_nvml = |m: &Measured| matches!(m.place, Place::Gpu(_));
    let fullest = ids.filter_map(on_gpu).max_by_key(|m| (by_nvml(m), m.bytes));
    fullest.or_else(|| {
        if has_ranks(state) {
            return None;
        }
        let place = Place::Process;
        seen(id::RSS).map(|bytes| Measured { bytes, place })
    })
}

/// Rows of one text hold fewer tokens than places only where a step was skipped; below this share of them they are not full.
const NEARLY_FULL: f64 = 0.98;

/// The request of a run for this engine, its rows as long as those that it read: its tokens are counted without padding. `None` if the run
/// has not logged its spec.
pub fn of_log(state: &RunState) -> Option<Request> {
    let mut request = target::of_run(state.head.as_ref()?)?;
    let micro_steps = request.micro_steps(state.step);
    let rows = micro_steps * request.micro_batch * request.method.sequences();
    let longest = request.seq_len as f64;
    // Texts of a table are documents, whose rows end in padding: their lengths were read by the run alone.
    let rolls_out = request.method.rolls_out();
    let is_text = request.extras.rows == RowLengths::Full && !rolls_out;
    let fell_short = is_text && (state.tokens as f64) < NEARLY_FULL * rows as f64 * longest;
    // Answers are as long as they became.
    let unread = request.has_unread_rows() || rolls_out || fell_short;
    if !unread || rows == 0 || state.tokens == 0 {
        return Some(request);
    }
    let tokens = state.tokens as f64 / rows as f64;
    let is_packed = is_text || matches!(request.extras.rows, RowLengths::Packed { .. });
    request.set_rows(match is_packed {
        true => RowLengths::Packed {
            filled: Some((tokens / longest).min(1.0)),
        },
        false => RowLengths::Read(Rows {
            tokens,
            places: Rows::padded(tokens).min(longest),
        }),
    });
    Some(request)
}

/// The plan for a run, from its events: for its ranks' GPUs, for a typical GPU trainer if it holds GPU memory otherwise, else for this engine.
/// `None` if the run has not logged its spec.
pub fn request_of(state: &RunState, machine: Option<&Machine>) -> Option<Request> {
    let request = of_log(state)?;
    if request.extras.ranks.is_some() {
        let gpus = machine.map(|m| m.summary().gpus).unwrap_or_default();
        let mut request = on_ranks(request, &gpus);
        if request.device.memory.is_none() {
            request.device.memory = memory_of_ranks(state);
        }
        return Some(request);
    }
    let Some(Place::Gpu(index)) = now(state).or_else(|| most(state)).map(|m| m.place) else {
        return Some(request);
    };
    let gpu = machine.and_then(|m| m.gpus.iter().find(|gpu| gpu.index == index));
    let device = match gpu {
        Some(gpu) => Device {
            name: gpu.name.clone(),
            memory: Some(gpu.memory_total).filter(|bytes| *bytes > 0),
            ..gpus::find(&gpu.name).map_or(Device::limit("", None), Device::of)
        },
        None => Device::limit(&format!("GPU {index}"), None),
    };
    Some(target::on_gpu(request, device))
}

/// The memory of the ranks' smallest GPU, as the ranks report it.
fn memory_of_ranks(state: &RunState) -> Option<u64> {
    let total = |rank| {
        state
            .host
            .get(&ranks::memory(rank, memory_fields::GPU_TOTAL))
    };
    let all = (0..ranks::MOST).map_while(total);
    all.map(|bytes| *bytes as u64)
        .min()
        .filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::UnixMillis;
    use crate::hardware::{Provider, Recorded, Recording};
    use crate::plan::{Estimator, plan};
    use crate::spec;
    use crate::wire::{Envelope, Event};

    /// A run of the quickstart on a recorded machine, three seconds long.
    fn run_on(recording: &str) -> (RunState, Machine) {
        let mut provider = Recorded::new(Recording::parse(recording, "recording").unwrap());
        let machine = provider.machine();
        let spec = spec::load("quickstart", &[], &Default::default())
            .unwrap()
            .spec;
        let mut events = vec![Event::Started {
            name: spec.name.clone(),
            method: "pretrain".into(),
            spec: spec.to_value(),
            n_params: 804_096,
            vocab_size: 65,
            max_steps: 3,
            batch_tokens: 768,
            epoch_tokens: 1_003_854,
            resumed_from: None,
            precision: None,
            unigram_entropy: None,
        }];
        for step in 1..=3 {
            let values = Default::default();
            events.push(Event::Stepped {
                step,
                tokens: 768 * step,
                values,
            });
            events.push(Event::HardwareSampled {
                values: provider.sample(),
            });
        }
        let envelopes: Vec<Envelope> = (1..)
            .zip(events)
            .map(|(seq, event)| Envelope {
                v: 1,
                seq,
                t: UnixMillis(1000 * seq),
                event,
            })
            .collect();
        (RunState::from_events(&envelopes), machine)
    }

    #[test]
    fn a_run_on_a_gpu_is_held_against_the_plan_for_that_gpu() {
        let (state, machine) = run_on(
            r#"{"machine": {"gpus": [{"index": 0, "name": "NVIDIA L4", "memory_total": 24000000000},
                {"index": 1, "name": "NVIDIA H100 80GB HBM3", "memory_total": 85520809984}]},
             "readings": {"gpu/0/own_memory_bytes": [500, 400], "gpu/1/own_memory_bytes": [700, 900, 800],
                "gpu/1/memory_used_bytes": [5000], "host/rss_bytes": [3000]}}"#,
        );
        let place = Place::Gpu(1);
        assert_eq!(most(&state), Some(Measured { bytes: 900, place }));
        assert_eq!(now(&state), Some(Measured { bytes: 800, place }));
        let request = request_of(&state, Some(&machine)).unwrap();
        assert_eq!(request.estimator, Estimator::General);
        assert_eq!(request.device.memory, Some(85_520_809_984));
        assert!(request.device.peak_flops.is_some());
        // The context alone is a gigabyte: no engine on a CPU plans that.
        assert!(plan(&request).memory.total() > 1_000_000_000);
    }

    /// One pass over pairs of 200 tokens in places for 1,024 was reported as five; the log says how long they are.
    #[test]
    fn a_run_of_pairs_is_planned_with_the_lengths_that_it_read() {
        let (mut state, machine) = run_on(r#"{"machine": {}, "readings": {}}"#);
        let set = ["seq_len=1024", "max_steps=100"].map(String::from);
        let spec = spec::load("dpo-demo", &set, &Default::default())
            .unwrap()
            .spec;
        let head = state.head.as_mut().unwrap();
        head.spec = spec.to_value();
        let rows = 2 * (spec.train.micro_batch_size * spec.train.grad_accum_steps) as u64;
        head.epoch_tokens = 100 * rows * 200;
        (state.step, state.tokens) = (0, 0);
        let planned = |state: &RunState| plan(&request_of(state, Some(&machine)).unwrap());
        let warns =
            |plan: &crate::plan::Plan| plan.advice.iter().any(|it| it.id == "repeated_data");
        assert!(
            !warns(&planned(&state)),
            "before the first step nothing is known"
        );
        (state.step, state.tokens) = (10, 10 * rows * 200);
        let once = planned(&state);
        assert_eq!(once.request.row_tokens(), 200.0);
        assert!(!warns(&once) && once.request.tokens == state.head.as_ref().unwrap().epoch_tokens);
        state.head.as_mut().unwrap().epoch_tokens /= 10;
        assert!(warns(&planned(&state)));
    }

    /// 76.8k places over 1.05k tokens were 73 epochs of a run that counted 66.7: its rows were documents of a table.
    #[test]
    fn rows_of_a_run_that_fell_short_are_counted_as_it_read_them() {
        let (mut state, machine) = run_on(r#"{"machine": {}, "readings": {}}"#);
        let tokens = |state: &RunState| request_of(state, Some(&machine)).unwrap().tokens;
        let full = tokens(&state);
        state.tokens -= 1;
        assert_eq!(tokens(&state), full, "a row that was skipped");
        // Of 36 rows of 64.
        state.tokens = 36 * 56;
        let read = tokens(&state);
        assert!(read.abs_diff(full * 56 / 64) <= 1, "{read} of {full}");
    }

    /// With GPUs of other machines, or ranks on the processor, the engine's own memory would be held against theirs.
    #[test]
    fn the_memory_of_the_engine_is_not_that_of_its_ranks() {
        let (mut state, machine) = run_on(
            r#"{"machine": {"gpus": []}, "readings": {"host/rss_bytes": [3000, 3500, 2000]}}"#,
        );
        assert!(most(&state).is_some());
        let words = [
            "engine=torch",
            "engine.torch.nodes=[gpu1.example, gpu2.example]",
        ];
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        let spec = spec::load("quickstart", &words, &Default::default())
            .unwrap()
            .spec;
        state.head.as_mut().unwrap().spec = spec.to_value();
        assert_eq!((most(&state), now(&state)), (None, None));
        let request = request_of(&state, Some(&machine)).unwrap();
        assert_eq!(
            (request.estimator, request.device.memory),
            (Estimator::General, None)
        );
        // Ranks with GPUs say it themselves, the context left out.
        let said = |rank, bytes: f64| {
            [
                (ranks::memory(rank, memory_fields::RESERVED), bytes),
                (ranks::memory(rank, memory_fields::GPU_TOTAL), 8e10),
            ]
        };
        state
            .host
            .extend(said(0, 5e9).into_iter().chain(said(1, 6e9)));
        let found = now(&state).unwrap();
        assert_eq!((found.bytes, found.place), (6_000_000_000, Place::Rank(1)));
        let request = request_of(&state, Some(&machine)).unwrap();
        assert_eq!(request.device.memory, Some(80_000_000_000));
        let planned = plan(&request);
        let context = planned.memory.bytes(Part::Context);
        assert!(context > 0 && found.place.planned(&planned) == planned.memory.steady() - context);
    }

    /// A viewer resolved `auto` by its own processor, whatever the run's had.
    #[test]
    fn auto_is_planned_as_what_it_came_to_where_the_run_trains() {
        let (mut state, machine) = run_on(r#"{"machine": {}, "readings": {}}"#);
        let mut planned = |word: Option<&str>| {
            state.head.as_mut().unwrap().precision = word.map(String::from);
            request_of(&state, Some(&machine)).unwrap()
        };
        let (f32, bf16) = (planned(Some("f32")), planned(Some("bf16")));
        assert_eq!(f32.precision.matmul_dtype(), "f32");
        assert_eq!(bf16.precision.matmul_dtype(), "bf16");
        assert_eq!(f32.extras.asked, bf16.extras.asked);
        // Older logs do not say it.
        let here = planned(None);
        assert!([f32, bf16].contains(&here));
    }

    #[test]
    fn a_run_on_a_cpu_is_held_against_this_engines_plan_whatever_gpus_there_are() {
        let (state, machine) = run_on(
            r#"{"machine": {"gpus": [{"index": 0, "name": "NVIDIA L4"}]},
             "readings": {"gpu/0/memory_used_bytes": [5000], "host/rss_bytes": [3000, 3500, 2000]}}"#,
        );
        let place = Place::Process;
        assert_eq!(most(&state), Some(Measured { bytes: 3500, place }));
        let request = request_of(&state, Some(&machine)).unwrap();
        assert_eq!(request.estimator, Estimator::Engine);
        assert_eq!(request_of(&RunState::new(), None), None);
    }
}
