package pairsource

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/source/formattest"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/store"
)

func TestPatterns(t *testing.T) {
	for _, test := range []struct{ pattern, name, key string }{
		{"images/*.jpg", "images/a.jpg", "a"},
		{"images/*.jpg", "images/a.b.jpg", "a.b"},
		{"images/*.jpg", "images/a.png", "-"},
		{"images/*.jpg", "images/deep/a.jpg", "-"},
		{"images/*.jpg", "other/a.jpg", "-"},
		{"images/*", "images/a.jpg", "a"},
		{"images/*", "images/a", "a"},
		{"*.jpg", "a.jpg", "a"},
		{"images/**/*.jpg", "images/a.jpg", "a"},
		{"images/**/*.jpg", "images/cat/big/a.jpg", "cat/big/a"},
		{"**/images/*.jpg", "x/y/images/a.jpg", "x/y/a"},
		{"leftImg8bit/train/*/*_leftImg8bit.png", "leftImg8bit/train/bonn/bonn_1_leftImg8bit.png", "bonn/bonn_1"},
		{"gtFine/train/*/*_gtFine_labelIds.png", "gtFine/train/bonn/bonn_1_gtFine_labelIds.png", "bonn/bonn_1"},
		{"gtFine/train/*/*_gtFine_labelIds.png", "gtFine/train/bonn/bonn_1_gtFine_color.png", "-"},
		{"a*b*c", "aXbYc", "X/Y"},
		{"a*b*c", "abc", ""},
		{"a*b*c", "acb", "-"},
	} {
		p, err := parsePattern(test.pattern)
		if err != nil {
			t.Fatal(err)
		}
		key, ok := p.key(test.name)
		if !ok {
			key = "-"
		}
		if key != test.key {
			t.Errorf("%s in %s has the key %q, want %q", test.name, test.pattern, key, test.key)
		}
		if ok && p.dir() != "" && !strings.HasPrefix(test.name, p.dir()+"/") {
			t.Errorf("%s is looked for in %s", test.pattern, p.dir())
		}
	}
	for _, bad := range []string{"", "/abs/*.jpg", "../*.jpg", "images/a.jpg", "images/**.jpg"} {
		if _, err := parsePattern(bad); err == nil {
			t.Errorf("%q is taken for a pattern", bad)
		}
	}
}

