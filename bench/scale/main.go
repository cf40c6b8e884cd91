// Command scale computes what a job of many ranks asks of the machines around it. It runs the functions that a loader
// runs: order, shares of ranks, restoring. Nothing is read. bench/simulate.py writes its page from the output.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/feed"
	"github.com/stokerdata/stoker/internal/sampler"
)

// data is a data set. Its chunks have about 8 MiB.
type data struct {
	Name        string `json:"name"`
	RecordBytes int64  `json:"record_bytes"`
}

// result is about one order of one data set.
type result struct {
	Data   string `json:"data"`
	Window int    `json:"window"` // 0 for all records
	Chunks int    `json:"chunks"`
	// PlanS, EpochS, RestoreS and BatchS are seconds in one rank: all that is computed once, per epoch, for the first
	// batch in mid-epoch, and for a further batch.
	PlanS    float64 `json:"plan_s"`
	EpochS   float64 `json:"epoch_s"`
	RestoreS float64 `json:"restore_s"`
	BatchS   float64 `json:"batch_s"`
	// Heap is the memory of all this in bytes. WindowBytes is that of the chunks in use.
	Heap        int64 `json:"heap"`
	InUse       int   `json:"in_use"`
	WindowBytes int64 `json:"window_bytes"`
	// Reads are the requests of all ranks in a step, and Bytes what they return: the mean of the steps that were
	// computed. Again is the number of bytes that are read for one that is used. First has the reads of the first step.
	Reads float64 `json:"reads"`
	Bytes float64 `json:"bytes"`
	Again float64 `json:"again"`
	First int64   `json:"first"`
	// Server and Shard are the most requests at one server and one shard in a step, ServerMean is the mean.
	Server     int64   `json:"server"`
	ServerMean float64 `json:"server_mean"`
	Shard      int64   `json:"shard"`
	// RankReads are the most requests of a rank in a step.
	RankReads int64 `json:"rank_reads"`
}

type job struct {
	Records int64 `json:"records"`
	Shards  int64 `json:"shards"`
	Ranks   int   `json:"ranks"`
	Batch   int   `json:"batch"`
	Servers int   `json:"servers"`
	Steps   int   `json:"steps"`
}

const (
	chunkBytes = 8 << 20
	seed       = 1
)

func main() {
	j := job{}
	flag.Int64Var(&j.Records, "records", 1e9, "records")
	flag.Int64Var(&j.Shards, "shards", 1e5, "shards")
	flag.IntVar(&j.Ranks, "ranks", 1e4, "ranks")
	flag.IntVar(&j.Batch, "batch", 256, "rows of a rank in a step")
	flag.IntVar(&j.Servers, "servers", 1000, "servers of the storage")
	flag.IntVar(&j.Steps, "steps", 2, "steps that are computed, at each of three places of an epoch")
	flag.Parse()
	out := json.NewEncoder(os.Stdout)
	_ = out.Encode(map[string]any{"job": j, "share": shares(&j), "ticket": ticket(&j)})
	for _, d := range []data{{"texts of 8 KB", 8 << 10}, {"photographs of 110 KB", 110_000}} {
		for _, window := range []int{0, 64, j.Ranks, 4 * j.Ranks} {
			_ = out.Encode(simulate(&j, d, window))
			fmt.Fprintln(os.Stderr, d.Name, window)
		}
	}
}

// shares returns the steps of an epoch, and the fewest and the most rows that a rank has in it.
func shares(j *job) map[string]int64 {
	least, most, steps := int64(1)<<62, int64(0), int64(0)
	for r := range j.Ranks {
		s := sampler.Split{Len: j.Records, Batch: j.Batch, Rank: r, World: j.Ranks, Uneven: sampler.Exact}
		n := s.Steps()
		rows := (n - 1) * int64(j.Batch)
		if p, ok := s.At((n - 1) * int64(j.Batch) * int64(j.Ranks)); ok {
			rows += int64(p.Rows())
		}
		least, most, steps = min(least, rows), max(most, rows), n
	}
	return map[string]int64{"steps": steps, "least": least, "most": most}
}

// ticket returns the size of a request to a feeder, and the seconds to parse it.
func ticket(j *job) map[string]float64 {
	t := feed.Ticket{Manifest: fmt.Sprintf("%032x", 1), Pipeline: fmt.Sprintf("%032x", 2), Seed: seed, Epoch: 3, Batch: 300}
	t.Rows = feed.Rows{Lo: j.Records / 2, Hi: j.Records/2 + int64(j.Batch)}
	text := t.Text()
	seconds := fastest(5, func() {
		for range 1000 {
			if _, err := feed.ParseTicket(text); err != nil {
				panic(err)
			}
		}
	})
	return map[string]float64{"bytes": float64(len(text)), "parse_s": seconds / 1000}
}

