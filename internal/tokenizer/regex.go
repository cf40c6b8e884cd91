package tokenizer

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The patterns that cut text into words use look-ahead and possessive repetition, which Go's own regular expressions
// do not have. This is the subset of Oniguruma and of Rust's fancy-regex that they need: ordered alternatives,
// classes by Unicode's properties, greedy, lazy and possessive repetition, look-ahead, atomic groups, case folding.

// matcher returns the end of a match that begins at a position, -1 if there is none.
type matcher func(s []byte, at int) int

// regex is a compiled pattern.
type regex struct {
	pattern string
	match   matcher
}

// dialect is the dialect of a pattern, because the meaning of some signs differs.
type dialect int

const (
	// oniguruma: ^ and $ are ends of lines, {n,m}+ repeats.
	oniguruma dialect = iota
	// fancy: ^ and $ are ends of the text, {n,m}+ is possessive.
	fancy
)

const (
	maxPattern = 1 << 13
	maxNesting = 100
	maxCount   = 1000
	// maxCopies limits the size of groups with counted repetition.
	maxCopies = 10_000
)

// compile compiles a pattern.
func compile(pattern string, of dialect) (*regex, error) {
	p := &parser{in: pattern, of: of}
	if len(pattern) > maxPattern {
		return nil, fmt.Errorf("a pattern of %d bytes", len(pattern))
	}
	n, err := p.alternatives()
	if err == nil && p.at < len(p.in) {
		err = p.fail("there is no group for )")
	}
	if err != nil {
		return nil, fmt.Errorf("the pattern %.200q: %w", pattern, err)
	}
	c := &compiler{}
	m := c.node(n, func(_ []byte, at int) int { return at })
	if c.err != nil {
		return nil, fmt.Errorf("the pattern %.200q: %w", pattern, c.err)
	}
	return &regex{pattern, m}, nil
}

// find returns the first match at or after a position, or -1. Empty matches do not count.
func (r *regex) find(s []byte, at int) (from, to int) {
	for at < len(s) {
		if to := r.match(s, at); to > at {
			return at, to
		}
		_, n := utf8.DecodeRune(s[at:])
		at += n
	}
	return -1, -1
}

// A node is one of: set, alternatives of sequences, look.
type node struct {
	set  *class
	alts [][]*node
	look int // 1 looks ahead, -1 must not match ahead
	// atomic groups do not backtrack.
	atomic bool
	// anchor is ^ or $ of lines, A or z of the text.
	anchor byte
	// Repetition: once by default.
	min, max         int
	lazy, possessive bool
}

type parser struct {
	in    string
	at    int
	of    dialect
	fold  bool
	depth int
}

func (p *parser) fail(format string, a ...any) error {
	return fmt.Errorf("byte %d: %s", p.at, fmt.Sprintf(format, a...))
}

func (p *parser) more() bool { return p.at < len(p.in) }

func (p *parser) next() rune {
	r, n := utf8.DecodeRuneInString(p.in[p.at:])
	p.at += n
	return r
}

func (p *parser) take(s string) bool {
	if strings.HasPrefix(p.in[p.at:], s) {
		p.at += len(s)
		return true
	}
	return false
}

func (p *parser) alternatives() (*node, error) {
	if p.depth++; p.depth > maxNesting {
		return nil, p.fail("groups lie in each other more than %d deep", maxNesting)
	}
	defer func() { p.depth-- }()
	n := &node{min: 1, max: 1}
	fold := p.fold
	defer func() { p.fold = fold }()
	for {
		var seq []*node
		for p.more() && p.in[p.at] != '|' && p.in[p.at] != ')' {
			one, err := p.repeated()
			if err != nil {
				return nil, err
			}
			if one != nil {
				seq = append(seq, one)
			}
		}
		n.alts = append(n.alts, seq)
		if !p.take("|") {
			return n, nil
		}
	}
}

