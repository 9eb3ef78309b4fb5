//! The child's side: limits on itself first, then the parser, then a status mark.
//!
//! Standard input has one line of JSON (the request and how many bytes follow) and the bytes; it stays open while
//! the parent lives. Standard output has marked lines: `+` and a result, `!` and an error, `.` for the end.

use super::{Parser, Request};
use rustix::process::{Resource, Rlimit, Signal, getpid, getrlimit, kill_process, setrlimit};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufWriter, Read, Write};

/// Longest request line in bytes.
const MAX_HEADER: u64 = 1 << 20;

pub(super) const LINE: u8 = b'+';
pub(super) const REFUSED: u8 = b'!';
pub(super) const END: u8 = b'.';

/// The child's own limits.
#[derive(Debug, Clone, Copy)]
pub struct Confinement {
    /// Bytes of address space.
    pub memory: u64,
    /// Seconds of CPU time.
    pub cpu_seconds: u64,
}

impl Confinement {
    /// Takes effect on this whole process and cannot be undone.
    fn apply(&self) -> io::Result<()> {
        let limit = |resource: Resource, soft: u64, hard: u64| {
            // A limit that a scheduler has already set cannot be raised: the lower one applies.
            let most = getrlimit(resource).maximum.unwrap_or(u64::MAX);
            let limit = Rlimit {
                current: Some(soft.min(most)),
                maximum: Some(hard.min(most)),
            };
            setrlimit(resource, limit).map_err(io::Error::from)
        };
        limit(Resource::Core, 0, 0)?;
        limit(Resource::Fsize, 0, 0)?;
        limit(Resource::As, self.memory, self.memory)?;
        // Exceeding the soft limit raises a signal with a distinct cause, the hard limit cannot be caught.
        limit(Resource::Cpu, self.cpu_seconds, self.cpu_seconds + 1)
    }
}

/// The line that precedes the bytes.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Header {
    #[serde(flatten)]
    pub request: Request,
    /// Number of bytes that follow.
    pub follow: u64,
}

/// Serves one request: confines this process, reads the request, runs the parser called `id`.
///
/// # Errors
/// No such parser, limits that cannot be set, an invalid request, closed output.
pub fn serve(
    parsers: &[Parser],
    id: &str,
    confinement: Confinement,
    mut input: impl BufRead + Send + 'static,
    output: impl Write,
) -> io::Result<()> {
    confinement.apply()?;
    let parser = parsers
        .iter()
        .find(|parser| parser.id == id)
        .ok_or_else(|| io::Error::other(format!("no parser is called `{id}`")))?;
    let request = read_request(&mut input)?;
    end_with_the_parent(input);
    let mut output = BufWriter::with_capacity(1 << 16, output);
    let result = {
        let mut emit = |line: &str| {
            mark(&mut output, LINE, line).map_err(|e| format!("the output is closed: {e}"))
        };
        (parser.parse)(&request, &mut emit)
    };
    match result {
        Ok(()) => mark(&mut output, END, "")?,
        Err(why) => mark(&mut output, REFUSED, &why.replace(['\n', '\r'], " "))?,
    }
    output.flush()
}

/// Writes one marked line.
fn mark(output: &mut impl Write, mark: u8, line: &str) -> io::Result<()> {
    debug_assert!(!line.contains('\n'), "a line is one line");
    output.write_all(&[mark])?;
    output.write_all(line.as_bytes())?;
    output.write_all(b"\n")
}

fn read_request(input: &mut impl BufRead) -> io::Result<Request> {
    let mut line = String::new();
    input.take(MAX_HEADER).read_line(&mut line)?;
    let header: Header = serde_json::from_str(&line).map_err(io::Error::other)?;
    let mut request = header.request;
    input.take(header.follow).read_to_end(&mut request.bytes)?;
    if request.bytes.len() as u64 != header.follow {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(request)
}

/// Exits when the parent does. The parent keeps our input open while it lives, so end of file means that it died. A
/// parent-death signal would be tied to the thread that started us, which may end long before.
fn end_with_the_parent(mut input: impl Read + Send + 'static) {
    std::thread::spawn(move || {
        let _ = io::copy(&mut input, &mut io::sink());
        let _ = kill_process(getpid(), Signal::KILL);
    });
}
