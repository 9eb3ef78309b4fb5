//! `llmtui parse-child`: parses untrusted bytes under resource limits. Internal: the program starts itself this way and
//! kills the child if it does not finish.

use super::Context;
use super::exit::{Exit, Failure};
use crate::base::child::{self, Confinement, LineSink, Parser, Request};
use std::io::{BufReader, Write};

/// Parse untrusted bytes under limits, for the parent process (internal)
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which parser
    #[arg(value_name = "KIND")]
    pub kind: String,
    /// Bytes of address space
    #[arg(long, value_name = "BYTES", default_value_t = 2 << 30)]
    pub memory: u64,
    /// Seconds of CPU time
    #[arg(long, value_name = "S", default_value_t = 30)]
    pub cpu_seconds: u64,
}

pub fn run(args: &Args, _cx: &Context) -> anyhow::Result<Exit> {
    // No crash file: a panic here is about the input, not the program. The parent reports it.
    std::panic::set_hook(Box::new(|info| {
        let words = info.payload_as_str().unwrap_or("a panic without a message");
        let place = info
            .location()
            .map_or_else(String::new, |l| format!(" ({}:{})", l.file(), l.line()));
        let _ = writeln!(std::io::stderr(), "{words}{place}");
    }));
    let confinement = Confinement {
        memory: args.memory,
        cpu_seconds: args.cpu_seconds,
    };
    let mut parsers = vec![PROBE];
    parsers.extend_from_slice(crate::data::PARSERS);
    child::serve(
        &parsers,
        &args.kind,
        confinement,
        BufReader::new(std::io::stdin()),
        std::io::stdout(),
    )
    .map_err(|e| Failure::machine(e.to_string(), "this command is internal"))?;
    Ok(Exit::Done)
}

/// Exceeds one limit after another, so that tests can check each of them on the machine they run on.
const PROBE: Parser = Parser {
    id: "probe",
    parse: probe,
};

fn probe(request: &Request, emit: &mut LineSink) -> Result<(), String> {
    match request.options.as_str().unwrap_or_default() {
        "echo" => emit(&String::from_utf8_lossy(&request.bytes)),
        "memory" => {
            let hoard: Vec<Vec<u8>> = (1..).map(|_| vec![0; 64 << 20]).take(1 << 10).collect();
            emit(&hoard.len().to_string())
        }
        "processor" => {
            let mut x = 1u64;
            while std::hint::black_box(x) != 0 {
                x = x.wrapping_mul(3) | 1;
            }
            emit(&x.to_string())
        }
        "stack" => emit(&deep(1).to_string()),
        "write" => std::fs::write(request.path.as_deref().unwrap_or("probe".as_ref()), "x")
            .map_err(|e| e.to_string()),
        "wait" => loop {
            std::thread::park();
        },
        "flood" => loop {
            emit("a line of the flood")?;
        },
        "secret" => emit(&format!("{:?}", std::env::vars_os().collect::<Vec<_>>())),
        other => Err(format!("no probe is called `{other}`")),
    }
}

/// Recurses until the stack overflows; not a tail call.
fn deep(n: u64) -> u64 {
    if std::hint::black_box(n) == 0 {
        return 0;
    }
    let here = std::hint::black_box([n; 64]);
    deep(here[7].wrapping_add(1)).wrapping_add(here[3])
}