func (p *parser) repeated() (*node, error) {
	n, err := p.one()
	if err != nil || n == nil {
		return nil, err
	}
	for times := 0; p.more(); times++ {
		lo, hi, braces := 0, 0, false
		switch {
		case p.take("?"):
			lo, hi = 0, 1
		case p.take("*"):
			lo, hi = 0, math.MaxInt
		case p.take("+"):
			lo, hi = 1, math.MaxInt
		case p.in[p.at] == '{':
			var ok bool
			if lo, hi, ok = p.counts(); !ok {
				return n, nil // a brace
			}
			if lo > hi || lo > maxCount || hi > maxCount && hi < math.MaxInt {
				return nil, p.fail("it repeats %d to %d times", lo, hi)
			}
			braces = true
		default:
			return n, nil
		}
		if n.anchor != 0 || n.look != 0 {
			return nil, p.fail("what matches no characters is repeated")
		}
		if times > 0 {
			n = &node{alts: [][]*node{{n}}}
		}
		n.min, n.max = lo, hi
		switch {
		case p.take("?"):
			n.lazy = true
		case (!braces || p.of == fancy) && p.take("+"):
			n.possessive = true
		}
	}
	return n, nil
}

// counts reads {n}, {n,} or {n,m}.
func (p *parser) counts() (lo, hi int, ok bool) {
	text, _, found := strings.Cut(p.in[p.at+1:], "}")
	if !found {
		return 0, 0, false
	}
	from, to, several := strings.Cut(text, ",")
	lo, err := strconv.Atoi(from)
	if err != nil || lo < 0 {
		return 0, 0, false
	}
	switch hi = lo; {
	case several && to == "":
		hi = math.MaxInt
	case several:
		if hi, err = strconv.Atoi(to); err != nil || hi < 0 {
			return 0, 0, false
		}
	}
	p.at += len(text) + 2
	return lo, hi, true
}

