//! `llmtui serve`: a model behind the HTTP API of OpenAI, for programs that speak it: evaluation harnesses, editors, scripts.
//!
//! Requests (`routes`, `request`) become jobs, one an answer; the scheduler gives as many of them to the model's process as it has
//! rows (`scheduler`, behind `model`); what comes back is sorted by answer and becomes replies (`answer`, `choices`, `reply`).

mod access;
mod answer;
mod choices;
mod failed;
mod listen;
mod model;
mod reply;
mod request;
mod routes;
mod scheduler;

use super::{
    Context,
    args::{Parallel, SamplingArgs, kv_precision, parallel},
    chat,
    exit::{Exit, Failure},
    model_ref,
};
use crate::link::signals;
use crate::models::Parts;
use crate::nn::KvPrecision;
use access::Access;
use model::Model;
use request::Defaults;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// For the replies to those who wait when the model's process is gone.
const LAST_REPLIES: Duration = Duration::from_millis(500);

/// Serve a model over HTTP, by OpenAI's API
///
/// POST /v1/chat/completions and /v1/completions, also streamed; GET /v1/models and /health. Continuous batching over --parallel slots,
/// with chunked prefill and prefix caching. The sampling options are the defaults of requests that leave them out. Only this machine can reach the server unless --host says otherwise, which needs a key.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  llmtui serve runs/my-sft --port 8080
  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'")]
pub struct Args {
    /// A run (its best checkpoint), a checkpoint folder, a Hugging Face folder, a .gguf file or a hub id (org/name)
    #[arg(value_name = "MODEL")]
    pub model: String,
    /// Serve this adapter as well (a PEFT folder, or a run): requests choose by `model`; may be repeated
    #[arg(long = "adapter", value_name = "DIR")]
    pub adapters: Vec<String>,
    /// Address to listen on; another one than this machine's own needs a key
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// Port to listen on; 0 takes a free one
    #[arg(long, value_name = "N", default_value_t = 8080)]
    pub port: u16,
    /// Name of the model in the API; one with its own adapter is also there without it, as NAME-base. Default: as MODEL is written, without its folder
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// File with the key that requests must have (`Authorization: Bearer KEY`). Default: LLMTUI_API_KEY, else none
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// Dtype of the KV cache: bf16 takes half the memory of f32; auto takes bf16 for quantized weights, else f32
    #[arg(long, value_name = "DTYPE", default_value = "auto", value_parser = kv_precision())]
    pub kv_cache: KvPrecision,
    /// Requests generated concurrently (slots), 1 to 16, each with its own KV cache; auto takes 4 if their contexts fit in memory, else fewer
    #[arg(long, value_name = "N", default_value = "auto", value_parser = parallel)]
    pub parallel: Parallel,
    #[command(flatten)]
    pub sampling: SamplingArgs,
}

pub fn run(args: Args, cx: &Context) -> anyhow::Result<Exit> {
    let access = Access::of(args.api_key_file.as_deref(), cx.env.api_key.as_deref())?;
    if !args.host.is_loopback() && !access.needs_key() {
        let what = format!(
            "--host {} lets other machines use the model, but no key is set",
            args.host
        );
        let hint = "set LLMTUI_API_KEY or --api-key-file, or reach it through `ssh -L` with the default --host";
        return Err(Failure::user_error(what, hint).into());
    }
    let path = model_ref::find(&args.model, Parts::Everything, cx)?;
    let name = args.name.clone().unwrap_or_else(|| name_of(&args.model));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    // Before the model is loaded, which may take minutes: an address that is taken is known at once.
    let at = SocketAddr::new(args.host, args.port);
    let listener = runtime
        .block_on(TcpListener::bind(at))
        .map_err(|e| taken(at, &e))?;
    let at = listener.local_addr()?;
    let options = vec!["--parallel".to_string(), args.parallel.to_string()];
    let link = chat::open(&path, &args.adapters, args.kv_cache, options, cx)?;
    let model = Model::start(link, &name, args.adapters.len())?;
    for note in model.about().notes.iter() {
        errln!("{note}");
    }
    welcome(&model, at);
    let model = Arc::new(model);
    let server = routes::Server {
        model: Arc::clone(&model),
        defaults: Defaults {
            sampling: args.sampling.sampling(),
            limited: args.sampling.max_new_tokens.is_some(),
            seed: args.sampling.seed,
        },
        access,
        clock: cx.clock,
        slow: model::SLOW,
    };
    let mut interrupts = signals::interrupts();
    runtime.block_on(async {
        let router = routes::router(server);
        tokio::select! {
            () = listen::serve(listener, router) => Ok::<(), anyhow::Error>(()),
            why = model.end() => {
                // Those who wait get the reason, too.
                tokio::time::sleep(LAST_REPLIES).await;
                let what = format!("the model's process is gone: {why}");
                Err(Failure::machine(what, "llmtui serve starts it again").into())
            }
            _ = interrupts.recv() => Ok(()),
        }
    })?;
    Ok(Exit::Done)
}

/// The name in the API where none is given: that of a folder or file, or a hub id.
fn name_of(model: &str) -> String {
    let path = Path::new(model);
    let name = path.file_name().map(|name| name.to_string_lossy());
    match name {
        Some(name) if path.exists() => name.trim_end_matches(".gguf").into(),
        _ => model.into(),
    }
}

fn taken(at: SocketAddr, error: &std::io::Error) -> Failure {
    let what = format!("cannot listen on {at}: {error}");
    match error.kind() {
        std::io::ErrorKind::AddrInUse => Failure::machine(
            what,
            "another program uses the port: choose one with --port, or 0 for any that is free",
        ),
        std::io::ErrorKind::PermissionDenied => Failure::machine(
            what,
            "ports below 1024 need privileges: choose another with --port",
        ),
        _ => Failure::machine(what, "choose an address of this machine with --host"),
    }
}

fn welcome(model: &Model, at: SocketAddr) {
    let about = model.about();
    let what = match about.template {
        true => "chat and completions",
        false => "completions only: the model has no chat template",
    };
    let names: Vec<&str> = about.names().collect();
    errln!(
        "{} · {what} · context {} tokens",
        names.join(", "),
        crate::base::human::grouped(about.context)
    );
    if let [(own, Some(_)), (base, None), ..] = about.served.as_slice() {
        errln!("{own} answers with its adapter, {base} without");
    }
    errln!("http://{at}/v1 · Ctrl-C stops");
}

#[cfg(test)]
mod tests;
