//! Which file a word means, by the names that repositories have.

use super::*;
use crate::hub::{RemoteFile, RepoKind};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn listing(names: &[&str]) -> Listing {
    let file = |(name, n): (&&str, u64)| RemoteFile {
        name: name.to_string(),
        size: Some(n << 20),
        blob: None,
        sha256: None,
    };
    Listing {
        commit: COMMIT.into(),
        files: names.iter().zip(1..).map(file).collect(),
        from_cache: None,
        partial: false,
    }
}

fn chosen(word: Option<&str>, names: &[&str]) -> Result<Chosen, HubError> {
    let repo = Repo::new(RepoKind::Model, "org/name", None).unwrap();
    choose(&repo, word, &listing(names))
}

/// The first file of the model that a word means.
fn file(word: &str, names: &[&str]) -> String {
    chosen(Some(word), names).unwrap().parts.remove(0)
}

/// The error's two sentences.
fn refused(word: Option<&str>, names: &[&str]) -> String {
    let error = chosen(word, names).unwrap_err();
    format!("{error}; {}", error.hint())
}

const BARTOWSKI: [&str; 7] = [
    "M-1B-IQ2_M.gguf",
    "M-1B-IQ3_XS.gguf",
    "M-1B-Q4_K_L.gguf",
    "M-1B-Q4_K_M.gguf",
    "M-1B-Q4_K_S.gguf",
    "M-1B-Q8_0.gguf",
    "M-1B-f16.gguf",
];

#[test]
fn a_quantization_names_its_file_in_any_case() {
    assert_eq!(file("Q4_K_M", &BARTOWSKI), "M-1B-Q4_K_M.gguf");
    assert_eq!(file("q4_k_s", &BARTOWSKI), "M-1B-Q4_K_S.gguf");
    assert_eq!(file("F16", &BARTOWSKI), "M-1B-f16.gguf");
    let dots = ["m.q4_k_m.gguf", "m.q8_0.gguf"];
    assert_eq!(file("Q8_0", &dots), "m.q8_0.gguf");
}

#[test]
fn a_quantization_is_a_whole_word_of_the_name() {
    let error = refused(Some("Q4_K"), &BARTOWSKI);
    assert!(error.contains("no GGUF file `Q4_K`"), "{error}");
    let names = ["m-IQ4_NL.gguf", "m-Q4_0_4_8.gguf", "m-BF16.gguf"];
    for word in ["Q4_NL", "Q4_0", "F16", "4", ""] {
        assert!(chosen(Some(word), &names).is_err(), "{word}");
    }
    let names = ["m-Q4_K.gguf", "m-Q4_K_M.gguf", "m-IQ4_K.gguf"];
    assert_eq!(file("Q4_K", &names), "m-Q4_K.gguf");
}

#[test]
fn half_precision_is_found_under_both_of_its_names() {
    let names = ["m-fp16.gguf", "m-q8_0.gguf", "m-bf16.gguf"];
    assert_eq!(file("F16", &names), "m-fp16.gguf");
    assert_eq!(file("fp16", &names), "m-fp16.gguf");
    assert_eq!(file("fp16", &["m-F16.gguf", "m-Q8_0.gguf"]), "m-F16.gguf");
}

#[test]
fn a_plain_quantization_goes_before_one_with_more_in_its_word() {
    let names = ["m-UD-Q4_K_M.gguf", "m-Q4_K_M.gguf"];
    assert_eq!(file("Q4_K_M", &names), "m-Q4_K_M.gguf");
    assert_eq!(file("UD-Q4_K_M", &names), "m-UD-Q4_K_M.gguf");
}

#[test]
fn a_word_that_fits_two_files_is_refused_with_both() {
    let names = ["a-Q8_0.gguf", "b-Q8_0.gguf"];
    let error = refused(Some("Q8_0"), &names);
    assert!(
        error.contains("fits 2 of its files: a-Q8_0.gguf, b-Q8_0.gguf"),
        "{error}"
    );
    assert!(error.contains("org/name:a-Q8_0.gguf"), "{error}");
    assert_eq!(file("a", &names), "a-Q8_0.gguf");
}

#[test]
fn a_file_is_named_with_or_without_its_folder() {
    let names = [
        "new/m-Q8_0.gguf",
        "old/m-Q8_0.gguf",
        "old/x.gguf",
        "Q5_K_M/y.gguf",
    ];
    assert_eq!(file("old/m-Q8_0.gguf", &names), "old/m-Q8_0.gguf");
    assert_eq!(file("X.gguf", &names), "old/x.gguf");
    let error = refused(Some("m-Q8_0.gguf"), &names);
    assert!(
        error.contains("2 files of it are called m-Q8_0.gguf"),
        "{error}"
    );
    assert!(error.contains("org/name:new/m-Q8_0.gguf"), "{error}");
    assert_eq!(file("q5_k_m", &names), "Q5_K_M/y.gguf", "by its folder");
}

