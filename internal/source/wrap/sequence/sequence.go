// Package sequence makes sequences of one length out of the documents of another
// source, while they are loaded: nothing is written, and another length is another
// number. A record is a sequence; where it lies is worked out from the lengths of
// documents alone, as a pure function of (seed, epoch).
//
// There are two ways to pack documents. Stream puts them one behind the other and
// cuts what comes of that, so that sequences are full and documents go on from one
// to the next. BestFit keeps documents whole as long as they fit a sequence, puts
// those together that fill it best, and pads what is left.
//
// A sequence is located as extents of parts of documents. Where the source says that
// the bytes of an extent are the value as it stands, only the part that is wanted is
// read; other documents are read whole and made by their source.
package sequence

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/source/driver"
)

// Ways to pack documents.
const (
	Stream  = "stream"
	BestFit = "best-fit"
)

// Packings lists them.
func Packings() []string { return []string{Stream, BestFit} }

// What a sequence may have beside its tokens.
const (
	// PositionIDs counts from 0 in each document, or part of one: int32 [L].
	PositionIDs = "position_ids"
	// DocumentIDs counts the documents of a sequence from 0, padding is -1: int32 [L].
	DocumentIDs = "document_ids"
	// CuSeqlens says where documents begin and, last, L; padding is the last one:
	// int32, as many as there are and one.
	CuSeqlens = "cu_seqlens"
	// LossMask is true for targets that follow from what stands before them in the same
	// document: bool [L].
	LossMask = "loss_mask"
)

// Extras lists them, in the order in which a batch has them.
func Extras() []string { return []string{PositionIDs, DocumentIDs, CuSeqlens, LossMask} }

// MaxLength is the longest sequence.
const MaxLength = 1 << 24

// Options say which sequences are made.
type Options struct {
	// Length is the number of tokens that a model is given.
	Length int64
	// Packing is Stream, also as "", or BestFit.
	Packing string
	// Fields are the extras that are wanted. BestFit always gives LossMask, since
	// there is padding.
	Fields []string
	// NoShift gives the tokens as one field, "tokens", and not as "input" and, one
	// further, "target".
	NoShift bool
	// DType is the type that tokens are given in: "" as they are stored, int32 or int64.
	DType driver.DType
	// Pad is the token that fills up sequences.
	Pad int64
	// Shuffle changes the order of documents with each epoch; Seed decides on it. The
	// order of sequences is not made here.
	Shuffle bool
	Seed    uint64
}

// check refuses what makes no sense, and returns o with defaults filled in.
func (o Options) check() (Options, error) {
	if o.Packing == "" {
		o.Packing = Stream
	}
	switch {
	case o.Length < 1 || o.Length > MaxLength:
		return o, fmt.Errorf("a sequence of %d tokens: a length is 1 to %d", o.Length, MaxLength)
	case !slices.Contains(Packings(), o.Packing):
		return o, fmt.Errorf("%q is no way to pack sequences: there are %s", o.Packing, strings.Join(Packings(), " and "))
	case o.DType != "" && o.DType != driver.Int32 && o.DType != driver.Int64:
		return o, fmt.Errorf("tokens of sequences are given as they are stored, or as int32 or int64, not as %q", string(o.DType))
	}
	for _, name := range o.Fields {
		if !slices.Contains(Extras(), name) {
			return o, fmt.Errorf("sequences have no field %q; there are %s", name, strings.Join(Extras(), ", "))
		}
	}
	if o.Packing == BestFit && !slices.Contains(o.Fields, LossMask) {
		o.Fields = append(slices.Clone(o.Fields), LossMask)
	}
	return o, nil
}

// Plan says what comes of the documents.
type Plan struct {
	Length  int64  `json:"length"`
	Packing string `json:"packing"`
	// Documents and Tokens are those of the source.
	Documents int64 `json:"documents"`
	Tokens    int64 `json:"tokens"`
	Sequences int64 `json:"sequences"`
	// Dropped are tokens that are the input of no sequence: what is left over of a
	// stream, at its end or, when it is shuffled, at both of its ends.
	Dropped int64 `json:"dropped"`
	// Padding is how many places of sequences have no token.
	Padding int64 `json:"padding"`
}

// Source is a driver.Source of sequences. The records of an epoch are those of
// driver.InEpoch.
type Source struct {
	driver.Wrapper
	docs  *documents
	info  driver.Info
	plan  Plan
	opt   Options
	index index

	unit     int64 // bytes of a token as it is stored
	from, to dtype.Type
	pad      []byte // a token of padding
	// The places of fields, -1 for those that there are not.
	input, target, positions, ids, bounds, mask int
	want                                        []bool // of the source
	scratch                                     sync.Pool
}

// piece is a part of a document in a sequence: n tokens from a place on. extra
// says that the token behind them is the target of the last one.
type piece struct {
	doc, from, n, extra int64
}

