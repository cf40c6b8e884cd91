package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/stokerdata/stoker/internal/augment"
	"github.com/stokerdata/stoker/internal/bench"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
)

// augmentFlags are the flags of stoker pack that have records go through transforms
// before they are packed.
type augmentFlags struct {
	list    string
	outputs string // JSON
	n       int
	first   int64 // the number of records before those of a piece
	// Of sound.
	audio   string
	rate    int
	mono    bool
	samples int

	images, sounds []json.RawMessage
	// similar asks for a list of images that look alike.
	similar similarFlags
}

func (f *augmentFlags) register(fl *pflag.FlagSet) {
	fl.StringVar(&f.list, "transforms", "", "do these `TRANSFORMS` of a loader once and for all, to images and what follows them, e.g. 'RandomResizedCrop(224),RandomHorizontalFlip'")
	fl.IntVar(&f.n, "augment", 0, "make `K` variants of each record by the random ones of --transforms, one for each epoch")
	fl.StringVar(&f.audio, "audio", "", "`HOW` decoded sound is stored: f32 (default, when it is changed) or i16; without it and what follows, files are kept")
	fl.IntVar(&f.rate, "audio-rate", 0, "resample sound to `HZ`")
	fl.BoolVar(&f.mono, "mono", false, "make one channel of sound, the mean of all")
	fl.IntVar(&f.samples, "audio-samples", 0, "cut sound after `N` samples, and fill shorter recordings with silence")
	f.similar.register(fl)
	fl.StringVar(&f.outputs, "outputs", "", "")
	_ = fl.MarkHidden("outputs") // of the Python package, which knows them by field
	fl.Lookup("seed").Usage = "the seed `NUMBER` of the split and of --augment"
}

// read checks the flags, and notes the settings in the options of the pack.
func (f *augmentFlags) read(o *pack.Options, seed uint64) error {
	if f.n < 0 || f.n > driver.MaxVariants {
		return usageError("", "--augment %d: give 1 to %d", f.n, driver.MaxVariants)
	}
	var err error
	if f.images, err = bench.ParseTransforms(f.list); err != nil {
		return usageError("", "--transforms: %v", err)
	}
	if f.n > 0 && len(f.images) == 0 && f.outputs == "" {
		return usageError("stoker pack photos/ train/ --augment 4 --transforms 'RandomResizedCrop(224),RandomHorizontalFlip'",
			"--augment makes variants by random transforms: say which ones with --transforms")
	}
	switch {
	case f.audio != "" && f.audio != augment.Float && f.audio != augment.Sixteen:
		return usageError("", "--audio %s: it is %s or %s", f.audio, augment.Float, augment.Sixteen)
	case f.rate < 0 || f.samples < 0:
		return usageError("", "--audio-rate and --audio-samples are numbers above 0")
	}
	op := func(name string, args map[string]any) {
		args["op"] = name
		raw, _ := json.Marshal(args) // of text and numbers
		f.sounds = append(f.sounds, raw)
	}
	if f.mono {
		op("audio.Mono", map[string]any{})
	}
	if f.rate > 0 {
		op("audio.Resample", map[string]any{"rate": f.rate})
	}
	if f.samples > 0 {
		op("audio.PadOrTrim", map[string]any{"samples": f.samples})
	}
	if f.audio != "" && len(f.sounds) == 0 {
		op("audio.Decode", map[string]any{})
	}
	if f.asked() {
		o.Augment, o.Seed = f.n, seed
		if len(f.sounds) > 0 || f.audio != "" {
			o.Audio = f.audio
			if o.Audio == "" {
				o.Audio = augment.Float
			}
		}
	}
	return nil
}

func (f *augmentFlags) asked() bool { return len(f.images) > 0 || len(f.sounds) > 0 || f.outputs != "" }

// any reports whether records may be transformed, including those of a pack that is appended to.
func (f *augmentFlags) any(o *pack.Options) bool {
	return f.asked() || o.Append || f.similar.what != ""
}

