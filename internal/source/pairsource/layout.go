package pairsource

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// others has the names of folders next to an image folder, with the name of the field for each.
var others = []struct{ folder, field string }{
	{"masks", "mask"}, {"mask", "mask"}, {"segmentations", "mask"}, {"segmentation", "mask"}, {"labels", "label"}, {"label", "label"}, {"labelstr", "label"},
	{"annotations", "annotation"}, {"annotation", "annotation"}, {"anns", "annotation"}, {"ann", "annotation"},
}

// layoutNames is the number of files of each folder that are compared.
const layoutNames = 1000

// Layout returns the fields of a folder with an image folder and folders with masks, labels or
// annotations for the same names. It returns nil for a folder with another layout, or with
// annotations in another format (VOC, YOLO).
func Layout(ctx context.Context, st store.Store) []Field {
	folders, err := filelist.Folders(ctx, st, "")
	images := filelist.FindFolder(folders, append(filelist.ImageFolders, "imagestr")...)
	if err != nil || images == "" {
		return nil
	}
	var of *files
	var fields []Field
	for _, o := range others {
		folder := filelist.FindFolder(folders, o.folder)
		if folder == "" {
			continue
		}
		if of == nil {
			of = look(ctx, st, images)
		}
		with := look(ctx, st, folder)
		if !isPicture(of.ext) && !isVolume(of.ext) || !isPicture(with.ext) && !isVolume(with.ext) && with.ext != ".json" || isVolume(of.ext) != isVolume(with.ext) {
			continue
		}
		from, to, ok := ends(of, with)
		if !ok {
			continue
		}
		if isPicture(with.ext) {
			o.field = "mask"
		}
		if slices.ContainsFunc(fields, func(f Field) bool { return f.Name == o.field }) {
			continue
		}
		if fields == nil {
			fields = []Field{{Name: "image", Pattern: of.pattern(from)}}
		}
		fields = append(fields, Field{Name: o.field, Pattern: with.pattern(to)})
	}
	return fields
}

// NoFields returns the error of a folder that is opened without fields. It suggests the fields
// of Layout.
func NoFields(ctx context.Context, st store.Store) error {
	dir, fields := st.Path(""), Layout(ctx, st)
	if fields == nil {
		return errors.New("it has no fields; write them after the folder, such as 'pairs:data/?image=images/*.jpg&mask=masks/*.png'")
	}
	var folders []string
	for _, f := range fields {
		first, _, _ := strings.Cut(f.Pattern, "/")
		folders = append(folders, first+"/")
	}
	alone := units.Shell("folder:"+dir) + " if its folders are classes"
	if isVolume(extOf(fields[0].Pattern)) {
		alone = units.Shell("nifti:"+dir) + " if all files are scans"
	}
	return fmt.Errorf("%s have files of the same names: open them as %s, or as %s", strings.Join(folders, " and "), units.Shell(URL(dir, fields)), alone)
}

// files has the first files of a folder.
type files struct {
	dir    string
	ext    string // extension of most files, including both parts of .nii.gz
	mixed  bool   // some files have other extensions
	nested bool
	stems  []string
}

// look lists the first files of a folder. Its stems are those of the files with the most common
// extension. All picture extensions count as the same one.
func look(ctx context.Context, st store.Store, dir string) *files {
	f := &files{dir: dir}
	var names []string
	count := map[string]int{}
	enough := errors.New("enough")
	_ = st.List(ctx, dir, &store.ListOptions{Names: true, Threads: 1, Bad: filelist.LeaveOut}, func(e store.Entry) error {
		if e.Dir {
			return nil
		}
		names = append(names, strings.TrimPrefix(e.Name, dir+"/"))
		ext := extOf(e.Name)
		if count[ext]++; count[ext] > count[f.ext] {
			f.ext = ext
		}
		if len(names) == layoutNames {
			return enough
		}
		return nil
	})
	for _, name := range names {
		if ext := extOf(name); ext == f.ext || isPicture(ext) && isPicture(f.ext) {
			f.mixed = f.mixed || ext != f.ext
			f.nested = f.nested || strings.Contains(name, "/")
			f.stems = append(f.stems, strings.TrimSuffix(name, ext))
		}
	}
	return f
}

// extOf returns the extension of a name without changing case.
func extOf(name string) string {
	ext := path.Ext(name)
	if strings.EqualFold(ext, ".gz") {
		ext = path.Ext(strings.TrimSuffix(name, ext)) + ext
	}
	return ext
}

func isPicture(ext string) bool { return slices.Contains(driver.ImageExtensions, strings.ToLower(ext)) }

func isVolume(ext string) bool {
	return strings.EqualFold(ext, ".nii") || strings.EqualFold(ext, ".nii.gz")
}

// pattern returns the pattern of the files. The suffix end of their stems is not part of the
// record's name.
func (f *files) pattern(end string) string {
	dir := f.dir
	if f.nested {
		dir += "/**"
	}
	if f.mixed && end == "" {
		return dir + "/*"
	}
	return dir + "/*" + end + f.ext
}

// ends returns the suffixes of the stems of two folders, for example _mask, or _0000 for the
// images of nnU-Net. Without the suffixes, most stems of the folders are equal.
func ends(a, b *files) (ofA, ofB string, ok bool) {
	if len(a.stems) == 0 || len(b.stems) == 0 {
		return "", "", false
	}
	tries := [][2]string{{"", ""}}
	for _, s := range a.stems {
		for _, pair := range [][2]string{{s, b.stems[0]}, {b.stems[0], s}} {
			if end, ok := strings.CutPrefix(pair[0], pair[1]); ok && end != "" && strings.ContainsAny(end[:1], "_-.") {
				if pair[0] == s {
					tries = append(tries, [2]string{end, ""})
				} else {
					tries = append(tries, [2]string{"", end})
				}
			}
		}
		if len(tries) > 4 {
			break
		}
	}
	for _, t := range tries {
		in := map[string]bool{}
		for _, s := range a.stems {
			if stem, ok := strings.CutSuffix(s, t[0]); ok {
				in[stem] = true
			}
		}
		both, n := 0, 0
		for _, s := range b.stems {
			if stem, ok := strings.CutSuffix(s, t[1]); ok {
				n++
				if in[stem] {
					both++
				}
			}
		}
		if both > 0 && 2*both >= min(len(in), n) {
			return t[0], t[1], true
		}
	}
	return "", "", false
}
