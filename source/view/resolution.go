package view

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/source/driver"
)

// A pack may have images and masks at several resolutions: the field image is stored as image@128,
// image@192 and image@256. A reader gets one of them, under the original name. The records are the
// same at all resolutions, and so are their fingerprint and the states of loaders.

// cutResolution splits the name of a field at a resolution: image@192 into image and 192.
func cutResolution(f *driver.Field) (name, resolution string, pixels int, ok bool) {
	name, resolution, ok = strings.Cut(f.Name, "@")
	if !ok || name == "" || f.Kind != driver.KindImage && f.Kind != driver.KindMask {
		return "", "", 0, false
	}
	w, h, both := strings.Cut(resolution, "x")
	a, err := strconv.Atoi(w)
	b := a
	if both && err == nil {
		b, err = strconv.Atoi(h)
	}
	return name, resolution, a * b, err == nil && a > 0 && b > 0 && a <= 1<<16 && b <= 1<<16
}

// resolution removes the requested resolution from the views and returns it.
func resolution(specs []Spec) (string, error) {
	want := ""
	for i := range specs {
		r := specs[i].Resolution
		if specs[i].Resolution = ""; r == "" {
			continue
		}
		if want != "" && want != r {
			return "", fmt.Errorf("resolution is %s and %s: give one", want, r)
		}
		want = r
	}
	return want, nil
}

// AtResolution returns src with its images at the resolution that specs request, or at the largest
// one. It removes the resolution from specs. Like Open it takes ownership of src, unless it fails.
func AtResolution(ctx context.Context, src driver.Source, specs []Spec) (driver.Source, error) {
	want, err := resolution(specs)
	if err != nil {
		return nil, err
	}
	info := src.Info()
	best := map[string]int{} // by name, pixels
	var order, there []string
	for i := range info.Fields {
		if name, r, pixels, ok := cutResolution(&info.Fields[i]); ok {
			best[name] = max(best[name], pixels)
			if !slices.Contains(there, r) {
				there = append(there, r)
			}
		}
	}
	for name := range best {
		if slices.ContainsFunc(info.Fields, func(f driver.Field) bool { return f.Name == name }) {
			delete(best, name)
		}
	}
	switch {
	case len(best) == 0 && want == "":
		return src, nil
	case len(best) == 0:
		return nil, fmt.Errorf("resolution is %s, and %s has its images at one resolution only: stoker pack SRC OUT --resize 128,192,256 makes packs with several", want, info.URL)
	case want != "" && !slices.Contains(there, want):
		return nil, fmt.Errorf("resolution is %s: %s has its images at %s", want, info.URL, strings.Join(there, ", "))
	}
	rename := map[string]string{}
	for i := range info.Fields {
		f := &info.Fields[i]
		name, r, pixels, ok := cutResolution(f)
		if _, is := best[name]; ok && is {
			if want == "" && pixels != best[name] || want != "" && r != want {
				continue
			}
			rename[f.Name] = name
		}
		order = append(order, f.Name)
	}
	s, err := Open(ctx, src, &Spec{Select: order, Rename: rename}, nil)
	if err != nil {
		return nil, err
	}
	s.Info().Fingerprint = info.Fingerprint // no other code has the view yet, so it can be changed
	s.Info().URL = info.URL
	if want != "" {
		s.Info().URL += "#resolution=" + want
	}
	return s, nil
}