#[test]
fn a_model_in_parts_is_all_of_them_whichever_is_named() {
    let part = |n: usize| format!("Q8_0/m-Q8_0-{n:05}-of-00003.gguf");
    let parts = [part(1), part(2), part(3)];
    let names: Vec<&str> = parts.iter().map(String::as_str).collect();
    for word in [
        None,
        Some("Q8_0"),
        Some(names[1]),
        Some("m-Q8_0-00003-of-00003.gguf"),
    ] {
        assert_eq!(chosen(word, &names).unwrap().parts, parts, "{word:?}");
    }
    let with = [&names[..], &["n-Q8_0.gguf"]].concat();
    let error = refused(None, &with);
    assert!(
        error.contains("m-Q8_0-00001-of-00003.gguf (6 MiB)"),
        "one entry, of all parts: {error}"
    );
    let error = refused(Some("Q8_0"), &[names[0], names[2]]);
    assert!(
        error.contains(&format!("it has no {}", names[1])),
        "{error}"
    );
    // A name is anything.
    let huge = "m-00001-of-18446744073709551615.gguf";
    assert!(refused(Some(huge), &[huge]).contains("a part of the model"));
}

#[test]
fn without_a_word_the_only_file_is_taken() {
    let found = chosen(None, &["README.md", "m.gguf", "mmproj-f16.gguf"]).unwrap();
    assert_eq!((found.parts, found.notice), (vec!["m.gguf".into()], None));
}

#[test]
fn without_a_word_q4_k_m_is_taken_of_several_with_a_notice() {
    for word in [None, Some("latest")] {
        let found = chosen(word, &BARTOWSKI).unwrap();
        assert_eq!(found.parts, ["M-1B-Q4_K_M.gguf"]);
        let notice = found.notice.filter(|_| word.is_none());
        let Some(notice) = notice else { continue };
        assert!(
            notice.contains("M-1B-Q4_K_M.gguf, 4 MiB, one of its 7"),
            "{notice}"
        );
        assert!(notice.contains("org/name:Q4_K_L takes another"), "{notice}");
        assert!(
            notice.contains("Q8_0, f16") && !notice.contains("IQ"),
            "{notice}"
        );
    }
}

#[test]
fn without_a_word_and_without_q4_k_m_it_is_q8_0() {
    let found = chosen(None, &["m-Q8_0.gguf", "m-f16.gguf"]).unwrap();
    assert_eq!(found.parts, ["m-Q8_0.gguf"]);
    assert!(found.notice.unwrap().contains("org/name:f16"));
    // Which of two is not for us to say.
    let two = ["a-Q4_K_M.gguf", "b-Q4_K_M.gguf", "c-Q8_0.gguf"];
    assert!(refused(None, &two).contains("a-Q4_K_M.gguf (1 MiB)"));
}

#[test]
fn without_a_word_and_without_a_usual_one_the_files_are_listed() {
    let names = [
        "m-Q6_K.gguf",
        "m-f16.gguf",
        "m-IQ2_M.gguf",
        "m-IQ3_M.gguf",
        "odd.gguf",
    ];
    let error = refused(None, &names);
    assert!(
        error.contains("it has 5 GGUF files and nothing else"),
        "{error}"
    );
    assert!(
        error.contains("as in org/name:Q6_K: Q6_K (1 MiB), f16 (2 MiB)"),
        "{error}"
    );
    assert!(
        error.contains("odd.gguf (5 MiB)"),
        "no word but its name: {error}"
    );
}

