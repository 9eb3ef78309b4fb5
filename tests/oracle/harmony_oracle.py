"""Reads answers with OpenAI's parser of the harmony format, and renders conversations with gpt-oss's chat template, for
crates/data/src/data/chat/tool_calls/harmony/tests.rs and crates/data/src/data/render/tests/messages.rs.

    python -m venv /tmp/oracle && /tmp/oracle/bin/pip install openai-harmony transformers jinja2
    pip download --no-deps trl && unzip trl-*.whl 'trl/chat_templates/*'
    TIKTOKEN_ENCODINGS_BASE=FOLDER /tmp/oracle/bin/python tests/oracle/harmony_oracle.py trl/chat_templates tests/fixtures/chat

FOLDER holds o200k_base.tiktoken, the vocabulary (OpenAI publishes it, and the crate tiktoken-rs has it among its assets). TRL's
package has the template as openai/gpt-oss-20b publishes it, and one with `generation` blocks around what the assistant writes. Neither
is stored here, only what transformers makes of them; tests/fixtures/chat/gpt_oss.jinja is our own.
"""

import datetime
import json
import random
import sys
from pathlib import Path

from openai_harmony import HarmonyEncodingName, Role, StreamableParser, load_harmony_encoding
from transformers.utils import chat_template_utils

DAY = datetime.datetime(2024, 7, 26)


