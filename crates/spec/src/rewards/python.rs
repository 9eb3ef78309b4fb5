//! Unit tests of the Python code in a completion, run in a sandbox: no network, a read-only file system, limits on time and
//! memory.
//!
//! Code and tests share one interpreter: a completion that looks for the tests can find them, and pass without solving the
//! task. Use a second reward to detect that.

use super::{Answer, Reward, Worker};
use crate::base::child::Child;
use crate::base::registry::Entry;
use crate::sandbox::python::{Python, code, mark};
use crate::sandbox::{End, Isolation, Sandbox, find};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::Write as _;

pub const ENTRY: Entry = Entry {
    id: "python",
    title: "Unit tests of Python",
    summary: "Share of the row's tests that the answer's Python code passes in a sandbox.",
    source: "the tests of MBPP (Austin et al. 2021, arXiv 2108.07732) and HumanEval (Chen et al. 2021, arXiv 2107.03374)",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Column of the row with the tests: one piece of Python that fails by an exception, or a list of such.
    pub tests: String,
    /// 1 where every test passes, else 0; without it the share that passes.
    pub all: bool,
    /// The interpreter, a path or a name.
    pub program: String,
    /// Seconds for an answer's tests.
    #[schemars(range(min = 0.1, max = 3600))]
    pub timeout: f64,
    /// MiB of memory for an answer's tests.
    #[schemars(range(min = 32, max = 1048576))]
    pub memory: u64,
    /// What keeps the answer from the machine: walls (a world of its own), or limits alone, which a program can get out of.
    pub isolation: Isolation,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            tests: "tests".into(),
            all: false,
            program: "python3".into(),
            timeout: 5.0,
            memory: 512,
            isolation: Isolation::Walls,
        }
    }
}

impl Reward for Config {
    fn score(&self, _answer: &Answer) -> Result<f64, String> {
        Err("a sandbox scores this reward".into())
    }

    fn worker(&self) -> Option<Box<dyn Worker>> {
        Some(Box::new(Tester {
            config: self.clone(),
            checked: false,
            scores: Vec::new(),
        }))
    }

    fn missing(&self) -> Option<(String, String)> {
        if find(&self.program).is_none() {
            let what = format!("Python was not found: `{}` is not in PATH", self.program);
            let fix = "install Python, or name its path: {python: {program: /usr/bin/python3}}";
            return Some((what, fix.into()));
        }
        let walls = self.isolation == Isolation::Walls;
        let guard = Child::of_this_program().program.filter(|_| walls)?;
        let error = Sandbox::check_full_isolation(guard).err()?;
        Some((error.to_string(), error.hint().into()))
    }
}

/// What an answer is worth, or why that cannot be said.
type Scored = Result<f64, String>;

#[derive(Debug)]
struct Tester {
    config: Config,
    checked: bool,
    scores: Vec<Scored>,
}

impl Worker for Tester {
    fn begin(&mut self, answers: &[Answer]) -> Result<(), String> {
        let sandbox = self.config.sandbox()?;
        if !self.checked {
            sandbox.check().map_err(|e| format!("{e}; {}", e.hint()))?;
            self.checked = true;
        }
        // As many at once as the machine has cores: each waits for its own program.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let share = answers.len().div_ceil(cores).max(1);
        let (config, sandbox) = (&self.config, &sandbox);
        let test = |part: &[Answer]| -> Vec<Scored> {
            part.iter().map(|a| config.test(sandbox, a)).collect()
        };
        self.scores = std::thread::scope(|threads| {
            let parts = answers.chunks(share);
            let running: Vec<_> = parts.map(|part| threads.spawn(|| test(part))).collect();
            let broken = |_| vec![Err("the tests could not be run".to_string())];
            let ended = running.into_iter();
            ended
                .flat_map(|thread| thread.join().unwrap_or_else(broken))
                .collect()
        });
        Ok(())
    }

