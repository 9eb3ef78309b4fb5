//! The metrics of rooms that the guide does not see: the engine's, the probes', the machine's.

use crate::engine::own_answers::OF_STEP;
use crate::engine::rollouts::{OF_ANSWERS, of_reward, pass_at_k};
use crate::hardware::sampler;
use crate::metrics::{Metric, ranks};
use crate::probes::{COST, PROBES, spectra::METRICS as METRICS_AT_REST};
use crate::wire::MetricInfo;

/// All of them, with NAME, K and N in place of names and numbers.
pub fn of_the_engine() -> Vec<MetricInfo> {
    let probes = PROBES.iter().flat_map(|probe| probe.metrics.iter());
    let plain = OF_ANSWERS
        .iter()
        .chain(probes)
        .chain(METRICS_AT_REST)
        .chain([&OF_STEP, &COST])
        .map(Metric::info);
    let machine = sampler::declarations([0])
        .into_iter()
        .chain(ranks::declarations(1))
        .map(|metric| MetricInfo {
            id: metric.id.replace("/0/", "/N/"),
            title: metric
                .title
                .replace("GPU 0", "GPU N")
                .replace("Rank 0", "Rank N"),
            ..metric
        });
    let named = [vec![pass_at_k("K")], of_reward("NAME", true)].concat();
    plain.chain(machine).chain(named).collect()
}

#[cfg(test)]
mod tests {
    use crate::guide::ask;

    /// docs/metrics.md lists all that a run declares.
    #[test]
    fn every_metric_of_the_list_answers_by_its_id() {
        let listed = include_str!("../../../docs/metrics.md");
        let ids: Vec<&str> = listed
            .lines()
            .filter_map(|line| line.strip_prefix('`')?.split('`').next())
            .collect();
        assert!(ids.len() > 150, "{}", ids.len());
        let known = super::of_the_engine();
        let unknown: Vec<&str> = ids
            .into_iter()
            .filter(|id| {
                let found = ask(id, &known);
                !found
                    .hits
                    .iter()
                    .any(|hit| hit.kind() == "metric" && hit.id() == *id)
            })
            .collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
