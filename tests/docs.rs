//! `docs/parameters.md` is generated from the types. This test fails if it is out of date; regenerate it with
//! `LLMTUI_UPDATE_DOCS=1 cargo test --test docs`.

use llmtui::engine::own_answers::OF_STEP;
use llmtui::engine::rollouts::{OF_ANSWERS, of_reward, pass_at_k};
use llmtui::hardware::sampler;
use llmtui::methods::MethodConfig;
use llmtui::metrics::{METRICS, Metric, ranks};
use llmtui::probes::{PROBES, spectra::METRICS as METRICS_AT_REST};
use llmtui::spec::alias::{ALIASES, OF_MEMBERS, OF_SAMPLES};
use llmtui::spec::schema::{self, Kind, Node};
use llmtui::wire::MetricInfo;
use std::fmt::Write as _;
use std::path::Path;

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a switch for people who run this test"
)]
fn the_list_of_parameters_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/parameters.md");
    let wanted = document();
    if std::env::var("LLMTUI_UPDATE_DOCS").is_ok() {
        std::fs::write(&path, &wanted).expect("docs/ can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "docs/parameters.md is stale: run LLMTUI_UPDATE_DOCS=1 cargo test --test docs"
    );
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a switch for people who run this test"
)]
fn the_list_of_metrics_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let wanted = metrics();
    if std::env::var("LLMTUI_UPDATE_DOCS").is_ok() {
        std::fs::write(&path, &wanted).expect("docs/ can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "docs/metrics.md is stale: run LLMTUI_UPDATE_DOCS=1 cargo test --test docs"
    );
}

/// A reader of an id that no run has never finds a value: its rule never fires, its column stays empty.
#[test]
fn every_metric_id_of_the_wire_is_declared_by_runs() {
    let listed = metrics();
    let known = |id: &str| {
        let id = id.replace("gpu/0/", "gpu/N/");
        let prefix = id.ends_with('/') && listed.contains(&format!("`{id}"));
        prefix
            || listed.contains(&format!("`{id}`"))
            || listed.contains(&format!("`{}`", id.trim_start_matches("val/")))
            || listed.contains(&format!("`gpu/N/{id}`"))
    };
    let table = include_str!("../crates/record/src/wire/id.rs");
    let of_table = table.lines().filter_map(|line| {
        let (_, rest) = line.split_once(": &str = \"")?;
        Some(rest.trim_end_matches("\";"))
    });
    let of_table: Vec<&str> = of_table.collect();
    assert!(of_table.len() > 70, "{of_table:?}");
    let needed = llmtui::diagnosis::RULES
        .iter()
        .flat_map(|rule| rule.needs.iter().copied());
    let strange: Vec<&str> = of_table
        .iter()
        .copied()
        .chain(needed)
        .filter(|id| !known(id))
        .collect();
    assert!(strange.is_empty(), "declared nowhere: {strange:?}");
}

