//! `llmtui quantize`: write a quantized model and report the cost in perplexity.

use super::Context;
use super::exit::{Exit, Failure};
use super::{model_ref, run_ref};
use crate::base::child::Child;
use crate::base::files::{read_plain_text, write_atomic};
use crate::base::human;
use crate::base::place::try_write;
use crate::base::text::{one_line, shown};
use crate::data::{Batch, DataEnv, Unit, tokenizer};
use crate::embed;
use crate::engine::checkpoint::fingerprint::Match;
use crate::engine::checkpoint::{self, Fingerprint};
use crate::engine::export::{Source, check_gguf, tokenizer_keys};
use crate::engine::perplexity::{Perplexity, perplexity, perplexity_on};
use crate::kernels::quant::Kind;
use crate::llama_cpp::{self, GgufModel};
use crate::models::Parts;
use crate::nn::Model;
use crate::run::RunDir;
use std::path::{Path, PathBuf};

/// Quantize a model and report its perplexity before and after
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui quantize runs/…/checkpoints/step-001000 --dtype q4_k --to model-q4_k.gguf
  llmtui quantize model-f16.gguf --dtype q8_0 --to model-q8_0.gguf --text held-out.txt")]
pub struct Args {
    /// A checkpoint folder, a run (its best checkpoint), a Hugging Face model folder, a GGUF file or a hub id
    #[arg(value_name = "MODEL")]
    pub model: String,
    /// Quantization type of the matrices
    #[arg(long, value_name = "TYPE", value_parser = kind)]
    pub dtype: Kind,
    /// The GGUF file to write; must not exist
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
    /// A text that the model was not trained on; default: rows that the checkpoint's run holds out; of other models the end of the built-in Shakespeare, which no preset trains on. A vocabulary without its characters: no perplexity
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,
}

/// Most tokens of the text to use.
const MAX_TOKENS: usize = 4096;
/// Context length of the evaluation, in tokens.
const WINDOW: usize = 512;
/// Fraction at the end of the built-in text that runs hold out.
const HELD_OUT: f64 = 0.1;

fn kind(word: &str) -> Result<Kind, String> {
    Kind::by_word(word)
        .filter(|kind| kind.writable())
        .ok_or_else(|| {
            let known = Kind::ALL.iter().filter(|kind| kind.writable());
            let known: Vec<&str> = known.map(|kind| kind.format().word).collect();
            let mix = mix(word).filter(|plain| known.contains(&plain.as_str()));
            let mix = mix.map_or(String::new(), |plain| {
                format!("{word} is one of llama.cpp's mixes of types, which are not made here: --dtype {plain} has one type for all matrices; ")
            });
            format!("{mix}the types are {}", known.join(", "))
        })
}

