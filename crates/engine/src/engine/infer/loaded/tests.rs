//! A small random model in a folder, with all kinds of requests.

mod messages;
mod thoughts;

use super::*;
use crate::data::Tokenizer;
use crate::data::tokenizer::TokenizerConfig;
use crate::engine::infer::Step;
use crate::nn::ModelConfig;
use std::cell::Cell;

const TEXT: &str = "abcdefgh \n";

/// A small random model of a long context with this tokenizer, template and token that ends a text, and with these files besides.
fn with_template(tokenizer: &str, template: &str, end: &str, more: &[(&str, &str)]) -> LoadedModel {
    let config = ModelConfig {
        n_layer: 1,
        n_head: 2,
        d_model: 8,
        seq_len: 4096,
        ..ModelConfig::default()
    };
    let vocab_size = Tokenizer::from_json(tokenizer).unwrap().vocab_size();
    let cpu = candle_core::Device::Cpu;
    let mut model = Model::new(&config, vocab_size, &cpu).unwrap();
    model.init(3).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    put(hf::CONFIG, &hf::config_json(&model, None));
    put(hf::TOKENIZER, tokenizer);
    let ends = serde_json::json!({"eos_token": end});
    put("tokenizer_config.json", &ends.to_string());
    put("chat_template.jinja", template);
    more.iter().for_each(|(name, text)| put(name, text));
    let mut file = std::fs::File::create(dir.path().join(hf::WEIGHTS)).unwrap();
    hf::write_weights(&model, &mut file).unwrap();
    LoadedModel::load(dir.path()).unwrap()
}

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
    held: &mut LoadedModel,
    prompt: &str,
    sampling: &Sampling,
) -> Result<(String, usize, GenerationEnd), String> {
    let mut text = String::new();
    let mut pieces = 0;
    let reading = held.read(&prompt.into(), &Sampling::default())?;
    let end = held.generate(&reading, sampling, &mut |step| {
        let Step::Wrote(piece) = step else {
            return ControlFlow::Continue(());
        };
        assert!(piece.logprob <= 0.0 && piece.entropy >= 0.0 || piece.logprob.is_nan());
        text.push_str(&piece.text);
        pieces += 1;
        ControlFlow::Continue(())
    })?;
    Ok((text, pieces, end))
}

#[test]
fn a_held_checkpoint_continues_and_repeats_itself() {
    let dir = folder(TEXT);
    let mut held = LoadedModel::load(dir.path()).unwrap();
    let rolling = Sampling {
        context: ContextLimit::Roll,
        ..greedy(20)
    };
    let (text, pieces, end) = continued(&mut held, "abc", &rolling).unwrap();
    assert_eq!(text.chars().count(), 20, "beyond the context of 8");
    assert_eq!((pieces, end.n_tokens), (20, 20));
    assert_eq!(end.reason, StopReason::Length);
    assert_eq!(continued(&mut held, "abc", &rolling).unwrap().0, text);
    assert!(end.message.contains("context of 8 tokens rolled"));
    let stopping = Sampling {
        context: ContextLimit::Stop,
        ..greedy(20)
    };
    let (cut, _, end) = continued(&mut held, "abc", &stopping).unwrap();
    assert_eq!((end.reason, end.n_tokens), (StopReason::Context, 6));
    assert!(end.message.contains("context of 8 tokens is full"));
    assert!(text.starts_with(&cut));
}

#[test]
fn stop_strings_and_the_callback_end_it() {
    let dir = folder(TEXT);
    let mut held = LoadedModel::load(dir.path()).unwrap();
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
    let reading = held
        .read(&"abc".into(), &crate::base::sampling::Sampling::default())
        .unwrap();
    let end = held
        .generate(&reading, &greedy(12), &mut |step| match step {
            Step::Read { .. } | Step::Scored(_) => ControlFlow::Continue(()),
            Step::Wrote(_) => ControlFlow::Break(()),
        })
        .unwrap();
    assert_eq!((end.reason, end.n_tokens), (StopReason::Cancelled, 1));
}

#[test]
fn prompts_that_cannot_be_read_are_errors() {
    let dir = folder(TEXT);
    let mut held = LoadedModel::load(dir.path()).unwrap();
    let empty = continued(&mut held, "", &greedy(2)).unwrap_err();
    assert!(empty.contains("empty"), "{empty}");
    let unknown = continued(&mut held, "abcZ", &greedy(2)).unwrap_err();
    assert!(unknown.contains('Z'), "{unknown}");
}

