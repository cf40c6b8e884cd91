package pack

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/source/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testJPEG(t testing.TB, i, w, h int) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			m.Set(x, y, color.RGBA{uint8(x*x/3 + i), uint8(y*7 ^ x), uint8(i * 5), 255})
		}
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, m, &jpeg.Options{Quality: 85}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func writeFile(t testing.TB, content []byte, path ...string) {
	t.Helper()
	name := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// testFolder makes a folder of n JPEGs of different sizes in three classes.
func testFolder(t testing.TB, n int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "photos")
	for i := range n {
		writeFile(t, testJPEG(t, i, 100+i%13*9, 110+i%7*11), dir, []string{"cat", "dog", "zebra"}[i%3], fmt.Sprintf("%04d.jpg", i))
	}
	return dir
}

// small returns options that make many chunks and shards from little data.
func small(images string) *Options {
	return &Options{Images: images, ChunkBytes: 64 << 10, ShardBytes: 256 << 10}
}

func mustWrite(t testing.TB, src, dst string, opt *Options) *Summary {
	t.Helper()
	s, err := Write(t.Context(), src, dst, opt)
	if err != nil {
		t.Fatalf("Write: %v", err)
	}
	return s
}

// files returns the names and contents below dir.
func files(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		out[rel] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func sameFiles(t testing.TB, what, a, b string) {
	t.Helper()
	x, y := files(t, a), files(t, b)
	for name := range x {
		if _, ok := y[name]; !ok {
			t.Errorf("%s: %s is missing", what, name)
		} else if x[name] != y[name] {
			t.Errorf("%s: %s differs", what, name)
		}
	}
	for name := range y {
		if _, ok := x[name]; !ok {
			t.Errorf("%s: %s is too much", what, name)
		}
	}
}

// flat is a record with one image, and its properties.
type flat struct {
	*Record
	Label            int64
	Class            string
	Width, Height    int32
	Orientation      int32
	Codec            driver.Codec
	Image, EXIF, ICC []byte
}

func flatOf(rec *Record) *flat {
	f := &flat{Record: rec, Label: -1}
	if im := rec.Image(); im != nil {
		f.Width, f.Height, f.Orientation, f.Codec, f.Image, f.EXIF, f.ICC = im.Width, im.Height, im.Orientation, im.Codec, im.Bytes, im.EXIF, im.ICC
	}
	if l := rec.Label(); l != nil {
		f.Label, f.Class = l.Int, l.Class()
	}
	return f
}

// load reads records like a loader. A record that cannot be read has its Err set.
func load(t testing.TB, s driver.Source, ids ...int64) []driver.Record {
	t.Helper()
	obj := recordread.NewObjects(s, nil)
	defer obj.Close()
	recs, err := recordread.NewDirect(s, obj).Read(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	for i := range recs {
		for k := range recs[i].Values {
			recs[i].Values[k].Bytes = bytes.Clone(recs[i].Values[k].Bytes) // the objects are closed
		}
	}
	return recs
}

// readAll reads all records of a pack one by one.
func readAll(t testing.TB, dir string) []*flat {
	t.Helper()
	r, err := Open(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out []*flat
	for id := range r.Len() {
		rec, err := r.Record(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, flatOf(rec))
	}
	return out
}

func TestKeep(t *testing.T) {
	src, dst := testFolder(t, 60), filepath.Join(t.TempDir(), "p")
	s := mustWrite(t, src, dst, small(ImagesKeep))
	m := s.Manifest
	if m.Records != 60 || len(m.Skipped) != 0 || len(m.Shards) < 2 || !slices.Equal(m.Field("label").Classes, []string{"cat", "dog", "zebra"}) {
		t.Fatalf("%d records, %d skipped, %d shards, classes %v", m.Records, len(m.Skipped), len(m.Shards), m.Field("label").Classes)
	}
	last := ""
	for id, rec := range readAll(t, dst) {
		want, err := os.ReadFile(filepath.Join(src, rec.Path))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(rec.Image, want) || rec.Codec != driver.CodecJPEG || rec.Class != strings.Split(rec.Path, "/")[0] {
			t.Errorf("record %d: %s has %d bytes, class %s", id, rec.Path, len(rec.Image), rec.Class)
		}
		if rec.Path <= last {
			t.Errorf("record %d: %s comes after %s", id, rec.Path, last)
		}
		last = rec.Path
	}
	for name := range files(t, dst) {
		if name != ManifestName && !strings.HasSuffix(name, shardSuffix) {
			t.Errorf("%s is left over", name)
		}
	}
	rep, err := Verify(t.Context(), dst, &VerifyOptions{Decode: true})
	if err != nil || len(rep.Problems) > 0 || rep.Records != 60 {
		t.Errorf("Verify: %+v, %v", rep, err)
	}
}

// The bytes of a pack do not depend on the number of threads.
func TestDeterministic(t *testing.T) {
	src := testFolder(t, 80)
	writeFile(t, []byte("no image"), src, "cat", "0001.txt")
	for _, images := range []string{ImagesKeep, ImagesRaw, ImagesAuto} {
		one, many := filepath.Join(t.TempDir(), "p"), filepath.Join(t.TempDir(), "p")
		o := small(images)
		o.Threads = 1
		mustWrite(t, src, one, o)
		o = small(images)
		o.Threads = 7
		mustWrite(t, src, many, o)
		sameFiles(t, images, one, many)
	}
}

func TestBadFiles(t *testing.T) {
	src, dst := testFolder(t, 9), filepath.Join(t.TempDir(), "p")
	whole := testJPEG(t, 1, 100, 80)
	writeFile(t, nil, src, "cat", "empty.jpg")
	writeFile(t, whole[:len(whole)/2], src, "dog", "cut.jpg")
	writeFile(t, []byte("<html>404</html>"), src, "dog", "page.jpg")
	writeFile(t, whole[:len(whole)-2], src, "zebra", "noend.jpg") // only the end marker is missing
	writeFile(t, whole, src, "zebra", "really.png")               // by content, not by name
	writeFile(t, []byte("notes"), src, "README")
	writeFile(t, []byte("hidden"), src, "cat", ".DS_Store")
	if err := os.Symlink("nowhere", filepath.Join(src, "cat", "link.jpg")); err != nil {
		t.Fatal(err)
	}
	m := mustWrite(t, src, dst, small(ImagesKeep)).Manifest
	want := map[string]string{
		"cat/empty.jpg": "empty file",
		"cat/link.jpg":  "no such file",
		"dog/cut.jpg":   "truncated",
		"dog/page.jpg":  `not an image: it begins with "<html>40"`,
	}
	for _, s := range m.Skipped {
		if w, ok := want[s.Path]; !ok || !strings.Contains(s.Reason, w) {
			t.Errorf("skipped %s: %s (want %q)", s.Path, s.Reason, w)
		}
		delete(want, s.Path)
	}
	if len(want) > 0 {
		t.Errorf("not listed: %v", want)
	}
	if len(m.Beside) != 1 || m.Beside[0].Count != 1 || m.Beside[0].Examples[0] != "README" {
		t.Errorf("beside: %+v", m.Beside)
	}
	if m.Records != 11 {
		t.Errorf("%d records, want 11", m.Records)
	}
	if rep, err := Verify(t.Context(), dst, &VerifyOptions{Decode: true}); err != nil || len(rep.Problems) > 0 {
		t.Errorf("Verify: %+v, %v", rep, err)
	}
}

func TestUnreadableFile(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root reads everything")
	}
	src, dst := testFolder(t, 4), filepath.Join(t.TempDir(), "p")
	if err := os.Chmod(filepath.Join(src, "cat", "0000.jpg"), 0); err != nil {
		t.Fatal(err)
	}
	m := mustWrite(t, src, dst, small(ImagesKeep)).Manifest
	if len(m.Skipped) != 1 || m.Skipped[0].Reason != "permission denied" {
		t.Errorf("skipped %v", m.Skipped)
	}
}

func TestNothingToPack(t *testing.T) {
	empty, bad := t.TempDir(), t.TempDir()
	writeFile(t, []byte("text"), bad, "a", "b.jpg")
	for src, want := range map[string]string{
		empty:                         "no image in",
		bad:                           "none of the 1 files",
		filepath.Join(empty, "x"):     "no such file",
		filepath.Join(bad, "a/b.jpg"): "is not a folder",
	} {
		dst := filepath.Join(t.TempDir(), "p")
		_, err := Write(t.Context(), src, dst, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", src, err, want)
		}
		if _, err := os.Stat(dst); err == nil {
			t.Errorf("%s: a folder is left", src)
		}
	}
}

// flat folders have no labels.
func TestFlat(t *testing.T) {
	src, dst := t.TempDir(), filepath.Join(t.TempDir(), "p")
	for i := range 5 {
		writeFile(t, testJPEG(t, i, 30, 30), src, fmt.Sprintf("%d.jpg", i))
	}
	m := mustWrite(t, src, dst, nil).Manifest
	if m.Field("label") != nil || m.FieldOf(driver.KindImage) == nil || m.Records != 5 {
		t.Errorf("fields %v", m.Fields)
	}
}

// Names of classes that are not UTF-8 stay different, and the pack of them can be opened.
func TestNamesThatAreNotUTF8(t *testing.T) {
	src, dst := t.TempDir(), filepath.Join(t.TempDir(), "pack\xff")
	for i, class := range []string{"k\xff", "k\xfe", "\xe9t\xe9", "a"} {
		writeFile(t, testJPEG(t, i, 40, 30), src, class, "x\xff.jpg")
	}
	mustWrite(t, src, dst, small(ImagesKeep))
	r, err := Open(t.Context(), dst, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got := r.Manifest().FieldOf(driver.KindLabel).Classes; !slices.Equal(got, []string{"a", `k\xfe`, `k\xff`, `\xe9t\xe9`}) {
		t.Errorf("classes %q", got)
	}
	if rep := must(Verify(t.Context(), dst, nil)); len(rep.Problems) > 0 {
		t.Errorf("%+v", rep)
	}
}

func TestOtherFormatsAndRaw(t *testing.T) {
	src := t.TempDir()
	m := image.NewNRGBA(image.Rect(0, 0, 33, 21))
	for i := range m.Pix {
		m.Pix[i] = uint8(i * 31)
		if i%4 == 3 {
			m.Pix[i] = 255
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	writeFile(t, b.Bytes(), src, "a", "x.png")
	writeFile(t, testJPEG(t, 3, 64, 48), src, "b", "y.jpg")

	dst := filepath.Join(t.TempDir(), "p")
	mustWrite(t, src, dst, &Options{Images: ImagesRaw})
	recs := readAll(t, dst)
	if recs[0].Width != 33 || recs[0].Height != 21 || recs[0].Codec != driver.CodecRaw {
		t.Fatalf("record 0 is %d x %d, codec %d", recs[0].Width, recs[0].Height, recs[0].Codec)
	}
	for i := range 33 * 21 {
		if !bytes.Equal(recs[0].Image[3*i:3*i+3], m.Pix[4*i:4*i+3]) {
			t.Fatalf("pixel %d differs", i)
		}
	}
	data, ext, err := recs[0].Record.Image().File()
	if err != nil || ext != ".png" {
		t.Fatalf("File: %s, %v", ext, err)
	}
	if again, err := png.Decode(bytes.NewReader(data)); err != nil || again.Bounds().Dx() != 33 {
		t.Errorf("exported PNG: %v", err)
	}

	for _, test := range []struct {
		resize string
		w, h   [2]int32
	}{{"16", [2]int32{25, 21}, [2]int32{16, 16}}, {"20x10", [2]int32{20, 20}, [2]int32{10, 10}}} {
		rs, err := ParseResize(test.resize)
		if err != nil {
			t.Fatal(err)
		}
		dst := filepath.Join(t.TempDir(), "p")
		mustWrite(t, src, dst, &Options{Images: ImagesRaw, Resize: rs})
		for i, rec := range readAll(t, dst) {
			if rec.Width != test.w[i] || rec.Height != test.h[i] || len(rec.Image) != int(3*rec.Width*rec.Height) {
				t.Errorf("--resize %s: record %d is %d x %d, want %d x %d", test.resize, i, rec.Width, rec.Height, test.w[i], test.h[i])
			}
		}
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{
		{Images: "jpeg"}, {Images: "a=raw,dct"}, {Images: "a=raw,a=dct"}, {Images: "=raw"}, {Check: "no"}, {Images: ImagesKeep, Resize: Resize{Short: 3}}, {ChunkBytes: 1}, {ChunkBytes: 8 << 20, ShardBytes: 1 << 20},
	} {
		if o.Validate() == nil {
			t.Errorf("%+v passes", o)
		}
	}
	for _, s := range []string{"0", "x", "1x", "-3", "99999", "2x3x4", "1e3"} {
		if _, err := ParseResize(s); err == nil {
			t.Errorf("ParseResize(%q) passes", s)
		}
	}
}

func TestRefusals(t *testing.T) {
	src := testFolder(t, 6)
	other := testFolder(t, 7)
	dst := filepath.Join(t.TempDir(), "p")
	mustWrite(t, src, dst, small(ImagesKeep))
	if s := mustWrite(t, src, dst, small(ImagesKeep)); !s.Unchanged {
		t.Errorf("the same again was not recognised")
	}
	full := t.TempDir()
	writeFile(t, []byte("x"), full, "thesis.tex")
	for _, test := range []struct{ src, dst, want string }{
		{other, dst, "is a finished pack of " + src},
		{src, full, "is not empty (thesis.tex is in it)"},
		{src, filepath.Join(src, "cat", "p"), "lies inside of"},
		{dst, filepath.Join(t.TempDir(), "q"), "is a pack already"},
	} {
		if _, err := Write(t.Context(), test.src, test.dst, small(ImagesKeep)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s to %s: %v, want %q", test.src, test.dst, err, test.want)
		}
	}
}

// If the folder or the options of a pack have changed, the pack is made again only with Restart.
func TestFinishedPackOfOtherData(t *testing.T) {
	src := testFolder(t, 6)
	dst := filepath.Join(t.TempDir(), "p")
	mustWrite(t, src, dst, small(ImagesKeep))
	refused := func(o *Options, want ...string) {
		t.Helper()
		_, err := Write(t.Context(), src, dst, o)
		for _, w := range append(want, "--restart") {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%v, want %q", err, w)
			}
		}
		if _, err := ReadManifest(dst); err != nil {
			t.Error(err)
		}
	}
	refused(small(ImagesRaw), "other options", "images: keep then, raw now")
	writeFile(t, testJPEG(t, 99, 40, 30), src, "cat/more.jpg")
	refused(small(ImagesKeep), src+" has changed", "6 files then, 7 now", "--append")
	again := small(ImagesKeep)
	again.Restart = true
	if s := mustWrite(t, src, dst, again); s.Manifest.Records != 7 {
		t.Errorf("%d records", s.Manifest.Records)
	}
	name := filepath.Join(src, "cat/more.jpg")
	if err := os.Chtimes(name, time.Time{}, time.Unix(1e9, 0)); err != nil {
		t.Fatal(err)
	}
	refused(small(ImagesKeep), src+" has changed", "times of change")
	other := testFolder(t, 5)
	if _, err := Write(t.Context(), other, dst, again); err == nil || !strings.Contains(err.Error(), "is a finished pack of "+src) {
		t.Errorf("another folder: %v", err)
	}
	if _, err := Write(t.Context(), src, "/proc/none/p", small(ImagesKeep)); err == nil || !strings.Contains(err.Error(), "cannot make the folder /proc/none") {
		t.Errorf("a folder that cannot be made: %v", err)
	}
	if _, err := Write(t.Context(), src, "gcs://bucket/p", small(ImagesKeep)); err == nil || !strings.Contains(err.Error(), "did you mean gs?") {
		t.Errorf("another scheme: %v", err)
	}
}

func TestMetadata(t *testing.T) {
	src := t.TempDir()
	plainJPEG := testJPEG(t, 1, 64, 48)
	exif := []byte("II*\x00\x08\x00\x00\x00\x01\x00\x12\x01\x03\x00\x01\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00\x00")
	icc := bytes.Repeat([]byte("icc"), 100)
	full := bytes.Clone(plainJPEG[:2])
	for marker, data := range map[byte]string{0xE1: "Exif\x00\x00" + string(exif), 0xE2: "ICC_PROFILE\x00\x01\x01" + string(icc)} {
		full = append(full, 0xFF, marker, byte((len(data)+2)>>8), byte(len(data)+2))
		full = append(full, data...)
	}
	full = append(full, plainJPEG[2:]...)
	writeFile(t, full, src, "a.jpg")

	keep := filepath.Join(t.TempDir(), "keep")
	mustWrite(t, src, keep, &Options{Images: ImagesKeep})
	if rec := readAll(t, keep)[0]; !bytes.Equal(rec.Image, plainJPEG) || rec.Orientation != 6 {
		t.Errorf("without metadata: %d bytes, orientation %d; want %d and 6", len(rec.Image), rec.Orientation, len(plainJPEG))
	}
	keep = filepath.Join(t.TempDir(), "keep-all")
	mustWrite(t, src, keep, &Options{Images: ImagesKeep, Metadata: true})
	if rec := readAll(t, keep)[0]; !bytes.Equal(rec.Image, full) {
		t.Errorf("with metadata: %d bytes, want the %d of the file", len(rec.Image), len(full))
	}

	dct := filepath.Join(t.TempDir(), "dct")
	mustWrite(t, src, dct, &Options{Images: ImagesDCT, Metadata: true})
	rec := readAll(t, dct)[0]
	if rec.Codec != driver.CodecDCT || !bytes.Equal(rec.EXIF, exif) || len(rec.ICC) != 300 || rec.Orientation != 6 {
		t.Fatalf("dct: codec %d, %d bytes of EXIF, %d of ICC, orientation %d", rec.Codec, len(rec.EXIF), len(rec.ICC), rec.Orientation)
	}
	back := filepath.Join(t.TempDir(), "back")
	if _, err := Convert(t.Context(), dct, back, &Options{Images: ImagesKeep}); err != nil {
		t.Fatal(err)
	}
	again := readAll(t, back)[0]
	if !bytes.Contains(again.Image, exif) || !bytes.Contains(again.Image, []byte("ICC_PROFILE")) {
		t.Errorf("converted back, EXIF or ICC are missing")
	}
	samePixels(t, full, again.Image)
}

func samePixels(t testing.TB, a, b []byte) {
	t.Helper()
	w, err := newWorker(&Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	pixels := func(b []byte) []byte {
		info, err := imagefile.Check(b)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.enc.tryDecode(fileValue(b, &info)); err != nil {
			t.Fatal(err)
		}
		return bytes.Clone(w.enc.pixels)
	}
	if !bytes.Equal(pixels(a), pixels(b)) {
		t.Errorf("pixels differ")
	}
}

func TestConvert(t *testing.T) {
	src, keep := testFolder(t, 40), filepath.Join(t.TempDir(), "keep")
	mustWrite(t, src, keep, small(ImagesKeep))
	convert := func(from, images string) string {
		t.Helper()
		to := filepath.Join(t.TempDir(), images)
		if _, err := Convert(t.Context(), from, to, small(images)); err != nil {
			t.Fatal(err)
		}
		return to
	}
	dct := convert(keep, ImagesDCT)
	back := convert(dct, ImagesKeep)
	want, got := readAll(t, keep), readAll(t, back)
	for i := range want {
		if want[i].Path != got[i].Path || want[i].Label != got[i].Label {
			t.Errorf("record %d is %s, was %s", i, got[i].Path, want[i].Path)
		}
		samePixels(t, want[i].Image, got[i].Image)
	}
	// Raw pixels are the same for all ways of making them.
	a, b := readAll(t, convert(dct, ImagesRaw)), readAll(t, convert(keep, ImagesRaw))
	for i := range a {
		if !bytes.Equal(a[i].Image, b[i].Image) {
			t.Errorf("record %d: raw pixels differ", i)
		}
	}
	raw := convert(keep, ImagesRaw)
	if _, err := Convert(t.Context(), raw, filepath.Join(t.TempDir(), "x"), small(ImagesKeep)); err == nil || !strings.Contains(err.Error(), "cannot become files again") {
		t.Errorf("raw to keep: %v", err)
	}
}

// Converting a damaged pack must not make the damage look right.
func TestConvertRefusesDamage(t *testing.T) {
	src, keep := testFolder(t, 20), filepath.Join(t.TempDir(), "keep")
	mustWrite(t, src, keep, small(ImagesKeep))
	flip(t, filepath.Join(keep, Piece{}.shard(0)), 40000)
	_, err := Convert(t.Context(), keep, filepath.Join(t.TempDir(), "x"), small(ImagesRaw))
	if err == nil || !strings.Contains(err.Error(), "is damaged: checksum") {
		t.Errorf("Convert: %v", err)
	}
}

// flip changes one bit of a file.
func flip(t testing.TB, name string, at int64) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x10
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
}

func TestVerifyNamesTheDamage(t *testing.T) {
	src, dst := testFolder(t, 60), filepath.Join(t.TempDir(), "p")
	m := mustWrite(t, src, dst, small(ImagesKeep)).Manifest
	c := m.Shards[1].Chunks[1]
	flip(t, filepath.Join(dst, m.Shards[1].File), c.Offset+c.Bytes/2)
	first := m.Shards[0].Records + m.Shards[1].Chunks[0].Rows
	rep, err := Verify(t.Context(), dst, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(rep.Problems) != 1 {
		t.Fatalf("problems: %v", rep.Problems)
	}
	p := rep.Problems[0]
	if p.Shard != m.Shards[1].File || p.Chunk != 1 || p.FirstRecord != first || p.LastRecord != first+c.Rows-1 || !strings.HasPrefix(p.Reason, "checksum ") {
		t.Errorf("problem %+v; want chunk 1 of %s, records from %d on", p, m.Shards[1].File, first)
	}
	if err := os.Truncate(filepath.Join(dst, m.Shards[0].File), 1000); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dst, m.Shards[2].File)); err != nil {
		t.Fatal(err)
	}
	rep, err = Verify(t.Context(), dst, nil)
	if err != nil {
		t.Fatal(err)
	}
	var text []string
	for _, p := range rep.Problems {
		text = append(text, p.String())
	}
	all := strings.Join(text, "\n")
	for _, want := range []string{"shard-00000.arrow: it has 1000 bytes", "shard-00001.arrow, chunk 1", "shard-00002.arrow: the file is missing"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in:\n%s", want, all)
		}
	}
	if _, err := Open(t.Context(), dst, nil); err == nil || !strings.Contains(err.Error(), "not whole") {
		t.Errorf("Open: %v", err)
	}
}

// A single image that cannot be decoded although the checksum is right.
func TestVerifyDecode(t *testing.T) {
	src := t.TempDir()
	b := testJPEG(t, 1, 200, 200)
	for i := len(b) / 2; i < len(b)/2+60; i++ {
		b[i] = byte(i) & 0x7F // same markers, other picture data
	}
	writeFile(t, b, src, "a", "broken.jpg")
	writeFile(t, testJPEG(t, 2, 50, 50), src, "a", "whole.jpg")
	dst := filepath.Join(t.TempDir(), "p")
	m := mustWrite(t, src, dst, &Options{Images: ImagesKeep}).Manifest
	if m.Records != 2 {
		t.Skip("the damage was found while packing")
	}
	rep, err := Verify(t.Context(), dst, &VerifyOptions{Decode: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(rep.Problems) != 1 || rep.Problems[0].Path != "a/broken.jpg" || rep.Problems[0].FirstRecord != 0 {
		t.Errorf("problems: %v", rep.Problems)
	}
	dst = filepath.Join(t.TempDir(), "q")
	m = mustWrite(t, src, dst, &Options{Images: ImagesKeep, Check: CheckDecode}).Manifest
	if m.Records != 1 || len(m.Skipped) != 1 || m.Skipped[0].Path != "a/broken.jpg" {
		t.Errorf("with --check decode: %d records, skipped %v", m.Records, m.Skipped)
	}
}

func TestUnfinishedIsRefused(t *testing.T) {
	src, dst := testFolder(t, 60), filepath.Join(t.TempDir(), "p q")
	interrupt(t, src, dst, small(ImagesKeep), 30)
	_, err := Open(t.Context(), dst, nil)
	if !errors.Is(err, ErrUnfinished) || !strings.Contains(err.Error(), "finish it with: stoker pack ") || !strings.Contains(err.Error(), "'"+dst+"' --images keep") {
		t.Errorf("Open: %v", err)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %v", err)
	}
	if _, err := Open(t.Context(), t.TempDir(), nil); !errors.Is(err, ErrNotPack) {
		t.Errorf("Open of an empty folder: %v", err)
	}
}

func TestUnknownVersion(t *testing.T) {
	src, dst := testFolder(t, 3), filepath.Join(t.TempDir(), "p")
	mustWrite(t, src, dst, nil)
	name := filepath.Join(dst, ManifestName)
	b, _ := os.ReadFile(name)
	for _, test := range []struct{ old, by, want string }{
		{`"version": 5`, `"version": 6`, "use a newer stoker"},
		{`"version": 5`, `"version": 4`, "packed by an older stoker (format version 4, this one reads 5): pack it again"},
		{`"format": "stoker-pack"`, `"format": "tar"`, "not a pack"},
		{`"records": 3`, `"records": 4`, "impossible statistics"},
		{`"label","kind":"label"`, `"label","kind":"int"`, "fingerprint"},
		{`"kind":"label"`, `"kind":"quaternion"`, "use a newer stoker"},
		{`"dct":{`, `"heic":{`, "use a newer stoker"},
	} {
		changed := bytes.Replace(b, []byte(test.old), []byte(test.by), 1)
		if bytes.Equal(changed, b) {
			t.Fatalf("%s is not in the manifest", test.old)
		}
		writeFile(t, changed, name)
		if _, err := Open(t.Context(), dst, nil); err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", test.by, err, test.want)
		}
	}
}

// A pack of 10,000 chunks opens in less than 50 ms.
func TestOpenManyChunks(t *testing.T) {
	dir := t.TempDir()
	m := &Manifest{Format: FormatName, Version: Version, Fields: []Field{
		{Name: "image", Kind: driver.KindImage, Stats: driver.FieldStats{Images: &driver.ImageStats{
			Codecs: map[string]driver.CodecStats{"jpeg": {Number: 1}}, MinWidth: 1, MinHeight: 1, MaxWidth: 500, MaxHeight: 500,
		}}},
		{Name: "label", Kind: driver.KindLabel, Classes: []string{"a", "b"}, Stats: driver.FieldStats{Ints: &driver.IntStats{Max: 1}}},
	}}
	for i := range 100 {
		s := Shard{File: Piece{}.shard(i), Bytes: 100 * 8192 * 1024}
		for k := range 100 {
			s.Chunks = append(s.Chunks, Chunk{Offset: int64(k) * 8192 * 1000, Bytes: 8192 * 1000, Head: 8192, Rows: 75, XXH3: Checksum(i*k) * 0x9E3779B97F4A7C15})
			s.Records += 75
		}
		f, err := os.Create(filepath.Join(dir, s.File))
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(s.Bytes); err != nil {
			t.Fatal(err)
		}
		f.Close()
		m.Shards = append(m.Shards, s)
		m.Records += s.Records
		m.Bytes += s.Bytes
	}
	for i := range m.Fields {
		m.Fields[i].Stats.Count = m.Records
	}
	m.Fingerprint = m.computeFingerprint()
	b, err := m.marshal()
	if err != nil {
		t.Fatal(err)
	}
	var check Manifest
	if err := json.Unmarshal(b, &check); err != nil || !json.Valid(b) {
		t.Fatalf("the manifest is not JSON: %v", err)
	}
	writeFile(t, b, dir, ManifestName)
	r, err := Open(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
}

func TestReadErrorsAreOfOneRecord(t *testing.T) {
	src, dst := testFolder(t, 60), filepath.Join(t.TempDir(), "p")
	m := mustWrite(t, src, dst, small(ImagesKeep)).Manifest
	r, err := Open(t.Context(), dst, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := os.Remove(filepath.Join(dst, m.Shards[1].File)); err != nil {
		t.Fatal(err)
	}
	lost := m.Shards[0].Records
	recs := load(t, r, 0, lost)
	if recs[0].Err != nil || len(recs[0].Values[0].Bytes) == 0 {
		t.Errorf("record 0: %v", recs[0].Err)
	}
	if err := recs[1].Err; err == nil || !strings.Contains(err.Error(), "shard-00001.arrow") || !strings.Contains(err.Error(), "it is gone") {
		t.Errorf("record %d: %v", lost, err)
	}
}

func TestVerifyChunksWhileReading(t *testing.T) {
	src, dst := testFolder(t, 60), filepath.Join(t.TempDir(), "p")
	m := mustWrite(t, src, dst, small(ImagesKeep)).Manifest
	c := m.Shards[0].Chunks[0]
	flip(t, filepath.Join(dst, m.Shards[0].File), c.Offset+c.Bytes-100)
	r, err := Open(t.Context(), dst, &ReadOptions{VerifyChunks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := load(t, r, 0)[0].Err; err == nil || !strings.Contains(err.Error(), "chunk 0") || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("error %v", err)
	}
	last := r.Len() - 1
	if rec := load(t, r, last)[0]; rec.Err != nil {
		t.Errorf("record %d: %v", last, rec.Err)
	}
}
