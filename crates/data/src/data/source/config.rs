//! One source in a spec: a string such as `name | subset | weight`, or a map.

use crate::data::formats::{Columns, FormatId};
use crate::data::synthetic::{DEFAULT_ROWS, Shape, SyntheticConfig, SyntheticSource};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// Where the rows of a source are.
#[derive(Debug, Clone, PartialEq)]
pub enum Origin {
    /// A file, a folder or a glob on this machine.
    Path(String),
    /// A data set of the hub.
    Hub(String),
    /// The first word of the notation: a path if there is such a thing, else the hub.
    Named(String),
    /// Rows that are made up.
    Synthetic(Box<SyntheticSource>),
}

/// One source of rows.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceConfig {
    pub origin: Origin,
    /// A named part of a data set: a configuration on the hub, a subfolder of a local one.
    pub subset: Option<String>,
    /// `train`, `validation`, `test`. Default: `train` where a data set has splits.
    pub split: Option<String>,
    /// A branch, tag or commit of the hub. Default: `main`.
    pub revision: Option<String>,
    /// How much of the mix, relative to the other sources.
    pub weight: f64,
    /// Of its rows only the first are read, so large a part of them.
    pub fraction: f64,
    /// How the rows are read; otherwise what `data.format` says.
    pub format: Option<FormatId>,
    /// Which column plays which part, where names differ from a format's own.
    pub columns: Columns,
}

impl SourceConfig {
    pub fn new(origin: Origin) -> SourceConfig {
        SourceConfig {
            origin,
            subset: None,
            split: None,
            revision: None,
            weight: 1.0,
            fraction: 1.0,
            format: None,
            columns: Columns::default(),
        }
    }

    /// A path on this machine, with everything else as it is by default.
    pub fn path(path: impl Into<String>) -> SourceConfig {
        SourceConfig::new(Origin::Path(path.into()))
    }

    /// Reads the guide's notation: `name`, `name | subset`, `name | subset | weight`. An empty part keeps its default.
    ///
    /// # Errors
    /// What is wrong and how to say it, in one sentence.
    pub fn parse(text: &str) -> Result<SourceConfig, String> {
        let parts: Vec<&str> = text.split('|').map(str::trim).collect();
        let (name, subset, weight) = match parts.as_slice() {
            [name] => (*name, "", ""),
            [name, subset] if subset.parse::<f64>().is_ok() => {
                return Err(format!(
                    "is {subset} a subset or a weight? Write `{name} | | {subset}` for a weight, `{name} | {subset} |` for a subset"
                ));
            }
            [name, subset] => (*name, *subset, ""),
            [name, subset, weight] => (*name, *subset, *weight),
            _ => {
                return Err(format!(
                    "`{text}` has {} parts: write `name | subset | weight`",
                    parts.len()
                ));
            }
        };
        if name.is_empty() {
            return Err("a source needs a name: `name | subset | weight`".into());
        }
        let mut source = SourceConfig::new(Origin::Named(name.to_string()));
        source.subset = Some(subset.to_string()).filter(|s| !s.is_empty());
        if !weight.is_empty() {
            source.weight = weight.parse().map_err(|_| {
                format!(
                    "`{weight}` is not a weight: write a number above 0, as in `{name} | {subset} | 2`"
                )
            })?;
        }
        source.checked()
    }

    /// Makes a path absolute; what may be a name of the hub stays.
    pub fn make_absolute(&mut self, absolute: &dyn Fn(&std::path::Path) -> std::path::PathBuf) {
        match &mut self.origin {
            Origin::Path(path) => {
                *path = absolute(std::path::Path::new(path))
                    .to_string_lossy()
                    .into_owned();
            }
            Origin::Named(name)
                if name.starts_with('~') || absolute(std::path::Path::new(name)).exists() =>
            {
                *name = absolute(std::path::Path::new(name))
                    .to_string_lossy()
                    .into_owned();
            }
            Origin::Hub(_) | Origin::Named(_) | Origin::Synthetic(_) => {}
        }
    }

