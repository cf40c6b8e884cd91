// Package sequence builds sequences of one length from the documents of another source while they
// are loaded. Nothing is written, so a new length needs no new files. A record is a sequence. Its
// documents are a pure function of the document lengths, the seed and the epoch.
//
// There are two ways to pack documents. Stream joins them and cuts the result, so that sequences
// are full and a document can continue in the next one. BestFit keeps documents whole if they fit,
// fills each sequence as well as possible, and pads the rest.
//
// A sequence is located as the extents of parts of documents. If the source declares that the bytes
// of an extent are the value itself, only the needed part is read. Other documents are read whole
// and parsed by their source.
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

// Packings returns the ways to pack documents.
func Packings() []string { return []string{Stream, BestFit} }

// Extra fields of a sequence.
const (
	// PositionIDs counts from 0 in each document, or part of one: int32 [L].
	PositionIDs = "position_ids"
	// DocumentIDs counts the documents of a sequence from 0, padding is -1: int32 [L].
	DocumentIDs = "document_ids"
	// CuSeqlens has the start of each document and, last, L. Padding counts as the last document.
	// It is int32, with one more number than there are documents.
	CuSeqlens = "cu_seqlens"
	// LossMask is true for targets that continue the document of the token before them: bool [L].
	LossMask = "loss_mask"
)

// Extras returns the extra fields, in the order in which a batch has them.
func Extras() []string { return []string{PositionIDs, DocumentIDs, CuSeqlens, LossMask} }

// MaxLength is the longest sequence.
const MaxLength = 1 << 24

// Options set how sequences are built.
type Options struct {
	// Length is the number of tokens per sequence that the model gets.
	Length int64
	// Packing is Stream or BestFit; "" is Stream.
	Packing string
	// Fields are the requested extra fields. BestFit always adds LossMask, since it pads.
	Fields []string
	// NoShift returns the tokens as one field "tokens". By default there are two, "input" and
	// "target", which is shifted by one token.
	NoShift bool
	// DType is the type of the tokens: "" for the stored type, int32 or int64.
	DType driver.DType
	// Pad is the token used for padding.
	Pad int64
	// Shuffle changes the order of documents in each epoch, from Seed. It does not change the order
	// of sequences.
	Shuffle bool
	Seed    uint64
}

// check validates o and returns it with the defaults filled in.
func (o Options) check() (Options, error) {
	if o.Packing == "" {
		o.Packing = Stream
	}
	switch {
	case o.Length < 1 || o.Length > MaxLength:
		return o, fmt.Errorf("a sequence of %d tokens: a length is 1 to %d", o.Length, MaxLength)
	case !slices.Contains(Packings(), o.Packing):
		return o, fmt.Errorf("unknown packing %q: use %s", o.Packing, strings.Join(Packings(), " or "))
	case o.DType != "" && o.DType != driver.Int32 && o.DType != driver.Int64:
		return o, fmt.Errorf("the type of tokens cannot be %q: use int32 or int64, or leave it empty for the stored type", string(o.DType))
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

// Plan counts the sequences and tokens.
type Plan struct {
	Length  int64  `json:"length"`
	Packing string `json:"packing"`
	// Documents and Tokens count the contents of the source.
	Documents int64 `json:"documents"`
	Tokens    int64 `json:"tokens"`
	Sequences int64 `json:"sequences"`
	// Dropped counts the tokens that are not the input of any sequence: the remainder at the end of
	// a stream, or at both ends if it is shuffled.
	Dropped int64 `json:"dropped"`
	// Padding counts the padding tokens of all sequences.
	Padding int64 `json:"padding"`
}

// Source is a driver.Source of sequences. The record numbers of an epoch are made by
// driver.InEpoch.
type Source struct {
	driver.Wrapper
	docs  *documents
	info  driver.Info
	plan  Plan
	opt   Options
	index index

	unit     int64 // bytes of a stored token
	from, to dtype.Type
	pad      []byte // a token of padding
	// Indexes of the fields, -1 for fields that do not exist.
	input, target, positions, ids, bounds, mask int
	want                                        []bool // of the source
	scratch                                     sync.Pool
}

// piece is a part of a document in a sequence: n tokens, starting at from. extra means that the
// token after them is the target of the last one.
type piece struct {
	doc, from, n, extra int64
}

// index finds the documents of a sequence.
type index interface {
	// pieces appends the pieces of a sequence.
	pieces(to []piece, epoch, sequence int64) []piece
}

// Open returns sequences of the documents of base. The returned Source closes base. If Open fails,
// the caller still owns base.
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
		return nil, fmt.Errorf("the padding token %d does not fit type %s", o.Pad, s.to)
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
		return nil, fmt.Errorf("%s has %d sequences of %d tokens: the limit is %d sequences", base.Info().URL, s.plan.Sequences, o.Length, int64(1)<<epochBits)
	}
	s.describe(f)
	s.scratch.New = func() any { return new(scratch) }
	return s, nil
}

// epochBits is the number of bits for the number of a sequence (driver.InEpoch).
const epochBits = 40

// describe fills in the Info.
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

// Plan returns the counts of sequences and tokens.
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
