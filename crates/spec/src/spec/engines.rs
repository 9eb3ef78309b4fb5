//! Compatibility of a spec with the engine that it names.

use super::RunSpec;
use crate::base::paths::Env;
use crate::nn::{ActivationCheckpointing, Precision};
use crate::workers::environment::{self, installed_at};
use crate::workers::{EngineConfig, EnvironmentError, torch};

/// Whether `llmtui engine install torch` has been here.
pub fn torch_is_installed(env: &Env) -> bool {
    installed_at(env).is_some_and(|venv| venv.join("bin/python").is_file())
}

impl RunSpec {
    /// Whether there is a PyTorch for ranks on this machine; other machines have one of their own.
    ///
    /// # Errors
    /// There is none, and what helps.
    pub fn finds_torch(&self, env: &Env) -> Result<(), (String, &'static str)> {
        let torch = self.engine.torch();
        let Some(torch) = torch.filter(|torch| !torch.is_on_several_machines()) else {
            return Ok(());
        };
        let found = environment::python(torch, env);
        found
            .map(drop)
            .map_err(|e| (format!("engine.torch: {e}"), EnvironmentError::HINT))
    }

    /// The same training by this program.
    pub fn on_candle(self) -> RunSpec {
        self.on_engine(EngineConfig::Candle(Default::default()))
    }

    /// The same training by ranks of PyTorch: so many of them (`None`: one a GPU), with a share of the model each or all of it, and
    /// with activations computed again in the backward pass where asked.
    pub fn on_torch(self, ranks: Option<usize>, shares: bool, recomputes: bool) -> RunSpec {
        let spec = match recomputes {
            true => self.recomputing_as(ActivationCheckpointing::Full {}),
            false => self,
        };
        spec.on_engine(EngineConfig::Torch(torch::Config {
            ranks,
            shard: match shares {
                true => torch::Shard::Fsdp2,
                false => torch::Shard::Ddp,
            },
            ..Default::default()
        }))
    }

    /// `train.precision`, as PyTorch's ranks take it.
    pub fn asked_format(&self) -> torch::Format {
        match self.train.precision {
            Precision::Auto => torch::Format::Auto,
            Precision::F32 => torch::Format::F32,
            Precision::Bf16 => torch::Format::Bf16,
        }
    }

    /// The same training by the engine that `run` got, where this spec leaves it open; unchanged where it names one.
    pub fn with_engine_of(self, run: &RunSpec) -> RunSpec {
        if !self.engine.is_open() {
            return self;
        }
        // For PyTorch recomputing was decided together with the engine.
        let spec = match run.engine.torch() {
            Some(_) => self.recomputing_as(run.train.activation_checkpointing),
            None => self,
        };
        spec.on_engine(run.engine.clone())
    }

    /// Why this spec cannot have `engine: torch`; `None` if it can. The rules are those of any spec that names it.
    pub fn refused_by_torch(&self) -> Option<String> {
        if self.engine.torch().is_some() {
            return None;
        }
        let torch = EngineConfig::Torch(Default::default());
        let there = self.clone().on_engine(torch);
        let errors = RunSpec::from_yaml(&there.to_yaml()).err()?;
        // What is wrong besides is wrong on any engine, and reported elsewhere.
        let own = RunSpec::from_yaml(&self.to_yaml()).err();
        let known = |what: &str| {
            let issues = own.iter().flat_map(|errors| errors.issues());
            issues.into_iter().any(|issue| issue.what == what)
        };
        let issue = errors.issues().iter().find(|issue| !known(&issue.what))?;
        Some(issue.what.clone())
    }
}

#[cfg(test)]
mod tests {
    use crate::spec::{SpecSources, load};

    #[test]
    fn the_first_reason_is_told_and_a_spec_without_one_has_none() {
        let refused = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            let spec = load("quickstart", &words, &SpecSources::default())
                .unwrap()
                .spec;
            spec.refused_by_torch()
        };
        assert_eq!(refused(&[]), None);
        assert_eq!(refused(&["engine=torch"]), None);
        let words = refused(&["optimizer=soap"]).unwrap();
        assert!(
            words.contains("adamw, adamw8bit, lion and muon only"),
            "{words}"
        );
        let experts = [
            "model.moe.n_expert=4",
            "adapter.lora.targets=all_and_experts",
            "adapter.lora.dropout=0",
        ];
        assert_eq!(refused(&experts), None);
        for model in [
            "model.mixer=mamba2",
            "model.moe={n_expert: 4, bias: true}",
            "model.mla={}",
            "model.attention_sinks=true",
            "model.mlp=clamped_swiglu",
            "optimizer=muon",
            "optimizer=lion",
            "train.ema_decay=0.99",
            "train.z_loss=1e-4",
        ] {
            assert_eq!(refused(&[model]), None, "{model}");
        }
    }
}
