package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/stokerdata/stoker/internal/pipeline"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source"
	"github.com/stokerdata/stoker/source/driver"
)

// Subject is a source, as far as a benchmark must know it to choose a pipeline.
type Subject struct {
	Source string
	Path   string // local path
	Format string
	Len    int64
	// Image is the name of the first field of images, "" without one. Codec is the codec of its images in a pack:
	// "keep", "dct", "raw" or "mixed". For files it is "keep".
	Image string
	Codec string
	// Fixed reports whether all images are raw and of one size, so that they need no transform.
	Fixed bool
	// RecordBytes is the mean size of a record on the storage, 0 when not known.
	RecordBytes float64
	ChunkBytes  int64
	// Sequential reports whether the source can only be read in order, not shuffled.
	Sequential bool
}

// Look opens a source and describes it.
func Look(ctx context.Context, url string) (*Subject, error) {
	src, err := source.Open(ctx, url, nil)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	in := src.Info()
	s := &Subject{Source: url, Format: in.Format, Len: in.Len, Sequential: in.Sequential}
	for _, f := range in.Fields {
		if f.Kind == driver.KindImage && s.Image == "" {
			s.Image = f.Name
			s.Fixed = f.Width > 0 && f.Height > 0
			s.Codec = "keep"
		}
	}
	files, err := SourceFiles(url)
	if err != nil || len(files) == 0 {
		return s, nil
	}
	s.Path, err = filepath.Abs(localPath(url))
	if err != nil {
		return s, nil
	}
	var bytes int64
	for _, f := range files {
		if st, err := os.Stat(f); err == nil {
			bytes += st.Size()
		}
	}
	if in.Len > 0 {
		s.RecordBytes = float64(bytes) / float64(in.Len)
	}
	if pack.IsPack(s.Path) {
		s.lookAtPack()
	}
	return s, nil
}

// lookAtPack finds how the images of a pack are stored.
func (s *Subject) lookAtPack() {
	m, err := pack.ReadManifest(s.Path)
	if err != nil {
		return
	}
	s.ChunkBytes = m.Options.ChunkBytes
	codecs := map[string]bool{}
	for _, f := range m.Fields {
		if f.Name != s.Image || f.Stats.Images == nil {
			continue
		}
		for name, n := range f.Stats.Images.Codecs {
			if n.Count == 0 {
				continue
			}
			switch name {
			case "dct", "raw":
				codecs[name] = true
			default:
				codecs["keep"] = true
			}
		}
	}
	switch {
	case len(codecs) > 1:
		s.Codec = "mixed"
	case codecs["dct"]:
		s.Codec = "dct"
	case codecs["raw"]:
		s.Codec = "raw"
	}
}

// Config returns the pipeline that a benchmark of s runs, and its transforms in
// words. transforms as ParseTransforms takes them; "" means a default for the
// source.
func (s *Subject) Config(transforms string, batchSize int) (pipeline.Config, string, error) {
	cfg := pipeline.Config{Source: s.Source, BatchSize: batchSize, Shuffle: !s.Sequential, DropLast: s.Len >= int64(batchSize)}
	if abs, err := filepath.Abs(localPath(s.Source)); err == nil && s.Path != "" {
		cfg.Source = abs
	}
	if s.Image == "" {
		if transforms != "" && transforms != "none" {
			return cfg, "", fmt.Errorf("%s has no images to transform", stores.Public(s.Source))
		}
		return cfg, "records as stored", nil
	}
	if transforms == "" {
		if transforms = DefaultTransforms; s.Fixed {
			transforms = "none"
		}
	}
	ops, err := ParseTransforms(transforms)
	if err != nil {
		return cfg, "", err
	}
	words := transforms
	if len(ops) == 0 {
		words = "images as stored"
	}
	if len(ops) > 0 {
		cfg.Outputs = []transform.Output{{Name: s.Image, Field: s.Image, Ops: append([]json.RawMessage{}, ops...)}}
	}
	return cfg, words, nil
}
