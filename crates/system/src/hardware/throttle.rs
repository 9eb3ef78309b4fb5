//! NVML's bit mask of clock event reasons, in words (NVIDIA NVML API, nvmlClocksEventReasons).

/// Severity of a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Normal: at full load the power limit sets the clocks.
    Usual,
    /// Work is slowed down.
    Slows,
    /// The hardware protects itself.
    Critical,
}

/// One bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reason {
    pub bit: u64,
    /// A short description for a row.
    pub words: &'static str,
    pub weight: Weight,
}

/// The GPU is idle: no concern, never listed.
pub const IDLE: u64 = 0x1;
/// Power is capped by the software limit.
pub const POWER_CAP: u64 = 0x4;

const fn reason(bit: u64, words: &'static str, weight: Weight) -> Reason {
    Reason { bit, words, weight }
}

/// Every bit except idle, most severe first.
pub const REASONS: &[Reason] = &[
    reason(0x40, "too hot (hardware)", Weight::Critical),
    reason(0x80, "power brake", Weight::Critical),
    reason(0x8, "hardware slowdown", Weight::Critical),
    reason(0x20, "too hot (driver)", Weight::Slows),
    reason(POWER_CAP, "power limit", Weight::Usual),
    reason(0x2, "clocks set by a user", Weight::Usual),
    reason(0x10, "sync boost", Weight::Usual),
    reason(0x100, "display clocks", Weight::Usual),
];

/// The reasons in a mask, most severe first.
pub fn reasons(mask: u64) -> Vec<&'static Reason> {
    REASONS.iter().filter(|r| mask & r.bit != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_become_words_and_idle_is_none() {
        let words = |mask| reasons(mask).iter().map(|r| r.words).collect::<Vec<_>>();
        assert!(words(IDLE).is_empty());
        assert_eq!(words(0x24), ["too hot (driver)", "power limit"]);
        assert_eq!(reasons(0x48)[0].weight, Weight::Critical);
        let mut bits: Vec<u64> = REASONS.iter().map(|r| r.bit).collect();
        bits.dedup();
        assert!(bits.iter().all(|b| b.count_ones() == 1) && bits.len() == 8);
    }
}
