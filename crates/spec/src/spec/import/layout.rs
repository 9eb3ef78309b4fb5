//! How Axolotl reads the rows of a dataset, as a source's `format` and `columns`.

use super::plain;
use serde_json::{Map, Value, json};

/// Formats of the rows of a `type`, with names of columns: ours and theirs.
type Fixed = (&'static str, &'static [(&'static str, &'static str)]);

/// What stands behind the first word of a `type` of preferences: `chatml.intel`.
const PAIRS: &[Fixed] = &[
    ("intel", &[("prompt", "question"), ("system", "system")]),
    ("icr", &[("prompt", "input"), ("system", "system")]),
    (
        "argilla",
        &[
            ("prompt", "instruction"),
            ("chosen", "chosen_response"),
            ("rejected", "rejected_response"),
        ],
    ),
    ("ultra", &[]),
];

/// The same of labelled answers (KTO): `llama3.ultra`.
const LABELS: &[Fixed] = &[
    ("intel", &[("prompt", "question"), ("system", "system")]),
    (
        "argilla",
        &[("prompt", "instruction"), ("system", "system")],
    ),
    ("ultra", &[]),
    ("prompt_pairs", &[]),
];

/// Their keys of a `type` that names columns, and ours.
const OWN: &[(&str, &str)] = &[
    ("field_prompt", "prompt"),
    ("field_chosen", "chosen"),
    ("field_rejected", "rejected"),
    ("field_completion", "completion"),
    ("field_label", "label"),
    ("field_system", "system"),
];

/// What a method learns from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Learns {
    Texts,
    /// A better and a worse answer.
    Pairs,
    /// Answers with a label.
    Labels,
}

/// A format, the columns that are called otherwise, and the keys that said so.
#[derive(Debug, PartialEq)]
pub(super) struct Layout {
    pub format: &'static str,
    pub columns: Map<String, Value>,
    pub keys: &'static [&'static str],
}

/// The layout of a dataset's rows for a method, where its keys say one.
pub(super) fn layout(set: &Map<String, Value>, learns: Learns) -> Option<Layout> {
    let fixed = match learns {
        Learns::Texts => None,
        Learns::Pairs => Some(("preference", PAIRS)),
        Learns::Labels => Some(("kto", LABELS)),
    };
    let word = |key: &str| set.get(key).and_then(Value::as_str);
    let kind = set.get("type").map(plain).unwrap_or_default();
    let (first, rest) = kind.split_once(['.', ':']).unwrap_or((&kind, ""));
    let columns = |names: &[(&str, &str)]| -> Map<String, Value> {
        let other = names.iter().filter(|(ours, theirs)| ours != theirs);
        other
            .map(|(ours, theirs)| ((*ours).to_string(), json!(theirs)))
            .collect()
    };
    let role = property(set, "role");
    let content = property(set, "content");
    let turns = (role.unwrap_or("role"), content.unwrap_or("content"));
    let sharegpt = |usual: &str| Layout {
        format: "sharegpt",
        columns: columns(&[("conversations", word("field_messages").unwrap_or(usual))]),
        keys: TURNS,
    };
    match first {
        "chat_template" if learns == Learns::Pairs && turns != ("role", "content") => None,
        "chat_template" if learns == Learns::Pairs => Some(Layout {
            format: "preference",
            columns: columns(&[
                ("prompt", word("field_messages").unwrap_or("messages")),
                ("chosen", word("field_chosen").unwrap_or("chosen")),
                ("rejected", word("field_rejected").unwrap_or("rejected")),
            ]),
            keys: &[
                "type",
                "field_messages",
                "field_chosen",
                "field_rejected",
                "message_property_mappings",
            ],
        }),
        "chat_template" if turns == ("from", "value") => Some(sharegpt("messages")),
        "chat_template" if turns == ("role", "content") => {
            // Without a word on them the columns tell the format.
            let field = word("field_messages")?;
            Some(Layout {
                format: "messages",
                columns: columns(&[("messages", field)]),
                keys: TURNS,
            })
        }
        "sharegpt" => Some(sharegpt("conversations")),
        _ => {
            let (format, known) = fixed?;
            let columns = match set.get("type") {
                Some(Value::Object(own)) => own_columns(own)?,
                _ => columns(known.iter().find(|(name, _)| *name == rest)?.1),
            };
            Some(Layout {
                format,
                columns,
                keys: &["type"],
            })
        }
    }
}

/// The columns of a `type: {field_prompt: …}`; `None` where it also says how texts are put together.
fn own_columns(own: &Map<String, Value>) -> Option<Map<String, Value>> {
    let mut columns = Map::new();
    for (key, value) in own.iter().filter(|(_, value)| !value.is_null()) {
        let (_, ours) = OWN.iter().find(|(theirs, _)| theirs == key)?;
        let name = value.as_str()?;
        if name != *ours {
            columns.insert((*ours).to_string(), json!(name));
        }
    }
    Some(columns)
}

const TURNS: &[&str] = &[
    "type",
    "field_messages",
    "message_property_mappings",
    "message_field_role",
    "message_field_content",
];

/// The name of a turn's role or content, under the newer key or the older one.
fn property<'a>(set: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    let newer = set
        .get("message_property_mappings")
        .and_then(|map| map.get(name));
    let older = || set.get(&format!("message_field_{name}"));
    newer.or_else(older)?.as_str()
}

/// Whether roles are called as they are here: `{user: [human, user], assistant: [gpt], …}`.
pub(super) fn usual_roles(value: &Value) -> bool {
    let Value::Object(roles) = value else {
        return false;
    };
    roles.iter().all(|(role, names)| {
        let usual: &[&str] = match role.as_str() {
            "user" => &["user", "human"],
            "assistant" => &["assistant", "gpt", "model"],
            "system" => &["system"],
            "tool" => &["tool"],
            _ => &[],
        };
        let names = match names {
            Value::Array(names) => names.clone(),
            one => vec![one.clone()],
        };
        names
            .iter()
            .all(|name| name.as_str().is_some_and(|name| usual.contains(&name)))
    })
}
