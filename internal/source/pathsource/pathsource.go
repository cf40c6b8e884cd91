// Package pathsource reads the images in a list of paths. stoker.torch uses such lists to pass the files of a
// Python dataset to the engine, in the dataset's order. A list exists as long as its loader.
//
// A list is the magic number and the absolute paths, each ended by a zero byte. A missing file is the error of its
// record. In a second format the images are parts of files, for example values of an Arrow table (parts.go).
package pathsource

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Magic begins a list.
const Magic = "stkpath1"

const (
	// maxList is the size limit of a list, maxPath the length limit of a path.
	maxList = 1 << 34
	maxPath = 4096
	// maxFileBytes is the size limit of a file.
	maxFileBytes = 1 << 30
	// together is the number of files that a goroutine probes per work item.
	together = 256
)

// IsFile reports whether st is a list of paths or parts, by its beginning.
func IsFile(ctx context.Context, st store.Store) bool {
	head := string(filelist.Head(ctx, st, "", len(Magic)))
	return head == Magic || head == PartsMagic
}

type source struct {
	filelist.PerFile
	// absent has the reason for records without a file.
	absent map[int64]error
}

// Open opens the list that st is. files returns the store for the common folder of all paths, so that caches
// identify the files by that folder. threads is the maximum number of files probed concurrently, 0 means the
// default.
func Open(ctx context.Context, url string, st store.Store, files func(folder string) store.Store, threads int) (driver.Source, error) {
	b, err := store.ReadFile(ctx, st, "", maxList)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(b, []byte(PartsMagic)) {
		return openParts(ctx, url, st, files("/"), b)
	}
	names, err := parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", st.Path(""), err)
	}
	folder := common(names)
	for i := range names {
		names[i] = names[i][len(folder):]
	}
	s := &source{PerFile: filelist.PerFile{List: &filelist.List{Store: files("/" + strings.TrimSuffix(folder, "/"))}}, absent: map[int64]error{}}
	if err := s.look(ctx, names, threads); err != nil {
		return nil, err
	}
	_, largest := s.List.Bytes()
	s.About = driver.Info{
		URL: url, Format: "paths", Len: int64(s.List.Len()), Objects: int64(s.List.Len()), Fingerprint: s.List.Fingerprint("paths"),
		Fields: []driver.Field{{Name: "image", Kind: driver.KindImage, MaxBytes: min(largest, maxFileBytes)}},
	}
	return s, nil
}

// parse splits a list into the names of its files.
func parse(b []byte) ([][]byte, error) {
	b, ok := bytes.CutPrefix(b, []byte(Magic))
	if !ok {
		return nil, errors.New("not a list of paths")
	}
	if len(b) > 0 && b[len(b)-1] != 0 {
		return nil, errors.New("the last path has no end: the list is cut off")
	}
	names := make([][]byte, 0, bytes.Count(b, []byte{0}))
	for len(b) > 0 {
		name, rest, _ := bytes.Cut(b, []byte{0})
		if err := check(name, len(names)); err != nil {
			return nil, err
		}
		names, b = append(names, name[1:]), rest
	}
	return names, nil
}

// common returns the deepest folder that contains all names, with a trailing slash. "" is the root.
func common(names [][]byte) string {
	if len(names) == 0 {
		return ""
	}
	folder := names[0][:bytes.LastIndexByte(names[0], '/')+1]
	for _, name := range names[1:] {
		for !bytes.HasPrefix(name, folder) {
			folder = folder[:bytes.LastIndexByte(folder[:len(folder)-1], '/')+1]
		}
	}
	return string(folder)
}

func check(name []byte, n int) error {
	if len(name) < 2 || name[0] != '/' || len(name) > maxPath {
		return fmt.Errorf("path %d, %.80q, is not absolute or has more than %d bytes", n, name, maxPath)
	}
	return nil
}