func TestURLs(t *testing.T) {
	fields := []Field{{Name: "image", Pattern: "images/*.jpg"}, {Name: "a&b", Kind: driver.KindMask, Pattern: "50%/*.png"}}
	u := URL("data/", fields)
	if u != "pairs:data/?image=images/*.jpg&a%26b:mask=50%25/*.png" {
		t.Error(u)
	}
	_, query, _ := strings.Cut(u, "?")
	if got, err := ParseQuery(query); err != nil || !slices.Equal(got, fields) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "image", "=images/*", "image=images/a.jpg", "image:label=x/*", "a=%zz*"} {
		if _, err := ParseQuery(bad); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

var fields = []Field{
	{Name: "image", Pattern: "images/*"}, {Name: "mask", Pattern: "masks/*_seg.png"}, {Name: "caption", Pattern: "texts/*.txt"},
	{Name: "sound", Pattern: "sounds/*.wav"}, {Name: "file", Kind: driver.KindBytes, Pattern: "texts/*.txt"},
}

func open(dir string) drivertest.Open {
	return func(t testing.TB) driver.Source {
		s, err := Open(t.Context(), "pairs:"+dir, localstore.New(dir), fields)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

func TestPairs(t *testing.T) {
	dir := formattest.Pairs(t, 20)
	s := open(dir)(t)
	defer s.Close()
	info := s.Info()
	if info.Len != 20 {
		t.Fatalf("%d records", info.Len)
	}
	for i, want := range []driver.Kind{driver.KindImage, driver.KindMask, driver.KindText, driver.KindAudio, driver.KindBytes} {
		if info.Fields[i].Kind != want || info.Fields[i].Name != fields[i].Name {
			t.Errorf("field %d is %+v, want %s", i, info.Fields[i], want)
		}
	}
	if info.Fields[1].DType != driver.Uint8 {
		t.Errorf("masks have %s", info.Fields[1].DType)
	}
	want := []driver.Skipped{
		{Path: "images/000.png", Reason: "has the name of images/000.jpeg"},
		{Path: "images/alone.png", Reason: "has no partner in masks/*_seg.png"},
		{Path: "masks/other_seg.png", Reason: "has no partner in images/*"},
	}
	if got := s.(driver.Skipper).Skipped(); !reflect.DeepEqual(got, want) {
		t.Errorf("skipped %v", got)
	}
	p := s.(driver.Pather)
	if a, b := p.Path(7, 0), p.Path(7, 1); a != "images/007.png" || b != "masks/007_seg.png" {
		t.Errorf("record 7 is %s and %s", a, b)
	}
	again := open(dir)(t)
	defer again.Close()
	if again.Info().Fingerprint != info.Fingerprint {
		t.Error("the fingerprint changes by itself")
	}
	if err := os.WriteFile(filepath.Join(dir, "masks", "003_seg.png"), formattest.Black(t, 100), 0o644); err != nil {
		t.Fatal(err)
	}
	changed := open(dir)(t)
	defer changed.Close()
	if changed.Info().Fingerprint == info.Fingerprint {
		t.Error("the fingerprint does not know of a mask")
	}
}

func TestWideMasks(t *testing.T) {
	dir := t.TempDir()
	for i := range 20 {
		var b bytes.Buffer
		var m image.Image = image.NewGray(image.Rect(0, 0, 2, 2))
		if i == 10 {
			m = image.NewGray16(image.Rect(0, 0, 2, 2))
		}
		if err := png.Encode(&b, m); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d.png", i)), b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Open(t.Context(), "pairs:", localstore.New(dir), []Field{{Name: "mask", Pattern: "*.png"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if f := s.Info().Fields[0]; f.DType != driver.Uint16 {
		t.Errorf("%+v", f)
	}
}

func TestRefusals(t *testing.T) {
	dir := formattest.Pairs(t, 2)
	for _, test := range []struct {
		fields []Field
		want   string
	}{
		{[]Field{{Name: "a", Pattern: "nowhere/*.jpg"}}, `field "a": no file is called `},
		{[]Field{{Name: "a", Pattern: "images/*"}, {Name: "a", Pattern: "masks/*"}}, "there twice"},
		{[]Field{{Name: "a", Pattern: "images/alone*"}, {Name: "b", Pattern: "masks/*_seg.png"}}, "no file of one field has a partner"},
	} {
		_, err := Open(t.Context(), "pairs:"+dir, localstore.New(dir), test.fields)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, test.want)
		}
	}
}

func FuzzPattern(f *testing.F) {
	f.Add("images/**/*_x.png", "images/a/b_x.png")
	f.Add("a*b*c", "aabbcc")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern) > 20 || len(name) > 40 {
			return // the time grows with the number of stars
		}
		if p, err := parsePattern(pattern); err == nil {
			_, _ = p.key(name)
			_ = p.dir()
		}
	})
}

// A pair with a part that cannot be read is one bad record, whichever field decides about types.
func TestBadFiles(t *testing.T) {
	fields := []Field{{Name: "image", Pattern: "images/**/*.png"}, {Name: "mask", Pattern: "masks/**/*.png"}}
	for _, name := range []string{"masks/0", "masks/zz"} {
		dir := t.TempDir()
		for i := range 4 {
			drivertest.Put(t, dir, fmt.Sprintf("images/%03d.png", i), formattest.Black(t, i+1))
			drivertest.Put(t, dir, fmt.Sprintf("masks/%03d.png", i), formattest.Black(t, i+1))
		}
		drivertest.BadFiles{
			Folder: dir, Name: name + ".png", Content: formattest.Black(t, 3), Opaque: true,
			Open: func(ctx context.Context, st store.Store) (driver.Source, error) {
				for _, end := range []string{"", "z"} { // their partners
					drivertest.Put(t, st.Path("images"), strings.TrimPrefix(name, "masks/")+end+".png", formattest.Black(t, 3))
				}
				return Open(ctx, "test", st, fields)
			},
		}.Run(t)
	}
}
