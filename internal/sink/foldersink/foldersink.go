// Package foldersink writes folders of images: one folder per class, with the file names of the
// source.
package foldersink

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/stokerdata/stoker/sink/sinkdriver"
	"github.com/stokerdata/stoker/source/driver"
)

// Name is the name of the format.
const Name = "folder"

// Format returns the folder format.
func Format() *sinkdriver.Format {
	return &sinkdriver.Format{
		Name: Name, About: "images, in a folder for each class, under the names that they had", Folder: true, Paths: true, Open: open,
	}
}

type sink struct {
	dir          string
	image, label int // indexes of the fields; label is -1 if there is none
	classes      []string
	made         sync.Map // folders that exist
}

func open(_ context.Context, out *sinkdriver.Out) (sinkdriver.Sink, error) {
	s := &sink{dir: out.Dir, image: -1, label: -1}
	for i := range out.Fields {
		f := &out.Fields[i]
		switch {
		case f.Kind == driver.KindImage && s.image < 0:
			s.image = i
		case f.Kind == driver.KindLabel && s.label < 0:
			s.label = i
			if err := s.names(f); err != nil {
				return nil, err
			}
		case f.Kind == driver.KindImage || f.Kind == driver.KindLabel:
			return nil, sinkdriver.Cannot("a folder of images", f, "it holds one image and one label per record")
		default:
			return nil, sinkdriver.Cannot("a folder of images", f, "it holds one image and one label per record; tar: also holds other fields")
		}
	}
	if s.image < 0 {
		return nil, fmt.Errorf("a folder of images needs a field of images, and there is none: choose another format with --to (tar, npy, jsonl, ...)")
	}
	return s, nil
}

// names checks that classes can be names of folders. Write makes a folder when its first image
// arrives, since torchvision refuses empty ones.
func (s *sink) names(f *sinkdriver.Field) error {
	for _, name := range f.Classes {
		if name == "" || name == "." || name == ".." || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\x00") || len(name) > 255 {
			return sinkdriver.Cannot("a folder of images", f, "class %q is not a valid folder name", name)
		}
	}
	s.classes = f.Classes
	return nil
}

// Unordered implements sinkdriver.Unordered.
func (s *sink) Unordered() {}

// Write implements sinkdriver.Sink.
func (s *sink) Write(_ context.Context, recs []sinkdriver.Record) error {
	for i := range recs {
		if err := s.put(&recs[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *sink) put(rec *sinkdriver.Record) error {
	v := &rec.Values[s.image]
	name := plainName(v)
	if s.label >= 0 {
		class := ""
		n := rec.Values[s.label].Int
		if s.classes == nil {
			class = fmt.Sprintf("%05d", n) // sorted as the numbers are
		} else if n < 0 || n >= int64(len(s.classes)) {
			return fmt.Errorf("record %d has class number %d: there are %d classes", rec.ID, n, len(s.classes))
		} else {
			class = s.classes[n]
		}
		if name == "" {
			name = number(rec, v)
		}
		if !strings.HasPrefix(name, class+"/") {
			name = class + "/" + path.Base(name)
		}
	} else if name == "" {
		name = number(rec, v)
	}
	err := s.create(name, v.Bytes)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrInvalid) || tooLong(err) {
		// The name is taken: the record number makes it unique.
		dir, _ := path.Split(name)
		err = s.create(dir+number(rec, v), v.Bytes)
	}
	return err
}

func tooLong(err error) bool {
	return err != nil && strings.Contains(err.Error(), "file name too long")
}

func number(rec *sinkdriver.Record, v *sinkdriver.Value) string {
	return fmt.Sprintf("%09d%s", rec.ID, v.Ext)
}

// plainName returns the path of an image in the source, relative to the output folder, with the
// extension of its current format. It returns "" if the path is not known or not safe.
func plainName(v *sinkdriver.Value) string {
	p := path.Clean(v.Path)
	if v.Path == "" || strings.ContainsRune(p, 0) {
		return ""
	}
	if !filepath.IsLocal(p) {
		p = path.Base(p)
	}
	if p == "." || p == ".." || p == "/" || strings.HasPrefix(path.Base(p), ".") {
		return ""
	}
	ext := path.Ext(p)
	same := []string{v.Ext}
	switch v.Ext {
	case ".jpg":
		same = []string{".jpg", ".jpeg", ".jpe", ".jfif"}
	case ".tiff":
		same = []string{".tif", ".tiff"}
	case ".bmp":
		same = []string{".bmp", ".dib"}
	}
	if !slices.Contains(same, strings.ToLower(ext)) {
		if slices.Contains(driver.ImageExtensions, strings.ToLower(ext)) {
			p = strings.TrimSuffix(p, ext)
		}
		p += v.Ext
	}
	return p
}

// create writes a file that must not exist yet.
func (s *sink) create(name string, b []byte) error {
	dir, _ := path.Split(name)
	if dir = strings.TrimSuffix(dir, "/"); dir != "" {
		if _, ok := s.made.Load(dir); !ok {
			if err := os.MkdirAll(filepath.Join(s.dir, dir), 0o777); err != nil {
				return err
			}
			s.made.Store(dir, nil)
		}
	}
	f, err := os.OpenFile(filepath.Join(s.dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// Finish implements sinkdriver.Sink.
func (s *sink) Finish(context.Context) error { return nil }

// Abort implements sinkdriver.Sink.
func (s *sink) Abort() {}
