//! The warm-up against the length of the run and the memory of the optimizer.

use super::{Subject, poor};
use crate::base::finding::Finding;
use crate::base::human::{counted, grouped};
use crate::optim::OptimizerConfig;
use crate::optim::schedule::ScheduleConfig;

/// Of the steps.
const LONG: f64 = 0.25;
const USUAL: f64 = 0.02;
const SOURCE: &str = "1 to 5 % of the steps: GPT-3, arXiv 2005.14165; Ma and Yarats 2021, arXiv 1910.04209: 2 / (1 − β2) steps settle Adam's second moment";

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let spec = subject.spec;
    let (warmup, steps) = (spec.schedule.warmup_steps(), spec.train.max_steps);
    let decays = !matches!(
        spec.schedule,
        ScheduleConfig::Constant(_) | ScheduleConfig::Unscheduled(_)
    );
    let mut list = Vec::new();
    if decays && matches!(spec.optimizer, OptimizerConfig::ScheduleFree(_)) {
        list.push(poor(
            "schedule",
            "the weight average of schedule_free replaces a learning rate decay".into(),
            "-s schedule=constant, with a warmup".into(),
            "Defazio et al. 2024, arXiv 2405.15682",
        ));
    }
    // The step behind the warm-up is the first at the peak: a run of one step has no room for any.
    let usual = ((steps as f64 * USUAL) as u64).max(u64::from(steps > 1));
    let set = |steps: u64| match spec.schedule {
        ScheduleConfig::Unscheduled(_) => {
            format!("-s schedule=constant -s schedule.constant.warmup_steps={steps}")
        }
        _ => format!(
            "-s schedule.{}.warmup_steps={steps}",
            spec.schedule.entry().id
        ),
    };
    // Not an error: a short trial of a long preset (`-s max_steps=20`) must simply run.
    let told = if warmup >= steps {
        Some(format!(
            "warm-up takes {} of {}: the learning rate never reaches its peak",
            counted(warmup, "step"),
            grouped(steps)
        ))
    } else if warmup as f64 > LONG * steps as f64 && steps > 100 {
        Some(format!(
            "warm-up takes {} of {} steps: most of them run below the peak learning rate",
            grouped(warmup),
            grouped(steps)
        ))
    } else if warmup == 0 && subject.begins_at_random() && steps > 100 {
        Some(
            "no warm-up: the first steps of a randomly initialized model are the least stable"
                .into(),
        )
    } else {
        None
    };
    let beta2 = spec.optimizer.adam_betas().map(|(_, beta2)| beta2);
    if let Some(told) = told {
        list.push(poor("schedule", told, set(usual), SOURCE));
    } else if let Some(beta2) = beta2.filter(|_| subject.begins_at_random()) {
        // A run of few steps cannot wait so long.
        let settled = (2.0 / (1.0 - beta2)).min(0.01 * steps as f64) as u64;
        if warmup > 0 && warmup < settled / 2 {
            list.push(poor(
                "schedule",
                format!(
                    "a warm-up of {} steps ends before Adam's second moment (β2 {beta2}) has settled",
                    grouped(warmup)
                ),
                set(settled),
                SOURCE,
            ));
        }
    }
    list
}
