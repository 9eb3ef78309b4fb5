//! Which engine a plan needs, and why: this program's own on a CPU, or PyTorch on one GPU or several (`engine: torch`).

use super::quantity::capacity;
use super::ranks::as_ranks;
use super::request::{BaseFormat, Checkpointing, Device, Estimator, Request};
use super::{Verdict, plan};
use crate::base::human;
use crate::hardware::GpuSummary;
use serde::Serialize;

/// GPUs that are there or were named.
#[derive(Debug, Clone, PartialEq)]
pub struct Gpus {
    pub name: String,
    /// Bytes of one.
    pub memory: u64,
    /// How many; `None` where the number is open.
    pub count: Option<u64>,
    /// Whether they are in this machine.
    pub here: bool,
}

impl Gpus {
    /// Those of this machine: as many as there are, each as large as the smallest.
    pub fn of(seen: &[GpuSummary]) -> Option<Gpus> {
        let first = seen.first()?;
        let smallest = seen.iter().map(|gpu| gpu.memory_bytes).min()?;
        Some(Gpus {
            name: crate::base::text::one_line(&first.name),
            memory: smallest,
            count: Some(seen.len() as u64),
            here: true,
        })
    }
}

/// An engine with its settings and reasons.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EngineChoice {
    /// `candle` or `torch`; `none` where no engine here trains it on such a device.
    pub engine: &'static str,
    /// GPUs that it trains on; 0 on a processor.
    pub gpus: u64,
    /// What PyTorch's ranks share: `ddp`, `fsdp2`.
    pub shard: Option<&'static str>,
    /// Whether activations are computed again in the backward pass, which the request does not ask for.
    pub recomputes: bool,
    /// For a command line; empty where nothing is to be set.
    pub settings: String,
    /// One sentence.
    pub why: String,
    /// Bytes of one GPU, or of the process, with the plan's margin.
    pub needs_bytes: u64,
    pub fits: bool,
}

/// Ranks that the engine starts at most on one machine.
const MOST: u64 = 64;

/// The engine for a request, with the GPUs that are known of; `None` where nothing is known of any device.
pub fn choose(request: &Request, gpus: Option<&Gpus>) -> Option<EngineChoice> {
    let Some(gpus) = gpus.filter(|gpus| gpus.memory > 0) else {
        let reason = "no GPU here: llmtui's own engine trains on the CPU, and PyTorch would gain nothing on a CPU";
        return (request.estimator == Estimator::Engine).then(|| on_processor(request, reason));
    };
    if let Some(lack) = lacks(request) {
        // The processor is no answer where a GPU was named for a model: the plan's numbers are those of such trainers.
        return Some(match request.estimator == Estimator::Engine || gpus.here {
            true => on_processor(request, &lack),
            false => nowhere(request, &lack),
        });
    }
    Some(on_gpus(request, gpus))
}

fn on_processor(request: &Request, why: &str) -> EngineChoice {
    let planned = plan(request);
    let own = request.estimator == Estimator::Engine;
    EngineChoice {
        engine: "candle",
        gpus: 0,
        shard: None,
        recomputes: false,
        settings: String::new(),
        why: why.into(),
        needs_bytes: planned.p90_bytes(),
        // A plan for a GPU says nothing of this machine's memory.
        fits: own && planned.verdict().is_none_or(|v| v != Verdict::TooLarge),
    }
}

/// No engine of this program trains it on a GPU.
fn nowhere(request: &Request, lack: &str) -> EngineChoice {
    EngineChoice {
        engine: "none",
        why: format!(
            "no engine here trains it on a GPU: {lack}, and llmtui's own engine runs on the CPU; the numbers are estimates for \
             other trainers, such as PEFT with bitsandbytes"
        ),
        fits: false,
        ..on_processor(request, "")
    }
}

/// What PyTorch's ranks cannot do of it. A spec is asked itself; a model alone is asked here.
fn lacks(request: &Request) -> Option<String> {
    if let Some(words) = &request.torch_refuses {
        return Some(words.clone());
    }
    let what = if request.base != BaseFormat::Whole || request.extras.packed_bytes.is_some() {
        "quantized bases"
    } else if !request
        .update
        .config()
        .is_some_and(|config| config.optimizer.on_torch())
    {
        "optimizers other than adamw, adamw8bit, lion and muon"
    } else {
        return None;
    };
    Some(format!(
        "PyTorch ranks (engine: torch) do not support {what} yet"
    ))
}

