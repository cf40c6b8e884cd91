package tokenizer

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// sink takes a piece of text. first is true if the piece begins where the text begins.
type sink func(w *work, piece []byte, first bool)

// part is a piece of a text, and whether it is one that was looked for.
type part struct {
	from, to int
	is       bool
}

// The ways to treat matches.
const (
	removed    = "Removed"
	isolated   = "Isolated"
	contiguous = "Contiguous"
	withBefore = "MergedWithPrevious"
	withNext   = "MergedWithNext"
)

var behaviors = []string{removed, isolated, contiguous, withBefore, withNext}

// cutter finds the next piece of a text that is looked for, or -1.
type cutter func(text []byte, at int) (from, to int)

// splitting makes a stage that cuts pieces. invert matches the text between the matches.
func (t *Tokenizer) splitting(find cutter, behavior string, invert bool, next sink) sink {
	if behavior == isolated {
		return func(w *work, piece []byte, first bool) {
			for at := 0; at < len(piece); {
				from, to := find(piece, at)
				if from < 0 {
					from, to = len(piece), len(piece)
				}
				if from > at {
					next(w, piece[at:from], first && at == 0)
				}
				if to > from {
					next(w, piece[from:to], first && from == 0)
				}
				at = to
			}
		}
	}
	n := t.stages
	t.stages++
	return func(w *work, piece []byte, first bool) {
		parts := w.parts[n][:0]
		for at := 0; at < len(piece); {
			from, to := find(piece, at)
			if from < 0 {
				from, to = len(piece), len(piece)
			}
			if from > at {
				parts = append(parts, part{at, from, invert})
			}
			if to > from {
				parts = append(parts, part{from, to, !invert})
			}
			at = to
		}
		parts = join(parts, behavior)
		w.parts[n] = parts
		for i := range parts {
			p := parts[i]
			if behavior != removed || !p.is {
				next(w, piece[p.from:p.to], first && p.from == 0)
			}
		}
	}
}

// join puts parts together.
func join(parts []part, behavior string) []part {
	out := parts[:0]
	switch behavior {
	case contiguous:
		for _, p := range parts {
			if k := len(out) - 1; k >= 0 && out[k].is == p.is {
				out[k].to = p.to
			} else {
				out = append(out, p)
			}
		}
		return out
	case withBefore:
		before := false
		for _, p := range parts {
			if k := len(out) - 1; p.is && !before && k >= 0 {
				out[k].to = p.to
			} else {
				out = append(out, p)
			}
			before = p.is
		}
		return out
	case withNext:
		// The same from the end.
		after, at := false, len(parts)
		for i := len(parts) - 1; i >= 0; i-- {
			p := parts[i]
			if p.is && !after && at < len(parts) {
				parts[at].from = p.from
			} else {
				at--
				parts[at] = p
			}
			after = p.is
		}
		return parts[at:]
	}
	return parts
}

// runes finds single characters.
func runes(is func(r rune) bool) cutter {
	return func(text []byte, at int) (from, to int) {
		for at < len(text) {
			r, n := utf8.DecodeRune(text[at:])
			if is(r) {
				return at, at + n
			}
			at += n
		}
		return -1, -1
	}
}

// literal finds a text.
func literal(s string) cutter {
	what := []byte(s)
	return func(text []byte, at int) (from, to int) {
		i := bytes.Index(text[at:], what)
		if i < 0 {
			return -1, -1
		}
		return at + i, at + i + len(what)
	}
}

// isPunctuation reports whether BERT treats r as punctuation.
func isPunctuation(r rune) bool {
	return r < 128 && (r > ' ' && r < '0' || r > '9' && r < 'A' || r > 'Z' && r < 'a' || r > 'z' && r < 127) || unicode.Is(unicode.P, r) ||
		r == 0x166D || r == 0x111C9
}

// isNumeric reports whether r is a number of any kind.
func isNumeric(r rune) bool { return unicode.Is(unicode.N, r) }

// spaced adds a blank at the start of pieces that do not begin with one.
func (t *Tokenizer) spaced(next sink) sink {
	n := t.stages
	t.stages++
	return func(w *work, piece []byte, first bool) {
		if piece[0] != ' ' {
			w.buffers[n] = append(append(w.buffers[n][:0], ' '), piece...)
			piece = w.buffers[n]
		}
		next(w, piece, first)
	}
}

// meta replaces blanks by a sign, and also adds the sign at the start of pieces: of all of them, or of the first one
// of a text.
func (t *Tokenizer) meta(sign string, always, first bool, next sink) sink {
	n := t.stages
	t.stages++
	return func(w *work, piece []byte, begins bool) {
		b := w.buffers[n][:0]
		if (always || first && begins) && piece[0] != ' ' && !bytes.HasPrefix(piece, []byte(sign)) {
			b = append(b, sign...)
		}
		for _, c := range piece {
			if c == ' ' {
				b = append(b, sign...)
			} else {
				b = append(b, c)
			}
		}
		w.buffers[n] = b
		next(w, b, begins)
	}
}
