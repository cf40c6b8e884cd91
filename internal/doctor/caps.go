package doctor

import "math"

// More readers at once only help while the device has something left to give. Whether
// it has shows in three ways: the control group sets a limit, the device is busy all the
// time, or its throughput stays where it is when more is asked of it at once.

const (
	// cappedFrom is the share of what a device can give from which it has no more.
	cappedFrom = 0.9
	// flatSlope is the slope of throughput over requests at once, both as logarithms, below
	// which more of them bring nothing: 1 is a device that gives each what it gives one.
	flatSlope = 0.2
	// flatBins is how many seconds that takes, and flatSpread by how much the number of
	// requests at once must vary among them.
	flatBins, flatSpread = 5, 1.5
)

// deviceUse is how much of what the device can give the job takes, 0..1.
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

// flat reports whether a device gives no more when more is asked of it at once.
func (l *timeline) flat() bool {
	var n, sx, sy, sxx, sxy, least, most float64
	for i := range l.bins {
		b := &l.bins[i]
		if b.training == 0 || b.dt <= 0 || b.v[mDiskRead] <= 0 || b.v[mDiskTime] <= 0 {
			continue
		}
		queue := b.v[mDiskTime] / b.dt // requests at once, by Little's law
		x, y := math.Log(queue), math.Log(b.v[mDiskRead]/b.dt)
		if n == 0 || queue < least {
			least = queue
		}
		most = max(most, queue)
		n, sx, sy, sxx, sxy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	if n < flatBins || least < 1 || most < flatSpread*least {
		return false // mostly one at a time, or always as many: nothing can be told
	}
	return n*sxy-sx*sy < flatSlope*(n*sxx-sx*sx)
}

// peak is how many times the mean rate a device gave in its best second. That it can give
// more than twice that is not taken for granted.
func (l *timeline) peak(mean float64) float64 {
	most := mean
	for i := range l.bins {
		if b := &l.bins[i]; b.dt > 0.5 {
			most = max(most, b.v[mDiskRead]/b.dt)
		}
	}
	return most / max(mean, 1)
}

// capped reports whether the device can give no more.
func (s *shares) capped() bool { return s.device > cappedFrom }
