package tokensource

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// An index of Megatron-LM begins with a 9-byte magic number, a version (u64), the type of tokens (u8), the number
// of sequences and the number of entries in the document index (u64 each). Then follow the lengths of the sequences
// (i32) and their byte offsets in the .bin file (i64). Last is the document index: the first sequence of each
// document, and the total number of sequences (i64). Some files also have a byte per sequence.
const (
	indexMagic = "MMIDIDX\x00\x00"
	indexHead  = 34
	// indexPiece is the read size for an index, a multiple of 8.
	indexPiece = 1 << 20
)

// megatronTypes are the types of tokens by their number in an index.
var megatronTypes = map[byte]driver.DType{
	1: driver.Uint8, 2: driver.Int8, 3: driver.Int16, 4: driver.Int32, 5: driver.Int64, 6: driver.Float64, 7: driver.Float32, 8: driver.Uint16,
}

// IsIndex reports whether a file is an index of Megatron-LM.
func IsIndex(ctx context.Context, st store.Store, name string) bool {
	o, err := st.Open(ctx, name)
	if err != nil {
		return false
	}
	defer o.Close()
	b := make([]byte, len(indexMagic))
	return o.Size() >= indexHead && o.ReadAt(ctx, b, 0) == nil && string(b) == indexMagic
}

// IndexName returns the name of the index of a .bin file, the name itself for an index, and "" for other names.
func IndexName(name string) string {
	if strings.HasSuffix(name, ".idx") {
		return name
	}
	if before, ok := strings.CutSuffix(name, ".bin"); ok {
		return before + ".idx"
	}
	return ""
}

// OpenMegatron opens pairs of .bin and .idx files of Megatron-LM: the named ones (by either name), or all in st.
func OpenMegatron(ctx context.Context, url string, st store.Store, opt *Options) (driver.Source, error) {
	o := New()
	if opt != nil {
		*o = *opt
	}
	switch {
	case o.DType != "" || o.End != None || o.Begin != None:
		return nil, fmt.Errorf("cannot open %s: its index has the type of tokens and the ends of documents: remove dtype, eot and bos", url)
	case o.Window > 0 && o.Sequences:
		return nil, fmt.Errorf("cannot open %s: give window= or records=sequences, not both", url)
	}
	var names []string
	for _, name := range o.Names {
		names = append(names, IndexName(name))
	}
	indexes, err := files(ctx, st, names, func(name string) bool { return strings.HasSuffix(name, ".idx") })
	if err != nil {
		return nil, err
	}
	if indexes.Len() == 0 {
		return nil, fmt.Errorf("no .idx file of Megatron in %s or its subfolders", st)
	}
	bins := make([]string, indexes.Len())
	for i := range bins {
		bins[i] = strings.TrimSuffix(indexes.Name(i), ".idx") + ".bin"
	}
	list, err := filelist.Named(ctx, st, bins)
	if err != nil {
		return nil, err
	}
	s := &source{list: list, first: []int64{0}, window: o.Window, info: driver.Info{
		URL: url, Format: Megatron, Fingerprint: list.Fingerprint(Megatron, indexes.Fingerprint(), fmt.Sprint(o.Window, o.Sequences)),
	}}
	var dtype driver.DType
	for i := range bins {
		x := &index{list: indexes, file: i, bin: list.Path(i), size: list.Size(i), unit: 1}
		if err := x.read(ctx, o); err != nil {
			return nil, filelist.ErrPlace(indexes, int64(i), "", err)
		}
		if i > 0 && x.dtype != dtype {
			return nil, fmt.Errorf("%s has tokens of type %s, but %s of type %s: all files must have the same type", indexes.Path(i), x.dtype, indexes.Path(0), dtype)
		}
		dtype = x.dtype
		n := s.first[i] + x.size/x.unit/max(o.Window, 1)
		if o.Window == 0 {
			s.ends = append(s.ends, x.ends...)
			n = int64(len(s.ends))
		}
		s.base, s.first = append(s.base, 0), append(s.first, n)
	}
	s.unit = int64(dtype.Size())
	if dtype == driver.Int32 && o.Window == 0 {
		dtype = driver.Uint32 // the same bytes: tokens are never negative
	}
	return s, s.describe(dtype)
}

// index is an index being read.
type index struct {
	list  *filelist.List
	file  int
	bin   string
	size  int64 // size of the .bin file
	dtype driver.DType
	unit  int64
	ends  []int64 // ends of records, in tokens
}

