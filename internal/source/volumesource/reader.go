package volumesource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/stokerdata/stoker/internal/npy"
	"github.com/stokerdata/stoker/store"
)

// window is the size of a read of a file's header or of its pieces.
const window = 16 << 10

// reader reads the parts of a file that describe its voxels.
type reader struct {
	ctx context.Context
	o   store.Object
	buf []byte
	at  int64
}

// bytes returns n bytes from an offset on, valid until the next call.
func (r *reader) bytes(off, n int64) ([]byte, error) {
	if size := r.o.Size(); off < 0 || n < 0 || off > size || n > size-off {
		return nil, fmt.Errorf("%d bytes from byte %d on are outside of its %d bytes: the file is cut off or damaged", n, off, size)
	}
	if off < r.at || off+n > r.at+int64(len(r.buf)) {
		want := min(max(n, window), r.o.Size()-off)
		if int64(cap(r.buf)) < want {
			r.buf = make([]byte, want)
		}
		r.buf = r.buf[:want]
		if err := r.o.ReadAt(r.ctx, r.buf, off); err != nil {
			r.buf = r.buf[:0]
			return nil, err
		}
		r.at = off
	}
	return r.buf[off-r.at:][:n], nil
}

// upTo returns the first n bytes, or the whole file if it is shorter.
func (r *reader) upTo(n int64) ([]byte, error) { return r.bytes(0, min(n, r.o.Size())) }

// The extensions of the files that can be volumes.
var (
	niftiNames = []string{".nii", ".nii.gz"}
	tiffNames  = []string{".tif", ".tiff", ".btf", ".tf8"}
	dicomNames = []string{".dcm", ".dicom", ".ima"}
)

func hasEnd(name string, ends ...string) bool {
	name = strings.ToLower(path.Base(name))
	for _, e := range ends {
		if strings.HasSuffix(name, e) {
			return true
		}
	}
	return false
}

// IsName reports whether a file has the name of a NIfTI volume.
func IsName(name string) bool { return hasEnd(name, niftiNames...) }

// IsTIFFName reports whether a file has the name of a TIFF file.
func IsTIFFName(name string) bool { return hasEnd(name, tiffNames...) }

// IsDICOMName reports whether a file has the name of a DICOM file. mayBe is true if the name
// does not tell: many DICOM files have only a number as their name.
func IsDICOMName(name string) (is, mayBe bool) {
	base := path.Base(name)
	if hasEnd(name, dicomNames...) || strings.EqualFold(base, "dicomdir") {
		return true, true
	}
	// Names such as IM0001 and 1.2.840.113619.2.55.
	return false, strings.Trim(path.Ext(base), ".0123456789") == ""
}

// isName reports whether a file can be a volume of any format.
func isName(name string) bool {
	is, mayBe := IsDICOMName(name)
	return is || mayBe || IsName(name) || IsTIFFName(name) || hasEnd(name, ".npy")
}

// parsed is the content of a file: a volume or a slice.
type parsed struct {
	volume *volume
	slice  *slice
}

// errNone is the error of a file in no supported format.
var errNone = errors.New("it is not a NIfTI, .npy, TIFF or DICOM file")

// parse reads the description of the voxels.
func parse(r *reader) (p parsed, err error) {
	b, err := r.upTo(window)
	if err != nil {
		return p, err
	}
	switch {
	case len(b) > 2 && b[0] == 0x1f && b[1] == 0x8b:
		p.volume, err = parseGzip(b)
	case bytes.HasPrefix(b, []byte(npy.Magic)):
		p.volume, err = parseNumPy(r, b)
	case isDICOM(b): // before isTIFF: it may begin as a TIFF file does
		p.slice, err = readDICOM(r)
	case isTIFF(b):
		p.volume, err = readTIFF(r)
	case isNIfTI(b):
		if p.volume, err = parseNIfTI(b); err == nil {
			err = p.volume.fits(r.o.Size())
		}
	default:
		err = errNone
	}
	return p, err
}

// fits returns an error if a file of size bytes is too short for the volume's one block.
func (v *volume) fits(size int64) error {
	if b := &v.blocks[0]; size-b.offset < v.bytes() {
		return fmt.Errorf("its header says %d bytes of voxels from byte %d on, it has %d bytes: the file is cut off", v.bytes(), b.offset, size)
	}
	return nil
}

// parseGzip reads the header of a compressed NIfTI file.
func parseGzip(b []byte) (*volume, error) {
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	out := make([]byte, headerBytes)
	n, err := io.ReadFull(r, out)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	v, err := parseNIfTI(out[:n])
	if err == nil {
		v.gz = true
	}
	return v, err
}

// parseNumPy reads the header of a .npy file with an array of three axes or more.
func parseNumPy(r *reader, b []byte) (*volume, error) {
	n, err := npy.HeaderSize(b)
	if err != nil {
		return nil, err
	}
	if b, err = r.upTo(int64(n)); err != nil {
		return nil, err
	}
	h, err := npy.ParseHeader(b)
	if err != nil {
		return nil, err
	}
	if len(h.Shape) < 3 {
		return nil, fmt.Errorf("it is an array of shape %v: volumes have three axes or more", h.Shape)
	}
	v := &volume{dtype: h.DType}
	for _, side := range h.Shape {
		v.shape = append(v.shape, int(min(max(side, 0), maxVoxelBytes)))
	}
	if err := v.check(); err != nil {
		return nil, err
	}
	v.whole(h.Offset)
	return v, v.fits(r.o.Size())
}
