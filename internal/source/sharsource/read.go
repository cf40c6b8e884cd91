package sharsource

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/internal/source/archive"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/stream"
	"github.com/stokerdata/stoker/internal/source/tarsource"
	"github.com/stokerdata/stoker/store"
)

const (
	// cuts is the field with the descriptions of records.
	cuts = "cuts"
	// maxLine is the size limit of the description of a cut.
	maxLine = 64 << 20
	// maxManifest is the size limit of the description of a value in a tar file.
	maxManifest = 16 << 20
)

// fileName is the parsed name of a file: FIELD.SHARD.EXT, or FIELD.EXT.
type fileName struct{ field, shard, ext string }

var extensions = []string{"jsonl.gz", "jsonl", "tar.gz", "tar"}

// parseName parses the name of a file. ok is false for files that do not belong to the format, such as indexes.
func parseName(name string) (f fileName, ok bool) {
	field, rest, _ := strings.Cut(name, ".")
	if field == "" || strings.Contains(name, "/") {
		return f, false
	}
	for _, ext := range extensions {
		if rest == ext || strings.HasSuffix(rest, "."+ext) {
			f = fileName{field, strings.TrimSuffix(strings.TrimSuffix(rest, ext), "."), ext}
			return f, f.field != cuts || f.lines()
		}
	}
	return f, false
}

// lines reports whether a file has a JSON object per line.
func (f *fileName) lines() bool { return strings.HasPrefix(f.ext, "jsonl") }

// cuts returns the names that the cuts of a file's shard can have.
func (f *fileName) cuts() (names []string) {
	base := cuts + "."
	if f.shard != "" {
		base += f.shard + "."
	}
	return []string{base + "jsonl.gz", base + "jsonl"}
}

// class is the encoding of the values of a tar file.
type class uint8

const (
	none class = iota // no cut has a value
	sound
	array  // .npy
	lilcom // .llc
)

func classOf(ext string) class {
	switch ext {
	case ".npy":
		return array
	case ".llc":
		return lilcom
	}
	return sound
}

// span is the position of a value in its tar file. It is -1 if the cut has no value.
type span struct{ at, size int64 }

// shard is the content of the files with the same number.
type shard struct {
	// rows are the values of cuts as JSON objects, one per line. ends are the ends of the lines.
	rows []byte
	ends []int
	// values, parts and classes belong to the tar files, in the order of source.tars.
	values  [][]span
	parts   []map[int]part
	classes []class
	// skip has the reasons why cuts are not records, by line.
	skip map[int]string
	// keys are the names of values in rows.
	keys map[string]bool
}

// cut is a line of a file of cuts, as far as it is read.
type cut struct {
	ID           string                     `json:"id"`
	Type         string                     `json:"type"`
	Start        float64                    `json:"start"`
	Duration     float64                    `json:"duration"`
	Channel      channels                   `json:"channel"`
	Supervisions json.RawMessage            `json:"supervisions"`
	Recording    *manifest                  `json:"recording"`
	Features     *manifest                  `json:"features"`
	Custom       map[string]json.RawMessage `json:"custom"`

	fields []byte // members of the row that are made of files with lines
}

// channels are channel numbers. Lhotse writes a single one without a list.
type channels []int

func (c *channels) UnmarshalJSON(b []byte) error {
	var one int
	if err := json.Unmarshal(b, &one); err == nil {
		*c = nil
		if !bytes.Equal(b, []byte("null")) {
			*c = channels{one}
		}
		return nil
	}
	return json.Unmarshal(b, (*[]int)(c))
}

// manifest returns the description of a value of a tar file, nil if the cut does not have it.
func (c *cut) manifest(field string) *manifest {
	switch field {
	case "recording":
		return c.Recording
	case "features":
		return c.Features
	}
	m := &manifest{}
	if b := c.Custom[field]; b == nil || json.Unmarshal(b, m) != nil || !m.known() {
		return nil
	}
	return m
}

// supervision is a segment of a cut with its text.
type supervision struct {
	Start    float64 `json:"start"`
	Duration float64 `json:"duration"`
	Text     string  `json:"text"`
	Speaker  string  `json:"speaker"`
	Language string  `json:"language"`
}

