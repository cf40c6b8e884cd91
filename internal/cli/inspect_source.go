package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"charm.land/lipgloss/v2"

	"github.com/stokerdata/stoker/internal/cache"
	"github.com/stokerdata/stoker/internal/kind"
	"github.com/stokerdata/stoker/internal/source/videosource"
	"github.com/stokerdata/stoker/internal/source/wrap/cachedsource"
	"github.com/stokerdata/stoker/internal/source/wrap/clips"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/view"
)

// inspectSource shows the contents of a source that is not a pack, as far as they are known without reading its
// records.
func (app *App) inspectSource(url string, asJSON bool) error {
	src, err := app.openSource(url, 0, 0)
	url = stores.Public(url)
	if err != nil {
		return err
	}
	defer src.Close()
	info := src.Info()
	var bytes int64
	for i := range info.Objects {
		bytes += src.Object(i).Entry.Size
	}
	seen, isView := driver.As[view.Viewer](src)
	if asJSON {
		return app.sourceJSON(url, src, info, bytes, seen)
	}
	p := new(page)
	p.f("%s\n", headStyle.Render(clean(url)))
	p.f("  %s, %s", clean(info.Format), units.Records(info.Len))
	if info.Objects > 0 {
		p.f(" in %s of %s", units.Plural(int(info.Objects), "file"), units.Bytes(bytes))
	}
	if info.Sequential {
		p.f(", read in order only\n")
	} else {
		p.f(", read at random\n")
	}
	p.f("  fingerprint %s\n", info.Fingerprint)
	if n := cachedOf(src); n > 0 {
		p.f("  %s of %s records are cached (stoker cache ls)\n", units.Int(n), units.Int(info.Len))
	}
	p.section("Fields", "")
	t := newTable("name", "kind", "type", "")
	for i := range info.Fields {
		f := &info.Fields[i]
		t.Row(clean(f.Name), string(f.Kind), fieldType(&pack.Field{Kind: f.Kind, DType: f.DType, Shape: f.Shape}), sourceFieldText(f))
	}
	p.f("%s\n", t)
	for i := range info.Fields {
		f := &info.Fields[i]
		columnsText(p, f.Name, f.Columns)
		if f.Classes != nil {
			p.f("  %s: %s\n", clean(f.Name), classNames(f.Classes))
		}
	}
	for i := range info.Fields {
		if info.Fields[i].Kind == driver.KindAudio {
			h, err := kind.Listen(app.Context, src, i)
			switch {
			case err == nil && h.Count > 0:
				p.f("  %s: %s\n", clean(info.Fields[i].Name), heardText(&h))
			case err == nil && h.Err != nil:
				p.f("  %s: none of the recordings that were looked at can be read: %s\n", clean(info.Fields[i].Name), clean(h.Err.Error()))
			}
		}
	}
	videos, ofVideos := driver.As[videosource.Videos](src)
	if ofVideos {
		p.f("  %s\n", videosource.Describe(videos.Videos()))
	}
	if c, ok := driver.As[clips.Describer](src); ok {
		for _, line := range c.DescribeClips() {
			p.f("  %s\n", clean(line))
		}
	}
	if isView {
		viewText(p, seen)
	}
	left(p, src)
	badFiles(p, info)
	notTaken(p, driver.GroupSkipped(src))
	hint := "stoker pack makes decoding faster, and checks each value once"
	switch {
	case ofVideos && info.Format == "video" && slices.ContainsFunc(info.Fields, func(f driver.Field) bool { return f.Kind == driver.KindFrames }):
		hint = "?as=images&fps=2 makes single frames records, which stoker pack takes"
	case slices.ContainsFunc(info.Fields, func(f driver.Field) bool { return f.Kind == driver.KindFrames }):
		hint = "videos stay in their files"
	}
	loaderPage(p, url, info, hint)
	_, err = lipgloss.Fprint(app.Stdout, p.String())
	return err
}

