package source_test

import (
	"context"
	"testing"

	"github.com/stokerdata/stoker/internal/source/packsource"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/store"
)

// Packs over stores that fail, with checksums of chunks, which the table of formats does not ask for. The checksum of a
// chunk is compared once, before its first record. It does not detect wrong bytes from later reads.
func TestPackFaults(t *testing.T) {
	dir := makeFolder(t, 40)
	for _, images := range []string{pack.ImagesKeep, pack.ImagesAuto, pack.ImagesRaw} {
		p := makePack(t, dir, &pack.Options{Images: images, ChunkBytes: 64 << 10, ShardBytes: 128 << 10})
		t.Run(images, func(t *testing.T) {
			drivertest.Faults(t, localstore.New(p), false, func(ctx context.Context, st store.Store) (driver.Source, error) {
				return packsource.Open(ctx, "test", st, &packsource.Options{ReadOptions: pack.ReadOptions{VerifyChunks: true}})
			})
		})
	}
}
