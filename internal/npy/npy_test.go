package npy

import (
	"slices"
	"testing"

	"github.com/stokerdata/stoker/source/driver"
)

func TestRoundTrip(t *testing.T) {
	for _, shape := range [][]int64{{}, {7}, {3, 4}, {0, 9}, {1 << 40, 2, 3}} {
		for _, d := range driver.DTypes {
			b := AppendHeader(nil, d, shape)
			h, err := ParseHeader(b)
			if err != nil || h.DType != d || !slices.Equal(h.Shape, shape) || h.Offset != int64(len(b)) || len(b)%64 != 0 {
				t.Errorf("%s %v: %+v, %v in %q", d, shape, h, err, b)
			}
		}
	}
}

// Headers that NumPy itself wrote: version 1 of 2.x, and version 2.
func TestNumPy(t *testing.T) {
	v1 := "\x93NUMPY\x01\x00v\x00{'descr': '<u2', 'fortran_order': False, 'shape': (5, 3), }"
	for len(v1) < 127 {
		v1 += " "
	}
	h, err := ParseHeader([]byte(v1 + "\n"))
	if err != nil || h.DType != driver.Uint16 || !slices.Equal(h.Shape, []int64{5, 3}) || h.Offset != 128 || h.Bytes != 30 {
		t.Errorf("%+v, %v", h, err)
	}
	v2 := "\x93NUMPY\x02\x00\x3a\x00\x00\x00{'shape':(4L,),'descr':\"|b1\",'fortran_order':False}      \n "
	if h, err = ParseHeader([]byte(v2)); err != nil || h.DType != driver.Bool || !slices.Equal(h.Shape, []int64{4}) {
		t.Errorf("%+v, %v, %d", h, err, len(v2)-12)
	}
}

func FuzzParseHeader(f *testing.F) {
	f.Add(AppendHeader(nil, driver.Float32, []int64{3, 4}))
	f.Add([]byte("\x93NUMPY\x02\x00\x3b\x00\x00\x00{'shape':(4L,),'descr':\"|b1\",'fortran_order':False}      \n "))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHeader(b)
		if err != nil {
			return
		}
		if h.Offset > int64(len(b)) || h.Bytes < 0 || h.DType.Size() == 0 || len(h.Shape) > driver.MaxAxes {
			t.Fatalf("%+v in %d bytes", h, len(b))
		}
		again, err := ParseHeader(AppendHeader(nil, h.DType, h.Shape))
		if err != nil || again.Bytes != h.Bytes || !slices.Equal(again.Shape, h.Shape) {
			t.Fatalf("written again: %+v, %v", again, err)
		}
	})
}