/// One way to put it on GPUs.
#[derive(Debug, Clone, Copy)]
struct Placement {
    n: u64,
    shares: bool,
    recomputes: bool,
}

fn on_gpus(request: &Request, gpus: &Gpus) -> EngineChoice {
    let have = gpus.count.unwrap_or(1).min(MOST);
    let candidates = candidates(request, have);
    let whole = plan(&there(request, gpus, candidates[0])).p90_bytes();
    let place = place(gpus, have);
    let found = candidates.into_iter().find_map(|placement| {
        let planned = plan(&there(request, gpus, placement));
        let fits = planned.verdict() == Some(Verdict::Fits);
        fits.then(|| (placement, planned.p90_bytes()))
    });
    let Some((placement, needs)) = found else {
        return on_too_few(request, &place, whole);
    };
    EngineChoice {
        engine: "torch",
        gpus: placement.n,
        shard: Some(if placement.shares { "fsdp2" } else { "ddp" }),
        recomputes: placement.recomputes,
        settings: settings(placement),
        why: reason(placement, &place, whole, needs) + &remarks(placement, request, gpus, have),
        needs_bytes: needs,
        fits: placement.n <= have || !gpus.here,
    }
}

/// The ways to look at: first on the GPUs that are there, then on the fewest that would do.
fn candidates(request: &Request, have: u64) -> Vec<Placement> {
    let can_recompute = request.checkpointing == Checkpointing::Off;
    let both = |n: u64, shares: bool| {
        [false, true]
            .into_iter()
            .filter(move |again| !again || can_recompute)
            .map(move |recomputes| Placement {
                n,
                shares,
                recomputes,
            })
    };
    let mut all: Vec<Placement> = both(have, false).collect();
    if have > 1 {
        all.extend(both(have, true));
    }
    let more = [2, 4, 8, 16, 32, MOST].into_iter().filter(|n| *n > have);
    all.extend(more.flat_map(|n| both(n, true)));
    all
}

/// `2 GPUs here (NVIDIA H100 of 80 GiB)`
fn place(gpus: &Gpus, have: u64) -> String {
    let many = match have {
        1 => "one GPU".to_string(),
        n => format!("{n} GPUs"),
    };
    let here = if gpus.here { " here" } else { "" };
    format!("{many}{here} ({} of {})", gpus.name, capacity(gpus.memory))
}

/// What fits in no way: `whole` bytes on one GPU.
fn on_too_few(request: &Request, place: &str, whole: u64) -> EngineChoice {
    let too_large = format!("{place}: {} do not fit on one", human::bytes(whole));
    let placement = Placement {
        n: MOST,
        shares: true,
        recomputes: request.checkpointing == Checkpointing::Off,
    };
    EngineChoice {
        engine: "torch",
        gpus: placement.n,
        shard: Some("fsdp2"),
        recomputes: placement.recomputes,
        settings: settings(placement),
        why: format!("{too_large}, nor sharded over {MOST}: use adapters or a smaller model"),
        needs_bytes: whole,
        fits: false,
    }
}

/// How it fits: each GPU needs `needs` bytes, one alone would need `whole`.
fn reason(placement: Placement, place: &str, whole: u64, needs: u64) -> String {
    let needs = human::bytes(needs);
    let fit = match (placement.shares, placement.n) {
        (false, 1) => format!(
            "{place} holds the whole run: {needs}, margin included, as PyTorch's rank keeps it"
        ),
        (false, _) => {
            format!("{place}: each has the whole model with {needs}, data parallel (ddp)")
        }
        (true, n) => format!(
            "{place}: the whole model would take {} on one; sharded over {n} (fsdp2) each takes {needs}",
            human::bytes(whole)
        ),
    };
    let recomputed = match placement.recomputes {
        true => ", with activations recomputed",
        false => "",
    };
    fit + recomputed
}

