//! A longer context than the start model's. With RoPE the spec names a scaling, which replaces the start model's own; its factor and
//! original context follow from the start model where the spec does not say them. Positions that are computed for any length need
//! none, and a table of learned ones ends where it ends.

use super::equal;
use crate::base::human::grouped;
use crate::nn::ModelConfig;
use crate::nn::position::PositionConfig;
use crate::nn::position::scaling::Longrope;
use serde_json::{Map, Value, json};

/// The setting, below `model`.
const SCALING: &str = "position.rope.scaling";
/// Longest context that a spec may have.
const MOST: usize = 1 << 20;
/// Largest factor of a scaling.
const MOST_TIMES: f64 = 1000.0;

/// What is wrong with a context: setting below `model`, the fault, what to do.
#[derive(Debug, Clone)]
pub(super) struct Wrong {
    pub key: String,
    pub what: String,
    pub hint: String,
}

impl Wrong {
    fn new(key: &str, what: String, hint: String) -> Wrong {
        let key = key.into();
        Wrong { key, what, hint }
    }
}

/// A scaling that a spec names and the start model does not have so.
pub(super) struct Asked<'a> {
    kind: &'a str,
    settings: &'a Map<String, Value>,
}

/// What it comes to.
#[derive(Debug, PartialEq)]
pub(super) struct Longer {
    scaling: Value,
    seq_len: usize,
    context: usize,
    /// Why each value is as it is that the spec does not say, by its setting below `model`.
    pub why: Vec<(String, String)>,
}

impl Longer {
    /// Fills in the model of the run, which is the start model otherwise.
    pub fn fill(&self, model: &mut Value) {
        model["position"]["rope"]["scaling"] = self.scaling.clone();
        model["seq_len"] = json!(self.seq_len);
        if self.context > self.seq_len {
            model["context_len"] = json!(self.context);
        }
    }
}

/// The scaling in the `model` of a spec, if it is none of the start model's or reaches beyond it.
pub(super) fn asked<'a>(said: &'a Value, start: &ModelConfig) -> Option<Asked<'a>> {
    let chosen = said.pointer("/position/rope/scaling")?.as_object()?;
    let (kind, settings) = chosen.iter().next()?;
    let settings = settings.as_object()?;
    let theirs = own(start);
    let theirs = theirs.get(kind);
    let same = theirs.is_some_and(|theirs| {
        let mut said = settings.iter().filter(|(_, value)| !value.is_null());
        said.all(|(key, value)| equal(value, &theirs[key]))
    });
    let beyond = |key: &str| said[key].as_u64() > Some(start.context() as u64);
    (!same || beyond("seq_len") || beyond("context_len")).then_some(Asked { kind, settings })
}

/// The start model's scaling as a spec has it; null without one.
fn own(start: &ModelConfig) -> Value {
    let scaling = start.position.rope().and_then(|rope| rope.scaling.as_ref());
    serde_json::to_value(scaling).unwrap_or_default()
}

/// The lengths of a spec without a scaling of its own that the start model's positions do not reach.
pub(super) fn beyond(said: &Value, start: &ModelConfig, whose: &str) -> Vec<Wrong> {
    let most = start.context();
    let learned = start.position.has_table();
    let stretched = start.position.rope().is_some();
    if !learned && !stretched {
        return Vec::new();
    }
    let wrong = |key: &&str| {
        let len = said[*key].as_u64().filter(|len| *len > most as u64)?;
        let what = format!(
            "{} tokens, but {whose} supports {}",
            grouped(len),
            grouped(most as u64)
        );
        let hint = match learned {
            true => format!(
                "use at most {most}, or remove it: its learned positions end there; start models with RoPE can be extended"
            ),
            false => format!(
                "-s model.{SCALING}=yarn stretches its positions to {len} tokens, which it then has to be trained on; or use at most {most}"
            ),
        };
        Some(Wrong::new(key, what, hint))
    };
    ["seq_len", "context_len"]
        .iter()
        .filter_map(wrong)
        .collect()
}