#[test]
fn folders_that_are_no_model_name_the_file() {
    let load = |dir: &Path| LoadedModel::load(dir).err().unwrap().to_string();
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

/// A chat template over the alphabet of the model: a turn is its role's first letter, its words and a line break.
const TEMPLATE: &str = "{% for m in messages %}{{ m.role[0] | replace('u', 'a') | replace('s', 'c') }}{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}b{% endif %}";

fn chat_folder() -> tempfile::TempDir {
    let dir = folder(TEXT);
    std::fs::write(dir.path().join("chat_template.jinja"), TEMPLATE).unwrap();
    dir
}

#[test]
fn conversations_are_rendered_and_an_answer_that_was_begun_is_continued() {
    let held = LoadedModel::load(chat_folder().path()).unwrap();
    let whole = Sampling {
        context: ContextLimit::Stop,
        ..Sampling::default()
    };
    let read = |turns: &[Turn]| {
        let read = held.read(&Prompt::Turns(turns.to_vec()), &whole);
        read.map(|r| r.text)
    };
    let user = Turn::new("user", "dd");
    assert_eq!(read(std::slice::from_ref(&user)).unwrap(), "add\nb");
    let begun = [user.clone(), Turn::new("assistant", "ee")];
    assert_eq!(read(&begun).unwrap(), "add\nbee");
    let long = [begun[0].clone(), begun[1].clone(), user];
    assert_eq!(read(&long).unwrap(), "add\naee\nadd\nb");
    assert!(read(&[]).unwrap_err().contains("empty"));
    let Event::Loaded {
        template, context, ..
    } = held.about(0.1)
    else {
        panic!("what is held")
    };
    assert_eq!((template.is_some(), context), (true, 8));
}

/// Turns of 4 tokens in a context of 8, of which an answer has 2.
#[test]
fn a_conversation_that_is_too_long_drops_its_oldest_turns_and_says_so() {
    let mut held = LoadedModel::load(chat_folder().path()).unwrap();
    let turn = |role: &str, text: &str| Turn::new(role, text);
    let long = Prompt::Turns(vec![
        turn("user", "dd"),
        turn("assistant", "ee"),
        turn("user", "ff"),
    ]);
    let sampling = greedy(2);
    let reading = held.read(&long, &sampling).unwrap();
    assert_eq!((&*reading.text, reading.dropped), ("aff\nb", 2));
    let end = held
        .generate(&reading, &sampling, &mut |_| ControlFlow::Continue(()))
        .unwrap();
    assert!(end.message.contains("2 oldest turns"), "{}", end.message);
    // A system prompt stays; one turn alone is not dropped, however long.
    let Prompt::Turns(mut turns) = long else {
        unreachable!()
    };
    turns.insert(0, turn("system", "c"));
    let reading = held.read(&Prompt::Turns(turns), &sampling).unwrap();
    assert_eq!((&*reading.text, reading.dropped), ("cc\naff\nb", 2));
    let one = Prompt::Turns(vec![turn("user", "abcdefgh")]);
    assert_eq!(held.read(&one, &sampling).unwrap().dropped, 0);
}

#[test]
fn a_base_model_says_that_it_has_no_template() {
    let held = LoadedModel::load(folder(TEXT).path()).unwrap();
    let turns = Prompt::Turns(vec![Turn::new("user", "a")]);
    let error = held
        .read(&turns, &crate::base::sampling::Sampling::default())
        .unwrap_err();
    assert!(error.contains("no chat template"), "{error}");
}

#[test]
fn a_broken_template_is_a_note_and_not_the_end() {
    let dir = folder(TEXT);
    std::fs::write(dir.path().join("chat_template.jinja"), "{% if %}").unwrap();
    let held = LoadedModel::load(dir.path()).unwrap();
    let Event::Loaded {
        template, notes, ..
    } = held.about(0.0)
    else {
        panic!("what is held")
    };
    assert!(template.is_none() && notes[0].contains("completes text"));
}

#[test]
fn every_token_that_the_files_call_an_end_ends_a_text() {
    let dir = folder(TEXT);
    let mut held = LoadedModel::load(dir.path()).unwrap();
    let (text, _, _) = continued(&mut held, "abc", &greedy(5)).unwrap();
    let third = text.chars().nth(2).unwrap();
    let id = TEXT.chars().position(|c| c == third);
    // Ids follow the sorted alphabet.
    let mut alphabet: Vec<char> = TEXT.chars().collect();
    alphabet.sort_unstable();
    let id = id
        .and_then(|_| alphabet.iter().position(|c| *c == third))
        .unwrap();
    let said = format!("{{\"eos_token_id\": [{id}, 99999]}}");
    std::fs::write(dir.path().join(hf::GENERATION), said).unwrap();
    let mut held = LoadedModel::load(dir.path()).unwrap();
    assert_eq!(held.conventions.active().ends, [id as u32]);
    let (cut, _, end) = continued(&mut held, "abc", &greedy(5)).unwrap();
    assert_eq!(end.reason, StopReason::Stop);
    assert_eq!(cut, text[..text.find(third).unwrap()]);
}

#[test]
fn a_prompt_beyond_the_context_is_refused_unless_it_may_roll() {
    let mut held = LoadedModel::load(folder(TEXT).path()).unwrap();
    let long = "abcdefgh abc";
    let limited = |context| Sampling {
        context,
        ..greedy(2)
    };
    let error = continued(&mut held, long, &limited(ContextLimit::Stop)).unwrap_err();
    assert!(
        error.contains("12 tokens") && error.contains("context of 8"),
        "{error}"
    );
    // A model without a template rolls by itself, and says so.
    for context in [ContextLimit::Roll, ContextLimit::Auto] {
        let (_, _, end) = continued(&mut held, long, &limited(context)).unwrap();
        assert_eq!(end.n_tokens, 2);
        assert!(
            end.message.contains("oldest tokens were dropped"),
            "{}",
            end.message
        );
    }
    let short = continued(&mut held, "abc", &greedy(2)).unwrap();
    assert_eq!(short.2.message, "");
}

#[test]
fn what_an_earlier_prompt_began_with_is_not_read_again_and_reading_can_be_broken_off() {
    let mut held = LoadedModel::load(folder(TEXT).path()).unwrap();
    let mut asked = |prompt: &str, stop: bool| {
        let reading = held.read(&prompt.into(), &Sampling::default()).unwrap();
        let (mut kept_tokens, mut text) = (0, String::new());
        let end = held.generate(&reading, &greedy(2), &mut |step| match step {
            Step::Read { kept, .. } => {
                kept_tokens = kept;
                match stop {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            }
            Step::Wrote(piece) => {
                text.push_str(&piece.text);
                ControlFlow::Continue(())
            }
            Step::Scored(_) => ControlFlow::Continue(()),
        });
        (kept_tokens, text, end.unwrap().reason)
    };
    let (kept, first, _) = asked("abcd", false);
    assert_eq!(kept, 0);
    // The same again reads its last token; one that goes on reads what is new.
    assert_eq!(asked("abcd", false).0, 3);
    assert_eq!(asked(&format!("abcd{first}"), false).0, 5);
    assert_eq!(asked("abdd", false).0, 2);
    assert_eq!(asked("ddd", false).0, 0);
    assert_eq!(asked("abcd", false), (0, first.clone(), StopReason::Length));
    let broken = asked("abc", true);
    assert_eq!(broken, (2, String::new(), StopReason::Cancelled));
    assert_eq!(asked("abcd", false).1, first);
}

#[test]
fn tools_stand_where_the_template_puts_them_and_one_without_a_place_says_so() {
    let with_tools = |template: &str| {
        let dir = folder(TEXT);
        std::fs::write(dir.path().join("chat_template.jinja"), template).unwrap();
        let held = LoadedModel::load(dir.path()).unwrap();
        let asked = Prompt::WithTools {
            messages: vec![Turn::new("user", "dd")],
            tools: vec![serde_json::json!({"name": "fab"})],
        };
        held.read(&asked, &Sampling::default())
    };
    let tools = format!("{{% for t in tools %}}{{{{ t.name }}}} {{% endfor %}}{TEMPLATE}");
    assert_eq!(with_tools(&tools).unwrap().text, "fab add\nb");
    let error = with_tools(TEMPLATE).unwrap_err();
    assert!(error.contains("does not render tools"), "{error}");
}

/// The folder as a checkpoint of a run of this preset.
fn checkpoint_of(preset: &str, stop: &str) -> (tempfile::TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let sources = crate::spec::SpecSources {
        project_dir: home.path().into(),
        ..crate::spec::SpecSources::default()
    };
    let stop = format!("sample.sampling.stop={stop}");
    let spec = crate::spec::load(preset, &[stop], &sources).unwrap().spec;
    let clock = crate::base::clock::SystemClock::new();
    let run = crate::run::RunDir::create(home.path(), "lists", &spec.to_yaml(), "", &clock);
    let to = run.unwrap().checkpoints_path().join("step-000001");
    std::fs::create_dir_all(&to).unwrap();
    let from = folder(TEXT);
    for file in std::fs::read_dir(from.path()).unwrap().flatten() {
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
    (home, to)
}

/// A model trained on rows wrote one answer after another, up to the limit, because chat ignored the run's stop strings.
#[test]
fn answers_of_a_runs_checkpoint_end_where_its_samples_do() {
    let mut plain = LoadedModel::load(folder(TEXT).path()).unwrap();
    let (text, ..) = continued(&mut plain, "abc", &greedy(6)).unwrap();
    let stop: String = text.chars().skip(2).take(1).collect();
    let (_home, checkpoint) = checkpoint_of("sft-demo", &format!("[{stop:?}]"));
    let mut held = LoadedModel::load(&checkpoint).unwrap();
    let (cut, _, end) = continued(&mut held, "abc", &greedy(6)).unwrap();
    assert_eq!(end.reason, StopReason::Stop);
    assert_eq!(Some(cut.len()), text.find(&stop));
    let Event::Loaded {
        stop: told,
        trained_by,
        ..
    } = held.about(0.0)
    else {
        panic!("a description");
    };
    assert_eq!((told, trained_by.is_some()), (vec![stop], true));
    // A stop of the user's own takes its place.
    let own = Sampling {
        stop: vec!["never".into()],
        ..greedy(6)
    };
    assert_eq!(continued(&mut held, "abc", &own).unwrap().0, text);
    // Answers that a policy learned from end at a line break where no token ends them.
    let (_home, checkpoint) = checkpoint_of("grpo-sort", "[]");
    let policy = LoadedModel::load(&checkpoint).unwrap();
    assert_eq!(policy.conventions.active().training.stop, ["\n"]);
    let (_home, checkpoint) = checkpoint_of("quickstart", "[]");
    let texts = LoadedModel::load(&checkpoint).unwrap();
    let nothing = crate::engine::infer::opening::Training::default();
    assert_eq!(texts.conventions.active().training, nothing);
}

/// The folder of a model with this `tokenizer.json`, of as many tokens as [`TEXT`] has characters.
fn folder_with(tokenizer: &serde_json::Value) -> tempfile::TempDir {
    let dir = folder(TEXT);
    std::fs::write(dir.path().join(hf::TOKENIZER), tokenizer.to_string()).unwrap();
    dir
}

fn tokenizer(model: serde_json::Value, spaces: serde_json::Value) -> serde_json::Value {
    serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": spaces, "post_processor": null, "decoder": spaces, "model": model,
    })
}

fn vocabulary(tokens: impl Iterator<Item = String>) -> serde_json::Map<String, serde_json::Value> {
    tokens
        .zip(0..)
        .map(|(token, id)| (token, id.into()))
        .collect()
}

/// "France is" went on with "Paris" instead of " Paris".
#[test]
fn a_text_and_an_answer_that_was_begun_go_on_with_a_space() {
    let space = serde_json::json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true});
    let vocab = vocabulary(('a'..='j').map(|c| format!("▁{c}")));
    let words = serde_json::json!({"type": "WordLevel", "vocab": vocab, "unk_token": "▁a"});
    let dir = folder_with(&tokenizer(words, space));
    let template = "{{ messages[0].content }}";
    std::fs::write(dir.path().join("chat_template.jinja"), template).unwrap();
    let mut held = LoadedModel::load(dir.path()).unwrap();
    let mut written = |prompt: Prompt| {
        let reading = held.read(&prompt, &Sampling::default()).unwrap();
        let (mut text, mut ids) = (String::new(), reading.tokens.clone());
        held.generate(&reading, &greedy(3), &mut |step| {
            if let Step::Wrote(piece) = step {
                text.push_str(&piece.text);
                ids.extend(piece.id);
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        (
            reading.text,
            text,
            held.conventions.active().tokenizer.decode(&ids),
        )
    };
    let asked = Turn::new("user", "a");
    for prompt in [
        "a b".into(),
        Prompt::Turns(vec![asked.clone(), Turn::new("assistant", " b")]),
    ] {
        let (before, text, whole) = written(prompt);
        assert_eq!(format!("{before}{text}"), whole);
        assert!(before == "a b" && text.starts_with(' '), "{text:?}");
    }
    // An answer is a text of its own.
    let (_, text, _) = written(Prompt::Turns(vec![asked]));
    assert!(!text.starts_with(' '), "{text:?}");
}

/// In the workbench an empty line sends the text back, and the model read U+FFFD.
#[test]
fn a_character_that_the_limit_cuts_is_left_out() {
    let bytes = serde_json::json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    // A byte that goes on, and nine that begin a character.
    let vocab = vocabulary(
        ('\u{a9}'..='\u{a9}')
            .chain('\u{c3}'..='\u{cb}')
            .map(String::from),
    );
    let model = serde_json::json!({"type": "BPE", "vocab": vocab, "merges": []});
    let mut held = LoadedModel::load(folder_with(&tokenizer(model, bytes)).path()).unwrap();
    let (text, pieces, end) = continued(&mut held, "é", &greedy(1)).unwrap();
    assert_eq!((&*text, pieces, end.n_tokens), ("", 1, 1));
    assert_eq!(end.reason, StopReason::Length);
}

/// Of 12 tokens in a context of 8 four counted as served from the cache.
#[test]
fn tokens_beyond_the_context_are_not_cached() {
    let mut held = LoadedModel::load(folder(TEXT).path()).unwrap();
    let reading = held
        .read(&"abcdefgh abc".into(), &Sampling::default())
        .unwrap();
    let mut reads = Vec::new();
    held.generate(&reading, &greedy(1), &mut |step| {
        if let Step::Read { tokens, kept } = step {
            reads.push((tokens, kept));
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(
        reads
            .iter()
            .all(|(tokens, kept)| *tokens >= 4 && *kept == 0),
        "{reads:?}"
    );
    assert!(!reads.is_empty());
}

#[test]
fn a_context_that_the_answer_fills_does_not_hide_that_turns_were_dropped() {
    let mut held = LoadedModel::load(chat_folder().path()).unwrap();
    let turns = [("user", "dd"), ("assistant", "ee"), ("user", "ff")];
    let long = Prompt::Turns(turns.map(|(role, text)| Turn::new(role, text)).to_vec());
    let reading = held.read(&long, &greedy(2)).unwrap();
    let end = held
        .generate(&reading, &greedy(20), &mut |_| ControlFlow::Continue(()))
        .unwrap();
    assert_eq!(end.reason, StopReason::Context);
    let said = end.message;
    assert!(
        said.contains("without the 2 oldest turns, and the answer filled"),
        "{said}"
    );
}

#[test]
fn log_probabilities_come_with_bytes_and_alternatives_of_the_prompt_as_well() {
    let dir = folder(TEXT);
    let mut held = LoadedModel::load(dir.path()).unwrap();
    let wanted = Wanted {
        logprobs: Some(2),
        prompt_logprobs: true,
        ..Wanted::default()
    };
    let prompt = Prompt::Tokens(vec![0, 3, 2]);
    let reading = held.read(&prompt, &greedy(2)).unwrap();
    let (mut scored, mut written) = (Vec::new(), Vec::new());
    let end = held.answer(&reading, &greedy(2), &wanted, &mut |step| {
        match step {
            Step::Scored(tokens) => scored.extend(tokens),
            Step::Wrote(piece) => written.push(piece),
            Step::Read { .. } => {}
        }
        ControlFlow::Continue(())
    });
    assert_eq!(end.unwrap().n_tokens, 2);
    assert_eq!(scored.iter().map(|t| t.id).collect::<Vec<_>>(), [0, 3, 2]);
    let letters: Vec<u8> = scored.iter().flat_map(|t| t.bytes.clone()).collect();
    assert_eq!(String::from_utf8(letters).unwrap(), reading.text);
    assert!(scored[0].logprob.is_none() && scored[0].top.is_empty());
    assert!(
        scored[1..]
            .iter()
            .all(|t| t.top.len() == 2 && t.logprob.unwrap().0 < 0.0)
    );
    for piece in &written {
        assert_eq!(piece.bytes.as_deref(), Some(piece.text.as_bytes()));
        // The likeliest token is the one that greedy generation takes.
        assert_eq!(
            (Some(piece.top[0].id), piece.top[0].logprob.0),
            (piece.id, f64::from(piece.logprob))
        );
    }
    let unknown = held
        .read(&Prompt::Tokens(vec![99]), &greedy(2))
        .unwrap_err();
    assert!(
        unknown.contains("token 99 is outside of the vocabulary of 10"),
        "{unknown}"
    );
    let long = held.read(&Prompt::Tokens(vec![1; 9]), &greedy(2)).unwrap();
    let why = held.answer(&long, &greedy(1), &wanted, &mut |_| {
        ControlFlow::Continue(())
    });
    assert!(
        why.unwrap_err()
            .to_string()
            .contains("its log-probabilities need all of them")
    );
    let form = Wanted {
        json_schema: Some(Box::new(serde_json::json!({"type": "object"}))),
        ..Wanted::default()
    };
    let why = held.answer(&reading, &greedy(1), &form, &mut |_| {
        ControlFlow::Continue(())
    });
    assert!(
        why.unwrap_err()
            .to_string()
            .contains("no token that ends a text")
    );
}

#[test]
fn contexts_that_do_not_fit_the_memory_are_refused_and_auto_takes_fewer() {
    let mut held = LoadedModel::load(folder(TEXT).path()).unwrap();
    // Keys and values of 8 tokens of 8 numbers, in one block.
    let each = 2 * 8 * 8 * 4;
    let mut with = |n, memory| held.set_parallel(n, memory).map(|()| held.rows());
    // A fifth is for the rest.
    let enough = 3 * each * 5 / 4;
    assert_eq!(with(Some(3), enough), Ok(3));
    let (what, fix) = with(Some(3), enough - 1).unwrap_err();
    for part in ["3 slots", "need 1.50 KiB", "80 %"] {
        assert!(what.contains(part), "{what}");
    }
    assert_eq!(fix, "--parallel 2, or --kv-cache bf16, which halves them");
    assert_eq!(with(None, 100 * each), Ok(4));
    assert_eq!(with(None, 3 * each), Ok(2));
    assert_eq!((with(None, 0), with(Some(1), 0)), (Ok(1), Ok(1)));
}

#[test]
fn answers_side_by_side_are_the_texts_that_they_are_alone() {
    let mut held = LoadedModel::load(folder(TEXT).path()).unwrap();
    let prompts = ["abc", "h", "dd ab", "gfe"];
    let sampling = |seed| Sampling {
        temperature: 1.0,
        seed,
        ..greedy(5)
    };
    let alone = prompts.map(|prompt| {
        let (text, _, end) = continued(&mut held, prompt, &sampling(prompt.len() as u64)).unwrap();
        (text, end)
    });
    held.set_parallel(Some(3), u64::MAX).unwrap();
    let mut found = prompts.map(|_| (String::new(), None));
    let mut who = [None; 3];
    let mut waiting = prompts.iter().enumerate();
    while found.iter().any(|(_, end)| end.is_none()) {
        while let Some(free) = who.iter().position(Option::is_none)
            && let Some((number, prompt)) = waiting.next()
        {
            let sampling = sampling(prompt.len() as u64);
            let reading = held.read(&(*prompt).into(), &sampling).unwrap();
            let row = held
                .begin(&reading, &sampling, &Wanted::default(), None)
                .unwrap();
            assert!(who[row].is_none(), "row {row} is taken, {free} is free");
            who[row] = Some(number);
        }
        let ended = held.write(&mut |progress| {
            if let Progress::Row(row, Step::Wrote(piece)) = progress {
                found[who[row].unwrap()].0.push_str(&piece.text);
            }
            ControlFlow::Continue(())
        });
        for (row, end) in ended {
            found[who[row].take().unwrap()].1 = Some(end.unwrap());
        }
    }
    assert_eq!(found, alone.map(|(text, end)| (text, Some(end))));
}

#[test]
fn the_first_beginning_that_fits_is_found_in_few_steps() {
    let begins: Vec<usize> = (0..5_000).map(|i| 3 * i).collect();
    for fitting in [0, 1, 2, 7, 2_500, 4_990, 4_998, 4_999, 6_000] {
        let made = Cell::new(0);
        let found = newest(&begins, |from| {
            made.set(made.get() + 1);
            Ok((from, from >= 3 * fitting))
        });
        // Where even the newest does not fit, it is what is left.
        assert_eq!(found, Ok(3 * fitting.min(4_999)));
        assert!(made.get() <= 27, "{fitting}: {}", made.get());
    }
    let alone = newest(&[4], |from| Ok((from, false)));
    assert_eq!(alone, Ok(4));
    let refused: Result<usize, String> = newest(&begins, |_| Err("no template".into()));
    assert_eq!(refused.unwrap_err(), "no template");
}
