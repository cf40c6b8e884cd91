package doctor

import "github.com/stokerdata/stoker/internal/units"

// networkCheck is about reads from sockets.
type networkCheck struct{ resource }

func (networkCheck) about() about {
	return about{name: "network", verdict: Network, cause: causeNetwork, short: "network-bound", removed: "reading from the network", doing: "waiting for the network"}
}

func (c networkCheck) gain(f *findings) float64 { return c.gainOf(f, Network) }

func (networkCheck) evidence(f *findings) {
	if rate := f.per(mNetReceived) + f.per(mLoopback); rate > 0 {
		f.say("%s arrive", units.Bandwidth(rate))
	}
}

func (networkCheck) advise(f *findings) {
	f.add(f.r.Gains[Network], "stage the data on a local disk before the job starts",
		stoker("pack", "SOURCE", "/local/train/").then("  # then read the pack"), "reading from the network is %.0f%% of what making a batch takes", 100*f.s.cost(causeNetwork))
	f.add(0, "have more requests under way at once", dataLoader(option("num_workers", max(8, 2*f.r.Loader.Workers)), option("prefetch_factor", 8)),
		"a worker waits for one request at a time; latency hides behind many")
	f.add(0, "read few large objects instead of one per example", stoker("pack", "SOURCE", "train/"),
		"each request costs its round trip, whatever its size")
}
