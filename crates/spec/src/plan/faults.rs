//! Settings that the validation of a spec rejects, for plans of a bare model, which have no spec.

use super::reference::ROLLOUTS;
use super::request::{Answers, Estimator, Method, Request};
use crate::data::Unit;
use crate::methods::policy::OnPolicy;
use crate::methods::{ReferenceChoice, ReferenceFault};
use crate::spec::RolloutConfig;

/// What cannot be planned, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub what: String,
    pub fix: &'static str,
}

impl Request {
    /// The first setting of the method that training would refuse.
    pub fn fault(&self) -> Option<Fault> {
        let fault = |what: String, fix| Some(Fault { what, fix });
        let chosen = self.reference;
        if chosen != ReferenceChoice::Auto && !self.method.has_reference() {
            let what = format!("{} has no reference model", self.method.word());
            return fault(what, "drop --reference");
        }
        let trained = self.method.facts().trained()?;
        let needs = (trained.needs().unit, Some(chosen));
        let found = ReferenceFault::find(needs, self.lora.is_some(), self.micro_batch).next()?;
        let fix = match found {
            ReferenceFault::NoAdapter => "add --lora-rank 8, or use frozen or precomputed",
            ReferenceFault::FixedBaseline => "use frozen, or adapter_off with --lora-rank",
            ReferenceFault::NoBaseline => "--batch 2 or more",
        };
        fault(found.what().into(), fix)
    }

    /// Whether single answers are judged (KTO).
    pub(super) fn is_judged(&self) -> bool {
        let trained = self.method.facts().trained();
        trained.is_some_and(|method| method.needs().unit == Unit::Judged)
    }

    /// Trains by another method: a model by itself gets the head that the method learns, and as many rows as it needs at once.
    pub fn set_method(&mut self, method: Method) {
        if self.method == method {
            return;
        }
        self.method = method;
        let needs = method.facts().trained().map(|method| method.needs());
        let head = needs.map(|needs| needs.head).unwrap_or_default();
        if self.arch.config().head != head {
            self.arch = self.arch.with(|config| config.head = head);
        }
        if self.is_judged() {
            self.micro_batch = self.micro_batch.max(2);
        }
        self.reference = needs.and_then(|needs| needs.reference).unwrap_or_default();
        if method.rolls_out() {
            self.write_answers();
        }
    }

    /// A method on its own answers writes some at once, and one of this engine as a spec's defaults say.
    fn write_answers(&mut self) {
        if self.rollouts == 0 {
            self.rollouts = ROLLOUTS;
        }
        let (tokens, engine) = (self.seq_len, self.estimator == Estimator::Engine);
        let has_reference = self.method.has_reference();
        let usual = RolloutConfig::default();
        let trained = self.method.facts().trained();
        let method = trained.as_ref().and_then(|method| method.on_policy());
        let charges_kl = method.is_some_and(OnPolicy::charges_kl);
        let fresh_is_linear = method.is_some_and(OnPolicy::fresh_is_linear);
        match &mut self.extras.answers {
            Some(answers) => {
                let reused = answers.is_reused;
                answers.has_reference = has_reference;
                answers.has_old_policy = reused || charges_kl;
                answers.is_linear = !reused && fresh_is_linear;
            }
            none if engine => {
                let reused = usual.cycle() > 1;
                *none = Some(Answers {
                    tokens,
                    has_reference,
                    has_old_policy: reused || charges_kl,
                    is_reused: reused,
                    is_linear: !reused && fresh_is_linear,
                    cold_share: 0.0,
                    epochs: usual.epochs as u64,
                    max_new_tokens: usual.max_new_tokens as u64,
                    length: None,
                    prompts: None,
                });
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::ledger::Part;
    use crate::plan::request::{Lora, LoraTargets};
    use crate::plan::{models, plan, reference_request};

    fn of(method: Method) -> Request {
        let mut request = reference_request(models::find("llama-3.1-8b").unwrap());
        request.set_method(method);
        request
    }

    #[test]
    fn what_training_refuses_is_not_planned() {
        let with = |method, reference| Request {
            reference,
            ..of(method)
        };
        let refused = |request: &Request| request.fault().map(|fault| fault.what);
        use ReferenceChoice::{AdapterOff, Auto, Frozen, Precomputed};
        for (method, reference) in [
            (Method::Dpo, Auto),
            (Method::Dpo, Precomputed),
            (Method::Kto, Frozen),
            (Method::Reward, Auto),
        ] {
            assert_eq!(refused(&with(method, reference)), None, "{method:?}");
        }
        for (method, reference, said) in [
            (Method::Kto, Precomputed, "change with every batch"),
            (Method::Dpo, AdapterOff, "there is no adapter"),
            (Method::Sft, Frozen, "sft has no reference"),
        ] {
            let what = refused(&with(method, reference)).unwrap();
            assert!(what.contains(said), "{what}");
        }
        let mut adapted = with(Method::Dpo, AdapterOff);
        adapted.lora = Some(Lora {
            rank: 8,
            targets: LoraTargets::All,
        });
        assert_eq!(refused(&adapted), None);
        assert_eq!(of(Method::Kto).micro_batch, 2);
        let mut alone = of(Method::Kto);
        alone.micro_batch = 1;
        assert!(refused(&alone).unwrap().contains("other answers"));
    }

    /// 128,256 logits of 4,096 weights each become one score.
    #[test]
    fn a_reward_model_has_a_score_and_no_vocabulary_to_write() {
        let (sft, reward) = (plan(&of(Method::Sft)), plan(&of(Method::Reward)));
        let head = 4096 * (128_256 - 1);
        assert_eq!(sft.params.total() - reward.params.total(), head);
        assert_eq!(reward.n_trainable, reward.params.total());
        let logits = reward.memory.bytes(Part::Logits);
        assert!(logits < 1 << 20, "{logits} bytes of scores");
        assert!(sft.memory.bytes(Part::Logits) > 500 << 20);
    }
}
