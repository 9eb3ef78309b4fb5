//! RoPE settings in `config.json`: transformers 4 (`rope_theta` and `rope_scaling`) and 5 (`rope_parameters`).

use super::super::keys::Keys;
use crate::nn::position::scaling::{Linear, Llama3, Longrope, Yarn};
use crate::nn::position::{PositionConfig, RopeConfig, ScalingConfig};
use serde_json::{Value, json};

/// The key of transformers 5, and the one of transformers 4.
const NEW: &str = "rope_parameters";
const OLD: &str = "rope_scaling";
/// The share of a head that is rotated, in the table or beside it.
const FRACTION: &str = "partial_rotary_factor";
/// vLLM's name for what the attention factor of YaRN is multiplied by (`get_rope`, `YaRNScalingRotaryEmbedding`).
const OF_VLLM: &str = "attn_factor";

/// What a family adds to its keys.
#[derive(Debug, Clone, Copy)]
pub struct Rope {
    /// The default base.
    pub theta: f64,
    /// Whether the family supports partial RoPE.
    pub partial: bool,
    /// The share of a head that is rotated where no key says it.
    pub fraction: f64,
    /// Whether its positions may be stretched by LongRoPE.
    pub longrope: bool,
    /// Whether pairs of features are divided among time, height and width, which for a text are one position (M-RoPE).
    pub sections: bool,
    /// Whether YaRN has DeepSeek's weights of the logarithm.
    pub mscale: bool,
}

impl Rope {
    /// All RoPE keys.
    ///
    /// # Errors
    /// Unsupported scaling, or inconsistent keys.
    pub fn read(self, keys: &Keys) -> Result<RopeConfig, String> {
        let (theta, fraction) = (keys.number("rope_theta")?, keys.number(FRACTION)?);
        let rope = Rope {
            theta: theta.unwrap_or(self.theta),
            fraction: fraction.unwrap_or(self.fraction),
            ..self
        };
        let rope = rope.tables(keys)?;
        match fraction {
            Some(fraction) if fraction != rope.fraction => Err(format!(
                "{FRACTION} {fraction} beside {} in {NEW} or {OLD}: transformers 4 takes the first and 5 the second; remove the one that the model was not trained with",
                rope.fraction
            )),
            _ => Ok(rope),
        }
    }

    /// The tables of both versions; what they leave out is as `self` has it.
    ///
    /// # Errors
    /// As [`Rope::read`].
    pub fn tables(self, keys: &Keys) -> Result<RopeConfig, String> {
        // Of the scaling, if any: every Phi-3 has it.
        let _ = keys.size("original_max_position_embeddings")?;
        let read = |key| {
            let table = keys.table(key)?;
            table
                .map(|table| self.table(keys, &table, None))
                .transpose()
        };
        let rope = match (read(NEW)?, read(OLD)?) {
            (Some(new), Some(old)) => {
                agree(&new, &old)?;
                new
            }
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => RopeConfig {
                theta: self.theta,
                fraction: self.fraction,
                ..RopeConfig::default()
            },
        };
        if rope.fraction != 1.0 && !self.partial {
            return Err(format!(
                "{FRACTION} {}: this model type rotates whole heads in transformers",
                rope.fraction
            ));
        }
        Ok(rope)
    }

    /// One table of parameters; every key in it is accounted for.
    ///
    /// # Errors
    /// As [`Rope::read`].
    pub fn table(
        self,
        keys: &Keys,
        table: &Keys,
        above: Option<f64>,
    ) -> Result<RopeConfig, String> {
        let theta = table.number("rope_theta")?.or(above);
        let fraction = table.number(FRACTION)?;
        let old = table.word("type")?;
        let kind = table.word("rope_type")?.or(old).unwrap_or("default");
        let scaling = self.scaling(kind, keys, table)?;
        if self.sections {
            let _ = table.numbers("mrope_section")?;
            let _ = table.flag("mrope_interleaved", true)?;
        }
        table.finish()?;
        Ok(RopeConfig {
            theta: theta.unwrap_or(self.theta),
            fraction: fraction.unwrap_or(self.fraction),
            scaling,
            ..RopeConfig::default()
        })
    }

