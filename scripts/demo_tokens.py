"""The demo for text: makes tokens of documents, packs them, and trains a small language model on sequences of them.

`make demo KIND=tokens` runs it. The commands are printed as they run. `--data` is a JSONL file of your own with a
field "text".
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import itertools
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import stoker
from demo import STOKER, WORK, Watch, bold, dim, run, show, start, step

DOCUMENTS, MERGES, LENGTH, BATCH, EPOCHS, WIDTH = 20_000, 400, 128, 64, 3, 48
END = "<|endoftext|>"
Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


# --- text and a tokenizer --------------------------------------------------

TOPICS = {
    "sea": "ship wave sailor harbour storm island gull net tide captain".split(),
    "farm": "horse field farmer barn plough sheep harvest orchard fence milk".split(),
    "town": "street baker market tower bell bridge lamp tram clerk theatre".split(),
}
VERBS = "sees leaves finds follows watches calls remembers paints".split()
KINDS = "old quiet bright small broken famous heavy golden".split()


def write_corpus(path: Path) -> None:
    """Write documents of a few sentences each; all words of a document belong to one topic."""
    rng = np.random.default_rng(0)
    with path.open("w") as f:
        for _ in range(DOCUMENTS):
            words = TOPICS[rng.choice(list(TOPICS))]
            sentences = []
            for _ in range(rng.integers(1, 9)):
                a, b = rng.choice(words, 2, replace=False)
                sentences.append(f"The {rng.choice(KINDS)} {a} {rng.choice(VERBS)} the {b}.")
            f.write(json.dumps({"text": " ".join(sentences)}) + "\n")


def train_tokenizer(corpus: Path, to: Path) -> None:
    """Write a tokenizer.json: merges of the most frequent pairs of bytes, as GPT-2 has them."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    sign = {b: chr(b) for b in printable}
    sign |= {b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in printable)}
    counts: collections.Counter[tuple[str, ...]] = collections.Counter()
    with corpus.open() as f:
        for _, line in zip(range(3000), f, strict=False):
            for word in re.findall(r" ?\w+| ?[^\w\s]+|\s+", json.loads(line)["text"]):
                counts[tuple(sign[b] for b in word.encode())] += 1
    vocab, merges = list(sign.values()), []
    for _ in range(MERGES):
        pairs: collections.Counter[tuple[str, str]] = collections.Counter()
        for word, n in counts.items():
            for pair in itertools.pairwise(word):
                pairs[pair] += n
        if not pairs:
            break
        (a, b), _n = pairs.most_common(1)[0]
        merges.append([a, b])
        vocab.append(a + b)
        merged: collections.Counter[tuple[str, ...]] = collections.Counter()
        for word, n in counts.items():
            out: list[str] = []
            for s in word:
                if out and out[-1] == a and s == b:
                    out[-1] = a + b
                else:
                    out.append(s)
            merged[tuple(out)] += n
        counts = merged
    spec = {
        "added_tokens": [{"id": len(vocab), "content": END, "special": True}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
        "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(vocab)}, "merges": merges},
    }
    to.write_text(json.dumps(spec))


def decode(tokens: list[int], tokenizer: dict[str, Any]) -> str:
    """Turn tokens into text again."""
    names = {i: t for t, i in tokenizer["model"]["vocab"].items()}
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    back = {chr(b): b for b in printable}
    back |= {chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in printable)}
    return bytes(back[c] for t in tokens for c in names.get(t, "")).decode(errors="replace")


# --- a model ---------------------------------------------------------------


