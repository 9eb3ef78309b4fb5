//! The gate before a start, in the shell's words.

use super::exit::Failure;
use crate::base::paths::Env;
use crate::plan::quantity::binary;
use crate::plan::ranks::on_ranks;
use crate::plan::target::{DataSize, of_spec};
use crate::plan::{Estimator, Request, plan, room};
use crate::spec::{PrecisionError, RunSpec};

/// Asks the plan before anything is made: a model that cannot fit would end the process. And whether the processor has
/// what `train.precision` asks for.
///
/// # Errors
/// What is needed, what is there, the cheapest changes.
pub fn check(spec: &RunSpec, env: &Env) -> Result<(), Failure> {
    if spec.engine.torch().is_some() {
        let gpus = crate::hardware::summary(None, env).map(|machine| machine.gpus);
        let gpus = gpus.unwrap_or_default();
        let data = DataSize {
            vocab_size: room::least_vocabulary(spec),
            ..DataSize::default()
        };
        let request = on_ranks(of_spec(spec, data), &gpus);
        if request.estimator == Estimator::General {
            enough(&request, gpus.len())?;
            return fits(&request);
        }
    }
    let refused =
        |e: PrecisionError| Failure::yours(format!("train.precision: {e}"), PrecisionError::HINT);
    spec.computes_here().map_err(refused)?;
    room::check(spec, &crate::hardware::memory()).map_err(|shortage| {
        let hint =
            "a change above; llmtui plan shows every part; train --force starts all the same";
        Failure::yours(shortage.to_string(), hint)
    })
}

/// Whether there is a GPU for every rank.
///
/// # Errors
/// There are fewer.
pub fn enough(request: &Request, gpus: usize) -> Result<(), Failure> {
    if request.n_devices <= gpus as u64 {
        return Ok(());
    }
    let what = format!(
        "{}: {} ranks of PyTorch want a GPU each, and this machine has {gpus}",
        request.name, request.n_devices
    );
    let hint = "-s engine.torch.ranks=N, or -s engine.torch.device=cpu; llmtui engine check says what PyTorch sees";
    Err(Failure::yours(what, hint))
}

/// Whether a GPU holds what its rank needs; yes where its memory is unknown.
///
/// # Errors
/// It is too little, even without a margin.
pub fn fits(request: &Request) -> Result<(), Failure> {
    let needs = plan(request).p50_bytes();
    let Some(there) = request.device.memory.filter(|there| needs > *there) else {
        return Ok(());
    };
    let what = format!(
        "{} needs about {} on each of {} GPUs, and {} has {}",
        request.name,
        binary(needs),
        request.n_devices,
        request.device.name,
        binary(there)
    );
    let hint = "a smaller train.micro_batch_size, train.activation_checkpointing=full or engine.torch.shard=fsdp2; train --force starts all the same";
    Err(Failure::yours(what, hint))
}
