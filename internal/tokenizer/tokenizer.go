// Package tokenizer turns text into token numbers. For any text, the numbers are the same as from Hugging Face's
// tokenizers with a tokenizer.json, or from tiktoken with a rank file.
//
// A file with unknown settings is refused when it is loaded, with an error of one line. Special tokens around a text,
// truncation and padding in a tokenizer.json are ignored: they concern the input of a model, and this package is
// about data.
package tokenizer

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"strings"
	"sync"
	"unicode/utf8"
)

// MaxFile is the largest file of a tokenizer.
const MaxFile = 512 << 20

// Tokenizer turns text into tokens. It is safe for concurrent use.
type Tokenizer struct {
	// name is the name of the file, for messages.
	name  string
	model model
	// normalize changes text before it is cut, nil for not at all.
	normalize []normalizer
	// cut passes the words of a text to the model.
	cut sink
	// added are tokens that are found in text before anything else, normalized ones those
	// that are found in text that was normalized.
	added, normalized *finder
	// special are the special tokens, by their text.
	special map[string]uint32
	size    int
	stages  int // of cut, which have scratch
	works   sync.Pool
}

// work is the scratch of one text.
type work struct {
	out []uint32
	// of stages that cut, by their number
	buffers [][]byte
	parts   [][]part
	normal  [2][]byte
	matches [2][]match
	// of models
	cache   map[string]span
	cached  []uint32
	symbols []uint32
	merges  []merge
	heap    []candidate
	left    []int32
	right   []int32
	text    []byte
	best    []best
	spans   []span
	unknown bool
}

// Options supply settings that a file does not have. Nil means no settings.
type Options struct {
	// Encoding is the name of tiktoken's encoding, such as cl100k_base, for files whose names do not contain it.
	Encoding string
}

// Load reads a tokenizer.json, or a file of ranks of tiktoken.
func Load(name string, opt *Options) (*Tokenizer, error) {
	f, err := os.Stat(name)
	if err == nil && f.Size() > MaxFile {
		err = fmt.Errorf("it has %d bytes, a tokenizer has at most %d", f.Size(), MaxFile)
	}
	var b []byte
	if err == nil {
		b, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, fmt.Errorf("the tokenizer %s: %w", name, err)
	}
	t, err := Parse(b, name, opt)
	if err != nil {
		return nil, fmt.Errorf("the tokenizer %s: %w", name, err)
	}
	return t, nil
}

// Parse makes a tokenizer from the content of a file. The file's name may identify the encoding of tiktoken.
func Parse(b []byte, name string, opt *Options) (*Tokenizer, error) {
	var o Options
	if opt != nil {
		o = *opt
	}
	t := &Tokenizer{name: name}
	var err error
	if head := bytes.TrimLeft(b, " \t\r\n\ufeff"); len(head) > 0 && head[0] == '{' {
		if o.Encoding != "" {
			return nil, fmt.Errorf("it is a tokenizer.json, which has no encoding %q", o.Encoding)
		}
		err = t.parseJSON(b)
	} else {
		if o.Encoding == "" {
			o.Encoding = strings.TrimSuffix(path.Base(name), ".tiktoken")
		}
		err = t.parseRanks(b, o.Encoding)
	}
	if err != nil {
		return nil, err
	}
	t.size = max(t.size, t.model.vocabulary())
	t.works.New = func() any {
		return &work{
			buffers: make([][]byte, t.stages), parts: make([][]part, t.stages), cache: map[string]span{}, cached: make([]uint32, 0, cacheTokens),
		}
	}
	return t, nil
}

// Vocabulary returns the largest token plus one.
func (t *Tokenizer) Vocabulary() int { return t.size }

// Special returns the special token of a text, such as <|endoftext|>.
func (t *Tokenizer) Special(text string) (uint32, bool) {
	id, ok := t.special[text]
	return id, ok
}

// ends are names of the token that ends a document, the most likely first.
var ends = []string{
	"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "<｜end▁of▁sentence｜>", "<|endofdocument|>", "<EOS>", "[EOS]", "[SEP]",
}

// End returns the token that ends documents, if one with a known name exists.
func (t *Tokenizer) End() (text string, id uint32, ok bool) {
	for _, text := range ends {
		if id, ok := t.special[text]; ok {
			return text, id, true
		}
	}
	return "", 0, false
}

// Append appends the tokens of a text. Invalid UTF-8 in it counts as U+FFFD.
func (t *Tokenizer) Append(to []uint32, text []byte) []uint32 {
	if len(text) == 0 {
		return to
	}
	if !utf8.Valid(text) {
		text = bytes.ToValidUTF8(text, []byte("\uFFFD"))
	}
	w := t.works.Get().(*work)
	w.out = to
	t.split(w, text)
	out := w.out
	w.out = nil
	t.works.Put(w)
	return out
}

// split finds added tokens and passes on the text between them.
func (t *Tokenizer) split(w *work, text []byte) {
	each(w, 0, t.added, text, func(piece []byte, at int) {
		if len(t.normalize) > 0 {
			var cut bool
			if piece, cut = w.normalized(piece, t.normalize); cut {
				at++
			}
		}
		each(w, 1, t.normalized, piece, func(piece []byte, from int) {
			if len(piece) > 0 {
				t.cut(w, piece, at+from == 0)
			}
		})
	})
}

// each calls f with the text between added tokens, and appends these tokens.
func each(w *work, n int, of *finder, text []byte, f func(piece []byte, at int)) {
	if of == nil {
		f(text, 0)
		return
	}
	found := of.find(w.matches[n][:0], text)
	w.matches[n] = found
	at := 0
	for i := range found {
		m := found[i]
		if m.from > at {
			f(text[at:m.from], at)
		}
		w.out = append(w.out, m.token)
		at = m.to
	}
	if at < len(text) {
		f(text[at:], at)
	}
}
