package archive

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/source/driver"
)

// An archive is read in one of two ways. Where members stand one behind another
// that share a key, each such sample is a record and its members are the fields,
// as the webdataset library has it. Otherwise each member is a record: an image
// with its class, when the members lie in class folders, or whatever they are.

// maxSuffixes bounds the fields of samples. Names that have more than that behind
// their first dot are names of files.
const maxSuffixes = 64

// layout says what the records of archives are.
type layout struct {
	tables []*Table
	path   func(shard, member int) string

	fields  []meaning
	classes []string
	labels  []int32  // of plain files in class folders
	members []uint32 // of record r, field f: members[r*stored+f]
	stored  int      // fields that are members: all but the class of a folder
	first   []int64  // number of the first record of each archive
	skipped []driver.Skipped
}

func (l *layout) skip(path, format string, a ...any) {
	l.skipped = append(l.skipped, driver.Skipped{Path: path, Reason: fmt.Sprintf(format, a...)})
}

// records is the number of records so far.
func (l *layout) records() int64 {
	return int64(len(l.members) / max(l.stored, 1))
}

// samples are members by the key that they share.
type samples struct {
	suffixes []string
	numbers  map[string]int
	count    []int64 // samples that have a suffix
	together map[[2]int]bool
	shared   bool // some sample has several members

	suffix []uint8 // of each place, and the member that stands there
	member []uint32
	ends   []int // places of each sample
	shard  []int // samples of each archive
	twice  error
}

// group puts members together by their keys. It is nil when these are no samples.
func (l *layout) group() *samples {
	s := &samples{numbers: map[string]int{}, together: map[[2]int]bool{}}
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
				s.twice = fmt.Errorf("%s: the sample %q has two members .%s; give each sample a name of its own", l.path(n, i), key, suffix)
			}
			s.suffix = append(s.suffix, uint8(k))
			s.member = append(s.member, uint32(i))
		}
		end()
		s.shard = append(s.shard, len(s.ends))
	}
	if !s.shared || !slices.ContainsFunc(s.suffixes, func(suffix string) bool { return !numbered(suffix) }) {
		return nil // each file for itself, such as photo.1.jpg and photo.2.jpg
	}
	return s
}

// numbered says whether a suffix is a number and an extension.
func numbered(suffix string) bool {
	number, _, ok := strings.Cut(suffix, ".")
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

// note counts the suffixes of the sample that begins at a place.
func (s *samples) note(begin int) {
	in := s.suffix[begin:]
	s.shared = s.shared || len(in) > 1
	for i, k := range in {
		s.count[k]++
		for _, other := range in[:i] {
			s.together[[2]int{int(min(k, other)), int(max(k, other))}] = true
		}
	}
}

// name gives each suffix the field that it is a value of. Suffixes that mean the
// same are one field (jpg and png), unless a sample has both: each is then a field
// of its own.
func (s *samples) name() []meaning {
	all := make([]meaning, len(s.suffixes))
	for k, suffix := range s.suffixes {
		all[k] = meaningOf(suffix)
	}
	apart := map[string]bool{}
	for i := range all {
		for k := range all[:i] {
			if all[i].name == all[k].name && (all[i] != all[k] || s.together[[2]int{k, i}]) {
				apart[all[i].name] = true
			}
		}
	}
	taken := map[string]string{"index": ""} // batches call the record numbers index
	for k := range all {
		suffix := s.suffixes[k]
		if apart[all[k].name] {
			all[k].name = strings.ReplaceAll(suffix, ".", "_")
		}
		of := suffix
		if !apart[meaningOf(suffix).name] {
			of = "" // shared by all that have this name
		}
		all[k].name = free(all[k].name, of, taken)
	}
	return all
}

// free makes a name that no field has yet, unless it is shared.
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

// samples makes records of samples. A field is what most of them have; those that
// lack one are left out and listed.
func (l *layout) samples(s *samples) error {
	if s.twice != nil {
		return s.twice
	}
	meant := s.name()
	names := map[string]int64{} // samples that have a field
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
		return fmt.Errorf("most of its %s samples have no kind of member in common, such as .%s", units.Int(all), s.suffixes[0])
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
		return fmt.Errorf("none of its %s samples has all of what most have: %s", units.Int(all), fieldNames(l.fields))
	}
	return nil
}

// sortFields puts pictures first, then the others by their names.
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

// files makes a record of each member: of images or sounds, where there are some,
// with the class that their folder is, or else of all.
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
				l.skip(l.path(n, i), "is no %s", of.name)
				continue
			}
			if classes != nil {
				k, ok := slices.BinarySearch(classes, class(name, root))
				if !ok {
					l.skip(l.path(n, i), "lies beside the class folders, so it has no class")
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

// fileMeaning is the meaning of a member that is a record of its own.
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

// folders returns the folder that all wanted members lie in, and the names of the
// folders in it that have some: the classes. There are none where all lie in one.
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

// folder is the folder of a name, "" for the top.
func folder(name string) string {
	d := path.Dir(path.Clean(name))
	if d == "." {
		return ""
	}
	return d
}

// class is the first folder of a name below root, "" when it lies in root itself.
func class(name, root string) string {
	d := folder(name)
	if root != "" {
		d = strings.TrimPrefix(strings.TrimPrefix(d, root), "/")
	}
	c, _, _ := strings.Cut(d, "/")
	return c
}