    fn score(&mut self, number: usize, _answer: &Answer) -> Result<f64, String> {
        let score = self.scores.get(number).cloned();
        score.unwrap_or_else(|| Err("this answer was not tested".into()))
    }
}

impl Config {
    fn sandbox(&self) -> Result<Sandbox, String> {
        let guard = Child::of_this_program().program;
        let guard = guard.ok_or("only the llmtui executable runs tests")?;
        Ok(self.python().sandbox(guard))
    }

    fn python(&self) -> Python {
        Python {
            program: self.program.clone(),
            timeout: self.timeout,
            memory: self.memory,
            isolation: self.isolation,
        }
    }

    fn test(&self, sandbox: &Sandbox, answer: &Answer) -> Scored {
        let tests = self.tests(answer)?;
        // Known to the last line alone, and another one for every answer: an early exit is no success.
        let marks = (0..tests.len()).map(|i| format!("passed {i} of {:016x}", mark(&answer.text)));
        let marks: Vec<String> = marks.collect();
        let text = program(code(&answer.text), &tests, &marks);
        let outcome = self.python().run(sandbox, text);
        let outcome = outcome.map_err(|e| format!("{e}; {}", e.hint()))?;
        let lines: Vec<&str> = outcome.stdout.lines().collect();
        let passed = marks
            .iter()
            .filter(|mark| lines.contains(&mark.as_str()))
            .count();
        let share = passed as f64 / tests.len() as f64;
        let clean = outcome.end == End::Exited(0);
        Ok(match self.all {
            true => f64::from(u8::from(clean && passed == tests.len())),
            false => share,
        })
    }

    fn tests(&self, answer: &Answer) -> Result<Vec<String>, String> {
        let found = answer.reference.metadata.get(&self.tests);
        let tests = match found {
            Some(Value::String(text)) => vec![text.clone()],
            Some(Value::Array(all)) => {
                let texts = all.iter().map(|t| t.as_str().map(str::to_string));
                texts.collect::<Option<Vec<String>>>().unwrap_or_default()
            }
            _ => Vec::new(),
        };
        match tests.is_empty() {
            true => Err(format!(
                "the row has no column `{}` of Python tests (a string or a list of strings); name it with {{python: {{tests: COLUMN}}}}",
                self.tests
            )),
            false => Ok(tests),
        }
    }
}

/// The answer's code, then each test by itself. In a test `__name__` is `__main__`, in the answer it is not.
fn program(code: &str, tests: &[String], marks: &[String]) -> String {
    let mut text = format!("{code}\n");
    for (test, mark) in tests.iter().zip(marks) {
        // Python reads a JSON text without surrogates as its own.
        let (test, mark) = (Value::from(test.as_str()), Value::from(mark.as_str()));
        let _ = write!(
            text,
            "\ntry:\n    exec(compile({test}, 'test', 'exec'), dict(globals(), __name__='__main__'))\n    print()\n    print({mark}, flush=True)\nexcept BaseException as error:\n    print(type(error).__name__, error)\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_come_from_the_row_and_a_row_without_says_so() {
        let row = |json: &str| Answer {
            prompt: String::new(),
            text: "x".into(),
            tokens: 1,
            ended: true,
            behind: None,
            thinking: None,
            reference: crate::rewards::Reference::parse(json),
        };
        let config = Config::default();
        assert_eq!(
            config.tests(&row(r#"{"tests": "assert x"}"#)).unwrap(),
            ["assert x"]
        );
        assert_eq!(
            config
                .tests(&row(r#"{"tests": ["a", "b"]}"#))
                .unwrap()
                .len(),
            2
        );
        for wrong in ["{}", r#"{"tests": 3}"#, r#"{"tests": [1]}"#] {
            assert!(
                config.tests(&row(wrong)).unwrap_err().contains("`tests`"),
                "{wrong}"
            );
        }
        let none = Config {
            program: "no-such-python".into(),
            ..config
        };
        assert!(none.missing().unwrap().0.contains("no-such-python"));
    }
}
