//! `llmtui chat`: chat with a model in plain text: one prompt, interactive lines, or the lines of a pipe.

mod adapters;
mod answer;
mod calls;
mod flow;
mod json_file;
mod keyboard;
mod line;
pub(super) mod session;

use super::{
    Context,
    args::{SamplingArgs, kv_precision},
    exit::{Exit, Failure},
    model_ref,
};
use crate::data::chat::tool_calls::{TOOL_FILE, read_tools};
use crate::hf::ADAPTER_CONFIG;
use crate::link::{Link, launch::Launcher};
use crate::models::Parts;
use crate::nn::KvPrecision;
use keyboard::Keyboard;
use serde_json::{Map, Value};
use session::{ChatOptions, ChatSession, LineResult};
use std::io::BufRead;
use std::path::{Path, PathBuf};

/// Chat with a model through its chat template, or complete raw text
///
/// Without --prompt, each line of standard input is a turn of one conversation; with --raw, or for a model without a
/// chat template, each line is a separate prompt. With piped input only the answers are printed. A line that starts with a
/// slash and a word is a command: /adapter, /help, /new, /quit, /tool; // sends a slash.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A run (its best checkpoint), a checkpoint folder, a Hugging Face folder, a .gguf file or a hub id (org/name)
    #[arg(value_name = "MODEL")]
    pub model: String,
    /// Answer with this adapter (a PEFT folder, or a run); switch between several with `/adapter NAME`
    #[arg(long = "adapter", value_name = "DIR")]
    pub adapters: Vec<String>,
    /// Send this prompt, print the answer and exit
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub prompt: Option<String>,
    /// System prompt
    #[arg(
        long,
        value_name = "S",
        conflicts_with = "raw",
        allow_hyphen_values = true
    )]
    pub system: Option<String>,
    /// Tools the model may call: a JSON file with a list of definitions, as for transformers' apply_chat_template; `/tool TEXT`
    /// gives a call's result
    #[arg(long, value_name = "FILE.json", conflicts_with = "raw")]
    pub tools: Option<PathBuf>,
    /// Answer with JSON of this schema, or with a call where there are tools: a file with a JSON schema
    #[arg(long, value_name = "FILE.json")]
    pub json_schema: Option<PathBuf>,
    /// Variables of the chat template, as a JSON object: '{"reasoning_effort": "high"}'
    #[arg(long, value_name = "JSON", conflicts_with = "raw", value_parser = variables)]
    pub chat_template_kwargs: Option<Map<String, Value>>,
    /// Complete the text as it is, without a chat template
    #[arg(long)]
    pub raw: bool,
    /// Print the rendered prompt before each answer (to standard error)
    #[arg(long)]
    pub show_prompt: bool,
    /// Print one JSON object per answer
    #[arg(long)]
    pub json: bool,
    /// Dtype of the KV cache: bf16 takes half the memory of f32; auto takes bf16 for quantized weights, else f32
    #[arg(long, value_name = "DTYPE", default_value = "auto", value_parser = kv_precision())]
    pub kv_cache: KvPrecision,
    #[command(flatten)]
    pub sampling: SamplingArgs,
}

/// # Errors
/// It is no JSON object.
fn variables(text: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(variables)) => Ok(variables),
        Ok(_) => Err("expected a JSON object such as {\"reasoning_effort\": \"high\"}".into()),
        Err(e) => Err(format!("not JSON: {e}")),
    }
}

const SCHEMA_HINT: &str = r#"a JSON schema such as {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}"#;

