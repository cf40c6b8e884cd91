package tokenizer

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A rank file of tiktoken has a line for each token: its bytes in base64 and its number, which is also its merge
// rank. The patterns that cut text, and the special tokens, are in tiktoken's own code, by the name of an encoding.

type encoding struct {
	pattern string
	special map[string]uint32
}

const (
	r50k  = `'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s`
	cl100 = `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s`
	o200  = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// encodings are tiktoken's encodings by name.
var encodings = map[string]encoding{
	"gpt2":      {r50k, map[string]uint32{"<|endoftext|>": 50256}},
	"r50k_base": {r50k, map[string]uint32{"<|endoftext|>": 50256}},
	"p50k_base": {r50k, map[string]uint32{"<|endoftext|>": 50256}},
	"p50k_edit": {r50k, map[string]uint32{"<|endoftext|>": 50256, "<|fim_prefix|>": 50281, "<|fim_middle|>": 50282, "<|fim_suffix|>": 50283}},
	"cl100k_base": {cl100, map[string]uint32{
		"<|endoftext|>": 100257, "<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260, "<|endofprompt|>": 100276,
	}},
	"o200k_base": {o200, map[string]uint32{"<|endoftext|>": 199999, "<|endofprompt|>": 200018}},
}

// Encodings returns the names of tiktoken's encodings.
func Encodings() []string { return slices.Sorted(maps.Keys(encodings)) }

// parseRanks reads a rank file. It does not look for special tokens in text, which it encodes literally
// (encode_ordinary).
func (t *Tokenizer) parseRanks(b []byte, name string) error {
	e, ok := encodings[name]
	if !ok {
		return fmt.Errorf("%q is not an encoding of tiktoken: there are %s; say which one it is with --encoding (a tokenizer.json begins with a brace)", name, strings.Join(Encodings(), ", "))
	}
	m := &bpe{vocab: map[string]uint32{}, whole: true, unknown: none}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for n := 1; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		text, number, ok := bytes.Cut(lines.Bytes(), []byte(" "))
		token, err := base64.StdEncoding.DecodeString(string(text))
		rank, err2 := strconv.ParseUint(string(number), 10, 32)
		if !ok || err != nil || err2 != nil || len(token) == 0 || rank >= maxTokens {
			return fmt.Errorf("line %d: %.60q is not a token in base64 and its number", n, lines.Bytes())
		}
		m.vocab[string(token)] = uint32(rank)
		m.size = max(m.size, int(rank)+1)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("it is not a file of ranks: %w", err)
	}
	m.symbols = byteSymbols(m.vocab)
	for c, id := range m.symbols {
		if id == none {
			return fmt.Errorf("it has no token for the byte %#x: it is cut off or no file of ranks", c)
		}
	}
	m.pairs = rankedPairs(m.vocab)
	t.model = m
	t.special = e.special
	for _, id := range e.special {
		t.size = max(t.size, int(id)+1)
	}
	find, err := known(e.pattern, fancy)
	t.cut = t.splitting(find, isolated, false, func(w *work, piece []byte, _ bool) { w.out = m.append(w.out, piece, w) })
	return err
}

// known returns the cutter of a pattern.
func known(pattern string, of dialect) (cutter, error) {
	r, err := compile(pattern, of)
	if err != nil {
		return nil, err
	}
	return r.find, nil
}
