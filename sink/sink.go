// Package sink writes datasets in the formats of other tools. Everything that package source opens
// can become a folder of images, webdataset shards, a table or a file of arrays. Formats lists the
// formats.
//
// A destination has all of its records or does not exist. A run writes into the folder DST.partial,
// next to the destination, and renames it at the end. For a bucket it writes into a temporary
// folder and uploads that when it is complete. Existing files are never overwritten.
package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/sink/arrowsink"
	"github.com/stokerdata/stoker/internal/sink/binsink"
	"github.com/stokerdata/stoker/internal/sink/foldersink"
	"github.com/stokerdata/stoker/internal/sink/hdf5sink"
	"github.com/stokerdata/stoker/internal/sink/lmdbsink"
	"github.com/stokerdata/stoker/internal/sink/mdssink"
	"github.com/stokerdata/stoker/internal/sink/npysink"
	"github.com/stokerdata/stoker/internal/sink/parquetsink"
	"github.com/stokerdata/stoker/internal/sink/tablesink"
	"github.com/stokerdata/stoker/internal/sink/tarsink"
	"github.com/stokerdata/stoker/internal/sink/tfrecordsink"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/sink/sinkdriver"
	"github.com/stokerdata/stoker/source/driver"
)

// Formats returns all formats that can be written.
func Formats() []*sinkdriver.Format {
	return []*sinkdriver.Format{
		foldersink.Format(),
		tarsink.Format(),
		tfrecordsink.Format(),
		parquetsink.Format(),
		arrowsink.Format(),
		mdssink.Format(),
		lmdbsink.Format(),
		hdf5sink.Format(),
		binsink.Format(),
		npysink.NPY(),
		npysink.NPZ(),
		tablesink.JSONL(),
		tablesink.CSV(),
		tablesink.TSV(),
	}
}

