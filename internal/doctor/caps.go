package doctor

import "math"

// More concurrent readers only help while the device has spare capacity. Three signs show that it has none: the control
// group sets a limit, the device is busy all the time, or its throughput does not grow with more concurrent requests.

const (
	// cappedFrom is the utilization from which a device counts as fully used.
	cappedFrom = 0.9
	// flatSlope is the slope of throughput over concurrent requests, both as logarithms, below which more requests do
	// not help. A slope of 1 is a device that serves each request as fast as a single one.
	flatSlope = 0.2
	// flatBins is the number of seconds that are needed for a slope. flatSpread is the factor by which the number of
	// concurrent requests must vary among them.
	flatBins, flatSpread = 5, 1.5
)

// deviceUse returns the fraction of the device's capacity that the job uses, 0..1.
func (c *collector) deviceUse(l *timeline, sum *bin) float64 {
	if sum.dt <= 0 || sum.v[mReadBytes] <= 0.5*sum.v[mDiskRead] || sum.v[mReadBytes] <= 1<<20*sum.dt {
		return 0
	}
	use := min(1, sum.v[mDiskBusy]/sum.dt)
	for _, limit := range []struct{ rate, most float64 }{{sum.v[mDiskRead] / sum.dt, c.sys.readBytes}, {sum.v[mDiskReads] / sum.dt, c.sys.readCount}} {
		if limit.most > 0 {
			use = max(use, min(1, limit.rate/limit.most))
		}
	}
	if l.flat() {
		use = max(use, cappedFrom+0.05)
	}
	return use
}

// flat reports whether the throughput of a device does not grow with more concurrent requests.
func (l *timeline) flat() bool {
	var n, sx, sy, sxx, sxy, least, most float64
	for i := range l.bins {
		b := &l.bins[i]
		if b.training == 0 || b.dt <= 0 || b.v[mDiskRead] <= 0 || b.v[mDiskTime] <= 0 {
			continue
		}
		queue := b.v[mDiskTime] / b.dt // concurrent requests, by Little's law
		x, y := math.Log(queue), math.Log(b.v[mDiskRead]/b.dt)
		if n == 0 || queue < least {
			least = queue
		}
		most = max(most, queue)
		n, sx, sy, sxx, sxy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	if n < flatBins || least < 1 || most < flatSpread*least {
		return false // mostly one at a time, or a constant number: inconclusive
	}
	return n*sxy-sx*sy < flatSlope*(n*sxx-sx*sx)
}

// peak returns the throughput of a device's best second as a multiple of the mean. The model assumes that the device
// reaches at most twice that.
func (l *timeline) peak(mean float64) float64 {
	most := mean
	for i := range l.bins {
		if b := &l.bins[i]; b.dt > 0.5 {
			most = max(most, b.v[mDiskRead]/b.dt)
		}
	}
	return most / max(mean, 1)
}

// capped reports whether the device is at its limit.
func (s *shares) capped() bool { return s.device > cappedFrom }
