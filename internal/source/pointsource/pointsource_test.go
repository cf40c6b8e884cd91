package pointsource

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/source/formattest"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

func opener(dir, format string, opt *Options) drivertest.Open {
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
		return Open(ctx, dir, format, localstore.New(dir), opt)
	})
}

func floats(b []byte) (out []float32) {
	for ; len(b) > 0; b = b[4:] {
		out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return out
}

func TestValues(t *testing.T) {
	for _, format := range formattest.PLYForms {
		s := opener(formattest.Clouds(t, PLY, func(i int) []byte { return formattest.PLY(format, 300) }), PLY, nil)(t)
		defer s.Close()
		if f := s.Info().Fields; len(f) != 2 || f[0].Shape[0] != 3 || f[1].Shape[0] != 3 {
			t.Fatalf("%+v", f)
		}
		r := drivertest.Records(t, s, 7)[0]
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		points, colors := floats(r.Values[0].Bytes), r.Values[1].Bytes
		if len(points) != 900 || len(colors) != 900 {
			t.Fatalf("%s: %d numbers, %d of colours", format, len(points), len(colors))
		}
		for i := range 300 {
			if points[3*i] != float32(i)/4 || points[3*i+1] != float32(-i) || points[3*i+2] != float32(i-5) || colors[3*i] != byte(i) || colors[3*i+2] != 255 {
				t.Fatalf("%s: point %d is %v, %v", format, i, points[3*i:3*i+3], colors[3*i:3*i+3])
			}
		}
	}
	// Files of float32 only are copied unchanged.
	plain := append([]byte("ply\r\nformat binary_little_endian 1.0\r\nelement vertex 3\r\nproperty float x\r\nproperty float32 y\r\nend_header\r\n"), formattest.KITTI(3)[:24]...)
	r := drivertest.Records(t, opener(formattest.Clouds(t, PLY, func(int) []byte { return plain }), PLY, nil)(t), 1)[0]
	if r.Err != nil || !bytes.Equal(r.Values[0].Bytes, formattest.KITTI(3)[:24]) {
		t.Errorf("%v, %v", r.Err, r.Values)
	}
	five := opener(formattest.Clouds(t, KITTI, func(i int) []byte { return formattest.KITTI(5) }), KITTI, &Options{Numbers: 5})(t)
	if f := five.Info().Fields[0]; f.Shape[0] != 5 {
		t.Errorf("%+v", f)
	}
}

func TestDamage(t *testing.T) {
	good := formattest.PLY("binary_little_endian", 10)
	text := formattest.PLY("ascii", 10)
	header := func(lines string) []byte { return []byte("ply\n" + lines + "end_header\n") }
	for name, c := range map[string]struct {
		format string
		file   []byte
		want   string
	}{
		"magic":    {PLY, []byte("plx\n"), "it does not begin with ply"},
		"empty":    {PLY, nil, "it does not begin with ply"},
		"endless":  {PLY, []byte("ply\nformat ascii 1.0\n"), "its header does not end within 21 bytes"},
		"format":   {PLY, header("format binary 1.0\n"), "is not a format"},
		"none":     {PLY, header("element vertex 1\nproperty float x\n"), "its header has no format"},
		"count":    {PLY, header("format ascii 1.0\nelement vertex 99999999999999\n"), "needs a number from 0 to"},
		"type":     {PLY, header("format ascii 1.0\nelement vertex 1\nproperty float128 x\n"), "has an unknown type"},
		"points":   {PLY, header("format ascii 1.0\nelement face 1\nproperty float x\n"), "no element vertex"},
		"other":    {PLY, header("format ascii 1.0\nelement vertex 0\nproperty float x\n"), "its points have x, but all files must have the numbers of"},
		"cut":      {PLY, good[:len(good)-40], "the file is cut off"},
		"huge":     {PLY, bytes.Replace(good, []byte("vertex 10"), []byte("vertex 4294967296"), 1), "its header has 4294967296 points of"},
		"faces":    {PLY, bytes.Replace(good, []byte("face 2"), []byte("face 4294967296"), 1), `element "face": the file is cut off`},
		"no text":  {PLY, bytes.Replace(text, []byte(" -3 "), []byte(" x "), 1), `expected a number, got "x"`},
		"few":      {PLY, bytes.Replace(text, []byte(" -3 "), []byte(" "), 1), "numbers, expected 6"},
		"colour":   {PLY, bytes.Replace(text, []byte(" 255 -5"), []byte(" 256 -5"), 1), "the colour 256 is not from 0 to 255"},
		"lines":    {PLY, text[:len(text)-40], "the file is cut off"},
		"odd size": {KITTI, formattest.KITTI(3)[:41], "41 bytes are not a multiple of a point of 4 float32"},
	} {
		dir := formattest.Clouds(t, c.format, func(i int) []byte {
			switch {
			case i == 4:
				return c.file
			case c.format == PLY:
				return good
			}
			return formattest.KITTI(2)
		})
		s := opener(dir, c.format, nil)(t)
		recs := drivertest.Records(t, s, 1, 2)
		if err := recs[1].Err; err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "04"+extensions[c.format]) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if recs[0].Err != nil {
			t.Errorf("%s: %v", name, recs[0].Err)
		}
	}
	if _, err := Open(t.Context(), "DIR", PLY, localstore.New(t.TempDir()), nil); err == nil {
		t.Error("an empty cloud is opened")
	}
	if !IsName(KITTI, "a/velodyne/01.bin") || IsName(KITTI, "a/01.bin") || !IsName(PLY, "x.PLY") {
		t.Error("IsName is wrong")
	}
}

func FuzzPLY(f *testing.F) {
	for _, format := range formattest.PLYForms {
		f.Add(formattest.PLY(format, 3))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := parseHeader(b)
		if err != nil || l.fits(b) != nil {
			return
		}
		_ = l.read(b, make([]byte, l.count*int64(4*len(l.numbers))), make([]byte, l.count*int64(len(l.colors))))
	})
}
