// Package binsink writes tokens in the layout of nanoGPT: uint16 or uint32 numbers and nothing
// else, one document after the other.
package binsink

import (
	"context"

	"github.com/stokerdata/stoker/internal/sink/files"
	"github.com/stokerdata/stoker/sink/sinkdriver"
	"github.com/stokerdata/stoker/source/driver"
)

// Format returns the .bin format.
func Format() *sinkdriver.Format {
	return &sinkdriver.Format{
		Name: "bin", About: "nanoGPT's tokens: uint16 or uint32 and nothing else", Ext: []string{".bin"}, File: true, Folder: true, Sharded: true,
		ShardBytes: 512 << 20, Open: open,
	}
}

type sink struct{ files.Rows }

func open(_ context.Context, out *sinkdriver.Out) (sinkdriver.Sink, error) {
	s := &sink{Rows: files.NewRows(out, ".bin")}
	if len(out.Fields) != 1 {
		for i := range out.Fields {
			if f := &out.Fields[i]; f.Kind != driver.KindTokens {
				return nil, sinkdriver.Cannot("a .bin file", f, "it holds tokens and nothing else")
			}
		}
		return nil, sinkdriver.Cannot("a .bin file", &out.Fields[1], "it holds one field of tokens")
	}
	f := &out.Fields[0]
	t, shape, ragged, ok := f.Elements()
	if !ok || f.Pixels || ragged && len(shape) > 0 || len(shape) > 1 {
		return nil, sinkdriver.Cannot("a .bin file", f, "it holds tokens and nothing else")
	}
	if t != driver.Uint16 && t != driver.Uint32 {
		return nil, sinkdriver.Cannot("a .bin file", f, "its elements are %s, tokens must be uint16 or uint32", t)
	}
	return s, nil
}

// Encode implements sinkdriver.Encoder.
func (s *sink) Encode(b []byte, rec *sinkdriver.Record) ([]byte, error) {
	return append(b, rec.Values[0].Bytes...), nil
}