// index says of what a sequence is made.
type index interface {
	// pieces appends those of a sequence.
	pieces(to []piece, epoch, sequence int64) []piece
}

// Open makes sequences of the documents of base. When it fails, base is still the
// caller's; else Close closes it.
func Open(ctx context.Context, base driver.Source, opt *Options) (*Source, error) {
	o, err := opt.check()
	if err != nil {
		return nil, err
	}
	docs, err := measure(ctx, base)
	if err != nil {
		return nil, err
	}
	f := &base.Info().Fields[docs.field]
	s := &Source{Wrapper: driver.Wrapper{Base: base}, docs: docs, opt: o, unit: docs.unit, from: f.DType.Type()}
	if s.to = s.from; o.DType != "" {
		s.to = o.DType.Type()
	}
	s.pad = make([]byte, s.to.Size())
	if !put(s.to, s.pad, o.Pad) {
		return nil, fmt.Errorf("the token %d cannot fill up sequences of %s", o.Pad, s.to)
	}
	s.plan = Plan{Length: o.Length, Packing: o.Packing, Documents: docs.count(), Tokens: docs.tokens()}
	switch o.Packing {
	case BestFit:
		b, err := newBestFit(docs, &o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", base.Info().URL, err)
		}
		s.plan.Sequences = b.sequences()
		s.plan.Padding = s.plan.Sequences*o.Length - s.plan.Tokens
		s.index = b
	default:
		st := newStream(docs, &o)
		s.plan.Sequences = st.n
		s.plan.Dropped = s.plan.Tokens - st.n*o.Length
		s.index = st
	}
	if s.plan.Sequences == 0 {
		return nil, fmt.Errorf("%s has %d tokens, less than one sequence of %d%s", base.Info().URL, s.plan.Tokens, o.Length, map[bool]string{false: " and the target of the last one"}[o.NoShift])
	}
	if s.plan.Sequences > 1<<epochBits {
		return nil, fmt.Errorf("%s has %d sequences of %d tokens, the limit is %d", base.Info().URL, s.plan.Sequences, o.Length, int64(1)<<epochBits)
	}
	s.describe(f)
	s.scratch.New = func() any { return new(scratch) }
	return s, nil
}

// epochBits is how many bits the number of a sequence may have (driver.InEpoch).
const epochBits = 40

// describe makes the Info.
func (s *Source) describe(f *driver.Field) {
	base := s.Base.Info()
	h := xxh3.New()
	_, _ = h.WriteString(fmt.Sprint(base.Fingerprint, s.opt.Length, s.opt.Packing, s.opt.NoShift, s.opt.Shuffle, f.Name))
	s.info = driver.Info{URL: base.URL, Format: base.Format, Len: s.plan.Sequences, Objects: base.Objects, Fingerprint: filelist.Sum(h), BadFiles: base.BadFiles, Bad: base.Bad}
	add := func(name string, kind driver.Kind, t driver.DType) int {
		f := driver.Field{Name: name, Kind: kind, DType: t, Shape: []int{int(s.opt.Length)}}
		if kind == driver.KindRagged {
			f.Shape, f.MaxBytes = nil, 4*(s.opt.Length+1)
		}
		s.info.Fields = append(s.info.Fields, f)
		return len(s.info.Fields) - 1
	}
	tokens := driver.DType(s.to.String())
	s.target = -1
	if s.opt.NoShift {
		s.input = add("tokens", driver.KindArray, tokens)
	} else {
		s.input = add("input", driver.KindArray, tokens)
		s.target = add("target", driver.KindArray, tokens)
	}
	extra := func(name string, kind driver.Kind, t driver.DType) int {
		if !slices.Contains(s.opt.Fields, name) {
			return -1
		}
		return add(name, kind, t)
	}
	s.positions = extra(PositionIDs, driver.KindArray, driver.Int32)
	s.ids = extra(DocumentIDs, driver.KindArray, driver.Int32)
	s.bounds = extra(CuSeqlens, driver.KindRagged, driver.Int32)
	s.mask = extra(LossMask, driver.KindArray, driver.Bool)
	s.want = make([]bool, len(base.Fields))
	s.want[s.docs.field] = true
}

// Plan says what came of the documents.
func (s *Source) Plan() Plan { return s.plan }

// Info implements driver.Source.
func (s *Source) Info() *driver.Info { return &s.info }

// EpochRecords implements driver.Epochs.
func (s *Source) EpochRecords() {}

// Name implements driver.Source.
func (s *Source) Name(id int64) string {
	epoch, n := driver.OfEpoch(id)
	if id < 0 || n >= s.info.Len {
		return fmt.Sprintf("%s, sequence %d", s.info.URL, id)
	}
	p := s.index.pieces(nil, epoch, n)[0]
	return fmt.Sprintf("sequence %d of epoch %d, from token %d of %s", n, epoch, p.from, s.Base.Name(p.doc))
}
