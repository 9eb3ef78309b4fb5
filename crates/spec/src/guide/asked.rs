//! The model in a question, by name or by size: its requirements next to what is available, so that `can I train a 7B model`
//! is answered with numbers of a 7B model.

use crate::base::human;
use crate::base::text::one_line;
use crate::plan::models::{self, MODELS, ReferenceModel};
use crate::plan::quantity::{capacity, parse_count};
use crate::plan::request::{BaseFormat, Estimator, Lora, LoraTargets, Method};
use crate::plan::scaling::TOKENS_PER_PARAM;
use crate::plan::scheme::Precision;
use crate::plan::{Device, Plan, Verdict, plan, reference_request};
use std::time::Duration;

/// A size is counted as a reference model that is so much larger or smaller at most.
const ALIKE: f64 = 1.35;
const RANK: u64 = 16;

/// A way to train it: words, and the options of `llmtui plan` that count it.
type TrainingSetup = (&'static str, &'static str);

/// On a GPU, the most memory first.
const ON_A_GPU: [TrainingSetup; 3] = [
    ("all weights with AdamW", ""),
    ("LoRA on 16 bits", " --method sft --lora-rank 16"),
    (
        "LoRA on 4 bits",
        " --method sft --lora-rank 16 --quantize nf4",
    ),
];

/// By this program's engine, on a processor.
const ON_A_PROCESSOR: [TrainingSetup; 3] = [
    ("all weights with AdamW", ""),
    ("LoRA", ""),
    ("LoRA on a GGUF file in 4 bits", ""),
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
    fn ways(self) -> (&'static [TrainingSetup; 3], &'static str) {
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
        let (said, model) = named(question).or_else(|| sized(question))?;
        let (wanted, tunes) = wish(question);
        let plans = [0, 1, 2].map(|way| {
            let mut request = reference_request(model);
            if way > 0 || tunes {
                request.method = Method::Sft;
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
            plans,
        })
    }

    /// `qwen2.5-7b, 7.62B parameters`, and what a bare size is counted as.
    fn name(&self) -> String {
        let n = human::short(self.model.arch.n_params() as f64);
        match self.said.eq_ignore_ascii_case(self.model.name) {
            true => format!("{}, {n} parameters", self.said),
            false => format!("{}, counted as {} ({n})", self.said, self.model.name),
        }
    }

    /// Memory of each way, what fits, and how long a small fine-tuning takes.
    pub(super) fn memory(&self) -> String {
        let (ways, counted) = self.trainer.ways();
        let needs = self.plans.iter().zip(ways);
        let needs: Vec<String> = needs
            .map(|(plan, (way, _))| format!("{way} {}", human::bytes(plan.p50_bytes())))
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
                    Some(way) => format!("{} fits", ways[way].0),
                };
                format!(" {} has {}: {fit}", device.name, capacity(bytes))
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
            false => format!("with {}", self.trainer.ways().0[way].0),
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
        match (self.trainer, way) {
            (Trainer::Gpu, 0) if self.tunes => format!("{model} --method sft"),
            (Trainer::Gpu, _) => format!("{model}{}", self.trainer.ways().0[way].1),
            (Trainer::Processor, 0) if self.tunes => "sft -s train.from=MODEL".into(),
            (Trainer::Processor, 0) => model.into(),
            (Trainer::Processor, 1) => "sft-lora -s train.from=MODEL".into(),
            (Trainer::Processor, _) => "sft-lora -s train.from=MODEL.gguf".into(),
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

/// The way that a question names, by its number, and whether it asks for fine-tuning.
fn wish(question: &str) -> (Option<usize>, bool) {
    let words: Vec<String> = question
        .split(|c: char| !c.is_alphanumeric())
        .map(str::to_lowercase)
        .collect();
    let any = |known: &[&str]| words.iter().any(|word| known.contains(&&**word));
    let adapts = any(&["lora", "dora", "peft", "adapter", "adapters"]);
    let packed = any(&["qlora", "nf4", "gguf", "4bit", "quantized", "quantised"])
        || words
            .windows(2)
            .any(|pair| pair[0] == "4" && pair[1].starts_with("bit"));
    let way = match (any(&["qlora"]) || (adapts && packed), adapts) {
        (true, _) => Some(2),
        (false, true) => Some(1),
        (false, false) => None,
    };
    let tuned = |word: &String| word.starts_with("finetun") || word.starts_with("tun");
    let tunes = way.is_some() || any(&["sft"]) || words.iter().any(tuned);
    (way, tunes)
}

/// Words without the marks around them.
fn bare(word: &str) -> &str {
    word.trim_matches(|c: char| !c.is_alphanumeric())
}

/// A model by its name.
fn named(question: &str) -> Option<(String, &'static ReferenceModel)> {
    question
        .split_whitespace()
        .map(bare)
        .find_map(|word| Some((one_line(word), models::find(word)?)))
}

/// A model by its size: `7B`, `500M`, `7 billion`; a number of tokens is none.
fn sized(question: &str) -> Option<(String, &'static ReferenceModel)> {
    let words: Vec<String> = question
        .split_whitespace()
        .map(|word| bare(word).to_lowercase())
        .collect();
    words.iter().enumerate().find_map(|(at, word)| {
        let next = words.get(at + 1).map_or("", String::as_str);
        let head = word.split('-').next().unwrap_or(word);
        let (text, behind) = match next {
            "billion" | "million" => (
                format!("{head}{}", &next[..1]),
                words.get(at + 2).map_or("", String::as_str),
            ),
            _ => (head.to_string(), next),
        };
        let counts = text.ends_with(['b', 'm']) && text.starts_with(|c: char| c.is_ascii_digit());
        if !counts || behind.starts_with("token") || word.contains("-token") {
            return None;
        }
        let n = parse_count(&text).ok()? as f64;
        let apart = |model: &ReferenceModel| (model.arch.n_params() as f64 / n).ln().abs();
        let dense = MODELS
            .iter()
            .filter(|model| model.arch.n_active() == model.arch.n_params());
        let nearest = dense.min_by(|a, b| apart(a).total_cmp(&apart(b)))?;
        (apart(nearest) < ALIKE.ln()).then(|| (text.to_uppercase(), nearest))
    })
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
            assert_eq!(super::wish(question), wish, "{question}");
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
