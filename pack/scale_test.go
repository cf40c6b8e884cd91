package pack

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
)

// large returns a manifest of photographs with this many chunks of 8 MiB.
func large(chunks, perShard int) *Manifest {
	const rows, size = 76, 8 << 20
	m := &Manifest{Format: FormatName, Version: Version, Writer: "bench", Options: Settings{ChunkBytes: size, ShardBytes: size * int64(perShard)}}
	im := &driver.ImageStats{
		MinWidth: 300, MaxWidth: 4000, MinHeight: 300, MaxHeight: 4000, MinChannels: 3, MaxChannels: 3, MinDepth: 8, MaxDepth: 8, MinTurned: 1, MaxTurned: 1,
		Codecs: map[string]driver.CodecStats{"jpeg": {Number: driver.CodecJPEG, Count: int64(chunks) * rows}},
	}
	m.Fields = []Field{{Name: "image", Kind: driver.KindImage, Stats: driver.FieldStats{Count: int64(chunks) * rows, Images: im}}}
	for at := 0; at < chunks; at += perShard {
		s := Shard{File: fmt.Sprintf("shard-%06d.arrow", len(m.Shards)), Bytes: 1024}
		for range min(perShard, chunks-at) {
			s.Chunks = append(s.Chunks, Chunk{Offset: s.Bytes, Bytes: size, Head: 4096, Rows: rows, XXH3: Checksum(s.Bytes) * 0x9e3779b97f4a7c15, HeadXXH3: Checksum(at+1) * 0x9e3779b97f4a7c15})
			s.Bytes += size
			s.Records += rows
		}
		m.Shards, m.Records, m.Bytes = append(m.Shards, s), m.Records+s.Records, m.Bytes+s.Bytes
	}
	return m
}

// BenchmarkLargeManifest measures what opening a pack of many chunks takes, without its shards. bench/simulate.py runs
// it.
//
//	go test ./pack -run '^$' -bench LargeManifest -benchtime 1x
func BenchmarkLargeManifest(b *testing.B) {
	for _, chunks := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprint(chunks), func(b *testing.B) {
			heap := func() float64 {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return float64(m.HeapAlloc)
			}
			text := must(large(chunks, 137).finish())
			n := float64(chunks)
			for b.Loop() {
				before := heap()
				begin := time.Now()
				m := must(parseManifest(text))
				r := must(newReader(localstore.New(b.TempDir()), m, nil))
				b.ReportMetric(float64(time.Since(begin).Nanoseconds())/n, "open-ns/chunk")
				opened := heap()
				r.x.allocate(m.Fields, m.Stored(), len(r.chunks))
				index := heap() - opened
				b.ReportMetric(float64(len(text))/n, "file-B/chunk")
				b.ReportMetric((opened-before)/n, "heap-B/chunk")
				b.ReportMetric(index/float64(m.Records), "index-B/record")
				runtime.KeepAlive(r)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
