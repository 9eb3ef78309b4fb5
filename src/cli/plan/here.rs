//! This machine's part in a plan for another device: the same model on its CPU.

use super::options::{portions, trained};
use super::{Args, gpus_here, wants_trainer};
use crate::cli::{Context, probe};
use crate::plan::calibration::Machine;
use crate::plan::request::{Estimator, Request};
use crate::plan::{Plan, plan, target};

/// The plan for this machine's CPU, where the request is for another device or for none, and no GPU is here; `None` too of what
/// this program's own engine does not train.
pub fn plan_here(
    args: &Args,
    resolved: Request,
    request: &Request,
    cx: &Context,
) -> anyhow::Result<Option<Plan>> {
    let is_own = request.estimator == Estimator::Engine;
    if is_own || cx.recording()?.is_some() || !gpus_here(cx)?.is_empty() {
        return Ok(None);
    }
    // What other trainers call so is no option here.
    let args = Args {
        gpu: None,
        gpus: None,
        memory: None,
        tflops: None,
        mfu: None,
        price: None,
        quantize: None,
        zero: None,
        precision: None,
        attention: None,
        logits: None,
        lora_rank: args
            .lora_rank
            .or(args.quantize.as_ref().map(|_| QUANTIZED_RANK)),
        ..args.clone()
    };
    let own = match resolved.estimator {
        Estimator::Engine => Some(resolved),
        Estimator::General => target::own_engine(&resolved.name, resolved.arch.config()),
    };
    let Some(mut own) = own.filter(|_| !wants_trainer(&args)) else {
        return Ok(None);
    };
    let taken = trained(&args, &mut own).and_then(|()| portions(&args, &mut own));
    if taken.is_err() || own.fault().is_some() {
        return Ok(None);
    }
    own.assume();
    Machine::load_or_measure(&cx.env, probe::measure).calibrate(&mut own);
    Ok(Some(plan(&own)))
}

/// The rank of adapters that `--quantize` implies.
const QUANTIZED_RANK: u64 = 8;
