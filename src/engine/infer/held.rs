//! A model and its tokenizer out of one checkpoint folder.

use super::stops::StopWatch;
use super::{Continued, Piece, TextModel};
use crate::base::sampling::{ContextLimit, Sampling};
use crate::data::tokenizer::{Marks, TextStream, Tokenizer};
use crate::hf;
use crate::nn::Model;
use crate::nn::generate::{Continuing, Finish, WhenFull, generate};
use crate::wire::StopReason;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Why a folder cannot be talked to.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Model(#[from] hf::HfError),
    #[error("{path}: {why}")]
    Tokenizer { path: PathBuf, why: String },
    #[error(
        "{folder}: the tokenizer knows {tokenizer} tokens and the model {model}; they belong to different models"
    )]
    Vocabulary {
        folder: PathBuf,
        tokenizer: usize,
        model: usize,
    },
}

/// A loaded checkpoint.
pub struct HeldModel {
    model: Model,
    tokenizer: Tokenizer,
}

impl HeldModel {
    /// Loads config.json, model.safetensors, tokenizer.json and, where it is there, tokenizer_config.json of `folder`.
    pub fn load(folder: &Path) -> Result<HeldModel, LoadError> {
        let model = hf::load(folder)?;
        let path = folder.join(hf::TOKENIZER);
        let broken = |why: String| LoadError::Tokenizer {
            path: path.clone(),
            why,
        };
        let text = std::fs::read_to_string(&path).map_err(|e| broken(e.to_string()))?;
        let tokenizer = Tokenizer::from_json(&text)
            .and_then(|tokenizer| tokenizer.with_marks(Marks::of_folder(folder)?))
            .map_err(|e| broken(e.to_string()))?;
        let (known, vocab_size) = (tokenizer.vocab_size(), model.shape().vocab_size);
        if known > vocab_size {
            return Err(LoadError::Vocabulary {
                folder: folder.into(),
                tokenizer: known,
                model: vocab_size,
            });
        }
        Ok(HeldModel { model, tokenizer })
    }

    /// The prompt's tokens; a text that begins from nothing begins behind the end of another one.
    fn tokens(&self, prompt: &str) -> Result<Vec<u32>, String> {
        let mut tokens = self.tokenizer.encode(prompt).map_err(|e| e.to_string())?;
        if tokens.is_empty() {
            tokens.extend(self.tokenizer.eos());
        }
        if tokens.is_empty() {
            let why =
                "the prompt is empty, and this model has no token to begin with: type something";
            return Err(why.into());
        }
        Ok(tokens)
    }
}

