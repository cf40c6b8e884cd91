package feed

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/arrowipc"
	"github.com/stokerdata/stoker/internal/item"
)

// A batch is one Flight stream: the schema, and record batches of some rows each. Every array is a column. The buffers
// of a record batch are the slot's memory, so sending copies nothing but offsets.

// ChunkBytes is about the size of a message.
const ChunkBytes = 4 << 20

// Meta describes a batch. It is JSON in the app_metadata of the first message, and the value of "stoker" in the schema's
// metadata.
type Meta struct {
	Rows int `json:"rows"`
	// Checksum is that of the arrays (Checksum).
	Checksum string `json:"checksum"`
	// Lengths are the lengths of the rows of padded arrays.
	Lengths map[string]int64 `json:"lengths,omitempty"`
	// Skipped is the number of rows whose records were replaced, and Bad names the first of them.
	Skipped int64 `json:"skipped,omitempty"`
	Bad     []Bad `json:"bad,omitempty"`
}

// Bad is a record that was replaced.
type Bad struct {
	ID     int64  `json:"id"`
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Limits of a description, far above sensible values.
const (
	maxMeta = 1 << 20
	maxBad  = 1000
)

// ParseMeta reads a description from a server.
func ParseMeta(text []byte) (Meta, error) {
	var m Meta
	if len(text) > maxMeta {
		return m, fmt.Errorf("the description of a batch has %d bytes", len(text))
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("the description of a batch: %w", err)
	}
	if m.Rows < 0 || m.Skipped < 0 || len(m.Bad) > maxBad {
		return m, errors.New("the description of a batch has a number that is out of range")
	}
	return m, nil
}

// column is an array as a column. rowBytes is 0 for ragged arrays.
type column struct {
	*item.Array
	rowBytes int64
}

// columns returns those arrays that have bytes, and their Arrow types.
func columns(arrays []item.Array, length func(*item.Array) int64) (cols []column, types []arrowipc.ColumnType) {
	for i := range arrays {
		a := &arrays[i]
		c := column{Array: a, rowBytes: a.RowBytes}
		shape := a.Shape
		if a.Padded {
			n := length(a)
			if c.rowBytes = n * a.ElementBytes(); n == 0 {
				continue
			}
			shape = append([]int{int(n)}, shape...)
		}
		cols = append(cols, c)
		types = append(types, arrowType(a, shape))
	}
	return cols, types
}

func arrowType(a *item.Array, shape []int) arrowipc.ColumnType {
	col := arrowipc.ColumnType{Name: a.Name, Type: elementType(a.DType)}
	if a.Ragged && len(a.Shape) == 0 && (a.Kind == "text" || a.Kind == "json") {
		col.Type = arrowipc.LargeBinary
	} else {
		if len(shape) > 0 {
			n := 1
			for _, side := range shape {
				n *= side
			}
			col = arrowipc.ListOf(a.Name, arrowipc.FixedList, int32(n), col)
			if !a.Ragged {
				sides := strings.ReplaceAll(fmt.Sprint(shape), " ", ",")
				col.Meta = append(col.Meta, arrowipc.KeyValue{Key: "ARROW:extension:name", Value: "arrow.fixed_shape_tensor"},
					arrowipc.KeyValue{Key: "ARROW:extension:metadata", Value: `{"shape":` + sides + `}`})
			}
		}
		if a.Ragged {
			col = arrowipc.ListOf(a.Name, arrowipc.LargeList, 0, col)
		}
	}
	col.Meta = append(col.Meta, arrowipc.KeyValue{Key: "stoker.dtype", Value: a.DType.String()})
	if a.Kind != "" {
		col.Meta = append(col.Meta, arrowipc.KeyValue{Key: "stoker.kind", Value: a.Kind})
	}
	return col
}

// elementType is the Arrow type of an element. Arrow has neither booleans of a byte nor bfloat16: these are numbers, and
// the metadata of their column names their type.
func elementType(t item.DType) arrowipc.Type {
	return map[item.DType]arrowipc.Type{
		item.U8: arrowipc.Uint8, item.I8: arrowipc.Int8, item.U16: arrowipc.Uint16, item.I16: arrowipc.Int16,
		item.U32: arrowipc.Uint32, item.I32: arrowipc.Int32, item.U64: arrowipc.Uint64, item.I64: arrowipc.Int64,
		item.F16: arrowipc.Float16, item.F32: arrowipc.Float32, item.F64: arrowipc.Float64,
		item.Bool: arrowipc.Uint8, item.BF16: arrowipc.Uint16,
	}[t]
}

func int64At(slot []byte, at int64) int64 { return int64(binary.LittleEndian.Uint64(slot[at:])) }

// lengthIn returns the length of the rows of a padded array in a slot.
func lengthIn(slot []byte) func(*item.Array) int64 {
	return func(a *item.Array) int64 { return int64At(slot, a.LengthAt) }
}

// values returns the bytes of rows [lo, hi) of a column.
func (c *column) values(slot []byte, lo, hi int) []byte {
	from, to := int64(lo)*c.rowBytes, int64(hi)*c.rowBytes
	if c.Ragged {
		element := c.ElementBytes()
		from, to = int64At(slot, c.Offsets+8*int64(lo))*element, int64At(slot, c.Offsets+8*int64(hi))*element
	}
	return slot[c.Offset+from : c.Offset+to : c.Offset+to]
}

// Checksum returns the XXH3 hash of the rows of all arrays of a batch. Equal batches have equal checksums, whatever the
// layout of their slots.
func Checksum(arrays []item.Array, slot []byte, rows int) string {
	h := xxh3.New()
	cols, _ := columns(arrays, lengthIn(slot))
	for i := range cols {
		c := &cols[i]
		fmt.Fprintln(h, c.Name, c.DType, rows, c.rowBytes)
		if c.Ragged {
			h.Write(slot[c.Offsets : c.Offsets+8*int64(rows+1)])
		}
		h.Write(c.values(slot, 0, rows))
	}
	sum := h.Sum128().Bytes()
	return hex.EncodeToString(sum[:])
}

// Messages calls send with the messages of a batch, in order. It completes meta. Their bodies are parts of the slot.
func Messages(arrays []item.Array, slot []byte, meta Meta, send func(*Data) error) error {
	rows := meta.Rows
	cols, types := columns(arrays, lengthIn(slot))
	meta.Checksum = Checksum(arrays, slot, rows)
	total := int64(0)
	zones := make([]arrowipc.Zone, len(cols))
	for i := range cols {
		zones[i] = arrowipc.Tail
		total += int64(len(cols[i].values(slot, 0, rows)))
	}
	for i := range arrays {
		if a := &arrays[i]; a.Padded {
			if meta.Lengths == nil {
				meta.Lengths = map[string]int64{}
			}
			meta.Lengths[a.Name] = int64At(slot, a.LengthAt)
		}
	}
	text, err := json.Marshal(meta)
	if err != nil {
		return fmt.Errorf("describing a batch: %w", err)
	}
	// The header of an Arrow file is its magic, and then the schema as it is sent.
	header := arrowipc.Header(types, []arrowipc.KeyValue{{Key: "stoker", Value: string(text)}})[16:]
	if err := send(&Data{Header: header, Meta: text}); err != nil || rows == 0 {
		return err
	}
	step := int(max(min(int64(rows), ChunkBytes*int64(rows)/max(total, 1)), 1))
	for lo := 0; lo < rows; lo += step {
		hi := min(lo+step, rows)
		batch := arrowipc.Batch{Rows: hi - lo, Leaves: make([]arrowipc.LeafData, len(cols))}
		for i := range cols {
			c := &cols[i]
			batch.Leaves[i].Values = c.values(slot, lo, hi)
			if c.Ragged {
				first := int64At(slot, c.Offsets+8*int64(lo))
				offsets := make([]byte, 0, 8*(hi-lo+1))
				for k := lo; k <= hi; k++ {
					offsets = binary.LittleEndian.AppendUint64(offsets, uint64(int64At(slot, c.Offsets+8*int64(k))-first))
				}
				batch.Leaves[i].Offsets = offsets
			}
		}
		parts, _, _ := batch.Parts(types, zones)
		if err := send(&Data{Header: parts[0][8:], Body: parts[1:]}); err != nil {
			return err
		}
	}
	return nil
}

// Receiver writes the messages of a batch to a slot. It trusts no byte of them.
type Receiver struct {
	arrays []item.Array
	slot   []byte
	full   int // rows of the slot

	meta  Meta
	cols  []column
	types []arrowipc.ColumnType
	at    int     // rows that are there
	items []int64 // elements of ragged columns that are there
}

// NewReceiver returns a Receiver for a batch of rows. full is the number of rows for which the slot has space.
func NewReceiver(arrays []item.Array, slot []byte, rows, full int, meta Meta) (*Receiver, error) {
	if meta.Rows != rows {
		return nil, fmt.Errorf("a batch of %d rows, expected %d", meta.Rows, rows)
	}
	for i := range arrays {
		if a := &arrays[i]; a.Padded {
			n, ok := meta.Lengths[a.Name]
			if element := a.ElementBytes(); !ok || n < 0 || n > a.Capacity/element/int64(max(rows, 1)) {
				return nil, fmt.Errorf("array %s: rows of %d elements do not fit", a.Name, n)
			}
		}
	}
	r := &Receiver{arrays: arrays, slot: slot, full: full, meta: meta}
	r.cols, r.types = columns(arrays, func(a *item.Array) int64 { return meta.Lengths[a.Name] })
	r.items = make([]int64, len(r.cols))
	return r, nil
}

// Add writes the rows of a message.
func (r *Receiver) Add(d *Data) error {
	head := binary.LittleEndian.AppendUint32(make([]byte, 0, 8+len(d.Header)), 0xFFFFFFFF)
	head = append(binary.LittleEndian.AppendUint32(head, uint32(len(d.Header))), d.Header...)
	l, err := arrowipc.ParseBatch(head, int64(len(head))+d.Size(), r.types)
	if err != nil {
		return err
	}
	if l.Rows > r.meta.Rows-r.at {
		return fmt.Errorf("%d rows are more than the batch has", l.Rows)
	}
	for i := range r.cols {
		if err := r.column(i, l, d); err != nil {
			return fmt.Errorf("array %s: %w", r.cols[i].Name, err)
		}
	}
	r.at += l.Rows
	return nil
}

func (r *Receiver) column(i int, l *arrowipc.Layout, d *Data) error {
	c, leaf := &r.cols[i], &l.Leaves[i]
	at, n := c.Offset+int64(r.at)*c.rowBytes, int64(l.Rows)*c.rowBytes
	if c.Ragged {
		offsets := r.slot[c.Offsets+8*int64(r.at):][:8*(l.Rows+1)]
		if leaf.Offsets.Len != int64(len(offsets)) {
			return fmt.Errorf("%d bytes of offsets for %d rows", leaf.Offsets.Len, l.Rows)
		}
		element := c.ElementBytes()
		before := r.items[i]
		d.copy(offsets, leaf.Offsets.Off-l.MetaBytes)
		if err := arrowipc.CheckOffsets(offsets, 8, l.Rows, min(leaf.Values.Len/element, c.Capacity/element-before)); err != nil {
			return err
		}
		if int64At(offsets, 0) != 0 {
			return errors.New("the offsets do not begin at 0")
		}
		for k := 0; k < len(offsets); k += 8 {
			binary.LittleEndian.PutUint64(offsets[k:], uint64(int64At(offsets, int64(k))+before))
		}
		r.items[i] = int64At(offsets, int64(8*l.Rows))
		at, n = c.Offset+before*element, (r.items[i]-before)*element
	}
	if leaf.Values.Len != n {
		return fmt.Errorf("%d bytes, expected %d", leaf.Values.Len, n)
	}
	d.copy(r.slot[at:at+n], leaf.Values.Off-l.MetaBytes)
	return nil
}

// Finish checks that the batch is complete.
func (r *Receiver) Finish() error {
	if r.at != r.meta.Rows {
		return fmt.Errorf("the batch ends after %d of %d rows", r.at, r.meta.Rows)
	}
	for i := range r.arrays {
		if a := &r.arrays[i]; a.Padded {
			binary.LittleEndian.PutUint64(r.slot[a.LengthAt:], uint64(r.meta.Lengths[a.Name]))
		}
	}
	for i := range r.cols {
		if c := &r.cols[i]; c.Ragged { // a short batch has no more elements
			for k := r.at; k <= r.full; k++ {
				binary.LittleEndian.PutUint64(r.slot[c.Offsets+8*int64(k):], uint64(r.items[i]))
			}
		}
	}
	if sum := Checksum(r.arrays, r.slot, r.meta.Rows); sum != r.meta.Checksum {
		return fmt.Errorf("the batch was damaged on its way: its checksum is %s, expected %s", sum, r.meta.Checksum)
	}
	return nil
}
