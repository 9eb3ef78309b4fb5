//! What is due at a step: pure functions of the step, the spec's intervals and what was already done.

/// True on multiples of `every` and after the last step; never twice at one step, never before the first.
pub fn is_due(step: u64, every: u64, max_steps: u64, done_at: Option<u64>) -> bool {
    let on_beat = every > 0 && step > 0 && step.is_multiple_of(every);
    (on_beat || step >= max_steps) && done_at != Some(step)
}

/// Whether the step that was just done gets a `Stepped` event: the first, every `log_every`th and the last one.
pub fn log_is_due(step: u64, log_every: u64, last_step: u64) -> bool {
    step == 1 || step.is_multiple_of(log_every.max(1)) || step >= last_step
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beats(every: u64, max_steps: u64) -> Vec<u64> {
        (0..=max_steps)
            .filter(|s| is_due(*s, every, max_steps, None))
            .collect()
    }

    #[test]
    fn on_multiples_and_after_the_last_step() {
        assert_eq!(beats(4, 10), [4, 8, 10]);
        assert_eq!(beats(5, 10), [5, 10], "the last is no second time");
        assert_eq!(beats(0, 10), [10], "0 means only after the last");
        assert_eq!(beats(50, 10), [10]);
        assert!(!is_due(10, 5, 10, Some(10)), "done is done");
        assert!(is_due(10, 5, 10, Some(5)));
    }

    #[test]
    fn log_lines() {
        let lines: Vec<u64> = (1..=10).filter(|s| log_is_due(*s, 4, 10)).collect();
        assert_eq!(lines, [1, 4, 8, 10]);
    }
}