// cachedOf returns the number of a source's records in the user's cache.
func cachedOf(src driver.Source) int64 {
	d, err := cache.At("", 0)
	if err != nil {
		return 0
	}
	return cachedsource.Cached(src, d)
}

func (app *App) sourceJSON(url string, src driver.Source, info *driver.Info, bytes int64, seen view.Viewer) error {
	fields := []map[string]any{}
	for i := range info.Fields {
		f := &info.Fields[i]
		out := map[string]any{"name": f.Name, "kind": f.Kind}
		if f.DType != "" {
			out["dtype"] = f.DType
		}
		if f.Format != "" {
			out["format"] = f.Format
		}
		if f.Boxes != "" {
			out["boxes"] = f.Boxes
		}
		if f.Shape != nil {
			out["shape"] = append([]int{}, f.Shape...)
		}
		if f.Classes != nil {
			out["classes"] = f.Classes
		}
		if f.Columns != nil {
			out["columns"] = f.Columns
		}
		if f.MaxBytes > 0 {
			out["max_bytes"] = f.MaxBytes
		}
		if f.Kind == driver.KindAudio {
			if h, err := kind.Listen(app.Context, src, i); err == nil && h.Count > 0 {
				out["looked_at"] = map[string]any{
					"recordings": h.Count, "formats": h.Formats, "rate": h.Rate, "channels": h.Channels,
					"shortest_seconds": h.Shortest, "longest_seconds": h.Longest,
				}
			}
		}
		fields = append(fields, out)
	}
	e := json.NewEncoder(app.Stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	out := map[string]any{
		"source": url, "format": info.Format, "records": info.Len, "bytes": bytes, "files": info.Objects, "random_access": !info.Sequential,
		"fingerprint": info.Fingerprint, "fields": fields, "loader": loaderJSON(url, info),
	}
	if n := cachedOf(src); n > 0 {
		out["cached"] = n
	}
	if seen != nil {
		out["view"] = map[string]any{"spec": seen.Spec(), "of": seen.Of(), "matched": seen.Matched(), "parts": seen.Parts()}
	}
	if info.BadFiles > 0 {
		out["bad_files"], out["bad"] = info.BadFiles, info.BadTexts()
	}
	if groups := driver.GroupSkipped(src); groups != nil {
		out["skipped"] = groups
	}
	if l, ok := driver.As[driver.Leaver](src); ok && len(l.Left()) > 0 {
		var more []map[string]string
		for _, s := range l.Left() {
			more = append(more, map[string]string{"path": s.Path, "reason": s.Reason})
		}
		out["no_fields"] = more
	}
	return e.Encode(out)
}

// sourceFieldText describes the values of a field in a few words, as far as known.
func sourceFieldText(f *driver.Field) string {
	var parts []string
	if f.Classes != nil {
		parts = append(parts, units.Plural(len(f.Classes), "name"))
	}
	if f.Format != "" {
		parts = append(parts, string(f.Format))
	}
	if f.Boxes != "" {
		parts = append(parts, "of "+clean(f.Boxes))
	}
	if f.Kind == driver.KindFrames {
		parts = append(parts, units.Plural(f.Shape[0], "frame"))
	}
	if f.Width > 0 {
		parts = append(parts, fmt.Sprintf("%d x %d", f.Width, f.Height))
	}
	if f.MaxBytes > 0 {
		parts = append(parts, "up to "+units.Bytes(f.MaxBytes))
	}
	return strings.Join(parts, ", ")
}

// classNames returns the first names of classes, and the number of the others.
func classNames(all []string) string {
	var out []string
	for _, name := range all[:min(len(all), shownClasses)] {
		if name = clean(name); name == "" {
			name = `""`
		}
		out = append(out, name)
	}
	text := strings.Join(out, ", ")
	if more := len(all) - len(out); more > 0 {
		text += fmt.Sprintf(" and %s more", units.Int(more))
	}
	return text
}

// heardText describes some recordings.
func heardText(h *kind.Heard) string {
	rate, channels := "different rates", "different numbers of channels"
	if h.Rate > 0 {
		rate = units.Int(int64(h.Rate)) + " Hz"
	}
	if h.Channels > 0 {
		channels = units.Plural(h.Channels, "channel")
	}
	return fmt.Sprintf("%s, %s, %s, %.3g to %.3g s (%s looked at)", strings.Join(h.Formats, " and "), rate, channels,
		h.Shortest, h.Longest, units.Plural(h.Count, "recording"))
}

// mostInBatch is the largest size in bytes of a batch that inspect suggests.
const mostInBatch = 256 << 20

// loaderText returns a line of Python that loads the data. Images get transforms that make them one size.
func loaderText(url string, info *driver.Info) string {
	var fields []string
	boxes := slices.ContainsFunc(info.Fields, func(f driver.Field) bool { return f.Kind == driver.KindBoxes })
	for i := range info.Fields {
		f := &info.Fields[i]
		if (f.Kind == driver.KindImage || f.Kind == driver.KindMask || f.Kind == driver.KindFrames) && f.Width == 0 {
			op := "RandomResizedCrop(224)"
			if boxes {
				op = "LetterBox(640)"
			}
			fields = append(fields, fmt.Sprintf("%q: [stoker.transforms.%s]", clean(f.Name), op))
		}
		if f.Kind == driver.KindVolume && len(f.Shape) == 0 {
			fields = append(fields, fmt.Sprintf("%q: [stoker.volume.RandSpatialCrop(64), stoker.volume.ResizeWithPadOrCrop(64)]", clean(f.Name)))
		}
		if f.Kind == driver.KindAudio {
			fields = append(fields, fmt.Sprintf("%q: [stoker.audio.Mono(), stoker.audio.Resample(16000), stoker.audio.PadOrTrim(seconds=1)]", clean(f.Name)))
		}
	}
	batch, row, sequence := int64(256), int64(1), int64(0)
	for i := range info.Fields {
		f := &info.Fields[i]
		switch f.Kind {
		case driver.KindTokens:
			sequence = 1024
			// The last token of a sequence needs the next one as its target.
			for f.Stats != nil && f.Stats.Rows != nil && sequence > 1 && sequence >= f.Stats.Rows.Total {
				sequence /= 2
			}
		case driver.KindFrames:
			batch = 16
		case driver.KindImage:
			row += 3 * int64(f.Width) * int64(f.Height)
		case driver.KindArray, driver.KindVolume:
			n, _ := driver.ArrayBytes(f.DType, f.Shape) // none of what has any shape
			row += n
		}
	}
	for batch > 1 && batch*row > mostInBatch {
		batch /= 2
	}
	out := fmt.Sprintf("stoker.open(%q)", clean(url))
	if sequence > 0 && info.Len < batch { // fewer documents than rows of a batch
		out += fmt.Sprintf(".sequences(%d)", sequence)
	}
	out += fmt.Sprintf(".loader(batch_size=%d", batch)
	if !info.Sequential {
		out += ", shuffle=True"
	}
	if len(fields) > 0 {
		out += ", transforms={" + strings.Join(fields, ", ") + "}"
	}
	return out + ")"
}

// isSource reports whether the contents of url are shown as a source and not as a pack. A folder that is neither, or a
// missing one, is treated as a pack, whose reader reports the error.
func (app *App) isSource(url string) (bool, error) {
	if source.HasView(url, nil) {
		return true, nil
	}
	format, path, err := source.Format(app.Context, url, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || format == "pack" {
		return false, err
	}
	if format != source.FormatFolder {
		return true, nil
	}
	// A pack that is not finished, or has lost its manifest, has shards.
	shards, _ := filepath.Glob(filepath.Join(path, "*.arrow"))
	return len(shards) == 0, nil
}
