//! Advice on a plan beyond its numbers. Each sentence has a source.

use super::quantity::decimal;
use super::request::{Estimator, Method, Request, Said};
use super::scaling::{BESIROGLU, TOKENS_PER_PARAM};
use super::work::Work;
use super::{Plan, Verdict};
use crate::base::human::short;
use serde::Serialize;

/// One sentence of advice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// Stable, for scripts.
    pub id: &'static str,
    pub level: Level,
    pub what: String,
    /// Paper, table or rule behind it.
    pub source: &'static str,
}

/// How much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Note,
    Warn,
    Problem,
}

/// All advice, worst first.
pub(super) fn advise(plan: &Plan) -> Vec<Advice> {
    let mut list = Vec::new();
    memory(plan, &mut list);
    if plan.request.method == Method::Pretrain {
        tokens(&plan.request, &mut list);
    }
    repeated_data(&plan.request, &mut list);
    attention(&plan.work, &mut list);
    assumptions(plan, &mut list);
    list.sort_by_key(|advice| std::cmp::Reverse(advice.level as u8));
    list
}

fn memory(plan: &Plan, list: &mut Vec<Advice>) {
    let Some(limit) = plan.request.device.memory else {
        return;
    };
    let (p50, p90) = (plan.p50_bytes(), plan.p90_bytes());
    let source = "planning margin: p90 = 1.15 × the sum of the parts (1.10 × for this engine)";
    match plan.verdict() {
        Some(Verdict::TooLarge) => list.push(Advice {
            id: "too_large",
            level: Level::Problem,
            what: format!(
                "needs {} and {} has {}: see the ladder of changes",
                decimal(p50),
                plan.request.device.name,
                decimal(limit)
            ),
            source,
        }),
        Some(Verdict::Tight) => list.push(Advice {
            id: "tight",
            level: Level::Warn,
            what: format!(
                "probably fits ({} of {}), but a long batch or fragmentation may exhaust it: leave 10 to 15 % free",
                decimal(p50),
                decimal(limit)
            ),
            source,
        }),
        Some(Verdict::Fits) if plan.request.estimator == Estimator::General && p90 * 2 < limit => {
            list.push(Advice {
                id: "room",
                level: Level::Note,
                what: "less than half of the memory is used: a larger micro-batch is faster".into(),
                source: "throughput grows with the micro-batch until compute, not memory, is the bottleneck",
            });
        }
        _ => {}
    }
}

/// Token count against Chinchilla.
fn tokens(request: &Request, list: &mut Vec<Advice>) {
    let n = request.arch.n_active() as f64;
    let ratio = request.tokens as f64 / n;
    let best = TOKENS_PER_PARAM * n;
    let source = "Hoffmann et al. 2022, arXiv 2203.15556; Besiroglu et al. 2024, arXiv 2404.10102";
    if ratio < 5.0 {
        let (small, _) = BESIROGLU.optimal(6.0 * n * request.tokens as f64);
        // The fit used models from 44M to 16B: it does not apply to toys.
        let remedy = match small {
            small if small > 1e7 => format!(
                "a model of about {} reaches a lower loss with the same FLOPs",
                short(small)
            ),
            _ => "more text, or a smaller model, would use the time better".into(),
        };
        list.push(Advice {
            id: "few_tokens",
            level: Level::Warn,
            what: format!(
                "{} tokens per parameter, {} times below 20 ({} tokens): {remedy}",
                two_digits(ratio),
                two_digits(TOKENS_PER_PARAM / ratio),
                short(best)
            ),
            source,
        });
    } else if ratio > 100.0 {
        list.push(Advice {
            id: "many_tokens",
            level: Level::Note,
            what: format!(
                "{} tokens per parameter, far above 20: right for a model with heavy inference use, expensive for its loss",
                two_digits(ratio)
            ),
            source,
        });
    }
}

fn repeated_data(request: &Request, list: &mut Vec<Advice>) {
    let Some(epoch) = request.extras.epoch_tokens.filter(|t| *t > 0) else {
        return;
    };
    let epochs = request.tokens as f64 / epoch as f64;
    if epochs > 4.5 {
        list.push(Advice {
            id: "repeated_data",
            level: Level::Warn,
            what: format!(
                "{} epochs over the same {} tokens: up to 4 are nearly as good as new text, later ones less and less",
                two_digits(epochs),
                short(epoch as f64)
            ),
            source: "Muennighoff et al. 2023, arXiv 2305.16264",
        });
    }
}

fn attention(work: &Work, list: &mut Vec<Advice>) {
    let share = work.attention_flops / (work.flops + work.attention_flops);
    if share > 0.15 {
        list.push(Advice {
            id: "attention_share",
            level: Level::Note,
            what: format!("attention adds {:.0} % to the FLOPs at this length", 100.0 * share),
            source: "12 · layers · width · length FLOPs per token (PaLM, arXiv 2204.02311, appendix B)",
        });
    }
}

fn assumptions(plan: &Plan, list: &mut Vec<Advice>) {
    let request = &plan.request;
    if request.tokens_said == Said::Assumed {
        let what = match request.method {
            Method::Pretrain => "token count assumed: 20 per parameter; set it with --tokens",
            _ => "token count assumed: 10,000 examples of this length; set it with --tokens",
        };
        list.push(Advice {
            id: "assumed_tokens",
            level: Level::Note,
            what: what.into(),
            source: "Hoffmann et al. 2022, arXiv 2203.15556",
        });
    }
    if request.mfu_said == Said::Assumed && request.device.peak_flops.is_some() {
        list.push(Advice {
            id: "assumed_mfu",
            level: Level::Note,
            what: format!(
                "time assumes {:.0} % MFU; 30 to 40 % is typical, below 30 % worth investigating; set it with --mfu",
                100.0 * request.mfu
            ),
            source: "PaLM reached 46 %, Llama 2 7B 39 %",
        });
    }
}

fn two_digits(x: f64) -> String {
    match x {
        x if x >= 10.0 => format!("{x:.0}"),
        x if x >= 1.0 => format!("{x:.1}"),
        x => format!("{x:.2}"),
    }
}
