//! What fits: the largest micro-batch, length, rank or model that a device holds with its margin.

use super::arch::Arch;
use super::models::MODELS;
use super::request::{EngineExtras, Estimator, Request};
use super::{Verdict, plan};
use serde::Serialize;

/// Upper bound of the search.
const MAX_BATCH: u64 = 1 << 16;
/// The largest micro-batch where memory sets no limit.
pub const ANY_BATCH: u64 = MAX_BATCH;
const MAX_RANK: u64 = 4096;

/// The largest of each, everything else equal; `None` if not even the smallest fits, or if it does not apply. A micro-batch is
/// searched up to [`ANY_BATCH`]: that of answers goes through the model in parts, and its memory does not grow with it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct MaxSizes {
    pub micro_batch: Option<u64>,
    pub seq_len: Option<u64>,
    pub lora_rank: Option<u64>,
    pub model: Option<Sized>,
}

/// A model by its size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sized {
    /// A reference model's name, or its dimensions.
    pub name: String,
    pub params: u64,
}

/// Solves for each in turn; `None` if the device's memory is unknown.
pub fn what_fits(request: &Request) -> Option<MaxSizes> {
    request.device.memory?;
    Some(MaxSizes {
        micro_batch: largest(1, MAX_BATCH, 1, |n| fits(&with_batch(request, n))),
        seq_len: seq_len(request),
        lora_rank: request.lora.and_then(|lora| {
            // A product of rank d_model is any matrix of that width.
            let most = request.arch.d_model().max(lora.rank).min(MAX_RANK);
            largest(1, most, 1, |rank| {
                let lora = Some(super::request::Lora { rank, ..lora });
                fits(&Request {
                    lora,
                    ..request.clone()
                })
            })
        }),
        model: model(request),
    })
}

/// True if the request fits its device with its margin.
pub fn fits(request: &Request) -> bool {
    plan(request).verdict() == Some(Verdict::Fits)
}

/// The request with another micro-batch; evaluation uses the same.
pub fn with_batch(request: &Request, micro_batch: u64) -> Request {
    let mut request = request.clone();
    if request.extras.eval_batch > 0 {
        request.extras.eval_batch = micro_batch;
    }
    request.micro_batch = micro_batch;
    request
}

/// The request with another length; a table of learned positions grows with it.
pub fn with_seq_len(request: &Request, seq_len: u64) -> Request {
    let mut request = request.clone();
    if request.estimator == Estimator::Engine {
        request.arch = request
            .arch
            .with(|config| config.seq_len = seq_len as usize);
    }
    request.seq_len = seq_len;
    // A prompt and its answer may be as long as the context.
    if let Some(answers) = &mut request.extras.answers {
        answers.tokens = seq_len;
    }
    request
}

/// Up to the model's context, in multiples of 64.
fn seq_len(request: &Request) -> Option<u64> {
    let most = match request.estimator {
        Estimator::General => request.arch.max_len(),
        Estimator::Engine => 1 << 17,
    };
    let unit = 64.min(most).max(1);
    largest(1, most / unit, 1, |n| {
        fits(&with_seq_len(request, n * unit))
    })
    .map(|n| n * unit)
}

/// The largest model: among reference models for a GPU, with this model's proportions for this engine.
fn model(request: &Request) -> Option<Sized> {
    let with = |arch: &Arch| {
        let share = arch.n_params() as f64 / request.arch.n_params().max(1) as f64;
        let packed = request.extras.packed_bytes;
        let extras = EngineExtras {
            packed_bytes: packed.map(|bytes| (bytes as f64 * share) as u64),
            ..request.extras
        };
        Request {
            seq_len: request.seq_len.min(arch.max_len()),
            arch: arch.clone(),
            extras,
            ..request.clone()
        }
    };
    match request.estimator {
        Estimator::General => MODELS
            .iter()
            .filter(|model| fits(&with(&model.arch)))
            .max_by_key(|model| model.arch.n_params())
            .map(|model| Sized {
                name: model.name.into(),
                params: model.arch.n_params(),
            }),
        Estimator::Engine => {
            let heads = largest(1, 1024, 1, |heads| {
                fits(&with(&scaled(&request.arch, heads)))
            })?;
            let arch = scaled(&request.arch, heads);
            let name = format!("{} layers of {}", arch.n_layer(), arch.d_model());
            Some(Sized {
                name,
                params: arch.n_params(),
            })
        }
    }
}

