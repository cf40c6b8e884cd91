package pipeline

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

func cpuTime() time.Duration {
	var ru syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// run loads b.N batches and reports rates by wall clock and by CPU.
func run(b *testing.B, cfg Config) {
	p := mustOpen(b, cfg)
	p.Start(item.Position{})
	next := func() int {
		for {
			ev, err := p.Next(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			if ev.Kind == EventBatch {
				p.Release(ev.Slot)
				return ev.Rows
			}
		}
	}
	for range 2 * p.Info().Slots {
		next()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, rows := cpuTime(), 0
	for b.Loop() {
		rows += next()
	}
	cpu = cpuTime() - cpu
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "img/s")
	b.ReportMetric(float64(rows)/cpu.Seconds(), "img/cpu-s")
	b.ReportMetric(float64(rows)*float64(p.Info().SlotBytes)/float64(cfg.BatchSize)/b.Elapsed().Seconds()/1e9, "GB/s")
	b.ReportMetric(float64(after.NumGC-before.NumGC), "GCs")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(b.N), "mallocs/batch")
	if testing.Verbose() {
		for _, s := range p.Stats().Stages {
			b.Logf("%+v", s)
		}
	}
}

func BenchmarkRaw(b *testing.B) {
	for _, c := range []struct{ side, batch int }{{32, 256}, {256, 256}} {
		for _, op := range [][]string{nil, {`{"op":"RandomCrop","size":%d,"padding":4}`, opFlip}} {
			name := fmt.Sprintf("side=%d/identity", c.side)
			var list []string
			if op != nil {
				name = fmt.Sprintf("side=%d/crop-flip", c.side)
				list = []string{fmt.Sprintf(op[0], c.side), op[1]}
			}
			b.Run(name, func(b *testing.B) {
				run(b, Config{OpenSource: use(sourcetest.Raw(50_000, c.side, c.side, 3, 10)), BatchSize: c.batch, Shuffle: true, Memory: 1 << 30,
					Outputs: []transform.Output{{Name: "image", Ops: ops(list...)}}})
			})
		}
	}
}

// BenchmarkImages loads the data of STOKER_BENCH_DATA: a folder or a pack. BenchmarkBytes builds batches of values of
// any length from memory.
func BenchmarkBytes(b *testing.B) {
	for _, size := range []int64{100, 3000} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			data := make([]byte, size)
			src := sourcetest.NewMemory(50_000, []driver.Field{{Name: "data", Kind: driver.KindBytes, MaxBytes: size}}, func(id int64, v []driver.Value) error {
				v[0].Bytes = data[:size/2+id*7919%(size/2)]
				return nil
			})
			run(b, Config{OpenSource: use(src), BatchSize: 256, Shuffle: true, Memory: 1 << 30})
		})
	}
}

func BenchmarkImages(b *testing.B) {
	url := os.Getenv("STOKER_BENCH_DATA")
	if url == "" {
		b.Skip("STOKER_BENCH_DATA is not set")
	}
	cfg := Config{Source: url, BatchSize: 256, Shuffle: true, Memory: 1 << 30}
	b.Run("rrc", func(b *testing.B) {
		cfg.Outputs = imageOps(`{"op":"RandomResizedCrop","size":[224,224]}`, opFlip)
		run(b, cfg)
	})
	b.Run("jitter", func(b *testing.B) {
		cfg.Outputs = imageOps(`{"op":"RandomResizedCrop","size":[224,224]}`, `{"op":"ColorJitter","brightness":0.2}`)
		run(b, cfg)
	})
	b.Run("identity", func(b *testing.B) {
		cfg.Outputs = imageOps()
		if p, err := Open(context.Background(), cfg); err != nil {
			b.Skip("the images differ in size")
		} else {
			p.Close()
		}
		run(b, cfg)
	})
}

// BenchmarkDecodeOnly is the ceiling of BenchmarkImages/rrc for one core: the
// same groups of records, decoded by one worker again and again without
// sampler, reads, goroutines or hand-off.
func BenchmarkDecodeOnly(b *testing.B) {
	url := os.Getenv("STOKER_BENCH_DATA")
	if url == "" {
		b.Skip("STOKER_BENCH_DATA is not set")
	}
	p := mustOpen(b, Config{Source: url, BatchSize: 256, Shuffle: true, Memory: 1 << 30, Threads: 1,
		Outputs: imageOps(`{"op":"RandomResizedCrop","size":[224,224]}`, opFlip)})
	var groups [][]driver.Record
	for lo := int64(0); lo+int64(p.memory.groupRows) <= p.order.split.Len && len(groups) < 14; lo += int64(p.memory.groupRows) {
		var ids []int64
		for i := range int64(p.memory.groupRows) {
			ids = append(ids, lo+i)
		}
		recs, err := recordread.NewDirect(p.src, p.objects).Read(b.Context(), ids)
		if err != nil {
			b.Fatal(err)
		}
		groups = append(groups, recs)
	}
	w, bt := p.workers.list[0], &p.slots.batches[0]
	bt.ids = bt.ids[:p.order.split.Batch]
	bt.rows.Begin(p.memory.ring.Slot(0), p.order.split.Batch)
	cpu, rows := cpuTime(), 0
	for b.Loop() {
		g := groups[rows/p.memory.groupRows%len(groups)]
		bt.epoch++
		for _, err := range w.fill(bt, 0, g).Errs {
			if err != nil {
				b.Fatal(err)
			}
		}
		rows += p.memory.groupRows
	}
	b.ReportMetric(float64(rows)/(cpuTime()-cpu).Seconds(), "img/cpu-s")
}
