package tokenizer

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// python/tests/test_tokenizers.py checks that the numbers equal those of the libraries. The tests here cover the
// rest.

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern string
		of      dialect
		text    string
		want    []string
	}{
		{`a+b|c`, oniguruma, "aab c b", []string{"aab", "c"}},
		{`\s+(?!\S)|\s+`, oniguruma, "x   y  ", []string{"  ", " ", "  "}},
		{`a{2,3}?`, oniguruma, "aaaaa", []string{"aa", "aa"}},
		{`a++a|b`, fancy, "aab", []string{"b"}},
		{`a{1,2}+`, fancy, "aaa", []string{"aa", "a"}},
		{`a{1,2}+`, oniguruma, "aaa", nil}, // a group that is repeated without an end: refused
		{`(?i:'s)`, fancy, "'S 'ſ 's", []string{"'S", "'ſ", "'s"}},
		{`(?i)K`, fancy, "kK\u212A", []string{"k", "K", "\u212A"}},
		{`[^\s\p{L}]`, oniguruma, "a 1é-", []string{"1", "-"}},
		{`[a-c[x-z]\d\-]+`, oniguruma, "ab-yz19q", []string{"ab-yz19"}},
		{`\p{^L}|\P{Lu}`, oniguruma, "aB", []string{"a"}},
		{`\x41\u0042\x{1F600}`, oniguruma, "AB😀", []string{"AB😀"}},
		{`(?=ab)a|b`, oniguruma, "ab ac", []string{"a", "b"}},
		{`^a|b$`, oniguruma, "a\nab\na", []string{"a", "a", "b", "a"}},
		{`^a|b$`, fancy, "a\nab\nab", []string{"a", "b"}},
		{`(?>a|ab)c`, oniguruma, "abc ac", []string{"ac"}},
		{`(?:ab){2}|a?`, oniguruma, "abab", []string{"abab"}},
		{`(?:a|b){1,2}?c`, oniguruma, "abc", []string{"abc"}},
		{`.`, oniguruma, "a\nб", []string{"a", "б"}},
		{`a{`, oniguruma, "a{", []string{"a{"}},
		{`(?:xy)*+z`, oniguruma, "xyxyz", []string{"xyxyz"}},
	} {
		r, err := compile(c.pattern, c.of)
		if err != nil {
			if c.want != nil {
				t.Error(err)
			}
			continue
		}
		var got []string
		for at := 0; ; {
			from, to := r.find([]byte(c.text), at)
			if from < 0 {
				break
			}
			got = append(got, c.text[from:to])
			at = to
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s in %q: %q, want %q", c.pattern, c.text, got, c.want)
		}
	}
	for pattern, want := range map[string]string{
		"(a": "a group has no end", "a)": "no group for )", "[a": "a class has no end", "*": "repeats nothing", `\p{Nope}`: "property", `[b-a]`: "range",
		"a{3,2}": "repeats 3 to 2", "(?<a>b)": "(?<", `\b`: `\b is not known`, "[a&&b]": "in common", "(a|b)*": "without an end", strings.Repeat("(", 200): "deep",
		"(((((a{900}){900}){900}){900}){900})": "too many times", `\x{FFFFFFF}`: "not a character", "[[:alpha:]]": "POSIX", `\`: "nothing after", "(?!a)*": "matches no characters",
	} {
		if _, err := compile(pattern, oniguruma); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.30s: %v, want %q", pattern, err, want)
		}
	}
}

// ranks returns a file of ranks with all bytes and a number of texts.
func ranks(texts ...string) []byte {
	var b strings.Builder
	n := 0
	add := func(text []byte) {
		fmt.Fprintf(&b, "%s %d\n", base64.StdEncoding.EncodeToString(text), n)
		n++
	}
	for c := range 256 {
		add([]byte{byte(c)})
	}
	for _, text := range texts {
		add([]byte(text))
	}
	return []byte(b.String())
}

func load(t testing.TB, texts ...string) *Tokenizer {
	t.Helper()
	tok, err := Parse(ranks(texts...), "cl100k_base.tiktoken", nil)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// Both merging algorithms give the same result.
func TestMerges(t *testing.T) {
	tok := load(t, "ab", "aa", "aba", "bb", "abab", "ba", "aab", "bba", "aaaa", "abba")
	m := tok.model.(*bpe)
	rng := rand.New(rand.NewPCG(1, 2))
	w := tok.works.Get().(*work)
	for n := range 400 {
		var s []uint32
		for range n {
			s = append(s, uint32('a'+rng.IntN(2)))
		}
		short := m.mergeShort(slices.Clone(s), w)
		long := m.mergeLong(slices.Clone(s), w)
		if !slices.Equal(short, long) {
			t.Fatalf("%v: %v and %v", s, short, long)
		}
	}
}

func TestTokens(t *testing.T) {
	tok := load(t, "he", "ll", "hell", "hello", " w", "or", "ld")
	if got, want := tok.Append(nil, []byte("hello world\xff")), []uint32{259, 260, 261, 262, 0xEF, 0xBF, 0xBD}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if id, ok := tok.Special("<|endoftext|>"); !ok || id != 100257 || tok.Vocabulary() != 100277 {
		t.Errorf("%d of %d", id, tok.Vocabulary())
	}
	for want, c := range map[string][2]string{
		`"x" is not an encoding of tiktoken`:     {string(ranks()), "x.tiktoken"},
		`line 2: "b 1" is not a token`:           {"YQ== 0\nb 1\n", "cl100k_base"},
		`it has no token for the byte 0x0`:       {"YQ== 0\n", "cl100k_base"},
		`it is not a tokenizer.json: unexpected`: {`{"model": `, ""},
		`after the closing brace`:                {`{} x`, ""},
		`it has no model`:                        {`{}`, ""},
		`its token "a" has the number 10000000`:  {`{"model": {"type": "WordLevel", "vocab": {"a": 1000000000}}}`, ""},
	} {
		if _, err := Parse([]byte(c[0]), c[1], nil); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A tokenizer is used by several goroutines at the same time.
func TestConcurrent(t *testing.T) {
	tok := load(t, "he", "ll", "hello")
	want := tok.Append(nil, []byte("hello hello hell"))
	done := make(chan bool)
	for range 4 {
		go func() {
			ok := true
			for range 200 {
				ok = ok && slices.Equal(tok.Append(nil, []byte("hello hello hell")), want)
			}
			done <- ok
		}()
	}
	for range 4 {
		if !<-done {
			t.Error("other tokens")
		}
	}
}

const small = `{"added_tokens": [{"id": 9, "content": "<x>", "special": true, "lstrip": true}, {"id": 8, "content": "Ab", "normalized": true}],
"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}, {"type": "Strip", "strip_left": true}]},
"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "\\s+|\\d"}, "behavior": "MergedWithNext"}, {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"}]},
"model": {"type": "BPE", "unk_token": "u", "vocab": {"u": 0, "a": 1, "b": 2, "ab": 3, "_": 4}, "merges": ["a b"]}}`

func FuzzParse(f *testing.F) {
	f.Add([]byte(small), "x Ab <x>12 ab\xff")
	f.Add([]byte(`{"pre_tokenizer": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}}`), "ab ab")
	f.Add([]byte(`{"normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"}, "model": {"type": "WordPiece", "unk_token": "u", "vocab": {"u": 0, "##a": 1}}}`), "ua.")
	f.Add([]byte(`{"model": {"type": "Unigram", "unk_id": 0, "vocab": [["u", 0], ["ab", -1.5]]}}`), "abab")
	f.Add(ranks("ab"), "abab")
	f.Fuzz(func(t *testing.T, b []byte, text string) {
		tok, err := Parse(b, "o200k_base", nil)
		if err != nil {
			if strings.Contains(err.Error(), "\n") || !utf8.ValidString(err.Error()) {
				t.Fatalf("%q", err)
			}
			return
		}
		for _, id := range tok.Append(nil, []byte(text)) {
			if int(id) >= tok.Vocabulary() {
				t.Fatalf("token %d of %d", id, tok.Vocabulary())
			}
		}
	})
}

func FuzzPattern(f *testing.F) {
	f.Add(gpt2, "it's 12 x\n ")
	f.Add(cl100, "It'S 1234 \r\n x")
	f.Add(o200, "HTTPServer's")
	f.Add(`(?i:a|[^b-d\s])+?(?>x)*+$`, "aAxx")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if len(pattern) > 60 || len(text) > 30 {
			return // one can always write a pattern that takes for ever
		}
		for _, of := range []dialect{oniguruma, fancy} {
			r, err := compile(pattern, of)
			if err != nil {
				continue
			}
			for at := 0; at >= 0; _, at = r.find([]byte(text), at) {
				if at > len(text) {
					t.Fatal(at)
				}
			}
		}
	})
}

func BenchmarkTokens(b *testing.B) {
	tok := load(b, "he", "th", "in", " t", "er", " a", "the", "ing", " the", "and", " and", "on", "en", "es", "ed")
	text := []byte(strings.Repeat("The quick brown fox jumps over the lazy dog, and it's 2026 now; nothing's the same as it was in the beginning.\n", 1000))
	b.SetBytes(int64(len(text)))
	var to []uint32
	for b.Loop() {
		to = tok.Append(to[:0], text)
	}
}
