//! `llmtui init`: the weights before the first step, as a model folder.

use super::Context;
use super::args::SpecArgs;
use super::exit::{Exit, Failure};
use super::export::failed;
use super::target::print_notes;
use crate::base::text::shown;
use crate::data::DataEnv;
use crate::engine::TrainState;
use crate::engine::checkpoint::disk::RealDisk;
use crate::engine::checkpoint::{self, Fingerprint, Store};
use crate::engine::export;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Write a run's initial weights as a Hugging Face model folder
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  llmtui init quickstart --to start && llmtui chat start")]
pub struct Args {
    #[command(flatten)]
    pub spec: SpecArgs,
    /// Output folder; must be absent or empty
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    export::check_free(&args.to).map_err(|e| failed(&e))?;
    let loaded = args.spec.load(cx)?;
    // A template without a start model gives random weights: that is said here as `train` says it.
    print_notes(&loaded);
    let spec = loaded.spec;
    let data = spec
        .open_data(&DataEnv::from_env(&cx.env))
        .map_err(|e| Failure::data(&e))?;
    let mut state = TrainState::fresh(&spec, &data)?;
    let written = write(&args.to, &mut state, &data, &Fingerprint::of(&spec, &data));
    written.map_err(|what| {
        let hint = "choose another folder with --to";
        Failure::machine(format!("{}: {what}", shown(&args.to)), hint)
    })?;
    writeln!(std::io::stdout(), "{}", shown(&args.to))?;
    Ok(Exit::Done)
}

/// A checkpoint of step 0 beside the folder, which then takes its name: whole, or not there.
fn write(
    to: &Path,
    state: &mut TrainState,
    data: &crate::data::Dataset,
    fingerprint: &Fingerprint,
) -> Result<(), String> {
    let told = |e: std::io::Error| e.to_string();
    let mut scratch = to.as_os_str().to_owned();
    scratch.push(".partial");
    let scratch = PathBuf::from(scratch);
    let mut store = Store::open(&scratch, Box::new(RealDisk)).map_err(told)?;
    let saved = checkpoint::save(&mut store, state, data, fingerprint);
    let moved = saved.map_err(|e| e.to_string()).and_then(|(folder, _)| {
        if to.exists() {
            std::fs::remove_dir(to).map_err(told)?;
        }
        std::fs::rename(folder, to).map_err(told)
    });
    let _ = std::fs::remove_dir_all(&scratch);
    moved
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::Model;
    use crate::spec::{SpecSources, load};

    #[test]
    fn what_is_written_is_what_the_run_begins_with() {
        let dir = tempfile::tempdir().unwrap();
        let spec = load("smoke", &[], &SpecSources::default()).unwrap().spec;
        let data = spec.open_data(&Default::default()).unwrap();
        let mut state = TrainState::fresh(&spec, &data).unwrap();
        let to = dir.path().join("start");
        write(&to, &mut state, &data, &Fingerprint::of(&spec, &data)).unwrap();
        let vocab_size = data.tokenizer.vocab_size();
        let mut read = Model::new(&spec.model, vocab_size, &candle_core::Device::Cpu).unwrap();
        crate::hf::read_weights(&to, &mut read).unwrap();
        let weights = |model: &Model| {
            let params = model.params();
            params.read_weights(|w| w.to_vec()).unwrap()
        };
        assert_eq!(weights(&read), weights(&state.models.policy));
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }
}
