//! The protocol between the engine and a machine of its run, over the stdin and stdout of one process: the bytes of every
//! rank's connection, the ranks' logs, and messages about them. A message: its kind (u8), a rank (u32), a length (u32,
//! little-endian), that many bytes, a line feed. The line feed makes line-buffered carriers, such as SLURM's `srun`, forward it
//! at once.

use serde_json::Value;
use std::io::{self, BufRead, Read, Write};

/// The line before the first message; output of a login shell before it is skipped.
pub const GREETING: &str = "llmtui-node 1\n";
/// Maximum bytes of one message, and of the output before the greeting.
pub const MOST: usize = 1 << 20;
const NOISE: u64 = 64 << 10;

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeMessage {
    /// JSON; `type` names it.
    Message(Value),
    /// Bytes of this rank's connection, by its number in the run.
    Bytes(u32, Vec<u8>),
    /// That connection was closed.
    Closed(u32),
    /// Lines of a rank's log, by its number on its machine; of torchrun's own with [`LAUNCHER`].
    Log(u32, Vec<u8>),
}

/// Identifies torchrun among the logs.
pub const LAUNCHER: u32 = u32::MAX;

impl NodeMessage {
    /// # Errors
    /// Those of the connection.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let words;
        let (kind, rank, bytes) = match self {
            NodeMessage::Message(value) => {
                words = value.to_string();
                (b'w', 0, words.as_bytes())
            }
            NodeMessage::Bytes(rank, bytes) => (b'b', *rank, bytes.as_slice()),
            NodeMessage::Closed(rank) => (b'c', *rank, &[][..]),
            NodeMessage::Log(rank, bytes) => (b'l', *rank, bytes.as_slice()),
        };
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let mut head = [0; 9];
        head[0] = kind;
        head[1..5].copy_from_slice(&rank.to_le_bytes());
        head[5..].copy_from_slice(&length.to_le_bytes());
        out.write_all(&head)?;
        out.write_all(bytes)?;
        out.write_all(b"\n")?;
        out.flush()
    }

    /// Reads a message; `None` at an orderly end.
    ///
    /// # Errors
    /// Those of the connection; invalid messages.
    pub fn read(input: &mut dyn Read) -> io::Result<Option<NodeMessage>> {
        let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let mut head = [0; 9];
        match input.read_exact(&mut head[..1]) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        input.read_exact(&mut head[1..])?;
        let number =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (rank, length) = (number(1), number(5) as usize);
        if length > MOST {
            return Err(wrong(format!("a message of {length} bytes")));
        }
        let mut bytes = vec![0; length + 1];
        input.read_exact(&mut bytes)?;
        if bytes.pop() != Some(b'\n') {
            return Err(wrong("a message without an end".into()));
        }
        Ok(Some(match head[0] {
            b'w' => NodeMessage::Message(
                serde_json::from_slice(&bytes).map_err(|e| wrong(format!("words: {e}")))?,
            ),
            b'b' => NodeMessage::Bytes(rank, bytes),
            b'c' => NodeMessage::Closed(rank),
            b'l' => NodeMessage::Log(rank, bytes),
            kind => return Err(wrong(format!("a message of kind {kind}"))),
        }))
    }
}

/// Forwards the bytes of a rank's connection until it closes or the receiver is gone.
pub fn forward(
    from: &mut dyn Read,
    rank: u32,
    mut put: impl FnMut(&NodeMessage) -> io::Result<()>,
) {
    let mut bytes = vec![0; MOST];
    loop {
        let message = match from.read(&mut bytes) {
            Ok(0) | Err(_) => NodeMessage::Closed(rank),
            Ok(n) => NodeMessage::Bytes(rank, bytes[..n].to_vec()),
        };
        if put(&message).is_err() || matches!(message, NodeMessage::Closed(_)) {
            return;
        }
    }
}

/// Skips everything before the greeting.
///
/// # Errors
/// There is none: the last line received instead.
pub fn skip_to_greeting(input: &mut dyn BufRead) -> Result<(), String> {
    let mut input = input.take(NOISE);
    let mut last = String::new();
    loop {
        let mut line = Vec::new();
        match input.read_until(b'\n', &mut line) {
            Ok(n) if n > 0 => {}
            _ => return Err(last),
        }
        if line == GREETING.as_bytes() {
            return Ok(());
        }
        let words = crate::base::text::one_line(String::from_utf8_lossy(&line).trim());
        if !words.is_empty() {
            last = words.chars().take(200).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parcels_round_trip_after_shell_output() {
        let messages = [
            NodeMessage::Message(json!({"type": "open", "rank": 3})),
            NodeMessage::Bytes(3, b"a\nb\0".to_vec()),
            NodeMessage::Log(LAUNCHER, vec![b'x'; 1000]),
            NodeMessage::Closed(3),
        ];
        let mut bytes = b"Welcome to gpu2\n\n".to_vec();
        bytes.extend(GREETING.as_bytes());
        for message in &messages {
            message.write(&mut bytes).unwrap();
        }
        let mut input = bytes.as_slice();
        skip_to_greeting(&mut input).unwrap();
        for message in messages {
            assert_eq!(NodeMessage::read(&mut input).unwrap(), Some(message));
        }
        assert_eq!(NodeMessage::read(&mut input).unwrap(), None);
    }

    #[test]
    fn invalid_parcels_are_rejected() {
        let said =
            skip_to_greeting(&mut &b"Hello\n\nbash: llmtui: command not found\n"[..]).unwrap_err();
        assert_eq!(said, "bash: llmtui: command not found");
        let mut whole = Vec::new();
        NodeMessage::Bytes(1, vec![7; 5]).write(&mut whole).unwrap();
        for (at, byte) in [(0, b'?'), (8, 255), (whole.len() - 1, b'x')] {
            let mut broken = whole.clone();
            broken[at] = byte;
            assert!(NodeMessage::read(&mut broken.as_slice()).is_err(), "{at}");
        }
        assert!(NodeMessage::read(&mut &whole[..whole.len() - 2]).is_err());
    }
}
