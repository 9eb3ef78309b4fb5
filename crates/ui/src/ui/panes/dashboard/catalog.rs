//! Which charts a run has, in which order, and how their readings are written. Metrics that this build has never heard of
//! come after the known ones.

use crate::base::human;
use crate::base::text::one_line;
use crate::hardware::sampler;
use crate::metrics::{METRICS, Metric, id};
use crate::run::RunState;
use crate::wire::{ChartPlace, Direction, MetricInfo};

/// One chart: a metric, and its twin on the validation split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chart {
    /// Metric id of the line.
    pub id: String,
    /// Metric id of the rings.
    pub validation: Option<String>,
    pub title: String,
    pub unit: String,
    pub direction: Direction,
    /// It is set, not measured.
    exact: bool,
}

/// Charts shown before anything was declared.
const FIRST: [&str; 4] = [id::TRAIN_LOSS, id::GRAD_NORM, id::ENTROPY, id::TOK_PER_SEC];

/// The charts of a run whose title or id contains `filter`: the loss, the method's own readings (those that a run declares
/// before the loss), the other built-in ones in their order, then others as declared.
pub fn charts(state: &RunState, filter: &str) -> Vec<Chart> {
    let filter = filter.trim().to_lowercase();
    let mut charts: Vec<Chart> = Vec::new();
    let machine = sampler::declarations([]);
    let known = METRICS.iter().map(Metric::info).chain(machine);
    let (loss, others): (Vec<_>, Vec<_>) = known.partition(|info| info.id == id::TRAIN_LOSS);
    let own = own(state).cloned();
    for info in loss
        .into_iter()
        .chain(own)
        .chain(others)
        .filter(|info| info.place == ChartPlace::Dashboard)
    {
        let expected = state.metrics.is_empty() && FIRST.contains(&info.id.as_str());
        if (expected || exists(state, &info.id)) && !taken(&charts, &info.id) {
            let validation = twin(&info.id).filter(|twin| expected || exists(state, twin));
            charts.push(chart(&info, validation));
        }
    }
    let declared = state.metrics.iter().map(|m| m.id.as_str());
    for id in declared.chain(state.series.keys().map(String::as_str)) {
        if !taken(&charts, id) && !elsewhere(state, id) {
            let validation = twin(id).filter(|twin| exists(state, twin));
            charts.push(match state.metric(id) {
                Some(info) => chart(info, validation),
                None => chart(&undeclared(id), validation),
            });
        }
    }
    charts.retain(|c| {
        (state.step == 0 || measured(state, c))
            && [Some(&c.id), Some(&c.title), c.validation.as_ref()]
                .into_iter()
                .flatten()
                .any(|name| name.to_lowercase().contains(&filter))
    });
    charts
}

/// The method's readings: what an engine declares before the loss, but for the machine's, which come first where it waits in a
/// queue. In logs of other programs the order says nothing: there the built-in ones are none of them.
fn own(state: &RunState) -> impl Iterator<Item = &MetricInfo> {
    let loss = state.metrics.iter().position(|m| m.id == id::TRAIN_LOSS);
    let before = &state.metrics[..loss.unwrap_or(0)];
    let foreign = state.is_foreign();
    let built_in = |id: &str| METRICS.iter().any(|metric| metric.id == id);
    before
        .iter()
        .filter(move |m| !(is_machine(&m.id) || foreign && built_in(&m.id)))
}

fn is_machine(id: &str) -> bool {
    let prefixes = [id::machine::HOST, id::machine::GPU];
    prefixes.iter().any(|prefix| id.starts_with(prefix))
}

/// Whether a metric has its chart on the hardware pane, or none.
fn elsewhere(state: &RunState, id: &str) -> bool {
    let declared = state.metric(id).map(|info| info.place);
    is_machine(id) || declared.is_some_and(|place| place != ChartPlace::Dashboard)
}

fn exists(state: &RunState, id: &str) -> bool {
    state.series.contains_key(id) || state.metric(id).is_some()
}

/// Whether there is anything to draw. What is declared and never measured has no box.
fn measured(state: &RunState, chart: &Chart) -> bool {
    let ids = [Some(&chart.id), chart.validation.as_ref()];
    let series = ids.into_iter().flatten().map(|id| state.series.get(id));
    series.flatten().any(|series| !series.is_empty())
}

