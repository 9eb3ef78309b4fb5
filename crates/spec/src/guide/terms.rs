//! Terms with a definition of their own: rules of the diagnosis, metrics, settings. A question that is one of them is answered by its words.

use crate::base::near::closest;
use crate::diagnosis::{RULES, Rule};
use crate::methods::MethodConfig;
use crate::metrics::{METRICS, Metric, texts::OF_TEXTS, validation_id};
use crate::spec::alias::ALIASES;
use crate::spec::schema::{self, Kind, Node};
use crate::wire::{Direction, MetricInfo};

/// Settings of one name that are answered: `beta` is one of nine methods.
const MOST: usize = 12;

/// Readings of each named set, task and source, by their ids with NAME in place of the name.
pub const OF_NAMES: [(&str, &str); 5] = [
    (
        "extra/NAME",
        "Loss on the set: its mean negative log-likelihood in nats, or the method's own loss.",
    ),
    (
        "eval/NAME",
        "The task's headline metric on its first `eval.task_limit` rows.",
    ),
    ("eval_stderr/NAME", "The standard error of that."),
    ("tokens/NAME", "Tokens consumed of the source."),
    (
        "epochs/NAME",
        "Tokens consumed of the source over the tokens of one pass.",
    ),
];

/// One of them.
#[derive(Debug, Clone)]
pub enum Term {
    Rule(&'static Rule),
    Metric(Box<MetricInfo>),
    Setting { path: String, node: &'static Node },
}

impl Term {
    pub fn kind(&self) -> &'static str {
        match self {
            Term::Rule(_) => "rule",
            Term::Metric(_) => "metric",
            Term::Setting { .. } => "setting",
        }
    }

    pub fn id(&self) -> &str {
        match self {
            Term::Rule(rule) => rule.entry.id,
            Term::Metric(metric) => &metric.id,
            Term::Setting { path, .. } => path,
        }
    }

    /// What a list shows: `grad_norm, a metric: Gradient norm`.
    pub fn title(&self) -> String {
        match self {
            Term::Rule(rule) => format!("{}, a rule: {}", rule.entry.id, rule.entry.title),
            Term::Metric(metric) => format!("{}, a metric: {}", metric.id, metric.title),
            Term::Setting { path, .. } => format!("{path}, a setting"),
        }
    }

    /// Markdown.
    pub fn text(&self) -> String {
        match self {
            Term::Rule(rule) => {
                let entry = rule.entry;
                let reads = match rule.needs {
                    [] => String::new(),
                    needs => format!("\n- Reads: `{}`", needs.join("`, `")),
                };
                format!(
                    "- Healthy: {}{reads}\n- Source: {}\n- `llmtui diagnose RUN` says what it found in a run, why, and what to change ([docs/diagnosis.md](docs/diagnosis.md)).",
                    entry.summary, entry.source
                )
            }
            Term::Metric(metric) => of_metric(metric),
            Term::Setting { path, node } => of_setting(path, node),
        }
    }
}

fn of_metric(metric: &MetricInfo) -> String {
    let unit = match metric.unit.as_str() {
        "" => String::new(),
        unit => format!(", in {unit}"),
    };
    let mut text = format!("- Definition{unit}: {}", metric.source);
    if let Some(band) = metric.band {
        let range = match (band.low, band.high) {
            (Some(low), Some(high)) => format!("{low} to {high}"),
            (None, Some(high)) => format!("up to {high}"),
            (Some(low), None) => format!("from {low}"),
            (None, None) => "any".into(),
        };
        text.push_str(&format!("\n- Band: {range} ({})", band.origin.words()));
    }
    if !metric.normal.is_empty() {
        text.push_str(&format!("\n- Normal: {}", metric.normal));
    }
    if !metric.advice.is_empty() {
        text.push_str(&format!("\n- Otherwise: {}", metric.advice));
    }
    let rules = RULES
        .iter()
        .filter(|rule| rule.needs.contains(&metric.id.as_str()));
    let rules: Vec<&str> = rules.map(|rule| rule.entry.id).collect();
    if !rules.is_empty() {
        text.push_str(&format!("\n- Rules that read it: {}", rules.join(", ")));
    }
    text
}

fn of_setting(path: &str, node: &Node) -> String {
    let mut text = format!("- {}", words(path, node));
    if !matches!(node.kind, Kind::Object(_)) {
        text.push_str(&format!("\n- Value: {}", node.expected()));
        let default = match node.default_member() {
            Some(member) if matches!(node.kind, Kind::Registry(_)) => Some(member.to_string()),
            _ if node.default.is_null() => None,
            _ => Some(node.default.to_string()),
        };
        if let Some(default) = default {
            text.push_str(&format!("\n- Default: {default}"));
        }
    }
    let keys: Vec<&str> = node
        .children()
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    if !keys.is_empty() && matches!(node.kind, Kind::Object(_)) {
        text.push_str(&format!("\n- Its keys: {}", keys.join(", ")));
    }
    let others = ALIASES
        .iter()
        .filter(|(_, target)| stands_for(target, path));
    let others: Vec<&str> = others.map(|(name, _)| *name).collect();
    if !others.is_empty() {
        text.push_str(&format!("\n- Also known as: {}", others.join(", ")));
    }
    text
}

/// What a node is: its own words, those of a method, or of the choice that it is one of.
fn words(path: &str, node: &Node) -> String {
    let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
    let method = MethodConfig::ENTRIES
        .iter()
        .find(|entry| parent == "method" && entry.id == name);
    match (method, schema::root().at(parent)) {
        (Some(entry), _) => format!("{}: {} ({})", entry.title, entry.summary, entry.source),
        (None, Some(choice)) if node.doc.is_empty() => {
            format!("A choice of `{parent}`. {}", choice.doc)
        }
        _ => node.doc.clone(),
    }
}

/// Whether the target of another name, in which `*` is any member, is this path.
fn stands_for(target: &str, path: &str) -> bool {
    let mut parts = path.split('.');
    target
        .split('.')
        .all(|part| parts.next().is_some_and(|own| part == "*" || part == own))
        && parts.next().is_none()
}

/// A question without what it is asked with: `what is lora.alpha?` is `lora.alpha`, and whether it asks for a meaning.
pub(super) fn bare(question: &str) -> (String, bool) {
    let said = question.trim().to_lowercase();
    let said = said.trim_matches(|c: char| c.is_whitespace() || "`?!.\"'".contains(c));
    let mut rest = said;
    let mut explains = false;
    for before in [
        "what is",
        "what's",
        "what are",
        "what does",
        "what do",
        "explain",
        "define",
        "meaning of",
        "definition of",
        "-s",
    ] {
        if let Some(tail) = rest
            .strip_prefix(before)
            .filter(|tail| tail.starts_with(' '))
        {
            (rest, explains) = (tail.trim(), true);
        }
    }
    for before in [
        "the ",
        "a ",
        "an ",
        "rule ",
        "metric ",
        "setting ",
        "parameter ",
    ] {
        rest = rest.strip_prefix(before).unwrap_or(rest);
    }
    for after in [
        " mean",
        " means",
        " do",
        " rule",
        " metric",
        " setting",
        " parameter",
    ] {
        rest = rest.strip_suffix(after).unwrap_or(rest);
    }
    let rest = rest.trim_matches(|c: char| c.is_whitespace() || "`?\"'".contains(c));
    let rest = rest.split_once('=').map_or(rest, |(key, _)| key);
    (rest.to_string(), explains)
}

/// The terms that a word, or several, is the id or the title of.
pub(super) fn find(said: &str, metrics: &[MetricInfo]) -> Vec<Term> {
    let joined = said.replace([' ', '-'], "_");
    let mut found = Vec::new();
    let rule = RULES.iter().find(|rule| rule.entry.id == joined);
    found.extend(rule.map(Term::Rule));
    let metrics = metric(said, &joined, metrics).into_iter();
    let (named, alike): (Vec<_>, Vec<_>) =
        metrics.partition(|metric| metric.id == said || metric.id == joined);
    let metrics = |found: Vec<MetricInfo>| found.into_iter().map(|m| Term::Metric(Box::new(m)));
    found.extend(metrics(named));
    let settings = settings(&joined).into_iter().take(MOST);
    found.extend(settings.map(|(path, node)| Term::Setting { path, node }));
    // `alpha` is a setting; a metric by the block is called `alpha/layer`.
    found.extend(metrics(alike));
    found
}

/// Metrics of this program's tables, and those that the caller knows.
fn all_metrics(metrics: &[MetricInfo]) -> Vec<MetricInfo> {
    let mut all: Vec<MetricInfo> = METRICS.iter().map(Metric::info).collect();
    let more = MethodConfig::ENTRIES.iter().flat_map(|entry| {
        let of = |settings| serde_json::from_value(serde_json::json!({ entry.id: settings }));
        let config: Option<MethodConfig> = of(serde_json::json!({"beta": 0.1}))
            .or_else(|_| of(serde_json::json!({})))
            .ok();
        config.map(|config| config.readings()).unwrap_or_default()
    });
    let more = more.map(Metric::info);
    let texts = OF_TEXTS.iter().map(|metric| metric.info());
    let named = OF_NAMES.iter().map(|(id, what)| MetricInfo {
        id: (*id).into(),
        title: (*what).trim_end_matches('.').into(),
        unit: String::new(),
        direction: Direction::Neutral,
        source: (*what).into(),
        label: String::new(),
        exact: false,
        place: Default::default(),
        per_layer: false,
        estimator: String::new(),
        band: None,
        normal: String::new(),
        advice: String::new(),
    });
    for metric in more
        .chain(texts)
        .chain(metrics.iter().cloned())
        .chain(named)
    {
        if all.iter().all(|known| known.id != metric.id) {
            all.push(metric);
        }
    }
    all
}

/// By id, also of its reading on held-out data, by the last part of an id, or by title.
fn metric(said: &str, joined: &str, metrics: &[MetricInfo]) -> Vec<MetricInfo> {
    let all = all_metrics(metrics);
    let is = |id: &str| id == said || id == joined;
    let exact = |m: &&MetricInfo| {
        is(&m.id) || is(m.id.trim_end_matches("/layer")) || m.title.to_lowercase() == said
    };
    let first = all.iter().find(exact);
    let first = first.or_else(|| all.iter().find(|m| is_of(&m.id, said)));
    let first = first.or_else(|| all.iter().find(|m| validation_id(&m.id) == said));
    if let Some(metric) = first {
        return vec![metric.clone()];
    }
    let slash = said.replace(' ', "/");
    let ends = |m: &&MetricInfo| {
        m.id == slash || m.id.rsplit('/').next().is_some_and(|last| last == joined)
    };
    all.iter().filter(ends).take(4).cloned().collect()
}

/// Whether an id is one with NAME, K or N in place of a name or a number.
fn is_of(pattern: &str, id: &str) -> bool {
    if !["NAME", "K", "N"].iter().any(|free| pattern.contains(free)) {
        return false;
    }
    let (mut own, mut said) = (pattern.split('/'), id.split('/'));
    loop {
        match (own.next(), said.next()) {
            (None, None) => return true,
            (Some("NAME" | "N"), Some(name)) if !name.is_empty() => {}
            (Some("pass@K"), Some(k)) if k.starts_with("pass@") => {}
            (Some(a), Some(b)) if a.eq_ignore_ascii_case(b) => {}
            _ => return false,
        }
    }
}

/// Settings by the end of their path, or by another name; the shortest path first.
fn settings(joined: &str) -> Vec<(String, &'static Node)> {
    let all = paths();
    let other = ALIASES
        .iter()
        .find(|(name, _)| *name == joined)
        .map(|(_, target)| *target);
    let fits = |path: &str| {
        path == joined
            || path
                .strip_suffix(joined)
                .is_some_and(|before| before.ends_with('.'))
            || other.is_some_and(|target| stands_for(target, path))
    };
    let mut found: Vec<(String, &'static Node)> =
        all.into_iter().filter(|(path, _)| fits(path)).collect();
    found.sort_by_key(|(path, _)| (path != joined, path.matches('.').count()));
    found
}

/// Every node with words, by its path.
fn paths() -> Vec<(String, &'static Node)> {
    fn walk(path: &str, node: &'static Node, found: &mut Vec<(String, &'static Node)>) {
        for (name, child) in node.children() {
            let path = match path {
                "" => name.clone(),
                path => format!("{path}.{name}"),
            };
            // A member of a choice without words of its own has those of its registry.
            if !child.doc.is_empty() || matches!(node.kind, Kind::Registry(_)) {
                found.push((path.clone(), child));
            }
            walk(&path, child, found);
        }
    }
    let mut found = Vec::new();
    walk("", schema::root(), &mut found);
    found
}

/// The ids most like a word that is none: for "did you mean".
pub(super) fn near(said: &str, metrics: &[MetricInfo]) -> Option<String> {
    let ids = RULES.iter().map(|rule| rule.entry.id.to_string());
    let entries = super::trouble::entries().map(|entry| entry.id.to_string());
    let ids = ids.chain(all_metrics(metrics).into_iter().map(|metric| metric.id));
    let ids = ids.chain(entries);
    let mut ids: Vec<String> = ids
        .chain(paths().into_iter().map(|(path, _)| path))
        .collect();
    ids.dedup();
    let slips = |id: &str| crate::base::near::nearest_path(said, [id]).is_some();
    let keyed = ids
        .into_iter()
        .filter(|id| slips(id))
        .map(|id| (id.clone(), id));
    closest(1, said, keyed).pop()
}
