//! The list of methods in parts that can be overlooked: what is recommended, what else would do by the kind of learning, and what
//! does not suit these answers.

use super::{Advice, MethodId, Verdict};

/// Recommended methods, or forms of one, at most.
const FEW: usize = 2;

/// A part of the list, in the order of the parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    Recommended,
    Text,
    Answers,
    Preferences,
    Rewards,
    Untrained,
    Unfit,
}

impl Group {
    pub fn title(self) -> &'static str {
        match self {
            Group::Recommended => "recommended for these answers",
            Group::Text => "continue text",
            Group::Answers => "follow instructions: learn from answers",
            Group::Preferences => "preferences: one answer is better than another",
            Group::Rewards => "rewards: the model's own completions are scored",
            Group::Untrained => "without training",
            Group::Unfit => "not with these answers",
        }
    }

    /// The family of a method.
    fn of(id: MethodId) -> Group {
        use MethodId as M;
        match id {
            M::Pretrain | M::ContinuedPretrain => Group::Text,
            M::Sft | M::Distill => Group::Answers,
            M::Dpo | M::Kto | M::Orpo | M::SimPo | M::Cpo | M::RewardModel => Group::Preferences,
            M::Grpo | M::Rloo | M::Ppo => Group::Rewards,
            M::NoTraining => Group::Untrained,
        }
    }
}

/// Ranked advice in its parts. Of what trains the best come first, as long as they are as good as the first of them; not to train is
/// recommended where it is ranked first. Within a family the ranks stay.
pub fn in_groups(ranked: Vec<Advice>) -> Vec<(Group, Advice)> {
    let trains = |advice: &Advice| advice.available && advice.verdict != Verdict::Unfit;
    let best = ranked
        .iter()
        .find(|advice| trains(advice))
        .map(|advice| advice.verdict);
    let mut recommended = 0;
    let group = |(rank, advice): (usize, Advice)| {
        let is_best = trains(&advice) && Some(advice.verdict) == best && recommended < FEW;
        let is_none = rank == 0 && advice.facts.id == MethodId::NoTraining;
        recommended += usize::from(is_best);
        let group = match advice.verdict {
            Verdict::Unfit => Group::Unfit,
            _ if is_best || is_none => Group::Recommended,
            _ => Group::of(advice.facts.id),
        };
        (group, advice)
    };
    let mut list: Vec<(Group, Advice)> = ranked.into_iter().enumerate().map(group).collect();
    list.sort_by_key(|(group, _)| *group);
    list
}

#[cfg(test)]
mod tests {
    use super::super::advise;
    use super::super::tests::every_input;
    use super::*;

    #[test]
    fn every_list_begins_with_what_is_recommended_and_ends_with_what_does_not_suit() {
        for input in every_input() {
            let ranked = advise(&input);
            let trains = |a: &Advice| a.available && a.verdict != Verdict::Unfit;
            let first = ranked.iter().find(|a| trains(a)).map(Advice::title);
            let list = in_groups(ranked.clone());
            assert_eq!(list.len(), ranked.len(), "{input:?}");
            assert!(list.is_sorted_by_key(|(group, _)| *group));
            // The row that Enter takes is the best one, wherever its family stands.
            let taken = list.iter().find(|(_, a)| trains(a));
            assert_eq!(taken.map(|(_, a)| a.title()), first, "{input:?}");
            assert!(
                taken.is_none_or(|(group, _)| *group == Group::Recommended),
                "{input:?}"
            );
            let recommended = list
                .iter()
                .filter(|(group, _)| *group == Group::Recommended);
            assert!(recommended.count() <= FEW + 1, "{input:?}");
            let unfit = |(group, advice): &(Group, Advice)| {
                (*group == Group::Unfit) == (advice.verdict == Verdict::Unfit)
            };
            assert!(list.iter().all(unfit), "{input:?}");
        }
    }
}