    fn checked(self) -> Result<SourceConfig, String> {
        if !(self.weight.is_finite() && self.weight > 0.0) {
            return Err(format!(
                "a weight of {}: weights are relative and above 0 ([2, 1] makes 66.7 % and 33.3 %); remove a source that should not count",
                self.weight
            ));
        }
        if !(self.fraction > 0.0 && self.fraction <= 1.0) {
            return Err(format!(
                "a fraction of {}: it is the part of a source's rows that is read, above 0 and at most 1",
                self.fraction
            ));
        }
        Ok(self)
    }

    /// The notation, where it says everything.
    fn notation(&self) -> Option<String> {
        let Origin::Named(name) = &self.origin else {
            return None;
        };
        let plain = self.split.is_none()
            && self.fraction == 1.0
            && self.revision.is_none()
            && self.format.is_none()
            && self.columns.is_empty();
        let subset = self.subset.as_deref().unwrap_or_default();
        match (plain, self.weight == 1.0) {
            (false, _) => None,
            (true, true) if subset.is_empty() => Some(name.clone()),
            (true, true) if subset.parse::<f64>().is_ok() => Some(format!("{name} | {subset} |")),
            (true, true) => Some(format!("{name} | {subset}")),
            (true, false) => Some(format!("{name} | {subset} | {}", self.weight)),
        }
    }
}

impl fmt::Display for SourceConfig {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match &self.origin {
            Origin::Path(name) | Origin::Hub(name) | Origin::Named(name) => f.write_str(name)?,
            Origin::Synthetic(made) => write!(f, "synthetic {}", made.generator.entry().id)?,
        }
        for part in [&self.subset, &self.split].into_iter().flatten() {
            write!(f, " {part}")?;
        }
        Ok(())
    }
}

/// The map, word for word.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct RawSource {
    /// A file, a folder or a glob.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// A data set of the hub: `org/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    hub: Option<String>,
    /// A path if there is such a thing, else a data set of the hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Made-up rows: the generator, e.g. `arithmetic` or `{arithmetic: {digits: 3}}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "word_or_map")]
    synthetic: Option<SyntheticConfig>,
    /// How many rows are made up. Default: 10,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<u64>,
    /// What made-up rows are: `completion`, `text`, `prompt`, `chat`.
    #[serde(rename = "as", skip_serializing_if = "Option::is_none")]
    shape: Option<Shape>,
    /// Other made-up rows of the same kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subset: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    split: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<f64>,
    /// Read only this part of the rows, the first ones. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    fraction: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<FormatId>,
    #[serde(skip_serializing_if = "Columns::is_empty")]
    columns: Columns,
}

/// A generator by its word alone, or with settings.
fn word_or_map<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SyntheticConfig>, D::Error> {
    let said = serde_json::Value::deserialize(from)?;
    let said = match said.as_str() {
        Some(word) => serde_json::json!({word: {}}),
        None => said,
    };
    crate::base::json::read(&said)
        .map(Some)
        .map_err(de::Error::custom)
}

impl TryFrom<RawSource> for SourceConfig {
    type Error = String;