fn metrics() -> String {
    let mut text = String::from(
        "<!-- Generated from the tables of metrics, methods and probes by tests/docs.rs: change them there, then run\n     \
         LLMTUI_UPDATE_DOCS=1 cargo test --test docs -->\n\n\
         # Metrics\n\n\
         What a run measures, under the ids of its log. A band says where a value is expected once the warm-up is over, and who\n\
         says so: literature, derived from the definition, or a rule of thumb. Bands apply to the named estimator\n\
         and for no other. Ids that end in `/layer` have a value for each block (`Probed` events, pane Health).\n",
    );
    text.push_str("\n## Every run\n");
    METRICS
        .iter()
        .for_each(|metric| described(&mut text, metric));
    for entry in MethodConfig::ENTRIES {
        // With a reference model, if that is optional: readings of it are listed.
        let of = |settings| serde_json::from_value(serde_json::json!({ entry.id: settings }));
        let config: MethodConfig = of(serde_json::json!({"beta": 0.1}))
            .or_else(|_| of(serde_json::json!({})))
            .expect("every method has defaults");
        let own = config.readings();
        if !own.is_empty() {
            let _ = write!(text, "\n## Method {}\n", entry.id);
            own.iter().for_each(|metric| described(&mut text, metric));
        }
        if config.distills().is_some() {
            described(&mut text, &OF_STEP);
        }
    }
    text.push_str("\n## Methods on answers of their own\n\nOf GRPO, RLOO and PPO, beside what the method reads. NAME is a reward's name, K a number of `rollout.pass_at`.\n");
    OF_ANSWERS
        .iter()
        .for_each(|metric| described(&mut text, metric));
    let of_names = [vec![pass_at_k("K")], of_reward("NAME", true)].concat();
    of_names
        .iter()
        .for_each(|metric| declared(&mut text, metric));
    text.push_str("\n## Sets, tasks and sources\n\nOf each set of `eval.extra`, task of `eval.tasks` and source of `data.sources`, by its NAME.\n");
    for (id, what) in llmtui::guide::OF_NAMES {
        let _ = write!(text, "\n`{id}` — {what}\n");
    }
    text.push_str("\n## The machine\n\nOf the process that trains, sampled beside the training. N counts GPUs and ranks from 0.\n");
    for metric in sampler::declarations([0])
        .into_iter()
        .chain(ranks::declarations(1))
    {
        declared(
            &mut text,
            &MetricInfo {
                id: metric.id.replace("/0/", "/N/"),
                title: metric
                    .title
                    .replace("GPU 0", "GPU N")
                    .replace("Rank 0", "Rank N"),
                ..metric
            },
        );
    }
    text.push_str(
        "\n## Probes\n\nMeasured where `health.enabled` is true, on logged steps only, about once in `health.every` steps (five times as often up to\n\
         step 100). They change no bit of the training. The first micro-batch of a step is looked at.\n\n\
         A resumed run reads what one that never stopped would have read, except where what a probe looks back on is too large for a\n\
         checkpoint: `spectral_norm/layer` and `spectral_scale/layer` restart their power iteration, so that the first looks can\n\
         differ in their digits, and `spike_score/element/layer` has no value for its first 20 looks.\n",
    );
    for probe in PROBES {
        let (id, cadence, cost) = (probe.id, probe.cadence.words(), probe.cost);
        let _ = write!(
            text,
            "\n### {id}\n\nCadence: {cadence}. Cost per probe: {cost}.\n"
        );
        probe
            .metrics
            .iter()
            .for_each(|metric| described(&mut text, metric));
    }
    text.push_str("\n### spectra\n\nCadence: each checkpoint, by a thread of low priority that reads it from disk; `llmtui inspect` for any model.\n");
    METRICS_AT_REST
        .iter()
        .for_each(|metric| described(&mut text, metric));
    text.push_str("\n### cost\n");
    described(&mut text, &llmtui::probes::COST);
    text.push_str(
        "\n## Texts\n\nMeasured on demand by `llmtui memorization MODEL FILE [--control FILE]`.\n",
    );
    llmtui::metrics::texts::OF_TEXTS
        .iter()
        .for_each(|metric| described(&mut text, metric));
    text
}

fn described(text: &mut String, metric: &Metric) {
    declared(text, &metric.info());
}

fn declared(text: &mut String, metric: &MetricInfo) {
    let unit = if metric.unit.is_empty() {
        String::new()
    } else {
        format!(", {}", metric.unit)
    };
    let _ = write!(
        text,
        "\n`{}` — **{}**{unit}. {}.",
        metric.id,
        metric.title,
        upper(&metric.source)
    );
    if !metric.estimator.is_empty() {
        let _ = write!(text, " Estimator `{}`.", metric.estimator);
    }
    if let Some(band) = metric.band {
        let band_text = match (band.low, band.high) {
            (Some(low), Some(high)) => format!("{low} to {high}"),
            (None, Some(high)) => format!("up to {high}"),
            (Some(low), None) => format!("from {low}"),
            (None, None) => "any".into(),
        };
        let _ = write!(text, " Band: {band_text} ({}).", band.origin.words());
    }
    if !metric.normal.is_empty() {
        let _ = write!(
            text,
            " *Normal:* {} *Otherwise:* {}",
            metric.normal, metric.advice
        );
    }
    text.push('\n');
}

