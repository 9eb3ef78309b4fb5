//! The few numbers of a plan that matter, each with how it is read, written and stepped. What they do to the plan is the
//! planner's business.

use crate::base::human;
use crate::plan::quantity::{capacity, parse_bytes, parse_count};
use crate::plan::request::{BaseFormat, Checkpointing, Logits, Lora, LoraTargets, Method, ValueSource};
use crate::plan::scheme::{Precision, UpdateState};
use crate::plan::{Estimator, Request, reference, solve};

/// One row of the form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    Target,
    Device,
    Limit,
    Gpus,
    Zero,
    Method,
    Adapters,
    Base,
    Batch,
    Accumulate,
    Length,
    Tokens,
    Precision,
    Optimizer,
    Checkpointing,
    Loss,
    Layers,
    Heads,
    Mfu,
    Price,
}

/// How a row is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// From a list of its own.
    List,
    /// One of a few words.
    Word,
    /// Typed, or doubled and halved.
    Number,
}

impl Field {
    /// The rows that mean something for this request, in the order of the form.
    pub fn of(request: &Request) -> Vec<Field> {
        use Field as F;
        match request.estimator {
            Estimator::Engine => vec![
                F::Target,
                F::Device,
                F::Limit,
                F::Batch,
                F::Accumulate,
                F::Length,
                F::Tokens,
                F::Layers,
                F::Heads,
                F::Mfu,
            ],
            Estimator::General => vec![
                F::Target,
                F::Device,
                F::Limit,
                F::Gpus,
                F::Zero,
                F::Method,
                F::Adapters,
                F::Base,
                F::Batch,
                F::Accumulate,
                F::Length,
                F::Tokens,
                F::Precision,
                F::Optimizer,
                F::Checkpointing,
                F::Loss,
                F::Mfu,
                F::Price,
            ],
        }
    }

