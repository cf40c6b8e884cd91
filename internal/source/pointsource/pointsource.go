// Package pointsource reads point clouds: .ply files (ASCII, or binary of either byte order) and .bin files as in
// KITTI and nuScenes, which only have float32 numbers. Each file is a record with the ragged field points, float32
// [n, k]. If .ply files have colours, there is a second field colors, uint8 [n, 3] or [n, 4].
package pointsource

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// The formats.
const (
	PLY   = "ply"
	KITTI = "kitti"
)

// KITTINumbers is the number of values of a point in KITTI: x, y, z and reflectance.
const KITTINumbers = 4

// maxNumbers limits the numbers of a point.
const maxNumbers = 256

// extensions are the file extensions, by format.
var extensions = map[string]string{PLY: ".ply", KITTI: ".bin"}

// IsName reports whether a file has the name of a format. KITTI's .bin files have no magic number: they must be in
// a folder whose name begins with velodyne.
func IsName(format, name string) bool {
	if !strings.EqualFold(path.Ext(name), extensions[format]) {
		return false
	}
	return format == PLY || strings.HasPrefix(path.Base(path.Dir(name)), "velodyne")
}

// Options configure Open. Nil means the defaults.
type Options struct {
	// Numbers is the number of values of a point in a .bin file, 0 for KITTINumbers. nuScenes has 5.
	Numbers int
}

type source struct {
	filelist.PerFile
	layout *layout // layout of the first .ply file
	point  int64   // bytes of a point in a .bin file
}

// Open lists the files of a format in st (or takes the single file that st is), sorted by name. The first .ply file
// defines the numbers of a point.
func Open(ctx context.Context, url, format string, st store.Store, opt *Options) (driver.Source, error) {
	ext := extensions[format]
	list, err := filelist.ScanRecords(ctx, st, func(name string) bool { return name == "" || strings.EqualFold(path.Ext(name), ext) }, 0)
	if err != nil {
		return nil, err
	}
	if list.Len() == 0 {
		return nil, fmt.Errorf("no %s file in %s or its subfolders", ext, st)
	}
	n := KITTINumbers
	if opt != nil && opt.Numbers != 0 {
		n = opt.Numbers
	}
	if n < 1 || n > maxNumbers {
		return nil, fmt.Errorf("invalid number of values of a point %d: expected 1 to %d", n, maxNumbers)
	}
	s := &source{point: int64(4 * n), PerFile: filelist.PerFile{List: list, About: driver.Info{
		URL: url, Format: format, Len: int64(list.Len()), Objects: int64(list.Len()), Fingerprint: list.Fingerprint(format, fmt.Sprint(n)),
	}}}
	_, largest := list.Bytes()
	if format == KITTI {
		s.About.Fields = []driver.Field{{Name: "points", Kind: driver.KindRagged, DType: driver.Float32, Shape: []int{n}, MaxBytes: largest}}
		return s, s.Check()
	}
	_, err = s.First(ctx, func(o store.Object) (err error) {
		b := make([]byte, min(o.Size(), maxHeader))
		if err = o.ReadAt(ctx, b, 0); err == nil {
			s.layout, err = parseHeader(b)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.About.Fields = s.layout.fields(largest)
	return s, nil
}

// Sizes implements driver.Sizer. The sizes of .ply files are only known from their headers.
func (s *source) Sizes(_ int, ids, sizes []int64) bool {
	return s.layout == nil && s.List.Sizes(ids, sizes)
}

func (s *source) Locate(g *driver.Group) {
	s.Located(g, func(k int, id int64) {
		size := s.List.Size(int(id))
		if size > driver.MaxArrayBytes {
			g.Records[k].Err = fmt.Errorf("%s: it has %d bytes, the limit is %d", s.List.Path(int(id)), size, int64(driver.MaxArrayBytes))
			return
		}
		if s.layout != nil {
			g.Extents = append(g.Extents, driver.Extent{Object: id, Size: size, Field: -1})
		} else if g.Wants(0) {
			g.Extents = append(g.Extents, driver.Extent{Object: id, Size: size})
		}
	})
}

func (s *source) Parse(g *driver.Group) error {
	for k, id := range g.IDs {
		rec := &g.Records[k]
		if rec.Err != nil || g.First[k] == g.First[k+1] {
			continue
		}
		b := g.Bytes[g.First[k]]
		if s.layout == nil {
			if rec.Values[0].Bytes = b; int64(len(b))%s.point != 0 {
				rec.Err = fmt.Errorf("%s: %d bytes are not a multiple of a point of %d float32: the file is cut off, or ?numbers=N is needed",
					s.List.Path(int(id)), len(b), s.point/4)
			}
			continue
		}
		if err := s.parse(g, k, b); err != nil {
			if g.Records[k].Err == nil {
				return err
			}
			rec.Err = filelist.ErrPlace(s.List, id, "", rec.Err)
		}
	}
	return nil
}

// parse sets the values of a .ply file. Errors of the file go to the Err of its record.
func (s *source) parse(g *driver.Group, k int, b []byte) error {
	rec := &g.Records[k]
	h, err := parseHeader(b)
	if err == nil && !slices.Equal(h.names(), s.layout.names()) {
		err = fmt.Errorf("its points have %s, but all files must have the numbers of %s, %s", strings.Join(h.names(), ", "), s.List.Path(0), strings.Join(s.layout.names(), ", "))
	}
	if err == nil {
		err = h.fits(b)
	}
	if err != nil {
		rec.Err = err
		return err
	}
	var points, colors []byte
	if points, err = g.Take(k, 0, h.count*int64(4*len(h.numbers))); err != nil {
		return fmt.Errorf("no memory for the %d points of %s: %w", h.count, s.List.Path(int(rec.ID)), err)
	}
	if len(h.colors) > 0 {
		if colors, err = g.Take(k, 1, h.count*int64(len(h.colors))); err != nil {
			return fmt.Errorf("no memory for the colours of %d points of %s: %w", h.count, s.List.Path(int(rec.ID)), err)
		}
		rec.Values[1].Bytes = colors
	}
	rec.Values[0].Bytes = points
	if err := h.read(b, points, colors); err != nil {
		rec.Err = err
		return err
	}
	return nil
}
