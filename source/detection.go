package source

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/source/boxes"
	"github.com/stokerdata/stoker/internal/source/cocosource"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/vocsource"
	"github.com/stokerdata/stoker/internal/source/yolosource"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// This file finds the parts of datasets of annotated images.

// isCOCO matches JSON files of COCO, and folders with such files where COCO and
// Roboflow put them.
func isCOCO(ctx context.Context, st store.Store, isDir bool) bool {
	if !isDir {
		return cocosource.IsFile(ctx, st, "")
	}
	files, err := cocoFiles(ctx, st)
	return err == nil && len(files) > 0 && cocosource.IsFile(ctx, st, files[0])
}

// cocoFiles are the JSON files of a folder: Roboflow's, or those of the folder
// annotations.
func cocoFiles(ctx context.Context, st store.Store) ([]string, error) {
	if isFileIn(ctx, st, cocosource.Roboflow) {
		return []string{cocosource.Roboflow}, nil
	}
	const dir = "annotations"
	if e, err := st.Stat(ctx, dir); err != nil || !e.Dir {
		return nil, nil
	}
	var files []string
	err := st.List(ctx, dir, &store.ListOptions{Shallow: true, Names: true, Bad: filelist.LeaveOut}, func(e store.Entry) error {
		if !e.Dir && strings.HasSuffix(e.Name, ".json") && len(files) < lookAt {
			files = append(files, e.Name)
		}
		return nil
	})
	return files, err
}

// splitOf is the split that the URL or the options name.
func splitOf(opt *Options) string {
	if s := opt.params["split"]; s != "" {
		return s
	}
	return opt.Split
}

func isFileIn(ctx context.Context, st store.Store, name string) bool {
	e, err := st.Stat(ctx, name)
	return err == nil && !e.Dir
}

// openCOCO finds the JSON file and the folder of its images.
func openCOCO(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
	fail := func(err error) (driver.Source, error) { return nil, fmt.Errorf("cannot open %s: %w", rawURL, err) }
	masks, err := boxes.ParseMasks(opt.params["masks"], boxes.Classes, boxes.Instances, boxes.Stack)
	if err != nil {
		return fail(err)
	}
	split := splitOf(opt)
	file := st.Path("")
	if e, err := st.Stat(ctx, ""); err != nil {
		return nil, err
	} else if e.Dir {
		if file, err = cocoFile(ctx, st, split); err != nil {
			return fail(err)
		}
	} else if split != "" {
		return fail(fmt.Errorf("a split is of a folder, this is a file"))
	}
	dir, name := filepath.Split(file)
	images, err := cocoImages(ctx, st, file, opt.params["images"])
	if err != nil {
		return fail(err)
	}
	return cocosource.Open(ctx, rawURL, beside(st, dir), &cocosource.Options{File: name, Images: beside(st, images), Masks: masks})
}

// cocoFile is the JSON file of a split of a folder.
func cocoFile(ctx context.Context, st store.Store, split string) (string, error) {
	files, err := cocoFiles(ctx, st)
	if err != nil {
		return "", err
	}
	var fit, boxes []string
	for _, f := range files {
		base := strings.TrimSuffix(filepath.Base(f), ".json")
		if split == "" || base == split || strings.HasSuffix(base, "_"+split) {
			fit = append(fit, f)
			if strings.HasPrefix(base, "instances_") {
				boxes = append(boxes, f)
			}
		}
	}
	if len(boxes) == 1 || len(fit) > 1 && len(boxes) > 0 {
		fit = boxes
	}
	switch {
	case len(fit) == 1:
		return st.Path(fit[0]), nil
	case len(fit) == 0 && split == "":
		return "", fmt.Errorf("it has no JSON file of COCO in annotations/")
	case len(fit) == 0:
		return "", fmt.Errorf("no file of annotations/ is of the split %q; there are %s", split, strings.Join(files, ", "))
	}
	return "", fmt.Errorf("it has the files %s; give one of them, or say which part is wanted: ?split=val2017", strings.Join(fit, ", "))
}

// cocoImages is the folder of the images of a JSON file: that which is said, from
// the folder of the file or the one around it on, or the likeliest one.
func cocoImages(ctx context.Context, st store.Store, file, said string) (string, error) {
	dir := folderOf(file)
	tries := cocosource.Folders(filepath.ToSlash(file))
	if said != "" {
		tries = []string{said, join("..", said)}
	}
	for _, t := range tries {
		full := t
		if !isAbsolute(t) {
			full = join(dir, t)
		}
		if e, err := beside(st, full).Stat(ctx, ""); err == nil && e.Dir {
			return full, nil
		}
	}
	if said == "" {
		said = strings.Join(slices.Compact(tries), ", ")
	}
	return "", fmt.Errorf("there is no folder %s from %s on; say where the images lie: ?images=FOLDER", said, dir)
}

func isVOC(ctx context.Context, st store.Store, isDir bool) bool {
	return isDir && vocsource.Is(ctx, st)
}

