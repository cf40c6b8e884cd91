package pathsource

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// PartsMagic begins a list of parts of files. The absolute paths of the files follow, each ended by a zero byte,
// then another zero byte. Then follow partSize bytes per record: the number of its file, and the position of the
// image in it.
const PartsMagic = "stkpart1"

const (
	// A part is a uint32 and two uint64s, little-endian: file, offset, size.
	partSize = 4 + 8 + 8
	// maxFiles is the maximum number of files in a list. They stay open.
	maxFiles = 1 << 20
)

type parts struct {
	info driver.Info
	list filelist.List
	// places are the encoded parts.
	places []byte
}

func openParts(ctx context.Context, url string, st, files store.Store, b []byte) (driver.Source, error) {
	names, places, err := parseParts(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", st.Path(""), err)
	}
	list, err := filelist.Named(ctx, files, names)
	if err != nil {
		return nil, err
	}
	s := &parts{list: *list, places: places}
	n := int64(len(places) / partSize)
	var largest int64
	for id := range n {
		file, offset, size := s.place(id)
		if file >= uint64(list.Len()) || size > maxFileBytes || offset > 1<<62 || int64(offset+size) > list.Size(int(file)) {
			return nil, fmt.Errorf("%s: record %d is in file %d, %d bytes from %d on, which is out of range", st.Path(""), id, file, size, offset)
		}
		largest = max(largest, int64(size))
	}
	h := xxh3.New()
	_, _ = h.Write(places)
	s.info = driver.Info{
		URL: url, Format: "parts", Len: n, Objects: int64(list.Len()), Fingerprint: list.Fingerprint("parts", filelist.Sum(h)),
		Fields: []driver.Field{{Name: "image", Kind: driver.KindImage, MaxBytes: largest}},
	}
	return s, nil
}

// parseParts splits a list into the names of its files and its encoded parts.
func parseParts(b []byte) (names []string, places []byte, err error) {
	b, ok := bytes.CutPrefix(b, []byte(PartsMagic))
	if !ok {
		return nil, nil, errors.New("not a list of parts")
	}
	for {
		name, rest, ok := bytes.Cut(b, []byte{0})
		b = rest
		switch {
		case !ok:
			return nil, nil, errors.New("the paths have no end: the list is cut off")
		case len(name) == 0 && len(b)%partSize != 0:
			return nil, nil, fmt.Errorf("%d bytes of parts are not a multiple of %d: the list is cut off", len(b), partSize)
		case len(name) == 0:
			return names, b, nil
		case len(names) == maxFiles:
			return nil, nil, fmt.Errorf("more than %d files", maxFiles)
		}
		if err := check(name, len(names)); err != nil {
			return nil, nil, err
		}
		names = append(names, string(name[1:]))
	}
}

// place returns the position of a record.
func (s *parts) place(id int64) (file, offset, size uint64) {
	b := s.places[id*partSize:][:partSize]
	return uint64(binary.LittleEndian.Uint32(b)), binary.LittleEndian.Uint64(b[4:]), binary.LittleEndian.Uint64(b[12:])
}

func (s *parts) Info() *driver.Info { return &s.info }

func (s *parts) Object(n int64) driver.Object { return s.list.Object(n, true) }

func (s *parts) Name(id int64) string {
	if id < 0 || id >= s.info.Len {
		return fmt.Sprintf("%s, record %d", s.info.URL, id)
	}
	file, offset, _ := s.place(id)
	return fmt.Sprintf("%s, at byte %d", s.list.Path(int(file)), offset)
}

// Sizes implements driver.Sizer.
func (s *parts) Sizes(_ int, ids, sizes []int64) bool {
	for i, id := range ids {
		_, _, size := s.place(id)
		sizes[i] = int64(size)
	}
	return true
}

func (s *parts) Locate(g *driver.Group) {
	for k, id := range g.IDs {
		if filelist.Has(g, k, &s.info) && g.Wants(0) {
			file, offset, size := s.place(id)
			g.Extents = append(g.Extents, driver.Extent{Object: int64(file), Offset: int64(offset), Size: int64(size), Tail: true, Field: -1})
		}
		g.Next()
	}
}

func (s *parts) Parse(g *driver.Group) error {
	for k, id := range g.IDs {
		rec := &g.Records[k]
		if rec.Err == nil && g.Wants(0) {
			give(rec, g.Bytes[g.First[k]], func() string { return s.Name(id) })
		}
	}
	return nil
}

func (s *parts) Close() error { return nil }
