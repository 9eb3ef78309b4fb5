//! The tree by example: each branch, the worked cases, and properties of every input.

use super::*;

const GB: u64 = 1_000_000_000;

fn inputs(goal: Goal, data: DataKind, start: Start) -> Inputs {
    Inputs {
        goal,
        data,
        rows: None,
        tokens: None,
        start,
        reward: Reward::None,
        n_params: 1_000_000,
        packed_bytes: None,
        memory: Some(24 * GB),
        gpu_memory: None,
    }
}

pub(super) fn every_input() -> impl Iterator<Item = Inputs> {
    let kinds = [
        DataKind::Text,
        DataKind::Demos,
        DataKind::Pairs,
        DataKind::Thumbs,
        DataKind::Prompts,
    ];
    let rewards = [Reward::None, Reward::Checker, Reward::Model];
    let starts = [Start::Scratch, Start::Base, Start::Instruct];
    Goal::ALL.into_iter().flat_map(move |goal| {
        kinds.into_iter().flat_map(move |data| {
            starts.into_iter().flat_map(move |start| {
                rewards.into_iter().flat_map(move |reward| {
                    [None, Some(10), Some(1_000), Some(100_000_000_000)]
                        .into_iter()
                        .map(move |n| Inputs {
                            rows: n,
                            tokens: n,
                            reward,
                            ..inputs(goal, data, start)
                        })
                })
            })
        })
    })
}

fn best(inputs: &Inputs) -> (MethodId, Adapter) {
    let list = advise(inputs);
    (list[0].facts.id, list[0].adapter)
}

/// The first rule that decided about a method.
fn decided(inputs: &Inputs, id: MethodId) -> &'static str {
    let list = advise(inputs);
    list.iter().find(|a| a.facts.id == id).unwrap().why[0].0
}

#[test]
fn every_method_is_judged_by_exactly_one_branch_whatever_is_said() {
    for inputs in every_input() {
        let list = advise(&inputs);
        let mut methods: Vec<_> = list.iter().map(|a| a.facts.title).collect();
        methods.sort_unstable();
        methods.dedup();
        assert_eq!(methods.len(), FACTS.len());
        for advice in &list {
            let why: Vec<_> = advice.why.iter().filter(|(id, _)| *id != "8").collect();
            assert_eq!(why.len(), 1, "{:?} {inputs:?}", advice.facts.id);
            assert!(!why[0].1.is_empty() && !why[0].1.ends_with('.'));
        }
        assert!(list.is_sorted_by_key(|a| a.verdict));
        assert!(
            list[0].verdict != Verdict::Unfit,
            "nothing is advised for {inputs:?}"
        );
    }
}

/// A branch that no input reaches is dead text.
#[test]
fn every_branch_is_reached_and_has_a_name_of_its_own() {
    let mut unreached: Vec<&str> = RULES.iter().map(|r| r.id).collect();
    let n = unreached.len();
    unreached.sort_unstable();
    unreached.dedup();
    assert_eq!(unreached.len(), n, "a rule's id stands twice");
    let middle = [60_000_000, 8_000, 12_000, 200];
    let more = every_input().flat_map(|i| {
        middle.map(|n| Inputs {
            rows: Some(n),
            tokens: Some(n),
            ..i
        })
    });
    for inputs in every_input().chain(more) {
        for advice in advise(&inputs) {
            unreached.retain(|id| *id != advice.why[0].0);
        }
    }
    assert_eq!(unreached, Vec::<&str>::new());
}

#[test]
fn each_goal_with_its_data_leads_to_its_method() {
    use DataKind::*;
    use Goal::*;
    use MethodId as M;
    let table: &[(Goal, DataKind, u64, Start, Reward, M)] = &[
        (
            NewModel,
            Text,
            20_000_000,
            Start::Scratch,
            Reward::None,
            M::Pretrain,
        ),
        (
            NewModel,
            Text,
            100_000,
            Start::Scratch,
            Reward::None,
            M::Pretrain,
        ),
        (
            Instructions,
            Demos,
            9_846,
            Start::Base,
            Reward::None,
            M::Sft,
        ),
        (
            Instructions,
            Demos,
            40,
            Start::Base,
            Reward::None,
            M::NoTraining,
        ),
        (
            Knowledge,
            Text,
            2 * GB,
            Start::Base,
            Reward::None,
            M::ContinuedPretrain,
        ),
        (
            Knowledge,
            Text,
            60_000_000,
            Start::Base,
            Reward::None,
            M::ContinuedPretrain,
        ),
        (
            Knowledge,
            Text,
            5_000_000,
            Start::Instruct,
            Reward::None,
            M::NoTraining,
        ),
        (Style, Pairs, 8_000, Start::Instruct, Reward::None, M::Dpo),
        (Style, Thumbs, 12_000, Start::Instruct, Reward::None, M::Kto),
        (
            Style,
            Prompts,
            20_000,
            Start::Instruct,
            Reward::Model,
            M::Rloo,
        ),
        (
            Reasoning,
            Prompts,
            20_000,
            Start::Base,
            Reward::Checker,
            M::Grpo,
        ),
        (Reasoning, Demos, 120_000, Start::Base, Reward::None, M::Sft),
        (Classify, Demos, 2_000, Start::Base, Reward::None, M::Sft),
        (Compress, Demos, 100_000, Start::Base, Reward::None, M::Sft),
    ];
    for (goal, data, n, start, reward, wanted) in table {
        let inputs = Inputs {
            rows: Some(*n),
            tokens: Some(*n),
            reward: *reward,
            ..inputs(*goal, *data, *start)
        };
        assert_eq!(best(&inputs).0, *wanted, "{goal:?} {data:?} {n}");
    }
}