func openVOC(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
	masks, err := boxes.ParseMasks(opt.params["masks"], boxes.Classes, boxes.Instances, boxes.Stack)
	if err == nil {
		var s driver.Source
		if s, err = vocsource.Open(ctx, rawURL, st, &vocsource.Options{Split: splitOf(opt), Masks: masks}); err == nil {
			return s, nil
		}
	}
	return nil, fmt.Errorf("cannot open %s: %w", rawURL, err)
}

// maxYAML is the largest data.yaml.
const maxYAML = 4 << 20

// yamlOf is the data.yaml that a store is or has.
func yamlOf(ctx context.Context, st store.Store, isDir bool) (name string, data *yolosource.Data, err error) {
	names := []string{""}
	if isDir {
		names = []string{"data.yaml", "data.yml", "dataset.yaml"}
	}
	for _, name := range names {
		ext := strings.ToLower(filepath.Ext(st.Path(name)))
		e, err := st.Stat(ctx, name)
		if err != nil || e.Dir || ext != ".yaml" && ext != ".yml" {
			continue
		}
		b, err := store.ReadEntry(ctx, st, e, maxYAML)
		if err != nil {
			return "", nil, err
		}
		data, err := yolosource.ParseData(string(b))
		if err != nil {
			return "", nil, fmt.Errorf("%s, %w", st.Path(name), err)
		}
		return st.Path(name), data, nil
	}
	return "", nil, nil
}

// isYOLO matches data.yaml, folders with one, and folders with images and labels.
func isYOLO(ctx context.Context, st store.Store, isDir bool) bool {
	_, data, err := yamlOf(ctx, st, isDir)
	if err != nil || data != nil {
		return err == nil && len(data.Splits) > 0
	}
	return isDir && yolosource.Folders(ctx, st) != ""
}

func isFolderIn(ctx context.Context, st store.Store, name string) bool {
	e, err := st.Stat(ctx, name)
	return err == nil && e.Dir
}

// openYOLO finds the images of a split.
func openYOLO(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
	fail := func(err error) (driver.Source, error) { return nil, fmt.Errorf("cannot open %s: %w", rawURL, err) }
	masks, err := boxes.ParseMasks(opt.params["masks"], boxes.Classes, boxes.Instances, boxes.Stack)
	if err != nil {
		return fail(err)
	}
	e, err := st.Stat(ctx, "")
	if err != nil {
		return nil, err
	}
	file, data, err := yamlOf(ctx, st, e.Dir)
	if err != nil {
		return fail(err)
	}
	to := &yolosource.Options{Data: data, Masks: masks}
	root, split := st.Path(""), splitOf(opt)
	if data == nil {
		if !e.Dir {
			return fail(fmt.Errorf("it is no data.yaml"))
		}
		folder := yolosource.Folders(ctx, st)
		if folder == "" {
			folder = "images"
		}
		if split != "" {
			folder += "/" + split
		}
		if store.CheckName(folder) != nil || !isFolderIn(ctx, st, folder) {
			return fail(fmt.Errorf("it has no folder %s", folder))
		}
		to.Folders = []string{folder}
	} else if root, to.Folders, err = yoloFolders(ctx, st, file, data, split); err != nil {
		return fail(err)
	}
	return yolosource.Open(ctx, rawURL, beside(st, root), to)
}

// yoloFolders are the folders of a split, below the folder that all of them lie in.
func yoloFolders(ctx context.Context, st store.Store, file string, data *yolosource.Data, split string) (root string, folders []string, err error) {
	have := slices.Sorted(maps.Keys(data.Splits))
	if split == "" && len(have) == 1 {
		split = have[0]
	}
	paths := data.Splits[split]
	if len(paths) == 0 {
		if split == "" {
			return "", nil, fmt.Errorf("it has the splits %s; say which one: ?split=%s", strings.Join(have, ", "), append(have, "train")[0])
		}
		return "", nil, fmt.Errorf("%s has no split %q, it has %s", file, split, strings.Join(have, ", "))
	}
	dir := folderOf(file)
	bases := []string{dir}
	if isAbsolute(data.Root) {
		bases = []string{data.Root, dir}
	} else if data.Root != "" {
		bases = []string{join(dir, data.Root), dir}
	}
	var found []string
	for _, p := range paths {
		full := ""
		for _, base := range bases {
			// Some write ../train/images and mean the folder of the file.
			for _, try := range []string{p, strings.TrimPrefix(p, "../")} {
				if !isAbsolute(try) {
					try = join(base, try)
				}
				if _, err := beside(st, try).Stat(ctx, ""); err == nil && full == "" {
					full = try
				}
			}
		}
		if full == "" {
			return "", nil, fmt.Errorf("%s says that %s lies in %s, and there is no such folder from %s on", file, split, p, strings.Join(bases, " or "))
		}
		if full, err = absolute(full); err != nil {
			return "", nil, err
		}
		found = append(found, full)
	}
	// The folder images is a part of names, since that of the labels lies beside it.
	if root, err = absolute(bases[0]); err != nil {
		return "", nil, err
	}
	for _, full := range found {
		for rel, err := relative(root, full); err != nil || rel == ".." || strings.HasPrefix(rel, "../"); rel, err = relative(root, full) {
			root = folderOf(root)
		}
	}
	for _, full := range found {
		rel, err := relative(root, full)
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
