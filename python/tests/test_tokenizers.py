"""Text that the engine makes tokens of: the same numbers as tokenizers and tiktoken give, for any text."""

from __future__ import annotations

import base64
import json
import random
import subprocess
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from support import cli

tokenizers = pytest.importorskip("tokenizers")
from tokenizers import (  # noqa: E402
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

Make = Callable[..., stoker.Loader]

WORDS = (
    "The quick brown fox jumps over the lazy dog; it's 2026-11-22, isn't it? I'll say WE'RE DONE, they'd've gone "
    "naïve café über straße Ünïcödé Привет мир это тест 你好世界 今日は日本語 한국어 العربية עברית हिन्दी ไทย "
    'def f(x):\n\treturn x ** 2  # comment\r\n\r\nif (a != b) { c += 3.14159; } <tag attr="v"/> http://x.y/z?q=1&r=%20 '
    "emoji 😀👍🏽👨\u200d👩\u200d👧 math ∑∫≤ ½ ² Ⅷ ٣ ǅ ﬁ İI \u0131i \u017f \u212a 'S '\u017f don\u2019t 's'S 'Re 'vE "
    "snake_case camelCase HTTPServer iPhone15Pro "
)


def texts() -> list[str]:
    """Return texts of all kinds: words, spaces, combining characters, every script, and noise."""
    rng = random.Random(5)
    words = WORDS.split(" ")
    out = [
        "",
        " ",
        "  ",
        "\n",
        "\n\n \n",
        "\t",
        "a",
        " a",
        "a ",
        "  a  b  ",
        "\u00a0x\u3000y\u2028z\x85w",
        "e\u0301\u0327",
        "\u0000\ufffd",
    ]
    out += [" ".join(rng.choices(words, k=rng.randint(1, 40))) for _ in range(120)]
    out += ["".join(rng.choices(WORDS, k=rng.randint(1, 80))) for _ in range(120)]
    assigned = [chr(c) for c in range(0x30000) if known(c)]
    for _ in range(150):
        picks = rng.choices(assigned, k=rng.randint(1, 30)) + rng.choices(" \n\t'aA1.\r", k=10)
        rng.shuffle(picks)
        out.append("".join(picks))
    out += [
        "a" * 500,
        "ab" * 300,
        " " * 100 + "x",
        "é" * 200,
        "12345678901",
        "".join(rng.choices("ab", k=1000)),
        "<|endoftext|>",
        "x<|endoftext|> y [MASK] z[MASK]",
    ]
    out += ["".join(assigned[i : i + 400]) for i in range(0, len(assigned), 400)][:60]
    return out


def known(c: int) -> bool:
    """Say whether a character has been in Unicode for so long that all libraries know it."""
    return unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Cs") and unicodedata.category(chr(c)) not in (
        "Cn",
        "Cs",
    )


TEXTS = texts()
CORPUS = [WORDS, WORDS, WORDS, *TEXTS[13:253]]


def run_pack(
    binary: str, folder: Path, tokenizer: Path, *options: str, source: str = "corpus.jsonl"
) -> list[list[int]]:
    """Pack TEXTS with a tokenizer and return the tokens of each."""
    corpus = folder / source
    if not corpus.exists():
        corpus.write_text("".join(json.dumps({"text": t}) + "\n" for t in TEXTS))
    out = folder / f"out-{len(list(folder.iterdir()))}"
    done = subprocess.run(
        [binary, "pack", str(corpus), str(out), "--tokenizer", str(tokenizer), *options], capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    with stoker.Loader(out, batch_size=64, threads=1) as loader:
        return [row.tolist() for batch in loader for row in batch.tokens]


GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ["<|endoftext|>", "[MASK]"]


def byte_level(pattern: str | None, *before: Any, prefix: bool = False, **model: Any) -> Tokenizer:
    t = Tokenizer(models.BPE(**model))
    if pattern is None:
        stages = [*before, pre_tokenizers.ByteLevel(add_prefix_space=prefix)]
    else:
        stages = [
            *before,
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(False, use_regex=False),
        ]
    t.pre_tokenizer = pre_tokenizers.Sequence(stages) if len(stages) > 1 else stages[0]
    t.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    t.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=900, special_tokens=SPECIAL, initial_alphabet=alphabet)
    )
    return t