// read reads the files of a shard.
func (s *source) read(ctx context.Context, n int) (*shard, error) {
	sh := &shard{skip: map[int]string{}, keys: map[string]bool{}, values: make([][]span, len(s.tars)), parts: make([]map[int]part, len(s.tars)), classes: make([]class, len(s.tars))}
	var all []*cut
	err := s.lines(ctx, s.cuts[n], func(b []byte) error {
		c := &cut{}
		if err := json.Unmarshal(b, c); err != nil {
			return fmt.Errorf("not a cut: %w", err)
		}
		if c.ID == "" || !(c.Duration >= 0) || !(c.Start >= 0) {
			return errors.New("expected a cut with id, start and duration")
		}
		if c.Type != "MonoCut" && c.Type != "MultiCut" && c.Type != "" {
			sh.skip[len(all)] = fmt.Sprintf("a %s has no sound of its own", c.Type)
		}
		all = append(all, c)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, f := range s.lists {
		if err := s.addLines(ctx, f, n, all); err != nil {
			return nil, err
		}
	}
	for t := range s.tars {
		if err := s.tar(ctx, sh, t, n, all); err != nil {
			return nil, err
		}
	}
	for i, c := range all {
		if err := s.row(sh, c); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", s.list.Path(s.cuts[n]), i+1, err)
		}
		all[i] = nil
	}
	return sh, nil
}

// lines calls f for each line of a file that is not blank. Errors of f get its position.
func (s *source) lines(ctx context.Context, file int, f func(b []byte) error) error {
	o, err := s.list.Open(ctx, file)
	if err != nil {
		return err
	}
	defer o.Close()
	head := make([]byte, min(o.Size(), stream.HeadBytes))
	if err := o.ReadAt(ctx, head, 0); err != nil {
		return err
	}
	var r stream.Reader
	defer r.Close()
	r.Open(ctx, o.ReadAt, o.Size(), stream.Detect(head), 0)
	scan := bufio.NewScanner(&r)
	scan.Buffer(nil, maxLine)
	line := 0
	for scan.Scan() {
		line++
		if len(bytes.TrimSpace(scan.Bytes())) == 0 {
			continue
		}
		if err := f(scan.Bytes()); err != nil {
			return fmt.Errorf("%s, line %d: %w", s.list.Path(file), line, err)
		}
	}
	switch err := scan.Err(); {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("%s, line %d: it has more than %d bytes", s.list.Path(file), line+1, maxLine)
	case err != nil:
		return filelist.ErrPlace(s.list, int64(file), "", err)
	}
	return store.Check(ctx, o)
}

// addLines adds the values of a field that is stored as lines: {"cut_id": ID, FIELD: VALUE}.
func (s *source) addLines(ctx context.Context, f listed, n int, all []*cut) error {
	i := 0
	err := s.lines(ctx, f.files[n], func(b []byte) error {
		var line map[string]json.RawMessage
		if err := json.Unmarshal(b, &line); err != nil {
			return fmt.Errorf("expected an object: %w", err)
		}
		var id string
		if json.Unmarshal(line["cut_id"], &id) != nil || i >= len(all) || id != all[i].ID {
			return s.differs(n, i, all, id)
		}
		if v := line[f.name]; v != nil {
			all[i].fields = appendMember(all[i].fields, f.name, v)
		}
		i++
		return nil
	})
	if err == nil && i < len(all) {
		err = s.short(f.files[n], n, i, len(all))
	}
	return err
}

func (s *source) differs(n, i int, all []*cut, id string) error {
	if i >= len(all) {
		return fmt.Errorf("%s has only %d cuts, and this one is %q: write all fields with the same shard size", path.Base(s.list.Path(s.cuts[n])), len(all), id)
	}
	return fmt.Errorf("it belongs to cut %q, but cut %d of %s is %q: write all fields from the same cuts, in the same order", id, i+1, path.Base(s.list.Path(s.cuts[n])), all[i].ID)
}

func (s *source) short(file, n, have, want int) error {
	return fmt.Errorf("%s has values of %d cuts, %s has %d: it is cut off, or it was written with another shard size", s.list.Path(file), have, path.Base(s.list.Path(s.cuts[n])), want)
}

// tar reads the headers of a tar file. Each value has two members: its bytes, and after them its description.
func (s *source) tar(ctx context.Context, sh *shard, t, n int, all []*cut) error {
	f := &s.tars[t]
	file := f.files[n]
	o, err := s.list.Open(ctx, file)
	if err != nil {
		return err
	}
	defer o.Close()
	values := make([]span, 0, len(all))
	about := make([]span, 0, len(all))
	value, again := true, false
	err = tarsource.Scan(ctx, store.ReaderAt(ctx, o), o.Size(), func(m *archive.Member) error {
		ext := path.Ext(m.Name)
		i := len(values)
		if !value {
			i--
		}
		if id := strings.TrimSuffix(m.Name, ext); i >= len(all) || id != all[i].ID {
			return &archive.Damage{At: m.At, Err: s.differs(n, i, all, id)}
		}
		if !value {
			about = append(about, span{m.At, m.Size})
			value = true
			return nil
		}
		value = false
		if ext == ".nodata" {
			values = append(values, span{-1, -1})
			return nil
		}
		values = append(values, span{m.At, m.Size})
		again = again || ext == ".opus" || ext == ".original"
		switch c := classOf(ext); {
		case m.Size > archive.MaxFileBytes:
			return &archive.Damage{At: m.At, Err: fmt.Errorf("%s has %d bytes, the limit is %d", m.Name, m.Size, int64(archive.MaxFileBytes))}
		case sh.classes[t] == none:
			sh.classes[t] = c
		case sh.classes[t] != c:
			return &archive.Damage{At: m.At, Err: fmt.Errorf("%s is not of the format of the members before it", m.Name)}
		}
		return nil
	})
	if err == nil {
		err = store.Check(ctx, o)
	}
	var d *archive.Damage
	switch {
	case errors.As(err, &d):
		return filelist.ErrPlace(s.list, int64(file), fmt.Sprintf(", byte %d", d.At), d.Err)
	case err != nil && ctx.Err() == nil:
		return filelist.ErrPlace(s.list, int64(file), "", err)
	case err != nil:
		return err
	case len(values) < len(all) || !value:
		return s.short(file, n, len(about), len(all))
	}
	sh.values[t], sh.parts[t] = values, map[int]part{}
	for i, c := range all {
		if values[i].size < 0 || sh.classes[t] == lilcom || sh.skip[i] != "" {
			continue
		}
		m := c.manifest(f.name)
		if m == nil {
			if m, err = s.manifest(ctx, o, file, about[i]); err != nil {
				return err
			}
		}
		p, err := m.part(c, sh.classes[t], f.name == "recording", again)
		if err != nil {
			return fmt.Errorf("%s, cut %q: %w", s.list.Path(file), c.ID, err)
		}
		if p != nil {
			sh.parts[t][i] = *p
		}
	}
	return nil
}

// manifest reads the description of a value, for a field that was added to the cuts later.
func (s *source) manifest(ctx context.Context, o store.Object, file int, at span) (*manifest, error) {
	if at.size > maxManifest {
		return nil, fmt.Errorf("%s, byte %d: a description of %d bytes, the limit is %d", s.list.Path(file), at.at, at.size, maxManifest)
	}
	b := make([]byte, at.size)
	if err := o.ReadAt(ctx, b, at.at); err != nil {
		return nil, err
	}
	m := &manifest{}
	if err := json.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("%s, byte %d: expected the description of a value: %w", s.list.Path(file), at.at, err)
	}
	return m, nil
}

