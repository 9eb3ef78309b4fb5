//! A plan as one JSON object.

use super::Context;
use crate::base::clock::Clock;
use crate::plan::calibration::Machine;
use crate::plan::changes::ladder;
use crate::plan::request::ValueSource;
use crate::plan::solve::what_fits;
use crate::plan::{Ledger, Plan};
use serde_json::{Value, json};

/// The object of `--json`.
pub fn to_json(plan: &Plan) -> Value {
    let request = &plan.request;
    let ladder = ladder(request);
    json!({
        "target": request.name,
        "params": plan.params.total(),
        "params_by_part": plan.params,
        "active_params": plan.n_active,
        "trainable_params": plan.n_trainable,
        "memory": plan.memory,
        "total": {
            "p50_bytes": plan.p50_bytes(),
            "p90_bytes": plan.p90_bytes(),
            "steady_bytes": plan.memory.steady(),
            "corrected_bytes": plan.corrected_bytes(),
        },
        "host_memory": plan.host,
        "host_bytes": plan.host.as_ref().map(Ledger::total),
        "limit_bytes": request.device.memory,
        "fits": plan.verdict().map(|v| format!("{v:?}").to_lowercase()),
        "tokens": request.tokens,
        "rollouts": request.rollout_length(),
        "prompts": request.prompts(),
        "tokens_per_param": plan.tokens_per_param,
        "predicted_loss": plan.predicted_loss,
        "flops": plan.work.flops,
        "attention_flops": plan.work.attention_flops,
        "hours": plan.work.hours,
        // Answers that end sooner than they may take less.
        "hours_at_most": request.is_timed_at_most(),
        "device_hours": plan.work.device_hours,
        "cost": plan.work.cost,
        "mfu": request.mfu,
        "price_per_hour": request.device.price_per_hour,
        "price_source": request.device.price_source.map(|p| p.words()),
        "precision": request.precision.word(),
        "checkpointing": request.checkpointing.words(),
        "device": request.device.name,
        "gpus": request.n_devices,
        "method": request.method.word(),
        "batch_tokens": request.batch_tokens(),
        "rows": {
            "tokens": request.row_tokens(),
            "places": request.row_places(),
            "assumed": request.has_unread_rows(),
        },
        "checkpoint_bytes": plan.checkpoint_bytes,
        "disk_bytes": plan.disk_bytes,
        "what_fits": what_fits(request),
        "changes": ladder.changes,
        "changes_suffice": ladder.fits,
        "advice": plan.advice,
    })
}

/// This machine's part in a plan for another device.
pub fn here_json(here: &Plan) -> Value {
    json!({
        "p50_bytes": here.p50_bytes(),
        "p90_bytes": here.p90_bytes(),
        "limit_bytes": here.request.device.memory,
        "fits": here.verdict().map(|v| format!("{v:?}").to_lowercase()),
        "batch_tokens": here.request.batch_tokens(),
        "tokens": here.request.tokens,
        "hours": here.work.hours,
    })
}

/// The measurement that the time stands on, and how old it is; null where it stands on earlier runs or an assumption.
pub fn speed_json(plan: &Plan, machine: Option<&Machine>, cx: &Context) -> Value {
    let speed = machine.and_then(|machine| machine.speed.as_ref());
    let probed = plan.request.mfu_source == ValueSource::Probed;
    let Some(speed) = speed.filter(|_| probed) else {
        return Value::Null;
    };
    json!({
        "measurements": speed.times,
        "newest_age_seconds": cx.clock.now().since(speed.newest).as_secs(),
        "f32_flops": speed.f32,
        "bf16_flops": speed.bf16,
    })
}
