// Package braces expands names of shards as shells do: shard-{0000..0127}.tar.
package braces

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Most is the largest number of names that a text may stand for.
const Most = 1 << 20

// Expand expands braces in a text: {a,b}, {0000..0127}, {0..9..3}, also nested. A backslash
// makes the next character literal.
func Expand(text string) ([]string, error) {
	e := &braces{text: text}
	out, err := e.words()
	if err == nil && e.at < len(text) {
		err = errors.New("a closing brace without an opening one")
	}
	if err != nil {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	return out, nil
}

type braces struct {
	text  string
	at    int
	depth int
}

// deepest is the largest nesting of braces.
const deepest = 16

// words reads to a closing brace, to a comma in braces, or to the end of the text.
func (e *braces) words() ([]string, error) {
	out := []string{""}
	var plain []byte
	put := func(alts []string) error {
		if len(out)*len(alts) > Most {
			return fmt.Errorf("it stands for more than %d names", Most)
		}
		next := make([]string, 0, len(out)*len(alts))
		for _, head := range out {
			for _, tail := range alts {
				next = append(next, head+string(plain)+tail)
			}
		}
		out, plain = next, plain[:0]
		return nil
	}
	for ; e.at < len(e.text); e.at++ {
		c := e.text[e.at]
		if c == '}' || c == ',' && e.depth > 0 {
			break
		}
		if c == '{' {
			alts, err := e.group()
			if err == nil {
				err = put(alts)
			}
			if err != nil {
				return nil, err
			}
			continue
		}
		if c == '\\' && e.at+1 < len(e.text) {
			e.at++
			c = e.text[e.at]
		}
		plain = append(plain, c)
	}
	if err := put([]string{""}); err != nil {
		return nil, err
	}
	return out, nil
}

// group reads the content of braces, up to the closing brace.
func (e *braces) group() ([]string, error) {
	if n := strings.IndexByte(e.text[e.at:], '}'); n >= 0 {
		if out, ok, err := span(e.text[e.at+1 : e.at+n]); ok || err != nil {
			e.at += n
			return out, err
		}
	}
	if e.depth++; e.depth > deepest {
		return nil, errors.New("too many braces in one another")
	}
	defer func() { e.depth-- }()
	var all []string
	for list := false; ; list = true {
		e.at++
		part, err := e.words()
		switch {
		case err != nil:
			return nil, err
		case e.at == len(e.text):
			return nil, errors.New("a brace that is not closed")
		case len(all)+len(part) > Most:
			return nil, fmt.Errorf("it stands for more than %d names", Most)
		}
		all = append(all, part...)
		if e.text[e.at] == '}' {
			if !list { // {x} is not a list, so the braces are literal
				for i := range all {
					all[i] = "{" + all[i] + "}"
				}
			}
			return all, nil
		}
	}
}

// span reads 0000..0127 or a..f, with an optional step.
func span(text string) ([]string, bool, error) {
	parts := strings.Split(text, "..")
	if len(parts) != 2 && len(parts) != 3 {
		return nil, false, nil
	}
	step := int64(1)
	if len(parts) == 3 {
		n, err := strconv.ParseInt(parts[2], 10, 32)
		if err != nil {
			return nil, false, nil
		}
		step = max(n, -n, 1)
	}
	a, b := parts[0], parts[1]
	if len(a) == 1 && len(b) == 1 && isLetter(a[0]) && isLetter(b[0]) {
		var out []string
		for c := int64(a[0]); ; {
			if isLetter(byte(c)) {
				out = append(out, string(rune(c)))
			}
			if a[0] <= b[0] {
				c += step
			} else {
				c -= step
			}
			if c > int64(max(a[0], b[0])) || c < int64(min(a[0], b[0])) {
				return out, true, nil
			}
		}
	}
	from, err := strconv.ParseInt(a, 10, 62)
	if err != nil {
		return nil, false, nil
	}
	to, err := strconv.ParseInt(b, 10, 62)
	if err != nil {
		return nil, false, nil
	}
	if count := (max(from, to) - min(from, to)) / step; count >= Most {
		return nil, false, fmt.Errorf("{%s} stands for more than %d names", text, Most)
	}
	width := 0
	if padded(a) || padded(b) {
		width = max(len(a), len(b))
	}
	var out []string
	for n := from; n >= min(from, to) && n <= max(from, to); {
		out = append(out, fmt.Sprintf("%0*d", width, n))
		if from <= to {
			n += step
		} else {
			n -= step
		}
	}
	return out, true, nil
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// padded reports whether a number has leading zeros.
func padded(s string) bool {
	s = strings.TrimPrefix(s, "-")
	return len(s) > 1 && s[0] == '0'
}
