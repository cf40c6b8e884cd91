package tokensource

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/npy"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// The header of llm.c has 256 32-bit numbers. Three are used: a magic number, a version and the number of tokens.
const (
	headerBytes = 1024
	magicGPT2   = 20240520 // version 1, uint16
	magicLlama  = 20240801 // version 7, uint32
)

// IsName reports whether a file name may be a file of tokens.
func IsName(name string) bool {
	return strings.HasSuffix(name, ".bin") || strings.HasSuffix(name, ".npy")
}

// IsFile reports whether a file begins with the header of llm.c.
func IsFile(ctx context.Context, st store.Store, name string) bool {
	o, err := st.Open(ctx, name)
	if err != nil {
		return false
	}
	defer o.Close()
	b := make([]byte, 12)
	if o.Size() < headerBytes || o.ReadAt(ctx, b, 0) != nil {
		return false
	}
	_, ok := headerType(b)
	return ok
}

// headerType returns the type of the tokens after a header. ok is false if b is not such a header.
func headerType(b []byte) (driver.DType, bool) {
	if len(b) < 12 {
		return "", false
	}
	switch magic, version := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]); {
	case magic == magicGPT2 && version == 1:
		return driver.Uint16, true
	case magic == magicLlama && version == 7:
		return driver.Uint32, true
	}
	return "", false
}

// elements is the position of the tokens in a file.
type elements struct {
	dtype driver.DType
	base  int64
	count int64
}

// Open opens the single .bin or .npy file that st is, the named files, or all files in st, sorted by name.
func Open(ctx context.Context, url string, st store.Store, opt *Options) (driver.Source, error) {
	o := New()
	if opt != nil {
		*o = *opt
	}
	list, err := files(ctx, st, o.Names, IsName)
	if err != nil {
		return nil, err
	}
	if list.Len() == 0 {
		return nil, fmt.Errorf("no .bin or .npy file of tokens in %s or its subfolders", st)
	}
	if o.End != None && o.Begin != None {
		return nil, fmt.Errorf("cannot open %s: give eot (the token that ends documents) or bos (the token that begins them), not both", url)
	}
	if o.Window > 0 && (o.End != None || o.Begin != None) {
		return nil, fmt.Errorf("cannot open %s: window= does not use documents: remove eot= and bos=", url)
	}
	s := &source{list: list, first: []int64{0}, window: o.Window, info: driver.Info{
		URL: url, Format: Bin, Fingerprint: list.Fingerprint(Bin, fmt.Sprint(o.Window, o.DType, o.End, o.Begin)),
	}}
	var dtype driver.DType
	for i := range list.Len() {
		e, err := s.open(ctx, i, o)
		if err != nil {
			return nil, filelist.ErrPlace(list, int64(i), "", err)
		}
		if i > 0 && e.dtype != dtype {
			return nil, fmt.Errorf("%s has tokens of type %s, but %s of type %s: all files must have the same type", list.Path(i), e.dtype, list.Path(0), dtype)
		}
		dtype = e.dtype
		n := int64(len(s.ends))
		if o.Window > 0 {
			n = s.first[i] + e.count/o.Window
		}
		s.base, s.first = append(s.base, e.base), append(s.first, n)
	}
	s.unit = int64(dtype.Size())
	return s, s.describe(dtype)
}

// open reads the header of file i and finds the ends of its documents.
func (s *source) open(ctx context.Context, i int, opt *Options) (e elements, err error) {
	o, err := s.list.Open(ctx, i)
	if err != nil {
		return e, err
	}
	defer o.Close()
	if e, err = look(ctx, o, opt.DType); err != nil || opt.Window > 0 || e.count == 0 {
		return e, err
	}
	if opt.End == None && opt.Begin == None {
		s.ends = append(s.ends, e.count)
		return e, nil
	}
	found, err := find(ctx, o, e, max(opt.End, opt.Begin), opt.Threads)
	if err != nil {
		return e, err
	}
	for _, at := range found {
		if opt.End != None {
			at++
		}
		if at > 0 {
			s.ends = append(s.ends, at)
		}
	}
	if n := len(found); n == 0 || opt.Begin != None || found[n-1] != e.count-1 {
		s.ends = append(s.ends, e.count)
	}
	return e, nil
}

