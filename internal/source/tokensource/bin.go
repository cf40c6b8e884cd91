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
	"github.com/stokerdata/stoker/internal/source/npysource"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// The header of llm.c: 256 numbers of 32 bits, of which three say something: a magic
// number, a version and how many tokens follow.
const (
	headerBytes = 1024
	magicGPT2   = 20240520 // version 1, uint16
	magicLlama  = 20240801 // version 7, uint32
)

// IsName says whether a file may be one of tokens by its name.
func IsName(name string) bool {
	return strings.HasSuffix(name, ".bin") || strings.HasSuffix(name, ".npy")
}

// IsFile says whether a file begins with the header of llm.c.
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

// headerType is the type of the tokens behind a header, false when it is none.
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

// elements says where the tokens of a file lie.
type elements struct {
	dtype driver.DType
	base  int64
	count int64
}

// Open opens the .bin or .npy file that st is, or those in it, or those that the
// options name, in the order of their names.
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
	if o.Sequences {
		return nil, fmt.Errorf("cannot open %s: records=sequences is for Megatron's files, which have an index of them", url)
	}
	if o.End != None && o.Begin != None {
		return nil, fmt.Errorf("cannot open %s: documents end with a token (eot) or begin with one (bos); say one of them", url)
	}
	if o.Window > 0 && (o.End != None || o.Begin != None) {
		return nil, fmt.Errorf("cannot open %s: windows do not ask for documents; leave eot and bos out", url)
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
			return nil, fmt.Errorf("%s has tokens of the type %s, and %s of %s: they cannot be records of one data set", list.Path(i), e.dtype, list.Path(0), dtype)
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

// open reads what file i says of itself, and where its documents end.
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

// look says where the tokens of a file lie.
func look(ctx context.Context, o store.Object, dtype driver.DType) (e elements, err error) {
	b := make([]byte, min(o.Size(), headerBytes))
	if err := o.ReadAt(ctx, b, 0); err != nil {
		return e, err
	}
	e = elements{dtype: dtype}
	if strings.HasPrefix(string(b), npy.Magic) {
		h, err := npysource.ReadHeader(store.ReaderAt(ctx, o), o.Size())
		if err != nil {
			return e, err
		}
		if len(h.Shape) != 1 || !integer(h.DType) {
			return e, fmt.Errorf("it is an array of %s and shape %v; tokens are whole numbers and have one axis", h.DType, h.Shape)
		}
		return elements{h.DType, h.Offset, h.Shape[0]}, nil
	}
	if t, ok := headerType(b); ok {
		if dtype != "" && dtype != t {
			return e, fmt.Errorf("its header says that tokens are %s; leave dtype=%s out", t, dtype)
		}
		e.dtype, e.base = t, headerBytes
		said := int64(binary.LittleEndian.Uint32(b[8:]))
		if e.count = (o.Size() - headerBytes) / int64(t.Size()); o.Size() < headerBytes || said != e.count || o.Size() != headerBytes+said*int64(t.Size()) {
			return e, fmt.Errorf("its header speaks of %d tokens of %d bytes, behind it are %d bytes: the file is cut off or was changed", said, t.Size(), o.Size()-headerBytes)
		}
		return e, nil
	}
	if e.dtype == "" {
		e.dtype = driver.Uint16
	}
	n := int64(e.dtype.Size())
	if o.Size()%n != 0 {
		return e, fmt.Errorf("it has %d bytes, which are no whole number of tokens of %d (%s): the file is cut off, or its tokens are of another type: say which, such as ?dtype=uint32", o.Size(), n, e.dtype)
	}
	e.count = o.Size() / n
	return e, nil
}

// pieceBytes is how much of a file is looked through at once. It is a multiple of the
// size of every element.
const pieceBytes = 4 << 20

// find lists the places of a token in a file, in order.
func find(ctx context.Context, o store.Object, e elements, token int64, threads int) ([]int64, error) {
	unit := int64(e.dtype.Size())
	pattern, ok := patternOf(e.dtype, token)
	if !ok {
		return nil, fmt.Errorf("no token of the type %s has the number %d", e.dtype, token)
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

// patternOf is 8 bytes full of a token.
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

// matches appends the places of a token in b, counted from first on. It looks at 8
// bytes at once: (x - 1) &^ x has the top bit of a lane set where x is 0, and
// perhaps above it, but never below.
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
