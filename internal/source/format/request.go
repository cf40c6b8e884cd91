package format

import (
	"fmt"
	"path/filepath"

	"github.com/stokerdata/stoker/internal/source/place"
	"github.com/stokerdata/stoker/store"
)

// Request is what a URL asks a format to open.
type Request struct {
	// URL is for driver.Info and for messages. It has no secrets.
	URL string
	// Store is the file or the folder that the URL names.
	Store store.Store
	// Dir says that Store is a folder.
	Dir bool
	// Names are the files of Store that the pattern in the URL stands for, nil without one.
	Names []string
	// Values are the parameters of the URL.
	Values
	// Threads bounds what is done at the same time while opening, 0 for the format's choice.
	Threads int

	// Documents asks for one record per file of tokens, from formats that have tokens.
	Documents bool
	// VerifyChunks asks for checksums to be compared, in formats that have them.
	VerifyChunks bool
	// Probed is Store with the answers that Match has got from it.
	Probed store.Store
}

// Folder returns the folder that holds the file of the URL, and the file's name. If the
// URL names a folder it returns this folder and "".
func (r *Request) Folder() (folder store.Store, file string) { return folderOf(r.Store, r.Dir) }

// Fail says that the URL cannot be opened, and why.
func (r *Request) Fail(err error) error { return fmt.Errorf("cannot open %s: %w", r.URL, err) }

// Surroundings are the stores of the files that a table names.
type Surroundings struct {
	// Files is the folder of the table, and Folder its absolute path.
	Files  store.Store
	Folder string
	// Outside is the store of all absolute paths, nil if the table may not name them.
	Outside store.Store
}

// Surroundings returns the stores of the files that a table at the URL names.
func (r *Request) Surroundings() (s Surroundings, err error) {
	s.Files, _ = r.Folder()
	s.Outside = place.Outside(r.Store)
	s.Folder = s.Files.Path("")
	if scheme, rest := place.Split(s.Folder); scheme != "" {
		s.Folder = "/" + rest // paths in the table may begin with this
		return s, nil
	}
	s.Folder, err = filepath.Abs(s.Folder)
	return s, err
}
