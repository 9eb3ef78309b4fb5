//! What the options of `llmtui plan` set: method, formats, adapters, batch and lengths; and how amounts are read.

use super::Args;
use crate::base::finding::Finding;
use crate::base::human;
use crate::base::near::{nearest, unknown};
use crate::cli::exit::Failure;
use crate::methods::ReferenceChoice;
use crate::plan::request::{
    AttentionKind, BaseFormat, Checkpointing, Logits, LoraTargets, Method, ValueSource,
};
use crate::plan::scheme::{Precision, UpdateState};
use crate::plan::{Estimator, Request, reference};

pub const LOGITS: [(&str, Logits); 2] = [
    ("whole", Logits::Whole),
    ("chunked", Logits::Chunked(reference::CHUNK)),
];
pub const ATTENTION: [(&str, AttentionKind); 2] = [
    ("flash", AttentionKind::Flash),
    ("eager", AttentionKind::Eager),
];
pub const REFERENCES: [(&str, ReferenceChoice); 4] = [
    ("auto", ReferenceChoice::Auto),
    ("frozen", ReferenceChoice::Frozen),
    ("adapter_off", ReferenceChoice::AdapterOff),
    ("precomputed", ReferenceChoice::Precomputed),
];

/// The words of a list, as a closed choice for help, completion and errors.
pub fn words<T>(list: &[(&'static str, T)]) -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(list.iter().map(|(word, _)| *word))
}

/// Looks a value up in a list; the error lists the valid ones.
fn pick<T: Copy>(what: &str, word: &str, list: &[(&str, T)]) -> Result<T, Failure> {
    let found = list.iter().find(|(w, _)| w.eq_ignore_ascii_case(word));
    found.map(|(_, x)| *x).ok_or_else(|| {
        let words: Vec<&str> = list.iter().map(|(w, _)| *w).collect();
        let near = nearest(word, words.iter().copied());
        unknown_option(what, word, near, &words)
    })
}

/// A value that an option does not have.
pub fn unknown_option(what: &str, word: &str, near: Option<&str>, known: &[&str]) -> Failure {
    let (what, hint) = unknown(&format!("--{what}"), word, near, known);
    Failure::user_error(what, hint)
}

/// Adapters are no method: any method trains them.
fn not_a_method(word: &str, error: Failure) -> Failure {
    let hint = match word.to_lowercase().as_str() {
        "lora" => "adapters go with any method: --lora-rank 16 (and --quantize nf4 for QLoRA)",
        "qlora" => "adapters go with any method: --lora-rank 16 --quantize nf4",
        _ => return error,
    };
    Failure {
        hint: hint.into(),
        ..error
    }
}

/// The optimizers that there are, and the one that was probably meant.
fn no_optimizer(word: &str) -> Failure {
    let all = UpdateState::optimizers();
    unknown_option("optimizer", word, nearest(word, all.iter().copied()), &all)
}

/// Method, number formats, adapters, sharding.
pub fn trained(args: &Args, request: &mut Request) -> anyhow::Result<()> {
    if let Some(word) = &args.method {
        let method = pick("method", word, &Method::ALL).map_err(|e| not_a_method(word, e))?;
        request.set_method(method);
        // The same method as pretraining, on weights that know something.
        request.extras.has_base |= word == "cpt";
    }
    if let Some(word) = &args.reference {
        request.reference = pick("reference", word, &REFERENCES)?;
    }
    if let Some(word) = &args.precision {
        request.precision = pick("precision", word, &Precision::ALL)?;
    }
    if let Some(word) = &args.quantize {
        request.base = pick("quantize", word, &BaseFormat::ALL)?;
    }
    let targets = args.lora_targets.as_deref();
    let targets = targets.map(|word| pick("lora-targets", word, &LoraTargets::ALL));
    let targets = targets.transpose()?;
    if args.lora_rank.is_some() || targets.is_some() || request.base != BaseFormat::Whole {
        request.adapt(args.lora_rank, targets);
    }
    if let Some(word) = &args.optimizer {
        let word = word.to_lowercase();
        let rule = UpdateState::of_optimizer(&word, &request.param_infos());
        request.update = rule
            .or_else(|| UpdateState::by_word(&word))
            .ok_or_else(|| no_optimizer(&word))?;
    }
    request.n_devices = args.gpus.unwrap_or(request.n_devices);
    request.zero = args.zero.unwrap_or(request.zero);
    if request.zero > 0 && request.n_devices < 2 {
        let what = format!(
            "--zero {} shards over several GPUs, but there is one",
            request.zero
        );
        return Err(Failure::user_error(what, "set the number: --gpus 8").into());
    }
    Ok(())
}

/// What rows that are longer than the context of a given model need.
///
/// # Errors
/// Its positions end there.
pub fn longer_context(request: &Request, seq_len: u64) -> anyhow::Result<Option<Finding>> {
    let most = request.arch.max_len();
    if seq_len <= most {
        return Ok(None);
    }
    let config = request.arch.config();
    let context = format!(
        "the context of {} is {} tokens",
        request.name,
        human::grouped(most)
    );
    if config.position.has_table() {
        let what = format!("{context}: its learned positions end there");
        return Err(
            Failure::user_error(what, "use a smaller --seq-len, or a model with RoPE").into(),
        );
    }
    let Some(rope) = config.position.rope() else {
        let finding = Finding::pass(format!(
            "{context}; its positions are computed for any length, and need no scaling for {}",
            human::grouped(seq_len)
        ));
        return Ok(Some(Finding {
            source: "Press et al. 2022, arXiv 2108.12409 (ALiBi); docs/models.md, longer contexts"
                .into(),
            ..finding.named("longer_context", "")
        }));
    };
    let factor = seq_len as f64 / config.original_context() as f64;
    let replaced = match &rope.scaling {
        Some(scaling) => format!(" in place of its {} scaling", scaling.entry().id),
        None => String::new(),
    };
    let finding = Finding::warn(
        format!(
            "{context}: training with {} stretches its positions by a factor of {}{replaced}",
            human::grouped(seq_len),
            human::few(factor)
        ),
        "rotations beyond the context of its training are new to its weights",
        format!("-s model.position.rope.scaling=yarn -s model.seq_len={seq_len}"),
    );
    Ok(Some(Finding {
        source: "Peng et al. 2023, arXiv 2309.00071 (YaRN); docs/models.md, longer contexts".into(),
        ..finding.named("longer_context", "")
    }))
}

/// So many completions at once.
///
/// # Errors
/// The method samples none.
fn rollouts_of(method: Method, rollouts: u64) -> Result<u64, Failure> {
    match method.rolls_out() {
        true => Ok(rollouts),
        false => Err(Failure::user_error(
            format!("{} samples no completions", method.word()),
            "drop --rollouts, or choose a method that does: --method grpo",
        )),
    }
}

/// Batch, length, token counts, speed.
pub fn portions(args: &Args, request: &mut Request) -> anyhow::Result<()> {
    if let Some(batch) = args.batch {
        *request = crate::plan::solve::with_batch(request, batch);
    }
    if let Some(seq_len) = args.seq_len {
        if request.estimator == Estimator::General {
            let longer = longer_context(request, seq_len)?;
            request.settings.extend(longer);
        }
        *request = crate::plan::solve::with_seq_len(request, seq_len);
    }
    request.grad_accum = args.grad_accum.unwrap_or(request.grad_accum);
    if let Some(rollouts) = args.rollouts {
        request.rollouts = rollouts_of(request.method, rollouts)?;
    }
    if let Some(word) = &args.checkpointing {
        request.checkpointing = Checkpointing::by_word(word).ok_or_else(|| {
            let known = ["off", "full", "every-2", "every-4 …"];
            unknown_option("checkpointing", word, None, &known)
        })?;
    }
    if let Some(word) = &args.logits {
        request.logits = pick("logits", word, &LOGITS)?;
    }
    if let Some(word) = &args.attention {
        request.attention = pick("attention", word, &ATTENTION)?;
    }
    let other = args.tokens.is_some() || args.batch.is_some() || args.grad_accum.is_some();
    if let Some(answers) = request.extras.answers.as_mut().filter(|_| other) {
        answers.length = None;
    }
    if let Some(tokens) = args.tokens {
        request.set_tokens(tokens);
    }
    if let Some(mfu) = args.mfu {
        (request.mfu, request.mfu_source) = (mfu, ValueSource::Stated);
    }
    Ok(())
}

pub fn share(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').trim().parse::<f64>() {
        Ok(x) if x > 0.0 && x <= 1.0 => Ok(x),
        Ok(x) if x > 1.0 && x <= 100.0 => Ok(x / 100.0),
        _ => Err("a fraction from 0 to 1, or a percentage up to 100".into()),
    }
}

pub fn tflops(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x.is_finite() && x > 0.0 => Ok(x),
        _ => Err("an amount above 0".into()),
    }
}

