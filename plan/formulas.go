package plan

import "math"

// The formulas of the planner, each a pure function. n, t and es are from "Feeding the beast", Assaf Pinhasi's
// article on the data loading path. "Efficient PyTorch" is by Eugene Khvedchenya.

// LargestBatch returns the largest n whose state fits an accelerator: (memory - parameters) / activation, rounded
// down. It is 0 if not even one example fits. All are in bytes, activation per example.
//
// Source: "Feeding the beast", Imagenet on ResNet 50: the memory holds the
// parameters once and the state of the network for each example.
func LargestBatch(memory, parameters, activation float64) int64 {
	if activation <= 0 || memory <= parameters {
		return 0
	}
	return int64(math.Min((memory-parameters)/activation, 1<<40))
}

// BatchMemory returns the memory for n examples on an accelerator: n x activation + parameters.
//
// Source: as LargestBatch.
func BatchMemory(n int64, parameters, activation float64) float64 {
	return float64(n)*activation + parameters
}

// PowerOfTwo returns the largest power of two that is not above n, 0 for n < 1. Batch sizes are usually one: 103 MB
// per example on 16 GB fit 154 times, and the text takes 128.
func PowerOfTwo(n int64) int64 {
	p := int64(1)
	if n < 1 {
		return 0
	}
	for p<<1 <= n && p < 1<<40 {
		p <<= 1
	}
	return p
}

// ComputeRate returns the examples per second that an accelerator could compute: its FLOP/s over the FLOPs of an
// example. Real training is slower, so needs derived from it are upper bounds.
//
// Source: "Feeding the beast": 7 TFLOP/s / 4 GFLOP = 1,750 examples/s, compared with 1,457 published.
func ComputeRate(flops, deviceFLOPS float64) float64 { return deviceFLOPS / flops }

// ReadIOPS returns the number of reads per second: n / t, one read per example. n counts the examples of all
// accelerators and experiments.
//
// Source: "Feeding the beast", stage 2: Read IOPS = n/t.
func ReadIOPS(n, t float64) float64 { return n / t }

// Disks returns the number of devices with iops each that give the needed reads.
//
// Source: "Feeding the beast": 5885 IOPS need "~45 disks".
func Disks(need, iops float64) float64 { return math.Ceil(need/iops - 1e-9) }

// ExampleBytes is the size of one example in a batch: the sum of its arrays,
// shape times element size.
//
// Source: "Efficient PyTorch", advice 4: 512 * 512 * 3 * sizeof(float32).
func ExampleBytes(arrays []Array) float64 {
	sum := 0.0
	for _, a := range arrays {
		sum += a.Bytes()
	}
	return sum
}

// WorkerBatches returns the memory for the batches of a loader with worker processes: batch x workers x ahead. ahead
// is the number of batches per worker that are finished or in progress.
//
// Source: "Efficient PyTorch", advice 4: "N times more RAM to store those
// batches" (ahead = 1). PyTorch's DataLoader gives each worker prefetch_factor = 2
// batches to work on (its documentation).
func WorkerBatches(batch, workers, ahead float64) float64 { return batch * workers * ahead }

// EpochSeconds returns the time of one pass over all records.
func EpochSeconds(records, rate float64) float64 { return records / rate }

// ReadsInFlight returns the number of concurrent reads for rate reads per second with latency seconds each.
//
// Source: Little's law, L = lambda x W.
func ReadsInFlight(rate, latency float64) float64 { return math.Max(1, math.Ceil(rate*latency-1e-9)) }

// ReadQuantile returns the quantile of a single read that decides about a batch. A batch waits for the slowest of its
// n reads, and all n are below a latency x with probability F(x)^n. For 99% of the batches of 128 reads it is
// 0.99992.
//
// Source: the distribution of the largest of n independent values.
func ReadQuantile(share float64, n int64) float64 {
	return math.Pow(share, 1/math.Max(1, float64(n)))
}

// At returns the quantile q of a latency distribution, from the percentiles that are known. Between two of them, and
// beyond the last, the logarithm of the latency is assumed to be linear in the number of nines, -log10(1-q). The
// tails of storage latencies have about that shape. The result is at most ten times the largest measured latency.
func (l Latency) At(q float64) float64 {
	type point struct{ nines, seconds float64 }
	var known []point
	for _, p := range []struct{ q, v float64 }{{0.5, l.P50}, {0.9, l.P90}, {0.99, l.P99}, {0.999, l.P999}} {
		if p.v > 0 && (len(known) == 0 || p.v >= known[len(known)-1].seconds) {
			known = append(known, point{-math.Log10(1 - p.q), p.v})
		}
	}
	if len(known) == 0 {
		return l.Mean
	}
	nines := -math.Log10(1 - math.Min(q, 1-1e-9))
	if nines <= known[0].nines || len(known) == 1 {
		return known[0].seconds
	}
	i := 1
	for i < len(known)-1 && nines > known[i].nines {
		i++
	}
	a, b := known[i-1], known[i]
	slope := math.Log(b.seconds/a.seconds) / (b.nines - a.nines)
	v := a.seconds * math.Exp(slope*(nines-a.nines))
	limit := 10 * math.Max(known[len(known)-1].seconds, l.Max)
	if l.Max > 0 && l.Samples > 0 && nines <= math.Log10(float64(l.Samples)) {
		limit = l.Max // as many reads were seen as it takes to see this quantile
	}
	return math.Min(v, math.Max(limit, known[len(known)-1].seconds))
}

// typical returns the mean if it is known, otherwise the median.
func (l Latency) typical() float64 {
	if l.Mean > 0 {
		return l.Mean
	}
	return l.P50
}

// BatchSeconds returns the maximum time for the share q of batches of n reads, with depth reads in flight. It is the
// time of the reads in each of depth sequences, plus the tail of the slowest read.
func BatchSeconds(l Latency, n int64, depth, q float64) float64 {
	mean := l.typical()
	return float64(n)*mean/depth + math.Max(0, l.At(ReadQuantile(q, n))-mean)
}
