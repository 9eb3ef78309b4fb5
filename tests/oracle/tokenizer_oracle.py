"""Small tokenizers of every kind that `llmtui` reads, with the token ids that transformers and sentencepiece give.

    python tests/oracle/tokenizer_oracle.py CORPUS.txt tests/oracle/tokenizers

CORPUS.txt: any text with several scripts; tinyshakespeare with the texts below does. Needs transformers 5, tokenizers,
sentencepiece and gguf (pip install gguf). The vocabularies are trained here and tiny; their pipelines are those of GPT-2,
Qwen 2, Llama 3, Llama 2 (SentencePiece BPE with byte fallback) and T5 (SentencePiece Unigram).
"""

import io
import json
import shutil
import sys
from pathlib import Path

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, GPT2Tokenizer, PreTrainedTokenizerFast, Qwen2Tokenizer

TEXTS = [
    "",
    " ",
    "  ",
    "\n",
    "\n\n",
    "\t",
    "\r\n",
    " \n \n\n \t\t\n",
    "Hello world",
    " Hello world",
    "  Hello   world  ",
    "Hello, world! It's 3.14159 o'clock; we'll see.",
    "HELLO'S I'M WE'VE",
    "the quick brown fox\njumps over\n\n\nthe lazy dog\n",
    "1 12 123 1234 12345 1234567890",
    "def f(x):\n    if x > 0:\n\treturn [x ** 2 for _ in range(10)]  # done\n",
    "Größe, naïve café, Ångström, e\u0301 vs é",
    "Быстрая лиса прыгает через ленивую собаку",
    "速い茶色の狐が怠惰な犬を飛び越える。你好，世界",
    "안녕하세요 세계",
    "مرحبا بالعالم",
    "नमस्ते दुनिया",
    "👋🏽 emoji 🦙 and ZWJ 👩‍👩‍👧",
    "<s>bos</s> <unk> <|endoftext|> <|im_start|>user\nhi<|im_end|>",
    "a<|endoftext|>b",
    " <|endoftext|> ",
    "\u00a0non\u2009breaking\u3000spaces\u200b",
    "ﬁ ½ Ⅷ ＡＢＣ",
    "x" * 40,
    " " * 17 + "deep",
    "=" * 12 + "#" * 5 + "\n---\n",
    "the the the the",
    "user@example.org https://example.org/a?b=c&d=%20",
    "\u0000\u0001 control \u007f",
]

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def byte_level(pre_tokenizer, normalizer, corpus, specials, vocab_size=480):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def two_files(tokenizer, folder):
    folder.mkdir(parents=True, exist_ok=True)
    model = json.loads(tokenizer.to_str())["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"], ensure_ascii=False))
    merges = "".join(f"{a} {b}\n" for a, b in model["merges"])
    (folder / "merges.txt").write_text("#version: 0.2\n" + merges)
    return model


def ids_of(tokenizer):
    return [tokenizer.encode(text, add_special_tokens=False) for text in TEXTS]


def gpt2(corpus, out):
    made = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), None, corpus, ["<|endoftext|>"])
    two_files(made, out / "gpt2")
    return ids_of(GPT2Tokenizer.from_pretrained(out / "gpt2"))


def qwen2(corpus, out):
    pre = Qwen2Tokenizer().backend_tokenizer.pre_tokenizer
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    made = byte_level(pre, normalizers.NFC(), corpus, specials)
    two_files(made, out / "qwen2")
    decoder = {
        str(i): {"content": t, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
        for i, t in enumerate(specials)
    }
    config = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
              "added_tokens_decoder": decoder, "chat_template": "{{ messages[0].content }}"}
    (out / "qwen2" / "tokenizer_config.json").write_text(json.dumps(config))
    return ids_of(Qwen2Tokenizer.from_pretrained(out / "qwen2"))


