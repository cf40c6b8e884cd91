package tokenizer

import (
	"bytes"
	"slices"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// normalizer appends the normalized text to to. cut reports whether nothing is left of the first character. The rest
// then does not count as the beginning of a text.
type normalizer func(to, text []byte) (out []byte, cut bool)

// normalized runs all normalizers, in memory of w.
func (w *work) normalized(text []byte, all []normalizer) (out []byte, cut bool) {
	for i, f := range all {
		b := &w.normal[i&1]
		var headless bool
		*b, headless = f((*b)[:0], text)
		text, cut = *b, cut || headless
	}
	return text, cut
}

func form(f norm.Form) normalizer {
	return func(to, text []byte) ([]byte, bool) {
		if manyMarks(text) {
			return formed(to, text, f), false
		}
		return f.Append(to, text...), false
	}
}

// mostMarks is far below the 30 marks in a row from which on package norm inserts a
// character that breaks them up, as streams need it and texts here do not.
const mostMarks = 10

// manyMarks reports whether a text has many marks in a row.
func manyMarks(text []byte) bool {
	row := 0
	for at := 0; at < len(text); {
		if text[at] < 0xCC { // the first mark is U+0300
			row = 0
			at++
			continue
		}
		p := norm.NFD.Properties(text[at:])
		at += max(p.Size(), 1)
		if row++; p.CCC() == 0 {
			row = 0
		}
		if row > mostMarks {
			return true
		}
	}
	return false
}

// formed returns the normal form of a text with many marks, by Unicode's algorithm.
func formed(to, text []byte, f norm.Form) []byte {
	apart := norm.NFD
	if f == norm.NFKC || f == norm.NFKD {
		apart = norm.NFKD
	}
	var all []rune
	for _, r := range string(text) {
		all = append(all, []rune(apart.String(string(r)))...)
	}
	class := func(r rune) uint8 { return norm.NFD.PropertiesString(string(r)).CCC() }
	for i := 0; i < len(all); i++ { // marks in a row, in the order of their classes
		from := i
		for i < len(all) && class(all[i]) != 0 {
			i++
		}
		slices.SortStableFunc(all[from:i], func(a, b rune) int { return int(class(a)) - int(class(b)) })
	}
	if f == norm.NFC || f == norm.NFKC {
		all = composed(all, class)
	}
	return append(to, string(all)...)
}

// composed merges marks with the characters before them.
func composed(all []rune, class func(rune) uint8) []rune {
	out := all[:0]
	starter, last := -1, uint8(0)
	for _, r := range all {
		c := class(r)
		if starter >= 0 && (starter == len(out)-1 || last < c && last != 0) {
			if one := []rune(norm.NFC.String(string(out[starter]) + string(r))); len(one) == 1 {
				out[starter] = one[0]
				continue
			}
		}
		if last = c; c == 0 {
			starter = len(out)
		}
		out = append(out, r)
	}
	return out
}

// mapped appends the result of f for each character.
func mapped(f func(to []byte, r rune) []byte) normalizer {
	return func(to, text []byte) ([]byte, bool) {
		cut := false
		for at := 0; at < len(text); {
			r, n := utf8.DecodeRune(text[at:])
			to = f(to, r)
			if at == 0 {
				cut = len(to) == 0
			}
			at += n
		}
		return to, cut
	}
}

var lower = mapped(func(to []byte, r rune) []byte {
	if r == 'İ' { // the only one that becomes two
		return append(to, "i\u0307"...)
	}
	return utf8.AppendRune(to, unicode.ToLower(r))
})

// without removes characters.
func without(is func(r rune) bool) normalizer {
	return mapped(func(to []byte, r rune) []byte {
		if is(r) {
			return to
		}
		return utf8.AppendRune(to, r)
	})
}

// The library's tables of marks and punctuation are from an old Unicode version. A few characters have a different
// category today, and this function uses the old one. It does not distinguish characters that were added to Unicode
// since.

func isMark(r rune) bool {
	return unicode.Is(unicode.M, r) || r == 0x1CF2 || r == 0x1CF3
}

func isNonspacing(r rune) bool { return unicode.Is(unicode.Mn, r) || r == 0x1734 }

func isBertControl(r rune) bool {
	return r != '\t' && r != '\n' && r != '\r' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co)
}

// clean is the first step of BERT.
var clean = mapped(func(to []byte, r rune) []byte {
	switch {
	case r == 0 || r == 0xFFFD || isBertControl(r):
		return to
	case isSpace(r):
		return append(to, ' ')
	}
	return utf8.AppendRune(to, r)
})

// isChinese reports whether BERT treats r as a Chinese character.
func isChinese(r rune) bool {
	for _, of := range [][2]rune{
		{0x4E00, 0x9FFF}, {0x3400, 0x4DBF}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF}, {0x2F800, 0x2FA1F},
	} {
		if r >= of[0] && r <= of[1] {
			return true
		}
	}
	return false
}

// apart puts blanks around characters of Chinese.
var apart = mapped(func(to []byte, r rune) []byte {
	if isChinese(r) {
		return append(utf8.AppendRune(append(to, ' '), r), ' ')
	}
	return utf8.AppendRune(to, r)
})

// replace replaces matches by content.
func replace(find cutter, content string) normalizer {
	return func(to, text []byte) ([]byte, bool) {
		at, cut := 0, false
		for at < len(text) {
			from, end := find(text, at)
			if from < 0 {
				break
			}
			cut = cut || from == 0 && content == ""
			to = append(append(to, text[at:from]...), content...)
			at = end
		}
		return append(to, text[at:]...), cut
	}
}

// prepend adds a text at the start of one that is not empty.
func prepend(s string) normalizer {
	return func(to, text []byte) ([]byte, bool) {
		if len(text) == 0 {
			return to, false
		}
		return append(append(to, s...), text...), false
	}
}

// strip takes white space off the ends.
func strip(left, right bool) normalizer {
	return func(to, text []byte) ([]byte, bool) {
		had := len(text)
		if left {
			text = bytes.TrimLeftFunc(text, isSpace)
		}
		cut := len(text) < had
		if right {
			text = bytes.TrimRightFunc(text, isSpace)
		}
		return append(to, text...), cut
	}
}
