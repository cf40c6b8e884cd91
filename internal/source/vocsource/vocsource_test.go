package vocsource

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/png"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/mask"
	"github.com/stokerdata/stoker/internal/source/boxes"
	"github.com/stokerdata/stoker/internal/source/formattest"
	"github.com/stokerdata/stoker/internal/store/faulttest"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/store"
)

func opener(dir string, opt *Options) drivertest.Open {
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) { return Open(ctx, "test", localstore.New(dir), opt) })
}

// segmented returns a folder of images with one to four objects and their masks.
func segmented(t testing.TB) string {
	dir := t.TempDir()
	for i := range 12 {
		m := image.NewGray(image.Rect(0, 0, 20, 15))
		for k := range m.Pix {
			if m.Pix[k] = uint8(k % (i%3 + 2)); k%17 == 0 {
				m.Pix[k] = border
			}
		}
		var b bytes.Buffer
		if err := png.Encode(&b, m); err != nil {
			t.Fatal(err)
		}
		drivertest.Put(t, dir, fmt.Sprintf("JPEGImages/%02d.png", i), formattest.Paletted(t, 20, 15, i))
		drivertest.Put(t, dir, fmt.Sprintf("SegmentationObject/%02d.png", i), b.Bytes())
		drivertest.Put(t, dir, fmt.Sprintf("Annotations/%02d.xml", i), []byte(formattest.VOCAnnotation(3)))
	}
	return dir
}

func TestStacks(t *testing.T) {
	dir := segmented(t)
	drivertest.Run(t, opener(dir, &Options{Masks: boxes.Stack}))
	s := opener(dir, &Options{Masks: boxes.Stack})(t)
	defer s.Close()
	at := len(s.Info().Fields) - 1
	for i, rec := range drivertest.Records(t, s, 0, 1, 2) {
		if rec.Err != nil {
			t.Fatal(rec.Err)
		}
		masks, w, h, err := mask.Stack(rec.Values[at].Bytes, nil)
		if err != nil || len(masks) != 3 || w != 20 || h != 15 {
			t.Fatalf("%d masks of %d x %d: %v", len(masks), w, h, err)
		}
		for n, runs := range masks {
			pix := make([]byte, w*h)
			v := driver.Value{Bytes: runs, Codec: driver.CodecRuns, Width: 20, Height: 15}
			if err := mask.Box(pix, 1, &v, item.Rect{W: 20, H: 15}); err != nil {
				t.Fatal(err)
			}
			for k, got := range pix {
				if want := k%17 != 0 && k%(i%3+2) == n+1; (got == 1) != want {
					t.Fatalf("record %d, mask %d, pixel %d: %d", i, n, k, got)
				}
			}
		}
	}
}

func BenchmarkFile(b *testing.B) { drivertest.Bench(b, opener(formattest.VOC(b), nil)) }

func TestRecords(t *testing.T) {
	s := opener(formattest.VOC(t), nil)(t)
	defer s.Close()
	if f := s.Info().Fields; s.Info().Len != formattest.VOCImages || len(f) != 5 || len(f[2].Classes) != 20 || f[1].Format != driver.XYXY {
		t.Fatalf("%+v", s.Info())
	}
	for i := range formattest.VOCImages {
		r := drivertest.Records(t, s, int64(i))[0]
		var boxes, labels, difficult, truncated []byte
		for k := range i % 4 {
			if i == 8 {
				break
			}
			for _, v := range []float32{float32(k), 2, float32(k) + 5.5, 9} {
				boxes = binary.LittleEndian.AppendUint32(boxes, math.Float32bits(v))
			}
			labels = binary.LittleEndian.AppendUint64(labels, uint64([]int{11, 7, 14}[k]))
			difficult, truncated = append(difficult, byte((k+1)%2)), append(truncated, byte(k%2))
		}
		v := r.Values
		if r.Err != nil || !bytes.Equal(v[0].Bytes, formattest.Paletted(t, 20, 15, i)) || !bytes.Equal(v[1].Bytes, boxes) || !bytes.Equal(v[2].Bytes, labels) ||
			!bytes.Equal(v[3].Bytes, difficult) || !bytes.Equal(v[4].Bytes, truncated) {
			t.Errorf("record %d: %v, %v", i, v[1:], r.Err)
		}
	}
	if left := s.(driver.Skipper).Skipped(); len(left) != 1 || left[0].Path != "Annotations/gone.xml" {
		t.Errorf("%+v", left)
	}
}

func TestSplitsAndMasks(t *testing.T) {
	dir := formattest.VOC(t)
	s := opener(dir, &Options{Split: "train"})(t)
	if s.Info().Len != 8 || !strings.HasSuffix(s.Name(1), "03.jpg") {
		t.Errorf("%+v, %s", s.Info(), s.Name(1))
	}
	s = opener(dir, &Options{Split: "val", Masks: boxes.Instances})(t)
	r := drivertest.Records(t, s, 1)[0]
	if s.Info().Len != 2 || !bytes.Equal(r.Values[5].Bytes, formattest.Paletted(t, 20, 15, 6)) || s.Info().Fields[5].Kind != driver.KindMask {
		t.Errorf("%+v", s.Info())
	}
	for _, split := range []string{"test", "../x"} {
		if _, err := Open(t.Context(), "test", localstore.New(dir), &Options{Split: split}); err == nil || !strings.Contains(err.Error(), "no split") {
			t.Error(err)
		}
	}
	if !Is(t.Context(), localstore.New(dir)) || Is(t.Context(), localstore.New(filepath.Join(dir, "Annotations"))) {
		t.Error("it is not known what a folder of VOC is")
	}
}

