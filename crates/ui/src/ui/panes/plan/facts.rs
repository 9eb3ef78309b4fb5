//! The work of a plan in words: parameters, steps, tokens, rows, compute, time, cost, disk.

use crate::base::human::{self, grouped, short};
use crate::plan::request::{RowLengths, ValueSource};
use crate::plan::{Estimator, Plan, Request};

/// A label and what stands behind it.
pub(super) type Fact = (&'static str, String);

/// Everything but memory.
pub(super) fn facts(plan: &Plan) -> Vec<Fact> {
    let r = &plan.request;
    let params = grouped(plan.params.total());
    let trained = match r.lora.is_some() || r.has_frozen_parts() {
        true => format!(", {} trained", short(plan.n_trainable as f64)),
        false => String::new(),
    };
    let mut facts = vec![("parameters", format!("{params}{trained}"))];
    facts.extend(length(r));
    let per = match r.is_from_scratch() {
        true => format!("  {:.1} per parameter, best 20", plan.tokens_per_param),
        false => String::new(),
    };
    let tokens = short(r.tokens as f64);
    facts.push(("tokens", format!("{}{tokens}{per}", at_most(r))));
    facts.extend(rows(r));
    facts.push(("compute", plan.work.compute_words()));
    facts.push(("time", time(plan)));
    facts.extend(generation(plan).map(|words| ("generation", words)));
    if r.scores_on_cpu() {
        facts.push(("scoring", "on the CPU, not counted".into()));
    }
    facts.extend(plan.work.cost.map(|cost| ("cost", price(cost))));
    let kept = match plan.n_checkpoints() {
        1 => "1 checkpoint".to_string(),
        n => format!("{n} checkpoints"),
    };
    let disk = human::bytes(plan.disk_bytes);
    facts.push(("disk", format!("{disk} for {kept}")));
    facts
}

/// What a prompt and its answer may take; answers that end sooner are shorter.
fn at_most(r: &Request) -> &'static str {
    if r.method.rolls_out() { "at most " } else { "" }
}

/// Steps and prompts of a training on answers of its own.
fn length(r: &Request) -> Vec<Fact> {
    let Some(length) = r.rollout_length() else {
        return Vec::new();
    };
    // Two lines: one would be cut.
    let start = length.cold_start().map(|words| ("cold start", words));
    let prompts = r.prompts().map(|n| ("prompts", length.passes_words(n)));
    let steps = ("steps", length.learned());
    start.into_iter().chain([steps]).chain(prompts).collect()
}

fn rows(r: &Request) -> Option<Fact> {
    let words = match r.extras.rows {
        RowLengths::Full | RowLengths::Packed { filled: None } => return None,
        RowLengths::Packed {
            filled: Some(share),
        } => format!("packed, {} filled", human::percent(share, 1)),
        RowLengths::Assumed => "all full length: rows were not read".into(),
        RowLengths::Read(rows) if r.method.rolls_out() => {
            format!("of at most {:.0} tokens on average", rows.tokens)
        }
        RowLengths::Read(rows) => {
            format!("of {:.0} tokens, {:.0} padded", rows.tokens, rows.places)
        }
    };
    Some(("rows", words))
}

/// How long it takes, and how that is known.
fn time(plan: &Plan) -> String {
    let r = &plan.request;
    let Some(hours) = plan.work.hours.map(human::hours) else {
        return match r.estimator {
            Estimator::Engine => "unknown until a first run here".into(),
            _ => "choose a GPU".into(),
        };
    };
    let mfu = 100.0 * r.mfu;
    // Answers that end sooner take less.
    let at_most = if r.is_timed_at_most() { "at most " } else { "" };
    match r.mfu_source {
        ValueSource::Learned => format!("{at_most}{hours}, at the speed of earlier runs here"),
        ValueSource::Probed => format!("{} {hours}, from a matmul benchmark", r.about()),
        ValueSource::Assumed => format!("{at_most}{hours} at {mfu:.0} % MFU assumed"),
        ValueSource::Stated => format!("{at_most}{hours} at {mfu:.0} % MFU"),
    }
}

/// Its share of that time, on GPUs; in the speed of this machine it is contained.
fn generation(plan: &Plan) -> Option<String> {
    let r = &plan.request;
    plan.work.hours?;
    match plan.work.writing_share {
        Some(share) => Some(format!("{} of that time", human::percent(share, 0))),
        None => (r.estimator == Estimator::General && r.method.rolls_out())
            .then(|| "not counted: the bandwidth is unknown".into()),
    }
}

fn price(cost: f64) -> String {
    match cost {
        c if c < 100.0 => format!("${c:.2}"),
        c => format!("${}", grouped(c.round() as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::request::Method;
    use crate::plan::target::{self, on_gpu};
    use crate::plan::{Device, gpus, models, plan, reference_request};

    /// What `llmtui plan` says of the same request.
    #[test]
    fn time_on_a_gpu_says_what_generation_is_of_it() {
        let request = target::resolve("grpo-arithmetic", &[], &Default::default()).unwrap();
        let mut request = on_gpu(request, Device::of(gpus::find("h100").unwrap()));
        let said = |request: &Request, label: &str| {
            let facts = facts(&plan(request));
            let found = facts.into_iter().find(|fact| fact.0 == label);
            found.map(|fact| fact.1)
        };
        let time = said(&request, "time").unwrap();
        assert!(time.starts_with("at most ") && time.ends_with("40 % MFU assumed"), "{time}");
        let generation = said(&request, "generation").unwrap();
        assert!(generation.ends_with(" % of that time"), "{generation}");
        request.device.bandwidth = None;
        assert!(!said(&request, "time").unwrap().contains("at most"));
        let generation = said(&request, "generation").unwrap();
        assert!(generation.starts_with("not counted"), "{generation}");
        request.set_method(Method::Sft);
        assert_eq!(said(&request, "generation"), None);
    }

    #[test]
    fn frozen_parts_are_told_beside_the_parameters() {
        let mut request = reference_request(models::find("gpt2").unwrap());
        let parameters = |request: &Request| facts(&plan(request))[0].1.clone();
        assert!(!parameters(&request).contains("trained"));
        request.frozen = vec!["mlp".into()];
        let shown = parameters(&request);
        let trained = short(request.n_trainable() as f64);
        assert!(shown.ends_with(&format!(", {trained} trained")), "{shown}");
    }
}