class Then(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return DAY


chat_template_utils.datetime = Then

THOUGHT = "<|channel|>analysis<|message|>{}<|end|><|start|>assistant"
ANSWERS = [
    "<|channel|>final<|message|>It is 4.<|return|>",
    THOUGHT.format("2 + 2: easy.") + "<|channel|>final<|message|>2 + 2 = 4.<|return|>",
    THOUGHT.format("One.\n\nTwo “ä” 😀") + "<|channel|>final<|message|>\n# Title\n<b> 1 < 2 | 3 > 2 </b>\n<|return|>",
    THOUGHT.format("") + "<|channel|>final<|message|><|return|>",
    THOUGHT.format("First.") + THOUGHT.format("Second.") + "<|channel|>final<|message|>Done.<|return|>",
    THOUGHT.format("Use it.") + '<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 1, "b": [2.50, "x < y"]}<|call|>',
    THOUGHT.format("Use it.") + '<|channel|>commentary to=functions.add<|constrain|>json<|message|>{"a":1}<|call|>',
    THOUGHT.format("Use it.") + ' to=functions.add<|channel|>commentary json<|message|>{"a":1}<|call|>',
    THOUGHT.format("Use it.") + ' to=functions.now<|channel|>commentary <|constrain|>json<|message|>{}<|call|>',
    '<|channel|>analysis to=functions.add code<|message|>{"a": 1}<|call|>',
    THOUGHT.format("A plan.")
    + "<|channel|>commentary<|message|>**Plan**: add.<|end|><|start|>assistant"
    + '<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 1}<|call|>',
    "<|channel|>commentary<|message|>I look first.<|end|><|start|>assistant<|channel|>final<|message|>Found.<|return|>",
    "<|channel|>commentary to=functions.add <|constrain|>json<|message|>{\"a\": 1}<|end|><|start|>assistant"
    + "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}<|call|>",
]


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(name, arguments, text="", **more):
    function = {"name": name, "arguments": arguments}
    return assistant(text, tool_calls=[{"id": "call00001", "type": "function", "function": function}], **more)


def result(text):
    return {"role": "tool", "content": text, "tool_call_id": "call00001"}


TOOLS = [
    {"type": "function", "function": {"name": "add", "description": "Adds numbers.", "parameters": {"type": "object", "properties": {
        "a": {"type": "integer", "description": "The first \"one\"."}, "b": {"type": "array", "items": {"type": "number"}},
        "unit": {"type": "string", "enum": ["m", "km"], "default": "m"}, "note": {"type": "string", "default": "none"},
    }, "required": ["a"]}}},
    {"type": "function", "function": {"name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}}}},
]
SYSTEM = {"role": "system", "content": "Be brief."}
ROWS = {
    "one": [user("2 + 2?"), assistant("4.")],
    "one_with_thought": [user("2 + 2?"), assistant("4.", thinking="Easy “ä”.")],
    "two": [SYSTEM, user("2 + 2?"), assistant("4."), user("3 + 3?"), assistant("6.")],
    "two_with_thoughts": [user("2 + 2?"), assistant("4.", thinking="Easy."), user("3 + 3?"), assistant("6.", thinking="As easy.")],
    "called": [user("1 + 2?"), call("add", {"a": 1, "b": [2]}, thinking="I add."), result('{"sum": 3}'), assistant("3.", thinking="Said so.")],
    "calls": [user("1 + 2?"), call("add", {"a": 1}, thinking="I add."), result("3"), call("now", {}, thinking="When?"), result("noon"), assistant("3 at noon.")],
    "call_is_last": [SYSTEM, user("1 + 2?"), call("add", {"a": 1}, thinking="I add.")],
    "call_with_text": [user("1 + 2?"), call("add", {"a": 1}, text="I add."), result("3")],
    "call_with_both": [user("1 + 2?"), call("add", {"a": 1}, text="I add.", thinking="Easy."), result("3")],
    "called_then_asked": [user("1 + 2?"), call("add", {"a": 1}, thinking="I add."), result("3"), assistant("3."), user("So?"), assistant("Yes.", thinking="Yes, so.")],
    "result_alone": [user("1 + 2?"), result("3")],
}


def read(encoding, text):
    tokens = encoding.encode(text, allowed_special="all")
    messages = encoding.parse_messages_from_completion_tokens(tokens, Role.ASSISTANT)
    told = [message.to_dict() for message in messages]
    return [dict(channel=m.get("channel"), recipient=m.get("recipient"), content=m["content"][0]["text"]) for m in told]


def cut(encoding, text, at):
    """What the parser has of an answer that ends behind `at` tokens."""
    parser = StreamableParser(encoding, role=Role.ASSISTANT)
    tokens = encoding.encode(text, allowed_special="all")[:at]
    for token in tokens:
        parser.process(token)
    whole = [message.to_dict() for message in parser.messages]
    whole = [dict(channel=m.get("channel"), recipient=m.get("recipient"), content=m["content"][0]["text"]) for m in whole]
    begun = dict(channel=parser.current_channel, recipient=parser.current_recipient, content=parser.current_content)
    text = encoding.decode_utf8(tokens)
    return dict(text=text, messages=whole, begun=begun)


def main(templates, out):
    encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
    answers = [dict(text=text, messages=read(encoding, text)) for text in ANSWERS]
    draw = random.Random(5)
    parts = []
    for text in ANSWERS:
        length = len(encoding.encode(text, allowed_special="all"))
        for at in sorted(draw.sample(range(1, length), min(6, length - 1))):
            try:
                parts.append(cut(encoding, text, at))
            except Exception:
                pass  # In the middle of a character.
    published = (templates / "gptoss.jinja").read_text()
    training = (templates / "gptoss_training.jinja").read_text()
    rendered = []
    for name, messages in ROWS.items():
        for tools, prompt, more in [(None, False, {}), (TOOLS, False, {}), (TOOLS, True, dict(reasoning_effort="high"))]:
            row = dict(case=name, messages=messages, tools=tools, add_generation_prompt=prompt, **more)
            given = dict(conversations=[messages], tools=tools, add_generation_prompt=prompt, **more)
            try:
                row["text"] = chat_template_utils.render_jinja_template(chat_template=published, **given)[0][0]
                if not prompt:
                    texts, spans = chat_template_utils.render_jinja_template(
                        chat_template=training, return_assistant_tokens_mask=True, **given)
                    assert texts[0] == row["text"], name
                    row["written"] = [row["text"][a:b] for a, b in spans[0]]
            except Exception as error:
                row["error"] = type(error).__name__
            rendered.append(row)
    told = dict(answers=answers, parts=parts, rendered=rendered)
    (out / "harmony.json").write_text(json.dumps(told, ensure_ascii=False))
    print(len(answers), len(parts), [(r["case"], "text" in r) for r in rendered])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