    pub fn label(self) -> &'static str {
        match self {
            Field::Target => "what",
            Field::Device => "on",
            Field::Limit => "memory",
            Field::Gpus => "GPUs",
            Field::Zero => "ZeRO stage",
            Field::Method => "method",
            Field::Adapters => "LoRA rank",
            Field::Base => "base in",
            Field::Batch => "micro-batch",
            Field::Accumulate => "accumulate",
            Field::Length => "length",
            Field::Tokens => "tokens",
            Field::Precision => "precision",
            Field::Optimizer => "optimizer",
            Field::Checkpointing => "checkpointing",
            Field::Loss => "logits",
            Field::Layers => "layers",
            Field::Heads => "heads",
            Field::Mfu => "MFU",
            Field::Price => "$ per hour",
        }
    }

    /// One sentence for the selected row.
    pub fn hint(self) -> &'static str {
        match self {
            Field::Target => "A preset, a run, or a reference model by name; {accept} shows the list.",
            Field::Device => "This machine, or a GPU from the table; {accept} shows the list.",
            Field::Limit => "Memory per device: 24GB, 80GiB.",
            Field::Gpus => "Devices that share the batch; ZeRO shards states over them.",
            Field::Zero => "0 none, 1 optimizer states, 2 also gradients, 3 also weights.",
            Field::Method => {
                "The method decides how many models and sequences are in memory."
            }
            Field::Adapters => "0 trains all weights; typical ranks are 8 to 64.",
            Field::Base => "Quantize the frozen base to 8 or 4 bits; for adapters.",
            Field::Batch => {
                "Sequences per forward pass: the first thing to lower when memory is short."
            }
            Field::Accumulate => {
                "Micro-batches accumulated per step: a large batch in little memory."
            }
            Field::Length => {
                "Tokens per sequence: activations grow linearly, attention scores quadratically."
            }
            Field::Tokens => {
                "Tokens in the whole run: 20B, 300M. Chinchilla-optimal is 20 per parameter."
            }
            Field::Precision => "mixed: 16 bytes per parameter, 18 with f32 gradients; pure bf16: 8.",
            Field::Optimizer => "Decides the number of moments and their bytes.",
            Field::Checkpointing => {
                "Store only the input of each block, or of every few, and recompute the rest: up to 30 % more time."
            }
            Field::Loss => "Compute logits of all tokens at once, or of 1,024 at a time.",
            Field::Layers => "Number of transformer blocks.",
            Field::Heads => "Attention heads; model width = heads × head width.",
            Field::Mfu => {
                "Fraction of the device's peak (MFU); 30 to 40 % is typical on one GPU."
            }
            Field::Price => {
                "US dollars per device-hour; the table's prices are rough, of spring 2026: enter yours."
            }
        }
    }

    pub fn kind(self) -> Kind {
        match self {
            Field::Target | Field::Device => Kind::List,
            Field::Zero
            | Field::Method
            | Field::Base
            | Field::Precision
            | Field::Optimizer
            | Field::Checkpointing
            | Field::Loss => Kind::Word,
            _ => Kind::Number,
        }
    }

    /// What stands in the row.
    pub fn value(self, r: &Request) -> String {
        let grouped = crate::base::human::grouped;
        let assumed = |said: ValueSource| match said {
            ValueSource::Assumed => " assumed",
            ValueSource::Learned => " learned",
            ValueSource::Probed => " measured",
            ValueSource::Stated => "",
        };
        match self {
            Field::Target => r.name.clone(),
            Field::Device => r.device.name.clone(),
            Field::Limit => r.device.memory.map_or("not known".into(), capacity),
            Field::Gpus => grouped(r.n_devices),
            Field::Zero => r.zero.to_string(),
            Field::Method => r.method.word().into(),
            Field::Adapters => r
                .lora
                .map_or("0 (all weights)".into(), |lora| lora.rank.to_string()),
            Field::Base => match r.base {
                BaseFormat::Whole => "16 bits".into(),
                base => base.word().into(),
            },
            Field::Batch => grouped(r.micro_batch),
            Field::Accumulate => grouped(r.grad_accum),
            Field::Length => grouped(r.seq_len),
            Field::Tokens => format!(
                "{}{}",
                crate::base::human::short(r.tokens as f64),
                assumed(r.tokens_source)
            ),
            Field::Precision => r.precision.word().into(),
            Field::Optimizer => r.update.word().into(),
            Field::Checkpointing => r.checkpointing.words(),
            Field::Loss => match r.logits {
                Logits::Whole => "whole".into(),
                Logits::Chunked(_) => "chunked".into(),
            },
            Field::Layers => grouped(r.arch.n_layer()),
            Field::Heads => format!("{} × {}", r.arch.n_head(), r.arch.shape().head_dim),
            Field::Mfu if r.mfu_source == ValueSource::Learned => "as earlier runs".into(),
            Field::Mfu if r.mfu_source == ValueSource::Probed => "as measured here".into(),
            Field::Mfu => format!("{:.0} %{}", 100.0 * r.mfu, assumed(r.mfu_source)),
            Field::Price => r.device.price_per_hour.map_or("not known".into(), |p| {
                let rough = if r.device.price_source.is_some() {
                    " rough"
                } else {
                    ""
                };
                format!("{p:.2}{rough}")
            }),
        }
    }

    /// The text to begin typing from.
    pub fn text(self, r: &Request) -> String {
        match self {
            Field::Adapters => r.lora.map_or(0, |lora| lora.rank).to_string(),
            Field::Tokens => r.tokens.to_string(),
            Field::Heads => r.arch.n_head().to_string(),
            Field::Mfu => format!("{:.0}", 100.0 * r.mfu),
            Field::Limit => r.device.memory.map_or(String::new(), |bytes| match bytes.is_multiple_of(1_000_000_000) {
                true => human::bytes_sold(bytes),
                false => human::bytes(bytes),
            }),
            Field::Price => r
                .device
                .price_per_hour
                .map_or(String::new(), |p| p.to_string()),
            field => field.value(r).replace(',', ""),
        }
    }

    /// Takes what was typed, or says why not.
    pub fn parse(self, r: &mut Request, text: &str) -> Result<(), String> {
        let text = text.trim();
        match self {
            Field::Limit => r.device.memory = Some(parse_bytes(text)?),
            Field::Mfu => {
                let per_cent = text.trim_end_matches(['%', ' ']).parse::<f64>().ok();
                let good = per_cent.filter(|x| *x > 0.0 && *x <= 100.0);
                r.mfu = good.ok_or("per cent, from 1 to 100")? / 100.0;
                r.mfu_source = ValueSource::Stated;
            }
            Field::Price => {
                let price = text.trim_start_matches('$').parse::<f64>().ok();
                let good = price.filter(|x| x.is_finite() && *x >= 0.0);
                r.device.set_price(good.ok_or("an amount from 0 up")?);
            }
            Field::Adapters if text == "0" => r.lora = None,
            _ => self.set(r, parse_count(text)?)?,
        }
        self.follow(r);
        Ok(())
    }

    /// Doubles or halves a number, takes the next or the previous word.
    pub fn step(self, r: &mut Request, forward: bool) {
        match self.kind() {
            Kind::List => {}
            Kind::Word => self.turn(r, forward),
            Kind::Number => self.scale(r, forward),
        }
        self.follow(r);
    }

    fn scale(self, r: &mut Request, up: bool) {
        let change = |n: u64| {
            if up {
                n.saturating_mul(2)
            } else {
                (n / 2).max(1)
            }
        };
        let real = |x: f64| if up { x * 2.0 } else { x / 2.0 };
        match self {
            Field::Limit => r.device.memory = r.device.memory.map(change),
            Field::Mfu => {
                let step = if up { 0.05 } else { -0.05 };
                (r.mfu, r.mfu_source) = ((r.mfu + step).clamp(0.05, 1.0), ValueSource::Stated);
            }
            Field::Price => {
                if let Some(price) = r.device.price_per_hour {
                    r.device.set_price(real(price));
                }
            }
            Field::Adapters => match r.lora {
                None if up => drop(self.set(r, 8)),
                Some(lora) if !up && lora.rank <= 1 => r.lora = None,
                Some(lora) => drop(self.set(r, change(lora.rank))),
                None => {}
            },
            field => {
                if let Some(n) = field.number(r) {
                    // Out of range stays as it is.
                    drop(field.set(r, change(n)));
                }
            }
        }
    }

    fn number(self, r: &Request) -> Option<u64> {
        Some(match self {
            Field::Gpus => r.n_devices,
            Field::Batch => r.micro_batch,
            Field::Accumulate => r.grad_accum,
            Field::Length => r.seq_len,
            Field::Tokens => r.tokens,
            Field::Layers => r.arch.n_layer(),
            Field::Heads => r.arch.n_head(),
            _ => return None,
        })
    }

    fn set(self, r: &mut Request, n: u64) -> Result<(), String> {
        let most = match self {
            Field::Tokens => u64::MAX,
            Field::Length if r.estimator == Estimator::General => r.arch.max_len(),
            Field::Length => 1 << 20,
            Field::Layers | Field::Heads => 1024,
            _ => 1_000_000,
        };
        if n > most {
            return Err(format!("at most {}", crate::base::human::grouped(most)));
        }
        // Another batch or another number of tokens is another number of prompts and answers.
        let counts = matches!(self, Field::Batch | Field::Accumulate | Field::Tokens);
        if let Some(answers) = r.extras.answers.as_mut().filter(|_| counts) {
            answers.length = None;
        }
        match self {
            Field::Gpus => r.n_devices = n,
            Field::Batch => *r = solve::with_batch(r, n),
            Field::Accumulate => r.grad_accum = n,
            Field::Length => *r = solve::with_seq_len(r, n),
            Field::Tokens => r.set_tokens(n),
            Field::Layers => r.arch = r.arch.with(|config| config.n_layer = n as usize),
            Field::Heads => {
                let n_layer = r.arch.n_layer();
                let scaled = solve::scaled(&r.arch, n);
                r.arch = scaled.with(|config| config.n_layer = n_layer as usize);
            }
            Field::Adapters => {
                let targets = r.lora.map_or(LoraTargets::All, |lora| lora.targets);
                r.lora = Some(Lora { rank: n, targets });
            }
            _ => {}
        }
        Ok(())
    }

    fn turn(self, r: &mut Request, forward: bool) {
        fn next<T: Copy + PartialEq>(list: &[T], now: T, forward: bool) -> T {
            let at = list.iter().position(|x| *x == now).unwrap_or(0);
            let by = if forward { 1 } else { list.len() - 1 };
            list[(at + by) % list.len()]
        }
        match self {
            Field::Zero => r.zero = next(&[0, 1, 2, 3], r.zero, forward),
            Field::Method => {
                let mut all = Method::ALL.map(|(_, m)| m).to_vec();
                all.dedup();
                r.set_method(next(&all, r.method, forward));
            }
            Field::Base => r.base = next(&BaseFormat::ALL.map(|(_, b)| b), r.base, forward),
            Field::Precision => {
                r.precision = next(&Precision::ALL.map(|(_, p)| p), r.precision, forward)
            }
            Field::Optimizer => {
                r.update = next(&UpdateState::ALL.map(|(_, u)| u), r.update, forward)
            }
            Field::Checkpointing => {
                r.checkpointing = next(&Checkpointing::ALL, r.checkpointing, forward);
            }
            Field::Loss => {
                let chunked = Logits::Chunked(reference::CHUNK);
                r.logits = next(&[Logits::Whole, chunked], r.logits, forward);
            }
            _ => {}
        }
    }

    /// What follows from a change: a quantized base needs adapters, sharding needs company.
    fn follow(self, r: &mut Request) {
        match self {
            Field::Base if r.base != BaseFormat::Whole && r.lora.is_none() => {
                r.lora = Some(Lora {
                    rank: 8,
                    targets: LoraTargets::All,
                });
            }
            Field::Adapters if r.lora.is_none() => r.base = BaseFormat::Whole,
            Field::Zero if r.zero > 0 && r.n_devices == 1 => r.n_devices = 8,
            Field::Gpus if r.n_devices == 1 => r.zero = 0,
            _ => {}
        }
        r.assume();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{models, reference_request, target};

    fn general() -> Request {
        reference_request(models::find("qwen2.5-0.5b").unwrap())
    }

    #[test]
    fn every_number_reads_back_what_it_shows() {
        let engine = target::resolve("quickstart", &[], &Default::default()).unwrap();
        for request in [general(), engine] {
            for field in Field::of(&request) {
                let (mut copy, text) = (request.clone(), field.text(&request));
                if field.kind() == Kind::Number && !text.is_empty() {
                    field.parse(&mut copy, &text).unwrap();
                    assert_eq!(field.text(&copy), text, "{field:?}");
                    assert!(field.parse(&mut copy, "x").is_err(), "{field:?}");
                }
            }
        }
    }

    #[test]
    fn steps_double_halve_and_go_round() {
        let mut r = general();
        Field::Batch.step(&mut r, true);
        assert_eq!(r.micro_batch, 2);
        Field::Batch.step(&mut r, false);
        Field::Batch.step(&mut r, false);
        assert_eq!(r.micro_batch, 1);
        for _ in 0..4 {
            Field::Precision.step(&mut r, true);
        }
        assert_eq!(r.precision, Precision::Mixed);
        let longest = r.arch.max_len();
        for _ in 0..20 {
            Field::Length.step(&mut r, true);
        }
        assert!(r.seq_len <= longest);
    }

    #[test]
    fn a_quantized_base_brings_adapters_and_sharding_brings_gpus() {
        let mut r = general();
        Field::Base.step(&mut r, true);
        assert!(r.lora.is_some() && r.base == BaseFormat::Int8);
        Field::Adapters.parse(&mut r, "0").unwrap();
        assert!(r.lora.is_none() && r.base == BaseFormat::Whole);
        Field::Zero.step(&mut r, true);
        assert_eq!((r.zero, r.n_devices), (1, 8));
    }
}
