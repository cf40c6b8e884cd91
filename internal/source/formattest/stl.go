package formattest

import (
	"testing"

	"github.com/stokerdata/stoker/source/drivertest"
)

// STLPictures returns n images. Their stlPixels are all different.
func STLPictures(n int) []byte {
	b := make([]byte, n*stlPixels)
	for i := range b {
		b[i] = byte(i*7 + i/256*3 + i/stlPixels)
	}
	return b
}

// STLRow returns image i after loading.
func STLRow(i int) []byte {
	src, out := STLPictures(i + 1)[i*stlPixels:], make([]byte, stlPixels)
	for y := range stlSide {
		for x := range stlSide {
			for c := range 3 {
				out[(y*stlSide+x)*3+c] = src[c*stlSide*stlSide+x*stlSide+y]
			}
		}
	}
	return out
}

// STLLabels returns the classes of n images.
func STLLabels(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(1 + i%10)
	}
	return b
}

// STLClasses are the names of the classes.
const STLClasses = "airplane\nbird\ncar\ncat\ndeer\ndog\nhorse\nmonkey\nship\ntruck\n"

// STL writes labelled images.
func STL(t testing.TB) string {
	return drivertest.Folder(t, map[string][]byte{"train_X.bin": STLPictures(22), "train_y.bin": STLLabels(22), "class_names.txt": []byte(STLClasses), "fold_indices.txt": []byte("0 1\n")})
}

const (
	stlSide   = 96
	stlPixels = 3 * stlSide * stlSide
)
