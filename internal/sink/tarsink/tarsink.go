// Package tarsink writes tar files for the webdataset library. The files of a record share a name,
// and the ending gives the type of each:
//
//	000000017.jpg  000000017.cls  000000017.caption.txt
package tarsink

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/stokerdata/stoker/internal/sink/files"
	"github.com/stokerdata/stoker/internal/sink/members"
	"github.com/stokerdata/stoker/sink/sinkdriver"
)

const block = 512

// Format returns the tar format.
func Format() *sinkdriver.Format {
	return &sinkdriver.Format{
		Name: "tar", About: "shards of webdataset", Ext: []string{".tar"}, File: true, Folder: true, Sharded: true, ShardBytes: 256 << 20, Open: open,
	}
}

type sink struct {
	files.Rows
	fields []sinkdriver.Field
	ends   []string // of the names of a field's files; "" in place of the extension of images and sounds
}

func open(_ context.Context, out *sinkdriver.Out) (sinkdriver.Sink, error) {
	s := &sink{Rows: files.NewRows(out, ".tar"), fields: out.Fields}
	s.End = make([]byte, 2*block)
	for i := range out.Fields {
		f := &out.Fields[i]
		end, ok := members.Ending(f)
		if !ok {
			return nil, sinkdriver.Cannot("a tar file", f, "its name is part of the names of files: give it a short one of lower-case letters without dots, with --field NEWNAME=%s", f.Name)
		}
		s.ends = append(s.ends, end)
	}
	return s, nil
}

// Encode implements sinkdriver.Encoder.
func (s *sink) Encode(b []byte, rec *sinkdriver.Record) ([]byte, error) {
	var space [32]byte
	for i := range s.fields {
		v := &rec.Values[i]
		head, data := members.Bytes(&s.fields[i], v, space[:])
		size := int64(len(head) + len(data))
		b = appendHeader(b, fmt.Sprintf("%09d%s%s", rec.ID, s.ends[i], v.Ext), size)
		b = append(append(b, head...), data...)
		b = append(b, zeros[:(block-size%block)%block]...)
	}
	return b, nil
}

var zeros [block]byte

// appendHeader appends the header of a member. It is a ustar header, except for sizes that do not
// fit into one.
func appendHeader(b []byte, name string, size int64) []byte {
	if size > 0o77777777777 {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		_ = w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size, ModTime: time.Unix(0, 0), Typeflag: tar.TypeReg, Format: tar.FormatGNU})
		return append(b, buf.Bytes()...)
	}
	at := len(b)
	b = append(b, zeros[:]...)
	h := b[at:]
	copy(h, name)
	copy(h[100:], "0000644\x000000000\x000000000\x00")
	octal(h[124:135], size)
	copy(h[136:], "00000000000\x00        0")
	copy(h[257:], "ustar\x0000")
	sum := int64(0)
	for _, c := range h {
		sum += int64(c)
	}
	octal(h[148:154], sum)
	h[154], h[155] = 0, ' '
	return b
}

// octal fills p with the octal digits of n.
func octal(p []byte, n int64) {
	for i := len(p) - 1; i >= 0; i-- {
		p[i] = byte('0' + n&7)
		n >>= 3
	}
}