class Model:
    """Predicts the next token from the last three and from all of its document so far, with Adam, in NumPy."""

    def __init__(self, vocabulary: int) -> None:
        rng = np.random.default_rng(1)
        shape = {
            "last": (3, vocabulary, WIDTH),
            "topic": (vocabulary, WIDTH),
            "hidden": (4 * WIDTH, 2 * WIDTH),
            "out": (2 * WIDTH, vocabulary),
        }
        self.p = {k: (rng.standard_normal(s) * 0.05).astype(np.float32) for k, s in shape.items()}
        self.m = {k: np.zeros_like(v) for k, v in self.p.items()}
        self.v = {k: np.zeros_like(v) for k, v in self.p.items()}
        self.steps = 0

    def features(self, x: Ints, position: Ints) -> tuple[Floats, list[Ints]]:
        """Embed the text before each token, within its document only: the last three tokens, and the mean of all."""
        length = x.shape[1]
        shifted = []
        for back in range(3):
            earlier = np.zeros_like(x)
            earlier[:, back:] = x[:, : length - back]
            shifted.append(np.where(position >= back, earlier, 0))
        # Sums from the beginning of the row, less those before the document.
        sums = np.cumsum(self.p["topic"][x], axis=1)
        start = np.arange(length) - position
        before = np.take_along_axis(np.pad(sums, ((0, 0), (1, 0), (0, 0))), start[..., None], axis=1)
        parts = [self.p["last"][k][s] for k, s in enumerate(shifted)]
        mean = (sums - before) / (position + 1)[..., None]
        return np.concatenate([*parts, mean], axis=-1).astype(np.float32), shifted

    def loss(self, x: Ints, y: Ints, position: Ints, mask: npt.NDArray[np.bool_], learn: bool) -> float:
        """Return the mean loss in bits per token, and make a step."""
        f, shifted = self.features(x, position)
        keep = mask.reshape(-1)
        inputs = f.reshape(-1, 4 * WIDTH)[keep]
        pre = inputs @ self.p["hidden"]
        hidden = np.maximum(pre, 0)
        logits = hidden @ self.p["out"]
        logits -= logits.max(axis=1, keepdims=True)
        p = np.exp(logits)
        p /= p.sum(axis=1, keepdims=True)
        wanted = y.reshape(-1)[keep]
        loss = float(-np.log2(p[np.arange(len(wanted)), wanted] + 1e-30).mean())
        if not learn:
            return loss
        p[np.arange(len(wanted)), wanted] -= 1
        p /= len(wanted)
        grad = {"out": hidden.T @ p}
        back = (p @ self.p["out"].T) * (pre > 0)
        grad["hidden"] = inputs.T @ back
        into = back @ self.p["hidden"].T
        grad["last"] = np.zeros_like(self.p["last"])
        for k, s in enumerate(shifted):
            np.add.at(grad["last"][k], s.reshape(-1)[keep], into[:, k * WIDTH : (k + 1) * WIDTH])
        # A token is a part of the mean for all later tokens in its document.
        rows, length = x.shape
        share = np.zeros((rows * length, WIDTH), np.float32)
        share[keep] = into[:, 3 * WIDTH :]
        share = share.reshape(rows, length, WIDTH) / (position + 1)[..., None]
        rest = np.pad(np.cumsum(share[:, ::-1], axis=1)[:, ::-1], ((0, 0), (0, 1), (0, 0)))
        begins = np.where(position == 0, np.arange(length), length)
        following = np.minimum.accumulate(
            np.pad(begins[:, 1:], ((0, 0), (0, 1)), constant_values=length)[:, ::-1], axis=1
        )
        behind = np.take_along_axis(rest, following[:, ::-1, None], axis=1)
        grad["topic"] = np.zeros_like(self.p["topic"])
        np.add.at(grad["topic"], x.reshape(-1), (rest[:, :-1] - behind).reshape(-1, WIDTH))
        self.steps += 1
        for name, g in grad.items():
            self.m[name] += 0.1 * (g - self.m[name])
            self.v[name] += 0.01 * (g * g - self.v[name])
            fix = np.sqrt(1 - 0.99**self.steps) / (1 - 0.9**self.steps)
            self.p[name] -= 0.004 * fix * self.m[name] / (np.sqrt(self.v[name]) + 1e-8)
        return loss

    def write(self, tokens: list[int], count: int, end: int, seed: int) -> list[int]:
        """Continue a text."""
        rng = np.random.default_rng(seed)
        tokens = list(tokens)
        for _ in range(count):
            x = np.array([tokens])
            f, _ = self.features(x, np.arange(len(tokens))[None])
            logits = np.maximum(f[0, -1] @ self.p["hidden"], 0) @ self.p["out"]
            p = np.exp((logits - logits.max()) / 0.7)
            tokens.append(int(rng.choice(len(p), p=p / p.sum())))
            if tokens[-1] == end:
                break
        return tokens


