//! The model in a question, by name or by size: its requirements next to what is available, so that `can I train a 7B model`
//! is answered with numbers of a 7B model, and `grpo on a 8b model with 24 GB` with those of GRPO in 24 GB.

use super::said::{self, Said};
use crate::base::human;
use crate::plan::models::ReferenceModel;
use crate::plan::quantity::capacity;
use crate::plan::request::{Answers, BaseFormat, Estimator, Lora, LoraTargets, Method};
use crate::plan::scaling::TOKENS_PER_PARAM;
use crate::plan::scheme::Precision;
use crate::plan::{Device, Plan, Verdict, plan, reference_request};
use std::time::Duration;

const RANK: u64 = 16;

/// Ways to train it on a GPU, the most memory first.
const ON_A_GPU: [&str; 3] = [
    "all weights with AdamW",
    "LoRA on 16 bits",
    "LoRA on 4 bits",
];

/// By this program's engine, on a processor.
const ON_A_PROCESSOR: [&str; 3] = [
    "all weights with AdamW",
    "LoRA",
    "LoRA on a GGUF file in 4 bits",
];

/// Bits of a weight in Q4_0: 32 weights in 18 bytes.
const Q4_0_BITS: u64 = 18 * 8;
const Q4_0_WEIGHTS: u64 = 32;

/// What trains the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trainer {
    /// A usual trainer on a GPU.
    Gpu,
    /// This program's engine.
    Processor,
}

impl Trainer {
    /// The ways, and what follows `each with one sequence of … tokens`.
    fn ways(self) -> (&'static [&'static str; 3], &'static str) {
        match self {
            Trainer::Gpu => (&ON_A_GPU, ", as a GPU trainer counts"),
            Trainer::Processor => (&ON_A_PROCESSOR, ", on this processor"),
        }
    }
}

/// A model with its plans, one for each way.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    model: &'static ReferenceModel,
    trainer: Trainer,
    /// As the question has it.
    said: String,
    /// The way that the question names, by its number.
    wanted: Option<usize>,
    /// It asks for fine-tuning: thousands of examples, not a whole pretraining.
    tunes: bool,
    /// The method that it names.
    method: Option<Method>,
    /// The memory or the GPU that it names, as an option of `llmtui plan`.
    room: Option<String>,
    plans: [Plan; 3],
}

impl Asked {
    /// The first model of a question, planned for `device`, at this share of its peak where it is known.
    pub fn of(
        question: &str,
        trainer: Trainer,
        device: &Device,
        mfu: Option<f64>,
    ) -> Option<Asked> {
        let Said {
            model: (said, model),
            wanted,
            tunes,
            method,
            device: named,
        } = said::read(question)?;
        // A GPU that the question names is counted in place of this machine, whose speed says nothing of it.
        let (trainer, device, mfu, room) = match named {
            Some(named) => (named.trainer, named.device, None, Some(named.option)),
            None => (trainer, device.clone(), mfu, None),
        };
        let tunes = tunes || method.is_some_and(|method| method != Method::Pretrain);
        let plans = [0, 1, 2].map(|way| {
            let mut request = reference_request(model);
            if way > 0 || tunes {
                request.method = method.unwrap_or(Method::Sft);
            }
            if way > 0 {
                request.lora = Some(Lora {
                    rank: RANK,
                    targets: LoraTargets::All,
                });
            }
            match (trainer, way) {
                (Trainer::Gpu, 2) => request.base = BaseFormat::Nf4Double,
                (Trainer::Gpu, _) => {}
                (Trainer::Processor, way) => {
                    request.estimator = Estimator::Engine;
                    request.precision = Precision::Fp32;
                    let bytes = model.arch.n_params() / Q4_0_WEIGHTS * Q4_0_BITS / 8;
                    request.extras.packed_bytes = (way == 2).then_some(bytes);
                    request.extras.answers =
                        request.method.rolls_out().then(|| answers(request.seq_len));
                }
            }
            request.device = device.clone();
            request.assume();
            request.mfu = mfu.unwrap_or(request.mfu);
            plan(&request)
        });
        Some(Asked {
            model,
            trainer,
            said,
            wanted,
            tunes,
            method,
            room,
            plans,
        })
    }