func (p *parser) one() (*node, error) {
	switch {
	case p.take("("):
		return p.group()
	case p.take("["):
		c, err := p.class()
		return single(c), err
	case p.take("^"):
		return &node{anchor: map[dialect]byte{oniguruma: '^', fancy: 'A'}[p.of]}, nil
	case p.take("$"):
		return &node{anchor: map[dialect]byte{oniguruma: '$', fancy: 'z'}[p.of]}, nil
	case p.take(`\A`):
		return &node{anchor: 'A'}, nil
	case p.take(`\z`):
		return &node{anchor: 'z'}, nil
	case p.take("."):
		c := &class{negated: true}
		c.add('\n', '\n')
		return single(c.done()), nil
	case p.take(`\`):
		c := &class{}
		if err := p.escape(c, false); err != nil {
			return nil, err
		}
		return single(c.done()), nil
	}
	r := p.next()
	if r == '*' || r == '+' || r == '?' {
		return nil, p.fail("%q repeats nothing", r)
	}
	c := &class{}
	c.addFolded(r, r, p.fold)
	return single(c.done()), nil
}

func single(c *class) *node { return &node{set: c, min: 1, max: 1} }

func (p *parser) group() (*node, error) {
	n := &node{}
	fold := p.fold
	switch {
	case p.take("?:"):
	case p.take("?="):
		n.look = 1
	case p.take("?!"):
		n.look = -1
	case p.take("?>"):
		n.atomic = true
	case p.take("?i:"):
		p.fold = true
	case p.take("?-i:"):
		p.fold = false
	case p.take("?i)"):
		p.fold = true // for the rest of the enclosing group
		return nil, nil
	case p.take("?"):
		return nil, p.fail("a group that begins with (?%.1s is not known", p.in[p.at:])
	}
	in, err := p.alternatives()
	p.fold = fold
	if err != nil {
		return nil, err
	}
	if !p.take(")") {
		return nil, p.fail("a group has no end")
	}
	n.alts, n.min, n.max = in.alts, 1, 1
	return n, nil
}

// class reads a class in brackets, after the opening bracket.
func (p *parser) class() (*class, error) {
	if p.depth++; p.depth > maxNesting {
		return nil, p.fail("classes lie in each other more than %d deep", maxNesting)
	}
	defer func() { p.depth-- }()
	c := &class{negated: p.take("^")}
	for first := true; ; first = false {
		switch {
		case !p.more():
			return nil, p.fail("a class has no end")
		case !first && p.take("]"):
			return c.done(), nil
		case strings.HasPrefix(p.in[p.at:], "[:"):
			return nil, p.fail("classes of POSIX are not known")
		case p.take("["):
			in, err := p.class()
			if err != nil {
				return nil, err
			}
			c.of = append(c.of, in.has)
			continue
		case strings.HasPrefix(p.in[p.at:], "&&"):
			return nil, p.fail("what classes have in common (&&) is not known")
		}
		lo, single, err := p.member(c)
		if err != nil {
			return nil, err
		}
		if !single {
			continue
		}
		hi := lo
		if rest := p.in[p.at:]; len(rest) > 1 && rest[0] == '-' && rest[1] != ']' {
			p.at++
			if hi, single, err = p.member(c); err != nil {
				return nil, err
			}
			if !single || hi < lo {
				return nil, p.fail("a range of a class has no end, or one before its beginning")
			}
		}
		c.addFolded(lo, hi, p.fold)
	}
}

// member reads a character of a class; single is false when it was a class itself,
// which is then a part of c.
func (p *parser) member(c *class) (r rune, single bool, err error) {
	if !p.more() {
		return 0, false, p.fail("a class has no end")
	}
	if !p.take(`\`) {
		return p.next(), true, nil
	}
	in := &class{}
	if err := p.escape(in, true); err != nil {
		return 0, false, err
	}
	if len(in.of) == 0 && len(in.ranges) == 2 && in.ranges[0] == in.ranges[1] {
		return in.ranges[0], true, nil
	}
	c.of = append(c.of, in.done().has)
	return 0, false, nil
}

// escape reads the characters after a backslash.
func (p *parser) escape(c *class, inClass bool) error {
	if !p.more() {
		return p.fail("there is nothing after \\")
	}
	add := func(has func(rune) bool, not bool) {
		if not {
			c.of = append(c.of, func(r rune) bool { return !has(r) })
		} else {
			c.of = append(c.of, has)
		}
	}
	switch r := p.next(); r {
	case 's', 'S':
		add(isSpace, r == 'S')
	case 'd', 'D':
		add(func(r rune) bool { return unicode.Is(unicode.Nd, r) }, r == 'D')
	case 'w', 'W':
		word := isWord
		if p.of == oniguruma {
			word = isOnigurumaWord
		}
		add(word, r == 'W')
	case 'h', 'H', 'b', 'B', 'G', 'X', 'R', 'K', 'k', 'Z', 'Q', 'E', 'C', 'M', 'g', 'c', 'o', 'N', 'O', 'y', 'Y', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return p.fail("\\%c is not known", r)
	case 'p', 'P':
		has, not, err := p.property()
		if err != nil {
			return err
		}
		add(has, not != (r == 'P'))
	case 'n', 'r', 't', 'f', 'v', 'a', 'e', '0':
		v := map[rune]rune{'n': '\n', 'r': '\r', 't': '\t', 'f': '\f', 'v': '\v', 'a': '\a', 'e': 0x1B, '0': 0}[r]
		c.add(v, v)
	case 'x', 'u', 'U':
		v, err := p.hex(r)
		if err != nil {
			return err
		}
		c.addFolded(v, v, p.fold && !inClass)
	default:
		c.addFolded(r, r, p.fold && !inClass)
	}
	return nil
}

func (p *parser) hex(kind rune) (rune, error) {
	digits := ""
	if p.take("{") {
		text, _, ok := strings.Cut(p.in[p.at:], "}")
		if !ok {
			return 0, p.fail("a character has no end")
		}
		digits = text
		p.at += len(text) + 1
	} else {
		n := map[rune]int{'x': 2, 'u': 4, 'U': 8}[kind]
		if p.at+n > len(p.in) {
			return 0, p.fail("a character has no end")
		}
		digits = p.in[p.at : p.at+n]
		p.at += n
	}
	v, err := strconv.ParseUint(digits, 16, 32)
	if err != nil || v > unicode.MaxRune {
		return 0, p.fail("%q is not a character", digits)
	}
	return rune(v), nil
}

// property reads the name of one of Unicode's properties.
func (p *parser) property() (has func(rune) bool, not bool, err error) {
	name := ""
	if p.take("{") {
		text, _, ok := strings.Cut(p.in[p.at:], "}")
		if !ok {
			return nil, false, p.fail("a property has no end")
		}
		name = text
		p.at += len(text) + 1
	} else if p.more() {
		name = string(p.next())
	}
	name, not = strings.CutPrefix(name, "^")
	for _, prefix := range []string{"gc=", "General_Category=", "sc=", "Script=", "scx=", "Is"} {
		name = strings.TrimPrefix(name, prefix)
	}
	if long, ok := longNames[name]; ok {
		name = long
	}
	for _, tables := range []map[string]*unicode.RangeTable{unicode.Categories, unicode.Scripts, unicode.Properties} {
		if t := tables[name]; t != nil {
			return func(r rune) bool { return unicode.Is(t, r) }, not, nil
		}
	}
	switch name {
	case "Alphabetic", "Alpha":
		return isAlphabetic, not, nil
	case "Any":
		return func(rune) bool { return true }, not, nil
	}
	return nil, false, p.fail("the property %q is not known", name)
}

// longNames are the long names of categories in use.
var longNames = map[string]string{
	"Letter": "L", "Mark": "M", "Number": "N", "Punctuation": "P", "Symbol": "S", "Separator": "Z", "Other": "C",
	"Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll", "Titlecase_Letter": "Lt", "Modifier_Letter": "Lm", "Other_Letter": "Lo",
	"Nonspacing_Mark": "Mn", "Decimal_Number": "Nd", "Punct": "P",
}

func isSpace(r rune) bool { return unicode.Is(unicode.White_Space, r) }

func isAlphabetic(r rune) bool {
	return unicode.IsLetter(r) || unicode.Is(unicode.Nl, r) || unicode.Is(unicode.Other_Alphabetic, r)
}

// isWord is \w as recommended by Unicode.
func isWord(r rune) bool {
	return isAlphabetic(r) || unicode.In(r, unicode.M, unicode.Nd, unicode.Pc, unicode.Join_Control)
}

// isOnigurumaWord is \w of Oniguruma, in which superscripts and fractions of Latin-1 are letters and joiners are not.
func isOnigurumaWord(r rune) bool {
	switch r {
	case '²', '³', '¹', '¼', '½', '¾':
		return true
	}
	return isAlphabetic(r) || unicode.In(r, unicode.M, unicode.Nd, unicode.Pc)
}

// class is a set of characters.
type class struct {
	negated bool
	ranges  []rune // lo, hi, lo, hi, ...
	of      []func(rune) bool
	bits    []uint64 // of the first ones
}

func (c *class) add(lo, hi rune) { c.ranges = append(c.ranges, lo, hi) }

// addFolded adds a range. With fold it also adds the characters that differ only in case.
func (c *class) addFolded(lo, hi rune, fold bool) {
	c.add(lo, hi)
	if !fold {
		return
	}
	for r := lo; r <= hi && r-lo < 1<<16; r++ {
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			c.add(f, f)
		}
	}
}

// done ends the making of a class.
func (c *class) done() *class {
	n := rune(1 << 16)
	if !c.negated && len(c.of) == 0 {
		n = 128 // a few characters, which are looked up in turn
	}
	c.bits = make([]uint64, n/64)
	for r := range n {
		if c.slow(r) {
			c.bits[r>>6] |= 1 << (r & 63)
		}
	}
	return c
}

func (c *class) slow(r rune) bool {
	in := false
	for i := 0; i < len(c.ranges) && !in; i += 2 {
		in = r >= c.ranges[i] && r <= c.ranges[i+1]
	}
	return (in || slices.ContainsFunc(c.of, func(f func(rune) bool) bool { return f(r) })) != c.negated
}

func (c *class) has(r rune) bool {
	if int(r>>6) < len(c.bits) {
		return c.bits[r>>6]>>(r&63)&1 != 0
	}
	return c.slow(r)
}

// step returns the end of the character at a position, -1 if it is not in the class.
func (c *class) step(s []byte, at int) int {
	if at >= len(s) {
		return -1
	}
	if b := s[at]; b < utf8.RuneSelf {
		if c.bits[b>>6]>>(b&63)&1 != 0 {
			return at + 1
		}
		return -1
	}
	r, n := utf8.DecodeRune(s[at:])
	if c.has(r) {
		return at + n
	}
	return -1
}

// compiler makes matchers. Each is made for the matcher that follows it.
type compiler struct {
	copies int
	err    error
}

func (c *compiler) node(n *node, next matcher) matcher {
	if c.copies++; c.copies > maxCopies && c.err == nil {
		c.err = fmt.Errorf("it repeats groups too many times")
	}
	if c.err != nil {
		return next
	}
	switch {
	case n.anchor != 0:
		return anchor(n.anchor, next)
	case n.look != 0:
		ahead := c.alternatives(n.alts, func(_ []byte, at int) int { return at })
		want := n.look > 0
		return func(s []byte, at int) int {
			if (ahead(s, at) >= 0) != want {
				return -1
			}
			return next(s, at)
		}
	case n.set != nil:
		return repeatSet(n, next)
	}
	if n.atomic || n.possessive {
		return c.possessive(n, next)
	}
	return c.repeat(n, next)
}

func anchor(kind byte, next matcher) matcher {
	return func(s []byte, at int) int {
		ok := false
		switch kind {
		case '^':
			ok = at == 0 || s[at-1] == '\n'
		case '$':
			ok = at == len(s) || s[at] == '\n'
		case 'A':
			ok = at == 0
		default:
			ok = at == len(s)
		}
		if !ok {
			return -1
		}
		return next(s, at)
	}
}

// repeatSet matches characters of a class.
func repeatSet(n *node, next matcher) matcher {
	set, lo, hi := n.set, n.min, n.max
	switch {
	case lo == 1 && hi == 1:
		return func(s []byte, at int) int {
			if at = set.step(s, at); at < 0 {
				return -1
			}
			return next(s, at)
		}
	case n.lazy:
		return func(s []byte, at int) int {
			for k := 0; ; k++ {
				if k >= lo {
					if end := next(s, at); end >= 0 {
						return end
					}
				}
				if k == hi {
					return -1
				}
				if at = set.step(s, at); at < 0 {
					return -1
				}
			}
		}
	}
	possessive := n.possessive
	return func(s []byte, at int) int {
		from, k := at, 0
		for k < hi {
			to := set.step(s, at)
			if to < 0 {
				break
			}
			at = to
			k++
		}
		if possessive {
			if k < lo {
				return -1
			}
			return next(s, at)
		}
		for ; k >= lo; k-- {
			if end := next(s, at); end >= 0 {
				return end
			}
			if at == from {
				return -1
			}
			_, size := utf8.DecodeLastRune(s[from:at])
			at -= size
		}
		return -1
	}
}

func (c *compiler) alternatives(alts [][]*node, next matcher) matcher {
	var of []matcher
	for _, seq := range alts {
		m := next
		for i := len(seq) - 1; i >= 0; i-- {
			m = c.node(seq[i], m)
		}
		of = append(of, m)
	}
	if len(of) == 1 {
		return of[0]
	}
	return func(s []byte, at int) int {
		for _, m := range of {
			if end := m(s, at); end >= 0 {
				return end
			}
		}
		return -1
	}
}

// possessive matches a group and does not backtrack.
func (c *compiler) possessive(n *node, next matcher) matcher {
	one := c.alternatives(n.alts, func(_ []byte, at int) int { return at })
	lo, hi := n.min, n.max
	if !n.possessive && (lo != 1 || hi != 1) {
		c.err = fmt.Errorf("an atomic group is repeated")
	}
	return func(s []byte, at int) int {
		for k := 0; k < hi; k++ {
			to := one(s, at)
			if to < 0 {
				if k < lo {
					return -1
				}
				break
			}
			if to == at {
				break
			}
			at = to
		}
		return next(s, at)
	}
}

// repeat matches a group a number of times, written out.
func (c *compiler) repeat(n *node, next matcher) matcher {
	if n.max == math.MaxInt {
		c.err = fmt.Errorf("a group is repeated without an end, which is known of single characters and of possessive groups")
		return next
	}
	m := next
	for k := n.max; k > 0; k-- {
		rest := c.alternatives(n.alts, m)
		switch {
		case k <= n.min:
			m = rest
		case n.lazy:
			m = func(s []byte, at int) int {
				if end := next(s, at); end >= 0 {
					return end
				}
				return rest(s, at)
			}
		default:
			m = func(s []byte, at int) int {
				if end := rest(s, at); end >= 0 {
					return end
				}
				return next(s, at)
			}
		}
	}
	return m
}