fn taken(charts: &[Chart], id: &str) -> bool {
    charts
        .iter()
        .any(|c| c.id == id || c.validation.as_deref() == Some(id))
}

/// The validation metric of a training metric.
fn twin(id: &str) -> Option<String> {
    Some(format!("val/{}", id.strip_prefix("train/").unwrap_or(id)))
}

fn chart(info: &MetricInfo, validation: Option<String>) -> Chart {
    Chart {
        id: info.id.clone(),
        validation,
        title: name(info),
        unit: info.unit.clone(),
        direction: info.direction,
        exact: info.exact,
    }
}

/// What a metric is called where there is little room: its label, or its title in small letters. The same everywhere.
pub fn name(info: &MetricInfo) -> String {
    if !info.label.is_empty() {
        return one_line(&info.label);
    }
    let mut letters = info.title.chars();
    let first = letters.next();
    let rest = letters.as_str();
    // `KL to the reference` and `L2 norm` begin with an abbreviation.
    let word = rest.chars().next().is_none_or(char::is_lowercase);
    match first {
        None => one_line(&info.id),
        Some(first) if word => one_line(&(first.to_lowercase().to_string() + rest)),
        Some(_) => one_line(&info.title),
    }
}

/// The name of a reading among the results, and its value: a share with a digit behind the point, as 99.4 % is not 99.5 %. All
/// results are of held-out rows, so that it need not be said of each.
pub fn held_out(state: &RunState, metric: &str, value: f64) -> (String, String) {
    let declared = state.metric(metric);
    let name = declared.map_or_else(|| one_line(metric), name);
    let name = name.strip_prefix("validation: ").unwrap_or(&name);
    let value = match declared.map_or("", |info| info.unit.as_str()) {
        "share" if value.is_finite() => human::percent(value, 1),
        unit => human::reading(value, unit),
    };
    (name.to_string(), value)
}

/// What is known of a metric that nobody declared.
fn undeclared(id: &str) -> MetricInfo {
    MetricInfo {
        id: id.into(),
        ..MetricInfo::default()
    }
}

impl Chart {
    /// A moving average makes sense of it.
    pub fn smooths(&self) -> bool {
        !self.exact && !self.points_only()
    }

    /// Measured now and then: rings on a faint line. Each evaluation reads the same held-out rows or prompts: a mean with
    /// earlier ones would be of other weights.
    pub fn points_only(&self) -> bool {
        [id::VAL, id::EXTRA, id::EVAL]
            .iter()
            .any(|of| self.id.starts_with(of))
    }

    /// Its axis begins at zero: heights compare as amounts.
    pub fn begins_at_zero(&self) -> bool {
        begins_at_zero(&self.id, &self.unit)
    }

    /// A reading in few columns, without its unit where the title says it.
    pub fn reading(&self, x: f64) -> String {
        human::reading(x, &self.unit)
    }
}

