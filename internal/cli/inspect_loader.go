package cli

import (
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
)

// does describes for each kind of field the features of a loader.
var does = map[driver.Kind]string{
	driver.KindImage:      "decoded, with all transforms of images; buckets by proportions",
	driver.KindMask:       "decoded, follows its image; class numbers are never mixed",
	driver.KindMasks:      "a mask for each box, follow their image",
	driver.KindBoxes:      "follow their image, in any format; padded, or with offsets",
	driver.KindKeyPoints:  "follow their image; padded, or with offsets",
	driver.KindAudio:      "decoded, resampled, cropped, spectrograms; padded",
	driver.KindFrames:     "decoded, the transforms of images, drawn once for a clip",
	driver.KindVolume:     "random parts, flips, quarter turns, intensities",
	driver.KindTokens:     "sequences of any length with positions and masks, or padded; buckets by length",
	driver.KindText:       "bytes, strings when asked; buckets by length",
	driver.KindJSON:       "bytes, strings when asked",
	driver.KindBytes:      "as they are, with offsets",
	driver.KindRagged:     "with offsets, or padded; buckets by length",
	driver.KindMultiLabel: "with offsets, or padded",
	driver.KindArray:      "as it is, normalised",
	driver.KindLabel:      "a number, one-hot; stratified splits, filters",
	driver.KindInt:        "a number; filters",
	driver.KindFloat:      "a number; filters",
}

// doesWith describes a loader's treatment of a field.
func doesWith(f *driver.Field) string {
	if f.Kind == driver.KindVolume && f.Mask {
		return "moves with the volume next to it; class numbers are never mixed"
	}
	return does[f.Kind]
}

// orders says in which orders a loader reads.
func orders(sequential bool) string {
	if sequential {
		return "in order; stoker pack makes it one that is read at random"
	}
	return "shuffled as a whole or in windows, split, filtered, resumed at any batch"
}

// loaderPage describes a loader's treatment of the data, and shows the line of code.
func loaderPage(p *page, url string, info *driver.Info, hint string) {
	p.section("In a loader", "")
	p.f("  records: %s\n", orders(info.Sequential))
	for i := range info.Fields {
		p.f("  %s: %s\n", clean(info.Fields[i].Name), doesWith(&info.Fields[i]))
	}
	p.section("Load it", hint)
	p.f("  %s\n", loaderText(url, info))
}

// loaderJSON is the same for programs.
func loaderJSON(url string, info *driver.Info) map[string]any {
	fields := map[string]string{}
	for i := range info.Fields {
		fields[info.Fields[i].Name] = doesWith(&info.Fields[i])
	}
	return map[string]any{"code": loaderText(url, info), "records": orders(info.Sequential), "fields": fields}
}

// packInfo returns the information on a pack's fields in the form of other sources.
func packInfo(m *pack.Manifest) *driver.Info {
	info := &driver.Info{Len: m.Records}
	for i := range m.Fields {
		f := &m.Fields[i]
		field := driver.Field{Name: f.Name, Kind: f.Kind, DType: f.DType, Shape: f.Shape, Mask: f.Mask, Stats: &f.Stats}
		if im := f.Stats.Images; im != nil && im.MinWidth == im.MaxWidth && im.MinHeight == im.MaxHeight {
			field.Width, field.Height = im.MinWidth, im.MinHeight
		}
		info.Fields = append(info.Fields, field)
	}
	return info
}
