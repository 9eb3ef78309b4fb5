//! Single characters, as llama.cpp's `rwkv`: the longest matching token, byte by byte, with no special tokens unless they are
//! named. Byte-level BPE without merges would work too, but llama.cpp then ends texts at its token 11.

use super::{NORMAL, UNUSED, Words};
use crate::data::tokenizer::char::Alphabet;

pub fn words(alphabet: &Alphabet, vocab_size: usize) -> Words {
    let n = alphabet.len();
    let token = |id: usize| match id < n {
        true => escaped(&alphabet.decode(&[id as u32])),
        // Begins with a byte that no text has.
        false => format!("\\xff{id}"),
    };
    let kind = |id: usize| if id < n { NORMAL } else { UNUSED };
    Words {
        model: "rwkv",
        pre: "default",
        tokens: (0..vocab_size).map(token).collect(),
        kinds: (0..vocab_size).map(kind).collect(),
        ..Words::default()
    }
}

/// Backslashes are doubled, and what is no plain character is spelt in bytes.
fn escaped(token: &str) -> String {
    let mut text = String::new();
    for c in token.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            c if c.is_control() => {
                let mut bytes = [0; 4];
                for byte in c.encode_utf8(&mut bytes).bytes() {
                    text.push_str(&format!("\\x{byte:02x}"));
                }
            }
            c => text.push(c),
        }
    }
    text
}
