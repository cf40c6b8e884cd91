package probe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/stokerdata/stoker/internal/gen"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

const (
	// maxSample and maxSampleBytes limit the images for measuring decoding. The mean size of 512 photographs is
	// within a few percent of that of all.
	maxSample      = 512
	maxSampleBytes = 96 << 20
	// leastSample is the minimum size of a meaningful sample.
	leastSample = 8
	// generated is the number of images that are made when there are none.
	generated = 96
)

// sample is images of the user, or generated ones, in memory.
type sample struct {
	files []sampleFile
	bytes int64
	// origin is "measured" for images of the user.
	origin string
	// raw is true for pixels of a raw pack. Other codecs made from them would not represent the user's images.
	raw           bool
	width, height float64 // means
}

type sampleFile struct {
	data []byte
	ext  string
}

func (s *sample) add(data []byte, ext string) {
	if info, err := imagefile.Probe(data); err == nil {
		s.width += float64(info.Width)
		s.height += float64(info.Height)
	}
	s.files = append(s.files, sampleFile{data, ext})
	s.bytes += int64(len(data))
}

func (s *sample) full(limit int64) bool { return len(s.files) >= maxSample || s.bytes >= limit }

// takeSample reads images of the user, for at most d, or makes some.
func (p *probe) takeSample(ctx context.Context, d time.Duration) (*sample, error) {
	limit := int64(maxSampleBytes)
	if p.m.MemoryFree > 0 {
		limit = min(limit, p.m.MemoryFree/20)
	}
	s := &sample{origin: "measured"}
	until := time.Now().Add(d)
	var err error
	switch {
	case p.data.pack != nil && hasImages(p.data.pack):
		err = p.samplePack(ctx, s, limit, until)
	case len(p.data.images) > 0:
		p.sampleFiles(ctx, s, limit, until)
	}
	if err != nil {
		p.note("decoding: %v", err)
	}
	if len(s.files) < leastSample {
		n := len(s.files)
		s = &sample{origin: "generated"}
		if err := s.generate(ctx, limit, until); err != nil {
			return nil, err
		}
		if n > 0 {
			p.note("decoding: %s has only %d images that could be read in time; measured on generated ones", p.path, n)
		}
	}
	s.width /= float64(max(len(s.files), 1))
	s.height /= float64(max(len(s.files), 1))
	return s, ctx.Err()
}

func hasImages(m *pack.Manifest) bool {
	return m.FieldOf(driver.KindImage) != nil
}

func (p *probe) samplePack(ctx context.Context, s *sample, limit int64, until time.Time) error {
	r, err := pack.Open(ctx, p.path, nil)
	if err != nil {
		return err
	}
	defer r.Close()
	images := r.Manifest().FieldOf(driver.KindImage).Stats.Images
	s.raw = images.Codecs[pack.CodecName(driver.CodecRaw)].Count > r.Len()/2
	rng := rand.New(rand.NewPCG(1, 3))
	seen := map[int64]bool{}
	for tries := 0; tries < 4*maxSample && int64(len(seen)) < r.Len() && !s.full(limit) && time.Now().Before(until) && ctx.Err() == nil; tries++ {
		id := rng.Int64N(r.Len())
		if seen[id] {
			continue
		}
		seen[id] = true
		rec, err := r.Record(ctx, id)
		if err != nil {
			return err
		}
		data, ext, err := rec.Image().File()
		if err != nil {
			continue
		}
		s.add(data, ext)
	}
	return nil
}

// sampleFiles reads image files of all sizes: every k-th in the order of size.
func (p *probe) sampleFiles(ctx context.Context, s *sample, limit int64, until time.Time) {
	sorted := slices.Clone(p.data.images)
	slices.SortFunc(sorted, func(a, b dataFile) int { return int(a.size - b.size) })
	var mean int64
	for _, f := range sorted {
		mean += f.size / int64(len(sorted))
	}
	n := min(maxSample, len(sorted), int(limit/max(mean, 1))+1)
	chosen := make([]dataFile, n)
	for i := range chosen {
		chosen[i] = sorted[(2*i+1)*len(sorted)/(2*n)]
	}
	// In a random order, because the time may not be enough for all.
	rand.New(rand.NewPCG(1, 4)).Shuffle(n, func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	for _, f := range chosen {
		if s.full(limit) || time.Now().After(until) || ctx.Err() != nil {
			return
		}
		if f.size > limit/4 {
			continue
		}
		if data, err := readAndForget(ctx, f.path, f.size); err == nil {
			s.add(data, filepath.Ext(f.path))
		}
	}
}

// readAndForget reads a file and keeps it out of the page cache if it was not there before.
func readAndForget(ctx context.Context, path string, size int64) ([]byte, error) {
	o, err := localstore.New(path).Open(ctx, "")
	if err != nil {
		return nil, err
	}
	defer o.Close()
	buf := make([]byte, size)
	if c, ok := store.As[store.CachedReader](o); ok {
		if n, _ := c.ReadCached(buf[:min(size, 1)], 0); n < 1 {
			defer store.Advise(o, 0, 0, store.DontNeed)
		}
	}
	return buf, o.ReadAt(ctx, buf, 0)
}

// generate makes images to replace the user's.
func (s *sample) generate(ctx context.Context, limit int64, until time.Time) error {
	g, err := gen.New(gen.Options{Count: generated, Classes: 1})
	if err != nil {
		return err
	}
	images := make([][]byte, g.Len())
	var wg sync.WaitGroup
	for t := range cores() {
		wg.Go(func() {
			for i := t; i < len(images); i += cores() {
				if ctx.Err() != nil || i >= leastSample && time.Now().After(until) {
					return
				}
				images[i], _ = g.Image(i) // a failed one is left out
			}
		})
	}
	wg.Wait()
	for _, data := range images {
		if data != nil && !s.full(limit) {
			s.add(data, ".jpg")
		}
	}
	if len(s.files) == 0 {
		return errors.New("no image could be generated")
	}
	return nil
}

// write puts the images into the new folder dir.
func (s *sample) write(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for i, f := range s.files {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%05d%s", i, f.ext)), f.data, 0o600); err != nil {
			return fmt.Errorf("cannot write to %s: %w", dir, store.Cause(err))
		}
	}
	return nil
}