/// `q4_k` of `q4_k_m`: the type that most matrices of a mix have.
fn mix(word: &str) -> Option<String> {
    let word = word.to_lowercase().replace('-', "_");
    let (plain, size) = word.rsplit_once('_')?;
    matches!(size, "xs" | "s" | "m" | "l" | "xl").then(|| plain.to_string())
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    if args.to.exists() {
        let what = format!("{} already exists", shown(&args.to));
        return Err(Failure::user_error(what, "choose another name, or remove it first").into());
    }
    try_write(&args.to).map_err(|e| Failure::not_written(&args.to, &e))?;
    let user_error = |what: String, hint: &str| Failure::user_error(one_line(&what), hint);
    let path = model_ref::find(&args.model, Parts::Everything, cx)?;
    let mut source = Source::open(&path).map_err(|e| user_error(e.to_string(), &e.hint()))?;
    check_gguf(&source).map_err(|e| user_error(e.to_string(), &e.hint()))?;
    let held = match args.text.is_none().then(|| own_rows(&path, cx)).flatten() {
        Some((rows, run)) => Ok(HeldOut::Rows(rows, run)),
        None => tokens(args, &source.tokenizer)?.map(HeldOut::Text),
    };
    let window = WINDOW.min(source.model.shape().seq_len);
    let measure = |model: &mut Model| -> anyhow::Result<Option<Perplexity>> {
        Ok(match &held {
            Ok(HeldOut::Rows(rows, _)) => Some(perplexity_on(model, rows)?),
            Ok(HeldOut::Text(tokens)) => Some(perplexity(model, tokens, window)?),
            Err(_) => None,
        })
    };
    let before = measure(&mut source.model)?;
    let tokenizer = tokenizer_keys(&source).map_err(|e| user_error(e.to_string(), &e.hint()))?;
    let name = source.from.name();
    let mut bytes = Vec::new();
    let keys = &tokenizer.keys;
    let mut written = llama_cpp::write(&source.model, args.dtype, &name, keys, &mut bytes)
        .map_err(|e| user_error(e.to_string(), "llmtui export --help lists other formats"))?;
    written.notes.extend(tokenizer.notes);
    drop(source);
    write_atomic(&args.to, &bytes).map_err(|e| Failure::not_written(&args.to, &e))?;
    drop(bytes);
    let mut after = GgufModel::open(&args.to)?.quantized()?;
    let after = measure(&mut after)?;
    print_result(args, &written, held.as_ref().ok(), before.zip(after))?;
    if let Err(why) = &held {
        outln!(
            "perplexity         not measured: {why}; --text FILE measures it on a text of your own"
        )?;
    }
    Ok(Exit::Done)
}

/// What the perplexity is measured on.
enum HeldOut {
    Text(Vec<u32>),
    /// Of this run.
    Rows(Vec<Batch>, String),
}

/// Rows that the run of a checkpoint holds out, and the run. `None` of other models, of rows that are not texts, and where its data
/// cannot be read any more or are others than it trained on: the split would be another one.
fn own_rows(path: &Path, cx: &Context) -> Option<(Vec<Batch>, String)> {
    let folder = std::path::absolute(path).ok()?;
    let run = RunDir::open(folder.parent()?.parent()?).ok()?;
    let spec = run_ref::spec_of(&run).ok()?;
    if spec.method.needs().unit != Unit::Text {
        return None;
    }
    let trained_on = checkpoint::read_state(path).ok()?.fingerprint;
    let data = spec.open_data(&DataEnv::from_env(&cx.env)).ok()?;
    if let Match::Different(_) = trained_on.compare(&Fingerprint::of(&spec, &data)) {
        return None;
    }
    let (mut rows, mut tokens) = (Vec::new(), 0);
    for row in data.first_val_rows(MAX_TOKENS) {
        if tokens >= MAX_TOKENS {
            break;
        }
        let row = data.val_rows(&[row]);
        tokens += row.supervised();
        rows.push(row);
    }
    (tokens > 0).then(|| (rows, run.folder()))
}

/// The text encoded by the tokenizer at `path`. Of the built-in text, why this vocabulary cannot encode it: nobody chose that text.
fn tokens(args: &Args, path: &Path) -> anyhow::Result<Result<Vec<u32>, String>> {
    let text = match &args.text {
        Some(file) => read_plain_text(file).map_err(|e| Failure::not_read(file, &e))?,
        None => {
            let all = embed::text("assets/corpora/tinyshakespeare.txt").unwrap_or_default();
            let from = all.floor_char_boundary((all.len() as f64 * (1.0 - HELD_OUT)) as usize);
            all[from..].to_string()
        }
    };
    let tokenizer = tokenizer::load(path, &Child::of_this_program()).map_err(|e| {
        Failure::user_error(
            one_line(&e.to_string()),
            "put the model's tokenizer into the same folder",
        )
    })?;
    // As a text begins for the model in training, `llmtui score` and `llmtui eval`.
    let mut tokens = match (tokenizer.encode_begun(&text), &args.text) {
        (Ok(tokens), _) => tokens,
        (Err(e), None) => {
            return Ok(Err(format!(
                "the built-in text: {}",
                one_line(&e.to_string())
            )));
        }
        (Err(e), Some(_)) => {
            return Err(
                Failure::user_error(one_line(&e.to_string()), "choose another --text").into(),
            );
        }
    };
    if tokens.len() < 2 {
        let named = args.text.as_ref().map(|file| file.display().to_string());
        let what = format!("{}: fewer than two tokens", named.unwrap_or_default());
        return Err(
            Failure::user_error(one_line(&what), "--text takes a file with some text").into(),
        );
    }
    tokens.truncate(MAX_TOKENS);
    Ok(Ok(tokens))
}

