package format

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/place"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Request is a URL to open with a format.
type Request struct {
	// URL is for driver.Info and for messages. It has no secrets.
	URL string
	// Store is the file or the folder that the URL names.
	Store store.Store
	// Dir is set if Store is a folder.
	Dir bool
	// Names are the files of Store that the pattern in the URL stands for, nil without one.
	Names []string
	// Values are the parameters of the URL.
	Values
	// Threads limits the parallel work while opening. 0 means the default of the format.
	Threads int

	// Documents asks for one record per file of tokens, from formats that have tokens.
	Documents bool
	// VerifyChunks asks for checksums to be compared, in formats that have them.
	VerifyChunks bool
	// Probed is Store with the answers that Match got cached.
	Probed store.Store
}

// Folder returns the folder that holds the file of the URL, and the file's name. If the
// URL names a folder it returns this folder and "".
func (r *Request) Folder() (folder store.Store, file string) { return folderOf(r.Store, r.Dir) }

// Fail returns the error for a URL that cannot be opened.
func (r *Request) Fail(err error) error { return fmt.Errorf("cannot open %s: %w", r.URL, err) }

// Options configure the Open of most formats. A format uses those that it has parameters for.
// Nil means the defaults.
type Options struct {
	// Columns choose the fields, nil for all columns.
	Columns []column.Want
	// Split is the part that is read, of data with several, such as train.
	Split string
	// Names are the files to read, nil for all.
	Names []string
	// File is the one that the URL names, if the store is the folder that holds it.
	File string
	// Files is the folder of a table, Folder its absolute path, for the files that the
	// table names. Outside is the store of all absolute paths, nil if the table may not
	// name them.
	Files   store.Store
	Folder  string
	Outside store.Store
	// Fields are names of fields by the suffix of their members in archives, instead of the usual names. Exclude has
	// samples of archives that are not records: ARCHIVE/KEY.
	Fields  map[string]string
	Exclude map[string]bool
	// Threads bounds what is done at the same time while opening, 0 for the format's choice.
	Threads int
}

// Options returns the options that the URL asks for.
func (r *Request) Options() (*Options, error) {
	o := &Options{Columns: r.Columns, Split: r.Text("split"), Names: r.Names, Threads: r.Threads, Outside: place.Outside(r.Store)}
	o.Files, o.File = r.Folder()
	o.Folder = o.Files.Path("")
	var err error
	if scheme, rest := place.Split(o.Folder); scheme != "" {
		o.Folder = "/" + rest // paths in the table may begin with this
	} else {
		o.Folder, err = filepath.Abs(o.Folder)
	}
	return o, err
}

// Opener returns the Open of a format whose package has an Open with Options.
func Opener(open func(ctx context.Context, url string, st store.Store, opt *Options) (driver.Source, error)) func(context.Context, *Request) (driver.Source, error) {
	return func(ctx context.Context, r *Request) (driver.Source, error) {
		o, err := r.Options()
		if err != nil {
			return nil, r.Fail(err)
		}
		return open(ctx, r.URL, r.Store, o)
	}
}