/// A model of the same proportions with this many heads: depth grows with width.
pub fn scaled(arch: &Arch, n_head: u64) -> Arch {
    let (n_head, shape) = (n_head as usize, *arch.shape());
    let factor = n_head as f64 / shape.n_head.max(1) as f64;
    let grow = |x: usize| ((x as f64 * factor).round() as usize).max(1);
    // Key/value heads stay in proportion if that divides.
    let group = (shape.n_head / shape.n_kv_head.max(1)).max(1);
    let n_kv_head = if n_head.is_multiple_of(group) {
        n_head / group
    } else {
        n_head
    };
    arch.with(|config| {
        config.n_layer = grow(shape.n_layer);
        config.d_model = n_head * shape.head_dim;
        config.n_head = n_head;
        config.n_kv_head = Some(n_kv_head);
        config.d_ff = Some(grow(shape.d_ff));
    })
}

/// The largest `n` in `from..=to` for which `good` holds, given that it is monotone; `None`
/// if it does not hold at `from`.
fn largest(from: u64, to: u64, first_step: u64, good: impl Fn(u64) -> bool) -> Option<u64> {
    if to < from || !good(from) {
        return None;
    }
    let (mut low, mut step) = (from, first_step);
    while low + step <= to && good(low + step) {
        low += step;
        step *= 2;
    }
    // `low` is good; anything from `low + step` on is not (or out of range).
    let mut high = (low + step).min(to + 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if good(middle) {
            low = middle
        } else {
            high = middle
        }
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::request::{Lora, LoraTargets, Method};
    use crate::plan::{Device, models, reference_request, target};

    #[test]
    fn the_largest_is_found_wherever_it_lies() {
        for limit in [1, 2, 3, 7, 8, 100, 1023, 1024] {
            assert_eq!(largest(1, 1024, 1, |n| n <= limit), Some(limit));
        }
        assert_eq!(largest(5, 9, 1, |n| n <= 4), None);
        assert_eq!(largest(1, 0, 1, |_| true), None);
    }

    /// What it returns fits, one more does not.
    fn check(request: &Request) {
        let found = what_fits(request).unwrap();
        if let Some(n) = found.micro_batch {
            assert!(
                fits(&with_batch(request, n)) && !fits(&with_batch(request, n + 1)),
                "{n}"
            );
        }
        if let Some(n) = found.seq_len {
            assert!(fits(&with_seq_len(request, n)), "{n}");
            let more = n + 64;
            assert!(
                more > request.arch.max_len() || !fits(&with_seq_len(request, more)),
                "{n}"
            );
        }
        if let (Some(rank), Some(lora)) = (found.lora_rank, request.lora) {
            let with = |rank| Request {
                lora: Some(Lora { rank, ..lora }),
                ..request.clone()
            };
            let most = request.arch.d_model().min(MAX_RANK);
            assert!(fits(&with(rank)) && (rank == most || rank < most && !fits(&with(rank + 1))));
        }
    }

    #[test]
    fn what_is_found_fits_and_one_more_does_not() {
        for (name, gb) in [
            ("qwen2.5-0.5b", 24),
            ("llama-3.2-1b", 80),
            ("llama-3.1-8b", 80),
            ("gpt2", 16),
        ] {
            let mut request = reference_request(models::find(name).unwrap());
            request.device = Device::limit("limit", Some(gb * 1_000_000_000));
            check(&request);
            request.method = Method::Sft;
            request.lora = Some(Lora {
                rank: 8,
                targets: LoraTargets::All,
            });
            assert!(what_fits(&request).unwrap().lora_rank.is_some(), "{name}");
            check(&request);
        }
    }

    #[test]
    fn the_same_holds_for_this_engine() {
        let mut request = target::resolve("quickstart", &[], &Default::default()).unwrap();
        assert_eq!(what_fits(&request), None);
        request.device = Device::limit("512 MiB", Some(512 << 20));
        let found = what_fits(&request).unwrap();
        let n = found.micro_batch.unwrap();
        assert!(n > 12);
        assert!(fits(&with_batch(&request, n)) && !fits(&with_batch(&request, n + 1)));
        let model = found.model.unwrap();
        assert!(
            model.params > 5 * 804_096 && model.params < 32_000_000,
            "{model:?}"
        );
    }

    #[test]
    fn nothing_fits_where_the_weights_alone_do_not() {
        let mut request = reference_request(models::find("llama-3.1-70b").unwrap());
        request.device = Device::limit("24 GB", Some(24_000_000_000));
        let found = what_fits(&request).unwrap();
        assert_eq!((found.micro_batch, found.seq_len), (None, None));
        assert!(found.model.is_some_and(|m| m.params < 2_000_000_000));
    }
}
