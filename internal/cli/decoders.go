package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/dynlib"
	"github.com/stokerdata/stoker/internal/imagelib"
	"github.com/stokerdata/stoker/internal/video"
	"github.com/stokerdata/stoker/internal/videodec"
)

// decoder is the decoder of a codec in this installation.
type decoder struct {
	Kind    string `json:"kind"`
	Codec   string `json:"codec"`
	Decodes bool   `json:"decodes"`
	// Library is "" for codecs that are built in.
	Library string `json:"library,omitempty"`
	Version string `json:"version,omitempty"`
	Path    string `json:"path,omitempty"`
	// Why is the reason why it is not decoded, and Install has commands that help.
	Why     string   `json:"why,omitempty"`
	Install []string `json:"install,omitempty"`
}

// builtIn are the codecs that need no library, by their kind.
var builtIn = []struct {
	kind   string
	codecs []string
}{
	{"image", []string{"JPEG", "PNG", "GIF", "BMP", "WebP", "TIFF", "PPM", "PGM", "PFM"}},
	{"sound", []string{"PCM", "FLAC", "MP3", "Vorbis", "Opus"}},
	{"video", []string{"MJPEG"}},
}

// ffmpeg are codecs that FFmpeg decodes, by its names. It has others.
var ffmpeg = map[string][]struct{ codec, name string }{
	"sound": {{"AAC", "aac"}, {"ALAC", "alac"}, {"WMA", "wmav2"}, {"AC-3", "ac3"}, {"AMR", "amrnb"}, {"GSM", "gsm"}, {"ADPCM", "adpcm_ms"}},
	"video": {
		{"H.264", video.H264}, {"HEVC", video.HEVC}, {"AV1", video.AV1}, {"VP9", video.VP9}, {"VP8", video.VP8}, {"MPEG-4", video.MPEG4},
		{"MPEG-2", "mpeg2video"}, {"MPEG-1", "mpeg1video"}, {"VC-1", "vc1"}, {"WMV", "wmv2"}, {"ProRes", "prores"}, {"Theora", "theora"},
	},
}

// decoders lists the codecs that this installation decodes, and those that it does not. It loads all libraries.
func decoders() (all []decoder) {
	for _, kind := range builtIn {
		for _, codec := range kind.codecs {
			all = append(all, decoder{Kind: kind.kind, Codec: codec, Decodes: true})
		}
		if kind.kind == "image" {
			for _, l := range imagelib.Libraries() {
				all = append(all, decoderOf("image", l.Decodes, l))
			}
		}
		for _, c := range ffmpeg[kind.kind] {
			all = append(all, ffmpegDecoder(kind.kind, c.codec, c.name))
		}
	}
	return all
}

// decoderOf is the decoder of a codec that a library decodes.
func decoderOf(kind, codec string, l *dynlib.Library) decoder {
	d := decoder{Kind: kind, Codec: codec, Library: l.Name}
	found, err := l.Load()
	if missing := new(dynlib.Missing); errors.As(err, &missing) {
		d.Why, d.Install = missing.Why, missing.Install
		return d
	}
	d.Decodes, d.Version, d.Path = true, found.Version, found.Path
	return d
}

// ffmpegDecoder is the decoder of a codec of FFmpeg, which may be built without it.
func ffmpegDecoder(kind, codec, name string) decoder {
	d := decoderOf(kind, codec, videodec.Library())
	if d.Decodes && videodec.Has(name) != nil {
		d.Decodes, d.Why, d.Install = false, fmt.Sprintf("%s %s has no decoder for it", d.Library, d.Version), videodec.Library().Install
	}
	return d
}

// decoders writes a page of decoders: codecs that share their decoder share their lines.
func (p *page) decoders(all []decoder) {
	const indent = 10
	p.f("\nThis installation decodes:\n")
	kind := ""
	for len(all) > 0 {
		first, codecs := all[0], ""
		for len(all) > 0 && all[0].same(&first) {
			codecs += ", " + all[0].Codec
			all = all[1:]
		}
		name := "  " + first.Kind
		if first.Kind == kind {
			name = ""
		}
		kind = first.Kind
		p.item(name, indent, strings.TrimPrefix(codecs, ", ")+": "+first.by())
		if first.Path != "" && first.Decodes {
			p.f("%*s%s\n", indent+2, "", shortPath(first.Path, pageWidth-indent-2))
		}
		for _, command := range first.Install {
			p.f("%*s%s\n", indent+2, "", command)
		}
	}
	p.f("\nLibraries are searched in:\n")
	for _, folder := range dynlib.Places() {
		if folder == dynlib.System {
			folder = "the folders of the system's libraries"
		}
		p.f("  %s\n", shortPath(folder, pageWidth-2))
	}
	p.item("", 0, fmt.Sprintf("%s (images) and %s (video) name folders that are searched first.", imagelib.Folders, videodec.Folder))
}

// kernels writes the kernels by the set of their forms, the best set first.
func (p *page) kernels(forms []cdec.KernelForm) {
	bySet := map[string][]string{}
	for _, f := range forms {
		bySet[f.Set] = append(bySet[f.Set], f.Kernel)
	}
	p.f("\nKernels use the instructions (%s forces a set):\n", cdec.KernelsEnv)
	for _, set := range []string{"avx512", "avx2", "scalar"} {
		if kernels := bySet[set]; kernels != nil {
			p.item("  "+set, 10, strings.Join(kernels, ", "))
		}
	}
}

// same reports whether two codecs are decoded by the same, or are not for the same reason.
func (d *decoder) same(other *decoder) bool {
	return d.Kind == other.Kind && d.Decodes == other.Decodes && d.Library == other.Library && d.Why == other.Why
}

// by names the decoder of a codec in a few words.
func (d *decoder) by() string {
	switch {
	case !d.Decodes && len(d.Install) > 0:
		return "no: " + d.Why + ". One of these commands helps:"
	case !d.Decodes:
		return "no: " + d.Why
	case d.Library == "":
		return "built in"
	}
	return d.Library + " " + d.Version
}

// shortPath returns the end of a path that fits the columns.
func shortPath(path string, columns int) string {
	r := []rune(clean(path))
	if len(r) <= columns {
		return string(r)
	}
	return "..." + string(r[len(r)-columns+3:])
}