/// What is left to do: rows for every rank, and GPUs that are not there.
fn remarks(placement: Placement, request: &Request, gpus: &Gpus, have: u64) -> String {
    let mut remarks = String::new();
    let rows = request.micro_batch;
    if request.estimator == Estimator::Engine && rows < placement.n {
        remarks.push_str(&format!(
            "; train.micro_batch_size {rows} is split over them: set it to {} or more",
            placement.n
        ));
    }
    if placement.n > have {
        remarks.push_str(match gpus.here {
            true => "; this machine has fewer",
            false => "; set the number with --gpus",
        });
    }
    remarks
}

fn settings(placement: Placement) -> String {
    let mut words = String::from("-s engine=torch");
    if placement.shares {
        words.push_str(" -s engine.torch.shard=fsdp2");
    }
    if placement.recomputes {
        words.push_str(" -s train.activation_checkpointing=full");
    }
    words
}

/// The request as PyTorch's ranks hold it, each with a share of the rows.
fn there(request: &Request, gpus: &Gpus, placement: Placement) -> Request {
    let own = request.estimator == Estimator::Engine;
    let device = Device::limit(&gpus.name, Some(gpus.memory));
    let mut there = as_ranks(request, device, placement.shares);
    there.n_devices = placement.n;
    there.zero = if placement.shares { 3 } else { 0 };
    // Of a model by itself each GPU has a micro-batch.
    if own || request.extras.ranks.is_some() {
        there.micro_batch = request.all_rows().div_ceil(placement.n).max(1);
    }
    if placement.recomputes {
        there.checkpointing = Checkpointing::Full;
    }
    there
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{models, reference_request, target};
    use crate::spec::SpecSources;

    fn spec(words: &[&str]) -> Request {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        target::resolve("quickstart", &words, &SpecSources::default()).unwrap()
    }

    fn gpus(gb: u64, count: Option<u64>, here: bool) -> Gpus {
        Gpus {
            name: "H100".into(),
            memory: gb * 1_000_000_000,
            count,
            here,
        }
    }

    #[test]
    fn without_a_gpu_the_own_engine_trains() {
        let choice = choose(&spec(&[]), None).unwrap();
        assert_eq!(
            (choice.engine, choice.gpus, choice.shard),
            ("candle", 0, None)
        );
        assert!(choice.settings.is_empty() && choice.why.contains("no GPU"));
        // Of a reference model without a device nothing can be said.
        let model = reference_request(models::find("llama-2-7b").unwrap());
        assert_eq!(choose(&model, None), None);
    }

    #[test]
    fn a_quantized_base_on_a_gpu_is_trained_by_no_engine_here() {
        let quantized = Request {
            base: BaseFormat::ALL
                .iter()
                .find(|(word, _)| *word == "nf4")
                .unwrap()
                .1,
            ..reference_request(models::find("llama-2-7b").unwrap())
        };
        let choice = choose(&quantized, Some(&gpus(24, None, false))).unwrap();
        assert_eq!(
            (choice.engine, choice.gpus, choice.fits),
            ("none", 0, false)
        );
        assert!(
            choice.why.contains("do not support quantized bases yet"),
            "{}",
            choice.why
        );
        assert!(
            choice.why.contains("estimates for other trainers"),
            "{}",
            choice.why
        );
    }

    #[test]
    fn ranks_train_experts_latent_attention_mamba_2_and_gpt_oss() {
        for model in ["granite-4.0-h-1b", "deepseek-v2-lite", "gpt-oss-20b"] {
            let request = reference_request(models::find(model).unwrap());
            let choice = choose(&request, Some(&gpus(80, None, false))).unwrap();
            assert_eq!((choice.engine, choice.fits), ("torch", true), "{model}");
        }
    }

    #[test]
    fn what_fits_one_gpu_is_held_whole_by_each() {
        let one = choose(&spec(&[]), Some(&gpus(80, Some(1), true))).unwrap();
        assert_eq!((one.engine, one.gpus, one.shard), ("torch", 1, Some("ddp")));
        assert_eq!(one.settings, "-s engine=torch");
        assert!(
            one.fits && one.why.starts_with("one GPU here (H100 of 80 GB"),
            "{}",
            one.why
        );
        let two = choose(&spec(&[]), Some(&gpus(80, Some(2), true))).unwrap();
        assert_eq!((two.gpus, two.shard), (2, Some("ddp")));
        let narrow = choose(
            &spec(&["micro_batch_size=2"]),
            Some(&gpus(80, Some(8), true)),
        )
        .unwrap();
        assert!(
            narrow.why.contains("train.micro_batch_size 2 is split"),
            "{}",
            narrow.why
        );
    }

    #[test]
    fn what_no_single_gpu_holds_is_shared_among_the_fewest_that_do() {
        // 6.7 billion parameters of 16 bytes are 108 GB.
        let model = reference_request(models::find("llama-2-7b").unwrap());
        let open = choose(&model, Some(&gpus(80, None, false))).unwrap();
        assert_eq!(
            (open.engine, open.gpus, open.shard),
            ("torch", 2, Some("fsdp2"))
        );
        assert_eq!(open.settings, "-s engine=torch -s engine.torch.shard=fsdp2");
        assert!(open.fits && open.needs_bytes < 80_000_000_000);
        let small = choose(&model, Some(&gpus(24, Some(1), true))).unwrap();
        assert!(
            small.gpus == 16 && !small.fits && small.why.contains("has fewer"),
            "{small:?}"
        );
        // The next smaller number is not enough.
        let eight = Placement {
            n: 8,
            shares: true,
            recomputes: false,
        };
        let planned = plan(&there(&model, &gpus(24, Some(1), true), eight));
        assert_ne!(planned.verdict(), Some(Verdict::Fits));
        let eight = choose(&model, Some(&gpus(80, Some(8), true))).unwrap();
        assert_eq!(
            (eight.gpus, eight.shard, eight.fits),
            (8, Some("fsdp2"), true)
        );
        let none = choose(&model, Some(&gpus(2, Some(1), true))).unwrap();
        assert!(
            !none.fits && none.why.contains("nor sharded over 64"),
            "{none:?}"
        );
    }

    /// Two ranks have half of the rows each, whatever number was planned before.
    #[test]
    fn ranks_of_a_spec_share_its_rows_among_as_many_as_are_tried() {
        let h100 = crate::plan::gpus::find("h100").unwrap();
        let asked = spec(&[
            "engine=torch",
            "engine.torch.ranks=1",
            "micro_batch_size=12",
        ]);
        let request = crate::plan::ranks::on_gpus_named(asked, h100, 1);
        for (n, rows) in [(1, 12), (2, 6), (8, 2)] {
            let placement = Placement {
                n,
                shares: n > 1,
                recomputes: false,
            };
            let there = there(&request, &gpus(80, None, false), placement);
            assert_eq!((there.micro_batch, there.n_devices), (rows, n));
        }
    }

    #[test]
    fn activations_are_recomputed_before_more_gpus_are_asked_for() {
        let long = spec(&["seq_len=4096", "micro_batch_size=64"]);
        let memory = |recomputes| {
            let placement = Placement {
                n: 1,
                shares: false,
                recomputes,
            };
            plan(&there(&long, &gpus(80, Some(1), true), placement)).p90_bytes()
        };
        let between = Gpus {
            memory: memory(true).midpoint(memory(false)),
            ..gpus(80, Some(1), true)
        };
        let choice = choose(&long, Some(&between)).unwrap();
        assert_eq!((choice.gpus, choice.shard), (1, Some("ddp")));
        assert!(
            choice.settings.ends_with("activation_checkpointing=full"),
            "{choice:?}"
        );
    }

    #[test]
    fn what_ranks_cannot_do_stays_on_the_processor_with_the_reason() {
        let here = gpus(80, Some(1), true);
        for (words, phrase) in [
            (
                &["optimizer=soap"][..],
                "adamw, adamw8bit, lion and muon only",
            ),
            (&["optimizer=sophia"], "not sophia"),
        ] {
            let choice = choose(&spec(words), Some(&here)).unwrap();
            assert_eq!((choice.engine, choice.gpus), ("candle", 0));
            assert!(choice.why.contains(phrase), "{}", choice.why);
        }
    }

    #[test]
    fn gpus_of_a_machine_count_as_the_smallest() {
        let gpu = |name: &str, gb: u64| GpuSummary {
            name: name.into(),
            memory_bytes: gb << 30,
        };
        let seen = Gpus::of(&[gpu("A", 80), gpu("B", 24)]).unwrap();
        assert_eq!((seen.memory, seen.count), (24 << 30, Some(2)));
        assert_eq!(Gpus::of(&[]), None);
    }
}
