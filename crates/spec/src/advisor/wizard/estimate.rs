//! The plan of a draft, for the size question and the last step. The figures come from the plan room; here they are
//! requested for a draft whose data were inspected but not read.

use super::pass::Pass;
use crate::advisor::choose::DataKind;
use crate::advisor::inspection::{DataFacts, Machine};
use crate::advisor::sequences::SequenceSize;
use crate::advisor::template::TemplateTokens;
use crate::base::finding::Finding;
use crate::base::human;
use crate::data::Unit;
use crate::plan::data_bytes::data_bytes;
use crate::plan::engines::{self, Gpus};
use crate::plan::request::ValueSource;
use crate::plan::target::{DataSize, of_spec};
use crate::plan::{Device, Plan, Request, Verdict, plan};
use crate::spec::{Draft, RunSpec, Sizes};
use std::time::Duration;

/// Characters per subword with a vocabulary of a few thousand, and with one of tens of thousands.
const SMALL: f64 = 2.5;
const LARGE: f64 = 4.0;

/// What helps where rows are longer than the context.
const ROOM: &str =
    "a longer model.seq_len has room, which a start model allows up to its own context";

/// Tokens that characters, messages and sequences of the data come to.
pub(super) struct Rates {
    chars_per_token: f64,
    template: TemplateTokens,
}

impl Rates {
    /// By the tokenizer's id: characters, a vocabulary trained on the data, or a model's own.
    pub fn of(facts: &DataFacts, tokenizer: &str) -> Rates {
        /// Text without turns.
        const NONE: TemplateTokens = TemplateTokens {
            start: 0.0,
            each: 0.0,
        };
        let by_char = tokenizer == "char" && facts.distinct.is_some();
        // A model brings its own template; a vocabulary that is made here has ChatML.
        let template = facts.template.filter(|_| tokenizer == "file");
        Rates {
            chars_per_token: match tokenizer {
                _ if by_char => 1.0,
                "file" => facts.chars_per_token.unwrap_or(LARGE),
                _ => SMALL,
            },
            template: match facts.messages > 0.0 && !by_char {
                true => template.unwrap_or(TemplateTokens::CHATML),
                false => NONE,
            },
        }
    }

    /// Tokens of one sequence.
    pub fn tokens(&self, size: &SequenceSize) -> f64 {
        let marks = self.template.start + self.template.each * size.messages as f64;
        size.chars as f64 / self.chars_per_token + marks
    }

    /// Tokens of answers, each with the one that ends it.
    pub fn supervised(&self, size: &SequenceSize) -> f64 {
        size.chars as f64 / self.chars_per_token + size.messages.max(1) as f64
    }
}

/// Tokens of all sequences of the data, whichever a method reads.
pub(super) fn tokens(facts: &DataFacts, tokenizer: &str) -> Option<f64> {
    let rates = Rates::of(facts, tokenizer);
    let sequences = match facts.kind {
        DataKind::Pairs => 2.0,
        _ => 1.0,
    };
    let marks = rates.template.start * sequences + rates.template.each * facts.messages;
    let chars = facts.chars? as f64;
    Some(chars / rates.chars_per_token + marks * facts.rows.unwrap_or(0) as f64)
}

/// Tokens of the training split: the pass that every page and every comment counts in.
pub(super) fn training_tokens(tokens: f64, spec: &RunSpec) -> u64 {
    (tokens * (1.0 - spec.data.val_share().unwrap_or(0.0))) as u64
}

/// Parameter count of a draft's model; the vocabulary comes from the data if the tokenizer is trained on it.
pub fn n_params(draft: &Draft, data: Option<&DataFacts>) -> Option<u64> {
    let spec = draft.spec().ok()?;
    Some(of_spec(&spec, size(&spec, data)).arch.n_params())
}

