// Package format describes data formats to the rest of Stoker. Each format has its own
// folder in internal/source, which exports a value of type Format. Package source lists
// these values and opens URLs with them. Help, error messages, README.md and
// docs/reference/formats.md are generated from them.
package format

import (
	"context"
	"slices"

	"github.com/stokerdata/stoker/source/driver"
)

// Format is a data format. CONTRIBUTING.md describes how to add a format.
type Format struct {
	// Name is the name in driver.Info. It can prefix a path: npy:PATH.
	Name string `json:"name"`
	// Reads describes the files that the format reads.
	Reads string `json:"reads"`
	// Example is a URL.
	Example string `json:"example"`
	// Sequential describes the files that are only read in order. It is "" if all records are read
	// at random.
	Sequential string `json:"sequential"`
	// Checksums says which checksums of the files are compared when they are read. It is "" if the files have none.
	Checksums string `json:"checksums"`
	// Guide is a page about the format, relative to docs.
	Guide string `json:"guide"`

	// Params are the parameters that a URL may have after the question mark.
	Params []Param `json:"params"`
	// Instead says what to do instead of a parameter that other formats have, by its name.
	Instead map[string]string `json:"-"`
	// Patterns is set if a URL may name several files with {..} or *. Request.Names has these
	// files.
	Patterns bool `json:"patterns"`
	// Unlisted is set if Match does not need a listing of the folder. Many web servers have none.
	Unlisted bool `json:"-"`
	// Cached is set if the records are small files, for which a disk cache pays off.
	Cached bool `json:"-"`
	// Internal is set if only Stoker itself writes such files. Lists of formats omit the format.
	Internal bool `json:"-"`

	// Match reports whether a path holds data of this format. A format without Match is
	// only opened when the URL names it: files:PATH.
	Match func(ctx context.Context, p *Probe) bool `json:"-"`
	// Open opens the data. Its errors name the URL or the file.
	Open func(ctx context.Context, r *Request) (driver.Source, error) `json:"-"`
}

// Param returns the parameter of a name, nil if there is none.
func (f *Format) Param(name string) *Param {
	if i := slices.IndexFunc(f.Params, func(p Param) bool { return p.Name == name && p.Type != Columns && p.Type != Files }); i >= 0 {
		return &f.Params[i]
	}
	return nil
}

// Has reports whether a format has parameters of a type.
func (f *Format) Has(t Type) bool {
	return slices.ContainsFunc(f.Params, func(p Param) bool { return p.Type == t })
}
