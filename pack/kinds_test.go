package pack

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/mask"
	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

// everyKind is a source in memory with a field of each kind, two of some. Values
// of bytes, text and lists have up to wide bytes or rows.
type everyKind struct {
	n    int64
	wide int
	bad  map[int64]bool
	info driver.Info
	load func(id int64)
}

func newEveryKind(n int64, wide int) *everyKind {
	names := []string{"sky", "road", "tree"}
	return &everyKind{n: n, wide: wide, info: driver.Info{
		URL: "every-kind", Format: "test", Len: n, Fingerprint: fmt.Sprintf("k%d-%d", n, wide), Fields: []driver.Field{
			{Name: "blob", Kind: driver.KindBytes},
			{Name: "label", Kind: driver.KindLabel, Classes: []string{"a", "b", "c"}},
			{Name: "grid", Kind: driver.KindArray, DType: driver.Uint16, Shape: []int{2, 3}},
			{Name: "caption", Kind: driver.KindText},
			{Name: "score", Kind: driver.KindArray, DType: driver.Float32},
			{Name: "count", Kind: driver.KindInt},
			{Name: "weight", Kind: driver.KindFloat},
			{Name: "left", Kind: driver.KindImage},
			{Name: "right", Kind: driver.KindImage},
			{Name: "mask", Kind: driver.KindMask, DType: driver.Uint8, Classes: names},
			{Name: "instances", Kind: driver.KindMask, DType: driver.Uint16},
			{Name: "tags", Kind: driver.KindMultiLabel, Classes: names},
			{Name: "facts", Kind: driver.KindJSON},
			{Name: "boxes", Kind: driver.KindRagged, DType: driver.Float32, Shape: []int{4}},
			{Name: "walk", Kind: driver.KindRagged, DType: driver.Int16},
			{Name: "sound", Kind: driver.KindAudio},
			{Name: "document", Kind: driver.KindTokens, DType: driver.Uint32},
			{Name: "flags", Kind: driver.KindArray, DType: driver.Bool, Shape: []int{5}},
		},
	}}
}

// values makes the values of a record.
func (s *everyKind) values(id int64) []driver.Value {
	rng := rand.New(rand.NewPCG(uint64(id), 3))
	some := func(unit int) []byte {
		b := make([]byte, unit*rng.IntN(s.wide+1))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	floats := func(n int) []byte {
		var b []byte
		for range n {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(rng.NormFloat64())))
		}
		return b
	}
	var grid, tags []byte
	for i := range 6 {
		grid = binary.LittleEndian.AppendUint16(grid, uint16(id*7+int64(i)))
	}
	for range rng.IntN(4) {
		tags = binary.LittleEndian.AppendUint64(tags, uint64(rng.IntN(3)))
	}
	facts, _ := json.Marshal(map[string]any{"id": id, "words": strings.Repeat("w", rng.IntN(s.wide+1))})
	small := image.NewGray(image.Rect(0, 0, 3+int(id%5), 4))
	for i := range small.Pix {
		small.Pix[i] = byte(rng.IntN(3))
	}
	wide := image.NewGray16(image.Rect(0, 0, 6, 5))
	for y := range 5 {
		for x := range 6 {
			wide.SetGray16(x, y, color.Gray16{Y: uint16(id) * 300})
		}
	}
	flags := make([]byte, 5)
	for i := range flags {
		flags[i] = byte(id >> i & 1)
	}
	return []driver.Value{
		{Bytes: some(1)}, {Int: id % 3}, {Bytes: grid}, {Bytes: fmt.Appendf(nil, "record %d äöü", id)}, {Bytes: floats(1)},
		{Int: -id}, {Float: float64(id) / 8}, {Bytes: pngBytes(small)}, {Bytes: pngBytes(wide)}, {Bytes: pngBytes(small)}, {Bytes: pngBytes(wide)},
		{Bytes: tags}, {Bytes: facts}, {Bytes: floats(4 * rng.IntN(3))}, {Bytes: some(2)}, {Bytes: wavBytes(some(2))},
		{Bytes: some(4)}, {Bytes: flags},
	}
}

