package pack

import (
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stokerdata/stoker/internal/decode"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/recordread"
)

// BenchmarkFirstEpoch reads and decodes the images of a pack from memory, in a random order. The first epoch compares
// each value with its checksum, later epochs do not.
//
//	go test ./pack -run '^$' -bench FirstEpoch -count 10
func BenchmarkFirstEpoch(b *testing.B) {
	src := testFolder(b, 300)
	for _, images := range []string{ImagesDCT, ImagesKeep, ImagesRaw} {
		dir := filepath.Join(b.TempDir(), images)
		mustWrite(b, src, dir, &Options{Images: images})
		r := must(Open(b.Context(), dir, nil))
		defer r.Close()
		e := newEpoch(b, r)
		defer e.close()
		for _, first := range []bool{true, false} {
			b.Run(images+map[bool]string{true: "/first", false: "/later"}[first], func(b *testing.B) {
				n := 0
				for b.Loop() {
					e.read(b, first)
					n += int(r.Len())
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/record")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// epoch goes through the images of a pack.
type epoch struct {
	r   *Reader
	obj *recordread.Objects
	rd  *recordread.Direct
	dec *decode.Decoder
	rng *rand.Rand
	out []byte
}

func newEpoch(b *testing.B, r *Reader) *epoch {
	b.Helper()
	obj := recordread.NewObjects(r, nil)
	e := &epoch{r: r, obj: obj, rd: recordread.NewDirect(r, obj), dec: must(decode.New(decode.Options{})), rng: rand.New(rand.NewPCG(1, 1))}
	e.read(b, true) // all is in memory, and the index is known
	return e
}

func (e *epoch) close() {
	e.dec.Close()
	_ = e.obj.Close()
}

// read reads and decodes all images once, in groups as workers do.
func (e *epoch) read(b *testing.B, first bool) {
	if first {
		for i := range e.r.x.fields {
			clear(e.r.x.fields[i].checked)
		}
	}
	order := e.rng.Perm(int(e.r.Len()))
	ids := make([]int64, 0, 16)
	for i, id := range order {
		if ids = append(ids, int64(id)); len(ids) == cap(ids) || i+1 == len(order) {
			e.group(b, ids)
			ids = ids[:0]
		}
	}
}

func (e *epoch) group(b *testing.B, ids []int64) {
	recs, err := e.rd.Read(b.Context(), ids)
	if err != nil {
		b.Fatal(err)
	}
	for i := range recs {
		if recs[i].Err != nil {
			b.Fatal(recs[i].Err)
		}
		v := recs[i].Values[0]
		t := item.PixelType{DType: item.U8, Channels: 3}
		e.out = grow(e.out, int(v.Width)*int(v.Height)*3)
		reqs := [1]decode.Request{{Value: v, Pixels: t, Geom: whole(v.Width, v.Height, v.Width, v.Height), Store: t.Plain(), Dst: e.out}}
		if e.dec.Run(reqs[:]); reqs[0].Err != nil {
			b.Fatal(reqs[0].Err)
		}
	}
}
