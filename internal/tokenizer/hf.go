package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// A tokenizer.json of Hugging Face: the steps of processing a text, in order.

type file struct {
	Added        []addedJSON `json:"added_tokens"`
	Normalizer   *component  `json:"normalizer"`
	PreTokenizer *component  `json:"pre_tokenizer"`
	Model        *modelJSON  `json:"model"`
}

type addedJSON struct {
	ID         uint32 `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// component is a normalizer or a pre-tokenizer, with the fields of all kinds.
type component struct {
	Type          string       `json:"type"`
	Normalizers   []component  `json:"normalizers"`
	Pretokenizers []component  `json:"pretokenizers"`
	Pattern       *patternJSON `json:"pattern"`
	Content       *string      `json:"content"`
	Prepend       string       `json:"prepend"`
	StripLeft     bool         `json:"strip_left"`
	StripRight    bool         `json:"strip_right"`

	CleanText          *bool `json:"clean_text"`
	HandleChineseChars *bool `json:"handle_chinese_chars"`
	StripAccents       *bool `json:"strip_accents"`
	Lowercase          *bool `json:"lowercase"`

	AddPrefixSpace *bool   `json:"add_prefix_space"`
	UseRegex       *bool   `json:"use_regex"`
	Behavior       string  `json:"behavior"`
	Invert         bool    `json:"invert"`
	Replacement    string  `json:"replacement"`
	PrependScheme  string  `json:"prepend_scheme"`
	Split          *bool   `json:"split"`
	Individual     bool    `json:"individual_digits"`
	Delimiter      string  `json:"delimiter"`
	Charsmap       *string `json:"precompiled_charsmap"`
}

type patternJSON struct {
	String *string `json:"String"`
	Regex  *string `json:"Regex"`
}

type modelJSON struct {
	Type    string            `json:"type"`
	Vocab   json.RawMessage   `json:"vocab"`
	Merges  []json.RawMessage `json:"merges"`
	Dropout *float64          `json:"dropout"`
	Unk     *string           `json:"unk_token"`
	UnkID   *uint32           `json:"unk_id"`
	Fuse    bool              `json:"fuse_unk"`
	Bytes   bool              `json:"byte_fallback"`
	Ignore  bool              `json:"ignore_merges"`
	Prefix  *string           `json:"continuing_subword_prefix"`
	Suffix  *string           `json:"end_of_word_suffix"`
	Longest *int              `json:"max_input_chars_per_word"`
}

// gpt2 is the pattern of GPT-2.
const gpt2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// maxTokens limits the number of tokens.
const maxTokens = 1 << 28

// parseJSON reads a tokenizer.json.
func (t *Tokenizer) parseJSON(b []byte) error {
	var f file
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(b, []byte("\xEF\xBB\xBF"))))
	if err := d.Decode(&f); err != nil {
		return fmt.Errorf("it is not a tokenizer.json: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("it is not a tokenizer.json: there is something after the closing brace")
	}
	if f.Model == nil {
		return errors.New("it is not a tokenizer.json: it has no model")
	}
	if f.Normalizer != nil {
		if err := t.normalizer(f.Normalizer); err != nil {
			return err
		}
	}
	end := sink(func(w *work, piece []byte, _ bool) { w.out = t.model.append(w.out, piece, w) })
	bytesOf := false
	t.cut = end
	if f.PreTokenizer != nil {
		var err error
		if t.cut, bytesOf, err = t.preTokenizer(f.PreTokenizer, end, true); err != nil {
			return err
		}
	}
	if err := t.parseModel(f.Model, bytesOf); err != nil {
		return err
	}
	return t.parseAdded(f.Added)
}

func (t *Tokenizer) parseAdded(all []addedJSON) error {
	t.special = map[string]uint32{}
	var added, normalized []addedToken
	for i, a := range all {
		if a.Content == "" {
			continue
		}
		if a.ID >= maxTokens {
			return fmt.Errorf("added token %d has the number %d", i, a.ID)
		}
		t.size = max(t.size, int(a.ID)+1)
		if a.Special {
			t.special[a.Content] = a.ID
		}
		one := addedToken{a.Content, a.ID, a.SingleWord, a.LStrip, a.RStrip}
		if !a.Normalized {
			added = append(added, one)
			continue
		}
		if len(t.normalize) > 0 {
			w := &work{}
			text, _ := w.normalized([]byte(one.text), t.normalize)
			one.text = string(text)
		}
		if one.text != "" {
			normalized = append(normalized, one)
		}
	}
	t.added, t.normalized = newFinder(added), newFinder(normalized)
	return nil
}

func is(b *bool, otherwise bool) bool {
	if b == nil {
		return otherwise
	}
	return *b
}

// find makes a cutter of a pattern.
func (p *patternJSON) find(what string) (cutter, error) {
	switch {
	case p == nil || p.String == nil && p.Regex == nil:
		return nil, fmt.Errorf("its %s has no pattern", what)
	case p.String != nil && *p.String == "":
		return nil, fmt.Errorf("its %s has an empty pattern", what)
	case p.String != nil:
		return literal(*p.String), nil
	}
	return known(*p.Regex, oniguruma)
}

func (t *Tokenizer) normalizer(c *component) error {
	add := func(n normalizer) { t.normalize = append(t.normalize, n) }
	switch c.Type {
	case "Sequence":
		for i := range c.Normalizers {
			if err := t.normalizer(&c.Normalizers[i]); err != nil {
				return err
			}
		}
	case "NFC":
		add(form(norm.NFC))
	case "NFD":
		add(form(norm.NFD))
	case "NFKC":
		add(form(norm.NFKC))
	case "NFKD":
		add(form(norm.NFKD))
	case "Lowercase":
		add(lower)
	case "StripAccents":
		add(without(isMark))
	case "Strip":
		add(strip(c.StripLeft, c.StripRight))
	case "Prepend":
		add(prepend(c.Prepend))
	case "Replace":
		find, err := c.Pattern.find("normalizer Replace")
		if err != nil {
			return err
		}
		content := ""
		if c.Content != nil {
			content = *c.Content
		}
		add(replace(find, content))
	case "BertNormalizer":
		if is(c.CleanText, true) {
			add(clean)
		}
		if is(c.HandleChineseChars, true) {
			add(apart)
		}
		if is(c.StripAccents, is(c.Lowercase, true)) {
			add(form(norm.NFD))
			add(without(isNonspacing))
		}
		if is(c.Lowercase, true) {
			add(lower)
		}
	case "Precompiled":
		if c.Charsmap != nil && *c.Charsmap != "" {
			return errors.New("its normalizer Precompiled, a table of SentencePiece, is not supported: tokenise with the library itself and pack the numbers (.npy, .bin, Arrow)")
		}
	default:
		return fmt.Errorf("its normalizer %q is not supported: there are Sequence, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend, Replace and BertNormalizer", c.Type)
	}
	return nil
}

// preTokenizer makes the stage of a pre-tokenizer. bytesOf reports whether its output is bytes. last is true if no
// stage follows, which ByteLevel requires.
func (t *Tokenizer) preTokenizer(c *component, next sink, last bool) (s sink, bytesOf bool, err error) {
	switch c.Type {
	case "Sequence":
		s = next
		for i := len(c.Pretokenizers) - 1; i >= 0; i-- {
			var b bool
			if s, b, err = t.preTokenizer(&c.Pretokenizers[i], s, last && i == len(c.Pretokenizers)-1); err != nil {
				return nil, false, err
			}
			bytesOf = bytesOf || b
		}
		return s, bytesOf, nil
	case "ByteLevel":
		if !last {
			return nil, false, errors.New("its pre-tokenizer ByteLevel is followed by others, which is not supported")
		}
		s = next
		if is(c.UseRegex, true) {
			find, err := known(gpt2, oniguruma)
			if err != nil {
				return nil, false, err
			}
			s = t.splitting(find, isolated, false, s)
		}
		if is(c.AddPrefixSpace, true) {
			s = t.spaced(s)
		}
		return s, true, nil
	case "Split":
		find, err := c.Pattern.find("pre-tokenizer Split")
		if err != nil {
			return nil, false, err
		}
		if !slices.Contains(behaviors, c.Behavior) {
			return nil, false, fmt.Errorf("its pre-tokenizer Split has the behavior %q; known are %s", c.Behavior, strings.Join(behaviors, ", "))
		}
		return t.splitting(find, c.Behavior, c.Invert, next), false, nil
	case "Whitespace":
		find, err := known(`\w+|[^\w\s]+`, fancy)
		return t.splitting(find, removed, true, next), false, err
	case "WhitespaceSplit":
		return t.splitting(runes(isSpace), removed, false, next), false, nil
	case "BertPreTokenizer":
		return t.splitting(runes(isSpace), removed, false, t.splitting(runes(isPunctuation), isolated, false, next)), false, nil
	case "Punctuation":
		behavior := c.Behavior
		if behavior == "" {
			behavior = isolated
		}
		if !slices.Contains(behaviors, behavior) {
			return nil, false, fmt.Errorf("its pre-tokenizer Punctuation has the behavior %q; known are %s", behavior, strings.Join(behaviors, ", "))
		}
		return t.splitting(runes(isPunctuation), behavior, false, next), false, nil
	case "Digits":
		behavior := contiguous
		if c.Individual {
			behavior = isolated
		}
		return t.splitting(runes(isNumeric), behavior, false, next), false, nil
	case "CharDelimiterSplit":
		if c.Delimiter == "" {
			return nil, false, errors.New("its pre-tokenizer CharDelimiterSplit has no delimiter")
		}
		return t.splitting(literal(c.Delimiter), removed, false, next), false, nil
	case "Metaspace":
		if c.Replacement == "" {
			return nil, false, errors.New("its pre-tokenizer Metaspace has no replacement")
		}
		scheme := c.PrependScheme
		if scheme == "" {
			scheme = map[bool]string{true: "always", false: "never"}[is(c.AddPrefixSpace, true)]
		}
		if !slices.Contains([]string{"always", "first", "never"}, scheme) {
			return nil, false, fmt.Errorf("its pre-tokenizer Metaspace has the scheme %q; known are always, first and never", scheme)
		}
		if is(c.Split, true) {
			next = t.splitting(literal(c.Replacement), withNext, false, next)
		}
		return t.meta(c.Replacement, scheme == "always", scheme == "first", next), false, nil
	}
	return nil, false, fmt.Errorf("its pre-tokenizer %q is not supported: there are Sequence, ByteLevel, Split, Whitespace, WhitespaceSplit, BertPreTokenizer, Punctuation, Digits, CharDelimiterSplit and Metaspace", c.Type)
}

// parseModel reads the model. bytesOf is true if its words are bytes.
func (t *Tokenizer) parseModel(m *modelJSON, bytesOf bool) error {
	kind := m.Type
	if kind == "" && len(m.Merges) > 0 {
		kind = "BPE" // of old files
	}
	if kind == "Unigram" {
		return t.parseUnigram(m, bytesOf)
	}
	var vocab map[string]uint32
	if err := json.Unmarshal(m.Vocab, &vocab); err != nil {
		return fmt.Errorf("its vocabulary: %w", err)
	}
	size := 0
	for text, id := range vocab {
		if id >= maxTokens {
			return fmt.Errorf("its token %q has the number %d", text, id)
		}
		size = max(size, int(id)+1)
	}
	unknown := uint32(none)
	if m.Unk != nil {
		id, ok := vocab[*m.Unk]
		if !ok && kind != "WordLevel" {
			return fmt.Errorf("its token for what is unknown, %q, is not in its vocabulary", *m.Unk)
		}
		if ok {
			unknown = id
		}
	}
	switch kind {
	case "BPE":
		return t.parseBPE(m, vocab, size, unknown, bytesOf)
	case "WordPiece":
		w := &wordPiece{vocab: vocab, size: size, unknown: unknown, prefix: "##", longest: 100}
		if m.Prefix != nil {
			w.prefix = *m.Prefix
		}
		if m.Longest != nil {
			w.longest = *m.Longest
		}
		if unknown == none {
			return errors.New("its model WordPiece has no token for what is unknown")
		}
		t.model = w
	case "WordLevel":
		t.model = &wordLevel{vocab, size, unknown}
	default:
		return fmt.Errorf("its model %q is not supported: there are BPE, WordPiece, WordLevel and Unigram", m.Type)
	}
	if bytesOf {
		return fmt.Errorf("its pre-tokenizer ByteLevel with the model %s is not supported", kind)
	}
	return nil
}

// fallbacks returns the tokens <0x00> to <0xFF>, nil if one of them is missing.
func fallbacks(vocab map[string]uint32) *[256]uint32 {
	f := new([256]uint32)
	for b := range f {
		id, ok := vocab[fmt.Sprintf("<0x%02X>", b)]
		if !ok {
			return nil
		}
		f[b] = id
	}
	return f
}

func (t *Tokenizer) parseBPE(m *modelJSON, vocab map[string]uint32, size int, unknown uint32, bytesOf bool) error {
	if m.Dropout != nil && *m.Dropout > 0 {
		return fmt.Errorf("its model drops merges at random (dropout %g): tokens would be others each time", *m.Dropout)
	}
	b := &bpe{vocab: vocab, size: size, unknown: unknown, fuse: m.Fuse, whole: m.Ignore}
	if m.Prefix != nil {
		b.prefix = *m.Prefix
	}
	if m.Suffix != nil {
		b.suffix = *m.Suffix
	}
	if m.Bytes {
		if b.fallback = fallbacks(vocab); b.fallback == nil {
			return errors.New("its model falls back on bytes, and not all of <0x00> to <0xFF> are in its vocabulary")
		}
	}
	if b.prefix != "" && bytesOf || b.suffix != "" && bytesOf || bytesOf && b.fallback != nil {
		return errors.New("its model has a prefix, a suffix or a fall back on bytes together with the pre-tokenizer ByteLevel, which is not supported")
	}
	b.pairs = newPairs(len(m.Merges))
	for rank, raw := range m.Merges {
		left, right, err := mergeOf(raw)
		if err != nil {
			return fmt.Errorf("its merge %d: %w", rank, err)
		}
		x, okX := vocab[left]
		y, okY := vocab[right]
		z, okZ := uint32(0), false
		if len(right) >= len(b.prefix) {
			z, okZ = vocab[left+right[len(b.prefix):]]
		}
		if !okX || !okY || !okZ {
			return fmt.Errorf("its merge %d, of %q and %q: these or what they become are not in its vocabulary", rank, left, right)
		}
		b.pairs.set(x, y, merge{uint32(rank), z})
	}
	if bytesOf {
		// Words are bytes here, and not the signs that they are written as.
		b.vocab = make(map[string]uint32, len(vocab))
		for text, id := range vocab {
			if raw, ok := unwritten(text); ok {
				b.vocab[raw] = id
			}
		}
		b.symbols = byteSymbols(b.vocab)
		if unknown != none {
			return t.unknownBytes(b)
		}
	}
	t.model = b
	return nil
}

// unknownBytes refuses byte vocabularies in which some bytes are missing and would become the unknown token.
func (t *Tokenizer) unknownBytes(b *bpe) error {
	for i, id := range b.symbols {
		if id == none {
			if b.fuse {
				return fmt.Errorf("its vocabulary has no token for the byte %#x, which is not supported together with fuse_unk", i)
			}
			b.symbols[i] = b.unknown
		}
	}
	t.model = b
	return nil
}

// mergeOf reads a merge: two texts, in a list or with a blank between them.
func mergeOf(raw json.RawMessage) (left, right string, err error) {
	var two []string
	if len(raw) > 0 && raw[0] == '[' {
		if err := json.Unmarshal(raw, &two); err != nil {
			return "", "", err
		}
	} else {
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return "", "", err
		}
		two = strings.Split(text, " ")
	}
	if len(two) != 2 {
		return "", "", fmt.Errorf("it is of %d texts and not of two", len(two))
	}
	return two[0], two[1], nil
}

func (t *Tokenizer) parseUnigram(m *modelJSON, bytesOf bool) error {
	var rows [][2]json.RawMessage
	if err := json.Unmarshal(m.Vocab, &rows); err != nil {
		return fmt.Errorf("its vocabulary: %w", err)
	}
	u := &unigram{vocab: make(map[string]uint32, len(rows)), scores: make([]float64, len(rows))}
	least := 0.0
	for i, row := range rows {
		var text string
		if err := errors.Join(json.Unmarshal(row[0], &text), json.Unmarshal(row[1], &u.scores[i])); err != nil {
			return fmt.Errorf("its token %d: %w", i, err)
		}
		u.vocab[text] = uint32(i)
		u.longest = max(u.longest, len(text))
		if i == 0 || u.scores[i] < least {
			least = u.scores[i]
		}
	}
	u.penalty = least - 10
	if m.UnkID == nil || int(*m.UnkID) >= len(rows) {
		return errors.New("its model Unigram has no token for what is unknown (unk_id)")
	}
	u.unknown = *m.UnkID
	if m.Bytes {
		u.fallback = fallbacks(u.vocab)
	}
	if bytesOf {
		return errors.New("its pre-tokenizer ByteLevel with the model Unigram is not supported")
	}
	t.model = u
	return nil
}

// signs are the characters that ByteLevel writes for bytes: printable characters of Latin-1 for themselves,
// characters from U+0100 for the others.
var signs, unsigned = func() (signs [256]rune, back map[rune]byte) {
	back = map[rune]byte{}
	n := rune(0)
	for b := range rune(256) {
		if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE && b <= 0xFF {
			signs[b] = b
		} else {
			signs[b] = 0x100 + n
			n++
		}
		back[signs[b]] = byte(b)
	}
	return signs, back
}()

// unwritten returns the bytes that a text represents, false if it represents none.
func unwritten(text string) (string, bool) {
	b := make([]byte, 0, len(text))
	for _, r := range text {
		c, ok := unsigned[r]
		if !ok {
			return "", false
		}
		b = append(b, c)
	}
	return string(b), true
}