def llama3(corpus, out):
    pre = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    made = byte_level(pre, None, corpus, ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
    whole = json.loads(made.to_str())
    whole["model"]["ignore_merges"] = True
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(whole)), bos_token="<|begin_of_text|>", eos_token="<|eot_id|>")
    tokenizer.save_pretrained(out / "llama3")
    return ids_of(PreTrainedTokenizerFast.from_pretrained(out / "llama3"))


def sentencepiece_model(corpus, path, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in corpus for line in text.splitlines()),
        model_writer=model, minloglevel=2, **options)
    path.write_bytes(model.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def spm_ids(processor):
    """sentencepiece's own ids. Texts with control tokens are left out: sentencepiece never reads them from text."""
    return [None if "<s>" in text else processor.encode(text) for text in TEXTS]


def llama2(corpus, out):
    processor = sentencepiece_model(
        corpus, out / "llama2.model", model_type="bpe", vocab_size=560, byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True,
        allow_whitespace_only_pieces=True, character_coverage=0.995)
    return spm_ids(processor)


def t5(corpus, out):
    # A normalizer of its own: that of nmt_nfkc has 240 kB.
    rules = out / "rules.tsv"
    rules.write_text("".join(f"{a:04X}\t{' '.join(f'{ord(c):04X}' for c in b)}\n" for a, b in
                             [(0xFB01, "fi"), (0x00A0, " "), (0x3000, " "), (0x000A, " "), (0x0009, " "), (0x000D, " "), (0x2167, "VIII"), (0xFF21, "A")]))
    processor = sentencepiece_model(
        corpus, out / "t5.model", model_type="unigram", vocab_size=420, normalization_rule_tsv=str(rules),
        user_defined_symbols=["<extra_id_0>"], character_coverage=0.995)
    rules.unlink()
    return spm_ids(processor)


def albert(corpus, out):
    """Unigram with bytes for what it does not know, spaces as they are, nothing in front."""
    processor = sentencepiece_model(
        corpus, out / "unigram_bytes.model", model_type="unigram", vocab_size=600, byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=False,
        character_coverage=0.995)
    return spm_ids(processor)


def gguf_of_gpt2(out):
    """The GPT-2 files as llama.cpp's converter would write them."""
    import gguf

    vocab = json.loads((out / "gpt2" / "vocab.json").read_text())
    merges = (out / "gpt2" / "merges.txt").read_text().splitlines()[1:]
    writer = gguf.GGUFWriter(out / "gpt2.gguf", "gpt2")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    tokens = sorted(vocab, key=vocab.get)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if t.startswith("<|") else 1 for t in tokens])
    writer.add_token_merges(merges)
    writer.add_eos_token_id(vocab["<|endoftext|>"])
    close(writer)


def gguf_of_llama2(out):
    import gguf

    processor = sentencepiece.SentencePieceProcessor(model_file=str(out / "llama2.model"))
    n = processor.get_piece_size()
    kind = lambda i: (2 if processor.is_unknown(i) else 3 if processor.is_control(i) else 6 if processor.is_byte(i) else 1)
    writer = gguf.GGUFWriter(out / "llama2.gguf", "llama")
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([processor.id_to_piece(i) for i in range(n)])
    writer.add_token_scores([processor.get_score(i) for i in range(n)])
    writer.add_token_types([kind(i) for i in range(n)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    close(writer)


def close(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    corpus_path, out = Path(sys.argv[1]), Path(sys.argv[2])
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    corpus = [corpus_path.read_text()[:300_000]] + TEXTS * 3
    expected = {"texts": TEXTS}
    for name, make in [("gpt2", gpt2), ("qwen2", qwen2), ("llama3", llama3), ("llama2.model", llama2), ("t5.model", t5),
                       ("unigram_bytes.model", albert)]:
        expected[name] = make(corpus, out)
    gguf_of_gpt2(out)
    gguf_of_llama2(out)
    (out / "expected.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")


main()
