package volumesource

import (
	"context"
	"errors"
	"slices"

	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/internal/source/pairsource"
	"github.com/stokerdata/stoker/internal/source/selection"
	"github.com/stokerdata/stoker/source/driver"
)

// FormatNIfTI is NIfTI files.
var FormatNIfTI = &format.Format{
	Name:      "nifti",
	Reads:     "NIfTI volumes, .nii and .nii.gz, whole or in patches",
	Checksums: "gzip of each file, at each read",
	Example:   "scans/?patch=64x96x96",
	Guide:     "reference/volumes.md",
	Params:    []format.Param{format.PatchParam, format.StrideParam},
	Match:     format.MatchMedia(selection.NIfTI, IsName),
	Open:      openWith("nifti"),
}

// FormatDICOM is DICOM files.
var FormatDICOM = &format.Format{
	Name:    "dicom",
	Reads:   "DICOM series: folders of slices, sorted by position, and files of several frames",
	Example: "ct/",
	Guide:   "reference/volumes.md",
	Params:  []format.Param{format.PatchParam, format.StrideParam},
	Match: format.MatchMedia(selection.DICOM, func(name string) bool {
		is, _ := IsDICOMName(name)
		return is
	}),
	Open: openWith("dicom"),
}

// FormatVolumes is all kinds of volumes. The URL must name this format, since .npy and TIFF
// files can hold other data.
var FormatVolumes = &format.Format{
	Name:      "volumes",
	Reads:     "volumes of any kind, also with their labels: .npy files of three axes, TIFF files of several pages, NIfTI, DICOM",
	Checksums: "those of NIfTI and TIFF files",
	Example:   "volumes:data/?image=images/*.npy&label=labels/*.npy",
	Guide:     "reference/volumes.md",
	Params:    []format.Param{format.PatchParam, format.StrideParam, format.FileParam},
	Patterns:  true,
	Open:      openWith("volumes"),
}

// FormatPairs is pairsource.Format, which opens pairs of volumes as FormatVolumes.
var FormatPairs = func() *format.Format {
	f := *pairsource.Format
	f.Params = FormatVolumes.Params
	f.Open = func(ctx context.Context, r *format.Request) (driver.Source, error) {
		fields, err := pairsource.Fields(r)
		switch {
		case err != nil:
		case slices.ContainsFunc(fields, isVolume):
			return FormatVolumes.Open(ctx, r)
		case r.Has("patch") || r.Has("stride"):
			err = errors.New("only volumes are cut into patches: for volumes in TIFF files write volumes: before the folder")
		default:
			return pairsource.Format.Open(ctx, r)
		}
		return nil, r.Fail(err)
	}
	return &f
}()

// isVolume reports whether the files of a field are volumes.
func isVolume(f pairsource.Field) bool {
	is, _ := IsDICOMName(f.Pattern)
	return is || IsName(f.Pattern) || format.Extensions(".npy")(f.Pattern)
}

func openWith(name string) func(context.Context, *format.Request) (driver.Source, error) {
	return func(ctx context.Context, r *format.Request) (driver.Source, error) {
		to := &Options{Format: name, Threads: r.Threads, Names: r.Names}
		var err error
		if to.Fields, err = pairsource.Fields(r); err == nil {
			to.Patch, to.Stride, err = r.Patches()
		}
		if err != nil {
			return nil, r.Fail(err)
		}
		return Open(ctx, r.URL, r.Store, to)
	}
}
