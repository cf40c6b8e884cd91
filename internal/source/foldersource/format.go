package foldersource

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/internal/source/selection"
	"github.com/stokerdata/stoker/source/driver"
)

// Format is folders of images. It accepts any folder, so it must be the last format in the
// list.
var Format = &format.Format{
	Name:      "folder",
	Reads:     "folders of images, one per class: JPEG, PNG, BMP, GIF, WebP, TIFF, JPEG XL, AVIF, PPM and PGM",
	Checksums: "PNG: CRC-32 of each chunk and zlib; TIFF: zlib; the other formats have none",
	Example:   "photos/",
	Guide:     "reference/folders.md",
	Params:    []format.Param{format.SplitParam},
	Cached:    true,
	Match:     func(_ context.Context, p *format.Probe) bool { return p.Dir },
	Open: func(ctx context.Context, r *format.Request) (driver.Source, error) {
		return Open(ctx, r.URL, r.Store, &Options{Threads: r.Threads, Split: r.Text("split")})
	},
}

// FormatAudio is audio files and folders of them.
var FormatAudio = &format.Format{
	Name:      "audio",
	Reads:     "folders of sound, one per class, and single files: WAV, FLAC, MP3, Ogg Vorbis, Opus",
	Checksums: "FLAC: CRC-8 and CRC-16 of each frame; Ogg: CRC-32 of each page; not the CRC of MP3 frames",
	Example:   "sounds/",
	Guide:     "reference/audio.md",
	Params:    []format.Param{format.SplitParam},
	Match:     format.MatchMedia(selection.Sound, nil),
	Open: func(ctx context.Context, r *format.Request) (driver.Source, error) {
		o := &Options{Threads: r.Threads, Sound: true, Split: r.Text("split")}
		r.Store, o.File = r.Folder()
		return Open(ctx, r.URL, r.Store, o)
	},
}
