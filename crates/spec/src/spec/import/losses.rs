//! The loss of a preference method: one, or a list of them with weights.

use super::{KeyOutcome, Reader, plain};
use serde_json::{Map, Value, json};

/// The likelihood of chosen answers, which is a setting of its own here.
const LIKELIHOOD: &str = "sft";

/// `loss_weights` of a file.
pub(super) fn weights(map: &Map<String, Value>) -> Vec<f64> {
    let list = map.get("loss_weights").and_then(Value::as_array);
    list.map_or_else(Vec::new, |list| {
        list.iter().filter_map(Value::as_f64).collect()
    })
}

impl Reader {
    pub(super) fn loss(&mut self, theirs: String, value: &Value) {
        let method = plain(&self.draft.value("method"));
        match value {
            Value::Array(losses) if losses.len() != 1 => return self.losses(&theirs, losses),
            Value::Array(one) => return self.loss(theirs, &one[0]),
            _ => {}
        }
        match plain(value) {
            // `grpo` is the name of the method and of one of its aggregations.
            word if method == "grpo" => self.set(theirs, "method.grpo.aggregation", &word, ""),
            word if word == method => {
                self.line(KeyOutcome::Needless, theirs, "", "the method's own")
            }
            word if matches!(&*word, "orpo" | "simpo") => self.method_line(theirs, &word),
            word if method == "sft" && word == "nll" => {
                self.line(
                    KeyOutcome::Needless,
                    theirs,
                    "",
                    "the loss is the plain likelihood",
                );
            }
            word => self.set(theirs, "method.*.loss", &word, ""),
        }
    }

    /// `loss_type: [sigmoid, bco_pair, sft]`: the first loss, what is added to it, and the likelihood.
    fn losses(&mut self, theirs: &str, losses: &[Value]) {
        let weight = |i: usize| self.loss_weights.get(i).copied().unwrap_or(1.0);
        let all = losses
            .iter()
            .enumerate()
            .map(|(i, loss)| (plain(loss), weight(i)));
        let (likelihood, losses): (Vec<_>, Vec<_>) = all.partition(|(loss, _)| loss == LIKELIHOOD);
        let part = |what: &str| format!("{theirs} ({what})");
        if let Some((_, weight)) = likelihood.first() {
            self.set(
                part(LIKELIHOOD),
                "method.*.nll_weight",
                &weight.to_string(),
                "",
            );
        }
        let Some(((first, weight), rest)) = losses.split_first() else {
            return;
        };
        self.set(part(first), "method.*.loss", first, "");
        self.set(part(first), "method.*.weight", &weight.to_string(), "");
        let mix: Vec<Value> = rest
            .iter()
            .map(|(loss, weight)| json!({"loss": loss, "weight": weight}))
            .collect();
        if !mix.is_empty() {
            let names: Vec<&str> = rest.iter().map(|(loss, _)| loss.as_str()).collect();
            let mix = Value::from(mix).to_string();
            self.set(part(&names.join(", ")), "method.*.mix", &mix, "");
        }
    }
}