pub fn price(text: &str) -> Result<f64, String> {
    match text.trim_start_matches('$').parse::<f64>() {
        Ok(x) if x.is_finite() && x >= 0.0 => Ok(x),
        _ => Err("an amount from 0 up".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_beyond_a_models_context_need_a_scaling_or_end() {
        let model = |name: &str| {
            let found = crate::plan::models::MODELS.iter().find(|m| m.name == name);
            reference::reference_request(found.unwrap())
        };
        let llama = model("llama-2-7b");
        assert!(longer_context(&llama, 4096).unwrap().is_none());
        let found = longer_context(&llama, 16_384).unwrap().unwrap();
        let what = found.evidence.to_string();
        assert!(
            what.contains("4,096 tokens") && what.contains("a factor of 4.0"),
            "{what}"
        );
        assert!(found.fix.contains("scaling=yarn -s model.seq_len=16384"));
        // Of a scaled model the original context counts.
        let llama = model("llama-3.1-8b");
        let found = longer_context(&llama, 262_144).unwrap().unwrap();
        let what = found.evidence.to_string();
        assert!(
            what.contains("factor of 32 in place of its llama3 scaling"),
            "{what}"
        );
        let error = longer_context(&model("gpt2"), 2048).unwrap_err();
        assert!(
            error.to_string().contains("learned positions end there"),
            "{error}"
        );
    }

    #[test]
    fn every_choice_is_named_in_the_help_and_optimizers_where_one_is_not_known() {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            args: Args,
        }
        let help = <Cli as clap::CommandFactory>::command()
            .render_long_help()
            .to_string();
        // Lines are broken where they end.
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let methods: Vec<&str> = Method::ALL.iter().map(|(word, _)| *word).collect();
        let devices: Vec<&str> = crate::plan::gpus::GPUS.iter().map(|gpu| gpu.name).collect();
        for named in [UpdateState::optimizers(), methods, devices] {
            let named = named.join(", ");
            assert!(help.contains(&named), "{named} in {help}");
        }
        let failure = no_optimizer("sopa");
        assert_eq!(failure.what, "unknown --optimizer `sopa`");
        let hint = "did you mean soap? Known: adamw, ";
        assert!(failure.hint.starts_with(hint), "{}", failure.hint);
        let hint = no_optimizer("levitation").hint;
        assert!(hint.starts_with("known: adamw, "), "{hint}");
    }

    #[test]
    fn rollouts_are_of_methods_that_sample() {
        for (word, method) in Method::ALL {
            assert_eq!(
                rollouts_of(method, 64).is_ok(),
                method.rolls_out(),
                "{word}"
            );
        }
        let failure = rollouts_of(Method::Pretrain, 64).unwrap_err();
        assert_eq!(failure.what, "pretrain samples no completions");
    }

    #[test]
    fn shares_and_prices_are_read_as_people_write_them() {
        assert_eq!(
            (share("0.4"), share("40"), share("40%")),
            (Ok(0.4), Ok(0.4), Ok(0.4))
        );
        assert!(share("0").is_err() && share("101").is_err() && share("x").is_err());
        assert_eq!(price("$2.5"), Ok(2.5));
        assert!(price("-1").is_err());
    }

    #[test]
    fn a_wrong_word_names_the_right_ones() {
        let error = pick("method", "dop", &Method::ALL).unwrap_err();
        assert_eq!(error.what, "unknown --method `dop`");
        assert!(
            error
                .hint
                .starts_with("did you mean dpo? Known: pretrain, ")
        );
        let error = pick("method", "nosuch", &Method::ALL).unwrap_err();
        assert!(error.hint.starts_with("known: pretrain, "), "{error:?}");
        for (word, options) in [("lora", "--lora-rank 16"), ("QLoRA", "--quantize nf4")] {
            let error = not_a_method(word, pick("method", word, &Method::ALL).unwrap_err());
            assert!(error.hint.contains(options), "{error:?}");
        }
    }
}
