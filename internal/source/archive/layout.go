package archive

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/source/selection"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/source/driver"
)

// Archives have one of two layouts. If consecutive members share a key, they form a sample: the sample is a record
// and its members are the fields, as in the webdataset library. Otherwise each member is a record. If the members
// are images in class folders, the record also has the class.

// maxSuffixes limits the fields of samples. If there are more suffixes after the first dot, the members are plain
// files.
const maxSuffixes = 64

// layout maps records and fields to members.
type layout struct {
	tables []*Table
	path   func(shard, member int) string

	fields  []meaning
	classes []string
	labels  []int32  // of plain files in class folders
	members []uint32 // of record r, field f: members[r*stored+f]
	stored  int      // fields that are members: all but the class from a folder
	first   []int64  // number of the first record of each archive
	// named are Options.Fields. excluded reports whether Options.Exclude has a sample; nil means none.
	named    map[string]string
	excluded func(shard int, key string) bool
	skipped  []driver.Skipped
}

func (l *layout) skip(path, format string, a ...any) {
	l.skipped = append(l.skipped, driver.Skipped{Path: path, Reason: fmt.Sprintf(format, a...)})
}

// beside marks the last skipped member as one that is not missed, unless it is bad.
func (l *layout) beside(bad bool) { l.skipped[len(l.skipped)-1].Beside = !bad }

// records is the number of records so far.
func (l *layout) records() int64 {
	return int64(len(l.members) / max(l.stored, 1))
}

// unpackNames gives each member the name that it has when it is unpacked. Members without one are skipped.
func (l *layout) unpackNames() {
	for n, t := range l.tables {
		var out *Table // t with other names, once one differs
		for i := range t.len() {
			name := t.name(i)
			unpacked := unpackedName(name)
			if unpacked == "" && (t.size[i] > 0 || !strings.HasSuffix(name, "/")) {
				l.skip(cmp.Or(l.path(n, i), `""`), "its name is not that of a file")
			}
			if unpacked != name && out == nil {
				out = t.renamed(i)
			}
			if out != nil {
				out.addName(unpacked)
			}
		}
		if out != nil {
			l.tables[n] = out
		}
	}
}

// samples are members grouped by key.
type samples struct {
	suffixes []string
	numbers  map[string]int
	count    []int64 // number of samples that have the suffix
	together map[[2]int]bool
	shared   bool // some sample has several members
	named    map[string]string

	suffix []uint8 // suffix and member number, for each member of each sample
	member []uint32
	ends   []int // end of each sample in suffix and member
	shard  []int // number of samples up to the end of each archive
	twice  error
}

// group groups members by their keys. It returns nil if the members do not form samples.
func (l *layout) group() *samples {
	s := &samples{numbers: map[string]int{}, together: map[[2]int]bool{}, named: l.named}
	for n, t := range l.tables {
		last, begin := "", len(s.suffix)
		end := func() {
			if len(s.suffix) > begin {
				s.ends = append(s.ends, len(s.suffix))
				s.note(begin)
			}
			begin = len(s.suffix)
		}
		for i := range t.len() {
			name := t.name(i)
			if meta(name) || hidden(name) {
				continue
			}
			key, suffix, ok := Split(name)
			if !ok {
				continue
			}
			if l.excluded != nil && l.excluded(n, key) {
				continue
			}
			if key != last {
				end()
				last = key
			}
			suffix = strings.ToLower(suffix)
			k, ok := s.numbers[suffix]
			if !ok {
				if k = len(s.suffixes); k == maxSuffixes {
					return nil
				}
				s.numbers[suffix] = k
				s.suffixes = append(s.suffixes, suffix)
				s.count = append(s.count, 0)
			}
			if s.twice == nil && slices.Contains(s.suffix[begin:], uint8(k)) {
				s.twice = fmt.Errorf("%s: the sample %q has two members .%s; give each sample a unique name", l.path(n, i), key, suffix)
			}
			s.suffix = append(s.suffix, uint8(k))
			s.member = append(s.member, uint32(i))
		}
		end()
		s.shard = append(s.shard, len(s.ends))
	}
	if !s.shared || !slices.ContainsFunc(s.suffixes, func(suffix string) bool { return !numbered(suffix) }) {
		return nil // separate files, such as photo.1.jpg and photo.2.jpg
	}
	return s
}

