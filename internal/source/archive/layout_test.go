package archive

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// made returns a layout of archives with members of these names.
func made(t *testing.T, shards ...[]string) (*layout, error) {
	t.Helper()
	l := &layout{}
	l.path = func(shard, member int) string { return fmt.Sprintf("%d/%s", shard, l.tables[shard].name(member)) }
	for _, names := range shards {
		tab := &Table{}
		for _, name := range names {
			if err := tab.add(&Member{Name: name}, false); err != nil {
				t.Fatal(err)
			}
		}
		l.tables = append(l.tables, tab)
	}
	l.unpackNames()
	var err error
	if g := l.group(); g != nil {
		err = l.samples(g)
	} else {
		err = l.files()
	}
	return l, err
}

// text describes a layout, or the error.
func (l *layout) text() string {
	var out []string
	for _, f := range l.fields {
		out = append(out, fmt.Sprintf("%s:%s", f.name, f.kind))
	}
	for r := range int(l.records()) {
		shard := 0
		for shard+1 < len(l.first) && l.first[shard+1] <= int64(r) {
			shard++
		}
		var row []string
		for f := range l.stored {
			row = append(row, path.Base(l.tables[shard].name(int(l.members[r*l.stored+f]))))
		}
		if l.labels != nil {
			row = append(row, l.classes[l.labels[r]])
		}
		out = append(out, strings.Join(row, "+"))
	}
	for _, s := range l.skipped {
		mark := "-"
		if s.Beside {
			mark = "~"
		}
		out = append(out, fmt.Sprintf("%s%s (%s)", mark, s.Path, s.Reason))
	}
	return strings.Join(out, " ")
}

