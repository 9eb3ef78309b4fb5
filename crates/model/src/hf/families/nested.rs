//! Models with vision whose text model is read alone: its config is an entry of theirs, `text_config`.

use super::super::packed::QUANTIZATION;
use super::{deepseek, qwen3_5, qwen3_5_moe};
use serde_json::{Value, json};
use std::borrow::Cow;

/// A model with vision, and its text model: the `model_type` and the class of each.
struct Nested {
    whole: [&'static str; 2],
    text: [&'static str; 2],
}

const KNOWN: [Nested; 2] = [
    Nested {
        whole: ["qwen3_5", "Qwen3_5ForConditionalGeneration"],
        text: [qwen3_5::TEXT, qwen3_5::CLASS],
    },
    Nested {
        whole: ["qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration"],
        text: [qwen3_5_moe::TEXT, qwen3_5_moe::CLASS],
    },
];
/// A model without vision, whose files have a head that predicts tokens further ahead.
const NEXT: &str = "qwen3_next";
/// Keys of the text model that files state above its entry.
const ABOVE: [&str; 4] = [QUANTIZATION, "bos_token_id", "eos_token_id", "pad_token_id"];
const TIED: &str = "tie_word_embeddings";

/// The config of the text model alone: an entry of this one, or this one itself.
///
/// # Errors
/// The two say different things of the head.
pub fn text_model(config: &Value) -> Result<Cow<'_, Value>, String> {
    let Some((known, text)) = text_of(config) else {
        return Ok(Cow::Borrowed(config));
    };
    let ([_, whole_class], [model_type, class]) = (known.whole, known.text);
    let mut text = text.clone();
    text["model_type"] = json!(model_type);
    text["architectures"] = match &config["architectures"][0] {
        Value::String(class) if class != whole_class => config["architectures"].clone(),
        _ => json!([class]),
    };
    for key in ABOVE.iter().filter(|key| !config[**key].is_null()) {
        if text[*key].is_null() {
            text[*key] = config[*key].clone();
        }
    }
    match (&config[TIED], &text[TIED]) {
        (Value::Null, _) => {}
        (whole, Value::Null) => text[TIED] = whole.clone(),
        (whole, inner) if whole == inner => {}
        (whole, inner) => {
            return Err(format!(
                "{TIED} is {whole} beside {inner} in text_config: transformers takes the first with the whole model and the second with the text model alone; make them equal, true if the file has no lm_head.weight"
            ));
        }
    }
    Ok(Cow::Owned(text))
}

/// What of the whole model is left out, as a sentence. `has` knows whether there are tensors whose names begin so: files of a text
/// model alone may have them, too.
pub fn left_out(config: &Value, has: impl Fn(&str) -> bool) -> Option<String> {
    if let Some(behind) = deepseek::left_out(config, &has) {
        return Some(behind);
    }
    let texts = KNOWN.iter().map(|known| known.text[0]);
    let mut alone = texts.chain([NEXT]);
    let (model_type, text) = match text_of(config) {
        Some((known, text)) => (known.text[0], Some(text)),
        None => (alone.find(|name| config["model_type"] == *name)?, None),
    };
    let has_vision = text.is_some() && !config["vision_config"].is_null();
    let ahead = text.and_then(|text| text["mtp_num_hidden_layers"].as_u64());
    let has_ahead = ahead.is_some_and(|n| n > 0);
    let parts = [
        (has_vision || has("model.visual.")).then_some("vision (model.visual)"),
        (has_ahead || has("mtp.")).then_some("the head that predicts tokens further ahead (mtp)"),
    ];
    let parts: Vec<&str> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| {
        format!(
            "it is read without {}: the text model alone, which is written as {}",
            parts.join(" and "),
            model_type
        )
    })
}

fn text_of(config: &Value) -> Option<(&'static Nested, &Value)> {
    let mut known = KNOWN.iter();
    let known = known.find(|known| config["model_type"] == known.whole[0])?;
    let text = config.get("text_config")?;
    text.is_object().then_some((known, text))
}
