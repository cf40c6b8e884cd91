// Package flowsource reads files of float32 pixels: optical flow (Middlebury's .flo files) and portable float maps
// (.pfm), used for depth and disparity. Each file is a record, and all have the same shape: height x width x 2 for
// flow, height x width or height x width x 3 for float maps. Values are little-endian with the top row first. The
// scale of a float map is not applied.
package flowsource

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/imagecodec"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// The formats, by file extension.
const (
	Flo = "flo"
	PFM = "pfm"
)

// IsName reports whether a file has the extension of a format.
func IsName(format, name string) bool { return strings.EqualFold(path.Ext(name), "."+format) }

// codecs are the codecs of files, by format.
var codecs = map[string]driver.Codec{Flo: driver.CodecFlo, PFM: driver.CodecPFM}

// fieldNames are the names of the field, by format.
var fieldNames = map[string]string{Flo: "flow", PFM: "data"}

type source struct {
	filelist.PerFile
	one int // the file that defines the shape
}

// Open lists the files of a format in st (or takes the single file that st is), sorted by name. The first good
// one defines the shape.
func Open(ctx context.Context, url, format string, st store.Store) (driver.Source, error) {
	list, err := filelist.ScanRecords(ctx, st, func(name string) bool { return name == "" || IsName(format, name) }, 0)
	if err != nil {
		return nil, err
	}
	if list.Len() == 0 {
		return nil, fmt.Errorf("no .%s file in %s or its subfolders", format, st)
	}
	s := &source{PerFile: filelist.PerFile{List: list, About: driver.Info{
		URL: url, Format: format, Len: int64(list.Len()), Objects: int64(list.Len()), Fingerprint: list.Fingerprint(format),
	}}}
	var h *imagefile.FloatLayout
	s.one, err = s.First(ctx, func(o store.Object) (err error) {
		b := make([]byte, min(o.Size(), imagefile.MaxFloatHeader))
		if err = o.ReadAt(ctx, b, 0); err == nil {
			h, err = imagefile.ReadFloatLayout(codecs[format], b, o.Size())
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.About.Fields = []driver.Field{{Name: fieldNames[format], Kind: driver.KindArray, DType: driver.Float32, Shape: h.Shape}}
	return s, nil
}

// limit returns the maximum size of a file with the shape of the first one.
func (s *source) limit() int64 {
	f := &s.About.Fields[0]
	n, _ := driver.ArrayBytes(f.DType, f.Shape) // checked by Open
	return n + imagefile.MaxFloatHeader
}

func (s *source) Locate(g *driver.Group) {
	limit := s.limit()
	s.Located(g, func(k int, id int64) {
		if !g.Wants(0) {
			return
		}
		size := s.List.Size(int(id))
		if size > limit {
			g.Records[k].Err = fmt.Errorf("%s: it has %d bytes, which do not fit float32 %s, the shape of %s", s.List.Path(int(id)), size,
				imagefile.Sides(s.About.Fields[0].Shape), s.List.Path(s.one))
			return
		}
		g.Extents = append(g.Extents, driver.Extent{Object: id, Size: size, Field: -1})
	})
}

func (s *source) Parse(g *driver.Group) error {
	for k, id := range g.IDs {
		rec := &g.Records[k]
		if rec.Err != nil || !g.Wants(0) {
			continue
		}
		b := g.Bytes[g.First[k]]
		h, err := imagefile.ReadFloatLayout(codecs[s.About.Format], b, int64(len(b)))
		if err == nil && !slices.Equal(h.Shape, s.About.Fields[0].Shape) {
			err = fmt.Errorf("its shape is %s, but all files must have the shape of %s, %s", imagefile.Sides(h.Shape), s.List.Path(s.one), imagefile.Sides(s.About.Fields[0].Shape))
		}
		if err != nil {
			rec.Err = filelist.ErrPlace(s.List, id, "", err)
			continue
		}
		out, err := g.Alloc(len(b) - h.Offset)
		if err != nil {
			return fmt.Errorf("no memory for the %d bytes of an array: %w", len(b)-h.Offset, err)
		}
		imagecodec.Floats(out, b, h)
		rec.Values[0].Bytes = out
	}
	return nil
}
