package yolosource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/source/boxes"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/internal/source/place"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Format is data.yaml, folders with one, and folders with the folders images and labels.
var Format = &format.Format{
	Name:      "yolo",
	Reads:     "YOLO: a text file of boxes, polygons or key points per image, and data.yaml",
	Checksums: "those of the image files, such as PNG",
	Example:   "coco8/data.yaml?split=train",
	Guide:     "reference/detection.md",
	Params:    []format.Param{format.SplitParam, boxes.MasksParam},
	Match:     match,
	Open: func(ctx context.Context, r *format.Request) (driver.Source, error) {
		root, opt, err := find(ctx, r)
		if err != nil {
			return nil, r.Fail(err)
		}
		return Open(ctx, r.URL, place.At(r.Store, root), opt)
	},
}

// match accepts files that are named as YAML, and folders that are YOLO data. A file that cannot be read matches, so
// that opening it says why.
func match(ctx context.Context, p *format.Probe) bool {
	file, text, err := readYAML(ctx, p.Store, p.Dir)
	switch {
	case !p.Dir:
		return file != ""
	case err != nil || file == "":
		folder, err := Folders(ctx, p.Store)
		return err == nil && folder != ""
	}
	data, err := ParseData(text)
	return err == nil && len(data.Splits) > 0 || err != nil && member.MatchString(text)
}

// member matches the members of a data.yaml. Other programs have files of this name, too.
var member = regexp.MustCompile(`(?m)^(train|val|names)\s*:`)

// maxYAML is the largest data.yaml in bytes.
const maxYAML = 2 << 20

// readYAML reads the data.yaml that a store is, or that a folder holds. file is "" if there is none.
func readYAML(ctx context.Context, st store.Store, dir bool) (file, text string, err error) {
	names := []string{""}
	if dir {
		names = []string{"data.yaml", "data.yml", "dataset.yaml"}
	}
	for _, name := range names {
		ext := strings.ToLower(filepath.Ext(st.Path(name)))
		e, found, err := filelist.Lookup(ctx, st, name)
		if err != nil {
			return st.Path(name), "", err
		}
		if !found || e.Dir || ext != ".yaml" && ext != ".yml" {
			continue
		}
		b, err := store.ReadEntry(ctx, st, e, maxYAML)
		return st.Path(name), string(b), err
	}
	return "", "", nil
}

// find returns the folders of the images of a split, and the folder that holds all of them.
func find(ctx context.Context, r *format.Request) (root string, opt *Options, err error) {
	file, text, err := readYAML(ctx, r.Store, r.Dir)
	if err != nil {
		return "", nil, err
	}
	opt = &Options{Masks: boxes.Masks(r.Text("masks"))}
	split := r.Text("split")
	if file != "" {
		if opt.Data, err = ParseData(text); err != nil {
			return "", nil, fmt.Errorf("%s, %w", file, err)
		}
		root, opt.Folders, err = splitFolders(ctx, r.Store, file, opt.Data, split)
		return root, opt, err
	}
	if !r.Dir {
		return "", nil, errors.New("it is not a data.yaml")
	}
	folder, err := Folders(ctx, r.Store)
	if err != nil {
		return "", nil, err
	}
	folder = cmp.Or(folder, "images")
	if split != "" {
		folder += "/" + split
	}
	e, found, err := filelist.Lookup(ctx, r.Store, folder)
	if err == nil && (!found || !e.Dir) {
		err = fmt.Errorf("it has no folder %s", folder)
	}
	if err != nil {
		return "", nil, err
	}
	opt.Folders = []string{folder}
	return r.Store.Path(""), opt, nil
}

// splitFolders returns the folders of a split that data.yaml names, relative to root, which
// holds all of them.
func splitFolders(ctx context.Context, st store.Store, file string, data *Data, split string) (root string, folders []string, err error) {
	have := slices.Sorted(maps.Keys(data.Splits))
	if split == "" && len(have) == 1 {
		split = have[0]
	}
	if len(have) == 0 {
		return "", nil, fmt.Errorf("%s names no folder of images: expected a line such as train: images/train", file)
	}
	paths := data.Splits[split]
	if len(paths) == 0 {
		if split == "" {
			return "", nil, fmt.Errorf("it has the splits %s; give one of them: ?split=%s", strings.Join(have, ", "), have[0])
		}
		return "", nil, fmt.Errorf("%s has no split %q, it has %s", file, split, strings.Join(have, ", "))
	}
	dir := place.Dir(file)
	bases := []string{dir}
	if place.IsAbs(data.Root) {
		bases = []string{data.Root, dir}
	} else if data.Root != "" {
		bases = []string{place.Join(dir, data.Root), dir}
	}
	var found []string
	for _, p := range paths {
		full := ""
		for _, base := range bases {
			// Some files have ../train/images, relative to the folder of the file.
			for _, try := range []string{p, strings.TrimPrefix(p, "../")} {
				if !place.IsAbs(try) {
					try = place.Join(base, try)
				}
				_, found, err := filelist.Lookup(ctx, place.At(st, try), "")
				if err != nil {
					return "", nil, err
				}
				if found && full == "" {
					full = try
				}
			}
		}
		if full == "" {
			return "", nil, fmt.Errorf("%s: the split %s has the folder %s, which does not exist in %s", file, split, p, strings.Join(bases, " or "))
		}
		if full, err = place.Abs(full); err != nil {
			return "", nil, err
		}
		found = append(found, full)
	}
	// The names contain the folder images, since the folder labels is next to it.
	if root, err = place.Abs(bases[0]); err != nil {
		return "", nil, err
	}
	for _, full := range found {
		for rel, err := place.Rel(root, full); err != nil || rel == ".." || strings.HasPrefix(rel, "../"); rel, err = place.Rel(root, full) {
			root = place.Dir(root)
		}
	}
	for _, full := range found {
		rel, err := place.Rel(root, full)
		if err != nil {
			return "", nil, err
		}
		if rel = filepath.ToSlash(rel); rel == "." {
			rel = ""
		}
		folders = append(folders, rel)
	}
	return root, folders, nil
}
