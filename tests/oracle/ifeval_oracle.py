"""What lm-evaluation-harness says of answers and IFEval's instructions: tests/oracle/ifeval/expected.json.

    pip install lm-eval==0.4.13 langdetect nltk immutabledict
    python tests/oracle/ifeval_oracle.py

Every answer is judged by every case, strictly and loosely. Words are tokenized by NLTK's Treebank tokenizer alone, which needs
no downloads; sentences are left out, because Punkt's data would have to be fetched.
"""

import json
from pathlib import Path

import langdetect
import nltk

langdetect.DetectorFactory.seed = 0
nltk.download = lambda *args, **kwargs: True
nltk.data.find = lambda *args, **kwargs: True
nltk.word_tokenize = nltk.tokenize.TreebankWordTokenizer().tokenize

from lm_eval.tasks.ifeval import instructions_util, utils  # noqa: E402

instructions_util.nltk.word_tokenize = nltk.word_tokenize

ANSWERS = [
    "",
    "The quick brown fox jumps over the lazy dog while the children of the village are watching from the other side.",
    "THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG WHILE THE CHILDREN OF THE VILLAGE ARE WATCHING FROM THE OTHER SIDE.",
    "the quick brown fox jumps over the lazy dog while the children of the village are watching from the other side.",
    "Der schnelle braune Fuchs springt über den faulen Hund, während die Kinder des Dorfes von der anderen Seite zuschauen.",
    "Быстрая коричневая лиса прыгает через ленивую собаку, пока дети смотрят с другой стороны улицы.",
    "Sure, here it is:\n\n* first point\n* second point\n* third point\n\nI hope this helps!",
    "- one\n- two\n  - three\n*not a point*\n\n**bold text** and *slanted text* and ** **",
    "<<A fine title>>\n\nDear [name], your order [number] is on its way to [address].\n\nP.S. Thank you!",
    "<<>>\n\nSECTION 1\nalpha\nSECTION 2\nbeta\n\nP.P.S it rained",
    '```json\n{"a": [1, 2, 3], "b": null}\n```',
    '{"a": [1, 2, 3}',
    "First answer.\n******\nSecond answer.",
    "Same.\n******\nSame.",
    "******\nOne.\n******\nTwo.\n******",
    "My answer is maybe. I don't know and I CAN'T tell; NASA and the U.S. may know.",
    '"All of this is quoted, from the first to the last word. Is there anything else I can help with?"',
    "Weekend is near.\n\nAlice's cat slept.\n\n\"Quoted\" paragraph comes last.",
    "Intro.\n***\nMiddle part\n***\nEnd",
    "Intro.\n***\n\n***\nEnd",
    "Write a poem about rain. Here is the poem: rain rain go away, rain come back another day.",
    "1234 5678 !!!",
    "Rain, RAIN and rainbow. This costs $3.50 (three fifty).\n\nIs there anything else I can help with?",
]


def case(*pairs):
    return {"instruction_id_list": [p[0] for p in pairs], "kwargs": [p[1] for p in pairs]}


CASES = [
    case(("keywords:existence", {"keywords": ["rain", "poem"]})),
    case(("keywords:existence", {"keywords": ["fox", "dog"]})),
    case(("keywords:forbidden_words", {"forbidden_words": ["rain", "fox"]})),
    case(("keywords:frequency", {"keyword": "rain", "frequency": 3, "relation": "at least"})),
    case(("keywords:frequency", {"keyword": "the", "frequency": 3, "relation": "less than"})),
    case(("keywords:letter_frequency", {"letter": "e", "let_frequency": 8, "let_relation": "at least"})),
    case(("keywords:letter_frequency", {"letter": "q", "let_frequency": 1, "let_relation": "less than"})),
    case(("language:response_language", {"language": "de"})),
    case(("language:response_language", {"language": "ru"})),
    case(("length_constraints:number_paragraphs", {"num_paragraphs": 3})),
    case(("length_constraints:number_paragraphs", {"num_paragraphs": 2})),
    case(("length_constraints:number_words", {"num_words": 10, "relation": "at least"})),
    case(("length_constraints:number_words", {"num_words": 10, "relation": "less than"})),
    case(("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 3, "nth_paragraph": 2, "first_word": "alice"})),
    case(("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 3, "nth_paragraph": 3, "first_word": "quoted"})),
    case(("detectable_content:number_placeholders", {"num_placeholders": 3})),
    case(("detectable_content:postscript", {"postscript_marker": "P.S."})),
    case(("detectable_content:postscript", {"postscript_marker": "P.P.S"})),
    case(("detectable_format:number_bullet_lists", {"num_bullets": 3})),
    case(("detectable_format:constrained_response", {})),
    case(("detectable_format:number_highlighted_sections", {"num_highlights": 2})),
    case(("detectable_format:multiple_sections", {"section_spliter": "SECTION", "num_sections": 2})),
    case(("detectable_format:json_format", {})),
    case(("detectable_format:title", {})),
    case(("combination:two_responses", {})),
    case(("combination:repeat_prompt", {"prompt_to_repeat": "Write a poem about rain."})),
    case(("startend:end_checker", {"end_phrase": "Is there anything else I can help with?"})),
    case(("change_case:capital_word_frequency", {"capital_frequency": 4, "capital_relation": "at least"})),
    case(("change_case:capital_word_frequency", {"capital_frequency": 1, "capital_relation": "less than"})),
    case(("change_case:english_capital", {})),
    case(("change_case:english_lowercase", {})),
    case(("punctuation:no_comma", {})),
    case(("startend:quotation", {})),
    case(
        ("punctuation:no_comma", {}),
        ("detectable_format:number_bullet_lists", {"num_bullets": 3}),
        ("keywords:existence", {"keywords": ["point"]}),
    ),
]


def main():
    for one in CASES:
        inp = utils.InputExample(
            key=0, instruction_id_list=one["instruction_id_list"], prompt="Write a poem about rain.", kwargs=one["kwargs"]
        )
        strict = [utils.test_instruction_following_strict(inp, a) for a in ANSWERS]
        loose = [utils.test_instruction_following_loose(inp, a) for a in ANSWERS]
        one["strict"] = [[bool(f) for f in out.follow_instruction_list] for out in strict]
        one["loose"] = [[bool(f) for f in out.follow_instruction_list] for out in loose]
    path = Path(__file__).parent / "ifeval" / "expected.json"
    path.write_text(json.dumps({"answers": ANSWERS, "cases": CASES}, ensure_ascii=False, separators=(",", ":")) + "\n")


main()