    fn try_from(said: RawSource) -> Result<SourceConfig, String> {
        let made = said.rows.is_some() || said.shape.is_some() || said.seed.is_some();
        if made && said.synthetic.is_none() {
            return Err("`rows`, `as` and `seed` are only for `synthetic` rows".into());
        }
        if said.synthetic.is_some() && (said.subset.is_some() || said.split.is_some()) {
            return Err(
                "synthetic rows have no `subset` or `split`; another `seed` gives other rows"
                    .into(),
            );
        }
        if said.synthetic.is_some() && said.fraction.is_some() {
            return Err("synthetic rows have no `fraction`: `rows` sets their number".into());
        }
        let synthetic = said.synthetic.map(|generator| SyntheticSource {
            rows: said.rows.unwrap_or(DEFAULT_ROWS),
            shape: said.shape.unwrap_or_default(),
            seed: said.seed.unwrap_or_default(),
            generator,
        });
        let origin = match (said.path, said.hub, said.name, synthetic) {
            (Some(path), None, None, None) => Origin::Path(path),
            (None, Some(hub), None, None) => Origin::Hub(hub),
            (None, None, Some(name), None) => Origin::Named(name),
            (None, None, None, Some(made)) => Origin::Synthetic(Box::new(made)),
            (None, None, None, None) => {
                return Err(
                    "a source needs `path` (a file, folder or glob), `hub` (org/name) or `synthetic` (a generator)".into(),
                );
            }
            _ => return Err("a source has one of `path`, `hub`, `name` and `synthetic`".into()),
        };
        if matches!(origin, Origin::Path(_) | Origin::Synthetic(_)) && said.revision.is_some() {
            return Err("`revision` is only for hub datasets".into());
        }
        SourceConfig {
            subset: said.subset,
            split: said.split,
            revision: said.revision,
            weight: said.weight.unwrap_or(1.0),
            fraction: said.fraction.unwrap_or(1.0),
            format: said.format,
            columns: said.columns,
            ..SourceConfig::new(origin)
        }
        .checked()
    }
}

impl From<&SourceConfig> for RawSource {
    fn from(source: &SourceConfig) -> RawSource {
        let mut said = RawSource {
            subset: source.subset.clone(),
            split: source.split.clone(),
            revision: source.revision.clone(),
            weight: Some(source.weight).filter(|w| *w != 1.0),
            fraction: Some(source.fraction).filter(|part| *part != 1.0),
            format: source.format,
            columns: source.columns.clone(),
            ..RawSource::default()
        };
        match &source.origin {
            Origin::Path(path) => said.path = Some(path.clone()),
            Origin::Hub(hub) => said.hub = Some(hub.clone()),
            Origin::Named(name) => said.name = Some(name.clone()),
            Origin::Synthetic(made) => {
                said.synthetic = Some(made.generator.clone());
                said.rows = Some(made.rows).filter(|rows| *rows != DEFAULT_ROWS);
                said.shape = Some(made.shape).filter(|shape| *shape != Shape::default());
                said.seed = Some(made.seed).filter(|seed| *seed != 0);
            }
        }
        said
    }
}

impl Serialize for SourceConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.notation() {
            Some(notation) => serializer.serialize_str(&notation),
            None => RawSource::from(self).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for SourceConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SourceConfig, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = SourceConfig;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("`name | subset | weight`, or a map with `path` or `hub`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<SourceConfig, E> {
                SourceConfig::parse(text).map_err(E::custom)
            }

            fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<SourceConfig, M::Error> {
                let said = RawSource::deserialize(de::value::MapAccessDeserializer::new(map))?;
                SourceConfig::try_from(said).map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for SourceConfig {
    fn schema_name() -> Cow<'static, str> {
        "SourceConfig".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let map = generator.subschema_for::<RawSource>();
        json_schema!({
            "description": "`name | subset | weight`, or a map with `path` or `hub`",
            "anyOf": [{"type": "string"}, map],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};

    fn read(value: Value) -> Result<SourceConfig, String> {
        from_value(value).map_err(|e| e.to_string())
    }

    #[test]
    fn the_notation_has_a_name_a_subset_and_a_weight() {
        let source = read(json!("HuggingFaceFW/fineweb-edu | sample-10BT | 2")).unwrap();
        assert_eq!(
            source.origin,
            Origin::Named("HuggingFaceFW/fineweb-edu".into())
        );
        assert_eq!(
            (source.subset.as_deref(), source.weight),
            (Some("sample-10BT"), 2.0)
        );
        let source = read(json!("data.jsonl")).unwrap();
        assert_eq!((source.subset, source.weight), (None, 1.0));
        assert_eq!(read(json!("a | | 0.5")).unwrap().weight, 0.5);
        assert_eq!(
            read(json!("a | 2024 |")).unwrap().subset.as_deref(),
            Some("2024")
        );
    }

    #[test]
    fn weights_must_be_above_zero_and_numbers() {
        for bad in ["a | b | 0", "a | b | -1", "a | b | NaN", "a | b | inf"] {
            assert!(read(json!(bad)).unwrap_err().contains("above 0"), "{bad}");
        }
        assert!(
            read(json!("a | b | much"))
                .unwrap_err()
                .contains("`much` is not a weight")
        );
        assert!(
            read(json!({"path": "a", "weight": 0}))
                .unwrap_err()
                .contains("above 0")
        );
        assert!(
            read(json!("a | 2"))
                .unwrap_err()
                .contains("a subset or a weight?")
        );
        assert!(read(json!("a|b|1|x")).unwrap_err().contains("4 parts"));
    }

    #[test]
    fn a_fraction_is_a_part_of_the_rows() {
        let said = json!({"path": "a", "fraction": 0.25});
        let source = read(said.clone()).unwrap();
        assert_eq!(source.fraction, 0.25);
        assert_eq!(serde_json::to_value(&source).unwrap(), said);
        assert_eq!(read(json!("a")).unwrap().fraction, 1.0);
        for bad in [0.0, -0.5, 1.5] {
            let error = read(json!({"path": "a", "fraction": bad})).unwrap_err();
            assert!(error.contains("above 0 and at most 1"), "{error}");
        }
        let made = json!({"synthetic": "arithmetic", "fraction": 0.5});
        assert!(read(made).unwrap_err().contains("`rows` sets"));
    }

    #[test]
    fn a_map_says_more_and_unknown_keys_are_refused() {
        let source = read(json!({"hub": "o/n", "split": "test", "format": "sharegpt", "columns": {"conversations": "dialog"}})).unwrap();
        assert_eq!(source.format, Some(FormatId::Sharegpt));
        assert_eq!(source.columns.get("conversations"), Some("dialog"));
        assert!(
            read(json!({"hub": "o/n", "wieght": 2}))
                .unwrap_err()
                .contains("wieght")
        );
        assert!(
            read(json!({"weight": 2}))
                .unwrap_err()
                .contains("needs `path`")
        );
        assert!(
            read(json!({"path": "a", "hub": "b"}))
                .unwrap_err()
                .contains("one of")
        );
        assert!(
            read(json!(7))
                .unwrap_err()
                .contains("name | subset | weight")
        );
    }

    #[test]
    fn made_up_rows_are_named_by_their_generator_and_keep_their_keys_to_themselves() {
        let source = read(json!({"synthetic": "arithmetic", "weight": 0.5})).unwrap();
        assert_eq!(source.to_string(), "synthetic arithmetic");
        let Origin::Synthetic(made) = source.origin else {
            panic!("made up");
        };
        assert_eq!((made.rows, made.shape), (DEFAULT_ROWS, Shape::Completion));
        for (wrong, told) in [
            (json!({"path": "a", "rows": 5}), "only for `synthetic`"),
            (
                json!({"synthetic": "arithmetic", "split": "test"}),
                "another `seed`",
            ),
            (json!({"synthetic": "arithmetik"}), "arithmetik"),
            (json!({"synthetic": {"arithmetic": {"digit": 1}}}), "digit"),
            (json!({"synthetic": "copy", "path": "a"}), "one of"),
            (
                json!({"synthetic": "copy", "revision": "a"}),
                "hub datasets",
            ),
        ] {
            let error = read(wrong).unwrap_err();
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn what_is_written_reads_back_the_same() {
        let all = [
            json!("a"),
            json!("a | b"),
            json!("a | b | 2.5"),
            json!("a |  | 2"),
            json!("a | 7 |"),
            json!({"path": "x/*.jsonl"}),
            json!({"hub": "o/n", "revision": "v1", "weight": 3.0}),
            json!({"name": "a", "format": "alpaca", "columns": {"output": "reply"}}),
            json!({"synthetic": {"grammar": {"depth": 3}}, "rows": 50, "as": "text", "seed": 9}),
        ];
        for said in all {
            let source = read(said.clone()).unwrap();
            assert_eq!(serde_json::to_value(&source).unwrap(), said);
        }
    }
}
