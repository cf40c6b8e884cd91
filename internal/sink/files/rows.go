package files

import (
	"context"

	"github.com/stokerdata/stoker/sink/sinkdriver"
)

// Rows is a sink whose files are encoded records, one after the other. A type that has Encode
// embeds it.
type Rows struct {
	Shards
	// Begin and End are written at the start and the end of every file.
	Begin, End []byte
}

// NewRows returns the sink for out; ext is the extension of shards.
func NewRows(out *sinkdriver.Out, ext string) Rows {
	return Rows{Shards: Shards{Dir: out.Dir, Name: out.File, Ext: ext, Max: out.ShardBytes}}
}

// Write implements sinkdriver.Sink.
func (r *Rows) Write(_ context.Context, recs []sinkdriver.Record) error {
	for i := range recs {
		if err := r.put(recs[i].Encoded); err != nil {
			return err
		}
	}
	return nil
}

func (r *Rows) put(b []byte) error {
	f, fresh, err := r.Next(int64(len(b)+len(r.End)), r.end)
	if err != nil {
		return err
	}
	if fresh {
		if _, err := f.Write(r.Begin); err != nil {
			return err
		}
	}
	_, err = f.Write(b)
	return err
}

func (r *Rows) end(f *File) error {
	_, err := f.Write(r.End)
	return err
}

// Finish implements sinkdriver.Sink. It makes a file even if there are no records.
func (r *Rows) Finish(context.Context) error {
	if r.Count() == 0 {
		if err := r.put(nil); err != nil {
			return err
		}
	}
	return r.Shards.Finish(r.end)
}
