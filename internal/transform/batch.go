package transform

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/stokerdata/stoker/internal/item"
)

// BatchOp is an operation on a whole batch, such as MixUp. It runs once all
// rows are in place, in one goroutine per batch.
type BatchOp interface {
	ApplyBatch(r *Rand, b *Batch) error
}

// Grower is implemented by a BatchOp that puts values of several rows of ragged
// arrays into one.
type Grower interface {
	// Grow returns the factor by which a ragged array grows, 1 if it does not.
	Grow(array string) int64
}

// Batch is a complete batch in its slot.
type Batch struct {
	Arrays []item.Array
	Slot   []byte
	// Rows is the number of records; the rows after them are zero. Full is the number of records that fit the batch.
	Rows, Full int
}

// Ragged returns the values of a ragged array and the bounds of the rows in use, in bytes: row i is
// values[ends[i]:ends[i+1]].
func (b *Batch) Ragged(a *item.Array) (values []byte, ends []int64) {
	ends = make([]int64, b.Rows+1)
	for i := range ends {
		ends[i] = int64(binary.LittleEndian.Uint64(b.Slot[a.Offsets+8*int64(i):])) * a.ElementBytes()
	}
	return b.Slot[a.Offset : a.Offset+ends[b.Rows]], ends
}

// SetRagged writes the rows of a ragged array. values has the concatenated rows in use, ends the end of each row in
// bytes, from 0 on.
func (b *Batch) SetRagged(a *item.Array, values []byte, ends []int64) error {
	if int64(len(values)) > a.Capacity {
		return fmt.Errorf("the values of %q have %d bytes, more than the %d there is room for", a.Name, len(values), a.Capacity)
	}
	copy(b.Slot[a.Offset:], values)
	for i := range b.Full + 1 {
		binary.LittleEndian.PutUint64(b.Slot[a.Offsets+8*int64(i):], uint64(ends[min(i, b.Rows)]/a.ElementBytes()))
	}
	return nil
}

// Array returns the array of a name and its rows that are in use, nil when
// there is none.
func (b *Batch) Array(name string) (*item.Array, []byte) {
	for i := range b.Arrays {
		a := &b.Arrays[i]
		if a.Name == name {
			return a, b.Slot[a.Offset : a.Offset+int64(b.Rows)*a.RowBytes]
		}
	}
	return nil, nil
}

// BatchInfo is the information on a batch at the time when a batch operation is compiled.
type BatchInfo struct {
	// Arrays are those of the batch so far, without offsets, including ragged ones.
	Arrays []item.Array
	// Classes is the number of classes by label array, 0 when not known.
	Classes map[string]int
}

// SplitBatchOps returns the operations of a list on single records, and those at its end that are for whole batches.
func SplitBatchOps(ops []json.RawMessage) (single, batch []json.RawMessage) {
	at := len(ops)
	for at > 0 && forBatches(ops[at-1]) {
		at--
	}
	return ops[:at:at], ops[at:]
}

// forBatches reports whether an operation, or one inside it, is for whole batches alone.
func forBatches(raw json.RawMessage) bool {
	var op struct {
		Op         string            `json:"op"`
		Transforms []json.RawMessage `json:"transforms"`
	}
	if json.Unmarshal(raw, &op) != nil || !is(onBatches, op.Op) {
		return false
	}
	return !is(onImages, op.Op) || slices.ContainsFunc(op.Transforms, forBatches)
}

// CompileBatchOp reads the operation at place pos of the list.
func CompileBatchOp(raw json.RawMessage, in BatchInfo, pos int) (BatchOp, []item.Array, error) {
	if pos >= maxOps {
		return nil, nil, fmt.Errorf("more than %d operations", maxOps)
	}
	return compileBatchOp(raw, in, 0)
}

func compileBatchOp(raw json.RawMessage, in BatchInfo, depth int) (BatchOp, []item.Array, error) {
	name, vals, err := splitOp(raw)
	if err != nil {
		return nil, nil, err
	}
	if !is(onBatches, name) {
		if is(onImages, name) {
			return nil, nil, fmt.Errorf("%s works on single images, not on batches: write it before those of batches", name)
		}
		return nil, nil, fmt.Errorf("there is no batch operation %q%s", name, DidYouMean(name, names(onBatches)))
	}
	s := registry[name]
	got, err := s.check(vals)
	if err != nil {
		return nil, nil, err
	}
	a := &Args{spec: s, got: got, vals: vals, opContext: opContext{depth: depth}}
	op, add, err := s.batch(a, in)
	switch {
	case a.err != nil:
		return nil, nil, a.err
	case err != nil:
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return op, add, nil
}

// NewBatchRand returns the random numbers of batch operation op for the batch that begins at position first of an
// epoch's order.
func NewBatchRand(seed uint64, epoch, first int64, op int) Rand {
	return opRand(recordKey(seed, epoch, first, outputKey("\x00batch")), op)
}