    /// `qwen2.5-7b, 7.62B parameters`, and what a bare size is counted as.
    fn name(&self) -> String {
        let n = human::short(self.model.arch.n_params() as f64);
        let name = match self.said.eq_ignore_ascii_case(self.model.name) {
            true => format!("{}, {n} parameters", self.said),
            false => format!("{}, counted as {} ({n})", self.said, self.model.name),
        };
        match self.method {
            Some(method) => format!("{name}, {}", method.facts().title),
            None => name,
        }
    }

    /// Memory of each way, what fits, and how long a small fine-tuning takes.
    pub(super) fn memory(&self) -> String {
        let (ways, counted) = self.trainer.ways();
        let needs = self.plans.iter().zip(ways);
        let needs: Vec<String> = needs
            .map(|(plan, way)| format!("{way} {}", human::bytes(plan.p50_bytes())))
            .collect();
        let has_room = |plan: &Plan| matches!(plan.verdict(), Some(Verdict::Fits | Verdict::Tight));
        let fits = self.plans.iter().position(has_room);
        let device = &self.plans[0].request.device;
        let there = match device.memory {
            None => String::new(),
            Some(bytes) => {
                let fit = match fits {
                    None => "none of them fits, a smaller model does".to_string(),
                    Some(0) => "all of them fit".to_string(),
                    Some(way) => format!("{} fits", ways[way]),
                };
                match self.room {
                    Some(_) if device.peak_flops.is_none() => {
                        format!(" In {}: {fit}", capacity(bytes))
                    }
                    _ => format!(" {} has {}: {fit}", device.name, capacity(bytes)),
                }
            }
        };
        // What was asked for, where it fits.
        let wanted = self.wanted.filter(|way| has_room(&self.plans[*way]));
        let way = wanted.or(fits);
        let time = way.and_then(|way| self.time(way, Some(way) == fits));
        let way = way.or(self.wanted).unwrap_or(ways.len() - 1);
        format!(
            "{}: {}, each with one sequence of {} tokens{counted}.{there}{} (`llmtui plan {}`)",
            self.name(),
            needs.join(", "),
            human::grouped(self.plans[0].request.seq_len),
            time.unwrap_or_default(),
            self.options(way),
        )
    }

    /// How long a small fine-tuning takes one of the ways; `None` where no speed is known.
    fn time(&self, way: usize, is_the_one_that_fits: bool) -> Option<String> {
        let Plan { work, request, .. } = &self.plans[way];
        let time = Duration::try_from_secs_f64(3600.0 * work.hours?).ok()?;
        let how = match is_the_one_that_fits {
            true => "that way".to_string(),
            false => format!("with {}", self.trainer.ways().0[way]),
        };
        Some(format!(
            "; {} tokens {how} take about {} of computing",
            human::short(request.tokens as f64),
            human::duration(time)
        ))
    }

    /// What `llmtui plan` is asked for one of the ways.
    fn options(&self, way: usize) -> String {
        let model = self.model.name;
        let room = self.room.as_deref().unwrap_or_default();
        let method = self.method.unwrap_or(Method::Sft).word();
        match (self.trainer, way) {
            (Trainer::Gpu, 0) if !self.tunes => format!("{model}{room}"),
            (Trainer::Gpu, 0) => format!("{model} --method {method}{room}"),
            (Trainer::Gpu, way) => {
                let base = if way == 2 { " --quantize nf4" } else { "" };
                format!("{model} --method {method} --lora-rank {RANK}{base}{room}")
            }
            (Trainer::Processor, 0) if !self.tunes => model.into(),
            (Trainer::Processor, way) => {
                let file = if way == 2 { ".gguf" } else { "" };
                format!("{} -s train.from=MODEL{file}", self.preset(way > 0))
            }
        }
    }

    /// The preset of a method, with adapters or without.
    fn preset(&self, adapts: bool) -> String {
        let adapter = if adapts { " -s adapter=lora" } else { "" };
        match self.method.unwrap_or(Method::Sft) {
            Method::Sft | Method::Pretrain if adapts => "sft-lora".into(),
            Method::Sft => "sft".into(),
            Method::Pretrain => "cpt".into(),
            Method::Grpo => format!("grpo-gsm8k{adapter}"),
            Method::Rloo => format!("grpo-gsm8k -s method=rloo{adapter}"),
            Method::Ppo => {
                format!("grpo-gsm8k -s method=ppo -s rollout.group_size=1{adapter}")
            }
            method => format!("{}{adapter}", method.word()),
        }
    }

