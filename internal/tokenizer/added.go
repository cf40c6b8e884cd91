package tokenizer

import (
	"unicode/utf8"
)

// addedToken is a token that is matched literally in text.
type addedToken struct {
	text  string
	token uint32
	// word: only if no letters or digits are next to it.
	word bool
	// left and right: the adjacent white space belongs to it.
	left, right bool
}

// match is the position of an added token.
type match struct {
	from, to int
	token    uint32
}

// finder finds added tokens: the first one, and the longest of those that begin at the same position.
type finder struct {
	tokens []addedToken
	first  [256]bool
	nodes  []trieNode
}

// trieNode is a node of a tree by bytes.
type trieNode struct {
	next  map[byte]int32
	token int32 // among tokens, -1 for none
}

func newFinder(tokens []addedToken) *finder {
	if len(tokens) == 0 {
		return nil
	}
	f := &finder{tokens: tokens, nodes: []trieNode{{token: -1}}}
	for i, t := range tokens {
		at := int32(0)
		f.first[t.text[0]] = true
		for k := range len(t.text) {
			n := &f.nodes[at]
			if n.next == nil {
				n.next = map[byte]int32{}
			}
			to, ok := n.next[t.text[k]]
			if !ok {
				to = int32(len(f.nodes))
				n.next[t.text[k]] = to
				f.nodes = append(f.nodes, trieNode{token: -1})
			}
			at = to
		}
		f.nodes[at].token = int32(i)
	}
	return f
}

// longest returns the longest token that begins at a position, -1 for none.
func (f *finder) longest(text []byte, at int) (token int32, to int) {
	token = -1
	node := int32(0)
	for k := at; k < len(text); k++ {
		next, ok := f.nodes[node].next[text[k]]
		if !ok {
			break
		}
		node = next
		if t := f.nodes[node].token; t >= 0 {
			token, to = t, k+1
		}
	}
	return token, to
}

// find appends the tokens of a text, which do not overlap.
func (f *finder) find(found []match, text []byte) []match {
	end := 0 // of the last one, with its white space
	for at := 0; at < len(text); at++ {
		if !f.first[text[at]] {
			continue
		}
		i, to := f.longest(text, at)
		if i < 0 {
			continue
		}
		t := &f.tokens[i]
		from, next := at, to
		at = to - 1
		if t.word && (endsWithWord(text[:from]) || beginsWithWord(text[to:])) {
			continue
		}
		if t.left {
			for from > 0 {
				r, n := utf8.DecodeLastRune(text[:from])
				if !isSpace(r) {
					break
				}
				from -= n
			}
			from = max(from, end)
		}
		if t.right {
			for next < len(text) {
				r, n := utf8.DecodeRune(text[next:])
				if !isSpace(r) {
					break
				}
				next += n
			}
		}
		if from < end {
			continue // in the white space that belongs to the one before
		}
		found = append(found, match{from, next, t.token})
		end = next
	}
	return found
}

func endsWithWord(text []byte) bool {
	r, n := utf8.DecodeLastRune(text)
	return n > 0 && isWord(r)
}

func beginsWithWord(text []byte) bool {
	r, n := utf8.DecodeRune(text)
	return n > 0 && isWord(r)
}
