// Package quarantine reads and writes text files of bad records, one JSON object per line.
package quarantine

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/stokerdata/stoker/store"
)

// Record is a line of the file.
type Record struct {
	// Source is the URL of the data, Data its fingerprint: record numbers are only valid for this data.
	Source string `json:"source"`
	Data   string `json:"data"`
	Record int64  `json:"record"`
	Name   string `json:"name"`
	Reason string `json:"reason"`
	// Epoch is the only epoch in which the record is known to be bad, -1 for all. Another epoch may use a part of a
	// damaged image that is intact.
	Epoch int64 `json:"epoch"`
}

// File is a file of bad records. Several ranks and jobs may append to it. Lines of other data are left alone.
type File struct {
	path, source, data string

	mu   sync.Mutex
	file *os.File
}

// maxLine limits the size of a line.
const maxLine = 1 << 20

// Open reads a file and calls each with the records of this data, given by its URL and its fingerprint. The file is
// created if it does not exist.
func Open(path, source, data string, each func(r *Record)) (*File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("quarantine: cannot open %s: %w", path, store.Cause(err))
	}
	whole, err := read(f, func(r *Record) {
		if r.Data == data && (data != "" || r.Source == source) {
			each(r)
		}
	})
	if err == nil && !whole { // a writer was killed: its line is not used, and the next one begins behind it
		_, err = f.Write([]byte{'\n'})
	}
	if err != nil {
		_ = f.Close() // the first error counts
		return nil, fmt.Errorf("quarantine: %s: %w", path, store.Cause(err))
	}
	return &File{path: path, source: source, data: data, file: f}, nil
}

// read calls each with the lines. whole is false if the last line has no end.
func read(from io.Reader, each func(r *Record)) (whole bool, err error) {
	in := bufio.NewReaderSize(from, maxLine)
	for n := 1; ; n++ {
		line, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF):
			return len(line) == 0, nil
		case errors.Is(err, bufio.ErrBufferFull):
			return false, fmt.Errorf("line %d has more than %d bytes", n, maxLine)
		case err != nil:
			return false, err
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		r := Record{Record: -1, Epoch: -1}
		if err := json.Unmarshal(line, &r); err == nil && r.Record >= 0 {
			each(&r)
		} else if line[0] != '{' || json.Valid(line) { // the rest is what a killed writer has left
			return false, fmt.Errorf(`line %d is not a bad record; expected {"source": ..., "record": ...}`, n)
		}
	}
}

// Add appends a record of this data.
func (f *File) Add(r Record) error {
	r.Source, r.Data = f.source, f.data
	line, err := json.Marshal(&r)
	if err == nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		_, err = f.file.Write(append(line, '\n')) // in one piece, since others append too
	}
	if err != nil {
		return fmt.Errorf("cannot write the quarantine file %s: %w", f.path, store.Cause(err))
	}
	return nil
}

// Close closes the file. A nil File is closed already.
func (f *File) Close() error {
	if f == nil {
		return nil
	}
	return f.file.Close()
}
