//! Instructions about the language of an answer, detected by whatlang where the harness uses langdetect.

use super::Args;
use super::keywords::{is_lower, is_upper};
use whatlang::{Lang, detect};

/// Languages of the published set, by their ISO 639-1 codes.
#[rustfmt::skip]
const LANGUAGES: [(&str, Lang); 29] = [
    ("ar", Lang::Ara), ("bg", Lang::Bul), ("bn", Lang::Ben), ("de", Lang::Deu), ("en", Lang::Eng), ("es", Lang::Spa),
    ("fa", Lang::Pes), ("fi", Lang::Fin), ("fr", Lang::Fra), ("gu", Lang::Guj), ("he", Lang::Heb), ("hi", Lang::Hin),
    ("it", Lang::Ita), ("ja", Lang::Jpn), ("kn", Lang::Kan), ("ko", Lang::Kor), ("ml", Lang::Mal), ("mr", Lang::Mar),
    ("ne", Lang::Nep), ("pa", Lang::Pan), ("pl", Lang::Pol), ("pt", Lang::Por), ("ru", Lang::Rus), ("ta", Lang::Tam),
    ("te", Lang::Tel), ("th", Lang::Tha), ("uk", Lang::Ukr), ("ur", Lang::Urd), ("vi", Lang::Vie),
];

/// A language that whatlang does not know (Swahili) counts as followed unless the text is surely in another one.
pub fn response_language(args: &Args, answer: &str) -> bool {
    let wanted = LANGUAGES
        .iter()
        .find(|(code, _)| *code == args.text("language"));
    match (detect(answer), wanted) {
        // Digits and signs are in no language: the harness counts them as followed.
        (None, _) => true,
        (Some(found), Some((_, lang))) => found.lang() == *lang,
        (Some(found), None) => !found.is_reliable(),
    }
}

pub fn all_capitals(_: &Args, answer: &str) -> bool {
    is_upper(answer) && is_english(answer)
}

pub fn all_lowercase(_: &Args, answer: &str) -> bool {
    is_lower(answer) && is_english(answer)
}

fn is_english(answer: &str) -> bool {
    // Trigrams were counted in running text.
    detect(&answer.to_lowercase()).is_none_or(|found| found.lang() == Lang::Eng)
}
