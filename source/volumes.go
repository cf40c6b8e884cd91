package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/source/packsource"
	"github.com/stokerdata/stoker/internal/source/pairsource"
	"github.com/stokerdata/stoker/internal/source/selection"
	"github.com/stokerdata/stoker/internal/source/volumesource"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// volumeParams say how volumes are cut into patches.
var volumeParams = []string{"patch", "stride"}

// volumes are the formats of volumes: NIfTI files, DICOM series, and any form of them,
// which the URL has to name, since .npy and TIFF files are other things, too.
func volumes(media *selection.Census) []format {
	isDICOM := func(name string) bool {
		is, _ := volumesource.IsDICOMName(name)
		return is
	}
	return []format{
		{name: "nifti", match: mostly(media, selection.NIfTI, volumesource.IsName), params: volumeParams, open: openVolumes("nifti")},
		{name: "dicom", match: mostly(media, selection.DICOM, isDICOM), params: volumeParams, open: openVolumes("dicom")},
		{name: "volumes", patterns: true, params: volumeParams, pairs: true, open: openVolumes("volumes")},
	}
}

func openVolumes(name string) func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
	return func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
		to := &volumesource.Options{Format: name, Threads: opt.Threads, Names: opt.shards, Fields: opt.pairs}
		var err error
		if to.Patch, to.Stride, err = patchOf(opt); err != nil {
			return nil, err
		}
		return volumesource.Open(ctx, rawURL, st, to)
	}
}

// patchOf is the size of patches, and how far they are apart, that a URL says.
func patchOf(opt *Options) (patch, stride [3]int, err error) {
	for name, size := range map[string]*[3]int{"patch": &patch, "stride": &stride} {
		text, ok := opt.params[name]
		if !ok {
			continue
		}
		if *size, err = volumesource.ParseSize(text); err != nil {
			return patch, stride, fmt.Errorf("%s=%w", name, err)
		}
	}
	if patch == [3]int{} && stride != [3]int{} {
		err = errors.New("stride is how far patches are apart: say their size, too, with patch=64x64x64")
	}
	return patch, stride, err
}

// openPack opens a pack, whose volumes can be cut into patches.
func openPack(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
	patch, stride, err := patchOf(opt)
	if err != nil {
		return nil, err
	}
	return packsource.Open(ctx, rawURL, st, &packsource.Options{
		ReadOptions: pack.ReadOptions{VerifyChunks: opt.VerifyChunks, Listing: opt.looked}, Patch: patch, Stride: stride,
	})
}

// ofVolumes says whether the fields of pairs are volumes.
func ofVolumes(fields []pairsource.Field) bool {
	return slices.ContainsFunc(fields, func(f pairsource.Field) bool {
		is, _ := volumesource.IsDICOMName(f.Pattern)
		return volumesource.IsName(f.Pattern) || is || strings.HasSuffix(strings.ToLower(f.Pattern), ".npy")
	})
}