// fastest returns the shortest of several runs, because other programs may run at the same time.
func fastest(runs int, f func()) float64 {
	best := time.Duration(1 << 62)
	for range runs {
		begin := time.Now()
		f()
		best = min(best, time.Since(begin))
	}
	return best.Seconds()
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// simulate computes the figures of an order.
func simulate(j *job, d data, window int) result {
	per := max(chunkBytes/d.RecordBytes, 1)
	var starts []int64
	for at := int64(0); at < j.Records; at += per {
		starts = append(starts, at)
	}
	starts = append(starts, j.Records)
	out := result{Data: d.Name, Window: window, Chunks: len(starts) - 1}
	split := func(rank int) *sampler.Split {
		return &sampler.Split{Len: j.Records, Batch: j.Batch, Rank: rank, World: j.Ranks, Uneven: sampler.Exact, InTurn: window > 0}
	}
	before := heap()
	var w *sampler.Windows
	if window > 0 {
		out.PlanS = fastest(3, func() {
			var err error
			if w, err = sampler.NewWindows(starts, window); err != nil {
				panic(err)
			}
		})
		out.InUse = w.InUse(j.Ranks)
		out.WindowBytes = int64(out.InUse) * chunkBytes
	}
	epoch := func(rank int, n int64) *sampler.Epoch {
		if w == nil {
			return sampler.NewEpoch(split(rank), true, seed, n)
		}
		return w.Epoch(seed, n).Of(split(rank))
	}
	var e *sampler.Epoch
	out.EpochS = fastest(5, func() { e = epoch(j.Ranks/3, 1) })
	global := int64(j.Batch) * int64(j.Ranks)
	middle := j.Records / 2 / global * global
	ids := make([]int64, j.Batch)
	fill := func(e *sampler.Epoch, at int64) sampler.Part {
		p, ok := e.At(at)
		if !ok {
			panic("no batch")
		}
		e.Fill(ids[:p.Rows()], &p, 0)
		return p
	}
	out.RestoreS = fastest(5, func() { fill(epoch(j.Ranks/3, 1), middle) })
	at := fill(e, middle).Next
	out.BatchS = fastest(5, func() { at = fill(e, at).Next })
	out.Heap = heap() - before
	runtime.KeepAlive(e)
	if window > 0 {
		out.Heap += int64(len(starts)) * 8
	}
	out.traffic(j, d, w, starts, epoch, global)
	return out
}

// traffic counts the requests of all ranks at three places of an epoch.
func (out *result) traffic(j *job, d data, w *sampler.Windows, starts []int64, epoch func(rank int, n int64) *sampler.Epoch, global int64) {
	chunks := int64(len(starts) - 1)
	steps := j.Records / global
	var reads, computed, bytes int64
	ids := make([]int64, j.Batch)
	for _, place := range []int64{0, steps / 2, steps - int64(j.Steps) - 2} {
		// known are the chunks that a rank has read. The first step is that of a job that begins or goes on here.
		known := map[uint64]struct{}{}
		e := make([]*sampler.Epoch, 1)
		if w == nil {
			e[0] = epoch(0, 1)
		}
		for step := range int64(j.Steps) + 1 {
			shards, ranks := make([]int64, j.Shards), make([]int64, j.Ranks)
			count := func(rank int, shard int64) {
				ranks[rank]++
				shards[shard]++
			}
			at := (place + step) * global
			if w == nil {
				order := sampler.NewOrder(j.Records, true, seed, 1)
				for rank := range j.Ranks {
					order.Fill(ids, at+int64(rank)*int64(j.Batch))
					for _, id := range ids {
						count(rank, id*j.Shards/j.Records)
					}
				}
			} else {
				if e[0] == nil { // one walk for all: a position of any rank
					e[0] = w.Epoch(seed, 1).Of(&sampler.Split{Len: j.Records, Batch: int(global), World: 1, Uneven: sampler.Exact})
				}
				p, _ := e[0].At(at)
				all := make([]int64, 1<<14)
				for k := 0; k < p.Rows(); k += len(all) {
					part := all[:min(len(all), p.Rows()-k)]
					e[0].Fill(part, &p, k)
					for i, id := range part {
						rank := int((at + int64(k+i)) % int64(j.Ranks))
						chunk := w.Chunk(id)
						key := uint64(rank)<<32 | uint64(chunk)
						if _, ok := known[key]; !ok {
							known[key] = struct{}{}
							count(rank, int64(chunk)*j.Shards/chunks)
						}
					}
				}
			}
			servers, n := make([]int64, j.Servers), int64(0)
			for shard, v := range shards {
				h := xxh3.HashString(fmt.Sprint(shard))
				servers[h%uint64(j.Servers)] += v
				n += v
			}
			if step == 0 && w != nil {
				out.First = max(out.First, n)
				continue
			}
			reads, computed = reads+n, computed+1
			out.Server, out.RankReads = max(out.Server, slices.Max(servers)), max(out.RankReads, slices.Max(ranks))
			out.Shard = max(out.Shard, slices.Max(shards))
			size := d.RecordBytes
			if w != nil {
				size = chunkBytes
			}
			bytes += n * size
		}
	}
	out.Reads = float64(reads) / float64(computed)
	out.ServerMean = out.Reads / float64(j.Servers)
	out.Bytes = float64(bytes) / float64(computed)
	out.Again = out.Bytes / float64(global*d.RecordBytes)
}