// numbered reports whether a suffix is a number and an extension.
func numbered(suffix string) bool {
	number, _, ok := strings.Cut(suffix, ".")
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

// note counts the suffixes of the sample that begins at begin.
func (s *samples) note(begin int) {
	in := s.suffix[begin:]
	s.shared = s.shared || len(in) > 1
	for _, k := range in {
		s.count[k]++
	}
	if len(in) > maxSuffixes {
		in = upToTwo(in)
	}
	for i, k := range in {
		for _, other := range in[:i] {
			s.together[[2]int{int(min(k, other)), int(max(k, other))}] = true
		}
	}
}

// upToTwo returns the first two of each suffix.
func upToTwo(in []uint8) (out []uint8) {
	var seen [maxSuffixes]int
	for _, k := range in {
		if seen[k]++; seen[k] <= 2 {
			out = append(out, k)
		}
	}
	return out
}

// name returns the field of each suffix. Suffixes with the same meaning (jpg and png) share a field, unless a
// sample has both. Then each suffix is its own field.
func (s *samples) name() []meaning {
	all := make([]meaning, len(s.suffixes))
	for k, suffix := range s.suffixes {
		all[k] = s.meaning(suffix)
	}
	apart := map[string]bool{}
	for i := range all {
		for k := range all[:i] {
			if all[i].name == all[k].name && (all[i] != all[k] || s.together[[2]int{k, i}]) {
				apart[all[i].name] = true
			}
		}
	}
	taken := map[string]string{"index": ""} // the name of the record number in batches
	for k := range all {
		suffix := s.suffixes[k]
		if apart[all[k].name] {
			all[k].name = strings.ReplaceAll(suffix, ".", "_")
		}
		of := suffix
		if !apart[s.meaning(suffix).name] {
			of = "" // shared by all suffixes with this name
		}
		all[k].name = free(all[k].name, of, taken)
	}
	return all
}

// meaning is meaningOf with the names of the caller.
func (s *samples) meaning(suffix string) meaning {
	m := meaningOf(suffix)
	if name := s.named[suffix]; name != "" {
		m.name = name
	}
	return m
}

// free returns a field name that is not taken yet, unless both share it.
func free(name, of string, taken map[string]string) string {
	if name == "" {
		name = "data"
	}
	if name == "index" {
		name = "index_"
	}
	for {
		if by, ok := taken[name]; !ok || by == of {
			taken[name] = of
			return name
		}
		name += "_"
	}
}

// samples builds records from samples. A field is a suffix that most samples have. Samples that lack a field are
// skipped and listed.
func (l *layout) samples(s *samples) error {
	if s.twice != nil {
		return s.twice
	}
	meant := s.name()
	names := map[string]int64{} // number of samples that have a field
	for k := range meant {
		names[meant[k].name] += s.count[k]
	}
	all := int64(len(s.ends))
	for k, m := range meant {
		switch n := names[m.name]; {
		case 2*n <= all:
			l.skip("*."+s.suffixes[k], "only %s of %s samples have it", units.Int(s.count[k]), units.Int(all))
		case !slices.Contains(l.fields, m):
			l.fields = append(l.fields, m)
		}
	}
	if len(l.fields) == 0 {
		return fmt.Errorf("no member suffix, such as .%[2]s, is in most of its %[1]s samples", units.Int(all), s.suffixes[0])
	}
	sortFields(l.fields)
	field := make([]int, len(meant)) // of each suffix
	for k, m := range meant {
		field[k] = slices.Index(l.fields, m)
	}
	l.stored = len(l.fields)
	row := make([]uint32, l.stored)
	have := make([]bool, l.stored)
	place, sample := 0, 0
	for n := range l.tables {
		l.first = append(l.first, l.records())
		for ; sample < s.shard[n]; sample++ {
			clear(have)
			begin := place
			for ; place < s.ends[sample]; place++ {
				if f := field[s.suffix[place]]; f >= 0 {
					row[f], have[f] = s.member[place], true
				}
			}
			if lacks := slices.Index(have, false); lacks >= 0 {
				l.skip(l.path(n, int(s.member[begin])), "its sample has no %s", l.fields[lacks].name)
				continue
			}
			l.members = append(l.members, row...)
		}
	}
	if len(l.members) == 0 {
		return fmt.Errorf("none of its %s samples has all fields that most samples have: %s", units.Int(all), fieldNames(l.fields))
	}
	return nil
}

// sortFields sorts images and masks first, then the other fields by name.
func sortFields(f []meaning) {
	rank := func(k driver.Kind) int {
		switch k {
		case driver.KindImage:
			return 0
		case driver.KindMask:
			return 1
		}
		return 2
	}
	slices.SortFunc(f, func(a, b meaning) int {
		if c := rank(a.kind) - rank(b.kind); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
}

func fieldNames(f []meaning) string {
	var names []string
	for i := range f {
		names = append(names, f[i].name)
	}
	return strings.Join(names, ", ")
}

// files makes each member a record. If there are images or sounds, only these are records, with the class of their
// folder.
func (l *layout) files() error {
	counts := map[meaning]int{}
	for _, t := range l.tables {
		for i := range t.len() {
			if name := t.name(i); !hidden(name) {
				counts[fileMeaning(name)]++
			}
		}
	}
	of := meaning{name: "data", kind: driver.KindBytes}
	some := false
	for _, m := range []meaning{{name: "image", kind: driver.KindImage}, {name: "audio", kind: driver.KindAudio}} {
		if counts[m] > 0 {
			of, some = m, true
			break
		}
	}
	if len(counts) == 1 {
		for m := range counts {
			of = m
		}
	}
	if len(counts) == 0 {
		if len(l.skipped) > 0 {
			return fmt.Errorf("there are no files in it: %q is skipped, %s", l.skipped[0].Path, l.skipped[0].Reason)
		}
		return fmt.Errorf("there are no files in it")
	}
	l.fields, l.stored = []meaning{of}, 1
	wanted := func(name string) bool { return !hidden(name) && (!some || fileMeaning(name) == of) }
	root, classes := "", []string(nil)
	if some {
		root, classes = l.folders(wanted)
	}
	for n, t := range l.tables {
		l.first = append(l.first, l.records())
		for i := range t.len() {
			name := t.name(i)
			switch {
			case hidden(name):
				continue
			case !wanted(name):
				l.skip(l.path(n, i), "is not of type %s", of.name)
				l.beside(of.kind == driver.KindImage && selection.ByName(name).Kind == selection.Image) // HEIC, for example
				continue
			}
			if classes != nil {
				k, ok := slices.BinarySearch(classes, class(name, root))
				if !ok {
					l.skip(l.path(n, i), "is outside the class folders, so it has no class")
					l.beside(false)
					continue
				}
				l.labels = append(l.labels, int32(k))
			}
			l.members = append(l.members, uint32(i))
		}
	}
	if classes != nil {
		l.classes = classes
		l.fields = append(l.fields, meaning{name: "label", kind: driver.KindLabel})
	}
	return nil
}

// fileMeaning returns the meaning of a member that is a record by itself.
func fileMeaning(name string) meaning {
	m := meaningOf(extension(name))
	if m.kind == driver.KindBytes {
		m.name = "data"
	}
	if m.name == "index" {
		m.name = "index_"
	}
	return m
}

// folders returns the deepest folder that contains all wanted members, and the classes: its subfolders that have
// some. There are no classes if all members are in one folder.
func (l *layout) folders(wanted func(name string) bool) (root string, classes []string) {
	dirs := map[string]bool{}
	for _, t := range l.tables {
		for i := range t.len() {
			if name := t.name(i); wanted(name) {
				dirs[folder(name)] = true
			}
		}
	}
	first := true
	for d := range dirs {
		if first {
			root, first = d, false
		}
		for root != "" && d != root && !strings.HasPrefix(d, root+"/") {
			root = folder(root)
		}
	}
	found := map[string]bool{}
	for d := range dirs {
		if c := class(d+"/x", root); c != "" {
			found[c] = true
		}
	}
	for c := range found {
		classes = append(classes, c)
	}
	slices.Sort(classes)
	return root, classes
}

// folder returns the folder of a name, "" for the top.
func folder(name string) string {
	return name[:max(strings.LastIndexByte(name, '/'), 0)]
}

// class returns the first folder of a name below root, "" for a name directly in root.
func class(name, root string) string {
	d := folder(name)
	if root != "" {
		d = strings.TrimPrefix(strings.TrimPrefix(d, root), "/")
	}
	c, _, _ := strings.Cut(d, "/")
	return c
}
