package tokenizer

import (
	"unicode/utf8"
)

// wordPiece takes the longest token at the start of a word, then repeatedly the longest one at the start of the rest,
// with a prefix.
type wordPiece struct {
	vocab   map[string]uint32
	size    int
	unknown uint32
	prefix  string
	longest int // characters of a word; longer ones are unknown
}

func (m *wordPiece) vocabulary() int { return m.size }

func (m *wordPiece) append(to []uint32, word []byte, w *work) []uint32 {
	before := len(to)
	if utf8.RuneCount(word) > m.longest {
		return append(to, m.unknown)
	}
	for from := 0; from < len(word); {
		end, id := len(word), uint32(none)
		for ; end > from; end = lastRune(word, from, end) {
			c := word[from:end]
			if from > 0 {
				w.text = append(append(w.text[:0], m.prefix...), c...)
				c = w.text
			}
			if t, ok := m.vocab[string(c)]; ok {
				id = t
				break
			}
		}
		if id == none {
			return append(to[:before], m.unknown)
		}
		to = append(to, id)
		from = end
	}
	return to
}

// lastRune returns the position of the last character of b[from:end].
func lastRune(b []byte, from, end int) int {
	_, n := utf8.DecodeLastRune(b[from:end])
	return end - n
}

// wordLevel looks up unmodified words.
type wordLevel struct {
	vocab   map[string]uint32
	size    int
	unknown uint32
}

func (m *wordLevel) vocabulary() int { return m.size }

func (m *wordLevel) append(to []uint32, word []byte, _ *work) []uint32 {
	if id, ok := m.vocab[string(word)]; ok {
		return append(to, id)
	}
	if m.unknown == none {
		return to
	}
	return append(to, m.unknown)
}

// unigram chooses the tokens of a word whose probabilities have the largest product
// (Viterbi), over scores that are logarithms.
type unigram struct {
	vocab    map[string]uint32
	scores   []float64
	longest  int // bytes of a token
	unknown  uint32
	penalty  float64 // score of an unknown character
	fallback *[256]uint32
}

func (m *unigram) vocabulary() int { return len(m.scores) }

// best is the best path to a position of the word.
type best struct {
	score float64
	from  int // -1 if there is none
	token uint32
}

func (m *unigram) append(to []uint32, word []byte, w *work) []uint32 {
	if cap(w.best) < len(word)+1 {
		w.best = make([]best, len(word)+1)
	}
	way := w.best[:len(word)+1]
	for i := range way {
		way[i] = best{from: -1}
	}
	for at := 0; at < len(word); {
		_, n := utf8.DecodeRune(word[at:])
		till, single := way[at].score, false
		take := func(end int, token uint32, score float64) {
			if b := &way[end]; b.from < 0 || till+score > b.score {
				*b = best{till + score, at, token}
			}
		}
		for end := at + 1; end <= min(len(word), at+m.longest); end++ {
			if end < len(word) && !utf8.RuneStart(word[end]) {
				continue
			}
			if id, ok := m.vocab[string(word[at:end])]; ok {
				take(end, id, m.scores[id])
				single = single || end == at+n
			}
		}
		if !single {
			take(at+n, m.unknown, m.penalty)
		}
		at += n
	}
	// Backwards, then turned around; unknown ones next to each other are one.
	w.spans = w.spans[:0]
	for end := len(word); end > 0; end = way[end].from {
		s := span{way[end].from, end}
		if k := len(w.spans) - 1; k >= 0 && way[end].token == m.unknown && w.unknown {
			w.spans[k].from = s.from
		} else {
			w.spans = append(w.spans, s)
		}
		w.unknown = way[end].token == m.unknown
	}
	w.unknown = false
	for i := len(w.spans) - 1; i >= 0; i-- {
		c := word[w.spans[i].from:w.spans[i].to]
		switch id, ok := m.vocab[string(c)]; {
		case ok:
			to = append(to, id)
		case m.fallback != nil:
			for _, b := range c {
				to = append(to, m.fallback[b])
			}
		default:
			to = append(to, m.unknown)
		}
	}
	return to
}