/// The worked cases: machine and model sizes decide about adapters.
#[test]
fn worked_cases() {
    let style = Inputs {
        rows: Some(8_000),
        n_params: 8 * GB,
        ..inputs(Goal::Style, DataKind::Pairs, Start::Instruct)
    };
    // f32 of 8B frozen weights are 32 GB: QLoRA it is, from a file that is still to be made.
    assert_eq!(best(&style), (MethodId::Dpo, Adapter::QLora));
    let list = advise(&style);
    assert!(
        list[0].quantize_first && !list[0].available,
        "{:?}",
        list[0]
    );
    assert!(
        list[0].why[1].1.contains("llmtui quantize"),
        "{:?}",
        list[0].why
    );
    // Of 33 GB preflight has a copy.
    let roomy = Inputs {
        memory: Some(80 * GB),
        ..style
    };
    assert_eq!(best(&roomy), (MethodId::Dpo, Adapter::Lora));
    let tight = Inputs {
        memory: Some(16 * GB),
        ..style
    };
    assert_eq!(best(&tight), (MethodId::Dpo, Adapter::QLora));
    let quantized = Inputs {
        packed_bytes: Some(5 * GB),
        ..style
    };
    let list = advise(&quantized);
    assert_eq!(
        (list[0].facts.id, list[0].adapter),
        (MethodId::Dpo, Adapter::QLora)
    );
    assert!(list[0].available && !list[0].quantize_first);
    assert_eq!(list[0].fit.need(), Some(5 * GB + 8 * GB * 16 / 100));
    let maths = Inputs {
        rows: Some(20_000),
        reward: Reward::Checker,
        n_params: 1_500_000_000,
        memory: Some(80 * GB),
        ..inputs(Goal::Reasoning, DataKind::Prompts, Start::Base)
    };
    assert_eq!(best(&maths), (MethodId::Grpo, Adapter::Full));
    let sft = advise(&maths);
    let sft = sft.iter().find(|a| a.facts.id == MethodId::Sft).unwrap();
    assert_eq!((sft.verdict, sft.why[0].0), (Verdict::Unfit, "5.worked"));
    let solved = Inputs {
        data: DataKind::Demos,
        ..maths
    };
    assert_eq!(decided(&solved, MethodId::Sft), "5.cold");
    let docs = Inputs {
        tokens: Some(10 * GB),
        n_params: 7 * GB,
        memory: Some(640 * GB),
        ..inputs(Goal::Knowledge, DataKind::Text, Start::Base)
    };
    assert_eq!(best(&docs), (MethodId::ContinuedPretrain, Adapter::Full));
    // 50 MB of text and no GPU: a million parameters are about right, thirty are too many and it is said.
    let toy = Inputs {
        tokens: Some(12_000_000),
        n_params: 500_000,
        ..inputs(Goal::NewModel, DataKind::Text, Start::Scratch)
    };
    assert_eq!(decided(&toy, MethodId::Pretrain), "1.text");
    let large = Inputs {
        n_params: 30_000_000,
        ..toy
    };
    assert_eq!(decided(&large, MethodId::Pretrain), "1.small");
}

/// A small instruct model on a large machine: both forms are offered, the gentler one first.
#[test]
fn an_instruct_model_that_fits_whole_is_offered_both_ways() {
    let small = Inputs {
        rows: Some(300),
        n_params: 135_000_000,
        ..inputs(Goal::Instructions, DataKind::Demos, Start::Instruct)
    };
    let list = advise(&small);
    let sft: Vec<_> = list
        .iter()
        .filter(|a| a.facts.id == MethodId::Sft)
        .collect();
    assert_eq!(
        sft.iter().map(|a| a.adapter).collect::<Vec<_>>(),
        [Adapter::Lora, Adapter::Full]
    );
    assert!(
        sft.iter()
            .all(|a| a.available && a.verdict != Verdict::Unfit)
    );
    assert_eq!(sft[1].fit.need(), Some(16 * 135_000_000));
    assert!(
        sft[0]
            .why
            .iter()
            .all(|(_, why)| !why.contains("would not fit"))
    );
    let crowded = Inputs {
        memory: Some(2 * GB),
        ..small
    };
    let list = advise(&crowded);
    let sft = list.iter().find(|a| a.facts.id == MethodId::Sft).unwrap();
    assert_eq!(sft.adapter, Adapter::Lora);
    assert!(sft.why[1].1.contains("all weights would not fit"));
}

