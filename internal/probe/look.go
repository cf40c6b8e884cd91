package probe

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
)

const (
	// maxEntries limits the number of examined names in a large tree.
	maxEntries = 50_000
	// maxImages limits the number of remembered image files.
	maxImages = 4096
	// largeFile is the minimum size of files for reads of all sizes.
	largeFile = 16 << 20
	// maxLarge limits the number of remembered large files.
	maxLarge = 64
)

// dataset describes the data at the path.
type dataset struct {
	// pack is its manifest when the folder is a pack.
	pack *pack.Manifest
	// images are image files in a random order, not of a pack.
	images []dataFile
	// large are files that reads of all sizes can be measured on.
	large []dataFile
}

// dataFile is a file of the user, which is only ever read.
type dataFile struct {
	path string
	size int64
}

// look examines the path, without reading file contents except a pack's manifest. If a tree has more names than the
// limit, it examines a random part.
func (p *probe) look(ctx context.Context, d time.Duration) {
	if pack.IsPack(p.path) {
		m, err := pack.ReadManifest(p.path)
		if err != nil {
			p.note("data: %v", err)
			return
		}
		p.data.pack = m
		for _, s := range m.Shards {
			if p.isRemote() {
				break
			}
			if len(p.data.large) < maxLarge && s.Bytes >= largeFile {
				p.data.large = append(p.data.large, dataFile{filepath.Join(p.path, s.File), s.Bytes})
			}
		}
		return
	}
	if p.isRemote() {
		return
	}
	p.walk(ctx, time.Now().Add(d))
}

// walk goes through the tree in a random order until the time or the number of
// names is used up.
func (p *probe) walk(ctx context.Context, until time.Time) {
	rng := rand.New(rand.NewPCG(1, 2))
	dirs := []string{p.path}
	for seen := 0; len(dirs) > 0 && seen < maxEntries && time.Now().Before(until) && ctx.Err() == nil; {
		k := rng.IntN(len(dirs))
		dir := dirs[k]
		dirs[k] = dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		f, err := os.Open(dir)
		if err != nil {
			continue
		}
		entries, _ := f.ReadDir(maxEntries / 10) // as they come: sorting needs all of them
		f.Close()
		seen += len(entries)
		rng.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
		taken := 0
		for _, e := range entries {
			name := filepath.Join(dir, e.Name())
			if e.IsDir() {
				if !strings.HasPrefix(e.Name(), ".") {
					dirs = append(dirs, name)
				}
				continue
			}
			image := slices.Contains(driver.ImageExtensions, strings.ToLower(filepath.Ext(e.Name())))
			// Some of each folder, so that no class is the whole sample.
			if image && (taken >= maxImages/8 || len(p.data.images) >= maxImages) {
				continue
			}
			st, err := os.Stat(name)
			if err != nil || !st.Mode().IsRegular() || st.Size() == 0 {
				continue
			}
			if image {
				p.data.images = append(p.data.images, dataFile{name, st.Size()})
				taken++
			}
			if st.Size() >= largeFile && len(p.data.large) < maxLarge {
				p.data.large = append(p.data.large, dataFile{name, st.Size()})
			}
		}
	}
	rng.Shuffle(len(p.data.images), func(i, j int) {
		p.data.images[i], p.data.images[j] = p.data.images[j], p.data.images[i]
	})
}