// look returns the position of the tokens in a file.
func look(ctx context.Context, o store.Object, dtype driver.DType) (e elements, err error) {
	b := make([]byte, min(o.Size(), headerBytes))
	if err := o.ReadAt(ctx, b, 0); err != nil {
		return e, err
	}
	e = elements{dtype: dtype}
	if strings.HasPrefix(string(b), npy.Magic) {
		h, err := npy.Read(store.ReaderAt(ctx, o), o.Size())
		if err != nil {
			return e, err
		}
		if len(h.Shape) != 1 || !slices.Contains(types, string(h.DType)) {
			return e, fmt.Errorf("it is an array of %s and shape %v: expected integers with one axis", h.DType, h.Shape)
		}
		return elements{h.DType, h.Offset, h.Shape[0]}, nil
	}
	if t, ok := headerType(b); ok {
		if dtype != "" && dtype != t {
			return e, fmt.Errorf("its header says %s: remove dtype=%s", t, dtype)
		}
		e.dtype, e.base = t, headerBytes
		said := int64(binary.LittleEndian.Uint32(b[8:]))
		if e.count = (o.Size() - headerBytes) / int64(t.Size()); o.Size() < headerBytes || said != e.count || o.Size() != headerBytes+said*int64(t.Size()) {
			return e, fmt.Errorf("its header has %d tokens of %d bytes, but %d bytes follow: the file is cut off or was changed", said, t.Size(), o.Size()-headerBytes)
		}
		return e, nil
	}
	if e.dtype == "" {
		e.dtype = driver.Uint16
	}
	n := int64(e.dtype.Size())
	if o.Size()%n != 0 {
		return e, fmt.Errorf("it has %d bytes, which is not a multiple of the token size %d (%s): the file is cut off, or another type is needed, such as ?dtype=uint32", o.Size(), n, e.dtype)
	}
	e.count = o.Size() / n
	return e, nil
}

// pieceBytes is the read size while ends of documents are searched. It is a multiple of every element size.
const pieceBytes = 4 << 20

// find returns the positions of a token in a file, ascending.
func find(ctx context.Context, o store.Object, e elements, token int64, threads int) ([]int64, error) {
	unit := int64(e.dtype.Size())
	pattern, ok := patternOf(e.dtype, token)
	if !ok {
		return nil, fmt.Errorf("a token of type %s cannot have the number %d", e.dtype, token)
	}
	if threads < 1 {
		threads = 4
	}
	total := e.count * unit
	found := make([][]int64, (total+pieceBytes-1)/pieceBytes)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(threads)
	buffers := make(chan []byte, threads)
	for range threads {
		buffers <- nil
	}
	for p := range found {
		g.Go(func() error {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			b := <-buffers
			defer func() { buffers <- b }()
			if b == nil {
				b = make([]byte, min(pieceBytes, total))
			}
			from := int64(p) * pieceBytes
			piece := b[:min(pieceBytes, total-from)]
			if err := o.ReadAt(ctx, piece, e.base+from); err != nil {
				return err
			}
			found[p] = matches(nil, piece, int(unit), pattern, from/unit)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.Concat(found...), nil
}

// patternOf returns 8 bytes filled with a token.
func patternOf(t driver.DType, token int64) (uint64, bool) {
	switch t.Size() {
	case 1:
		return uint64(token) * 0x0101010101010101, token <= math.MaxUint8
	case 2:
		return uint64(token) * 0x0001000100010001, token <= math.MaxUint16
	case 4:
		return uint64(token) * 0x0000000100000001, token <= math.MaxUint32
	}
	return uint64(token), true
}

// matches appends the positions of a token in b, starting at first. It compares 8 bytes per step: (x - 1) &^ x has
// the top bit of a lane set if x is 0 there. Lanes above may have false positives, lanes below never do.
func matches(to []int64, b []byte, unit int, pattern uint64, first int64) []int64 {
	lows := map[int]uint64{1: 0x0101010101010101, 2: 0x0001000100010001, 4: 0x0000000100000001, 8: 1}[unit]
	tops := lows << (8*unit - 1)
	lane0 := uint64(math.MaxUint64) >> (64 - 8*unit)
	at := 0
	for ; at+8 <= len(b); at += 8 {
		x := binary.LittleEndian.Uint64(b[at:]) ^ pattern
		if (x-lows)&^x&tops == 0 {
			continue
		}
		for lane := 0; lane < 8; lane += unit {
			if x>>(8*lane)&lane0 == 0 {
				to = append(to, first+int64((at+lane)/unit))
			}
		}
	}
	for ; at+unit <= len(b); at += unit {
		x := uint64(0)
		for i := range unit {
			x |= uint64(b[at+i]) << (8 * i)
		}
		if x == pattern&lane0 {
			to = append(to, first+int64(at/unit))
		}
	}
	return to
}
