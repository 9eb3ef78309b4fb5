//! Rendering within bounds. Fuel bounds the instructions of a template, not the memory that one instruction allocates: an
//! untrusted one may double a string forty times for the one conversation that its trial run did not have. So it renders
//! within a budget of memory and time that grows with the conversation; a template that exceeds it is not called again.

use super::MAX_OUTPUT;
use crate::kernels::allocations::budget::{Budget, BudgetExceeded, within};
use minijinja::{Environment, Error};
use serde_json::{Map, Value};
use std::io::{self, Write};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Memory for any conversation: the largest output twice over while it grows, and as much again.
const BASE_BYTES: usize = 4 * MAX_OUTPUT;
/// Memory for each byte of the conversation: it is converted and cut several times on its way.
const PER_BYTE: usize = 32;
/// A large conversation takes some milliseconds.
const TIME: Duration = Duration::from_secs(60);

/// A compiled template, or an expression's engine, with how it went.
#[derive(Debug, Clone)]
pub struct Engine {
    env: Arc<Environment<'static>>,
    /// Of this program's own making: no budget.
    ours: bool,
    /// The budget that was once exceeded.
    spoiled: Arc<OnceLock<BudgetExceeded>>,
}

/// Why nothing was printed.
#[derive(Debug)]
pub enum RenderError {
    /// More than [`MAX_OUTPUT`].
    Full,
    NotText,
    Engine(Error),
    BudgetExceeded(BudgetExceeded),
}

impl Engine {
    /// For any template: untrusted.
    pub fn new(env: Environment<'static>) -> Engine {
        Engine {
            env: Arc::new(env),
            ours: false,
            spoiled: Arc::default(),
        }
    }

    /// For a template that is part of this program.
    pub fn trusted(self) -> Engine {
        Engine { ours: true, ..self }
    }

    /// The exceeded budget, if there is one.
    pub fn exceeded_budget(&self) -> Option<&BudgetExceeded> {
        self.spoiled.get()
    }

    /// The output of the template `name` for `context`.
    pub fn print(
        &self,
        name: &'static str,
        context: Map<String, Value>,
    ) -> Result<String, RenderError> {
        self.run(context, move |env, context| print(env, name, context))
    }

    /// Runs untrusted `work` on `context`.
    pub fn run<T: Send + 'static>(
        &self,
        context: Map<String, Value>,
        work: impl FnOnce(&Environment<'static>, &Map<String, Value>) -> Result<T, RenderError>
        + Send
        + 'static,
    ) -> Result<T, RenderError> {
        if self.ours {
            return work(&self.env, &context);
        }
        if let Some(spoiled) = self.spoiled.get() {
            return Err(RenderError::BudgetExceeded(spoiled.clone()));
        }
        let weight: usize = context.values().map(weight).sum();
        let budget = Budget {
            bytes: BASE_BYTES + PER_BYTE * weight,
            time: TIME,
        };
        let env = Arc::clone(&self.env);
        within(budget, move || work(&env, &context)).unwrap_or_else(|overdrawn| {
            let spoiled = self.spoiled.get_or_init(|| overdrawn);
            Err(RenderError::BudgetExceeded(spoiled.clone()))
        })
    }
}

fn print(
    env: &Environment<'static>,
    name: &str,
    context: &Map<String, Value>,
) -> Result<String, RenderError> {
    let template = env.get_template(name).map_err(RenderError::Engine)?;
    let mut out = Bounded::default();
    let context = minijinja::Value::from(minijinja::value::Serde(context));
    match template.render_captured_to(context, &mut out) {
        Ok(_) => String::from_utf8(out.bytes).map_err(|_| RenderError::NotText),
        Err(_) if out.full => Err(RenderError::Full),
        Err(error) => Err(RenderError::Engine(error)),
    }
}

/// The size of a value in bytes, about.
fn weight(value: &Value) -> usize {
    const NODE: usize = 32;
    NODE + match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(map) => map.iter().map(|(k, v)| k.len() + weight(v)).sum(),
        _ => 0,
    }
}

/// Takes up to [`MAX_OUTPUT`] bytes.
#[derive(Default)]
struct Bounded {
    bytes: Vec<u8>,
    full: bool,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > MAX_OUTPUT {
            self.full = true;
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