impl Asked<'_> {
    /// Whether the spec says itself how far positions are stretched.
    pub fn has_factor(&self) -> bool {
        self.number("factor").is_some()
    }

    fn number(&self, key: &str) -> Option<f64> {
        self.settings.get(key)?.as_f64()
    }

    fn at(&self, key: &str) -> String {
        format!("{SCALING}.{}.{key}", self.kind)
    }

    /// The scaling with all that follows from the start model. `whose` is what that is called.
    ///
    /// # Errors
    /// Nothing of it fits: there is nothing to stretch, or nothing to stretch it to.
    pub fn settle(&self, said: &Value, start: &ModelConfig, whose: &str) -> Result<Longer, Wrong> {
        if start.position.rope().is_none() {
            return Err(no_rotations(start, whose));
        }
        let len = |key: &str| said[key].as_u64().map(|len| len as usize);
        let (rows, context) = (len("seq_len"), len("context_len"));
        let named = self.number("original_len").map(|len| len as usize);
        let original = named.unwrap_or_else(|| start.original_context()).max(1);
        let longest = context.into_iter().chain(rows).max();
        let (kind, mut why) = (self.kind, Vec::new());
        let replaced = self.replaced(start);
        let of_start = format!("the start model's {}{replaced}", grouped(original as u64));
        let longrope = kind == "longrope";
        let factor = match (self.number("factor"), longest) {
            (Some(factor), _) => factor,
            (None, Some(longest)) if longest > original => {
                if !longrope {
                    let how = format!("{} tokens on {of_start}", grouped(longest as u64));
                    why.push((self.at("factor"), how));
                }
                longest as f64 / original as f64
            }
            (None, _) => return Err(self.nowhere(longest, original, whose)),
        };
        if factor > MOST_TIMES {
            let what = format!("a factor of {factor:.0} is more than {MOST_TIMES}");
            return Err(Wrong::new("seq_len", what, "a shorter context".into()));
        }
        let reached = match longrope {
            true => original,
            false => (original as f64 * factor).round() as usize,
        };
        let whole = context.unwrap_or_else(|| reached.max(longest.unwrap_or(0)));
        if whole > MOST {
            let what = format!(
                "{} tokens, and a context is at most {}",
                grouped(whole as u64),
                grouped(MOST as u64)
            );
            return Err(Wrong::new(
                &self.at("factor"),
                what,
                "a smaller factor".into(),
            ));
        }
        let seq_len = rows.unwrap_or_else(|| {
            let how = format!(
                "rows as long as the context of {} tokens",
                grouped(whole as u64)
            );
            why.push(("seq_len".into(), how));
            whole
        });
        if context.is_none() && whole > seq_len {
            let how = format!("{} tokens × factor {factor}", grouped(original as u64));
            why.push(("context_len".into(), how));
        }
        let mut settings = self.kept(start);
        if !longrope {
            settings.insert("factor".into(), json!(factor));
        }
        if matches!(kind, "yarn" | "llama3" | "longrope") {
            if named.is_none() {
                let how = format!("the context that the start model was trained with{replaced}");
                why.push((self.at("original_len"), how));
            }
            settings.insert("original_len".into(), json!(original));
        }
        if longrope {
            self.lists(&settings, start)?;
            let usual = Longrope {
                original_len: original,
                ..Longrope::default()
            };
            // Written explicitly, as of a model that is read: shorter rows must not change it.
            let factor = usual.attention_factor(whole);
            settings
                .entry("attention_factor")
                .or_insert_with(|| json!(factor));
        }
        Ok(Longer {
            scaling: json!({kind: settings}),
            seq_len,
            context: whole,
            why,
        })
    }

    /// The spec's settings, over those of the start model where that has the same scaling: all but what the factor decides.
    fn kept(&self, start: &ModelConfig) -> Map<String, Value> {
        let mut settings = match own(start).get_mut(self.kind).map(Value::take) {
            Some(Value::Object(theirs)) => theirs,
            _ => Map::new(),
        };
        for key in ["factor", "original_len", "attention_factor"] {
            settings.remove(key);
        }
        let said = self.settings.iter().filter(|(_, value)| !value.is_null());
        settings.extend(said.map(|(key, value)| (key.clone(), value.clone())));
        settings.retain(|_, value| !value.is_null());
        settings
    }

    /// What of the start model's own scaling is gone.
    fn replaced(&self, start: &ModelConfig) -> String {
        let theirs = own(start);
        let before = theirs.as_object().and_then(|map| map.iter().next());
        match before {
            None => String::new(),
            Some((kind, settings)) => {
                let factor = settings["factor"].as_f64();
                let factor = factor.map(|factor| format!(" of factor {factor}"));
                format!(
                    " before its {kind} scaling{}, which is replaced",
                    factor.unwrap_or_default()
                )
            }
        }
    }

    fn nowhere(&self, longest: Option<usize>, original: usize, whose: &str) -> Wrong {
        let what = match longest {
            Some(longest) => format!(
                "nothing to stretch: rows have {longest} tokens, and {whose} was trained with {original}"
            ),
            None => format!("how far? {whose} was trained with {original} tokens"),
        };
        let hint = format!(
            "say the new length, from which the factor follows: -s model.seq_len={}; or remove {SCALING}",
            4 * original
        );
        Wrong::new(SCALING, what, hint)
    }

    /// LongRoPE has a divisor of each pair, which only a search gives.
    fn lists(&self, settings: &Map<String, Value>, start: &ModelConfig) -> Result<(), Wrong> {
        let list = settings.get("long_factor").and_then(Value::as_array);
        if list.is_some_and(|list| !list.is_empty()) {
            return Ok(());
        }
        let pairs = start
            .position
            .rope()
            .map_or(0, |rope| rope.width(start.rope_head_dim()) / 2);
        let what = format!(
            "LongRoPE divides each of {pairs} pairs by a factor of its own, found by a search, and none is given"
        );
        let hint =
            format!("give {pairs} numbers, or use -s model.{SCALING}=yarn, which needs none");
        Err(Wrong::new(&self.at("long_factor"), what, hint))
    }
}

