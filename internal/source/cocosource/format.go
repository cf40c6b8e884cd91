package cocosource

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/source/boxes"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/internal/source/place"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Format is JSON files of COCO, and folders that have some where COCO and Roboflow put them.
var Format = &format.Format{
	Name:      "coco",
	Reads:     "COCO's JSON of instances, key points or captions, next to a folder of images",
	Checksums: "those of the image files, such as PNG",
	Example:   "annotations/instances_val2017.json?images=val2017&masks=instances",
	Guide:     "reference/detection.md",
	Params: []format.Param{
		{Name: "images", Type: format.Text, Default: "a folder near the JSON file", Help: "The folder of the images."},
		boxes.MasksParam,
		format.SplitParam,
	},
	Match: func(ctx context.Context, p *format.Probe) bool {
		if !p.Dir {
			return isNamed(p.Store.Path("")) || IsFile(ctx, p.Store, "")
		}
		files, err := jsonFiles(ctx, p.Store)
		return err == nil && len(files) > 0 && (isNamed(files[0]) || IsFile(ctx, p.Store, files[0]))
	},
	Open: func(ctx context.Context, r *format.Request) (driver.Source, error) {
		file, split := r.Store.Path(""), r.Text("split")
		var err error
		if r.Dir {
			file, err = splitFile(ctx, r.Store, split)
		} else if split != "" {
			err = errors.New("a split is of a folder, this is a file")
		}
		if err != nil {
			return nil, r.Fail(err)
		}
		images, err := imageFolder(ctx, r.Store, file, r.Text("images"))
		if err != nil {
			return nil, r.Fail(err)
		}
		dir, name := filepath.Split(file)
		return Open(ctx, r.URL, place.At(r.Store, dir), &Options{File: name, Images: place.At(r.Store, images), Masks: boxes.Masks(r.Text("masks"))})
	},
}

// isNamed reports whether a file has a name of COCO's. Such a file is COCO's even if it is damaged. Without its boxes,
// its images would be a folder of images.
func isNamed(name string) bool {
	base := path.Base(name)
	return base == roboflow || path.Ext(base) == ".json" && slices.ContainsFunc([]string{"instances_", "captions_", "person_keypoints_"}, func(prefix string) bool {
		return strings.HasPrefix(base, prefix)
	})
}

// jsonFiles returns the JSON files of a folder: Roboflow's, or those in the folder annotations.
func jsonFiles(ctx context.Context, st store.Store) ([]string, error) {
	if e, found, err := filelist.Lookup(ctx, st, roboflow); err != nil || found && !e.Dir {
		return []string{roboflow}, err
	}
	const dir = "annotations"
	if e, found, err := filelist.Lookup(ctx, st, dir); err != nil || !found || !e.Dir {
		return nil, err
	}
	var files []string
	err := st.List(ctx, dir, &store.ListOptions{Shallow: true, Names: true, Bad: filelist.LeaveOut}, func(e store.Entry) error {
		if !e.Dir && strings.HasSuffix(e.Name, ".json") && len(files) < format.MaxNames {
			files = append(files, e.Name)
		}
		return nil
	})
	return files, err
}

// splitFile returns the path of the JSON file of a split of a folder.
func splitFile(ctx context.Context, st store.Store, split string) (string, error) {
	files, err := jsonFiles(ctx, st)
	if err != nil {
		return "", err
	}
	var fit, instances []string
	for _, f := range files {
		base := strings.TrimSuffix(filepath.Base(f), ".json")
		if split == "" || base == split || strings.HasSuffix(base, "_"+split) {
			fit = append(fit, f)
			if strings.HasPrefix(base, "instances_") {
				instances = append(instances, f)
			}
		}
	}
	if len(instances) == 1 || len(fit) > 1 && len(instances) > 0 {
		fit = instances
	}
	switch {
	case len(fit) == 1:
		return st.Path(fit[0]), nil
	case len(fit) == 0 && split == "":
		return "", errors.New("it has no JSON file of COCO in annotations/")
	case len(fit) == 0:
		return "", fmt.Errorf("no file in annotations/ has the split %q: there are %s", split, strings.Join(files, ", "))
	}
	return "", fmt.Errorf("it has the files %s; give one of them, or a split: ?split=val2017", strings.Join(fit, ", "))
}

// imageFolder returns the folder of the images of a JSON file: the folder stated by the URL,
// relative to the folder of the file or the one above, or the likeliest one.
func imageFolder(ctx context.Context, st store.Store, file, stated string) (string, error) {
	dir := place.Dir(file)
	tries := folders(filepath.ToSlash(file))
	if stated != "" {
		tries = []string{stated, place.Join("..", stated)}
	}
	for _, t := range tries {
		full := t
		if !place.IsAbs(t) {
			full = place.Join(dir, t)
		}
		if e, found, err := filelist.Lookup(ctx, place.At(st, full), ""); err != nil || found && e.Dir {
			return full, err
		}
	}
	if stated == "" {
		stated = strings.Join(slices.Compact(tries), ", ")
	}
	return "", fmt.Errorf("there is no folder %s from %s on; give the folder of the images: ?images=FOLDER", stated, dir)
}

// roboflow is the name of the file that Roboflow writes next to the images.
const roboflow = "_annotations.coco.json"

// folders returns the folders that may hold the images of a JSON file, relative to its own
// folder, the likeliest first.
func folders(file string) []string {
	if path.Base(file) == roboflow {
		return []string{"."}
	}
	name := strings.TrimSuffix(path.Base(file), path.Ext(file))
	var out []string
	for _, prefix := range []string{"person_keypoints_", "instances_", "captions_", "image_info_", ""} {
		if split, ok := strings.CutPrefix(name, prefix); ok && split != "" {
			for _, dir := range []string{"../", "../images/", "", "images/"} {
				out = append(out, dir+split)
			}
		}
	}
	return append(out, "../images", "images", "..", ".")
}