    fn scaling(
        self,
        kind: &str,
        keys: &Keys,
        table: &Keys,
    ) -> Result<Option<ScalingConfig>, String> {
        let missing = |key: &str| format!("rotary scaling `{kind}` without {key}");
        let need = |key: &str| table.number(key)?.ok_or_else(|| missing(key));
        // Some files have it in every kind of table.
        let in_table = table.size("original_max_position_embeddings")?;
        let original = keys.size("original_max_position_embeddings")?.or(in_table);
        let longest = || keys.need_size("max_position_embeddings");
        Ok(match kind {
            "default" => None,
            "linear" => Some(ScalingConfig::Linear(Linear {
                factor: need("factor")?,
            })),
            "llama3" => Some(ScalingConfig::Llama3(Llama3 {
                factor: need("factor")?,
                low_freq_factor: need("low_freq_factor")?,
                high_freq_factor: need("high_freq_factor")?,
                original_len: original.map_or_else(longest, Ok)?,
            })),
            "yarn" => {
                let truncate = table.flag("truncate", true)?;
                let [mscale, mscale_all_dim] = match self.mscale {
                    true => {
                        let weight = |key| Ok::<_, String>(table.number(key)?.filter(|x| *x > 0.0));
                        [weight("mscale")?, weight("mscale_all_dim")?]
                    }
                    false => {
                        table.only("mscale", &json!(1.0))?;
                        table.only("mscale_all_dim", &json!(0.0))?;
                        [None; 2]
                    }
                };
                // Of YaRN's own code, for scaling that depends on the text's length.
                let _ = table.flag("finetuned", false)?;
                // transformers warns of an unrecognized key and leaves it out (modeling_rope_utils, `_check_received_keys`).
                let _ = table.number(OF_VLLM)?;
                Some(ScalingConfig::Yarn(Yarn {
                    factor: need("factor")?,
                    original_len: Some(original.map_or_else(longest, Ok)?),
                    beta_fast: table.number("beta_fast")?.unwrap_or(32.0),
                    beta_slow: table.number("beta_slow")?.unwrap_or(1.0),
                    attention_factor: table.number("attention_factor")?,
                    mscale,
                    mscale_all_dim,
                    truncate,
                }))
            }
            // The older name of the same.
            "longrope" | "su" if self.longrope => {
                let list = |key: &str| table.numbers(key)?.ok_or_else(|| missing(key));
                let original_len = original.map_or_else(longest, Ok)?;
                let scaling = Longrope {
                    short_factor: list("short_factor")?,
                    long_factor: list("long_factor")?,
                    original_len,
                    attention_factor: table.number("attention_factor")?,
                };
                // Written explicitly: a shorter context, which a run may choose, must not change it.
                let context = match table.number("factor")? {
                    Some(factor) => (factor * original_len as f64) as usize,
                    None => longest()?,
                };
                let factor = scaling.attention_factor(context);
                Some(ScalingConfig::Longrope(Longrope {
                    attention_factor: Some(factor),
                    ..scaling
                }))
            }
            other => {
                let other = crate::base::text::one_line(other);
                return Err(format!(
                    "rotary scaling `{other}` is not supported by this model type; use default, linear, llama3 or yarn (and longrope with phi3)"
                ));
            }
        })
    }
}

/// A key of a config.json that transformers ignores and another program does not, as a sentence.
pub fn ignored(config: &Value) -> Option<String> {
    let said = |key: &str| {
        let table = &config[key];
        let kind = table["rope_type"].as_str().or(table["type"].as_str());
        let is_read = kind == Some("yarn");
        Some((
            key.to_string(),
            table[OF_VLLM].as_f64().filter(|_| is_read)?,
        ))
    };
    let (table, value) = said(NEW).or_else(|| said(OLD))?;
    Some(format!(
        "{table}.{OF_VLLM} {value} is ignored, as transformers does, which reads attention_factor; vLLM multiplies its attention factor by it"
    ))
}

