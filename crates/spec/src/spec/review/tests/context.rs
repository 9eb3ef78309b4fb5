//! Contexts longer than the start model's.

use super::*;
use serde_json::json;

/// A Llama of 32 tokens and 25M parameters, or a tiny one, whose weights nobody reads.
fn start(dir: &tempfile::TempDir, width: usize) -> String {
    let config = json!({
        "model_type": "llama", "vocab_size": 500, "hidden_size": width, "intermediate_size": 4 * width, "num_hidden_layers": 6,
        "num_attention_heads": width / 16, "max_position_embeddings": 32,
    });
    std::fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    std::fs::write(dir.path().join("model.safetensors"), "").unwrap();
    format!("train.from={}", dir.path().display())
}

const YARN: &str = "model.position.rope.scaling.yarn.factor";

#[test]
fn a_factor_that_does_not_reach_and_rows_that_do_not_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let from = start(&dir, 32);
    let few = format!("{YARN}=2");
    let set = [from.as_str(), &few, "model.seq_len=128"];
    mends("smoke", &set, KNOWN, "positions behind turn further");
    let factor = format!("{YARN}=4");
    let set = [from.as_str(), &factor, "model.seq_len=16"];
    mends(
        "smoke",
        &set,
        KNOWN,
        "train none of the positions from 32 to 128",
    );
    let fits = said("smoke", &[&from, &factor, "model.seq_len=128"], KNOWN);
    let places = ["model.position.rope.scaling", "model.seq_len"];
    assert!(
        fits.iter().all(|f| !places.contains(&f.place.as_str())),
        "{fits:?}"
    );
    // The start model's own positions are none of the run's.
    let own = said("smoke", &[&from], KNOWN);
    assert!(own.iter().all(|f| !places.contains(&f.place.as_str())));
}

#[test]
fn few_steps_and_adapters_alone_are_said_of_language_models() {
    let dir = tempfile::tempdir().unwrap();
    let from = start(&dir, 512);
    let yarn = "model.position.rope.scaling=yarn";
    let set = [from.as_str(), yarn, "model.seq_len=128", "max_steps=50"];
    mends("smoke", &set, KNOWN, "50 steps are few for new positions");
    let lora = [from.as_str(), yarn, "model.seq_len=128", "adapter=lora"];
    mends("smoke", &lora, KNOWN, "learned worse by adapters alone");
    let tiny = tempfile::tempdir().unwrap();
    let from = start(&tiny, 32);
    let said = said(
        "smoke",
        &[&from, yarn, "model.seq_len=128", "adapter=lora"],
        KNOWN,
    );
    assert!(
        said.iter()
            .all(|f| !f.evidence.to_string().contains("longer context"))
    );
}