fn no_rotations(start: &ModelConfig, whose: &str) -> Wrong {
    let context = grouped(start.context() as u64);
    let (what, hint) = match &start.position {
        PositionConfig::Learned(_) => (
            format!(
                "scaling stretches rotations, and {whose} has learned positions: a table that ends at {context} tokens"
            ),
            format!("start from a model with RoPE for longer contexts, or remove {SCALING}"),
        ),
        PositionConfig::Alibi(_) => (
            format!(
                "scaling stretches rotations, and {whose} has ALiBi, which needs none: it extrapolates from {context} tokens to about twice as many without training"
            ),
            format!("remove {SCALING}; a longer -s model.seq_len alone trains it there"),
        ),
        other => (
            format!(
                "scaling stretches rotations, and {whose} has {}",
                other.entry().title
            ),
            format!("remove {SCALING}; a longer -s model.seq_len alone trains it there"),
        ),
    };
    Wrong::new(SCALING, what, hint)
}

/// What to know of rows that are longer than the start model's context, where positions need no scaling for them.
pub(super) fn extrapolated(start: &ModelConfig, rows: usize) -> Option<String> {
    let context = start.context();
    let learns = match &start.position {
        PositionConfig::Alibi(_) => {
            "ALiBi extrapolates to about twice the length of its training (Press et al. 2022, arXiv 2108.12409); beyond that the run teaches it"
        }
        PositionConfig::Sinusoidal(_) => {
            "the vectors of the positions behind are new to its weights"
        }
        PositionConfig::None(_) => {
            "without position encoding, attention over more tokens than in its training is new to its weights"
        }
        _ => return None,
    };
    (rows > context).then(|| {
        format!(
            "model.seq_len {} is longer than the start model's context of {}: {learns}",
            grouped(rows as u64),
            grouped(context as u64)
        )
    })
}