/// Files for both versions have both tables. If they differ, the versions of transformers compute different models, and
/// version 5 uses the older table.
///
/// # Errors
/// Another base, share of a head or scaling.
pub fn agree(new: &RopeConfig, old: &RopeConfig) -> Result<(), String> {
    let plain = |rope: &RopeConfig| match rope.scaling.clone() {
        // The older table cannot express it.
        Some(ScalingConfig::Longrope(scaling)) => Some(ScalingConfig::Longrope(Longrope {
            attention_factor: None,
            ..scaling
        })),
        scaling => scaling,
    };
    let what = if new.theta != old.theta {
        format!("rope_theta {} beside {}", new.theta, old.theta)
    } else if new.fraction != old.fraction {
        format!("{FRACTION} {} beside {}", new.fraction, old.fraction)
    } else if plain(new) != plain(old) {
        "another scaling".into()
    } else {
        return Ok(());
    };
    Err(format!(
        "{NEW} and {OLD} differ ({what}): transformers 5 takes {OLD} where both are there; remove the one that the model was not trained with"
    ))
}

/// `rope_parameters` of transformers 5 for a canonical config (see `canonical`).
pub fn parameters(rope: &RopeConfig) -> Value {
    let mut table = match &rope.scaling {
        // Canonical configs have no NTK: it is another theta.
        None | Some(ScalingConfig::Ntk(_)) => json!({"rope_type": "default"}),
        Some(ScalingConfig::Linear(c)) => json!({"rope_type": "linear", "factor": c.factor}),
        Some(ScalingConfig::Llama3(c)) => json!({
            "rope_type": "llama3",
            "factor": c.factor,
            "low_freq_factor": c.low_freq_factor,
            "high_freq_factor": c.high_freq_factor,
            "original_max_position_embeddings": c.original_len,
        }),
        Some(ScalingConfig::Yarn(c)) => json!({
            "rope_type": "yarn",
            "factor": c.factor,
            "original_max_position_embeddings": c.original_len,
            "beta_fast": c.beta_fast,
            "beta_slow": c.beta_slow,
            "attention_factor": c.attention_factor,
        }),
        Some(ScalingConfig::Longrope(c)) => json!({
            "rope_type": "longrope",
            "short_factor": c.short_factor,
            "long_factor": c.long_factor,
            "original_max_position_embeddings": c.original_len,
            "attention_factor": c.attention_factor,
        }),
    };
    if let Some(ScalingConfig::Yarn(yarn)) = &rope.scaling {
        if !yarn.truncate {
            table["truncate"] = json!(false);
        }
        for (key, weight) in [
            ("mscale", yarn.mscale),
            ("mscale_all_dim", yarn.mscale_all_dim),
        ] {
            if let Some(weight) = weight {
                table[key] = json!(weight);
            }
        }
    }
    table["rope_theta"] = json!(rope.theta);
    if rope.fraction != 1.0 {
        table["partial_rotary_factor"] = json!(rope.fraction);
    }
    table
}

/// The keys of both versions: transformers 4 reads `rope_theta` and `rope_scaling`, 5 `rope_parameters`.
pub fn write(position: &PositionConfig, into: &mut Value) {
    let Some(rope) = position.rope() else {
        return;
    };
    let new = parameters(rope);
    if rope.scaling.is_some() {
        let mut old = new.clone();
        if let Some(old) = old.as_object_mut() {
            old.remove("rope_theta");
            old.remove("partial_rotary_factor");
            if let Some(ScalingConfig::Longrope(_)) = rope.scaling {
                // transformers 4 accepts only these three keys.
                old.remove("original_max_position_embeddings");
                old.remove("attention_factor");
                old.insert("type".into(), json!("longrope"));
                old.remove("rope_type");
            }
        }
        into[OLD] = old;
    }
    if rope.fraction != 1.0 {
        // Version 4 reads it only here, and so does 5 next to the older table.
        into["partial_rotary_factor"] = json!(rope.fraction);
    }
    into["rope_theta"] = json!(rope.theta);
    into[NEW] = new;
}