// look probes all files.
func (s *source) look(ctx context.Context, names [][]byte, threads int) error {
	if threads <= 0 {
		threads = 4 * runtime.GOMAXPROCS(0)
	}
	st := s.List.Store
	const block = 64 * together // limits the entries in memory
	entries := make([]store.Entry, min(block, len(names)))
	errs := make([]error, len(entries))
	for lo := 0; lo < len(names); lo += block {
		some := names[lo:min(lo+block, len(names))]
		var g errgroup.Group
		g.SetLimit(threads)
		for from := 0; from < len(some); from += together {
			g.Go(func() error {
				for i := from; i < min(from+together, len(some)); i++ {
					name := string(some[i])
					entries[i], errs[i] = st.Stat(ctx, name)
					switch {
					case errs[i] == nil && entries[i].Dir:
						errs[i] = fmt.Errorf("%s is a folder", st.Path(name))
					case errs[i] != nil && !errors.Is(errs[i], store.ErrNotExist) && !errors.Is(errs[i], store.ErrName):
						return errs[i]
					}
					entries[i].Name = name
				}
				return ctx.Err()
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		for i, e := range entries[:len(some)] {
			if errs[i] != nil {
				s.absent[int64(lo+i)] = errs[i]
				e = store.Entry{Name: e.Name}
			}
			s.List.Add(e)
		}
	}
	return nil
}

// Path implements driver.Pather.
func (s *source) Path(id int64, _ int) string { return s.List.Name(int(id)) }

// Sizes implements driver.Sizer.
func (s *source) Sizes(_ int, ids, sizes []int64) bool {
	return s.List.Sizes(ids, sizes)
}

func (s *source) Locate(g *driver.Group) {
	for k, id := range g.IDs {
		if filelist.Has(g, k, &s.About) && g.Wants(0) {
			rec, size := &g.Records[k], s.List.Size(int(id))
			switch err := s.absent[id]; {
			case err != nil:
				rec.Err = err
			case size > maxFileBytes:
				rec.Err = fmt.Errorf("%s: it has %d bytes, the limit is %d", s.List.Path(int(id)), size, int64(maxFileBytes))
			default:
				g.Extents = append(g.Extents, driver.Extent{Object: id, Size: size, Tail: true, Field: -1})
			}
		}
		g.Next()
	}
}

func (s *source) Parse(g *driver.Group) error {
	for k, id := range g.IDs {
		rec := &g.Records[k]
		if rec.Err != nil || !g.Wants(0) {
			continue
		}
		give(rec, g.Bytes[g.First[k]], func() string { return s.List.Path(int(id)) })
	}
	return nil
}

// give sets the value of a record to the bytes of an image, unless Pillow may refuse them.
func give(rec *driver.Record, b []byte, name func() string) {
	switch {
	case cutOff(b):
		rec.Err = fmt.Errorf("%s: the JPEG does not end with its end marker", name())
	case foreign(b):
		rec.Err = fmt.Errorf("%s: Pillow does not read this format", name())
	case strangePNG(b):
		rec.Err = fmt.Errorf("%s: a PNG with long texts, or with pixels in two places, which Pillow may refuse", name())
	default:
		rec.Values[0].Bytes = b
	}
}

// foreign reports whether a file has a format that the decoders read and Pillow does not.
func foreign(b []byte) bool {
	switch imagefile.Detect(b) {
	case driver.CodecPFM, driver.CodecFlo, driver.CodecJXL:
		return true
	case driver.CodecPNM:
		return bytes.HasPrefix(b, []byte("P7"))
	}
	return false
}

// Pillow refuses a PNG with a compressed text or profile that is longer, or with more text than that.
const (
	maxText  = 1 << 20
	maxTexts = 64 << 20
)

// strangePNG reports whether Pillow may refuse a PNG for its texts or its profile, or because another chunk comes between
// the pixels.
func strangePNG(b []byte) bool {
	const head, around = 8, 12 // the signature; the length, name and checksum of a chunk
	if imagefile.Detect(b) != driver.CodecPNG {
		return false
	}
	texts, last, pixels := 0, "", false
	for at := head; at+around <= len(b); {
		size := binary.BigEndian.Uint32(b[at:])
		if uint64(size) > uint64(len(b)-at-around) {
			return false // a decoder tells whether that is damage
		}
		body, kind := b[at+8:at+8+int(size)], string(b[at+4:at+8])
		switch kind {
		case "IDAT":
			if pixels && last != kind {
				return true
			}
			pixels = true
		case "tEXt":
			texts += len(body)
		case "zTXt", "iCCP", "iTXt":
			n := inflated(body)
			if n > maxText {
				return true
			}
			texts += len(body) + n
		case "IEND":
			return texts > maxTexts
		}
		last = kind
		at += around + int(size)
	}
	return texts > maxTexts
}

// inflated returns the length of the compressed part of a chunk: a name, a zero byte, for iTXt more of them, and the
// compressed bytes. Lengths above maxText are not exact.
func inflated(body []byte) int {
	const most = 1032 // the highest ratio of deflate
	if len(body)*most <= maxText {
		return len(body) * most
	}
	longest := 0
	for at, zeros := 0, 0; at+2 < len(body) && zeros < 4; at++ {
		if body[at] != 0 {
			continue
		}
		zeros++
		for _, from := range []int{at + 1, at + 2} {
			if r, err := zlib.NewReader(bytes.NewReader(body[from:])); err == nil {
				n, _ := io.Copy(io.Discard, io.LimitReader(r, maxText+1))
				longest = max(longest, int(n))
			}
		}
	}
	return longest
}

// cutOff reports whether a JPEG may be cut off. A decoder for parts of an image does not see that the end is
// missing, but Pillow, which this source replaces, refuses such files. A file with bytes after its end also counts
// as cut off.
func cutOff(b []byte) bool {
	return bytes.HasPrefix(b, []byte{0xff, 0xd8}) && !bytes.HasSuffix(b, []byte{0xff, 0xd9})
}
