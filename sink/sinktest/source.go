package sinktest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stokerdata/stoker/source/driver"
)

// dataset is a dataset in memory.
type dataset struct {
	driver.InMemory
	info driver.Info
	rows [][]driver.Value
	bad  map[int64]error
}

// Info implements driver.Source.
func (s *dataset) Info() *driver.Info { return &s.info }

// Parse implements driver.Source.
func (s *dataset) Parse(g *driver.Group) error {
	for k, id := range g.IDs {
		if err := s.bad[id]; err != nil {
			g.Records[k].Err = err
			continue
		}
		copy(g.Records[k].Values, s.rows[id])
	}
	return nil
}

// Name implements driver.Source.
func (s *dataset) Name(id int64) string { return fmt.Sprintf("record %d", id) }

// Path implements driver.Pather.
func (s *dataset) Path(id int64, field int) string {
	if s.info.Fields[field].Kind != driver.KindImage {
		return ""
	}
	return fmt.Sprintf("%s/photo %d.jpeg", Classes[id%int64(len(Classes))], id)
}

// Close implements driver.Source.
func (s *dataset) Close() error { return nil }

// Classes are the classes of the label field.
var Classes = []string{"ant", "bee, \"large\"", "cät"}

// Rows is the number of records of Source.
const Rows = 40

// Source returns a dataset with one field per kind, named after the kind. For KindArray it has one
// field per element type, named after the type.
func Source(t testing.TB, kinds ...driver.Kind) driver.Source {
	t.Helper()
	s := &dataset{info: driver.Info{URL: "test", Format: "test", Len: Rows, Fingerprint: "test"}, rows: make([][]driver.Value, Rows)}
	rng := rand.New(rand.NewPCG(1, 2))
	add := func(f driver.Field, value func(i int) driver.Value) {
		s.info.Fields = append(s.info.Fields, f)
		for i := range s.rows {
			s.rows[i] = append(s.rows[i], value(i))
		}
	}
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	texts := []string{"", "plain", "with, \"quotes\"", "two\nlines", "a\ttab", "ü and 漢字", " spaces "}
	for _, k := range kinds {
		f := driver.Field{Name: string(k), Kind: k}
		switch k {
		case driver.KindImage:
			add(f, func(i int) driver.Value { return driver.Value{Bytes: photo(t, 20+i%5, 16, i), Codec: driver.CodecJPEG} })
		case driver.KindLabel:
			f.Classes = Classes
			add(f, func(i int) driver.Value { return driver.Value{Int: int64(i % len(Classes))} })
		case driver.KindInt:
			add(f, func(i int) driver.Value { return driver.Value{Int: int64(i)*1e12 - 5} })
		case driver.KindFloat:
			add(f, func(i int) driver.Value { return driver.Value{Float: float64(i)/8 - 1} })
		case driver.KindText:
			add(f, func(i int) driver.Value { return driver.Value{Bytes: []byte(texts[i%len(texts)])} })
		case driver.KindJSON:
			add(f, func(i int) driver.Value {
				return driver.Value{Bytes: fmt.Appendf(nil, `{"n": %d, "s": "ü, \"x\""}`, i)}
			})
		case driver.KindBytes:
			add(f, func(i int) driver.Value { return driver.Value{Bytes: random(i % 9)} })
		case driver.KindAudio:
			add(f, func(i int) driver.Value { return driver.Value{Bytes: append([]byte("RIFF"), random(30+i)...)} })
		case driver.KindMask:
			f.DType = driver.Uint8
			add(f, func(int) driver.Value {
				return driver.Value{Bytes: random(12 * 10), Codec: driver.CodecRaw, Width: 12, Height: 10, Channels: 1}
			})
		case driver.KindMultiLabel:
			f.Classes = Classes
			add(f, func(i int) driver.Value {
				var b []byte
				for k := range i % 4 {
					b = binary.LittleEndian.AppendUint64(b, uint64(k%len(Classes)))
				}
				return driver.Value{Bytes: b}
			})
		case driver.KindRagged:
			f.DType, f.Shape = driver.Float32, []int{2}
			add(f, func(i int) driver.Value { return driver.Value{Bytes: elements(driver.Float32, 2*(i%5), i)} })
		case driver.KindBoxes:
			f.DType, f.Shape, f.Format = driver.Float32, []int{4}, "XYXY"
			add(f, func(i int) driver.Value { return driver.Value{Bytes: elements(driver.Float32, 4*(i%3), i)} })
		case driver.KindTokens:
			f.DType = driver.Uint16
			add(f, func(i int) driver.Value { return driver.Value{Bytes: elements(driver.Uint16, i%7, i)} })
		case driver.KindArray:
			for _, d := range driver.DTypes {
				add(driver.Field{Name: string(d), Kind: k, DType: d, Shape: []int{2, 3}}, func(i int) driver.Value {
					return driver.Value{Bytes: elements(d, 6, i)}
				})
			}
		}
	}
	for i := range s.info.Fields {
		for _, row := range s.rows {
			s.info.Fields[i].MaxBytes = max(s.info.Fields[i].MaxBytes, int64(len(row[i].Bytes)))
		}
	}
	return s
}

// elements returns n numbers that every format can hold.
func elements(t driver.DType, n, seed int) []byte {
	var b []byte
	for k := range n {
		x := (seed*7 + k*3) % 100
		switch t {
		case driver.Float16: // 1 to 2, in steps
			b = binary.LittleEndian.AppendUint16(b, uint16(0x3C00+x))
		case driver.Float32:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)/7))
		case driver.Float64:
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(x)/8))
		case driver.Bool:
			b = append(b, byte(x%2))
		default:
			if t[0] == 'i' {
				x = 50 - x
			}
			b = append(b, binary.LittleEndian.AppendUint64(nil, uint64(x))[:t.Size()]...)
		}
	}
	return b
}

// photo returns a small JPEG.
func photo(t testing.TB, w, h, seed int) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for i := range w * h {
		m.Set(i%w, i/w, color.RGBA{uint8(i + seed), uint8(i * seed), uint8(3 * seed), 255})
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, m, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