// of returns a source whose records are transformed by the flags, or by the settings of the pack that they are appended
// to.
func (f *augmentFlags) of(src driver.Source, o *pack.Options) (driver.Source, error) {
	var outputs []transform.Output
	var err error
	switch {
	case f.outputs != "":
		outputs, err = parseOutputs(f.outputs)
	case f.asked():
		outputs, err = f.choose(src)
	case o.Append && o.Transforms != "":
		outputs, err = parseOutputs(o.Transforms)
	default:
		if outputs = clipsAsPixels(src, o); outputs == nil {
			return src, nil
		}
	}
	var s driver.Source
	if err == nil {
		var text []byte
		if text, err = json.Marshal(outputs); err == nil {
			o.Transforms = string(text)
			s, err = augment.Open(src, &augment.Options{
				Outputs: outputs, Variants: max(o.Augment, 1), Seed: o.Seed, First: f.first, Audio: o.Audio, Threads: o.Threads, Memory: o.Memory,
			})
		}
	}
	if err != nil {
		_ = src.Close() // the refusal is what counts
		return nil, err
	}
	return s, nil
}

// clipsAsPixels are outputs for the clips of video that the options want as pixels.
func clipsAsPixels(src driver.Source, o *pack.Options) (all []transform.Output) {
	info := src.Info()
	for i := range info.Fields {
		f := &info.Fields[i]
		if f.Kind == driver.KindFrames && (o.HowOf(f.Name) == pack.ImagesRaw || o.Quality > 0) {
			all = append(all, transform.Output{Name: f.Name, Field: f.Name, Ops: []json.RawMessage{}})
		}
	}
	return all
}

func parseOutputs(text string) (all []transform.Output, err error) {
	if err = json.Unmarshal([]byte(text), &all); err != nil {
		err = fmt.Errorf("outputs: %w", err)
	}
	return all, err
}

// choose has all images go through the operations for images, and masks through those
// that are for them, since they follow the first image; and all sounds through theirs.
func (f *augmentFlags) choose(src driver.Source) ([]transform.Output, error) {
	var all []transform.Output
	first := ""
	info := src.Info()
	found := map[driver.Kind]bool{}
	for _, kind := range []driver.Kind{driver.KindImage, driver.KindMask, driver.KindFrames, driver.KindAudio} {
		for i := range info.Fields {
			field := &info.Fields[i]
			if field.Kind != kind {
				continue
			}
			found[kind] = true
			o := transform.Output{Name: field.Name, Field: field.Name, Ops: f.images}
			switch {
			case kind == driver.KindAudio:
				o.Ops = f.sounds
			case kind == driver.KindFrames:
			case first == "" && field.DType == "":
				first = field.Name
			default:
				o.Follow = first
			}
			if len(o.Ops) > 0 {
				all = append(all, o)
			}
		}
	}
	var names []string
	for i := range info.Fields {
		names = append(names, info.Fields[i].Name)
	}
	fail := func(flag, what string) error {
		return fmt.Errorf("%s about %s, and %s has none: its fields are %s", flag, what, info.URL, strings.Join(names, ", "))
	}
	switch {
	case len(f.images) > 0 && !found[driver.KindImage] && !found[driver.KindMask] && !found[driver.KindFrames]:
		return nil, fail("--transforms is", "images")
	case len(f.sounds) > 0 && !found[driver.KindAudio]:
		return nil, fail("--audio, --audio-rate, --mono and --audio-samples are", "sound")
	}
	return slices.Clip(all), nil
}

// variantsText describes the transforms of records before packing.
func variantsText(p *page, s *pack.Settings) {
	outputs, err := parseOutputs(s.Transforms)
	if s.Transforms == "" || err != nil {
		return
	}
	if s.Augment > 1 {
		p.f("  each record in %d variants, one for each epoch, drawn with seed %d:\n", s.Augment, s.Seed)
	} else {
		p.f("  transformed before packing, drawn with seed %d:\n", s.Seed)
	}
	for i := range outputs {
		var names []string
		for _, raw := range outputs[i].Ops {
			names = append(names, transform.OpText(raw))
		}
		text := fmt.Sprintf("%s by %s", outputs[i].Name, strings.Join(names, ", "))
		if slices.ContainsFunc(names, func(name string) bool {
			return strings.HasPrefix(name, "audio.Resample") || strings.HasPrefix(name, "audio.Decode")
		}) && s.Audio != "" {
			text += ", as " + s.Audio
		}
		p.f("    %s\n", clean(text))
	}
}
