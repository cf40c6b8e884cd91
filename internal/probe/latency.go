package probe

import (
	"math"
	"time"

	"github.com/stokerdata/stoker/plan"
)

// latencies is a histogram of durations with bins 2% apart, from 1 us to about 500 s. Percentiles are accurate within
// 1% for any number of samples.
type latencies struct {
	bins [latencyBins]uint32
	sum  time.Duration
	max  time.Duration
	n    int64
}

const (
	latencyBins = 1024
	latencyStep = 1.02
	latencyMin  = float64(time.Microsecond)
)

func (l *latencies) add(d time.Duration) {
	k := 0
	if v := float64(d) / latencyMin; v > 1 {
		k = min(int(math.Log(v)/math.Log(latencyStep))+1, latencyBins-1)
	}
	l.bins[k]++
	l.sum += d
	l.max = max(l.max, d)
	l.n++
}

func (l *latencies) merge(o *latencies) {
	for i, n := range o.bins {
		l.bins[i] += n
	}
	l.sum += o.sum
	l.max = max(l.max, o.max)
	l.n += o.n
}

// percentile returns the value below which a share q of the samples is, in seconds.
func (l *latencies) percentile(q float64) float64 {
	want := int64(math.Ceil(q * float64(l.n)))
	var seen int64
	for k, n := range l.bins {
		if seen += int64(n); seen >= want && n > 0 {
			middle := latencyMin * math.Pow(latencyStep, float64(k)-0.5)
			return min(middle, float64(l.max)) / float64(time.Second)
		}
	}
	return l.max.Seconds()
}

func (l *latencies) summary() plan.Latency {
	if l.n == 0 {
		return plan.Latency{}
	}
	return plan.Latency{
		Mean: l.sum.Seconds() / float64(l.n), P50: l.percentile(0.5), P90: l.percentile(0.9), P99: l.percentile(0.99),
		P999: l.percentile(0.999), Max: l.max.Seconds(), Samples: l.n,
	}
}
