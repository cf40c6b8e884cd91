package quickstart

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

// A step is one transform: as Python code, the module that has it, and what the engine gets.
type step struct {
	module, call, engine string
}

// steps are the transforms of one field.
type steps struct {
	field string
	list  []step
}

func image(name string, size int) step {
	engine := fmt.Sprintf(`{"op":%q,"size":[%d,%d]}`, name, size, size)
	if name == "Resize" {
		engine = fmt.Sprintf(`{"op":%q,"size":%d}`, name, size)
	}
	return step{"T", fmt.Sprintf("%s(%d)", name, size), engine}
}

var (
	flip     = step{"T", "RandomHorizontalFlip()", `{"op":"RandomHorizontalFlip"}`}
	mono     = step{"audio", "Mono()", `{"op":"audio.Mono"}`}
	resample = step{"audio", "Resample(16000)", `{"op":"audio.Resample","rate":16000}`}
	trim     = step{"audio", "PadOrTrim(seconds=1)", `{"op":"audio.PadOrTrim","seconds":1}`}
	mel      = step{"audio", "MelSpectrogram(n_fft=512, hop_length=160, n_mels=64)", `{"op":"audio.MelSpectrogram","n_fft":512,"hop_length":160,"n_mels":64}`}
	decibels = step{"audio", "AmplitudeToDB(top_db=80)", `{"op":"audio.AmplitudeToDB","top_db":80}`}
)

func volume(name string, size int) step {
	key := "roi_size"
	if name == "ResizeWithPadOrCrop" {
		key = "spatial_size"
	}
	return step{"volume", fmt.Sprintf("%s(%d)", name, size), fmt.Sprintf(`{"op":%q,%q:%d}`, "volume."+name, key, size)}
}

// Sides of what the scripts train on: small, so that a step takes little time on a CPU.
const (
	imageSide  = 128
	objectSide = 256
	clipSide   = 64
	volumeSide = 32
)

// transforms returns the transforms for training, or those for records that are held out, which draw no random numbers.
func (d *Data) transforms(training bool) []steps {
	var all []steps
	add := func(f *driver.Field, list ...step) { all = append(all, steps{f.Name, list}) }
	for i := range d.Fields {
		f := &d.Fields[i]
		fixed := f.Width > 0 && f.Kind != driver.KindFrames
		switch {
		case d.Task == Detect && (f.Kind == driver.KindImage || f.Kind == driver.KindMask):
			add(f, image("LetterBox", objectSide))
		case (f.Kind == driver.KindImage || f.Kind == driver.KindMask) && fixed && d.Task != Segment:
		case f.Kind == driver.KindImage || f.Kind == driver.KindMask || f.Kind == driver.KindFrames:
			side := imageSide
			if f.Kind == driver.KindFrames {
				side = clipSide
			}
			if training {
				add(f, image("RandomResizedCrop", side), flip)
			} else {
				add(f, image("Resize", side), image("CenterCrop", side))
			}
		case f.Kind == driver.KindVolume:
			first := volume("RandSpatialCrop", volumeSide)
			if !training {
				first = volume("CenterSpatialCrop", volumeSide)
			}
			add(f, first, volume("ResizeWithPadOrCrop", volumeSide))
		case f.Kind == driver.KindAudio:
			add(f, mono, resample, trim, mel, decibels)
		}
	}
	return all
}

// outputs are the transforms for training as the engine gets them.
func (d *Data) outputs() []transform.Output {
	var out []transform.Output
	for _, s := range d.transforms(true) {
		o := transform.Output{Name: s.field, Field: s.field}
		for _, one := range s.list {
			o.Ops = append(o.Ops, json.RawMessage(one.engine))
		}
		out = append(out, o)
	}
	return out
}

// python writes transforms as a dict, and reports which modules it uses.
func python(all []steps, modules map[string]bool) string {
	var fields []string
	for _, s := range all {
		var calls []string
		for _, one := range s.list {
			modules[one.module] = true
			calls = append(calls, one.module+"."+one.call)
		}
		fields = append(fields, strconv.Quote(s.field)+": ["+strings.Join(calls, ", ")+"]")
	}
	if len(fields) > 1 {
		return "{\n    " + strings.Join(fields, ",\n    ") + ",\n}"
	}
	return "{" + strings.Join(fields, ", ") + "}"
}