// wavBytes returns a recording of samples of 16 bits.
func wavBytes(samples []byte) []byte {
	b := []byte("RIFF....WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x80\x3e\x00\x00\x02\x00\x10\x00data")
	binary.LittleEndian.PutUint32(b[4:], uint32(36+len(samples)))
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(samples))), samples...)
}

// pngBytes returns a PNG that no other version of the encoder compresses better: golden packs are made of it.
func pngBytes(m image.Image) []byte {
	var b bytes.Buffer
	e := png.Encoder{CompressionLevel: png.NoCompression}
	if err := e.Encode(&b, m); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func (s *everyKind) Info() *driver.Info         { return &s.info }
func (s *everyKind) Object(int64) driver.Object { panic("there is none") }
func (s *everyKind) Name(id int64) string       { return fmt.Sprint("record ", id) }
func (s *everyKind) Close() error               { return nil }

func (s *everyKind) Locate(g *driver.Group) {
	for range g.IDs {
		g.Next()
	}
}

func (s *everyKind) Parse(g *driver.Group) error {
	for k, id := range g.IDs {
		if s.load != nil {
			s.load(id)
		}
		if s.bad[id] {
			g.Records[k].Err = errors.New("it is broken")
			continue
		}
		copy(g.Records[k].Values, s.values(id))
	}
	return nil
}

// withPaths is everyKind whose records have paths.
type withPaths struct{ *everyKind }

func (s withPaths) Path(id int64, field int) string {
	return fmt.Sprintf("%s/%d.bin", s.info.Fields[field].Name, id)
}

func mustWriteSource(t testing.TB, s driver.Source, dst string, opt *Options) *Summary {
	t.Helper()
	sum, err := WriteSource(t.Context(), s, dst, opt)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// samePicture compares an image or a mask with the file that it was made from.
func samePicture(t testing.TB, f *Field, got *driver.Value, file []byte) {
	t.Helper()
	if f.Kind == driver.KindImage {
		if got.Codec != driver.CodecPNG || !bytes.Equal(got.Bytes, file) {
			t.Fatalf("%s has codec %d and %d bytes, want %d of PNG", f.Name, got.Codec, len(got.Bytes), len(file))
		}
		return
	}
	want, err := mask.FromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pix := make([]byte, len(want.Pix))
	if err := mask.Box(pix, want.Size, got, item.Rect{W: got.Width, H: got.Height}); err != nil || !bytes.Equal(pix, want.Pix) {
		t.Fatalf("%s differs: %v", f.Name, err)
	}
}

// checkEveryKind compares a pack with its source, whose records are those of ids.
func checkEveryKind(t *testing.T, dir string, s *everyKind, ids []int64) {
	t.Helper()
	r, err := Open(t.Context(), dir, &ReadOptions{VerifyChunks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.Len() != int64(len(ids)) {
		t.Fatalf("%d records, want %d", r.Len(), len(ids))
	}
	for i, f := range r.Info().Fields {
		want := s.info.Fields[i]
		if f.Name != want.Name || f.Kind != want.Kind || f.DType != want.DType || !slices.Equal(f.Shape, want.Shape) || !slices.Equal(f.Classes, want.Classes) ||
			f.Stats.Count != r.Len() {
			t.Errorf("field %d is %+v, want %+v", i, f, want)
		}
	}
	compare := func(what string, f *Field, got, want *driver.Value) {
		if f.picture() {
			samePicture(t, f, got, want.Bytes)
		} else if got.Int != want.Int || got.Float != want.Float || !bytes.Equal(got.Bytes, want.Bytes) {
			t.Fatalf("%s: %s is %v, want %v", what, f.Name, got, want)
		}
	}
	var at []int64
	for _, k := range rand.New(rand.NewPCG(8, 8)).Perm(len(ids)) {
		at = append(at, int64(k))
	}
	for i, rec := range load(t, r, at...) {
		if rec.Err != nil {
			t.Fatal(rec.Err)
		}
		want := s.values(ids[at[i]])
		for k := range want {
			compare(fmt.Sprint("record ", at[i]), &r.man.Fields[k], &rec.Values[k], &want[k])
		}
	}
	for i := range min(len(ids), 20) {
		rec, err := r.Record(t.Context(), int64(i))
		if err != nil {
			t.Fatal(err)
		}
		want := s.values(ids[i])
		for k := range rec.Values {
			compare(fmt.Sprintf("Record(%d)", i), rec.Values[k].Field, &rec.Values[k].Value, &want[k])
		}
	}
	rep, err := Verify(t.Context(), dir, &VerifyOptions{Decode: true})
	if err != nil || len(rep.Problems) > 0 || rep.Records != int64(len(ids)) {
		t.Errorf("Verify: %+v, %v", rep, err)
	}
}

func upTo(n int64) (ids []int64) {
	for i := range n {
		ids = append(ids, i)
	}
	return ids
}

func TestEveryKind(t *testing.T) {
	wides := []int{0, 10, 3000}
	if testing.Short() {
		wides = []int{10}
	}
	for _, wide := range wides {
		s := newEveryKind(200, wide)
		dir := filepath.Join(t.TempDir(), "pack")
		sum := mustWriteSource(t, s, dir, small(""))
		if len(sum.Manifest.Shards[0].Chunks) == 1 && wide == 3000 {
			t.Errorf("manifest %+v", sum.Manifest)
		}
		checkEveryKind(t, dir, s, upTo(200))
		if again := mustWriteSource(t, s, dir, small("")); !again.Unchanged {
			t.Error("it was packed again")
		}
		// The same through a conversion, which changes only pictures.
		to := filepath.Join(t.TempDir(), "again")
		if _, err := Convert(t.Context(), dir, to, small(ImagesAuto)); err != nil {
			t.Fatal(err)
		}
		checkEveryKind(t, to, s, upTo(200))
	}
}

// Each value of a field of files has its own path, other records have one.
func TestPaths(t *testing.T) {
	s := newEveryKind(10, 10)
	dir := filepath.Join(t.TempDir(), "pack")
	m := mustWriteSource(t, withPaths{s}, dir, nil).Manifest
	checkEveryKind(t, dir, s, upTo(10))
	r, err := Open(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	rec, err := r.Record(t.Context(), 7)
	if err != nil {
		t.Fatal(err)
	}
	if m.Paths || rec.Path != "left/7.bin" || rec.Image().Path != "left/7.bin" || rec.of(driver.KindMask).Path != "mask/7.bin" || rec.of(driver.KindAudio).Path != "sound/7.bin" {
		t.Errorf("%+v", rec)
	}
	if n := r.Name(7); n != filepath.Join(dir, Piece{}.shard(0))+", chunk 0, row 7" {
		t.Errorf("it is called %s", n)
	}

	s = newEveryKind(10, 10)
	s.info.Fields = s.info.Fields[:3]
	dir = filepath.Join(t.TempDir(), "pack")
	m = mustWriteSource(t, withPaths{s}, dir, nil).Manifest
	r, err = Open(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if rec, err := r.Record(t.Context(), 7); err != nil || rec.Path != "blob/7.bin" || !m.Paths || len(rec.Values) != 3 || len(r.Info().Fields) != 3 {
		t.Errorf("%+v, %v", rec, err)
	}
}

func TestBadRecordsAreListed(t *testing.T) {
	s := newEveryKind(50, 10)
	s.bad = map[int64]bool{3: true, 49: true}
	dir := filepath.Join(t.TempDir(), "pack")
	sum := mustWriteSource(t, s, dir, nil)
	if sk := sum.Manifest.Skipped; len(sk) != 2 || sk[0] != (Skipped{"record 3", "it is broken"}) {
		t.Errorf("skipped: %+v", sk)
	}
	var ids []int64
	for _, id := range upTo(50) {
		if !s.bad[id] {
			ids = append(ids, id)
		}
	}
	checkEveryKind(t, dir, s, ids)
}

// Values that a field cannot have leave their record out, with the reason.
func TestValuesThatDoNotFit(t *testing.T) {
	one := func(f driver.Field, v driver.Value) error {
		var buf []byte
		w, err := newWorker(must(small("").withDefaults()))
		if err != nil {
			t.Fatal(err)
		}
		defer w.close()
		pf := fieldOf(&f)
		return w.enc.store(&v, &pf, &picture{how: ImagesAuto}, &value{}, &buf)
	}
	colours := image.NewRGBA(image.Rect(0, 0, 1, 1))
	colours.Set(0, 0, color.RGBA{1, 2, 3, 255})
	high := image.NewGray16(image.Rect(0, 0, 1, 1))
	high.SetGray16(0, 0, color.Gray16{Y: 300})
	for _, test := range []struct {
		f    driver.Field
		v    driver.Value
		want string
	}{
		{driver.Field{Kind: driver.KindLabel, Classes: []string{"a"}}, driver.Value{Int: 1}, "class number 1 of 1"},
		{driver.Field{Kind: driver.KindJSON}, driver.Value{Bytes: []byte("{")}, "not JSON"},
		{driver.Field{Kind: driver.KindArray, DType: driver.Int32, Shape: []int{2}}, driver.Value{Bytes: make([]byte, 7)}, "7 bytes where an array has 8"},
		{driver.Field{Kind: driver.KindRagged, DType: driver.Int32, Shape: []int{2}}, driver.Value{Bytes: make([]byte, 12)}, "12 bytes where a row has 8"},
		{driver.Field{Kind: driver.KindTokens, DType: driver.Uint32}, driver.Value{Bytes: make([]byte, 6)}, "6 bytes where a row has 4"},
		{driver.Field{Kind: driver.KindMultiLabel, Classes: []string{"a"}}, driver.Value{Bytes: []byte{1, 0, 0, 0, 0, 0, 0, 0}}, "class numbers from 1 to 1 of 1"},
		{driver.Field{Kind: driver.KindImage}, driver.Value{}, "empty file"},
		{driver.Field{Kind: driver.KindImage}, driver.Value{Bytes: []byte("text")}, "not an image"},
		{driver.Field{Kind: driver.KindMask, DType: driver.Uint8}, driver.Value{Bytes: pngBytes(colours)}, "it has colours"},
		{driver.Field{Name: "m", Kind: driver.KindMask, DType: driver.Uint8}, driver.Value{Bytes: pngBytes(high)}, `field "m" has uint8: class number 300`},
		{driver.Field{Kind: driver.KindMask, DType: driver.Uint16, Classes: []string{"a"}}, driver.Value{Bytes: pngBytes(high)}, "class number 300 in a mask of 1 classes"},
		{driver.Field{Kind: driver.KindMask, DType: driver.Uint8}, driver.Value{Bytes: testJPEG(t, 1, 8, 8)}, "a JPEG cannot be a mask"},
	} {
		err := one(test.f, test.v)
		var b *BadInput
		if !errors.As(err, &b) || !strings.Contains(b.Reason, test.want) {
			t.Errorf("%s: %v, want %q", test.f.Kind, err, test.want)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// An interrupted run is resumed, and the result equals that of one run.
func TestEveryKindResumes(t *testing.T) {
	records := int64(400)
	if testing.Short() {
		records = 100
	}
	s := newEveryKind(records, 3000)
	tmp := t.TempDir()
	mustWriteSource(t, s, filepath.Join(tmp, "whole"), small(""))
	ctx, cancel := context.WithCancel(t.Context())
	opt := small("")
	opt.Threads = 1
	s.load = func(id int64) {
		if id == records/2 {
			cancel()
		}
	}
	dir := filepath.Join(tmp, "parts")
	if _, err := WriteSource(ctx, s, dir, opt); !errors.Is(err, ErrInterrupted) {
		t.Fatalf("got %v", err)
	}
	if _, err := Open(t.Context(), dir, nil); !errors.Is(err, ErrUnfinished) || !strings.Contains(err.Error(), "stoker pack every-kind "+dir+" --images auto --shard-size") {
		t.Errorf("got %v", err)
	}
	s.load = nil
	sum := mustWriteSource(t, s, dir, small(""))
	if sum.Resumed == 0 {
		t.Error("it began anew")
	}
	sameFiles(t, "resumed", filepath.Join(tmp, "whole"), dir)
}

func TestSchemaRefuses(t *testing.T) {
	for _, test := range []struct {
		fields []driver.Field
		want   string
	}{
		{[]driver.Field{{Name: "a", Kind: driver.KindInt}, {Name: "a", Kind: driver.KindFloat}}, `field "a" is there twice`},
		{[]driver.Field{{Name: "a", Kind: driver.KindImage}, {Name: "a_width", Kind: driver.KindInt}}, `field "a_width" needs a column "a_width", which field "a" has`},
		{[]driver.Field{{Name: "a", Kind: "quaternion"}}, `kind "quaternion" is not known`},
		{[]driver.Field{{Name: "", Kind: driver.KindInt}}, "a name of 0 bytes"},
		{[]driver.Field{{Name: strings.Repeat("x", 256), Kind: driver.KindInt}}, "a name of 256 bytes"},
		{[]driver.Field{{Name: "a", Kind: driver.KindMask, DType: driver.Int8}}, "it has uint8 or uint16"},
		{[]driver.Field{{Name: "a", Kind: driver.KindTokens, DType: driver.Int64}}, "uint16 or uint32"},
		{[]driver.Field{{Name: "a", Kind: driver.KindArray, DType: "complex64"}}, "unknown element type"},
		{[]driver.Field{{Name: "a", Kind: driver.KindRagged, DType: driver.Int8, Shape: []int{0}}}, "out of range"},
		{make([]driver.Field, 65), "65 fields"},
		{nil, "0 fields"},
	} {
		s := newEveryKind(1, 1)
		s.info.Fields = test.fields
		if _, err := WriteSource(t.Context(), s, filepath.Join(t.TempDir(), "p"), nil); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, want %q", err, test.want)
		}
	}
}

// Fields that are not requested are neither located nor set.
func TestWantedFields(t *testing.T) {
	s := newEveryKind(30, 3000)
	dir := filepath.Join(t.TempDir(), "pack")
	mustWriteSource(t, s, dir, nil)
	r, err := Open(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	load(t, r, upTo(30)...) // so that the index is known
	var g driver.Group
	g.Want = make([]bool, len(s.info.Fields))
	g.Want[0], g.Want[1], g.Want[7] = true, true, true
	g.Begin([]int64{3, 29}, len(s.info.Fields))
	r.Locate(&g)
	if len(g.Missing) != 0 || len(g.Extents) != 4 {
		t.Fatalf("missing %v, extents %v", g.Missing, g.Extents)
	}
	o, err := r.st.Open(t.Context(), Piece{}.shard(0))
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	for _, e := range g.Extents {
		b := make([]byte, e.Size)
		if err := o.ReadAt(t.Context(), b, e.Offset); err != nil {
			t.Fatal(err)
		}
		g.Bytes = append(g.Bytes, b)
	}
	if err := r.Parse(&g); err != nil {
		t.Fatal(err)
	}
	for k, id := range g.IDs {
		want, got := s.values(id), g.Records[k].Values
		if !bytes.Equal(got[0].Bytes, want[0].Bytes) || got[1].Int != want[1].Int || !bytes.Equal(got[7].Bytes, want[7].Bytes) || got[7].Codec != driver.CodecPNG {
			t.Errorf("record %d: %+v", id, got)
		}
		if got[2].Bytes != nil || got[9].Bytes != nil {
			t.Errorf("record %d has values that were not asked for", id)
		}
	}
}

// Small values in a pack with large ones are stored in the head of the chunk and are not read again. A pack with only
// small values is not kept in memory.
func TestSmallValuesAreKept(t *testing.T) {
	for _, test := range []struct {
		fields  []int // of everyKind
		extents int
	}{
		{[]int{0, 2, 3, 11, 17}, 1}, // the blob is read
		{[]int{2, 17}, 2},
	} {
		s := newEveryKind(20, 30000)
		all := s.info.Fields
		s.info.Fields = nil
		for _, i := range test.fields {
			s.info.Fields = append(s.info.Fields, all[i])
		}
		dir := filepath.Join(t.TempDir(), "pack")
		mustWriteSource(t, &subset{s, test.fields}, dir, nil)
		r, err := Open(t.Context(), dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for k, v := range load(t, r, 5)[0].Values {
			if want := s.values(5)[test.fields[k]]; !bytes.Equal(v.Bytes, want.Bytes) {
				t.Errorf("field %d is %v, want %v", test.fields[k], v.Bytes, want.Bytes)
			}
		}
		var g driver.Group
		g.Begin([]int64{5}, len(s.info.Fields))
		r.Locate(&g)
		if len(g.Extents) != test.extents {
			t.Errorf("fields %v: %d extents, want %d", test.fields, len(g.Extents), test.extents)
		}
	}
}

// subset is everyKind with some of its fields.
type subset struct {
	*everyKind
	of []int
}

func (s *subset) Parse(g *driver.Group) error {
	for k, id := range g.IDs {
		all := s.values(id)
		for i, f := range s.of {
			g.Records[k].Values[i] = all[f]
		}
	}
	return nil
}

func TestStatistics(t *testing.T) {
	s := newEveryKind(100, 50)
	m := mustWriteSource(t, s, filepath.Join(t.TempDir(), "pack"), nil).Manifest
	stats := func(name string) *driver.FieldStats { return &m.Field(name).Stats }
	if c := stats("label").Classes; c[0] != 34 || c[1] != 33 || c[2] != 33 {
		t.Errorf("labels %v", c)
	}
	if i := stats("count").Ints; i.Min != -99 || i.Max != 0 || math.Abs(i.Mean+49.5) > 1e-9 || i.Count != 100 {
		t.Errorf("count %+v", i)
	}
	if f := stats("weight").Floats; f.Min != 0 || f.Max != 99.0/8 || math.Abs(f.Mean-49.5/8) > 1e-9 || f.Count != 100 {
		t.Errorf("weight %+v", f)
	}
	if i := stats("grid").Ints; i.Min != 0 || i.Max != 99*7+5 || i.Count != 600 {
		t.Errorf("grid %+v", i)
	}
	im := stats("left").Images
	if im.MinWidth != 3 || im.MaxWidth != 7 || im.MinHeight != 4 || im.Width != 500 || im.Pixels != 2000 || im.Codecs["png"].Count != 100 || im.MaxChannels != 1 {
		t.Errorf("left %+v", im)
	}
	if im := stats("right").Images; im.MinDepth != 16 || im.MaxDepth != 16 {
		t.Errorf("right %+v", im)
	}
	pixels, lengths, tags := map[int64]int64{}, int64(0), map[int64]int64{}
	for id := range int64(100) {
		v := s.values(id)
		mk := must(mask.FromFile(v[9].Bytes))
		for _, c := range mk.Pix {
			pixels[int64(c)]++
		}
		lengths += int64(len(v[13].Bytes) / 16)
		for i := 0; i < len(v[11].Bytes); i += 8 {
			tags[int64(v[11].Bytes[i])]++
		}
	}
	if got := stats("mask").Classes; fmt.Sprint(got) != fmt.Sprint(pixels) {
		t.Errorf("mask %v, want %v", got, pixels)
	}
	if got := stats("tags").Classes; fmt.Sprint(got) != fmt.Sprint(tags) {
		t.Errorf("tags %v, want %v", got, tags)
	}
	if r := stats("boxes").Rows; r.Total != lengths || r.Min != 0 || r.Max != 2 {
		t.Errorf("boxes %+v, want %d in all", r, lengths)
	}
	if f := stats("boxes").Floats; f.Count != 4*lengths {
		t.Errorf("boxes %+v", f)
	}
	n := int64(0)
	for from, count := range stats("blob").Sizes {
		if NextBound(false, from) <= from {
			t.Errorf("values from %d to %d", from, NextBound(false, from))
		}
		n += count
	}
	if n != 100 {
		t.Errorf("%d sizes", n)
	}
}

// Numbers that are none, or have no mean, do not spoil the manifest.
func TestStatisticsOfStrangeNumbers(t *testing.T) {
	var s driver.FloatStats
	for _, v := range []float64{math.NaN(), math.Inf(1), 3, math.MaxFloat64, math.MaxFloat64, -math.MaxFloat64} {
		addFloat(&s, v)
	}
	if s.NotFinite != 2 || s.Count != 4 || s.Max != math.MaxFloat64 || s.Mean-s.Mean != 0 {
		t.Errorf("%+v", s)
	}
	var b []byte
	for _, v := range []float64{math.MaxFloat64, math.MaxFloat64, math.Inf(-1)} {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	if _, f := elementStats(driver.Float64, b); f.Count != 2 || f.NotFinite != 1 || f.Mean-f.Mean != 0 {
		t.Errorf("%+v", f)
	}
	for _, typ := range driver.DTypes {
		b := make([]byte, 8*typ.Size())
		for i := range b {
			b[i] = byte(200 + i)
		}
		i, f := elementStats(typ, b)
		if (i == nil) == (f == nil) || i != nil && (i.Count != 8 || i.Min > i.Max) {
			t.Errorf("%s: %+v, %+v", typ, i, f)
		}
	}
}

// Numbers come back from as few bytes as their range needs.
func TestNumbers(t *testing.T) {
	for _, r := range [][2]int64{{5, 5}, {-3, 200}, {0, 65535}, {-1 << 31, 1 << 31}, {math.MinInt64, math.MaxInt64}} {
		c := newNumbers(r[0], r[1], 3)
		values := []int64{r[0], r[1], r[0] + (r[1]-r[0])/2}
		for i, v := range values {
			c.set(int64(i), v)
		}
		for i, v := range values {
			if got := c.at(int64(i)); got != v {
				t.Errorf("%v: %d is %d", r, v, got)
			}
		}
	}
}

// Every record is found in its chunk, however the chunks' sizes differ.
func TestFinder(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for range 200 {
		first := []int64{0}
		for range 1 + rng.IntN(40) {
			rows := 1 + rng.Int64N(5)
			if rng.IntN(6) == 0 {
				rows = 1 + rng.Int64N(5000)
			}
			first = append(first, first[len(first)-1]+rows)
		}
		f := newFinder(first)
		for c := range len(first) - 1 {
			for _, id := range []int64{first[c], first[c+1] - 1, (first[c] + first[c+1]) / 2} {
				if got := f.chunk(id); got != c {
					t.Fatalf("record %d is in chunk %d, not %d of %v", id, c, got, first)
				}
			}
		}
	}
}

func TestGoldenEveryKind(t *testing.T) {
	s := newEveryKind(9, 40)
	dir := filepath.Join(t.TempDir(), "kinds")
	mustWriteSource(t, withPaths{s}, dir, nil)
	golden := filepath.Join("testdata", "golden", "kinds")
	if *update {
		if err := os.RemoveAll(golden); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(golden, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
	}
	sameFiles(t, "kinds", golden, dir)
	checkEveryKind(t, golden, s, upTo(9))
}

// FuzzKinds is FuzzChunk for a pack with any fields. fields is the JSON of the manifest's fields.
func FuzzKinds(f *testing.F) {
	golden := filepath.Join("testdata", "golden", "kinds")
	m, err := ReadManifest(golden)
	if err != nil {
		f.Fatal(err)
	}
	shard, err := os.ReadFile(filepath.Join(golden, m.Shards[0].File))
	if err != nil {
		f.Fatal(err)
	}
	fields, err := json.Marshal(m.Fields)
	if err != nil {
		f.Fatal(err)
	}
	c := m.Shards[0].Chunks[0]
	f.Add(shard[c.Offset:c.Offset+c.Bytes], c.Head, c.Rows, fields)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte, head, rows int64, fields []byte) {
		mm := *m
		mm.Fields = nil
		if json.Unmarshal(fields, &mm.Fields) != nil {
			return
		}
		for i := range mm.Fields {
			mm.Fields[i].Stats.Count = rows
		}
		fuzzPack(t, dir, &mm, b, head, rows)
	})
}

// A pack of every kind is a source like any other.
func TestConformance(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pack")
	mustWriteSource(t, withPaths{newEveryKind(60, 2000)}, dir, small(""))
	drivertest.Run(t, func(t testing.TB) driver.Source {
		r, err := Open(t.Context(), dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		return r
	})
}

// BenchmarkLocate locates and parses records whose index is in memory: the cost of a record before any of its data is
// read.
func BenchmarkLocate(b *testing.B) {
	all := newEveryKind(1, 0).info.Fields
	for _, test := range []struct {
		name   string
		fields []int
	}{{"array", []int{2}}, {"image and label", []int{7, 1}}, {"every kind", upToInts(len(all))}} {
		b.Run(test.name, func(b *testing.B) {
			s := &subset{newEveryKind(3000, 0), test.fields}
			s.info.Fields = nil
			for _, i := range test.fields {
				s.info.Fields = append(s.info.Fields, all[i])
			}
			dir := filepath.Join(b.TempDir(), "pack")
			mustWriteSource(b, s, dir, &Options{ChunkBytes: 64 << 10})
			r, err := Open(b.Context(), dir, nil)
			if err != nil {
				b.Fatal(err)
			}
			defer r.Close()
			load(b, r, upTo(r.Len())...)
			rng := rand.New(rand.NewPCG(1, 1))
			const group = 16
			ids := make([]int64, group)
			var g driver.Group
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				for i := range ids {
					ids[i] = rng.Int64N(r.Len())
				}
				g.Begin(ids, len(s.info.Fields))
				r.Locate(&g)
				for range g.Extents {
					g.Bytes = append(g.Bytes, nil)
				}
				if err := r.Parse(&g); err != nil || len(g.Missing) > 0 {
					b.Fatal(err, g.Missing)
				}
				n += group
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/record")
		})
	}
}

func upToInts(n int) (out []int) {
	for i := range n {
		out = append(out, i)
	}
	return out
}

// Raw gray pixels stay gray, also when resized, and are exported unchanged.
func TestGrayPixels(t *testing.T) {
	for how, resize := range map[string]Resize{ImagesRaw: {}, ImagesRaw + ",": {Width: 4, Height: 6}, ImagesAuto: {}, ImagesKeep: {}} {
		src := sourcetest.Raw(20, 7, 9, 1, 5)
		dst := filepath.Join(t.TempDir(), "pack")
		if _, err := WriteSource(t.Context(), src, dst, &Options{Images: strings.TrimSuffix(how, ","), Resize: resize}); err != nil {
			t.Fatal(err)
		}
		r, err := Open(t.Context(), dst, nil)
		if err != nil {
			t.Fatal(err)
		}
		w, h := int32(7), int32(9)
		if resize.Width > 0 {
			w, h = 4, 6
		}
		if f := r.Info().Fields[0]; f.Channels != 1 || f.Width != w || f.Height != h {
			t.Errorf("%+v", f)
		}
		for id := range int64(20) {
			rec, err := r.Record(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			v := &rec.Values[0]
			want := drivertest.Records(t, src, id)[0].Values[0].Bytes
			if v.Channels != 1 || len(v.Bytes) != int(w*h) || resize.Width == 0 && !bytes.Equal(v.Bytes, want) {
				t.Fatalf("record %d: %d channels, %d bytes", id, v.Channels, len(v.Bytes))
			}
			data, ext, err := v.File()
			if err != nil || ext != ".png" {
				t.Fatal(ext, err)
			}
			if m, err := png.Decode(bytes.NewReader(data)); err != nil || !bytes.Equal(m.(*image.Gray).Pix, v.Bytes) {
				t.Fatalf("record %d is exported as another picture (%v)", id, err)
			}
		}
		r.Close()
	}
}