// Damaged files are errors of their records, with the file and the line. Other records are not affected.
func TestBadFiles(t *testing.T) {
	good := formattest.VOCAnnotation(3)
	for text, want := range map[string]string{
		good[:len(good)/2]: "it is cut off", "": "it is cut off", "text": "it is cut off", "<x></x>": "begins with <x>", "<annotation><object></annotation>": "unexpected </annotation>",
		"<annotation><object><name>a</name></object></annotation>":      "no name or no box",
		strings.Replace(good, "<xmin>0</xmin>", "<xmin>left</xmin>", 1): `expected a number for xmin, got "left"`,
		strings.Repeat("<annotation>", 100):                             "64 deep",
		"<annotation>" + strings.Repeat("<a b=\"", 3):                   "invalid XML",
		strings.Replace(good, "</annotation>", "", 1):                   "cut off",
	} {
		dir := t.TempDir()
		for i := range 2 {
			drivertest.Put(t, dir, fmt.Sprintf("JPEGImages/%d.png", i), formattest.Paletted(t, 4, 4, i))
		}
		drivertest.Put(t, dir, "Annotations/0.xml", []byte(text))
		drivertest.Put(t, dir, "Annotations/1.xml", []byte(good))
		s := opener(dir, nil)(t)
		r := drivertest.Records(t, s, 0, 1)
		if err := r[0].Err; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "0.xml, line ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
		if r[1].Err != nil || len(r[1].Values[1].Bytes) != 48 {
			t.Errorf("%.40q: the other record: %v", text, r[1].Err)
		}
	}
	dir := t.TempDir()
	drivertest.Put(t, dir, "JPEGImages/0.png", formattest.Paletted(t, 4, 4, 0))
	drivertest.Put(t, dir, "Annotations/0.xml", make([]byte, maxXML+1))
	if err := drivertest.Records(t, opener(dir, nil)(t), 0)[0].Err; err == nil || !strings.Contains(err.Error(), "0.xml has") || !strings.Contains(err.Error(), "the limit is") {
		t.Error(err)
	}
	drivertest.BadFiles{
		Folder: formattest.VOC(t), Name: "JPEGImages/zz.jpg", Content: formattest.Paletted(t, 20, 15, 3), Opaque: true,
		Open: func(ctx context.Context, st store.Store) (driver.Source, error) {
			if err := os.MkdirAll(st.Path("Annotations"), 0o755); err != nil {
				return nil, err
			}
			return Open(ctx, "test", st, nil)
		},
	}.Run(t)
}

// An annotation or a mask that cannot be read makes one bad record.
func TestUnreadableParts(t *testing.T) {
	for name, c := range map[string]struct {
		part  string
		make  func(p string) error
		fault error
		opt   *Options
	}{
		"dangling annotation": {part: "Annotations/04.xml", make: func(p string) error { return os.Symlink("nowhere", p) }},
		"closed annotation":   {part: "Annotations/04.xml", fault: syscall.EACCES},
		"dangling mask":       {part: "SegmentationClass/04.png", make: func(p string) error { return os.Symlink("nowhere", p) }, opt: &Options{Masks: boxes.Classes}},
		"closed mask":         {part: "SegmentationClass/04.png", fault: syscall.EACCES, opt: &Options{Masks: boxes.Classes}},
	} {
		dir := formattest.VOC(t)
		p := filepath.Join(dir, c.part)
		if c.make != nil {
			if err := errors.Join(os.Remove(p), c.make(p)); err != nil {
				t.Fatal(err)
			}
		}
		st := store.Store(localstore.New(dir))
		if c.fault != nil {
			st = faulttest.New(st, 1, faulttest.Error(c.fault).On(faulttest.Open).Named(path.Base(c.part)))
		}
		s, err := Open(t.Context(), "test", st, c.opt)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if info := s.Info(); info.BadFiles != 1 || len(info.Bad) != 1 {
			t.Errorf("%s: %d bad files: %v", name, info.BadFiles, info.Bad)
		}
		for id := range s.Info().Len {
			r := drivertest.Records(t, s, id)[0]
			if bad := strings.HasSuffix(s.Name(id), "/04.jpg"); bad != (r.Err != nil) || bad && !strings.Contains(r.Err.Error(), p) {
				t.Errorf("%s: %s: %v", name, s.Name(id), r.Err)
			}
		}
		s.Close()
	}
	dir := formattest.VOC(t)
	st := faulttest.New(localstore.New(dir), 1, faulttest.Error(syscall.ENOMEM).On(faulttest.Open).Named("04.xml"))
	if _, err := Open(t.Context(), "test", st, nil); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("without memory: %v", err)
	}
}

// Other classes than Pascal VOC's are the ones found, sorted.
func TestOtherClasses(t *testing.T) {
	dir := t.TempDir()
	drivertest.Put(t, dir, "images/0.png", formattest.Paletted(t, 4, 4, 0))
	drivertest.Put(t, dir, "Annotations/0.xml", []byte(strings.NewReplacer("dog", "zebra", "cat", "ant").Replace(formattest.VOCAnnotation(3))))
	s := opener(dir, nil)(t)
	if f := s.Info().Fields[2]; !slices.Equal(f.Classes, []string{"ant", "person", "zebra"}) {
		t.Errorf("%v", f.Classes)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(formattest.VOCAnnotation(3)))
	f.Add([]byte("<annotation><object/></annotation>"))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = parse(b) })
}