/// Whether heights of a metric compare as amounts.
pub fn begins_at_zero(id: &str, unit: &str) -> bool {
    matches!(unit, "1/s" | "ms" | "share" | "%" | "bytes") || id == id::LR
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::UnixMillis;
    use crate::wire::{Envelope, Event, Num};

    fn state(ids: &[&str]) -> RunState {
        let values = ids.iter().map(|id| (id.to_string(), Num(1.0))).collect();
        let event = Event::Stepped {
            step: 1,
            tokens: 1,
            values,
        };
        RunState::from_events(&[Envelope {
            v: 1,
            seq: 1,
            t: UnixMillis(1),
            event,
        }])
    }

    fn ids(charts: &[Chart]) -> Vec<&str> {
        charts.iter().map(|c| c.id.as_str()).collect()
    }

    #[test]
    fn an_empty_run_promises_the_four_that_matter() {
        assert_eq!(
            ids(&charts(&RunState::new(), "")),
            ["train/loss", "grad_norm", "entropy", "tok_per_sec"]
        );
    }

    #[test]
    fn unknown_metrics_follow_and_twins_share_a_chart() {
        let state = state(&[
            "rewards/margins",
            "lr",
            "train/loss",
            "val/loss",
            "train/acc",
            "val/acc",
            "host/ram_total_bytes",
        ]);
        let charts = charts(&state, "");
        let rest: Vec<&str> = ids(&charts)
            .into_iter()
            .filter(|id| !["grad_norm", "entropy", "tok_per_sec"].contains(id))
            .collect();
        assert_eq!(rest, ["train/loss", "lr", "rewards/margins", "train/acc"]);
        assert_eq!(
            charts.last().unwrap().validation.as_deref(),
            Some("val/acc")
        );
    }

    /// As a line the first evaluation was not drawn, and the newest only with the next one.
    #[test]
    fn evaluations_are_rings() {
        let state = state(&["train/loss", "eval/pass@1", "val/loss", "entropy"]);
        let rings = charts(&state, "").into_iter().filter(Chart::points_only);
        assert_eq!(
            rings.map(|chart| chart.id).collect::<Vec<_>>(),
            ["eval/pass@1"]
        );
    }

    /// What came first in the log of a queued run was the machine, and in tables of other programs the alphabet.
    #[test]
    fn the_order_of_a_log_puts_only_the_method_s_own_readings_before_the_others() {
        let declared = |foreign: bool, ids: &[&str]| {
            let mut state = state(ids);
            let all = METRICS
                .iter()
                .map(Metric::info)
                .chain(sampler::declarations([]));
            let all: Vec<MetricInfo> = all.collect();
            let info = |id: &&str| {
                all.iter()
                    .find(|info| info.id == *id)
                    .cloned()
                    .unwrap_or_else(|| undeclared(id))
            };
            state.metrics = ids.iter().map(info).collect();
            if foreign {
                (state.pid, state.engine) = (0, "csv".into());
            }
            state
        };
        let margins = crate::wire::id::MARGINS;
        let queued = declared(
            false,
            &["host/cpu_percent", margins, "train/loss", "grad_norm"],
        );
        let shown = charts(&queued, "");
        assert_eq!(ids(&shown)[..3], ["train/loss", margins, "grad_norm"]);
        let table = declared(
            true,
            &[
                "clipped",
                "data_wait",
                "grad_norm",
                "lr",
                margins,
                "train/loss",
            ],
        );
        let shown = charts(&table, "");
        let order = [
            "train/loss",
            margins,
            "grad_norm",
            "lr",
            "data_wait",
            "clipped",
        ];
        assert_eq!(ids(&shown), order);
    }

    #[test]
    fn the_filter_reads_titles_and_ids() {
        let state = state(&["train/loss", "lr", "grad_norm"]);
        assert_eq!(ids(&charts(&state, "RATE")), ["lr"]);
        assert_eq!(ids(&charts(&state, "grad_")), ["grad_norm"]);
        assert!(charts(&state, "nothing").is_empty());
        let state = self::state(&["train/loss", "val/loss", "val/ppl"]);
        let found = charts(&state, "val");
        assert_eq!(ids(&found)[0], "train/loss", "it draws val/loss");
    }

    #[test]
    fn names_are_short_and_in_small_letters() {
        let named = |label: &str, title: &str| {
            name(&MetricInfo {
                id: "some/id".into(),
                label: label.into(),
                title: title.into(),
                ..MetricInfo::default()
            })
        };
        assert_eq!(
            named("chosen logp", "Log-probability of chosen"),
            "chosen logp"
        );
        assert_eq!(named("", "Held-out reward"), "held-out reward");
        assert_eq!(named("", "KL to the reference"), "KL to the reference");
        assert_eq!(named("", ""), "some/id");
    }

    #[test]
    fn readings_carry_their_unit() {
        let reading = |id: &str, x: f64| {
            let all = charts(&state(&[id]), "");
            all.iter().find(|c| c.id == id).unwrap().reading(x)
        };
        assert_eq!(reading("train/loss", 1.7641), "1.764");
        assert_eq!(reading("tok_per_sec", 20_941.0), "20.9k");
        assert_eq!(reading("host/rss_bytes", 81_788_928.0), "78 MiB");
        assert_eq!(reading("data_wait", 0.021), "2.1 %");
        assert_eq!(reading("grad_norm", f64::NAN), "NaN");
    }
}