    /// Tokens that it is worth from random weights.
    pub(super) fn data(&self) -> String {
        let tokens = TOKENS_PER_PARAM * self.model.arch.n_active() as f64;
        format!(
            "{}: from random weights about {} tokens (`llmtui plan {}`)",
            self.name(),
            human::short(tokens),
            self.model.name
        )
    }
}

/// Answers that fill their rows, each learned from once.
fn answers(seq_len: u64) -> Answers {
    Answers {
        tokens: seq_len,
        has_reference: false,
        has_old_policy: false,
        is_reused: false,
        is_linear: true,
        cold_share: 0.0,
        epochs: 1,
        max_new_tokens: seq_len,
        length: None,
        prompts: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(question: &str, memory: u64) -> Option<String> {
        let device = Device::limit("this machine", Some(memory));
        Some(Asked::of(question, Trainer::Gpu, &device, None)?.memory())
    }

    #[test]
    fn a_question_is_answered_for_the_model_that_it_names() {
        let found = |question: &str| {
            let device = Device::limit("this machine", None);
            Asked::of(question, Trainer::Gpu, &device, None).map(|asked| asked.model.name)
        };
        for (question, model) in [
            ("can I fine-tune Llama-3.1-8B here?", Some("llama-3.1-8b")),
            ("does a 13b-model fit", Some("llama-2-13b")),
            ("does a 70B model fit?", Some("llama-3.1-70b")),
            ("train 8 billion parameters?", Some("llama-3.1-8b")),
            ("room for (500M)?", Some("qwen2.5-0.5b")),
            ("are 7B tokens enough", None),
            ("are 7 billion tokens enough", None),
            ("a 9000B model", None),
            ("will 80GB do", None),
            ("why is my loss 2.5", None),
        ] {
            assert_eq!(found(question), model, "{question}");
        }
    }

    /// 8B: 16 bytes for each parameter are 120 GiB, 2 bytes 15 GiB, NF4 with a 16-bit embedding and head about 6 GiB.
    #[test]
    fn what_fits_depends_on_the_memory() {
        let text = |gib: u64| of("can I train llama-3.1-8b?", gib << 30).unwrap();
        assert!(
            text(24).contains("24 GiB: LoRA on 16 bits fits"),
            "{}",
            text(24)
        );
        assert!(
            text(12).contains("12 GiB: LoRA on 4 bits fits"),
            "{}",
            text(12)
        );
        assert!(text(4).contains("none of them fits"), "{}", text(4));
        assert!(text(200).contains("all of them fit"), "{}", text(200));
        assert!(
            text(12)
                .contains("llmtui plan llama-3.1-8b --method sft --lora-rank 16 --quantize nf4")
        );
    }

    /// The engine keeps weights in f32: 7.24B are 27 GiB, and 3.8 GiB as a file in 4 bits.
    #[test]
    fn without_a_gpu_the_engines_own_memory_is_counted() {
        let device = Device::limit("This machine", Some(24 << 30));
        let asked = Asked::of("can I train 7B?", Trainer::Processor, &device, None).unwrap();
        let text = asked.memory();
        let gib = asked.plans.each_ref().map(|plan| plan.p50_bytes() >> 30);
        assert!((107..120).contains(&gib[0]), "{gib:?} {text}");
        assert!((27..32).contains(&gib[1]), "{gib:?} {text}");
        assert!((4..9).contains(&gib[2]), "{gib:?} {text}");
        for part in [
            "on this processor. This machine has 24 GiB: LoRA on a GGUF file in 4 bits fits",
            "`llmtui plan sft-lora -s train.from=MODEL.gguf`",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn the_time_is_that_of_what_the_question_asks_for() {
        for (question, wish) in [
            ("how long to train llama-3.1-8b", (None, false)),
            ("how long does fine-tuning 8B take", (None, true)),
            ("does lora of 8B fit", (Some(1), true)),
            ("qlora on llama-3.1-8b", (Some(2), true)),
            ("lora of 8b in 4-bit", (Some(2), true)),
            ("8B with adapters on a GGUF", (Some(2), true)),
        ] {
            assert_eq!(said::wish(question), wish, "{question}");
        }
        let device = Device {
            peak_flops: Some(1e15),
            ..Device::limit("this GPU", Some(200 << 30))
        };
        let text = |question: &str| {
            let asked = Asked::of(question, Trainer::Gpu, &device, None).unwrap();
            asked.memory()
        };
        let pretrained = text("how long to train llama-3.1-8b?");
        assert!(pretrained.contains("161B tokens that way"), "{pretrained}");
        let lora = text("how long to train llama-3.1-8b with lora?");
        assert!(
            lora.contains("20.5M tokens with LoRA on 16 bits take about"),
            "{lora}"
        );
        assert!(lora.contains("--method sft --lora-rank 16`"), "{lora}");
        let tuned = text("how long to fine-tune llama-3.1-8b?");
        assert!(tuned.contains("20.5M tokens that way"), "{tuned}");
        assert!(tuned.contains("llama-3.1-8b --method sft`"), "{tuned}");
        // What is asked for and does not fit has no time: that of what does is reported.
        let little = of("lora on llama-3.1-8b?", 12 << 30).unwrap();
        assert!(little.contains("LoRA on 4 bits fits"), "{little}");
        assert!(little.contains("--quantize nf4"), "{little}");
    }

    /// In place of this machine, which has a terabyte here.
    #[test]
    fn a_memory_a_gpu_and_a_method_of_the_question_are_counted() {
        let text = |question: &str| of(question, 1 << 40).unwrap();
        let grpo = text("can I do grpo on a 8b model with 24 GB");
        for part in [
            "8B, counted as llama-3.1-8b (8.03B), GRPO: all weights",
            "In 24 GB (22.4 GiB): LoRA on 4 bits fits",
            "`llmtui plan llama-3.1-8b --method grpo --lora-rank 16 --quantize nf4 --memory 24GB`",
        ] {
            assert!(grpo.contains(part), "{part} in {grpo}");
        }
        let sft = text("can I fine-tune an 8b model with 24 GB");
        assert!(
            sft.contains("In 24 GB (22.4 GiB): LoRA on 16 bits fits"),
            "{sft}"
        );
        let h100 = text("dpo of llama-3.1-8b on an H100");
        assert!(
            h100.contains("H100 has 79.6 GiB: LoRA on 16 bits fits"),
            "{h100}"
        );
        assert!(
            h100.contains("--method dpo --lora-rank 16 --gpu H100`"),
            "{h100}"
        );
        let a100 = text("qlora of a 13B on an a100 40gb?");
        assert!(a100.contains("A100-40 has 40 GiB"), "{a100}");
        let ppo = text("ppo with lora for 8B in 24GB vram");
        assert!(ppo.contains("--method ppo --lora-rank 16"), "{ppo}");
        // Main memory is this engine's.
        let ram = text("can I train a 1.5b model with 16 GB RAM on a laptop");
        assert!(
            ram.contains("on this processor. In 16 GB (14.9 GiB)"),
            "{ram}"
        );
        let data = text("can I train 8b on 24 GB of text");
        assert!(data.contains("this machine has 1"), "{data}");
    }

    /// Keys and values of the answers are counted, on a processor too.
    #[test]
    fn answers_of_its_own_take_memory() {
        let device = Device::limit("this machine", Some(64 << 30));
        let bytes = |question: &str, trainer| {
            let asked = Asked::of(question, trainer, &device, None).unwrap();
            asked.plans.each_ref().map(Plan::p50_bytes)
        };
        for trainer in [Trainer::Gpu, Trainer::Processor] {
            let (sft, grpo) = (
                bytes("sft of 1.5b", trainer),
                bytes("grpo of 1.5b", trainer),
            );
            for (sft, grpo) in sft.iter().zip(grpo) {
                assert!(grpo > *sft, "{trainer:?}: {grpo} {sft}");
            }
        }
    }

    #[test]
    fn tokens_are_twenty_for_each_parameter() {
        let device = Device::limit("this machine", None);
        let asked = Asked::of("data for tinyllama-1.1b", Trainer::Gpu, &device, None).unwrap();
        assert!(
            asked.data().contains("about 22.0B tokens"),
            "{}",
            asked.data()
        );
    }
}