func TestLayouts(t *testing.T) {
	for _, c := range []struct {
		what   string
		shards [][]string
		want   string
	}{
		{"samples", [][]string{{"0.jpg", "0.cls", "1.jpg", "1.cls"}, {"2.cls", "2.jpg"}},
			"image:image label:label 0.jpg+0.cls 1.jpg+1.cls 2.jpg+2.cls"},
		{"a sample ends with its shard", [][]string{{"0.jpg", "0.cls", "1.jpg"}, {"1.cls", "2.jpg", "2.cls", "3.jpg", "3.cls"}},
			"image:image label:label 0.jpg+0.cls 2.jpg+2.cls 3.jpg+3.cls -0/1.jpg (its sample has no label) -1/1.cls (its sample has no image)"},
		{"several formats of one field", [][]string{{"0.jpg", "0.txt", "1.PNG", "1.txt", "2.webp", "2.txt"}},
			"image:image text:text 0.jpg+0.txt 1.PNG+1.txt 2.webp+2.txt"},
		{"two of a kind in a sample", [][]string{{"0.jpg", "0.png", "1.jpg", "1.png"}},
			"jpg:image png:image 0.jpg+0.png 1.jpg+1.png"},
		{"names in front of the extension", [][]string{{"d/0.rgb.jpg", "d/0.seg.png", "d/0.depth.npy", "d/1.rgb.jpg", "d/1.seg.png", "d/1.depth.npy"}},
			"rgb:image seg:mask depth:array 0.rgb.jpg+0.seg.png+0.depth.npy 1.rgb.jpg+1.seg.png+1.depth.npy"},
		{"names that clash", [][]string{{"0.left.png", "0.left.txt", "0.index", "0."}},
			"left_png:image data:bytes index_:int left_txt:text 0.left.png+0.+0.index+0.left.txt"},
		{"what few have", [][]string{{"0.jpg", "0.cls", "0.json", "1.jpg", "1.cls", "2.jpg", "2.cls", "__meta__", "readme", "._3.jpg"}},
			"image:image label:label 0.jpg+0.cls 1.jpg+1.cls 2.jpg+2.cls -*.json (only 1 of 3 samples have it)"},
		{"an empty shard between others", [][]string{{"0.jpg", "0.cls"}, {}, {"1.jpg", "1.cls"}},
			"image:image label:label 0.jpg+0.cls 1.jpg+1.cls"},
		{"class folders", [][]string{{"b/1.jpg", "a/2.png", "b/c/3.jpg", "a/5.heic", "a/readme.md", "4.jpg", ".x/5.jpg", "a/@eaDir/6.jpg", "b/Thumbs.db"}},
			"image:image label:label 1.jpg+b 2.png+a 3.jpg+b -0/a/5.heic (is not of type image) ~0/a/readme.md (is not of type image) ~0/4.jpg (is outside the class folders, so it has no class)"},
		{"absolute names", [][]string{{"/a/0.jpg", "/b/1.jpg"}, {"//c//2.jpg"}},
			"image:image label:label 0.jpg+a 1.jpg+b 2.jpg+c"},
		{"names that lead out of the archive", [][]string{{"a/0.jpg", "../../b/1.jpg", "/b/2.jpg", "a/../../c/3.jpg", "./a/./4.jpg"}},
			"image:image label:label 0.jpg+a 1.jpg+b 2.jpg+b 3.jpg+c 4.jpg+a"},
		{"names from Windows", [][]string{{`a\0.jpg`, `C:\b\1.jpg`, `c:/a/2.jpg`, `..\b\3.jpg`, `b\c\4.jpg`}},
			"image:image label:label 0.jpg+a 1.jpg+b 2.jpg+a 3.jpg+b 4.jpg+b"},
		{"a backslash in a name with slashes", [][]string{{`a\b/0.jpg`, `c/1.jpg`}}, `image:image label:label 0.jpg+a\b 1.jpg+c`},
		{"names of no file", [][]string{{"a/0.jpg", "", "/", "..", "b/", "b/.", "a/x\x00.jpg", "b/1.jpg"}},
			"image:image label:label 0.jpg+a 1.jpg+b " +
				"-0/ (its name is not that of a file) -0/.. (its name is not that of a file) " +
				"-0/b/. (its name is not that of a file) -0/a/x\x00.jpg (its name is not that of a file)"},
		{"samples with absolute names", [][]string{{"/a/0.jpg", "a/0.cls", "./b/1.jpg", "b/1.cls"}}, "image:image label:label 0.jpg+0.cls 1.jpg+1.cls"},
		{"class folders in a folder", [][]string{{"./photos/b/1.jpg", "./photos/a/2.png"}, {"photos/c/x.jpg"}},
			"image:image label:label 1.jpg+b 2.png+a x.jpg+c"},
		{"images in one folder", [][]string{{"photos/1.jpg", "photos/2.png"}}, "image:image 1.jpg 2.png"},
		{"numbered files", [][]string{{"p.1.jpg", "p.2.jpg", "q.1.jpg"}}, "image:image p.1.jpg p.2.jpg q.1.jpg"},
		{"sounds", [][]string{{"dog/1.wav", "cat/2.flac"}}, "audio:audio label:label 1.wav+dog 2.flac+cat"},
		{"texts", [][]string{{"1.txt", "x/2.txt"}}, "text:text 1.txt 2.txt"},
		{"anything", [][]string{{"1.txt", "2.npy", "3"}}, "data:bytes 1.txt 2.npy 3"},
	} {
		l, err := made(t, c.shards...)
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
		} else if got := l.text(); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.what, got, c.want)
		}
	}
	for want, shards := range map[string][][]string{
		"there are no files in it":                                          {{".hidden"}},
		`0/a.jpg: the sample "a" has two members .jpg`:                      {{"a.jpg", "a.cls", "a.jpg"}},
		"no member suffix, such as .x, is in most":                          {{"0.x", "0.y", "1.z", "1.v"}},
		"none of its 3 samples has all fields that most samples have: a, b": {{"0.a", "0.b", "1.b", "1.c", "2.a", "2.c"}},
	} {
		if l, err := made(t, shards...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, %+v", shards, err, l)
		}
	}
	// With more suffixes than fields are allowed, the members are plain files.
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("cat/img.%d.jpg", i), fmt.Sprintf("dog/img.%d.jpg", i))
	}
	slices.Sort(many)
	if l, err := made(t, many); err != nil || l.records() != 200 || len(l.classes) != 2 {
		t.Errorf("%v, %d records", err, l.records())
	}
}

// A sample of very many members takes no longer than as many samples.
func TestSampleOfManyMembers(t *testing.T) {
	s := &samples{together: map[[2]int]bool{}, count: make([]int64, 3), suffix: make([]uint8, 1<<21)}
	s.suffix[7], s.suffix[9] = 1, 2
	s.note(0)
	if !s.shared || s.count[0] != 1<<21-2 || !maps.Equal(s.together, map[[2]int]bool{{0, 0}: true, {0, 1}: true, {0, 2}: true, {1, 2}: true}) {
		t.Errorf("%+v, %v", s.together, s.count)
	}
}