# --- the demo --------------------------------------------------------------


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description="Train a small language model on packed documents.")
    parser.add_argument("--data", type=Path, help='a JSONL file with a field "text" of your own (default: generated)')
    own: Path | None = parser.parse_args().data

    WORK.mkdir(exist_ok=True)
    if own is None:
        name = f"text-{DOCUMENTS}"
        corpus = WORK / f"{name}.jsonl"
        step(1, f"{DOCUMENTS:,} short documents, and a tokenizer for them")
        if not corpus.exists():
            write_corpus(corpus)
    else:
        corpus = own.expanduser().resolve()
        if not corpus.is_file():
            sys.exit(f"demo: {own} is not a file\n  hint: make demo KIND=tokens DATA=path/to/file.jsonl")
        name = f"text-{hashlib.sha256(os.fsencode(corpus)).hexdigest()[:12]}"
        step(1, f"a tokenizer for your text in {corpus}")
    tokenizer = WORK / f"{name}.tokenizer.json"
    if not tokenizer.exists():
        train_tokenizer(corpus, tokenizer)
    spec = json.loads(tokenizer.read_text())
    end = spec["added_tokens"][0]["id"]
    print(f"  {show(corpus)}, {corpus.stat().st_size / 1e6:.1f} MB; {show(tokenizer)}, {end + 1} tokens")

    step(2, "make tokens of it and pack them, once")
    pack = WORK / f"{name}-tokens"
    run("pack", corpus, pack, "--tokenizer", tokenizer, f"--append-eos={END}")

    step(3, "sequences of any length, without writing anything")
    for length in (64, 512):
        with stoker.Loader(stoker.open(pack).sequences(length), batch_size=BATCH, shuffle=True) as loader:
            began, tokens = time.perf_counter(), 0
            while time.perf_counter() - began < 1:
                for batch in loader:
                    tokens += batch.input.size
            plan = loader.info["sequences"]
            rate = tokens / (time.perf_counter() - began) / 1e6
            left = f"{plan['sequences']:,} sequences, {plan['dropped']} tokens left over"
            print(f"  length {length}: {left}, {rate:.0f} M tokens/s")

    step(4, f"train on sequences of {LENGTH}, whole documents packed by best fit")
    loader = stoker.Loader(
        stoker.open(pack).sequences(LENGTH, packing="best-fit", fields=["position_ids"], dtype="int64"),
        batch_size=BATCH,
        shuffle=True,
        seed=0,
        drop_last=True,
    )
    with loader:
        plan = loader.info["sequences"]
        share = 100 * plan["padding"] / (plan["sequences"] * LENGTH)
        print(
            dim(f"  {plan['documents']:,} documents, {plan['tokens']:,} tokens, {share:.1f}% of all places are padding")
        )
        model = Model(end + 1)
        first = last = 0.0
        for epoch in range(EPOCHS):
            watch, losses, tokens = Watch(), [], 0
            for x, y, position, mask in watch.over(loader):
                tokens += int(mask.sum())
                losses.append(model.loss(x, y, position.astype(np.int64), mask, learn=True))
            took = time.perf_counter() - watch.began
            first, last = first or losses[0], float(np.mean(losses[-10:]))
            print(
                f"  epoch {epoch}: {last:.2f} bits per token at its end, {tokens / took:,.0f} tokens/s, "
                f"{100 * watch.waited / took:.1f}% of the time spent waiting for data"
            )
    print(f"\n{bold(f'{first:.2f} -> {last:.2f} bits per token')}. What it writes:")
    for seed in (0, 1, 2):
        with stoker.Loader(stoker.open(pack).select("tokens"), batch_size=1, shuffle=True, seed=seed) as docs:
            begun = next(iter(docs)).tokens[0].tolist()[:6]
        print(dim(f"  {decode(begun, spec)}|{decode(model.write(begun, 60, end, seed)[len(begun) :], spec)}"))
    print(f"The pack is {show(pack)}; look into it with: {show(STOKER)} inspect {show(pack)}")


if __name__ == "__main__":
    start(main)
