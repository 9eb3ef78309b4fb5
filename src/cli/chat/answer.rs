//! An answer in progress, and its figures.

use crate::base::human;
use crate::wire::StopReason;
use serde_json::Value;

/// An answer in progress.
#[derive(Default)]
pub struct Answer {
    pub prompt: String,
    pub text: String,
    /// Id, text and log-probability of each token, for `--json`.
    pub tokens: Vec<Value>,
    pub n_tokens: u64,
    pub prompt_tokens: u64,
    pub kept_tokens: u64,
    /// The model's context: tokens of a longer prompt are read from there on alone.
    pub context: u64,
    pub seconds: f64,
    pub prefill_seconds: f64,
    pub reason: Option<StopReason>,
    pub message: String,
}

impl Answer {
    /// Tokens of the prompt that were read for it.
    fn read_tokens(&self) -> u64 {
        let window = self.prompt_tokens.min(self.context);
        window.saturating_sub(self.kept_tokens)
    }

    /// Prefill and decode throughput in tokens per second, if measurable.
    pub fn speeds(&self) -> (Option<f64>, Option<f64>) {
        let rate = |tokens: u64, seconds: f64| {
            (tokens > 0 && seconds > 0.0).then(|| tokens as f64 / seconds)
        };
        let writing = self.seconds - self.prefill_seconds;
        (
            rate(self.read_tokens(), self.prefill_seconds),
            // The first token comes out of prefill.
            rate(self.n_tokens.saturating_sub(1), writing),
        )
    }

    /// `8 tokens · 62 tok/s · prompt 5 at 310 tok/s`; `read 31 of 532 tokens at 310 tok/s` if the rest was cached, or
    /// beyond the context.
    pub fn figures(&self) -> String {
        let (prefill, decode) = self.speeds();
        let at = |rate: Option<f64>| rate.map(|r| format!("{} tok/s", human::short(r)));
        let writing = at(decode).map(|r| format!(" · {r}")).unwrap_or_default();
        let reading = at(prefill).map(|r| format!(" at {r}")).unwrap_or_default();
        let prompt = human::prompt_read(self.read_tokens(), self.prompt_tokens);
        let tokens = human::counted(self.n_tokens, "token");
        format!("{tokens}{writing} · {prompt}{reading}")
    }
}