impl TextModel for HeldModel {
    fn continue_text(
        &mut self,
        prompt: &str,
        sampling: &Sampling,
        on_piece: &mut dyn FnMut(Piece) -> ControlFlow<()>,
    ) -> Result<Continued, String> {
        let tokens = self.tokens(prompt)?;
        let tokenizer = &self.tokenizer;
        let mut stream = TextStream::default();
        let mut watch = StopWatch::new(&sampling.stop);
        let mut n_tokens = 0;
        let mut broken = None;
        let ends: Vec<u32> = tokenizer.eos().into_iter().collect();
        let how = Continuing {
            sampling,
            ends: &ends,
            when_full: match sampling.context {
                ContextLimit::Roll => WhenFull::Roll,
                ContextLimit::Auto | ContextLimit::Stop => WhenFull::Stop,
            },
        };
        let generated = generate(&mut self.model, &tokens, how, &mut |token| {
            n_tokens += 1;
            let (text, stopped) = watch.push(&stream.push(tokenizer, token.id));
            let logprob = token.logprob;
            if on_piece(Piece { text, logprob }).is_break() {
                broken = Some(StopReason::Cancelled);
            } else if stopped {
                broken = Some(StopReason::Stop);
            }
            match broken {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            }
        });
        let generated = generated.map_err(|e| format!("the model cannot compute: {e}"))?;
        if broken.is_none() {
            let (mut text, stopped) = watch.push(&stream.finish(tokenizer));
            if !stopped {
                text.push_str(&watch.rest());
            }
            // Text without a token of its own: what was held back until it was sure.
            if !text.is_empty() {
                let _ = on_piece(Piece { text, logprob: 0.0 });
            }
        }
        let reason = match generated.finish {
            Finish::Length => StopReason::Length,
            Finish::Eos => StopReason::Stop,
            Finish::Context => StopReason::Context,
            Finish::Stopped => broken.unwrap_or(StopReason::Cancelled),
        };
        Ok(Continued {
            prompt_tokens: tokens.len(),
            n_tokens,
            reason,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tokenizer::TokenizerConfig;
    use crate::nn::ModelConfig;

    const TEXT: &str = "abcdefgh \n";

    /// A folder with a small random model; the tokenizer's alphabet is `alphabet`.
    fn folder(alphabet: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let config = ModelConfig {
            n_layer: 1,
            n_head: 2,
            d_model: 8,
            seq_len: 8,
            ..ModelConfig::default()
        };
        let cpu = candle_core::Device::Cpu;
        let mut model = Model::new(&config, TEXT.chars().count(), &cpu).unwrap();
        model.init(3).unwrap();
        let tokenizer = TokenizerConfig::Char(Default::default())
            .build(alphabet, alphabet)
            .unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path(hf::CONFIG), hf::config_json(&model, None)).unwrap();
        std::fs::write(path(hf::TOKENIZER), tokenizer.to_json()).unwrap();
        let mut file = std::fs::File::create(path(hf::WEIGHTS)).unwrap();
        hf::write_weights(&model, &mut file).unwrap();
        dir
    }

    fn greedy(max_new_tokens: usize) -> Sampling {
        Sampling {
            temperature: 0.0,
            max_new_tokens,
            ..Sampling::default()
        }
    }

    /// (text, pieces, end)
    fn continued(
        held: &mut HeldModel,
        prompt: &str,
        sampling: &Sampling,
    ) -> Result<(String, usize, Continued), String> {
        let mut text = String::new();
        let mut pieces = 0;
        let end = held.continue_text(prompt, sampling, &mut |piece| {
            assert!(piece.logprob <= 0.0);
            text.push_str(&piece.text);
            pieces += 1;
            ControlFlow::Continue(())
        })?;
        Ok((text, pieces, end))
    }

    #[test]
    fn a_held_checkpoint_continues_and_repeats_itself() {
        let dir = folder(TEXT);
        let mut held = HeldModel::load(dir.path()).unwrap();
        let rolling = Sampling {
            context: ContextLimit::Roll,
            ..greedy(20)
        };
        let (text, pieces, end) = continued(&mut held, "abc", &rolling).unwrap();
        assert_eq!(text.chars().count(), 20, "beyond the context of 8");
        assert_eq!((pieces, end.n_tokens, end.prompt_tokens), (20, 20, 3));
        assert_eq!(end.reason, StopReason::Length);
        assert_eq!(continued(&mut held, "abc", &rolling).unwrap().0, text);
        let (cut, _, end) = continued(&mut held, "abc", &greedy(20)).unwrap();
        assert_eq!((end.reason, end.n_tokens), (StopReason::Context, 6));
        assert!(text.starts_with(&cut));
    }

    #[test]
    fn stop_strings_and_the_callback_end_it() {
        let dir = folder(TEXT);
        let mut held = HeldModel::load(dir.path()).unwrap();
        let (text, _, _) = continued(&mut held, "abc", &greedy(6)).unwrap();
        let chars: Vec<char> = text.chars().collect();
        let stop: String = chars[3..5].iter().collect();
        let sampling = Sampling {
            stop: vec![stop.clone()],
            ..greedy(12)
        };
        let (cut, _, end) = continued(&mut held, "abc", &sampling).unwrap();
        assert_eq!(end.reason, StopReason::Stop);
        assert_eq!(Some(cut.len()), text.find(&stop));
        let end = held
            .continue_text("abc", &greedy(12), &mut |_| ControlFlow::Break(()))
            .unwrap();
        assert_eq!((end.reason, end.n_tokens), (StopReason::Cancelled, 1));
    }

    #[test]
    fn prompts_that_cannot_be_read_are_errors() {
        let dir = folder(TEXT);
        let mut held = HeldModel::load(dir.path()).unwrap();
        let empty = continued(&mut held, "", &greedy(2)).unwrap_err();
        assert!(empty.contains("empty"), "{empty}");
        let unknown = continued(&mut held, "abcZ", &greedy(2)).unwrap_err();
        assert!(unknown.contains('Z'), "{unknown}");
    }

    #[test]
    fn folders_that_are_no_model_name_the_file() {
        let load = |dir: &Path| HeldModel::load(dir).err().unwrap().to_string();
        let dir = folder(TEXT);
        std::fs::write(dir.path().join(hf::TOKENIZER), "{}").unwrap();
        assert!(load(dir.path()).contains("tokenizer.json"));
        std::fs::remove_file(dir.path().join(hf::TOKENIZER)).unwrap();
        assert!(load(dir.path()).contains("tokenizer.json"));
        std::fs::remove_file(dir.path().join(hf::CONFIG)).unwrap();
        assert!(load(dir.path()).contains("config.json"));
        let other = folder("abcdefghijklmnop");
        assert!(load(other.path()).contains("belong to different models"));
    }
}
