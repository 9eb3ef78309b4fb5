//! The teacher of a distillation beside the student on the ranks: each holds it whole, or a share of it, and answers with divergences.

use super::Remote;
use super::build::frozen;
use crate::nn::Teacher;
use crate::workers::Frame;
use candle_core::Result;
use serde_json::{Value, json};

impl Remote {
    /// What the next passes learn from; every generation of ranks gets it before its first such pass.
    pub fn set_teacher(&mut self, teacher: Teacher) {
        self.teacher = Some(teacher);
        self.taught = false;
    }

    /// How ranks compare their student with the teacher in a pass, which they have by then; `None` without one. `ce`: whether
    /// log-probabilities have a gradient beside divergences.
    pub(super) fn beside(&mut self, ce: bool) -> Result<Option<Value>> {
        let Some(teacher) = self.teacher.clone() else {
            return Ok(None);
        };
        if !self.taught {
            self.teach(&teacher)?;
        }
        let of = teacher.divergence();
        Ok(Some(
            json!({"beta": of.beta, "temperature": of.temperature, "ce": ce}),
        ))
    }

    fn teach(&mut self, teacher: &Teacher) -> Result<()> {
        teacher.read(|model| {
            let ask = json!({"type": "teacher", "model": frozen(model)});
            let ask = self.model.ask(ask);
            self.ask(|_| Frame::new(ask.clone()), &mut |_| {})?;
            model
                .params()
                .read_weights(|weights| self.send("teacher", weights, 0))?
        })?;
        self.taught = true;
        Ok(())
    }
}
