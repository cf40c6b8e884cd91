// Package packsource makes a pack a source.
package packsource

import (
	"context"

	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
)

// Options change how a pack is read. Nil means the defaults.
type Options = pack.ReadOptions

type source struct {
	*pack.Reader
	info driver.Info
}

// Open opens the pack in the folder dir.
func Open(ctx context.Context, url, dir string, opt *Options) (driver.Source, error) {
	r, err := pack.Open(ctx, dir, opt)
	if err != nil {
		return nil, err
	}
	m := r.Manifest()
	s := &source{Reader: r, info: driver.Info{
		URL: url, Format: "pack", Len: m.Records, Objects: int64(len(m.Shards)), Fingerprint: m.Fingerprint,
	}}
	// In the order in which Reader.Read sets the values.
	for _, f := range r.Fields() {
		d := driver.Field{Name: f.Name, Kind: driver.Kind(f.Kind), Classes: f.Classes, DType: driver.DType(f.DType), Shape: f.Shape}
		if d.Kind == driver.KindBytes {
			// Never 0, which would mean that it is not known.
			d.MaxBytes = max(f.MaxBytes, 1)
		}
		s.info.Fields = append(s.info.Fields, d)
	}
	if m.Images() == nil {
		return s, nil
	}
	for _, f := range m.Fields {
		if f.Kind != string(driver.KindImage) {
			continue
		}
		d := driver.Field{
			Name: f.Name, Kind: driver.KindImage, MaxBytes: f.MaxBytes,
			MaxWidth: f.Images.MaxWidth, MaxHeight: f.Images.MaxHeight,
		}
		if f.Images.MinWidth == f.Images.MaxWidth && f.Images.MinHeight == f.Images.MaxHeight {
			d.Width, d.Height = f.Images.MaxWidth, f.Images.MaxHeight
		}
		if f.Images.Codecs[pack.CodecName(driver.CodecRaw)] == m.Records {
			d.Channels = 3
		}
		s.info.Fields = append(s.info.Fields, d)
	}
	for _, f := range m.Fields {
		if f.Kind == string(driver.KindLabel) {
			s.info.Fields = append(s.info.Fields, driver.Field{Name: f.Name, Kind: driver.KindLabel, Classes: f.Classes})
		}
	}
	return s, nil
}

func (s *source) Info() *driver.Info { return &s.info }