fn print_result(
    args: &Args,
    written: &llama_cpp::Written,
    held: Option<&HeldOut>,
    measured: Option<(Perplexity, Perplexity)>,
) -> anyhow::Result<()> {
    let bytes = std::fs::metadata(&args.to)?.len();
    let formats = written.formats.iter();
    let formats: Vec<String> = formats.map(|(name, n)| format!("{n} in {name}")).collect();
    outln!("{}  {}", shown(&args.to), human::bytes(bytes))?;
    outln!("matrices           {}", formats.join(", "))?;
    for line in &written.notes {
        outln!("                   {line}")?;
    }
    let Some((before, after)) = measured else {
        return Ok(());
    };
    match held {
        Some(HeldOut::Rows(_, run)) => outln!(
            "held-out rows      {} tokens, of {}",
            before.tokens,
            one_line(run)
        )?,
        _ => outln!("text               {} tokens", before.tokens)?,
    }
    outln!("perplexity before  {}", human::loss(before.value()))?;
    outln!(
        "perplexity after   {}  ({} %)",
        human::loss(after.value()),
        change(before.value(), after.value())
    )?;
    Ok(())
}

/// Per cent to two digits, with a sign where one of them is not 0.
fn change(before: f64, after: f64) -> String {
    let percent = (1e4 * (after / before - 1.0)).round() / 100.0;
    match percent == 0.0 {
        true => "0.00".into(),
        false => format!("{percent:+.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_change_has_no_sign() {
        assert_eq!(change(26.3140, 26.3138), "0.00");
        assert_eq!(change(26.3140, 26.3141), "0.00");
        assert_eq!(change(30.1354, 30.2443), "+0.36");
        assert_eq!(change(30.0, 29.7), "-1.00");
    }

    /// A model of ten characters could not be quantized, for the built-in text has more.
    #[test]
    fn a_vocabulary_without_the_built_in_text_is_measured_on_none() {
        let dir = tempfile::tempdir().unwrap();
        let digits = tokenizer::TokenizerConfig::Char(Default::default())
            .build("0123456789\n", "0123456789\n")
            .unwrap();
        std::fs::write(dir.path().join("tokenizer.json"), digits.to_json()).unwrap();
        let text = dir.path().join("text.txt");
        std::fs::write(&text, "a text").unwrap();
        let args = |text: Option<PathBuf>| Args {
            model: String::new(),
            dtype: kind("q8_0").unwrap(),
            to: PathBuf::new(),
            text,
        };
        let why = tokens(&args(None), dir.path()).unwrap().unwrap_err();
        assert!(why.contains("not in the vocabulary"), "{why}");
        // A text that the user chose is an error.
        assert!(tokens(&args(Some(text.clone())), dir.path()).is_err());
        std::fs::write(&text, "10\n").unwrap();
        let few = tokens(&args(Some(text)), dir.path()).unwrap().unwrap();
        assert_eq!(few.len(), 3);
    }

    #[test]
    fn a_mix_of_llama_cpp_is_told_its_type() {
        for (word, plain) in [
            ("q4_k_m", "q4_k"),
            ("Q4_K_S", "q4_k"),
            ("q6-k-l", "q6_k"),
            ("q5_k_m", "q5_k"),
        ] {
            let said = kind(word).unwrap_err();
            assert!(said.contains(&format!("--dtype {plain} ")), "{said}");
        }
        let said = kind("q3_k_m").unwrap_err();
        assert!(said.starts_with("the types are"), "{said}");
        assert!(kind("q4_k").is_ok());
    }
}
