//! The tables of the dialects: a key, what becomes of it, and when it is read. The keys themselves are in each dialect's file.

use super::data::Sets;

/// What becomes of a key.
#[derive(Debug, Clone, Copy)]
pub(super) enum To {
    /// The same, at this path.
    Key(&'static str),
    /// Nearly the same; the text gives the difference.
    Near(&'static str, &'static str),
    /// The same limit; null, which is none there, has no equivalent: what to do instead.
    Limit(&'static str, &'static str),
    /// One of a few values: theirs and ours.
    Word(&'static str, &'static [(&'static str, &'static str)]),
    /// The same, but for a few words that are called otherwise: theirs and ours.
    Choice(&'static str, &'static [(&'static str, &'static str)]),
    /// `true` means this value at this path, `false` what is the default here.
    Flag(&'static str, &'static str),
    /// The same, at the first of these paths that the method has.
    OneOf(&'static [&'static str]),
    /// Steps of warm-up, or a share of the run below 1.
    WarmUp,
    /// How many checkpoints are kept.
    Kept,
    /// Passes over the data, unless steps are said too.
    Epochs,
    /// How many times an epoch something happens.
    PerEpoch(&'static str),
    /// After every epoch, after steps, or never.
    Strategy(&'static str),
    /// The training method: theirs and ours.
    Method(&'static [(&'static str, &'static str)]),
    /// The loss of a preference method: a method of its own here, or one of its settings.
    Loss,
    /// Datasets.
    Data(Sets),
    /// A setting of the one dataset.
    OfData(&'static str),
    /// The alignment handbook's data sets with fractions, the keys beside them, and its newer form.
    Mixer,
    OfMixer,
    Mixture,
    /// A chat template: theirs and ours.
    Template(&'static [(&'static str, &'static str)]),
    /// `true` means the first value at this path, `false` the second; what to know of the first.
    Either(&'static str, &'static str, &'static str, &'static str),
    /// `true` means this value at this path; `false` is not quite the default here: the text gives the difference.
    NearlyOff(&'static str, &'static str, &'static str),
    /// Which weights train: `lora`, `full` or `freeze`.
    Tuning,
    /// Patterns of what trains.
    Unfrozen,
    /// A setting of `freeze`.
    OfFrozen,
    /// Modules with adapters.
    Targets,
    /// Whether all linear layers have adapters.
    AllLinear,
    /// Modules that train whole beside adapters.
    Whole,
    /// Parameters with adapters, those of experts.
    Parameters,
    /// The share of rows held out.
    HeldOut,
    /// Settings of the schedule.
    ScheduleSettings,
    /// The last learning rate as a share of the peak.
    Floor,
    /// What is written at once, counted in what these settings multiply to for an optimizer step.
    Generation(&'static [&'static str]),
    /// No equivalent; what to do instead.
    NoEqual(&'static str),
    /// Not needed here.
    Needless(&'static str),
}

/// When a key is read: before those that hang on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Method,
    Loss,
    /// Members of registries, whose settings follow.
    Choice,
    Setting,
    /// Shares of the learning rate.
    Rate,
    /// Counts of what a step has several of.
    Batch,
}

impl To {
    pub(super) fn phase(self) -> Phase {
        match self {
            To::Method(_) => Phase::Method,
            To::Loss => Phase::Loss,
            To::Word(..) | To::Tuning | To::Flag("adapter", _) => Phase::Choice,
            To::ScheduleSettings | To::Floor => Phase::Rate,
            To::Generation(_) => Phase::Batch,
            _ => Phase::Setting,
        }
    }
}

/// One key of a dialect.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub key: &'static str,
    pub to: To,
}

impl Row {
    /// A setting of adapters.
    pub(super) fn is_adapter_setting(&self) -> bool {
        match self.to {
            To::Key(path) | To::Flag(path, _) | To::NearlyOff(path, ..) => {
                path.starts_with("adapter.lora.")
            }
            To::Targets | To::AllLinear | To::Whole | To::Parameters => true,
            _ => false,
        }
    }
}

pub(super) const fn row(key: &'static str, to: To) -> Row {
    Row { key, to }
}