#[test]
fn formats_that_are_not_read_are_refused_before_a_download() {
    let names = [
        "m-IQ3_M.gguf",
        "m-NVFP4.gguf",
        "m-Q5_K_M.gguf",
        "m-TQ1_0.gguf",
    ];
    let error = refused(Some("iq3_m"), &names);
    assert!(
        error.contains("m-IQ3_M.gguf is in IQ3_M, which this build does not read"),
        "{error}"
    );
    assert!(
        error.contains("add one of these, as in org/name:Q5_K_M"),
        "{error}"
    );
    assert!(
        error.contains("not read by this build: IQ3_M, NVFP4, TQ1_0"),
        "{error}"
    );
    let error = refused(None, &["m-IQ3_M.gguf", "m-IQ2_XS.gguf"]);
    assert!(
        error.contains("none of its files is in a format"),
        "{error}"
    );
    for read in [
        "Q4_0",
        "Q4_K_S",
        "UD-Q4_K_XL",
        "q6_k",
        "Q6_K_L",
        "BF16",
        "fp16",
        "F32",
        "Q8_0",
        "IQ4_XS",
        "iq4_nl",
        "MXFP4",
        "mxfp4_moe",
        "UD-Q8_K_XL",
        "q4",
        "q8",
    ] {
        assert!(is_read(read), "{read}");
    }
    for unread in [
        "IQ3_XS", "Q4_0_4_8", "TQ2_0", "IQ2_M", "NVFP4", "UD-IQ1_S", "IQ4_K",
    ] {
        assert!(!is_read(unread), "{unread}");
    }
}

#[test]
fn a_name_that_says_no_known_format_is_left_to_the_files_header() {
    let phi = "Phi-3-mini-4k-instruct-q4.gguf";
    let names = [phi, "Phi-3-mini-4k-instruct-fp16.gguf"];
    assert_eq!(file("q4", &names), phi);
    assert_eq!(file(phi, &names), phi);
    assert_eq!(chosen(None, &names[..1]).unwrap().parts, [phi]);
    let error = refused(None, &names);
    assert!(
        error.contains("q4 (1 MiB)") && !error.contains("not read"),
        "{error}"
    );
    let dynamic = ["m-UD-Q8_K_XL.gguf", "m-Q8_0.gguf"];
    assert_eq!(file("UD-Q8_K_XL", &dynamic), dynamic[0]);
}

#[test]
fn a_file_that_is_named_in_full_is_never_refused_by_its_name() {
    let names = ["sub/m-IQ3_M.gguf", "m-Q8_0.gguf"];
    let error = refused(Some("IQ3_M"), &names);
    assert!(
        error.contains("if its name is wrong, org/name:sub/m-IQ3_M.gguf takes it"),
        "{error}"
    );
    for word in ["sub/m-IQ3_M.gguf", "m-iq3_m.gguf"] {
        assert_eq!(file(word, &names), names[0]);
    }
}

#[test]
fn projectors_drafts_and_importance_matrices_are_no_models() {
    let names = [
        "mmproj-model-Q8_0.gguf",
        "m-Q8_0.gguf",
        "m-imatrix.gguf",
        "mtp-m-Q8_0.gguf",
    ];
    assert_eq!(file("Q8_0", &names), "m-Q8_0.gguf");
    assert_eq!(chosen(None, &names).unwrap().parts, ["m-Q8_0.gguf"]);
    let error = refused(Some("mmproj-model-Q8_0.gguf"), &names);
    assert!(error.contains("it projects images"), "{error}");
    assert!(!has_models(&[
        "mmproj-f16.gguf".into(),
        "imatrix.gguf".into()
    ]));
    assert!(has_models(&["m-imatrix-Q8_0.GGUF".into()]));
}

#[test]
fn a_revision_behind_the_file_is_met_with_the_right_order() {
    let error = refused(Some("Q8_0@v1"), &["m-Q8_0.gguf"]);
    assert!(
        error.contains("the revision goes first: org/name@v1:Q8_0"),
        "{error}"
    );
}

#[test]
fn a_repository_without_gguf_files_says_so() {
    let error = refused(Some("Q8_0"), &["config.json", "model.safetensors"]);
    assert!(
        error.contains("no GGUF files, so none that is `Q8_0`"),
        "{error}"
    );
    assert!(
        error.contains("org/name alone is the whole model"),
        "{error}"
    );
}

#[test]
fn quantizations_are_found_in_names() {
    for (name, quant) in [
        ("Llama-3.2-1B-Instruct-Q4_K_M", Some("Q4_K_M")),
        ("qwen2.5-0.5b-instruct-q4_k_m", Some("q4_k_m")),
        ("m.IQ2_XXS", Some("IQ2_XXS")),
        ("Qwen3-8B-UD-Q4_K_XL", Some("UD-Q4_K_XL")),
        ("ggml-model_Q8_0", Some("Q8_0")),
        ("gpt-oss-20b-mxfp4", Some("mxfp4")),
        ("m-F16-Q6_K", Some("Q6_K")),
        ("Q-model", None),
        ("модель", None),
        ("q3000", Some("q3000")),
        ("FAQ4_0", None),
    ] {
        assert_eq!(quant_in(name), quant, "{name}");
    }
}