pub fn run(args: Args, cx: &Context) -> anyhow::Result<Exit> {
    let tools = match &args.tools {
        Some(path) => read_tools(path).map_err(|what| Failure::user_error(what, TOOL_FILE))?,
        None => Vec::new(),
    };
    let json_schema = match &args.json_schema {
        Some(path) => Some(json_file::read(path, SCHEMA_HINT)?),
        None => None,
    };
    let model = model_ref::find(&args.model, Parts::Everything, cx)?;
    let mut link = open(&model, &args.adapters, args.kv_cache, Vec::new(), cx)?;
    let options = ChatOptions {
        sampling: args.sampling.sampling(),
        limited: args.sampling.max_new_tokens.is_some(),
        system: args.system.clone(),
        tools,
        json_schema,
        template: args.chat_template_kwargs.clone().unwrap_or_default(),
        raw: args.raw,
        show_prompt: args.show_prompt,
        json: args.json,
        terminal: cx.stdout_is_terminal,
        columns: cx.columns(),
    };
    let mut session = ChatSession::begin(&mut link, std::io::stdout().lock(), options)?;
    for note in session.notes() {
        errln!("{note}");
    }
    match &args.prompt {
        Some(prompt) => session.send_turn(prompt)?,
        None => {
            if let Some(hint) = session.adapter_hint() {
                errln!("{hint}");
            }
            return converse(&mut session, &args.model, cx);
        }
    }
    Ok(Exit::Done)
}

/// Starts a process that answers with the model and these adapters (PEFT folders, or runs), and has these further options.
///
/// # Errors
/// An adapter is not found, or the process cannot be started.
pub(super) fn open(
    model: &Path,
    adapters: &[String],
    kv_cache: KvPrecision,
    mut options: Vec<String>,
    cx: &Context,
) -> anyhow::Result<Link> {
    let adapters = adapters.iter().map(|word| match Path::new(word) {
        path if path.join(ADAPTER_CONFIG).is_file() => Ok(path.to_path_buf()),
        _ => model_ref::find(word, Parts::Everything, cx),
    });
    let adapters = adapters.collect::<anyhow::Result<Vec<_>>>()?;
    if kv_cache != KvPrecision::Auto {
        options.extend(["--kv-cache".into(), kv_cache.word().into()]);
    }
    let launcher = Launcher::this_program(&cx.env)?;
    Ok(launcher.infer_with(model, &adapters, &options)?)
}

/// Sends each line of standard input. A terminal gets a prompt; a pipe is read as it is.
fn converse<W: std::io::Write>(
    session: &mut ChatSession<W>,
    name: &str,
    cx: &Context,
) -> anyhow::Result<Exit> {
    if cx.stdin_is_terminal {
        at_a_terminal(session, name)?;
        return Ok(Exit::Done);
    }
    // A refused line leaves a gap between the answers, which a script must not take for success.
    let mut exit = Exit::Done;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(unreadable)?;
        match session.handle_line(&line)? {
            LineResult::Text(text) => session.send_turn(text)?,
            LineResult::Results(results) => session.send_results(results)?,
            LineResult::Obeyed => {}
            LineResult::Refused => exit = Exit::UserError,
            LineResult::Quit => break,
        }
    }
    Ok(exit)
}

/// Ctrl-C stops the current answer; if there is none, it quits.
fn at_a_terminal<W: std::io::Write>(
    session: &mut ChatSession<W>,
    name: &str,
) -> anyhow::Result<()> {
    let what = match session.converses() {
        true => "each line is a turn of the conversation",
        false => "each line is continued by the model",
    };
    errln!("{name}: {what}; Ctrl-C stops an answer, Ctrl-D quits, /help lists commands");
    let mut keyboard = Keyboard::listen()?;
    loop {
        super::out::hint(format_args!("> "));
        match keyboard.line() {
            Some(line) => {
                let line = line.map_err(unreadable)?;
                match session.handle_line(&line)? {
                    LineResult::Text(text) => {
                        session.send_turn_interruptible(text, &mut keyboard)?
                    }
                    LineResult::Results(results) => {
                        session.send_results_interruptible(results, &mut keyboard)?
                    }
                    LineResult::Obeyed | LineResult::Refused => {}
                    LineResult::Quit => return Ok(()),
                }
            }
            None => {
                errln!();
                return Ok(());
            }
        }
    }
}

fn unreadable(error: std::io::Error) -> Failure {
    Failure::user_error(
        format!("standard input cannot be read: {error}"),
        "input must be UTF-8 text",
    )
}