def llama2() -> Tokenizer:
    """Train characters with a fall back on bytes, and the whole text as one word."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    special = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    t.train_from_iterator([WORDS], trainers.BpeTrainer(vocab_size=700, special_tokens=special))
    t.pre_tokenizer = None
    spec = json.loads(t.to_str())
    spec["added_tokens"] = spec["added_tokens"][:3]
    return Tokenizer.from_str(json.dumps(spec))


def clip() -> Tokenizer:
    t = Tokenizer(models.BPE(unk_token="<|endoftext|>", end_of_word_suffix="</w>", fuse_unk=False))
    t.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    pattern = Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+")
    t.pre_tokenizer = pre_tokenizers.Split(pattern, "removed", invert=True)
    t.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=700, special_tokens=SPECIAL, end_of_word_suffix="</w>")
    )
    return t


def bert(lowercase: bool) -> Tokenizer:
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=600, special_tokens=["[UNK]", "[MASK]"]))
    return t


def unigram(byte_fallback: bool) -> Tokenizer:
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first" if byte_fallback else "always")
    special = ["<unk>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    t.train_from_iterator([WORDS], trainers.UnigramTrainer(vocab_size=400, special_tokens=special, unk_token="<unk>"))
    spec = json.loads(t.to_str())
    spec["added_tokens"] = spec["added_tokens"][:2]
    spec["model"]["byte_fallback"] = byte_fallback
    return Tokenizer.from_str(json.dumps(spec))


def with_added() -> Tokenizer:
    t = byte_level(GPT2)
    t.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()])
    t.add_tokens(
        [AddedToken("fox", single_word=True), AddedToken("The", normalized=True), AddedToken("ab", lstrip=True)]
    )
    t.add_tokens([AddedToken("dog;", rstrip=True, normalized=False), AddedToken("ab ab"), "aba", "naïve"])
    t.add_special_tokens([AddedToken("[MASK]", lstrip=True, rstrip=True)])
    return t


def words(pre: Any, normalizer: Any = None) -> Tokenizer:
    t = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    t.pre_tokenizer = pre
    if normalizer is not None:
        t.normalizer = normalizer
    t.train_from_iterator(CORPUS, trainers.WordLevelTrainer(special_tokens=["[UNK]", "[MASK]"]))
    return t


TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "gpt2": lambda: byte_level(None),
    "gpt2 with a blank in front": lambda: byte_level(None, prefix=True),
    "gpt2 as a pattern": lambda: byte_level(GPT2),
    "llama3": lambda: byte_level(LLAMA3, ignore_merges=True),
    "qwen2": lambda: byte_level(QWEN2),
    "o200k": lambda: byte_level(O200K),
    "deepseek": lambda: byte_level(
        DEEPSEEK,
        pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"),
        pre_tokenizers.Split(Regex("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"), "isolated"),
    ),
    "starcoder": lambda: byte_level(None, pre_tokenizers.Digits(True)),
    "word characters": lambda: byte_level(r"\w+|\W|\d"),
    "llama2": llama2,
    "clip": clip,
    "bert": lambda: bert(True),
    "bert cased": lambda: bert(False),
    "unigram": lambda: unigram(False),
    "unigram with bytes": lambda: unigram(True),
    "added": with_added,
    "whitespace": lambda: words(pre_tokenizers.Whitespace()),
    "whitespace split": lambda: words(pre_tokenizers.WhitespaceSplit(), normalizers.NFD()),
    "digits": lambda: words(pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits()])),
    "punctuation": lambda: words(pre_tokenizers.Punctuation("merged_with_previous")),
    "punctuation next": lambda: words(pre_tokenizers.Punctuation("merged_with_next")),
    "punctuation contiguous": lambda: words(pre_tokenizers.Punctuation("contiguous")),
    "delimiter": lambda: words(pre_tokenizers.CharDelimiterSplit("e"), normalizers.NFKC()),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_as_tokenizers(binary: str, tmp_path: Path, name: str) -> None:
    tokenizer = TOKENIZERS[name]()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    got = run_pack(binary, tmp_path, tmp_path / "tokenizer.json")
    want = [e.ids for e in tokenizer.encode_batch(TEXTS, add_special_tokens=False)]
    differ = [(t, g, w) for t, g, w in zip(TEXTS, got, want, strict=True) if g != w]
    if differ:
        text, g, w = min(differ, key=lambda d: len(d[0]))
        k = next((i for i, (a, b) in enumerate(zip(g, w, strict=False)) if a != b), min(len(g), len(w)))
        show = (
            [tokenizer.id_to_token(i) for i in g[max(k - 1, 0) : k + 4]],
            [tokenizer.id_to_token(i) for i in w[max(k - 1, 0) : k + 4]],
        )
        raise AssertionError(f"{len(differ)} of {len(TEXTS)} texts: {text!r} at {k}: {show}")


def ranks() -> dict[bytes, int]:
    """Return a small vocabulary of bytes in the order of merging."""
    tokenizer = byte_level(None)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    back = {chr(b): b for b in printable}
    back |= {chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in printable)}
    assert sorted(back) == alphabet
    merged = [m["content"] if isinstance(m, dict) else m for m in json.loads(tokenizer.to_str())["model"]["vocab"]]
    texts = [bytes(back[c] for c in t) for t in merged if t not in SPECIAL]
    return {t: i for i, t in enumerate(sorted({bytes([b]) for b in range(256)}) + [t for t in texts if len(t) > 1])}


@pytest.mark.parametrize("name", ["gpt2", "r50k_base", "p50k_base", "p50k_edit", "cl100k_base", "o200k_base"])
def test_as_tiktoken(binary: str, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    import tiktoken_ext.openai_public as public

    mergeable = ranks()
    monkeypatch.setattr(public, "load_tiktoken_bpe", lambda *_, **__: mergeable)
    monkeypatch.setattr(public, "data_gym_to_mergeable_bpe_ranks", lambda *_, **__: mergeable)
    made = public.ENCODING_CONSTRUCTORS[name]()
    made.pop("explicit_n_vocab", None)
    encoding = tiktoken.Encoding(**made)
    lines = "".join(f"{base64.b64encode(t).decode()} {i}\n" for t, i in mergeable.items())
    (tmp_path / f"{name}.tiktoken").write_text(lines)
    got = run_pack(binary, tmp_path, tmp_path / f"{name}.tiktoken")
    for text, tokens in zip(TEXTS, got, strict=True):
        assert tokens == encoding.encode_ordinary(text), text
    (tmp_path / "ranks.txt").write_text(lines)
    ended = run_pack(binary, tmp_path, tmp_path / "ranks.txt", "--encoding", name, "--append-eos")
    assert ended == [[*t, encoding.eot_token] for t in got]


def test_where_text_is(binary: str, make: Make, tmp_path: Path) -> None:
    """Tables, text files and Arrow, other fields on request, and the width of tokens."""
    pyarrow = pytest.importorskip("pyarrow")
    tokenizer = byte_level(None)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    file = ["--tokenizer", str(tmp_path / "tokenizer.json"), "--append-eos"]
    rows = [f"row {i} is text, it's number {i}" for i in range(30)]
    want = [[*tokenizer.encode(r).ids, 0] for r in rows]
    (tmp_path / "x.csv").write_text("id,body\n" + "".join(f'{i},"{r}"\n' for i, r in enumerate(rows)))
    (tmp_path / "books").mkdir()
    for i, r in enumerate(rows):
        (tmp_path / f"books/{i:02}.txt").write_text(r)
    with pyarrow.ipc.new_file(tmp_path / "x.arrow", pyarrow.schema([("text", "string"), ("n", "int64")])) as f:
        f.write_table(pyarrow.table({"text": rows, "n": list(range(30))}))
    cases = [
        ("x.csv", ["--text-field", "body"]),
        ("x.csv", ["--text-field", "t", "--field", "t:text=body", "--field", "n:int=id"]),
        ("books", []),
        ("x.arrow", ["--threads", "1"]),
    ]
    for k, (source, options) in enumerate(cases):
        out = tmp_path / f"out{k}"
        cli(binary, "pack", tmp_path / source, out, *file, *options)
        loader = make(out, batch_size=7, shuffle=True)
        for batch in loader:
            assert batch.tokens.values.dtype == np.uint16
            for i, row in zip(batch.index, batch.tokens, strict=True):
                assert row.tolist() == want[i]
            assert ("n" in batch) == ("--field" in options)
    one = tmp_path / "one"
    cli(binary, "pack", tmp_path / "books/03.txt", one, *file)
    assert next(iter(make(one, batch_size=1))).tokens[0].tolist() == want[3]
    assert "finished already" in cli(binary, "pack", tmp_path / "books/03.txt", one, *file)
    other = subprocess.run(
        [binary, "pack", str(tmp_path / "books/03.txt"), str(one), *file[:2]], capture_output=True, text=True
    )
    assert other.returncode != 0  # another pack than what is there


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": {"type": "Magic", "vocab": {}}}, 'its model "Magic" is not supported'),
        ({"normalizer": {"type": "Nmt"}}, 'its normalizer "Nmt" is not supported'),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}, "a table of SentencePiece"),
        ({"pre_tokenizer": {"type": "UnicodeScripts"}}, 'its pre-tokenizer "UnicodeScripts" is not supported'),
        (
            {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": r"(?<=a)b"}, "behavior": "Isolated"}},
            "byte 2: a group that begins with",
        ),
        (
            {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": r"(ab)+"}, "behavior": "Isolated"}},
            "repeated without an end",
        ),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}, 'its merge 0, of "a" and "b"'),
        ({"model": {"type": "BPE", "dropout": 0.1, "vocab": {"a": 0}, "merges": []}}, "drops merges at random"),
        ({"model": None}, "it has no model"),
    ],
)
def test_refused(binary: str, tmp_path: Path, change: dict[str, Any], says: str) -> None:
    spec = {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec | change))
    with pytest.raises(RuntimeError) as error:
        run_pack(binary, tmp_path, tmp_path / "tokenizer.json")
    assert says in str(error.value)
    assert len(str(error.value).strip().splitlines()) <= 2
