package tablesource

import (
	"context"
	"fmt"
	"runtime"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/source/driver"
)

// Rows opens rows of JSON Lines that another source has made of its files: rows[i] of file i of the list. The rows stay
// in memory, and texts in them are not paths of files.
func Rows(ctx context.Context, url string, list *filelist.List, rows [][]byte, opt *Options) (driver.Source, error) {
	s := &source{format: JSONL, info: driver.Info{URL: url, Format: JSONL}, list: list, held: rows, made: true, reader: &jsonReader{}}
	s.opt = *opt
	if s.opt.Threads <= 0 {
		s.opt.Threads = 4 * runtime.GOMAXPROCS(0)
	}
	for _, w := range s.opt.Columns {
		if column.IsFile(w.Kind) || w.Kind == driver.KindFrames {
			return nil, fmt.Errorf("column %q cannot be %s: its values are not files", w.From, w.Kind)
		}
	}
	in, err := s.scan(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.schema(ctx, in); err != nil {
		return nil, err
	}
	s.info.Objects = 0
	return s, nil
}
