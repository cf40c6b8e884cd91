// Package spoolsource writes and reads spool files, which hold records of the Python client's stoker.pack until they
// are packed: a list of fields, and their values by record.
//
// A file has the values of all records, one after the other. Then follows an index of 8-byte words: for each record
// its offset and a word per field. Next is JSON (spool), and then a trailer of five words: the offset of the index, the
// number of records, the size of the JSON, the CRC-32 of index and JSON, and the magic number. All numbers are
// little-endian. The word of a field is the number itself (int64, or the bits of a float64) if the
// value is a single number. Otherwise it is the size of the value in bytes, with the highest bit set for pixels
// (rawHead).
package spoolsource

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Magic ends a file.
const Magic = "stkspl01"

const (
	trailer = 40
	// raw is the flag in the size of a value that is pixels. Such a value starts with rawHead bytes: width, height
	// and channels (uint32 each). Then follow the pixels.
	raw     = 1 << 63
	rawHead = 12

	maxJSON   = 64 << 20
	maxFields = 1024
	maxIndex  = 1 << 32
	maxSide   = 1 << 20
	// maxFingerprint is the limit of driver.Info.
	maxFingerprint = 32
)

// spool is the content of the JSON.
type spool struct {
	// Name is the name of the data, for messages. Fingerprint identifies it.
	Name        string           `json:"name"`
	Fingerprint string           `json:"fingerprint"`
	Fields      []field          `json:"fields"`
	Skipped     []driver.Skipped `json:"skipped"`
}

type field struct {
	Name    string           `json:"name"`
	Kind    driver.Kind      `json:"kind"`
	DType   driver.DType     `json:"dtype"`
	Shape   []int            `json:"shape"`
	Classes []string         `json:"classes"`
	Format  driver.BoxFormat `json:"format"`
}

// IsFile reports whether st is a spool file, by its end.
func IsFile(ctx context.Context, st store.Store) bool {
	o, err := st.Open(ctx, "")
	if err != nil {
		return false
	}
	defer o.Close()
	b := make([]byte, len(Magic))
	return o.Size() >= trailer && o.ReadAt(ctx, b, o.Size()-int64(len(b))) == nil && string(b) == Magic
}

type source struct {
	list    *filelist.List
	info    driver.Info
	skipped []driver.Skipped
	words   []uint64 // 1 + len(fields) for each record
	number  []bool   // by field
	end     int64    // of the values
}