/// The size of the data, as far as known without reading it.
fn size(spec: &RunSpec, data: Option<&DataFacts>) -> DataSize {
    let distinct = data.and_then(|d| d.distinct).unwrap_or(65);
    let tokens = data.and_then(|d| tokens(d, spec.data.tokenizer.entry().id));
    let pass = data.and_then(|facts| Pass::of(facts, spec));
    let sequences = spec.method.needs().unit.sequences();
    let own_text = spec.data.val_path.is_some();
    let counted = data.map_or(1.0, |facts| Pass::supervised_share(facts, spec));
    let prompts = spec.method.needs().unit == Unit::Prompt && !own_text;
    // A start model brings its own.
    let said = spec.data.tokenizer.vocab_size().or(spec.model.vocab_size);
    let vocab_size = said.unwrap_or(distinct);
    DataSize {
        vocab_size,
        epoch_tokens: pass.map(|pass| pass.tokens as u64),
        pass_tokens: pass.and_then(|pass| pass.padded_tokens(sequences, spec.model.seq_len)),
        // A text of its own was not looked at.
        val_tokens: pass
            .filter(|_| !own_text)
            .map(|pass| (pass.val_tokens * counted) as u64),
        val_prompts: pass.filter(|_| prompts).map(|pass| pass.examples),
        held_out: pass
            .filter(|_| !own_text)
            .map(|pass| pass.val_tokens / (pass.val_tokens + pass.tokens).max(1.0)),
        rows: pass.and_then(|pass| pass.row_lengths(sequences, spec.model.seq_len)),
        packing: pass.map(|pass| pass.packing),
        filled: pass.and_then(|pass| pass.filled(spec.model.seq_len)),
        bytes: tokens.map_or(0, |tokens| data_bytes(spec, tokens, vocab_size)),
        ..DataSize::default()
    }
}

/// A spec with its epochs turned into the steps that a run of it takes; as it is where its data are unknown.
fn in_steps(spec: &RunSpec, data: Option<&DataFacts>) -> RunSpec {
    match data.and_then(|facts| Pass::of(facts, spec)) {
        Some(pass) => spec
            .clone()
            .on_data(pass.micro_steps(spec.train.micro_batch_size)),
        None => spec.clone(),
    }
}

/// The plan of a spec on this machine.
pub(super) fn of(spec: &RunSpec, data: Option<&DataFacts>, machine: &Machine) -> Plan {
    let size = size(spec, data);
    let spec = match size.epoch_tokens {
        Some(_) => in_steps(spec, data).in_steps(),
        None => spec.clone(),
    };
    let mut request = of_spec(&spec, size);
    request.device = Device::limit("this machine", machine.memory);
    machine.known.calibrate(&mut request);
    plan(&request)
}

/// `fits: 98 MiB of 24 GiB`
pub(super) fn memory_words(plan: &Plan) -> String {
    let need = human::bytes(plan.p50_bytes());
    let of = plan.request.device.memory.map_or(String::new(), |limit| {
        format!(" of {}", human::bytes(limit))
    });
    match plan.verdict() {
        Some(Verdict::Fits) => format!("fits: {need}{of}"),
        Some(Verdict::Tight) => format!("tight: {need}{of}"),
        Some(Verdict::TooLarge) => format!("too large: {need}{of}"),
        None => need,
    }
}

/// `about 1:20`, or `at most 6:10` of answers that may end sooner, if this machine's speed is known from earlier runs or was measured.
pub(super) fn time_words(plan: &Plan) -> Option<String> {
    let hours = plan.work.hours.filter(|h| h.is_finite() && *h >= 0.0)?;
    let time = Duration::try_from_secs_f64(hours * 3600.0).ok()?;
    let about = plan.request.about();
    Some(format!("{about} {}", human::duration(time)))
}

