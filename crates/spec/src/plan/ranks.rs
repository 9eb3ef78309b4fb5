//! A spec that ranks of PyTorch train (`engine: torch`), planned for the GPUs of a machine: what `assets/torch_worker` keeps in each.

use super::gpus;
use super::request::{Device, Logits, Ranks, Request};
use super::scheme::Precision;
use super::target::on_gpu;
use crate::base::finding::Finding;
use crate::hardware::GpuSummary;
use crate::nn;
use crate::spec::uneven_rows;

/// Elements of logits that a rank has at once (`MOST_LOGITS` of the worker's decoder).
const MOST_LOGITS: u64 = 1 << 26;

/// The request on the ranks' GPUs; unchanged where the spec has no ranks, or they compute on the processor.
///
/// Ranks beyond the GPUs there are, and those of machines beside this one, get one like those; without any GPU in sight, or where this machine has
/// no rank, its memory and speed are unknown.
pub fn on_ranks(request: Request, machine: &[GpuSummary]) -> Request {
    let elsewhere = request.extras.ranks.is_some_and(|ranks| ranks.elsewhere);
    let machine = if elsewhere { &[] } else { machine };
    let Some(ranks) = request
        .extras
        .ranks
        .filter(|ranks| ranks.use_gpus(machine.len()))
    else {
        return request;
    };
    let device = device_of(machine);
    let rows = request.all_rows();
    let mut request = on_gpu(request, device);
    request.extras.ranks = Some(Ranks {
        rows: Some(rows),
        ..ranks
    });
    request.n_devices = ranks.count(machine.len());
    // The rows of a micro-batch are shared among the ranks.
    request.micro_batch = rows.div_ceil(request.n_devices);
    request.zero = if ranks.sharded && request.n_devices > 1 {
        3
    } else {
        0
    };
    with_rank_dtypes(request)
}

/// The request on a GPU like those of a machine.
pub fn on_gpus_here(request: Request, machine: &[GpuSummary]) -> Request {
    on_gpu(request, device_of(machine))
}

/// Number formats and logits as a rank holds them.
fn with_rank_dtypes(mut request: Request) -> Request {
    request.precision = match request.extras.ranks {
        Some(ranks) if !ranks.bf16 => Precision::Fp32,
        _ => Precision::Fp32Bf16Matmuls,
    };
    request.logits = Logits::Chunked((MOST_LOGITS / request.arch.vocab_size().max(1)).max(1));
    request.assume();
    request
}

/// The request on GPUs as ranks would hold it, whether it has ranks or not.
pub(super) fn as_ranks(request: &Request, device: Device, sharded: bool) -> Request {
    let ranks = request.extras.ranks.unwrap_or(Ranks {
        count: None,
        rows: None,
        machines: Some(1),
        elsewhere: false,
        sharded,
        offloaded: false,
        gpus_allowed: true,
        gpus_asked: false,
        bf16: request.extras.asked != nn::Precision::F32,
        compiled: None,
        worth_compiling: u64::MAX,
    });
    let mut request = on_gpu(request.clone(), device);
    request.extras.ranks = Some(Ranks {
        sharded,
        offloaded: ranks.offloaded && sharded,
        ..ranks
    });
    with_rank_dtypes(request)
}

/// The request on `count` GPUs of the table (`plan --gpu`): those of its ranks where it has some, else of a typical trainer.
pub fn on_gpus_named(request: Request, gpu: &gpus::Gpu, count: u64) -> Request {
    let device = Device::of(gpu);
    match request.extras.ranks.filter(|ranks| ranks.use_gpus(1)) {
        None => on_gpu(request, device),
        Some(ranks) => {
            let mut request = request;
            // Wherever they are, their GPUs are known now.
            request.extras.ranks = Some(Ranks {
                elsewhere: false,
                ..ranks
            });
            let one = GpuSummary {
                name: gpu.name.into(),
                memory_bytes: device.memory.unwrap_or(0),
            };
            let mut request = on_ranks(request, &vec![one; count.max(1) as usize]);
            request.device = device;
            request
        }
    }
}

/// How many ranks a planned request has, where that is known: without GPUs in sight their number may be another.
pub(super) fn known(request: &Request) -> Option<u64> {
    let ranks = request.extras.ranks?;
    // On processors they are as many as the spec says.
    if ranks.rows.is_none() {
        return ranks.count;
    }
    let known = ranks.count.is_some() || request.device.memory.is_some();
    known.then_some(request.n_devices)
}