#[cfg(test)]
mod tests {
    use super::*;

    const LLAMA: Rope = Rope {
        theta: 10_000.0,
        partial: false,
        fraction: 1.0,
        longrope: false,
        sections: false,
        mscale: false,
    };

    fn read(value: Value) -> Result<RopeConfig, String> {
        let map = value.as_object().unwrap();
        let keys = Keys::new(map);
        let rope = LLAMA.read(&keys)?;
        keys.value("max_position_embeddings");
        keys.finish()?;
        Ok(rope)
    }

    #[test]
    fn both_versions_are_equivalent() {
        let old = json!({"rope_theta": 5e5, "max_position_embeddings": 131072, "rope_scaling":
            {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}});
        let new = json!({"max_position_embeddings": 131072, "rope_parameters": {"rope_theta": 5e5,
            "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}});
        let rope = read(old).unwrap();
        assert_eq!(rope, read(new).unwrap());
        assert_eq!(rope.theta, 5e5);
        assert_eq!(read(json!({"rope_scaling": null})).unwrap().theta, 10_000.0);
        let su = json!({"rope_scaling": {"type": "linear", "factor": 2.5}});
        assert!(matches!(
            read(su).unwrap().scaling,
            Some(ScalingConfig::Linear(Linear { factor: 2.5 }))
        ));
    }

    /// The table of DeepSeek-R1-0528-Qwen3-8B.
    #[test]
    fn the_attention_factor_of_vllm_is_left_out_with_a_note() {
        let table = |more: Value| {
            let mut table = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768});
            for (key, value) in more.as_object().unwrap() {
                table[key] = value.clone();
            }
            table
        };
        let plain = read(json!({"rope_scaling": table(json!({}))})).unwrap();
        for key in [OLD, NEW] {
            let config = json!({key: table(json!({"attn_factor": 0.8782488562869419}))});
            let rope = read(config.clone()).unwrap();
            assert_eq!(rope, plain);
            let Some(ScalingConfig::Yarn(yarn)) = rope.scaling else {
                unreachable!("{config}")
            };
            let expected = 0.1 * 4.0_f64.ln() + 1.0;
            assert!((yarn.attention_factor() - expected).abs() < 1e-12);
            let note = ignored(&config).unwrap();
            assert!(
                note.starts_with(&format!("{key}.attn_factor 0.878")),
                "{note}"
            );
        }
        assert_eq!(ignored(&json!({"rope_scaling": table(json!({}))})), None);
        assert_eq!(ignored(&json!({"rope_scaling": null})), None);
        // Both keys: transformers takes its own.
        let both = table(json!({"attn_factor": 0.5, "attention_factor": 1.25}));
        let Some(ScalingConfig::Yarn(yarn)) = read(json!({"rope_scaling": both})).unwrap().scaling
        else {
            unreachable!()
        };
        assert_eq!(yarn.attention_factor(), 1.25);
        let error = read(json!({"rope_scaling": table(json!({"attn_factor": "x"}))})).unwrap_err();
        assert!(error.contains("attn_factor"), "{error}");
    }

    #[test]
    fn written_settings_read_back() {
        let scalings = [
            None,
            Some(ScalingConfig::Linear(Linear { factor: 3.0 })),
            Some(ScalingConfig::Llama3(Llama3::default())),
            Some(ScalingConfig::Yarn(Yarn {
                original_len: Some(64),
                attention_factor: Some(1.25),
                ..Yarn::default()
            })),
        ];
        for scaling in scalings {
            let rope = RopeConfig {
                theta: 77.0,
                scaling,
                ..RopeConfig::default()
            };
            let mut value = json!({"max_position_embeddings": 9});
            write(&PositionConfig::Rope(rope.clone()), &mut value);
            assert_eq!(read(value.clone()), Ok(rope.clone()));
            // transformers 4 alone.
            value.as_object_mut().unwrap().remove(NEW);
            assert_eq!(read(value), Ok(rope));
        }
    }

    /// transformers 5.24 gives such a file a linear scaling by 4.
    #[test]
    fn two_tables_that_differ_are_rejected_by_name() {
        let linear = json!({"type": "linear", "factor": 4.0});
        let both = |new: Value, theta: f64| {
            read(json!({"rope_parameters": new, "rope_scaling": linear, "rope_theta": theta}))
        };
        for new in [
            json!({"rope_type": "default"}),
            json!({"rope_type": "linear", "factor": 2.0}),
            json!({"rope_type": "linear", "factor": 4.0, "rope_theta": 5e5}),
        ] {
            let error = both(new.clone(), 1e4).unwrap_err();
            let named = error.contains("rope_parameters") && error.contains("rope_scaling");
            assert!(named, "{new}: {error}");
        }
        let same = json!({"rope_type": "linear", "factor": 4.0, "rope_theta": 5e5});
        assert!(both(same, 5e5).is_ok());
    }

    /// transformers 5.24 rotates what the table says; where both tables are there, the older one.
    #[test]
    fn a_share_of_a_head_that_differs_between_two_places_is_rejected() {
        let stablelm = Rope {
            partial: true,
            fraction: 0.25,
            ..LLAMA
        };
        let read = |value: Value| {
            let keys = Keys::new(value.as_object().unwrap());
            let rope = stablelm.read(&keys)?;
            keys.finish()?;
            Ok::<f64, String>(rope.fraction)
        };
        let table =
            |key: &str, fraction: f64| json!({"rope_type": "linear", "factor": 2.0, key: fraction});
        let said = |fraction| table(FRACTION, fraction);
        let unsaid = || table("rope_theta", 10_000.0);
        for (value, fraction) in [
            (json!({}), 0.25),
            (json!({"partial_rotary_factor": 0.75}), 0.75),
            (json!({"rope_parameters": said(0.5)}), 0.5),
            (json!({"rope_scaling": said(0.5)}), 0.5),
            (
                json!({"rope_parameters": said(0.5), "partial_rotary_factor": 0.5}),
                0.5,
            ),
            (
                json!({"rope_scaling": unsaid(), "partial_rotary_factor": 0.75}),
                0.75,
            ),
            (
                json!({"rope_parameters": said(0.75), "rope_scaling": unsaid(), "partial_rotary_factor": 0.75}),
                0.75,
            ),
            (
                json!({"rope_parameters": said(0.25), "rope_scaling": unsaid()}),
                0.25,
            ),
        ] {
            assert_eq!(read(value.clone()), Ok(fraction), "{value}");
        }
        for value in [
            json!({"rope_parameters": said(0.5), "partial_rotary_factor": 0.25}),
            json!({"rope_scaling": said(0.5), "partial_rotary_factor": 0.25}),
            json!({"rope_parameters": said(0.5), "rope_scaling": said(0.75)}),
            json!({"rope_parameters": said(0.5), "rope_scaling": unsaid()}),
        ] {
            let error = read(value.clone()).unwrap_err();
            let names_both =
                error.contains("partial_rotary_factor 0.") && error.contains(" beside 0.");
            assert!(
                names_both && error.contains("rope_scaling"),
                "{value}: {error}"
            );
        }
    }

    #[test]
    fn unsupported_settings_are_rejected() {
        for (value, part) in [
            (
                json!({"rope_scaling": {"type": "dynamic", "factor": 2.0}}),
                "`dynamic`",
            ),
            (
                json!({"rope_parameters": {"rope_type": "longrope"}}),
                "longrope with phi3",
            ),
            (
                json!({"rope_parameters": {"rope_type": "linear"}}),
                "without factor",
            ),
            (json!({"partial_rotary_factor": 0.5}), "whole heads"),
            (
                json!({"rope_parameters": {"rope_type": "default", "twist": 2}}),
                "rope_parameters.twist",
            ),
            (
                json!({"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "truncate": 2}}),
                "truncate",
            ),
            (json!({"rope_parameters": 3}), "a table"),
        ] {
            let error = read(value.clone()).unwrap_err();
            assert!(error.contains(part), "{value}: {error}");
        }
    }
}