/// Lines of the plan: a label and its text.
pub(super) fn lines(
    spec: &RunSpec,
    data: Option<&DataFacts>,
    machine: &Machine,
) -> Vec<(&'static str, String)> {
    let estimated = spec.train.epochs.is_some();
    let spec = &in_steps(spec, data);
    let plan = of(spec, data, machine);
    // Passes over data that nobody has read yet.
    let unread = spec
        .train
        .epochs
        .filter(|_| plan.request.extras.epoch_tokens.is_none());
    let memory = format!(
        "{}; the largest part: {}",
        memory_words(&plan),
        largest(&plan)
    );
    let (compute, time) = match unread {
        Some(_) => (None, "unknown until the data are read".into()),
        None => (
            Some(plan.work.compute_words()),
            time_with_source(&plan, machine),
        ),
    };
    let where_to = match (machine.gpus.is_empty(), spec.engine.entry().id) {
        (true, _) | (false, "torch") => machine.line(),
        (false, "auto") => format!("{}; engine: auto decides at the start", machine.line()),
        (false, _) => format!("{}; engine: candle trains on the CPU", machine.line()),
    };
    let disk = format!("{} for its checkpoints", human::bytes(plan.disk_bytes));
    let lines = [
        ("Model", Some(model_words(spec, data, &plan))),
        ("Steps", Some(steps_words(spec, &plan, unread, estimated))),
        ("Data", passes_words(spec, data, &plan)),
        ("Memory", Some(memory)),
        ("Compute", compute),
        ("Time", Some(time)),
        ("Machine", Some(where_to)),
        ("Engine", engine_words(&plan.request, machine)),
        ("Disk", Some(disk)),
    ];
    let known = |(label, words): (_, Option<String>)| Some((label, words?));
    lines.into_iter().filter_map(known).collect()
}

fn model_words(spec: &RunSpec, data: Option<&DataFacts>, plan: &Plan) -> String {
    let model = &spec.model;
    format!(
        "{} parameters: {} layers of {}, {} tokens of context, vocabulary {}",
        human::short(plan.request.arch.n_params() as f64),
        model.n_layer,
        model.d_model,
        human::grouped(model.seq_len as u64),
        human::grouped(size(spec, data).vocab_size as u64)
    )
}

/// `estimated`: of epochs over data that were not tokenized yet, which make no number of steps for sure.
fn steps_words(spec: &RunSpec, plan: &Plan, unread: Option<f64>, estimated: bool) -> String {
    let step_tokens = human::grouped(plan.request.batch_tokens());
    let about = if estimated { "about " } else { "" };
    match (unread, spec.rollout_length()) {
        (_, Some(length)) => length.words(),
        (Some(epochs), None) => format!(
            "{epochs} epochs, in steps of {step_tokens} tokens; their number is known once the data are read"
        ),
        (None, None) => format!(
            "{about}{} of {step_tokens} tokens each, {about}{} in all",
            human::grouped(spec.train.max_steps),
            human::short(plan.request.tokens as f64)
        ),
    }
}

/// How often the run sees its data or prompts, if their size is known.
fn passes_words(spec: &RunSpec, data: Option<&DataFacts>, plan: &Plan) -> Option<String> {
    // Answers of its own are no pass over the data.
    if let Some(length) = spec.rollout_length() {
        let prompts = plan.request.extras.answers.and_then(|a| a.prompts)?;
        return Some(format!("about {}", length.passes_words(prompts)));
    }
    let pass = Pass::of(data?, spec).filter(|pass| pass.tokens >= 1.0)?;
    let about = match spec.data.tokenizer.entry().id {
        "char" => "",
        _ => "about ",
    };
    let micro_steps = spec.train.micro_steps(spec.train.max_steps) as f64;
    let passes = micro_steps / pass.micro_steps(spec.train.micro_batch_size);
    Some(format!(
        "{about}{passes:.1} epochs of {} training tokens",
        human::short(pass.tokens.floor())
    ))
}

/// The time, and where the speed behind it comes from.
fn time_with_source(plan: &Plan, machine: &Machine) -> String {
    let Some(time) = time_words(plan) else {
        return format!(
            "unknown until the first steps: no earlier run on {}",
            machine.name
        );
    };
    match plan.request.mfu_source {
        ValueSource::Learned => format!("{time}, from the speed of earlier runs here"),
        _ => format!("{time}, from a matmul benchmark; the first steps will refine it"),
    }
}

