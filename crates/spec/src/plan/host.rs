//! Main memory of a run on GPU ranks of PyTorch: the engine that drives them keeps a copy of weights and moments, from which it writes
//! checkpoints, and offloaded shares lie beside it. The processes of the ranks themselves, PyTorch's libraries, are not in it.

use super::engine;
use super::ledger::{Ledger, Part};
use super::request::{Estimator, ReferencePlan, Request};
use super::scheme::bytes_per_param;
use crate::base::human::short;

/// What this machine holds at least; `None` where no ranks of GPUs train.
pub fn ledger(request: &Request) -> Option<Ledger> {
    let ranks = request.extras.ranks?;
    if request.estimator != Estimator::General {
        return None;
    }
    let mut ledger = Ledger::default();
    let n = request.arch.n_params() as f64;
    let trained = request.n_trainable() as f64;
    let how = format!("the engine's copy: {} parameters × 4 B", short(n));
    ledger.add(Part::Weights, 4.0 * n, how);
    let of_trained = |bytes: f64| format!("{} trained parameters × {bytes} B", short(trained));
    if request.lora.is_some() {
        ledger.add(Part::Adapters, 4.0 * trained, of_trained(4.0));
    }
    let moments = request.update.engine_bytes();
    let moments = (moments * 100.0).round() / 100.0;
    ledger.add(Part::Optimizer, moments * trained, of_trained(moments));
    let critic = engine::critic_bytes(request);
    if critic > 0 {
        let how = "the engine's copy: weights and moments of a second model";
        ledger.add(Part::Critic, critic as f64, how);
    }
    if let Some(teacher) = request.teacher() {
        let how = format!(
            "the engine's copy: {} frozen parameters × 4 B",
            short(teacher.params as f64)
        );
        ledger.add(Part::Teacher, 4.0 * teacher.params as f64, how);
    }
    if request.saves_reference() {
        let is = match request.extras.moves_reference {
            true => "the reference that moves",
            false => "the policy after the cold start, for checkpoints",
        };
        let how = format!("{is}: {} parameters × 4 B", short(n));
        ledger.add(Part::Reference, 4.0 * n, how);
    }
    let how = format!(
        "the largest part on its way from the ranks: {}",
        of_trained(4.0)
    );
    ledger.add(Part::Communication, 4.0 * trained, how);
    // Of several machines each has its share; how many ranks are on this one is not known.
    if ranks.offloaded && ranks.machines == Some(1) && !ranks.elsewhere {
        let per_param = bytes_per_param(request.precision, request.update).sum();
        let frozen = match request.lora {
            Some(_) => 4.0 * n,
            None => 4.0 * (n - trained),
        };
        let copy = match request.reference_plan() {
            ReferencePlan::Copy => 4.0 * n,
            _ => 0.0,
        };
        let taught = request.teacher().map_or(0, |teacher| 4 * teacher.params) as f64;
        let how = format!("all shares of the ranks: {}", of_trained(per_param));
        // The critic's as the engine's copy of it, with a gradient for each of its moments' numbers.
        let critic = match critic {
            0 => 0.0,
            bytes => bytes as f64 + 4.0 * trained,
        };
        let bytes = per_param * trained + frozen + copy + taught + critic;
        ledger.add(Part::Offloaded, bytes, how);
    }
    engine::around(request, &mut ledger);
    Some(ledger)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::GpuSummary;
    use crate::plan::ranks::on_ranks;
    use crate::plan::{plan, target};

    fn of(set: &[&str], gpus: usize) -> (Ledger, Request) {
        let set: Vec<String> = set.iter().map(ToString::to_string).collect();
        let request = target::resolve("quickstart", &set, &Default::default()).unwrap();
        let gpu = GpuSummary {
            name: "H100".into(),
            memory_bytes: 80 << 30,
        };
        let request = on_ranks(request, &vec![gpu; gpus]);
        (plan(&request).host.unwrap(), request)
    }

    #[test]
    fn the_engine_holds_weights_moments_and_what_is_on_its_way() {
        let (ledger, request) = of(&["engine=torch"], 2);
        let n = request.arch.n_params();
        assert_eq!(ledger.states(), 12 * n);
        assert_eq!(ledger.bytes(Part::Communication), 4 * n);
        assert_eq!(ledger.bytes(Part::Offloaded), 0);
        let (ledger, request) = of(&["engine=torch", "adapter.lora.rank=4"], 2);
        let trained = request.n_trainable();
        assert_eq!(ledger.states(), 4 * request.arch.n_params() + 12 * trained);
    }

    /// The reference that a cold start made is written with each checkpoint.
    #[test]
    fn the_reference_of_a_cold_start_is_kept_by_the_engine_too() {
        let reference = |set: &[&str]| {
            let set = [&["engine=torch", "method.grpo.beta=0.1"], set].concat();
            let set: Vec<String> = set.iter().map(ToString::to_string).collect();
            let request = target::resolve("grpo-sort", &set, &Default::default()).unwrap();
            let gpu = GpuSummary {
                name: "H100".into(),
                memory_bytes: 80 << 30,
            };
            let planned = plan(&on_ranks(request, &[gpu]));
            let bytes = planned.host.unwrap().bytes(Part::Reference);
            (bytes, planned.request.arch.n_params())
        };
        let (kept, n) = reference(&[]);
        assert_eq!(kept, 4 * n);
        assert_eq!(reference(&["rollout.cold_start_steps=0"]).0, 0);
    }

    /// A second model with moments here, and with a gradient among the offloaded shares; on the GPU under adapters with a base of its own.
    #[test]
    fn a_separate_critic_is_held_here_and_on_the_ranks() {
        let planned = |set: &[&str]| {
            let set = [&["engine=torch"], set].concat();
            let set: Vec<String> = set.iter().map(ToString::to_string).collect();
            let request = target::resolve("ppo-demo", &set, &Default::default()).unwrap();
            let gpu = GpuSummary {
                name: "H100".into(),
                memory_bytes: 80 << 30,
            };
            plan(&on_ranks(request, &[gpu]))
        };
        let whole = planned(&[]);
        let n = whole.request.arch.n_params();
        let here = whole.host.unwrap().bytes(Part::Critic);
        assert!((11 * n..13 * n).contains(&here), "{here} of {n}");
        assert!(whole.memory.bytes(Part::Critic) >= 16 * n);
        let none = [
            "method.ppo.critic=shared",
            "method.ppo.critic_warmup_steps=0",
        ];
        assert_eq!(planned(&none).host.unwrap().bytes(Part::Critic), 0);
        let lora = planned(&[
            "adapter.lora.rank=4",
            "train.precision=f32",
            "method.ppo.beta=0",
            "method.ppo.kl_target=null",
        ]);
        let trained = lora.request.n_trainable();
        assert_eq!(lora.memory.bytes(Part::Critic), 4 * n + 16 * trained);
        let offload = ["engine.torch.shard=fsdp2", "engine.torch.offload=true"];
        let there = planned(&offload);
        assert_eq!(there.memory.bytes(Part::Critic), 0);
        let shares = there.host.unwrap().bytes(Part::Offloaded);
        assert!((34 * n..38 * n).contains(&shares), "{shares} of {n}");
    }

    #[test]
    fn offloaded_shares_of_all_ranks_lie_beside_it() {
        let offload = [
            "engine=torch",
            "engine.torch.shard=fsdp2",
            "engine.torch.offload=true",
        ];
        for gpus in [1, 2] {
            let (ledger, request) = of(&offload, gpus);
            assert_eq!(ledger.bytes(Part::Offloaded), 16 * request.arch.n_params());
        }
    }

    /// c_fc and c_proj of four blocks, 128 by 512.
    #[test]
    fn frozen_parts_lie_in_main_memory_as_weights_alone() {
        let frozen = 4 * 2 * 128 * 512;
        let freeze = ["engine=torch", "train.freeze=[mlp]"];
        let (ledger, request) = of(&freeze, 1);
        let n = request.arch.n_params();
        assert_eq!(ledger.states(), 12 * n - 8 * frozen);
        // The rank has what matmuls round in bf16.
        let rank = plan(&request).memory;
        assert_eq!(rank.bytes(Part::Weights), 4 * n - 2 * frozen);
        assert_eq!(rank.bytes(Part::Gradients), 4 * (n - frozen));
        let mut sharded = freeze.to_vec();
        sharded.extend(["engine.torch.shard=fsdp2", "engine.torch.offload=true"]);
        let (ledger, _) = of(&sharded, 2);
        assert_eq!(ledger.bytes(Part::Offloaded), 16 * n - 12 * frozen);
    }

    #[test]
    fn a_run_without_ranks_has_one_memory() {
        let request = target::resolve("quickstart", &[], &Default::default()).unwrap();
        assert_eq!(plan(&request).host, None);
    }
}
