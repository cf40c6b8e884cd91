package arrowsource

import (
	"context"
	"fmt"

	"github.com/stokerdata/stoker/internal/source/columns"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// look classifies a column of bytes by its first values: images, masks, sounds or bytes. For masks it also returns
// the dtype.
func (s *source) look(ctx context.Context, field int, name string) (driver.Kind, driver.DType, error) {
	l := columns.NewLooker(s.columns[field], name)
	left := columns.LookAt
	for b := 0; b < len(s.batches) && left > 0; b++ {
		p := s.parts[b][field]
		var o store.Object
		var all []byte // the decompressed buffer
		for row := int64(0); row < s.batches[b].rows && left > 0; row++ {
			if !columns.Bit(p.valid, row) {
				continue
			}
			lo, hi := p.at(row), p.at(row+1)
			if lo == hi {
				continue
			}
			left--
			var err error
			if o == nil {
				if o, err = s.list.Open(ctx, s.batches[b].file); err != nil {
					return "", "", err
				}
			}
			hi = min(hi, lo+columns.HeadBytes)
			if p.packed != nil && all == nil {
				all, err = p.packed.load(ctx, o)
			}
			var head []byte
			switch {
			case err != nil:
			case p.packed != nil:
				head = all[lo:hi]
			default:
				head, err = p.bytes(ctx, o, p.values+lo, p.values+hi)
			}
			if err != nil {
				o.Close()
				return "", "", s.at(s.batches[b].file, fmt.Sprintf(", record batch %d, column %q", s.batches[b].number, s.columns[field].Name), err)
			}
			l.Look(head)
		}
		if o != nil {
			if err := o.Close(); err != nil {
				return "", "", err
			}
		}
	}
	kind, mask := l.Found()
	return kind, mask, nil
}

// findFiles finds the files of rows whose bytes are not in the table.
func (s *source) findFiles(ctx context.Context) error {
	for i, c := range s.columns {
		field := &s.info.Fields[i]
		wanted, only := columns.Wanted(c, field)
		if !wanted {
			continue
		}
		if only {
			field.MaxBytes, field.Stats = 0, nil
		}
		s.files.Begin(i)
		for b := range s.batches {
			p := s.parts[b][i]
			from := p.paths
			if only {
				from = p
			}
			if from != nil {
				if err := s.filesOf(ctx, i, b, p, from); err != nil {
					return err
				}
			}
		}
		if only {
			if err := s.files.Check(i); err != nil {
				return fmt.Errorf("%s: column %q %w", s.list.Store, c.Name, err)
			}
		}
	}
	return nil
}

// filesOf finds the files of the rows of a record batch.
func (s *source) filesOf(ctx context.Context, field, b int, p, paths *part) error {
	at := s.batches[b]
	lo, hi := paths.at(0), paths.at(at.rows)
	var all []byte
	if lo < hi {
		o, err := s.list.Open(ctx, at.file)
		if err != nil {
			return err
		}
		all, err = paths.bytes(ctx, o, paths.values+lo, paths.values+hi)
		if cerr := o.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return s.at(at.file, fmt.Sprintf(", record batch %d, column %q", at.number, s.columns[field].Name), err)
		}
	}
	var ids []int64
	var names []string
	for row := range at.rows {
		if p != paths && columns.Bit(p.valid, row) {
			continue
		}
		id := s.first[b] + row
		name := all[paths.at(row)-lo : paths.at(row+1)-lo]
		if !columns.Bit(paths.valid, row) || len(name) == 0 {
			if p == paths {
				s.files.None(field, id)
			}
			continue
		}
		ids, names = append(ids, id), append(names, string(name))
	}
	return s.files.Add(ctx, field, &s.info.Fields[field], ids, names)
}
