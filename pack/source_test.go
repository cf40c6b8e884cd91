package pack

import "github.com/stokerdata/stoker/source/driver"

// readerSource is a Reader as package packsource has it, as far as reading goes.
type readerSource struct {
	*Reader
	info driver.Info
}

func asSource(r *Reader) driver.Source {
	s := &readerSource{Reader: r, info: driver.Info{URL: r.dir, Format: "pack", Len: r.Len(), Objects: int64(len(r.man.Shards))}}
	n := 1
	if r.label != nil {
		n = 2
	}
	if r.recs != nil {
		n = len(r.recs.fields)
	}
	s.info.Fields = make([]driver.Field, n)
	return s
}

func (s *readerSource) Info() *driver.Info { return &s.info }