// read reads an index and checks it against the size of the .bin file.
func (x *index) read(ctx context.Context, opt *Options) error {
	o, err := x.list.Open(ctx, x.file)
	if err != nil {
		return err
	}
	defer o.Close()
	head := make([]byte, indexHead)
	if o.Size() < indexHead {
		return fmt.Errorf("it has %d bytes, but an index of Megatron needs at least %d: the file is cut off, or is not an index", o.Size(), indexHead)
	}
	if err := o.ReadAt(ctx, head, 0); err != nil {
		return err
	}
	if string(head[:9]) != indexMagic {
		return fmt.Errorf("not an index of Megatron: it does not begin with MMIDIDX")
	}
	if v := binary.LittleEndian.Uint64(head[9:]); v != 1 {
		return fmt.Errorf("byte 9: unsupported version %d of the index (supported: 1)", v)
	}
	var ok bool
	if x.dtype, ok = megatronTypes[head[17]]; !ok {
		return fmt.Errorf("byte 17: unknown token type %d (known: 1 to 8)", head[17])
	}
	x.unit = int64(x.dtype.Size())
	n, m := binary.LittleEndian.Uint64(head[18:]), binary.LittleEndian.Uint64(head[26:])
	room := uint64(o.Size() - indexHead)
	// Check each number alone first, to avoid an overflow.
	if n > room/12 || m > room/8 || 12*n+8*m != room && 13*n+8*m != room {
		return fmt.Errorf("its header has %d sequences and %d document entries, but %d bytes follow: the file is cut off or was changed", n, m, room)
	}
	if err := x.sequences(ctx, o, int64(n)); err != nil {
		return err
	}
	if opt.Sequences || opt.Window > 0 || m <= 1 { // the file has no document ends
		return nil
	}
	return x.documents(ctx, o, indexHead+12*int64(n), int64(m))
}

// sequences reads the lengths and the offsets of sequences.
func (x *index) sequences(ctx context.Context, o store.Object, n int64) error {
	x.ends = make([]int64, n)
	i, at := 0, int64(0)
	err := pieces(ctx, o, indexHead, 4*n, func(b []byte) error {
		for ; len(b) > 0; b, i = b[4:], i+1 {
			length := int64(int32(binary.LittleEndian.Uint32(b)))
			if length < 0 || length > x.size/x.unit-at {
				return fmt.Errorf("byte %d: sequence %d has %d tokens, but %s ends after %d: the files do not match, or one is damaged", indexHead+4*i, i, length, x.bin, x.size/x.unit)
			}
			at += length
			x.ends[i] = at
		}
		return nil
	})
	if err != nil {
		return err
	}
	if at*x.unit != x.size {
		return fmt.Errorf("its sequences have %d tokens of %d bytes in total, but %s has %d bytes: the files do not match, or one is cut off", at, x.unit, x.bin, x.size)
	}
	i, at = 0, 0
	return pieces(ctx, o, indexHead+4*n, 8*n, func(b []byte) error {
		for ; len(b) > 0; b, i = b[8:], i+1 {
			if got := int64(binary.LittleEndian.Uint64(b)); got != at*x.unit {
				return fmt.Errorf("byte %d: sequence %d begins at byte %d, but the one before ends at %d: the index is damaged", indexHead+4*n+8*int64(i), i, got, at*x.unit)
			}
			at = x.ends[i]
		}
		return nil
	})
}

// documents merges the sequences of each document.
func (x *index) documents(ctx context.Context, o store.Object, off, m int64) error {
	ends := make([]int64, 0, m-1)
	before, i := int64(0), int64(0)
	err := pieces(ctx, o, off, 8*m, func(b []byte) error {
		for ; len(b) > 0; b, i = b[8:], i+1 {
			first := int64(binary.LittleEndian.Uint64(b))
			if first < before || first > int64(len(x.ends)) || i == 0 && first != 0 || i == m-1 && first != int64(len(x.ends)) {
				return fmt.Errorf("byte %d: document %d begins with sequence %d of %d, but the one before with %d: the index is damaged", off+8*i, i, first, len(x.ends), before)
			}
			before = first
			switch {
			case i == 0:
			case first == 0:
				ends = append(ends, 0)
			default:
				ends = append(ends, x.ends[first-1])
			}
		}
		return nil
	})
	x.ends = ends
	return err
}

// pieces reads n bytes from an offset on, in pieces.
func pieces(ctx context.Context, o store.Object, off, n int64, f func(b []byte) error) error {
	b := make([]byte, min(n, indexPiece))
	for at := int64(0); at < n; at += indexPiece {
		b = b[:min(n-at, indexPiece)]
		if err := o.ReadAt(ctx, b, off+at); err != nil {
			return err
		}
		if err := f(b); err != nil {
			return err
		}
	}
	return nil
}
