package arrowsource

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/internal/filelist"
	"github.com/stokerdata/stoker/store"
)

const (
	// lookAt is how many values say what a column of bytes holds.
	lookAt = 8
	// maskHead is more than the header of a mask's file has.
	maskHead = 64 << 10
)

// look says what the first values of a column of bytes are: images, masks, sounds,
// or bytes; and, of masks, whether they need two bytes.
func (s *source) look(ctx context.Context, field int, name string) (driver.Kind, driver.DType, error) {
	kind, mask := driver.KindBytes, driver.Uint8
	c := s.columns[field]
	left := lookAt
	for b := 0; b < len(s.batches) && left > 0; b++ {
		p := s.parts[b][field]
		var o store.Object
		for row := int64(0); row < s.batches[b].rows && left > 0; row++ {
			if !bit(p.valid, row) {
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
			head := make([]byte, min(hi-lo, maskHead))
			if err = o.ReadAt(ctx, head, p.values+lo); err != nil {
				o.Close()
				return "", "", err
			}
			if info, err := imagefile.Probe(head); err == nil && info.Precision > 8 {
				mask = driver.Uint16
			}
			switch {
			case kind != driver.KindBytes:
			case imagefile.Detect(head) != driver.CodecUnknown:
				kind = filelist.KindOf(name, "x.png") // a mask by the field's name
			case isSound(head):
				kind = driver.KindAudio
			}
		}
		if o != nil {
			if err := o.Close(); err != nil {
				return "", "", err
			}
		}
	}
	if kind == driver.KindBytes {
		switch {
		case c.feature.is("Image"):
			kind = driver.KindImage
		case c.feature.is("Audio"):
			kind = driver.KindAudio
		}
	}
	return kind, mask, nil
}

// isSound says whether bytes begin as files of sound do.
func isSound(b []byte) bool {
	has := func(at int, s string) bool { return len(b) >= at+len(s) && string(b[at:at+len(s)]) == s }
	return has(0, "RIFF") && has(8, "WAVE") || has(0, "fLaC") || has(0, "OggS") || has(0, "ID3") ||
		has(4, "ftypM4A") || has(0, "FORM") && has(8, "AIF") || len(b) > 1 && b[0] == 0xFF && b[1]&0xF6 == 0xF2
}

// files are those that rows lead to whose bytes are not in the table: the path is
// there, the bytes are missing, or the column has nothing but paths.
type files struct {
	s *source
	// of says, by field and record, which one it is: of near, or ^n of far.
	of        []map[int64]int64
	why       []map[int64]error
	near, far filelist.List
}

func newFiles(s *source) *files {
	f := &files{s: s, of: make([]map[int64]int64, len(s.columns)), why: make([]map[int64]error, len(s.columns))}
	f.near.Store, f.far.Store = s.opt.Files, s.opt.Outside
	return f
}

func (f *files) len() int64 { return int64(f.near.Len() + f.far.Len()) }

// has says whether the value of a field of a record is a file.
func (f *files) has(field int, id int64) bool {
	if f.of[field] == nil {
		return false
	}
	_, ok := f.of[field][id]
	_, no := f.why[field][id]
	return ok || no
}

// locate returns the number among all files, and the size.
func (f *files) locate(field int, id int64) (n, size int64, err error) {
	if err := f.why[field][id]; err != nil {
		return 0, 0, err
	}
	if n = f.of[field][id]; n < 0 {
		return ^n + int64(f.near.Len()), f.far.Size(int(^n)), nil
	}
	return n, f.near.Size(int(n)), nil
}

func (f *files) object(n int64) driver.Object {
	if near := int64(f.near.Len()); n >= near {
		return f.far.Object(n-near, false)
	}
	return f.near.Object(n, false)
}

func (f *files) fingerprints() []string {
	if f.len() == 0 {
		return nil
	}
	return []string{f.near.Fingerprint(), f.far.Fingerprint()}
}

// find looks at the files of all fields.
func (f *files) find(ctx context.Context) error {
	for i := range f.s.columns {
		c, field := f.s.columns[i], &f.s.info.Fields[i]
		paths := func(p *part) *part { return p.paths }
		switch {
		case c.elem != nil || !isPicture(field.Kind) && field.Kind != driver.KindBytes:
			continue
		case c.value.class == text:
			paths = func(p *part) *part { return p }
			field.MaxBytes, field.Stats = 0, nil
		case c.paths == nil:
			continue
		}
		f.of[i], f.why[i] = map[int64]int64{}, map[int64]error{}
		for b := range f.s.batches {
			p := f.s.parts[b][i]
			if from := paths(p); from != nil {
				if err := f.batch(ctx, i, b, p, from); err != nil {
					return err
				}
			}
		}
		if c.value.class == text && len(f.of[i]) == 0 {
			return fmt.Errorf("%s: column %q leads to no file; row 0: %w", f.s.list.Store, c.name, f.why[i][0])
		}
	}
	return nil
}

// target is a file that a row leads to.
type target struct {
	id   int64
	name string
	far  bool
	e    store.Entry
	err  error
}

// batch looks at the files of the rows of a record batch.
func (f *files) batch(ctx context.Context, field, b int, p, paths *part) error {
	at := f.s.batches[b]
	lo, hi := paths.at(0), paths.at(at.rows)
	all := make([]byte, hi-lo)
	if len(all) > 0 {
		o, err := f.s.list.Open(ctx, at.file)
		if err != nil {
			return err
		}
		err = o.ReadAt(ctx, all, paths.values+lo)
		if cerr := o.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return err
		}
	}
	var targets []target
	for row := range at.rows {
		if p != paths && bit(p.valid, row) {
			continue
		}
		name := all[paths.at(row)-lo : paths.at(row+1)-lo]
		if !bit(paths.valid, row) || len(name) == 0 {
			if p == paths {
				f.why[field][f.s.first[b]+row] = errMissing
			}
			continue
		}
		t := target{id: f.s.first[b] + row}
		t.name, t.far, t.err = f.name(string(name))
		targets = append(targets, t)
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(f.s.opt.Threads)
	for i := range targets {
		if t := &targets[i]; t.err == nil {
			g.Go(func() error { return f.stat(gctx, t) })
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	info := &f.s.info.Fields[field]
	for _, t := range targets {
		switch {
		case t.err != nil:
			f.why[field][t.id] = t.err
			continue
		case t.far:
			f.of[field][t.id] = ^int64(f.far.Len())
			f.far.Add(t.e)
		default:
			f.of[field][t.id] = int64(f.near.Len())
			f.near.Add(t.e)
		}
		info.MaxBytes = max(info.MaxBytes, t.e.Size)
		info.Stats = nil // which are of the bytes in the table
	}
	return nil
}

var errOutside = errors.New("its bytes are missing, and its path leads out of the folder of the table")

// name is the name in its store of the file at a path.
func (f *files) name(p string) (name string, far bool, err error) {
	const most = 4096
	if len(p) > most {
		return "", false, fmt.Errorf("a path of %d bytes", len(p))
	}
	if !path.IsAbs(p) {
		p = path.Clean(p)
		if f.near.Store == nil || p == "." {
			return "", false, errOutside
		}
		if p != ".." && !strings.HasPrefix(p, "../") {
			return p, false, nil
		}
		p = path.Join(f.s.opt.Folder, p)
	}
	p = path.Clean(p)
	if rel, ok := strings.CutPrefix(p, f.s.opt.Folder+"/"); ok && f.s.opt.Folder != "" && f.near.Store != nil {
		return rel, false, nil
	}
	if f.far.Store == nil {
		return "", false, errOutside
	}
	return strings.TrimPrefix(p, "/"), true, nil
}

// stat looks at a file. Errors that are not the file's own end the search.
func (f *files) stat(ctx context.Context, t *target) error {
	st := f.near.Store
	if t.far {
		st = f.far.Store
	}
	e, err := st.Stat(ctx, t.name)
	switch {
	case errors.Is(err, store.ErrNotExist) || errors.Is(err, store.ErrName):
		t.err = fmt.Errorf("%s: %w", st.Path(t.name), store.Cause(err))
		return nil
	case err != nil:
		return err
	case e.Dir:
		t.err = fmt.Errorf("%s is a folder", st.Path(t.name))
		return nil
	}
	e.Name = t.name
	t.e = e
	return nil
}
