package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/pairsource"
	"github.com/stokerdata/stoker/source/volumesource"
	"github.com/stokerdata/stoker/store"
)

// volumeParams say how volumes are cut into patches.
var volumeParams = []string{"patch", "stride"}

// volumes are the formats of volumes: NIfTI files, DICOM series, and any form of them,
// which the URL has to name, since .npy and TIFF files are other things, too.
func volumes() []format {
	nifti := func(ctx context.Context, st store.Store, isDir bool) bool {
		if !isDir {
			return volumesource.IsName(st.Path(""))
		}
		return allFiles(ctx, st, volumesource.IsName)
	}
	dicom := func(ctx context.Context, st store.Store, isDir bool) bool {
		if !isDir {
			is, _ := volumesource.IsDICOMName(st.Path(""))
			return is
		}
		sure := false
		return allFiles(ctx, st, func(name string) bool {
			is, mayBe := volumesource.IsDICOMName(name)
			sure = sure || is
			if mayBe && !sure { // whose name says nothing
				sure = volumesource.IsDICOMFile(ctx, st, name)
			}
			return mayBe
		}) && sure
	}
	return []format{
		{name: "nifti", match: nifti, params: volumeParams, open: openVolumes("nifti")},
		{name: "dicom", match: dicom, params: volumeParams, open: openVolumes("dicom")},
		{name: "volumes", patterns: true, params: volumeParams, pairs: true, open: openVolumes("volumes")},
	}
}

func openVolumes(name string) func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
	return func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
		to := &volumesource.Options{Format: name, Threads: opt.Threads, Names: opt.shards, Fields: opt.pairs}
		for name, size := range map[string]*[3]int{"patch": &to.Patch, "stride": &to.Stride} {
			text, ok := opt.params[name]
			if !ok {
				continue
			}
			var err error
			if *size, err = volumesource.ParseSize(text); err != nil {
				return nil, fmt.Errorf("%s=%w", name, err)
			}
		}
		if to.Patch == [3]int{} && to.Stride != [3]int{} {
			return nil, errors.New("stride is how far patches are apart: say their size, too, with patch=64x64x64")
		}
		return volumesource.Open(ctx, rawURL, st, to)
	}
}

// ofVolumes says whether the fields of pairs are volumes.
func ofVolumes(fields []pairsource.Field) bool {
	return slices.ContainsFunc(fields, func(f pairsource.Field) bool {
		is, _ := volumesource.IsDICOMName(f.Pattern)
		return volumesource.IsName(f.Pattern) || is || strings.HasSuffix(strings.ToLower(f.Pattern), ".npy")
	})
}