/// A sentence begins with a capital, a formula keeps its first letter.
fn upper(text: &str) -> String {
    let first = text.split(' ').next().unwrap_or_default();
    let formula = !first.is_ascii() || first.contains(['(', '_']) || ["ln", "log"].contains(&first);
    if formula {
        return text.to_string();
    }
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string());
    first.unwrap_or_default() + chars.as_str()
}

fn document() -> String {
    let mut text = String::from(
        "<!-- Generated from the types by tests/docs.rs: change the doc comments there, then run\n     \
         LLMTUI_UPDATE_DOCS=1 cargo test --test docs -->\n\n\
         # Parameters\n\n\
         Every key of a spec. In a file, sections nest (`train: {max_steps: 500}`); on the command line, keys are dotted\n\
         (`-s train.max_steps=500`). `-` and `_` are equivalent. A section with alternatives takes a bare name\n\
         (`position: rope`) or a name with settings (`position: {rope: {theta: 500000}}`,\n\
         or `{every_n: 2}` if there is only one setting); one that may be absent takes `none` (`-s adapter=none`).\n",
    );
    let root = schema::root();
    section(&mut text, "", root);
    for (name, node) in root.children() {
        if !matches!(node.kind, Kind::Object(_) | Kind::Registry(_)) {
            continue;
        }
        let _ = write!(text, "\n## {name}\n\n{}\n", node.doc);
        section(&mut text, name, node);
    }
    text.push_str("\n## Other names\n\nShort names and the names of other tools. `*` stands for the selected member.\n\n");
    text.push_str("| name | means |\n|---|---|\n");
    for (name, target) in ALIASES {
        let _ = writeln!(text, "| `{name}` | `{target}`{} |", elsewhere(name));
    }
    text
}

/// What a name means where it does not mean its target.
fn elsewhere(name: &str) -> String {
    let mut text = String::new();
    for (registry, member, _, settings) in OF_MEMBERS.iter().filter(|row| row.2 == name) {
        let path = |setting: &&str| format!("`{registry}.{member}.{setting}`");
        let paths: Vec<String> = settings.iter().map(path).collect();
        let _ = write!(text, ", of {member} {}", paths.join(" and "));
    }
    if let Some((_, path)) = OF_SAMPLES.iter().find(|(other, _)| *other == name) {
        let _ = write!(text, ", of methods without rollouts `{path}`");
    }
    text
}

/// A table of the plain keys at and under `node`, down to every member of every choice.
fn section(text: &mut String, path: &str, node: &Node) {
    let mut rows = String::new();
    if let Kind::Registry(_) = node.kind {
        row(&mut rows, path, node);
    }
    collect(&mut rows, path, node);
    if !rows.is_empty() {
        let _ = write!(
            text,
            "\n| key | value | default | meaning |\n|---|---|---|---|\n{rows}"
        );
    }
}

fn collect(rows: &mut String, path: &str, node: &Node) {
    for (name, child) in node.children() {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        let section = !child.children().is_empty();
        if section && !path.contains('.') {
            continue; // a section of its own
        }
        let member = matches!(node.kind, Kind::Registry(_));
        if !matches!(child.kind, Kind::Object(_)) && !member {
            row(rows, &path, child);
        }
        collect(rows, &path, child);
    }
}

fn row(rows: &mut String, path: &str, node: &Node) {
    let default = match (&node.kind, node.default_member()) {
        (Kind::Registry(_), Some(member)) => format!("`{member}`"),
        _ if node.default.is_null() => "–".to_string(),
        _ => format!("`{}`", node.default),
    };
    let doc = node.doc.replace('|', "\\|");
    let _ = writeln!(
        rows,
        "| `{path}` | {} | {default} | {doc} |",
        node.expected()
    );
}