/// `torch: one GPU here (…): …; -s engine=torch`; nothing where there is no choice.
fn engine_words(request: &Request, machine: &Machine) -> Option<String> {
    let choice = engines::choose(request, Some(&Gpus::of(&machine.gpus)?))?;
    let set = match choice.settings.is_empty() {
        true => String::new(),
        false => format!("; {}", choice.settings),
    };
    Some(format!("{}: {}{set}", choice.engine, choice.why))
}

fn largest(plan: &Plan) -> String {
    let part = plan.memory.parts().iter().max_by_key(|c| c.bytes);
    part.map_or(String::new(), |c| {
        format!(
            "{}, {}",
            c.part.title().to_lowercase(),
            human::bytes(c.bytes)
        )
    })
}

/// Advice on the plan, and what the checks before the run will say of its settings, worst first.
pub(super) fn advice(spec: &RunSpec, data: Option<&DataFacts>, machine: &Machine) -> Vec<String> {
    let plan = of(spec, data, machine);
    let size = size(spec, data);
    let sequences = spec.method.needs().unit.sequences() as u64;
    let mut list = in_steps(spec, data).review(Sizes {
        step_tokens: Some(spec.batch_tokens() * sequences),
        pass_tokens: size.pass_tokens.or(size.epoch_tokens),
        padded: size.pass_tokens.is_some(),
        val_tokens: size.val_tokens,
        val_prompts: size.val_prompts,
        held_out: size.held_out,
        labels: size.labels,
        long_prompts: None,
        plain_prompts: data
            .filter(|facts| facts.template.is_some())
            .and_then(|facts| facts.plain),
        ranks: None,
        here: spec.engine.torch().is_none(),
    });
    // The plan reviews the same settings, of which it knows less.
    let told = |a: &Finding| {
        list.iter().any(|b| {
            (&b.id, &b.place) == (&a.id, &a.place) || b.id == a.id && a.id == "repeated_data"
        })
    };
    let of_plan: Vec<Finding> = plan.advice.iter().filter(|a| !told(a)).cloned().collect();
    list.extend(of_plan);
    list.sort_by_key(|advice| advice.status);
    let known = |a: &Finding| match a.advice() {
        fix if fix.is_empty() => format!("{} ({})", a.evidence, a.source),
        fix => format!("{}; {fix} ({})", a.evidence, a.source),
    };
    let too_long = data.and_then(|facts| Pass::too_long_words(facts, spec));
    let too_long = too_long.map(|words| format!("{words}; {ROOM}"));
    too_long.into_iter().chain(list.iter().map(known)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advisor::inspection;
    use crate::hardware::Summary;
    use crate::plan::probe::Speed;
    use crate::spec::SpecSources;

    #[test]
    fn the_template_of_the_model_is_counted() {
        let facts = DataFacts {
            chars: Some(400),
            distinct: None,
            rows: Some(10),
            messages: 2.0,
            ..inspection::corpus("tinyshakespeare").unwrap()
        };
        // Ten tokens of text a row, and ChatML around two messages.
        assert_eq!(tokens(&facts, "file"), Some(200.0));
        let template = Some(TemplateTokens {
            start: 20.0,
            each: 5.0,
        });
        let with_system = DataFacts { template, ..facts };
        assert_eq!(tokens(&with_system, "file"), Some(400.0));
        let plain = DataFacts {
            messages: 0.0,
            ..with_system
        };
        assert_eq!(tokens(&plain, "file"), Some(100.0));
    }

    /// A dry run of the file had this advice, and the wizard that wrote it "no setting looks unusual".
    #[test]
    fn prompts_that_bypass_the_template_are_advised_on_as_in_a_dry_run() {
        let dir = tempfile::tempdir().unwrap();
        let facts = |row: &str| {
            let path = dir.path().join("rows.jsonl");
            std::fs::write(&path, format!("{row}\n").repeat(200)).unwrap();
            DataFacts {
                template: Some(TemplateTokens::CHATML),
                ..inspection::data(&path).unwrap()
            }
        };
        let mut draft = Draft::open("dpo-demo", &SpecSources::default()).unwrap();
        draft.set("train.from", "a/model", "").unwrap();
        let spec = draft.spec().unwrap();
        let machine = Machine::of(Summary::default(), Default::default());
        let about = |facts: &DataFacts| {
            let all = advice(&spec, Some(facts), &machine);
            all.iter().any(|line| line.contains("bypass it"))
        };
        let plain = facts(r#"{"prompt": "say it", "chosen": "it", "rejected": "no"}"#);
        assert!(about(&plain));
        let base = DataFacts {
            template: None,
            ..plain
        };
        assert!(!about(&base), "a base model has no template");
        let written = r#"{"prompt": "<|im_start|>user\nsay it<|im_end|>\n", "chosen": "it", "rejected": "no"}"#;
        assert!(!about(&facts(written)));
        let turns = r#"{"prompt": [{"role": "user", "content": "say it"}], "chosen": [{"role": "assistant", "content": "it"}], "rejected": [{"role": "assistant", "content": "no"}]}"#;
        assert!(!about(&facts(turns)));
    }

    #[test]
    fn parameters_are_counted_as_the_model_counts_them() {
        for preset in ["quickstart", "smoke", "shakespeare-bpe"] {
            let draft = Draft::open(preset, &SpecSources::default()).unwrap();
            let spec = draft.spec().unwrap();
            let vocab = spec.data.tokenizer.vocab_size().unwrap_or(65);
            let device = &candle_core::Device::Cpu;
            let model = crate::nn::Model::new(&spec.model, vocab, device).unwrap();
            let counted = n_params(&draft, None);
            assert_eq!(counted, Some(model.n_params() as u64), "{preset}");
        }
    }

    #[test]
    fn the_lines_tell_size_memory_and_time_where_a_speed_is_known() {
        let spec = Draft::open("quickstart", &SpecSources::default())
            .unwrap()
            .spec()
            .unwrap();
        let data = inspection::corpus("tinyshakespeare");
        let mut machine = Machine::of(
            Summary {
                cores: 2,
                ram_bytes: 24 << 30,
                ..Summary::default()
            },
            Default::default(),
        );
        let line = |machine: &Machine, label: &str| {
            let lines = lines(&spec, data.as_ref(), machine);
            lines.into_iter().find(|(l, _)| *l == label).unwrap().1
        };
        assert!(
            line(&machine, "Model").starts_with("804k parameters"),
            "{}",
            line(&machine, "Model")
        );
        assert_eq!(
            line(&machine, "Data"),
            "1.5 epochs of 1.00M training tokens"
        );
        // As the plan says it of the same run.
        let compute = line(&machine, "Compute");
        let plan = of(&spec, data.as_ref(), &machine);
        assert_eq!(compute, plan.work.compute_words());
        assert!(
            compute.starts_with("7.41e12 FLOPs, attention +8."),
            "{compute}"
        );
        assert!(line(&machine, "Memory").starts_with("fits: "));
        assert!(line(&machine, "Time").contains("no earlier run"));
        machine.known.speed = Some(Speed {
            on: "here".into(),
            f32: Some(1.4e11),
            bf16: Some(1.4e11),
            times: 3,
            newest: Default::default(),
        });
        let time = line(&machine, "Time");
        assert!(
            time.starts_with("about 1:") && time.contains("matmul benchmark"),
            "{time}"
        );
        assert_eq!(line(&machine, "Machine"), "2 cores, 24 GiB");
        machine.memory = Some(1 << 20);
        assert!(line(&machine, "Memory").starts_with("too large"));
        // Where there is a GPU, the engine for it is named.
        let labels = |machine: &Machine| lines(&spec, None, machine).len();
        let without = labels(&machine);
        machine.gpus = vec![crate::hardware::GpuSummary {
            name: "NVIDIA H100 80GB HBM3".into(),
            memory_bytes: 80 << 30,
        }];
        assert_eq!(labels(&machine), without + 1);
        let engine = line(&machine, "Engine");
        assert!(
            engine.starts_with("torch: one GPU here (NVIDIA H100 80GB HBM3")
                && engine.ends_with("-s engine=torch"),
            "{engine}"
        );
    }
}
