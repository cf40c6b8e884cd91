package arrowsource

import (
	"context"
	"fmt"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/columns"
	"github.com/stokerdata/stoker/source/driver"
)

// look adds what the first values of a column of bytes look like, and the bounds of a column of
// numbers whose kind depends on them.
func (s *source) look(ctx context.Context, field int, want column.Want, u *column.Seen) error {
	c := s.columns[field]
	bounded := want.Kind == "" && c.Bounded(u)
	if !bounded && (c.Elem != nil || c.Value.Class != columns.Binaries || want.Kind != "" && want.Kind != driver.KindMask) {
		return nil
	}
	left := column.LookAt
	for b := 0; b < len(s.batches) && left > 0; b++ {
		p, at := s.parts[b][field], s.batches[b]
		o, err := s.list.Open(ctx, at.file)
		if err != nil {
			return err
		}
		var all []byte // of what is compressed, or bounded
		if bounded {
			all, err = p.bytes(ctx, o, p.values, p.values+at.rows*c.Unit())
		} else if p.packed != nil {
			all, err = p.packed.load(ctx, o)
		}
		for row := int64(0); err == nil && row < at.rows && left > 0; row++ {
			lo, hi := p.at(row), p.at(row+1)
			end := min(hi, lo+column.MaskBytes)
			var head []byte
			switch {
			case !columns.Bit(p.valid, row) || lo == hi:
				continue
			case bounded:
				c.Bound(u, all[row*c.Unit():])
				continue
			case all != nil:
				head = all[lo:end]
			default:
				head, err = p.bytes(ctx, o, p.values+lo, p.values+end)
			}
			u.Look(head, hi-lo)
			left--
		}
		if cerr := o.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return s.at(at.file, fmt.Sprintf(", record batch %d, column %q", at.number, c.Name), err)
		}
	}
	return nil
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