/// What is lost where ranks cannot share the rows of a micro-batch evenly; `None` where they can.
pub(super) fn uneven(request: &Request) -> Option<Finding> {
    uneven_rows(request.micro_rows(), known(request)?)
}

/// Whether there is a GPU for every rank of a planned request, with so many in sight on each of its machines.
pub(super) fn have_gpus(request: &Request, in_sight: usize) -> bool {
    let ranks = request.extras.ranks;
    ranks.is_none_or(|ranks| ranks.have_gpus(request.n_devices, in_sight))
}

/// The GPU that every rank has at least: the smallest of the machine.
fn device_of(machine: &[GpuSummary]) -> Device {
    let Some(smallest) = machine.iter().min_by_key(|gpu| gpu.memory_bytes) else {
        return Device::limit("a GPU", None);
    };
    let known = gpus::find(&smallest.name).map(Device::of);
    Device {
        name: smallest.name.clone(),
        memory: Some(smallest.memory_bytes),
        ..known.unwrap_or_else(|| Device::limit("", None))
    }
}

impl Ranks {
    /// Whether they compute on GPUs, with so many in sight; other machines may have some where this one has none.
    fn use_gpus(&self, in_sight: usize) -> bool {
        self.gpus_asked
            || (self.gpus_allowed && (in_sight > 0 || self.elsewhere || self.machines != Some(1)))
    }

    /// How many, with so many GPUs in sight on each machine; at least one on each.
    pub fn count(&self, in_sight: usize) -> u64 {
        let all = in_sight.max(1) as u64 * self.machines.unwrap_or(1);
        self.count.unwrap_or(all).max(1)
    }

