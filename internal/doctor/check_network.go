package doctor

import (
	"cmp"

	"github.com/stokerdata/stoker/internal/units"
)

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
	share := 100 * f.s.cost(causeNetwork)
	f.add(f.r.Gains[Network], "keep what is read in a cache on this machine", f.cachedRemote(),
		"reading from the network is %.0f%% of what making a batch takes; what is kept comes from here in every later epoch, and in later jobs", share)
	f.add(f.r.Gains[Network], "stage the data on a local disk before the job starts", f.staged(),
		"reading from the network is %.0f%% of what making a batch takes", share)
	f.add(1/f.s.timeWithLess(Network, 0.8), "read few large objects instead of one per example", stoker("pack", cmp.Or(f.c.remoteData(), "s3://bucket/train/"), "s3://bucket/packed/"),
		"each request costs its round trip, whatever its size")
}

// cachedRemote returns the action for Stoker's loader with a cache, on the data in the job's command if that is known.
func (f *findings) cachedRemote() Action {
	switch url := f.c.remoteData(); {
	case url != "":
		return stokerLoader(url, option("cache", true))
	}
	return Action{kind: callPython, call: "stoker.Loader", first: []string{"..."}, args: []argument{option("cache", true)}}
}

// staged returns the action that copies the job's data to a local disk.
func (f *findings) staged() Action {
	if do, ok := f.pack("/local/train/"); ok {
		return do
	}
	return other("cp -r /mnt/train /local/train   # or rsync, aws s3 sync")
}
