//! An itemized sum: bytes by component, each with its formula.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// The components of a plan, in the order of the bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    Weights,
    QuantizedBase,
    Adapters,
    Gradients,
    Optimizer,
    Activations,
    Logits,
    Rollouts,
    Reference,
    RewardModel,
    Teacher,
    Critic,
    GradientBuffers,
    Evaluation,
    Data,
    Tokenizer,
    Preflight,
    Autocast,
    Communication,
    Offloaded,
    Context,
    Fragmentation,
}

impl Part {
    /// The key in JSON.
    pub fn id(self) -> &'static str {
        match self {
            Part::Weights => "weights",
            Part::QuantizedBase => "quantized_base",
            Part::Adapters => "adapters",
            Part::Gradients => "gradients",
            Part::Optimizer => "optimizer",
            Part::Activations => "activations",
            Part::Logits => "logits",
            Part::Rollouts => "rollouts",
            Part::Reference => "reference_model",
            Part::RewardModel => "reward_model",
            Part::Teacher => "teacher",
            Part::Critic => "critic",
            Part::GradientBuffers => "gradient_buffers",
            Part::Evaluation => "evaluation",
            Part::Data => "data",
            Part::Tokenizer => "tokenizer",
            Part::Preflight => "preflight",
            Part::Autocast => "autocast",
            Part::Communication => "communication",
            Part::Offloaded => "offloaded",
            Part::Context => "context",
            Part::Fragmentation => "fragmentation",
        }
    }

    /// For display.
    pub fn title(self) -> &'static str {
        match self {
            Part::QuantizedBase => "quantized base",
            Part::Rollouts => "rollouts (KV)",
            Part::Reference => "reference model",
            Part::RewardModel => "reward model",
            Part::GradientBuffers => "gradient buffers",
            Part::Preflight => "while checking",
            Part::Context => "runtime",
            part => part.id(),
        }
    }
}

/// One component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Component {
    #[serde(skip)]
    pub part: Part,
    pub bytes: u64,
    /// The formula with its numbers.
    pub how: String,
}

/// The components; none is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ledger(Vec<Component>);

impl Ledger {
    /// Adds a component unless it is empty.
    pub fn add(&mut self, part: Part, bytes: f64, how: impl Into<String>) {
        if bytes >= 1.0 {
            self.0.push(Component {
                part,
                bytes: bytes.round() as u64,
                how: how.into(),
            });
        }
    }

    pub fn parts(&self) -> &[Component] {
        &self.0
    }

    /// Bytes of one component; 0 if absent.
    pub fn bytes(&self, part: Part) -> u64 {
        self.0
            .iter()
            .filter(|c| c.part == part)
            .map(|c| c.bytes)
            .sum()
    }

    pub fn total(&self) -> u64 {
        self.0.iter().map(|c| c.bytes).sum()
    }

    /// Everything except temporary components.
    pub fn steady(&self) -> u64 {
        self.total() - self.bytes(Part::Preflight)
    }

    /// Weights, gradients, optimizer, adapters and frozen weights: independent of the batch.
    pub fn states(&self) -> u64 {
        use Part::{Adapters, Gradients, Optimizer, QuantizedBase, Weights};
        [Weights, QuantizedBase, Adapters, Gradients, Optimizer]
            .map(|part| self.bytes(part))
            .iter()
            .sum()
    }
}

impl Serialize for Ledger {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for component in &self.0 {
            map.serialize_entry(component.part.id(), component)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_parts_are_left_out_and_the_rest_adds_up() {
        let mut ledger = Ledger::default();
        ledger.add(Part::Weights, 10.4, "w");
        ledger.add(Part::Critic, 0.0, "none");
        ledger.add(Part::Preflight, 5.0, "s");
        assert_eq!(
            (ledger.total(), ledger.steady(), ledger.states()),
            (15, 10, 10)
        );
        let json = serde_json::to_string(&ledger).unwrap();
        assert_eq!(
            json,
            r#"{"weights":{"bytes":10,"how":"w"},"preflight":{"bytes":5,"how":"s"}}"#
        );
    }
}
