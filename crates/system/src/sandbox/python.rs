//! Model-generated Python, prepared for a sandbox.

use super::{End, Isolation, Job, Limits, Outcome, Sandbox, SandboxError};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Runs `main.py` as a module that is imported, as `exec` of its text does: what stands under `if __name__ == "__main__":` belongs
/// to a script, reads its input or ends it, and the tests would not be reached. Its names are those of `__main__` all the same.
const RUN: &str = "import sys; sys.argv = ['main.py']; sys.modules['answer'] = sys.modules['__main__']; del sys; \
    __name__ = 'answer'; __file__ = 'main.py'; exec(compile(open('main.py', 'rb').read(), 'main.py', 'exec'))";

/// Characters reported of a failed program: the end of its last line of output.
const MAX_SHOWN: usize = 200;

/// The interpreter, and its limits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Python {
    /// A path or a name.
    pub program: String,
    /// Seconds.
    pub timeout: f64,
    /// MiB.
    pub memory: u64,
    pub isolation: Isolation,
}

impl Default for Python {
    fn default() -> Python {
        Python {
            program: "python3".into(),
            timeout: 10.0,
            memory: 1024,
            isolation: Isolation::Walls,
        }
    }
}

impl Python {
    /// A sandbox with these limits; `guard` is the llmtui executable.
    pub fn sandbox(&self, guard: PathBuf) -> Sandbox {
        Sandbox {
            program: guard,
            isolation: self.isolation,
            limits: Limits {
                seconds: self.timeout,
                memory: self.memory << 20,
                ..Limits::default()
            },
        }
    }

    /// Runs a program in isolated mode, without the user's site packages and environment. Its `__name__` is not `__main__`.
    ///
    /// # Errors
    /// As [`Sandbox::run`].
    pub fn run(&self, sandbox: &Sandbox, text: String) -> Result<Outcome, SandboxError> {
        sandbox.run(&Job {
            command: vec![self.program.clone(), "-I".into(), "-c".into(), RUN.into()],
            files: vec![("main.py".into(), text)],
        })
    }

    /// Why a program fails; `None` if it runs to its last line without an exception. A program that exits early fails.
    ///
    /// # Errors
    /// As [`Sandbox::run`].
    pub fn fault(&self, sandbox: &Sandbox, text: &str) -> Result<Option<String>, SandboxError> {
        let mark = format!("done {:016x}", mark(text));
        let outcome = self.run(sandbox, format!("{text}\n\nprint()\nprint({mark:?})\n"))?;
        let last = outcome.stdout.lines().last();
        Ok(match outcome.end {
            End::Exited(0) if last == Some(mark.as_str()) => None,
            End::Exited(0) => Some("it left before its end".into()),
            End::Exited(status) => {
                let said = outcome.stderr.trim_end().lines().last();
                let said = said.map(|line| line.chars().take(MAX_SHOWN).collect());
                Some(said.unwrap_or_else(|| format!("status {status}")))
            }
            End::Signalled(signal) => Some(format!("killed by signal {signal}")),
            End::Late => Some(format!("not done after {} s", self.timeout)),
            End::Flooded => Some("it wrote too much".into()),
        })
    }
}

/// The code of an answer: its last fenced block, or all of it.
pub fn code(text: &str) -> &str {
    let fence = "```";
    let Some(end) = text.rfind(fence) else {
        return text;
    };
    let before = &text[..end];
    let block = match before.rfind(fence) {
        // Fences come in pairs: an odd number before this one means that it closes a block.
        Some(begin) if before.matches(fence).count() % 2 == 1 => &before[begin + fence.len()..],
        // A fence that was never closed.
        _ => &text[end + fence.len()..],
    };
    // The rest of the fence's line is the language.
    block.split_once('\n').map_or(block, |(_, code)| code)
}

/// A hash of the program's text (FNV-1a): different for every program, so that none can know its own marker in advance.
pub fn mark(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_an_answer_is_its_last_block_or_all_of_it() {
        assert_eq!(code("x = 1"), "x = 1");
        assert_eq!(code("so:\n```python\nx = 1\n```\n"), "x = 1\n");
        assert_eq!(code("```\na\n```\nthen\n```py\nb\n```"), "b\n");
        assert_eq!(code("cut:\n```python\nx ="), "x =");
        let cut = "```py\na\n```\nthen\n```py\nb =";
        assert_eq!(code(cut), "b =");
    }
}