// row appends the values of a cut that are not in tar files as a JSON object.
func (s *source) row(sh *shard, c *cut) error {
	var all []supervision
	if c.Supervisions != nil {
		if err := json.Unmarshal(c.Supervisions, &all); err != nil {
			return fmt.Errorf("supervisions: %w", err)
		}
	}
	b := append(sh.rows, '{')
	begin := len(b)
	add := func(name string, value []byte) {
		if !s.named[name] {
			b, sh.keys[name] = appendMember(b, name, value), true
		}
	}
	add("id", quoted(c.ID))
	add("duration", number(c.Duration))
	if len(all) > 0 {
		var texts []string
		segments := []byte{'['}
		for i := range all {
			if all[i].Text != "" {
				texts = append(texts, all[i].Text)
			}
			segments = append(append(append(append(segments, '['), number(all[i].Start)...), ','), number(all[i].Duration)...)
			segments = append(segments, "],"...)
		}
		segments[len(segments)-1] = ']'
		for _, of := range []struct{ name, value string }{
			{"text", strings.Join(texts, " ")},
			{"speaker", common(all, func(v *supervision) string { return v.Speaker })},
			{"language", common(all, func(v *supervision) string { return v.Language })},
		} {
			if of.value != "" {
				add(of.name, quoted(of.value))
			}
		}
		add("segments", segments)
		add("supervisions", c.Supervisions)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Custom)) {
		if !s.named[name] && !bytes.Equal(c.Custom[name], []byte("null")) {
			if slices.Contains(own, name) {
				add("custom_"+name, c.Custom[name])
				continue
			}
			add(name, c.Custom[name])
		}
	}
	b = append(b, c.fields...)
	if len(b) > begin && b[len(b)-1] == ',' {
		b = b[:len(b)-1]
	}
	sh.rows = append(b, "}\n"...)
	sh.ends = append(sh.ends, len(sh.rows))
	return nil
}

// own are the names of values that rows have without custom fields.
var own = []string{"id", "duration", "text", "speaker", "language", "segments", "supervisions"}

// common returns the value that all supervisions have, "" if they differ.
func common(all []supervision, of func(v *supervision) string) string {
	value := of(&all[0])
	for i := range all {
		if of(&all[i]) != value {
			return ""
		}
	}
	return value
}

// appendMember appends a member of an object and a comma.
func appendMember(to []byte, name string, value []byte) []byte {
	return append(append(append(append(to, quoted(name)...), ':'), value...), ',')
}

func quoted(text string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// number returns seconds with a point, so that whole ones have the same type.
func number(v float64) []byte {
	b := strconv.AppendFloat(nil, v, 'f', -1, 64)
	if bytes.IndexByte(b, '.') < 0 {
		b = append(b, ".0"...)
	}
	return b
}

// head reads the beginning of a value.
func (s *source) head(ctx context.Context, file int, at span) ([]byte, error) {
	o, err := s.list.Open(ctx, file)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	b := make([]byte, min(at.size, 128<<10))
	if err := o.ReadAt(ctx, b, at.at); err != nil {
		return nil, err
	}
	return b, nil
}