/// 1.1B parameters in f32 train in 17.6 GB, and preflight has a copy beside them: the gate before the start asks for both.
#[test]
fn all_weights_are_advised_where_the_copy_of_preflight_fits_too() {
    let form = |memory| {
        let model = Inputs {
            rows: Some(9_846),
            n_params: 1_100_000_000,
            memory: Some(memory),
            ..inputs(Goal::Instructions, DataKind::Demos, Start::Base)
        };
        best(&model)
    };
    assert_eq!(form(24 << 30), (MethodId::Sft, Adapter::Lora));
    assert_eq!(form(40 * GB), (MethodId::Sft, Adapter::Full));
}

/// A quantized file is offered as it is beside the forms that decode it; a model in 16 bits is not.
#[test]
fn qlora_stands_beside_lora_for_a_quantized_file_alone() {
    let small = Inputs {
        rows: Some(3_000),
        n_params: 135_000_000,
        ..inputs(Goal::Instructions, DataKind::Demos, Start::Instruct)
    };
    let forms = |inputs: &Inputs, id| -> Vec<Adapter> {
        let list = advise(inputs).into_iter();
        list.filter(|a| a.facts.id == id)
            .map(|a| a.adapter)
            .collect()
    };
    use Adapter::{Full, Lora, QLora};
    assert_eq!(forms(&small, MethodId::Sft), [Lora, Full]);
    let file = Inputs {
        packed_bytes: Some(80_000_000),
        ..small
    };
    assert_eq!(forms(&file, MethodId::Sft), [Lora, QLora, Full]);
    assert!(!forms(&file, MethodId::RewardModel).contains(&QLora));
}

/// A billion tokens of new text are more than adapters hold.
#[test]
fn much_new_text_is_learned_by_all_weights() {
    let of = |tokens| Inputs {
        tokens: Some(tokens),
        ..inputs(Goal::Knowledge, DataKind::Text, Start::Base)
    };
    let forms = |tokens| -> Vec<Adapter> {
        let list = advise(&of(tokens)).into_iter();
        let cpt = list.filter(|a| a.facts.id == MethodId::ContinuedPretrain);
        cpt.map(|a| a.adapter).collect()
    };
    assert_eq!(forms(2 * GB), [Adapter::Full]);
    assert_eq!(forms(60_000_000), [Adapter::Full, Adapter::Lora]);
    // What does not fit is not told of a form that was not tried.
    let large = Inputs {
        n_params: 8 * GB,
        ..of(2 * GB)
    };
    let list = advise(&large);
    let cpt = list
        .iter()
        .find(|a| a.facts.id == MethodId::ContinuedPretrain);
    let cpt = cpt.unwrap();
    assert_eq!(cpt.fit, Fit::TooLarge);
    assert!(!cpt.why[1].1.contains("QLoRA"), "{:?}", cpt.why);
}

#[test]
fn ppo_of_8b_is_refused_on_24_gb_and_rloo_stands_before_it() {
    let inputs = Inputs {
        reward: Reward::Model,
        rows: Some(20_000),
        n_params: 8 * GB,
        ..inputs(Goal::Style, DataKind::Prompts, Start::Base)
    };
    let list = advise(&inputs);
    let at = |id| list.iter().position(|a| a.facts.id == id).unwrap();
    assert!(at(MethodId::Rloo) < at(MethodId::Ppo));
    assert_ne!(list[at(MethodId::Rloo)].adapter, Adapter::Full);
    // Preflight has two policies with their critics' moments and the reference: 52 bytes a parameter.
    let full = Inputs {
        memory: Some(480 * GB),
        ..inputs
    };
    let list = advise(&full);
    let ppo = list.iter().find(|a| a.facts.id == MethodId::Ppo).unwrap();
    // 40 bytes a parameter: two trained copies and two frozen models, in f32.
    assert_eq!(ppo.fit.need(), Some(40 * 8 * GB));
}

#[test]
fn what_is_available_comes_from_the_registry() {
    let list = advise(&inputs(Goal::Style, DataKind::Pairs, Start::Base));
    for advice in &list {
        let known = schema::root()
            .at("method")
            .unwrap()
            .child(advice.facts.spec_word)
            .is_some();
        assert!(known || !advice.available, "{:?}", advice.facts.id);
    }
    let nearest = nearest_available(&list).unwrap();
    assert!(nearest.available);
}

#[test]
fn every_method_says_what_it_needs_costs_and_risks() {
    for facts in FACTS {
        assert!(!facts.needs.is_empty() && !facts.cost.is_empty() && !facts.risks.is_empty());
        assert!(facts.source().contains("20") || facts.source().contains("arXiv"));
        let same = FACTS.iter().filter(|f| f.id == facts.id).count();
        assert_eq!(same, 1);
    }
}