// Open opens the spool file that st is.
func Open(ctx context.Context, url string, st store.Store) (driver.Source, error) {
	list, err := filelist.Named(ctx, st, []string{""})
	if err != nil {
		return nil, err
	}
	o, err := list.Open(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	s := &source{list: list}
	if err := s.open(ctx, url, o); err != nil {
		return nil, fmt.Errorf("%s: %w: run stoker.pack again", st.Path(""), err)
	}
	return s, nil
}

func (s *source) open(ctx context.Context, url string, o store.Object) error {
	var t [trailer]byte
	size := o.Size()
	if size < trailer {
		return fmt.Errorf("%d bytes are too few for its trailer", size)
	}
	if err := o.ReadAt(ctx, t[:], size-trailer); err != nil {
		return err
	}
	if string(t[32:]) != Magic {
		return errors.New("it has no trailer: it was cut off")
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(t[8*i:]) }
	at, count, text, sum := word(0), word(1), word(2), word(3)
	if text > maxJSON || at > uint64(size) || uint64(size)-at < text+trailer {
		return fmt.Errorf("byte %d: its index is at %d, followed by %d bytes, in a file of %d", size-trailer, at, text, size)
	}
	index := uint64(size) - trailer - text - at
	if index > maxIndex || index%8 != 0 {
		return fmt.Errorf("byte %d: an index of %d bytes", at, index)
	}
	b := make([]byte, index+text)
	if err := o.ReadAt(ctx, b, int64(at)); err != nil {
		return err
	}
	if got := uint64(crc32.ChecksumIEEE(b)); got != sum {
		return fmt.Errorf("byte %d: the checksum of its index is %08x, expected %08x", at, got, sum)
	}
	var about spool
	if err := json.Unmarshal(b[index:], &about); err != nil {
		return fmt.Errorf("byte %d: %w", at+index, err)
	}
	s.info = driver.Info{
		URL: about.Name, Format: "python", Len: int64(count), Objects: 1, Fingerprint: about.Fingerprint,
	}
	if about.Name == "" {
		s.info.URL = url
	}
	if len(about.Fingerprint) > maxFingerprint {
		return fmt.Errorf("byte %d: a fingerprint of %d characters", at+index, len(about.Fingerprint))
	}
	s.skipped, s.end = about.Skipped, int64(at)
	if err := s.fields(about.Fields); err != nil {
		return err
	}
	width := uint64(1 + len(about.Fields))
	if count > index/8 || count*width*8 != index {
		return fmt.Errorf("byte %d: an index of %d bytes for %d records of %d fields", at, index, count, len(about.Fields))
	}
	s.words = make([]uint64, index/8)
	for i := range s.words {
		s.words[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return s.check()
}

func (s *source) fields(list []field) error {
	if len(list) == 0 || len(list) > maxFields {
		return fmt.Errorf("%d fields, expected 1 to %d", len(list), maxFields)
	}
	for _, f := range list {
		out := driver.Field{Name: f.Name, Kind: f.Kind, DType: f.DType, Shape: f.Shape, Classes: f.Classes, Format: f.Format}
		switch f.Kind {
		case driver.KindArray:
			n, err := driver.ArrayBytes(f.DType, f.Shape)
			if err != nil {
				return fmt.Errorf("field %q: %w", f.Name, err)
			}
			out.MaxBytes = n
		case driver.KindRagged, driver.KindTokens, driver.KindMask:
			if f.DType.Size() == 0 {
				return fmt.Errorf("field %q: elements of type %q", f.Name, f.DType)
			}
		}
		s.number = append(s.number, slices.Contains([]driver.Kind{driver.KindLabel, driver.KindInt, driver.KindFloat}, f.Kind))
		s.info.Fields = append(s.info.Fields, out)
	}
	return nil
}

// check checks the index against the file, and sets the largest sizes.
func (s *source) check() error {
	at := int64(0)
	for id := range s.info.Len {
		row := s.row(id)
		if int64(row[0]) != at {
			return fmt.Errorf("record %d is at byte %d, expected %d", id, row[0], at)
		}
		for f := range s.info.Fields {
			if s.number[f] {
				continue
			}
			n := row[1+f] &^ raw
			if n > uint64(s.end-at) {
				return fmt.Errorf("record %d, byte %d: field %q has %d bytes, but %d are left", id, at, s.info.Fields[f].Name, n, s.end-at)
			}
			out := &s.info.Fields[f]
			if out.Kind == driver.KindArray && int64(n) != out.MaxBytes {
				return fmt.Errorf("record %d, byte %d: array %q has %d bytes, expected %d", id, at, out.Name, n, out.MaxBytes)
			}
			at += int64(n)
			out.MaxBytes = max(out.MaxBytes, int64(n))
		}
	}
	if at != s.end {
		return fmt.Errorf("byte %d: its records end here, but its index begins at %d", at, s.end)
	}
	return nil
}

// row returns the words of a record.
func (s *source) row(id int64) []uint64 {
	width := int64(1 + len(s.info.Fields))
	return s.words[id*width : (id+1)*width]
}

// bytes returns the size of a record.
func (s *source) bytes(id int64) int64 {
	end := s.end
	if id+1 < s.info.Len {
		end = int64(s.row(id + 1)[0])
	}
	return end - int64(s.row(id)[0])
}

func (s *source) Info() *driver.Info           { return &s.info }
func (s *source) Object(n int64) driver.Object { return s.list.Object(n, true) }
func (s *source) Skipped() []driver.Skipped    { return s.skipped }
func (s *source) Close() error                 { return nil }
func (s *source) Name(id int64) string         { return fmt.Sprintf("%s, record %d", s.info.URL, id) }

func (s *source) Locate(g *driver.Group) {
	filelist.Locate(g, &s.info, func(_ int, id int64) {
		g.Extents = append(g.Extents, driver.Extent{Object: 0, Offset: int64(s.row(id)[0]), Size: s.bytes(id), Field: -1, Tail: true})
	})
}

func (s *source) Parse(g *driver.Group) error {
	for k, id := range g.IDs {
		rec := &g.Records[k]
		if rec.Err != nil || id < 0 || id >= s.info.Len {
			continue
		}
		b, row := g.Bytes[g.First[k]], s.row(id)
		for f := range s.info.Fields {
			word, v := row[1+f], &rec.Values[f]
			switch kind := s.info.Fields[f].Kind; {
			case kind == driver.KindFloat:
				v.Float = math.Float64frombits(word)
			case s.number[f]:
				v.Int = int64(word)
			default:
				n := word &^ raw
				v.Bytes = b[:n:n]
				b = b[n:]
				if word&raw != 0 {
					if err := pixels(v, s.info.Fields[f].DType.Size()); err != nil {
						rec.Err = fmt.Errorf("%s (%s), field %q: %w", s.Name(id), s.list.Path(0), s.info.Fields[f].Name, err)
					}
				}
			}
		}
	}
	return nil
}

// pixels converts a value that is pixels. size is the number of bytes per channel, 0 for one.
func pixels(v *driver.Value, size int) error {
	b := v.Bytes
	if len(b) < rawHead {
		return fmt.Errorf("%d bytes of pixels", len(b))
	}
	w, h, c := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])
	b = b[rawHead:]
	if w < 1 || h < 1 || w > maxSide || h > maxSide || c < 1 || c > 4 || uint64(w)*uint64(h)*uint64(c)*uint64(max(size, 1)) != uint64(len(b)) {
		return fmt.Errorf("%d bytes of pixels for %d x %d x %d", len(b), h, w, c)
	}
	*v = driver.Value{Bytes: b, Codec: driver.CodecRaw, Width: int32(w), Height: int32(h), Channels: int32(c)}
	return nil
}