// Find returns the format with a name, nil if there is none.
func Find(name string) *sinkdriver.Format {
	for _, f := range Formats() {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// Names returns the names of all formats.
func Names() []string {
	var all []string
	for _, f := range Formats() {
		all = append(all, f.Name)
	}
	return all
}

// Target is a destination and its format.
type Target struct {
	Format *sinkdriver.Format
	// Path is the destination. File reports whether it is a single file.
	Path string
	File bool
	// options are the store options of a URL. Path is the URL without them.
	options string
	remote  bool
}

// ParseTarget parses a destination: "tar:out/", "out.parquet", "out/". If to is not empty it names
// the format. Otherwise the format comes from the prefix of dst, then from its extension. A path
// with neither is a folder of images.
func ParseTarget(dst, to string) (*Target, error) {
	t := &Target{Path: dst}
	if name, rest, ok := strings.Cut(dst, ":"); ok && Find(name) != nil {
		if to != "" && to != name {
			return nil, fmt.Errorf("%s says %s, --to says %s", dst, name, to)
		}
		to, t.Path = name, rest
		if !stores.IsURL(rest) {
			t.Path = strings.TrimPrefix(rest, "//")
		}
	}
	if prefix := stores.Prefix(t.Path); prefix != "" {
		if f := meant(prefix); f != "" && !strings.Contains(t.Path, "://") {
			return nil, fmt.Errorf("cannot write %s: %q is not the name of a format; did you mean %s:%s? For a folder with that name write ./%s",
				t.Path, prefix, f, strings.TrimPrefix(t.Path, prefix+":"), t.Path)
		}
		return nil, stores.UnknownPrefix(t.Path, prefix, append(Names(), "pack"))
	}
	if t.Path == "" {
		return nil, fmt.Errorf("%q has no path: give a destination such as tar:out/", dst)
	}
	if t.remote = stores.IsURL(t.Path); t.remote {
		t.Path, t.options = stores.Cut(t.Path)
		dst = t.Path // for messages
	}
	known, ext := byExtension(t.Path)
	if to == "" {
		t.Format = known
		if t.Format == nil && (ext == "" || strings.HasSuffix(t.Path, "/")) {
			t.Format = Find(foldersink.Name)
		}
		if t.Format == nil {
			return nil, fmt.Errorf("the name of %s does not tell its format: set --to, or write %s:%s", dst, "tar", t.Path)
		}
	} else if t.Format = Find(to); t.Format == nil {
		return nil, fmt.Errorf("%q is not a format that can be written: choose %s", to, strings.Join(Names(), ", "))
	}
	f := t.Format
	t.File = f.File && (slices.Contains(f.Ext, ext) || !f.Folder) && !strings.HasSuffix(t.Path, "/")
	if !t.File && !f.Folder {
		return nil, fmt.Errorf("%s is one file: give its name, such as %s%s", f.Name, strings.TrimRight(t.Path, "/"), f.Ext[0])
	}
	if t.remote {
		t.Path = strings.TrimRight(t.Path, "/")
	} else {
		t.Path = filepath.Clean(t.Path)
		if stores.Prefix(t.Path) != "" {
			t.Path = "./" + t.Path // the colon is part of the name
		}
	}
	return t, nil
}

// meant returns the format that an unknown name before a colon stands for: by another name, the beginning of its name,
// its extension, or a name that is nearly the same.
func meant(prefix string) string {
	prefix = strings.ToLower(prefix)
	if prefix == "wds" || prefix == "webdataset" {
		return "tar"
	}
	for _, f := range Formats() {
		if strings.HasPrefix(f.Name, prefix) || slices.Contains(f.Ext, "."+prefix) {
			return f.Name
		}
	}
	return units.Nearest(prefix, Names())
}

func byExtension(path string) (*sinkdriver.Format, string) {
	name := strings.ToLower(filepath.Base(path))
	var best *sinkdriver.Format
	ext := ""
	for _, f := range Formats() {
		for _, e := range f.Ext {
			if strings.HasSuffix(name, e) && len(e) > len(ext) {
				best, ext = f, e
			}
		}
	}
	if best == nil {
		ext = filepath.Ext(name)
	}
	return best, ext
}

// Pick is a field to write. Name is its name in the output, From its name in the source.
type Pick struct{ Name, From string }

// ParsePick parses NAME or NAME=FIELD.
func ParsePick(text string) (Pick, error) {
	name, from, ok := strings.Cut(text, "=")
	if !ok {
		from = name
	}
	if name == "" || from == "" {
		return Pick{}, fmt.Errorf("%q: give the name of a field, or NEWNAME=FIELD", text)
	}
	return Pick{name, from}, nil
}

// Options change how Write works. Nil means the defaults.
type Options struct {
	// Fields are the fields to write, nil for all.
	Fields []Pick
	// ShardBytes is the target size of shards, 0 for the default of the format.
	ShardBytes int64
	// Compress is the compression, "" for the default of the format.
	Compress string
	// Threads is the number of records processed at the same time, 0 for one per core.
	Threads int
	// Memory limits the memory for records in flight. 0 means a quarter of the free memory, at most
	// 1 GiB.
	Memory int64
	// Progress is called from time to time, always by the same goroutine.
	Progress func(Progress)
}

// Progress counts the records and bytes written so far.
type Progress struct{ Records, Total, Bytes int64 }

// Skipped is a record that was left out.
type Skipped = driver.Skipped

// Summary describes what Write has written.
type Summary struct {
	Format  string   `json:"format"`
	Path    string   `json:"path"`
	Records int64    `json:"records"`
	Files   int64    `json:"files"`
	Bytes   int64    `json:"bytes"`
	Fields  []string `json:"fields"`
	// Skipped lists the first records that were left out. Bad counts all of them.
	Skipped []Skipped `json:"skipped,omitempty"`
	Bad     int64     `json:"bad"`
	// Beside counts files of the source that have another kind than the records.
	Beside []driver.SkippedGroup `json:"beside,omitempty"`
}

// ErrInterrupted is wrapped by the error of a run that was cancelled. Nothing of its output
// remains.
var ErrInterrupted = errors.New("interrupted")

// Write writes the records of src to t, in their order.
func Write(ctx context.Context, src driver.Source, t *Target, opt *Options) (*Summary, error) {
	o := Options{}
	if opt != nil {
		o = *opt
	}
	c := &conversion{src: src, info: src.Info(), opt: &o, format: t.Format}
	if err := c.choose(); err != nil {
		return nil, err
	}
	place, err := newPlace(ctx, t, src)
	if err != nil {
		return nil, err
	}
	defer place.abort()
	out := &sinkdriver.Out{
		Dir: place.dir, Fields: c.fields, Len: c.info.Len, ShardBytes: cmp.Or(o.ShardBytes, t.Format.ShardBytes), Compress: o.Compress, Threads: c.threads(),
	}
	if t.File {
		out.File = filepath.Base(t.Path)
	}
	switch {
	case o.ShardBytes > 0 && (t.File || !t.Format.Sharded):
		hint := "there are no shards"
		if t.Format.Sharded {
			hint = fmt.Sprintf("for several, give a folder: %s:%s/", t.Format.Name, strings.TrimSuffix(t.Path, filepath.Ext(t.Path)))
		}
		return nil, fmt.Errorf("--shard-size: %s is written as one (%s)", t.Path, hint)
	case o.ShardBytes < 0:
		return nil, fmt.Errorf("--shard-size: %d bytes is not a positive size", o.ShardBytes)
	case o.Compress == "" && len(t.Format.Compress) > 0:
		out.Compress = t.Format.Compress[0]
	case o.Compress != "" && !slices.Contains(t.Format.Compress, o.Compress):
		if len(t.Format.Compress) == 0 {
			return nil, fmt.Errorf("--compress %s: %s has no compression", o.Compress, t.Format.Name)
		}
		return nil, fmt.Errorf("--compress %s: for %s there is %s", o.Compress, t.Format.Name, strings.Join(t.Format.Compress, ", "))
	}
	sum, err := c.run(ctx, out)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w after %s of %s records: nothing was kept in %s, the same command starts from the beginning", ErrInterrupted, units.Int(c.done), units.Int(c.info.Len), t.Path)
		}
		var field *sinkdriver.FieldError
		if errors.As(err, &field) {
			return nil, c.others(field)
		}
		return nil, err
	}
	if sum.Files, sum.Bytes, err = place.finish(ctx); err != nil {
		return nil, err
	}
	sum.Format, sum.Path = t.Format.Name, t.Path
	return sum, nil
}