    /// Whether there is a GPU for each of `count`, with so many in sight; yes where the others' are not known.
    fn have_gpus(&self, count: u64, in_sight: usize) -> bool {
        match self.machines {
            _ if self.elsewhere => true,
            Some(1) => count <= in_sight as u64,
            Some(n) => in_sight == 0 || count <= n * in_sight as u64,
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan;
    use crate::plan::request::{Method, TeacherModel};
    use crate::plan::target::resolve;
    use crate::plan::{Estimator, Part};
    use crate::spec::SpecSources;

    fn h100s(n: usize) -> Vec<GpuSummary> {
        let gpu = GpuSummary {
            name: "NVIDIA H100 80GB HBM3".into(),
            memory_bytes: 85_520_809_984,
        };
        vec![gpu; n]
    }

    fn asked(set: &[&str]) -> Request {
        let set: Vec<String> = set.iter().map(ToString::to_string).collect();
        let sources = SpecSources {
            config_dir: None,
            project_dir: std::env::temp_dir().join("llmtui-no-such-folder"),
            ..SpecSources::default()
        };
        resolve(
            "size-100m",
            &[set, vec!["model.vocab_size=32000".into()]].concat(),
            &sources,
        )
        .unwrap()
    }

    #[test]
    fn ranks_share_the_micro_batch_and_each_holds_f32_states() {
        let request = asked(&[
            "engine=torch",
            "train.micro_batch_size=16",
            "train.grad_accum_steps=2",
        ]);
        let (tokens, batch) = (request.tokens, request.batch_tokens());
        let request = on_ranks(request, &h100s(8));
        assert_eq!(request.estimator, Estimator::General);
        assert_eq!(
            (request.n_devices, request.micro_batch, request.zero),
            (8, 2, 0)
        );
        assert_eq!((request.tokens, request.batch_tokens()), (tokens, batch));
        let n = request.arch.n_params();
        let planned = plan(&request);
        let part = |part| planned.memory.bytes(part);
        // Weights, gradients and two moments in f32 (docs/torch.md).
        assert_eq!(part(Part::Weights), 4 * n);
        assert_eq!(part(Part::Gradients), 4 * n);
        assert_eq!(part(Part::Optimizer), 8 * n);
        // Eight H100 at 40 % MFU, 6·N·D.
        let hours = 6.0 * n as f64 * tokens as f64 / (8.0 * 989e12 * 0.4) / 3600.0;
        assert!((planned.work.hours.unwrap() / hours - 1.0).abs() < 1e-9);
        assert!((planned.work.cost.unwrap() / (hours * 8.0 * 3.0) - 1.0).abs() < 1e-9);
    }

    /// 40 steps of `size-100m` with 16 rows of 1,024 tokens on an H200 (PyTorch 2.11, driver 580): NVML gave the rank 8.56 GiB; compiled
    /// 7.39 GiB. In f32 the largest sum of PyTorch's allocator alone was, of 30 layers of 576 features with 4 rows, 7.14 GiB.
    #[test]
    fn the_plan_is_near_what_a_gpu_was_seen_to_hold() {
        let gib = |request: Request| plan(&request).memory.steady() as f64 / (1u64 << 30) as f64;
        let request = asked(&[
            "engine=torch",
            "train.micro_batch_size=16",
            "train.grad_accum_steps=1",
        ]);
        let planned = gib(on_ranks(request, &h100s(1)));
        assert!((7.39..8.56 * 1.05).contains(&planned), "{planned}");
        let request = asked(&[
            "engine=torch",
            "train.precision=f32",
            "train.micro_batch_size=4",
            "train.grad_accum_steps=1",
            "model.n_layer=30",
            "model.d_model=576",
            "model.n_head=9",
            "model.n_kv_head=3",
            "model.d_ff=1536",
            "model.vocab_size=49152",
        ]);
        let context = 1e9 / (1u64 << 30) as f64;
        let planned = gib(on_ranks(request, &h100s(1))) - context;
        assert!((7.14 * 0.9..7.14 * 1.15).contains(&planned), "{planned}");
    }

    #[test]
    fn a_frozen_base_is_held_as_matmuls_take_it() {
        let lora = ["engine=torch", "adapter.lora.rank=8"];
        let weights = |more: &[&str]| {
            let request = on_ranks(asked(&[&lora[..], more].concat()), &h100s(2));
            let (n, kept) = (request.arch.n_params(), request.arch.kept_in_16_bit());
            (plan(&request).memory.bytes(Part::Weights), n, kept)
        };
        let (bf16, n, kept) = weights(&["engine.torch.ranks=1"]);
        assert_eq!(bf16, 2 * (n - kept) + 4 * kept);
        let (f32, n, _) = weights(&["engine.torch.ranks=1", "train.precision=f32"]);
        assert_eq!(f32, 4 * n);
        // A share of a block has one format.
        let (shared, n, _) = weights(&["engine.torch.shard=fsdp2"]);
        assert_eq!(shared, 2 * n);
    }

    /// A teacher of 10 million parameters, of which a fifth is outside of blocks, and as many tokens as the student has.
    #[test]
    fn a_teacher_is_held_whole_or_in_shares_and_its_logits_take_half_of_a_chunk() {
        let planned = |set: &[&str], gpus: usize| {
            let mut request = asked(&[&["engine=torch"], set].concat());
            request.method = Method::Distill;
            request.extras.teacher = TeacherModel {
                params: 10_000_000,
                outside: 2_000_000,
                tokens: 32_000,
                ..TeacherModel::default()
            };
            plan(&on_ranks(request, &h100s(gpus)))
        };
        let of = |set: &[&str], gpus: usize| {
            let planned = planned(set, gpus);
            let host = planned.host.unwrap().bytes(Part::Teacher);
            (planned.memory.bytes(Part::Teacher), host)
        };
        let host = 40_000_000;
        assert_eq!(of(&[], 1), (24_000_000, host));
        assert_eq!(of(&["train.precision=f32"], 2), (40_000_000, host));
        let shares = ["engine.torch.shard=fsdp2"];
        assert_eq!(of(&shares, 2), (20_000_000 + 8_000_000, host));
        let logits = |set: &[&str]| planned(set, 1).memory.bytes(Part::Logits);
        let rows = (1_u64 << 26) / 32_000;
        assert_eq!(logits(&[]), rows.div_ceil(2) * 32_000 * (12 + 32));
    }

    #[test]
    fn muon_has_its_largest_matrix_whole_and_a_sink_widens_heads() {
        let part = |set: &[&str], part| {
            let request = on_ranks(asked(&[&["engine=torch"], set].concat()), &h100s(1));
            let arch = request.arch.clone();
            (plan(&request).memory.bytes(part), arch)
        };
        let (muon, arch) = part(&["optimizer=muon"], Part::GradientBuffers);
        let largest = arch.d_model() * arch.shape().d_ff as u64;
        assert_eq!(muon, 20 * largest);
        assert_eq!(part(&[], Part::GradientBuffers).0, 0);
        // Its moments are one for hidden matrices.
        let (moments, _) = part(&["optimizer=muon"], Part::Optimizer);
        assert!(moments < part(&[], Part::Optimizer).0);
        let sinks = ["model.attention_sinks=true"];
        let (wide, arch) = part(&sinks, Part::Activations);
        let (plain, _) = part(&[], Part::Activations);
        assert!(arch.n_head() > 0 && wide > plain, "{wide} {plain}");
    }

    #[test]
    fn a_long_run_is_told_what_compiling_gains() {
        let told = |gpus: usize, set: &[&str]| {
            let request = on_ranks(asked(set), &h100s(gpus));
            let advice = plan(&request).advice;
            advice.iter().any(|it| it.id == "compile")
        };
        assert!(told(2, &["engine=torch"]));
        assert!(told(1, &["engine=torch", "engine.torch.compile=false"]));
        assert!(!told(2, &["engine=torch", "engine.torch.compile=true"]));
        // It is compiled by default.
        assert!(!told(1, &["engine=torch"]));
        // Compiling would take longer than what it saves.
        assert!(!told(2, &["engine=torch", "max_steps=20"]));
        assert!(!told(2, &[]));
    }

    #[test]
    fn a_batch_in_small_pieces_is_told_the_fewest_that_fit() {
        let told = |set: &[&str], gpus: usize| {
            let request = on_ranks(asked(set), &h100s(gpus));
            let found = plan(&request).advice;
            let found = found.into_iter().find(|it| it.id == "micro_batch");
            found.map(|it| it.evidence.to_string())
        };
        let batch = ["engine=torch", "micro_batch_size=4", "grad_accum_steps=6"];
        let found = told(&batch, 1).unwrap();
        let whole = "-s micro_batch_size=24 -s grad_accum_steps=1";
        assert!(found.ends_with(whole), "{found}");
        // All ranks share its rows.
        let found = told(&batch, 2).unwrap();
        assert!(found.ends_with(whole), "{found}");
        assert_eq!(told(&["engine=torch", "grad_accum_steps=1"], 1), None);
        assert_eq!(told(&batch[1..], 1), None, "the processor has no launches");
        // Rows of 2,048 tokens of a model that leaves little room.
        let tight = [
            "engine=torch",
            "model.n_layer=24",
            "model.d_model=2048",
            "model.n_head=16",
            "seq_len=2048",
            "micro_batch_size=1",
            "grad_accum_steps=64",
        ];
        let found = told(&tight, 1).unwrap();
        let rows: u64 = found
            .split_once("micro_batch_size=")
            .and_then(|(_, rest)| rest.split_once(' '))
            .unwrap()
            .0
            .parse()
            .unwrap();
        assert!((2..64).contains(&rows), "{found}");
    }

    #[test]
    fn a_gpu_of_the_table_is_planned_as_ranks_where_the_spec_has_some() {
        let h100 = gpus::find("H100").unwrap();
        let request = on_gpus_named(asked(&["engine=torch"]), h100, 2);
        assert_eq!(request.precision, Precision::Fp32Bf16Matmuls);
        assert_eq!((request.n_devices, request.micro_batch), (2, 4));
        assert_eq!(request.device.memory, Device::of(h100).memory);
        // A spec without ranks is planned for a typical trainer.
        let request = on_gpus_named(asked(&[]), h100, 2);
        assert_eq!(request.precision, Precision::Mixed);
        assert!(request.extras.ranks.is_none());
    }

    /// Another GPU is chosen for all rows again, and so is this machine.
    #[test]
    fn ranks_share_the_rows_of_a_micro_batch_once() {
        let twelve = asked(&[
            "engine=torch",
            "engine.torch.ranks=4",
            "train.micro_batch_size=12",
        ]);
        let mut request = twelve.clone();
        for gpu in ["H100", "A100", "L4"] {
            request = on_gpus_named(request, gpus::find(gpu).unwrap(), 1);
            assert_eq!(
                (request.micro_batch, request.micro_rows()),
                (3, 12),
                "{gpu}"
            );
            assert_eq!(request.batch_tokens(), twelve.batch_tokens(), "{gpu}");
        }
        // A batch that was changed meanwhile is one of each rank.
        let larger = crate::plan::solve::with_batch(&request, 5);
        let back = |request| crate::plan::target::on_engine(request, &twelve).micro_batch;
        assert_eq!((back(request), back(larger)), (12, 20));
        // A spec without ranks has its micro-batch on each GPU.
        let one = on_gpus_named(
            asked(&["micro_batch_size=12"]),
            gpus::find("H100").unwrap(),
            1,
        );
        assert_eq!(one.micro_batch, 12);
        assert_eq!(back(one), 12);
    }

    #[test]
    fn fsdp2_shares_states_and_says_so() {
        let whole = on_ranks(asked(&["engine=torch"]), &h100s(8));
        let shared = on_ranks(
            asked(&["engine=torch", "engine.torch.shard=fsdp2"]),
            &h100s(8),
        );
        let states = |request: &Request| {
            let memory = plan(request).memory;
            let parts = [Part::Weights, Part::Gradients, Part::Optimizer];
            parts.iter().map(|part| memory.bytes(*part)).sum::<u64>()
        };
        assert_eq!(shared.zero, 3);
        assert!(states(&whole).abs_diff(8 * states(&shared)) < 64);
    }

    /// Measured with saved-tensor hooks on the worker's decoder: 2 B of every weight of a block without recomputation, none with it.
    #[test]
    fn fsdp2_keeps_16_bit_copies_of_all_blocks_unless_they_are_computed_again() {
        let of = |set: &[&str]| {
            let request = on_ranks(
                asked(&[&["engine=torch", "engine.torch.shard=fsdp2"], set].concat()),
                &h100s(8),
            );
            let memory = plan(&request).memory;
            (
                memory.bytes(Part::Autocast),
                memory.bytes(Part::Communication),
                request.arch,
            )
        };
        let (kept, _, arch) = of(&[]);
        let head = arch.vocab_size() * arch.d_model();
        assert_eq!(kept, 2 * (arch.n_layer() * arch.layer_params() + head));
        let (again, gathered, arch) = of(&["train.activation_checkpointing=full"]);
        assert_eq!(again, 2 * (2 * arch.layer_params() + head));
        // What is outside of blocks stays gathered, with its gradient.
        let least = 500_000_000 + 8 * arch.kept_in_16_bit() + 8 * arch.layer_params();
        assert!(gathered >= least, "{gathered}");
        // A frozen model has no gradient there.
        let (_, frozen, arch) = of(&["adapter.lora.rank=8"]);
        let whole = 4 * (arch.kept_in_16_bit() + 2 * arch.layer_params());
        assert_eq!(frozen, 500_000_000 + whole);
    }

    #[test]
    fn offloaded_states_take_nothing_of_a_gpu_adapters_and_references_neither() {
        let offload = [
            "engine=torch",
            "engine.torch.shard=fsdp2",
            "engine.torch.offload=true",
            "train.activation_checkpointing=full",
        ];
        for (gpus, more) in [
            (1, &[][..]),
            (1, &["adapter.lora.rank=8"]),
            (2, &["adapter.lora.rank=8"]),
        ] {
            let request = on_ranks(asked(&[&offload, more].concat()), &h100s(gpus));
            let memory = plan(&request).memory;
            assert_eq!(memory.states(), 0, "{gpus} {more:?}");
            // Blocks are gathered one after the other, on one GPU too.
            let arch = &request.arch;
            let head = arch.vocab_size() * arch.d_model();
            let copies = 2 * (2 * arch.layer_params() + head);
            assert_eq!(memory.bytes(Part::Autocast), copies, "{gpus} {more:?}");
            assert!(memory.bytes(Part::Communication) > 0);
        }
        let set: Vec<String> = offload.iter().map(ToString::to_string).collect();
        let dpo = resolve("dpo-demo", &set, &SpecSources::default()).unwrap();
        let memory = plan(&on_ranks(dpo, &h100s(1))).memory;
        assert_eq!(memory.bytes(Part::Reference), 0);
    }

    #[test]
    fn each_rank_keeps_keys_and_values_of_its_own_answers() {
        let of = |set: &[&str], gpus| {
            let set: Vec<String> = set.iter().map(ToString::to_string).collect();
            let request = resolve("grpo-sort", &set, &SpecSources::default()).unwrap();
            let request = on_ranks(request, &h100s(gpus));
            let texts = request.rollouts;
            let text = request.seq_len * request.arch.kv_bytes_per_token(1);
            (plan(&request).memory.bytes(Part::Rollouts) / text, texts)
        };
        let (bf16, texts) = of(&["engine=torch"], 4);
        assert_eq!(bf16, 2 * (texts.div_ceil(4) + 1));
        let (f32, texts) = of(&["engine=torch", "train.precision=f32"], 1);
        assert_eq!(f32, 4 * (texts + 1));
    }

    #[test]
    fn rows_that_ranks_cannot_share_are_told_and_cost_time() {
        let on = |rows: &str, gpus| {
            let rows = format!("train.micro_batch_size={rows}");
            on_ranks(
                asked(&["engine=torch", &rows, "max_steps=100"]),
                &h100s(gpus),
            )
        };
        let told = |request: &Request| {
            let found = plan(request).advice;
            let found = found.into_iter().find(|it| it.fix.contains("fewer ranks"));
            found.map(|it| format!("{}; {}", it.evidence, it.fix))
        };
        let twelve = on("12", 8);
        let words = told(&twelve).unwrap();
        for part in [
            "12 over 8: 2 ranks get none",
            "25 %",
            "micro_batch_size=16; 8 or fewer ranks",
        ] {
            assert!(words.contains(part), "{part}: {words}");
        }
        assert_eq!(twelve.batch_tokens() / 12, on("16", 8).batch_tokens() / 16);
        // A step takes as long as with all places filled.
        let hours = |request: &Request| plan(request).work.hours.unwrap();
        assert!((hours(&twelve) / hours(&on("16", 8)) - 1.0).abs() < 0.01);
        let four = told(&on("4", 8)).unwrap();
        assert!(
            four.contains("4 ranks get none") && four.contains("micro_batch_size=8; fewer ranks"),
            "{four}"
        );
        assert_eq!(told(&on("16", 8)), None);
        assert_eq!(told(&on("5", 1)), None);
    }

    #[test]
    fn gpus_of_other_machines_are_not_judged_by_those_of_this_one() {
        let nodes = "engine.torch.nodes=[gpu1.example, gpu2.example]";
        let small = [GpuSummary {
            name: "NVIDIA RTX 4060 Laptop GPU".into(),
            memory_bytes: 8 << 30,
        }];
        let large = ["model.n_layer=64", "model.d_model=2048", "model.n_head=16"];
        let all = [
            &["engine=torch", nodes, "engine.torch.ranks=16"],
            &large[..],
        ]
        .concat();
        let request = on_ranks(asked(&all), &small);
        assert_eq!((request.n_devices, request.device.memory), (16, None));
        crate::plan::start::check_gpu_count(&request, 1).unwrap();
        crate::plan::start::fits(&request).unwrap();
        // One other machine has GPUs as well as two.
        let one = on_ranks(
            asked(&["engine=torch", "engine.torch.nodes=[gpu1.example]"]),
            &[],
        );
        assert_eq!((one.estimator, one.n_devices), (Estimator::General, 1));
        // With this machine among them its GPUs stand for all.
        let here = "engine.torch.nodes=[localhost, gpu2.example]";
        let request = on_ranks(asked(&["engine=torch", here]), &h100s(2));
        assert_eq!(
            (request.n_devices, request.device.memory),
            (4, Some(85_520_809_984))
        );
        // A GPU that is named is taken for theirs.
        let named = on_gpus_named(asked(&all), gpus::find("H100").unwrap(), 8);
        assert_eq!(named.n_devices, 16);
        assert!(named.device.memory.is_some());
    }

    #[test]
    fn without_gpus_the_processor_is_planned_unless_gpus_are_asked_for() {
        assert_eq!(
            on_ranks(asked(&["engine=torch"]), &[]).estimator,
            Estimator::Engine
        );
        assert_eq!(on_ranks(asked(&[]), &h100s(8)).estimator, Estimator::Engine);
        let cpu = on_ranks(
            asked(&["engine=torch", "engine.torch.device=cpu"]),
            &h100s(8),
        );
        assert_eq!(cpu.estimator, Estimator::Engine);
        let blind = on_ranks(
            asked(&[
                "engine=torch",
                "engine.torch.device=cuda",
                "engine.torch.ranks=8",
            ]),
            &[],
        );
        assert_eq!((blind.n_devices, blind.device.memory), (8, None));
        assert_eq!(plan(&blind).work.hours, None);
    }
}
