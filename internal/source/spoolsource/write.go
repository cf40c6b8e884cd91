package spoolsource

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/stokerdata/stoker/source/driver"
)

// Writer writes a spool file.
type Writer struct {
	values  *bufio.Writer
	index   []byte
	width   int64 // words of a record
	size    int64
	records int64
	skipped []driver.Skipped
}

// NewWriter begins a file of records with so many fields.
func NewWriter(file io.Writer, fields int) (*Writer, error) {
	if fields < 1 || fields > maxFields {
		return nil, fmt.Errorf("%d fields, expected 1 to %d", fields, maxFields)
	}
	return &Writer{values: bufio.NewWriterSize(file, 1<<20), width: int64(1 + fields)}, nil
}

// Add reads records from r: their index, whose offsets count from 0, and then so many bytes of values.
func (w *Writer) Add(r io.Reader, records, values int64, skipped []driver.Skipped) error {
	if records < 0 || values < 0 || records > (maxIndex-int64(len(w.index)))/(8*w.width) {
		return fmt.Errorf("%d records of %d bytes, after %d records", records, values, w.records)
	}
	begin := len(w.index)
	w.index = append(w.index, make([]byte, records*w.width*8)...)
	if _, err := io.ReadFull(r, w.index[begin:]); err != nil {
		return err
	}
	for row := w.index[begin:]; len(row) > 0; row = row[8*w.width:] {
		binary.LittleEndian.PutUint64(row, binary.LittleEndian.Uint64(row)+uint64(w.size))
	}
	if _, err := io.CopyN(w.values, r, values); err != nil {
		return err
	}
	w.records += records
	w.size += values
	w.skipped = append(w.skipped, skipped...)
	return nil
}

// Size returns the number of bytes of the values so far.
func (w *Writer) Size() int64 { return w.size }

// Finish completes the file. name and fields are those of the JSON, as the Python package describes them.
func (w *Writer) Finish(name, fingerprint string, fields json.RawMessage) error {
	text, err := json.Marshal(map[string]any{"name": name, "fingerprint": fingerprint, "fields": fields, "skipped": w.skipped})
	if err != nil {
		return err
	}
	tail := append(w.index, text...)
	sum := crc32.ChecksumIEEE(tail)
	for _, v := range []int64{w.size, w.records, int64(len(text)), int64(sum)} {
		tail = binary.LittleEndian.AppendUint64(tail, uint64(v))
	}
	if _, err := w.values.Write(append(tail, Magic...)); err != nil {
		return err
	}
	return w.values.Flush()
}
